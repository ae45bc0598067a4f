/* What a request's list of tools must be before anything is made of it. Thread-safe. */
#ifndef PGL_SERVER_TOOLS_H
#define PGL_SERVER_TOOLS_H

#include "base/json.h"
#include "server/refusal.h"

/* A list (or nothing) of functions: an object with the member "function", or that object itself. Each has a name that a
 * call can spell (1 to 256 bytes, no '>' or line end, no blanks at its ends), and parameters that are an object, null or
 * absent. False: err names the place. */
bool pgl_check_tools(pgl_json_span tools, pgl_refusal *err);

#endif
