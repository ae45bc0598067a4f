/* A request's body: checked as a whole, made into values only where values are wanted. What may be large (messages,
 * tools, prompts, lists of tokens) stays text, so that no body takes many times its own size in memory. */
#ifndef PGL_SERVER_BODY_H
#define PGL_SERVER_BODY_H

#include <jansson.h>

#include "base/json.h"
#include "server/http.h"
#include "server/refusal.h"
#include "text/tokenizer.h"

/* An object of the known small fields. NULL, with the error filled, when the body is no JSON object, has a known field
 * twice, or one that is beyond all measure. */
json_t *pgl_read_body(const pgl_exchange *exchange, pgl_refusal *err);

/* The text of a field; {NULL, 0} when it is absent or null. Valid as long as the body. */
pgl_json_span pgl_body_field(const pgl_exchange *exchange, const char *name);

/* For texts of errors: "a string", "a list", ... */
const char *pgl_span_type(pgl_json_span value);

/* Appends the list's token ids, each below n_ids. */
bool pgl_read_ids(pgl_json_span list, const char *field, uint32_t n_ids, pgl_ids *ids, pgl_refusal *err);

#endif
