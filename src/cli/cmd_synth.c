/* pergola synth: writes a random checkpoint. Ctrl-C stops it and leaves nothing behind. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "model/synth.h"

static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
    (void)number;
    interrupted = 1;
}

static bool on_progress(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    pgl_progress_bytes(context, done_bytes, total_bytes);
    return interrupted == 0;
}

static int write_checkpoint(pgl_synth_options *options) {
    pgl_error err;
    uint64_t bytes;
    if (pgl_synth_size(options->shape, &bytes, &err) != PGL_OK) {
        return pgl_cli_fail("synth", &err);
    }
    pgl_progress progress;
    pgl_progress_init(&progress, "writing");
    options->progress = on_progress;
    options->context = &progress;
    struct sigaction action = {.sa_handler = on_signal};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    const uint64_t begin_ns = pgl_now_ns();
    const pgl_status status = pgl_synth_write(options, &err);
    pgl_progress_fini(&progress);
    if (status != PGL_OK) {
        (void)pgl_cli_fail("synth", &err);
        return status == PGL_E_CANCELLED ? PGL_EXIT_INTERRUPTED : PGL_EXIT_FAILURE;
    }
    const double seconds = (double)(pgl_now_ns() - begin_ns) / 1e9;
    (void)fprintf(stderr, "%s: %.2f GB of random weights, seed %llu, written in %.1f s\n", options->directory,
                  (double)bytes / 1e9, (unsigned long long)options->seed, seconds);
    return PGL_EXIT_OK;
}

int pgl_cmd_synth(int argc, char **argv) {
    static const char *const presets[] = {"35b-a3b", "tiny", NULL};
    const char *preset = NULL;
    pgl_synth_shape shape;
    pgl_synth_options synth = {.shape = &shape};
    pgl_option options[] = {
        {.name = "preset",
         .kind = PGL_OPTION_CHOICE,
         .target = &preset,
         .value = "NAME",
         .choices = presets,
         .help = "35b-a3b: the sizes of the published Qwen3.6-35B-A3B export, 12.3 GB\n"
                 "tiny: 8 layers, 14 MB"},
        {.name = "seed",
         .kind = PGL_OPTION_U64,
         .target = &synth.seed,
         .value = "N",
         .help = "the same seed gives the same bytes on every machine (0)"},
        {.name = "out",
         .letter = 'o',
         .kind = PGL_OPTION_STRING,
         .target = &synth.directory,
         .value = "DIR",
         .help = "where to write; made when it does not exist"},
        {.name = "force",
         .kind = PGL_OPTION_FLAG,
         .target = &synth.force,
         .help = "replace a checkpoint that is there"},
        PGL_OPTION_ROW_THREADS(&synth.n_threads),
    };
    pgl_command command = {
        .name = "synth",
        .summary = "Writes a checkpoint with random weights in the layout of the published ones.",
        .description = "It has the published sizes, so speed and memory are those of a real model; its "
                       "answers are babble.\n"
                       "A tokenizer and a chat template come with it. Nothing appears under its name before "
                       "all is written.",
        .options = options,
        .n_options = PGL_COUNT(options),
    };
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code)) {
        return code;
    }
    if (preset == NULL || synth.directory == NULL || *synth.directory == '\0') {
        (void)fprintf(stderr, "pergola synth: give --preset (35b-a3b or tiny) and --out DIR\n");
        return PGL_EXIT_USAGE;
    }
    pgl_error err;
    if (pgl_synth_preset(preset, &shape, &err) != PGL_OK) {
        return pgl_cli_fail("synth", &err);
    }
    return write_checkpoint(&synth);
}
