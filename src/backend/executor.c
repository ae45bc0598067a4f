/* One lock guards the ring of steps. The engine's thread fills the step at `submitted`, the executor's thread takes
 * the one at `executed`, and wait gives the one at `waited` back: waited <= executed <= submitted. A plan's contents
 * are read by the check (engine's thread, before it is counted as submitted) and then by the executor's thread alone
 * until the step is done. */
#include "backend/executor.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

typedef struct step {
    const pgl_step_plan *plan;
    bool *mask_ready; /* [max_rows] */
    bool done;
    pgl_status status;
    pgl_error error;
    pgl_step_timing timing;
    pgl_plan_state after; /* what is true when it is done */
} step;

struct pgl_executor {
    /* fixed after open */
    const pgl_backend_caps *caps;
    pgl_executor_client client;
    void *self;
    char name[16];
    pthread_t thread;
    bool started;

    /* engine's thread only: what will be true after all that was submitted */
    pgl_plan_state shadow, scratch;

    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* work: a new plan, a mask, closing */
    step steps[PGL_EXECUTOR_IN_FLIGHT];
    uint64_t submitted, executed, waited;
    bool closing, failed;
};

static step *step_of(pgl_executor *executor, uint64_t ticket) {
    return &executor->steps[ticket % PGL_EXECUTOR_IN_FLIGHT];
}

static void run_step(pgl_executor *executor, step *s, bool failed) {
    uint64_t start = pgl_now_ns();
    s->timing = (pgl_step_timing){0};
    if (failed) {
        s->status = pgl_fail(&s->error, PGL_E_DEVICE, "an earlier step failed; the backend must be closed");
        return;
    }
    s->status = executor->client.execute(executor->self, s->plan, &s->timing, &s->error);
    executor->client.state(executor->self, &s->after);
    for (size_t i = 0; i < s->plan->n_rows; i++) {
        if (s->plan->rows[i].result->end != PGL_ROW_INERT)
            s->timing.n_tokens += s->plan->rows[i].n_tokens;
    }
    s->timing.total_ns = pgl_now_ns() - start;
}

static void *executor_main(void *arg) {
    pgl_executor *executor = arg;
#ifdef __linux__
    (void)pthread_setname_np(pthread_self(), executor->name);
#endif
    pthread_mutex_lock(&executor->lock);
    for (;;) {
        while (executor->executed == executor->submitted && !executor->closing)
            pthread_cond_wait(&executor->work, &executor->lock);
        if (executor->executed == executor->submitted)
            break;
        step *s = step_of(executor, executor->executed);
        bool failed = executor->failed;
        pthread_mutex_unlock(&executor->lock);
        run_step(executor, s, failed);
        pthread_mutex_lock(&executor->lock);
        executor->failed = executor->failed || s->status != PGL_OK;
        s->done = true;
        executor->executed++;
        pthread_cond_broadcast(&executor->done);
    }
    pthread_mutex_unlock(&executor->lock);
    return NULL;
}

static pgl_status open_parts(pgl_executor *executor, pgl_error *err) {
    const pgl_backend_caps *caps = executor->caps;
    pgl_status status = pgl_plan_state_open(caps, &executor->shadow, err);
    if (status == PGL_OK)
        status = pgl_plan_state_open(caps, &executor->scratch, err);
    for (size_t i = 0; status == PGL_OK && i < PGL_EXECUTOR_IN_FLIGHT; i++) {
        status = pgl_plan_state_open(caps, &executor->steps[i].after, err);
        executor->steps[i].mask_ready = pgl_new(caps->max_rows, sizeof(bool));
        if (status == PGL_OK && executor->steps[i].mask_ready == NULL)
            status = pgl_fail(err, PGL_E_MEMORY, "no memory for the records of %u rows", caps->max_rows);
    }
    if (status != PGL_OK)
        return status;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all,
                    &old); /* signals are the business of the threads that asked for them */
    int error = pthread_create(&executor->thread, NULL, executor_main, executor);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error != 0)
        return pgl_fail(err, PGL_E_MEMORY, "cannot start the backend's thread: %s", strerror(error));
    executor->started = true;
    return PGL_OK;
}

pgl_status pgl_executor_open(const char *name, const pgl_backend_caps *caps,
                             const pgl_executor_client *client, void *self, pgl_executor **out,
                             pgl_error *err) {
    *out = NULL;
    pgl_executor *executor = pgl_new(1, sizeof *executor);
    if (executor == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the backend's executor");
    executor->caps = caps;
    executor->client = *client;
    executor->self = self;
    snprintf(executor->name, sizeof executor->name, "%s", name);
    pthread_mutex_init(&executor->lock, NULL); /* with default attributes these cannot fail on Linux */
    pthread_cond_init(&executor->work, NULL);
    pthread_cond_init(&executor->done, NULL);
    pgl_status status = open_parts(executor, err);
    if (status != PGL_OK) {
        pgl_executor_close(executor);
        return status;
    }
    *out = executor;
    return PGL_OK;
}

void pgl_executor_close(pgl_executor *executor) {
    if (executor == NULL)
        return;
    if (executor->started) {
        pthread_mutex_lock(&executor->lock);
        executor->closing = true;
        pthread_cond_broadcast(&executor->work);
        pthread_mutex_unlock(&executor->lock);
        pthread_join(executor->thread, NULL);
    }
    for (size_t i = 0; i < PGL_EXECUTOR_IN_FLIGHT; i++) {
        pgl_plan_state_close(&executor->steps[i].after);
        free(executor->steps[i].mask_ready);
    }
    pgl_plan_state_close(&executor->shadow);
    pgl_plan_state_close(&executor->scratch);
    pthread_cond_destroy(&executor->done);
    pthread_cond_destroy(&executor->work);
    pthread_mutex_destroy(&executor->lock);
    free(executor);
}

pgl_status pgl_executor_submit(pgl_backend *backend, const pgl_step_plan *plan, uint64_t *ticket,
                               pgl_error *err) {
    pgl_executor *executor = backend->executor;
    pthread_mutex_lock(&executor->lock);
    bool full = executor->submitted - executor->waited == PGL_EXECUTOR_IN_FLIGHT;
    bool failed = executor->failed;
    pthread_mutex_unlock(&executor->lock);
    if (failed)
        return pgl_fail(err, PGL_E_DEVICE, "an earlier step failed; the backend must be closed");
    if (full)
        return pgl_fail(err, PGL_E_INVALID, "plan: %u steps are in flight; wait must come first",
                        PGL_EXECUTOR_IN_FLIGHT);
    pgl_status status = pgl_plan_check(executor->caps, plan, &executor->shadow, &executor->scratch, err);
    if (status != PGL_OK)
        return status;
    pthread_mutex_lock(&executor->lock);
    step *s = step_of(executor, executor->submitted);
    s->plan = plan;
    s->done = false;
    s->status = PGL_OK;
    memset(s->mask_ready, 0, executor->caps->max_rows * sizeof *s->mask_ready);
    *ticket = executor->submitted++;
    pthread_cond_broadcast(&executor->work);
    pthread_mutex_unlock(&executor->lock);
    return PGL_OK;
}

pgl_status pgl_executor_mask_ready(pgl_backend *backend, uint64_t ticket, uint32_t row, pgl_error *err) {
    pgl_executor *executor = backend->executor;
    pgl_status status = PGL_OK;
    pthread_mutex_lock(&executor->lock);
    if (ticket < executor->waited || ticket >= executor->submitted) {
        status =
            pgl_fail(err, PGL_E_INVALID, "mask_ready: no step %llu is in flight", (unsigned long long)ticket);
    } else {
        step *s = step_of(executor, ticket);
        const pgl_step_plan *plan = s->plan;
        if (row >= plan->n_rows)
            status = pgl_fail(err, PGL_E_INVALID, "mask_ready: step %llu has %zu rows, found row %u",
                              (unsigned long long)ticket, plan->n_rows, row);
        else if (plan->rows[row].mask_kind != PGL_MASK_LATE)
            status = pgl_fail(err, PGL_E_INVALID, "mask_ready: row %u has no late mask", row);
        else if (!pgl_mask_allows_any(plan->rows[row].mask, executor->caps->n_vocab))
            status = pgl_fail(err, PGL_E_INVALID, "mask_ready: the mask of row %u allows no id", row);
        else
            s->mask_ready[row] = true;
        pthread_cond_broadcast(&executor->work);
    }
    pthread_mutex_unlock(&executor->lock);
    return status;
}

/* Shadows anew: what is true after the step at hand, then what the plans behind it will do. */
static void renew_shadow(pgl_executor *executor, const step *s, uint64_t ticket) {
    pgl_plan_state_copy(executor->caps, &executor->shadow, &s->after);
    for (uint64_t next = ticket + 1; next < executor->submitted; next++)
        pgl_plan_apply(executor->caps, step_of(executor, next)->plan, &executor->shadow);
}

pgl_status pgl_executor_wait(pgl_backend *backend, uint64_t ticket, pgl_step_timing *timing, pgl_error *err) {
    pgl_executor *executor = backend->executor;
    pthread_mutex_lock(&executor->lock);
    if (executor->waited == executor->submitted || ticket != executor->waited) {
        pgl_status status =
            pgl_fail(err, PGL_E_INVALID, "wait: the next step to wait for is %llu of %llu, found %llu",
                     (unsigned long long)executor->waited, (unsigned long long)executor->submitted,
                     (unsigned long long)ticket);
        pthread_mutex_unlock(&executor->lock);
        return status;
    }
    step *s = step_of(executor, ticket);
    while (!s->done)
        pthread_cond_wait(&executor->done, &executor->lock);
    executor->waited++;
    pthread_mutex_unlock(&executor->lock);
    if (timing != NULL)
        *timing = s->timing;
    if (s->status != PGL_OK) {
        if (err != NULL)
            *err = s->error;
        return s->status;
    }
    renew_shadow(executor, s, ticket);
    return PGL_OK;
}

bool pgl_executor_mask_is_ready(pgl_executor *executor, uint32_t row) {
    pthread_mutex_lock(&executor->lock);
    bool ready = step_of(executor, executor->executed)->mask_ready[row];
    pthread_mutex_unlock(&executor->lock);
    return ready;
}

bool pgl_executor_await_mask(pgl_executor *executor, uint32_t row) {
    pthread_mutex_lock(&executor->lock);
    step *s = step_of(executor, executor->executed);
    while (!s->mask_ready[row] && !executor->closing)
        pthread_cond_wait(&executor->work, &executor->lock);
    bool ready = s->mask_ready[row];
    pthread_mutex_unlock(&executor->lock);
    return ready;
}
