/* What a generation leaves for the request log. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/generation.h"
#include "server/request_record.h"
#include "text/decode.h"

static void put_string(pgl_out *out, const char *name, const pgl_buf *text) {
    pgl_out_printf(out, "\"%s\":", name);
    pgl_out_string(out, pgl_buf_text(text), text->size);
}

/* As the model saw them, control tokens included. */
static void put_prompts(const pgl_generation *gen, pgl_out *out) {
    pgl_buf text = PGL_BUF_INIT;
    for (uint32_t i = 0; i < gen->n_prompts; i++) {
        const pgl_ids *ids = &gen->prompts[i].ids;
        pgl_buf_clear(&text);
        out->failed = !pgl_decode(gen->server->tokenizer, ids->data, ids->count, false, &text) || out->failed;
        pgl_out_raw(out, i ? "," : "");
        pgl_out_string(out, pgl_buf_text(&text), text.size);
    }
    pgl_buf_fini(&text);
}

static void put_answers(const pgl_generation *gen, pgl_out *out) {
    for (uint32_t i = 0; i < gen->n_choices; i++) {
        const pgl_choice *choice = &gen->choices[i];
        pgl_out_raw(out, i ? ",{" : "{");
        put_string(out, "content", &choice->content);
        pgl_out_raw(out, ",");
        put_string(out, "reasoning", &choice->reasoning);
        pgl_out_raw(out, ",\"tool_calls\":[");
        if (!choice->in_call) /* else the last one was cut */
            pgl_out_bytes(out, pgl_buf_text(&choice->calls.buf), choice->calls.buf.size);
        pgl_out_raw(out, "]}");
    }
}

static void put_texts(const pgl_generation *gen, pgl_out *out) {
    pgl_out_raw(out, ",\"prompts\":[");
    put_prompts(gen, out);
    pgl_out_raw(out, "],\"answers\":[");
    put_answers(gen, out);
    pgl_out_raw(out, "]");
}

void pgl_generation_note(pgl_generation *gen, const pgl_choice *choice, const pgl_usage *usage,
                         bool admitted) {
    if (choice->index != 0 || gen->noted)
        return;
    gen->noted = true;
    gen->admitted = admitted;
    gen->first = *usage;
}

pgl_usage pgl_generation_progress(const pgl_generation *gen, const pgl_choice *choice, bool *admitted) {
    pgl_request_view view = pgl_request_progress(choice->request);
    *admitted = view.state != PGL_REQUEST_WAITING;
    uint64_t now = pgl_now_ns();
    pgl_usage usage = {.n_prompt = view.n_prompt,
                       .n_cached = view.n_cached,
                       .n_generated = choice->n_tokens,
                       .cache = view.cache,
                       .queued_ns = view.queued_ns,
                       .prompt_ns = view.prompt_ns};
    if (!*admitted)
        usage.queued_ns = now - gen->start_ns;
    if (gen->first_token_ns)
        usage.generation_ns = now - gen->first_token_ns;
    return usage;
}

void pgl_generation_record(pgl_generation *gen) {
    pgl_request_record *record = pgl_exchange_record(gen->exchange);
    if (!record)
        return;
    const char *model = gen->params.model;
    record->generated = true;
    record->stream = gen->params.stream;
    snprintf(record->model, sizeof record->model, "%s", model && model[0] ? model : gen->server->names[0]);
    for (uint32_t i = 0; i < gen->n_prompts; i++)
        record->prompt_tokens += (uint32_t)gen->prompts[i].ids.count;
    record->queued = gen->noted;
    if (!gen->noted)
        return;
    pgl_gen_usage usage = pgl_generation_usage(gen);
    record->cached_tokens = usage.cached_tokens ? usage.cached_tokens : gen->first.n_cached;
    record->completion_tokens = usage.completion_tokens;
    record->reasoning_tokens = usage.reasoning_tokens;
    record->first = gen->first;
    record->admitted = gen->admitted;
    record->ttft_ns = gen->first_token_ns ? gen->first_token_ns - gen->start_ns : 0;
    for (uint32_t i = 0; i < gen->n_choices; i++) {
        pgl_out_raw(&record->finish, i ? "," : "");
        pgl_out_str(&record->finish, gen->choices[i].finish);
    }
    if (gen->failed) {
        record->failed = true;
        pgl_request_record_error(record, &gen->error);
    }
    if (gen->server->log_prompts)
        put_texts(gen, &record->text);
}
