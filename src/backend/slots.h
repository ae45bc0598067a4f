/* What a host backend knows of its slots besides the model's state: length, page table, last token, drafts, penalty
 * history, and whether a slot has ended. And what becomes of a position's logits: the sampled token, its
 * log-probabilities, stop ids and limits.
 *
 * Owns all of it; nothing is allocated after open. Different slots may be worked on by different threads at once; one
 * slot by one. */
#ifndef PGL_BACKEND_SLOTS_H
#define PGL_BACKEND_SLOTS_H

#include "backend/backend_impl.h"

typedef struct pgl_slot {
    uint32_t length;
    uint32_t n_bound;
    uint32_t n_pending; /* tokens of a verify row that are not committed */
    uint32_t n_drafts;
    bool has_last, inert;
    int32_t last;
    uint32_t *pages;          /* [pgl_caps_table_pages] */
    int32_t *drafts;          /* [max_draft] */
    int32_t *pending;         /* [max_draft + 1] */
    pgl_token_count *history; /* [pgl_caps_history], rising ids */
    size_t n_history;
} pgl_slot;

typedef struct pgl_slots {
    const pgl_backend_caps *caps;
    pgl_slot *slot;            /* [n_slots] */
    uint32_t *snapshot_length; /* [n_snapshots] */
    void *blocks[4];
} pgl_slots;

/* Bytes that open will take. */
uint64_t pgl_slots_bytes(const pgl_backend_caps *caps);

pgl_status pgl_slots_open(const pgl_backend_caps *caps, pgl_slots *slots, pgl_error *err);
void pgl_slots_close(pgl_slots *slots);

/* For pgl_executor_client.state. */
void pgl_slots_state(const pgl_slots *slots, pgl_plan_state *state);

/* The part of an operation that this struct holds; COMMIT gives up the pending tokens and moves the length on. */
void pgl_slots_apply(pgl_slots *slots, const pgl_op *op);

/* How many pending tokens a COMMIT takes: less than op->n when the verify row found its slot inert. */
uint32_t pgl_slots_commit_count(const pgl_slots *slots, const pgl_op *op);

/* The tokens of a row, those on the device included. out [n_tokens]. */
void pgl_slots_row_tokens(const pgl_slots *slots, const pgl_row *row, int32_t *out);

/* Where position `index` of slot lives. */
static inline uint32_t pgl_slot_page(const pgl_slots *slots, uint32_t slot, uint32_t index) {
    return slots->slot[slot].pages[index / slots->caps->page_tokens];
}

/* Sets the fields of the row's result that are counted up later. Returns false when the slot is inert: the row is to
 * be skipped. */
bool pgl_slots_begin_row(const pgl_slots *slots, const pgl_row *row);

/* One position of a row with logits [vocab_size]. */
typedef struct pgl_position {
    const pgl_row *row;
    uint32_t base;         /* slot's length before the row */
    uint32_t index;        /* of the token whose logits these are */
    const int32_t *tokens; /* of the row */
    const float *logits;
    int32_t forced; /* the token to sample, when the mask allows it; -1: none */
} pgl_position;

/* What the row wants of this position's logits but the sampling: targets, the copy of all logits, the flag for
 * non-finite values. */
void pgl_slots_score(pgl_slots *slots, pgl_sampler *sampler, const pgl_position *position);

/* Samples after position: token, log-probability, top, stop ids, limit, history. Returns true when a verify row goes
 * on to its next position: the sampled token is the draft behind it. Non-finite logits, or a mask that allows nothing,
 * set the flag and end the slot. */
bool pgl_slots_sample(pgl_slots *slots, pgl_sampler *sampler, const pgl_position *position);

/* After the last sample: lengths, pending tokens and the result's length. Returns how many of the row's tokens the
 * state is to move past now. */
uint32_t pgl_slots_end_row(pgl_slots *slots, const pgl_row *row, const int32_t *tokens);

#endif
