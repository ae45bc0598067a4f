/* The pre-tokenizer's regular expression: translated from the dialect of tokenizer.json (Oniguruma, as the reference
 * library compiles it) to PCRE2, and used to cut text. Constructs whose meaning differs between the two, or that were
 * never compared, are refused by name. Private to text. A pattern is immutable; matching state is the caller's. */
#ifndef PGL_TEXT_PATTERN_H
#define PGL_TEXT_PATTERN_H

#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct pgl_pattern pgl_pattern;
typedef struct pgl_pattern_state pgl_pattern_state; /* of one thread */

pgl_status pgl_pattern_open(const char *source, size_t size, pgl_pattern **out, pgl_error *err);
void pgl_pattern_close(pgl_pattern *pattern); /* NULL is allowed */

pgl_status pgl_pattern_state_open(const pgl_pattern *pattern, pgl_pattern_state **out, pgl_error *err);
void pgl_pattern_state_close(pgl_pattern_state *state); /* NULL is allowed */

/* The piece of text that starts at `at`: a match, or what lies before the next match. Sets *end to its end; the caller
 * goes on from there until that is size, starting each text at 0. text must be valid UTF-8, at a boundary. */
pgl_status pgl_pattern_next(pgl_pattern_state *state, const char *text, size_t size, size_t at, size_t *end,
                            pgl_error *err);

/* Appends the PCRE2 form of source. PGL_E_UNSUPPORTED names the construct. */
pgl_status pgl_pattern_translate(const char *source, size_t size, pgl_buf *out, pgl_error *err);

#endif
