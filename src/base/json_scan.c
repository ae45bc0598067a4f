/* RFC 8259, read strictly: recursion is bounded by max_depth. */
#include "base/json_scan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static bool fail(pgl_json_scan *s, const char *fault) {
    s->fault = fault;
    return false;
}

/* Puts text in place of [from, from + size) of the copy. */
static bool replace(pgl_json_scan *s, const char *from, size_t size, const char *text) {
    if (s->rewrite == NULL)
        return true;
    if (!pgl_buf_append(s->rewrite, s->copied, (size_t)(from - s->copied)) ||
        !pgl_buf_puts(s->rewrite, text)) {
        s->out_of_memory = true;
        return fail(s, "out of memory");
    }
    s->copied = from + size;
    s->changed = true;
    return true;
}

void pgl_json_scan_space(pgl_json_scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
}

int32_t pgl_json_hex4(const char *p, const char *end) {
    if (end - p < 4)
        return -1;
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int32_t digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if (c >= 'a' && c <= 'f')
            digit = c - 'a' + 10;
        else if (c >= 'A' && c <= 'F')
            digit = c - 'A' + 10;
        else
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

/* at is on the 'u' of an escape. */
static bool scan_unicode_escape(pgl_json_scan *s) {
    const char *start = s->at - 1;
    int32_t c = pgl_json_hex4(s->at + 1, s->end);
    if (c < 0)
        return fail(s, "an escape \\u without four hexadecimal digits");
    if (c == 0 && !s->allow_nul)
        return fail(s, "the character \\u0000, which is not allowed here");
    s->at += 5;
    if (c < 0xD800 || c > 0xDFFF)
        return true;
    if (c < 0xDC00 && s->end - s->at >= 2 && s->at[0] == '\\' && s->at[1] == 'u') {
        int32_t low = pgl_json_hex4(s->at + 2, s->end);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            s->at += 6;
            return true;
        }
    }
    if (s->replace_surrogates)
        return replace(s, start, 6, "\\ufffd");
    s->at = start;
    return fail(s, "half of a surrogate pair in an escape \\u");
}

bool pgl_json_scan_string(pgl_json_scan *s) {
    if (s->at == s->end || *s->at != '"')
        return fail(s, "a string was expected");
    s->at++;
    for (;;) {
        if (s->at == s->end)
            return fail(s, "the text ends inside a string");
        unsigned char c = (unsigned char)*s->at;
        if (c == '"') {
            s->at++;
            return true;
        }
        if (c < 0x20)
            return fail(s, "a control character in a string (write it as an escape)");
        if (c == '\\') {
            s->at++;
            if (s->at == s->end)
                return fail(s, "the text ends inside a string");
            if (*s->at == 'u') {
                if (!scan_unicode_escape(s))
                    return false;
            } else if (*s->at != 0 && strchr("\"\\/bfnrt", *s->at) != NULL) {
                s->at++;
            } else {
                return fail(s, "an unknown escape in a string");
            }
        } else if (c < 0x80) {
            s->at++;
        } else {
            uint32_t code_point;
            int n = pgl_utf8_decode(s->at, (size_t)(s->end - s->at), &code_point);
            if (n <= 0)
                return fail(s, "bytes that are not UTF-8");
            s->at += n;
        }
    }
}

static size_t scan_digits(pgl_json_scan *s) {
    const char *start = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        s->at++;
    return (size_t)(s->at - start);
}

/* jansson refuses integers beyond 64 bits and reals beyond double: gives it a real, or the largest finite
 * one. */
static bool fit_number(pgl_json_scan *s, const char *start, bool real) {
    char local[64];
    size_t size = (size_t)(s->at - start);
    if (s->rewrite == NULL || (!real && size <= 18) ||
        (real && size <= 300 && memchr(start, 'e', size) == NULL && memchr(start, 'E', size) == NULL))
        return true;
    char *text = size < sizeof local ? local : malloc(size + 1);
    if (text == NULL) {
        s->out_of_memory = true;
        return fail(s, "out of memory");
    }
    memcpy(text, start, size);
    text[size] = 0;
    bool infinite = isinf(strtod(text, NULL)) != 0;
    bool wide = false;
    if (!real) {
        errno = 0;
        (void)strtoll(text, NULL, 10);
        wide = errno == ERANGE;
    }
    if (text != local)
        free(text);
    if (infinite)
        return replace(s, start, size, *start == '-' ? "-1.7976931348623157e308" : "1.7976931348623157e308");
    return !wide || replace(s, s->at, 0, "e0");
}

static bool scan_number(pgl_json_scan *s) {
    const char *start = s->at;
    bool real = false;
    if (*s->at == '-')
        s->at++;
    if (s->at < s->end && *s->at == '0')
        s->at++;
    else if (scan_digits(s) == 0)
        return fail(s, "a number without digits");
    if (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        return fail(s, "a number with a leading zero");
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        real = true;
        if (scan_digits(s) == 0)
            return fail(s, "a number without digits after its point");
    }
    if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
        s->at++;
        real = true;
        if (s->at < s->end && (*s->at == '+' || *s->at == '-'))
            s->at++;
        if (scan_digits(s) == 0)
            return fail(s, "a number without digits in its exponent");
    }
    return fit_number(s, start, real);
}

static bool scan_word(pgl_json_scan *s, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return fail(s, "a value was expected");
    s->at += n;
    return true;
}

static bool scan_member_key(pgl_json_scan *s) {
    if (s->at == s->end)
        return fail(s, "the text ends inside an object");
    if (*s->at != '"')
        return fail(s, "a member's name in quotes was expected");
    if (!pgl_json_scan_string(s))
        return false;
    pgl_json_scan_space(s);
    if (s->at == s->end)
        return fail(s, "the text ends inside an object");
    if (*s->at != ':')
        return fail(s, "':' was expected");
    s->at++;
    return true;
}

static bool scan_container(pgl_json_scan *s, bool object) {
    char close = object ? '}' : ']';
    const char *cut = object ? "the text ends inside an object" : "the text ends inside an array";
    if (s->depth >= s->max_depth)
        return fail(s, "objects and arrays are nested too deeply");
    s->depth++;
    s->at++;
    pgl_json_scan_space(s);
    if (s->at < s->end && *s->at == close) {
        s->at++;
        s->depth--;
        return true;
    }
    for (;;) {
        if (object && !scan_member_key(s))
            return false;
        pgl_json_scan_space(s);
        if (s->at == s->end)
            return fail(s, cut);
        if (!pgl_json_scan_value(s))
            return false;
        pgl_json_scan_space(s);
        if (s->at == s->end)
            return fail(s, cut);
        if (*s->at == close)
            break;
        if (*s->at != ',')
            return fail(s, object ? "',' or '}' was expected" : "',' or ']' was expected");
        s->at++;
        pgl_json_scan_space(s);
    }
    s->at++;
    s->depth--;
    return true;
}

bool pgl_json_scan_value(pgl_json_scan *s) {
    if (s->at == s->end)
        return fail(s, "a value was expected, and the text ends");
    switch (*s->at) {
    case '{':
        return scan_container(s, true);
    case '[':
        return scan_container(s, false);
    case '"':
        return pgl_json_scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    default:
        if (*s->at == '-' || (*s->at >= '0' && *s->at <= '9'))
            return scan_number(s);
        return fail(s, "a value was expected");
    }
}
