/* Small questions to a piece of JSON text (base/json.h), for documents that were checked as a whole before. Private to
 * text. */
#ifndef PGL_TEXT_JSON_TEXT_H
#define PGL_TEXT_JSON_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"

/* The members called keys[0 .. n), found in one walk; {NULL, 0} for those that are not there. */
void pgl_json_members(pgl_json_span object, const char *const *keys, pgl_json_span *values, size_t n);

/* '{', '[', '"', '0' for numbers, 't', 'f', 'n'; 0 when there is no value. */
char pgl_json_kind(pgl_json_span span);

/* What to call it in a message: "an object", "null", "nothing". */
const char *pgl_json_kind_name(pgl_json_span span);

/* A string with just this content. */
bool pgl_json_string_is(pgl_json_span span, const char *text);

/* An integer of 0 .. most; false for anything else. */
bool pgl_json_integer(pgl_json_span span, int64_t most, int64_t *out);

bool pgl_json_true(pgl_json_span span);

/* null, or not there at all. */
bool pgl_json_absent(pgl_json_span span);

#endif
