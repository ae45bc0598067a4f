/* POST /v1/completions: a text's continuation. Prompts are raw: spellings of control tokens are those tokens. */
#include <stdlib.h>
#include <string.h>

#include "server/generation.h"
#include "server/logprobs.h"
#include "text/decode.h"

#define MOST_PROMPTS 256u

/* ---- reading the prompts ---- */

static bool is_string(pgl_json_span value) {
    return value.size > 0 && value.text[0] == '"';
}
static bool is_list(pgl_json_span value) {
    return value.size > 0 && value.text[0] == '[';
}

static bool is_id_list(pgl_json_span value) {
    pgl_json_span first = is_list(value) ? pgl_json_raw_element(value, 0) : (pgl_json_span){NULL, 0};
    return first.size > 0 && (first.text[0] == '-' || (first.text[0] >= '0' && first.text[0] <= '9'));
}

static bool read_prompt(const pgl_server *server, pgl_json_span value, const char *field, pgl_ids *ids,
                        pgl_refusal *err) {
    pgl_buf text = PGL_BUF_INIT;
    pgl_error why;
    if (is_list(value))
        return pgl_read_ids(value, field, server->n_vocab, ids, err);
    if (!is_string(value))
        return pgl_refuse_field(err, field, "%s must be a string or a list of token ids, not %s", field,
                                pgl_span_type(value));
    pgl_status status = pgl_json_raw_string(value, &text)
                            ? pgl_tokenizer_encode(server->tokenizer, pgl_buf_text(&text), text.size,
                                                   PGL_ENCODE_RAW, ids, &why)
                            : pgl_fail(&why, PGL_E_MEMORY, "no memory for the prompt");
    pgl_buf_fini(&text);
    return status == PGL_OK || pgl_refuse_status(err, &why, field);
}

/* Without a model the prompt is what is answered. */
static bool force_prompt(pgl_gen_prompt *prompt, pgl_refusal *err) {
    for (size_t i = 0; i < prompt->ids.count; i++)
        if (!pgl_ids_append(&prompt->forced, prompt->ids.data[i]))
            return pgl_refuse(err, 500, "out_of_memory", NULL, "no memory for the answer");
    return true;
}

static size_t count_prompts(pgl_json_span list) {
    pgl_json_iter it = pgl_json_iter_begin(list);
    pgl_json_span key, item;
    size_t n = 0;
    while (n <= MOST_PROMPTS && pgl_json_iter_next(&it, &key, &item))
        n++;
    return n;
}

static bool add_prompt(pgl_generation *gen, pgl_json_span value, const char *field, pgl_refusal *err) {
    pgl_gen_prompt *prompt = &gen->prompts[gen->n_prompts++];
    return read_prompt(gen->server, value, field, &prompt->ids, err) &&
           (!gen->server->echo || force_prompt(prompt, err));
}

/* A string, a list of ids, or a list of these. */
static bool read_prompts(pgl_generation *gen, pgl_refusal *err) {
    pgl_json_span value = pgl_body_field(gen->exchange, "prompt");
    if (!value.text)
        return pgl_refuse_field(err, "prompt", "prompt is missing");
    if (!is_string(value) && !is_list(value))
        return pgl_refuse_field(err, "prompt", "prompt must be a string or a list, not %s",
                                pgl_span_type(value));
    bool single = is_string(value) || is_id_list(value);
    size_t n = single ? 1 : count_prompts(value);
    if (n == 0)
        return pgl_refuse_field(err, "prompt", "prompt is an empty list");
    if (n > MOST_PROMPTS || n * (size_t)gen->params.n > MOST_PROMPTS)
        return pgl_refuse_field(err, "prompt", "more than %u answers at once: prompts times n", MOST_PROMPTS);
    gen->prompts = pgl_arena_new(gen->arena, n, sizeof *gen->prompts);
    if (!gen->prompts)
        return pgl_refuse(err, 500, "out_of_memory", NULL, "no memory for %zu prompts", n);
    if (single)
        return add_prompt(gen, value, "prompt", err);
    pgl_json_iter it = pgl_json_iter_begin(value);
    pgl_json_span key, item;
    for (size_t i = 0; pgl_json_iter_next(&it, &key, &item); i++) {
        char field[32];
        snprintf(field, sizeof field, "prompt[%zu]", i);
        if (!add_prompt(gen, item, field, err))
            return false;
    }
    return true;
}

/* ---- log-probabilities: four lists of one length ---- */

enum { TOKENS, VALUES, TOPS, OFFSETS };

static void put_token(const pgl_generation *gen, pgl_choice *choice, int32_t id) {
    const pgl_tokenizer *tokenizer = gen->server->tokenizer;
    for (size_t i = 0; choice->n_logprobs > 0 && i < PGL_LOGPROB_LISTS; i++)
        pgl_out_raw(&choice->logprobs[i], ",");
    choice->n_logprobs++;
    pgl_put_token_name(tokenizer, id, &choice->logprobs[TOKENS]);
    pgl_out_printf(&choice->logprobs[OFFSETS], "%u", choice->offset_chars);
    choice->offset_chars += pgl_token_chars(tokenizer, id);
}

static void put_values(const pgl_generation *gen, pgl_choice *choice, int32_t id, float logprob,
                       const pgl_token_logprob *top, uint32_t n_top) {
    uint32_t wanted = (uint32_t)gen->params.completion_logprobs;
    pgl_put_logprob(&choice->logprobs[VALUES], logprob);
    if (wanted == 0)
        pgl_out_raw(&choice->logprobs[TOPS], "null");
    else
        pgl_put_top_object(gen->server->tokenizer, top, n_top < wanted ? n_top : wanted, id, logprob,
                           &choice->logprobs[TOPS]);
}

static void logprob(pgl_generation *gen, pgl_choice *choice, const pgl_event *event) {
    put_token(gen, choice, event->token);
    put_values(gen, choice, event->token, event->logprob, event->top, event->n_top);
}

static void prompt_logprobs(pgl_generation *gen, pgl_choice *choice, const pgl_event *event) {
    const pgl_ids *ids = &gen->prompts[choice->prompt].ids;
    for (size_t i = 0; i < ids->count; i++) {
        put_token(gen, choice, ids->data[i]);
        if (i > 0) {
            put_values(gen, choice, ids->data[i], event->prompt_logprobs[i],
                       event->prompt_top ? event->prompt_top + i * event->n_top : NULL, event->n_top);
            continue;
        }
        pgl_out_raw(&choice->logprobs[VALUES], "null");
        pgl_out_raw(&choice->logprobs[TOPS], "null");
    }
}

static void put_logprobs(const pgl_generation *gen, pgl_choice *choice, pgl_out *out) {
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    if (gen->params.completion_logprobs < 0) {
        pgl_out_raw(out, ",\"logprobs\":null");
        return;
    }
    pgl_out_raw(out, ",\"logprobs\":");
    for (size_t i = 0; i < PGL_LOGPROB_LISTS; i++) {
        pgl_out *list = &choice->logprobs[i];
        pgl_out_printf(out, "%s\"%s\":[", i ? "," : "{", names[i]);
        pgl_out_bytes(out, pgl_buf_text(&list->buf), list->buf.size);
        pgl_out_raw(out, "]");
        pgl_out_clear(list);
    }
    choice->n_logprobs = 0;
    pgl_out_raw(out, "}");
}

/* ---- the dialect ---- */

static void put_head(const pgl_generation *gen, pgl_out *out) {
    pgl_out_raw(out, "{\"id\":");
    pgl_out_str(out, gen->id);
    pgl_out_printf(out,
                   ",\"object\":\"text_completion\",\"created\":%lld,\"model\":", (long long)gen->created);
    pgl_out_str(out, gen->server->names[0]);
    pgl_out_raw(out, ",\"choices\":[");
}

static void put_finish(const pgl_choice *choice, pgl_out *out) {
    pgl_out_raw(out, ",\"finish_reason\":");
    pgl_out_str(out, choice->finish);
    pgl_out_raw(out, ",\"stop_reason\":");
    pgl_out_str(out, choice->stop_text);
}

static void put_chunk(pgl_generation *gen, pgl_choice *choice, const char *text, size_t size, pgl_out *out) {
    pgl_out_raw(out, "data: ");
    put_head(gen, out);
    pgl_out_printf(out, "{\"index\":%u,\"text\":", choice->index);
    pgl_out_string(out, text, size);
    put_logprobs(gen, choice, out);
    put_finish(choice, out);
    pgl_out_printf(out, "}]%s}\n\n", gen->params.include_usage ? ",\"usage\":null" : "");
}

static void prompt(pgl_generation *gen, pgl_choice *choice, const pgl_event *event, pgl_out *out) {
    const pgl_ids *ids = &gen->prompts[choice->prompt].ids;
    pgl_buf text = PGL_BUF_INIT;
    if (event && gen->params.completion_logprobs >= 0)
        prompt_logprobs(gen, choice, event);
    bool fine = pgl_decode(gen->server->tokenizer, ids->data, ids->count, false, &text);
    if (fine && gen->params.stream)
        put_chunk(gen, choice, pgl_buf_text(&text), text.size, out);
    else if (fine)
        fine = pgl_buf_append(&choice->content, text.data, text.size);
    choice->calls.failed = choice->calls.failed || !fine;
    pgl_buf_fini(&text);
}

static void delta(pgl_generation *gen, pgl_choice *choice, const pgl_delta *piece, pgl_out *out) {
    put_chunk(gen, choice, piece->text, piece->size, out);
}

static void finish(pgl_generation *gen, pgl_choice *choice, pgl_out *out) {
    put_chunk(gen, choice, "", 0, out);
}

static void tail(pgl_generation *gen, pgl_out *out) {
    if (gen->params.include_usage) {
        pgl_gen_usage usage = pgl_generation_usage(gen);
        pgl_out_raw(out, "data: ");
        put_head(gen, out);
        pgl_out_raw(out, "],\"usage\":");
        pgl_put_usage(&usage, out);
        pgl_out_raw(out, "}\n\n");
    }
    pgl_out_raw(out, "data: [DONE]\n\n");
}

static void whole(pgl_generation *gen, pgl_out *out) {
    pgl_gen_usage usage = pgl_generation_usage(gen);
    put_head(gen, out);
    for (uint32_t i = 0; i < gen->n_choices; i++) {
        pgl_choice *choice = &gen->choices[i];
        pgl_out_printf(out, "%s{\"index\":%u,\"text\":", i ? "," : "", i);
        pgl_out_string(out, pgl_buf_text(&choice->content), choice->content.size);
        put_logprobs(gen, choice, out);
        put_finish(choice, out);
        pgl_out_raw(out, "}");
    }
    pgl_out_raw(out, "],\"usage\":");
    pgl_put_usage(&usage, out);
    pgl_out_raw(out, "}");
}

static const pgl_dialect dialect = {.logprob = logprob,
                                    .prompt = prompt,
                                    .delta = delta,
                                    .finish = finish,
                                    .tail = tail,
                                    .failure = pgl_put_failure,
                                    .whole = whole};

void pgl_handle_completions(pgl_server *server, pgl_exchange *exchange) {
    pgl_refusal err;
    json_t *body = pgl_read_body(exchange, &err);
    if (!body) {
        pgl_answer_error(exchange, &err);
        pgl_exchange_release(exchange);
        return;
    }
    pgl_generation *gen = pgl_generation_open(server, exchange, body, &dialect, "cmpl");
    if (!gen)
        return;
    if (!pgl_params_read(body, PGL_PARAM_COMPLETIONS, server->n_vocab, gen->arena, &gen->params, &err) ||
        !pgl_check_model(server, gen->params.model, &err) || !read_prompts(gen, &err)) {
        pgl_generation_refuse(gen, &err);
        return;
    }
    pgl_generation_start(gen, &(pgl_choice_text_options){.chat = false});
}
