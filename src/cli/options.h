/* The command line as a table: one row an option, from which parsing, `--help`, environment variables and
 * configuration files follow.
 *
 *     static const char *model;
 *     uint32_t max_tokens = 256;
 *     pgl_option options[] = {
 *         PGL_OPTION_ROW_MODEL(&model),
 *         {.name = "max-tokens", .letter = 'n', .kind = PGL_OPTION_U32, .value = "N", .target = &max_tokens,
 *          .min = 1, .max = 1 << 20, .help = "most tokens of the answer"},
 *     };
 *     pgl_command command = {.name = "run", .operands = "[PROMPT]", .summary = "..", .options = options,
 *                            .n_options = PGL_COUNT(options), .max_operands = 1};
 *     int code;
 *     if (!pgl_options_parse(&command, argc, argv, &code))
 *         return code;
 *
 * Accepted: --name value, --name=value, -l value, -lvalue, flags run together (-ab), operands and options in
 * any order, and `--` before operands that start with a dash. A lone `-` is an operand. What is not given
 * on the command line is taken from the option's environment variable, where it has one and that is set and
 * not empty, and what is not given there from the configuration file, where the command takes one. An option
 * given twice on the command line: the last one counts. Targets hold their defaults before the call.
 *
 * A configuration file has lines `name = value` with the names of the options, without dashes; flags and switches
 * have on or off. Behind # is a comment, when it stands first or behind a blank. A value may stand in double quotes,
 * with \" and \\ inside, to have blanks at its ends, or #. An unknown name, a wrong value and a name that is set
 * twice are errors.
 *
 * One thread. Strings point into argv, the environment or the command's file_text. */
#ifndef PGL_CLI_OPTIONS_H
#define PGL_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/status.h"

#define PGL_COUNT(array) (sizeof(array) / sizeof(array)[0])

typedef enum pgl_option_kind {
    PGL_OPTION_FLAG,   /* bool: --name sets it */
    PGL_OPTION_SWITCH, /* int, -1 when neither is said: --name gives 1, --no-name 0; =on and =off too */
    PGL_OPTION_STRING, /* const char * */
    PGL_OPTION_CHOICE, /* const char *, one of choices */
    PGL_OPTION_I32,    /* int32_t */
    PGL_OPTION_U32,    /* uint32_t */
    PGL_OPTION_U64,    /* uint64_t */
    PGL_OPTION_SIZE,   /* uint64_t bytes: 512M, 12GiB, 1.5g, 4096; powers of 1,024 */
    PGL_OPTION_REAL,   /* double */
} pgl_option_kind;

typedef enum pgl_option_source {
    PGL_OPTION_DEFAULT,
    PGL_OPTION_FROM_CONFIG,
    PGL_OPTION_FROM_ENVIRONMENT,
    PGL_OPTION_FROM_COMMAND_LINE,
} pgl_option_source;

typedef struct pgl_option {
    const char *name; /* without dashes */
    char letter;      /* 0: none */
    pgl_option_kind kind;
    void *target;
    const char *value;          /* what stands for the value in the help: "N", "DIR" */
    const char *help;           /* one sentence without a full stop; "\n" starts a new line */
    const char *env;            /* environment variable; NULL: none */
    double min, max;            /* of numbers, both ends allowed; both 0: the type's range */
    const char *const *choices; /* ends with NULL */
    bool hidden;                /* not in the help */
    pgl_option_source source;   /* where the value came from */
    uint32_t line;              /* of the configuration file, where it stands there; else 0 */
} pgl_option;

typedef struct pgl_command {
    const char *name;        /* "run", "bench serve" */
    const char *operands;    /* "[PROMPT]"; NULL: none */
    const char *summary;     /* a sentence for the top of the help */
    const char *description; /* paragraphs below the options; NULL: none */
    pgl_option *options;
    size_t n_options;
    size_t min_operands, max_operands;
    const char *
        *config; /* target of the option that names a configuration file; NULL: the command takes none */

    pgl_buf file_text; /* set by the parse: strings from the configuration file point into it */
    char **found;      /* set by the parse: the operands, in argv's own storage */
    size_t n_found;
} pgl_command;

/* True: go on. False: leave with *exit_code (0 after --help on stdout, PGL_EXIT_USAGE after a message on
 * stderr that names the option, says what was expected and what was found, and offers the nearest name). */
bool pgl_options_parse(pgl_command *command, int argc, char **argv, int *exit_code);

/* Prints what failed after the parse and returns the exit code: PGL_EXIT_USAGE for PGL_E_INVALID, else
 * PGL_EXIT_FAILURE. A message that begins with an option's name and a colon says where its value came from. */
int pgl_options_fail(const pgl_command *command, pgl_error *err);

/* When the strings are not used any more: wipes and releases the configuration file's text. */
void pgl_options_fini(pgl_command *command);

/* Sets options from a configuration file. Errors name file and line. Private to options*.c. */
pgl_status pgl_options_read_file(pgl_command *command, const char *path, pgl_error *err);

/* The same of the command's file_text, which is cut to pieces; path names it in errors. */
pgl_status pgl_options_read_text(pgl_command *command, const char *path, pgl_error *err);

/* The option of that name; *no: the name is that of a switch with "no-" in front. NULL: there is none. */
pgl_option *pgl_options_find(pgl_command *command, const char *name, bool *no);

/* Sets one option by its name (value NULL: a flag by itself), for configuration files. A source never
 * replaces a stronger one: then nothing changes and the value is only checked. PGL_E_NOT_FOUND for an unknown
 * name, PGL_E_INVALID for a wrong value. */
pgl_status pgl_options_set(pgl_command *command, const char *name, const char *value,
                           pgl_option_source source, pgl_error *err);

void pgl_options_help(const pgl_command *command, FILE *to);

/* The candidate nearest to word, when it is near enough to be what was meant; else NULL. */
const char *pgl_nearest(const char *word, const char *const *candidates, size_t n);

/* 1.5g -> bytes. False when it is no size or does not fit. */
bool pgl_parse_size(const char *text, uint64_t *bytes);

/* Rows that several commands share. */
#define PGL_OPTION_ROW_MODEL(t)                                                                              \
    {                                                                                                        \
        .name = "model", .letter = 'm', .kind = PGL_OPTION_STRING, .target = (t), .value = "DIR",            \
        .env = "PERGOLA_MODEL",                                                                              \
        .help = "directory of the checkpoint; the model that comes with the program when left out"           \
    }
#define PGL_OPTION_ROW_JSON(t)                                                                               \
    { .name = "json", .kind = PGL_OPTION_FLAG, .target = (t), .help = "write JSON" }
#define PGL_OPTION_ROW_THREADS(t)                                                                            \
    {                                                                                                        \
        .name = "threads", .letter = 't', .kind = PGL_OPTION_U32, .target = (t), .value = "N",               \
        .env = "PERGOLA_THREADS", .min = 0, .max = 1024, .help = "CPU threads; 0: one for each CPU"          \
    }
#define PGL_OPTION_ROW_CONTEXT(t)                                                                            \
    {                                                                                                        \
        .name = "context", .letter = 'c', .kind = PGL_OPTION_U32, .target = (t), .value = "N", .min = 0,     \
        .max = 1 << 24, .env = "PERGOLA_CONTEXT",                                                            \
        .help = "most tokens of a conversation, prompt and answer; 0: what the model and memory allow"       \
    }
#define PGL_OPTION_ROW_SLOTS(t)                                                                              \
    {                                                                                                        \
        .name = "slots", .kind = PGL_OPTION_U32, .target = (t), .value = "N", .min = 1, .max = 4096,         \
        .env = "PERGOLA_SLOTS", .help = "conversations that are answered at the same time (1)"               \
    }
#define PGL_OPTION_ROW_MEMORY(t)                                                                             \
    {                                                                                                        \
        .name = "memory", .kind = PGL_OPTION_SIZE, .target = (t), .value = "SIZE", .env = "PERGOLA_MEMORY",  \
        .help = "memory to use at most, weights included (12G, 800M); 0: what is free"                       \
    }
#define PGL_OPTION_ROW_PREFIX_CACHE(t)                                                                       \
    {                                                                                                        \
        .name = "prefix-cache", .kind = PGL_OPTION_SWITCH, .target = (t), .env = "PERGOLA_PREFIX_CACHE",     \
        .help = "keep what earlier prompts have in common (on)"                                              \
    }
#define PGL_OPTION_ROW_CACHE(t)                                                                              \
    {                                                                                                        \
        .name = "cache", .kind = PGL_OPTION_SIZE, .target = (t), .value = "SIZE", .env = "PERGOLA_CACHE",    \
        .help = "memory for it (chosen; at most 768M)"                                                       \
    }
#define PGL_OPTION_ROW_CACHE_HOST(t)                                                                         \
    {                                                                                                        \
        .name = "cache-host", .kind = PGL_OPTION_SIZE, .target = (t), .value = "SIZE",                       \
        .env = "PERGOLA_CACHE_HOST", .help = "host memory for what it has no room for (0)"                   \
    }
#define PGL_OPTION_ROW_BACKEND(t)                                                                            \
    {                                                                                                        \
        .name = "backend", .kind = PGL_OPTION_STRING, .target = (t), .value = "NAME",                        \
        .env = "PERGOLA_BACKEND",                                                                            \
        .help = "what computes: cpu; or echo: nothing does, the answer is the text that was asked, for "     \
                "tests of clients; the best there is when left out"                                          \
    }

/* The directory to load: given when it is not NULL, else models/demo beside the binary, above it, or in
 * share/pergola of its prefix. PGL_E_NOT_FOUND, saying how to name one, when there is none. */
pgl_status pgl_find_model(const char *given, char *path, size_t size, pgl_error *err);

#endif
