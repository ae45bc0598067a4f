/* For tests of the engine: one on the null backend, small and fast, and requests run to their end. */
#ifndef PGL_TEST_ENGINE_WORLD_H
#define PGL_TEST_ENGINE_WORLD_H

#include <stdlib.h>
#include <string.h>

#include "backend/null/null.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/forced.h"

enum { WORLD_VOCAB = 96, WORLD_PAGE = 16, WORLD_LONGEST = 4096 };

typedef struct world_options {
    uint32_t n_slots, n_pages, n_snapshots, max_context, max_step_tokens, max_queue, prefill_chunk,
        snapshot_every;
    uint64_t step_ns, token_ns, gap_ns, request_bytes, host_cache_bytes;
    bool cache, forced;
    bool (*inject_non_finite)(void *user, uint32_t slot, uint32_t length);
    void *user;
} world_options;

typedef struct engine_world {
    pgl_backend *backend;
    pgl_engine *engine;
    pgl_forced *forced;
    void *user;
    bool (*inject)(void *user, uint32_t slot, uint32_t length);
} engine_world;

static inline int32_t world_next_token(void *user, uint32_t slot, uint32_t length, int32_t last) {
    return pgl_forced_token(((engine_world *)user)->forced, slot, length, last);
}

static inline bool world_inject(void *user, uint32_t slot, uint32_t length) {
    engine_world *w = user;
    return w->inject(w->user, slot, length);
}

static inline uint32_t world_or(uint32_t value, uint32_t otherwise) {
    return value > 0 ? value : otherwise;
}

static inline void world_must(pgl_status status, const pgl_error *err) {
    if (status != PGL_OK)
        fail_msg("%s", err->text);
}

/* w must stay where it is. */
static inline void world_open(engine_world *w, world_options o) {
    *w = (engine_world){.user = o.user, .inject = o.inject_non_finite};
    pgl_error err;
    uint32_t n_slots = world_or(o.n_slots, 4);
    world_must(pgl_forced_open(n_slots, &w->forced, &err), &err);
    pgl_null_options null_options = {
        .vocab_size = WORLD_VOCAB + 4,
        .hidden_size = 4,
        .n_layers = 1,
        .step_ns = o.step_ns,
        .token_ns = o.token_ns,
        .next_token = o.forced ? world_next_token : NULL,
        .inject_non_finite = o.inject_non_finite != NULL ? world_inject : NULL,
        .user = w,
    };
    pgl_backend_options options = {
        .n_slots = n_slots,
        .n_pages = world_or(o.n_pages, 256),
        .n_snapshots = o.n_snapshots,
        .page_tokens = WORLD_PAGE,
        .max_context = world_or(o.max_context, 1024),
        .max_rows = n_slots,
        .max_step_tokens = world_or(o.max_step_tokens, 128),
        .n_vocab = WORLD_VOCAB,
    };
    world_must(pgl_backend_open_null(&null_options, &options, &w->backend, &err), &err);
    pgl_engine_options engine_options = {
        .backend = w->backend,
        .max_queue = o.max_queue,
        .request_bytes = o.request_bytes,
        .prefill_chunk = o.prefill_chunk,
        .gap_ns = o.gap_ns > 0 ? o.gap_ns : 10000000000u,
        .reserve_tokens = 16,
        .forced = o.forced ? w->forced : NULL,
        .prefix_cache = o.cache,
        .host_cache_bytes = o.host_cache_bytes,
        .snapshot_every = o.snapshot_every,
    };
    world_must(pgl_engine_open(&engine_options, &w->engine, &err), &err);
}

static inline void world_close(engine_world *w) {
    pgl_engine_close(w->engine);
    pgl_backend_close(w->backend);
    pgl_forced_close(w->forced);
}

typedef struct world_answer {
    int32_t tokens[WORLD_LONGEST];
    float logprobs[WORLD_LONGEST];
    uint32_t n;
    pgl_finish finish;
    int32_t stop_id;
    pgl_usage usage;
    pgl_status status;
    bool prompt_event;
} world_answer;

static inline pgl_request *world_submit(engine_world *w, const pgl_request_params *params) {
    pgl_request *r = NULL;
    pgl_error err;
    world_must(pgl_engine_submit(w->engine, params, &r, &err), &err);
    return r;
}

/* Reads to the end; does not release. */
static inline void world_read(pgl_request *r, world_answer *a) {
    *a = (world_answer){.n = 0};
    while (a->finish == PGL_FINISH_NONE) {
        assert_true(pgl_request_wait(r, 20000000000u));
        pgl_event event;
        assert_true(pgl_request_next(r, &event));
        if (event.kind == PGL_EVENT_TOKEN) {
            a->logprobs[a->n] = event.logprob;
            a->tokens[a->n++] = event.token;
        } else if (event.kind == PGL_EVENT_PROMPT) {
            assert_int_equal(a->n, 0);
            a->prompt_event = true;
        } else {
            a->finish = event.finish;
            a->stop_id = event.stop_id;
            a->usage = event.usage;
        }
    }
    a->status = pgl_request_error(r, NULL);
    pgl_event none;
    assert_false(pgl_request_next(r, &none));
    assert_int_equal(a->usage.n_generated, a->n);
}

static inline void world_run(engine_world *w, const pgl_request_params *params, world_answer *a) {
    pgl_request *r = world_submit(w, params);
    world_read(r, a);
    pgl_request_release(r);
}

/* The same numbers for the same seed. */
static inline void world_prompt(uint64_t seed, int32_t *prompt, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        prompt[i] = (int32_t)(seed >> 33) % WORLD_VOCAB;
    }
}

static inline pgl_request_params world_params(const int32_t *prompt, uint32_t n, uint32_t max_tokens) {
    return (pgl_request_params){
        .prompt = prompt, .n_prompt = n, .sampling = pgl_sample_defaults(), .max_tokens = max_tokens};
}

static inline void world_expect_same(const world_answer *a, const world_answer *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->tokens, b->tokens, a->n * sizeof *a->tokens);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->stop_id, b->stop_id);
}

#endif
