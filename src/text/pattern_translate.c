/* From the dialect of tokenizer.json to PCRE2. What both mean alike is copied; \s is spelled out as White_Space, since
 * PCRE2's takes U+180E too; the rest is refused. Owns nothing. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/pattern.h"

#define SPACES                                                                                               \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{" \
    "3000}"

typedef struct translation {
    const char *source;
    size_t size, at;
    pgl_buf *out;
    pgl_error *err;
    unsigned depth;
} translation;

static pgl_status refuse(const translation *t, size_t from, size_t to) {
    if (to > t->size)
        to = t->size;
    return pgl_fail(t->err, PGL_E_UNSUPPORTED,
                    "tokenizer.json: Split expression: \"%.*s\" (at byte %zu) is not supported",
                    (int)(to - from), t->source + from, from);
}

static pgl_status memory(const translation *t) {
    return pgl_fail(t->err, PGL_E_MEMORY, "tokenizer: no memory for the expression");
}

static bool starts(const translation *t, const char *text) {
    size_t n = strlen(text);
    return t->size - t->at >= n && memcmp(t->source + t->at, text, n) == 0;
}

static pgl_status put(translation *t, const char *text, size_t size) {
    return pgl_buf_append(t->out, text, size) ? PGL_OK : memory(t);
}

static pgl_status put_text(translation *t, const char *text) {
    return put(t, text, strlen(text));
}

static pgl_status copy(translation *t, size_t n) {
    pgl_status status = put(t, t->source + t->at, n);
    t->at += n;
    return status;
}

/* \p{Lu}, \P{L}: general categories by their short names, and one script. */
static pgl_status property(translation *t) {
    static const char *const NAMES[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N", "Nd",
                                        "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm",
                                        "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "Cc", "Cf", "Han"};
    size_t start = t->at;
    const char *close = memchr(t->source + t->at, '}', t->size - t->at);
    if (t->size - t->at < 4 || t->source[t->at + 2] != '{' || close == NULL)
        return refuse(t, start, start + 3);
    size_t n = (size_t)(close - t->source) - (start + 3);
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (strlen(NAMES[i]) == n && memcmp(NAMES[i], t->source + start + 3, n) == 0)
            return copy(t, n + 4);
    return refuse(t, start, start + n + 4);
}

/* Appends one code point in a form that PCRE2 takes for itself anywhere. */
static pgl_status literal(translation *t, uint32_t c) {
    char text[16];
    snprintf(text, sizeof text, "\\x{%x}", c);
    return put_text(t, text);
}

/* The character that an escape stands for, or UINT32_MAX when it is no single character. */
static uint32_t escaped(char c) {
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'f':
        return '\f';
    case 'v':
        return '\v';
    default:
        break;
    }
    bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return alphanumeric || (unsigned char)c >= 0x80 || (unsigned char)c < 0x20 ? UINT32_MAX
                                                                               : (uint32_t)(unsigned char)c;
}

/* An escape; in a class, *single is the character it stands for or UINT32_MAX for a set. */
static pgl_status escape(translation *t, bool in_class, uint32_t *single) {
    *single = UINT32_MAX;
    if (t->size - t->at < 2)
        return refuse(t, t->at, t->size);
    char c = t->source[t->at + 1];
    if (c == 's') {
        t->at += 2;
        return put_text(t, in_class ? SPACES : "[" SPACES "]");
    }
    if (c == 'S' && !in_class) {
        t->at += 2;
        return put_text(t, "[^" SPACES "]");
    }
    if (c == 'd')
        return t->at += 2, put_text(t, "\\p{Nd}");
    if (c == 'p' || c == 'P')
        return property(t);
    *single = escaped(c);
    if (*single == UINT32_MAX)
        return refuse(t, t->at, t->at + 2);
    t->at += 2;
    return literal(t, *single);
}

/* One character of a class, an escape or a plain one. */
static pgl_status class_item(translation *t, uint32_t *single) {
    char c = t->source[t->at];
    if (c == '\\')
        return escape(t, true, single);
    if (c == '[' || starts(t, "&&"))
        return refuse(t, t->at, t->at + 2);
    int n = pgl_utf8_decode(t->source + t->at, t->size - t->at, single);
    if (n <= 0)
        return refuse(t, t->at, t->at + 1);
    t->at += (size_t)n;
    return literal(t, *single);
}

static pgl_status bracket(translation *t) {
    size_t start = t->at;
    bool negated = starts(t, "[^");
    pgl_status status = copy(t, negated ? 2 : 1);
    bool first = true;
    while (status == PGL_OK) {
        if (t->at >= t->size)
            return refuse(t, start, t->size);
        if (t->source[t->at] == ']') {
            if (first)
                return refuse(t, start, t->at + 1);
            return copy(t, 1);
        }
        if (t->source[t->at] ==
            '-') /* at either end, where it stands for itself in one dialect or the other */
            return refuse(t, t->at, t->at + 1);
        uint32_t from, to;
        size_t item = t->at;
        status = class_item(t, &from);
        first = false;
        if (status == PGL_OK && t->size - t->at >= 2 && t->source[t->at] == '-') {
            if (from == UINT32_MAX || t->source[t->at + 1] == ']')
                return refuse(t, item, t->at + 2);
            status = copy(t, 1);
            if (status == PGL_OK)
                status = class_item(t, &to);
            if (status == PGL_OK && (to == UINT32_MAX || to < from))
                return refuse(t, item, t->at);
        }
    }
    return status;
}

static pgl_status open_group(translation *t) {
    static const char *const KINDS[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    if (++t->depth > 50)
        return refuse(t, t->at, t->at + 1);
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++)
        if (starts(t, KINDS[i]))
            return copy(t, strlen(KINDS[i]));
    if (starts(t, "(?") || starts(t, "(*"))
        return refuse(t, t->at, t->at + 4);
    return copy(t, 1);
}

/* {n}, {n,} and {n,m}, with ? behind for the lazy form; and * + ? with ? or + behind. */
static pgl_status quantifier(translation *t) {
    size_t start = t->at;
    size_t i = t->at + 1;
    bool braces = t->source[t->at] == '{';
    if (braces) {
        size_t digits = 0, commas = 0;
        for (; i < t->size && t->source[i] != '}'; i++) {
            if (t->source[i] == ',' && digits > 0)
                commas++;
            else if (t->source[i] >= '0' && t->source[i] <= '9')
                digits++;
            else
                return refuse(t, start, i + 1);
        }
        if (i == t->size || digits == 0 || digits > 8 || commas > 1)
            return refuse(t, start, i + 1);
        i++;
    }
    if (i < t->size && (t->source[i] == '?' || (t->source[i] == '+' && !braces)))
        i++;
    if (i < t->size && strchr("*+?{", t->source[i]) != NULL)
        return refuse(t, start, i + 1);
    return copy(t, i - t->at);
}

pgl_status pgl_pattern_translate(const char *source, size_t size, pgl_buf *out, pgl_error *err) {
    translation t = {.source = source, .size = size, .out = out, .err = err};
    if (size == 0 || size > 4096 || !pgl_utf8_valid(source, size) || memchr(source, 0, size) != NULL)
        return pgl_fail(err, PGL_E_UNSUPPORTED,
                        "tokenizer.json: Split expression of %zu bytes, expected 1 to 4096 of UTF-8", size);
    pgl_status status = PGL_OK;
    bool repeatable = false; /* something stands before that a quantifier may repeat */
    while (status == PGL_OK && t.at < size) {
        uint32_t c;
        bool after = true;
        switch (source[t.at]) {
        case '\\':
            status = escape(&t, false, &c);
            break;
        case '[':
            status = bracket(&t);
            break;
        case '(':
            status = open_group(&t);
            after = false;
            break;
        case ')':
            if (t.depth-- == 0)
                return refuse(&t, t.at, t.at + 1);
            status = copy(&t, 1);
            break;
        case '|':
            status = copy(&t, 1);
            after = false;
            break;
        case '*':
        case '+':
        case '?':
        case '{':
            status = repeatable ? quantifier(&t) : refuse(&t, t.at, t.at + 1);
            after = false;
            break;
        case '.':
        case '^':
        case '$':
        case ']':
        case '}':
            return refuse(&t, t.at, t.at + 1);
        default: {
            int n = pgl_utf8_decode(source + t.at, size - t.at, &c);
            t.at += (size_t)n;
            status = literal(&t, c);
            break;
        }
        }
        repeatable = after;
    }
    if (status == PGL_OK && t.depth != 0)
        return refuse(&t, 0, size);
    return status;
}
