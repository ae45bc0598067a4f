/* Structured output: llguidance behind the same rules as bridge.h (codes, messages, no panics across the border).
 *
 * A vocabulary is immutable once made and shared by any number of threads; a matcher is one running answer and belongs
 * to one thread at a time. */
#ifndef PGL_BRIDGE_CONSTRAINT_H
#define PGL_BRIDGE_CONSTRAINT_H

#include "bridge/bridge.h"

typedef struct pgl_bridge_vocabulary pgl_bridge_vocabulary;
typedef struct pgl_bridge_matcher pgl_bridge_matcher;

/* Starts the thread that bounds the time of steps, one for the process; it is started with the first grammar otherwise. 0: it
 * cannot be started. */
int pgl_bridge_watch(void);

typedef struct pgl_bridge_vocabulary_spec {
    uint32_t n_ids;
    const char *const *bytes; /* [n_ids]: what each id decodes to; NULL: the id does not exist */
    const size_t *sizes;      /* [n_ids] */
    const uint8_t
        *control; /* [n_ids]: 1: an added token, which no text can match; grammars name it <spelling> */
    const int32_t *ends; /* end-of-answer ids: allowed where a grammar is complete */
    uint32_t n_ends;     /* >= 1 */
} pgl_bridge_vocabulary_spec;

pgl_bridge_code pgl_bridge_vocabulary_open(const pgl_bridge_vocabulary_spec *spec,
                                           pgl_bridge_vocabulary **out, char *error, size_t error_size);
void pgl_bridge_vocabulary_close(pgl_bridge_vocabulary *vocabulary); /* NULL is allowed */

/* Compiles a grammar in llguidance's Lark dialect. most_items bounds the state of an answer: what may come next of it,
 * counted once for each way to get there; an answer that goes over it fails. PGL_BRIDGE_SYNTAX: it is no grammar, or uses
 * what is not supported, which the message names; PGL_BRIDGE_LIMIT: it is too large. The matcher keeps what it needs of the
 * vocabulary. */
pgl_bridge_code pgl_bridge_matcher_compile(const pgl_bridge_vocabulary *vocabulary, const char *grammar,
                                           size_t size, size_t most_items, pgl_bridge_matcher **out,
                                           char *error, size_t error_size);
void pgl_bridge_matcher_close(pgl_bridge_matcher *matcher); /* NULL is allowed */

/* Another answer from where this one stands, without compiling; nothing is shared between the two that either changes. */
pgl_bridge_code pgl_bridge_matcher_again(const pgl_bridge_matcher *matcher, pgl_bridge_matcher **out,
                                         char *error, size_t error_size);

/* Writes the ids that may come next: bit id % 32 of word id / 32, n_words = (n_ids + 31) / 32. Once the grammar can only
 * end, just the end ids. */
pgl_bridge_code pgl_bridge_matcher_mask(pgl_bridge_matcher *matcher, uint32_t *mask, size_t n_words,
                                        char *error, size_t error_size);

/* Moves on by a token that the last mask allowed. */
pgl_bridge_code pgl_bridge_matcher_accept(pgl_bridge_matcher *matcher, int32_t token, char *error,
                                          size_t error_size);

/* 1: the answer may end here. */
int pgl_bridge_matcher_accepting(pgl_bridge_matcher *matcher);

#endif
