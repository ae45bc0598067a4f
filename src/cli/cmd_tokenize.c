/* pergola tokenize and detokenize: text to ids and back, with nothing of the model loaded but its tokenizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "text/decode.h"
#include "text/files.h"

#define MAX_INPUT_BYTES PGL_TOKENIZER_MAX_BYTES

static pgl_status read_stdin(pgl_buf *out, pgl_error *err) {
    for (;;) {
        if (out->size > MAX_INPUT_BYTES)
            return pgl_fail(err, PGL_E_TOO_LARGE, "standard input is over %zu bytes", MAX_INPUT_BYTES);
        if (!pgl_buf_reserve(out, (size_t)1 << 16))
            return pgl_fail(err, PGL_E_MEMORY, "no memory for standard input");
        size_t n = fread(out->data + out->size, 1, (size_t)1 << 16, stdin);
        out->size += n;
        out->data[out->size] = 0;
        if (n == 0 || feof(stdin)) /* on a terminal the end is not there a second time */
            return ferror(stdin) ? pgl_fail(err, PGL_E_IO, "standard input could not be read") : PGL_OK;
    }
}

static void put_ids(const pgl_ids *ids) {
    (void)fputs("{\"ids\":[", stdout);
    for (size_t i = 0; i < ids->count; i++)
        (void)printf("%s%d", i == 0 ? "" : ",", (int)ids->data[i]);
    (void)fputs("]}\n", stdout);
}

static pgl_status put_text(const pgl_buf *text, pgl_error *err) {
    pgl_buf quoted = PGL_BUF_INIT;
    bool ok = pgl_json_put_string(&quoted, pgl_buf_text(text), text->size) && pgl_buf_putc(&quoted, '\n');
    if (ok)
        (void)fwrite(quoted.data, 1, quoted.size, stdout);
    pgl_buf_fini(&quoted);
    return ok ? PGL_OK : pgl_fail(err, PGL_E_MEMORY, "no memory for the text");
}

/* What both commands are given, and work with. */
typedef struct job {
    const char *model;
    const char *chat_file;
    bool plain, lines, skip_special, text, as_is;
    pgl_text_files files;
    pgl_error *err;
} job;

static pgl_status open_model(job *j) {
    char path[4096];
    pgl_status status = pgl_find_model(j->model, path, sizeof path, j->err);
    return status == PGL_OK ? pgl_text_files_open(path, &j->files, j->err) : status;
}

/* Calls one(job, line) for each line of standard input, or once for all of it. */
static pgl_status each_input(job *j, pgl_status (*one)(job *, pgl_json_span)) {
    pgl_buf input = PGL_BUF_INIT;
    pgl_status status = read_stdin(&input, j->err);
    const char *at = pgl_buf_text(&input), *end = at + input.size;
    if (status == PGL_OK && !j->lines)
        status = one(j, (pgl_json_span){at, input.size});
    for (size_t number = 1; status == PGL_OK && j->lines && at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (stop == NULL)
            stop = end;
        status = one(j, (pgl_json_span){at, (size_t)(stop - at)});
        if (status != PGL_OK)
            pgl_error_prefix(j->err, "line %zu", number);
        at = stop + 1;
    }
    pgl_buf_fini(&input);
    return status;
}

static pgl_status tokenize_one(job *j, pgl_json_span input) {
    static const pgl_json_options OPTIONS = {.name = "input", .allow_nul = true, .replace_surrogates = true};
    pgl_buf text = PGL_BUF_INIT;
    pgl_ids ids = {0};
    pgl_status status = j->lines ? pgl_json_check(input.text, input.size, &OPTIONS, j->err) : PGL_OK;
    if (status == PGL_OK && j->lines && !pgl_json_raw_string(pgl_json_raw(input, NULL, 0), &text))
        status = pgl_fail(j->err, PGL_E_INVALID, "input: expected a JSON string");
    if (status == PGL_OK)
        status = pgl_tokenizer_encode(j->files.tokenizer, j->lines ? pgl_buf_text(&text) : input.text,
                                      j->lines ? text.size : input.size,
                                      j->plain ? PGL_ENCODE_TEXT : PGL_ENCODE_RAW, &ids, j->err);
    if (status == PGL_OK)
        put_ids(&ids);
    pgl_ids_fini(&ids);
    pgl_buf_fini(&text);
    return status;
}

/* A list of messages, or the body of a chat request. */
static void read_chat_request(pgl_json_span input, pgl_chat_request *request) {
    pgl_json_span root = pgl_json_raw(input, NULL, 0);
    request->thinking = -1;
    request->messages = root;
    if (root.text == NULL || root.text[0] != '{')
        return;
    request->messages = pgl_json_raw_member(root, "messages");
    request->tools = pgl_json_raw_member(root, "tools");
    request->kwargs = pgl_json_raw_member(root, "chat_template_kwargs");
    pgl_json_span thinking = pgl_json_raw_member(root, "enable_thinking");
    if (thinking.text != NULL && (thinking.text[0] == 't' || thinking.text[0] == 'f'))
        request->thinking = thinking.text[0] == 't';
}

static pgl_status render_one(job *j, pgl_json_span input) {
    static const pgl_json_options OPTIONS = {
        .name = "chat", .last_wins = true, .allow_nul = true, .replace_surrogates = true};
    if (j->files.chat == NULL)
        return pgl_fail(j->err, PGL_E_NOT_FOUND, "the checkpoint has no chat template");
    pgl_status status = pgl_json_check(input.text, input.size, &OPTIONS, j->err);
    if (status != PGL_OK)
        return status;
    pgl_chat_request request = {.end = j->as_is ? PGL_CHAT_AS_IS : PGL_CHAT_ANSWER};
    pgl_chat_prompt prompt;
    read_chat_request(input, &request);
    status = pgl_chat_render(j->files.chat, &request, &prompt, j->err);
    if (status == PGL_OK && !j->text)
        put_ids(&prompt.ids);
    else if (status == PGL_OK && j->lines)
        status = put_text(&prompt.text, j->err);
    else if (status == PGL_OK)
        (void)fwrite(pgl_buf_text(&prompt.text), 1, prompt.text.size, stdout);
    pgl_chat_prompt_fini(&prompt);
    return status;
}

static pgl_status render_file(job *j) {
    pgl_buf text = PGL_BUF_INIT;
    pgl_status status = pgl_fs_read(j->chat_file, PGL_CHAT_MAX_BYTES, &text, j->err);
    if (status == PGL_OK)
        status = render_one(j, (pgl_json_span){pgl_buf_text(&text), text.size});
    pgl_buf_fini(&text);
    return status;
}

int pgl_cmd_tokenize(int argc, char **argv) {
    pgl_error err;
    job j = {.err = &err};
    pgl_option options[] = {
        PGL_OPTION_ROW_MODEL(&j.model),
        {.name = "chat",
         .kind = PGL_OPTION_STRING,
         .target = &j.chat_file,
         .value = "FILE",
         .help = "render the messages of FILE (a list, or the body of a chat request) instead;\n"
                 "- takes standard input"},
        {.name = "text",
         .kind = PGL_OPTION_FLAG,
         .target = &j.text,
         .help = "with --chat: write the rendered text instead of its ids"},
        {.name = "as-is",
         .kind = PGL_OPTION_FLAG,
         .target = &j.as_is,
         .help = "with --chat: the messages alone, without the opening of an answer"},
        {.name = "plain",
         .kind = PGL_OPTION_FLAG,
         .target = &j.plain,
         .help = "control tokens that the text spells stay text"},
        {.name = "lines",
         .kind = PGL_OPTION_FLAG,
         .target = &j.lines,
         .help = "standard input has a JSON string (with --chat -: a request) on each line;\n"
                 "one result a line"},
    };
    pgl_command command = {.name = "tokenize",
                           .summary =
                               "Reads text from standard input and writes its token ids as {\"ids\":[..]}.",
                           .options = options,
                           .n_options = PGL_COUNT(options)};
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    pgl_status status = open_model(&j);
    if (status == PGL_OK && j.chat_file != NULL && strcmp(j.chat_file, "-") != 0)
        status = render_file(&j);
    else if (status == PGL_OK)
        status = each_input(&j, j.chat_file != NULL ? render_one : tokenize_one);
    pgl_text_files_close(&j.files);
    return status == PGL_OK ? PGL_EXIT_OK : pgl_cli_fail("tokenize", &err);
}

/* [1,2,3] or {"ids":[1,2,3]} */
static pgl_status read_ids(job *j, pgl_json_span input, pgl_ids *ids) {
    static const pgl_json_options OPTIONS = {.name = "input"};
    json_t *root = NULL;
    pgl_status status = pgl_json_parse(input.text, input.size, &OPTIONS, &root, j->err);
    if (status != PGL_OK)
        return status;
    const json_t *list = json_is_object(root) ? json_object_get(root, "ids") : root;
    if (!json_is_array(list))
        status =
            pgl_fail(j->err, PGL_E_INVALID, "input: expected a list of token ids, or an object with \"ids\"");
    for (size_t i = 0; status == PGL_OK && i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        json_int_t id = json_integer_value(one);
        if (!json_is_integer(one) || id < 0 || id > INT32_MAX ||
            pgl_tokenizer_kind(j->files.tokenizer, (int32_t)id) == PGL_TOKEN_NONE)
            status = pgl_fail(j->err, PGL_E_INVALID, "ids[%zu]: expected the id of a token (0 to %d)", i,
                              (int)pgl_tokenizer_n_ids(j->files.tokenizer) - 1);
        else if (!pgl_ids_append(ids, (int32_t)id))
            status = pgl_fail(j->err, PGL_E_MEMORY, "no memory for the ids");
    }
    json_decref(root);
    return status;
}

static pgl_status detokenize_one(job *j, pgl_json_span input) {
    pgl_ids ids = {0};
    pgl_buf text = PGL_BUF_INIT;
    pgl_status status = read_ids(j, input, &ids);
    if (status == PGL_OK && !pgl_decode(j->files.tokenizer, ids.data, ids.count, j->skip_special, &text))
        status = pgl_fail(j->err, PGL_E_MEMORY, "no memory for the text");
    if (status == PGL_OK && j->lines)
        status = put_text(&text, j->err);
    else if (status == PGL_OK && text.size > 0)
        (void)fwrite(text.data, 1, text.size, stdout);
    pgl_buf_fini(&text);
    pgl_ids_fini(&ids);
    return status;
}

int pgl_cmd_detokenize(int argc, char **argv) {
    pgl_error err;
    job j = {.err = &err};
    pgl_option options[] = {
        PGL_OPTION_ROW_MODEL(&j.model),
        {.name = "skip-special",
         .kind = PGL_OPTION_FLAG,
         .target = &j.skip_special,
         .help = "leave special tokens out of the text"},
        {.name = "lines",
         .kind = PGL_OPTION_FLAG,
         .target = &j.lines,
         .help = "standard input has a list of ids on each line; one JSON string a line comes out"},
    };
    pgl_command command = {
        .name = "detokenize",
        .summary =
            "Reads token ids, [1,2,3] or {\"ids\":[1,2,3]}, from standard input and writes their text.",
        .options = options,
        .n_options = PGL_COUNT(options)};
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    pgl_status status = open_model(&j);
    if (status == PGL_OK)
        status = each_input(&j, detokenize_one);
    pgl_text_files_close(&j.files);
    return status == PGL_OK ? PGL_EXIT_OK : pgl_cli_fail("detokenize", &err);
}
