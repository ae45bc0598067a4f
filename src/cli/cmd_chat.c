/* pergola chat: a conversation in the terminal. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/line_edit.h"
#include "cli/talk.h"

typedef struct chat {
    const pgl_talk_options *options;
    pergola_model *model;
    pergola_session *session;
    pergola_generate_options generate;
    pgl_line_editor *editor;
    pgl_talk_view view;
    pergola_result last; /* of the last answer */
    bool has_last, done;
    int code;
} chat;

/* What is said to the user, not by the model: apart from the answers where these are piped away. */
static void say(const chat *c, const char *text) {
    (void)fprintf(c->view.terminal ? stdout : stderr, "%s\n", text);
}

/* ---- commands ---- */

static void do_help(chat *c, const char *rest);

static void do_think(chat *c, const char *rest) {
    (void)rest;
    pergola_session_set_thinking(c->session, 1);
    say(c, "The model thinks before it answers.");
}

static void do_nothink(chat *c, const char *rest) {
    (void)rest;
    pergola_session_set_thinking(c->session, 0);
    say(c, "The model answers without thinking.");
}

static void do_system(chat *c, const char *rest) {
    pergola_error err;
    if (pergola_session_set_system(c->session, rest[0] != '\0' ? rest : NULL, &err) != PERGOLA_OK)
        say(c, err.text);
    else
        say(c, rest[0] != '\0' ? "System prompt set." : "System prompt removed.");
}

static void do_clear(chat *c, const char *rest) {
    (void)rest;
    pergola_session_clear(c->session);
    say(c, "The conversation is forgotten; the system prompt stays.");
}

static void do_undo(chat *c, const char *rest) {
    (void)rest;
    say(c, pergola_session_undo(c->session) ? "The last question and its answer are forgotten."
                                            : "There is nothing to take back.");
}

static void do_stats(chat *c, const char *rest) {
    (void)rest;
    pergola_model_info info = {.size = sizeof info};
    pergola_model_get_info(c->model, &info);
    char line[512];
    (void)snprintf(line, sizeof line, "%s on %s (%s), context of %u tokens", info.name, info.backend,
                   info.device, info.context);
    say(c, line);
    if (!c->has_last) {
        say(c, "No answer yet.");
        return;
    }
    pgl_talk_statistics(&c->last, line, sizeof line);
    say(c, line);
    uint32_t used = c->last.prompt_tokens + c->last.answer_tokens;
    (void)snprintf(line, sizeof line, "%u of %u tokens of the context used, seed %llu", used, info.context,
                   (unsigned long long)c->last.seed);
    say(c, line);
}

static void do_quit(chat *c, const char *rest) {
    (void)rest;
    c->done = true;
}

static const struct {
    const char *name, *help;
    void (*run)(chat *c, const char *rest);
} chat_commands[] = {
    {"/help", "this list", do_help},
    {"/think", "let the model think before it answers", do_think},
    {"/nothink", "let it answer at once", do_nothink},
    {"/system", "[TEXT]  set the system prompt; without TEXT, remove it", do_system},
    {"/undo", "forget the last question and its answer", do_undo},
    {"/clear", "forget the conversation", do_clear},
    {"/stats", "speed and size of the last answer", do_stats},
    {"/quit", "leave (also Ctrl-D)", do_quit},
};

static void do_help(chat *c, const char *rest) {
    (void)rest;
    for (size_t i = 0; i < PGL_COUNT(chat_commands); i++) {
        char line[128];
        (void)snprintf(line, sizeof line, "  %-10s %s", chat_commands[i].name, chat_commands[i].help);
        say(c, line);
    }
    say(c,
        "A line that ends with \\ goes on in the next one; // at the start sends a line that begins with /.\n"
        "Ctrl-C stops an answer, or clears the line.");
}

/* What is pasted in one piece may go on behind a command's line: *next is what stands there. A system prompt takes all. */
static void run_command(chat *c, const char *line, const char **next) {
    size_t length = strcspn(line, " \n\t");
    const char *rest = line + length + strspn(line + length, " \n\t");
    const char *end = strchr(line, '\n');
    *next = "";
    const char *names[PGL_COUNT(chat_commands)];
    for (size_t i = 0; i < PGL_COUNT(chat_commands); i++) {
        names[i] = chat_commands[i].name;
        if (strlen(names[i]) == length && memcmp(names[i], line, length) == 0) {
            if (end != NULL && chat_commands[i].run != do_system)
                *next = end + 1;
            chat_commands[i].run(c, rest);
            return;
        }
    }
    char word[32], text[160];
    (void)snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), line);
    const char *near = pgl_nearest(word, names, PGL_COUNT(names));
    (void)snprintf(text, sizeof text, "Unknown command %s%s%s%s", word,
                   near != NULL ? "; did you mean " : "; see /help", near != NULL ? near : "",
                   near != NULL ? "?" : "");
    say(c, text);
}

/* ---- answers ---- */

static void answer(chat *c, const char *text) {
    pergola_error err;
    pergola_result result = {.size = sizeof result};
    pergola_status status = pgl_talk_generate(&c->view, text, &c->generate, &result, &err);
    if (c->view.begun && c->view.last != '\n')
        (void)fputc('\n', stdout);
    if (status == PERGOLA_OK) {
        c->last = result;
        c->has_last = true;
        if (result.finish == PERGOLA_FINISH_CANCELLED)
            say(c, "(stopped)");
        else if (result.finish == PERGOLA_FINISH_LENGTH)
            say(c, "(cut: the limit of tokens is reached)");
    } else {
        (void)fprintf(stderr, "pergola chat: %s\n", err.text);
        if (status == PERGOLA_CONTEXT_FULL)
            say(c, "The conversation is longer than the context: /undo or /clear makes room.");
        if (!c->view.terminal)
            c->code = PGL_EXIT_FAILURE; /* a script is to learn of it */
    }
    if (c->view.terminal)
        (void)fputc('\n', stdout);
    (void)fflush(stdout);
    if (ferror(stdout))
        c->done = true;
}

/* ---- lines ---- */

/* One message: lines as long as they end with a backslash. */
static pgl_line_end read_message(chat *c, pgl_buf *message) {
    pgl_buf line = PGL_BUF_INIT;
    pgl_line_end end = PGL_LINE_OK;
    pgl_buf_clear(message);
    bool more = true;
    for (const char *prompt = "> "; more && end == PGL_LINE_OK; prompt = ". ") {
        end = pgl_line_editor_read(c->editor, prompt, &line);
        if (end != PGL_LINE_OK)
            break;
        more = line.size > 0 && line.data[line.size - 1] == '\\';
        size_t n = line.size - (more ? 1 : 0);
        if (!pgl_buf_append(message, line.data, n) || (more && !pgl_buf_putc(message, '\n')))
            end = PGL_LINE_FAILED;
    }
    pgl_buf_fini(&line);
    return end == PGL_LINE_EOF && message->size > 0 ? PGL_LINE_OK : end;
}

static void take_message(chat *c, const pgl_buf *message) {
    const char *text = pgl_buf_text(message);
    if (text[strspn(text, " \t\n")] == '\0')
        return;
    pgl_line_editor_remember(c->editor, text);
    if (strlen(text) != message->size || !pgl_utf8_valid(text, message->size)) {
        say(c, "This is not UTF-8 text.");
        return;
    }
    while (text[0] == '/' && text[1] != '/' && !c->done)
        run_command(c, text, &text);
    if (text[strspn(text, " \t\n")] != '\0' && !c->done)
        answer(c, text[0] == '/' ? text + 1 : text);
}

static void converse(chat *c) {
    pgl_buf message = PGL_BUF_INIT;
    while (!c->done) {
        pgl_talk_forget_interrupt();
        pgl_line_end end = read_message(c, &message);
        if (end == PGL_LINE_OK) {
            take_message(c, &message);
        } else if (end == PGL_LINE_INTERRUPTED) {
            say(c, c->view.terminal ? "\n(/quit or Ctrl-D leaves)" : "interrupted");
            if (!c->view.terminal) {
                c->code = PGL_EXIT_INTERRUPTED;
                break;
            }
        } else {
            if (end == PGL_LINE_FAILED)
                say(c, "out of memory");
            break;
        }
    }
    if (c->view.terminal && !c->done)
        (void)fputc('\n', stdout);
    pgl_buf_fini(&message);
}

/* ---- start ---- */

static bool history_path(char *out, size_t size) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (state != NULL && state[0] == '/')
        n = snprintf(out, size, "%s/pergola/chat_history", state);
    else if (home != NULL && home[0] == '/')
        n = snprintf(out, size, "%s/.local/state/pergola/chat_history", home);
    return n > 0 && (size_t)n < size;
}

static bool open_session(chat *c) {
    pergola_session_options options;
    pergola_session_options_init(&options);
    options.system = c->options->system;
    options.thinking = c->options->think;
    pergola_error err;
    if (pergola_session_open(c->model, &options, &c->session, &err) == PERGOLA_OK)
        return true;
    (void)fprintf(stderr, "pergola chat: %s\n", err.text);
    return false;
}

static void greet(const chat *c) {
    pergola_model_info info = {.size = sizeof info};
    pergola_model_get_info(c->model, &info);
    if (c->view.terminal)
        (void)printf("%s, %s (%s), %u tokens of context. /help lists commands.\n\n", info.name, info.backend,
                     info.device, info.context);
}

static int run(const pgl_command *command, const pgl_talk_options *o, bool seed_given, bool no_history) {
    chat c = {.options = o, .code = PGL_EXIT_FAILURE};
    c.model = pgl_talk_open(command, o, &c.code);
    if (c.model == NULL)
        return c.code;
    char path[4096];
    bool kept = !no_history && history_path(path, sizeof path);
    c.editor = pgl_line_editor_open(kept ? path : NULL);
    if (c.editor != NULL && open_session(&c)) {
        bool terminal = pgl_line_editor_is_terminal(c.editor);
        c.view = (pgl_talk_view){.session = c.session,
                                 .to = stdout,
                                 .terminal = terminal,
                                 .color = terminal && pgl_talk_wants_color(),
                                 .reasoning = terminal};
        c.generate = pgl_talk_generate_options(c.model, o, seed_given);
        c.code = PGL_EXIT_OK;
        pgl_talk_catch_interrupt();
        greet(&c);
        converse(&c);
    }
    pgl_line_editor_close(c.editor);
    pergola_session_close(c.session);
    pergola_model_close(c.model);
    return c.code;
}

int pgl_cmd_chat(int argc, char **argv) {
    pgl_talk_options o = pgl_talk_defaults();
    bool no_history = false;
    enum { OWN_ROWS = 1 };
    pgl_option options[PGL_TALK_ROWS + OWN_ROWS] = {
        {.name = "no-history",
         .kind = PGL_OPTION_FLAG,
         .target = &no_history,
         .help = "do not keep what is typed for the next time"},
    };
    pgl_talk_rows(&o, options + OWN_ROWS);
    pgl_command command = {
        .name = "chat",
        .summary = "A conversation with a model in the terminal.",
        .description =
            "/help inside lists the commands: /think, /nothink, /system, /undo, /clear, /stats, /quit.\n"
            "Ctrl-C stops an answer and not the program. What is typed is kept in\n"
            "$XDG_STATE_HOME/pergola/chat_history (~/.local/state/...), answers are not.\n"
            "\n"
            "Without a terminal each line of standard input is a message, and only answers go to\n"
            "standard output.",
        .options = options,
        .n_options = PGL_COUNT(options),
    };
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    bool seed_given = false;
    for (size_t i = 0; i < PGL_COUNT(options); i++)
        if (options[i].target == &o.seed)
            seed_given = options[i].source != PGL_OPTION_DEFAULT;
    if (!pgl_talk_check(&command, &o, &code))
        return code;
    return run(&command, &o, seed_given, no_history);
}
