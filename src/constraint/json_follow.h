/* Where an answer in JSON stands, byte by byte: enough of its state to bound what a grammar leaves without bound. Private to
 * src/constraint. One thread at a time. */
#ifndef PGL_CONSTRAINT_JSON_FOLLOW_H
#define PGL_CONSTRAINT_JSON_FOLLOW_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

typedef struct pgl_json_follow {
    pgl_buf open; /* '{' and '[' */
    bool in_string, escaped;
    bool name;       /* the string that is open, or may open next, is a member's name */
    bool exponent;   /* the digits are one's */
    size_t n_digits; /* right before here, outside strings */
} pgl_json_follow;

/* False when memory is out. Any text is taken; of one that is no JSON the state means nothing. */
bool pgl_json_follow_text(pgl_json_follow *follow, const char *text, size_t size);

#endif
