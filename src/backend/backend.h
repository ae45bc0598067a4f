/* The seam between the engine and what computes: one step of the whole model.
 *
 * A backend knows nothing of requests, HTTP or text. It owns slots (the recurrent state and page table of one
 * running sequence each), pages (keys and values of `page_tokens` positions, draft layer included) and
 * snapshots (recurrent state, convolution taps and last trunk hidden state). Which page belongs to whom is
 * the engine's business: a backend never allocates after open and never chooses.
 *
 * A step plan is: operations before, rows, operations after, all carried out in this order. A row is one
 * slot's span of tokens in this step. A backend may fuse anything inside a step and owns its weights' layout.
 *
 * Asynchrony. pgl_backend_submit takes the plan and returns at once; up to `max_in_flight` plans may be
 * submitted before the first is waited for, and they are carried out in order. The plan and everything it
 * points to, results included, belong to the backend from submit until wait returns for its ticket. A row may
 * take its token from the slot's last sampled one, which the host need not know yet; positions and pages are
 * derived from the slot's own state, so that the next plan is built while this one runs.
 *
 * Ended rows. A sampled row carries stop ids and a token limit, checked where the token is sampled. When it
 * ends, the slot goes inert: later rows of that slot are skipped and report PGL_ROW_INERT, until RESET,
 * RESTORE or FORK gives the slot a new life (without last token, drafts and penalty history). A verify row that was
 * skipped leaves nothing pending.
 *
 * Same answer. On a backend that says `bit_stable`, a row's results depend on the slot's history only: not on
 * other rows, chunking, pages, threads, or whether tokens came by prompt, decode or verify rows.
 *
 * Threads. One engine thread calls submit, wait and the read-only calls; mask_ready may be called by any
 * thread. Errors. submit checks the whole plan (bounds of every index, budgets, lengths) before anything is
 * changed and refuses with PGL_E_INVALID naming the row or operation; a refused plan has no effect. Faults of
 * the device end the step with PGL_E_DEVICE from wait; after that only close may be called, and wait for what was
 * submitted before, which gives PGL_E_DEVICE as well and the plan back. */
#ifndef PGL_BACKEND_BACKEND_H
#define PGL_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "sampling/sampling.h"

typedef struct pgl_backend pgl_backend;
struct pgl_model;

typedef struct pgl_backend_options {
    const int *devices; /* ordinals; NULL: the first (GPU backends) */
    uint32_t n_devices;
    uint64_t
        device_bytes; /* budget; 0: what is there. The CPU backend counts its own allocations against it. */
    uint64_t pinned_bytes; /* pinned host memory for parked pages and snapshots */
    uint64_t expert_cache_bytes;
    uint32_t n_threads; /* CPU: 0 = one per available core */
    bool pin_threads;
    bool deterministic;

    uint32_t n_slots;
    uint32_t n_pages;
    uint32_t n_snapshots;
    uint32_t page_tokens;     /* power of two, 16 .. 1024; 0: the backend's choice */
    uint32_t max_context;     /* tokens in one slot */
    uint32_t max_rows;        /* rows in one plan */
    uint32_t max_step_tokens; /* tokens of all rows of one plan */
    uint32_t max_draft;       /* drafted tokens per row; 0: no draft head, pages without its K/V */
    uint32_t n_vocab;         /* ids that may be sampled; at most config.vocab_size; 0: all of them */
    const char *force_isa;    /* CPU: "scalar", "avx2", "avx512", "neon"; NULL: the best there is */
} pgl_backend_options;

/* What open settled on. */
typedef struct pgl_backend_caps {
    const char *name;   /* "cpu", "null", "cuda" */
    const char *detail; /* one line: instruction set, threads, card */
    uint32_t n_slots, n_pages, n_snapshots, page_tokens, max_context;
    uint32_t max_rows, max_step_tokens, max_draft, max_in_flight;
    uint32_t n_vocab;    /* sampled ids */
    uint32_t vocab_size; /* width of full logits */
    uint32_t hidden_size, n_layers, n_experts, n_experts_used;
    uint64_t page_bytes;     /* of one exported page */
    uint64_t snapshot_bytes; /* of one exported snapshot */
    bool bit_stable;
} pgl_backend_caps;

typedef enum pgl_op_kind {
    PGL_OP_RESET,      /* slot: length 0, zero state, empty page table, awake */
    PGL_OP_BIND,       /* slot, index, page: positions index * page_tokens .. live in page */
    PGL_OP_SAVE,       /* slot -> snapshot: state, taps, last hidden, length */
    PGL_OP_RESTORE,    /* snapshot -> slot: the same and the length; page table stays as bound; awake */
    PGL_OP_FORK,       /* slot -> slot2: state, length and page table; awake */
    PGL_OP_COPY_PAGE,  /* page -> page2 */
    PGL_OP_COMMIT,     /* slot, n: of the pending tokens of a verify row take the first n, drop the rest */
    PGL_OP_HISTORY,    /* slot: what its penalties count from now on; sampled tokens are added as they come */
    PGL_OP_LAST_TOKEN, /* slot, token: becomes the slot's last sampled token */
    PGL_OP_EXPORT_PAGE,     /* page -> host [page_bytes] */
    PGL_OP_IMPORT_PAGE,     /* host -> page */
    PGL_OP_EXPORT_SNAPSHOT, /* snapshot -> host [snapshot_bytes] */
    PGL_OP_IMPORT_SNAPSHOT, /* host -> snapshot, of the length in n */
} pgl_op_kind;

typedef struct pgl_op {
    pgl_op_kind kind;
    uint32_t slot, slot2;
    uint32_t index; /* BIND: place in the page table */
    uint32_t page, page2;
    uint32_t snapshot;
    uint32_t n;
    int32_t token;
    void *host;
    pgl_sample_history history;
} pgl_op;

typedef enum pgl_row_kind {
    PGL_ROW_COMMIT, /* prompt chunk or decode: the slot's state moves past these tokens */
    PGL_ROW_VERIFY, /* tokens are the last one and at most max_draft drafts: state stays, inputs are left pending for a COMMIT
                       (or auto_commit); every position is sampled. The same bits as COMMIT rows would give.
                     */
} pgl_row_kind;

typedef enum pgl_mask_kind {
    PGL_MASK_NONE,
    PGL_MASK_GIVEN, /* mask holds its positions at submit */
    PGL_MASK_LATE,  /* mask is filled later: the backend waits for pgl_backend_mask_ready before it samples */
} pgl_mask_kind;

typedef enum pgl_row_end {
    PGL_ROW_RUNS,
    PGL_ROW_STOP,  /* a stop id was sampled (it is in tokens) */
    PGL_ROW_LIMIT, /* the token limit was reached */
    PGL_ROW_INERT, /* the slot had ended before this row */
} pgl_row_end;

/* What a row wants, or-ed. */
enum {
    PGL_WANT_SAMPLE = 1, /* COMMIT: after the last token; VERIFY: after every token */
    PGL_WANT_TOP = 2,    /* the n_top largest log-probabilities beside each sampled token */
    PGL_WANT_TARGETS =
        4, /* after each token i of the row: the log-probability of targets[i], and the n_top largest */
    PGL_WANT_LOGITS = 8,         /* full logits after every token of the row (tests, eval) */
    PGL_WANT_HIDDEN = 16,        /* per-layer hidden states (tests) */
    PGL_WANT_EXPERTS = 32,       /* routed experts (tests) */
    PGL_WANT_DRAFT = 64,         /* after the sampled token, n_draft tokens of the draft head, greedy */
    PGL_WANT_COUNTS = 128,       /* add to expert_counts how many of the row's tokens each expert saw */
    PGL_WANT_DRAFT_LOGITS = 256, /* the draft head's logits for each token but the last (tests) */
    PGL_WANT_ALL = 511,
};

#define PGL_MAX_TOP 1024u
#define PGL_MAX_STOP_IDS 64u

/* Filled by the backend; arrays are the caller's and hold what the row's wants need. */
typedef struct pgl_row_result {
    pgl_row_end end;
    bool
        non_finite; /* some logits of this row were not finite (or a mask allowed none of the ids at a position
                           that was reached): nothing sampled from them counts. A sampled row's slot goes inert. */
    uint32_t length;    /* of the slot after this row (pending tokens not counted) */
    uint32_t n_sampled; /* tokens[0 .. n_sampled); VERIFY: up to and including the first that differs from its
                           draft */
    int32_t *tokens;    /* [1], VERIFY [n_tokens] */
    float *logprobs;    /* [like tokens] of the sampled tokens; may be NULL */
    pgl_token_logprob *top; /* TOP: [like tokens][n_top]; TARGETS (with or without TOP): [n_tokens][n_top] */
    float *target_logprobs; /* [n_tokens]; 0 where there is no target */
    float *logits;          /* [n_tokens][vocab_size] */
    float *hidden; /* [n_layers + 1][n_tokens][hidden_size]: embedding, after each layer but the last, final
                      norm */
    int32_t *experts;    /* [n_layers][n_tokens][n_experts_used], slots in falling order */
    float *draft_logits; /* [n_tokens - 1][vocab_size], post_norm variant; row t: hidden t and token t + 1 */
    uint32_t n_drafted;
    int32_t *drafts; /* [n_draft] */
} pgl_row_result;

typedef struct pgl_row {
    uint32_t slot;
    pgl_row_kind kind;
    bool from_last; /* the first token is the slot's last sampled one; tokens holds the n_tokens - 1 behind it
                     */
    bool
        from_drafts; /* VERIFY: the tokens behind the first are the slot's last drafts, still on the device */
    bool auto_commit;      /* VERIFY: accepted tokens are committed by the backend itself */
    uint32_t n_tokens;     /* >= 1 */
    const int32_t *tokens; /* ids below vocab_size */
    uint32_t wants;
    uint32_t n_top;                  /* <= PGL_MAX_TOP */
    uint32_t n_draft;                /* <= max_draft */
    const int32_t *targets;          /* [n_tokens]; -1: none for this position */
    const pgl_sample_params *params; /* with SAMPLE */
    const int32_t *stop_ids;
    uint32_t n_stop_ids;  /* <= PGL_MAX_STOP_IDS */
    uint32_t token_limit; /* most tokens this slot may still sample, this row's included; >= 1 with SAMPLE */
    pgl_mask_kind mask_kind;
    const uint32_t *mask; /* [COMMIT: 1, VERIFY: n_tokens][(n_vocab + 31) / 32] */
    pgl_row_result *result;
} pgl_row;

typedef struct pgl_step_plan {
    const pgl_op *before;
    size_t n_before;
    const pgl_row *rows; /* at most one row per slot */
    size_t n_rows;
    const pgl_op *after;
    size_t n_after;
    uint64_t *expert_counts; /* [n_layers][n_experts], added to; NULL unless some row wants COUNTS */
} pgl_step_plan;

typedef struct pgl_step_timing {
    uint64_t total_ns;
    uint64_t n_tokens;
    uint64_t bytes_read; /* weights, pages and state that had to be read; 0 where a backend does not count */
    uint32_t n_launches;
} pgl_step_timing;

typedef struct pgl_backend_memory {
    uint64_t weights_bytes; /* mapped or resident */
    uint64_t pages_bytes, slots_bytes, snapshots_bytes, work_bytes;
} pgl_backend_memory;

/* model is borrowed and must outlive the backend. The null backend has its own open: backend/null/null.h. */
pgl_status pgl_backend_open_cpu(const struct pgl_model *model, const pgl_backend_options *options,
                                pgl_backend **out, pgl_error *err);
void pgl_backend_close(pgl_backend *backend); /* waits for what is in flight; NULL is allowed */

const pgl_backend_caps *pgl_backend_get_caps(const pgl_backend *backend);
pgl_backend_memory pgl_backend_get_memory(const pgl_backend *backend);

pgl_status pgl_backend_submit(pgl_backend *backend, const pgl_step_plan *plan, uint64_t *ticket,
                              pgl_error *err);
pgl_status pgl_backend_mask_ready(pgl_backend *backend, uint64_t ticket, uint32_t row, pgl_error *err);
bool pgl_mask_allows_any(const uint32_t *mask, uint32_t n_vocab); /* one that allows no id is refused */
/* Tickets are waited for in the order of submission. timing may be NULL. */
pgl_status pgl_backend_wait(pgl_backend *backend, uint64_t ticket, pgl_step_timing *timing, pgl_error *err);

#endif
