#include "server/json_out.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

void pgl_out_fini(pgl_out *out) {
    pgl_buf_fini(&out->buf);
    out->failed = false;
}

void pgl_out_clear(pgl_out *out) {
    pgl_buf_clear(&out->buf);
    out->failed = false;
}

void pgl_out_bytes(pgl_out *out, const char *data, size_t size) {
    out->failed = !pgl_buf_append(&out->buf, data, size) || out->failed;
}

void pgl_out_raw(pgl_out *out, const char *text) {
    pgl_out_bytes(out, text, strlen(text));
}

void pgl_out_printf(pgl_out *out, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text)
        out->failed = true;
    else
        pgl_out_bytes(out, text, (size_t)n);
}

void pgl_out_string(pgl_out *out, const char *text, size_t size) {
    out->failed = !pgl_json_put_string(&out->buf, text, size) || out->failed;
}

void pgl_out_str(pgl_out *out, const char *text) {
    if (text)
        pgl_out_string(out, text, strlen(text));
    else
        pgl_out_raw(out, "null");
}

void pgl_out_number(pgl_out *out, double value) {
    out->failed = !pgl_json_put_number(&out->buf, value) || out->failed;
}

void pgl_answer_json(pgl_exchange *exchange, int status, pgl_out *out) {
    static const char no_memory[] = "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\","
                                    "\"param\":null,\"code\":\"out_of_memory\"}}";
    pgl_answer answer = {.status = status,
                         .content_type = "application/json",
                         .body = pgl_buf_text(&out->buf),
                         .size = out->buf.size};
    if (out->failed) {
        answer.status = 500;
        answer.body = no_memory;
        answer.size = sizeof no_memory - 1;
    }
    pgl_exchange_answer(exchange, &answer);
    pgl_out_fini(out);
}
