/* An error as the API says it: {"error":{"message","type","param","code"}}, with the status that goes with it. */
#ifndef PGL_SERVER_REFUSAL_H
#define PGL_SERVER_REFUSAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct pgl_refusal {
    int status;           /* HTTP */
    const char *code;     /* stable, static */
    char param[96];       /* the field at fault, "messages[2].content"; "": none */
    char text[1024];      /* valid UTF-8 or not: it is made so when written */
    uint32_t retry_after; /* seconds; 0: no such header */
} pgl_refusal;

/* Fills it and returns false, so that a reader can `return pgl_refuse(err, ...)`. param may be NULL. */
bool pgl_refuse(pgl_refusal *err, int status, const char *code, const char *param, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* 400 invalid_request for a field. */
bool pgl_refuse_field(pgl_refusal *err, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* 500: there is no memory for the request. */
bool pgl_refuse_memory(pgl_refusal *err);

/* From a lower layer: status and code of its pgl_status. Overload gets a Retry-After. */
bool pgl_refuse_status(pgl_refusal *err, const pgl_error *from, const char *param);

/* The JSON object, without a line end. False when memory is out. */
bool pgl_refusal_write(const pgl_refusal *err, pgl_buf *out);

#endif
