/* Owns nothing: our errors as the C API's. */
#include <stdarg.h>
#include <stdio.h>

#include "api/api_impl.h"

const char *pergola_status_name(pergola_status status) {
    static const char *const names[] = {"ok",          "invalid",   "context_full", "not_found", "bad_model",
                                        "unsupported", "no_memory", "io",           "device",    "not_finite",
                                        "cancelled",   "busy",      "internal"};
    return (size_t)status < sizeof names / sizeof names[0] ? names[status] : "unknown";
}

static pergola_status public_status(pgl_status status) {
    switch (status) {
    case PGL_OK:
        return PERGOLA_OK;
    case PGL_E_INVALID:
    case PGL_E_TOO_LARGE:
        return PERGOLA_INVALID;
    case PGL_E_CONTEXT:
        return PERGOLA_CONTEXT_FULL;
    case PGL_E_NOT_FOUND:
        return PERGOLA_NOT_FOUND;
    case PGL_E_FORMAT:
        return PERGOLA_BAD_MODEL;
    case PGL_E_UNSUPPORTED:
        return PERGOLA_UNSUPPORTED;
    case PGL_E_MEMORY:
        return PERGOLA_NO_MEMORY;
    case PGL_E_IO:
        return PERGOLA_IO;
    case PGL_E_DEVICE:
        return PERGOLA_DEVICE;
    case PGL_E_NUMERIC:
        return PERGOLA_NOT_FINITE;
    case PGL_E_CANCELLED:
        return PERGOLA_CANCELLED;
    case PGL_E_BUSY:
        return PERGOLA_BUSY;
    case PGL_E_TIMEOUT:
    case PGL_E_INTERNAL:
        break;
    }
    return PERGOLA_INTERNAL;
}

pergola_status pgl_api_fail(pergola_error *out, const pgl_error *err) {
    pergola_status status = public_status(err->status);
    if (out != NULL) {
        out->status = status;
        (void)snprintf(out->text, sizeof out->text, "%s", err->text);
    }
    return status;
}

pergola_status pgl_api_error(pergola_error *out, pergola_status status, const char *format, ...) {
    if (out == NULL)
        return status;
    out->status = status;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out->text, sizeof out->text, format, args);
    va_end(args);
    if (n < 0)
        out->text[0] = '\0';
    return status;
}
