/* From a chat request's body to the prompt: what every route that takes messages does alike. */
#ifndef PGL_SERVER_CHAT_PROMPT_H
#define PGL_SERVER_CHAT_PROMPT_H

#include "server/server_impl.h"

/* Renders the body's messages and tools. params says thinking, tool choice and how the list ends; NULL: read from the
 * body here. prompt is the caller's (pgl_chat_prompt_fini), also after a failure. Errors name the field; a prompt that
 * is longer than the context is no error here. */
bool pgl_render_chat(const pgl_server *server, const pgl_exchange *exchange, const json_t *body,
                     const pgl_gen_params *params, pgl_chat_prompt *prompt, pgl_refusal *err);

/* For the backend that computes nothing: appends the text of the last user message, as the tokens that a model would
 * emit to say it. */
bool pgl_echo_tokens(const pgl_server *server, const pgl_exchange *exchange, pgl_ids *ids, pgl_refusal *err);

#endif
