/* Owns nothing: the strings of a tool's parameter as an expression for its value, which stands bare in a call. */
#include <stdio.h>
#include <string.h>

#include "base/schema.h"
#include "constraint/grammar_impl.h"

#define MOST_LENGTH 2000 /* of a string, as an expression that counts */

/* An expression of JSON schema that is anchored at both ends, without them and with slashes escaped. False: it is not, or
 * uses what means something else in llguidance or nothing at all. */
static bool put_pattern(pgl_buf *out, const char *pattern) {
    size_t n = strlen(pattern);
    bool in_class = false, ok = true;
    if (n < 2 || pattern[0] != '^' || pattern[n - 1] != '$')
        return false;
    ok = pgl_buf_puts(out, "(?:");
    int depth = 0;
    for (size_t i = 1; i + 1 < n && ok; i++) {
        char c = pattern[i];
        if (c == '\\') {
            c = pattern[++i];
            if (i + 1 >= n)
                return false;
            if (c == 'd')
                ok = pgl_buf_puts(out, in_class ? "0-9" : "[0-9]");
            else if (c == 'w')
                ok = pgl_buf_puts(out, in_class ? "a-zA-Z0-9_" : "[a-zA-Z0-9_]");
            else if (c != 0 && strchr("nrts.-+*?()[]{}|/\\^$\"'#@&~%,:;=!", c) != NULL)
                ok = pgl_buf_putc(out, '\\') && pgl_buf_putc(out, c);
            else
                return false;
            continue;
        }
        /* Classes in classes, operations on them, and classes of nothing differ between the languages. */
        const char *before = pattern + i - 1;
        bool first = c == ']' && in_class && (*before == '[' || (*before == '^' && before[-1] == '['));
        if (in_class && (first || strchr("[&~", c) != NULL || (c == '-' && pattern[i + 1] == '-')))
            return false;
        in_class = c == '[' || (in_class && c != ']');
        depth += !in_class && c == '(' ? 1 : 0;
        depth -= !in_class && c == ')' ? 1 : 0;
        bool anchor = !in_class && (c == '^' || c == '$'),
             group = c == '(' && pattern[i + 1] == '?' && pattern[i + 2] != ':';
        bool choice = !in_class && c == '|' && depth == 0; /* whose ends would not both be anchored */
        if (anchor || (!in_class && group) || choice || depth < 0 || (unsigned char)c < 0x20)
            return false;
        ok = (c != '/' || pgl_buf_putc(out, '\\')) && pgl_buf_putc(out, c);
    }
    return ok && pgl_buf_putc(out, ')');
}

bool pgl_grammar_put_text(pgl_buf *out, const json_t *schema, bool *exact) {
    const json_t *pattern = json_object_get(schema, "pattern"), *least = json_object_get(schema, "minLength"),
                 *most = json_object_get(schema, "maxLength");
    json_int_t low = json_integer_value(least), high = json_integer_value(most);
    bool counted = least != NULL || most != NULL;
    pgl_buf text = PGL_BUF_INIT;
    *exact = json_object_get(schema, "format") == NULL && low >= 0 && low <= MOST_LENGTH && high >= 0 &&
             high <= MOST_LENGTH && (most == NULL || low <= high) && (pattern == NULL || !counted) &&
             json_object_get(schema, "allOf") == NULL;
    if (*exact && pattern != NULL)
        *exact = put_pattern(&text, json_is_string(pattern) ? json_string_value(pattern) : "");
    else if (*exact && most != NULL)
        *exact = pgl_buf_printf(&text, "(?s:.{%d,%d})", (int)low, (int)high);
    else if (*exact && least != NULL)
        *exact = pgl_buf_printf(&text, "(?s:.{%d,})", (int)low);
    else
        *exact = *exact && !counted && pattern == NULL;
    bool ok = pgl_buf_puts(out, *exact && text.size > 0 ? text.data : "(?s:.*)");
    pgl_buf_fini(&text);
    return ok;
}
