/* Owns the process: chooses the subcommand, and sees to it that output which could not be written is an
 * error. The only file that knows all commands. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/about.h"
#include "cli/commands.h"
#include "cli/options.h"

/* A build may leave a command out: then its row has no function and is not shown. */
#define WEAK(name, group, summary) extern __attribute__((weak)) int pgl_cmd_##name(int argc, char **argv);
PGL_COMMANDS(WEAK)
#undef WEAK

typedef struct command_row {
    const char *name, *group, *summary;
    int (*run)(int argc, char **argv);
} command_row;

static const command_row commands[] = {
#define ROW(name, group, summary) {#name, group, summary, pgl_cmd_##name},
    PGL_COMMANDS(ROW)
#undef ROW
};

int pgl_cli_fail(const char *command, const pgl_error *err) {
    (void)fprintf(stderr, "pergola %s: %s\n", command, err->text);
    return PGL_EXIT_FAILURE;
}

static void put_help(FILE *to) {
    (void)fputs("Pergola answers with trellis-coded (Escha-W2) Qwen3.5 and 3.6 models, from the published\n"
                "checkpoint as it is.\n"
                "\n"
                "usage: pergola COMMAND [options]\n",
                to);
    const char *group = "";
    for (size_t i = 0; i < PGL_COUNT(commands); i++) {
        if (commands[i].run == NULL)
            continue;
        if (strcmp(group, commands[i].group) != 0)
            (void)fprintf(to, "\n%s:\n", commands[i].group);
        group = commands[i].group;
        (void)fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].summary);
    }
    (void)fputs("\n"
                "  pergola chat --model DIR             a first conversation\n"
                "  pergola run --model DIR \"Why?\"       one answer, on standard output\n"
                "  pergola COMMAND --help               all options of a command\n"
                "  pergola --version, -v\n"
                "  pergola --licenses                   of the program and of what is linked into it\n"
                "\n"
                "exit codes: 0 done, 1 failed (stderr says why), 2 wrong command line, 130 interrupted\n",
                to);
}

static const command_row *find_command(const char *name) {
    for (size_t i = 0; i < PGL_COUNT(commands); i++)
        if (commands[i].run != NULL && strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int unknown_command(const char *name) {
    const char *names[PGL_COUNT(commands)];
    size_t n = 0;
    for (size_t i = 0; i < PGL_COUNT(commands); i++)
        if (commands[i].run != NULL)
            names[n++] = commands[i].name;
    const char *near = pgl_nearest(name, names, n);
    (void)fprintf(stderr, "pergola: unknown command \"%s\"", name);
    if (near != NULL)
        (void)fprintf(stderr, "; did you mean \"%s\"?", near);
    (void)fputs("\nSee `pergola --help`.\n", stderr);
    return PGL_EXIT_USAGE;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        put_help(stderr);
        return PGL_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-v") == 0 || strcmp(name, "-V") == 0 ||
        strcmp(name, "version") == 0) {
        pgl_about_version(stdout);
        return PGL_EXIT_OK;
    }
    if (strcmp(name, "--licenses") == 0) {
        pgl_about_licenses(stdout);
        return PGL_EXIT_OK;
    }
    bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
    if (help && argc < 3) {
        put_help(stdout);
        return PGL_EXIT_OK;
    }
    const command_row *row = find_command(help ? argv[2] : name);
    if (row == NULL)
        return unknown_command(help ? argv[2] : name);
    if (help) {
        char option[] = "--help";
        char *arguments[] = {argv[2], option, NULL};
        return row->run(2, arguments);
    }
    return row->run(argc - 1, argv + 1);
}

/* A stream that the caller has closed must not become the first file that is opened. Reading from its place and writing
 * to it fail as before. */
static void fill_streams(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY); /* the lowest free one: this */
}

int main(int argc, char **argv) {
    fill_streams();
    (void)setlocale(LC_CTYPE, ""); /* the terminal's characters; numbers stay as in "C" */
    int code = dispatch(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == PGL_EXIT_OK) {
        (void)fputs("pergola: standard output could not be written\n", stderr);
        code = PGL_EXIT_FAILURE;
    }
    return code;
}
