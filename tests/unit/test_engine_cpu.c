/* The engine on the CPU backend with a real model: a warm, chunked, batched or parked answer is the cold one, bit for
 * bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/runtime.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"

enum { N_CASES = 7, LONGEST = 300, MOST_ANSWER = 60, N_TOP = 3 };

typedef struct answer {
    int32_t tokens[MOST_ANSWER];
    float logprobs[MOST_ANSWER];
    pgl_token_logprob top[MOST_ANSWER][N_TOP];
    uint32_t n;
    pgl_finish finish;
    pgl_usage usage;
} answer;

typedef struct request_case {
    int32_t prompt[LONGEST];
    uint32_t n_prompt;
    pgl_request_params params;
    uint32_t hints[2];
} request_case;

static request_case cases[N_CASES];
static answer cold[N_CASES], warm;
static uint32_t n_vocab;

static pgl_runtime *open_runtime(pgl_runtime_options o) {
    o.model = PGL_GOLDENS "/tiny-a";
    o.max_queue = 100;
    pgl_runtime *runtime = NULL;
    pgl_error err;
    if (pgl_runtime_open(&o, &runtime, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return runtime;
}

static void make_cases(void) {
    uint64_t seed = 7;
    int32_t shared[LONGEST];
    for (size_t i = 0; i < LONGEST; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        shared[i] = (int32_t)((seed >> 33) % n_vocab);
    }
    for (uint32_t i = 0; i < N_CASES; i++) {
        request_case *c = &cases[i];
        c->n_prompt = 20 + i * 25;
        memcpy(c->prompt, shared, sizeof shared);
        if (i % 3 == 2) /* parts from the others at its half */
            c->prompt[c->n_prompt / 2] ^= 1;
        c->hints[0] = 16;
        c->hints[1] = c->n_prompt - 3;
        c->params = (pgl_request_params){.prompt = c->prompt,
                                         .n_prompt = c->n_prompt,
                                         .sampling = pgl_sample_defaults(),
                                         .max_tokens = 36 + i * 4,
                                         .logprobs = true,
                                         .n_top = N_TOP,
                                         .snapshot_at = c->hints,
                                         .n_snapshot_at = 2};
        if (i % 2 == 1) {
            c->params.sampling.temperature = 0.9F;
            c->params.sampling.top_k = 40;
            c->params.sampling.seed = i;
            c->params.sampling.frequency_penalty = 0.3F;
        }
    }
}

static void read_answer(pgl_request *r, answer *a) {
    *a = (answer){.n = 0};
    pgl_event e;
    while (a->finish == PGL_FINISH_NONE) {
        assert_true(pgl_request_wait(r, 60000000000u));
        assert_true(pgl_request_next(r, &e));
        if (e.kind == PGL_EVENT_TOKEN) {
            a->tokens[a->n] = e.token;
            a->logprobs[a->n] = e.logprob;
            memcpy(a->top[a->n++], e.top, sizeof a->top[0]);
        }
        a->finish = e.kind == PGL_EVENT_FINISH ? e.finish : PGL_FINISH_NONE;
    }
    a->usage = e.usage;
    pgl_request_release(r);
}

static pgl_request *submit(pgl_runtime *runtime, const request_case *c) {
    pgl_request *r;
    pgl_error err;
    if (pgl_engine_submit(pgl_runtime_engine(runtime), &c->params, &r, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return r;
}

static void expect_same(uint32_t i, const answer *a) {
    assert_int_equal(a->finish, cold[i].finish);
    assert_int_equal(a->n, cold[i].n);
    assert_memory_equal(a->tokens, cold[i].tokens, sizeof a->tokens);
    assert_memory_equal(a->logprobs, cold[i].logprobs, sizeof a->logprobs);
    assert_memory_equal(a->top, cold[i].top, sizeof a->top);
}

static void warm_batched_and_chunked_answers_are_the_cold_ones(void **state) {
    (void)state;
    pgl_runtime *runtime =
        open_runtime((pgl_runtime_options){.context = 512, .no_prefix_cache = true, .n_threads = 1});
    n_vocab = pgl_runtime_n_vocab(runtime);
    make_cases();
    for (uint32_t i = 0; i < N_CASES; i++) {
        read_answer(submit(runtime, &cases[i]), &cold[i]);
        assert_int_equal(cold[i].finish, PGL_FINISH_LENGTH);
        assert_int_equal(cold[i].usage.n_cached, 0);
    }
    pgl_runtime_close(runtime);

    runtime = open_runtime(
        (pgl_runtime_options){.context = 512, .n_slots = 4, .n_threads = 2, .prefill_chunk = 20});
    uint64_t cached = 0;
    for (int round = 0; round < 2; round++) {
        pgl_request *r[N_CASES];
        for (uint32_t i = 0; i < N_CASES; i++)
            r[i] = submit(runtime, &cases[(i * 3 + (uint32_t)round) % N_CASES]);
        for (uint32_t i = 0; i < N_CASES; i++) {
            read_answer(r[i], &warm);
            expect_same((i * 3 + (uint32_t)round) % N_CASES, &warm);
            cached += round == 1 ? warm.usage.n_cached : 0;
        }
    }
    uint32_t all = 0;
    for (uint32_t i = 0; i < N_CASES; i++)
        all += cases[i].n_prompt - 3;
    assert_int_equal(cached, all); /* every prompt of the second round was taken up to its last hint */
    pgl_runtime_close(runtime);
}

/* An engine of few pages and snapshots: taken apart from the runtime, which never plans so few. */
typedef struct small_engine {
    pgl_checkpoint *checkpoint;
    pgl_model model;
    pgl_backend *backend;
    pgl_engine *engine;
} small_engine;

static void open_small(small_engine *s, uint32_t n_slots, uint32_t n_pages, uint32_t n_snapshots,
                       uint64_t host_cache_bytes) {
    pgl_error err;
    assert_int_equal(pgl_checkpoint_open(PGL_GOLDENS "/tiny-a", NULL, &s->checkpoint, &err), PGL_OK);
    assert_int_equal(pgl_model_init(&s->model, pgl_checkpoint_config(s->checkpoint),
                                    pgl_checkpoint_weights(s->checkpoint), &err),
                     PGL_OK);
    const pgl_backend_options options = {.n_threads = 2,
                                         .n_slots = n_slots,
                                         .n_pages = n_pages,
                                         .n_snapshots = n_snapshots,
                                         .page_tokens = 16,
                                         .max_context = 256,
                                         .max_rows = 4,
                                         .max_step_tokens = 64,
                                         .n_vocab = n_vocab};
    assert_int_equal(pgl_backend_open_cpu(&s->model, &options, &s->backend, &err), PGL_OK);
    const pgl_engine_options engine_options = {.backend = s->backend,
                                               .max_queue = N_CASES,
                                               .prefix_cache = true,
                                               .reserve_tokens = 1,
                                               .host_cache_bytes = host_cache_bytes,
                                               .snapshot_every = 64};
    assert_int_equal(pgl_engine_open(&engine_options, &s->engine, &err), PGL_OK);
}

static void close_small(small_engine *s) {
    pgl_engine_close(s->engine);
    pgl_backend_close(s->backend);
    pgl_checkpoint_close(s->checkpoint);
}

/* All cases at once; adds up the parkings and the prompts that came back from host memory. */
static void run_small(small_engine *s, uint32_t *parked, uint32_t *from_host) {
    pgl_request *r[N_CASES];
    pgl_error err;
    for (uint32_t i = 0; i < N_CASES; i++)
        assert_int_equal(pgl_engine_submit(s->engine, &cases[i].params, &r[i], &err), PGL_OK);
    for (uint32_t i = 0; i < N_CASES; i++) {
        read_answer(r[i], &warm);
        expect_same(i, &warm);
        *parked += warm.usage.n_parked;
        *from_host += warm.usage.cache.from_host && warm.usage.n_cached > 0;
    }
}

static void parked_and_resumed_answers_are_the_cold_ones(void **state) {
    (void)state;
    small_engine s;
    open_small(&s, 4, 16, 6, 0); /* pages for hardly two of four */
    uint32_t parked = 0, from_host = 0;
    for (int round = 0; round < 10 && parked == 0; round++) /* who meets whom depends on the machine's load */
        run_small(&s, &parked, &from_host);
    assert_true(parked > 0);
    assert_int_equal(from_host, 0);
    close_small(&s);
}

static void answers_from_host_memory_are_the_cold_ones(void **state) {
    (void)state;
    small_engine s;
    open_small(&s, 2, 24, 2, 256 << 20);
    uint32_t parked = 0, from_host = 0;
    for (int round = 0; round < 2; round++)
        run_small(&s, &parked, &from_host);
    assert_true(from_host >= N_CASES / 2);
    pgl_engine_stats stats = pgl_engine_get_stats(s.engine);
    assert_true(stats.host_hits >= from_host && stats.imported_bytes > 0);
    assert_true(stats.host_cache_bytes_used > 0 && stats.host_cache_bytes_used <= stats.host_cache_bytes);
    close_small(&s);
}

static void a_damaged_model_is_refused_before_it_serves(void **state) {
    (void)state;
    pgl_runtime *runtime = NULL;
    pgl_error err;
    pgl_runtime_options o = {.model = PGL_GOLDENS "/tiny-a", .memory_bytes = 1 << 20};
    assert_int_equal(pgl_runtime_open(&o, &runtime, &err), PGL_E_MEMORY);
    assert_non_null(strstr(err.text, "weights"));
    assert_non_null(strstr(err.text, "recurrent state"));
    assert_null(runtime);
    o = (pgl_runtime_options){.model = PGL_GOLDENS "/tiny-a", .context = 1u << 23};
    assert_int_equal(pgl_runtime_open(&o, &runtime, &err), PGL_E_INVALID);
    o = (pgl_runtime_options){.model = PGL_GOLDENS "/tiny-a", .backend = "abacus"};
    assert_int_equal(pgl_runtime_open(&o, &runtime, &err), PGL_E_INVALID);
    assert_non_null(strstr(err.text, "abacus"));
    o = (pgl_runtime_options){.model = PGL_GOLDENS "/nothing"};
    assert_int_equal(pgl_runtime_open(&o, &runtime, &err), PGL_E_NOT_FOUND);
}

static void echo_answers_with_forced_tokens(void **state) {
    (void)state;
    pgl_runtime *runtime = open_runtime((pgl_runtime_options){.backend = "echo", .n_slots = 2});
    const int32_t prompt[] = {5, 6, 7}, forced[] = {9, 8, 7, 6};
    pgl_request_params p = {.prompt = prompt,
                            .n_prompt = 3,
                            .sampling = pgl_runtime_sampling(runtime),
                            .max_tokens = 20,
                            .forced = forced,
                            .n_forced = 4,
                            .stop_ids = forced + 3,
                            .n_stop_ids = 1};
    pgl_request *r;
    pgl_error err;
    assert_int_equal(pgl_engine_submit(pgl_runtime_engine(runtime), &p, &r, &err), PGL_OK);
    pgl_event e;
    for (int i = 0; i < 3; i++) {
        assert_true(pgl_request_wait(r, 5000000000u) && pgl_request_next(r, &e));
        assert_int_equal(e.token, forced[i]);
    }
    assert_true(pgl_request_wait(r, 5000000000u) && pgl_request_next(r, &e));
    assert_int_equal(e.finish, PGL_FINISH_STOP);
    pgl_request_release(r);
    pgl_runtime_close(runtime);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_batched_and_chunked_answers_are_the_cold_ones),
        cmocka_unit_test(parked_and_resumed_answers_are_the_cold_ones),
        cmocka_unit_test(answers_from_host_memory_are_the_cold_ones),
        cmocka_unit_test(a_damaged_model_is_refused_before_it_serves),
        cmocka_unit_test(echo_answers_with_forced_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
