/* For backends that compute on the host: one thread of their own that carries plans out in order, with the checks,
 * tickets and late masks that backend.h promises.
 *
 * Owns the thread, the shadows of pgl_plan_check and the records of the steps in flight; nothing is allocated after
 * open. execute and state are called on the executor's thread only. After execute has failed, every later
 * plan ends with PGL_E_DEVICE without being looked at. */
#ifndef PGL_BACKEND_EXECUTOR_H
#define PGL_BACKEND_EXECUTOR_H

#include "backend/backend_impl.h"

#define PGL_EXECUTOR_IN_FLIGHT 2u

typedef struct pgl_executor pgl_executor;

typedef struct pgl_executor_client {
    /* Carries a checked plan out. Fills bytes_read and n_launches of timing, the executor the rest. */
    pgl_status (*execute)(void *self, const pgl_step_plan *plan, pgl_step_timing *timing, pgl_error *err);
    /* Writes what is true after the last executed plan. */
    void (*state)(const void *self, pgl_plan_state *state);
} pgl_executor_client;

/* caps and self must outlive the executor. name is the thread's. */
pgl_status pgl_executor_open(const char *name, const pgl_backend_caps *caps,
                             const pgl_executor_client *client, void *self, pgl_executor **out,
                             pgl_error *err);

/* Waits for what is in flight; a late mask that was not announced is no longer waited for. NULL is allowed. */
void pgl_executor_close(pgl_executor *executor);

/* For the tables of backends that have an executor; backend.h says what these do. */
pgl_status pgl_executor_submit(pgl_backend *backend, const pgl_step_plan *plan, uint64_t *ticket,
                               pgl_error *err);
pgl_status pgl_executor_mask_ready(pgl_backend *backend, uint64_t ticket, uint32_t row, pgl_error *err);
pgl_status pgl_executor_wait(pgl_backend *backend, uint64_t ticket, pgl_step_timing *timing, pgl_error *err);

/* From execute, on the executor's thread: whether the late mask of row is there, and waiting for it. Waiting returns
 * false when the executor is being closed: the row is then not to be sampled. */
bool pgl_executor_mask_is_ready(pgl_executor *executor, uint32_t row);
bool pgl_executor_await_mask(pgl_executor *executor, uint32_t row);

#endif
