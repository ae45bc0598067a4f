/* pergola parse: raw model text to the message that the API delivers. No model is loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "text/decode.h"
#include "text/message.h"

#define MAX_INPUT_BYTES ((size_t)64 << 20)
#define CALL_ID "call_"

typedef struct job {
    const char *tools_file, *thinking, *stop, *finish;
    bool stream;
    uint32_t cut;
    pgl_error *err;
} job;

static pgl_status read_stdin(pgl_buf *out, pgl_error *err) {
    char piece[1 << 14];
    size_t n;
    do { /* on a terminal the end is not there a second time */
        n = fread(piece, 1, sizeof piece, stdin);
        if (out->size + n > MAX_INPUT_BYTES)
            return pgl_fail(err, PGL_E_TOO_LARGE, "standard input is over %zu bytes", MAX_INPUT_BYTES);
        if (!pgl_buf_append(out, piece, n))
            return pgl_fail(err, PGL_E_MEMORY, "no memory for standard input");
    } while (n > 0 && !feof(stdin));
    return ferror(stdin) ? pgl_fail(err, PGL_E_IO, "standard input could not be read") : PGL_OK;
}

/* The model ends a turn with one of these; as text they end it too. */
static size_t turn_size(const pgl_buf *text) {
    static const char *const ENDS[] = {"<|im_end|>", "<|endoftext|>"};
    size_t size = text->size;
    for (size_t i = 0; i < PGL_COUNT(ENDS); i++) {
        const char *at = memmem(pgl_buf_text(text), size, ENDS[i], strlen(ENDS[i]));
        if (at != NULL)
            size = (size_t)(at - text->data);
    }
    return size;
}

static void put_string(pgl_buf *line, const char *text, size_t size) {
    if (!pgl_json_put_string(line, text, size))
        (void)pgl_buf_puts(line, "null");
}

/* One line for each delta, as chat completion chunks have them. */
static void print_delta(void *user, const pgl_output_delta *d) {
    static const char *const NAMES[] = {"reasoning_content", "content"};
    pgl_buf line = PGL_BUF_INIT;
    (void)user;
    bool ok = true;
    switch (d->kind) {
    case PGL_OUTPUT_REASONING:
    case PGL_OUTPUT_CONTENT:
        ok = pgl_buf_printf(&line, "{\"%s\":", NAMES[d->kind == PGL_OUTPUT_CONTENT]);
        put_string(&line, d->text, d->size);
        break;
    case PGL_OUTPUT_CALL:
        ok = pgl_buf_printf(&line,
                            "{\"tool_calls\":[{\"index\":%u,\"id\":\"" CALL_ID
                            "%u\",\"type\":\"function\",\"function\":{\"name\":",
                            d->call, d->call);
        put_string(&line, d->text, d->size);
        ok = ok && pgl_buf_puts(&line, ",\"arguments\":\"\"}}]");
        break;
    case PGL_OUTPUT_ARGUMENTS:
        ok = pgl_buf_printf(&line, "{\"tool_calls\":[{\"index\":%u,\"function\":{\"arguments\":", d->call);
        put_string(&line, d->text, d->size);
        ok = ok && pgl_buf_puts(&line, "}}]");
        break;
    case PGL_OUTPUT_CALL_END:
        break;
    }
    if (ok && line.size > 0)
        (void)printf("%s}\n", line.data);
    pgl_buf_fini(&line);
}

/* Feeds the text in pieces, as an engine would: whole characters only. */
static bool feed(pgl_output *output, const pgl_message *message, const char *text, size_t size,
                 size_t piece) {
    pgl_decoder decoder;
    pgl_buf whole = PGL_BUF_INIT;
    bool ok = true;
    pgl_decoder_init(&decoder, NULL, false);
    decoder.replace_nul = true; /* as the server does */
    for (size_t at = 0; ok && at < size && !message->stopped; at += piece) {
        pgl_buf_clear(&whole);
        ok = pgl_decoder_push_bytes(&decoder, text + at, piece < size - at ? piece : size - at, &whole);
        pgl_output_push(output, pgl_buf_text(&whole), whole.size);
    }
    pgl_buf_clear(&whole);
    ok = ok && pgl_decoder_finish(&decoder, &whole);
    pgl_output_push(output, pgl_buf_text(&whole), whole.size);
    pgl_buf_fini(&whole);
    return ok && !pgl_output_failed(output);
}

static const char *finish_reason(const job *j, const pgl_message *m) {
    if (strcmp(j->finish, "length") == 0 && !m->stopped)
        return "length";
    return m->n_calls > 0 && !m->stopped ? "tool_calls" : "stop";
}

static pgl_status print_message(const job *j, const pgl_message *m) {
    pgl_buf out = PGL_BUF_INIT;
    bool ok = j->stream ? pgl_buf_puts(&out, "{") : pgl_message_put_json(m, CALL_ID, &out);
    if (ok && !j->stream)
        out.size--; /* the closing brace */
    ok = ok && pgl_buf_printf(&out, "%s\"finish_reason\":\"%s\"}", j->stream ? "" : ",", finish_reason(j, m));
    if (ok)
        (void)printf("%s\n", out.data);
    pgl_buf_fini(&out);
    return ok ? PGL_OK : pgl_fail(j->err, PGL_E_MEMORY, "no memory for the message");
}

static pgl_status parse(const job *j, const pgl_buf *tools, const pgl_buf *text, pgl_stop *stop) {
    pgl_message message = {.stop = stop, .forward = j->stream ? print_delta : NULL};
    pgl_output_options options = {.in_thought = strcmp(j->thinking, "on") == 0,
                                  .no_thinking = strcmp(j->thinking, "off") == 0,
                                  .tools = {tools->data, tools->size},
                                  .sink = pgl_message_delta,
                                  .user = &message};
    pgl_output *output;
    pgl_status status = pgl_output_open(&options, &output, j->err);
    if (status != PGL_OK)
        return status;
    size_t size = turn_size(text);
    bool ok = feed(output, &message, pgl_buf_text(text), size, j->cut == 0 ? size + 1 : j->cut);
    pgl_output_finish(output, strcmp(j->finish, "length") == 0);
    pgl_message_finish(&message);
    status = ok && !pgl_output_failed(output) && !message.failed
                 ? print_message(j, &message)
                 : pgl_fail(j->err, PGL_E_MEMORY, "no memory for the message");
    pgl_output_close(output);
    pgl_message_fini(&message);
    return status;
}

static pgl_status run(const job *j) {
    pgl_buf tools = PGL_BUF_INIT, text = PGL_BUF_INIT;
    pgl_stop_string string = {j->stop, j->stop == NULL ? 0 : strlen(j->stop)};
    pgl_stop *stop = NULL;
    pgl_status status = pgl_stop_open(&string, j->stop == NULL ? 0 : 1, &stop, j->err);
    if (status == PGL_OK && j->tools_file != NULL)
        status = pgl_fs_read(j->tools_file, MAX_INPUT_BYTES, &tools, j->err);
    if (status == PGL_OK)
        status = read_stdin(&text, j->err);
    if (status == PGL_OK)
        status = parse(j, &tools, &text, stop);
    pgl_stop_close(stop);
    pgl_buf_fini(&tools);
    pgl_buf_fini(&text);
    return status;
}

int pgl_cmd_parse(int argc, char **argv) {
    static const char *const THINKING[] = {"on", "off", "auto", NULL};
    static const char *const FINISH[] = {"stop", "length", NULL};
    pgl_error err;
    job j = {.thinking = "auto", .finish = "stop", .err = &err};
    pgl_option options[] = {
        {.name = "tools",
         .kind = PGL_OPTION_STRING,
         .target = &j.tools_file,
         .value = "FILE",
         .help = "the request's list of tools, JSON; without it nothing is taken for a call"},
        {.name = "thinking",
         .kind = PGL_OPTION_CHOICE,
         .target = &j.thinking,
         .value = "HOW",
         .choices = THINKING,
         .help = "on: the prompt ended inside a think block; off: tags of thinking are text;\n"
                 "auto (the default): a leading <think> opens one"},
        {.name = "stop",
         .kind = PGL_OPTION_STRING,
         .target = &j.stop,
         .value = "TEXT",
         .help = "stop string for the content"},
        {.name = "finish",
         .kind = PGL_OPTION_CHOICE,
         .target = &j.finish,
         .value = "WHY",
         .choices = FINISH,
         .help = "stop (the default): the model ended its turn; length: a limit cut it"},
        {.name = "stream",
         .kind = PGL_OPTION_FLAG,
         .target = &j.stream,
         .help = "print the deltas, one JSON object a line, instead of the message"},
        {.name = "cut",
         .kind = PGL_OPTION_U32,
         .target = &j.cut,
         .value = "N",
         .help = "feed the text in pieces of N bytes; 0: whole"},
    };
    pgl_command command = {
        .name = "parse",
        .summary =
            "Reads raw model text from standard input and writes the message that the API delivers, as JSON.",
        .options = options,
        .n_options = PGL_COUNT(options)};
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    return run(&j) == PGL_OK ? PGL_EXIT_OK : pgl_cli_fail("parse", &err);
}
