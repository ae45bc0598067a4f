/* Private to the engine: what its parts share.
 *
 *   engine.c   open and close, submit, the thread's loop, figures
 *   plan.c     what the next step is: the scheduler's machine, rows and operations
 *   result.c   what a step brought: tokens, ends, snapshots
 *   mask.c     the threads that compute token masks, beside the steps of others */
#ifndef PGL_ENGINE_ENGINE_IMPL_H
#define PGL_ENGINE_ENGINE_IMPL_H

#include <pthread.h>

#include "engine/cache.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "engine/schedule.h"

enum { PGL_MOST_IN_FLIGHT = 2, PGL_MOST_MASK_THREADS = 8 };

typedef struct pgl_flight_row {
    pgl_request *request;
    uint32_t life; /* of the request, when the row was planned */
    uint32_t slot;
    uint32_t first, n_tokens; /* positions */
    bool samples;
    uint32_t snapshot; /* saved behind the row; PGL_NO_SNAPSHOT */
} pgl_flight_row;

typedef struct pgl_op_list {
    pgl_op *ops;
    size_t n, capacity;
} pgl_op_list;

/* One plan and everything it points to, from the planning to the results. */
typedef struct pgl_flight {
    uint64_t ticket;
    pgl_op_list before, after;
    pgl_row *rows;           /* [max_rows] */
    pgl_row_result *results; /* [max_rows] */
    pgl_flight_row *info;    /* [max_rows] */
    int32_t *targets;        /* [max_step_tokens] */
    size_t n_targets;
    size_t n_rows, n_tokens;
    pgl_step_plan plan;
} pgl_flight;

typedef struct pgl_mask_list {
    pgl_request *first, **end;
} pgl_mask_list;

typedef struct pgl_slot_use {
    pgl_request *request; /* NULL: free */
    uint32_t in_flight;   /* rows, also of a request that has left the slot */
} pgl_slot_use;

struct pgl_engine {
    /* fixed after open */
    pgl_engine_options options;
    pgl_backend_caps caps; /* max_context cut to what the pages hold */
    pgl_account *account;
    uint64_t host_bytes; /* of the cache */
    pthread_t thread, mask_threads[PGL_MOST_MASK_THREADS];
    uint32_t n_mask_threads;  /* started */
    uint32_t most_slow_masks; /* of them, at work on slow masks */

    /* engine thread only, after open */
    pgl_cache *cache;
    pgl_sched sched;
    pgl_sched_row *sched_rows; /* [max_rows] */
    pgl_slot_use *slots;       /* [n_slots] */
    pgl_request **live;        /* all that the engine has not dropped */
    uint32_t n_live;
    pgl_flight flights[PGL_MOST_IN_FLIGHT];
    uint32_t first_flight, n_flights; /* a ring */
    pgl_flight *building;
    double token_ns;    /* measured time of a prompt token; 0: not yet */
    double answer_ns;   /* and of a step of answers alone */
    uint64_t landed_ns; /* when the last step's results came */
    pgl_engine_stats stats;
    bool clear_cache;

    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t wake, idle; /* wake: the engine thread has something to do; idle: fewer requests */
    pgl_request *inbox, **inbox_end;
    uint32_t n_open; /* requests submitted and not finished */
    uint32_t n_held; /* and not dropped */
    uint64_t next_number;
    bool woken, draining, cancel_all, closing, clear_asked;
    pgl_error failure; /* of the backend */
    pgl_engine_stats shown;
    pgl_slot_info *slot_info; /* [n_slots] */

    /* guarded by mask_lock */
    pthread_mutex_t mask_lock;
    pthread_cond_t mask_work, mask_done;
    pgl_mask_list quick_masks, slow_masks, done_masks;
    uint32_t n_quick;    /* asked for and not done: planning may wait for them */
    uint64_t mask_round; /* what was asked for in an earlier one has been waited for */
    uint32_t n_slow_at_work;
    bool mask_closing;
};

/* engine.c */
void pgl_engine_wake(pgl_engine *engine);
void pgl_engine_end(pgl_engine *engine, pgl_request *request, pgl_finish finish, int32_t stop_id,
                    const pgl_error *error); /* publishes; slot and pages go when nothing is in flight */
void pgl_engine_give_back(pgl_engine *engine, pgl_request *request); /* slot and pages */

/* plan.c */
pgl_status pgl_flight_init(pgl_flight *flight, const pgl_backend_caps *caps, pgl_error *err);
void pgl_flight_fini(pgl_flight *flight);
void pgl_engine_make_ready(pgl_engine *engine, pgl_request *request); /* seq.ready and seq.row_end anew */
bool pgl_engine_plan_move(void *engine, const pgl_op *op);            /* for pgl_cache_options */
bool pgl_engine_plan(pgl_engine *engine, pgl_flight *flight);         /* false: nothing to do */

/* result.c */
void pgl_engine_take_results(pgl_engine *engine, pgl_flight *flight, const pgl_step_timing *timing);

/* mask.c: a row is planned when its mask is there, so that no step waits for a grammar */
void pgl_mask_init(pgl_engine *engine);
void *pgl_mask_main(void *engine);
void pgl_mask_ask(pgl_engine *engine, pgl_request *request); /* for the next token; none for free requests */
void pgl_mask_wait(
    pgl_engine *engine); /* for the quick ones, a part of a step; called before a plan is made */
/* Its last one was quick; false of free requests, and while one is being computed. */
bool pgl_mask_is_quick(const pgl_engine *engine, const pgl_request *request);
void pgl_mask_take(pgl_engine *engine); /* what is done: rows become ready, failed requests end */
void pgl_mask_stop(pgl_engine *engine); /* waits for the threads' end */

#endif
