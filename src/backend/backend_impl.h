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
};

/* What a check has to know of each slot as the plans in flight will leave it. */
typedef struct pgl_slot_shadow {
    uint32_t length;    /* upper bound while tokens are in flight */
    uint32_t n_bound;   /* pages bound from index 0 without a gap */
    uint32_t n_pending; /* of a verify row not yet committed */
    bool has_last;      /* a last sampled token exists */
    uint32_t n_drafts;  /* drafts on the device */
} pgl_slot_shadow;

/* Checks a plan against caps and the shadows, and moves the shadows on only when all of it is right.
 * snapshot_length [n_snapshots] is kept the same way (UINT32_MAX: empty). scratch is [n_slots] of shadows. */
pgl_status pgl_plan_check(const pgl_backend_caps *caps, const pgl_step_plan *plan, pgl_slot_shadow *shadows,
                          uint32_t *snapshot_length, pgl_slot_shadow *scratch, pgl_error *err);

#endif
