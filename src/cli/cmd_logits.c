/* pergola logits: full logits of given token ids, to a safetensors file that is written as they are computed. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "cli/commands.h"
#include "cli/logits_backend.h"
#include "cli/logits_ids.h"
#include "cli/options.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "model/reference.h"

/* Logits held at once, and tokens between two looks at progress and Ctrl-C. */
#define PIECE_BYTES ((size_t)8 << 20)
#define PIECE_TOKENS ((size_t)64)

typedef struct logits_options {
    const char *model, *ids, *out, *backend;
    uint32_t threads;
    bool exact;
} logits_options;

typedef struct job {
    const logits_options *options;
    char directory[4096];
    pgl_checkpoint *checkpoint;
    pgl_model model;
    pgl_id_lists lists;
    pgl_safetensors_writer *writer;
    pgl_logits_backend *backend; /* NULL: the reference computes */
    float *logits;               /* [piece_tokens, vocab] */
    size_t piece_tokens;
    uint64_t done_tokens, total_tokens;
    pgl_progress progress;
    bool non_finite;
    size_t non_finite_list;
} job;

static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
    (void)number;
    interrupted = 1;
}

/* Tensors logits.0 [n, vocab], logits.1, ... names and specs have room for every list. */
static pgl_status create_file(job *j, pgl_safetensors_spec *specs, char (*names)[32], pgl_error *err) {
    uint64_t vocab = j->model.config->vocab_size, total_bytes = 0;
    for (size_t i = 0; i < j->lists.n; i++) {
        (void)snprintf(names[i], sizeof names[i], "logits.%zu", i);
        specs[i] = (pgl_safetensors_spec){names[i], PGL_F32, 2, {j->lists.lists[i].n, vocab}};
        uint64_t bytes;
        if (!pgl_safetensors_spec_bytes(&specs[i], &bytes) || !pgl_add_u64(total_bytes, bytes, &total_bytes))
            return pgl_fail(err, PGL_E_TOO_LARGE, "logits of %zu lists: more bytes than a file can have",
                            j->lists.n);
    }
    return pgl_safetensors_create(j->options->out, specs, j->lists.n, &j->writer, err);
}

static pgl_status start_file(job *j, pgl_error *err) {
    pgl_safetensors_spec *specs = pgl_new(j->lists.n, sizeof *specs);
    char(*names)[32] = pgl_new(j->lists.n, sizeof *names);
    pgl_status status = PGL_E_MEMORY;
    if (specs != NULL && names != NULL)
        status = create_file(j, specs, names, err);
    else
        (void)pgl_fail(err, PGL_E_MEMORY, "no memory for the names of %zu tensors", j->lists.n);
    free(specs);
    free(names);
    return status;
}

static pgl_status write_piece(job *j, size_t n_tokens, pgl_error *err) {
    size_t bytes = n_tokens * j->model.config->vocab_size * sizeof *j->logits;
    pgl_status status = pgl_safetensors_write(j->writer, j->logits, bytes, err);
    j->done_tokens += n_tokens;
    pgl_progress_count(&j->progress, j->done_tokens, j->total_tokens, "tokens");
    if (status == PGL_OK && interrupted != 0)
        status = pgl_fail(err, PGL_E_CANCELLED, "interrupted; nothing was written");
    return status;
}

static pgl_status compute_piece(job *j, pgl_reference *seq, const int32_t *ids, size_t n, bool *non_finite,
                                pgl_error *err) {
    if (j->backend != NULL)
        return pgl_logits_backend_step(j->backend, ids, (uint32_t)n, j->logits, non_finite, err);
    pgl_reference_outputs out = {.logits = j->logits};
    pgl_status status = pgl_reference_forward(seq, ids, n, &out, err);
    *non_finite = out.non_finite;
    return status;
}

static pgl_status compute_list(job *j, size_t number, pgl_error *err) {
    const pgl_id_list *list = &j->lists.lists[number];
    pgl_reference *seq = NULL;
    pgl_status status = PGL_OK;
    if (j->backend != NULL)
        pgl_logits_backend_restart(j->backend);
    else
        status = pgl_reference_open(&j->model, j->options->exact, &seq, err);
    for (size_t at = 0; at < list->n && status == PGL_OK;) {
        size_t n = list->n - at < j->piece_tokens ? list->n - at : j->piece_tokens;
        bool non_finite = false;
        status = compute_piece(j, seq, list->ids + at, n, &non_finite, err);
        if (status == PGL_OK)
            status = write_piece(j, n, err);
        if (non_finite && !j->non_finite) {
            j->non_finite = true;
            j->non_finite_list = number;
        }
        at += n;
    }
    pgl_reference_close(seq);
    return status;
}

static pgl_status open_backend(job *j, pgl_error *err) {
    pgl_logits_backend_options options = {.piece_tokens = (uint32_t)j->piece_tokens,
                                          .n_threads = j->options->threads};
    for (size_t i = 0; i < j->lists.n; i++) {
        if (j->lists.lists[i].n > options.most_tokens)
            options.most_tokens = (uint32_t)j->lists.lists[i].n; /* within the model's limit */
    }
    return pgl_logits_backend_open(&j->model, &options, &j->backend, err);
}

static pgl_status compute(job *j, pgl_error *err) {
    size_t row = (size_t)j->model.config->vocab_size * sizeof *j->logits;
    j->piece_tokens = PIECE_BYTES / row > 0 ? PIECE_BYTES / row : 1;
    j->piece_tokens = j->piece_tokens < PIECE_TOKENS ? j->piece_tokens : PIECE_TOKENS;
    j->logits = pgl_new_aligned(j->piece_tokens * j->model.config->vocab_size, sizeof *j->logits);
    if (j->logits == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for logits of %zu tokens", j->piece_tokens);
    for (size_t i = 0; i < j->lists.n; i++)
        j->total_tokens += j->lists.lists[i].n;
    pgl_status status = PGL_OK;
    if (strcmp(j->options->backend, "cpu") == 0)
        status = open_backend(j, err);
    if (status == PGL_OK)
        status = start_file(j, err);
    for (size_t i = 0; i < j->lists.n && status == PGL_OK; i++)
        status = compute_list(j, i, err);
    if (status == PGL_OK) {
        status = pgl_safetensors_finish(j->writer, err);
        j->writer = NULL;
    }
    return status;
}

static pgl_status open_model(job *j, pgl_error *err) {
    pgl_checkpoint_options options = {.want_draft = false};
    pgl_status status = pgl_find_model(j->options->model, j->directory, sizeof j->directory, err);
    if (status == PGL_OK)
        status = pgl_cli_check_output("--out", j->options->out, j->directory, j->options->ids, err);
    if (status == PGL_OK)
        status = pgl_checkpoint_open(j->directory, &options, &j->checkpoint, err);
    if (status == PGL_OK)
        status = pgl_model_init(&j->model, pgl_checkpoint_config(j->checkpoint),
                                pgl_checkpoint_weights(j->checkpoint), err);
    return status;
}

static int run(const logits_options *options) {
    job *j = pgl_new(1, sizeof *j);
    pgl_error err;
    if (j == NULL) {
        (void)pgl_fail(&err, PGL_E_MEMORY, "out of memory");
        return pgl_cli_fail("logits", &err);
    }
    j->options = options;
    struct sigaction action = {.sa_handler = on_signal,
                               .sa_flags = (int)SA_RESETHAND}; /* the second one ends it at once */
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    pgl_progress_init(&j->progress, "computing");
    pgl_status status = open_model(j, &err);
    if (status == PGL_OK)
        status = pgl_id_lists_read(options->ids, j->model.config->vocab_size,
                                   j->model.config->max_position_embeddings, &j->lists, &err);
    if (status == PGL_OK)
        status = compute(j, &err);
    pgl_progress_fini(&j->progress);
    if (status == PGL_OK && j->non_finite)
        status = pgl_fail(&err, PGL_E_NUMERIC,
                          "the logits of list %zu are not all finite; %s holds them as they are",
                          j->non_finite_list, options->out);
    int code = PGL_EXIT_OK;
    if (status != PGL_OK)
        code = pgl_cli_fail("logits", &err);
    if (status == PGL_E_CANCELLED)
        code = PGL_EXIT_INTERRUPTED;
    pgl_safetensors_abandon(j->writer);
    pgl_logits_backend_close(j->backend);
    pgl_id_lists_fini(&j->lists);
    pgl_checkpoint_close(j->checkpoint);
    free(j->logits);
    free(j);
    return code;
}

int pgl_cmd_logits(int argc, char **argv) {
    static const char *const backends[] = {"reference", "cpu", NULL};
    logits_options o = {0};
    pgl_option options[] = {
        PGL_OPTION_ROW_MODEL(&o.model),
        {.name = "ids",
         .kind = PGL_OPTION_STRING,
         .target = &o.ids,
         .value = "FILE.json",
         .help = "a list of token ids, or a list of such lists"},
        {.name = "out",
         .letter = 'o',
         .kind = PGL_OPTION_STRING,
         .target = &o.out,
         .value = "FILE.safetensors",
         .help = "where to write F32 tensors logits.0 [n, vocab], logits.1, ..."},
        {.name = "backend",
         .kind = PGL_OPTION_CHOICE,
         .target = &o.backend,
         .value = "NAME",
         .choices = backends,
         .help = "cpu: the backend that answers requests, unless --exact is given\n"
                 "reference: the scalar forward pass that defines the result, slow"},
        {.name = "exact",
         .kind = PGL_OPTION_FLAG,
         .target = &o.exact,
         .help = "by the reference, without the format's roundings of activations"},
        PGL_OPTION_ROW_THREADS(&o.threads),
    };
    pgl_command command = {
        .name = "logits",
        .summary = "Computes the logits after every token of the given lists.",
        .options = options,
        .n_options = PGL_COUNT(options),
    };
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    if (o.ids == NULL || o.out == NULL) {
        (void)fprintf(stderr, "pergola logits: expected --%s FILE\n", o.ids == NULL ? "ids" : "out");
        return PGL_EXIT_USAGE;
    }
    if (o.exact && o.backend != NULL && strcmp(o.backend, "reference") != 0) {
        (void)fprintf(stderr, "pergola logits: --exact is computed by --backend reference only, found %s\n",
                      o.backend);
        return PGL_EXIT_USAGE;
    }
    if (o.backend == NULL)
        o.backend = o.exact ? "reference" : "cpu";
    return run(&o);
}
