/* The subcommands of pergola. Each has one file, cmd_NAME.c, with its table of options (options.h) and
 * int pgl_cmd_NAME(int argc, char **argv), which main.c calls with argv[0] the command's name and everything
 * behind it. It returns one of the exit codes below; data goes to stdout, everything else to stderr. */
#ifndef PGL_CLI_COMMANDS_H
#define PGL_CLI_COMMANDS_H

#include "base/status.h"

typedef enum pgl_exit {
    PGL_EXIT_OK = 0,
    PGL_EXIT_FAILURE = 1,       /* the work could not be done; stderr says why */
    PGL_EXIT_USAGE = 2,         /* the command line is wrong; nothing was done */
    PGL_EXIT_INTERRUPTED = 130, /* Ctrl-C ended it; what was printed before is right */
} pgl_exit;

/* name, group, one line for `pergola --help`. The order is the order of the help. */
#define PGL_COMMANDS(X)                                                                                      \
    X(chat, "Talk to a model", "talk to a model in the terminal")                                            \
    X(run, "Talk to a model", "answer one prompt and exit")                                                  \
    X(serve, "Talk to a model", "answer an OpenAI-compatible HTTP API")                                      \
    X(inspect, "Look at a model", "what a checkpoint is: tensors, bits, bytes, verdict")                     \
    X(plan, "Look at a model", "the memory that a context and slots take")                                   \
    X(tokenize, "Look at a model", "text to token ids")                                                      \
    X(detokenize, "Look at a model", "token ids to text")                                                    \
    X(parse, "Look at a model", "raw model output to the message that the API delivers")                     \
    X(replay, "Look at a model", "run a recorded request again and compare its tokens")                      \
    X(logits, "Look at a model", "full logits of token ids, to a safetensors file")                          \
    X(synth, "Make and measure", "write a random checkpoint in the published layout")                        \
    X(quantize, "Make and measure", "code a 16-bit model into the Escha-W2 format")                          \
    X(eval, "Make and measure", "perplexity, distance from a reference, multiple choice")                    \
    X(bench, "Make and measure", "measure speed; bench serve: that of a server")

#define PGL_COMMAND_DECLARE(name, group, summary) int pgl_cmd_##name(int argc, char **argv);
PGL_COMMANDS(PGL_COMMAND_DECLARE)
#undef PGL_COMMAND_DECLARE

/* `pergola bench serve` and `bench engine`, which `bench` hands on to. */
int pgl_cmd_bench_serve(int argc, char **argv);
int pgl_cmd_bench_engine(int argc, char **argv);

/* Prints "pergola COMMAND: message" on stderr and returns PGL_EXIT_FAILURE. */
int pgl_cli_fail(const char *command, const pgl_error *err);

#endif
