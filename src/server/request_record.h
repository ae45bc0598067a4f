/* What the request log says of one request: gathered on its way, written down when nobody holds it any more.
 *
 * A record belongs to its exchange. The I/O thread fills in what HTTP knows, the thread that refuses or answers the rest;
 * the two do not touch the same fields. Nothing of a request's headers is kept but its id, and nothing of its text unless
 * the server was told to log prompts. */
#ifndef PGL_SERVER_REQUEST_RECORD_H
#define PGL_SERVER_REQUEST_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/json_out.h"
#include "server/refusal.h"

#define PGL_REQUEST_LOG_VERSION 1

typedef struct pgl_request_record {
    /* I/O thread */
    uint64_t wall_ns; /* when its head was there */
    char id[136], client[64], method[16];
    const char *route; /* of the table; NULL: none */
    int status;        /* 0: nothing was answered */
    uint64_t bytes_in, bytes_out, duration_ns;
    bool client_gone;

    /* of an error; code is static, NULL: none */
    const char *code;
    char param[sizeof((pgl_refusal *)0)->param];

    /* of an answer */
    bool generated, stream, failed; /* failed: ended with an error after it had begun */
    char model[128];                /* as it was asked for, or the served one */
    uint32_t prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens;
    bool queued, admitted; /* whether the times below mean something */
    pgl_usage first;       /* of the first choice */
    uint64_t ttft_ns;      /* 0: no token came */
    pgl_out finish;        /* the reasons of all choices, as JSON strings with commas */
    pgl_out text;          /* prompts and answers, as members of the line; empty: not logged */
} pgl_request_record;

pgl_request_record *pgl_request_record_new(void); /* NULL when memory is out */
void pgl_request_record_free(pgl_request_record *record);

/* The first error counts. */
void pgl_request_record_error(pgl_request_record *record, const pgl_refusal *err);

/* One line of JSON. */
void pgl_request_record_write(const pgl_request_record *record, pgl_out *out);

#endif
