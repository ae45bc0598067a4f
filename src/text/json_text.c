/* Owns nothing. */
#include "text/json_text.h"

#include <string.h>

void pgl_json_members(pgl_json_span object, const char *const *keys, pgl_json_span *values, size_t n) {
    pgl_json_iter it = pgl_json_iter_begin(object);
    pgl_json_span key, value;
    memset(values, 0, n * sizeof *values);
    while (pgl_json_iter_next(&it, &key, &value))
        for (size_t i = 0; i < n && key.text != NULL; i++)
            if (pgl_json_string_is(key, keys[i]))
                values[i] = value;
}

char pgl_json_kind(pgl_json_span span) {
    if (span.text == NULL || span.size == 0)
        return 0;
    char c = span.text[0];
    return (c >= '0' && c <= '9') || c == '-' ? '0' : c;
}

const char *pgl_json_kind_name(pgl_json_span span) {
    switch (pgl_json_kind(span)) {
    case '{':
        return "an object";
    case '[':
        return "an array";
    case '"':
        return "a string";
    case '0':
        return "a number";
    case 't':
        return "true";
    case 'f':
        return "false";
    case 'n':
        return "null";
    default:
        return "nothing";
    }
}

bool pgl_json_string_is(pgl_json_span span, const char *text) {
    if (pgl_json_kind(span) != '"')
        return false;
    size_t n = strlen(text);
    if (memchr(span.text, '\\', span.size) == NULL)
        return span.size == n + 2 && memcmp(span.text + 1, text, n) == 0;
    pgl_buf content = PGL_BUF_INIT;
    bool same = pgl_json_raw_string(span, &content) && content.size == n &&
                memcmp(pgl_buf_text(&content), text, n) == 0;
    pgl_buf_fini(&content);
    return same;
}

bool pgl_json_integer(pgl_json_span span, int64_t most, int64_t *out) {
    if (pgl_json_kind(span) != '0' || span.size > 18)
        return false;
    int64_t value = 0;
    for (size_t i = 0; i < span.size; i++) {
        if (span.text[i] < '0' || span.text[i] > '9')
            return false;
        value = value * 10 + (span.text[i] - '0');
    }
    if (value > most)
        return false;
    *out = value;
    return true;
}

bool pgl_json_true(pgl_json_span span) {
    return pgl_json_kind(span) == 't';
}

bool pgl_json_absent(pgl_json_span span) {
    char kind = pgl_json_kind(span);
    return kind == 0 || kind == 'n';
}
