/* Owns nothing: formats messages into the caller's pgl_error. */
#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int http;
} STATUS[] = {
#define PGL_STATUS_ROW(code, name, http) [code] = {name, http},
    PGL_STATUS_LIST(PGL_STATUS_ROW)
#undef PGL_STATUS_ROW
};

static bool known(pgl_status status) {
    return (size_t)status < sizeof STATUS / sizeof STATUS[0];
}

const char *pgl_status_name(pgl_status status) {
    return known(status) ? STATUS[status].name : "unknown_status";
}

int pgl_status_http(pgl_status status) {
    return known(status) ? STATUS[status].http : 500;
}

/* Messages quote names from foreign files: what is not UTF-8 becomes '?', and a cut never leaves half a
 * character. */
static void make_utf8(char *text) {
    unsigned char *p = (unsigned char *)text;
    while (*p != 0) {
        size_t n = *p < 0x80                 ? 1
                   : *p >= 0xC2 && *p < 0xE0 ? 2
                   : *p >= 0xE0 && *p < 0xF0 ? 3
                   : *p >= 0xF0 && *p < 0xF5 ? 4
                                             : 0;
        bool ok = n != 0;
        for (size_t i = 1; ok && i < n; i++)
            ok = (p[i] & 0xC0) == 0x80;
        if (ok && n == 3)
            ok = !(p[0] == 0xE0 && p[1] < 0xA0) && !(p[0] == 0xED && p[1] > 0x9F);
        if (ok && n == 4)
            ok = !(p[0] == 0xF0 && p[1] < 0x90) && !(p[0] == 0xF4 && p[1] > 0x8F);
        if (ok) {
            p += n;
        } else {
            *p++ = '?';
        }
    }
}

pgl_status(pgl_fail)(pgl_error *err, pgl_status status, const char *format, ...) {
    if (err == NULL)
        return status;
    err->status = status;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (n < 0)
        err->text[0] = 0;
    make_utf8(err->text);
    return status;
}

void pgl_error_prefix(pgl_error *err, const char *format, ...) {
    if (err == NULL)
        return;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n;
    if (used >= sizeof err->text)
        used = sizeof err->text - 1;
    snprintf(err->text + used, sizeof err->text - used, ": %s", old);
    make_utf8(err->text);
}
