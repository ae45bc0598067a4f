/* For tests of backends: a small driver above backend.h. A test names slots and tokens; the driver binds pages, holds
 * the memory of results, submits and waits. Every failure to submit or wait fails the running test. */
#ifndef PGL_TESTS_CONFORMANCE_H
#define PGL_TESTS_CONFORMANCE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/null/null.h"

/* A backend under test. */
typedef struct conf_subject {
    const char *name;
    pgl_status (*open)(const struct conf_subject *subject, const pgl_backend_options *options,
                       pgl_backend **out, pgl_error *err);
    const void *context;
    const char *isa;    /* for the CPU backend */
    uint32_t n_threads; /* likewise */
    uint32_t
        n_tokens; /* length of the longest sequences: slow backends ask for less; at least 24 for the whole suite */
    bool has_draft;
} conf_subject;

#define CONF_SLOTS 4u
#define CONF_PAGE 16u
#define CONF_CONTEXT 80u
#define CONF_TABLE (CONF_CONTEXT / CONF_PAGE)
#define CONF_SPARE (CONF_SLOTS * CONF_TABLE) /* pages from here on belong to no slot */
#define CONF_PAGES (CONF_SPARE + 8u)
#define CONF_SNAPSHOTS 4u
#define CONF_STEP 64u
#define CONF_DRAFT 3u
#define CONF_MOST_OPS 16u

static inline pgl_status conf_open_null(const conf_subject *subject, const pgl_backend_options *options,
                                        pgl_backend **out, pgl_error *err) {
    pgl_null_options null_options = {
        .vocab_size = 300, .hidden_size = 8, .n_layers = 3, .n_experts = 8, .n_experts_used = 2};
    (void)subject;
    return pgl_backend_open_null(&null_options, options, out, err);
}

/* context: the pgl_model */
static inline pgl_status conf_open_cpu(const conf_subject *subject, const pgl_backend_options *options,
                                       pgl_backend **out, pgl_error *err) {
    return pgl_backend_open_cpu(subject->context, options, out, err);
}

static inline pgl_backend *conf_open(const conf_subject *subject) {
    pgl_backend_options options = {
        .n_threads = subject->n_threads,
        .force_isa = subject->isa,
        .n_slots = CONF_SLOTS,
        .n_pages = CONF_PAGES,
        .n_snapshots = CONF_SNAPSHOTS,
        .page_tokens = CONF_PAGE,
        .max_context = CONF_CONTEXT,
        .max_rows = CONF_SLOTS,
        .max_step_tokens = CONF_STEP,
        .max_draft = subject->has_draft ? CONF_DRAFT : 0,
    };
    pgl_backend *backend = NULL;
    pgl_error err = {PGL_OK, ""};
    if (subject->open(subject, &options, &backend, &err) != PGL_OK)
        fail_msg("%s: %s", subject->name, err.text);
    return backend;
}

/* ---- one row and the memory of its result */

typedef struct conf_row {
    pgl_row row;
    pgl_row_result result;
    pgl_sample_params params;
    int32_t in[CONF_STEP], targets[CONF_STEP], tokens[CONF_STEP], drafts[CONF_DRAFT];
    float logprobs[CONF_STEP], target_logprobs[CONF_STEP];
    pgl_token_logprob top[CONF_STEP * 8];
    float *logits, *hidden, *draft_logits;
    int32_t *experts;
} conf_row;

static inline conf_row *conf_row_new(const pgl_backend *backend) {
    const pgl_backend_caps *caps = pgl_backend_get_caps(backend);
    conf_row *r = calloc(1, sizeof *r);
    assert_non_null(r);
    size_t n = CONF_STEP;
    r->logits = malloc(n * caps->vocab_size * sizeof(float));
    r->hidden = malloc(n * ((size_t)caps->n_layers + 1) * caps->hidden_size * sizeof(float));
    r->draft_logits = malloc(n * caps->vocab_size * sizeof(float));
    r->experts = malloc(n * ((size_t)caps->n_layers * caps->n_experts_used + 1) * sizeof(int32_t));
    assert_true(r->logits != NULL && r->hidden != NULL && r->draft_logits != NULL && r->experts != NULL);
    return r;
}

static inline void conf_row_free(conf_row *r) {
    free(r->logits);
    free(r->hidden);
    free(r->draft_logits);
    free(r->experts);
    free(r);
}

/* A row of n host tokens; the caller adds to it. Everything is fresh but the memory. */
static inline pgl_row *conf_row_set(conf_row *r, uint32_t slot, const int32_t *tokens, uint32_t n,
                                    uint32_t wants) {
    assert_true(n <= CONF_STEP);
    for (uint32_t i = 0; i < n && tokens != NULL; i++)
        r->in[i] = tokens[i];
    memset(r->tokens, 0xEE, sizeof r->tokens); /* what is read must have been written */
    r->params = pgl_sample_defaults();
    r->result = (pgl_row_result){
        .tokens = r->tokens,
        .logprobs = r->logprobs,
        .top = r->top,
        .target_logprobs = r->target_logprobs,
        .logits = r->logits,
        .hidden = r->hidden,
        .experts = r->experts,
        .draft_logits = r->draft_logits,
        .drafts = r->drafts,
    };
    r->row = (pgl_row){
        .slot = slot,
        .n_tokens = n,
        .tokens = r->in,
        .wants = wants,
        .targets = r->targets,
        .params = &r->params,
        .token_limit = 1000000,
        .result = &r->result,
    };
    return &r->row;
}

/* A verify row of the slot's last token's place: tokens[0] and the drafts behind it. */
static inline pgl_row *conf_row_verify(conf_row *r, uint32_t slot, const int32_t *tokens, uint32_t n,
                                       uint32_t wants) {
    pgl_row *row = conf_row_set(r, slot, tokens, n, wants | PGL_WANT_SAMPLE);
    row->kind = PGL_ROW_VERIFY;
    return row;
}

/* ---- steps */

typedef struct conf_step {
    pgl_op before[CONF_MOST_OPS], after[CONF_MOST_OPS];
    pgl_row rows[CONF_SLOTS];
    pgl_step_plan plan;
    uint64_t ticket;
} conf_step;

static inline void conf_submit(pgl_backend *backend, conf_step *step) {
    step->plan.before = step->before;
    step->plan.rows = step->rows;
    step->plan.after = step->after;
    pgl_error err = {PGL_OK, ""};
    if (pgl_backend_submit(backend, &step->plan, &step->ticket, &err) != PGL_OK)
        fail_msg("submit: %s", err.text);
}

static inline void conf_wait(pgl_backend *backend, const conf_step *step) {
    pgl_error err = {PGL_OK, ""};
    if (pgl_backend_wait(backend, step->ticket, NULL, &err) != PGL_OK)
        fail_msg("wait: %s", err.text);
}

static inline void conf_add_row(conf_step *step, const conf_row *r) {
    assert_true(step->plan.n_rows < CONF_SLOTS);
    step->rows[step->plan.n_rows++] = r->row;
}

static inline void conf_op(conf_step *step, pgl_op op) {
    assert_true(step->plan.n_before < CONF_MOST_OPS);
    step->before[step->plan.n_before++] = op;
}

static inline void conf_op_after(conf_step *step, pgl_op op) {
    assert_true(step->plan.n_after < CONF_MOST_OPS);
    step->after[step->plan.n_after++] = op;
}

static inline void conf_run(pgl_backend *backend, conf_step *step) {
    conf_submit(backend, step);
    conf_wait(backend, step);
}

static inline void conf_run_row(pgl_backend *backend, const conf_row *r) {
    conf_step step = {0};
    conf_add_row(&step, r);
    conf_run(backend, &step);
}

static inline void conf_run_op(pgl_backend *backend, pgl_op op) {
    conf_step step = {0};
    conf_op(&step, op);
    conf_run(backend, &step);
}

/* A fresh slot with its own pages bound. */
static inline void conf_reset(pgl_backend *backend, uint32_t slot) {
    conf_step step = {0};
    conf_op(&step, (pgl_op){.kind = PGL_OP_RESET, .slot = slot});
    for (uint32_t i = 0; i < CONF_TABLE; i++)
        conf_op(&step,
                (pgl_op){.kind = PGL_OP_BIND, .slot = slot, .index = i, .page = slot * CONF_TABLE + i});
    conf_run(backend, &step);
}

/* Feeds tokens without asking for anything. */
static inline void conf_feed(pgl_backend *backend, conf_row *r, uint32_t slot, const int32_t *tokens,
                             uint32_t n) {
    conf_row_set(r, slot, tokens, n, 0);
    conf_run_row(backend, r);
    assert_int_equal(r->result.end, PGL_ROW_RUNS);
}

/* The slot's recurrent state, as bytes; the caller frees. */
static inline unsigned char *conf_state(pgl_backend *backend, uint32_t slot) {
    const pgl_backend_caps *caps = pgl_backend_get_caps(backend);
    unsigned char *bytes = malloc(caps->snapshot_bytes);
    assert_non_null(bytes);
    conf_step step = {0};
    uint32_t snapshot = CONF_SNAPSHOTS - 1; /* tests leave it to this function */
    conf_op(&step, (pgl_op){.kind = PGL_OP_SAVE, .slot = slot, .snapshot = snapshot});
    conf_op(&step, (pgl_op){.kind = PGL_OP_EXPORT_SNAPSHOT, .snapshot = snapshot, .host = bytes});
    conf_run(backend, &step);
    return bytes;
}

/* ---- equality: of bits where a backend says bit_stable, otherwise within the second bound of docs/model.md, section
 * "How close is right", over all that a test compares */

#define CONF_MOST_ERRORS 4096u
typedef struct conf_errors {
    double error[CONF_MOST_ERRORS];
    uint32_t n;
} conf_errors;

static inline conf_errors *conf_errors_of_test(void) {
    static conf_errors errors;
    return &errors;
}

/* ||got - want|| / ||want||. Another sequence's numbers are off by one and more. */
static inline void conf_close_to(const char *what, const float *got, const float *want, size_t n) {
    conf_errors *errors = conf_errors_of_test();
    double off = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        off += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        norm += (double)want[i] * (double)want[i];
    }
    double error = norm > 0 ? sqrt(off / norm) : sqrt(off);
    if (!(error <= 0.5))
        fail_msg("%s: relative error %g", what, error);
    if (errors->n < CONF_MOST_ERRORS)
        errors->error[errors->n++] = error;
}

static inline int conf_by_size(const void *a, const void *b) {
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* The end of a test: closes the backend, and holds what was compared to the bound. */
static inline void conf_close(pgl_backend *backend) {
    conf_errors *errors = conf_errors_of_test();
    uint32_t n = errors->n;
    pgl_backend_close(backend);
    errors->n = 0;
    if (n == 0)
        return;
    qsort(errors->error, n, sizeof errors->error[0], conf_by_size);
    if (errors->error[n / 2] > 2e-2 || errors->error[n * 9 / 10] > 1e-1)
        fail_msg("relative errors: median %g, 90th percentile %g", errors->error[n / 2],
                 errors->error[n * 9 / 10]);
}

static inline void conf_same_state(pgl_backend *backend, uint32_t slot, const unsigned char *want,
                                   const char *when) {
    unsigned char *got = conf_state(backend, slot);
    const pgl_backend_caps *caps = pgl_backend_get_caps(backend);
    if (!caps->bit_stable)
        conf_close_to(when, (const float *)(const void *)got, (const float *)(const void *)want,
                      caps->snapshot_bytes / sizeof(float));
    else if (memcmp(got, want, caps->snapshot_bytes) != 0)
        fail_msg("the state of slot %u differs %s", slot, when);
    free(got);
}

/* ---- numbers */

static inline uint32_t conf_random(uint64_t *seed) {
    *seed += 0x9E3779B97F4A7C15u;
    uint64_t x = *seed;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)(x >> 32);
}

static inline void conf_tokens(const pgl_backend *backend, uint64_t seed, int32_t *tokens, uint32_t n) {
    uint32_t vocab = pgl_backend_get_caps(backend)->vocab_size;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(conf_random(&seed) % vocab);
}

static inline void conf_same_bits(const char *what, const void *got, const void *want, size_t bytes) {
    if (memcmp(got, want, bytes) == 0)
        return;
    size_t i = 0;
    while (((const unsigned char *)got)[i] == ((const unsigned char *)want)[i])
        i++;
    float a, b;
    memcpy(&a, (const unsigned char *)got + i / 4 * 4, 4);
    memcpy(&b, (const unsigned char *)want + i / 4 * 4, 4);
    fail_msg("%s: element %zu is %a, expected %a", what, i / 4, (double)a, (double)b);
}

static inline void conf_same_floats(bool bits, const char *what, const float *got, const float *want,
                                    size_t n) {
    if (bits)
        conf_same_bits(what, got, want, n * sizeof *got);
    else
        conf_close_to(what, got, want, n);
}

/* ---- what a sequence gives when it runs alone, one token at a time */

typedef struct conf_truth {
    uint32_t n;
    int32_t tokens[CONF_STEP];
    size_t logits_floats; /* of one token */
    float *logits;        /* [n][vocab] */
    bool bits;            /* the backend is bit_stable */
} conf_truth;

/* tokens of slot, fed one by one from an empty slot. */
static inline conf_truth conf_truth_of(pgl_backend *backend, conf_row *r, uint32_t slot,
                                       const int32_t *tokens, uint32_t n) {
    const pgl_backend_caps *caps = pgl_backend_get_caps(backend);
    conf_truth t = {.n = n, .logits_floats = caps->vocab_size, .bits = caps->bit_stable};
    t.logits = malloc(n * t.logits_floats * sizeof *t.logits);
    assert_non_null(t.logits);
    memcpy(t.tokens, tokens, n * sizeof *tokens);
    conf_reset(backend, slot);
    for (uint32_t i = 0; i < n; i++) {
        conf_row_set(r, slot, tokens + i, 1, PGL_WANT_LOGITS);
        conf_run_row(backend, r);
        memcpy(t.logits + i * t.logits_floats, r->logits, t.logits_floats * sizeof *t.logits);
    }
    return t;
}

static inline void conf_truth_free(conf_truth *t) {
    free(t->logits);
}

/* The row's logits are those of the truth from token `first` on. */
static inline void conf_same_logits(const conf_row *r, const conf_truth *t, uint32_t first, uint32_t n,
                                    const char *what) {
    assert_true(first + n <= t->n);
    for (size_t i = 0; i < n; i++)
        conf_same_floats(t->bits, what, r->logits + i * t->logits_floats,
                         t->logits + (first + i) * t->logits_floats, t->logits_floats);
}

#endif
