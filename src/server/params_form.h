/* The parameters that give an answer its form: response_format, the guided_* family, structured_outputs, and a tool
 * choice that demands a call. Private to params*.c. */
#ifndef PGL_SERVER_PARAMS_FORM_H
#define PGL_SERVER_PARAMS_FORM_H

#include "server/params.h"

bool pgl_read_response_format(const pgl_param_reading *r);
bool pgl_read_guided_json(const pgl_param_reading *r);
bool pgl_read_guided_regex(const pgl_param_reading *r);
bool pgl_read_guided_grammar(const pgl_param_reading *r);
bool pgl_read_guided_choice(const pgl_param_reading *r);
bool pgl_read_structured_outputs(const pgl_param_reading *r);
bool pgl_read_tool_choice(const pgl_param_reading *r);

#endif
