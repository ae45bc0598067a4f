/* JSON out: a buffer that remembers whether memory ran out, so that a writer checks once, at the end. */
#ifndef PGL_SERVER_JSON_OUT_H
#define PGL_SERVER_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "server/http.h"

typedef struct pgl_out {
    pgl_buf buf;
    bool failed;
} pgl_out;

void pgl_out_fini(pgl_out *out);
void pgl_out_clear(pgl_out *out);
void pgl_out_raw(pgl_out *out, const char *text);
void pgl_out_bytes(pgl_out *out, const char *data, size_t size);
void pgl_out_printf(pgl_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void pgl_out_string(pgl_out *out, const char *text, size_t size); /* quoted, always valid UTF-8 */
void pgl_out_str(pgl_out *out, const char *text); /* the same of a terminated one; NULL: null */
void pgl_out_number(pgl_out *out, double value);

/* Answers with what was written, or with a 500 when memory ran out on the way. Empties out. */
void pgl_answer_json(pgl_exchange *exchange, int status, pgl_out *out);

#endif
