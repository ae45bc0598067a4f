/* The reference forward pass on goldens/tiny-a, in both modes, within the bounds of docs/model.md. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/checkpoint.h"
#include "golden_file.h"
#include "model/reference.h"

enum { LAYERS = 8, HIDDEN = 256, VOCAB = 1024, USED = 4, PROMPTS = 3, MOST = 301 };

static pgl_checkpoint *checkpoint;
static pgl_model model;
static golden_file expected;
static json_t *greedy;

/* Positions from which an expert flip is excusable: the k-th and the next router logit are nearer than 1e-5. */
static const struct { int prompt, layer, position; } EXCEPTIONS[] = {{1, 2, 39}, {2, 3, 276}};

typedef struct prompt {
    int n;
    const int32_t *ids;
    float *logits, *hidden, *residual;
    int32_t *experts;
} prompt;

static void *get(size_t n, size_t size) {
    void *p = calloc(n, size);
    assert_non_null(p);
    return p;
}

static const void *tensor(int p, const char *what, const char *dtype) {
    char name[64];
    snprintf(name, sizeof name, "p%d.%s", p, what);
    return golden_tensor(&expected, name, dtype, NULL);
}

static pgl_reference *open_sequence(bool exact) {
    pgl_error err;
    pgl_reference *seq;
    if (pgl_reference_open(&model, exact, &seq, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return seq;
}

static prompt run_prompt(pgl_reference *seq, int p) {
    char name[32];
    snprintf(name, sizeof name, "p%d.ids", p);
    size_t bytes;
    prompt r = {.ids = golden_tensor(&expected, name, "I32", &bytes)};
    r.n = (int)(bytes / 4);
    size_t n = (size_t)r.n;
    r.logits = get(n * VOCAB, sizeof(float));
    r.hidden = get((LAYERS + 1) * n * HIDDEN, sizeof(float));
    r.residual = get(n * HIDDEN, sizeof(float));
    r.experts = get(LAYERS * n * USED, sizeof(int32_t));
    pgl_reference_outputs out = {
        .logits = r.logits, .hidden = r.hidden, .residual = r.residual, .experts = r.experts};
    pgl_error err;
    if (pgl_reference_forward(seq, r.ids, n, &out, &err) != PGL_OK)
        fail_msg("%s", err.text);
    assert_false(out.non_finite);
    return r;
}

static void free_prompt(prompt *r) {
    free(r->logits);
    free(r->hidden);
    free(r->residual);
    free(r->experts);
}

static double relative(const float *got, const float *want, size_t n) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        difference += pow((double)got[i] - (double)want[i], 2);
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(difference / norm);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The first position at which prompt p may leave the exact bound: only if an expert did flip there. */
static int excused_from(int p, const prompt *r) {
    if (p == 2)
        return r->n; /* decided by the caller: no experts in the golden */
    const int32_t *want = tensor(p, "experts", "I32");
    int first = r->n;
    for (int l = 0; l < LAYERS; l++) {
        for (int t = 0; t < r->n; t++) {
            size_t at = ((size_t)l * (size_t)r->n + (size_t)t) * USED;
            if (memcmp(r->experts + at, want + at, USED * sizeof *want) == 0)
                continue;
            bool excused = false;
            for (size_t i = 0; i < 2; i++)
                excused |=
                    EXCEPTIONS[i].prompt == p && EXCEPTIONS[i].layer <= l && EXCEPTIONS[i].position <= t;
            if (!excused)
                fail_msg("prompt %d, layer %d, position %d: other experts", p, l, t);
            first = t < first ? t : first;
        }
    }
    return first;
}

static double check_exact_draft(pgl_reference *seq, int p, const prompt *r, bool post_norm) {
    size_t n = (size_t)r->n - 1;
    const float *want = tensor(p, post_norm ? "mtp_logits_post_norm" : "mtp_logits_pre_norm", "F32");
    float *logits = get(n * VOCAB, sizeof *logits);
    pgl_reference_draft_rows rows = {.hidden = post_norm ? r->hidden + (size_t)LAYERS * (size_t)r->n * HIDDEN
                                                         : r->residual,
                                     .tokens = r->ids + 1,
                                     .n = n,
                                     .logits = logits};
    pgl_error err;
    pgl_reference_rewind_draft(seq, 0);
    if (pgl_reference_draft(seq, &rows, &err) != PGL_OK)
        fail_msg("%s", err.text);
    double worst = 0;
    for (size_t t = 0; t < n; t++) {
        double e = relative(logits + t * VOCAB, want + t * VOCAB, VOCAB);
        worst = e > worst ? e : worst;
    }
    free(logits);
    return worst;
}

static int largest(const float *logits) {
    int best = 0;
    for (int i = 1; i < VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* The largest logit minus the next. */
static double margin_of(const float *logits) {
    int best = largest(logits);
    float next = -INFINITY;
    for (int i = 0; i < VOCAB; i++)
        next = i != best && logits[i] > next ? logits[i] : next;
    return (double)logits[best] - (double)next;
}

/* The 32 greedy tokens behind a prompt whose last logits are given: fed all at once, each must be what the logits
 * before it choose. */
static double check_greedy(pgl_reference *seq, int p, const float *last) {
    char name[32];
    snprintf(name, sizeof name, "p%d", p);
    json_t *tokens = json_object_get(json_object_get(greedy, name), "greedy");
    json_t *margins = json_object_get(json_object_get(greedy, name), "margin");
    assert_int_equal(json_array_size(tokens), 32);
    int32_t ids[32];
    for (size_t i = 0; i < 32; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(tokens, i));
    float *logits = get((size_t)32 * VOCAB, sizeof *logits);
    memcpy(logits, last, VOCAB * sizeof *logits);
    pgl_reference_outputs out = {.logits = logits + VOCAB};
    pgl_error err;
    assert_int_equal(pgl_reference_forward(seq, ids, 31, &out, &err), PGL_OK);
    double worst = 0;
    for (size_t i = 0; i < 32; i++) {
        double margin = json_real_value(json_array_get(margins, i));
        if (margin > 5e-3)
            assert_int_equal(largest(logits + i * VOCAB), ids[i]);
        double off = fabs(margin_of(logits + i * VOCAB) - margin);
        worst = off > worst ? off : worst;
    }
    assert_true(worst <= 5e-3);
    free(logits);
    return worst;
}

static void exact_mode_is_the_golden_one(void **state) {
    (void)state;
    for (int p = 0; p < PROMPTS; p++) {
        pgl_reference *seq = open_sequence(true);
        prompt r = run_prompt(seq, p);
        const float *want = tensor(p, "logits", "F32");
        int excused = excused_from(p, &r);
        double worst = 0;
        for (int t = 0; t < r.n; t++) {
            size_t at = (size_t)t * VOCAB;
            double e = relative(r.logits + at, want + at, VOCAB);
            if (p == 2 && t >= EXCEPTIONS[1].position && e > 1e-3)
                excused = t < excused ? t : excused;
            if (t < excused) {
                worst = e > worst ? e : worst;
                if (e > 1e-3)
                    fail_msg("prompt %d position %d: relative error %g", p, t, e);
            } else if (e > 1e-1) {
                fail_msg("prompt %d position %d, after an excused flip: relative error %g", p, t, e);
            }
        }
        double hidden_worst = 0, draft[2] = {0, 0};
        if (p < 2) {
            const float *hidden = tensor(p, "hidden", "F32");
            for (int l = 0; l <= LAYERS; l++) {
                for (int t = 0; t < excused; t++) {
                    size_t at = ((size_t)l * (size_t)r.n + (size_t)t) * HIDDEN;
                    double e = relative(r.hidden + at, hidden + at, HIDDEN);
                    hidden_worst = e > hidden_worst ? e : hidden_worst;
                }
            }
            if (excused == r.n) {
                draft[0] = check_exact_draft(seq, p, &r, true);
                draft[1] = check_exact_draft(seq, p, &r, false);
            }
        }
        double margins = check_greedy(seq, p, r.logits + (size_t)(r.n - 1) * VOCAB);
        print_message("exact p%d: logits %.2e, hidden %.2e, draft %.2e (post_norm) %.2e (pre_norm), %d of %d "
                      "positions held; greedy margins within %.1e\n",
                      p, worst, hidden_worst, draft[0], draft[1], excused, r.n, margins);
        assert_true(hidden_worst <= 1e-3 && draft[0] <= 1e-3 && draft[1] <= 1e-3);
        free_prompt(&r);
        pgl_reference_close(seq);
    }
}

static void contract_mode_is_within_its_bounds(void **state) {
    (void)state;
    static double errors[PROMPTS * MOST];
    int n = 0, sure = 0, same = 0;
    for (int p = 0; p < PROMPTS; p++) {
        pgl_reference *seq = open_sequence(false);
        prompt r = run_prompt(seq, p);
        const float *want = tensor(p, "logits", "F32");
        for (int t = 0; t < r.n; t++) {
            const float *got = r.logits + (size_t)t * VOCAB, *ref = want + (size_t)t * VOCAB;
            errors[n++] = relative(got, ref, VOCAB);
            if (margin_of(ref) > 0.3) {
                sure++;
                same += largest(got) == largest(ref);
            }
        }
        free_prompt(&r);
        pgl_reference_close(seq);
    }
    qsort(errors, (size_t)n, sizeof *errors, by_size);
    double median = errors[n / 2], ninetieth = errors[n * 9 / 10];
    print_message(
        "contract: median %.2e, 90th percentile %.2e, worst %.2e; same token at %d of %d sure positions\n",
        median, ninetieth, errors[n - 1], same, sure);
    assert_true(median <= 2e-2 && ninetieth <= 1e-1);
    assert_true(median > 1e-3); /* the contract does round */
    assert_true(same >= 0.98 * sure);
}

static void golden_prompt_in_pieces_is_bit_equal(void **state) {
    (void)state;
    static float whole[70 * VOCAB], pieces[70 * VOCAB];
    const int32_t *ids = tensor(1, "ids", "I32");
    pgl_error err;
    pgl_reference *seq = open_sequence(false);
    pgl_reference_outputs out = {.logits = whole};
    assert_int_equal(pgl_reference_forward(seq, ids, 70, &out, &err), PGL_OK);
    pgl_reference_close(seq);
    static const size_t cuts[][4] = {{1, 7, 61, 70}, {64, 65, 70, 70}};
    for (int c = 0; c < 2; c++) {
        seq = open_sequence(false);
        size_t at = 0;
        for (int i = 0; i < 4; i++) {
            if (cuts[c][i] == at)
                continue;
            out.logits = pieces + at * VOCAB;
            assert_int_equal(pgl_reference_forward(seq, ids + at, cuts[c][i] - at, &out, &err), PGL_OK);
            at = cuts[c][i];
        }
        assert_memory_equal(whole, pieces, sizeof whole);
        pgl_reference_close(seq);
    }
}

static int open_all(void **state) {
    (void)state;
    pgl_error err;
    if (pgl_checkpoint_open(PGL_GOLDENS "/tiny-a", NULL, &checkpoint, &err) != PGL_OK ||
        pgl_model_init(&model, pgl_checkpoint_config(checkpoint), pgl_checkpoint_weights(checkpoint), &err) !=
            PGL_OK) {
        print_error("%s\n", err.text);
        return -1;
    }
    expected = golden_open(PGL_GOLDENS "/tiny-a.expected/golden.safetensors");
    greedy = json_load_file(PGL_GOLDENS "/tiny-a.expected/golden.json", 0, NULL);
    return greedy != NULL ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    json_decref(greedy);
    golden_close(&expected);
    pgl_checkpoint_close(checkpoint);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_mode_is_the_golden_one),
        cmocka_unit_test(contract_mode_is_within_its_bounds),
        cmocka_unit_test(golden_prompt_in_pieces_is_bit_equal),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
