/* The engine on the null backend, whose logits are a function of every token that its state has seen: a wrong page,
 * snapshot, position or neighbour changes the answer. */
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "engine_world.h"

static world_answer a, b;

static void an_answer_ends_at_its_limit_and_is_repeatable(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.cache = false});
    int32_t prompt[40];
    world_prompt(1, prompt, 40);
    pgl_request_params p = world_params(prompt, 40, 25);
    p.logprobs = true;
    world_run(&w, &p, &a);
    assert_int_equal(a.n, 25);
    assert_int_equal(a.finish, PGL_FINISH_LENGTH);
    assert_int_equal(a.stop_id, -1);
    assert_int_equal(a.usage.n_prompt, 40);
    assert_int_equal(a.usage.n_cached, 0);
    assert_int_equal(a.usage.cache.miss, PGL_MISS_OFF);
    for (uint32_t i = 0; i < a.n; i++)
        assert_true(a.logprobs[i] < 0 && a.logprobs[i] > -10);
    world_run(&w, &p, &b);
    world_expect_same(&a, &b);
    p.sampling.temperature = 1;
    p.sampling.seed = 5;
    world_run(&w, &p, &b);
    assert_true(memcmp(a.tokens, b.tokens, sizeof a.tokens) != 0);
    world_close(&w);
}

static void a_stop_id_ends_the_answer_and_is_not_part_of_it(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.n_snapshots = 8, .cache = true});
    int32_t prompt[10];
    world_prompt(2, prompt, 10);
    pgl_request_params p = world_params(prompt, 10, 30);
    world_run(&w, &p, &a);
    uint32_t at = 7; /* the first place of some token behind the start */
    for (uint32_t i = 0; i < at; i++)
        if (a.tokens[i] == a.tokens[at]) {
            at++;
            i = UINT32_MAX;
        }
    int32_t stops[] = {a.tokens[at], WORLD_VOCAB + 2};
    p.stop_ids = stops;
    p.n_stop_ids = 2;
    world_run(&w, &p, &b);
    assert_int_equal(b.n, at);
    assert_int_equal(b.finish, PGL_FINISH_STOP);
    assert_int_equal(b.stop_id, stops[0]);
    p.ignore_eos = true;
    world_run(&w, &p, &b);
    world_expect_same(&a, &b);
    /* and as the very first token */
    p.ignore_eos = false;
    stops[0] = a.tokens[0];
    world_run(&w, &p, &b);
    assert_int_equal(b.n, 0);
    assert_int_equal(b.finish, PGL_FINISH_STOP);
    world_close(&w);
}

static void forced_tokens_come_out_as_they_are(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.forced = true});
    int32_t prompt[20], forced[50];
    world_prompt(3, prompt, 20);
    world_prompt(4, forced, 50);
    for (int i = 0; i < 50; i++)
        forced[i] = forced[i] == 7 ? 8 : forced[i];
    forced[49] = 7;
    int32_t stop = 7;
    pgl_request_params p = world_params(prompt, 20, 100);
    p.forced = forced;
    p.n_forced = 50;
    p.stop_ids = &stop;
    p.n_stop_ids = 1;
    world_run(&w, &p, &a);
    assert_int_equal(a.n, 49);
    assert_memory_equal(a.tokens, forced, 49 * sizeof *forced);
    assert_int_equal(a.finish, PGL_FINISH_STOP);
    world_close(&w);
}

/* ---- neighbours, chunks, cache, parking ---- */

enum { N_PROMPTS = 24, MANY = 60 };

typedef struct request_case {
    int32_t prompt[400];
    uint32_t n_prompt, n_answer;
    pgl_sample_params sampling;
    uint32_t hints[2];
} request_case;

static request_case cases[N_PROMPTS];
static world_answer cold[N_PROMPTS];

static pgl_request_params case_params(const request_case *c) {
    pgl_request_params p = world_params(c->prompt, c->n_prompt, c->n_answer);
    p.sampling = c->sampling;
    p.snapshot_at = c->hints;
    p.n_snapshot_at = c->n_prompt > 20 ? 2 : 0;
    return p;
}

/* Prompts that share beginnings, half of them drawn with penalties at T > 0; their serial cold answers. */
static void make_cases(void) {
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        request_case *c = &cases[i];
        c->n_prompt = 1 + (i * 53) % 300;
        c->n_answer = 1 + (i * 29) % 90;
        world_prompt(i % 4, c->prompt, c->n_prompt);
        if (c->n_prompt > 100)
            world_prompt(1000 + i % 9, c->prompt + 100, c->n_prompt - 100);
        c->hints[0] = c->n_prompt / 2;
        c->hints[1] = c->n_prompt - 5;
        c->sampling = pgl_sample_defaults();
        if (i % 2 == 1) {
            c->sampling.temperature = 0.8F;
            c->sampling.top_p = 0.95F;
            c->sampling.seed = i;
            c->sampling.presence_penalty = 0.5F;
            c->sampling.repetition_penalty = 1.2F;
        }
    }
    engine_world w;
    world_open(&w, (world_options){.n_slots = 1, .cache = false});
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        pgl_request_params p = case_params(&cases[i]);
        world_run(&w, &p, &cold[i]);
    }
    world_close(&w);
}

/* Many requests at once in a shuffled order, some cancelled on the way; every complete answer equals the cold one.
 * Returns the sum of cached tokens and of parkings. */
static uint64_t from_host; /* requests of the last run for which something came from host memory */

static void run_mixed(world_options o, uint64_t seed, uint64_t *cached, uint64_t *parked) {
    engine_world w;
    o.max_queue = MANY;
    world_open(&w, o);
    pgl_request *requests[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        pgl_request_params p = case_params(&cases[(seed >> 33) % N_PROMPTS]);
        p.user = &cold[(seed >> 33) % N_PROMPTS];
        p.priority = (int32_t)(seed >> 50) % 3;
        requests[i] = world_submit(&w, &p);
        if ((seed >> 40) % 7 == 0) {
            (void)pgl_request_wait(requests[i], (seed >> 20) % 2000000);
            pgl_request_release(requests[i]);
            requests[i] = NULL;
        }
        seed ^= i;
    }
    *cached = *parked = from_host = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        if (requests[i] == NULL)
            continue;
        world_read(requests[i], &a);
        *cached += a.usage.n_cached;
        *parked += a.usage.n_parked;
        from_host += a.usage.cache.from_host;
        bool found = false; /* which case it was: by its prompt's length and answer */
        for (uint32_t c = 0; c < N_PROMPTS && !found; c++)
            found = cold[c].n == a.n && cases[c].n_prompt == a.usage.n_prompt &&
                    memcmp(cold[c].tokens, a.tokens, a.n * sizeof *a.tokens) == 0;
        if (!found)
            fail_msg("request %u of %u prompt tokens differs from its cold answer", i, a.usage.n_prompt);
        pgl_request_release(requests[i]);
    }
    world_close(&w);
}

static void neighbours_chunks_and_cache_change_no_answer(void **state) {
    (void)state;
    make_cases();
    uint64_t cached, parked, all_cached = 0, all_parked = 0, all_from_host = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        run_mixed((world_options){.n_slots = 8, .cache = false}, seed, &cached, &parked);
        assert_int_equal(cached, 0);
        run_mixed((world_options){.n_slots = 8, .cache = true, .n_snapshots = 40, .snapshot_every = 32}, seed,
                  &cached, &parked);
        all_cached += cached;
        run_mixed((world_options){.n_slots = 8,
                                  .cache = true,
                                  .n_snapshots = 3,
                                  .max_step_tokens = 17,
                                  .prefill_chunk = 5,
                                  .snapshot_every = 16},
                  seed, &cached, &parked);
        run_mixed((world_options){.n_slots = 8,
                                  .n_pages = 60,
                                  .cache = true,
                                  .n_snapshots = 3,
                                  .host_cache_bytes = 1 << 20,
                                  .snapshot_every = 32},
                  seed, &cached, &parked);
        all_from_host += from_host;
        /* pages for hardly two of eight: parked, resumed from snapshots or from nothing */
        run_mixed((world_options){.n_slots = 8,
                                  .n_pages = 26,
                                  .max_context = 400,
                                  .cache = true,
                                  .n_snapshots = 12,
                                  .snapshot_every = 64},
                  seed, &cached, &parked);
        all_parked += parked;
        run_mixed((world_options){.n_slots = 8, .n_pages = 26, .max_context = 400, .cache = false}, seed,
                  &cached, &parked);
        all_parked += parked;
    }
    assert_true(all_cached > 1000);
    assert_true(all_parked > 10);
    assert_true(all_from_host > 10);
}

/* ---- the cache as clients see it ---- */

static void a_conversation_rereads_only_what_is_new(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.n_snapshots = 16, .cache = true});
    int32_t text[900];
    uint32_t n = 120;
    world_prompt(11, text, n);
    for (uint32_t turn = 0; turn < 8; turn++) {
        pgl_request_params p = world_params(text, n, 20);
        world_run(&w, &p, &a);
        if (turn == 0) {
            assert_int_equal(a.usage.cache.miss, PGL_MISS_COLD);
        } else {
            assert_int_equal(a.usage.n_cached,
                             n - 31); /* all but the new 30 and the last answer's last token */
            assert_int_equal(a.usage.cache.miss, PGL_MISS_NONE);
        }
        memcpy(text + n, a.tokens, a.n * sizeof *text); /* the client replays the answer and adds a turn */
        world_prompt(20 + turn, text + n + a.n, 30);
        n += a.n + 30;
    }
    /* A repeated prompt is read from its last token on. */
    pgl_request_params p = world_params(text, 120, 20);
    world_run(&w, &p, &a);
    assert_int_equal(a.usage.n_cached, 119);
    assert_int_equal(a.usage.cache.miss, PGL_MISS_NONE);
    text[50] ^= 1;
    world_run(&w, &p, &a);
    assert_int_equal(a.usage.n_cached, 0);
    assert_int_equal(a.usage.cache.miss, PGL_MISS_DIFFERS);
    assert_int_equal(a.usage.cache.miss_at, 50);
    text[50] ^= 1;
    pgl_engine_clear_cache(w.engine);
    world_run(&w, &p, &a);
    assert_int_equal(a.usage.n_cached, 0);
    assert_int_equal(a.usage.cache.miss, PGL_MISS_SNAPSHOT_EVICTED);
    world_close(&w);
}

static void a_hint_is_where_another_prompt_parts(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.n_snapshots = 16, .cache = true});
    int32_t one[200], two[200];
    world_prompt(12, one, 200);
    world_prompt(13, two, 200);
    memcpy(two, one, 133 * sizeof *one); /* a shared system prompt of 133 tokens */
    uint32_t hint = 133;
    pgl_request_params p = world_params(one, 200, 5), q = world_params(two, 200, 5);
    p.snapshot_at = q.snapshot_at = &hint;
    p.n_snapshot_at = q.n_snapshot_at = 1;
    world_run(&w, &p, &a);
    world_run(&w, &q, &a);
    assert_int_equal(a.usage.n_cached, 133);
    assert_int_equal(a.usage.cache.miss, PGL_MISS_DIFFERS);
    assert_int_equal(a.usage.cache.miss_at, 133);
    world_close(&w);
}

static void of_many_hints_the_first_and_the_last_three_count(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.n_snapshots = 64, .cache = true});
    int32_t prompt[400], other[400];
    world_prompt(30, prompt, 400);
    uint32_t hints[30];
    for (uint32_t i = 0; i < 30; i++)
        hints[i] = 13 * (i + 1);
    pgl_request_params p = world_params(prompt, 400, 2);
    p.snapshot_at = hints;
    p.n_snapshot_at = 30;
    world_run(&w, &p, &a);
    static const uint32_t part_at[] = {20, 200, 370, 380, 395}, found[] = {13, 13, 364, 377, 390};
    for (size_t i = 0; i < 5; i++) {
        memcpy(other, prompt, sizeof other);
        other[part_at[i]] ^= 1;
        pgl_request_params q = world_params(other, 400, 2);
        q.snapshot_at = hints;
        q.n_snapshot_at = 1; /* leaves nothing behind that the others would find */
        world_run(&w, &q, &a);
        assert_int_equal(a.usage.n_cached, found[i]);
    }
    world_close(&w);
}

static void a_prompt_that_several_share_is_read_once(void **state) {
    (void)state;
    engine_world w;
    world_open(&w,
               (world_options){
                   .n_slots = 4, .n_snapshots = 16, .cache = true, .max_step_tokens = 32, .max_queue = 9});
    int32_t prompt[300], other[300];
    world_prompt(31, prompt, 300);
    world_prompt(32, other, 300);
    memcpy(other, prompt, 200 * sizeof *prompt); /* the fifth shares the system prompt only */
    uint32_t hints[] = {190, 290};
    pgl_request_params p = world_params(prompt, 300, 20), q = world_params(other, 300, 20);
    p.snapshot_at = q.snapshot_at = hints;
    p.n_snapshot_at = q.n_snapshot_at = 2;
    p.sampling.temperature = 1;
    pgl_request *r[5];
    for (uint32_t i = 0; i < 4; i++) {
        p.sampling.seed = i;
        r[i] = world_submit(&w, &p);
    }
    r[4] = world_submit(&w, &q);
    uint32_t cached = 0;
    for (uint32_t i = 0; i < 5; i++) {
        world_read(r[i], &a);
        assert_int_equal(a.n, 20);
        assert_int_equal(a.usage.n_cached, i == 0 ? 0 : i < 4 ? 290 : 190);
        cached += a.usage.n_cached;
        pgl_request_release(r[i]);
    }
    assert_true(pgl_engine_drain(w.engine, 5000000000u));
    assert_int_equal(pgl_engine_get_stats(w.engine).cached_tokens, cached);
    world_close(&w);
}

static void nobody_waits_for_one_that_is_cancelled(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.n_slots = 2,
                                   .n_snapshots = 16,
                                   .cache = true,
                                   .max_step_tokens = 8,
                                   .step_ns = 2000000,
                                   .max_queue = 4});
    int32_t prompt[600], brief[20];
    world_prompt(33, prompt, 600);
    world_prompt(34, brief, 20);
    uint32_t hint = 590;
    pgl_request_params p = world_params(prompt, 600, 5), q = world_params(brief, 20, 5);
    p.snapshot_at = &hint;
    p.n_snapshot_at = 1;
    pgl_request *first = world_submit(&w, &p), *second = world_submit(&w, &p);
    while (pgl_request_progress(first).n_read < 50)
        (void)sched_yield();
    assert_int_equal(pgl_request_progress(second).state,
                     PGL_REQUEST_WAITING); /* held, though there is a slot */
    pgl_request *third = world_submit(&w, &q);
    world_read(third, &a); /* passes it */
    assert_int_equal(a.n, 5);
    pgl_request_cancel(first);
    world_read(second, &a);
    assert_int_equal(a.finish, PGL_FINISH_LENGTH);
    pgl_request_release(first);
    pgl_request_release(second);
    pgl_request_release(third);
    world_close(&w);
}

/* ---- ends that are not the answer's own ---- */

static void a_cancel_takes_effect_within_a_step(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.n_slots = 1, .max_queue = 1, .step_ns = 20000000});
    int32_t prompt[10];
    world_prompt(14, prompt, 10);
    pgl_request_params p = world_params(prompt, 10, 500);
    pgl_request *first = world_submit(&w, &p), *second = world_submit(&w, &p);
    assert_true(pgl_request_wait(first, 5000000000u));
    uint64_t steps = pgl_engine_get_stats(w.engine).steps;
    pgl_request_cancel(first);
    world_read(first, &a);
    assert_int_equal(a.finish, PGL_FINISH_CANCELLED);
    assert_int_equal(a.status, PGL_E_CANCELLED);
    while (pgl_request_progress(second).state == PGL_REQUEST_WAITING) {
        assert_true(pgl_engine_get_stats(w.engine).steps <= steps + 4);
    }
    assert_true(pgl_engine_get_stats(w.engine).steps <= steps + 4);
    pgl_request_release(first);
    pgl_request_release(second); /* a release of what runs is a cancel */
    assert_true(pgl_engine_drain(w.engine, 5000000000u));
    world_close(&w);
}

static void a_waiting_request_can_be_cancelled(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.n_slots = 1, .max_queue = 2, .step_ns = 1000000});
    int32_t prompt[10];
    world_prompt(15, prompt, 10);
    pgl_request_params p = world_params(prompt, 10, 60);
    pgl_request *first = world_submit(&w, &p), *second = world_submit(&w, &p);
    pgl_request_cancel(second);
    world_read(second, &a);
    assert_int_equal(a.finish, PGL_FINISH_CANCELLED);
    assert_int_equal(a.n, 0);
    world_read(first, &a);
    assert_int_equal(a.finish, PGL_FINISH_LENGTH);
    pgl_request_cancel(first); /* too late: nothing happens */
    pgl_request_release(first);
    pgl_request_release(second);
    world_close(&w);
}

static bool poisoned(void *user, uint32_t slot, uint32_t length) {
    (void)slot;
    return length == *(const uint32_t *)user;
}

static void non_finite_logits_end_one_request_and_leave_nothing_behind(void **state) {
    (void)state;
    engine_world w;
    uint32_t bad_length = 77;
    world_open(&w, (world_options){.n_snapshots = 16,
                                   .cache = true,
                                   .snapshot_every = 16,
                                   .inject_non_finite = poisoned,
                                   .user = &bad_length});
    int32_t prompt[60];
    world_prompt(16, prompt, 60);
    pgl_request_params longer = world_params(prompt, 60, 100), brief = world_params(prompt + 1, 20, 30);
    pgl_request *neighbour = world_submit(&w, &brief);
    world_run(&w, &longer, &a);
    assert_int_equal(a.finish, PGL_FINISH_ERROR);
    assert_int_equal(a.status, PGL_E_NUMERIC);
    assert_int_equal(a.n, 77 - 60);
    world_read(neighbour, &b);
    assert_int_equal(b.finish, PGL_FINISH_LENGTH);
    pgl_request_release(neighbour);
    pgl_request_params again = world_params(prompt, 60, 10);
    world_run(&w, &again, &b); /* nothing of it was kept, and the slot serves on */
    assert_int_equal(b.usage.n_cached, 0);
    assert_int_equal(b.finish, PGL_FINISH_LENGTH);
    assert_memory_equal(a.tokens, b.tokens, 10 * sizeof *a.tokens);
    world_close(&w);
}

static void a_full_queue_refuses_at_once(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.n_slots = 2, .max_queue = 3, .step_ns = 2000000});
    int32_t prompt[10];
    world_prompt(17, prompt, 10);
    pgl_request_params p = world_params(prompt, 10, 40);
    pgl_request *requests[5];
    for (int i = 0; i < 5; i++)
        requests[i] = world_submit(&w, &p);
    pgl_request *extra;
    pgl_error err;
    uint64_t start = pgl_now_ns();
    assert_int_equal(pgl_engine_submit(w.engine, &p, &extra, &err), PGL_E_BUSY);
    assert_true(pgl_now_ns() - start < 50000000);
    for (int i = 0; i < 5; i++) {
        world_read(requests[i], &a);
        assert_int_equal(a.n, 40);
        pgl_request_release(requests[i]);
    }
    world_run(&w, &p, &a); /* and serves again */
    assert_int_equal(pgl_engine_get_stats(w.engine).requests_refused, 1);
    world_close(&w);
}

static void without_a_queue_one_request_follows_another(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.n_slots = 1, .max_queue = 0, .n_snapshots = 4, .cache = true});
    int32_t prompt[10];
    world_prompt(18, prompt, 10);
    pgl_request_params p = world_params(prompt, 10, 3);
    for (int i = 0; i < 300; i++)
        world_run(&w, &p, &a); /* submit never meets a slot that is still being cleared */
    world_close(&w);
}

static void draining_finishes_what_runs_and_refuses_the_rest(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.step_ns = 1000000});
    int32_t prompt[10];
    world_prompt(19, prompt, 10);
    pgl_request_params p = world_params(prompt, 10, 30);
    pgl_request *r = world_submit(&w, &p), *refused;
    assert_true(pgl_engine_drain(w.engine, 20000000000u));
    world_read(r, &a);
    assert_int_equal(a.finish, PGL_FINISH_LENGTH);
    assert_int_equal(pgl_engine_submit(w.engine, &p, &refused, NULL), PGL_E_BUSY);
    pgl_request_release(r);
    world_close(&w);
}

static void closing_cancels_what_runs_and_handles_outlive_it(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.step_ns = 5000000, .max_queue = 5});
    int32_t prompt[10];
    world_prompt(20, prompt, 10);
    pgl_request_params p = world_params(prompt, 10, 900);
    pgl_request *requests[8];
    for (int i = 0; i < 8; i++)
        requests[i] = world_submit(&w, &p);
    assert_true(pgl_request_wait(requests[0], 5000000000u));
    assert_false(pgl_engine_drain(w.engine, 20000000));
    world_close(&w);
    for (int i = 0; i < 8; i++) {
        world_read(requests[i], &a);
        assert_int_equal(a.finish, PGL_FINISH_CANCELLED);
        pgl_request_cancel(requests[i]);
        pgl_request_release(requests[i]);
    }
}

/* ---- what is refused ---- */

static void wrong_requests_are_refused_by_name(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.max_context = 64, .request_bytes = 60000});
    int32_t prompt[200];
    world_prompt(21, prompt, 200);
    int32_t bad_id[] = {3, WORLD_VOCAB}, negative[] = {-1};
    uint32_t hints[] = {5, 5}, late[] = {10};
    const struct {
        pgl_request_params p;
        pgl_status status;
        const char *text;
    } wrong[] = {
        {{.prompt = prompt, .n_prompt = 0, .max_tokens = 1}, PGL_E_INVALID, "prompt"},
        {{.prompt = prompt, .n_prompt = 64, .max_tokens = 1}, PGL_E_CONTEXT, "64"},
        {{.prompt = prompt, .n_prompt = 192, .max_tokens = 1}, PGL_E_CONTEXT, "192"},
        {{.prompt = prompt, .n_prompt = 65, .prompt_logprobs = true}, PGL_E_CONTEXT, "65"},
        {{.prompt = prompt, .n_prompt = 10, .max_tokens = 0}, PGL_E_INVALID, "max_tokens"},
        {{.prompt = bad_id, .n_prompt = 2, .max_tokens = 1}, PGL_E_INVALID, "prompt"},
        {{.prompt = negative, .n_prompt = 1, .max_tokens = 1}, PGL_E_INVALID, "prompt"},
        {{.prompt = prompt, .n_prompt = 10, .max_tokens = 1, .n_top = 1025}, PGL_E_INVALID, "top"},
        {{.prompt = prompt, .n_prompt = 10, .max_tokens = 1, .n_top = WORLD_VOCAB + 1}, PGL_E_INVALID, "top"},
        {{.prompt = prompt, .n_prompt = 10, .max_tokens = 1, .stop_ids = negative, .n_stop_ids = 1},
         PGL_E_INVALID,
         "stop_ids"},
        {{.prompt = prompt, .n_prompt = 10, .max_tokens = 1, .stop_ids = prompt, .n_stop_ids = 65},
         PGL_E_INVALID,
         "stop"},
        {{.prompt = prompt, .n_prompt = 10, .max_tokens = 1, .snapshot_at = hints, .n_snapshot_at = 2},
         PGL_E_INVALID,
         "snapshot_at"},
        {{.prompt = prompt, .n_prompt = 10, .max_tokens = 1, .snapshot_at = late, .n_snapshot_at = 1},
         PGL_E_INVALID,
         "snapshot_at"},
        {{.prompt = prompt, .n_prompt = 10, .max_tokens = 1, .forced = prompt, .n_forced = 1},
         PGL_E_INVALID,
         "forced"},
        {{.prompt = prompt,
          .n_prompt = 60,
          .max_tokens = 4,
          .prompt_logprobs = true,
          .n_prompt_top = WORLD_VOCAB,
          .n_top = WORLD_VOCAB},
         PGL_E_TOO_LARGE,
         "memory"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        pgl_request_params p = wrong[i].p;
        p.sampling = pgl_sample_defaults();
        pgl_request *r = NULL;
        pgl_error err;
        assert_int_equal(pgl_engine_submit(w.engine, &p, &r, &err), wrong[i].status);
        assert_null(r);
        if (strstr(err.text, wrong[i].text) == NULL)
            fail_msg("%zu: %s", i, err.text);
    }
    pgl_request_params p = world_params(prompt, 10, 5);
    p.sampling.top_p = NAN;
    pgl_request *r;
    assert_int_equal(pgl_engine_submit(w.engine, &p, &r, NULL), PGL_E_INVALID);
    /* The longest prompt that fits, and an answer that ends with the context. */
    p = world_params(prompt, 63, 100);
    world_run(&w, &p, &a);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.finish, PGL_FINISH_LENGTH);
    p = world_params(prompt, 54, 100);
    world_run(&w, &p, &a);
    assert_int_equal(a.n, 10);
    assert_true(pgl_engine_drain(w.engine, 5000000000u));
    assert_int_equal(pgl_engine_get_stats(w.engine).request_bytes, 0);
    world_close(&w);
}

/* ---- log-probabilities ---- */

static void prompt_logprobs_do_not_depend_on_chunks(void **state) {
    (void)state;
    enum { N = 150, TOP = 3 };
    int32_t prompt[N];
    world_prompt(22, prompt, N);
    float first[N];
    pgl_token_logprob first_top[N * TOP];
    static const uint32_t chunks[] = {128, 7, 1};
    for (size_t c = 0; c < 3; c++) {
        engine_world w;
        world_open(&w, (world_options){.n_snapshots = 4,
                                       .cache = true,
                                       .max_step_tokens = chunks[c] > 4 ? chunks[c] : 4});
        pgl_request_params p = world_params(prompt, N, c == 1 ? 4 : 0);
        p.prompt_logprobs = true;
        p.n_prompt_top = TOP;
        p.logprobs = c == 1;
        for (int round = 0; round < 2;
             round++) { /* the second finds nothing in the cache: it wants every token */
            pgl_request *r = world_submit(&w, &p);
            pgl_event event;
            assert_true(pgl_request_wait(r, 5000000000u));
            assert_true(pgl_request_next(r, &event));
            assert_int_equal(event.kind, PGL_EVENT_PROMPT);
            assert_int_equal(event.n_top, TOP);
            assert_true(event.prompt_logprobs[0] == 0);
            if (c == 0 && round == 0) {
                memcpy(first, event.prompt_logprobs, sizeof first);
                memcpy(first_top, event.prompt_top, sizeof first_top);
            }
            assert_memory_equal(event.prompt_logprobs, first, sizeof first);
            assert_memory_equal(event.prompt_top + TOP, first_top + TOP,
                                sizeof first_top - TOP * sizeof *first_top);
            for (int i = 1; i < N; i++)
                assert_true(first[i] <= first_top[(size_t)i * TOP].logprob && first[i] < 0);
            world_read(r, &a);
            assert_int_equal(a.n, c == 1 ? 4 : 0);
            assert_int_equal(a.finish, PGL_FINISH_LENGTH);
            assert_int_equal(a.usage.n_cached, 0);
            pgl_request_release(r);
        }
        world_close(&w);
    }
}

static void each_token_lists_its_own_alternatives(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.cache = false});
    int32_t prompt[30];
    world_prompt(23, prompt, 30);
    for (int with_prompt = 0; with_prompt < 2; with_prompt++) {
        pgl_request_params p = world_params(prompt, 30, 150);
        p.logprobs = true;
        p.n_top = 5;
        p.prompt_logprobs = with_prompt;
        pgl_request *r = world_submit(&w, &p);
        uint32_t n = 0;
        for (bool done = false; !done;) {
            pgl_event e;
            assert_true(pgl_request_wait(r, 5000000000u));
            assert_true(pgl_request_next(r, &e));
            done = e.kind == PGL_EVENT_FINISH;
            if (e.kind != PGL_EVENT_TOKEN)
                continue;
            assert_int_equal(e.n_top, 5);
            assert_int_equal(e.top[0].id, e.token); /* greedy */
            assert_true(e.top[0].logprob == e.logprob);
            for (int i = 1; i < 5; i++)
                assert_true(e.top[i].logprob <= e.top[i - 1].logprob && e.top[i].id != e.top[i - 1].id);
            n++;
        }
        assert_int_equal(n, 150);
        pgl_request_release(r);
    }
    world_close(&w);
}

/* ---- constraints ---- */

typedef struct constraint {
    int32_t seen[200];
    uint32_t n_seen, fail_at;
    atomic_uint closed;
    bool nothing;
} constraint;

/* Only ids with the parity of how many tokens came before. */
static pgl_mask_answer parity(void *user, int32_t token, uint32_t *mask, pgl_error *err) {
    constraint *c = user;
    c->seen[c->n_seen++] = token;
    if (c->n_seen == c->fail_at) {
        (void)pgl_fail(err, PGL_E_INTERNAL, "the grammar is lost");
        return PGL_MASK_FAILED;
    }
    if (c->n_seen % 3 == 0)
        return PGL_MASK_ALL;
    for (size_t i = 0; i < (WORLD_VOCAB + 31) / 32; i++)
        mask[i] = c->nothing ? 0 : c->n_seen % 2 == 1 ? 0x55555555u : 0xAAAAAAAAu;
    return PGL_MASK_SOME;
}

static void closed(void *user) {
    atomic_fetch_add(&((constraint *)user)->closed, 1);
}

static void a_constraint_holds_for_every_token(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.cache = false, .max_queue = 4});
    int32_t prompt[30];
    world_prompt(24, prompt, 30);
    constraint c[3] = {{.n_seen = 0}};
    pgl_request *r[4];
    for (int i = 0; i < 3; i++) {
        pgl_request_params p = world_params(prompt, 30, 60);
        p.sampling.temperature = i == 0 ? 0.0F : 1.5F;
        p.sampling.seed = 3;
        p.mask = (pgl_mask_provider){parity, closed, &c[i]};
        r[i] = world_submit(&w, &p);
    }
    pgl_request_params free_one = world_params(prompt, 30, 60);
    r[3] = world_submit(&w, &free_one);
    for (int i = 0; i < 3; i++) {
        world_read(r[i], &a);
        assert_int_equal(a.n, 60);
        assert_int_equal(c[i].n_seen, 60);
        assert_int_equal(c[i].seen[0], -1);
        for (uint32_t t = 0; t < 60; t++) {
            if ((t + 1) % 3 != 0)
                assert_int_equal(a.tokens[t] % 2, t % 2 == 0 ? 0 : 1);
            if (t > 0)
                assert_int_equal(c[i].seen[t], a.tokens[t - 1]);
        }
        if (i == 1)
            b = a;
        if (i == 2)
            world_expect_same(&a, &b);
        pgl_request_release(r[i]);
    }
    world_read(r[3], &a);
    assert_int_equal(a.n, 60);
    pgl_request_release(r[3]);
    world_close(&w);
    for (int i = 0; i < 3; i++)
        assert_int_equal(atomic_load(&c[i].closed), 1);
}

static void a_failing_constraint_never_fails_open(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.cache = false});
    int32_t prompt[30];
    world_prompt(25, prompt, 30);
    pgl_request_params p = world_params(prompt, 30, 60);
    constraint c = {.fail_at = 5};
    p.mask = (pgl_mask_provider){parity, closed, &c};
    world_run(&w, &p, &a);
    assert_int_equal(a.n, 4);
    assert_int_equal(a.finish, PGL_FINISH_ERROR);
    assert_int_equal(a.status, PGL_E_INTERNAL);
    constraint empty = {.nothing = true};
    p.mask.user = &empty;
    world_run(&w, &p, &a);
    assert_int_equal(a.n, 0);
    assert_int_equal(a.finish, PGL_FINISH_ERROR);
    world_close(&w);
    assert_int_equal(atomic_load(&c.closed) + atomic_load(&empty.closed), 2);
}

/* ---- fairness ---- */

static void a_long_prompt_is_read_between_the_tokens_of_a_stream(void **state) {
    (void)state;
    engine_world w;
    world_open(&w,
               (world_options){.prefill_chunk = 32, .n_pages = 400, .max_context = 2048, .step_ns = 300000});
    int32_t prompt[1500];
    world_prompt(26, prompt, 1500);
    pgl_request_params stream = world_params(prompt, 5, 700), big = world_params(prompt, 1500, 5),
                       brief = world_params(prompt + 3, 12, 5);
    pgl_request *s = world_submit(&w, &stream);
    assert_true(pgl_request_wait(s, 5000000000u));
    pgl_request *l = world_submit(&w, &big);
    while (pgl_request_progress(l).n_read == 0)
        (void)sched_yield();
    pgl_request *c = world_submit(&w, &brief);
    assert_true(
        pgl_request_wait(c, 5000000000u)); /* its first token comes before the long one's prompt is read */
    assert_true(pgl_request_progress(l).n_read < 1500);
    uint32_t before = pgl_request_progress(s).n_generated, read = pgl_request_progress(l).n_read;
    assert_true(pgl_request_wait(l, 20000000000u));
    uint32_t during = pgl_request_progress(s).n_generated - before;
    assert_true(during >= (1500 - read) / 32 - 3); /* a token of the stream for every chunk */
    pgl_request_release(s);
    pgl_request_release(l);
    pgl_request_release(c);
    world_close(&w);
}

static void chunks_shrink_to_what_a_slow_machine_reads_within_the_gap(void **state) {
    (void)state;
    engine_world w; /* a millisecond for each token: 20 of them fill the gap */
    world_open(&w, (world_options){.n_pages = 200, .token_ns = 1000000, .gap_ns = 20000000});
    int32_t prompt[800];
    world_prompt(29, prompt, 800);
    pgl_request_params stream = world_params(prompt, 5, 900), big = world_params(prompt, 800, 1);
    pgl_request *s = world_submit(&w, &stream);
    assert_true(pgl_request_wait(s, 5000000000u));
    pgl_request *l = world_submit(&w, &big);
    while (pgl_request_progress(l).n_read == 0)
        (void)sched_yield();
    uint32_t before = pgl_request_progress(s).n_generated, read = pgl_request_progress(l).n_read;
    assert_true(read <= 64); /* its speed was not known yet */
    assert_true(pgl_request_wait(l, 20000000000u));
    uint32_t steps = pgl_request_progress(s).n_generated - before;
    assert_true(steps >= (800 - read) / 24 && steps <= (800 - read) / 12);
    pgl_request_release(s);
    pgl_request_release(l);
    world_close(&w);
}

/* ---- the queue ---- */

static void count_notice(void *user) {
    atomic_fetch_add((atomic_uint *)user, 1);
}

static void notify_is_called_when_the_queue_becomes_non_empty(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.step_ns = 500000});
    int32_t prompt[10];
    world_prompt(27, prompt, 10);
    pgl_request_params p = world_params(prompt, 10, 50);
    atomic_uint notices;
    atomic_init(&notices, 0);
    p.notify = count_notice;
    p.user = &notices;
    pgl_request *r = world_submit(&w, &p);
    while (pgl_request_progress(r).state != PGL_REQUEST_DONE)
        (void)sched_yield();
    assert_int_equal(atomic_load(&notices), 1); /* nobody took anything */
    world_read(r, &a);
    pgl_request_release(r);
    r = world_submit(&w, &p);
    world_read(r, &a); /* taken as it comes */
    assert_true(atomic_load(&notices) > 10 && atomic_load(&notices) <= 52);
    pgl_request_release(r);
    assert_false(pgl_request_wait(r = world_submit(&w, &p), 0));
    pgl_request_release(r);
    world_close(&w);
}

static void slots_and_figures_show_what_runs(void **state) {
    (void)state;
    engine_world w;
    world_open(&w, (world_options){.n_slots = 3, .step_ns = 1000000, .n_snapshots = 8, .cache = true});
    int32_t prompt[40];
    world_prompt(28, prompt, 40);
    pgl_request_params p = world_params(prompt, 40, 200);
    pgl_request *r = world_submit(&w, &p);
    assert_true(pgl_request_wait(r, 5000000000u));
    pgl_slot_info slots[5];
    uint32_t used = 0;
    for (int tries = 0; tries < 1000 && used == 0; tries++) {
        assert_int_equal(pgl_engine_get_slots(w.engine, slots, 5), 3);
        used = slots[0].used && slots[0].n_generated > 0;
        (void)sched_yield();
    }
    assert_int_equal(slots[0].n_prompt, 40);
    assert_int_equal(slots[0].state, PGL_REQUEST_ANSWER);
    assert_false(slots[1].used);
    pgl_engine_stats stats = pgl_engine_get_stats(w.engine);
    assert_int_equal(stats.n_running, 1);
    assert_int_equal(stats.n_slots, 3);
    assert_true(stats.request_bytes > 0 && stats.steps > 0 && stats.prompt_tokens == 40);
    world_read(r, &a);
    pgl_request_release(r);
    assert_true(pgl_engine_drain(w.engine, 5000000000u));
    stats = pgl_engine_get_stats(w.engine);
    assert_int_equal(stats.n_running, 0);
    assert_int_equal(stats.requests_finished[PGL_FINISH_LENGTH], 1);
    assert_int_equal(stats.generated_tokens, 200);
    assert_int_equal(stats.request_bytes, 0);
    assert_int_equal(stats.n_pages_free + stats.n_pages_cached, stats.n_pages);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_ends_at_its_limit_and_is_repeatable),
        cmocka_unit_test(a_stop_id_ends_the_answer_and_is_not_part_of_it),
        cmocka_unit_test(forced_tokens_come_out_as_they_are),
        cmocka_unit_test(neighbours_chunks_and_cache_change_no_answer),
        cmocka_unit_test(a_conversation_rereads_only_what_is_new),
        cmocka_unit_test(a_hint_is_where_another_prompt_parts),
        cmocka_unit_test(of_many_hints_the_first_and_the_last_three_count),
        cmocka_unit_test(a_prompt_that_several_share_is_read_once),
        cmocka_unit_test(nobody_waits_for_one_that_is_cancelled),
        cmocka_unit_test(a_cancel_takes_effect_within_a_step),
        cmocka_unit_test(a_waiting_request_can_be_cancelled),
        cmocka_unit_test(non_finite_logits_end_one_request_and_leave_nothing_behind),
        cmocka_unit_test(a_full_queue_refuses_at_once),
        cmocka_unit_test(without_a_queue_one_request_follows_another),
        cmocka_unit_test(draining_finishes_what_runs_and_refuses_the_rest),
        cmocka_unit_test(closing_cancels_what_runs_and_handles_outlive_it),
        cmocka_unit_test(wrong_requests_are_refused_by_name),
        cmocka_unit_test(prompt_logprobs_do_not_depend_on_chunks),
        cmocka_unit_test(each_token_lists_its_own_alternatives),
        cmocka_unit_test(a_constraint_holds_for_every_token),
        cmocka_unit_test(a_failing_constraint_never_fails_open),
        cmocka_unit_test(a_long_prompt_is_read_between_the_tokens_of_a_stream),
        cmocka_unit_test(chunks_shrink_to_what_a_slow_machine_reads_within_the_gap),
        cmocka_unit_test(notify_is_called_when_the_queue_becomes_non_empty),
        cmocka_unit_test(slots_and_figures_show_what_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
