/* The engine on the null backend for a hundred thousand steps of everything at once: prompts that share beginnings, priorities,
 * cancels before, during and after, non-finite logits, pages for hardly half of the slots, a cache that moves to host memory.
 * Every answer equals its cold one, nobody waits for ever, and nothing is left in the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine_world.h"

enum {
    N_CASES = 40,
    N_OPEN = 24,
    LONGEST_PROMPT = 300,
    POISON_LENGTH = 333, /* of the one case that is as long */
    N_STEPS = 100000,
};

typedef struct request_case {
    int32_t prompt[LONGEST_PROMPT];
    uint32_t n_prompt, n_answer, hint;
    pgl_sample_params sampling;
} request_case;

static request_case cases[N_CASES];
static struct {
    int32_t tokens[64];
    uint32_t n;
} cold[N_CASES];

static uint64_t random_state = 0x2545F4914F6CDD1Du;

static uint32_t random_below(uint32_t n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 20) % n;
}

static bool poisoned(void *user, uint32_t slot, uint32_t length) {
    (void)user;
    (void)slot;
    return length == POISON_LENGTH;
}

static pgl_request_params params_of(const request_case *c) {
    pgl_request_params p = world_params(c->prompt, c->n_prompt, c->n_answer);
    p.sampling = c->sampling;
    p.snapshot_at = &c->hint;
    p.n_snapshot_at = c->n_prompt > 20;
    return p;
}

static void make_cases(void) {
    static world_answer a;
    engine_world w;
    world_open(&w, (world_options){.n_slots = 1, .cache = false});
    for (uint32_t i = 0; i < N_CASES; i++) {
        request_case *c = &cases[i];
        c->n_prompt = i == 0 ? LONGEST_PROMPT : 1 + (i * 53) % (i % 5 == 0 ? 250 : 60);
        c->n_answer = i == 0 ? 60 : 1 + (i * 29) % 40;
        world_prompt(i % 4, c->prompt, c->n_prompt);
        if (c->n_prompt > 50)
            world_prompt(1000 + i, c->prompt + 50, c->n_prompt - 50);
        c->hint = c->n_prompt > 20 ? c->n_prompt - 5 : 0;
        c->sampling = pgl_sample_defaults();
        if (i % 2 == 1) {
            c->sampling.temperature = 0.8F;
            c->sampling.seed = i;
            c->sampling.repetition_penalty = 1.2F;
        }
        pgl_request_params p = params_of(c);
        world_run(&w, &p, &a);
        cold[i].n = a.n;
        memcpy(cold[i].tokens, a.tokens, a.n * sizeof *a.tokens);
    }
    world_close(&w);
}

typedef struct open_request {
    pgl_request *request; /* NULL: none */
    uint32_t which, n_taken;
    uint64_t began_step, cancel_step; /* UINT64_MAX: not to be cancelled */
    bool cancelled;
} open_request;

typedef struct tally {
    uint64_t finished, cancelled, failed, parked, cached, from_host, longest_steps;
} tally;

static void begin(engine_world *w, open_request *o, uint64_t step) {
    *o = (open_request){.which = random_below(40) == 0 ? 0 : 1 + random_below(N_CASES - 1),
                        .began_step = step,
                        .cancel_step = random_below(9) == 0 ? step + random_below(200) : UINT64_MAX};
    pgl_request_params p = params_of(&cases[o->which]);
    p.priority = (int32_t)random_below(3);
    o->request = world_submit(w, &p);
}

/* Takes what is there; true when it has ended. */
static bool take(open_request *o, uint64_t step, tally *sum) {
    pgl_event event;
    while (pgl_request_next(o->request, &event)) {
        if (event.kind == PGL_EVENT_TOKEN) {
            assert_true(o->n_taken < cold[o->which].n);
            assert_int_equal(event.token, cold[o->which].tokens[o->n_taken]);
            o->n_taken++;
            continue;
        }
        assert_int_equal(event.kind, PGL_EVENT_FINISH);
        sum->parked += event.usage.n_parked;
        sum->cached += event.usage.n_cached;
        sum->from_host += event.usage.cache.from_host;
        if (event.finish == PGL_FINISH_CANCELLED) {
            assert_true(o->cancelled);
            sum->cancelled++;
        } else if (event.finish == PGL_FINISH_ERROR) {
            assert_int_equal(o->which, 0); /* the poisoned one, at its place */
            assert_int_equal(o->n_taken, POISON_LENGTH - LONGEST_PROMPT);
            assert_int_equal(pgl_request_error(o->request, NULL), PGL_E_NUMERIC);
            sum->failed++;
        } else {
            assert_int_equal(o->n_taken, cold[o->which].n);
            sum->finished++;
        }
        if (step - o->began_step > sum->longest_steps)
            sum->longest_steps = step - o->began_step;
        pgl_request_release(o->request);
        o->request = NULL;
        return true;
    }
    return false;
}

static void a_hundred_thousand_steps_of_everything(void **state) {
    (void)state;
    make_cases();
    engine_world w;
    world_open(&w, (world_options){.n_slots = 8,
                                   .n_pages = 28,
                                   .max_context = 400,
                                   .n_snapshots = 6,
                                   .cache = true,
                                   .host_cache_bytes = 1 << 16,
                                   .max_queue = N_OPEN,
                                   .max_step_tokens = 96,
                                   .prefill_chunk = 24,
                                   .snapshot_every = 64,
                                   .inject_non_finite = poisoned});
    open_request open[N_OPEN] = {{.request = NULL}};
    tally sum = {0};
    uint64_t step = 0;
    for (uint32_t at = 0; step < N_STEPS; at = (at + 1) % N_OPEN) {
        open_request *o = &open[at];
        if (at == 0) { /* let it get on before looking round again */
            pgl_engine_stats stats = pgl_engine_get_stats(w.engine);
            step = stats.steps;
            assert_true(stats.host_cache_bytes_used <= stats.host_cache_bytes);
            if (o->request != NULL)
                (void)pgl_request_wait(o->request, 200000);
        }
        if (o->request == NULL) {
            begin(&w, o, step);
        } else if (!take(o, step, &sum) && step >= o->cancel_step && !o->cancelled) {
            o->cancelled = true;
            pgl_request_cancel(o->request);
        }
        if (o->request != NULL) /* no starvation */
            assert_true(step - o->began_step < 20000);
    }
    for (uint32_t i = 0; i < N_OPEN; i++)
        while (open[i].request != NULL && !take(&open[i], step, &sum))
            assert_true(pgl_request_wait(open[i].request, 20000000000u));
    assert_true(pgl_engine_drain(w.engine, 20000000000u));
    pgl_engine_stats stats = pgl_engine_get_stats(w.engine);
    assert_int_equal(stats.n_running + stats.n_waiting, 0);
    assert_int_equal(stats.request_bytes, 0);
    assert_int_equal(stats.n_pages_free + stats.n_pages_cached, stats.n_pages);
    print_message(
        "%llu finished, %llu cancelled, %llu failed, %llu parked, %llu from host, longest %llu steps\n",
        (unsigned long long)sum.finished, (unsigned long long)sum.cancelled, (unsigned long long)sum.failed,
        (unsigned long long)sum.parked, (unsigned long long)sum.from_host,
        (unsigned long long)sum.longest_steps);
    assert_true(sum.finished > 2000 && sum.cancelled > 50 && sum.failed > 10);
    assert_true(sum.parked > 20 && sum.cached > 10000 && sum.from_host > 100);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_hundred_thousand_steps_of_everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
