/* Owns the threads that compute token masks, and the lists of requests that wait for them, are slow, or are done. A request
 * is in one of them at most.
 *
 * A mask is asked for as soon as the token before it is known, the first one on admission, and a row that samples is
 * planned when its mask is there: a grammar can make a mask take as long as it likes, and a step that has begun would have
 * to wait. So that masks that take no time miss no step, planning waits for those of requests whose last one was quick,
 * and for no longer than a small part of a step; who makes others wait for nothing is slow until a mask is quick again. One
 * thread at least is for the slow, and one for the quick. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "engine/engine_impl.h"

static const uint64_t second_ns = 1000000000u;
static const uint64_t least_wait_ns = 250000; /* a thread's waking and a common mask */

/* ---- lists; the lock is held ---- */

static void push(pgl_mask_list *list, pgl_request *r) {
    r->next_mask = NULL;
    *list->end = r;
    list->end = &r->next_mask;
}

static pgl_request *pop(pgl_mask_list *list) {
    pgl_request *r = list->first;
    if (r != NULL) {
        list->first = r->next_mask;
        if (list->first == NULL)
            list->end = &list->first;
        r->next_mask = NULL;
    }
    return r;
}

/* The thread's next one; *slow: it counts among the slow at work. */
static pgl_request *choose(pgl_engine *engine, bool *slow) {
    pgl_request *r = engine->n_slow_at_work == 0 ? pop(&engine->slow_masks) : NULL;
    *slow = r != NULL;
    if (r == NULL)
        r = pop(&engine->quick_masks);
    if (r == NULL && engine->n_slow_at_work < engine->most_slow_masks) {
        r = pop(&engine->slow_masks);
        *slow = r != NULL;
    }
    engine->n_slow_at_work += *slow;
    return r;
}

/* ---- the threads ---- */

static void compute(const pgl_engine *engine, pgl_request *r) {
    const pgl_mask_provider *mask = &r->params.mask;
    uint64_t start = pgl_thread_ns();
    r->mask_answer = mask->next(mask->user, r->mask_token, r->mask, &r->mask_error);
    if (r->mask_answer == PGL_MASK_SOME && !pgl_mask_allows_any(r->mask, engine->caps.n_vocab)) {
        r->mask_answer = PGL_MASK_FAILED;
        (void)pgl_fail(&r->mask_error, PGL_E_INTERNAL, "the mask of the next token allows no id");
    }
    r->mask_ns = pgl_thread_ns() - start;
}

void *pgl_mask_main(void *user) {
    pgl_engine *engine = user;
    (void)pthread_mutex_lock(&engine->mask_lock);
    for (;;) {
        bool slow = false;
        pgl_request *r = choose(engine, &slow);
        if (r == NULL && engine->mask_closing)
            break;
        if (r == NULL) {
            (void)pthread_cond_wait(&engine->mask_work, &engine->mask_lock);
            continue;
        }
        (void)pthread_mutex_unlock(&engine->mask_lock);
        compute(engine, r);
        (void)pthread_mutex_lock(&engine->mask_lock);
        engine->n_slow_at_work -= slow;
        engine->n_quick -= r->mask_round == engine->mask_round;
        push(&engine->done_masks, r);
        (void)pthread_cond_signal(&engine->mask_done);
        if (slow) /* another thread may take the next slow one */
            (void)pthread_cond_signal(&engine->mask_work);
        (void)pthread_mutex_unlock(&engine->mask_lock);
        pgl_engine_wake(engine);
        (void)pthread_mutex_lock(&engine->mask_lock);
    }
    (void)pthread_mutex_unlock(&engine->mask_lock);
    return NULL;
}

/* ---- the engine thread ---- */

/* Half of a step where another is in flight and takes at least as long: nothing is lost. Else a quarter. */
static uint64_t most_wait(const pgl_engine *engine) {
    uint64_t step = (uint64_t)engine->answer_ns;
    uint64_t wait = engine->n_flights > 0 ? step / 2 : step / 4;
    return wait > least_wait_ns ? wait : least_wait_ns;
}

bool pgl_mask_is_quick(const pgl_engine *engine, const pgl_request *r) {
    return r->params.mask.next != NULL && !r->mask_asked && r->mask_ns <= most_wait(engine);
}

void pgl_mask_ask(pgl_engine *engine, pgl_request *r) {
    if (r->params.mask.next == NULL || r->max_tokens == 0)
        return;
    r->mask_asked = true;
    (void)atomic_fetch_add(&r->holders, 1); /* a request that ends waits for no mask */
    bool quick = r->mask_ns <= most_wait(engine);
    (void)pthread_mutex_lock(&engine->mask_lock);
    r->mask_round = quick ? engine->mask_round : engine->mask_round - 1;
    engine->n_quick += quick;
    push(quick ? &engine->quick_masks : &engine->slow_masks, r);
    (void)pthread_cond_signal(&engine->mask_work);
    (void)pthread_mutex_unlock(&engine->mask_lock);
}

void pgl_mask_wait(pgl_engine *engine) {
    (void)pthread_mutex_lock(&engine->mask_lock);
    uint64_t until = engine->n_quick > 0 ? engine->landed_ns + most_wait(engine) : 0;
    struct timespec at = {.tv_sec = (time_t)(until / second_ns), .tv_nsec = (long)(until % second_ns)};
    int status = 0;
    while (engine->n_quick > 0 && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&engine->mask_done, &engine->mask_lock, &at);
    engine->mask_round += engine->n_quick > 0; /* no other step waits for these */
    engine->n_quick = 0;
    (void)pthread_mutex_unlock(&engine->mask_lock);
}

void pgl_mask_take(pgl_engine *engine) {
    for (;;) {
        (void)pthread_mutex_lock(&engine->mask_lock);
        pgl_request *r = pop(&engine->done_masks);
        (void)pthread_mutex_unlock(&engine->mask_lock);
        if (r == NULL)
            return;
        r->mask_asked = false;
        r->mask_here = r->mask_answer != PGL_MASK_FAILED;
        if (r->phase != PGL_PHASE_ENDED && !r->mask_here)
            pgl_engine_end(engine, r, PGL_FINISH_ERROR, -1, &r->mask_error);
        pgl_engine_make_ready(engine, r);
        pgl_request_drop(r);
    }
}

/* ---- start and end ---- */

void pgl_mask_init(pgl_engine *engine) {
    engine->quick_masks.end = &engine->quick_masks.first;
    engine->slow_masks.end = &engine->slow_masks.first;
    engine->done_masks.end = &engine->done_masks.first;
    engine->mask_round = 1;
}

void pgl_mask_stop(pgl_engine *engine) {
    (void)pthread_mutex_lock(&engine->mask_lock);
    engine->mask_closing = true;
    (void)pthread_cond_broadcast(&engine->mask_work);
    (void)pthread_mutex_unlock(&engine->mask_lock);
    for (uint32_t i = 0; i < engine->n_mask_threads; i++)
        (void)pthread_join(engine->mask_threads[i], NULL);
    engine->n_mask_threads = 0;
    for (pgl_request *r; (r = pop(&engine->done_masks)) != NULL;)
        pgl_request_drop(r);
}
