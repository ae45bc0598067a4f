/* The tokenizer of a checkpoint: text to token ids, and what each id stands for.
 *
 * Byte-level BPE as the `tokenizers` library runs it for tokenizer.json files of this family: NFC, one Split
 * expression, ByteLevel, BPE, added tokens matched leftmost-longest (docs/format.md, "The tokenizer"). Any other
 * normalizer, pre-tokenizer, model, post-processor or decoder is refused by name when the file is opened, so that an
 * opened tokenizer never guesses.
 *
 * A tokenizer is immutable once opened; any number of threads may use it at the same time. Every call that takes text
 * wants valid UTF-8. Time is O(n log n) in the size of the text whatever it holds. */
#ifndef PGL_TEXT_TOKENIZER_H
#define PGL_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

/* The longest text of one call; work memory is at most 40 bytes for each of its bytes. */
#define PGL_TOKENIZER_MAX_BYTES ((size_t)32 << 20)

typedef struct pgl_tokenizer pgl_tokenizer;

/* A growing array of token ids, owned by one thread at a time. Start with zeroed memory. */
typedef struct pgl_ids {
    int32_t *data;
    size_t count;
    size_t capacity;
} pgl_ids;

void pgl_ids_fini(pgl_ids *ids);
bool pgl_ids_append(pgl_ids *ids, int32_t id);

/* Reads the bytes of tokenizer.json and, where the checkpoint has one, of tokenizer_config.json (NULL, 0: none; of it
 * added_tokens_decoder, add_bos_token and add_prefix_space are looked at). The bytes are not kept. PGL_E_FORMAT when the
 * file contradicts itself, PGL_E_UNSUPPORTED for what is not implemented, PGL_E_MEMORY. */
pgl_status pgl_tokenizer_open(const char *json, size_t size, const char *config, size_t config_size,
                              pgl_tokenizer **out, pgl_error *err);
void pgl_tokenizer_close(pgl_tokenizer *tokenizer); /* NULL is allowed */

/* ---- text to ids ---- */

typedef enum pgl_encode_mode {
    PGL_ENCODE_RAW,  /* spellings of added tokens become those tokens */
    PGL_ENCODE_TEXT, /* they stay text: no id that comes out is an added token, whatever the text spells */
} pgl_encode_mode;

/* Appends the ids of text. PGL_E_INVALID: not UTF-8; PGL_E_TOO_LARGE; PGL_E_INTERNAL: the expression ran into its limit
 * (never happens with the published one); PGL_E_MEMORY. On failure ids holds what it held before. */
pgl_status pgl_tokenizer_encode(const pgl_tokenizer *tokenizer, const char *text, size_t size,
                                pgl_encode_mode mode, pgl_ids *ids, pgl_error *err);

/* As PGL_ENCODE_RAW, of text in which `breaker`, a code point, stands inside spellings that are to stay text: added
 * tokens are matched with the breakers in place, then every breaker is removed and the rest encoded. */
pgl_status pgl_tokenizer_encode_broken(const pgl_tokenizer *tokenizer, const char *text, size_t size,
                                       uint32_t breaker, pgl_ids *ids, pgl_error *err);

/* ---- the vocabulary ---- */

/* One past the highest id that the tokenizer knows. Ids from here on (the padding of the embedding) mean nothing. */
int32_t pgl_tokenizer_n_ids(const pgl_tokenizer *tokenizer);

typedef enum pgl_token_kind {
    PGL_TOKEN_NONE,    /* beyond the tokenizer, or a hole in its ids */
    PGL_TOKEN_TEXT,    /* a token of the model's vocabulary */
    PGL_TOKEN_ADDED,   /* an added token that is not special: <think>, <tool_call> */
    PGL_TOKEN_SPECIAL, /* a special one: <|im_start|>; left out of decoded text on request */
} pgl_token_kind;

pgl_token_kind pgl_tokenizer_kind(const pgl_tokenizer *tokenizer, int32_t id);

/* The bytes that id decodes to; not always UTF-8 by themselves. Borrowed from the tokenizer; NULL and 0 for
 * PGL_TOKEN_NONE. */
const char *pgl_tokenizer_bytes(const pgl_tokenizer *tokenizer, int32_t id, size_t *size);

/* The id of the added token that is spelled like this, or -1. */
int32_t pgl_tokenizer_find_added(const pgl_tokenizer *tokenizer, const char *text, size_t size);

/* The id of the token of the model's vocabulary with just these bytes, or -1. */
int32_t pgl_tokenizer_find_text(const pgl_tokenizer *tokenizer, const char *bytes, size_t size);

/* The added tokens in rising order of their ids. */
size_t pgl_tokenizer_n_added(const pgl_tokenizer *tokenizer);
int32_t pgl_tokenizer_added(const pgl_tokenizer *tokenizer, size_t i);

/* The bytes of the longest token. */
size_t pgl_tokenizer_longest(const pgl_tokenizer *tokenizer);

/* Appends text to out with `breaker` (a code point that must not occur in text) put into every spelling of an
 * added token, and into every beginning or end of text that could become one together with what stands next to
 * it; inside: also into text that lies wholly within a spelling ("think"). Removing the breakers gives text
 * again. False when memory is out. */
bool pgl_tokenizer_break(const pgl_tokenizer *tokenizer, const char *text, size_t size, uint32_t breaker,
                         bool inside, pgl_buf *out);

#endif
