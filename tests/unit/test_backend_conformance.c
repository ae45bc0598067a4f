/* The common suite on the backends of this machine: null, and the CPU with every instruction set that the processor
 * has; and the CPU on 1, 2 and 3 threads against the scalar reference, bit for bit. PGL_TEST_ISA=avx512 runs that
 * instruction set alone and fails where the processor lacks it; PGL_TEST_GOLDENS names another folder of goldens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "backend/cpu/kernels.h"
#include "backend/null/null.h"
#include "checkpoint/checkpoint.h"
#include "conformance_suite.h"
#include "model/model.h"
#include "model/reference.h"

static pgl_checkpoint *g_checkpoint;
static pgl_model g_model;

/* ---- against the reference */

static pgl_reference *open_reference(void) {
    pgl_reference *seq = NULL;
    pgl_error err = {PGL_OK, ""};
    if (pgl_reference_open(&g_model, false, &seq, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return seq;
}

static void the_cpu_gives_the_bits_of_the_reference(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    const pgl_backend_caps *caps = pgl_backend_get_caps(backend);
    conf_row *r = conf_row_new(backend);
    pgl_reference *seq = open_reference();
    int32_t tokens[CONF_STEP];
    size_t n = subject->n_tokens, vocab = caps->vocab_size, hidden = caps->hidden_size;
    size_t used = caps->n_experts_used, layers = caps->n_layers;
    conf_tokens(backend, 200, tokens, (uint32_t)n);
    pgl_reference_outputs want = {
        .logits = malloc(n * vocab * sizeof(float)),
        .hidden = malloc((layers + 1) * n * hidden * sizeof(float)),
        .experts = malloc(layers * n * used * sizeof(int32_t)),
    };
    assert_int_equal(pgl_reference_forward(seq, tokens, n, &want, NULL), PGL_OK);
    conf_reset(backend, 2);
    conf_row_set(r, 2, tokens, (uint32_t)n,
                 PGL_WANT_LOGITS | PGL_WANT_HIDDEN | PGL_WANT_EXPERTS | PGL_WANT_DRAFT_LOGITS);
    conf_run_row(backend, r);
    conf_same_bits("experts", r->experts, want.experts, layers * n * used * sizeof(int32_t));
    for (size_t l = 0; l <= layers; l++)
        conf_same_bits("hidden states", r->hidden + l * n * hidden, want.hidden + l * n * hidden,
                       n * hidden * sizeof(float));
    conf_same_bits("logits", r->logits, want.logits, n * vocab * sizeof(float));
    unsigned char *bytes = conf_state(backend, 2);
    pgl_reference_state s = pgl_reference_get_state(seq);
    conf_same_bits("state", bytes, s.state, g_model.state_bytes);
    conf_same_bits("taps", bytes + g_model.state_bytes, s.taps, g_model.conv_bytes);
    conf_same_bits("last hidden", bytes + g_model.state_bytes + g_model.conv_bytes, s.hidden,
                   g_model.hidden_bytes);
    float *draft_logits = malloc(n * vocab * sizeof(float));
    pgl_reference_draft_rows draft = {.hidden = want.hidden + layers * n * hidden,
                                      .tokens = tokens + 1,
                                      .n = n - 1,
                                      .logits = draft_logits};
    assert_int_equal(pgl_reference_draft(seq, &draft, NULL), PGL_OK);
    conf_same_bits("draft logits", r->draft_logits, draft_logits, (n - 1) * vocab * sizeof(float));
    free(bytes);
    free(draft_logits);
    free(want.logits);
    free(want.hidden);
    free(want.experts);
    pgl_reference_close(seq);
    conf_row_free(r);
    pgl_backend_close(backend);
}

/* The chain that the backend drafts, drafted by the reference. */
static void the_cpu_drafts_what_the_reference_drafts(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    const pgl_backend_caps *caps = pgl_backend_get_caps(backend);
    conf_row *r = conf_row_new(backend);
    pgl_reference *seq = open_reference();
    int32_t tokens[18];
    size_t n = 17, vocab = caps->vocab_size, hidden = caps->hidden_size, layers = caps->n_layers;
    conf_tokens(backend, 210, tokens, (uint32_t)n);
    conf_reset(backend, 0);
    conf_row_set(r, 0, tokens, (uint32_t)n, PGL_WANT_SAMPLE | PGL_WANT_DRAFT)->n_draft = CONF_DRAFT;
    conf_run_row(backend, r);
    tokens[n] = r->tokens[0];
    pgl_reference_outputs out = {.hidden = malloc((layers + 1) * n * hidden * sizeof(float))};
    float *logits = malloc((n + 1) * vocab * sizeof(float)), *after = malloc(n * hidden * sizeof(float));
    assert_int_equal(pgl_reference_forward(seq, tokens, n, &out, NULL), PGL_OK);
    pgl_reference_draft_rows rows = {.hidden = out.hidden + layers * n * hidden,
                                     .tokens = tokens + 1,
                                     .n = n,
                                     .logits = logits,
                                     .out_hidden = after};
    for (uint32_t i = 0; i < CONF_DRAFT; i++) {
        assert_int_equal(pgl_reference_draft(seq, &rows, NULL), PGL_OK);
        const float *last = logits + (rows.n - 1) * vocab;
        int32_t best = 0;
        for (size_t id = 1; id < vocab; id++)
            best = last[id] > last[best] ? (int32_t)id : best;
        assert_int_equal(r->drafts[i], best);
        if (rows.n > 1)
            memmove(after, after + (rows.n - 1) * hidden, hidden * sizeof(float));
        tokens[0] = best;
        rows = (pgl_reference_draft_rows){
            .hidden = after, .tokens = tokens, .n = 1, .logits = logits, .out_hidden = after};
    }
    free(out.hidden);
    free(logits);
    free(after);
    pgl_reference_close(seq);
    conf_row_free(r);
    pgl_backend_close(backend);
}

/* ---- what only a backend with numbers can show */

static void non_finite_state_is_reported_and_ends_the_slot(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    conf_row *bad = conf_row_new(backend), *good = conf_row_new(backend);
    int32_t tokens[4] = {5, 6, 7, 8};
    conf_reset(backend, 0);
    conf_reset(backend, 1);
    unsigned char *bytes = conf_state(backend, 0);
    memset(bytes, 0xFF, 64); /* NaNs */
    conf_step step = {0};
    conf_op(&step, (pgl_op){.kind = PGL_OP_IMPORT_SNAPSHOT, .snapshot = 0, .host = bytes});
    conf_op(&step, (pgl_op){.kind = PGL_OP_RESTORE, .slot = 0, .snapshot = 0});
    conf_row_set(bad, 0, tokens, 4, 0);
    conf_row_set(good, 1, tokens, 4, PGL_WANT_SAMPLE);
    conf_add_row(&step, bad);
    conf_add_row(&step, good);
    conf_run(backend, &step);
    assert_true(bad->result.non_finite); /* also where no logits were asked for */
    assert_false(good->result.non_finite);
    assert_int_equal(good->result.n_sampled, 1);
    conf_row_set(bad, 0, tokens, 1, PGL_WANT_SAMPLE);
    conf_run_row(backend, bad);
    assert_true(bad->result.non_finite);
    assert_int_equal(bad->result.n_sampled, 0);
    conf_run_row(backend, bad);
    assert_int_equal(bad->result.end, PGL_ROW_INERT);
    free(bytes);
    conf_row_free(bad);
    conf_row_free(good);
    pgl_backend_close(backend);
}

static void what_cannot_be_opened_is_refused(void **state) {
    const conf_subject *subject = *state;
    const pgl_backend_options right = {.n_slots = 1,
                                       .n_pages = 4,
                                       .max_context = 64,
                                       .max_rows = 1,
                                       .max_step_tokens = 8,
                                       .force_isa = subject->isa,
                                       .n_threads = 1};
    pgl_backend *backend = NULL;
    pgl_error err = {PGL_OK, ""};
    pgl_backend_options options = right;
    options.device_bytes = 100000;
    assert_int_equal(pgl_backend_open_cpu(&g_model, &options, &backend, &err), PGL_E_MEMORY);
    assert_non_null(strstr(err.text, "MiB"));
    options = right;
    options.force_isa = "mmx";
    assert_int_equal(pgl_backend_open_cpu(&g_model, &options, &backend, &err), PGL_E_UNSUPPORTED);
    options = right;
    options.max_context = g_model.config->max_position_embeddings + 1;
    assert_int_equal(pgl_backend_open_cpu(&g_model, &options, &backend, &err), PGL_E_INVALID);
    options = right;
    options.n_slots = 0;
    assert_int_equal(pgl_backend_open_cpu(&g_model, &options, &backend, &err), PGL_E_INVALID);
    pgl_weights weights = *g_model.weights;
    pgl_model model = g_model;
    weights.draft.present = false;
    model.weights = &weights;
    options = right;
    options.max_draft = 1;
    assert_int_equal(pgl_backend_open_cpu(&model, &options, &backend, &err), PGL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "draft head"));
    assert_null(backend);
    options.max_draft = 0;
    assert_int_equal(pgl_backend_open_cpu(&model, &options, &backend, &err), PGL_OK);
    pgl_backend_close(backend);
}

/* Bytes that a step reads are counted: a token more costs no weights, a decode step reads each once. */
static void bytes_are_counted_once_a_step(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    conf_row *r = conf_row_new(backend);
    int32_t tokens[2] = {1, 1};
    uint64_t bytes[2];
    for (uint32_t n = 1; n <= 2; n++) {
        conf_reset(backend, 0);
        conf_row_set(r, 0, tokens, n, 0);
        pgl_step_plan plan = {.rows = &r->row, .n_rows = 1};
        pgl_step_timing timing = {0};
        uint64_t ticket;
        assert_int_equal(pgl_backend_submit(backend, &plan, &ticket, NULL), PGL_OK);
        assert_int_equal(pgl_backend_wait(backend, ticket, &timing, NULL), PGL_OK);
        assert_int_equal(timing.n_tokens, n);
        assert_true(timing.total_ns > 0);
        bytes[n - 1] = timing.bytes_read;
    }
    uint64_t weights = pgl_backend_get_memory(backend).weights_bytes;
    assert_true(bytes[0] > weights / 10 && bytes[0] < weights);
    assert_true(bytes[1] >= bytes[0] && bytes[1] < bytes[0] + bytes[0] / 4 + weights / 4);
    conf_row_free(r);
    pgl_backend_close(backend);
}

#define CPU_TESTS(subject)                                                                                   \
    cmocka_unit_test_prestate(the_cpu_gives_the_bits_of_the_reference, (void *)(subject)),                   \
        cmocka_unit_test_prestate(the_cpu_drafts_what_the_reference_drafts, (void *)(subject)),              \
        cmocka_unit_test_prestate(non_finite_state_is_reported_and_ends_the_slot, (void *)(subject)),        \
        cmocka_unit_test_prestate(what_cannot_be_opened_is_refused, (void *)(subject)),                      \
        cmocka_unit_test_prestate(bytes_are_counted_once_a_step, (void *)(subject))

static int run_null(void) {
    static const conf_subject subject = {
        .name = "null", .open = conf_open_null, .n_tokens = 40, .has_draft = true};
    static const conf_subject plain = {.name = "null", .open = conf_open_null, .n_tokens = 30};
    const struct CMUnitTest tests[] = {CONF_SUITE(&subject)}, plain_tests[] = {CONF_SUITE(&plain)};
    return cmocka_run_group_tests_name("null", tests, NULL, NULL) +
           cmocka_run_group_tests_name("null, no draft head", plain_tests, NULL, NULL);
}

static conf_subject cpu_subject(const char *isa, uint32_t n_threads, uint32_t n_tokens) {
    return (conf_subject){.name = "cpu",
                          .open = conf_open_cpu,
                          .context = &g_model,
                          .isa = isa,
                          .n_threads = n_threads,
                          .n_tokens = n_tokens,
                          .has_draft = true};
}

/* Everything, on two threads. */
static int run_cpu(const char *isa) {
    conf_subject subject = cpu_subject(isa, 2, 40);
    const struct CMUnitTest suite[] = {CONF_SUITE(&subject)}, tests[] = {CPU_TESTS(&subject)};
    return cmocka_run_group_tests_name(isa, suite, NULL, NULL) +
           cmocka_run_group_tests_name(isa, tests, NULL, NULL);
}

/* What shows that a number of threads, or an instruction set, makes no difference: the bits of the reference, alone and
 * among neighbours. */
static int run_cpu_short(const char *isa, uint32_t n_threads, uint32_t n_tokens) {
    conf_subject subject = cpu_subject(isa, n_threads, n_tokens);
    char name[64];
    snprintf(name, sizeof name, "%s, %u threads", isa, n_threads);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(conf_neighbours_do_not_matter, &subject),
        cmocka_unit_test_prestate(the_cpu_gives_the_bits_of_the_reference, &subject),
        cmocka_unit_test_prestate(the_cpu_drafts_what_the_reference_drafts, &subject),
    };
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void) {
    const char *goldens = getenv("PGL_TEST_GOLDENS"), *only = getenv("PGL_TEST_ISA");
    char path[4096];
    snprintf(path, sizeof path, "%s/tiny-a", goldens != NULL ? goldens : PGL_GOLDENS);
    const pgl_checkpoint_options options = {.want_draft = true};
    pgl_error err = {PGL_OK, ""};
    if (pgl_checkpoint_open(path, &options, &g_checkpoint, &err) != PGL_OK ||
        pgl_model_init(&g_model, pgl_checkpoint_config(g_checkpoint), pgl_checkpoint_weights(g_checkpoint),
                       &err) != PGL_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int failed = only == NULL ? run_null() : 0, ran = 0;
    const pgl_kernels *all[PGL_MOST_KERNELS];
    size_t n = pgl_kernels_all(all);
    for (size_t i = 0; i < n; i++) {
        const char *isa = all[i]->name;
        if (only != NULL && strcmp(only, isa) != 0)
            continue;
        ran++;
        if (all[i] == pgl_kernels_scalar()) {
            failed += run_cpu_short(isa, 2, 12); /* slow */
            continue;
        }
        failed += run_cpu(isa);
        failed += run_cpu_short(isa, 1, 24);
        failed += run_cpu_short(isa, 3, 24);
    }
    pgl_checkpoint_close(g_checkpoint);
    if (ran == 0)
        fprintf(stderr, "this processor lacks %s\n", only);
    return failed != 0 || ran == 0;
}
