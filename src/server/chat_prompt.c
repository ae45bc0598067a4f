#include "server/chat_prompt.h"

#include <string.h>

#include "base/json.h"
#include "server/tools.h"

static pgl_chat_end end_of(const pgl_gen_params *params) {
    if (params->continue_final == 1)
        return PGL_CHAT_CONTINUE;
    return params->add_generation_prompt == 0 ? PGL_CHAT_AS_IS : PGL_CHAT_ANSWER;
}

static bool render(const pgl_server *server, const pgl_exchange *exchange, const pgl_gen_params *params,
                   pgl_chat_prompt *prompt, pgl_refusal *err) {
    pgl_chat_request request = {.messages = pgl_body_field(exchange, "messages"),
                                .kwargs = pgl_body_field(exchange, "chat_template_kwargs"),
                                .thinking =
                                    (int)(params->thinking >= 0 ? params->thinking : server->thinking),
                                .end = end_of(params)};
    pgl_json_span tools = pgl_body_field(exchange, "tools");
    if (!pgl_check_tools(tools, err))
        return false;
    /* Without a choice to call, the model is not told of the tools either. */
    if (params->tool_choice != PGL_TOOL_CHOICE_NONE)
        request.tools = tools;
    pgl_error why;
    pgl_status status = pgl_chat_render(server->chat, &request, prompt, &why);
    if (status == PGL_OK)
        return true;
    return pgl_refuse_status(err, &why, prompt->param[0] ? prompt->param : "messages");
}

static bool add_text(const json_t *content, pgl_buf *text) {
    size_t i;
    json_t *part;
    if (json_is_string(content))
        return pgl_buf_append(text, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, part) {
        const json_t *piece = json_object_get(part, "text");
        if (json_is_string(piece) &&
            !pgl_buf_append(text, json_string_value(piece), json_string_length(piece)))
            return false;
    }
    return true;
}

static const json_t *last_user(const json_t *messages) {
    for (size_t i = json_array_size(messages); i-- > 0;) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (role && strcmp(role, "user") == 0)
            return message;
    }
    return NULL;
}

bool pgl_echo_tokens(const pgl_server *server, const pgl_exchange *exchange, pgl_ids *ids, pgl_refusal *err) {
    const pgl_json_options options = {.name = "messages", .replace_surrogates = true};
    pgl_json_span span = pgl_body_field(exchange, "messages");
    json_t *messages = NULL;
    pgl_buf text = PGL_BUF_INIT;
    pgl_error why = {.status = PGL_OK};
    pgl_status status = pgl_json_parse(span.text, span.size, &options, &messages, &why);
    if (status == PGL_OK && !add_text(json_object_get(last_user(messages), "content"), &text))
        status = pgl_fail(&why, PGL_E_MEMORY, "no memory for the answer");
    if (status == PGL_OK)
        status = pgl_tokenizer_encode(server->tokenizer, pgl_buf_text(&text), text.size, PGL_ENCODE_RAW, ids,
                                      &why);
    pgl_buf_fini(&text);
    json_decref(messages);
    return status == PGL_OK || pgl_refuse_status(err, &why, "messages");
}

bool pgl_render_chat(const pgl_server *server, const pgl_exchange *exchange, const json_t *body,
                     const pgl_gen_params *params, pgl_chat_prompt *prompt, pgl_refusal *err) {
    if (!server->chat)
        return pgl_refuse(err, 400, "unsupported", "messages",
                          "this model has no chat template; /v1/completions takes plain prompts");
    if (!pgl_body_field(exchange, "messages").text)
        return pgl_refuse_field(err, "messages", "messages is missing");
    if (params)
        return render(server, exchange, params, prompt, err);
    pgl_gen_params own = pgl_params_defaults(&server->sampling);
    pgl_arena *arena = pgl_arena_open(0);
    bool fine = arena ? pgl_params_read(body, PGL_PARAM_CHAT, server->n_vocab, arena, &own, err)
                      : pgl_refuse_memory(err);
    fine = fine && render(server, exchange, &own, prompt, err);
    pgl_arena_close(arena);
    return fine;
}
