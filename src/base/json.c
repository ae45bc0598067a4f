#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_scan.h"
#include "base/utf8.h"

static pgl_status fail_at(pgl_error *err, const char *name, const char *text, const char *at,
                          const char *fault) {
    size_t line = 1;
    const char *start = text;
    for (const char *p = text; p < at; p++) {
        if (*p == '\n') {
            line++;
            start = p + 1;
        }
    }
    return pgl_fail(err, PGL_E_INVALID, "%s: line %zu, column %zu: %s", name, line,
                    pgl_utf8_count(start, (size_t)(at - start)) + 1, fault);
}

/* Checks the whole text; *copy holds what jansson is to read when s->changed. */
static pgl_status scan_document(const char *text, const char *name, pgl_json_scan *s, pgl_error *err) {
    if (s->end - s->at >= 3 && memcmp(s->at, "\xEF\xBB\xBF", 3) == 0)
        return fail_at(err, name, text, text, "a byte order mark, which JSON does not allow");
    pgl_json_scan_space(s);
    if (s->at == s->end)
        return pgl_fail(err, PGL_E_INVALID, "%s: a value was expected, and there is none", name);
    bool ok = pgl_json_scan_value(s);
    if (ok) {
        pgl_json_scan_space(s);
        if (s->at != s->end) {
            s->fault = "more text after the end of the value";
            ok = false;
        }
    }
    if (ok && s->changed && !pgl_buf_append(s->rewrite, s->copied, (size_t)(s->end - s->copied)))
        s->out_of_memory = true;
    if (s->out_of_memory)
        return pgl_fail(err, PGL_E_MEMORY, "%s: out of memory while reading it", name);
    if (ok)
        return PGL_OK;
    if (s->depth >= s->max_depth && s->at < s->end && (*s->at == '{' || *s->at == '[')) {
        char fault[128];
        snprintf(fault, sizeof fault, "%s (at most %u levels)", s->fault, s->max_depth);
        return fail_at(err, name, text, s->at, fault);
    }
    return fail_at(err, name, text, s->at, s->fault);
}

/* The scan of a whole document. Empties *copy unless it is what jansson is to read. */
static pgl_status scan_all(const char *text, size_t size, const pgl_json_options *o, pgl_buf *copy,
                           pgl_error *err) {
    const char *name = o->name == NULL ? "JSON" : o->name;
    size_t max_bytes = o->max_bytes == 0 ? PGL_JSON_DEFAULT_BYTES : o->max_bytes;
    if (size > max_bytes)
        return pgl_fail(err, PGL_E_TOO_LARGE, "%s: %zu bytes, at most %zu are read", name, size, max_bytes);
    pgl_json_scan scan = {.at = text,
                          .end = text + size,
                          .max_depth = o->max_depth == 0 ? PGL_JSON_DEFAULT_DEPTH : o->max_depth,
                          .allow_nul = o->allow_nul,
                          .replace_surrogates = o->replace_surrogates,
                          .rewrite = copy,
                          .copied = text};
    if (scan.max_depth > PGL_JSON_LARGEST_DEPTH)
        scan.max_depth = PGL_JSON_LARGEST_DEPTH;
    pgl_status status = scan_document(text, name, &scan, err);
    if (!scan.changed)
        pgl_buf_fini(copy);
    return status;
}

pgl_status pgl_json_check(const char *text, size_t size, const pgl_json_options *options, pgl_error *err) {
    static const pgl_json_options DEFAULTS = {0};
    pgl_buf copy = PGL_BUF_INIT;
    pgl_status status = scan_all(text, size, options == NULL ? &DEFAULTS : options, &copy, err);
    pgl_buf_fini(&copy);
    return status;
}

pgl_status pgl_json_parse(const char *text, size_t size, const pgl_json_options *options, json_t **out,
                          pgl_error *err) {
    static const pgl_json_options DEFAULTS = {0};
    const pgl_json_options *o = options == NULL ? &DEFAULTS : options;
    const char *name = o->name == NULL ? "JSON" : o->name;
    *out = NULL;
    pgl_buf copy = PGL_BUF_INIT;
    pgl_status status = scan_all(text, size, o, &copy, err);
    if (status == PGL_OK) {
        size_t flags = JSON_DECODE_ANY | (o->last_wins ? 0 : JSON_REJECT_DUPLICATES) |
                       (o->allow_nul ? JSON_ALLOW_NUL : 0);
        json_error_t e = {0};
        *out =
            copy.size > 0 ? json_loadb(copy.data, copy.size, flags, &e) : json_loadb(text, size, flags, &e);
        if (*out == NULL) {
            /* the scan has passed, so only what it does not look at can be wrong with the text */
            enum json_error_code code = json_error_code(&e);
            bool wrong = code == json_error_duplicate_key || code == json_error_null_byte_in_key;
            status = wrong ? pgl_fail(err, PGL_E_INVALID, "%s: line %d, column %d: %s", name, e.line,
                                      e.column, e.text)
                           : pgl_fail(err, PGL_E_MEMORY, "%s: out of memory while reading it", name);
        }
    }
    pgl_buf_fini(&copy);
    return status;
}

bool pgl_json_put_string(pgl_buf *out, const char *text, size_t size) {
    static const char HEX[] = "0123456789abcdef";
    if (!pgl_buf_putc(out, '"'))
        return false;
    size_t plain = 0; /* start of the run that needs no escape */
    size_t i = 0;
    while (i < size) {
        unsigned char c = (unsigned char)text[i];
        char escape[8];
        size_t n = 0;
        size_t used = 1;
        if (c == '"' || c == '\\') {
            escape[n++] = '\\';
            escape[n++] = (char)c;
        } else if (c < 0x20) {
            const char *at = c == 0 ? NULL : strchr("\bb\ff\nn\rr\tt", c);
            escape[n++] = '\\';
            if (at != NULL) {
                escape[n++] = at[1];
            } else {
                memcpy(escape + n, "u00", 3);
                escape[n + 3] = HEX[c >> 4];
                escape[n + 4] = HEX[c & 15];
                n += 5;
            }
        } else if (c >= 0x80) {
            uint32_t code_point;
            int k = pgl_utf8_decode(text + i, size - i, &code_point);
            if (k > 0)
                used = (size_t)k;
            else
                n = pgl_utf8_encode(0xFFFD, escape);
        }
        if (n > 0) {
            if (!pgl_buf_append(out, text + plain, i - plain) || !pgl_buf_append(out, escape, n))
                return false;
            plain = i + used;
        }
        i += used;
    }
    return pgl_buf_append(out, text + plain, size - plain) && pgl_buf_putc(out, '"');
}

bool pgl_json_put_number(pgl_buf *out, double value) {
    if (!isfinite(value))
        return pgl_buf_puts(out, "null");
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return pgl_buf_puts(out, text);
}
