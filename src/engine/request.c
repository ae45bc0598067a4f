/* Owns a request's memory and its queue. The reader's lock is held for a few copies and for notify. */
#include "engine/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engine_impl.h"

void pgl_account_drop(pgl_account *account) {
    if (account != NULL && atomic_fetch_sub(&account->holders, 1) == 1)
        free(account);
}

/* ---- memory ---- */

/* Collects the parts of a request: first their sizes, then, from one block, their places. */
typedef struct layout {
    uint8_t *block; /* NULL while measuring */
    size_t used;
    bool fits;
} layout;

static void *part(layout *l, size_t n, size_t size) {
    size_t bytes, end;
    if (!pgl_mul_size(n, size, &bytes) || !pgl_add_size(bytes, 15, &bytes) ||
        !pgl_add_size(l->used, bytes & ~(size_t)15, &end)) {
        l->fits = false;
        return NULL;
    }
    void *at = l->block != NULL ? l->block + l->used : NULL;
    l->used = end;
    return at;
}

static void *copy(layout *l, const void *from, size_t n, size_t size) {
    void *at = part(l, n, size);
    if (at != NULL && n > 0)
        memcpy(at, from, n * size);
    return at;
}

enum { LAST_HINTS = 3 };

/* The first place and the last few. */
static const uint32_t *copy_hints(layout *l, const pgl_request_params *p, uint32_t *n) {
    bool all = p->n_snapshot_at <= LAST_HINTS + 1;
    *n = all ? p->n_snapshot_at : LAST_HINTS + 1;
    uint32_t *hints = part(l, *n, sizeof *hints);
    for (uint32_t i = 0; hints != NULL && i < *n; i++)
        hints[i] = p->snapshot_at[all || i == 0 ? i : p->n_snapshot_at - *n + i];
    return hints;
}

static void lay_out(layout *l, pgl_request *r, const pgl_request_params *p, const pgl_backend_caps *caps) {
    size_t n_final = (size_t)p->n_prompt + r->max_tokens;
    bool counts = pgl_sample_wants_history(&p->sampling);
    r->tokens = part(l, n_final, sizeof *r->tokens);
    r->pages = part(l, n_final / caps->page_tokens + 1, sizeof *r->pages);
    r->logprobs = p->logprobs ? part(l, r->max_tokens, sizeof *r->logprobs) : NULL;
    r->top = r->n_top > 0 ? part(l, r->max_tokens / PGL_TOP_BLOCK + 1, sizeof *r->top) : NULL;
    if (p->prompt_logprobs) {
        size_t n_prompt_top;
        l->fits = l->fits && pgl_mul_size((size_t)p->n_prompt + 1, r->n_top, &n_prompt_top);
        r->prompt_logprobs = part(l, (size_t)p->n_prompt + 1, sizeof *r->prompt_logprobs);
        r->prompt_top = part(l, l->fits ? n_prompt_top : 0, sizeof *r->prompt_top);
    }
    r->most_steps =
        p->note_steps ? (uint32_t)(n_final < PGL_MOST_STEP_NOTES ? n_final : PGL_MOST_STEP_NOTES) : 0;
    r->steps = p->note_steps ? part(l, r->most_steps, sizeof *r->steps) : NULL;
    r->counts = counts ? part(l, n_final, sizeof *r->counts) : NULL;
    r->mask = p->mask.next != NULL ? part(l, (caps->n_vocab + 31) / 32, sizeof *r->mask) : NULL;
    r->params.stop_ids = copy(l, p->stop_ids, p->n_stop_ids, sizeof *p->stop_ids);
    r->params.sampling.bias = copy(l, p->sampling.bias, p->sampling.n_bias, sizeof *p->sampling.bias);
    r->params.snapshot_at = copy_hints(l, p, &r->params.n_snapshot_at);
    r->params.forced = copy(l, p->forced, p->n_forced, sizeof *p->forced);
}

static int by_id(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Each id of the prompt once, rising. */
static pgl_status count_prompt(pgl_request *r, pgl_error *err) {
    uint32_t n = r->params.n_prompt;
    int32_t *sorted = pgl_new(n, sizeof *sorted);
    if (sorted == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory to count %u prompt tokens", n);
    memcpy(sorted, r->tokens, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_id);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || sorted[i] != sorted[i - 1])
            r->counts[r->n_counts++] = (pgl_token_count){.id = sorted[i], .in_prompt = true};
    free(sorted);
    return PGL_OK;
}

/* The most that the blocks of top log-probabilities can come to. */
static bool top_bytes(const pgl_request *r, size_t *bytes) {
    size_t n = (size_t)r->max_tokens / PGL_TOP_BLOCK + 1;
    return pgl_mul_size(n, (size_t)PGL_TOP_BLOCK * sizeof(pgl_token_logprob), &n) &&
           pgl_mul_size(n, r->n_top, bytes);
}

static bool open_lock(pgl_request *r) {
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return false;
    bool clock = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0;
    bool changed = clock && pthread_cond_init(&r->changed, &attributes) == 0;
    (void)pthread_condattr_destroy(&attributes);
    if (changed && pthread_mutex_init(&r->lock, NULL) != 0) {
        (void)pthread_cond_destroy(&r->changed);
        return false;
    }
    return changed;
}

static pgl_status charge(pgl_request *r, uint64_t most_bytes, pgl_error *err) {
    uint64_t before = atomic_fetch_add(&r->account->bytes, r->bytes);
    if (before + r->bytes <= most_bytes)
        return PGL_OK;
    (void)atomic_fetch_sub(&r->account->bytes, r->bytes);
    if (r->bytes > most_bytes)
        return pgl_fail(err, PGL_E_TOO_LARGE,
                        "the request needs %llu bytes of memory, the limit for all requests is %llu",
                        (unsigned long long)r->bytes, (unsigned long long)most_bytes);
    return pgl_fail(err, PGL_E_BUSY, "requests hold %llu of %llu bytes of memory and this one needs %llu",
                    (unsigned long long)before, (unsigned long long)most_bytes, (unsigned long long)r->bytes);
}

pgl_status pgl_request_new(const pgl_request_params *params, const pgl_backend_caps *caps,
                           pgl_account *account, uint64_t most_bytes, pgl_request **out, pgl_error *err) {
    *out = NULL;
    pgl_request shape = {.n_top = params->n_top, .params = *params};
    uint32_t room = caps->max_context - params->n_prompt; /* checked: the prompt fits */
    shape.max_tokens = params->max_tokens < room ? params->max_tokens : room;
    if (params->prompt_logprobs && params->n_prompt_top > shape.n_top)
        shape.n_top = params->n_prompt_top;
    layout l = {.fits = true};
    (void)part(&l, 1, sizeof shape);
    lay_out(&l, &shape, params, caps);
    size_t top, bytes;
    if (!l.fits || !top_bytes(&shape, &top) || !pgl_add_size(l.used, top, &bytes))
        return pgl_fail(err, PGL_E_TOO_LARGE, "the request's sizes overflow");
    shape.bytes = bytes;
    shape.account = account;
    pgl_status status = charge(&shape, most_bytes, err);
    if (status != PGL_OK)
        return status;

    l = (layout){.block = pgl_new(l.used, 1), .fits = true};
    pgl_request *r = (pgl_request *)(void *)l.block;
    if (r == NULL) {
        (void)atomic_fetch_sub(&account->bytes, bytes);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a request of %zu bytes", bytes);
    }
    (void)part(&l, 1, sizeof *r);
    *r = shape;
    lay_out(&l, r, params, caps);
    memcpy(r->tokens, params->prompt, params->n_prompt * sizeof *r->tokens);
    r->params.prompt = r->tokens;
    r->n_stop_ids = params->ignore_eos ? 0 : params->n_stop_ids;
    r->slot = PGL_NO_SLOT;
    r->n_value = params->n_prompt;
    r->prompt_complete = !params->prompt_logprobs;
    r->stop_id = -1;
    r->mask_token = -1;
    r->usage.cache = pgl_cache_no_hit(PGL_MISS_OFF).decision;
    atomic_init(&r->holders, 2);
    status = r->counts != NULL ? count_prompt(r, err) : PGL_OK;
    if (status == PGL_OK && !open_lock(r))
        status = pgl_fail(err, PGL_E_MEMORY, "no lock for a request");
    if (status != PGL_OK) {
        (void)atomic_fetch_sub(&account->bytes, bytes);
        free(r);
        return status;
    }
    (void)atomic_fetch_add(&account->holders, 1);
    *out = r;
    return PGL_OK;
}

void pgl_request_drop(pgl_request *r) {
    if (atomic_fetch_sub(&r->holders, 1) != 1)
        return;
    if (r->params.mask.close != NULL)
        r->params.mask.close(r->params.mask.user);
    for (size_t i = 0; r->top != NULL && i < (size_t)r->max_tokens / PGL_TOP_BLOCK + 1; i++)
        free(r->top[i]);
    (void)pthread_cond_destroy(&r->changed);
    (void)pthread_mutex_destroy(&r->lock);
    (void)atomic_fetch_sub(&r->account->bytes, r->bytes);
    pgl_account_drop(r->account);
    free(r);
}

/* ---- engine thread ---- */

static bool has_event(const pgl_request *r) {
    bool prompt = r->prompt_ready && !r->prompt_taken;
    bool token = r->n_taken < r->n_generated;
    return prompt || token || (r->finish != PGL_FINISH_NONE && !r->finish_taken);
}

/* With the lock held, after a change; was: there were events before it. */
static void announce(pgl_request *r, bool was) {
    (void)pthread_cond_broadcast(&r->changed);
    if (!was && !r->released && r->params.notify != NULL)
        r->params.notify(r->params.user);
}

void pgl_request_publish_state(pgl_request *r, pgl_request_state state, uint32_t n_read) {
    (void)pthread_mutex_lock(&r->lock);
    r->state = state;
    if (n_read > r->n_read)
        r->n_read = n_read;
    (void)pthread_mutex_unlock(&r->lock);
}

void pgl_request_publish_admitted(pgl_request *r, const pgl_cache_decision *decision) {
    (void)pthread_mutex_lock(&r->lock);
    r->state = PGL_REQUEST_PROMPT;
    r->n_read = decision->n_cached;
    r->usage.n_cached = decision->n_cached;
    r->usage.cache = *decision;
    r->usage.queued_ns = r->admitted_ns - r->submitted_ns;
    (void)pthread_mutex_unlock(&r->lock);
}

void pgl_request_publish_step(pgl_request *r, const pgl_step_note *note) {
    if (r->steps == NULL)
        return;
    (void)pthread_mutex_lock(&r->lock);
    if (r->n_steps < r->most_steps) {
        r->steps[r->n_steps] = *note;
        r->steps[r->n_steps].end_ns = pgl_now_ns() - r->submitted_ns;
    }
    r->n_steps++;
    (void)pthread_mutex_unlock(&r->lock);
}

void pgl_request_publish_parked(pgl_request *r) {
    (void)pthread_mutex_lock(&r->lock);
    r->state = PGL_REQUEST_PARKED;
    r->usage.n_parked++;
    (void)pthread_mutex_unlock(&r->lock);
}

void pgl_request_publish_prompt(pgl_request *r) {
    (void)pthread_mutex_lock(&r->lock);
    bool was = has_event(r);
    r->prompt_ready = true;
    announce(r, was);
    (void)pthread_mutex_unlock(&r->lock);
}

void pgl_request_publish_token(pgl_request *r) {
    (void)pthread_mutex_lock(&r->lock);
    bool was = has_event(r);
    r->state = PGL_REQUEST_ANSWER;
    if (r->n_generated++ == 0)
        r->usage.prompt_ns = r->first_ns - r->admitted_ns;
    announce(r, was);
    (void)pthread_mutex_unlock(&r->lock);
}

void pgl_request_publish_finish(pgl_request *r, pgl_finish finish, int32_t stop_id, const pgl_error *error) {
    (void)pthread_mutex_lock(&r->lock);
    bool was = has_event(r);
    uint64_t now = pgl_now_ns();
    uint64_t admitted = r->admitted_ns != 0 ? r->admitted_ns : now,
             first = r->first_ns != 0 ? r->first_ns : now;
    r->state = PGL_REQUEST_DONE;
    r->finish = finish;
    r->stop_id = stop_id;
    if (error != NULL)
        r->error = *error;
    r->usage.n_prompt = r->params.n_prompt;
    r->usage.n_generated = r->n_generated;
    r->usage.queued_ns = admitted - r->submitted_ns;
    r->usage.prompt_ns = first - admitted;
    r->usage.generation_ns = now - first;
    announce(r, was);
    (void)pthread_mutex_unlock(&r->lock);
}

/* ---- readers ---- */

bool pgl_request_next(pgl_request *r, pgl_event *event) {
    (void)pthread_mutex_lock(&r->lock);
    bool any = has_event(r);
    *event = (pgl_event){.token = -1, .stop_id = -1};
    if (any && r->prompt_ready && !r->prompt_taken) {
        r->prompt_taken = true;
        event->kind = PGL_EVENT_PROMPT;
        event->prompt_logprobs = r->prompt_logprobs;
        event->prompt_top = r->n_top > 0 ? r->prompt_top : NULL;
        event->n_top = r->n_top;
    } else if (any && r->n_taken < r->n_generated) {
        uint32_t i = r->n_taken++;
        event->kind = PGL_EVENT_TOKEN;
        event->token = r->tokens[r->params.n_prompt + i];
        event->logprob = r->logprobs != NULL ? r->logprobs[i] : 0.0F;
        if (r->n_top > 0) {
            event->top = r->top[i / PGL_TOP_BLOCK] + (size_t)(i % PGL_TOP_BLOCK) * r->n_top;
            event->n_top = r->n_top;
        }
    } else if (any) {
        r->finish_taken = true;
        event->kind = PGL_EVENT_FINISH;
        event->finish = r->finish;
        event->stop_id = r->stop_id;
        event->usage = r->usage;
    }
    (void)pthread_mutex_unlock(&r->lock);
    return any;
}

bool pgl_request_wait(pgl_request *r, uint64_t wait_ns) {
    uint64_t now = pgl_now_ns();
    uint64_t until = wait_ns < UINT64_MAX - now ? now + wait_ns : UINT64_MAX;
    struct timespec at = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
    (void)pthread_mutex_lock(&r->lock);
    int status = 0;
    while (!has_event(r) && !r->finish_taken && status != ETIMEDOUT)
        status = until == UINT64_MAX ? pthread_cond_wait(&r->changed, &r->lock)
                                     : pthread_cond_timedwait(&r->changed, &r->lock, &at);
    bool any = has_event(r);
    (void)pthread_mutex_unlock(&r->lock);
    return any;
}

void pgl_request_cancel(pgl_request *r) {
    (void)pthread_mutex_lock(&r->lock);
    /* Under the lock: until its requests have finished, and so taken this lock, the engine is there. */
    if (r->finish == PGL_FINISH_NONE && !atomic_exchange(&r->cancelled, true))
        pgl_engine_wake(r->engine);
    (void)pthread_mutex_unlock(&r->lock);
}

pgl_request_view pgl_request_progress(pgl_request *r) {
    (void)pthread_mutex_lock(&r->lock);
    pgl_request_view progress = {
        .state = r->state,
        .n_prompt = r->params.n_prompt,
        .n_read = r->n_read < r->params.n_prompt ? r->n_read : r->params.n_prompt,
        .n_cached = r->usage.n_cached,
        .n_generated = r->n_generated,
        .cache = r->usage.cache,
        .queued_ns = r->usage.queued_ns,
        .prompt_ns = r->usage.prompt_ns,
    };
    (void)pthread_mutex_unlock(&r->lock);
    return progress;
}

uint32_t pgl_request_steps(pgl_request *r, pgl_step_note *notes, uint32_t n) {
    (void)pthread_mutex_lock(&r->lock);
    uint32_t n_steps = r->n_steps;
    uint32_t kept = n_steps < r->most_steps ? n_steps : r->most_steps;
    kept = n < kept ? n : kept;
    if (kept > 0)
        memcpy(notes, r->steps, kept * sizeof *notes);
    (void)pthread_mutex_unlock(&r->lock);
    return n_steps;
}

pgl_status pgl_request_error(pgl_request *r, pgl_error *err) {
    (void)pthread_mutex_lock(&r->lock);
    pgl_status status = r->error.status;
    if (err != NULL)
        *err = r->error;
    (void)pthread_mutex_unlock(&r->lock);
    return status;
}

void pgl_request_release(pgl_request *r) {
    if (r == NULL)
        return;
    pgl_request_cancel(r);
    (void)pthread_mutex_lock(&r->lock);
    r->released = true;
    (void)pthread_mutex_unlock(&r->lock);
    pgl_request_drop(r);
}
