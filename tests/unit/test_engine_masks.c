/* Token masks that take long: whoever needs them waits, and nobody else. The masks here are held back by hand, so that what
 * must not wait for them would wait for ever. */
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_world.h"

enum { SLOW_TOKENS = 9, FREE = 3, FREE_TOKENS = 250, MANY_SLOW = 10 };

static world_answer a, cold_slow, cold_free[FREE];

/* Allows ids with the parity of the place. */
typedef struct held_mask {
    sem_t go;           /* waited for at the places that are held */
    uint32_t hold_from; /* every third place from here on is held */
    uint64_t burn_ns;   /* of processor time, at the first place */
    uint32_t n_calls;
    int32_t seen[SLOW_TOKENS + 1];
    atomic_uint n_held; /* calls that came to be held */
} held_mask;

static pgl_mask_answer next(void *user, int32_t token, uint32_t *mask, pgl_error *err) {
    held_mask *m = user;
    (void)err;
    uint32_t place = m->n_calls++;
    if (place <= SLOW_TOKENS)
        m->seen[place] = token;
    for (uint64_t until = pgl_thread_ns() + m->burn_ns; place == 0 && pgl_thread_ns() < until;) {
    }
    if (place >= m->hold_from && (place - m->hold_from) % 3 == 0) {
        atomic_fetch_add(&m->n_held, 1);
        while (sem_wait(&m->go) != 0) {
        }
    }
    if (place % 4 == 3)
        return PGL_MASK_ALL;
    memset(mask, place % 2 == 0 ? 0x55 : 0xAA, (WORLD_VOCAB + 31) / 32 * sizeof *mask);
    return PGL_MASK_SOME;
}

static void open_mask(held_mask *m, uint32_t hold_from) {
    *m = (held_mask){.hold_from = hold_from};
    assert_int_equal(sem_init(&m->go, 0, 0), 0);
}

static pgl_request_params drawn(const int32_t *prompt, uint32_t n, uint32_t max_tokens, uint64_t seed) {
    pgl_request_params p = world_params(prompt, n, max_tokens);
    p.sampling.temperature = 1.2F;
    p.sampling.seed = seed;
    p.sampling.presence_penalty = 0.3F;
    return p;
}

static void wait_for_tokens(pgl_request *r, uint32_t n) {
    uint64_t start = pgl_now_ns();
    while (pgl_request_progress(r).n_generated < n) {
        assert_true(pgl_now_ns() - start < 20000000000u);
        (void)sched_yield();
    }
}

static void wait_for_held(const held_mask *m, uint32_t n) {
    uint64_t start = pgl_now_ns();
    while (atomic_load(&m->n_held) < n) {
        assert_true(pgl_now_ns() - start < 20000000000u);
        (void)sched_yield();
    }
}

static void free_streams_run_on_while_a_mask_is_awaited(void **state) {
    (void)state;
    int32_t prompt[60];
    world_prompt(1, prompt, 60);
    held_mask m;
    open_mask(&m, UINT32_MAX);
    pgl_request_params slow = drawn(prompt, 60, SLOW_TOKENS, 7), p[FREE];
    slow.mask = (pgl_mask_provider){next, NULL, &m};
    engine_world w;
    world_open(&w, (world_options){.n_slots = 1});
    world_run(&w, &slow, &cold_slow);
    for (uint32_t i = 0; i < FREE; i++) {
        p[i] = drawn(prompt + i + 1, 20, FREE_TOKENS, i);
        world_run(&w, &p[i], &cold_free[i]);
    }
    world_close(&w);
    assert_int_equal(cold_slow.n, SLOW_TOKENS);

    for (uint64_t step_ns = 0; step_ns <= 500000; step_ns += 500000) {
        (void)sem_destroy(&m.go);
        open_mask(&m, 0);
        world_open(&w, (world_options){.n_slots = 4, .step_ns = step_ns});
        pgl_request *s = world_submit(&w, &slow), *r[FREE];
        for (uint32_t i = 0; i < FREE; i++)
            r[i] = world_submit(&w, &p[i]);
        for (uint32_t held = 0; held < SLOW_TOKENS / 3; held++) {
            wait_for_held(&m, held + 1);
            assert_int_equal(pgl_request_progress(s).n_generated, 3 * held);
            for (uint32_t i = 0; i < FREE; i++) /* would wait for ever */
                wait_for_tokens(r[i], (held + 1) * FREE_TOKENS / 3);
            assert_int_equal(pgl_request_progress(s).n_generated, 3 * held);
            assert_int_equal(pgl_engine_get_stats(w.engine).n_running > 0, 1);
            assert_int_equal(sem_post(&m.go), 0);
        }
        world_read(s, &a);
        world_expect_same(&a, &cold_slow);
        assert_int_equal(m.seen[0], -1);
        for (uint32_t i = 1; i < SLOW_TOKENS; i++)
            assert_int_equal(m.seen[i], a.tokens[i - 1]);
        assert_int_equal(m.n_calls, SLOW_TOKENS);
        for (uint32_t i = 0; i < FREE; i++) {
            world_read(r[i], &a);
            world_expect_same(&a, &cold_free[i]);
            pgl_request_release(r[i]);
        }
        pgl_request_release(s);
        world_close(&w);
    }
    (void)sem_destroy(&m.go);
}

static void a_prompt_is_read_while_its_first_mask_is_awaited(void **state) {
    (void)state;
    int32_t prompt[300];
    world_prompt(2, prompt, 300);
    held_mask m;
    open_mask(&m, 0);
    engine_world w;
    world_open(&w, (world_options){.n_slots = 1, .max_step_tokens = 64});
    pgl_request_params slow = drawn(prompt, 300, 5, 3);
    slow.mask = (pgl_mask_provider){next, NULL, &m};
    pgl_request *s = world_submit(&w, &slow);
    wait_for_held(&m, 1);
    uint64_t start = pgl_now_ns();
    while (pgl_request_progress(s).n_read < 299) /* all but the token that samples */
        assert_true(pgl_now_ns() - start < 20000000000u);
    assert_int_equal(pgl_request_progress(s).n_generated, 0);
    assert_int_equal(sem_post(&m.go), 0);
    assert_int_equal(sem_post(&m.go), 0);
    world_read(s, &a);
    assert_int_equal(a.n, 5);
    pgl_request_release(s);
    world_close(&w);
    (void)sem_destroy(&m.go);
}

static void slow_grammars_hold_no_thread_that_quick_ones_need(void **state) {
    (void)state;
    int32_t prompt[40];
    world_prompt(3, prompt, 40);
    held_mask slow[MANY_SLOW], quick;
    pgl_request *r[MANY_SLOW];
    engine_world w;
    world_open(&w, (world_options){.n_slots = MANY_SLOW + 1, .step_ns = 1000000});
    for (uint32_t i = 0; i < MANY_SLOW; i++) {
        open_mask(&slow[i], 1);
        slow[i].burn_ns = 5000000;
        pgl_request_params p = drawn(prompt, 40, 3, i);
        p.mask = (pgl_mask_provider){next, NULL, &slow[i]};
        r[i] = world_submit(&w, &p);
    }
    for (uint32_t i = 0; i < MANY_SLOW; i++)
        wait_for_tokens(r[i], 1);
    open_mask(&quick, UINT32_MAX);
    pgl_request_params p = drawn(prompt, 40, 30, 7);
    p.mask = (pgl_mask_provider){next, NULL, &quick};
    world_run(&w, &p, &a);
    assert_int_equal(a.n, 30);
    for (uint32_t i = 0; i < MANY_SLOW; i++)
        assert_int_equal(sem_post(&slow[i].go), 0);
    for (uint32_t i = 0; i < MANY_SLOW; i++) {
        world_read(r[i], &a);
        assert_int_equal(a.n, 3);
        pgl_request_release(r[i]);
    }
    world_close(&w);
    for (uint32_t i = 0; i < MANY_SLOW; i++)
        (void)sem_destroy(&slow[i].go);
    (void)sem_destroy(&quick.go);
}

/* Common masks take no time, and their answers keep up with free ones. */
static void an_answer_with_quick_masks_has_a_token_in_every_step(void **state) {
    (void)state;
    enum { TOKENS = 60 };
    int32_t prompt[40];
    world_prompt(6, prompt, 40);
    held_mask m;
    open_mask(&m, UINT32_MAX);
    engine_world w;
    world_open(&w, (world_options){.n_slots = 2, .step_ns = 8000000});
    pgl_request_params p = drawn(prompt, 20, 900, 1), q = drawn(prompt, 20, TOKENS, 2);
    q.mask = (pgl_mask_provider){next, NULL, &m};
    pgl_request *stream = world_submit(&w, &p);
    wait_for_tokens(stream, 5);
    pgl_request *quick = world_submit(&w, &q);
    wait_for_tokens(quick, 1);
    uint32_t before = pgl_request_progress(stream).n_generated;
    world_read(quick, &a);
    uint32_t during = pgl_request_progress(stream).n_generated - before;
    assert_int_equal(a.n, TOKENS);
    assert_true(during < TOKENS * 3 / 2);
    pgl_request_release(quick);
    pgl_request_release(stream);
    world_close(&w);
    (void)sem_destroy(&m.go);
}

static void a_request_ends_at_once_while_its_mask_is_awaited(void **state) {
    (void)state;
    int32_t prompt[40];
    world_prompt(4, prompt, 40);
    held_mask m;
    open_mask(&m, 2);
    engine_world w;
    world_open(&w, (world_options){.n_slots = 1, .max_queue = 2});
    pgl_request_params slow = drawn(prompt, 40, 9, 7), p = drawn(prompt, 30, 9, 8);
    slow.mask = (pgl_mask_provider){next, NULL, &m};
    pgl_request *s = world_submit(&w, &slow);
    wait_for_held(&m, 1);
    pgl_request_cancel(s);
    world_read(s, &a);
    assert_int_equal(a.finish, PGL_FINISH_CANCELLED);
    pgl_request_release(s);
    world_run(&w, &p, &a); /* its slot is free, though a thread still works for it */
    assert_int_equal(a.n, 9);
    assert_int_equal(sem_post(&m.go), 0);
    world_close(&w); /* and waits for that thread */
    (void)sem_destroy(&m.go);
}

/* A mask that depends on every token before it, now and then after some work. */
typedef struct following_mask {
    uint32_t state;
} following_mask;

static pgl_mask_answer follow(void *user, int32_t token, uint32_t *mask, pgl_error *err) {
    following_mask *m = user;
    (void)err;
    m->state = (m->state * 31 + (uint32_t)(token + 2)) * 2654435761u;
    for (uint64_t until = pgl_thread_ns() + 300000; m->state % 8 == 0 && pgl_thread_ns() < until;) {
    }
    for (size_t i = 0; i < (WORLD_VOCAB + 31) / 32; i++)
        mask[i] = 0x01010101u << (m->state >> 8) % 8;
    return m->state % 5 == 0 ? PGL_MASK_ALL : PGL_MASK_SOME;
}

enum { N_MASKED = 24, LONGEST_MASKED = 300 };

static world_answer cold_masked[N_MASKED];

/* Under pressure for pages, so that most are parked and resumed, with a cache and without, and every third leaves. */
static void parked_answers_go_on_with_their_masks(void **state) {
    (void)state;
    int32_t prompt[LONGEST_MASKED];
    world_prompt(5, prompt, LONGEST_MASKED);
    following_mask masks[N_MASKED];
    pgl_request_params p[N_MASKED];
    engine_world w;
    world_open(&w, (world_options){.n_slots = 1});
    for (uint32_t i = 0; i < N_MASKED; i++) {
        p[i] = drawn(prompt + i, 1 + i * 37 % 200, 20 + i * 13 % 80, i);
        masks[i] = (following_mask){.state = i};
        if (i % 4 != 3)
            p[i].mask = (pgl_mask_provider){follow, NULL, &masks[i]};
        world_run(&w, &p[i], &cold_masked[i]);
    }
    world_close(&w);
    uint32_t parked = 0;
    for (int cache = 0; cache < 2; cache++) {
        world_open(&w, (world_options){.n_slots = 8,
                                       .n_pages = 26,
                                       .max_context = 400,
                                       .max_queue = 2 * N_MASKED,
                                       .cache = cache,
                                       .n_snapshots = 12,
                                       .snapshot_every = 64});
        pgl_request *r[N_MASKED], *leaving[N_MASKED];
        following_mask of_leaving[N_MASKED];
        for (uint32_t i = 0; i < N_MASKED; i++) {
            masks[i] = of_leaving[i] = (following_mask){.state = i};
            r[i] = world_submit(&w, &p[i]);
            pgl_request_params q = p[i];
            q.mask.user = &of_leaving[i];
            leaving[i] = i % 3 == 0 ? world_submit(&w, &q) : NULL;
        }
        for (uint32_t i = 0; i < N_MASKED; i++) {
            world_read(r[i], &a);
            world_expect_same(&a, &cold_masked[i]);
            parked += a.usage.n_parked;
            pgl_request_release(r[i]);
            pgl_request_release(leaving[i]);
        }
        world_close(&w);
    }
    assert_true(parked > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_streams_run_on_while_a_mask_is_awaited),
        cmocka_unit_test(a_prompt_is_read_while_its_first_mask_is_awaited),
        cmocka_unit_test(slow_grammars_hold_no_thread_that_quick_ones_need),
        cmocka_unit_test(parked_answers_go_on_with_their_masks),
        cmocka_unit_test(an_answer_with_quick_masks_has_a_token_in_every_step),
        cmocka_unit_test(a_request_ends_at_once_while_its_mask_is_awaited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
