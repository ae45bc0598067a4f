/* What a call that can fail returns, and the text that says why.
 *
 * Every function that can fail returns a pgl_status and takes a pgl_error that belongs to the caller; the
 * error may be NULL when the caller wants the code alone. A failing function writes the error once, at the
 * place that knows most: the thing by name, what was expected, what was found. Callers may put context in
 * front of it with pgl_error_prefix and pass the status on. Nothing here allocates; any thread may call. */
#ifndef PGL_BASE_STATUS_H
#define PGL_BASE_STATUS_H

#include <stddef.h>

/* code, short name (stable: it is the `code` of an API error unless the route says otherwise), HTTP status */
#define PGL_STATUS_LIST(X)                                                                                   \
    X(PGL_OK, "ok", 200)                                                                                     \
    X(PGL_E_INVALID, "invalid_request", 400)                                                                 \
    X(PGL_E_CONTEXT, "context_length_exceeded", 400)                                                         \
    X(PGL_E_NOT_FOUND, "not_found", 404)                                                                     \
    X(PGL_E_TOO_LARGE, "too_large", 413)                                                                     \
    X(PGL_E_BUSY, "overloaded", 503)                                                                         \
    X(PGL_E_CANCELLED, "cancelled", 499)                                                                     \
    X(PGL_E_TIMEOUT, "timeout", 408)                                                                         \
    X(PGL_E_FORMAT, "bad_checkpoint", 500)                                                                   \
    X(PGL_E_UNSUPPORTED, "unsupported", 400)                                                                 \
    X(PGL_E_NUMERIC, "non_finite", 500)                                                                      \
    X(PGL_E_MEMORY, "out_of_memory", 500)                                                                    \
    X(PGL_E_IO, "io_error", 500)                                                                             \
    X(PGL_E_DEVICE, "device_error", 500)                                                                     \
    X(PGL_E_INTERNAL, "internal_error", 500)

typedef enum pgl_status {
#define PGL_STATUS_ENUM(code, name, http) code,
    PGL_STATUS_LIST(PGL_STATUS_ENUM)
#undef PGL_STATUS_ENUM
} pgl_status;

/* text is always terminated and valid UTF-8; a longer message is cut at a code point boundary. */
typedef struct pgl_error {
    pgl_status status;
    char text[1024];
} pgl_error;

const char *pgl_status_name(pgl_status status);
int pgl_status_http(pgl_status status);

/* Writes the message and returns status, so that a caller can `return pgl_fail(err, ...)`. */
pgl_status pgl_fail(pgl_error *err, pgl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The static analyzer does not see into another file: here is what it needs to know, that a failure is not PGL_OK. */
#ifdef __clang_analyzer__
#define pgl_fail(err, status, ...) ((void)(pgl_fail)(err, status, __VA_ARGS__), (status))
#endif

/* Puts "prefix: " in front of the message that err already holds. */
void pgl_error_prefix(pgl_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
