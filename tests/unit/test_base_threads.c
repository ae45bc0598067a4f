/* The worker pool and the queue. Run under ThreadSanitizer too. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/pool.h"
#include "base/queue.h"

#define N_TASKS 1000

typedef struct sums {
    uint32_t n_threads;
    uint32_t thread_of[N_TASKS]; /* plain: the pool must order them */
    uint32_t done[N_TASKS];
    uint64_t last[64]; /* by thread: the task before */
} sums;

static void one_task(void *arg, uint32_t task, uint32_t thread) {
    sums *s = arg;
    s->thread_of[task] = thread;
    s->done[task]++;
    s->last[thread] = task;
}

static pgl_pool *open_pool(uint32_t n, uint64_t spin_ns) {
    pgl_pool *pool = NULL;
    pgl_error err;
    const pgl_pool_options options = {.n_threads = n, .spin_ns = spin_ns};
    if (pgl_pool_open(&options, &pool, &err) != PGL_OK)
        fail_msg("%s", err.text);
    assert_int_equal(pgl_pool_n_threads(pool), n);
    return pool;
}

static void every_task_runs_once_on_the_thread_that_is_promised(void **state) {
    (void)state;
    static const uint32_t THREADS[] = {1, 2, 3, 8};
    static const uint32_t TASKS[] = {0, 1, 2, 7, N_TASKS};
    for (size_t i = 0; i < 4; i++) {
        uint32_t n = THREADS[i];
        pgl_pool *pool = open_pool(n, 0);
        for (size_t k = 0; k < 5; k++) {
            sums *s = calloc(1, sizeof *s);
            assert_non_null(s);
            for (uint32_t round = 1; round <= 20; round++) {
                pgl_pool_run(pool, one_task, s, TASKS[k]);
                for (uint32_t t = 0; t < TASKS[k]; t++) {
                    assert_int_equal(s->done[t], round);
                    uint32_t thread = s->thread_of[t];
                    assert_true(t >= TASKS[k] * thread / n && t < TASKS[k] * (thread + 1) / n);
                }
            }
            free(s);
        }
        pgl_pool_close(pool);
    }
}

static void free_threads_take_the_next_task(void **state) {
    (void)state;
    pgl_pool *pool = open_pool(4, 5000);
    sums *s = calloc(1, sizeof *s);
    assert_non_null(s);
    for (uint32_t round = 1; round <= 50; round++) {
        pgl_pool_run_dynamic(pool, one_task, s, N_TASKS);
        for (uint32_t t = 0; t < N_TASKS; t++)
            assert_int_equal(s->done[t], round);
    }
    free(s);
    pgl_pool_close(pool);
}

static void count_thread(void *arg, uint32_t thread, uint32_t n_threads) {
    uint32_t *seen = arg;
    seen[thread] += n_threads;
}

/* Many short runs with and without sleeping between them: a lost wake-up would hang. */
static void no_wake_up_is_lost(void **state) {
    (void)state;
    pgl_pool *pool = open_pool(3, 2000);
    uint32_t seen[3] = {0};
    for (int i = 0; i < 3000; i++) {
        pgl_pool_each(pool, count_thread, seen);
        if (i % 100 == 0)
            usleep(200);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(seen[i], 9000);
    pgl_pool_close(pool);
}

static void a_pool_can_be_pinned_and_has_limits(void **state) {
    (void)state;
    pgl_pool *pool = NULL;
    pgl_error err;
    const pgl_pool_options pinned = {.pin = true};
    assert_int_equal(pgl_pool_open(&pinned, &pool, &err), PGL_OK);
    assert_int_equal(pgl_pool_n_threads(pool), pgl_cpu_count());
    uint32_t seen[PGL_POOL_MOST_THREADS] = {0};
    pgl_pool_each(pool, count_thread, seen);
    pgl_pool_close(pool);
    const pgl_pool_options many = {.n_threads = PGL_POOL_MOST_THREADS + 1};
    assert_int_equal(pgl_pool_open(&many, &pool, &err), PGL_E_INVALID);
    assert_null(pool);
    pgl_pool_close(NULL);
}

static void *put_many(void *arg) {
    pgl_queue *queue = arg;
    for (uintptr_t i = 1; i <= 2000; i++)
        while (pgl_queue_put(queue, (void *)i) == PGL_E_BUSY)
            usleep(50);
    return NULL;
}

static void no_item_is_lost_between_threads(void **state) {
    (void)state;
    pgl_queue *queue;
    assert_int_equal(pgl_queue_open(16, &queue, NULL), PGL_OK);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_many, queue), 0);
    uint64_t sum = 0;
    for (int i = 0; i < 6000; i++) {
        void *item = pgl_queue_take(queue, UINT64_MAX);
        assert_non_null(item);
        sum += (uintptr_t)item;
    }
    assert_int_equal(sum, 3 * 2000 * 2001 / 2);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_null(pgl_queue_take(queue, 0));
    pgl_queue_close(queue);
}

static void a_full_or_shut_queue_says_so_and_waiting_ends_in_time(void **state) {
    (void)state;
    pgl_queue *queue;
    int a = 0, b = 0;
    assert_int_equal(pgl_queue_open(0, &queue, NULL), PGL_E_INVALID);
    assert_int_equal(pgl_queue_open(1, &queue, NULL), PGL_OK);
    assert_int_equal(pgl_queue_put(queue, &a), PGL_OK);
    assert_int_equal(pgl_queue_put(queue, &b), PGL_E_BUSY);
    assert_int_equal(pgl_queue_count(queue), 1);
    pgl_queue_shut(queue);
    assert_int_equal(pgl_queue_put(queue, &b), PGL_E_CANCELLED);
    assert_ptr_equal(pgl_queue_take(queue, UINT64_MAX), &a);
    assert_null(pgl_queue_take(queue, UINT64_MAX));
    pgl_queue_close(queue);

    assert_int_equal(pgl_queue_open(1, &queue, NULL), PGL_OK);
    uint64_t start = pgl_now_ns();
    assert_null(pgl_queue_take(queue, 20000000));
    assert_true(pgl_now_ns() - start >= 19000000);
    pgl_queue_wake(queue);
    assert_null(pgl_queue_take(queue, UINT64_MAX));
    pgl_queue_close(queue);
    pgl_queue_close(NULL);
}

static void times_are_written_as_utc(void **state) {
    (void)state;
    char text[PGL_TIME_TEXT];
    pgl_wall_text(UINT64_C(1767225599123456789), text);
    assert_string_equal(text, "2025-12-31T23:59:59.123Z");
    assert_true(pgl_wall_ns() > UINT64_C(1700000000000000000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once_on_the_thread_that_is_promised),
        cmocka_unit_test(free_threads_take_the_next_task),
        cmocka_unit_test(no_wake_up_is_lost),
        cmocka_unit_test(a_pool_can_be_pinned_and_has_limits),
        cmocka_unit_test(no_item_is_lost_between_threads),
        cmocka_unit_test(a_full_or_shut_queue_says_so_and_waiting_ends_in_time),
        cmocka_unit_test(times_are_written_as_utc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
