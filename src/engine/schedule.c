/* Owns the lists of waiting and running sequences, not the sequences. */
#include "engine/schedule.h"

#include <stdlib.h>

#include "base/alloc.h"

enum { LEAST_SHARE = 32 }; /* tokens of a prompt in a step: fewer cost more than they give */

pgl_status pgl_sched_init(pgl_sched *sched, const pgl_sched_limits *limits, pgl_error *err) {
    *sched = (pgl_sched){.limits = *limits};
    sched->waiting = pgl_new(limits->max_live, sizeof(pgl_sched_seq *));
    sched->running = pgl_new(limits->max_live, sizeof(pgl_sched_seq *));
    sched->picked = pgl_new(limits->max_live, sizeof(pgl_sched_seq *));
    if (sched->waiting == NULL || sched->running == NULL || sched->picked == NULL) {
        pgl_sched_fini(sched);
        return pgl_fail(err, PGL_E_MEMORY, "no memory to schedule %u requests", limits->max_live);
    }
    return PGL_OK;
}

void pgl_sched_fini(pgl_sched *sched) {
    free((void *)sched->waiting);
    free((void *)sched->running);
    free((void *)sched->picked);
    *sched = (pgl_sched){.step = 0};
}

pgl_status pgl_sched_add(pgl_sched *sched, pgl_sched_seq *seq, pgl_error *err) {
    if (sched->n_waiting + sched->n_running >= sched->limits.max_live)
        return pgl_fail(err, PGL_E_BUSY, "%u requests are running or waiting, which is the limit",
                        sched->limits.max_live);
    seq->running = false;
    seq->last_step = 0;
    sched->waiting[sched->n_waiting++] = seq;
    return PGL_OK;
}

static void drop(pgl_sched_seq **list, uint32_t *n, const pgl_sched_seq *seq) {
    for (uint32_t i = 0; i < *n; i++)
        if (list[i] == seq) {
            list[i] = list[--*n];
            return;
        }
}

void pgl_sched_remove(pgl_sched *sched, pgl_sched_seq *seq) {
    drop(sched->waiting, &sched->n_waiting, seq);
    drop(sched->running, &sched->n_running, seq);
    seq->running = false;
}

static bool before(const pgl_sched_seq *a, const pgl_sched_seq *b) {
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

/* The same with waiting time counted. */
static bool waits_before(const pgl_sched *sched, const pgl_sched_seq *a, const pgl_sched_seq *b,
                         uint64_t now_ns) {
    uint64_t age = sched->limits.age_ns;
    int64_t gained_a = age > 0 && now_ns > a->since_ns ? (int64_t)((now_ns - a->since_ns) / age) : 0;
    int64_t gained_b = age > 0 && now_ns > b->since_ns ? (int64_t)((now_ns - b->since_ns) / age) : 0;
    int64_t level_a = a->priority - gained_a, level_b = b->priority - gained_b;
    return level_a != level_b ? level_a < level_b : a->arrival < b->arrival;
}

static void park(pgl_sched *sched, const pgl_sched_machine *machine, pgl_sched_seq *seq) {
    machine->park(machine->user, seq);
    drop(sched->running, &sched->n_running, seq);
    seq->running = false;
    sched->waiting[sched->n_waiting++] = seq;
}

static void sort_running(pgl_sched *sched) {
    for (uint32_t i = 1; i < sched->n_running; i++) {
        pgl_sched_seq *seq = sched->running[i];
        uint32_t at = i;
        for (; at > 0 && before(seq, sched->running[at - 1]); at--)
            sched->running[at] = sched->running[at - 1];
        sched->running[at] = seq;
    }
}

static bool answers(const pgl_sched_seq *seq) {
    return seq->ready && seq->n_known - seq->n_given == 1;
}

static bool reads(const pgl_sched_seq *seq) {
    return seq->ready && seq->n_known - seq->n_given > 1;
}

/* Gives every answering sequence room for its next token, first come first served, parking from the other end.
 * True when somebody was parked. */
static bool make_room(pgl_sched *sched, const pgl_sched_machine *machine) {
    bool parked = false;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        pgl_sched_seq *seq = sched->running[i];
        while (answers(seq) && seq->running && !machine->grow(machine->user, seq)) {
            park(sched, machine, sched->running[sched->n_running - 1]); /* perhaps seq itself */
            sort_running(sched);
            parked = true;
        }
    }
    return parked;
}

static uint32_t pages_of(const pgl_sched *sched, uint32_t n_tokens) {
    return n_tokens / sched->limits.page_tokens + (n_tokens % sched->limits.page_tokens != 0);
}

static bool fits(const pgl_sched *sched, const pgl_sched_machine *machine, const pgl_sched_seq *seq) {
    uint64_t known = pages_of(sched, seq->n_known);
    uint64_t reserved = (uint64_t)seq->n_known + sched->limits.reserve_tokens;
    uint64_t final = seq->n_final > seq->n_known ? seq->n_final : seq->n_known;
    uint64_t growth = pages_of(sched, (uint32_t)(reserved < final ? reserved : final)) - known;
    uint64_t others = sched->n_running; /* a page for each */
    return machine->pages_to_admit(machine->user, seq) + growth + others <=
           machine->pages_available(machine->user);
}

/* The first in order that is not held; NULL when there is none. */
static pgl_sched_seq *next_waiting(const pgl_sched *sched, uint64_t now_ns) {
    pgl_sched_seq *first = NULL;
    for (uint32_t i = 0; i < sched->n_waiting; i++) {
        pgl_sched_seq *seq = sched->waiting[i];
        if (!seq->held && (first == NULL || waits_before(sched, seq, first, now_ns)))
            first = seq;
    }
    return first;
}

static void admit_waiting(pgl_sched *sched, const pgl_sched_machine *machine, uint64_t now_ns) {
    for (uint32_t i = 0; i < sched->n_waiting; i++)
        sched->waiting[i]->held = false;
    while (machine->has_slot(machine->user)) {
        pgl_sched_seq *first = next_waiting(sched, now_ns);
        if (first == NULL)
            return;
        first->held = machine->holds(machine->user, first);
        if (first->held)
            continue;
        if (!fits(sched, machine, first) || !machine->admit(machine->user, first))
            return;
        drop(sched->waiting, &sched->n_waiting, first);
        first->running = true;
        sched->running[sched->n_running++] = first;
    }
}

/* Those that want a row of this kind, the longest without one first, else in the order of running. */
static uint32_t pick(pgl_sched *sched, bool (*wants)(const pgl_sched_seq *seq)) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        pgl_sched_seq *seq = sched->running[i];
        if (!wants(seq))
            continue;
        uint32_t at = n++;
        for (; at > 0 && seq->last_step < sched->picked[at - 1]->last_step; at--)
            sched->picked[at] = sched->picked[at - 1];
        sched->picked[at] = seq;
    }
    return n;
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

size_t pgl_sched_plan(pgl_sched *sched, const pgl_sched_machine *machine, pgl_sched_chunk chunk,
                      uint64_t now_ns, pgl_sched_row *rows) {
    const pgl_sched_limits *limits = &sched->limits;
    sched->step++;
    sort_running(sched);
    if (!make_room(sched, machine))
        admit_waiting(sched, machine, now_ns);
    sort_running(sched);

    size_t n_rows = 0;
    uint32_t left = limits->max_step_tokens;
    uint32_t n = pick(sched, answers);
    for (uint32_t i = 0; i < n && n_rows < limits->max_rows && left > 0; i++, left--)
        rows[n_rows++] = (pgl_sched_row){sched->picked[i], 1};
    left = least(left, n_rows > 0 ? chunk.beside : chunk.alone);

    n = pick(sched, reads);
    for (uint32_t i = 0; i < n && n_rows < limits->max_rows && left > 0; i++) {
        pgl_sched_seq *seq = sched->picked[i];
        uint32_t share = left / (n - i);
        uint32_t tokens = least(seq->n_known, seq->row_end) - seq->n_given;
        tokens = least(tokens, least(left, share > LEAST_SHARE ? share : LEAST_SHARE));
        rows[n_rows++] = (pgl_sched_row){seq, tokens};
        left -= tokens;
    }
    for (size_t i = 0; i < n_rows; i++)
        rows[i].seq->last_step = sched->step;
    return n_rows;
}
