#include "server/generation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/answer_mask.h"
#include "server/trace_record.h"

#define WRITE_BYTES ((size_t)16 << 10) /* events are handed on when so many bytes have gathered */

/* ---- scheduling: at most once in the pool, and never on two workers ---- */

enum { IDLE, QUEUED, RUNNING, AGAIN };

/* Any thread; under no lock of ours but the watch's. */
static void schedule(pgl_generation *gen) {
    for (;;) {
        int state = atomic_load(&gen->state);
        if (state == QUEUED || state == AGAIN)
            return;
        int next = state == IDLE ? QUEUED : AGAIN;
        if (!atomic_compare_exchange_weak(&gen->state, &state, next))
            continue;
        if (next == QUEUED)
            pgl_workers_put(gen->server->workers, PGL_JOB_SHORT, &gen->job);
        return;
    }
}

/* The end of a run that has not ended the generation. */
static void rest(pgl_generation *gen) {
    int state = RUNNING;
    if (atomic_compare_exchange_strong(&gen->state, &state, IDLE))
        return;
    atomic_store(&gen->state, QUEUED);
    pgl_workers_put(gen->server->workers, PGL_JOB_SHORT, &gen->job);
}

static void on_notify(void *user) {
    schedule(user);
}

static void on_gone(void *user) {
    pgl_generation *gen = user;
    atomic_store(&gen->gone, true);
    schedule(gen);
}

static void on_room(void *user) {
    schedule(user);
}

/* ---- the watch ---- */

static void watch_add(pgl_generation *gen) {
    pgl_server *server = gen->server;
    pthread_mutex_lock(&server->watch_lock);
    gen->deadline_ns = server->request_timeout_ns ? gen->start_ns + server->request_timeout_ns : UINT64_MAX;
    gen->watched = true;
    if (server->watch_stop)
        atomic_store(&gen->cut, true);
    gen->next_watched = server->first_watched;
    if (gen->next_watched)
        gen->next_watched->previous_watched = gen;
    server->first_watched = gen;
    pthread_cond_signal(&server->watch_changed);
    pthread_mutex_unlock(&server->watch_lock);
}

static void watch_remove(pgl_generation *gen) {
    pgl_server *server = gen->server;
    pthread_mutex_lock(&server->watch_lock);
    if (gen->watched) {
        if (gen->previous_watched)
            gen->previous_watched->next_watched = gen->next_watched;
        else
            server->first_watched = gen->next_watched;
        if (gen->next_watched)
            gen->next_watched->previous_watched = gen->previous_watched;
        gen->watched = false;
    }
    pthread_mutex_unlock(&server->watch_lock);
}

/* All have the same limit, but those that were added last stand first: the list is short, all of it is looked at. */
static void *watch(void *arg) {
    pgl_server *server = arg;
    pthread_mutex_lock(&server->watch_lock);
    while (!server->watch_stop) {
        uint64_t now = pgl_now_ns(), next = UINT64_MAX;
        for (pgl_generation *gen = server->first_watched; gen; gen = gen->next_watched) {
            if (now >= gen->deadline_ns && !atomic_exchange(&gen->timed_out, true))
                schedule(gen);
            else if (now < gen->deadline_ns && gen->deadline_ns < next)
                next = gen->deadline_ns;
        }
        if (next == UINT64_MAX) {
            pthread_cond_wait(&server->watch_changed, &server->watch_lock);
            continue;
        }
        struct timespec until = {.tv_sec = (time_t)(next / 1000000000), .tv_nsec = (long)(next % 1000000000)};
        pthread_cond_timedwait(&server->watch_changed, &server->watch_lock, &until);
    }
    pthread_mutex_unlock(&server->watch_lock);
    return NULL;
}

pgl_status pgl_generation_watch_open(pgl_server *server, pgl_error *err) {
    if (server->request_timeout_ns == 0)
        return PGL_OK;
    int code = pthread_create(&server->watch, NULL, watch, server);
    if (code != 0)
        return pgl_fail(err, PGL_E_MEMORY, "the thread for time limits cannot be started: %s",
                        strerror(code));
    server->watch_runs = true;
    return PGL_OK;
}

void pgl_generation_cut_all(pgl_server *server) {
    pthread_mutex_lock(&server->watch_lock);
    server->watch_stop = true;
    for (pgl_generation *gen = server->first_watched; gen; gen = gen->next_watched) {
        atomic_store(&gen->cut, true);
        schedule(gen);
    }
    pthread_mutex_unlock(&server->watch_lock);
}

void pgl_generation_watch_close(pgl_server *server) {
    if (!server->watch_runs)
        return;
    pthread_mutex_lock(&server->watch_lock);
    server->watch_stop = true;
    pthread_cond_signal(&server->watch_changed);
    pthread_mutex_unlock(&server->watch_lock);
    pthread_join(server->watch, NULL);
    server->watch_runs = false;
}

/* ---- life ---- */

static void free_generation(pgl_generation *gen) {
    pgl_generation_record(gen);
    pgl_trace_end(gen);
    for (uint32_t i = 0; i < gen->n_choices; i++) {
        pgl_choice *choice = &gen->choices[i];
        pgl_request_release(choice->request);
        pgl_choice_text_close(choice->text);
        for (size_t k = 0; k < PGL_LOGPROB_LISTS; k++)
            pgl_out_fini(&choice->logprobs[k]);
        pgl_out_fini(&choice->calls);
        pgl_buf_fini(&choice->content);
        pgl_buf_fini(&choice->reasoning);
        pgl_buf_fini(&choice->arguments);
    }
    for (uint32_t i = 0; i < gen->n_prompts; i++) {
        pgl_ids_fini(&gen->prompts[i].ids);
        pgl_ids_fini(&gen->prompts[i].forced);
    }
    pgl_constraint_close(gen->form);
    pgl_out_fini(&gen->out);
    json_decref(gen->body);
    pgl_arena_close(gen->arena);
    pgl_exchange_release(gen->exchange);
    free(gen);
}

static void run(pgl_job *job);

pgl_generation *pgl_generation_open(pgl_server *server, pgl_exchange *exchange, json_t *body,
                                    const pgl_dialect *dialect, const char *id_prefix) {
    pgl_generation *gen = pgl_new(1, sizeof *gen);
    pgl_arena *arena = gen ? pgl_arena_open(0) : NULL;
    if (!arena) {
        pgl_refusal err;
        pgl_refuse_memory(&err);
        pgl_answer_error(exchange, &err);
        pgl_exchange_release(exchange);
        json_decref(body);
        free(gen);
        return NULL;
    }
    gen->job.run = run;
    atomic_init(&gen->state, RUNNING);
    gen->server = server;
    gen->exchange = exchange;
    gen->body = body;
    gen->dialect = dialect;
    gen->arena = arena;
    gen->params = pgl_params_defaults(&server->sampling);
    gen->start_ns = pgl_now_ns();
    gen->created = (int64_t)time(NULL);
    gen->seed = pgl_random_seed();
    snprintf(gen->id, sizeof gen->id, "%s-%s", id_prefix, pgl_exchange_request_id(exchange));
    return gen;
}

void pgl_generation_refuse(pgl_generation *gen, const pgl_refusal *err) {
    pgl_answer_error(gen->exchange, err);
    free_generation(gen);
}

/* ---- starting ---- */

static bool check_context(const pgl_generation *gen, pgl_refusal *err) {
    uint32_t context = gen->server->context;
    bool none_wanted = gen->params.max_tokens == 0;
    const char *field = gen->dialect->prompt ? "prompt" : "messages";
    for (uint32_t i = 0; i < gen->n_prompts; i++) {
        size_t n = gen->prompts[i].ids.count;
        if (n == 0)
            return pgl_refuse_field(err, field, "the prompt is empty");
        if (n > context || (n == context && !none_wanted))
            return pgl_refuse(
                err, 400, pgl_status_name(PGL_E_CONTEXT), field,
                "the prompt has %zu tokens, and this server's context is %u tokens, prompt and answer "
                "together",
                n, context);
    }
    return true;
}

/* All choices of a request find room, or none of them takes it. */
static bool check_room(const pgl_generation *gen, pgl_refusal *err) {
    uint32_t n = gen->n_prompts * (uint32_t)gen->params.n;
    pgl_engine_stats stats = pgl_engine_get_stats(gen->server->engine);
    if (n > stats.max_open)
        return pgl_refuse_field(err, gen->params.n > 1 ? "n" : "prompt",
                                "%u answers at once: this server takes at most %u, running and waiting", n,
                                stats.max_open);
    return n <= stats.max_open - stats.n_open ||
           pgl_refuse(err, 503, pgl_status_name(PGL_E_BUSY), NULL,
                      "%u of %u places are taken and this request needs %u: the queue is full", stats.n_open,
                      stats.max_open, n);
}

static bool make_choices(pgl_generation *gen, const pgl_choice_text_options *text, pgl_refusal *err) {
    uint32_t n = gen->n_prompts * (uint32_t)gen->params.n;
    pgl_error why;
    gen->choices = pgl_arena_new(gen->arena, n, sizeof *gen->choices);
    if (!gen->choices)
        return pgl_refuse(err, 500, "out_of_memory", NULL, "no memory for %u choices", n);
    for (uint32_t i = 0; i < n; i++) {
        pgl_choice *choice = &gen->choices[gen->n_choices++];
        choice->index = i;
        choice->prompt = i / (uint32_t)gen->params.n;
        choice->stop_id = -1;
        pgl_choice_text_options own = *text;
        own.params = &gen->params;
        own.tokenizer = gen->server->tokenizer;
        const pgl_gen_prompt *prompt = &gen->prompts[choice->prompt];
        int64_t thinking = gen->params.thinking >= 0 ? gen->params.thinking : gen->server->thinking;
        own.in_thought = prompt->in_thought;
        own.told_thought =
            prompt->in_thought && !gen->server->echo && (gen->form || gen->params.thinking_budget >= 0);
        own.no_thinking = !prompt->in_thought && (thinking == 0 || prompt->continued);
        if (pgl_choice_text_open(&own, &choice->text, &why) != PGL_OK)
            return pgl_refuse_status(err, &why, NULL);
    }
    return true;
}

static uint32_t wanted_top(const pgl_gen_params *params) {
    if (params->completion_logprobs > 0)
        return (uint32_t)params->completion_logprobs;
    return params->top_logprobs > 0 ? (uint32_t)params->top_logprobs : 0;
}

/* The stop ids of the model and of the request together. */
static bool stop_ids(pgl_generation *gen, pgl_request_params *request) {
    const pgl_gen_params *params = &gen->params;
    uint32_t n;
    const int32_t *own = pgl_runtime_stop_ids(gen->server->runtime, &n);
    if (params->ignore_eos)
        n = 0;
    int32_t *all = pgl_arena_new(gen->arena, n + params->n_stop_ids, sizeof *all);
    if (!all)
        return false;
    for (uint32_t i = 0; i < n; i++)
        all[i] = own[i];
    for (uint32_t i = 0; i < params->n_stop_ids; i++)
        all[n + i] = params->stop_ids[i];
    request->stop_ids = all;
    request->n_stop_ids = n + params->n_stop_ids;
    return true;
}

/* Compiles the answer's form. */
static bool open_form(pgl_generation *gen, pgl_refusal *err) {
    pgl_gen_params *params = &gen->params;
    pgl_error why;
    if (params->tool_choice == PGL_TOOL_CHOICE_REQUIRED) {
        if (params->form.given)
            return pgl_refuse_field(err, "tool_choice", "tool_choice demands a call, and %s another form",
                                    params->form.param);
        if (!gen->tools.text)
            return pgl_refuse_field(err, "tool_choice", "tool_choice demands a call, and there are no tools");
        params->form = (pgl_answer_form){.given = true,
                                         .param = "tool_choice",
                                         .spec = {.kind = PGL_CONSTRAINT_TOOLS,
                                                  .text = gen->tools.text,
                                                  .size = gen->tools.size,
                                                  .tool = params->tool_name,
                                                  .parallel_tools = params->parallel_tool_calls}};
    }
    if (!params->form.given || gen->server->echo)
        return true;
    if (!gen->server->vocabulary)
        return pgl_refuse(err, 400, "unsupported", params->form.param,
                          "this model has no end token, so that a form cannot be enforced");
    pgl_status status = pgl_constraint_open(gen->server->vocabulary, &params->form.spec, &gen->form, &why);
    if (status == PGL_E_NOT_FOUND)
        return pgl_refuse_field(err, params->form.param, "%s", why.text);
    return status == PGL_OK || pgl_refuse_status(err, &why, params->form.param);
}

static pgl_status open_mask(const pgl_generation *gen, const pgl_gen_prompt *prompt,
                            pgl_request_params *request, pgl_error *err) {
    pgl_answer_mask_options options = {.tokenizer = gen->server->tokenizer,
                                       .n_vocab = gen->server->n_vocab,
                                       .in_thought = prompt->in_thought,
                                       .budget_tokens = gen->params.thinking_budget,
                                       .stop_ids = request->stop_ids,
                                       .n_stop_ids = request->n_stop_ids};
    pgl_status status = PGL_OK;
    if (gen->form)
        status = pgl_constraint_again(gen->form, &options.constraint, err);
    if (status == PGL_OK)
        status = pgl_answer_mask_open(&options, &request->mask, err);
    if (status != PGL_OK)
        pgl_constraint_close(options.constraint);
    return status;
}

static pgl_status submit_choice(pgl_generation *gen, pgl_choice *choice, const pgl_request_params *common,
                                pgl_error *err) {
    const pgl_gen_prompt *prompt = &gen->prompts[choice->prompt];
    pgl_request_params request = *common;
    request.prompt = prompt->ids.data;
    request.n_prompt = (uint32_t)prompt->ids.count;
    request.sampling = pgl_params_sampling(&gen->params, gen->seed, choice->index);
    request.snapshot_at = prompt->turns;
    request.n_snapshot_at = prompt->n_turns;
    if (gen->server->echo) {
        request.forced = prompt->forced.data;
        request.n_forced = (uint32_t)prompt->forced.count;
    }
    uint32_t room = gen->server->context - request.n_prompt;
    int64_t limit = gen->params.max_tokens;
    request.max_tokens = limit < 0 || limit > room ? room : (uint32_t)limit;
    pgl_trace_params(gen, choice, &request);
    pgl_status status = gen->server->echo ? PGL_OK : open_mask(gen, prompt, &request, err);
    if (status != PGL_OK)
        return status;
    status = pgl_engine_submit(gen->server->engine, &request, &choice->request, err);
    if (status != PGL_OK && request.mask.close)
        request.mask.close(request.mask.user);
    return status;
}

static bool submit(pgl_generation *gen, pgl_refusal *err) {
    const pgl_gen_params *params = &gen->params;
    pgl_error why;
    pgl_request_params common = {
        .priority = (int32_t)params->priority,
        .logprobs = params->logprobs || params->completion_logprobs >= 0,
        .n_top = wanted_top(params),
        /* Without a token to sample the prompt's own numbers are all there is to ask for. */
        .prompt_logprobs = params->echo && (params->completion_logprobs >= 0 || params->max_tokens == 0),
        .n_prompt_top = params->echo ? wanted_top(params) : 0,
        .notify = on_notify,
        .user = gen};
    if (!stop_ids(gen, &common))
        return pgl_refuse_memory(err);
    for (uint32_t i = 0; i < gen->n_choices; i++)
        if (submit_choice(gen, &gen->choices[i], &common, &why) != PGL_OK)
            return pgl_refuse_status(err, &why, NULL);
    return true;
}

/* What is forced ends as a model's answer does. */
static bool end_forced(pgl_generation *gen, pgl_refusal *err) {
    uint32_t n;
    const int32_t *ids = pgl_runtime_stop_ids(gen->server->runtime, &n);
    for (uint32_t i = 0; gen->server->echo && n > 0 && i < gen->n_prompts; i++)
        if (!pgl_ids_append(&gen->prompts[i].forced, ids[0]))
            return pgl_refuse(err, 500, "out_of_memory", NULL, "no memory for the answer");
    return true;
}

/* A long answer does not hold what its request took to read. */
static void drop_body(pgl_generation *gen) {
    json_decref(gen->body);
    gen->body = NULL;
    if (!gen->tools.text)
        pgl_exchange_drop_body(gen->exchange);
}

static void start(pgl_generation *gen) {
    pgl_refusal err;
    pgl_watcher watcher = {.user = gen, .on_gone = on_gone, .on_room = on_room};
    if (!open_form(gen, &err) || !end_forced(gen, &err) || !make_choices(gen, &gen->text, &err) ||
        !submit(gen, &err)) {
        pgl_generation_refuse(gen, &err);
        return;
    }
    pgl_trace_begin(gen);
    drop_body(gen);
    if (!pgl_exchange_watch(gen->exchange, &watcher))
        atomic_store(&gen->gone, true);
    watch_add(gen);
    if (gen->params.stream)
        pgl_exchange_stream(gen->exchange, 200, "text/event-stream; charset=utf-8");
    run(&gen->job);
}

static void start_with_form(pgl_job *job) {
    pgl_generation *gen = (pgl_generation *)job;
    gen->job.run = run;
    start(gen);
}

void pgl_generation_start(pgl_generation *gen, const pgl_choice_text_options *text) {
    pgl_refusal err;
    gen->text = *text;
    gen->tools = text->tools;
    if (!check_context(gen, &err) || !check_room(gen, &err)) {
        pgl_generation_refuse(gen, &err);
    } else if (gen->params.form.given || gen->params.tool_choice == PGL_TOOL_CHOICE_REQUIRED) {
        gen->job.run = start_with_form;
        pgl_workers_put(gen->server->workers, PGL_JOB_FORM, &gen->job);
    } else {
        start(gen);
    }
}

/* ---- running ---- */

/* Closes the object of a tool call that is being gathered. */
static void close_call(pgl_choice *choice) {
    if (!choice->in_call)
        return;
    choice->in_call = false;
    pgl_out_string(&choice->calls, pgl_buf_text(&choice->arguments), choice->arguments.size);
    pgl_out_raw(&choice->calls, "}}");
    pgl_buf_clear(&choice->arguments);
}

static void gather(pgl_choice *choice, const pgl_delta *delta) {
    pgl_out *calls = &choice->calls;
    pgl_buf *buf = &choice->content;
    switch (delta->kind) {
    case PGL_DELTA_CALL:
        close_call(choice);
        pgl_out_printf(calls, "%s{\"id\":", delta->call ? "," : "");
        pgl_out_str(calls, delta->id);
        pgl_out_raw(calls, ",\"type\":\"function\",\"function\":{\"name\":");
        pgl_out_string(calls, delta->text, delta->size);
        pgl_out_raw(calls, ",\"arguments\":");
        choice->in_call = true;
        return;
    case PGL_DELTA_ARGUMENTS:
        buf = &choice->arguments;
        break;
    case PGL_DELTA_REASONING:
        buf = &choice->reasoning;
        break;
    case PGL_DELTA_CONTENT:
        break;
    }
    calls->failed = !pgl_buf_append(buf, delta->text, delta->size) || calls->failed;
}

typedef struct sink_context {
    pgl_generation *gen;
    pgl_choice *choice;
} sink_context;

static void on_delta(void *user, const pgl_delta *delta) {
    const sink_context *context = user;
    pgl_choice *choice = context->choice;
    if (delta->kind == PGL_DELTA_CALL)
        choice->n_calls++;
    if (context->gen->params.stream)
        context->gen->dialect->delta(context->gen, choice, delta, &context->gen->out);
    if (!context->gen->params.stream || context->gen->server->log_prompts)
        gather(choice, delta);
}

static void fail(pgl_generation *gen, const pgl_refusal *err) {
    if (gen->failed)
        return;
    gen->failed = true;
    gen->error = *err;
}

static void drop_request(const pgl_generation *gen, pgl_choice *choice) {
    pgl_request *request = choice->request;
    pgl_trace_leave(gen, choice);
    choice->request = NULL;
    pgl_request_release(request);
}

static void end_choice(pgl_generation *gen, pgl_choice *choice, bool length) {
    sink_context context = {gen, choice};
    pgl_choice_end end = pgl_choice_text_finish(choice->text, length, on_delta, &context);
    close_call(choice);
    choice->finish = end.finish;
    choice->stop_text = end.stop_text;
    choice->n_reasoning = pgl_choice_text_n_reasoning(choice->text);
    if (gen->params.stream)
        gen->dialect->finish(gen, choice, &gen->out);
}

static void note_cache(pgl_generation *gen, const pgl_choice *choice, const pgl_cache_decision *cache) {
    if (choice->index % (uint32_t)gen->params.n == 0)
        gen->prompts[choice->prompt].cache = *cache;
}

static void on_token(pgl_generation *gen, pgl_choice *choice, const pgl_event *event) {
    sink_context context = {gen, choice};
    choice->n_tokens++;
    pgl_trace_token(gen, choice, event);
    if (gen->first_token_ns == 0) {
        gen->first_token_ns = pgl_now_ns();
        pgl_metrics_observe(gen->server->metrics, PGL_HISTOGRAM_TTFT,
                            (double)(gen->first_token_ns - gen->start_ns) * 1e-9);
    }
    if (gen->dialect->logprob && (gen->params.logprobs || gen->params.completion_logprobs >= 0))
        gen->dialect->logprob(gen, choice, event);
    if (pgl_choice_text_push(choice->text, event->token, on_delta, &context))
        return;
    bool admitted;
    pgl_event end = {.kind = PGL_EVENT_FINISH, .finish = PGL_FINISH_STOP};
    end.usage = pgl_generation_progress(gen, choice, &admitted);
    pgl_generation_note(gen, choice, &end.usage, admitted);
    note_cache(gen, choice, &end.usage.cache);
    drop_request(gen, choice);
    end_choice(gen, choice, false);
    pgl_metrics_finish(gen->server->metrics, &end, pgl_now_ns() - gen->start_ns);
}

static void on_finish(pgl_generation *gen, pgl_choice *choice, const pgl_event *event) {
    pgl_trace_finish(gen, choice, event);
    note_cache(gen, choice, &event->usage.cache);
    bool whole = event->finish == PGL_FINISH_STOP || event->finish == PGL_FINISH_LENGTH;
    pgl_generation_note(gen, choice, &event->usage, whole || event->usage.n_generated > 0);
    pgl_metrics_finish(gen->server->metrics, event, pgl_now_ns() - gen->start_ns);
    if (whole) {
        choice->stop_id = event->finish == PGL_FINISH_STOP ? event->stop_id : -1;
        drop_request(gen, choice);
        end_choice(gen, choice, event->finish == PGL_FINISH_LENGTH);
        return;
    }
    pgl_error why = {.status = PGL_E_INTERNAL};
    pgl_refusal err;
    pgl_request_error(choice->request, &why);
    drop_request(gen, choice);
    if (why.status == PGL_E_CANCELLED)
        pgl_refuse(&err, 503, "overloaded", NULL, "the server is shutting down");
    else
        pgl_refuse_status(&err, &why, NULL);
    fail(gen, &err);
}

/* Hands events on. False: the client is slow, go on when it has room. */
static bool hand_on(pgl_generation *gen, bool all) {
    if (!gen->params.stream || gen->out.buf.size == 0 || (!all && gen->out.buf.size < WRITE_BYTES))
        return true;
    if (gen->out.failed) {
        pgl_exchange_abort(gen->exchange);
        atomic_store(&gen->gone, true);
        return true;
    }
    pgl_write_state state = pgl_exchange_write(gen->exchange, gen->out.buf.data, gen->out.buf.size);
    pgl_out_clear(&gen->out);
    if (state == PGL_WRITE_GONE)
        atomic_store(&gen->gone, true);
    return state != PGL_WRITE_FULL;
}

static bool out_of_memory(const pgl_choice *choice) {
    bool failed = pgl_choice_text_failed(choice->text) || choice->calls.failed;
    for (size_t i = 0; i < PGL_LOGPROB_LISTS; i++)
        failed = failed || choice->logprobs[i].failed;
    return failed;
}

/* With echo: before the first token, with its log-probabilities where they are asked for. */
static void give_prompt(pgl_generation *gen, pgl_choice *choice, const pgl_event *event) {
    choice->prompt_given = true;
    gen->dialect->prompt(gen, choice, event, &gen->out);
}

/* False: not all that is there has been taken. */
static bool take_events(pgl_generation *gen, pgl_choice *choice) {
    pgl_event event;
    if (gen->params.echo && gen->params.completion_logprobs < 0 && !choice->prompt_given)
        give_prompt(gen, choice, NULL);
    while (choice->request && !gen->failed && !atomic_load(&gen->gone)) {
        if (!pgl_request_next(choice->request, &event))
            return true;
        switch (event.kind) {
        case PGL_EVENT_PROMPT:
            if (!choice->prompt_given)
                give_prompt(gen, choice, &event);
            break;
        case PGL_EVENT_TOKEN:
            on_token(gen, choice, &event);
            break;
        case PGL_EVENT_FINISH:
            on_finish(gen, choice, &event);
            break;
        }
        if (out_of_memory(choice)) {
            pgl_refusal err;
            pgl_refuse(&err, 500, "out_of_memory", NULL, "memory ran out while writing the answer");
            fail(gen, &err);
        }
        if (!hand_on(gen, false))
            return false;
    }
    return true;
}

static void finish_generation(pgl_generation *gen) {
    bool gone = atomic_load(&gen->gone);
    watch_remove(gen);
    if (gen->choices[0].request && !gen->noted) {
        bool admitted;
        pgl_usage usage = pgl_generation_progress(gen, &gen->choices[0], &admitted);
        pgl_generation_note(gen, &gen->choices[0], &usage, admitted);
    }
    for (uint32_t i = 0; i < gen->n_choices; i++) {
        if (gen->choices[i].request)
            pgl_metrics_abort(gen->server->metrics);
        drop_request(gen, &gen->choices[i]);
    }
    pgl_exchange_unwatch(gen->exchange);
    /* Nobody schedules any more. */
    if (!gone && gen->params.stream) {
        if (gen->failed)
            gen->dialect->failure(gen, &gen->error, &gen->out);
        else
            gen->dialect->tail(gen, &gen->out);
        hand_on(gen, true);
        pgl_exchange_end(gen->exchange);
    } else if (!gone && gen->failed) {
        pgl_answer_error(gen->exchange, &gen->error);
    } else if (!gone) {
        pgl_out_clear(&gen->out);
        gen->dialect->whole(gen, &gen->out);
        pgl_answer_json(gen->exchange, 200, &gen->out);
    } else {
        pgl_exchange_end(gen->exchange);
    }
    free_generation(gen);
}

static void run(pgl_job *job) {
    pgl_generation *gen = (pgl_generation *)job;
    int queued = QUEUED; /* the first run comes straight from start, as RUNNING */
    atomic_compare_exchange_strong(&gen->state, &queued, RUNNING);
    bool whole = true, done = true;
    if (atomic_load(&gen->cut)) {
        pgl_refusal err;
        pgl_refuse(&err, 503, "overloaded", NULL, "the server is shutting down");
        fail(gen, &err);
    } else if (atomic_load(&gen->timed_out)) {
        pgl_refusal err;
        pgl_refuse(&err, 408, "timeout", NULL, "the request took longer than the server's time limit");
        fail(gen, &err);
    }
    for (uint32_t i = 0; i < gen->n_choices && whole; i++)
        whole = take_events(gen, &gen->choices[i]);
    if (whole)
        hand_on(gen, true);
    for (uint32_t i = 0; i < gen->n_choices; i++)
        done = done && gen->choices[i].request == NULL;
    if (done || gen->failed || atomic_load(&gen->gone))
        finish_generation(gen);
    else
        rest(gen);
}

/* ---- for dialects ---- */

pgl_gen_usage pgl_generation_usage(const pgl_generation *gen) {
    pgl_gen_usage usage = {.cache = gen->prompts[0].cache};
    for (uint32_t i = 0; i < gen->n_prompts; i++) {
        usage.prompt_tokens += (uint32_t)gen->prompts[i].ids.count;
        usage.cached_tokens += gen->prompts[i].cache.n_cached;
    }
    for (uint32_t i = 0; i < gen->n_choices; i++) {
        usage.completion_tokens += gen->choices[i].n_tokens;
        usage.reasoning_tokens += gen->choices[i].n_reasoning;
    }
    return usage;
}

void pgl_put_failure(pgl_generation *gen, const pgl_refusal *err, pgl_out *out) {
    (void)gen;
    pgl_out_raw(out, "data: ");
    out->failed = !pgl_refusal_write(err, &out->buf) || out->failed;
    pgl_out_raw(out, "\n\ndata: [DONE]\n\n");
}

void pgl_put_usage(const pgl_gen_usage *usage, pgl_out *out) {
    pgl_out_printf(
        out,
        "{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%u,\"reasoning_tokens\":%u,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%u,\"matched_tokens\":%u,\"cache_miss\":\"%s\","
        "\"cache_miss_at\":%u},"
        "\"completion_tokens_details\":{\"reasoning_tokens\":%u}}",
        usage->prompt_tokens, usage->completion_tokens, usage->prompt_tokens + usage->completion_tokens,
        usage->reasoning_tokens, usage->cached_tokens, usage->cache.n_matched,
        pgl_miss_name(usage->cache.miss), usage->cache.miss_at, usage->reasoning_tokens);
}
