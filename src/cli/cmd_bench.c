/* pergola bench: speed of prompts and of decoding on the backend itself, beside what the machine can do. Random tokens:
 * speed does not depend on the text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/probe.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/version.h"
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "model/model.h"

enum { MOST_REPEATS = 100, CHUNK_TOKENS = 512, MOST_BATCH = 256 };

typedef struct bench_options {
    const char *model, *out, *isa;
    uint32_t prompt, decode, batch, repeats, threads;
} bench_options;

typedef struct bench {
    const bench_options *o;
    char directory[4096], cpu[128];
    pgl_buf command;
    pgl_checkpoint *checkpoint;
    pgl_model model;
    pgl_backend *backend;
    pgl_cpu_rates rates;
    double load_s;
    int32_t *tokens; /* [batch][prompt + 1] */
    pgl_row *rows;   /* [batch], and what they point to */
    pgl_row_result *results;
    int32_t *sampled;
    pgl_sample_params params;
    double prompt_s[MOST_REPEATS], decode_s[MOST_REPEATS]; /* of a whole prompt, of a decoded step */
    uint64_t prompt_bytes, decode_bytes;                   /* of one such, in the last run */
} bench;

/* ---- running */

static pgl_status run_plan(bench *b, const pgl_step_plan *plan, uint64_t *bytes, pgl_error *err) {
    uint64_t ticket;
    pgl_step_timing timing;
    pgl_status status = pgl_backend_submit(b->backend, plan, &ticket, err);
    if (status == PGL_OK)
        status = pgl_backend_wait(b->backend, ticket, &timing, err);
    if (status == PGL_OK)
        *bytes += timing.bytes_read;
    return status;
}

static pgl_status reset(bench *b, uint32_t slot, pgl_error *err) {
    const pgl_backend_caps *caps = pgl_backend_get_caps(b->backend);
    uint32_t n_pages = caps->n_pages / caps->n_slots;
    uint64_t bytes = 0;
    pgl_op op = {.kind = PGL_OP_RESET, .slot = slot};
    pgl_step_plan plan = {.before = &op, .n_before = 1};
    pgl_status status = run_plan(b, &plan, &bytes, err);
    for (uint32_t i = 0; i < n_pages && status == PGL_OK; i++) {
        op = (pgl_op){.kind = PGL_OP_BIND, .slot = slot, .index = i, .page = slot * n_pages + i};
        status = run_plan(b, &plan, &bytes, err);
    }
    return status;
}

/* The prompt of one slot; its last token gives the first sample. */
static pgl_status run_prompt(bench *b, uint32_t slot, uint64_t *bytes, pgl_error *err) {
    const int32_t *tokens = b->tokens + (size_t)slot * (b->o->prompt + 1);
    pgl_status status = PGL_OK;
    for (uint32_t at = 0, n = b->o->prompt > 0 ? b->o->prompt : 1; at < n && status == PGL_OK;) {
        uint32_t some = n - at < CHUNK_TOKENS ? n - at : CHUNK_TOKENS;
        pgl_row row = {
            .slot = slot,
            .n_tokens = some,
            .tokens = tokens + at,
            .wants = at + some == n ? PGL_WANT_SAMPLE : 0,
            .params = &b->params,
            .token_limit = UINT32_MAX,
            .result = &b->results[slot],
        };
        pgl_step_plan plan = {.rows = &row, .n_rows = 1};
        status = run_plan(b, &plan, bytes, err);
        at += some;
    }
    return status;
}

static pgl_status run_once(bench *b, double *prompt_s, double *decode_s, pgl_error *err) {
    const bench_options *o = b->o;
    pgl_status status = PGL_OK;
    uint64_t prompt_bytes = 0, decode_bytes = 0, start = 0;
    for (uint32_t s = 0; s < o->batch && status == PGL_OK; s++)
        status = reset(b, s, err);
    start = pgl_now_ns();
    for (uint32_t s = 0; s < o->batch && status == PGL_OK; s++)
        status = run_prompt(b, s, &prompt_bytes, err);
    *prompt_s = (double)(pgl_now_ns() - start) * 1e-9 / o->batch;
    for (uint32_t s = 0; s < o->batch; s++) {
        b->rows[s] = (pgl_row){
            .slot = s,
            .from_last = true,
            .n_tokens = 1,
            .wants = PGL_WANT_SAMPLE,
            .params = &b->params,
            .token_limit = UINT32_MAX,
            .result = &b->results[s],
        };
    }
    start = pgl_now_ns();
    for (uint32_t i = 0; i < o->decode && status == PGL_OK; i++) {
        pgl_step_plan plan = {.rows = b->rows, .n_rows = o->batch};
        status = run_plan(b, &plan, &decode_bytes, err);
    }
    *decode_s = o->decode > 0 ? (double)(pgl_now_ns() - start) * 1e-9 / o->decode : 0;
    b->prompt_bytes = o->batch > 0 ? prompt_bytes / o->batch : 0;
    b->decode_bytes = o->decode > 0 ? decode_bytes / o->decode : 0;
    return status;
}

static pgl_status run_all(bench *b, pgl_error *err) {
    double ignored_prompt, ignored_decode;
    pgl_progress progress;
    pgl_progress_init(&progress, "measuring");
    pgl_progress_count(&progress, 0, b->o->repeats + 1, "runs");
    pgl_status status = run_once(b, &ignored_prompt, &ignored_decode, err); /* brings the file into memory */
    for (uint32_t r = 0; r < b->o->repeats && status == PGL_OK; r++) {
        pgl_progress_count(&progress, r + 1, b->o->repeats + 1, "runs");
        status = run_once(b, &b->prompt_s[r], &b->decode_s[r], err);
    }
    pgl_progress_fini(&progress);
    return status;
}

/* ---- opening */

static pgl_status open_backend(bench *b, pgl_error *err) {
    const bench_options *o = b->o;
    uint32_t context = o->prompt + o->decode + 16;
    pgl_backend_options options = {
        .n_threads = o->threads,
        .force_isa = o->isa,
        .n_slots = o->batch,
        .n_pages = o->batch * (context / 64 + 1),
        .page_tokens = 64,
        .max_context = context,
        .max_rows = o->batch,
        .max_step_tokens = CHUNK_TOKENS,
    };
    return pgl_backend_open_cpu(&b->model, &options, &b->backend, err);
}

static pgl_status open_model(bench *b, pgl_error *err) {
    uint64_t start = pgl_now_ns();
    pgl_checkpoint_options options = {.want_draft = false};
    pgl_status status = pgl_find_model(b->o->model, b->directory, sizeof b->directory, err);
    if (status == PGL_OK)
        status = pgl_checkpoint_open(b->directory, &options, &b->checkpoint, err);
    if (status == PGL_OK)
        status = pgl_model_init(&b->model, pgl_checkpoint_config(b->checkpoint),
                                pgl_checkpoint_weights(b->checkpoint), err);
    if (status == PGL_OK)
        status = open_backend(b, err);
    b->load_s = (double)(pgl_now_ns() - start) * 1e-9;
    return status;
}

static pgl_status allocate(bench *b, pgl_error *err) {
    size_t n = (size_t)b->o->batch * (b->o->prompt + 1);
    b->tokens = pgl_new(n, sizeof *b->tokens);
    b->rows = pgl_new(b->o->batch, sizeof *b->rows);
    b->results = pgl_new(b->o->batch, sizeof *b->results);
    b->sampled = pgl_new(b->o->batch, sizeof *b->sampled);
    if (b->tokens == NULL || b->rows == NULL || b->results == NULL || b->sampled == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for %zu tokens", n);
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        b->tokens[i] = (int32_t)((x >> 20) % b->model.config->vocab_size);
    }
    for (uint32_t s = 0; s < b->o->batch; s++)
        b->results[s].tokens = &b->sampled[s];
    b->params = pgl_sample_defaults();
    return PGL_OK;
}

/* ---- what is reported */

/* Coded weights that one token meets, with K = 2 and with others. */
typedef struct coded_ledger {
    double weights2, weights3, bytes;
} coded_ledger;

static void count_coded(const pgl_coded *coded, uint32_t used, coded_ledger *ledger) {
    double weights = (double)used * coded->in * coded->out;
    *(coded->k == 2 ? &ledger->weights2 : &ledger->weights3) += weights;
    ledger->bytes += weights * coded->k / 8;
}

/* The least time that a decoded token can take: each kind of weights at the slower of reading and decoding it, one
 * after the other. Batches share experts by chance, so that it is given for one sequence only. */
static double decode_floor_s(const bench *b) {
    const pgl_config *c = b->model.config;
    coded_ledger ledger = {0};
    for (uint32_t l = 0; l < c->n_layers && c->n_experts > 0; l++) {
        count_coded(&b->model.weights->layers[l].moe.gate_up, b->model.n_used, &ledger);
        count_coded(&b->model.weights->layers[l].moe.down, b->model.n_used, &ledger);
    }
    double rest = (double)b->decode_bytes - ledger.bytes, read = b->rates.read_bytes_per_s;
    double coded =
        ledger.weights2 / b->rates.coded2_weights_per_s + ledger.weights3 / b->rates.coded3_weights_per_s;
    double coded_read = ledger.bytes / read, dense = rest / read,
           dense_decode = rest / b->rates.int8_bytes_per_s;
    return (coded > coded_read ? coded : coded_read) + (dense > dense_decode ? dense : dense_decode);
}

static int compare(const void *a, const void *b) {
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static double median(const double *values, uint32_t n) {
    double sorted[MOST_REPEATS];
    memcpy(sorted, values, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

typedef struct figure {
    const char *name, *unit;
    double value;
    bool whole; /* printed without decimals */
} figure;

enum { MOST_FIGURES = 24 };

static size_t collect(const bench *b, figure *f) {
    const bench_options *o = b->o;
    double prompt_s = median(b->prompt_s, o->repeats), decode_s = median(b->decode_s, o->repeats);
    pgl_backend_memory memory = pgl_backend_get_memory(b->backend);
    size_t n = 0;
    f[n++] = (figure){"load_s", "s", b->load_s, false};
    f[n++] = (figure){"prompt_tokens", "", o->prompt, true};
    f[n++] = (figure){"decode_steps", "", o->decode, true};
    f[n++] = (figure){"batch", "", o->batch, true};
    f[n++] = (figure){"repeats", "", o->repeats, true};
    if (o->prompt > 0)
        f[n++] = (figure){"prompt_tokens_per_s", "tokens/s", o->prompt / prompt_s, false};
    if (o->prompt > 0)
        f[n++] = (figure){"prompt_bytes", "bytes", (double)b->prompt_bytes, true};
    if (o->decode > 0) {
        f[n++] = (figure){"decode_tokens_per_s", "tokens/s", o->batch / decode_s, false};
        f[n++] = (figure){"decode_step_ms", "ms", decode_s * 1e3, false};
        f[n++] = (figure){"decode_step_bytes", "bytes", (double)b->decode_bytes, true};
        f[n++] = (figure){"decode_read_fraction", "of reading those bytes",
                          (double)b->decode_bytes / b->rates.read_bytes_per_s / decode_s, false};
    }
    if (o->decode > 0 && o->batch == 1) {
        f[n++] = (figure){"decode_floor_ms", "ms", decode_floor_s(b) * 1e3, false};
        f[n++] = (figure){"decode_floor_fraction", "of the floor", decode_floor_s(b) / decode_s, false};
    }
    f[n++] = (figure){"read_bytes_per_s", "bytes/s", b->rates.read_bytes_per_s, true};
    f[n++] = (figure){"fma_flops_per_s", "operations/s", b->rates.fma_flops_per_s, true};
    f[n++] = (figure){"coded2_weights_per_s", "weights/s", b->rates.coded2_weights_per_s, true};
    f[n++] = (figure){"coded3_weights_per_s", "weights/s", b->rates.coded3_weights_per_s, true};
    f[n++] = (figure){"int8_bytes_per_s", "bytes/s", b->rates.int8_bytes_per_s, true};
    f[n++] = (figure){"weights_bytes", "bytes", (double)memory.weights_bytes, true};
    f[n++] = (figure){
        "other_bytes", "bytes",
        (double)(memory.pages_bytes + memory.slots_bytes + memory.snapshots_bytes + memory.work_bytes), true};
    return n;
}

static bool put_json(const bench *b, const figure *f, size_t n, pgl_buf *out) {
    const struct {
        const char *name, *text;
    } texts[] = {{"command", pgl_buf_text(&b->command)},
                 {"version", pgl_version()},
                 {"revision", pgl_revision()},
                 {"cpu", b->cpu},
                 {"backend", pgl_backend_get_caps(b->backend)->detail},
                 {"model", b->directory}};
    bool ok = pgl_buf_puts(out, "{\n \"schema\": 1");
    for (size_t i = 0; i < PGL_COUNT(texts); i++)
        ok = ok && pgl_buf_printf(out, ",\n \"%s\": ", texts[i].name) &&
             pgl_json_put_string(out, texts[i].text, strlen(texts[i].text));
    for (size_t i = 0; i < n; i++)
        ok = ok && pgl_buf_printf(out, ",\n \"%s\": %.*f", f[i].name, f[i].whole ? 0 : 4, f[i].value);
    const struct {
        const char *name;
        const double *values;
        bool any;
    } runs[] = {{"prompt_runs_s", b->prompt_s, b->o->prompt > 0},
                {"decode_step_runs_s", b->decode_s, b->o->decode > 0}};
    for (size_t r = 0; r < PGL_COUNT(runs); r++) {
        ok = ok && (!runs[r].any || pgl_buf_printf(out, ",\n \"%s\": [", runs[r].name));
        for (uint32_t i = 0; i < b->o->repeats && runs[r].any; i++)
            ok = ok && pgl_buf_printf(out, "%s%.6f", i > 0 ? ", " : "", runs[r].values[i]);
        ok = ok && (!runs[r].any || pgl_buf_puts(out, "]"));
    }
    return ok && pgl_buf_puts(out, "\n}\n");
}

static bool put_markdown(const bench *b, const figure *f, size_t n, pgl_buf *out) {
    bool ok = pgl_buf_printf(out, "%s: %s, %s\n\n| figure | value | |\n| --- | ---: | --- |\n", b->directory,
                             b->cpu, pgl_backend_get_caps(b->backend)->detail);
    for (size_t i = 0; i < n; i++)
        ok = ok && pgl_buf_printf(out, "| %s | %.*f | %s |\n", f[i].name, f[i].whole ? 0 : 3, f[i].value,
                                  f[i].unit);
    return ok;
}

static pgl_status report(const bench *b, pgl_error *err) {
    figure figures[MOST_FIGURES];
    pgl_buf out = PGL_BUF_INIT;
    size_t n = collect(b, figures);
    bool json = strcmp(b->o->out, "json") == 0;
    pgl_status status = PGL_OK;
    if (json ? put_json(b, figures, n, &out) : put_markdown(b, figures, n, &out))
        (void)fputs(pgl_buf_text(&out), stdout);
    else
        status = pgl_fail(err, PGL_E_MEMORY, "out of memory");
    pgl_buf_fini(&out);
    return status;
}

static int run(const bench_options *o, int argc, char **argv) {
    bench *b = pgl_new(1, sizeof *b);
    pgl_error err = {PGL_OK, ""};
    if (b == NULL) {
        (void)pgl_fail(&err, PGL_E_MEMORY, "out of memory");
        return pgl_cli_fail("bench", &err);
    }
    b->o = o;
    pgl_status status = pgl_cli_put_command(&b->command, "", argc, argv, NULL)
                            ? PGL_OK
                            : pgl_fail(&err, PGL_E_MEMORY, "out of memory");
    pgl_cli_cpu_name(b->cpu, sizeof b->cpu);
    if (status == PGL_OK)
        status = open_model(b, &err);
    if (status == PGL_OK)
        status = allocate(b, &err);
    if (status == PGL_OK)
        status = pgl_cpu_measure(o->isa, o->threads, &b->rates, &err);
    if (status == PGL_OK)
        status = run_all(b, &err);
    if (status == PGL_OK)
        status = report(b, &err);
    pgl_backend_close(b->backend);
    pgl_checkpoint_close(b->checkpoint);
    free(b->tokens);
    free(b->rows);
    free(b->results);
    free(b->sampled);
    pgl_buf_fini(&b->command);
    free(b);
    return status == PGL_OK ? PGL_EXIT_OK : pgl_cli_fail("bench", &err);
}

int pgl_cmd_bench(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        return pgl_cmd_bench_serve(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "engine") == 0)
        return pgl_cmd_bench_engine(argc - 1, argv + 1);
    static const char *const OUTS[] = {"md", "json", NULL};
    static const char *const ISAS[] = {"scalar", "avx2", "avx512", "neon", NULL};
    bench_options o = {.out = "md", .prompt = 512, .decode = 32, .batch = 1, .repeats = 3};
    pgl_option options[] = {
        PGL_OPTION_ROW_MODEL(&o.model),
        {.name = "prompt",
         .letter = 'p',
         .kind = PGL_OPTION_U32,
         .target = &o.prompt,
         .value = "N",
         .max = 1 << 20,
         .help = "tokens of the prompt (512)"},
        {.name = "decode",
         .letter = 'n',
         .kind = PGL_OPTION_U32,
         .target = &o.decode,
         .value = "N",
         .max = 1 << 20,
         .help = "tokens decoded after it (32)"},
        {.name = "batch",
         .letter = 'b',
         .kind = PGL_OPTION_U32,
         .target = &o.batch,
         .value = "N",
         .min = 1,
         .max = MOST_BATCH,
         .help = "sequences that decode together, each with its own prompt (1)"},
        {.name = "repeats",
         .letter = 'r',
         .kind = PGL_OPTION_U32,
         .target = &o.repeats,
         .value = "N",
         .min = 1,
         .max = MOST_REPEATS,
         .help = "runs, of which the median counts; one more comes before (3)"},
        {.name = "output",
         .letter = 'o',
         .kind = PGL_OPTION_CHOICE,
         .target = &o.out,
         .value = "FORMAT",
         .choices = OUTS,
         .help = "md or json (md)"},
        {.name = "isa",
         .kind = PGL_OPTION_CHOICE,
         .target = &o.isa,
         .value = "NAME",
         .choices = ISAS,
         .help = "instruction set: scalar, avx2, avx512 or neon; the best there is when left out"},
        PGL_OPTION_ROW_THREADS(&o.threads),
    };
    pgl_command command = {
        .name = "bench",
        .summary =
            "Measures the speed of prompts and of decoding, and what the machine can do at best. `pergola "
            "bench serve` measures a server, `pergola bench engine` the engine without one.",
        .description = "The rates of reading memory, of multiplying and of decoding weights are measured in "
                       "the same run "
                       "with the program's own kernels; fractions are of these.",
        .options = options,
        .n_options = PGL_COUNT(options),
    };
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    return run(&o, argc, argv);
}
