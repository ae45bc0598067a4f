/* Owns nothing: whether what stands at a place of the answer or the thought begins a call. */
#include <string.h>

#include "text/output_impl.h"

int pgl_output_is_quoted(const pgl_output *o, size_t i, size_t n) {
    char mark = i > 0 ? o->in.data[i - 1] : o->before;
    if (mark == 0 || strchr("`'\"", mark) == NULL)
        return 0;
    if (i + n < o->in.size)
        return o->in.data[i + n] == mark;
    return o->final ? 0 : -1;
}

size_t pgl_output_next_tag(const pgl_output *o, size_t from, const char *const tags[2], int *which,
                           size_t *hold) {
    size_t size = o->in.size;
    *hold = size;
    for (const char *at; from < size && (at = memchr(o->in.data + from, '<', size - from)) != NULL; from++) {
        from = (size_t)(at - o->in.data);
        for (int k = 0; k < 2; k++) {
            int begins = tags[k] == NULL ? 0 : pgl_output_begins(at, size - from, tags[k]);
            *which = k;
            if (begins == 1)
                return *hold = from;
            if (begins < 0 && !o->final)
                *hold = from;
        }
        if (*hold < size)
            return size;
    }
    return size;
}

/* ---- <tool_call> */

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

size_t pgl_output_name_end(const char *text, size_t size, size_t from) {
    size_t i = from,
           most = size - from > PGL_OUTPUT_MOST_NAME_BYTES + 1 ? from + PGL_OUTPUT_MOST_NAME_BYTES + 1 : size;
    while (i < most && text[i] != '>' && text[i] != '\n')
        i++;
    return i;
}

bool pgl_output_trim_name(const char **name, size_t *size) {
    while (*size > 0 && is_blank(**name)) {
        (*name)++;
        (*size)--;
    }
    while (*size > 0 && (is_blank((*name)[*size - 1]) || (*name)[*size - 1] == '='))
        (*size)--;
    return *size > 0 && *size <= PGL_OUTPUT_MOST_NAME_BYTES && memchr(*name, 0, *size) == NULL;
}

/* <function=NAME> at text. */
static int opens_named(const pgl_output *o, const char *text, size_t size) {
    int function = pgl_output_begins(text, size, PGL_TAG_FUNCTION);
    if (function != 1)
        return function < 0 && o->final ? 0 : function;
    size_t from = strlen(PGL_TAG_FUNCTION), end = pgl_output_name_end(text, size, from);
    if (end - from > PGL_OUTPUT_MOST_NAME_BYTES)
        return 0;
    if (end == size && !o->final)
        return -1;
    const char *name = text + from;
    size_t n = end - from;
    return (end < size || !o->cut) && pgl_output_trim_name(&name, &n);
}

/* Goes on over an object from where it was left: 1 its end is behind us, 0 it is none, -1 not known yet. Whatever
 * cannot stand in JSON ends the search, so that a call that is broken does not hold what comes behind it. */
static int follow_object(pgl_output_probe *p, const char *text, size_t size) {
    for (; p->at < size; p->at++) {
        unsigned char c = (unsigned char)text[p->at];
        if (p->in_string) {
            if (c < 0x20)
                return 0;
            p->in_string = c != '"' || p->escaped;
            p->escaped = c == '\\' && !p->escaped;
        } else if (c == '"') {
            p->in_string = true;
        } else if (c == '{' || c == '[') {
            p->depth++;
        } else if (c == '}' || c == ']') {
            if (--p->depth == 0) {
                p->at++;
                return 1;
            }
        } else if (c == 0 || strchr(" \t\r\n,:-+.0123456789Eaeflnrstu", c) == NULL) {
            return 0;
        }
    }
    return -1;
}

int pgl_output_opens_call(pgl_output *o, size_t i) {
    const char *text = o->in.data + i + strlen(PGL_TAG_CALL);
    size_t size = o->in.size - i - strlen(PGL_TAG_CALL);
    pgl_output_probe *p = &o->probe;
    int opens = -1;
    while (p->depth == 0 && p->at < size && p->at <= PGL_OUTPUT_MOST_BLANKS && is_blank(text[p->at]))
        p->at++;
    if (p->at > PGL_OUTPUT_MOST_BLANKS && p->depth == 0) {
        opens = 0;
    } else if (p->depth > 0 || (p->at < size && text[p->at] == '{')) {
        p->start = p->depth > 0 ? p->start : p->at;
        opens = follow_object(p, text, size);
        if (opens == 1)
            opens = pgl_output_read_object(text + p->start, p->at - p->start, NULL, NULL);
    } else if (p->at < size) {
        opens = opens_named(o, text + p->at, size - p->at);
    }
    if (opens < 0 && o->final)
        opens = 0;
    if (opens == 0)
        *p = (pgl_output_probe){0};
    return opens;
}

/* ---- <function= without it */

/* <function=NAME> at i, NAME known and nothing but blanks before it on its line. */
static int opens_function(const pgl_output *o, size_t i) {
    size_t line = i;
    while (line > 0 && (o->in.data[line - 1] == ' ' || o->in.data[line - 1] == '\t'))
        line--;
    if (line > 0 ? o->in.data[line - 1] != '\n' : !o->line_start)
        return 0;
    size_t from = i + strlen(PGL_TAG_FUNCTION), end = pgl_output_name_end(o->in.data, o->in.size, from);
    if (end - from > PGL_OUTPUT_MOST_NAME_BYTES)
        return 0;
    if (end == o->in.size)
        return o->final ? 0 : -1;
    return o->in.data[end] == '>' && pgl_tool_find(o->tools, o->in.data + from, end - from) != NULL;
}

size_t pgl_output_find_call(pgl_output *o, bool *function, size_t *hold) {
    static const char *const TAGS[2] = {PGL_TAG_CALL, PGL_TAG_FUNCTION};
    size_t size = o->in.size, from = 0;
    for (;;) {
        int which = 0;
        size_t i = pgl_output_next_tag(o, from, TAGS, &which, hold);
        if (i == size)
            return size;
        *function = which == 1;
        int quoted = *function ? 0 : pgl_output_is_quoted(o, i, strlen(PGL_TAG_CALL));
        if (quoted < 0)
            return size;
        int opens = quoted > 0 ? 0 : *function ? opens_function(o, i) : pgl_output_opens_call(o, i);
        if (opens != 0)
            return opens == 1 ? i : size;
        from = i + 1;
    }
}
