/* From what clients send to the messages that templates are written for. Owns the list it builds; spans are borrowed
 * from the request. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/chat_impl.h"
#include "text/json_text.h"
#include "text/space.h"

pgl_status pgl_chat_refuse(char param[96], pgl_error *err, const char *path, const char *format, ...) {
    (void)snprintf(param, 96, "%.95s", path);
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return pgl_fail(err, PGL_E_INVALID, "%s: %s", path, text);
}

static pgl_status out_of_memory(pgl_error *err) {
    return pgl_fail(err, PGL_E_MEMORY, "messages: out of memory");
}

static void message_fini(pgl_chat_message *m) {
    pgl_buf_fini(&m->content);
    pgl_buf_fini(&m->reasoning);
}

void pgl_chat_list_fini(pgl_chat_list *list) {
    for (size_t i = 0; i < list->count; i++)
        message_fini(&list->messages[i]);
    free(list->messages);
    *list = (pgl_chat_list){0};
}

/* ---- content ---- */

static bool is_text_type(pgl_json_span type) {
    return pgl_json_string_is(type, "text") || pgl_json_string_is(type, "input_text") ||
           pgl_json_string_is(type, "output_text");
}

/* Appends the text of one part of a content list. */
static pgl_status read_part(pgl_json_span part, pgl_role role, const char *path, pgl_buf *out, char param[96],
                            pgl_error *err) {
    enum { TYPE, TEXT, REFUSAL, N };
    static const char *const KEYS[N] = {"type", "text", "refusal"};
    pgl_json_span v[N];
    if (pgl_json_kind(part) == '"')
        return pgl_json_raw_string(part, out) ? PGL_OK : out_of_memory(err);
    if (pgl_json_kind(part) != '{')
        return pgl_chat_refuse(param, err, path, "expected a text part, found %s", pgl_json_kind_name(part));
    pgl_json_members(part, KEYS, v, N);
    bool refusal = pgl_json_string_is(v[TYPE], "refusal");
    if (refusal || is_text_type(v[TYPE]) || (pgl_json_absent(v[TYPE]) && v[TEXT].text != NULL)) {
        pgl_json_span text = refusal ? v[REFUSAL] : v[TEXT];
        if (pgl_json_kind(text) != '"')
            return pgl_chat_refuse(param, err, path, "the text of a part is %s, expected a string",
                                   pgl_json_kind_name(text));
        return pgl_json_raw_string(text, out) ? PGL_OK : out_of_memory(err);
    }
    if (role == PGL_ROLE_TOOL)
        return pgl_buf_puts(out, PGL_CHAT_OMITTED_PART) ? PGL_OK : out_of_memory(err);
    int n = v[TYPE].size > 60 ? 60 : (int)v[TYPE].size;
    if (pgl_json_kind(v[TYPE]) != '"')
        return pgl_chat_refuse(param, err, path, "a part without a type, expected \"text\"");
    return pgl_chat_refuse(param, err, path, "a part of type %.*s: the model reads text only", n,
                           v[TYPE].text);
}

static pgl_status read_content(pgl_json_span content, pgl_role role, const char *path, pgl_buf *out,
                               char param[96], pgl_error *err) {
    switch (pgl_json_kind(content)) {
    case 0:
    case 'n':
        return PGL_OK;
    case '"':
        return pgl_json_raw_string(content, out) ? PGL_OK : out_of_memory(err);
    case '[':
        break;
    default:
        return pgl_chat_refuse(param, err, path, "expected a string or a list of text parts, found %s",
                               pgl_json_kind_name(content));
    }
    pgl_json_iter it = pgl_json_iter_begin(content);
    pgl_json_span key, part;
    pgl_status status = PGL_OK;
    for (size_t i = 0; status == PGL_OK && pgl_json_iter_next(&it, &key, &part); i++) {
        char where[128];
        (void)snprintf(where, sizeof where, "%.90s[%zu]", path, i);
        status = read_part(part, role, where, out, param, err);
    }
    return status;
}

/* ---- thinking inside content ---- */

#define OPEN "<think>"
#define CLOSE "</think>"

/* Whether the tag at [at, behind) stands in quotes: between two of a kind, of which the backticks must be opening and
 * closing ones. */
static bool is_quoted(const char *text, const char *end, const char *at, const char *behind) {
    if (at == text || behind == end || at[-1] != *behind)
        return false;
    if (*behind != '`')
        return *behind == '\'' || *behind == '"';
    size_t n = 0;
    for (const char *p = at; p > text && p[-1] != '\n'; p--)
        n += p[-1] == '`';
    return n % 2 == 1;
}

/* The first closing tag that is not merely quoted. */
static const char *find_close(const char *text, size_t size) {
    const char *at = text, *end = text + size;
    while ((at = memmem(at, (size_t)(end - at), CLOSE, strlen(CLOSE))) != NULL) {
        const char *behind = at + strlen(CLOSE);
        if (!is_quoted(text, end, at, behind))
            return at;
        at = behind;
    }
    return NULL;
}

static const char *skip_blank(const char *text, const char *end) {
    while (text < end && (*text == ' ' || (*text >= '\t' && *text <= '\r')))
        text++;
    return text;
}

/* Moves thinking from content to reasoning; last: also thinking without an end, which is then continued. */
static bool split_thinking(pgl_chat_message *m, bool last) {
    const char *text = pgl_buf_text(&m->content), *end = text + m->content.size;
    const char *close = find_close(text, m->content.size);
    const char *start = skip_blank(text, end);
    bool opened = (size_t)(end - start) >= strlen(OPEN) && memcmp(start, OPEN, strlen(OPEN)) == 0;
    m->cut = last && opened && close == NULL;
    if (close == NULL && !m->cut)
        return true;
    const char *from = opened ? start + strlen(OPEN) : text;
    const char *to = close == NULL ? end : close;
    while (from < to && *from == '\n')
        from++;
    while (to > from && close != NULL && to[-1] == '\n')
        to--;
    const char *rest = close == NULL ? end : close + strlen(CLOSE);
    while (rest < end && *rest == '\n')
        rest++;
    if (pgl_is_blank(rest, (size_t)(end - rest)))
        rest = end;
    m->keep_head = rest < end;
    pgl_buf answer = PGL_BUF_INIT;
    if (!pgl_buf_append(&m->reasoning, from, (size_t)(to - from)) ||
        !pgl_buf_append(&answer, rest, (size_t)(end - rest))) {
        pgl_buf_fini(&answer);
        return false;
    }
    pgl_buf_fini(&m->content);
    m->content = answer;
    m->has_reasoning = true;
    return true;
}

/* ---- one message ---- */

static bool read_role(pgl_json_span role, pgl_role *out) {
    static const struct {
        const char *name;
        pgl_role role;
    } ROLES[] = {{"system", PGL_ROLE_SYSTEM},
                 {"developer", PGL_ROLE_SYSTEM},
                 {"user", PGL_ROLE_USER},
                 {"assistant", PGL_ROLE_ASSISTANT},
                 {"tool", PGL_ROLE_TOOL}};
    for (size_t i = 0; i < sizeof ROLES / sizeof ROLES[0]; i++)
        if (pgl_json_string_is(role, ROLES[i].name)) {
            *out = ROLES[i].role;
            return true;
        }
    return false;
}

static pgl_status check_calls(pgl_json_span calls, size_t index, char param[96], pgl_error *err) {
    char path[96];
    (void)snprintf(path, sizeof path, "messages[%zu].tool_calls", index);
    if (pgl_json_kind(calls) != '[')
        return pgl_chat_refuse(param, err, path, "expected a list, found %s", pgl_json_kind_name(calls));
    pgl_json_iter it = pgl_json_iter_begin(calls);
    pgl_json_span key, call;
    for (size_t i = 0; pgl_json_iter_next(&it, &key, &call); i++) {
        pgl_json_span function = pgl_json_raw_member(call, "function");
        pgl_json_span name = pgl_json_raw_member(pgl_json_kind(function) == '{' ? function : call, "name");
        (void)snprintf(path, sizeof path, "messages[%zu].tool_calls[%zu].function.name", index, i);
        if (pgl_json_kind(name) != '"' || name.size == 2)
            return pgl_chat_refuse(param, err, path, "expected the name of a function, found %s",
                                   pgl_json_kind_name(name));
    }
    return PGL_OK;
}

static bool is_empty_list(pgl_json_span list) {
    pgl_json_iter it = pgl_json_iter_begin(list);
    pgl_json_span key, value;
    return pgl_json_kind(list) == '[' && !pgl_json_iter_next(&it, &key, &value);
}

static pgl_status read_assistant(pgl_chat_message *m, const pgl_json_span *reasoning, pgl_json_span calls,
                                 char param[96], pgl_error *err) {
    for (int i = 0; i < 2 && !m->has_reasoning; i++) {
        m->has_reasoning = pgl_json_kind(reasoning[i]) == '"';
        if (m->has_reasoning && !pgl_json_raw_string(reasoning[i], &m->reasoning))
            return out_of_memory(err);
    }
    if (!m->has_reasoning && !split_thinking(m, false))
        return out_of_memory(err);
    if (pgl_json_absent(calls) || is_empty_list(calls))
        return PGL_OK;
    m->tool_calls = calls;
    return check_calls(calls, m->index, param, err);
}

static pgl_status read_message(pgl_json_span source, pgl_chat_message *m, char param[96], pgl_error *err) {
    enum { ROLE, CONTENT, REASONING, REASONING_TOO, CALLS, N };
    static const char *const KEYS[N] = {"role", "content", "reasoning_content", "reasoning", "tool_calls"};
    pgl_json_span v[N];
    char path[96];
    (void)snprintf(path, sizeof path, "messages[%zu]", m->index);
    if (pgl_json_kind(source) != '{')
        return pgl_chat_refuse(param, err, path, "expected an object, found %s", pgl_json_kind_name(source));
    m->source = source;
    pgl_json_members(source, KEYS, v, N);
    (void)snprintf(path, sizeof path, "messages[%zu].role", m->index);
    if (!read_role(v[ROLE], &m->role))
        return pgl_chat_refuse(param, err, path, "%.*s, expected system, developer, user, assistant or tool",
                               v[ROLE].text == NULL ? 7 : (int)(v[ROLE].size > 60 ? 60 : v[ROLE].size),
                               v[ROLE].text == NULL ? "missing" : v[ROLE].text);
    (void)snprintf(path, sizeof path, "messages[%zu].content", m->index);
    pgl_status status = read_content(v[CONTENT], m->role, path, &m->content, param, err);
    if (status == PGL_OK && m->role == PGL_ROLE_ASSISTANT)
        status = read_assistant(m, v + REASONING, v[CALLS], param, err);
    return status;
}

/* ---- the list ---- */

static pgl_status insert(pgl_chat_list *list, size_t at, pgl_chat_message m, pgl_error *err) {
    if (!pgl_grow(&list->messages, sizeof *list->messages, &list->capacity, list->count + 1)) {
        message_fini(&m);
        return out_of_memory(err);
    }
    memmove(list->messages + at + 1, list->messages + at, (list->count - at) * sizeof *list->messages);
    list->messages[at] = m;
    list->count++;
    return PGL_OK;
}

/* Adds a system message's text to the one at the front. */
static pgl_status merge_system(pgl_chat_list *list, pgl_chat_message m, pgl_error *err) {
    if (list->count == 0 || list->messages[0].role != PGL_ROLE_SYSTEM)
        return insert(list, 0, m, err);
    pgl_buf *first = &list->messages[0].content;
    bool ok = first->size == 0 || m.content.size == 0 || pgl_buf_puts(first, "\n\n");
    ok = ok && pgl_buf_append(first, pgl_buf_text(&m.content), m.content.size);
    message_fini(&m);
    return ok ? PGL_OK : out_of_memory(err);
}

pgl_status pgl_chat_list_add_user(pgl_chat_list *list, pgl_error *err) {
    size_t at = list->count > 0 && list->messages[0].role == PGL_ROLE_SYSTEM ? 1 : 0;
    return insert(list, at, (pgl_chat_message){.role = PGL_ROLE_USER}, err);
}

static bool is_blank(const pgl_buf *text) {
    return pgl_is_blank(pgl_buf_text(text), text->size);
}

static void drop_empty_answers(pgl_chat_list *list) {
    while (list->count > 0) {
        pgl_chat_message *last = &list->messages[list->count - 1];
        if (last->role != PGL_ROLE_ASSISTANT || last->tool_calls.text != NULL || !is_blank(&last->content) ||
            !is_blank(&last->reasoning))
            return;
        message_fini(last);
        list->count--;
    }
}

pgl_status pgl_chat_list_read(pgl_json_span messages, pgl_chat_list *list, char param[96], pgl_error *err) {
    *list = (pgl_chat_list){0};
    if (pgl_json_kind(messages) != '[')
        return pgl_chat_refuse(param, err, "messages", "expected a list, found %s",
                               pgl_json_kind_name(messages));
    pgl_json_iter it = pgl_json_iter_begin(messages);
    pgl_json_span key, source;
    pgl_status status = PGL_OK;
    for (size_t i = 0; status == PGL_OK && pgl_json_iter_next(&it, &key, &source); i++) {
        pgl_chat_message m = {.index = i};
        status = read_message(source, &m, param, err);
        if (status != PGL_OK) {
            message_fini(&m);
            break;
        }
        list->has_user = list->has_user || m.role == PGL_ROLE_USER;
        status = m.role == PGL_ROLE_SYSTEM ? merge_system(list, m, err) : insert(list, list->count, m, err);
    }
    if (status == PGL_OK)
        drop_empty_answers(list);
    pgl_chat_message *last = list->count == 0 ? NULL : &list->messages[list->count - 1];
    if (status == PGL_OK && last != NULL && last->role == PGL_ROLE_ASSISTANT && !last->has_reasoning &&
        last->tool_calls.text == NULL && !split_thinking(last, true))
        status = out_of_memory(err);
    if (status == PGL_OK && list->count == 0)
        return pgl_chat_refuse(param, err, "messages", "expected at least one message");
    return status;
}
