/* Schemas before they become grammars: what the grammar library would only find while an answer is written, or not
 * survive at all, is refused here. Private to src/constraint. */
#ifndef PGL_CONSTRAINT_SCHEMA_H
#define PGL_CONSTRAINT_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"

/* PGL_E_INVALID: a reference that leads nowhere within root; no answer of finite length fits; more than
 * PGL_CONSTRAINT_MOST_SCHEMAS objects and lists, or an object with more optional members, or a choice with more
 * alternatives, than an answer could be held to. root may be NULL or of any type. what names it in messages. */
pgl_status pgl_constraint_check_schema(const json_t *root, const char *what, pgl_error *err);

/* Appends `%json {..}` and a newline: the schema with our own options in place of what it may say of them. False when
 * memory is out. */
bool pgl_constraint_put_schema(pgl_buf *out, const json_t *schema);

/* Whether a reference stands in it anywhere. */
bool pgl_constraint_has_reference(const json_t *schema);

#endif
