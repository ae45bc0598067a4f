/* Private to the engine: a request with everything it can need, and the queue of what was sampled.
 *
 * There is no list of events: the tokens of prompt and answer lie in one array, and the reader has a place in it.
 * The engine thread writes values first and then publishes how far they go, under the request's lock. */
#ifndef PGL_ENGINE_REQUEST_H
#define PGL_ENGINE_REQUEST_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine.h"
#include "engine/schedule.h"

#define PGL_NO_SLOT UINT32_MAX

enum { PGL_TOP_BLOCK = 64 }; /* tokens whose top log-probabilities are allocated together */

/* Memory of all requests of an engine; lives as long as the engine or any of its requests. */
typedef struct pgl_account {
    atomic_uint_fast64_t bytes;
    atomic_uint holders;
} pgl_account;

void pgl_account_drop(pgl_account *account);

typedef enum pgl_phase {
    PGL_PHASE_WAITING, /* also when parked */
    PGL_PHASE_RUNNING,
    PGL_PHASE_ENDED, /* the reader has its FINISH; slot and pages are held until nothing is in flight */
} pgl_phase;

struct pgl_request {
    pgl_sched_seq seq; /* first, so that the scheduler's pointer is the request's; engine thread only */

    /* fixed after submit */
    pgl_engine *engine;
    pgl_account *account;
    uint64_t number;
    uint64_t bytes;
    pgl_request_params params; /* its pointers are into memory that the request owns */
    uint32_t n_top;            /* of a sampled token, and of a prompt token where these are wanted */
    uint32_t max_tokens;       /* params.max_tokens cut to the context */
    uint32_t n_stop_ids;       /* 0 with ignore_eos */
    pgl_token_count *counts;   /* [n_counts] of the prompt, when a penalty is on; room for n_final */
    uint32_t n_counts;
    uint64_t submitted_ns;

    /* written by the engine thread, read by others up to what is published */
    int32_t *tokens;               /* [n_prompt + max_tokens] */
    float *logprobs;               /* [max_tokens] */
    pgl_token_logprob **top;       /* [max_tokens / PGL_TOP_BLOCK + 1][PGL_TOP_BLOCK][n_top] */
    float *prompt_logprobs;        /* [n_prompt + 1] */
    pgl_token_logprob *prompt_top; /* [n_prompt + 1][n_top] */

    /* engine thread only */
    pgl_phase phase;
    uint32_t slot;
    uint32_t *pages; /* [pages of n_final] */
    uint32_t n_pages;
    uint32_t n_value;    /* tokens whose value is known; seq.n_known counts those being sampled, too */
    uint32_t n_landed;   /* tokens whose step is over, of this life */
    uint32_t in_flight;  /* rows */
    uint32_t life;       /* admissions so far: rows of an earlier one are out of date */
    uint32_t next_hint;  /* first of params.snapshot_at that is still ahead */
    uint32_t end_length; /* of the slot when the answer was complete: a snapshot is wanted there; 0: none */
    uint64_t held_by;    /* request whose snapshot at held_place it waits for; 0: none */
    uint32_t held_place;
    bool admitted;        /* once */
    bool prompt_complete; /* prompt_logprobs, if wanted, are there */
    uint32_t save_at;     /* count of tokens at which its next row is to leave a snapshot; UINT32_MAX: none */
    uint64_t admitted_ns, first_ns;
    bool mask_asked; /* for the next token: at a mask thread, or done and not taken back */
    bool mask_here;  /* the next token's mask, and what was answered, can be used */

    /* a mask thread's from mask_asked until it is taken back, else the engine thread's */
    uint32_t *mask; /* [(n_vocab + 31) / 32] */
    pgl_request *next_mask;
    int32_t mask_token; /* the token before; -1: none */
    pgl_mask_answer mask_answer;
    uint64_t mask_ns; /* processor time that it took */
    pgl_error mask_error;

    uint64_t mask_round; /* guarded by the engine's mask_lock: in which planning may wait for its mask */

    pgl_request *next_inbox; /* guarded by the engine's lock */
    atomic_bool cancelled;
    atomic_uint holders; /* reader and engine */

    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pgl_request_state state;
    bool released, prompt_ready, prompt_taken, finish_taken;
    uint32_t n_read, n_generated, n_taken;
    pgl_step_note *steps; /* [most_steps]; NULL: not wanted */
    uint32_t n_steps, most_steps;
    pgl_finish finish;
    int32_t stop_id;
    pgl_usage usage;
    pgl_error error;
};

/* A request of its own memory, phase WAITING, held by reader and engine. PGL_E_BUSY when the account would exceed
 * most_bytes. The provider is taken over by pgl_engine_submit when nothing can fail any more. */
pgl_status pgl_request_new(const pgl_request_params *params, const pgl_backend_caps *caps,
                           pgl_account *account, uint64_t most_bytes, pgl_request **out, pgl_error *err);

void pgl_request_drop(pgl_request *request); /* one holder fewer */

static inline pgl_request *pgl_request_of(pgl_sched_seq *seq) {
    return (pgl_request *)seq;
}

/* ---- for the engine thread: what the reader sees ---- */

void pgl_request_publish_state(pgl_request *request, pgl_request_state state, uint32_t n_read);
void pgl_request_publish_admitted(pgl_request *request, const pgl_cache_decision *decision);
void pgl_request_publish_step(pgl_request *request, const pgl_step_note *note); /* end_ns is set here */
void pgl_request_publish_parked(pgl_request *request);
void pgl_request_publish_prompt(pgl_request *request);
void pgl_request_publish_token(pgl_request *request); /* the next one behind those published */
void pgl_request_publish_finish(pgl_request *request, pgl_finish finish, int32_t stop_id,
                                const pgl_error *error);

#endif
