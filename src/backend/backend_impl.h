/* For backends only: the table behind pgl_backend, and the plan check that all of them share. */
#ifndef PGL_BACKEND_BACKEND_IMPL_H
#define PGL_BACKEND_BACKEND_IMPL_H

#include "backend/backend.h"

typedef struct pgl_backend_table {
    void (*close)(pgl_backend *backend);
    pgl_backend_memory (*memory)(const pgl_backend *backend);
    pgl_status (*submit)(pgl_backend *backend, const pgl_step_plan *plan, uint64_t *ticket, pgl_error *err);
    pgl_status (*mask_ready)(pgl_backend *backend, uint64_t ticket, uint32_t row, pgl_error *err);
    pgl_status (*wait)(pgl_backend *backend, uint64_t ticket, pgl_step_timing *timing, pgl_error *err);
} pgl_backend_table;

/* First member of every backend's own struct. */
struct pgl_backend {
    const pgl_backend_table *table;
    pgl_backend_caps caps;
    struct pgl_executor
        *executor; /* of those that compute on the host's own thread (backend/executor.h); NULL */
};

/* Fills caps with the options that every backend treats alike, after checking them: counts that must not be 0,
 * page_tokens a power of two in 16 .. 1024 (0 becomes 64), n_vocab within vocab_size (0 becomes vocab_size), the
 * page table of a slot within n_pages. What belongs to the model or the backend (name, sizes, page_bytes ...) must be
 * set before. */
pgl_status pgl_backend_caps_init(pgl_backend_caps *caps, const pgl_backend_options *options, pgl_error *err);

/* Entries of one slot's page table. */
uint32_t pgl_caps_table_pages(const pgl_backend_caps *caps);

/* Distinct ids that one slot's penalty history can hold. */
uint32_t pgl_caps_history(const pgl_backend_caps *caps);

#define PGL_SNAPSHOT_EMPTY UINT32_MAX

/* What a check has to know of each slot as the plans in flight will leave it. Numbers are upper bounds while tokens
 * are in flight: a slot may go inert, a verify row may accept less. */
typedef struct pgl_slot_shadow {
    uint32_t length;
    uint32_t n_bound;   /* pages bound from index 0 without a gap */
    uint32_t n_pending; /* of a verify row not yet committed */
    uint32_t n_drafts;  /* drafts on the device */
    uint32_t n_history; /* distinct ids in the penalty history */
    bool has_last;      /* a last sampled token exists */
    bool has_row;       /* scratch of the check */
} pgl_slot_shadow;

typedef struct pgl_plan_state {
    pgl_slot_shadow *slots;    /* [n_slots] */
    uint32_t *snapshot_length; /* [n_snapshots], PGL_SNAPSHOT_EMPTY: nothing saved */
} pgl_plan_state;

pgl_status pgl_plan_state_open(const pgl_backend_caps *caps, pgl_plan_state *state, pgl_error *err);
void pgl_plan_state_close(pgl_plan_state *state);
void pgl_plan_state_copy(const pgl_backend_caps *caps, pgl_plan_state *to, const pgl_plan_state *from);

/* Checks a plan against caps and state, and moves state on only when all of it is right; a plan that is refused
 * (PGL_E_INVALID, naming the row or operation, what was expected and what was found) leaves it as it was. scratch
 * is a second state of the same size. Reads every array the plan points to except late masks and the tokens that
 * stay on the device. Allocates nothing. */
pgl_status pgl_plan_check(const pgl_backend_caps *caps, const pgl_step_plan *plan, pgl_plan_state *state,
                          pgl_plan_state *scratch, pgl_error *err);

/* Moves state on by a plan that was checked before, when more is known now (a row was inert, a verify row accepted
 * less): bounds only shrink, so nothing is checked again. */
void pgl_plan_apply(const pgl_backend_caps *caps, const pgl_step_plan *plan, pgl_plan_state *state);

/* Tokens of row that the host gives: those not taken from the slot's last token or drafts. */
uint32_t pgl_row_host_tokens(const pgl_row *row);

/* Positions of row whose logits are sampled: 0, 1, or n_tokens for a verify row. */
uint32_t pgl_row_sampled(const pgl_row *row);

#endif
