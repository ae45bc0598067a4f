/* pergola eval: perplexity, distance from a reference, likelihood of choices. Owns the texts and their ids. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/eval.h"
#include "base/alloc.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/logits_ids.h"
#include "cli/options.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "text/tokenizer.h"

#define TEXT_BYTES ((size_t)32 << 20)
#define TOKENIZER_BYTES ((size_t)64 << 20)

typedef struct eval_options {
    const char *model, *text, *ids, *choices, *save, *reference, *backend;
    uint32_t sequences, length, top, threads;
    bool json;
} eval_options;

typedef struct job {
    const eval_options *o;
    char directory[4096];
    pgl_scorer *scorer;
    pgl_tokenizer *tokenizer;
    uint32_t n_vocab;
    pgl_ids ids;
    pgl_id_lists lists;
    pgl_eval_sequence *sequences;
    size_t n_sequences;
    pgl_progress progress;
    pgl_eval_report report;
    uint64_t n_items, n_right, n_right_normalised; /* choices */
} job;

static volatile sig_atomic_t interrupted;

static void interrupt(int number) {
    (void)number;
    interrupted = 1;
}

static bool on_progress(void *user, uint64_t done, uint64_t total) {
    job *j = user;
    pgl_progress_count(&j->progress, done, total, "tokens");
    return interrupted == 0;
}

static pgl_status open_tokenizer(job *j, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT;
    bool found = false;
    pgl_status status =
        pgl_checkpoint_read_file(pgl_scorer_checkpoint(j->scorer), "tokenizer.json", &text, &found, err);
    if (status == PGL_OK && !found)
        status = pgl_fail(err, PGL_E_FORMAT, "%s: expected tokenizer.json, found none", j->directory);
    if (status == PGL_OK)
        status = pgl_tokenizer_open(text.data, text.size, NULL, 0, &j->tokenizer, err);
    if (status == PGL_OK) {
        uint32_t known = (uint32_t)pgl_tokenizer_n_ids(j->tokenizer);
        uint32_t rows = pgl_scorer_model(j->scorer)->config->vocab_size;
        j->n_vocab = known < rows ? known : rows;
    }
    pgl_buf_fini(&text);
    return status;
}

/* Cuts ids into sequences of --length, the last one shorter; at most --sequences. */
static pgl_status cut(job *j, pgl_error *err) {
    size_t length = j->o->length, n = (j->ids.count + length - 1) / length;
    n = n < j->o->sequences ? n : j->o->sequences;
    j->sequences = pgl_new(n, sizeof *j->sequences);
    if (j->sequences == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for %zu sequences", n);
    for (size_t i = 0; i < n; i++) {
        size_t left = j->ids.count - i * length;
        if (left >= 2)
            j->sequences[j->n_sequences++] =
                (pgl_eval_sequence){j->ids.data + i * length, left < length ? left : length};
    }
    if (j->n_sequences == 0)
        return pgl_fail(err, PGL_E_INVALID, "%s: expected at least 2 tokens, found %zu", j->o->text,
                        j->ids.count);
    return PGL_OK;
}

static pgl_status read_text(job *j, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT;
    pgl_status status = pgl_fs_read(j->o->text, TEXT_BYTES, &text, err);
    if (status == PGL_OK)
        status =
            pgl_tokenizer_encode(j->tokenizer, pgl_buf_text(&text), text.size, PGL_ENCODE_RAW, &j->ids, err);
    if (status == PGL_E_INVALID)
        pgl_error_prefix(err, "%s", j->o->text);
    pgl_buf_fini(&text);
    return status == PGL_OK ? cut(j, err) : status;
}

static pgl_status read_ids(job *j, pgl_error *err) {
    pgl_status status = pgl_id_lists_read(j->o->ids, j->n_vocab, j->o->length, &j->lists, err);
    if (status != PGL_OK)
        return status;
    size_t n = j->lists.n < j->o->sequences ? j->lists.n : j->o->sequences;
    j->sequences = pgl_new(n, sizeof *j->sequences);
    if (j->sequences == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for %zu sequences", n);
    for (j->n_sequences = 0; j->n_sequences < n; j->n_sequences++)
        j->sequences[j->n_sequences] =
            (pgl_eval_sequence){j->lists.lists[j->n_sequences].ids, j->lists.lists[j->n_sequences].n};
    return PGL_OK;
}

static pgl_status run_sequences(job *j, pgl_error *err) {
    pgl_status status = j->o->text != NULL ? read_text(j, err) : read_ids(j, err);
    pgl_eval_options options = {.sequences = j->sequences,
                                .n_sequences = j->n_sequences,
                                .n_vocab = j->n_vocab,
                                .n_top = j->o->top < j->n_vocab ? j->o->top : j->n_vocab,
                                .save = j->o->save,
                                .reference = j->o->reference,
                                .progress = on_progress,
                                .user = j};
    return status == PGL_OK ? pgl_eval(j->scorer, &options, &j->report, err) : status;
}

/* ---- choices: a line of JSON an item, {"context": "..", "choices": ["..", ..], "answer": 0} */

static pgl_status score_choice(job *j, const char *context, const char *choice, double *sum, pgl_error *err) {
    pgl_ids whole = {0}, before = {0};
    pgl_buf text = PGL_BUF_INIT;
    bool greedy;
    pgl_status status = PGL_OK;
    if (!pgl_buf_puts(&text, context) || !pgl_buf_puts(&text, choice))
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for a choice");
    if (status == PGL_OK)
        status = pgl_tokenizer_encode(j->tokenizer, context, strlen(context), PGL_ENCODE_RAW, &before, err);
    if (status == PGL_OK)
        status = pgl_tokenizer_encode(j->tokenizer, text.data, text.size, PGL_ENCODE_RAW, &whole, err);
    if (status == PGL_OK)
        status = pgl_eval_continuation(j->scorer, whole.data, whole.count, before.count, j->n_vocab, sum,
                                       &greedy, err);
    pgl_ids_fini(&whole);
    pgl_ids_fini(&before);
    pgl_buf_fini(&text);
    return status;
}

static pgl_status score_item(job *j, const json_t *item, pgl_error *err) {
    const char *context = json_string_value(json_object_get(item, "context"));
    const json_t *choices = json_object_get(item, "choices"), *answer = json_object_get(item, "answer");
    size_t n = json_array_size(choices), best = 0, best_normalised = 0;
    json_int_t right = json_integer_value(answer);
    if (context == NULL || context[0] == 0 || n < 2 || !json_is_integer(answer) || right < 0 ||
        (size_t)right >= n)
        return pgl_fail(err, PGL_E_INVALID,
                        "expected {\"context\": text, \"choices\": [two texts or more], \"answer\": number "
                        "of one of them}");
    double most = -INFINITY, most_normalised = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        const char *choice = json_string_value(json_array_get(choices, i));
        double sum;
        if (choice == NULL || choice[0] == 0)
            return pgl_fail(err, PGL_E_INVALID, "choices[%zu]: expected a text that is not empty", i);
        pgl_status status = score_choice(j, context, choice, &sum, err);
        if (status != PGL_OK)
            return status;
        double normalised = sum / (double)strlen(choice);
        best = sum > most ? i : best;
        most = fmax(most, sum);
        best_normalised = normalised > most_normalised ? i : best_normalised;
        most_normalised = fmax(most_normalised, normalised);
    }
    j->n_items++;
    j->n_right += best == (size_t)right;
    j->n_right_normalised += best_normalised == (size_t)right;
    return PGL_OK;
}

static pgl_status run_choices(job *j, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT;
    pgl_status status = pgl_fs_read(j->o->choices, TEXT_BYTES, &text, err);
    size_t line = 0;
    for (const char *at = pgl_buf_text(&text), *end = at + text.size; status == PGL_OK && at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((stop == NULL ? end : stop) - at);
        line++;
        if (size > 0) {
            json_t *item = NULL;
            pgl_json_options options = {.name = "item"};
            status = pgl_json_parse(at, size, &options, &item, err);
            if (status == PGL_OK)
                status = score_item(j, item, err);
            json_decref(item);
            if (status != PGL_OK)
                pgl_error_prefix(err, "%s: line %zu", j->o->choices, line);
            if (status == PGL_OK && !on_progress(j, (uint64_t)(at - text.data) + size, text.size))
                status = pgl_fail(err, PGL_E_CANCELLED, "stopped on request");
        }
        at += size + 1;
    }
    if (status == PGL_OK && j->n_items == 0)
        status = pgl_fail(err, PGL_E_INVALID, "%s: expected at least one item, found none", j->o->choices);
    pgl_buf_fini(&text);
    return status;
}

static void put_report(const job *j) {
    const pgl_eval_report *r = &j->report;
    bool json = j->o->json;
    if (json) {
        const char *slash = strrchr(j->directory, '/');
        const char *name = slash == NULL || slash[1] == 0 ? j->directory : slash + 1;
        pgl_buf quoted = PGL_BUF_INIT;
        (void)pgl_json_put_string(&quoted, name, strlen(name));
        (void)printf("{\"schema\": 1, \"model\": %s", pgl_buf_text(&quoted));
        pgl_buf_fini(&quoted);
    }
    if (r->n_predicted > 0)
        (void)printf(json ? ", \"tokens\": %llu, \"nll\": %.8g, \"nll_error\": %.4g, \"perplexity\": %.8g"
                          : "tokens          %llu\nnll             %.6f +- %.6f\nperplexity      %.4f\n",
                     (unsigned long long)r->n_predicted, r->nll, r->nll_error, r->perplexity);
    if (r->n_compared > 0)
        (void)printf(json ? ", \"compared\": %llu, \"kl\": %.8g, \"kl_median\": %.6g, \"kl_p99\": %.6g, "
                            "\"kl_max\": %.6g, "
                            "\"top1_agreement\": %.6f"
                          : "positions       %llu\nKL              %.6f (median %.6f, 99 %% %.6f, max "
                            "%.6f)\ntop-1 agreement %.4f\n",
                     (unsigned long long)r->n_compared, r->kl, r->kl_median, r->kl_p99, r->kl_max,
                     r->top1_agreement);
    if (j->n_items > 0)
        (void)printf(json ? ", \"items\": %llu, \"accuracy\": %.6f, \"accuracy_normalised\": %.6f"
                          : "items           %llu\naccuracy        %.4f (by bytes %.4f)\n",
                     (unsigned long long)j->n_items, (double)j->n_right / (double)j->n_items,
                     (double)j->n_right_normalised / (double)j->n_items);
    if (json)
        (void)printf("}\n");
}

static int run(const eval_options *o) {
    job *j = pgl_new(1, sizeof *j);
    pgl_error err;
    if (j == NULL) {
        (void)pgl_fail(&err, PGL_E_MEMORY, "out of memory");
        return pgl_cli_fail("eval", &err);
    }
    j->o = o;
    (void)signal(SIGINT, interrupt);
    (void)signal(SIGTERM, interrupt);
    pgl_progress_init(&j->progress, "evaluating");
    pgl_status status = pgl_find_model(o->model, j->directory, sizeof j->directory, &err);
    pgl_scorer_options options = {
        .model = j->directory, .backend = o->backend, .context_tokens = o->length, .n_threads = o->threads};
    if (status == PGL_OK && o->save != NULL)
        status =
            pgl_cli_check_output("--save", o->save, j->directory, o->text != NULL ? o->text : o->ids, &err);
    if (status == PGL_OK)
        status = pgl_scorer_open(&options, &j->scorer, &err);
    if (status == PGL_OK)
        status = open_tokenizer(j, &err);
    if (status == PGL_OK && (o->text != NULL || o->ids != NULL))
        status = run_sequences(j, &err);
    if (status == PGL_OK && o->choices != NULL)
        status = run_choices(j, &err);
    pgl_progress_fini(&j->progress);
    if (status == PGL_OK)
        put_report(j);
    pgl_tokenizer_close(j->tokenizer);
    pgl_scorer_close(j->scorer);
    pgl_ids_fini(&j->ids);
    pgl_id_lists_fini(&j->lists);
    free(j->sequences);
    free(j);
    if (status == PGL_OK)
        return PGL_EXIT_OK;
    int code = pgl_cli_fail("eval", &err);
    return status == PGL_E_CANCELLED ? PGL_EXIT_INTERRUPTED : code;
}

int pgl_cmd_eval(int argc, char **argv) {
    eval_options o = {.sequences = 256, .length = 2048, .top = 1024};
    pgl_option options[] = {
        PGL_OPTION_ROW_MODEL(&o.model),
        {.name = "text",
         .kind = PGL_OPTION_STRING,
         .value = "FILE",
         .target = &o.text,
         .help = "text to predict, control tokens recognised, cut into sequences"},
        {.name = "ids",
         .kind = PGL_OPTION_STRING,
         .value = "FILE.json",
         .target = &o.ids,
         .help = "or a list of lists of token ids, a sequence each"},
        {.name = "sequences",
         .kind = PGL_OPTION_U32,
         .value = "N",
         .target = &o.sequences,
         .min = 1,
         .max = 1 << 20,
         .help = "most sequences that are used (256)"},
        {.name = "length",
         .kind = PGL_OPTION_U32,
         .value = "N",
         .target = &o.length,
         .min = 2,
         .max = 1 << 20,
         .help = "tokens of a sequence (2048)"},
        {.name = "save",
         .kind = PGL_OPTION_STRING,
         .value = "FILE",
         .target = &o.save,
         .help = "write a reference file: ids and log-probabilities (F32) of the most\nlikely tokens at "
                 "every position, and of all others together"},
        {.name = "top",
         .kind = PGL_OPTION_U32,
         .value = "N",
         .target = &o.top,
         .min = 1,
         .max = 8192,
         .help = "entries a position of the file that is saved (1024)"},
        {.name = "reference",
         .kind = PGL_OPTION_STRING,
         .value = "FILE",
         .target = &o.reference,
         .help = "compare with such a file: KL divergence and top-1 agreement"},
        {.name = "choices",
         .kind = PGL_OPTION_STRING,
         .value = "FILE.jsonl",
         .target = &o.choices,
         .help = "multiple choice by likelihood, a line an item:\n{\"context\": \"..\", \"choices\": "
                 "[\"..\", ..], \"answer\": 0}"},
        {.name = "backend",
         .kind = PGL_OPTION_STRING,
         .value = "NAME",
         .target = &o.backend,
         .env = "PERGOLA_BACKEND",
         .help = "what computes: cpu; the best there is when left out"},
        PGL_OPTION_ROW_THREADS(&o.threads),
        PGL_OPTION_ROW_JSON(&o.json),
    };
    pgl_command command = {
        .name = "eval",
        .summary = "Measures a model: perplexity, distance from a reference, multiple choice.",
        .description = "The defaults are the protocol that is published for these weights: 256 sequences of "
                       "2,048 tokens, the 1,024 most likely tokens and the remainder.",
        .options = options,
        .n_options = PGL_COUNT(options)};
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    bool sequences = o.text != NULL || o.ids != NULL;
    if ((o.text != NULL && o.ids != NULL) || (!sequences && o.choices == NULL) ||
        (!sequences && (o.save != NULL || o.reference != NULL))) {
        (void)fprintf(stderr, "pergola eval: expected --text FILE or --ids FILE, or --choices FILE\n");
        return PGL_EXIT_USAGE;
    }
    return run(&o);
}
