/* The text of a document's values, as it was written. Owns nothing. */
#include <string.h>

#include "base/json.h"
#include "base/json_scan.h"
#include "base/utf8.h"

static const pgl_json_span NONE = {NULL, 0};

/* The text may be nested as deeply as any caller of pgl_json_parse allowed. */
static pgl_json_scan scan_of(const char *at, const char *end) {
    return (pgl_json_scan){.at = at,
                           .end = end,
                           .max_depth = PGL_JSON_LARGEST_DEPTH,
                           .allow_nul = true,
                           .replace_surrogates = true};
}

pgl_json_iter pgl_json_iter_begin(pgl_json_span span) {
    pgl_json_iter it = {NULL, NULL, 0};
    if (span.text == NULL)
        return it;
    pgl_json_scan s = scan_of(span.text, span.text + span.size);
    pgl_json_scan_space(&s);
    if (s.at == s.end || (*s.at != '{' && *s.at != '['))
        return it;
    it.close = *s.at == '{' ? '}' : ']';
    s.at++;
    pgl_json_scan_space(&s);
    it.at = s.at;
    it.end = s.end;
    if (s.at == s.end || *s.at == it.close)
        it.close = 0;
    return it;
}

static bool stop(pgl_json_iter *it) {
    it->close = 0;
    return false;
}

bool pgl_json_iter_next(pgl_json_iter *it, pgl_json_span *key, pgl_json_span *value) {
    *key = NONE;
    *value = NONE;
    if (it->close == 0)
        return false;
    pgl_json_scan s = scan_of(it->at, it->end);
    pgl_json_span name = NONE;
    if (it->close == '}') {
        name.text = s.at;
        if (!pgl_json_scan_string(&s))
            return stop(it);
        name.size = (size_t)(s.at - name.text);
        pgl_json_scan_space(&s);
        if (s.at == s.end || *s.at != ':')
            return stop(it);
        s.at++;
        pgl_json_scan_space(&s);
    }
    const char *start = s.at;
    if (!pgl_json_scan_value(&s))
        return stop(it);
    *key = name;
    *value = (pgl_json_span){start, (size_t)(s.at - start)};
    pgl_json_scan_space(&s);
    if (s.at == s.end || *s.at != ',') {
        it->close = 0; /* the end, or a fault: this was the last one in any case */
        return true;
    }
    s.at++;
    pgl_json_scan_space(&s);
    it->at = s.at;
    return true;
}

/* One character of a string's inside: moves *p, returns the code point; the text has been scanned. */
static uint32_t next_character(const char **p, const char *end) {
    const char *at = *p;
    uint32_t c = 0xFFFD;
    if (*at != '\\') {
        int n = pgl_utf8_decode(at, (size_t)(end - at), &c);
        *p = at + (n > 0 ? n : 1);
        return c;
    }
    if (at[1] != 'u') {
        static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
        const char *found = strchr(FROM, at[1]);
        *p = at + 2;
        return found == NULL ? 0xFFFD : (uint32_t)(unsigned char)TO[found - FROM];
    }
    int32_t high = pgl_json_hex4(at + 2, end);
    *p = at + 6;
    if (high < 0xD800 || high > 0xDFFF)
        return (uint32_t)high;
    if (high < 0xDC00 && end - at >= 8 && at[6] == '\\' && at[7] == 'u') {
        int32_t low = pgl_json_hex4(at + 8, end);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            *p = at + 12;
            return 0x10000u + (((uint32_t)high - 0xD800u) << 10) + ((uint32_t)low - 0xDC00u);
        }
    }
    return 0xFFFD;
}

/* The inside of a scanned string; false when span is no string. */
static bool inside(pgl_json_span span, const char **from, const char **to) {
    if (span.text == NULL)
        return false;
    pgl_json_scan s = scan_of(span.text, span.text + span.size);
    if (!pgl_json_scan_string(&s) || s.at != s.end)
        return false;
    *from = span.text + 1;
    *to = s.end - 1;
    return true;
}

bool pgl_json_raw_string(pgl_json_span string, pgl_buf *out) {
    const char *p, *end;
    if (!inside(string, &p, &end))
        return false;
    while (p < end) {
        char bytes[4];
        size_t n = pgl_utf8_encode(next_character(&p, end), bytes);
        if (!pgl_buf_append(out, bytes, n))
            return false;
    }
    return true;
}

static bool string_equals(pgl_json_span string, const char *text) {
    const char *p, *end;
    if (!inside(string, &p, &end))
        return false;
    while (p < end) {
        char bytes[4];
        size_t n = pgl_utf8_encode(next_character(&p, end), bytes);
        if (strncmp(text, bytes, n) != 0 || (n == 1 && bytes[0] == 0))
            return false;
        text += n;
    }
    return *text == 0;
}

pgl_json_span pgl_json_raw_member(pgl_json_span object, const char *key) {
    pgl_json_iter it = pgl_json_iter_begin(object);
    pgl_json_span name, value, found = NONE;
    while (pgl_json_iter_next(&it, &name, &value))
        if (name.text != NULL && string_equals(name, key))
            found = value;
    return found;
}

pgl_json_span pgl_json_raw_element(pgl_json_span array, size_t index) {
    pgl_json_iter it = pgl_json_iter_begin(array);
    if (it.close != ']')
        return NONE;
    pgl_json_span name, value;
    for (size_t i = 0; pgl_json_iter_next(&it, &name, &value); i++)
        if (i == index)
            return value;
    return NONE;
}

pgl_json_span pgl_json_raw(pgl_json_span span, const pgl_json_step *steps, size_t n_steps) {
    if (span.text == NULL)
        return NONE;
    pgl_json_scan s = scan_of(span.text, span.text + span.size);
    pgl_json_scan_space(&s);
    const char *start = s.at;
    if (!pgl_json_scan_value(&s))
        return NONE;
    pgl_json_span at = {start, (size_t)(s.at - start)};
    for (size_t i = 0; i < n_steps && at.text != NULL; i++)
        at = steps[i].key != NULL ? pgl_json_raw_member(at, steps[i].key)
                                  : pgl_json_raw_element(at, steps[i].index);
    return at;
}

bool pgl_json_put_raw(pgl_buf *out, pgl_json_span value) {
    const char *p = value.text, *end = value.text + value.size, *plain = p;
    while (p < end && (p = memchr(p, '\\', (size_t)(end - p))) != NULL) {
        int32_t high = end - p >= 6 && p[1] == 'u' ? pgl_json_hex4(p + 2, end) : -1;
        int32_t low = end - p >= 12 && p[6] == '\\' && p[7] == 'u' ? pgl_json_hex4(p + 8, end) : -1;
        bool half = high >= 0xD800 && high <= 0xDFFF;
        if (half && high < 0xDC00 && low >= 0xDC00 && low <= 0xDFFF) {
            p += 12;
        } else if (half) {
            if (!pgl_buf_append(out, plain, (size_t)(p - plain)) || !pgl_buf_puts(out, "\\ufffd"))
                return false;
            plain = p += 6;
        } else {
            p += end - p >= 2 ? 2 : 1;
        }
    }
    return pgl_buf_append(out, plain, (size_t)(end - plain));
}
