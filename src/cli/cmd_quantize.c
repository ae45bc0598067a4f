/* pergola quantize: a 16-bit model to a trellis-coded checkpoint. Owns the calibration text and its ids. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "quantize/quantize.h"
#include "text/tokenizer.h"

#define CALIBRATION_BYTES ((size_t)32 << 20)

static volatile sig_atomic_t interrupted;

static void interrupt(int number) {
    (void)number;
    interrupted = 1;
}

typedef struct state {
    bool json, tty;
    uint64_t start_ns;
    uint32_t first_layer; /* of this run: earlier ones were there already */
    double done;          /* layers coded by this run, with the part of the present one */
} state;

static void put_line(const state *s, const pgl_quantize_progress *p) {
    const pgl_layer_report *r = p->report;
    if (s->json) {
        (void)printf("{\"layer\": %u, \"gate_up_weight_error\": %.6g, \"gate_up_output_error\": %.6g, "
                     "\"down_weight_error\": %.6g, \"down_output_error\": %.6g, \"fewest_rows\": %llu}\n",
                     p->layer, r->gate_up_weight_error, r->gate_up_output_error, r->down_weight_error,
                     r->down_output_error, (unsigned long long)r->fewest_rows);
        (void)fflush(stdout);
        return;
    }
    (void)fprintf(stderr, "%s %u: error of weights %.4f and %.4f, of outputs %.4f and %.4f (gate_up, down)\n",
                  p->layer == p->n_layers ? "draft head" : "layer", p->layer, r->gate_up_weight_error,
                  r->down_weight_error, r->gate_up_output_error, r->down_output_error);
}

static bool show(void *user, const pgl_quantize_progress *p) {
    state *s = user;
    if (p->skipped) {
        s->first_layer = p->layer + 1;
        (void)fprintf(stderr, "layer %u: there already\n", p->layer);
        return interrupted == 0;
    }
    double seconds = (double)(pgl_now_ns() - s->start_ns) * 1e-9;
    double done = (double)p->layer - s->first_layer + (double)p->n_experts_done / p->n_experts;
    double left = (double)p->n_layers - s->first_layer - done;
    if (s->tty)
        (void)fprintf(stderr, "\r\033[K");
    if (p->report != NULL)
        put_line(s, p);
    else if (s->tty && p->layer < p->n_layers && done > 0)
        (void)fprintf(stderr, "layer %u of %u: expert %u of %u, %.0f s, about %.0f s left", p->layer,
                      p->n_layers, p->n_experts_done, p->n_experts, seconds, left * seconds / done);
    else if (s->tty && p->layer == p->n_layers && p->n_experts_done > 0)
        (void)fprintf(stderr, "draft head: expert %u of %u, %.0f s, about %.0f s left", p->n_experts_done,
                      p->n_experts, seconds,
                      seconds * (p->n_experts - p->n_experts_done) / p->n_experts_done);
    return interrupted == 0;
}

/* The ids of a file of text, with control tokens where they are spelled. */
static pgl_status read_calibration(const char *model, const char *path, pgl_ids *ids, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT, tokenizer_json = PGL_BUF_INIT;
    pgl_tokenizer *tokenizer = NULL;
    char *tokenizer_path = pgl_fs_join(model, "tokenizer.json");
    pgl_status status = tokenizer_path == NULL ? pgl_fail(err, PGL_E_MEMORY, "no memory for a path")
                                               : pgl_fs_read(path, CALIBRATION_BYTES, &text, err);
    if (status == PGL_OK)
        status = pgl_fs_read(tokenizer_path, (size_t)64 << 20, &tokenizer_json, err);
    if (status == PGL_OK)
        status = pgl_tokenizer_open(tokenizer_json.data, tokenizer_json.size, NULL, 0, &tokenizer, err);
    if (status == PGL_OK)
        status = pgl_tokenizer_encode(tokenizer, pgl_buf_text(&text), text.size, PGL_ENCODE_RAW, ids, err);
    if (status == PGL_OK && ids->count == 0)
        status = pgl_fail(err, PGL_E_INVALID, "%s: expected some text to calibrate on, found none", path);
    pgl_tokenizer_close(tokenizer);
    pgl_buf_fini(&tokenizer_json);
    pgl_buf_fini(&text);
    free(tokenizer_path);
    return status;
}

int pgl_cmd_quantize(int argc, char **argv) {
    const char *in = NULL, *out = NULL, *calibration = NULL;
    uint32_t k_gate_up = 2, k_down = 3, rounds = 1, threads = 0, sequence = 2048, most = 65536;
    uint64_t seed = 1;
    bool restart = false, draft_only = false;
    state s = {.tty = isatty(STDERR_FILENO) == 1};
    pgl_option options[] = {
        {.name = "in",
         .kind = PGL_OPTION_STRING,
         .value = "DIR",
         .target = &in,
         .help = "the model: config.json, tokenizer.json and safetensors in BF16, F16 or F32"},
        {.name = "out",
         .kind = PGL_OPTION_STRING,
         .value = "DIR",
         .target = &out,
         .help = "where the coded checkpoint is written; an interrupted run goes on there"},
        {.name = "calibration",
         .kind = PGL_OPTION_STRING,
         .value = "FILE",
         .target = &calibration,
         .help = "text like the model's own; without it every input counts the same, which costs quality"},
        {.name = "calibration-tokens",
         .kind = PGL_OPTION_U32,
         .value = "N",
         .target = &most,
         .min = 1,
         .max = 1 << 22,
         .help = "most tokens of the text that are used (65536)"},
        {.name = "sequence",
         .kind = PGL_OPTION_U32,
         .value = "N",
         .target = &sequence,
         .min = 16,
         .max = 1 << 18,
         .help = "tokens of a calibration sequence (2048)"},
        {.name = "k-gate-up",
         .kind = PGL_OPTION_U32,
         .value = "K",
         .target = &k_gate_up,
         .min = 1,
         .max = 8,
         .help = "bits a weight of the experts' gate and up projections (2)"},
        {.name = "k-down",
         .kind = PGL_OPTION_U32,
         .value = "K",
         .target = &k_down,
         .min = 1,
         .max = 8,
         .help = "bits a weight of the experts' down projections (3)"},
        {.name = "rounds",
         .kind = PGL_OPTION_U32,
         .value = "N",
         .target = &rounds,
         .min = 1,
         .max = 64,
         .help = "searches of each tile; more than one gains less than half a percent (1)"},
        {.name = "seed",
         .kind = PGL_OPTION_U64,
         .value = "N",
         .target = &seed,
         .help = "of the random signs (1)"},
        {.name = "draft-only",
         .kind = PGL_OPTION_FLAG,
         .target = &draft_only,
         .help =
             "code the draft head (mtp.*) alone, into DIR/mtp beside a coded checkpoint; of the model only "
             "config.json and the files with these tensors need to be there"},
        {.name = "restart",
         .kind = PGL_OPTION_FLAG,
         .target = &restart,
         .help = "remove what an earlier run left in the output directory"},
        PGL_OPTION_ROW_THREADS(&threads),
        PGL_OPTION_ROW_JSON(&s.json),
    };
    pgl_command command = {.name = "quantize",
                           .summary =
                               "Codes a 16-bit qwen3_5_moe model into the Escha-W2 format: routed experts by "
                               "trellis, dense layers int8 by row, the rest 16-bit.",
                           .options = options,
                           .n_options = PGL_COUNT(options)};
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    if (in == NULL || out == NULL) {
        (void)fprintf(stderr, "pergola quantize: expected --in DIR and --out DIR, found no --%s\n",
                      in == NULL ? "in" : "out");
        return PGL_EXIT_USAGE;
    }
    if (draft_only && calibration != NULL) {
        (void)fprintf(
            stderr,
            "pergola quantize: expected --draft-only or --calibration, found both: a draft head is coded "
            "without calibration\n");
        return PGL_EXIT_USAGE;
    }
    pgl_error err;
    pgl_ids ids = {0};
    pgl_status status = calibration == NULL ? PGL_OK : read_calibration(in, calibration, &ids, &err);
    if (status == PGL_OK) {
        pgl_quantize_options run = {.in = in,
                                    .out = out,
                                    .k_gate_up = k_gate_up,
                                    .k_down = k_down,
                                    .rounds = rounds,
                                    .seed = seed,
                                    .n_threads = threads,
                                    .calibration = ids.data,
                                    .n_calibration = ids.count < most ? ids.count : most,
                                    .sequence_tokens = sequence,
                                    .restart = restart,
                                    .progress = show,
                                    .user = &s};
        s.start_ns = pgl_now_ns();
        (void)signal(SIGINT, interrupt);
        (void)signal(SIGTERM, interrupt);
        status = draft_only ? pgl_quantize_draft(&run, &err) : pgl_quantize(&run, &err);
    }
    pgl_ids_fini(&ids);
    if (status == PGL_E_CANCELLED) {
        (void)fprintf(stderr, "\npergola quantize: interrupted; the same command goes on\n");
        return PGL_EXIT_INTERRUPTED;
    }
    if (status != PGL_OK)
        return pgl_cli_fail("quantize", &err);
    (void)fprintf(stderr, "%s: done in %.1f s\n", out, (double)(pgl_now_ns() - s.start_ns) * 1e-9);
    return PGL_EXIT_OK;
}
