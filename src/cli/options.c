/* Owns nothing: parses a command line by its table. The values are checked before any target is written. */
#include "cli/options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"

enum { NAME_LENGTH_MAX = 64, HELP_COLUMN = 30, HELP_WIDTH = 80 };

static bool takes_value(const pgl_option *option) {
    return option->kind != PGL_OPTION_FLAG && option->kind != PGL_OPTION_SWITCH;
}

static bool size_unit(const char *unit, int *shift) {
    static const char letters[] = "kmgt";
    *shift = 0;
    if (unit[0] == '\0' || strcmp(unit, "B") == 0)
        return true;
    const char *at = strchr(letters, unit[0] | 0x20);
    if (at == NULL)
        return false;
    *shift = (int)(at - letters + 1) * 10;
    const char *rest = unit + 1;
    return *rest == '\0' || strcmp(rest, "B") == 0 || strcmp(rest, "b") == 0 || strcmp(rest, "iB") == 0 ||
           strcmp(rest, "ib") == 0;
}

bool pgl_parse_size(const char *text, uint64_t *bytes) {
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (errno != 0 || text[1] == 'x' || text[1] == 'X' || !isfinite(number))
        return false;
    while (*end == ' ')
        end++;
    int shift;
    if (!size_unit(end, &shift))
        return false;
    double value = ldexp(number, shift);
    if (value >= 0x1p63)
        return false;
    *bytes = (uint64_t)value;
    return true;
}

/* apply puts the option's name in front. */
static pgl_status bad_value(const char *expected, const char *found, pgl_error *err) {
    return pgl_fail(err, PGL_E_INVALID, "expected %s, found \"%s\"", expected, found);
}

static bool in_range(const pgl_option *option, double value) {
    bool open = option->min == 0 && option->max == 0;
    return open || (value >= option->min && value <= option->max);
}

static void describe_range(const pgl_option *option, const char *what, char *out, size_t size) {
    if (option->min == 0 && option->max == 0)
        (void)snprintf(out, size, "%s", what);
    else
        (void)snprintf(out, size, "%s from %.15g to %.15g", what, option->min, option->max);
}

static pgl_status set_integer(const pgl_option *option, const char *value, pgl_error *err) {
    long long low = 0, high = LLONG_MAX;
    if (option->kind == PGL_OPTION_I32) {
        low = INT32_MIN;
        high = INT32_MAX;
    } else if (option->kind == PGL_OPTION_U32) {
        high = UINT32_MAX;
    }
    bool bounded = option->min != 0 || option->max != 0;
    char expected[96];
    describe_range(option, low < 0 || bounded ? "a whole number" : "a whole number, not negative", expected,
                   sizeof expected);
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0 || number < low || number > high ||
        !in_range(option, (double)number))
        return bad_value(expected, value, err);
    if (option->kind == PGL_OPTION_I32)
        *(int32_t *)option->target = (int32_t)number;
    else if (option->kind == PGL_OPTION_U32)
        *(uint32_t *)option->target = (uint32_t)number;
    else
        *(uint64_t *)option->target = (uint64_t)number;
    return PGL_OK;
}

static pgl_status set_real(const pgl_option *option, const char *value, pgl_error *err) {
    char expected[96];
    describe_range(option, "a number", expected, sizeof expected);
    char *end;
    errno = 0;
    double number = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(number) || !in_range(option, number))
        return bad_value(expected, value, err);
    *(double *)option->target = number;
    return PGL_OK;
}

static pgl_status set_choice(const pgl_option *option, const char *value, pgl_error *err) {
    char expected[256] = "one of";
    size_t used = strlen(expected);
    for (size_t i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], value) == 0) {
            *(const char **)option->target = option->choices[i];
            return PGL_OK;
        }
        int more =
            snprintf(expected + used, sizeof expected - used, "%s %s", i > 0 ? "," : "", option->choices[i]);
        used += more > 0 && (size_t)more < sizeof expected - used ? (size_t)more : 0;
    }
    return bad_value(expected, value, err);
}

static pgl_status set_switch(const pgl_option *option, const char *value, bool no, pgl_error *err) {
    bool on =
        value == NULL || strcmp(value, "on") == 0 || strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
    bool off = value != NULL &&
               (strcmp(value, "off") == 0 || strcmp(value, "false") == 0 || strcmp(value, "0") == 0);
    if (!on && !off)
        return bad_value("on or off", value, err);
    if (option->kind == PGL_OPTION_FLAG)
        *(bool *)option->target = on != no;
    else
        *(int *)option->target = on != no;
    return PGL_OK;
}

static pgl_status set_value(const pgl_option *option, const char *value, bool no, pgl_error *err) {
    switch (option->kind) {
    case PGL_OPTION_FLAG:
    case PGL_OPTION_SWITCH:
        return set_switch(option, value, no, err);
    case PGL_OPTION_STRING:
        *(const char **)option->target = value;
        return PGL_OK;
    case PGL_OPTION_CHOICE:
        return set_choice(option, value, err);
    case PGL_OPTION_SIZE: {
        uint64_t bytes;
        char expected[96] = "a size such as 800M or 12G";
        if (option->max != 0)
            describe_range(option, "a size in bytes", expected, sizeof expected);
        if (!pgl_parse_size(value, &bytes) || !in_range(option, (double)bytes))
            return bad_value(expected, value, err);
        *(uint64_t *)option->target = bytes;
        return PGL_OK;
    }
    case PGL_OPTION_REAL:
        return set_real(option, value, err);
    case PGL_OPTION_I32:
    case PGL_OPTION_U32:
    case PGL_OPTION_U64:
        return set_integer(option, value, err);
    }
    return pgl_fail(err, PGL_E_INTERNAL, "--%s: option of unknown kind", option->name);
}

/* Checks the value of an option that a stronger source has already set, leaving its target alone. */
static pgl_status check_value(const pgl_option *option, const char *value, bool no, pgl_error *err) {
    union {
        bool flag;
        int number;
        uint64_t big;
        double real;
        const char *text;
    } scratch = {.big = 0};
    pgl_option copy = *option;
    copy.target = &scratch;
    return set_value(&copy, value, no, err);
}

static pgl_status apply(pgl_option *option, const char *value, bool no, pgl_option_source source,
                        pgl_error *err) {
    bool weaker = source < option->source;
    pgl_status status = weaker ? check_value(option, value, no, err) : set_value(option, value, no, err);
    if (status != PGL_OK)
        pgl_error_prefix(err, "%s%s", source == PGL_OPTION_FROM_CONFIG ? "" : "--", option->name);
    else if (!weaker)
        option->source = source;
    return status;
}

/* *no: the name was that of a switch with "no-" in front. */
static pgl_option *find(pgl_command *command, const char *name, size_t length, bool *no) {
    *no = false;
    for (size_t i = 0; i < command->n_options; i++) {
        pgl_option *option = &command->options[i];
        if (strlen(option->name) == length && memcmp(option->name, name, length) == 0)
            return option;
    }
    if (length <= 3 || memcmp(name, "no-", 3) != 0)
        return NULL;
    for (size_t i = 0; i < command->n_options; i++) {
        pgl_option *option = &command->options[i];
        if (option->kind == PGL_OPTION_SWITCH && strlen(option->name) == length - 3 &&
            memcmp(option->name, name + 3, length - 3) == 0) {
            *no = true;
            return option;
        }
    }
    return NULL;
}

static pgl_status unknown_option(const pgl_command *command, const char *name, size_t length, bool in_file,
                                 pgl_error *err) {
    char word[NAME_LENGTH_MAX];
    (void)snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), name);
    const char *names[256];
    size_t n = 0;
    for (size_t i = 0; i < command->n_options && n < PGL_COUNT(names) - 1; i++)
        if (!command->options[i].hidden)
            names[n++] = command->options[i].name;
    if (!in_file)
        names[n++] = "help";
    const char *near = pgl_nearest(word, names, n);
    if (in_file)
        return pgl_fail(err, PGL_E_NOT_FOUND, "unknown name \"%s\"%s%s%s", word,
                        near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                        near != NULL ? "\"?" : "");
    return pgl_fail(err, PGL_E_NOT_FOUND, "unknown option --%s%s%s%s", word,
                    near != NULL ? "; did you mean --" : "", near != NULL ? near : "",
                    near != NULL ? "?" : "");
}

pgl_option *pgl_options_find(pgl_command *command, const char *name, bool *no) {
    return find(command, name, strlen(name), no);
}

static pgl_status missing_value(const pgl_option *option, pgl_error *err) {
    return pgl_fail(err, PGL_E_INVALID, "--%s needs a value%s%s", option->name,
                    option->value != NULL ? ": " : "", option->value != NULL ? option->value : "");
}

pgl_status pgl_options_set(pgl_command *command, const char *name, const char *value,
                           pgl_option_source source, pgl_error *err) {
    bool no;
    pgl_option *option = find(command, name, strlen(name), &no);
    if (option == NULL)
        return unknown_option(command, name, strlen(name), source == PGL_OPTION_FROM_CONFIG, err);
    if (value == NULL && takes_value(option))
        return missing_value(option, err);
    return apply(option, value, no, source, err);
}

typedef struct walk {
    pgl_command *command;
    int argc;
    char **argv;
    int at; /* the argument being read */
    bool help;
    pgl_error *err;
} walk;

static pgl_status read_long(walk *w) {
    const char *name = w->argv[w->at] + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const char *value = equals != NULL ? equals + 1 : NULL;
    if (length == 4 && memcmp(name, "help", 4) == 0) {
        w->help = true;
        return PGL_OK;
    }
    bool no;
    pgl_option *option = find(w->command, name, length, &no);
    if (option == NULL)
        return unknown_option(w->command, name, length, false, w->err);
    if (value == NULL && takes_value(option)) {
        if (w->at + 1 >= w->argc)
            return missing_value(option, w->err);
        value = w->argv[++w->at];
    }
    return apply(option, value, no, PGL_OPTION_FROM_COMMAND_LINE, w->err);
}

static pgl_status read_letters(walk *w) {
    const char *letters = w->argv[w->at] + 1;
    for (size_t i = 0; letters[i] != '\0'; i++) {
        if (letters[i] == 'h') {
            w->help = true;
            continue;
        }
        pgl_option *option = NULL;
        for (size_t o = 0; o < w->command->n_options; o++)
            if (w->command->options[o].letter == letters[i])
                option = &w->command->options[o];
        if (option == NULL)
            return pgl_fail(w->err, PGL_E_NOT_FOUND, "unknown option -%c", letters[i]);
        const char *value = NULL;
        bool takes = takes_value(option);
        if (takes && letters[i + 1] != '\0') {
            value = letters + i + 1;
        } else if (takes) {
            if (w->at + 1 >= w->argc)
                return missing_value(option, w->err);
            value = w->argv[++w->at];
        }
        pgl_status status = apply(option, value, false, PGL_OPTION_FROM_COMMAND_LINE, w->err);
        if (status != PGL_OK || takes)
            return status;
    }
    return PGL_OK;
}

static pgl_status read_arguments(walk *w) {
    pgl_command *command = w->command;
    command->found = w->argv; /* operands are moved to the front of argv: never ahead of the reading */
    command->n_found = 0;
    bool only_operands = false;
    for (w->at = 1; w->at < w->argc; w->at++) {
        char *argument = w->argv[w->at];
        pgl_status status = PGL_OK;
        if (!only_operands && strcmp(argument, "--") == 0)
            only_operands = true;
        else if (only_operands || argument[0] != '-' || argument[1] == '\0')
            command->found[command->n_found++] = argument;
        else
            status = argument[1] == '-' ? read_long(w) : read_letters(w);
        if (status != PGL_OK)
            return status;
    }
    return PGL_OK;
}

static pgl_status read_environment(pgl_command *command, pgl_error *err) {
    for (size_t i = 0; i < command->n_options; i++) {
        pgl_option *option = &command->options[i];
        const char *value = option->env != NULL ? getenv(option->env) : NULL;
        if (value == NULL || value[0] == '\0')
            continue;
        pgl_status status = apply(option, value, false, PGL_OPTION_FROM_ENVIRONMENT, err);
        if (status != PGL_OK) {
            pgl_error_prefix(err, "environment variable %s", option->env);
            return status;
        }
    }
    return PGL_OK;
}

static pgl_status check_operands(const pgl_command *command, pgl_error *err) {
    if (command->n_found > command->max_operands)
        return pgl_fail(err, PGL_E_INVALID, "unexpected argument \"%s\"",
                        command->found[command->max_operands]);
    if (command->n_found < command->min_operands)
        return pgl_fail(err, PGL_E_INVALID, "expected %s", command->operands);
    return PGL_OK;
}

bool pgl_options_parse(pgl_command *command, int argc, char **argv, int *exit_code) {
    pgl_error err;
    walk w = {.command = command, .argc = argc, .argv = argv, .err = &err};
    pgl_status status = read_arguments(&w);
    if (w.help) {
        pgl_options_help(command, stdout);
        *exit_code = PGL_EXIT_OK;
        return false;
    }
    if (status == PGL_OK)
        status = read_environment(command, &err);
    if (status == PGL_OK && command->config != NULL && *command->config != NULL)
        status = pgl_options_read_file(command, *command->config, &err);
    if (status == PGL_OK)
        status = check_operands(command, &err);
    if (status == PGL_OK)
        return true;
    pgl_options_fini(command);
    (void)fprintf(stderr, "pergola %s: %s\nSee `pergola %s --help`.\n", command->name, err.text,
                  command->name);
    *exit_code = PGL_EXIT_USAGE;
    return false;
}

/* The option whose name and a colon stand at the front of text. */
static const pgl_option *named(const pgl_command *command, const char *text) {
    size_t length = strcspn(text, ": ");
    for (size_t i = 0; i < command->n_options && text[length] == ':'; i++)
        if (strlen(command->options[i].name) == length && memcmp(command->options[i].name, text, length) == 0)
            return &command->options[i];
    return NULL;
}

int pgl_options_fail(const pgl_command *command, pgl_error *err) {
    const pgl_option *option = named(command, err->text);
    pgl_option_source source = option != NULL ? option->source : PGL_OPTION_DEFAULT;
    char where[512] = "";
    if (source == PGL_OPTION_FROM_ENVIRONMENT)
        (void)snprintf(where, sizeof where, "environment variable %s: --", option->env);
    else if (source == PGL_OPTION_FROM_CONFIG)
        (void)snprintf(where, sizeof where, "%.400s:%u: ", *command->config, option->line);
    else if (option != NULL)
        (void)snprintf(where, sizeof where, "--");
    (void)fprintf(stderr, "pergola %s: %s%s\n", command->name, where, err->text);
    if (err->status != PGL_E_INVALID)
        return PGL_EXIT_FAILURE;
    (void)fprintf(stderr, "See `pergola %s --help`.\n", command->name);
    return PGL_EXIT_USAGE;
}

/* Writes text wrapped to the help's width, each line indented to column; the first line starts at `at`. */
static void put_wrapped(FILE *to, const char *text, size_t at, size_t column) {
    size_t used = at;
    while (*text != '\0') {
        size_t word = strcspn(text, " \n");
        if (used > column && used + 1 + word > HELP_WIDTH) {
            (void)fputc('\n', to);
            used = 0;
        }
        if (used < column) {
            (void)fprintf(to, "%*s", (int)(column - used), "");
            used = column;
        } else if (used > column) {
            (void)fputc(' ', to);
            used++;
        }
        (void)fprintf(to, "%.*s", (int)word, text);
        used += word;
        text += word;
        if (*text == '\n') {
            (void)fputc('\n', to);
            used = 0;
        }
        if (*text != '\0')
            text++;
    }
    (void)fputc('\n', to);
}

static void put_option(const pgl_option *option, FILE *to) {
    char left[NAME_LENGTH_MAX + 32];
    int n;
    if (option->letter != '\0')
        n = snprintf(left, sizeof left, "  -%c, ", option->letter);
    else
        n = snprintf(left, sizeof left, "      ");
    if (n < 0 || (size_t)n >= sizeof left)
        return;
    bool value = takes_value(option) && option->value != NULL;
    (void)snprintf(left + n, sizeof left - (size_t)n, "--%s%s%s%s",
                   option->kind == PGL_OPTION_SWITCH ? "[no-]" : "", option->name, value ? " " : "",
                   value ? option->value : "");
    size_t at = strlen(left);
    (void)fputs(left, to);
    if (at + 2 > HELP_COLUMN) {
        (void)fputc('\n', to);
        at = 0;
    }
    char help[1024];
    (void)snprintf(help, sizeof help, "%s%s%s%s", option->help, option->env != NULL ? " [" : "",
                   option->env != NULL ? option->env : "", option->env != NULL ? "]" : "");
    put_wrapped(to, help, at, HELP_COLUMN);
}

void pgl_options_help(const pgl_command *command, FILE *to) {
    (void)fprintf(to, "usage: pergola %s%s%s%s\n\n", command->name,
                  command->n_options > 0 ? " [options]" : "", command->operands != NULL ? " " : "",
                  command->operands != NULL ? command->operands : "");
    put_wrapped(to, command->summary, 0, 0);
    (void)fputs("\noptions:\n", to);
    for (size_t i = 0; i < command->n_options; i++)
        if (!command->options[i].hidden)
            put_option(&command->options[i], to);
    const pgl_option help = {.name = "help", .letter = 'h', .help = "show this help"};
    put_option(&help, to);
    if (command->description != NULL) {
        (void)fputc('\n', to);
        (void)fputs(command->description, to);
        (void)fputc('\n', to);
    }
}
