/* The engine: one thread that admits requests, plans steps of a backend, and puts what was sampled into each
 * request's queue. It knows tokens only: no text, no HTTP.
 *
 * Threads. Everything here may be called from any thread unless it says otherwise; a request's reading calls
 * (pgl_request_next, pgl_request_wait) from one thread at a time. The engine thread never waits for a client,
 * for a lock that a client holds longer than a few copies, or for a file. notify is called on the engine thread;
 * it must not block, must not call back
 * into the engine or the request, and must not take a lock under which somebody calls these.
 *
 * Memory. Everything a request can need is set aside when it is submitted, on the caller's thread, and counted
 * against request_bytes; only blocks of top log-probabilities are allocated as they fill.
 *
 * Same answer. A request's tokens depend on its prompt, parameters and seed only, on a backend that says
 * bit_stable: not on neighbours, on chunks, on the cache, or on having been parked. */
#ifndef PGL_ENGINE_ENGINE_H
#define PGL_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/status.h"
#include "sampling/sampling.h"

typedef struct pgl_engine pgl_engine;
typedef struct pgl_request pgl_request;

typedef struct pgl_engine_options {
    pgl_backend *backend;      /* borrowed; only the engine thread uses it until pgl_engine_close returns */
    uint32_t max_queue;        /* requests that may wait when all slots are taken; one more is PGL_E_BUSY */
    uint64_t request_bytes;    /* memory of all requests together; 0: 256 MiB */
    uint32_t prefill_chunk;    /* most prompt tokens of a step beside running answers; 0: 512 */
    uint64_t gap_ns;           /* aim of such a step's duration: chunks shrink to keep it; 0: 500 ms */
    uint32_t reserve_tokens;   /* growth that must be free when a request is admitted; 0: 256 */
    uint64_t age_ns;           /* a waiting request gains one level of priority in this time; 0: 30 s */
    struct pgl_forced *forced; /* engine/forced.h, shared with the null backend; NULL: none */
    bool prefix_cache;
    uint64_t host_cache_bytes; /* host memory for what gives way in the cache; 0: none */
    uint32_t snapshot_every;   /* tokens between unasked snapshots; 0: 2,048 */
} pgl_engine_options;

/* ---- constraints: which tokens may be sampled ---- */

typedef enum pgl_mask_answer {
    PGL_MASK_ALL,    /* no constraint on the next token; mask was not written */
    PGL_MASK_SOME,   /* mask holds the allowed ids, at least one */
    PGL_MASK_FAILED, /* the request ends with the error in err; nothing is sampled without its mask */
} pgl_mask_answer;

/* next is called once for every token of the answer, in order, with the token before it (-1 for the first), as soon as
 * that is known, on a thread of the engine; the last call may be for a token that is not sampled any more. It may take its
 * time: steps go on without the request until its mask is there. mask has (n_vocab + 31) / 32 words. Calls for one request
 * never overlap. close is called once, when nothing will call next any more, from
 * any thread; it may be NULL. When pgl_engine_submit fails, the provider stays the caller's. */
typedef struct pgl_mask_provider {
    pgl_mask_answer (*next)(void *user, int32_t token, uint32_t *mask, pgl_error *err);
    void (*close)(void *user);
    void *user;
} pgl_mask_provider;

/* ---- requests ---- */

/* Everything pointed to is copied by pgl_engine_submit. */
typedef struct pgl_request_params {
    const int32_t *prompt;
    uint32_t n_prompt; /* >= 1 */
    pgl_sample_params sampling;
    const int32_t *stop_ids;
    uint32_t n_stop_ids; /* <= PGL_MAX_STOP_IDS */
    bool ignore_eos;     /* stop_ids have no effect */
    uint32_t max_tokens; /* of the answer; cut to the context. 0 only with prompt_logprobs */
    int32_t priority;    /* lower is served earlier; equal ones first come first served */

    bool note_steps; /* for pgl_request_steps */
    bool logprobs;   /* of each sampled token */
    uint32_t n_top;  /* and the n largest beside it; <= PGL_MAX_TOP */
    bool
        prompt_logprobs; /* of prompt tokens 1 .. n_prompt - 1, and the n_prompt_top largest at each place; such
                             a request reads its whole prompt and takes nothing from the cache */
    uint32_t n_prompt_top;

    pgl_mask_provider mask; /* next NULL: no constraint */

    /* Counts of prompt tokens, rising, each < n_prompt: places where later prompts are likely to part from
     * this one (end of the system prompt and tools, end of the last user turn). Snapshots are taken at the first
     * and the last three; the others are left out, because each costs a row that ends there. */
    const uint32_t *snapshot_at;
    uint32_t n_snapshot_at;

    /* For backends without a model: what pgl_forced_token answers. Refused without options.forced. */
    const int32_t *forced;
    uint32_t n_forced;

    void (*notify)(void *user); /* an event was put into the empty queue; may be NULL */
    void *user;
} pgl_request_params;

typedef enum pgl_finish {
    PGL_FINISH_NONE,
    PGL_FINISH_STOP,      /* stop_id was sampled; it is no event and not counted */
    PGL_FINISH_LENGTH,    /* max_tokens or the end of the context */
    PGL_FINISH_CANCELLED, /* pgl_request_cancel, or the engine was closed: then error says so */
    PGL_FINISH_ERROR,     /* error says why */
} pgl_finish;

/* Why the cache did not give more of the prompt than it gave. */
typedef enum pgl_miss {
    PGL_MISS_NONE,             /* it gave all that can be given: the last token is always read */
    PGL_MISS_OFF,              /* no cache, or prompt_logprobs */
    PGL_MISS_COLD,             /* no earlier request began like this one */
    PGL_MISS_DIFFERS,          /* prompt token number miss_at differs from what was cached there */
    PGL_MISS_NO_SNAPSHOT,      /* known further, to miss_at, but no snapshot was taken there */
    PGL_MISS_SNAPSHOT_EVICTED, /* the snapshot of the first miss_at tokens gave way to others */
    PGL_MISS_PAGE_EVICTED,     /* their pages were needed by running requests */
    PGL_MISS_TOO_SHORT, /* a prompt of one token: there is nothing before the one that is always read */
} pgl_miss;

/* What the cache gave of a prompt and why no more, as decided when the request was first admitted. Counts and places
 * may be shown to everyone; the two ids are text of prompts and belong into nothing but a debug log or a trace. */
typedef struct pgl_cache_decision {
    pgl_miss miss;
    uint32_t n_cached;  /* tokens that were not computed again: the place of a snapshot */
    uint32_t n_matched; /* tokens with which the nearest sequence that is cached begins, too; >= n_cached */
    uint32_t miss_at;   /* as miss says; 0 where it names no place */
    int32_t cached_id;  /* DIFFERS: the token at miss_at of the cached sequence; else -1 */
    int32_t prompt_id;  /* and of the prompt */
    bool from_host;     /* some of what was taken had been moved to host memory */
} pgl_cache_decision;

const char *pgl_miss_name(pgl_miss miss);       /* "none", "off", "cold", "differs", "no_snapshot", .. */
const char *pgl_finish_name(pgl_finish finish); /* "none", "stop", "length", "cancelled", "error" */

typedef struct pgl_usage {
    uint32_t n_prompt;
    uint32_t n_cached;        /* prompt tokens that were not computed again, at the first admission */
    uint32_t n_generated;     /* token events */
    pgl_cache_decision cache; /* OFF before the first admission */
    uint32_t n_parked;        /* times that the request had to give its pages to an older one */
    uint64_t queued_ns;       /* from submit to the first admission */
    uint64_t prompt_ns;       /* from there to the first sampled token */
    uint64_t generation_ns;   /* from there to the end */
} pgl_usage;

typedef enum pgl_event_kind {
    PGL_EVENT_PROMPT, /* with prompt_logprobs: they are complete; before the first token */
    PGL_EVENT_TOKEN,
    PGL_EVENT_FINISH, /* the last event */
} pgl_event_kind;

/* Pointers are valid until the request is released. */
typedef struct pgl_event {
    pgl_event_kind kind;
    int32_t token;
    float logprob; /* with logprobs */
    const pgl_token_logprob *top;
    uint32_t n_top;
    const float *prompt_logprobs; /* PROMPT: [n_prompt]; 0 for the first */
    const pgl_token_logprob
        *prompt_top; /* PROMPT: [n_prompt][n_top]; the first row is not set. n_top may be more
                                            than asked for */
    pgl_finish finish;
    int32_t stop_id; /* FINISH with STOP */
    pgl_usage usage; /* FINISH */
} pgl_event;

typedef enum pgl_request_state {
    PGL_REQUEST_WAITING,
    PGL_REQUEST_PROMPT, /* its prompt is being read */
    PGL_REQUEST_ANSWER,
    PGL_REQUEST_PARKED, /* waiting for pages, to be resumed */
    PGL_REQUEST_DONE,
} pgl_request_state;

typedef struct pgl_request_view {
    pgl_request_state state;
    uint32_t n_prompt, n_read; /* prompt tokens read, cached ones included */
    uint32_t n_cached, n_generated;
    pgl_cache_decision cache;
    uint64_t queued_ns, prompt_ns; /* as in pgl_usage, once they are over; else 0 */
} pgl_request_view;

/* Checks everything and hands the request to the engine; *out must be released. PGL_E_INVALID naming the field,
 * PGL_E_CONTEXT with both numbers, PGL_E_BUSY when the queue is full or the engine drains, PGL_E_MEMORY,
 * PGL_E_DEVICE when the backend has failed. */
pgl_status pgl_engine_submit(pgl_engine *engine, const pgl_request_params *params, pgl_request **out,
                             pgl_error *err);

/* Takes the next event; false when there is none yet (or none after FINISH). */
bool pgl_request_next(pgl_request *request, pgl_event *event);

/* Waits until there is an event to take, at most wait_ns (UINT64_MAX: for ever). False: none came. */
bool pgl_request_wait(pgl_request *request, uint64_t wait_ns);

/* The request ends with PGL_FINISH_CANCELLED before the next step is planned; nothing more is computed for it than the step
 * in flight, and its slot is free for the next. (Of steps of a few milliseconds two may be in flight.) Again, or after the end: nothing happens. */
void pgl_request_cancel(pgl_request *request);

pgl_request_view pgl_request_progress(pgl_request *request);

/* What a step did for one request. */
typedef struct pgl_step_note {
    uint32_t first, n_tokens;       /* its tokens: their places */
    uint32_t n_rows, n_step_tokens; /* of the whole step, this request's included */
    uint64_t end_ns, step_ns;       /* its end, counted from the submission; how long it took */
} pgl_step_note;

#define PGL_MOST_STEP_NOTES 4096u

/* With note_steps: copies the first n of the steps so far, and returns how many there were: of more than
 * PGL_MOST_STEP_NOTES the first are kept. Any thread. */
uint32_t pgl_request_steps(pgl_request *request, pgl_step_note *notes, uint32_t n);

/* Why it ended with PGL_FINISH_ERROR or CANCELLED; PGL_OK before. */
pgl_status pgl_request_error(pgl_request *request, pgl_error *err);

/* Cancels what still runs and gives the handle up; notify is not called any more when this returns. Before or after
 * pgl_engine_close. NULL is allowed. */
void pgl_request_release(pgl_request *request);

/* ---- the engine ---- */

typedef struct pgl_engine_stats {
    uint32_t n_running, n_waiting, n_parked;
    uint32_t n_open, max_open; /* submitted and not ended, at this moment; and how many may be */
    uint32_t n_slots, n_pages, n_pages_free, n_pages_cached; /* cached: held by the prefix cache alone */
    uint32_t n_snapshots, n_snapshots_used;
    uint64_t request_bytes;
    uint64_t requests_submitted, requests_refused, requests_finished[PGL_FINISH_ERROR + 1];
    uint64_t prompt_tokens, cached_tokens, generated_tokens; /* of admitted requests */
    uint64_t steps, step_tokens, step_ns, step_bytes_read;
    uint64_t parked, snapshots_saved, snapshots_evicted;
    uint64_t cache_hits, host_hits, host_cached_tokens; /* host: some of it had been moved to host memory */
    uint64_t cache_bytes, cache_bytes_used; /* of the backend: pages and snapshots; used by the cache alone */
    uint64_t host_cache_bytes, host_cache_bytes_used, exported_bytes, imported_bytes;
    uint32_t n_host_pages, n_host_snapshots;
} pgl_engine_stats;

typedef struct pgl_slot_info {
    bool used;
    pgl_request_state state;
    uint64_t request; /* number of the request, rising from 1 */
    uint32_t n_prompt, n_read, n_cached, n_generated;
    pgl_cache_decision cache;
} pgl_slot_info;

pgl_status pgl_engine_open(const pgl_engine_options *options, pgl_engine **out, pgl_error *err);

/* No new requests from now on; waits until all have finished, at most wait_ns, then cancels the rest and waits
 * for them. True when none had to be cancelled. */
bool pgl_engine_drain(pgl_engine *engine, uint64_t wait_ns);

/* Drains without waiting and stops the threads. NULL is allowed. */
void pgl_engine_close(pgl_engine *engine);

pgl_engine_stats pgl_engine_get_stats(pgl_engine *engine);

/* The first n slots; returns how many there are. As of the last step. */
uint32_t pgl_engine_get_slots(pgl_engine *engine, pgl_slot_info *slots, uint32_t n);

/* Drops everything that the prefix cache holds. */
void pgl_engine_clear_cache(pgl_engine *engine);

#endif
