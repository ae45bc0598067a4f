/* One job at a time: the caller fills the job's fields, then raises `generation`; each worker reads them
 * after it has seen the new generation, works, and lowers `pending`. The caller waits for pending to reach
 * zero, so the fields are never written while a worker may read them. Sleeping is by futex on generation
 * (workers) and on pending (caller); the counts of sleepers spare the system call when everyone is awake. */
#include "base/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

typedef enum job_kind { JOB_STATIC, JOB_DYNAMIC, JOB_EACH, JOB_STOP } job_kind;

typedef struct worker {
    pgl_pool *pool;
    uint32_t thread;
    pthread_t handle;
} worker;

struct pgl_pool {
    /* fixed after open */
    uint32_t n_threads;
    uint32_t n_started; /* workers */
    bool pin;
    uint64_t spin_ns;
    worker *workers;

    /* written by the caller between jobs, read by workers during one */
    job_kind kind;
    uint32_t n_tasks;
    pgl_pool_fn fn;
    pgl_pool_each_fn each;
    void *arg;

    /* each on a cache line of its own */
    _Alignas(64) atomic_uint generation;
    _Alignas(64) atomic_uint pending;
    _Alignas(64) atomic_uint next_task;
    _Alignas(64) atomic_uint sleeping_workers;
    atomic_uint sleeping_caller;
};

static void futex_wait(atomic_uint *word, unsigned expected) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Waits until *word is no longer `old` (while_equal) or until it is `old` (otherwise). */
static void wait_on(atomic_uint *word, unsigned value, bool while_equal, uint64_t spin_ns,
                    atomic_uint *sleepers) {
    uint64_t start = 0;
    for (unsigned n = 1;; n++) {
        if ((atomic_load_explicit(word, memory_order_acquire) == value) != while_equal)
            return;
        if (spin_ns == 0)
            break;
        relax();
        if (n % 64 == 0) { /* reading the clock costs as much as many looks */
            uint64_t now = pgl_now_ns();
            if (start == 0)
                start = now;
            else if (now - start > spin_ns)
                break;
        }
    }
    /* Sequentially consistent on both sides: either the waker sees this sleeper, or the sleeper sees the new
     * value. */
    atomic_fetch_add(sleepers, 1);
    for (;;) {
        unsigned seen = atomic_load(word);
        if ((seen == value) != while_equal)
            break;
        futex_wait(word, seen);
    }
    atomic_fetch_sub(sleepers, 1);
}

static void work(pgl_pool *pool, uint32_t thread) {
    uint32_t n = pool->n_threads;
    uint32_t n_tasks = pool->n_tasks;
    switch (pool->kind) {
    case JOB_STATIC: {
        uint32_t end = (uint32_t)((uint64_t)n_tasks * (thread + 1) / n);
        for (uint32_t task = (uint32_t)((uint64_t)n_tasks * thread / n); task < end; task++)
            pool->fn(pool->arg, task, thread);
        break;
    }
    case JOB_DYNAMIC: /* n_tasks <= UINT_MAX - n, so that the overshooting of n threads cannot wrap */
        for (;;) {
            uint32_t task = atomic_fetch_add_explicit(&pool->next_task, 1, memory_order_relaxed);
            if (task >= n_tasks)
                break;
            pool->fn(pool->arg, task, thread);
        }
        break;
    case JOB_EACH:
        pool->each(pool->arg, thread, n);
        break;
    case JOB_STOP:
        break;
    }
}

static void *worker_main(void *arg) {
    worker *w = arg;
    pgl_pool *pool = w->pool;
    unsigned seen = 0;
    if (pool->pin)
        (void)pgl_cpu_pin(w->thread);
    for (;;) {
        wait_on(&pool->generation, seen, true, pool->spin_ns, &pool->sleeping_workers);
        seen++; /* never more than one ahead: the caller waits for all */
        if (pool->kind == JOB_STOP)
            return NULL;
        work(pool, w->thread);
        if (atomic_fetch_sub(&pool->pending, 1) == 1 && atomic_load(&pool->sleeping_caller) != 0)
            futex_wake(&pool->pending, 1);
    }
}

/* The job's fields are set. */
static void announce(pgl_pool *pool) {
    atomic_store_explicit(&pool->next_task, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->pending, pool->n_started, memory_order_relaxed);
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->sleeping_workers) != 0)
        futex_wake(&pool->generation, INT_MAX);
}

static void run_job(pgl_pool *pool) {
    if (pool->n_started > 0)
        announce(pool);
    else
        atomic_store_explicit(&pool->next_task, 0, memory_order_relaxed);
    work(pool, 0);
    if (pool->n_started > 0)
        wait_on(&pool->pending, 0, false, pool->spin_ns, &pool->sleeping_caller);
}

void pgl_pool_run(pgl_pool *pool, pgl_pool_fn fn, void *arg, uint32_t n_tasks) {
    pool->kind = JOB_STATIC;
    pool->fn = fn;
    pool->arg = arg;
    pool->n_tasks = n_tasks;
    run_job(pool);
}

void pgl_pool_run_dynamic(pgl_pool *pool, pgl_pool_fn fn, void *arg, uint32_t n_tasks) {
    pool->kind = n_tasks <= UINT_MAX - PGL_POOL_MOST_THREADS ? JOB_DYNAMIC : JOB_STATIC;
    pool->fn = fn;
    pool->arg = arg;
    pool->n_tasks = n_tasks;
    run_job(pool);
}

void pgl_pool_each(pgl_pool *pool, pgl_pool_each_fn fn, void *arg) {
    pool->kind = JOB_EACH;
    pool->each = fn;
    pool->arg = arg;
    pool->n_tasks = 0;
    run_job(pool);
}

static pgl_status start_workers(pgl_pool *pool, pgl_error *err) {
    /* Signals are the business of the threads that asked for them. SIGBUS and its like arrive where they are
     * caused. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int number = 0;
    for (uint32_t i = 0; number == 0 && i + 1 < pool->n_threads; i++) {
        pool->workers[i] = (worker){.pool = pool, .thread = i + 1};
        number = pthread_create(&pool->workers[i].handle, NULL, worker_main, &pool->workers[i]);
        if (number == 0)
            pool->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (number != 0)
        return pgl_fail(err, PGL_E_MEMORY, "cannot start worker thread %u of %u: %s", pool->n_started + 1,
                        pool->n_threads - 1, strerror(number));
    return PGL_OK;
}

pgl_status pgl_pool_open(const pgl_pool_options *options, pgl_pool **out, pgl_error *err) {
    static const pgl_pool_options DEFAULTS = {0};
    const pgl_pool_options *o = options == NULL ? &DEFAULTS : options;
    *out = NULL;
    uint32_t n = o->n_threads == 0 ? pgl_cpu_count() : o->n_threads;
    if (n > PGL_POOL_MOST_THREADS) {
        if (o->n_threads != 0)
            return pgl_fail(err, PGL_E_INVALID, "%u threads asked for, at most %d are possible", n,
                            PGL_POOL_MOST_THREADS);
        n = PGL_POOL_MOST_THREADS;
    }
    pgl_pool *pool = pgl_new_aligned(1, sizeof *pool);
    worker *workers = pgl_new(n, sizeof *workers);
    if (pool == NULL || workers == NULL) {
        free(pool);
        free(workers);
        return pgl_fail(err, PGL_E_MEMORY, "out of memory for a pool of %u threads", n);
    }
    pool->n_threads = n;
    pool->pin = o->pin;
    pool->spin_ns = o->spin_ns != 0 ? o->spin_ns : n <= pgl_cpu_count() ? 20000 : 0;
    pool->workers = workers;
    pgl_status status = start_workers(pool, err);
    if (status != PGL_OK) {
        pgl_pool_close(pool);
        return status;
    }
    *out = pool;
    return PGL_OK;
}

void pgl_pool_close(pgl_pool *pool) {
    if (pool == NULL)
        return;
    pool->kind = JOB_STOP;
    if (pool->n_started > 0)
        announce(pool);
    for (uint32_t i = 0; i < pool->n_started; i++)
        pthread_join(pool->workers[i].handle, NULL);
    free(pool->workers);
    free(pool);
}

uint32_t pgl_pool_n_threads(const pgl_pool *pool) {
    return pool->n_threads;
}
