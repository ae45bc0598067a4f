/* pergola run: one prompt, one answer. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/talk.h"

enum { MOST_PROMPT_BYTES = 32 << 20 };

typedef struct run_options {
    pgl_talk_options talk;
    bool raw, json, quiet;
    bool seed_given;
} run_options;

static bool usage(const char *text, int *code) {
    (void)fprintf(stderr, "pergola run: %s\nSee `pergola run --help`.\n", text);
    *code = PGL_EXIT_USAGE;
    return false;
}

/* Standard input is part of the prompt where there is no other, where `-` asks for it, or where something is piped or
 * redirected into it. */
static bool reads_input(const pgl_command *command) {
    struct stat info;
    if (command->n_found == 0 || strcmp(command->found[0], "-") == 0)
        return true;
    return fstat(STDIN_FILENO, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode));
}

static bool read_input(pgl_buf *prompt, int *code) {
    char block[65536];
    for (;;) {
        ssize_t n = read(STDIN_FILENO, block, sizeof block);
        if (n == 0)
            return true;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || !pgl_buf_append(prompt, block, (size_t)n)) {
            (void)fprintf(stderr, "pergola run: standard input: %s\n",
                          n < 0 ? strerror(errno) : "out of memory");
            *code = PGL_EXIT_FAILURE;
            return false;
        }
        if (prompt->size > MOST_PROMPT_BYTES)
            return usage("the prompt is longer than 32 MiB", code);
    }
}

static bool take_prompt(const pgl_command *command, bool raw, pgl_buf *prompt, int *code) {
    bool given = command->n_found > 0 && strcmp(command->found[0], "-") != 0;
    if (given && !pgl_buf_puts(prompt, command->found[0])) {
        *code = PGL_EXIT_FAILURE;
        return false;
    }
    size_t before = prompt->size;
    if (reads_input(command)) {
        if (given && !raw && !pgl_buf_puts(prompt, "\n\n"))
            return usage("out of memory", code);
        size_t start = prompt->size;
        if (!read_input(prompt, code))
            return false;
        if (prompt->size == start)
            prompt->size = before; /* nothing came */
        while (!raw && prompt->size > 0 && prompt->data[prompt->size - 1] == '\n')
            prompt->size--; /* the end of the last line */
        if (prompt->data != NULL)
            prompt->data[prompt->size] = '\0';
    }
    if (prompt->size == 0 || prompt->data == NULL)
        return usage("expected a PROMPT or text on standard input, found neither", code);
    if (strlen(pgl_buf_text(prompt)) != prompt->size || !pgl_utf8_valid(pgl_buf_text(prompt), prompt->size))
        return usage("the prompt is not UTF-8 text", code);
    return true;
}

/* ---- the answer as JSON ---- */

typedef struct gathered {
    pergola_session *session;
    pgl_buf answer, reasoning;
} gathered;

static bool on_text(void *user, pergola_text_kind kind, const char *text, size_t size) {
    gathered *g = user;
    if (pgl_talk_interrupted())
        pergola_session_cancel(g->session);
    return pgl_buf_append(kind == PERGOLA_TEXT_REASONING ? &g->reasoning : &g->answer, text, size);
}

static void on_progress(void *user, uint32_t done, uint32_t total) {
    (void)done;
    (void)total;
    if (pgl_talk_interrupted())
        pergola_session_cancel(((gathered *)user)->session);
}

static bool put_json(const gathered *g, const pergola_result *r, const char *name, pgl_buf *out) {
    bool ok = pgl_buf_puts(out, "{\"model\":") && pgl_json_put_string(out, name, strlen(name)) &&
              pgl_buf_puts(out, ",\"text\":") &&
              pgl_json_put_string(out, pgl_buf_text(&g->answer), g->answer.size);
    if (ok && r->reasoning_tokens > 0)
        ok = pgl_buf_puts(out, ",\"reasoning\":") &&
             pgl_json_put_string(out, pgl_buf_text(&g->reasoning), g->reasoning.size);
    return ok && pgl_buf_printf(out,
                                ",\"finish\":\"%s\",\"prompt_tokens\":%" PRIu32 ",\"cached_tokens\":%" PRIu32
                                ",\"answer_tokens\":%" PRIu32 ",\"reasoning_tokens\":%" PRIu32
                                ",\"seed\":%" PRIu64 ",\"prompt_s\":%.6f,\"answer_s\":%.6f}\n",
                                pgl_talk_finish_name(r->finish), r->prompt_tokens, r->cached_tokens,
                                r->answer_tokens, r->reasoning_tokens, r->seed, r->prompt_s, r->answer_s);
}

static pergola_status answer_json(pergola_session *session, const char *name, const char *text,
                                  pergola_generate_options *g, pergola_result *result, pergola_error *err) {
    gathered got = {.session = session};
    pgl_buf out = PGL_BUF_INIT;
    g->progress = on_progress;
    g->progress_user = &got;
    pergola_status status = pergola_generate(session, text, g, on_text, &got, result, err);
    if (status == PERGOLA_OK && put_json(&got, result, name, &out))
        (void)fputs(pgl_buf_text(&out), stdout);
    pgl_buf_fini(&out);
    pgl_buf_fini(&got.answer);
    pgl_buf_fini(&got.reasoning);
    return status;
}

/* ---- the answer as text ---- */

static pergola_status answer_text(pergola_session *session, const char *text, pergola_generate_options *g,
                                  pergola_result *result, pergola_error *err) {
    bool terminal = isatty(STDOUT_FILENO) == 1;
    pgl_talk_view view = {.session = session,
                          .to = stdout,
                          .terminal = terminal,
                          .color = terminal && pgl_talk_wants_color(),
                          .reasoning = terminal};
    pergola_status status = pgl_talk_generate(&view, text, g, result, err);
    if (view.begun && view.last != '\n')
        (void)putchar('\n');
    (void)fflush(stdout);
    return status;
}

static int answer(pergola_model *model, const run_options *o, const char *text) {
    pergola_session_options options;
    pergola_session_options_init(&options);
    options.raw = o->raw;
    options.system = o->talk.system;
    options.thinking = o->talk.think;
    pergola_session *session = NULL;
    pergola_error err;
    pergola_status status = pergola_session_open(model, &options, &session, &err);
    pergola_generate_options g = pgl_talk_generate_options(model, &o->talk, o->seed_given);
    pergola_result result = {.size = sizeof result};
    pergola_model_info info = {.size = sizeof info};
    pergola_model_get_info(model, &info);
    if (status == PERGOLA_OK)
        status = o->json ? answer_json(session, info.name, text, &g, &result, &err)
                         : answer_text(session, text, &g, &result, &err);
    pergola_session_close(session);
    if (status != PERGOLA_OK) {
        (void)fprintf(stderr, "pergola run: %s\n", err.text);
        return PGL_EXIT_FAILURE;
    }
    if (!o->quiet && !o->json) {
        char statistics[200];
        pgl_talk_statistics(&result, statistics, sizeof statistics);
        (void)fprintf(stderr, "%s\n", statistics);
        if (result.finish == PERGOLA_FINISH_LENGTH && result.reasoning_tokens == result.answer_tokens &&
            !o->raw)
            (void)fputs(
                "The limit came while the model was thinking: a larger --max-tokens, or --no-think.\n",
                stderr);
    }
    return result.finish == PERGOLA_FINISH_CANCELLED ? PGL_EXIT_INTERRUPTED : PGL_EXIT_OK;
}

static int run(const pgl_command *command, const run_options *o) {
    if (o->raw && (o->talk.system != NULL || o->talk.think >= 0)) {
        int code;
        (void)usage("--raw has no chat: --system and --think mean nothing with it", &code);
        return code;
    }
    pgl_buf prompt = PGL_BUF_INIT;
    int code = PGL_EXIT_FAILURE;
    if (take_prompt(command, o->raw, &prompt, &code)) {
        pergola_model *model = pgl_talk_open(command, &o->talk, &code);
        if (model != NULL) {
            pgl_talk_catch_interrupt();
            code = answer(model, o, pgl_buf_text(&prompt));
            pergola_model_close(model);
        }
    }
    pgl_buf_fini(&prompt);
    return code;
}

int pgl_cmd_run(int argc, char **argv) {
    run_options o = {.talk = pgl_talk_defaults()};
    enum { OWN_ROWS = 3 };
    pgl_option options[PGL_TALK_ROWS + OWN_ROWS] = {
        {.name = "raw",
         .kind = PGL_OPTION_FLAG,
         .target = &o.raw,
         .help = "no chat: the prompt goes to the model as it is, spellings of control tokens included"},
        PGL_OPTION_ROW_JSON(&o.json),
        {.name = "quiet",
         .letter = 'q',
         .kind = PGL_OPTION_FLAG,
         .target = &o.quiet,
         .help = "no statistics on standard error"},
    };
    pgl_talk_rows(&o.talk, options + OWN_ROWS);
    pgl_command command = {
        .name = "run",
        .operands = "[PROMPT]",
        .summary = "Answers one prompt: the answer on standard output, statistics on standard error.",
        .description =
            "The prompt is PROMPT, or standard input when there is none; what is piped or redirected into\n"
            "standard input is put behind PROMPT. Thinking is shown on terminals only, dimmed.\n"
            "\n"
            "  pergola run \"Name three trees.\"\n"
            "  pergola run \"Summarise this text:\" < report.txt\n"
            "  pergola run --raw --temperature 0 -n 20 \"Once upon a time\"",
        .options = options,
        .n_options = PGL_COUNT(options),
        .max_operands = 1,
    };
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    for (size_t i = 0; i < PGL_COUNT(options); i++)
        if (options[i].target == &o.talk.seed)
            o.seed_given = options[i].source != PGL_OPTION_DEFAULT;
    if (!pgl_talk_check(&command, &o.talk, &code))
        return code;
    return run(&command, &o);
}
