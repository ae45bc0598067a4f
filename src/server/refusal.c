#include "server/refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

#define RETRY_AFTER_S 2

static void fill(pgl_refusal *err, int status, const char *code, const char *param, const char *format,
                 va_list args) {
    memset(err, 0, sizeof *err);
    err->status = status;
    err->code = code;
    if (param)
        snprintf(err->param, sizeof err->param, "%s", param);
    vsnprintf(err->text, sizeof err->text, format, args);
    if (status == 429 || status == 503)
        err->retry_after = RETRY_AFTER_S;
}

bool pgl_refuse(pgl_refusal *err, int status, const char *code, const char *param, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fill(err, status, code, param, format, args);
    va_end(args);
    return false;
}

bool pgl_refuse_field(pgl_refusal *err, const char *param, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fill(err, 400, pgl_status_name(PGL_E_INVALID), param, format, args);
    va_end(args);
    return false;
}

bool pgl_refuse_memory(pgl_refusal *err) {
    return pgl_refuse(err, 500, "out_of_memory", NULL, "no memory for this request");
}

bool pgl_refuse_status(pgl_refusal *err, const pgl_error *from, const char *param) {
    int status = pgl_status_http(from->status);
    return pgl_refuse(err, status, pgl_status_name(from->status), param, "%s", from->text);
}

static const char *type_of(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 408:
        return "timeout_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

bool pgl_refusal_write(const pgl_refusal *err, pgl_buf *out) {
    bool fine = pgl_buf_puts(out, "{\"error\":{\"message\":") &&
                pgl_json_put_string(out, err->text, strlen(err->text)) && pgl_buf_puts(out, ",\"type\":") &&
                pgl_json_put_string(out, type_of(err->status), strlen(type_of(err->status))) &&
                pgl_buf_puts(out, ",\"param\":");
    fine = fine && (err->param[0] ? pgl_json_put_string(out, err->param, strlen(err->param))
                                  : pgl_buf_puts(out, "null"));
    return fine && pgl_buf_puts(out, ",\"code\":") &&
           pgl_json_put_string(out, err->code, strlen(err->code)) && pgl_buf_puts(out, "}}");
}
