/* Private to src/constraint: what the writers of grammars share. */
#ifndef PGL_CONSTRAINT_GRAMMAR_IMPL_H
#define PGL_CONSTRAINT_GRAMMAR_IMPL_H

#include "base/buf.h"
#include "base/json.h"
#include "constraint/constraint.h"

#define PGL_GRAMMAR_NEWLINES "NL: /\\n{1,2}/\n" /* what may come before a structured answer */

/* The spec's text as JSON; what names it in messages. */
pgl_status pgl_grammar_parse(const pgl_constraint_spec *spec, const char *what, json_t **out, pgl_error *err);

/* Text as a literal in double quotes. False when memory is out. */
bool pgl_grammar_put_literal(pgl_buf *out, const char *text, size_t size);

/* Appends an expression for the strings of a schema of strings without listed ones. *exact: it says all that the schema
 * says; otherwise it stands for any text. False when memory is out. */
bool pgl_grammar_put_text(pgl_buf *out, const json_t *schema, bool *exact);

/* The grammar of tool calls. */
pgl_status pgl_grammar_tools(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err);

#endif
