/* A bounded queue of pointers: any number of threads put, one takes. Guarded by its own lock; what the
 * pointers point to is handed over with them. */
#ifndef PGL_BASE_QUEUE_H
#define PGL_BASE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct pgl_queue pgl_queue;

/* capacity is at least 1. */
pgl_status pgl_queue_open(size_t capacity, pgl_queue **out, pgl_error *err);

/* Only when no thread uses the queue any more; what is left in it is the caller's to take out before. NULL is
 * allowed. */
void pgl_queue_close(pgl_queue *queue);

/* Puts item (not NULL) at the end. PGL_E_BUSY when the queue is full, PGL_E_CANCELLED after pgl_queue_shut;
 * the item stays the caller's then. Never waits. */
pgl_status pgl_queue_put(pgl_queue *queue, void *item);

/* Takes the first item, waiting at most wait_ns for one (0: not at all, UINT64_MAX: for ever). NULL when
 * there is none in time, or when the queue is shut and empty. */
void *pgl_queue_take(pgl_queue *queue, uint64_t wait_ns);

/* Nothing may be put any more; a waiting pgl_queue_take returns. What is inside can still be taken. */
void pgl_queue_shut(pgl_queue *queue);

/* Wakes a waiting pgl_queue_take, which then returns NULL when there is no item. */
void pgl_queue_wake(pgl_queue *queue);

size_t pgl_queue_count(pgl_queue *queue);

#endif
