/* Any bytes, whole and cut by the first byte's rule: the same events, bodies within the limit, no byte lost. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth) {
    if (!truth)
        abort();
}

static void note_head(const pgl_http_head *head, pgl_buf *out) {
    pgl_buf_printf(out, "%s %s ? %s %u%d%d%d %llu", head->method, head->path, head->query, head->minor,
                   head->keep_alive, head->expect_continue, head->chunked,
                   (unsigned long long)head->content_length);
    require(head->path[0] == '/' || head->path[0] == '*');
    for (uint32_t i = 0; i < head->n_headers; i++)
        pgl_buf_printf(out, "[%s=%s]", head->headers[i].name, head->headers[i].value);
    require(!(head->chunked && pgl_http_header_find(head, "content-length")));
    char *path = strdup(head->path);
    if (path && pgl_http_percent_decode(path))
        require(strlen(path) <= strlen(head->path));
    free(path);
}

static void run(const char *data, size_t size, size_t step, pgl_buf *out) {
    pgl_http_limits limits = {
        .max_target_bytes = 64, .max_head_bytes = 512, .max_headers = 8, .max_body_bytes = 256};
    pgl_http_reader *reader = pgl_http_reader_open(&limits);
    size_t at = 0, end = step < size ? step : size;
    for (;;) {
        size_t used;
        pgl_http_event event = pgl_http_reader_feed(reader, data + at, end - at, &used);
        require(used <= end - at);
        at += used;
        if (event == PGL_HTTP_HEAD) {
            note_head(pgl_http_reader_head(reader), out);
            if (pgl_http_reader_head(reader)->n_headers % 2)
                pgl_http_reader_expect(reader, 64, pgl_http_reader_head(reader)->minor != 0);
        } else if (event == PGL_HTTP_END) {
            const pgl_buf *body = pgl_http_reader_body(reader);
            require(body->size <= limits.max_body_bytes);
            pgl_buf_append(out, body->data, body->size);
            pgl_buf_printf(out, "<%zu>", at);
            pgl_http_reader_next(reader);
        } else if (event == PGL_HTTP_BAD) {
            const pgl_http_fault *fault = pgl_http_reader_fault(reader);
            require(fault->status >= 400 && fault->status < 600);
            pgl_buf_printf(out, "bad %d", fault->status);
            break;
        } else {
            require(at == end);
            if (end == size)
                break;
            end = step < size - end ? end + step : size;
        }
    }
    pgl_http_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    size_t step = data[0] % 32 + 1;
    pgl_buf whole = PGL_BUF_INIT, cut = PGL_BUF_INIT;
    run((const char *)data + 1, size - 1, size, &whole);
    run((const char *)data + 1, size - 1, step, &cut);
    require(whole.size == cut.size && (whole.size == 0 || memcmp(whole.data, cut.data, whole.size) == 0));
    pgl_buf_fini(&whole);
    pgl_buf_fini(&cut);
    return 0;
}
