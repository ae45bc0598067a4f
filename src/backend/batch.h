/* How backends that go through a model layer by layer cut a step: rows in order, and of each as many tokens as still
 * fit. A batch goes through all layers before the next one starts. Verify rows stay in one piece; a row that found its
 * slot inert has no tokens.
 *
 * Owns its arrays; nothing is allocated after open. One thread. */
#ifndef PGL_BACKEND_BATCH_H
#define PGL_BACKEND_BATCH_H

#include "backend/executor.h"
#include "backend/slots.h"

/* Neighbouring tokens of one row. */
typedef struct pgl_span {
    const pgl_row *row;
    uint32_t row_index;
    uint32_t slot;
    uint32_t first;    /* token of the batch */
    uint32_t n;        /* tokens */
    uint32_t offset;   /* of the first one in the row */
    uint32_t position; /* of the first one in the slot */
} pgl_span;

typedef struct pgl_batch {
    uint32_t capacity; /* tokens */
    uint32_t n_tokens, n_spans;
    pgl_span *spans;    /* [max_rows] */
    int32_t *tokens;    /* [capacity] */
    uint32_t *position; /* [capacity]: of each token, for keys and rotations */
    uint32_t *span_of;  /* [capacity] */
    /* Not 0: the batch is step n_tentative of a chain of drafts, one token for each span; position is that of the
     * first draft. */
    uint32_t n_tentative;

    /* of the step at hand */
    const pgl_step_plan *plan;
    int32_t *row_tokens; /* [max_step_tokens] of all its rows */
    uint32_t *row_start; /* [max_rows]: where a row's tokens start there */
    uint32_t *row_base;  /* [max_rows]: the slot's length before the row */
    bool *row_runs;      /* [max_rows]: not inert */
    bool *row_samples;   /* [max_rows]: no sample has ended the row yet */
    uint32_t next_row, next_offset;
    void *block;
} pgl_batch;

/* Tokens of a batch: at most `most`, and enough for a token of every row and for every verify row. */
uint32_t pgl_batch_capacity(const pgl_backend_caps *caps, uint32_t most);

/* Bytes that open will take. */
uint64_t pgl_batch_bytes(const pgl_backend_caps *caps, uint32_t capacity);

pgl_status pgl_batch_open(const pgl_backend_caps *caps, uint32_t capacity, pgl_batch *batch, pgl_error *err);
void pgl_batch_close(pgl_batch *batch);

/* Starts a step's rows, after its operations: results, lengths, tokens. */
void pgl_batch_begin(pgl_batch *batch, const pgl_slots *slots, const pgl_step_plan *plan);

/* Fills the batch with the next tokens of the step. False when there are none left. */
bool pgl_batch_pack(pgl_batch *batch);

/* The span that token t of the batch belongs to, and t's place in that span's row. */
static inline const pgl_span *pgl_batch_span(const pgl_batch *batch, uint32_t t) {
    return &batch->spans[batch->span_of[t]];
}
static inline uint32_t pgl_batch_place(const pgl_batch *batch, uint32_t t) {
    const pgl_span *span = pgl_batch_span(batch, t);
    return span->offset + t - span->first;
}

/* Whether the logits after token t are sampled, as far as is known now; and whether they are wanted at all. */
bool pgl_batch_is_sampled(const pgl_batch *batch, uint32_t t);
bool pgl_batch_is_wanted(const pgl_batch *batch, uint32_t t);

/* Waits for the late masks of the n tokens' rows that are going to be sampled; from execute. A row whose mask no longer
 * comes, because the backend is being closed, is not sampled, and its slot goes inert. */
void pgl_batch_await_masks(pgl_batch *batch, pgl_slots *slots, pgl_executor *executor, const uint32_t *tokens,
                           uint32_t n);

/* What is known of the position of token t besides its logits: nothing forced. */
pgl_position pgl_batch_position(const pgl_batch *batch, uint32_t t);

/* The rows that draft and have sampled, as a batch of one token each: the last sampled one, at the position of the first
 * draft. n_tentative becomes 1. */
void pgl_batch_drafts(pgl_batch *batch, const pgl_slots *slots);

/* Gives the drafts of the slots to the rows that asked for them; n_tentative becomes 0. */
void pgl_batch_give_drafts(pgl_batch *batch, const pgl_slots *slots);

#endif
