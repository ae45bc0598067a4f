/* Owns the compiled templates and the special tokens' spellings. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "bridge/bridge.h"
#include "text/chat_impl.h"
#include "text/json_text.h"

struct pgl_chat {
    const pgl_tokenizer *tokenizer;
    pgl_bridge_template *plain, *with_tools; /* the second may be NULL */
    pgl_buf variables; /* special tokens, as members of an object: `"eos_token":"..",` */
    uint32_t used;     /* noncharacters that the templates hold */
    int32_t turn_id;   /* <|im_start|>, or -1 */
};

/* A template may take this many steps, and some for each byte of its variables. */
#define STEPS 4000000u
#define STEPS_PER_BYTE 16u

/* ---- open ---- */

static pgl_status compile(pgl_chat *chat, const char *source, size_t size, pgl_bridge_template **out,
                          pgl_error *err) {
    char why[512] = "";
    pgl_bridge_code code = pgl_bridge_template_open(source, size, out, why, sizeof why);
    if (code != PGL_BRIDGE_OK)
        return pgl_fail(err, PGL_E_FORMAT, "chat template: %s", why);
    pgl_chat_mark_used(source, size, &chat->used);
    return PGL_OK;
}

static pgl_status compile_string(pgl_chat *chat, pgl_json_span string, pgl_bridge_template **out,
                                 pgl_error *err) {
    pgl_buf source = PGL_BUF_INIT;
    pgl_status status =
        pgl_json_raw_string(string, &source)
            ? compile(chat, pgl_buf_text(&source), source.size, out, err)
            : pgl_fail(err, PGL_E_FORMAT, "tokenizer_config.json: chat_template is %s, expected a string",
                       pgl_json_kind_name(string));
    pgl_buf_fini(&source);
    return status;
}

static pgl_status compile_from_config(pgl_chat *chat, pgl_json_span t, pgl_error *err) {
    if (pgl_json_absent(t))
        return pgl_fail(err, PGL_E_NOT_FOUND,
                        "no chat template: neither chat_template.jinja nor chat_template in "
                        "tokenizer_config.json is there");
    if (pgl_json_kind(t) != '[')
        return compile_string(chat, t, &chat->plain, err);
    pgl_json_iter it = pgl_json_iter_begin(t);
    pgl_json_span key, one;
    pgl_status status = PGL_OK;
    while (status == PGL_OK && pgl_json_iter_next(&it, &key, &one)) {
        pgl_json_span name = pgl_json_raw_member(one, "name");
        pgl_bridge_template **out = pgl_json_string_is(name, "default")    ? &chat->plain
                                    : pgl_json_string_is(name, "tool_use") ? &chat->with_tools
                                                                           : NULL;
        if (out != NULL && *out == NULL)
            status = compile_string(chat, pgl_json_raw_member(one, "template"), out, err);
    }
    if (status == PGL_OK && chat->plain == NULL)
        status = pgl_fail(err, PGL_E_FORMAT,
                          "tokenizer_config.json: chat_template has none that is named \"default\"");
    return status;
}

/* "eos_token": "..", in either of its two forms. */
static bool read_specials(pgl_chat *chat, pgl_json_span config) {
    static const char *const NAMES[] = {"bos_token", "eos_token", "pad_token", "unk_token",
                                        "sep_token", "cls_token", "mask_token"};
    enum { N = sizeof NAMES / sizeof NAMES[0] };
    pgl_json_span v[N];
    pgl_json_members(config, NAMES, v, N);
    for (size_t i = 0; i < N; i++) {
        pgl_json_span text = pgl_json_kind(v[i]) == '{' ? pgl_json_raw_member(v[i], "content") : v[i];
        if (pgl_json_kind(text) != '"')
            continue;
        if (!pgl_buf_printf(&chat->variables, "\"%s\":", NAMES[i]) ||
            !pgl_buf_append(&chat->variables, text.text, text.size) || !pgl_buf_putc(&chat->variables, ','))
            return false;
    }
    return true;
}

static pgl_status check_added(const pgl_tokenizer *t, pgl_error *err) {
    for (size_t i = 0; i < pgl_tokenizer_n_added(t); i++) {
        size_t size;
        int32_t id = pgl_tokenizer_added(t, i);
        const char *text = pgl_tokenizer_bytes(t, id, &size);
        if (pgl_utf8_count(text, size) < 2)
            return pgl_fail(err, PGL_E_UNSUPPORTED,
                            "tokenizer.json: added token %d is a single character: message text could not be "
                            "kept apart from it",
                            (int)id);
    }
    return PGL_OK;
}

pgl_status pgl_chat_open(const pgl_tokenizer *tokenizer, const char *source, size_t size, const char *config,
                         size_t config_size, pgl_chat **out, pgl_error *err) {
    static const pgl_json_options OPTIONS = {
        .name = "tokenizer_config.json", .last_wins = true, .allow_nul = true, .replace_surrogates = true};
    *out = NULL;
    pgl_chat *chat = pgl_new(1, sizeof *chat);
    if (chat == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "chat template: out of memory");
    chat->tokenizer = tokenizer;
    chat->turn_id = pgl_tokenizer_find_added(tokenizer, "<|im_start|>", strlen("<|im_start|>"));
    pgl_status status = check_added(tokenizer, err);
    pgl_json_span root = {config, config == NULL ? 0 : config_size};
    if (status == PGL_OK && config != NULL)
        status = pgl_json_check(config, config_size, &OPTIONS, err);
    if (status == PGL_OK)
        status = source != NULL ? compile(chat, source, size, &chat->plain, err)
                                : compile_from_config(chat, pgl_json_raw_member(root, "chat_template"), err);
    if (status == PGL_OK && !read_specials(chat, root))
        status = pgl_fail(err, PGL_E_MEMORY, "chat template: out of memory");
    if (status != PGL_OK) {
        pgl_chat_close(chat);
        return status;
    }
    *out = chat;
    return PGL_OK;
}

void pgl_chat_close(pgl_chat *chat) {
    if (chat == NULL)
        return;
    pgl_bridge_template_close(chat->plain);
    pgl_bridge_template_close(chat->with_tools);
    pgl_buf_fini(&chat->variables);
    free(chat);
}

/* ---- the variables of one request ---- */

typedef struct rendering {
    const pgl_chat *chat;
    const pgl_chat_request *request;
    pgl_chat_prompt *out;
    pgl_error *err;
    pgl_chat_list list;
    pgl_chat_writer w;
    uint32_t marker; /* stands at the end of a message that is continued */
    bool continues;
} rendering;

static pgl_status out_of_memory(rendering *r) {
    return pgl_fail(r->err, PGL_E_MEMORY, "chat: out of memory");
}

static pgl_status check_spans(rendering *r) {
    const struct {
        const char *name;
        pgl_json_span span;
    } parts[] = {{"messages", r->request->messages},
                 {"tools", r->request->tools},
                 {"chat_template_kwargs", r->request->kwargs}};
    size_t total = 0;
    for (size_t i = 0; i < 3; i++) {
        total += parts[i].span.size;
        if (parts[i].span.size > PGL_CHAT_MAX_BYTES || total > PGL_CHAT_MAX_BYTES)
            return pgl_fail(r->err, PGL_E_TOO_LARGE, "messages and tools of over %zu bytes",
                            PGL_CHAT_MAX_BYTES);
        pgl_json_options options = {.name = parts[i].name,
                                    .max_bytes = PGL_CHAT_MAX_BYTES,
                                    .max_depth = PGL_CHAT_MAX_DEPTH,
                                    .last_wins = true,
                                    .allow_nul = true,
                                    .replace_surrogates = true};
        if (parts[i].span.text == NULL)
            continue;
        pgl_status status = pgl_json_check(parts[i].span.text, parts[i].span.size, &options, r->err);
        if (status != PGL_OK) {
            (void)snprintf(r->out->param, sizeof r->out->param, "%s", parts[i].name);
            return status;
        }
    }
    return PGL_OK;
}

/* Two noncharacters that nothing in the request or the template holds. */
static pgl_status choose_noncharacters(rendering *r) {
    uint32_t used = r->chat->used;
    pgl_chat_mark_used(r->request->messages.text, r->request->messages.size, &used);
    pgl_chat_mark_used(r->request->tools.text, r->request->tools.size, &used);
    pgl_chat_mark_used(r->request->kwargs.text, r->request->kwargs.size, &used);
    uint32_t found[2] = {0, 0};
    int n = 0;
    for (uint32_t i = 0; i < 32 && n < 2; i++)
        if ((used & (1u << i)) == 0)
            found[n++] = 0xFDD0 + i;
    if (n < 2)
        return pgl_chat_refuse(r->out->param, r->err, "messages",
                               "the text holds every noncharacter from U+FDD0 to U+FDEF; two must be free");
    r->w.breaker = found[0];
    r->marker = found[1];
    return PGL_OK;
}

/* A string that is broken already, with a mark before or behind it that keeps templates from trimming there. */
static bool put_mark(rendering *r, uint32_t mark) {
    char bytes[4];
    return pgl_buf_append(&r->w.out, bytes, pgl_utf8_encode(mark, bytes));
}

static bool put_content(rendering *r, const char *name, const pgl_buf *text, bool keep_head, bool mark_end) {
    pgl_chat_writer *w = &r->w;
    pgl_buf *out = &w->out;
    if (!pgl_buf_printf(out, ",\"%s\":\"", name) || (keep_head && !put_mark(r, w->breaker)))
        return false;
    size_t quote = out->size;
    if (!pgl_chat_put_string(w, pgl_buf_text(text), text->size))
        return false;
    memmove(out->data + quote, out->data + quote + 1, out->size - quote - 1); /* its opening quote */
    out->size -= 2;                                                           /* and the closing one */
    return (!mark_end || put_mark(r, r->marker)) && pgl_buf_putc(out, '"');
}

static pgl_status put_calls(rendering *r, const pgl_chat_message *m) {
    pgl_chat_writer *w = &r->w;
    pgl_json_iter it = pgl_json_iter_begin(m->tool_calls);
    pgl_json_span key, call;
    bool ok = pgl_chat_put_own(w, ",\"tool_calls\":[");
    for (size_t i = 0; ok && pgl_json_iter_next(&it, &key, &call); i++) {
        pgl_json_span function = pgl_json_raw_member(call, "function");
        if (pgl_json_kind(function) != '{')
            function = call;
        pgl_json_span id = pgl_json_raw_member(call, "id");
        ok = pgl_chat_put_own(w, i == 0 ? "{\"type\":\"function\"," : ",{\"type\":\"function\",");
        if (ok && pgl_json_kind(id) == '"')
            ok =
                pgl_chat_put_own(w, "\"id\":") && pgl_chat_put_json(w, id, false) && pgl_chat_put_own(w, ",");
        ok = ok && pgl_chat_put_own(w, "\"function\":{\"name\":") &&
             pgl_chat_put_json(w, pgl_json_raw_member(function, "name"), false) &&
             pgl_chat_put_own(w, ",\"arguments\":");
        bool bad = false;
        if (ok && !pgl_chat_put_arguments(w, pgl_json_raw_member(function, "arguments"), &bad)) {
            char path[96];
            (void)snprintf(path, sizeof path, "messages[%zu].tool_calls[%zu].function.arguments", m->index,
                           i);
            return bad ? pgl_chat_refuse(r->out->param, r->err, path,
                                         "expected a JSON object, or one in a string")
                       : out_of_memory(r);
        }
        ok = ok && pgl_chat_put_own(w, "}}");
    }
    return ok && pgl_chat_put_own(w, "]") ? PGL_OK : out_of_memory(r);
}

/* What else the message has, for templates that look at it. */
static bool put_others(rendering *r, const pgl_chat_message *m) {
    static const char *const OURS[] = {"role", "content", "reasoning_content", "reasoning", "tool_calls"};
    pgl_json_iter it = pgl_json_iter_begin(m->source);
    pgl_json_span key, value;
    bool ok = true;
    while (ok && pgl_json_iter_next(&it, &key, &value)) {
        bool ours = false;
        for (size_t i = 0; i < sizeof OURS / sizeof OURS[0]; i++)
            ours = ours || pgl_json_string_is(key, OURS[i]);
        if (!ours)
            ok = pgl_chat_put_own(&r->w, ",") && pgl_chat_put_json(&r->w, key, false) &&
                 pgl_chat_put_own(&r->w, ":") && pgl_chat_put_json(&r->w, value, false);
    }
    return ok;
}

static pgl_status put_message(rendering *r, const pgl_chat_message *m, bool last) {
    static const char *const NAMES[] = {"system", "user", "assistant", "tool"};
    bool mark = last && r->continues;
    bool mark_thought = mark && m->cut;
    r->w.message_text = true;
    bool ok = pgl_buf_printf(&r->w.out, "{\"role\":\"%s\"", NAMES[m->role]) &&
              put_content(r, "content", &m->content, m->keep_head, mark && !mark_thought);
    if (ok && m->has_reasoning)
        ok = put_content(r, "reasoning_content", &m->reasoning, false, mark_thought);
    if (!ok)
        return out_of_memory(r);
    pgl_status status = m->tool_calls.text == NULL ? PGL_OK : put_calls(r, m);
    r->w.message_text = false;
    if (status != PGL_OK)
        return status;
    return put_others(r, m) && pgl_chat_put_own(&r->w, "}") ? PGL_OK : out_of_memory(r);
}

static pgl_status put_tools(rendering *r) {
    pgl_json_span tools = r->request->tools;
    if (pgl_json_absent(tools))
        return pgl_chat_put_own(&r->w, "null") ? PGL_OK : out_of_memory(r);
    if (pgl_json_kind(tools) != '[')
        return pgl_chat_refuse(r->out->param, r->err, "tools", "expected a list, found %s",
                               pgl_json_kind_name(tools));
    pgl_json_iter it = pgl_json_iter_begin(tools);
    pgl_json_span key, tool;
    for (size_t i = 0; pgl_json_iter_next(&it, &key, &tool); i++) {
        char path[96];
        (void)snprintf(path, sizeof path, "tools[%zu]", i);
        if (pgl_json_kind(tool) != '{')
            return pgl_chat_refuse(r->out->param, r->err, path, "expected an object, found %s",
                                   pgl_json_kind_name(tool));
    }
    return pgl_chat_put_json(&r->w, tools, false) ? PGL_OK : out_of_memory(r);
}

static pgl_status put_kwargs(rendering *r) {
    static const char *const RESERVED[] = {"messages", "tools", "add_generation_prompt"};
    pgl_json_span kwargs = r->request->kwargs;
    int thinking = r->request->thinking;
    if (!pgl_json_absent(kwargs) && pgl_json_kind(kwargs) != '{')
        return pgl_chat_refuse(r->out->param, r->err, "chat_template_kwargs", "expected an object, found %s",
                               pgl_json_kind_name(kwargs));
    pgl_json_iter it = pgl_json_iter_begin(kwargs);
    pgl_json_span key, value;
    while (pgl_json_iter_next(&it, &key, &value)) {
        for (size_t i = 0; i < sizeof RESERVED / sizeof RESERVED[0]; i++)
            if (pgl_json_string_is(key, RESERVED[i]))
                return pgl_chat_refuse(r->out->param, r->err, "chat_template_kwargs",
                                       "%s is set by the request itself", RESERVED[i]);
        if (pgl_json_string_is(key, "enable_thinking")) {
            char kind = pgl_json_kind(value);
            if (kind == 'n')
                continue;
            if (kind != 't' && kind != 'f')
                return pgl_chat_refuse(r->out->param, r->err, "chat_template_kwargs.enable_thinking",
                                       "expected true or false, found %s", pgl_json_kind_name(value));
            thinking = -1;
        }
        if (!pgl_chat_put_own(&r->w, ",") || !pgl_chat_put_json(&r->w, key, false) ||
            !pgl_chat_put_own(&r->w, ":") || !pgl_chat_put_json(&r->w, value, false))
            return out_of_memory(r);
    }
    if (thinking >= 0 &&
        !pgl_chat_put_own(&r->w, thinking != 0 ? ",\"enable_thinking\":true" : ",\"enable_thinking\":false"))
        return out_of_memory(r);
    return PGL_OK;
}

static pgl_status put_variables(rendering *r) {
    pgl_chat_writer *w = &r->w;
    pgl_buf_clear(&w->out);
    bool ok = pgl_chat_put_own(w, "{") &&
              pgl_buf_append(&w->out, pgl_buf_text(&r->chat->variables), r->chat->variables.size) &&
              pgl_chat_put_own(w, "\"messages\":[");
    for (size_t i = 0; ok && i < r->list.count; i++) {
        if (i > 0 && !pgl_chat_put_own(w, ","))
            return out_of_memory(r);
        pgl_status status = put_message(r, &r->list.messages[i], i + 1 == r->list.count);
        if (status != PGL_OK)
            return status;
    }
    bool opens = !r->continues && r->request->end != PGL_CHAT_AS_IS;
    ok = ok &&
         pgl_chat_put_own(w,
                          opens ? "],\"add_generation_prompt\":true" : "],\"add_generation_prompt\":false") &&
         pgl_chat_put_own(w, ",\"documents\":null,\"tools\":");
    pgl_status status = ok ? put_tools(r) : out_of_memory(r);
    if (status == PGL_OK)
        status = put_kwargs(r);
    return status == PGL_OK && !pgl_chat_put_own(w, "}") ? out_of_memory(r) : status;
}

/* ---- rendering ---- */

static size_t strftime_now(void *user, const char *format, size_t format_size, char *out, size_t room) {
    const rendering *r = user;
    char pattern[256];
    if (format_size == 0 || format_size >= sizeof pattern)
        return 0;
    memcpy(pattern, format, format_size);
    pattern[format_size] = 0;
    time_t now = r->request->now != 0 ? (time_t)r->request->now : time(NULL);
    struct tm local;
    if (localtime_r(&now, &local) == NULL)
        return 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    return strftime(out, room, pattern, &local);
#pragma GCC diagnostic pop
}

static pgl_bridge_code run_template(rendering *r, pgl_bridge_text *text, char why[512]) {
    bool tools = !pgl_json_absent(r->request->tools);
    const pgl_bridge_template *t =
        tools && r->chat->with_tools != NULL ? r->chat->with_tools : r->chat->plain;
    pgl_bridge_render render = {.context = r->w.out.data,
                                .context_size = r->w.out.size,
                                .fuel = STEPS + (uint64_t)STEPS_PER_BYTE * r->w.out.size,
                                .max_output_bytes = PGL_TOKENIZER_MAX_BYTES,
                                .strftime_now = strftime_now,
                                .user = r};
    why[0] = 0;
    return pgl_bridge_template_render(t, &render, text, why, 512);
}

static pgl_status render_text(rendering *r, pgl_bridge_text *text) {
    char why[512];
    pgl_status status = put_variables(r);
    if (status != PGL_OK)
        return status;
    pgl_bridge_code code = run_template(r, text, why);
    if (code == PGL_BRIDGE_RAISED && !r->list.has_user) {
        status = pgl_chat_list_add_user(&r->list, r->err);
        if (status == PGL_OK)
            status = put_variables(r);
        if (status != PGL_OK)
            return status;
        code = run_template(r, text, why);
    }
    switch (code) {
    case PGL_BRIDGE_OK:
        return PGL_OK;
    case PGL_BRIDGE_RAISED:
        return pgl_chat_refuse(r->out->param, r->err, "messages", "the chat template refuses them: %s", why);
    case PGL_BRIDGE_FAILED:
        return pgl_chat_refuse(r->out->param, r->err, "messages", "the chat template fails on them: %s", why);
    case PGL_BRIDGE_LIMIT:
        return pgl_fail(r->err, PGL_E_TOO_LARGE, "messages: %s", why);
    default:
        return pgl_fail(r->err, PGL_E_INTERNAL, "chat template: %s", why);
    }
}

/* The last place of needle, or NULL. */
static const char *find_last(const char *text, size_t size, const char *needle, size_t n) {
    for (size_t i = size < n ? 0 : size - n + 1; i-- > 0;)
        if (text[i] == needle[0] && memcmp(text + i, needle, n) == 0)
            return text + i;
    return NULL;
}

/* Message text is broken, so that only the template's own tags are found. */
static bool ends_in_thought(const char *text, size_t size) {
    static const char TURN[] = "<|im_start|>", OPEN[] = "<think>", CLOSE[] = "</think>";
    const char *end = text + size;
    const char *turn = find_last(text, size, TURN, sizeof TURN - 1);
    if (turn == NULL)
        turn = text;
    const char *open = find_last(turn, (size_t)(end - turn), OPEN, sizeof OPEN - 1);
    const char *close = find_last(turn, (size_t)(end - turn), CLOSE, sizeof CLOSE - 1);
    return open != NULL && (close == NULL || open > close);
}

static bool copy_without(pgl_buf *out, const char *text, size_t size, uint32_t mark) {
    char bytes[4];
    size_t n = pgl_utf8_encode(mark, bytes);
    const char *end = text + size;
    for (const char *at; (at = memmem(text, (size_t)(end - text), bytes, n)) != NULL; text = at + n)
        if (!pgl_buf_append(out, text, (size_t)(at - text)))
            return false;
    return pgl_buf_append(out, text, (size_t)(end - text));
}

/* Turns behind what the user said last: of a model that calls tools, answers and results of tools in turn. */
static size_t count_turns_behind_user(const rendering *r) {
    const pgl_chat_list *list = &r->list;
    size_t n = r->request->end != PGL_CHAT_AS_IS && !r->continues; /* the one that is opened */
    for (size_t i = list->count; i > 0 && list->messages[i - 1].role != PGL_ROLE_USER; i--) {
        bool joined = i > 1 && list->messages[i - 1].role == PGL_ROLE_TOOL &&
                      list->messages[i - 2].role == PGL_ROLE_TOOL;
        n += !joined;
    }
    return n;
}

/* Of many turns those at which later prompts part from this one: the end of the system prompt, the end of what the user
 * said last (thoughts behind it are left out once the user speaks again), and the last. */
static void keep_useful_turns(rendering *r) {
    pgl_chat_prompt *out = r->out;
    size_t n = out->n_turns, behind = count_turns_behind_user(r);
    if (n <= PGL_CHAT_MOST_TURNS)
        return;
    size_t rest = PGL_CHAT_MOST_TURNS - 1;
    size_t from = 1;
    if (behind > rest && behind < n) {
        out->turns[from++] = out->turns[n - behind];
        rest--;
    }
    memmove(out->turns + from, out->turns + n - rest, rest * sizeof *out->turns);
    out->n_turns = from + rest;
}

static bool find_turns(rendering *r) {
    const pgl_ids *ids = &r->out->ids;
    size_t capacity = 0;
    for (size_t i = 1; r->chat->turn_id >= 0 && i < ids->count; i++) {
        if (ids->data[i] != r->chat->turn_id)
            continue;
        if (!pgl_grow(&r->out->turns, sizeof *r->out->turns, &capacity, r->out->n_turns + 1))
            return false;
        r->out->turns[r->out->n_turns++] = (uint32_t)i;
    }
    bool system = r->list.messages[0].role == PGL_ROLE_SYSTEM || !pgl_json_absent(r->request->tools);
    r->out->has_system = system && r->out->n_turns > 0;
    keep_useful_turns(r);
    return true;
}

static pgl_status finish(rendering *r, const pgl_bridge_text *text) {
    size_t size = text->size;
    if (r->continues) {
        char bytes[4];
        size_t n = pgl_utf8_encode(r->marker, bytes);
        const char *at = find_last(text->data, size, bytes, n);
        if (at == NULL)
            return pgl_chat_refuse(
                r->out->param, r->err, "messages",
                "the chat template does not show the last message, which was to be continued");
        size = (size_t)(at - text->data);
    }
    r->out->continued = r->continues;
    r->out->in_thought = ends_in_thought(text->data, size);
    pgl_status status =
        pgl_tokenizer_encode_broken(r->chat->tokenizer, text->data, size, r->w.breaker, &r->out->ids, r->err);
    if (status != PGL_OK)
        return status;
    if (!copy_without(&r->out->text, text->data, size, r->w.breaker) || !find_turns(r))
        return out_of_memory(r);
    return PGL_OK;
}

static pgl_status decide_end(rendering *r) {
    const pgl_chat_message *last = &r->list.messages[r->list.count - 1];
    bool open = last->role == PGL_ROLE_ASSISTANT && last->tool_calls.text == NULL;
    r->continues = open && r->request->end != PGL_CHAT_AS_IS;
    if (r->request->end == PGL_CHAT_CONTINUE && !open)
        return pgl_chat_refuse(
            r->out->param, r->err, "messages",
            "the last message is to be continued, but it is no assistant message with text");
    return PGL_OK;
}

pgl_status pgl_chat_render(const pgl_chat *chat, const pgl_chat_request *request, pgl_chat_prompt *out,
                           pgl_error *err) {
    *out = (pgl_chat_prompt){0};
    rendering r = {
        .chat = chat, .request = request, .out = out, .err = err, .w = {.tokenizer = chat->tokenizer}};
    pgl_bridge_text text = {NULL, 0, 0};
    pgl_status status = check_spans(&r);
    pgl_chat_request trimmed = *request;
    trimmed.messages = pgl_json_raw(request->messages, NULL, 0);
    trimmed.tools = pgl_json_raw(request->tools, NULL, 0);
    trimmed.kwargs = pgl_json_raw(request->kwargs, NULL, 0);
    r.request = &trimmed;
    if (status == PGL_OK)
        status = choose_noncharacters(&r);
    if (status == PGL_OK)
        status = pgl_chat_list_read(trimmed.messages, &r.list, out->param, err);
    if (status == PGL_OK)
        status = decide_end(&r);
    if (status == PGL_OK)
        status = render_text(&r, &text);
    if (status == PGL_OK)
        status = finish(&r, &text);
    pgl_bridge_text_free(&text);
    pgl_chat_list_fini(&r.list);
    pgl_chat_writer_fini(&r.w);
    return status;
}

void pgl_chat_prompt_fini(pgl_chat_prompt *prompt) {
    pgl_buf_fini(&prompt->text);
    pgl_ids_fini(&prompt->ids);
    free(prompt->turns);
    *prompt = (pgl_chat_prompt){0};
}
