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

/* A new reference to a copy that is held to exactly, and allows nothing that the schema does not: calendar dates, bounds and
 * constants of exact digits. It may allow less: seconds up to 59; numbers within 1e15 where a bound is beyond; nothing
 * closer than 0.0001 to an excluded whole bound when the other bound is less than 1 away. PGL_E_INVALID: what cannot be
 * held to, by its keyword. */
pgl_status pgl_constraint_prepare_schema(const json_t *schema, const char *what, json_t **out,
                                         pgl_error *err);

/* The members of a keyword are data and no schemas; are named by the schema's author and not by the language. */
bool pgl_constraint_is_data(const char *keyword);
bool pgl_constraint_has_names(const char *keyword);

/* Whether names of members matter to it anywhere. */
bool pgl_constraint_names_members(const json_t *schema);

/* The first keyword of the schema that cannot be compiled by itself, or those of one object that cannot together: compiles
 * asks. NULL: not found within a bounded number of questions. Release with free. */
char *pgl_constraint_find_keyword(const json_t *schema, bool (*compiles)(void *user, const json_t *schema),
                                  void *user);

/* Where the keyword stands first, as a path like properties.a.items; "" at the top. NULL: nowhere, or memory is out. Release
 * with free. */
char *pgl_constraint_find_place(const json_t *schema, const char *keyword);

/* Appends `%json {..}` and a newline: the schema with our own options in place of what it may say of them. False when
 * memory is out. */
bool pgl_constraint_put_schema(pgl_buf *out, const json_t *schema);

/* Whether a reference stands in it anywhere. */
bool pgl_constraint_has_reference(const json_t *schema);

#endif
