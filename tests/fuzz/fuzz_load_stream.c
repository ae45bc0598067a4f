/* Any bytes as a streamed answer, whole and cut by the first byte's rule: the same events, counts and end, and messages
 * that are text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/load_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth) {
    if (!truth)
        abort();
}

static void note(void *user, unsigned what) {
    pgl_buf_putc(user, (char)('0' + what));
}

static void run(const char *data, size_t size, size_t step, pgl_buf *out) {
    pgl_load_stream stream;
    pgl_load_stream_fault fault = PGL_LOAD_STREAM_FINE;
    pgl_load_stream_init(&stream, 100, note, out);
    for (size_t at = 0; at < size && fault == PGL_LOAD_STREAM_FINE; at += step)
        fault = pgl_load_stream_feed(&stream, data + at, size - at < step ? size - at : step);
    require(strlen(stream.message) < PGL_LOAD_TEXT_BYTES);
    require(pgl_utf8_valid(stream.message, strlen(stream.message)));
    require(stream.n_events <= 101);
    pgl_buf_printf(out, "|%d %d %d %lld %lld %lld %s", (int)fault, stream.done, stream.finished,
                   (long long)stream.prompt_tokens, (long long)stream.completion_tokens,
                   (long long)stream.cached_tokens, stream.message);
    pgl_load_stream_fini(&stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    char message[PGL_LOAD_TEXT_BYTES];
    pgl_buf whole = PGL_BUF_INIT, cut = PGL_BUF_INIT;
    run((const char *)data + 1, size - 1, size, &whole);
    run((const char *)data + 1, size - 1, data[0] % 32 + 1, &cut);
    require(whole.size == cut.size && memcmp(whole.data, cut.data, whole.size) == 0);
    pgl_load_error_message((const char *)data, size, message);
    require(pgl_utf8_valid(message, strlen(message)));
    pgl_buf_fini(&whole);
    pgl_buf_fini(&cut);
    return 0;
}
