/* A fixed set of threads that work on one thing together and wait for each other: the CPU backend's fork and
 * join.
 *
 * A pool of n threads is the calling thread (number 0) and n - 1 workers. Every run returns when all its work
 * is done, and everything the tasks wrote is visible to the caller then. Who does what never depends on
 * timing in pgl_pool_run and pgl_pool_each. One run at a time, always from one thread at a time, never from
 * inside a task. Nothing is allocated after open. Workers wait for the next run by spinning for spin_ns, then
 * sleeping. */
#ifndef PGL_BASE_POOL_H
#define PGL_BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/status.h"

#define PGL_POOL_MOST_THREADS 1024

typedef struct pgl_pool pgl_pool;

typedef struct pgl_pool_options {
    uint32_t n_threads; /* with the caller; 0: as many as pgl_cpu_count() */
    bool pin;           /* worker i stays on the i-th CPU this process may use; the caller is left alone */
    uint64_t spin_ns;   /* 0: 20,000 ns where there is a CPU for every thread, else none */
} pgl_pool_options;

/* options may be NULL. PGL_E_INVALID above PGL_POOL_MOST_THREADS; PGL_E_MEMORY when threads cannot be
 * started. */
pgl_status pgl_pool_open(const pgl_pool_options *options, pgl_pool **out, pgl_error *err);
void pgl_pool_close(pgl_pool *pool); /* NULL is allowed */

uint32_t pgl_pool_n_threads(const pgl_pool *pool);

typedef void (*pgl_pool_fn)(void *arg, uint32_t task, uint32_t thread);

/* fn(arg, task, thread) for every task < n_tasks. Thread t of n does the tasks from n_tasks * t / n up to
 * n_tasks * (t + 1) / n, in rising order. */
void pgl_pool_run(pgl_pool *pool, pgl_pool_fn fn, void *arg, uint32_t n_tasks);

/* The same tasks, each taken by whichever thread is free: for tasks of unequal size whose results do not
 * depend on the thread. */
void pgl_pool_run_dynamic(pgl_pool *pool, pgl_pool_fn fn, void *arg, uint32_t n_tasks);

/* fn(arg, thread, n_threads), once on every thread. */
typedef void (*pgl_pool_each_fn)(void *arg, uint32_t thread, uint32_t n_threads);
void pgl_pool_each(pgl_pool *pool, pgl_pool_each_fn fn, void *arg);

#endif
