/* Stop strings, matched across pieces of text.
 *
 * The match that ends first wins; of several that end at the same byte, the longest. What comes out does not depend on
 * how the text was cut. Nothing of a match is given out, and text that may be the beginning of one is held back until
 * that is decided. One thread at a time. */
#ifndef PGL_TEXT_STOP_H
#define PGL_TEXT_STOP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct pgl_stop pgl_stop;

typedef struct pgl_stop_string {
    const char *text;
    size_t size; /* >= 1 */
} pgl_stop_string;

/* The strings are copied; n may be 0: then nothing is ever held back. */
pgl_status pgl_stop_open(const pgl_stop_string *strings, size_t n, pgl_stop **out, pgl_error *err);
void pgl_stop_close(pgl_stop *stop); /* NULL is allowed */

typedef enum pgl_stop_answer {
    PGL_STOP_GOES_ON,
    PGL_STOP_MATCHED, /* out has all text before the match; what comes later is nobody's */
    PGL_STOP_FAILED,  /* memory is out */
} pgl_stop_answer;

/* Appends to out what is certain not to belong to a match. */
pgl_stop_answer pgl_stop_push(pgl_stop *stop, const char *text, size_t size, pgl_buf *out);

/* The end of the text: appends what was held back. False when memory is out. */
bool pgl_stop_finish(pgl_stop *stop, pgl_buf *out);

/* Which string matched: its number; (size_t)-1 before. */
size_t pgl_stop_which(const pgl_stop *stop);

#endif
