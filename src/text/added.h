/* Added tokens: leftmost-longest matching of their spellings, and the breaking of spellings that are to stay text.
 * Private to text. Owned by a tokenizer; immutable once finished. */
#ifndef PGL_TEXT_ADDED_H
#define PGL_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct pgl_added_token {
    char *text; /* owned; as the file spells it */
    size_t size;
    char *match; /* owned; what is looked for: text, or its normal form when normalized */
    size_t match_size;
    char *bytes; /* owned; what the id decodes to */
    size_t bytes_size;
    int32_t id;
    bool special, normalized;
    bool lstrip, rstrip; /* the match takes the white space before (behind) it along */
} pgl_added_token;

/* One of the two passes: tokens sorted by first byte, longest first. */
typedef struct pgl_added_index {
    const pgl_added_token **tokens;
    size_t count;
    uint16_t from[257]; /* tokens[from[b] .. from[b + 1]) begin with byte b */
} pgl_added_index;

typedef struct pgl_added {
    pgl_added_token *tokens; /* by rising id */
    size_t count, capacity;
    pgl_added_index raw, normalized;
} pgl_added;

#define PGL_ADDED_MOST 4096

void pgl_added_fini(pgl_added *added);

/* Takes over token's strings, also when it fails. */
pgl_status pgl_added_put(pgl_added *added, pgl_added_token token, pgl_error *err);

/* Releases what a token has of its strings; returns PGL_E_MEMORY, the reason for calling this. */
pgl_status pgl_added_drop(pgl_added_token token, pgl_error *err);

/* Sorts and indexes; refuses two tokens of one id or spelling. */
pgl_status pgl_added_finish(pgl_added *added, pgl_error *err);

const pgl_added_token *pgl_added_find(const pgl_added *added, const char *text, size_t size);
const pgl_added_token *pgl_added_by_id(const pgl_added *added, int32_t id);

/* The first match at or after `at`: NULL when there is none, else [*start, *end) is what it covers. A token that strips
 * on its left never takes what is before `floor`. */
const pgl_added_token *pgl_added_match(const pgl_added_index *index, const char *text, size_t size, size_t at,
                                       size_t floor, size_t *start, size_t *end);

/* See pgl_tokenizer_break. */
bool pgl_added_break(const pgl_added *added, const char *text, size_t size, uint32_t breaker, bool inside,
                     pgl_buf *out);

#endif
