/* One cell of a load test: requests that are ready to send, sent at a concurrency or at random times, and what came of
 * each. Runs on the caller's thread until all are over. */
#ifndef PGL_CLI_LOAD_RUN_H
#define PGL_CLI_LOAD_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "cli/load_http.h"
#include "cli/load_stream.h"

/* Why a request failed: name in reports. */
#define PGL_LOAD_FAILURES(X)                                                                                 \
    X(PGL_LOAD_OK, "ok")                                                                                     \
    X(PGL_LOAD_NOT_CONNECTED, "connect")   /* refused, reset, or not within the time */                      \
    X(PGL_LOAD_TIMED_OUT, "timeout")       /* no whole answer within the time */                             \
    X(PGL_LOAD_HTTP_STATUS, "http")        /* another status than 200 */                                     \
    X(PGL_LOAD_ERROR_EVENT, "error_event") /* the stream said that it failed */                              \
    X(PGL_LOAD_CUT_OFF, "cut")             /* the connection ended inside the answer */                      \
    X(PGL_LOAD_UNFINISHED, "unfinished")   /* a whole stream without finish_reason and [DONE] */             \
    X(PGL_LOAD_EMPTY, "empty")             /* a whole stream without any token */                            \
    X(PGL_LOAD_NO_STREAM, "not_a_stream")  /* 200, but no text/event-stream */                               \
    X(PGL_LOAD_BAD_EVENT, "bad_event")     /* an event that is no JSON object */                             \
    X(PGL_LOAD_BAD_HTTP, "malformed_http") /* what came is not HTTP/1.1 */                                   \
    X(PGL_LOAD_OVER_LIMIT, "too_large")    /* more bytes or events than any such answer has */               \
    X(PGL_LOAD_NO_MEMORY, "out_of_memory") /* here, not there */

typedef enum pgl_load_failure {
#define PGL_LOAD_FAILURE_ENUM(code, name) code,
    PGL_LOAD_FAILURES(PGL_LOAD_FAILURE_ENUM)
#undef PGL_LOAD_FAILURE_ENUM
} pgl_load_failure;

const char *pgl_load_failure_name(pgl_load_failure failure);

typedef struct pgl_load_record {
    pgl_load_failure failure;
    int status; /* 0: no head came */
    /* due_ns: when it should have been sent; without --rate the same as sent_ns. first_ns, last_ns: first text, last
     * text or finish_reason; 0: none came. */
    uint64_t due_ns, sent_ns, first_ns, last_ns, end_ns;
    uint32_t n_pieces;                                   /* events with text */
    int64_t prompt_tokens, output_tokens, cached_tokens; /* as the server counted; -1: it did not say */
} pgl_load_record;

typedef struct pgl_load_error_kind {
    pgl_load_failure failure;
    int status;
    uint32_t count;
    char message[PGL_LOAD_TEXT_BYTES]; /* of the first */
} pgl_load_error_kind;

enum { PGL_LOAD_MOST_KINDS = 32 };

typedef struct pgl_load_plan {
    struct event_base *base; /* with precise timers */
    pgl_load_http *http;
    const pgl_buf *requests; /* [n_warmup + n_requests] whole requests; borrowed */
    uint32_t n_warmup, n_requests;
    uint32_t concurrency; /* streams at a time; with rate: the most */
    double rate;          /* mean requests a second, exponential gaps; 0: as fast as answers come */
    uint64_t seed;        /* of the gaps */
    uint32_t max_tokens;  /* of an answer: bounds the events that are read */
    void *user;
    void (*on_progress)(void *user, uint32_t done, uint32_t total);
} pgl_load_plan;

typedef struct pgl_load_result {
    pgl_load_record *records; /* [n], those that were over */
    uint32_t n;
    uint64_t *gaps_ns; /* [n_gaps] between events with text, of requests that did not fail */
    size_t n_gaps, gap_capacity;
    uint64_t gaps_dropped; /* there was no room for */
    uint64_t begin_ns, end_ns;
    pgl_load_error_kind kinds[PGL_LOAD_MOST_KINDS];
    uint32_t n_kinds;
    uint32_t warmup_failed;
    bool interrupted; /* by event_base_loopbreak: what had not ended is not in records */
} pgl_load_result;

/* The warm-up first, and when all of it is over the rest. A request that fails is a record and no error. Release the
 * result with pgl_load_result_fini also after a failure. After an interruption or a failure plan->http may only be closed. */
pgl_status pgl_load_run(const pgl_load_plan *plan, pgl_load_result *result, pgl_error *err);
void pgl_load_result_fini(pgl_load_result *result);

#endif
