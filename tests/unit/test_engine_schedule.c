/* The scheduling policy on a simulated machine: 10^5 steps of random arrivals, lengths, priorities and cancels,
 * with the promises of schedule.h checked at every step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/schedule.h"

enum { PAGE = 16, MAX_LIVE = 64, STEP_TOKENS = 128, CHUNK = 64 };

typedef struct sim_seq {
    pgl_sched_seq seq; /* first */
    bool live;
    uint32_t n_prompt, n_pages;
    uint64_t admitted_step, parked;
} sim_seq;

typedef struct sim {
    pgl_sched sched;
    pgl_sched_machine machine;
    sim_seq seqs[MAX_LIVE];
    uint32_t n_slots, n_pages, slots_used, pages_used, max_rows;
    uint64_t now_ns, arrivals, finished, parks, steps, rows, holds;
    bool holding;
    uint64_t random;
} sim;

static uint32_t random_below(sim *s, uint32_t n) {
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return (uint32_t)(s->random >> 20) % n;
}

static uint32_t pages_for(uint32_t tokens) {
    return (tokens + PAGE - 1) / PAGE;
}

static bool has_slot(void *user) {
    sim *s = user;
    return s->slots_used < s->n_slots;
}

/* Now and then somebody is held for a while; nobody for ever. */
static bool holds(void *user, pgl_sched_seq *seq) {
    sim *s = user;
    bool held = s->holding && seq->arrival % 11 == 0 && s->now_ns - seq->since_ns < 300000;
    s->holds += held;
    return held;
}

static uint32_t pages_available(void *user) {
    sim *s = user;
    return s->n_pages - s->pages_used;
}

static uint32_t pages_to_admit(void *user, const pgl_sched_seq *seq) {
    (void)user;
    return pages_for(seq->n_known);
}

/* Nobody who waits may stand before the one that is admitted, their waiting counted. */
static void check_order(const sim *s, const pgl_sched_seq *seq) {
    for (uint32_t i = 0; i < s->sched.n_waiting; i++) {
        const pgl_sched_seq *other = s->sched.waiting[i];
        int64_t age = (int64_t)s->sched.limits.age_ns;
        int64_t mine = seq->priority - ((int64_t)(s->now_ns - seq->since_ns)) / age;
        int64_t theirs = other->priority - ((int64_t)(s->now_ns - other->since_ns)) / age;
        bool earlier = theirs < mine || (theirs == mine && other->arrival < seq->arrival);
        assert_true(!earlier || other->held);
    }
}

static bool admit(void *user, pgl_sched_seq *seq) {
    sim *s = user;
    sim_seq *q = (sim_seq *)seq;
    check_order(s, seq);
    q->n_pages = pages_for(seq->n_known);
    s->pages_used += q->n_pages;
    s->slots_used++;
    assert_true(s->pages_used <= s->n_pages);
    assert_true(s->slots_used <= s->n_slots);
    seq->n_given = 0;
    if (q->admitted_step == 0)
        q->admitted_step = s->sched.step;
    return true;
}

static bool grow(void *user, pgl_sched_seq *seq) {
    sim *s = user;
    sim_seq *q = (sim_seq *)seq;
    uint32_t need = pages_for(seq->n_given + 1);
    while (q->n_pages < need) {
        if (s->pages_used == s->n_pages)
            return false;
        q->n_pages++;
        s->pages_used++;
    }
    return true;
}

static void give_back(sim *s, sim_seq *q) {
    s->pages_used -= q->n_pages;
    s->slots_used--;
    q->n_pages = 0;
}

static void park(void *user, pgl_sched_seq *seq) {
    sim *s = user;
    sim_seq *q = (sim_seq *)seq;
    for (uint32_t i = 0; i < s->sched.n_running; i++) { /* the one that is parked is the last of all */
        const pgl_sched_seq *other = s->sched.running[i];
        assert_true(other == seq || other->priority < seq->priority ||
                    (other->priority == seq->priority && other->arrival < seq->arrival));
    }
    give_back(s, q);
    seq->n_given = 0;
    q->parked++;
    s->parks++;
}

static void sim_init(sim *s, uint32_t n_slots, uint32_t n_pages, uint32_t max_rows) {
    memset(s, 0, sizeof *s);
    s->random = 0x9E3779B97F4A7C15u;
    s->n_slots = n_slots;
    s->n_pages = n_pages;
    s->max_rows = max_rows;
    s->machine = (pgl_sched_machine){s, has_slot, holds, pages_available, pages_to_admit, admit, grow, park};
    pgl_sched_limits limits = {.max_live = MAX_LIVE,
                               .max_rows = max_rows,
                               .max_step_tokens = STEP_TOKENS,
                               .page_tokens = PAGE,
                               .reserve_tokens = 32,
                               .age_ns = 1000000};
    assert_int_equal(pgl_sched_init(&s->sched, &limits, NULL), PGL_OK);
}

static sim_seq *arrive(sim *s, uint32_t n_prompt, uint32_t n_answer, int32_t priority) {
    for (size_t i = 0; i < MAX_LIVE; i++) {
        sim_seq *q = &s->seqs[i];
        if (q->live)
            continue;
        *q = (sim_seq){.live = true, .n_prompt = n_prompt};
        q->seq = (pgl_sched_seq){.priority = priority,
                                 .arrival = ++s->arrivals,
                                 .since_ns = s->now_ns,
                                 .n_known = n_prompt,
                                 .n_final = n_prompt + n_answer,
                                 .row_end = UINT32_MAX,
                                 .ready = true};
        assert_int_equal(pgl_sched_add(&s->sched, &q->seq, NULL), PGL_OK);
        return q;
    }
    return NULL;
}

static void leave(sim *s, sim_seq *q) {
    if (q->seq.running)
        give_back(s, q);
    pgl_sched_remove(&s->sched, &q->seq);
    q->live = false;
}

/* One step; checks its shape and moves the sequences on. */
static void step(sim *s) {
    pgl_sched_row rows[MAX_LIVE];
    size_t n = pgl_sched_plan(&s->sched, &s->machine, (pgl_sched_chunk){CHUNK, STEP_TOKENS}, s->now_ns, rows);
    assert_true(n <= s->max_rows);
    assert_true(s->sched.n_running == 0 || n > 0); /* somebody always gets on */
    uint32_t answers = 0, prompt = 0, running_answers = 0;
    for (uint32_t i = 0; i < s->sched.n_running; i++)
        running_answers += s->sched.running[i]->n_known - s->sched.running[i]->n_given == 1;
    for (size_t i = 0; i < n; i++) {
        pgl_sched_seq *seq = rows[i].seq;
        sim_seq *q = (sim_seq *)seq;
        assert_true(seq->running && rows[i].n_tokens >= 1);
        if (seq->n_known - seq->n_given == 1)
            answers++;
        else
            prompt += rows[i].n_tokens;
        for (size_t j = 0; j < i; j++)
            assert_ptr_not_equal(rows[j].seq, seq);
        seq->n_given += rows[i].n_tokens;
        assert_true(seq->n_given <= seq->n_known && seq->n_given <= q->n_pages * PAGE);
    }
    assert_true(answers + prompt <= STEP_TOKENS);
    assert_true(answers == 0 || prompt <= CHUNK);
    if (running_answers <= s->max_rows)
        assert_int_equal(answers, running_answers); /* the longest gap of an answer is one step */
    for (size_t i = 0; i < n; i++) {
        pgl_sched_seq *seq = rows[i].seq;
        if (seq->n_given < seq->n_known)
            continue;
        seq->n_known++;
        if (seq->n_known > seq->n_final) {
            leave(s, (sim_seq *)seq);
            s->finished++;
        }
    }
    s->now_ns += 1000;
    s->steps++;
    s->rows += n;
}

static void a_hundred_thousand_random_steps_keep_every_promise(void **state) {
    (void)state;
    static sim s;
    sim_init(&s, 8, 96, 8);
    s.holding = true;
    uint64_t cancelled = 0, longest_wait = 0;
    while (s.steps < 100000) {
        if (random_below(&s, 7) == 0) {
            uint32_t n_prompt =
                random_below(&s, 8) == 0 ? 300 + random_below(&s, 700) : 1 + random_below(&s, 80);
            uint32_t n_answer = 1 + random_below(&s, random_below(&s, 4) == 0 ? 400 : 60);
            (void)arrive(&s, n_prompt, n_answer, (int32_t)random_below(&s, 3) - 1);
        }
        if (random_below(&s, 60) == 0) {
            sim_seq *q = &s.seqs[random_below(&s, MAX_LIVE)];
            if (q->live) {
                leave(&s, q);
                cancelled++;
            }
        }
        step(&s);
        for (size_t i = 0; i < MAX_LIVE; i++)
            if (s.seqs[i].live && s.now_ns - s.seqs[i].seq.since_ns > longest_wait)
                longest_wait = s.now_ns - s.seqs[i].seq.since_ns;
    }
    uint64_t left = s.sched.n_running + s.sched.n_waiting;
    for (uint32_t i = 0; i < 30000 && s.sched.n_running + s.sched.n_waiting > 0; i++)
        step(&s);
    assert_int_equal(s.sched.n_running + s.sched.n_waiting, 0); /* all that is left gets its end */
    assert_int_equal(s.pages_used, 0);
    assert_int_equal(s.slots_used, 0);
    assert_int_equal(s.finished + cancelled, s.arrivals);
    assert_true(s.finished > 5000 && s.parks > 100 && cancelled > 200 &&
                s.holds > 100); /* the run had what it was to test */
    assert_true(left <= MAX_LIVE);
    assert_true(longest_wait < 20000u * 1000u);
    pgl_sched_fini(&s.sched);
}

static void a_flood_of_urgent_requests_does_not_starve_a_patient_one(void **state) {
    (void)state;
    static sim s;
    sim_init(&s, 2, 64, 2);
    for (int i = 0; i < 10; i++)
        (void)arrive(&s, 20, 50, -5);
    sim_seq *patient = arrive(&s, 20, 5, 10);
    uint64_t steps = 0;
    while (patient->live) {
        if (s.sched.n_waiting < 20)
            (void)arrive(&s, 20, 50, -5);
        step(&s);
        assert_true(++steps < 20000); /* 15 levels at 1,000 steps each, and what is running then */
    }
    assert_true(steps > 1000); /* but priority did count */
    pgl_sched_fini(&s.sched);
}

static void a_short_prompt_does_not_wait_for_a_long_one(void **state) {
    (void)state;
    static sim s;
    sim_init(&s, 4, 400, 4);
    sim_seq *stream = arrive(&s, 10, 500, 0);
    step(&s);
    sim_seq *longer = arrive(&s, 4000, 10, 0);
    step(&s);
    sim_seq *brief = arrive(&s, 40, 5, 0);
    uint32_t before = stream->seq.n_known;
    uint32_t steps = 0;
    for (; brief->seq.n_known == 40; steps++)
        step(&s);
    assert_true(steps <= 3);
    assert_true(longer->live && longer->seq.n_given < 1000);
    assert_int_equal(stream->seq.n_known, before + steps); /* and the stream had its token in each step */
    pgl_sched_fini(&s.sched);
}

static void equal_priorities_are_admitted_in_order_of_arrival(void **state) {
    (void)state;
    static sim s;
    sim_init(&s, 1, 64, 1);
    sim_seq *q[6];
    for (int i = 0; i < 6; i++)
        q[i] = arrive(&s, 5, 3, i == 4 ? -1 : 0);
    for (int i = 0; i < 100; i++)
        step(&s);
    uint64_t order[6];
    for (int i = 0; i < 6; i++)
        order[i] = q[i]->admitted_step;
    assert_true(order[4] < order[0] && order[0] < order[1] && order[1] < order[2] && order[2] < order[3] &&
                order[3] < order[5]);
    pgl_sched_fini(&s.sched);
}

static void one_that_does_not_fit_yet_is_not_overtaken(void **state) {
    (void)state;
    static sim s;
    sim_init(&s, 4, 20, 4);
    (void)arrive(&s, 100, 60, 0);
    step(&s);
    sim_seq *large = arrive(&s, 250, 5, 0), *little = arrive(&s, 5, 5, 0);
    while (large->admitted_step == 0) {
        assert_true(little->admitted_step == 0);
        step(&s);
        assert_true(s.steps < 500);
    }
    pgl_sched_fini(&s.sched);
}

static void under_pressure_the_oldest_always_gets_on(void **state) {
    (void)state;
    static sim s;
    sim_init(&s, 4, 16, 4); /* 256 tokens for four that want 240 each */
    sim_seq *q[4];
    for (int i = 0; i < 4; i++)
        q[i] = arrive(&s, 20, 220, 0);
    uint32_t last = 0;
    while (q[0]->live) {
        step(&s);
        if (q[0]->live)
            assert_true(q[0]->seq.n_known > last);
        last = q[0]->seq.n_known;
    }
    assert_int_equal(q[0]->parked, 0);
    for (int i = 0; i < 20000 && s.finished < 4; i++)
        step(&s);
    assert_int_equal(s.finished, 4);
    assert_true(s.parks >= 2);
    pgl_sched_fini(&s.sched);
}

static void rows_end_where_the_caller_wants_a_snapshot(void **state) {
    (void)state;
    static sim s;
    sim_init(&s, 1, 64, 1);
    sim_seq *q = arrive(&s, 200, 2, 0);
    q->seq.row_end = 50;
    step(&s);
    assert_int_equal(q->seq.n_given, 50);
    q->seq.row_end = UINT32_MAX;
    step(&s);
    assert_int_equal(q->seq.n_given, 50 + STEP_TOKENS);
    pgl_sched_fini(&s.sched);
}

static void a_full_list_refuses(void **state) {
    (void)state;
    static sim s;
    sim_init(&s, 1, 64, 1);
    for (int i = 0; i < MAX_LIVE; i++)
        assert_non_null(arrive(&s, 5, 5, 0));
    pgl_sched_seq extra = {.n_known = 1, .n_final = 2};
    pgl_error err;
    assert_int_equal(pgl_sched_add(&s.sched, &extra, &err), PGL_E_BUSY);
    pgl_sched_fini(&s.sched);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_thousand_random_steps_keep_every_promise),
        cmocka_unit_test(a_flood_of_urgent_requests_does_not_starve_a_patient_one),
        cmocka_unit_test(a_short_prompt_does_not_wait_for_a_long_one),
        cmocka_unit_test(equal_priorities_are_admitted_in_order_of_arrival),
        cmocka_unit_test(one_that_does_not_fit_yet_is_not_overtaken),
        cmocka_unit_test(under_pressure_the_oldest_always_gets_on),
        cmocka_unit_test(rows_end_where_the_caller_wants_a_snapshot),
        cmocka_unit_test(a_full_list_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
