/* Token ids to text, one at a time.
 *
 * What comes out is valid UTF-8 after every call: bytes that begin a character are held until it is complete. What can
 * no longer become one is replaced by U+FFFD, once for each longest wrong beginning, so that the pieces joined are just
 * what decoding the whole list at once gives. A decoder belongs to one thread at a time; the tokenizer outlives it. */
#ifndef PGL_TEXT_DECODE_H
#define PGL_TEXT_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "text/tokenizer.h"

typedef struct pgl_decoder {
    const pgl_tokenizer *tokenizer;
    bool skip_special; /* special tokens give no text */
    bool replace_nul;  /* U+0000 comes out as U+FFFD: for who reads it, and may say it again. Off at first */
    char held[4];      /* the beginning of a character */
    uint32_t n_held;
} pgl_decoder;

void pgl_decoder_init(pgl_decoder *decoder, const pgl_tokenizer *tokenizer, bool skip_special);

/* Appends what id adds to the text, which may be nothing. Ids that mean nothing (PGL_TOKEN_NONE) add nothing. False when
 * memory is out. */
bool pgl_decoder_push(pgl_decoder *decoder, int32_t id, pgl_buf *out);

/* The same for bytes from elsewhere. */
bool pgl_decoder_push_bytes(pgl_decoder *decoder, const char *bytes, size_t size, pgl_buf *out);

/* The end: what is held becomes U+FFFD. The decoder may be used again. */
bool pgl_decoder_finish(pgl_decoder *decoder, pgl_buf *out);

/* A whole list. False when memory is out. */
bool pgl_decode(const pgl_tokenizer *tokenizer, const int32_t *ids, size_t n, bool skip_special,
                pgl_buf *out);

#endif
