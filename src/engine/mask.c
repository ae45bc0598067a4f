/* Owns the threads that compute token masks, and their list of requests. A request is in it at most once. */
#include <string.h>

#include "engine/engine_impl.h"

static pgl_request *next_request(pgl_engine *engine) {
    (void)pthread_mutex_lock(&engine->mask_lock);
    while (engine->masks == NULL && !engine->mask_closing)
        (void)pthread_cond_wait(&engine->mask_work, &engine->mask_lock);
    pgl_request *r = engine->masks;
    if (r != NULL) {
        engine->masks = r->next_mask;
        if (engine->masks == NULL)
            engine->masks_end = &engine->masks;
        r->next_mask = NULL;
    }
    (void)pthread_mutex_unlock(&engine->mask_lock);
    return r;
}

void *pgl_mask_main(void *user) {
    pgl_engine *engine = user;
    size_t bytes = ((size_t)engine->caps.n_vocab + 31) / 32 * sizeof(uint32_t);
    for (pgl_request *r; (r = next_request(engine)) != NULL;) {
        const pgl_mask_provider *mask = &r->params.mask;
        pgl_mask_answer answer = mask->next(mask->user, r->mask_token, r->mask, &r->mask_error);
        r->mask_failed = answer == PGL_MASK_FAILED;
        if (answer != PGL_MASK_SOME)
            memset(r->mask, 0xFF, bytes); /* the row has to get on; a failed one's token is not used */
        pgl_error err;
        if (pgl_backend_mask_ready(engine->options.backend, r->mask_ticket, r->mask_row, &err) != PGL_OK) {
            r->mask_failed = true; /* the mask allowed nothing */
            r->mask_error = err;
            memset(r->mask, 0xFF, bytes);
            (void)pgl_backend_mask_ready(engine->options.backend, r->mask_ticket, r->mask_row, NULL);
        }
        pgl_request_drop(r);
    }
    return NULL;
}

void pgl_mask_ask(pgl_engine *engine, pgl_request *r) {
    (void)atomic_fetch_add(&r->holders, 1); /* a step that fails is over before its masks are */
    (void)pthread_mutex_lock(&engine->mask_lock);
    *engine->masks_end = r;
    engine->masks_end = &r->next_mask;
    (void)pthread_cond_signal(&engine->mask_work);
    (void)pthread_mutex_unlock(&engine->mask_lock);
}

void pgl_mask_stop(pgl_engine *engine) {
    (void)pthread_mutex_lock(&engine->mask_lock);
    engine->mask_closing = true;
    (void)pthread_cond_broadcast(&engine->mask_work);
    (void)pthread_mutex_unlock(&engine->mask_lock);
    for (uint32_t i = 0; i < engine->n_mask_threads; i++)
        (void)pthread_join(engine->mask_threads[i], NULL);
    engine->n_mask_threads = 0;
}
