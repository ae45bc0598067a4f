/* POST /v1/chat/completions. */
#include <stdlib.h>
#include <string.h>

#include "server/chat_prompt.h"
#include "server/generation.h"
#include "server/logprobs.h"

/* ---- the dialect ---- */

static void put_head(const pgl_generation *gen, const char *object, pgl_out *out) {
    pgl_out_raw(out, "{\"id\":");
    pgl_out_str(out, gen->id);
    pgl_out_printf(out, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object, (long long)gen->created);
    pgl_out_str(out, gen->server->names[0]);
    pgl_out_raw(out, ",\"choices\":[");
}

/* Entries of tokens that no chunk has carried yet. */
static void put_logprobs(const pgl_generation *gen, pgl_choice *choice, pgl_out *out) {
    pgl_out *list = &choice->logprobs[0];
    if (!gen->params.logprobs) {
        pgl_out_raw(out, ",\"logprobs\":null");
        return;
    }
    pgl_out_raw(out, ",\"logprobs\":{\"content\":[");
    pgl_out_bytes(out, pgl_buf_text(&list->buf), list->buf.size);
    pgl_out_raw(out, "],\"refusal\":null}");
    pgl_out_clear(list);
    choice->n_logprobs = 0;
}

static void logprob(pgl_generation *gen, pgl_choice *choice, const pgl_event *event) {
    uint32_t n_top = gen->params.top_logprobs > 0 ? (uint32_t)gen->params.top_logprobs : 0;
    if (choice->n_logprobs++ > 0)
        pgl_out_raw(&choice->logprobs[0], ",");
    pgl_put_chat_logprob(gen->server->tokenizer, event, n_top, &choice->logprobs[0]);
}

static void put_stop_reason(const pgl_choice *choice, pgl_out *out) {
    pgl_out_raw(out, ",\"finish_reason\":");
    pgl_out_str(out, choice->finish);
    pgl_out_raw(out, ",\"stop_reason\":");
    pgl_out_str(out, choice->stop_text);
}

static void open_chunk(const pgl_generation *gen, const pgl_choice *choice, pgl_out *out) {
    pgl_out_raw(out, "data: ");
    put_head(gen, "chat.completion.chunk", out);
    pgl_out_printf(out, "{\"index\":%u,\"delta\":{", choice->index);
}

static void close_chunk(const pgl_generation *gen, pgl_choice *choice, pgl_out *out) {
    pgl_out_raw(out, "}");
    put_logprobs(gen, choice, out);
    put_stop_reason(choice, out);
    pgl_out_printf(out, "}]%s}\n\n", gen->params.include_usage ? ",\"usage\":null" : "");
}

/* The first chunk of a choice, without any of its tokens. */
static void put_role(pgl_generation *gen, pgl_choice *choice, pgl_out *out) {
    if (choice->begun)
        return;
    choice->begun = true;
    open_chunk(gen, choice, out);
    pgl_out_raw(out, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null");
    pgl_out_printf(out, "}]%s}\n\n", gen->params.include_usage ? ",\"usage\":null" : "");
}

static void put_text(const char *name, const pgl_delta *piece, pgl_out *out) {
    pgl_out_printf(out, "\"%s\":", name);
    pgl_out_string(out, piece->text, piece->size);
}

static void delta(pgl_generation *gen, pgl_choice *choice, const pgl_delta *piece, pgl_out *out) {
    put_role(gen, choice, out);
    open_chunk(gen, choice, out);
    switch (piece->kind) {
    case PGL_DELTA_CONTENT:
        put_text("content", piece, out);
        break;
    case PGL_DELTA_REASONING:
        put_text("reasoning_content", piece, out);
        pgl_out_raw(out, ",");
        put_text("reasoning", piece, out);
        break;
    case PGL_DELTA_CALL:
        pgl_out_printf(out, "\"tool_calls\":[{\"index\":%u,\"id\":", piece->call);
        pgl_out_str(out, piece->id);
        pgl_out_raw(out, ",\"type\":\"function\",\"function\":{");
        put_text("name", piece, out);
        pgl_out_raw(out, ",\"arguments\":\"\"}}]");
        break;
    case PGL_DELTA_ARGUMENTS:
        pgl_out_printf(out, "\"tool_calls\":[{\"index\":%u,\"function\":{", piece->call);
        put_text("arguments", piece, out);
        pgl_out_raw(out, "}}]");
        break;
    }
    close_chunk(gen, choice, out);
}

static void finish(pgl_generation *gen, pgl_choice *choice, pgl_out *out) {
    put_role(gen, choice, out);
    open_chunk(gen, choice, out);
    close_chunk(gen, choice, out);
}

static void tail(pgl_generation *gen, pgl_out *out) {
    if (gen->params.include_usage) {
        pgl_gen_usage usage = pgl_generation_usage(gen);
        pgl_out_raw(out, "data: ");
        put_head(gen, "chat.completion.chunk", out);
        pgl_out_raw(out, "],\"usage\":");
        pgl_put_usage(&usage, out);
        pgl_out_raw(out, "}\n\n");
    }
    pgl_out_raw(out, "data: [DONE]\n\n");
}

static void put_message(const pgl_choice *choice, pgl_out *out) {
    pgl_out_raw(out, "{\"role\":\"assistant\",\"content\":");
    if (choice->content.size > 0 || choice->n_calls == 0)
        pgl_out_string(out, pgl_buf_text(&choice->content), choice->content.size);
    else
        pgl_out_raw(out, "null");
    pgl_out_raw(out, ",\"refusal\":null");
    if (choice->reasoning.size > 0) {
        pgl_out_raw(out, ",\"reasoning_content\":");
        pgl_out_string(out, choice->reasoning.data, choice->reasoning.size);
        pgl_out_raw(out, ",\"reasoning\":");
        pgl_out_string(out, choice->reasoning.data, choice->reasoning.size);
    }
    if (choice->n_calls > 0) {
        pgl_out_raw(out, ",\"tool_calls\":[");
        pgl_out_bytes(out, pgl_buf_text(&choice->calls.buf), choice->calls.buf.size);
        pgl_out_raw(out, "]");
    }
    pgl_out_raw(out, "}");
}

static void whole(pgl_generation *gen, pgl_out *out) {
    pgl_gen_usage usage = pgl_generation_usage(gen);
    put_head(gen, "chat.completion", out);
    for (uint32_t i = 0; i < gen->n_choices; i++) {
        pgl_choice *choice = &gen->choices[i];
        pgl_out_printf(out, "%s{\"index\":%u,\"message\":", i ? "," : "", i);
        put_message(choice, out);
        put_logprobs(gen, choice, out);
        put_stop_reason(choice, out);
        pgl_out_raw(out, "}");
    }
    pgl_out_raw(out, "],\"usage\":");
    pgl_put_usage(&usage, out);
    pgl_out_raw(out, "}");
}

static const pgl_dialect dialect = {.logprob = logprob,
                                    .delta = delta,
                                    .finish = finish,
                                    .tail = tail,
                                    .failure = pgl_put_failure,
                                    .whole = whole};

/* ---- the handler ---- */

/* The rendered prompt becomes the generation's: its tokens are moved. */
static bool take_prompt(pgl_generation *gen, pgl_chat_prompt *prompt, pgl_refusal *err) {
    pgl_gen_prompt *own = pgl_arena_new(gen->arena, 1, sizeof *own);
    uint32_t *turns = pgl_arena_new(gen->arena, prompt->n_turns, sizeof *turns);
    if (!own || !turns)
        return pgl_refuse_memory(err);
    own->ids = prompt->ids;
    prompt->ids = (pgl_ids){0};
    own->in_thought = prompt->in_thought;
    own->continued = prompt->continued;
    own->turns = turns;
    for (size_t i = 0; i < prompt->n_turns; i++)
        if (prompt->turns[i] > 0 && prompt->turns[i] < own->ids.count)
            turns[own->n_turns++] = prompt->turns[i];
    gen->prompts = own;
    gen->n_prompts = 1;
    return !gen->server->echo || pgl_echo_tokens(gen->server, gen->exchange, &own->forced, err);
}

static bool prepare(pgl_generation *gen, pgl_refusal *err) {
    pgl_server *server = gen->server;
    pgl_chat_prompt prompt = {0};
    bool fine = pgl_params_read(gen->body, PGL_PARAM_CHAT, server->n_vocab, gen->arena, &gen->params, err) &&
                pgl_check_model(server, gen->params.model, err) &&
                pgl_render_chat(server, gen->exchange, gen->body, &gen->params, &prompt, err) &&
                take_prompt(gen, &prompt, err);
    pgl_chat_prompt_fini(&prompt);
    return fine;
}

void pgl_handle_chat(pgl_server *server, pgl_exchange *exchange) {
    pgl_refusal err;
    json_t *body = pgl_read_body(exchange, &err);
    if (!body) {
        pgl_answer_error(exchange, &err);
        pgl_exchange_release(exchange);
        return;
    }
    pgl_generation *gen = pgl_generation_open(server, exchange, body, &dialect, "chatcmpl");
    if (!gen)
        return;
    if (!prepare(gen, &err)) {
        pgl_generation_refuse(gen, &err);
        return;
    }
    pgl_choice_text_options options = {.chat = true};
    pgl_json_span tools = pgl_body_field(exchange, "tools");
    if (gen->params.tool_choice != PGL_TOOL_CHOICE_NONE && pgl_json_raw_element(tools, 0).text)
        options.tools = tools;
    pgl_generation_start(gen, &options);
}
