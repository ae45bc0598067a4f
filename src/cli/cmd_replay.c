/* pergola replay: runs what `pergola serve --trace` recorded again, alone and without a cache, and compares the tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/runtime.h"
#include "base/fs.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "server/answer_mask.h"
#include "server/trace_read.h"
#include "server/vocabulary.h"

typedef struct replay_options {
    const char *model;
    uint32_t threads;
    uint64_t memory;
    bool json;
} replay_options;

/* What a sequence came to. */
typedef struct outcome {
    bool same, compared;
    uint32_t at;            /* of the answer: the first token that differs, or where one side ended */
    int32_t recorded, here; /* ids; -1: it ended there */
    float recorded_logprob, here_logprob; /* NaN: not known */
    float other_logprob;                  /* of the recorded id, here; NaN: not among the best */
    float most_apart;                     /* of the log-probabilities of equal tokens */
    pgl_finish finish;                    /* here */
} outcome;

typedef struct replay {
    replay_options options;
    const char *file;
    char model[4096];
    pgl_trace trace;
    pgl_runtime *runtime;
    pgl_constraint_vocabulary *vocabulary;
    pgl_constraint *form;
} replay;

enum { N_TOP = 20 };

/* ---- one sequence ---- */

static bool ends_by_itself(const pgl_trace_sequence *s) {
    return s->finish == PGL_FINISH_STOP || s->finish == PGL_FINISH_LENGTH;
}

/* Tokens to sample: one more than recorded, to see an end that is a stop token. */
static uint32_t wanted(const pgl_trace_sequence *s) {
    return s->n_tokens + (s->finish == PGL_FINISH_STOP);
}

static pgl_status open_mask(const replay *r, const pgl_trace_sequence *s, pgl_request_params *params,
                            pgl_error *err) {
    pgl_answer_mask_options options = {.tokenizer = pgl_runtime_tokenizer(r->runtime),
                                       .n_vocab = pgl_runtime_n_vocab(r->runtime),
                                       .in_thought = s->in_thought,
                                       .budget_tokens = r->trace.thinking_budget,
                                       .stop_ids = s->stop_ids,
                                       .n_stop_ids = s->n_stop_ids};
    pgl_status status = PGL_OK;
    if (r->form != NULL)
        status = pgl_constraint_again(r->form, &options.constraint, err);
    if (status == PGL_OK)
        status = pgl_answer_mask_open(&options, &params->mask, err);
    if (status != PGL_OK)
        pgl_constraint_close(options.constraint);
    return status;
}

static float find_logprob(const pgl_event *event, int32_t id) {
    for (uint32_t i = 0; i < event->n_top; i++)
        if (event->top[i].id == id)
            return event->top[i].logprob;
    return NAN;
}

/* Compares one sampled token; false when it differs. */
static bool compare(const pgl_trace_sequence *s, const pgl_event *event, outcome *o) {
    uint32_t at = o->at;
    if (at >= s->n_tokens || event->token != s->tokens[at]) {
        o->same = false;
        o->here = event->token;
        o->here_logprob = event->logprob;
        o->recorded = at < s->n_tokens ? s->tokens[at] : s->stop_id;
        o->recorded_logprob = at < s->n_tokens ? s->logprobs[at] : NAN;
        o->other_logprob = find_logprob(event, o->recorded);
        return false;
    }
    float apart = fabsf(event->logprob - s->logprobs[at]);
    if (apart > o->most_apart)
        o->most_apart = apart;
    o->at++;
    return true;
}

/* The end came: is it where the recorded one was? */
static void compare_end(const pgl_trace_sequence *s, const pgl_event *event, outcome *o) {
    o->finish = event->finish;
    bool all = o->at == s->n_tokens;
    bool kind = !ends_by_itself(s) || event->finish == s->finish;
    bool stop = s->finish != PGL_FINISH_STOP || event->stop_id == s->stop_id;
    if (all && kind && stop)
        return;
    o->same = false;
    o->here = event->finish == PGL_FINISH_STOP ? event->stop_id : -1;
    o->recorded = all ? s->stop_id : s->tokens[o->at];
    o->recorded_logprob = all ? NAN : s->logprobs[o->at];
}

static pgl_status read_answer(pgl_request *request, const pgl_trace_sequence *s, outcome *o, pgl_error *err) {
    pgl_event event;
    for (;;) {
        (void)pgl_request_wait(request, UINT64_MAX);
        if (!pgl_request_next(request, &event))
            continue;
        if (event.kind == PGL_EVENT_TOKEN && !compare(s, &event, o))
            return PGL_OK;
        if (event.kind != PGL_EVENT_FINISH)
            continue;
        if (event.finish == PGL_FINISH_ERROR || event.finish == PGL_FINISH_CANCELLED)
            return pgl_request_error(request, err);
        compare_end(s, &event, o);
        return PGL_OK;
    }
}

static pgl_status run_sequence(replay *r, const pgl_trace_sequence *s, outcome *o, pgl_error *err) {
    *o = (outcome){.same = true,
                   .recorded = -1,
                   .here = -1,
                   .recorded_logprob = NAN,
                   .here_logprob = NAN,
                   .other_logprob = NAN};
    uint32_t n = wanted(s), n_vocab = pgl_runtime_n_vocab(r->runtime);
    if (n == 0) /* nothing was sampled */
        return PGL_OK;
    o->compared = true;
    pgl_request_params params = {.prompt = s->prompt,
                                 .n_prompt = s->n_prompt,
                                 .sampling = s->sampling,
                                 .stop_ids = s->stop_ids,
                                 .n_stop_ids = s->n_stop_ids,
                                 .max_tokens = n,
                                 .logprobs = true,
                                 .n_top = N_TOP < n_vocab ? N_TOP : n_vocab};
    pgl_request *request = NULL;
    pgl_status status = open_mask(r, s, &params, err);
    if (status == PGL_OK) {
        status = pgl_engine_submit(pgl_runtime_engine(r->runtime), &params, &request, err);
        if (status != PGL_OK && params.mask.close != NULL)
            params.mask.close(params.mask.user);
    }
    if (status == PGL_OK)
        status = read_answer(request, s, o, err);
    pgl_request_release(request);
    return status;
}

/* ---- saying it ---- */

static void print_logprob(const char *before, float value, const char *after) {
    if (isnan(value))
        return;
    (void)printf("%s%.6f%s", before, (double)value, after);
}

static void print_outcome(uint32_t i, const pgl_trace_sequence *s, const outcome *o) {
    if (!o->compared) {
        (void)printf("sequence %u: nothing was sampled\n", i);
        return;
    }
    if (o->same) {
        (void)printf("sequence %u: the same, %u tokens", i, s->n_tokens);
        if (o->most_apart > 0)
            (void)printf(" (log-probabilities differ by up to %.3g)", (double)o->most_apart);
        (void)printf("\n");
        return;
    }
    (void)printf("sequence %u: differs at token %u of %u (position %u)\n", i, o->at, s->n_tokens,
                 s->n_prompt + o->at);
    if (o->recorded >= 0)
        (void)printf("  recorded %d", (int)o->recorded);
    else
        (void)printf("  recorded: the end");
    print_logprob(", log-probability ", o->recorded_logprob, "");
    print_logprob(" (here ", o->other_logprob, ")");
    if (o->here >= 0)
        (void)printf("\n  here %d", (int)o->here);
    else
        (void)printf("\n  here: the end (%s)", pgl_finish_name(o->finish));
    print_logprob(", log-probability ", o->here_logprob, "");
    (void)printf("\n");
}

static void print_json_number(const char *name, float value) {
    if (isfinite(value))
        (void)printf(",\"%s\":%.9g", name, (double)value);
    else
        (void)printf(",\"%s\":null", name);
}

static void print_json(uint32_t i, const pgl_trace_sequence *s, const outcome *o) {
    (void)printf("%s{\"sequence\":%u,\"same\":%s,\"compared\":%u", i > 0 ? "," : "", i,
                 o->same ? "true" : "false", o->compared ? s->n_tokens : 0);
    if (!o->same) {
        (void)printf(",\"token\":%u,\"position\":%u,\"recorded\":%d,\"here\":%d", o->at, s->n_prompt + o->at,
                     (int)o->recorded, (int)o->here);
        print_json_number("recorded_logprob", o->recorded_logprob);
        print_json_number("here_logprob", o->here_logprob);
        print_json_number("recorded_logprob_here", o->other_logprob);
    }
    (void)printf("}");
}

/* ---- the whole ---- */

static pgl_status read_trace(replay *r, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT;
    pgl_status status = pgl_fs_read(r->file, PGL_TRACE_MOST_BYTES, &text, err);
    if (status == PGL_OK) {
        status = pgl_trace_parse(pgl_buf_text(&text), text.size, &r->trace, err);
        if (status != PGL_OK)
            pgl_error_prefix(err, "%s", r->file);
    }
    pgl_buf_fini(&text);
    if (status == PGL_OK && strcmp(r->trace.backend, "null") == 0)
        status = pgl_fail(err, PGL_E_UNSUPPORTED, "%s: recorded with --backend echo, which computes nothing",
                          r->file);
    return status;
}

static pgl_status check_model(const replay *r, pgl_error *err) {
    char own[PGL_FINGERPRINT_TEXT];
    pgl_status status = pgl_runtime_fingerprint(r->runtime, own, err);
    if (status == PGL_OK && strcmp(own, r->trace.fingerprint) != 0)
        status = pgl_fail(err, PGL_E_INVALID,
                          "%s was recorded with another model: \"%.100s\", fingerprint %.40s; %s has %s",
                          r->file, r->trace.model, r->trace.fingerprint, r->model, own);
    return status;
}

static pgl_status open_all(replay *r, pgl_error *err) {
    uint64_t context = 1;
    for (uint32_t i = 0; i < r->trace.n_sequences; i++) {
        const pgl_trace_sequence *s = &r->trace.sequences[i];
        uint64_t need = (uint64_t)s->n_prompt + wanted(s);
        context = need > context ? need : context;
    }
    pgl_status status = pgl_find_model(r->options.model, r->model, sizeof r->model, err);
    pgl_runtime_options options = {.model = r->model,
                                   .context = (uint32_t)context,
                                   .n_slots = 1,
                                   .n_threads = r->options.threads,
                                   .memory_bytes = r->options.memory,
                                   .no_prefix_cache = true};
    if (status == PGL_OK)
        status = pgl_runtime_open(&options, &r->runtime, err);
    if (status == PGL_OK)
        status = check_model(r, err);
    if (status == PGL_OK && r->trace.has_form)
        status = pgl_vocabulary_open(r->runtime, &r->vocabulary, err);
    if (status == PGL_OK && r->trace.has_form && r->vocabulary == NULL)
        status = pgl_fail(err, PGL_E_UNSUPPORTED, "the model has no end token: a form cannot be enforced");
    if (status == PGL_OK && r->trace.has_form)
        status = pgl_constraint_open(r->vocabulary, &r->trace.form, &r->form, err);
    return status;
}

static pgl_status run_all(replay *r, bool *same, pgl_error *err) {
    *same = true;
    if (r->options.json)
        (void)printf("{\"sequences\":[");
    for (uint32_t i = 0; i < r->trace.n_sequences; i++) {
        const pgl_trace_sequence *s = &r->trace.sequences[i];
        outcome o;
        pgl_status status = run_sequence(r, s, &o, err);
        if (status != PGL_OK) {
            pgl_error_prefix(err, "sequence %u", i);
            return status;
        }
        (r->options.json ? print_json : print_outcome)(i, s, &o);
        (void)fflush(stdout);
        *same = *same && o.same;
    }
    if (r->options.json)
        (void)printf("],\"same\":%s}\n", *same ? "true" : "false");
    return PGL_OK;
}

static int run(replay *r) {
    bool same = false;
    pgl_error err;
    pgl_status status = read_trace(r, &err);
    if (status == PGL_OK)
        status = open_all(r, &err);
    if (status == PGL_OK)
        status = run_all(r, &same, &err);
    if (r->runtime != NULL) /* the engine's copies of the form go first */
        (void)pgl_engine_drain(pgl_runtime_engine(r->runtime), 0);
    pgl_constraint_close(r->form);
    pgl_constraint_vocabulary_close(r->vocabulary);
    pgl_runtime_close(r->runtime);
    pgl_trace_fini(&r->trace);
    if (status != PGL_OK) {
        (void)pgl_cli_fail("replay", &err);
        return PGL_EXIT_USAGE; /* 1 is kept for a trace that was run and differs */
    }
    return same ? PGL_EXIT_OK : PGL_EXIT_FAILURE;
}

int pgl_cmd_replay(int argc, char **argv) {
    static replay r;
    pgl_option options[] = {
        PGL_OPTION_ROW_MODEL(&r.options.model),
        PGL_OPTION_ROW_THREADS(&r.options.threads),
        PGL_OPTION_ROW_MEMORY(&r.options.memory),
        {.name = "json", .kind = PGL_OPTION_FLAG, .target = &r.options.json, .help = "the outcome as JSON"},
    };
    pgl_command command = {
        .name = "replay",
        .operands = "FILE",
        .summary = "Runs a request that serve --trace recorded again, alone and without a cache.",
        .description =
            "Exit code 0: the same tokens; 1: they differ, and where is said; 2: the file is no trace or "
            "not of this model, or it could not be run.",
        .options = options,
        .n_options = PGL_COUNT(options),
        .min_operands = 1,
        .max_operands = 1};
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    pgl_log_setup(PGL_LOG_WARN, false, 2);
    r.file = command.found[0];
    return run(&r);
}
