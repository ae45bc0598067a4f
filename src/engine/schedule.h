/* The policy of the engine, and nothing else: who runs, who waits, who gives way, and how many tokens each gets
 * in the next step. It knows no backend and no clock: what it acts on is a machine of a few functions, and time
 * is an argument, so that tests can run it for as many steps as they like.
 *
 *   - Waiting sequences are admitted in the order of priority (lower first; one level is gained for every age_ns of
 *     waiting), then of arrival. Nobody overtakes one that does not fit yet, but one that the machine holds is passed.
 *     Admitted is who finds a slot, pages for all its known tokens, reserve_tokens of growth, and a page of growth for
 *     everyone who runs.
 *   - A step gives one token to every answering sequence. When a page is missing for that, the last in the order of
 *     (priority, arrival) is parked; it waits again, with its old arrival.
 *   - What is left of the step goes to prompts in equal shares: at most `beside` tokens beside answers, `alone`
 *     where there are none. So the longest gap of an answer is one chunk, and a short prompt does not wait for a
 *     long one.
 *
 * Owned by one thread. */
#ifndef PGL_ENGINE_SCHEDULE_H
#define PGL_ENGINE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* One sequence, as far as policy is concerned. Belongs to the caller; stays where it is while added. */
typedef struct pgl_sched_seq {
    /* fixed before pgl_sched_add */
    int32_t priority;
    uint64_t arrival;  /* number, rising */
    uint64_t since_ns; /* when it came */

    /* kept by the caller */
    uint32_t n_known; /* tokens of prompt and answer, those being sampled included */
    uint32_t n_given; /* of them given to the slot; 0 while waiting */
    uint32_t n_final; /* most that it will ever have */
    uint32_t row_end; /* its next row ends at this count of tokens at the latest; UINT32_MAX: anywhere */
    bool ready;       /* its next row can be planned */

    /* kept by the scheduler */
    bool running, held;
    uint64_t last_step; /* in which it had a row */
} pgl_sched_seq;

typedef struct pgl_sched_machine {
    void *user;
    bool (*has_slot)(void *user);
    bool (*holds)(void *user, pgl_sched_seq *seq); /* it had better not be admitted in this step */
    uint32_t (*pages_available)(void *user);       /* free, or held by the cache alone */
    uint32_t (*pages_to_admit)(void *user, const pgl_sched_seq *seq); /* of them, for all its known tokens */
    bool (*admit)(void *user, pgl_sched_seq *seq);                    /* takes slot and pages, sets n_given */
    bool (*grow)(void *user, pgl_sched_seq *seq);                     /* room for n_given + 1 tokens */
    void (*park)(void *user, pgl_sched_seq *seq);                     /* gives both back, n_given = 0 */
} pgl_sched_machine;

typedef struct pgl_sched_limits {
    uint32_t max_live; /* sequences that run or wait */
    uint32_t max_rows, max_step_tokens, page_tokens;
    uint32_t reserve_tokens;
    uint64_t age_ns;
} pgl_sched_limits;

/* Most tokens of prompts in a step. */
typedef struct pgl_sched_chunk {
    uint32_t beside, alone;
} pgl_sched_chunk;

typedef struct pgl_sched_row {
    pgl_sched_seq *seq;
    uint32_t n_tokens;
} pgl_sched_row;

typedef struct pgl_sched {
    pgl_sched_limits limits;
    pgl_sched_seq **waiting, **running, **picked; /* [max_live] */
    uint32_t n_waiting, n_running;
    uint64_t step;
} pgl_sched;

pgl_status pgl_sched_init(pgl_sched *sched, const pgl_sched_limits *limits, pgl_error *err);
void pgl_sched_fini(pgl_sched *sched);

/* PGL_E_BUSY when max_live are there. */
pgl_status pgl_sched_add(pgl_sched *sched, pgl_sched_seq *seq, pgl_error *err);
void pgl_sched_remove(pgl_sched *sched,
                      pgl_sched_seq *seq); /* running or waiting; slot and pages are the caller's */

/* Plans a step: parks and admits through the machine and writes the rows [max_rows], at most one for a sequence;
 * returns how many. The caller moves n_given (and n_known, when a token is sampled) on. */
size_t pgl_sched_plan(pgl_sched *sched, const pgl_sched_machine *machine, pgl_sched_chunk chunk,
                      uint64_t now_ns, pgl_sched_row *rows);

#endif
