/* The worker pool: threads that do what the I/O thread and the engine's thread may not wait for.
 *
 * Four kinds of work: short (turning sampled tokens into events), long (reading a request: JSON, template, tokens), huge
 * (the same of a body of megabytes, which takes seconds and many times its size in memory), and form (compiling what an
 * answer has to keep, which a hostile one makes last for seconds). Short work goes first, and one thread takes nothing else,
 * so that running streams do not wait for large prompts; at most one thread has huge work, and one has forms, so that
 * ordinary requests do not wait for them. A job is embedded in what it works on and is in the pool at most once at a time. */
#ifndef PGL_SERVER_WORKER_H
#define PGL_SERVER_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct pgl_workers pgl_workers;

typedef enum pgl_job_kind { PGL_JOB_SHORT, PGL_JOB_LONG, PGL_JOB_HUGE, PGL_JOB_FORM } pgl_job_kind;

typedef struct pgl_job {
    void (*run)(struct pgl_job *job); /* may free the job */
    struct pgl_job *next;
} pgl_job;

/* At least 2 threads; 0: a few more than there are CPUs, at most 16. */
pgl_status pgl_workers_open(uint32_t n_threads, pgl_workers **out, pgl_error *err);

/* Any thread; never waits. After close has begun the job still runs. */
void pgl_workers_put(pgl_workers *workers, pgl_job_kind kind, pgl_job *job);

/* Runs what is left, then ends the threads. Nothing may be put any more when it returns. NULL is allowed. */
void pgl_workers_close(pgl_workers *workers);

#endif
