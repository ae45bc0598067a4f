/* pergola bench serve: load for any OpenAI-compatible server, and what came of it. */
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/commands.h"
#include "cli/load_report.h"
#include "cli/load_run.h"
#include "cli/load_site.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/progress.h"

enum {
    MOST_VALUES = 16,
    MOST_CELLS = 256,
    MOST_REQUESTS = 100000,
    MOST_STREAMS = 4096,
    STREAMS_WITH_RATE = 1000,
    MOST_TOKENS = 1 << 20,
};
#define MOST_PROMPT_TOKENS ((uint64_t)1 << 28) /* of a cell: its prompts are made before it starts */
#define MOST_ANSWER_BYTES ((uint64_t)1 << 30)

typedef struct serve_bench_options {
    pgl_load_site_options site;
    const char *inputs, *outputs, *concurrencies, *rates, *endpoint, *slo, *format;
    uint32_t n_requests, shared_prefix;
    int32_t n_warmup;
    uint64_t seed;
    int ignore_eos, tokenize;
} serve_bench_options;

typedef struct list {
    double values[MOST_VALUES];
    uint32_t n;
} list;

typedef struct bench {
    serve_bench_options o;
    list inputs, outputs, loads;
    pgl_load_slo slo;
    pgl_buf command;
    struct event_base *base;
    struct event *interrupt;
    bool interrupted;
    pgl_load_site site;
    pgl_load_cell *cells;
    uint32_t n_cells, n_prompts_made;
    pgl_error err;
} bench;

/* ---- the command line ---- */

/* "128,1024" */
static pgl_status parse_list(const char *option, const char *text, double most, bool whole, list *out,
                             pgl_error *err) {
    for (const char *at = text;; at++) {
        char *end;
        double value = strtod(at, &end);
        if (end == at || (*end != ',' && *end != '\0') || !(value > 0) || value > most ||
            (whole && value != (double)(uint32_t)value))
            return pgl_fail(err, PGL_E_INVALID,
                            "--%s: expected %s up to %.0f with commas between, found \"%.100s\"", option,
                            whole ? "whole numbers from 1" : "numbers above 0", most, text);
        if (out->n == MOST_VALUES)
            return pgl_fail(err, PGL_E_INVALID, "--%s: more than %d numbers", option, MOST_VALUES);
        out->values[out->n++] = value;
        at = end;
        if (*at == '\0')
            return PGL_OK;
    }
}

/* "ttft=450,tpot=40" */
static pgl_status parse_slo(const char *text, pgl_load_slo *slo, pgl_error *err) {
    struct {
        const char *name;
        double *ms;
    } limits[] = {{"ttft=", &slo->ttft_ms}, {"tpot=", &slo->tpot_ms}, {"e2e=", &slo->e2e_ms}};
    for (const char *at = text; at != NULL && *at != '\0';) {
        char *end = NULL;
        for (size_t i = 0; i < PGL_COUNT(limits); i++)
            if (strncmp(at, limits[i].name, strlen(limits[i].name)) == 0)
                *limits[i].ms = strtod(at + strlen(limits[i].name), &end);
        if (end == NULL || end[-1] == '=' || (*end != ',' && *end != '\0'))
            return pgl_fail(
                err, PGL_E_INVALID,
                "--slo: expected limits in milliseconds like ttft=450,tpot=40,e2e=2000, found \"%.100s\"",
                text);
        at = end + (*end == ',');
    }
    if (slo->ttft_ms < 0 || slo->tpot_ms < 0 || slo->e2e_ms < 0)
        return pgl_fail(err, PGL_E_INVALID, "--slo: a limit below 0 in \"%.100s\"", text);
    return PGL_OK;
}

static pgl_status read_options(bench *b) {
    serve_bench_options *o = &b->o;
    pgl_error *err = &b->err;
    pgl_status status = PGL_OK;
    if (o->site.url == NULL)
        return pgl_fail(err, PGL_E_INVALID, "--url is missing: expected http://HOST:PORT/v1");
    if (o->rates != NULL && o->concurrencies != NULL)
        return pgl_fail(err, PGL_E_INVALID, "--rate and --concurrency are two ways to say the same");
    status = parse_list("input", o->inputs, MOST_TOKENS, true, &b->inputs, err);
    if (status == PGL_OK)
        status = parse_list("output", o->outputs, MOST_TOKENS, true, &b->outputs, err);
    if (status == PGL_OK && o->rates != NULL)
        status = parse_list("rate", o->rates, 1e6, false, &b->loads, err);
    else if (status == PGL_OK)
        status = parse_list("concurrency", o->concurrencies != NULL ? o->concurrencies : "1", MOST_STREAMS,
                            true, &b->loads, err);
    if (status == PGL_OK)
        status = parse_slo(o->slo, &b->slo, err);
    if (status == PGL_OK && b->inputs.n * b->outputs.n * b->loads.n > MOST_CELLS)
        status = pgl_fail(err, PGL_E_INVALID, "more than %d cells of input, output and load", MOST_CELLS);
    for (uint32_t i = 0; i < b->inputs.n && status == PGL_OK; i++)
        if (o->shared_prefix > 0 && b->inputs.values[i] <= o->shared_prefix)
            status =
                pgl_fail(err, PGL_E_INVALID, "--shared-prefix %u leaves nothing of a prompt of %.0f tokens",
                         o->shared_prefix, b->inputs.values[i]);
    o->site.chat = strcmp(o->endpoint, "chat") == 0;
    o->site.ignore_eos = o->ignore_eos != 0;
    o->site.tokenize = o->tokenize != 0;
    return status == PGL_OK ? pgl_load_site_init(&o->site, &b->site, err) : status;
}

static uint32_t requests_of(const serve_bench_options *o, uint32_t concurrency) {
    if (o->n_requests > 0)
        return o->n_requests;
    if (o->rates != NULL)
        return 100;
    return concurrency * 4 > 16 ? concurrency * 4 : 16;
}

static pgl_status add_cell(bench *b, uint32_t input, uint32_t output, double load) {
    bool rate = b->o.rates != NULL;
    pgl_load_cell *cell = &b->cells[b->n_cells++];
    *cell = (pgl_load_cell){.input = input, .output = output};
    if (rate)
        cell->rate = load;
    else
        cell->concurrency = (uint32_t)load;
    cell->n_requests = requests_of(&b->o, cell->concurrency);
    cell->n_warmup = b->o.n_warmup >= 0      ? (uint32_t)b->o.n_warmup
                     : cell->concurrency > 0 ? cell->concurrency
                                             : 1;
    if ((uint64_t)(cell->n_requests + cell->n_warmup) * input > MOST_PROMPT_TOKENS)
        return pgl_fail(&b->err, PGL_E_INVALID, "%u requests of %u tokens are more than this holds at once",
                        cell->n_requests + cell->n_warmup, input);
    return PGL_OK;
}

static pgl_status make_cells(bench *b) {
    pgl_status status = PGL_OK;
    b->cells = pgl_new((size_t)b->inputs.n * b->outputs.n * b->loads.n, sizeof *b->cells);
    if (b->cells == NULL)
        return pgl_fail(&b->err, PGL_E_MEMORY, "out of memory");
    for (uint32_t i = 0; i < b->inputs.n; i++)
        for (uint32_t j = 0; j < b->outputs.n; j++)
            for (uint32_t k = 0; k < b->loads.n && status == PGL_OK; k++)
                status = add_cell(b, (uint32_t)b->inputs.values[i], (uint32_t)b->outputs.values[j],
                                  b->loads.values[k]);
    return status;
}

/* ---- a cell ---- */

/* No two prompts of a whole run are the same, and a cell's do not depend on what was measured before it. */
static uint64_t prompt_seed(const bench *b, uint64_t index) {
    pgl_load_random random = {b->o.seed ^ (index * 0xd1342543de82ef95)};
    return pgl_load_random_next(&random);
}

static pgl_status make_requests(bench *b, pgl_load_cell *cell, pgl_buf *requests) {
    pgl_progress progress;
    uint32_t n = cell->n_warmup + cell->n_requests;
    pgl_status status = PGL_OK;
    pgl_progress_init(&progress, "making prompts");
    for (uint32_t i = 0; i < n && status == PGL_OK; i++) {
        uint32_t found = 0;
        status = pgl_load_site_request(&b->site, prompt_seed(b, 1 + b->n_prompts_made++), cell->input,
                                       cell->output, &requests[i], &found, &b->err);
        cell->n_inexact += found != cell->input;
        pgl_progress_count(&progress, i + 1, n, "prompts");
    }
    pgl_progress_fini(&progress);
    return status;
}

static void on_progress(void *user, uint32_t done, uint32_t total) {
    pgl_progress_count(user, done, total, "requests");
}

static pgl_status run_requests(bench *b, pgl_load_cell *cell, const pgl_buf *requests) {
    pgl_progress progress;
    pgl_load_result result = {0};
    uint32_t streams = cell->rate > 0 ? STREAMS_WITH_RATE : cell->concurrency;
    pgl_load_http_options http = {.target = &b->site.target,
                                  .max_connections = streams,
                                  .timeout_s = b->o.site.timeout_s,
                                  .connect_timeout_s = b->o.site.connect_timeout_s,
                                  .max_answer_bytes = MOST_ANSWER_BYTES};
    pgl_load_plan plan = {.base = b->base,
                          .requests = requests,
                          .n_warmup = cell->n_warmup,
                          .n_requests = cell->n_requests,
                          .concurrency = streams,
                          .rate = cell->rate,
                          .seed = prompt_seed(b, 0),
                          .max_tokens = cell->output,
                          .user = &progress,
                          .on_progress = on_progress};
    pgl_progress_init(&progress, "measuring");
    pgl_status status = pgl_load_http_open(b->base, &http, &plan.http, &b->err);
    if (status == PGL_OK)
        status = pgl_load_run(&plan, &result, &b->err);
    pgl_load_http_close(plan.http);
    pgl_progress_fini(&progress);
    if (status == PGL_OK)
        status = pgl_load_summarize(&result, &b->slo, &cell->summary, &b->err);
    memcpy(cell->kinds, result.kinds, sizeof cell->kinds);
    cell->n_kinds = result.n_kinds;
    cell->warmup_failed = result.warmup_failed;
    cell->gaps_dropped = result.gaps_dropped;
    cell->interrupted = result.interrupted;
    pgl_load_result_fini(&result);
    return status;
}

static pgl_status run_cell(bench *b, pgl_load_cell *cell) {
    uint32_t n = cell->n_warmup + cell->n_requests;
    pgl_buf *requests = pgl_new(n, sizeof *requests);
    pgl_status status =
        requests != NULL ? PGL_OK : pgl_fail(&b->err, PGL_E_MEMORY, "no memory for %u requests", n);
    if (status == PGL_OK)
        status = make_requests(b, cell, requests);
    if (status == PGL_OK)
        status = run_requests(b, cell, requests);
    for (uint32_t i = 0; requests != NULL && i < n; i++)
        pgl_buf_fini(&requests[i]);
    free(requests);
    return status;
}

/* ---- all of it ---- */

static void on_interrupt(evutil_socket_t number, short what, void *user) {
    bench *b = user;
    (void)number;
    (void)what;
    b->interrupted = true;
    (void)event_base_loopbreak(b->base);
}

static pgl_status open_base(bench *b) {
    struct event_config *config = event_config_new();
    pgl_status status = pgl_cli_raise_file_limit(&b->err);
    if (status != PGL_OK) {
        event_config_free(config);
        return status;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    /* Arrivals are closer together than the milliseconds of an ordinary wait. */
    if (config != NULL && event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER) == 0)
        b->base = event_base_new_with_config(config);
    if (config != NULL)
        event_config_free(config);
    if (b->base != NULL)
        b->interrupt = evsignal_new(b->base, SIGINT, on_interrupt, b);
    if (b->interrupt == NULL || evsignal_add(b->interrupt, NULL) != 0)
        return pgl_fail(&b->err, PGL_E_IO, "no event loop");
    return PGL_OK;
}

/* *n: the cells that have figures. */
static pgl_status measure(bench *b, uint32_t *n) {
    *n = 0;
    pgl_status status = open_base(b);
    if (status == PGL_OK)
        status = pgl_load_site_open(b->base, &b->site, &b->err);
    if (status == PGL_OK && b->site.tokenizer == PGL_LOAD_WORDS)
        (void)fprintf(
            stderr,
            "pergola bench serve: the server does not count tokens: prompt lengths are approximate\n");
    if (status == PGL_OK && b->o.shared_prefix > 0)
        status = pgl_load_site_prefix(&b->site, prompt_seed(b, 0), b->o.shared_prefix, &b->err);
    for (uint32_t i = 0; i < b->n_cells && status == PGL_OK && !b->interrupted; i++) {
        status = run_cell(b, &b->cells[i]);
        if (status == PGL_OK)
            *n = i + 1;
    }
    if (status == PGL_E_CANCELLED && b->interrupted)
        status = PGL_OK;
    return status;
}

static pgl_status report(bench *b, uint32_t n) {
    pgl_buf out = PGL_BUF_INIT;
    pgl_status status = PGL_OK;
    pgl_load_report what = {.command = pgl_buf_text(&b->command),
                            .site = &b->site,
                            .slo = b->slo,
                            .seed = b->o.seed,
                            .shared_prefix = b->o.shared_prefix,
                            .cells = b->cells,
                            .n_cells = n,
                            .interrupted = b->interrupted};
    bool json = strcmp(b->o.format, "json") == 0;
    if (json ? pgl_load_report_json(&what, &out) : pgl_load_report_markdown(&what, &out))
        (void)fputs(pgl_buf_text(&out), stdout);
    else
        status = pgl_fail(&b->err, PGL_E_MEMORY, "out of memory");
    pgl_buf_fini(&out);
    return status;
}

static bool any_ok(const bench *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (b->cells[i].summary.ok > 0)
            return true;
    return false;
}

static int run(bench *b, int argc, char **argv) {
    uint32_t n = 0;
    pgl_status status = read_options(b);
    if (status == PGL_OK)
        status = make_cells(b);
    if (status == PGL_E_INVALID) {
        (void)pgl_cli_fail("bench serve", &b->err);
        return PGL_EXIT_USAGE;
    }
    if (status == PGL_OK && !pgl_cli_put_command(&b->command, " bench", argc, argv, "api-key"))
        status = pgl_fail(&b->err, PGL_E_MEMORY, "out of memory");
    if (status == PGL_OK)
        status = measure(b, &n);
    pgl_error first = b->err;
    /* What was measured before something failed is right, and may have taken an hour. */
    if (n > 0 && report(b, n) != PGL_OK)
        status = b->err.status;
    if (status != PGL_OK && n > 0)
        b->err = first;
    if (status != PGL_OK)
        return pgl_cli_fail("bench serve", &b->err);
    if (b->interrupted)
        return PGL_EXIT_INTERRUPTED;
    if (any_ok(b, n))
        return PGL_EXIT_OK;
    (void)pgl_fail(&b->err, PGL_E_IO, "no request was answered; the report says why");
    return pgl_cli_fail("bench serve", &b->err);
}

static void close_all(bench *b) {
    pgl_load_site_close(&b->site);
    if (b->interrupt != NULL)
        event_free(b->interrupt);
    if (b->base != NULL)
        event_base_free(b->base);
    pgl_buf_fini(&b->command);
    free(b->cells);
}

int pgl_cmd_bench_serve(int argc, char **argv) {
    static const char *const formats[] = {"md", "json", NULL};
    static const char *const endpoints[] = {"chat", "completions", NULL};
    static bench b;
    b.o = (serve_bench_options){.inputs = "128",
                                .outputs = "64",
                                .endpoint = "chat",
                                .format = "md",
                                .n_warmup = -1,
                                .seed = 1,
                                .ignore_eos = -1,
                                .tokenize = -1,
                                .site = {.timeout_s = 600, .connect_timeout_s = 10}};
    serve_bench_options *o = &b.o;
    pgl_option options[] = {
        {.name = "url",
         .letter = 'u',
         .kind = PGL_OPTION_STRING,
         .target = &o->site.url,
         .value = "URL",
         .help = "where the API is: http://HOST:PORT/v1 (there is no TLS)"},
        {.name = "api-key",
         .kind = PGL_OPTION_STRING,
         .target = &o->site.key,
         .value = "KEY",
         .env = "PERGOLA_API_KEY",
         .help = "sent as Authorization: Bearer KEY; not in the report"},
        {.name = "model",
         .letter = 'm',
         .kind = PGL_OPTION_STRING,
         .target = &o->site.model,
         .value = "NAME",
         .help = "name of the model (the first of /v1/models)"},
        {.name = "endpoint",
         .kind = PGL_OPTION_CHOICE,
         .target = &o->endpoint,
         .value = "NAME",
         .choices = endpoints,
         .help = "chat or completions (chat)"},
        {.name = "input",
         .kind = PGL_OPTION_STRING,
         .target = &o->inputs,
         .value = "N[,N]",
         .help = "tokens of a prompt (128)"},
        {.name = "output",
         .kind = PGL_OPTION_STRING,
         .target = &o->outputs,
         .value = "N[,N]",
         .help = "tokens of an answer (64)"},
        {.name = "concurrency",
         .letter = 'c',
         .kind = PGL_OPTION_STRING,
         .target = &o->concurrencies,
         .value = "N[,N]",
         .help = "streams at the same time, each with one request after the other (1)"},
        {.name = "rate",
         .kind = PGL_OPTION_STRING,
         .target = &o->rates,
         .value = "R[,R]",
         .help = "instead: requests a second, at random (Poisson) times"},
        {.name = "requests",
         .letter = 'n',
         .kind = PGL_OPTION_U32,
         .target = &o->n_requests,
         .value = "N",
         .min = 1,
         .max = MOST_REQUESTS,
         .help = "measured in each cell (4 for each stream, at least 16; 100 with --rate)"},
        {.name = "warmup",
         .kind = PGL_OPTION_I32,
         .target = &o->n_warmup,
         .value = "N",
         .max = MOST_REQUESTS,
         .help = "sent before these and not counted (1 for each stream)"},
        {.name = "seed",
         .kind = PGL_OPTION_U64,
         .target = &o->seed,
         .value = "N",
         .help = "of prompts and arrivals (1)"},
        {.name = "shared-prefix",
         .kind = PGL_OPTION_U32,
         .target = &o->shared_prefix,
         .value = "N",
         .max = MOST_TOKENS,
         .help = "tokens that all prompts have in common (0)"},
        {.name = "slo",
         .kind = PGL_OPTION_STRING,
         .target = &o->slo,
         .value = "LIMITS",
         .help = "count what is good: ttft=450,tpot=40,e2e=2000 in milliseconds, any of them"},
        {.name = "ignore-eos",
         .kind = PGL_OPTION_SWITCH,
         .target = &o->ignore_eos,
         .help = "ask for answers of exactly that many tokens (on)"},
        {.name = "tokenize",
         .kind = PGL_OPTION_SWITCH,
         .target = &o->tokenize,
         .help = "let the server count prompts where it has /tokenize (on)"},
        {.name = "extra",
         .kind = PGL_OPTION_STRING,
         .target = &o->site.extra,
         .value = "JSON",
         .help = "members for every request's body: '{\"temperature\":0}'"},
        {.name = "timeout",
         .kind = PGL_OPTION_REAL,
         .target = &o->site.timeout_s,
         .value = "S",
         .min = 0.001,
         .max = 86400,
         .help = "seconds that a request may take (600)"},
        {.name = "connect-timeout",
         .kind = PGL_OPTION_REAL,
         .target = &o->site.connect_timeout_s,
         .value = "S",
         .min = 0.001,
         .max = 3600,
         .help = "seconds that a connection may take (10)"},
        {.name = "format",
         .letter = 'o',
         .kind = PGL_OPTION_CHOICE,
         .target = &o->format,
         .value = "FORMAT",
         .choices = formats,
         .help = "md or json"},
    };
    pgl_command command = {
        .name = "bench serve",
        .summary = "Puts load on an OpenAI-compatible server and measures how it answers.",
        .description =
            "Every combination of --input, --output and --concurrency (or --rate) is a cell. Times are "
            "taken from the moment a request was due. Requests that fail are counted by kind and are in "
            "no figure.",
        .options = options,
        .n_options = PGL_COUNT(options),
    };
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    code = run(&b, argc, argv);
    close_all(&b);
    return code;
}
