/* What `run` and `chat` share: options of model and sampling, loading with a progress bar, Ctrl-C, showing an answer. */
#ifndef PGL_CLI_TALK_H
#define PGL_CLI_TALK_H

#include "base/buf.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "pergola.h"

typedef struct pgl_talk_options {
    const char *model, *backend, *system;
    uint32_t threads, context, max_tokens;
    uint64_t memory, seed;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty,
        frequency_penalty; /* NAN: the model's */
    int32_t top_k;         /* INT32_MIN: the model's */
    int think;             /* -1: the template's default */
    bool ignore_end;
    const char *stop; /* NULL: none */
} pgl_talk_options;

pgl_talk_options pgl_talk_defaults(void);

enum { PGL_TALK_ROWS = 18 };

/* Writes the rows of the options above. */
void pgl_talk_rows(pgl_talk_options *o, pgl_option rows[PGL_TALK_ROWS]);

/* False: leave with *exit_code; what is wrong with the options was said on stderr. */
bool pgl_talk_check(const pgl_command *command, const pgl_talk_options *o, int *exit_code);

/* Finds and opens the model; says why not on stderr, with the exit code. */
pergola_model *pgl_talk_open(const pgl_command *command, const pgl_talk_options *o, int *exit_code);

/* The generate options; seed_given as the command line says. */
pergola_generate_options pgl_talk_generate_options(const pergola_model *model, const pgl_talk_options *o,
                                                   bool seed_given);

/* From now on Ctrl-C sets a flag instead of ending the program. */
void pgl_talk_catch_interrupt(void);
bool pgl_talk_interrupted(void);
void pgl_talk_forget_interrupt(void);

/* Shows an answer as it comes. Start with the first group filled in. */
typedef struct pgl_talk_view {
    pergola_session *session;
    FILE *to;
    bool terminal;  /* control characters are made visible */
    bool color;     /* thinking is dimmed */
    bool reasoning; /* thinking is shown */

    pgl_progress progress;
    bool begun, thinks;
    char last; /* character shown */
} pgl_talk_view;

/* Generates with the view as callback and progress bar; an interrupt cancels. */
pergola_status pgl_talk_generate(pgl_talk_view *view, const char *text, pergola_generate_options *options,
                                 pergola_result *result, pergola_error *err);

/* "prompt 120 tokens (100 cached) in 0.31 s, answer 45 tokens in 2.1 s, 21.4 tokens/s" */
void pgl_talk_statistics(const pergola_result *result, char *out, size_t size);

const char *pgl_talk_finish_name(pergola_finish finish);

/* True unless NO_COLOR asks for none, or the terminal is a dumb one. */
bool pgl_talk_wants_color(void);

#endif
