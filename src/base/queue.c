#include "base/queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"

struct pgl_queue {
    /* fixed after open */
    size_t capacity;
    void **items;

    /* guarded by lock */
    size_t first, count;
    bool shut, woken;

    pthread_mutex_t lock;
    pthread_cond_t changed;
};

pgl_status pgl_queue_open(size_t capacity, pgl_queue **out, pgl_error *err) {
    *out = NULL;
    if (capacity == 0)
        return pgl_fail(err, PGL_E_INVALID, "a queue for no items");
    pgl_queue *q = pgl_new(1, sizeof *q);
    if (q == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "out of memory for a queue");
    q->items = pgl_new(capacity, sizeof *q->items);
    q->capacity = capacity;
    pthread_condattr_t attributes;
    bool ok = q->items != NULL && pthread_condattr_init(&attributes) == 0;
    if (ok) {
        ok = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
             pthread_cond_init(&q->changed, &attributes) == 0;
        pthread_condattr_destroy(&attributes);
    }
    if (ok && pthread_mutex_init(&q->lock, NULL) != 0) {
        pthread_cond_destroy(&q->changed);
        ok = false;
    }
    if (!ok) {
        free(q->items);
        free(q);
        return pgl_fail(err, PGL_E_MEMORY, "out of memory for a queue of %zu items", capacity);
    }
    *out = q;
    return PGL_OK;
}

void pgl_queue_close(pgl_queue *queue) {
    if (queue == NULL)
        return;
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    free(queue->items);
    free(queue);
}

pgl_status pgl_queue_put(pgl_queue *queue, void *item) {
    pgl_status status = PGL_OK;
    pthread_mutex_lock(&queue->lock);
    if (queue->shut) {
        status = PGL_E_CANCELLED;
    } else if (queue->count == queue->capacity) {
        status = PGL_E_BUSY;
    } else {
        queue->items[(queue->first + queue->count) % queue->capacity] = item;
        queue->count++;
        pthread_cond_signal(&queue->changed);
    }
    pthread_mutex_unlock(&queue->lock);
    return status;
}

static struct timespec deadline_after(uint64_t wait_ns) {
    struct timespec t = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t ns = (uint64_t)t.tv_nsec + wait_ns % 1000000000u;
    t.tv_sec += (time_t)(wait_ns / 1000000000u + ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    return t;
}

void *pgl_queue_take(pgl_queue *queue, uint64_t wait_ns) {
    void *item = NULL;
    struct timespec deadline = {0, 0};
    bool forever = wait_ns == UINT64_MAX;
    if (!forever && wait_ns != 0)
        deadline = deadline_after(wait_ns);
    pthread_mutex_lock(&queue->lock);
    while (queue->count == 0 && !queue->shut && !queue->woken && wait_ns != 0) {
        if (forever)
            pthread_cond_wait(&queue->changed, &queue->lock);
        else if (pthread_cond_timedwait(&queue->changed, &queue->lock, &deadline) == ETIMEDOUT)
            break;
    }
    queue->woken = false;
    if (queue->count > 0) {
        item = queue->items[queue->first];
        queue->first = (queue->first + 1) % queue->capacity;
        queue->count--;
    }
    pthread_mutex_unlock(&queue->lock);
    return item;
}

void pgl_queue_shut(pgl_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    queue->shut = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

void pgl_queue_wake(pgl_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    queue->woken = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

size_t pgl_queue_count(pgl_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    size_t n = queue->count;
    pthread_mutex_unlock(&queue->lock);
    return n;
}
