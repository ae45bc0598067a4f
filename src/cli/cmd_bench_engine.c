/* pergola bench engine: the load of `bench serve` without a server. The engine gets token ids and gives token ids, so that
 * what the server adds to it can be seen: the same cells, the same figures. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/runtime.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/load_prompt.h"
#include "cli/load_report.h"
#include "cli/machine.h"
#include "cli/options.h"

enum { MOST_REQUESTS = 100000, MOST_TOKENS = 1 << 20 };

typedef struct engine_options {
    const char *model, *backend, *format;
    uint32_t slots, threads, context, input, output, concurrency, requests, warmup;
    double rate, step_ms;
    uint64_t seed;
} engine_options;

typedef struct bench bench;

typedef struct flight {
    bench *b;
    pgl_request *request;
    pgl_load_record record;
    uint64_t token_ns; /* of the last token */
    /* guarded by the bench's lock */
    bool signalled;
    uint64_t signal_ns; /* when its queue stopped being empty */
    struct flight *next_signalled;
} flight;

struct bench {
    engine_options o;
    pgl_runtime *runtime;
    flight *flights; /* [warmup + requests] */
    int32_t *ids;    /* [input + output], of the request that is being sent */
    pgl_load_result result;
    pgl_load_random random;
    uint32_t next, end, n_flying;
    bool measuring;
    uint64_t due_ns;
    pgl_buf command;
    pgl_error err;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    flight *signalled; /* guarded by lock */
};

/* ---- what comes ---- */

/* On the engine's thread: no more than the time is noted here. */
static void on_notify(void *user) {
    flight *f = user;
    uint64_t now = pgl_now_ns();
    (void)pthread_mutex_lock(&f->b->lock);
    if (!f->signalled) {
        f->signalled = true;
        f->signal_ns = now;
        f->next_signalled = f->b->signalled;
        f->b->signalled = f;
    }
    (void)pthread_cond_signal(&f->b->changed);
    (void)pthread_mutex_unlock(&f->b->lock);
}

static void note_token(flight *f, uint64_t now_ns) {
    pgl_load_result *result = &f->b->result;
    if (f->record.n_pieces++ == 0)
        f->record.first_ns = now_ns;
    else if (f->b->measuring &&
             pgl_grow(&result->gaps_ns, sizeof *result->gaps_ns, &result->gap_capacity, result->n_gaps + 1))
        result->gaps_ns[result->n_gaps++] = now_ns - f->token_ns;
    f->token_ns = f->record.last_ns = now_ns;
}

static void finish(flight *f, const pgl_event *event, uint64_t now_ns) {
    bench *b = f->b;
    pgl_load_record *r = &f->record;
    bool fine = event->finish == PGL_FINISH_STOP || event->finish == PGL_FINISH_LENGTH;
    r->failure = fine ? PGL_LOAD_OK : PGL_LOAD_ERROR_EVENT;
    r->end_ns = now_ns;
    r->prompt_tokens = event->usage.n_prompt;
    r->output_tokens = event->usage.n_generated;
    r->cached_tokens = event->usage.n_cached;
    if (b->measuring) {
        b->result.records[b->result.n++] = *r;
        b->result.end_ns = now_ns > b->result.end_ns ? now_ns : b->result.end_ns;
    }
    pgl_request_release(f->request);
    f->request = NULL;
    b->n_flying--;
}

static void drain(flight *f, uint64_t now_ns) {
    pgl_event event;
    while (f->request != NULL && pgl_request_next(f->request, &event)) {
        if (event.kind == PGL_EVENT_TOKEN)
            note_token(f, now_ns);
        else if (event.kind == PGL_EVENT_FINISH)
            finish(f, &event, now_ns);
    }
}

/* Waits for something to come, until until_ns at most. */
static void wait_and_drain(bench *b, uint64_t until_ns) {
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    (void)pthread_mutex_lock(&b->lock);
    while (b->signalled == NULL && pgl_now_ns() < until_ns)
        (void)pthread_cond_timedwait(&b->changed, &b->lock, &until);
    flight *list = b->signalled;
    b->signalled = NULL;
    while (list != NULL) {
        flight *f = list;
        uint64_t now_ns = f->signal_ns;
        list = f->next_signalled;
        f->signalled = false;
        (void)pthread_mutex_unlock(&b->lock);
        drain(f, now_ns);
        (void)pthread_mutex_lock(&b->lock);
    }
    (void)pthread_mutex_unlock(&b->lock);
}

/* ---- what goes ---- */

static pgl_status send_next(bench *b, uint64_t due_ns) {
    const engine_options *o = &b->o;
    flight *f = &b->flights[b->next++];
    uint32_t n_vocab = pgl_runtime_n_vocab(b->runtime);
    for (uint32_t i = 0; i < o->input + o->output; i++)
        b->ids[i] = (int32_t)(pgl_load_random_next(&b->random) % n_vocab);
    bool echo = o->backend != NULL && strcmp(o->backend, "echo") == 0;
    pgl_request_params params = {.prompt = b->ids,
                                 .n_prompt = o->input,
                                 .sampling = pgl_runtime_sampling(b->runtime),
                                 .ignore_eos = true,
                                 .max_tokens = o->output,
                                 .forced = echo ? b->ids + o->input : NULL,
                                 .n_forced = echo ? o->output : 0,
                                 .notify = on_notify,
                                 .user = f};
    *f = (flight){.b = b};
    f->record.sent_ns = pgl_now_ns();
    f->record.due_ns = due_ns > 0 ? due_ns : f->record.sent_ns;
    b->n_flying++;
    return pgl_engine_submit(pgl_runtime_engine(b->runtime), &params, &f->request, &b->err);
}

static pgl_status send_due(bench *b, uint64_t *until_ns) {
    pgl_status status = PGL_OK;
    uint64_t now = pgl_now_ns();
    *until_ns = now + 1000000000;
    if (!b->measuring || b->o.rate <= 0) {
        while (status == PGL_OK && b->next < b->end && b->n_flying < b->o.concurrency)
            status = send_next(b, 0);
        return status;
    }
    while (status == PGL_OK && b->next < b->end && b->due_ns <= now) {
        status = send_next(b, b->due_ns);
        b->due_ns += (uint64_t)(-log(1.0 - pgl_load_random_real(&b->random)) / b->o.rate * 1e9);
    }
    if (b->next < b->end && b->due_ns < *until_ns)
        *until_ns = b->due_ns;
    return status;
}

static pgl_status run_phase(bench *b, bool measuring) {
    pgl_status status = PGL_OK;
    uint64_t until_ns;
    b->measuring = measuring;
    b->end = b->o.warmup + (measuring ? b->o.requests : 0);
    b->result.begin_ns = b->due_ns = pgl_now_ns();
    while (status == PGL_OK && (b->next < b->end || b->n_flying > 0)) {
        status = send_due(b, &until_ns);
        if (status == PGL_OK)
            wait_and_drain(b, until_ns);
    }
    return status;
}

/* ---- all of it ---- */

static pgl_status open_all(bench *b) {
    engine_options *o = &b->o;
    char directory[4096];
    pthread_condattr_t attributes;
    uint32_t slots = o->slots > 0 ? o->slots : o->concurrency;
    pgl_status status = pgl_find_model(o->model, directory, sizeof directory, &b->err);
    pgl_runtime_options options = {.model = directory,
                                   .backend = o->backend,
                                   .context = o->context > 0 ? o->context : o->input + o->output + 16,
                                   .n_slots = slots,
                                   .n_threads = o->threads,
                                   .max_queue = o->requests + o->warmup,
                                   .echo_step_ns = (uint64_t)(o->step_ms * 1e6)};
    if (status == PGL_OK)
        status = pgl_runtime_open(&options, &b->runtime, &b->err);
    uint32_t n = o->warmup + o->requests;
    b->flights = pgl_new(n, sizeof *b->flights);
    b->ids = pgl_new((size_t)o->input + o->output, sizeof *b->ids);
    b->result.records = pgl_new(o->requests, sizeof *b->result.records);
    b->random.state = o->seed;
    if (status == PGL_OK && (b->flights == NULL || b->ids == NULL || b->result.records == NULL))
        status = pgl_fail(&b->err, PGL_E_MEMORY, "no memory for %u requests", n);
    if (pthread_condattr_init(&attributes) != 0 ||
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) != 0 ||
        pthread_cond_init(&b->changed, &attributes) != 0 || pthread_mutex_init(&b->lock, NULL) != 0)
        return status == PGL_OK ? pgl_fail(&b->err, PGL_E_MEMORY, "no lock") : status;
    (void)pthread_condattr_destroy(&attributes);
    return status;
}

static pgl_status report(bench *b) {
    pgl_load_slo none = {0};
    pgl_buf out = PGL_BUF_INIT;
    pgl_load_cell cell = {.input = b->o.input,
                          .output = b->o.output,
                          .concurrency = b->o.rate > 0 ? 0 : b->o.concurrency,
                          .rate = b->o.rate,
                          .n_requests = b->o.requests,
                          .n_warmup = b->o.warmup};
    pgl_status status = pgl_load_summarize(&b->result, &none, &cell.summary, &b->err);
    pgl_load_report what = {.command = pgl_buf_text(&b->command),
                            .engine = pgl_runtime_caps(b->runtime)->detail,
                            .engine_model = pgl_runtime_name(b->runtime),
                            .seed = b->o.seed,
                            .cells = &cell,
                            .n_cells = 1};
    bool json = strcmp(b->o.format, "json") == 0;
    if (status == PGL_OK &&
        (json ? pgl_load_report_json(&what, &out) : pgl_load_report_markdown(&what, &out)))
        (void)fputs(pgl_buf_text(&out), stdout);
    else if (status == PGL_OK)
        status = pgl_fail(&b->err, PGL_E_MEMORY, "out of memory");
    pgl_buf_fini(&out);
    return status;
}

static int run(bench *b, int argc, char **argv) {
    pgl_status status = open_all(b);
    if (status == PGL_OK && !pgl_cli_put_command(&b->command, " bench", argc, argv, NULL))
        status = pgl_fail(&b->err, PGL_E_MEMORY, "out of memory");
    if (status == PGL_OK)
        status = run_phase(b, false);
    if (status == PGL_OK)
        status = run_phase(b, true);
    if (status == PGL_OK)
        status = report(b);
    pgl_error err = b->err;
    for (uint32_t i = 0; b->flights != NULL && i < b->o.warmup + b->o.requests; i++)
        pgl_request_release(b->flights[i].request);
    pgl_runtime_close(b->runtime);
    pgl_load_result_fini(&b->result);
    pgl_buf_fini(&b->command);
    free(b->flights);
    free(b->ids);
    if (status == PGL_OK)
        return PGL_EXIT_OK;
    int code = pgl_cli_fail("bench engine", &err);
    return status == PGL_E_INVALID ? PGL_EXIT_USAGE : code;
}

int pgl_cmd_bench_engine(int argc, char **argv) {
    static const char *const formats[] = {"md", "json", NULL};
    static bench b;
    b.o = (engine_options){
        .format = "md", .input = 128, .output = 64, .concurrency = 1, .requests = 64, .warmup = 1, .seed = 1};
    engine_options *o = &b.o;
    pgl_option options[] = {
        PGL_OPTION_ROW_MODEL(&o->model),
        PGL_OPTION_ROW_BACKEND(&o->backend),
        PGL_OPTION_ROW_THREADS(&o->threads),
        PGL_OPTION_ROW_CONTEXT(&o->context),
        {.name = "slots",
         .kind = PGL_OPTION_U32,
         .target = &o->slots,
         .value = "N",
         .max = 4096,
         .help = "conversations that are answered at the same time (as many as streams)"},
        {.name = "input",
         .kind = PGL_OPTION_U32,
         .target = &o->input,
         .value = "N",
         .min = 1,
         .max = MOST_TOKENS,
         .help = "tokens of a prompt (128)"},
        {.name = "output",
         .kind = PGL_OPTION_U32,
         .target = &o->output,
         .value = "N",
         .min = 1,
         .max = MOST_TOKENS,
         .help = "tokens of an answer (64)"},
        {.name = "concurrency",
         .kind = PGL_OPTION_U32,
         .target = &o->concurrency,
         .value = "N",
         .min = 1,
         .max = 4096,
         .help = "streams at the same time, each with one request after the other (1)"},
        {.name = "rate",
         .kind = PGL_OPTION_REAL,
         .target = &o->rate,
         .value = "R",
         .max = 1e6,
         .help = "instead: requests a second, at random (Poisson) times"},
        {.name = "requests",
         .letter = 'n',
         .kind = PGL_OPTION_U32,
         .target = &o->requests,
         .value = "N",
         .min = 1,
         .max = MOST_REQUESTS,
         .help = "that are measured (64)"},
        {.name = "warmup",
         .kind = PGL_OPTION_U32,
         .target = &o->warmup,
         .value = "N",
         .max = MOST_REQUESTS,
         .help = "before these and not counted (1)"},
        {.name = "seed",
         .kind = PGL_OPTION_U64,
         .target = &o->seed,
         .value = "N",
         .help = "of tokens and arrivals (1)"},
        {.name = "echo-step-ms",
         .kind = PGL_OPTION_REAL,
         .target = &o->step_ms,
         .value = "MS",
         .max = 60000,
         .help = "with --backend echo: time of a step (0)"},
        {.name = "format",
         .letter = 'o',
         .kind = PGL_OPTION_CHOICE,
         .target = &o->format,
         .value = "FORMAT",
         .choices = formats,
         .help = "md or json (md)"},
    };
    pgl_command command = {
        .name = "bench engine",
        .summary = "Puts load on the engine itself, without a server, and reports as `bench serve` does.",
        .description = "The difference between the two is what the server adds: docs/benchmarks.md.",
        .options = options,
        .n_options = PGL_COUNT(options),
    };
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    return run(&b, argc, argv);
}
