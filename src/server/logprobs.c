#include "server/logprobs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define LEAST (-9999.0)

void pgl_put_logprob(pgl_out *out, float logprob) {
    double value = isfinite(logprob) ? (double)logprob : LEAST;
    pgl_out_printf(out, "%.9g", value < LEAST ? LEAST : value);
}

static void put_bytes(const char *bytes, size_t size, pgl_out *out) {
    pgl_out_raw(out, "[");
    for (size_t i = 0; bytes && i < size; i++)
        pgl_out_printf(out, "%s%u", i ? "," : "", (unsigned)(unsigned char)bytes[i]);
    pgl_out_raw(out, "]");
}

static void put_entry(const pgl_tokenizer *tokenizer, int32_t id, float logprob, pgl_out *out) {
    size_t size;
    const char *bytes = pgl_tokenizer_bytes(tokenizer, id, &size);
    pgl_out_raw(out, "{\"token\":");
    pgl_out_string(out, bytes ? bytes : "", size);
    pgl_out_raw(out, ",\"logprob\":");
    pgl_put_logprob(out, logprob);
    pgl_out_raw(out, ",\"bytes\":");
    put_bytes(bytes, size, out);
}

void pgl_put_chat_logprob(const pgl_tokenizer *tokenizer, const pgl_event *event, uint32_t n_top,
                          pgl_out *out) {
    bool listed = false;
    uint32_t n = event->n_top < n_top ? event->n_top : n_top;
    put_entry(tokenizer, event->token, event->logprob, out);
    pgl_out_raw(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < n; i++) {
        pgl_token_logprob at = event->top[i];
        listed = listed || at.id == event->token;
        if (i + 1 == n && !listed)
            at = (pgl_token_logprob){event->token, event->logprob};
        if (i > 0)
            pgl_out_raw(out, ",");
        put_entry(tokenizer, at.id, at.logprob, out);
        pgl_out_raw(out, "}");
    }
    pgl_out_raw(out, "]}");
}

/* The name without quotes. */
static bool name_of(const pgl_tokenizer *tokenizer, int32_t id, pgl_buf *name) {
    size_t size;
    const char *bytes = pgl_tokenizer_bytes(tokenizer, id, &size);
    if (!bytes)
        return pgl_buf_printf(name, "token_id:%d", id);
    if (pgl_utf8_valid(bytes, size))
        return pgl_buf_append(name, bytes, size);
    bool fine = pgl_buf_puts(name, "bytes:");
    for (size_t i = 0; i < size; i++)
        fine = fine && pgl_buf_printf(name, "\\x%02x", (unsigned)(unsigned char)bytes[i]);
    return fine;
}

void pgl_put_token_name(const pgl_tokenizer *tokenizer, int32_t id, pgl_out *out) {
    pgl_buf name = PGL_BUF_INIT;
    out->failed = !name_of(tokenizer, id, &name) || out->failed;
    pgl_out_string(out, pgl_buf_text(&name), name.size);
    pgl_buf_fini(&name);
}

/* Different ids may spell the same. */
static bool same_name(const pgl_tokenizer *tokenizer, int32_t a, int32_t b) {
    size_t n, m;
    const char *x = pgl_tokenizer_bytes(tokenizer, a, &n), *y = pgl_tokenizer_bytes(tokenizer, b, &m);
    return x && y && n == m && memcmp(x, y, n) == 0;
}

static bool occurs(const pgl_tokenizer *tokenizer, const pgl_token_logprob *top, uint32_t n, int32_t id) {
    for (uint32_t i = 0; i < n; i++)
        if (top[i].id == id || same_name(tokenizer, top[i].id, id))
            return true;
    return false;
}

void pgl_put_top_object(const pgl_tokenizer *tokenizer, const pgl_token_logprob *top, uint32_t n_top,
                        int32_t id, float logprob, pgl_out *out) {
    bool first = true;
    pgl_out_raw(out, "{");
    for (uint32_t i = 0; i <= n_top; i++) {
        pgl_token_logprob at = i < n_top ? top[i] : (pgl_token_logprob){id, logprob};
        if (occurs(tokenizer, top, i, at.id))
            continue;
        if (!first)
            pgl_out_raw(out, ",");
        first = false;
        pgl_put_token_name(tokenizer, at.id, out);
        pgl_out_raw(out, ":");
        pgl_put_logprob(out, at.logprob);
    }
    pgl_out_raw(out, "}");
}

uint32_t pgl_token_chars(const pgl_tokenizer *tokenizer, int32_t id) {
    size_t size;
    const char *bytes = pgl_tokenizer_bytes(tokenizer, id, &size);
    uint32_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    return n;
}
