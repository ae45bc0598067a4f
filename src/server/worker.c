#include "server/worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pool.h"

#define MOST_THREADS 16

typedef struct job_list {
    pgl_job *first, *last;
} job_list;

struct pgl_workers {
    pthread_t threads[MOST_THREADS]; /* fixed after open */
    uint32_t n_threads;

    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t short_work; /* the thread for short work alone */
    pthread_cond_t any_work;
    job_list lists[PGL_JOB_FORM + 1];
    bool alone[PGL_JOB_FORM + 1]; /* a job of this kind runs, and no other may */
    bool stop, first_taken;
};

static void push(job_list *list, pgl_job *job) {
    job->next = NULL;
    if (list->last)
        list->last->next = job;
    else
        list->first = job;
    list->last = job;
}

static pgl_job *pop(job_list *list) {
    pgl_job *job = list->first;
    if (job) {
        list->first = job->next;
        if (!list->first)
            list->last = NULL;
    }
    return job;
}

static pgl_job *next_job(pgl_workers *workers, bool short_only, pgl_job_kind *kind) {
    static const pgl_job_kind KINDS[] = {PGL_JOB_SHORT, PGL_JOB_LONG, PGL_JOB_FORM, PGL_JOB_HUGE};
    size_t n = short_only ? 1 : sizeof KINDS / sizeof KINDS[0];
    pgl_job *job = NULL;
    for (size_t i = 0; i < n && !job; i++) {
        *kind = KINDS[i];
        if (!workers->alone[KINDS[i]])
            job = pop(&workers->lists[KINDS[i]]);
    }
    return job;
}

static void *work(void *arg) {
    pgl_workers *workers = arg;
    pthread_mutex_lock(&workers->lock);
    bool short_only = !workers->first_taken;
    workers->first_taken = true;
    for (;;) {
        pgl_job_kind kind = PGL_JOB_SHORT;
        pgl_job *job = next_job(workers, short_only, &kind);
        if (job) {
            bool alone = kind == PGL_JOB_HUGE || kind == PGL_JOB_FORM;
            workers->alone[kind] = alone;
            pthread_mutex_unlock(&workers->lock);
            job->run(job);
            pthread_mutex_lock(&workers->lock);
            if (alone) {
                workers->alone[kind] = false;
                pthread_cond_signal(&workers->any_work); /* this thread may find something else first */
            }
        } else if (workers->stop) {
            break;
        } else {
            pthread_cond_wait(short_only ? &workers->short_work : &workers->any_work, &workers->lock);
        }
    }
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

void pgl_workers_put(pgl_workers *workers, pgl_job_kind kind, pgl_job *job) {
    pthread_mutex_lock(&workers->lock);
    push(&workers->lists[kind], job);
    if (kind == PGL_JOB_SHORT)
        pthread_cond_signal(&workers->short_work);
    pthread_cond_signal(&workers->any_work);
    pthread_mutex_unlock(&workers->lock);
}

pgl_status pgl_workers_open(uint32_t n_threads, pgl_workers **out, pgl_error *err) {
    pgl_workers *workers = pgl_new(1, sizeof *workers);
    if (!workers)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the worker threads");
    if (n_threads == 0)
        n_threads = pgl_cpu_count() + 2;
    n_threads = n_threads < 2 ? 2 : n_threads > MOST_THREADS ? MOST_THREADS : n_threads;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->short_work, NULL);
    pthread_cond_init(&workers->any_work, NULL);
    sigset_t block, before; /* signals are for the main thread */
    sigfillset(&block);
    pthread_sigmask(SIG_BLOCK, &block, &before);
    pgl_status status = PGL_OK;
    for (; status == PGL_OK && workers->n_threads < n_threads; workers->n_threads++) {
        int code = pthread_create(&workers->threads[workers->n_threads], NULL, work, workers);
        if (code != 0) {
            status = pgl_fail(err, PGL_E_MEMORY, "a worker thread cannot be started: %s", strerror(code));
            break;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status != PGL_OK) {
        pgl_workers_close(workers);
        return status;
    }
    *out = workers;
    return PGL_OK;
}

void pgl_workers_close(pgl_workers *workers) {
    if (!workers)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->stop = true;
    pthread_cond_broadcast(&workers->short_work);
    pthread_cond_broadcast(&workers->any_work);
    pthread_mutex_unlock(&workers->lock);
    for (uint32_t i = 0; i < workers->n_threads; i++)
        pthread_join(workers->threads[i], NULL);
    pthread_cond_destroy(&workers->any_work);
    pthread_cond_destroy(&workers->short_work);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}
