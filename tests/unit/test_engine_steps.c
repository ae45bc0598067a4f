/* What a step in flight delays: no more than itself. The backend is stopped in the middle of a step by hand, and what it does
 * afterwards is compared, call by call. */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "engine_world.h"

enum { MOST_CALLS = 8192, CHUNK = 64, LONG = 700 };

typedef struct position {
    uint32_t slot, length;
} position;

/* The positions that the backend came to, in order. */
typedef struct journal {
    position calls[MOST_CALLS];
    uint32_t n; /* read by the test when the backend is at rest */
    position stop_at;
    bool stopped;
    sem_t stop, go;
} journal;

static bool note(void *user, uint32_t slot, uint32_t length) {
    journal *j = user;
    if (j->n < MOST_CALLS)
        j->calls[j->n++] = (position){slot, length};
    if (!j->stopped && slot == j->stop_at.slot && length == j->stop_at.length) {
        j->stopped = true;
        assert_int_equal(sem_post(&j->stop), 0);
        while (sem_wait(&j->go) != 0) {
        }
    }
    return false;
}

static void open_journal(journal *j, position stop_at) {
    *j = (journal){.stop_at = stop_at};
    assert_int_equal(sem_init(&j->stop, 0, 0), 0);
    assert_int_equal(sem_init(&j->go, 0, 0), 0);
}

static void close_journal(journal *j) {
    (void)sem_destroy(&j->stop);
    (void)sem_destroy(&j->go);
}

static void wait_for_stop(journal *j) {
    while (sem_wait(&j->stop) != 0) {
    }
}

/* The first call at or behind i with this slot and length; n when there is none. */
static uint32_t find(const journal *j, uint32_t i, position p) {
    while (i < j->n && (j->calls[i].slot != p.slot || j->calls[i].length != p.length))
        i++;
    return i;
}

static journal j;
static world_answer a;

static void a_cancelled_prompt_frees_its_slot_with_the_step_in_flight(void **state) {
    (void)state;
    /* in its first chunk, whose time is not known yet, and in the fourth */
    for (uint32_t chunk = 0; chunk < 4; chunk += 3) {
        open_journal(&j, (position){0, chunk * CHUNK + 5});
        engine_world w;
        world_open(&w, (world_options){.n_slots = 1,
                                       .max_queue = 1,
                                       .max_step_tokens = CHUNK,
                                       .token_ns = 500000,
                                       .inject_non_finite = note,
                                       .user = &j});
        int32_t prompt[LONG];
        world_prompt(1, prompt, LONG);
        pgl_request_params p = world_params(prompt, LONG, 5), q = world_params(prompt + 1, 10, 3);
        pgl_request *first = world_submit(&w, &p);
        wait_for_stop(&j);
        pgl_request *second = world_submit(&w, &q);
        pgl_request_cancel(first);
        assert_int_equal(sem_post(&j.go), 0);
        world_read(second, &a);
        assert_int_equal(a.n, 3);
        pgl_request_release(second);
        pgl_request_release(first);
        world_close(&w);
        uint32_t stopped = find(&j, 0, j.stop_at);
        for (uint32_t i = stopped; i < j.n; i++) /* the rest of the chunk, then the second one's prompt */
            assert_true(j.calls[i].length <= (chunk + 1) * CHUNK);
        assert_int_equal(find(&j, stopped, (position){0, 1}), stopped + CHUNK - 4);
        close_journal(&j);
    }
}

static void a_cancelled_answer_frees_its_slot_with_the_step_in_flight(void **state) {
    (void)state;
    open_journal(&j, (position){0, 30});
    engine_world w;
    world_open(&w,
               (world_options){
                   .n_slots = 1, .max_queue = 1, .step_ns = 25000000, .inject_non_finite = note, .user = &j});
    int32_t prompt[20];
    world_prompt(2, prompt, 20);
    pgl_request_params p = world_params(prompt, 20, 500), q = world_params(prompt + 1, 10, 3);
    pgl_request *first = world_submit(&w, &p), *second = world_submit(&w, &q);
    wait_for_stop(&j);
    pgl_request_release(first);
    assert_int_equal(sem_post(&j.go), 0);
    world_read(second, &a);
    assert_int_equal(a.n, 3);
    pgl_request_release(second);
    world_close(&w);
    uint32_t stopped = find(&j, 0, j.stop_at);
    assert_int_equal(j.calls[stopped + 1].length, 1); /* the second one's */
    close_journal(&j);
}

/* Beside a stream: who waits has the place in the next step, and the stream has a token in each. */
static void who_waits_takes_the_place_in_the_next_step(void **state) {
    (void)state;
    open_journal(&j, (position){1, 2 * CHUNK + 5});
    engine_world w;
    world_open(&w, (world_options){.n_slots = 2,
                                   .max_queue = 1,
                                   .max_step_tokens = CHUNK + 2,
                                   .prefill_chunk = CHUNK,
                                   .token_ns = 500000,
                                   .inject_non_finite = note,
                                   .user = &j});
    int32_t prompt[LONG];
    world_prompt(3, prompt, LONG);
    pgl_request_params stream = world_params(prompt, 8, 900), p = world_params(prompt + 1, LONG - 1, 5),
                       q = world_params(prompt + 2, 10, 3);
    pgl_request *s = world_submit(&w, &stream);
    assert_true(pgl_request_wait(s, 5000000000u));
    pgl_request *first = world_submit(&w, &p);
    wait_for_stop(&j);
    pgl_request *second = world_submit(&w, &q);
    pgl_request_cancel(first);
    assert_int_equal(sem_post(&j.go), 0);
    world_read(second, &a);
    assert_int_equal(a.n, 3);
    pgl_request_release(second);
    pgl_request_release(first);
    pgl_request_release(s);
    world_close(&w);
    uint32_t stopped = find(&j, 0, j.stop_at), next = find(&j, stopped, (position){1, 1});
    uint32_t of_stream = 0;
    for (uint32_t i = stopped; i < next; i++) {
        of_stream += j.calls[i].slot == 0;
        assert_true(j.calls[i].length <= 3 * CHUNK || j.calls[i].slot == 0);
    }
    assert_true(next < j.n && of_stream <= 1);
    close_journal(&j);
}

/* Where steps are short the next one is planned ahead: the backend never waits for the engine. */
static void short_steps_are_planned_ahead(void **state) {
    (void)state;
    open_journal(&j, (position){0, 200});
    engine_world w;
    world_open(&w, (world_options){.n_slots = 1, .step_ns = 1000000, .inject_non_finite = note, .user = &j});
    int32_t prompt[20];
    world_prompt(4, prompt, 20);
    pgl_request_params p = world_params(prompt, 20, 500);
    pgl_request *r = world_submit(&w, &p);
    wait_for_stop(&j);
    struct timespec ample = {.tv_nsec = 300000000}; /* for a plan */
    assert_int_equal(nanosleep(&ample, NULL), 0);
    pgl_request_release(r);
    assert_int_equal(sem_post(&j.go), 0);
    world_close(&w);
    assert_int_equal(j.calls[j.n - 1].length, 201); /* it had been submitted while 200 was at work */
    close_journal(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancelled_prompt_frees_its_slot_with_the_step_in_flight),
        cmocka_unit_test(a_cancelled_answer_frees_its_slot_with_the_step_in_flight),
        cmocka_unit_test(who_waits_takes_the_place_in_the_next_step),
        cmocka_unit_test(short_steps_are_planned_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
