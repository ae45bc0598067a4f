/* Owns nothing. */
#include "text/decode.h"

#include <string.h>

#include "base/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD"

void pgl_decoder_init(pgl_decoder *d, const pgl_tokenizer *tokenizer, bool skip_special) {
    *d = (pgl_decoder){.tokenizer = tokenizer, .skip_special = skip_special};
}

static bool append_valid(const pgl_decoder *d, const char *text, size_t size, pgl_buf *out) {
    while (d->replace_nul && size > 0) {
        const char *nul = memchr(text, 0, size);
        size_t n = nul != NULL ? (size_t)(nul - text) : size;
        if (!pgl_buf_append(out, text, n) || (nul != NULL && !pgl_buf_puts(out, REPLACEMENT)))
            return false;
        text += nul != NULL ? n + 1 : n;
        size -= nul != NULL ? n + 1 : n;
    }
    return pgl_buf_append(out, text, size);
}

/* One byte behind those held. */
static bool push_byte(pgl_decoder *d, char byte, pgl_buf *out) {
    for (;;) {
        uint32_t c;
        d->held[d->n_held] = byte;
        int n = pgl_utf8_decode(d->held, d->n_held + 1, &c);
        if (n == 0) {
            d->n_held++;
            return true;
        }
        uint32_t held = d->n_held;
        d->n_held = 0;
        if (n > 0)
            return append_valid(d, d->held, held + 1, out);
        if (!pgl_buf_puts(out, REPLACEMENT))
            return false;
        if (held == 0)
            return true;
        /* the byte did not fit behind what was held; it may begin something itself */
    }
}

bool pgl_decoder_push_bytes(pgl_decoder *d, const char *bytes, size_t size, pgl_buf *out) {
    size_t i = 0;
    while (i < size) {
        size_t n = d->n_held == 0 ? pgl_utf8_valid_prefix(bytes + i, size - i) : 0;
        if (n > 0) {
            if (!append_valid(d, bytes + i, n, out))
                return false;
            i += n;
        } else if (!push_byte(d, bytes[i++], out)) {
            return false;
        }
    }
    return true;
}

bool pgl_decoder_push(pgl_decoder *d, int32_t id, pgl_buf *out) {
    if (d->skip_special && pgl_tokenizer_kind(d->tokenizer, id) == PGL_TOKEN_SPECIAL)
        return true;
    size_t size;
    const char *bytes = pgl_tokenizer_bytes(d->tokenizer, id, &size);
    return size == 0 || pgl_decoder_push_bytes(d, bytes, size, out);
}

bool pgl_decoder_finish(pgl_decoder *d, pgl_buf *out) {
    bool held = d->n_held > 0;
    d->n_held = 0;
    return !held || pgl_buf_puts(out, REPLACEMENT);
}

bool pgl_decode(const pgl_tokenizer *tokenizer, const int32_t *ids, size_t n, bool skip_special,
                pgl_buf *out) {
    pgl_decoder d;
    pgl_decoder_init(&d, tokenizer, skip_special);
    for (size_t i = 0; i < n; i++)
        if (!pgl_decoder_push(&d, ids[i], out))
            return false;
    return pgl_decoder_finish(&d, out);
}
