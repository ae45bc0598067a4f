#include "server/trace_record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "server/trace_log.h"
#include "server/trace_read.h"

typedef struct choice_trace {
    pgl_out params; /* members of its object */
    pgl_ids tokens;
    pgl_buf logprobs; /* floats */
    pgl_step_note *steps;
    uint32_t n_kept, n_steps;
    bool left, ended; /* ended: by the engine, in finish */
    pgl_finish finish;
    int32_t stop_id;
    pgl_error error;
    pgl_cache_decision cache;
    pgl_usage usage; /* when ended */
} choice_trace;

struct pgl_generation_trace {
    pgl_out head;
    bool begun, failed;
    uint64_t wall_ns;
    uint32_t n_choices;
    choice_trace choices[];
};

static choice_trace *trace_of(const pgl_generation *gen, const pgl_choice *choice) {
    struct pgl_generation_trace *trace = gen->trace;
    return trace != NULL && choice->index < trace->n_choices ? &trace->choices[choice->index] : NULL;
}

/* ---- writing ---- */

static void put_ids(pgl_out *out, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        pgl_out_printf(out, "%s%d", i ? "," : "", (int)ids[i]);
}

/* Nine digits give a float back as it was. */
static void put_float(pgl_out *out, const char *name, float value) {
    pgl_out_printf(out, "\"%s\":%.9g,", name, (double)value);
}

static void put_params(pgl_out *out, const pgl_request_params *r) {
    const pgl_sample_params *s = &r->sampling;
    put_float(out, "temperature", s->temperature);
    put_float(out, "top_p", s->top_p);
    put_float(out, "min_p", s->min_p);
    put_float(out, "presence_penalty", s->presence_penalty);
    put_float(out, "frequency_penalty", s->frequency_penalty);
    put_float(out, "repetition_penalty", s->repetition_penalty);
    /* As text: not every reader of JSON keeps 64 bits. */
    pgl_out_printf(out, "\"top_k\":%d,\"seed\":\"%llu\",\"max_tokens\":%u,\"priority\":%d,\"bias\":[",
                   (int)s->top_k, (unsigned long long)s->seed, r->max_tokens, (int)r->priority);
    for (uint32_t i = 0; i < s->n_bias; i++)
        pgl_out_printf(out, "%s[%d,%.9g]", i ? "," : "", (int)s->bias[i].id, (double)s->bias[i].bias);
    pgl_out_raw(out, "],\"stop_ids\":[");
    put_ids(out, r->stop_ids, r->n_stop_ids);
    pgl_out_raw(out, "]");
}

static void put_form(pgl_out *out, const pgl_answer_form *form) {
    if (!form->given) {
        pgl_out_raw(out, "null");
        return;
    }
    pgl_out_printf(out, "{\"kind\":\"%s\",\"text\":", pgl_trace_form_name(form->spec.kind));
    pgl_out_string(out, form->spec.text != NULL ? form->spec.text : "",
                   form->spec.text != NULL ? form->spec.size : 0);
    pgl_out_raw(out, ",\"tool\":");
    pgl_out_str(out, form->spec.tool);
    pgl_out_printf(out, ",\"parallel_tools\":%s}", form->spec.parallel_tools ? "true" : "false");
}

static void put_prompt(pgl_out *out, const pgl_gen_prompt *prompt) {
    pgl_out_printf(out, "{\"in_thought\":%s,\"snapshot_at\":[", prompt->in_thought ? "true" : "false");
    for (uint32_t i = 0; i < prompt->n_turns; i++)
        pgl_out_printf(out, "%s%u", i ? "," : "", prompt->turns[i]);
    pgl_out_raw(out, "],\"ids\":[");
    put_ids(out, prompt->ids.data, prompt->ids.count);
    pgl_out_raw(out, "]}");
}

static void put_head(pgl_out *out, const pgl_generation *gen, uint64_t wall_ns) {
    const pgl_server *server = gen->server;
    const pgl_route *route = pgl_exchange_tag(gen->exchange);
    char time[PGL_TIME_TEXT];
    pgl_wall_text(wall_ns, time);
    pgl_out_printf(out,
                   "{\"pergola_trace\":%d,\"version\":\"" PGL_VERSION "\",\"time\":\"%s\",\"request_id\":",
                   PGL_TRACE_VERSION, time);
    pgl_out_str(out, pgl_exchange_request_id(gen->exchange));
    pgl_out_raw(out, ",\"route\":");
    pgl_out_str(out, route != NULL ? route->path : NULL);
    pgl_out_raw(out, ",\"model\":{\"name\":");
    pgl_out_str(out, pgl_runtime_name(server->runtime));
    pgl_out_printf(out, ",\"fingerprint\":\"%s\",\"backend\":", server->fingerprint);
    pgl_out_str(out, pgl_runtime_caps(server->runtime)->name);
    pgl_out_printf(out, ",\"n_vocab\":%u,\"context\":%u},\"thinking_budget\":%lld,\"stop\":[",
                   server->n_vocab, server->context, (long long)gen->params.thinking_budget);
    for (uint32_t i = 0; i < gen->params.n_stops; i++) {
        pgl_out_raw(out, i ? "," : "");
        pgl_out_string(out, gen->params.stops[i].text, gen->params.stops[i].size);
    }
    pgl_out_raw(out, "],\"form\":");
    put_form(out, &gen->params.form);
    pgl_out_raw(out, ",\"prompts\":[");
    for (uint32_t i = 0; i < gen->n_prompts; i++) {
        pgl_out_raw(out, i ? "," : "");
        put_prompt(out, &gen->prompts[i]);
    }
    pgl_out_raw(out, "]");
}

static void put_steps(pgl_out *out, const choice_trace *t) {
    pgl_out_printf(
        out,
        ",\"n_steps\":%u,\"step_columns\":[\"first\",\"tokens\",\"rows\",\"step_tokens\",\"end_us\","
        "\"step_us\"],\"steps\":[",
        t->n_steps);
    for (uint32_t i = 0; i < t->n_kept; i++) {
        const pgl_step_note *s = &t->steps[i];
        pgl_out_printf(out, "%s[%u,%u,%u,%u,%llu,%llu]", i ? "," : "", s->first, s->n_tokens, s->n_rows,
                       s->n_step_tokens, (unsigned long long)(s->end_ns / 1000),
                       (unsigned long long)(s->step_ns / 1000));
    }
    pgl_out_raw(out, "]");
}

static void put_cache(pgl_out *out, const pgl_cache_decision *c) {
    pgl_out_printf(out,
                   ",\"cache\":{\"miss\":\"%s\",\"cached\":%u,\"matched\":%u,\"at\":%u,\"cached_id\":%d,"
                   "\"prompt_id\":%d,\"from_host\":%s}",
                   pgl_miss_name(c->miss), c->n_cached, c->n_matched, c->miss_at, (int)c->cached_id,
                   (int)c->prompt_id, c->from_host ? "true" : "false");
}

/* What ended it: the engine's word, or "cut" when the server wanted no more (a stop string, the end of a call that may
 * not be followed, a time limit) or the client went. */
static void put_end(pgl_out *out, const pgl_choice *choice, const choice_trace *t) {
    pgl_out_printf(out, ",\"finish\":\"%s\",\"stop_id\":%d,\"stop_text\":",
                   t->ended ? pgl_finish_name(t->finish) : "cut", (int)t->stop_id);
    pgl_out_str(out, choice->stop_text);
    pgl_out_raw(out, ",\"finish_reason\":");
    pgl_out_str(out, choice->finish);
    pgl_out_raw(out, ",\"error\":");
    pgl_out_str(out, t->error.status != PGL_OK ? t->error.text : NULL);
    pgl_out_printf(out, ",\"n_parked\":%u,\"queued_us\":%llu,\"prompt_us\":%llu,\"generation_us\":%llu",
                   t->usage.n_parked, (unsigned long long)(t->usage.queued_ns / 1000),
                   (unsigned long long)(t->usage.prompt_ns / 1000),
                   (unsigned long long)(t->usage.generation_ns / 1000));
}

static void put_choice(pgl_out *out, const pgl_choice *choice, const choice_trace *t) {
    pgl_out_printf(out, "%s{\"index\":%u,\"prompt\":%u,\"params\":{", choice->index ? "," : "", choice->index,
                   choice->prompt);
    pgl_out_bytes(out, pgl_buf_text(&t->params.buf), t->params.buf.size);
    out->failed = out->failed || t->params.failed;
    pgl_out_raw(out, "}");
    put_cache(out, &t->cache);
    put_steps(out, t);
    pgl_out_raw(out, ",\"tokens\":[");
    put_ids(out, t->tokens.data, t->tokens.count);
    pgl_out_raw(out, "],\"logprobs\":[");
    for (size_t i = 0; i < t->tokens.count; i++) {
        float value;
        memcpy(&value, t->logprobs.data + i * sizeof value, sizeof value);
        if (isfinite(value))
            pgl_out_printf(out, "%s%.9g", i ? "," : "", (double)value);
        else
            pgl_out_raw(out, i ? ",null" : "null");
    }
    pgl_out_raw(out, "]");
    put_end(out, choice, t);
    pgl_out_raw(out, "}");
}

/* ---- gathering ---- */

void pgl_trace_params(pgl_generation *gen, const pgl_choice *choice, pgl_request_params *request) {
    if (gen->server->traces == NULL)
        return;
    if (gen->trace == NULL) {
        size_t bytes = sizeof *gen->trace + gen->n_choices * sizeof(choice_trace);
        gen->trace = pgl_new(1, bytes);
        if (gen->trace == NULL) {
            pgl_trace_log_lost(gen->server->traces);
            return;
        }
        gen->trace->n_choices = gen->n_choices;
        gen->trace->wall_ns = pgl_wall_ns();
    }
    choice_trace *t = trace_of(gen, choice);
    if (t == NULL)
        return;
    request->logprobs = true;
    request->note_steps = true;
    t->stop_id = -1;
    put_params(&t->params, request);
}

void pgl_trace_begin(pgl_generation *gen) {
    if (gen->trace == NULL)
        return;
    gen->trace->begun = true;
    put_head(&gen->trace->head, gen, gen->trace->wall_ns);
}

void pgl_trace_token(const pgl_generation *gen, const pgl_choice *choice, const pgl_event *event) {
    choice_trace *t = trace_of(gen, choice);
    if (t != NULL && (!pgl_buf_append(&t->logprobs, &event->logprob, sizeof event->logprob) ||
                      !pgl_ids_append(&t->tokens, event->token)))
        gen->trace->failed = true;
}

void pgl_trace_finish(const pgl_generation *gen, const pgl_choice *choice, const pgl_event *event) {
    choice_trace *t = trace_of(gen, choice);
    if (t == NULL)
        return;
    t->ended = true;
    t->finish = event->finish;
    t->stop_id = event->finish == PGL_FINISH_STOP ? event->stop_id : -1;
    t->usage = event->usage;
    (void)pgl_request_error(choice->request, &t->error);
}

void pgl_trace_leave(const pgl_generation *gen, const pgl_choice *choice) {
    choice_trace *t = trace_of(gen, choice);
    if (t == NULL || t->left || choice->request == NULL)
        return;
    t->left = true;
    pgl_request_view view = pgl_request_progress(choice->request);
    t->cache = view.cache;
    if (!t->ended)
        t->usage = (pgl_usage){.queued_ns = view.queued_ns, .prompt_ns = view.prompt_ns};
    uint32_t n = pgl_request_steps(choice->request, NULL, 0);
    uint32_t most = n < PGL_MOST_STEP_NOTES ? n : PGL_MOST_STEP_NOTES;
    t->steps = pgl_new(most, sizeof *t->steps);
    if (t->steps == NULL) {
        gen->trace->failed = true;
        return;
    }
    t->n_kept = most;
    t->n_steps = pgl_request_steps(choice->request, t->steps, most);
}

static void free_trace(pgl_generation *gen) {
    struct pgl_generation_trace *trace = gen->trace;
    for (uint32_t i = 0; i < trace->n_choices; i++) {
        pgl_out_fini(&trace->choices[i].params);
        pgl_ids_fini(&trace->choices[i].tokens);
        pgl_buf_fini(&trace->choices[i].logprobs);
        free(trace->choices[i].steps);
    }
    pgl_out_fini(&trace->head);
    free(trace);
    gen->trace = NULL;
}

void pgl_trace_end(pgl_generation *gen) {
    struct pgl_generation_trace *trace = gen->trace;
    if (trace == NULL)
        return;
    if (trace->begun) {
        pgl_out *out = &trace->head;
        pgl_out_raw(out, ",\"sequences\":[");
        for (uint32_t i = 0; i < gen->n_choices; i++)
            put_choice(out, &gen->choices[i], &trace->choices[i]);
        pgl_out_printf(out, "],\"outcome\":\"%s\",\"error\":",
                       gen->failed               ? "failed"
                       : atomic_load(&gen->gone) ? "gone"
                                                 : "done");
        pgl_out_str(out, gen->failed ? gen->error.text : NULL);
        pgl_out_raw(out, "}\n");
        if (out->failed || trace->failed)
            pgl_trace_log_lost(gen->server->traces);
        else
            pgl_trace_log_put(gen->server->traces, &out->buf);
    }
    free_trace(gen);
}
