/* For tests of backends: random models for what the goldens do not cover (every K, BF16 and F32 rows, F32 scales, s_in
 * and s_out, biases, dense models, all linears coded, tied heads, routing ties, a draft head with experts of its own), each
 * against the scalar reference. */
#ifndef PGL_TESTS_BACKEND_MODELS_H
#define PGL_TESTS_BACKEND_MODELS_H

#include "conformance.h"
#include "model/model.h"
#include "model/reference.h"
#include "synthetic_model.h"

typedef struct models_case {
    const char *name;
    synthetic_options options;
} models_case;

static const models_case MODELS[] = {
    {"experts of K = 1 and 8", {.seed = 1, .k_gate_up = 1, .k_down = 8}},
    {"experts of K = 2 and 7", {.seed = 2, .k_gate_up = 2, .k_down = 7}},
    {"experts of K = 3 and 6", {.seed = 3, .k_gate_up = 3, .k_down = 6}},
    {"experts of K = 4 and 5", {.seed = 4, .k_gate_up = 4, .k_down = 5}},
    {"experts of K = 5 and 4", {.seed = 5, .k_gate_up = 5, .k_down = 4}},
    {"experts of K = 6 and 3", {.seed = 6, .k_gate_up = 6, .k_down = 3}},
    {"experts of K = 7 and 2", {.seed = 7, .k_gate_up = 7, .k_down = 2}},
    {"experts of K = 8 and 1", {.seed = 8, .k_gate_up = 8, .k_down = 1}},
    {"bf16", {.seed = 21, .plain = PGL_BF16, .plain_linears = true}},
    {"f32", {.seed = 22, .plain = PGL_F32, .plain_linears = true}},
    {"f16 rows", {.seed = 20, .plain_linears = true}},
    {"f32 scales of int8", {.seed = 23, .f32_scales = true}},
    {"s_in, s_out", {.seed = 24, .real_scales = true}},
    {"coded bias", {.seed = 25, .coded_bias = true}},
    {"attention bias", {.seed = 26, .attention_bias = true}},
    {"no shared expert", {.seed = 27, .no_shared = true}},
    {"tied head", {.seed = 28, .tied = true}},
    {"ties", {.seed = 41, .ties = true}},
    {"draft, borrowed experts", {.seed = 29, .draft = true}},
    {"draft, own experts", {.seed = 30, .draft = true, .draft_own_experts = true}},
    {"dense int8", {.seed = 31, .dense = true}},
    {"dense coded", {.seed = 32, .dense = true, .coded_linears = true, .k_gate_up = 4}},
    {"dense coded, all parts",
     {.seed = 33,
      .dense = true,
      .coded_linears = true,
      .coded_bias = true,
      .real_scales = true,
      .draft = true}},
    {"experts, all linears coded", {.seed = 34, .coded_linears = true}},
};
#define N_MODELS (sizeof MODELS / sizeof MODELS[0])

enum {
    MODELS_N = 11,
    MODELS_FIRST = 4
}; /* a prompt of MODELS_FIRST tokens, then the rest in one piece: few rows and several */

/* subject but for its name, model and draft head */
static inline void models_check(const conf_subject *how, const char *name, const synthetic_options *options) {
    synthetic_model *s = synthetic_new(options);
    pgl_model model;
    pgl_error err = {PGL_OK, ""};
    if (pgl_model_init(&model, &s->config, &s->weights, &err) != PGL_OK)
        fail_msg("%s: %s", name, err.text);
    conf_subject subject = *how;
    subject.name = name;
    subject.context = &model;
    subject.has_draft = options->draft;
    pgl_backend *backend = conf_open(&subject);
    conf_row *r = conf_row_new(backend);
    pgl_reference *seq = NULL;
    assert_int_equal(pgl_reference_open(&model, false, &seq, &err), PGL_OK);
    int32_t tokens[MODELS_N];
    bool bits = pgl_backend_get_caps(backend)->bit_stable;
    size_t vocab = model.config->vocab_size, hidden = model.config->hidden_size,
           layers = model.config->n_layers;
    conf_tokens(backend, options->seed, tokens, MODELS_N);
    pgl_reference_outputs want = {.logits = malloc(MODELS_N * vocab * sizeof(float)),
                                  .hidden = malloc((layers + 1) * MODELS_N * hidden * sizeof(float))};
    assert_int_equal(pgl_reference_forward(seq, tokens, MODELS_N, &want, &err), PGL_OK);
    conf_reset(backend, 0);
    const uint32_t cuts[] = {0, 1, MODELS_FIRST, MODELS_N};
    for (size_t c = 0; c < 3; c++) {
        uint32_t at = cuts[c], n = cuts[c + 1] - at;
        conf_row_set(r, 0, tokens + at, n, PGL_WANT_LOGITS | (options->draft ? PGL_WANT_DRAFT_LOGITS : 0));
        conf_run_row(backend, r);
        for (uint32_t i = 0; i < n; i++)
            conf_same_floats(bits, name, r->logits + i * vocab, want.logits + (at + i) * vocab, vocab);
    }
    if (options->draft) {
        float *logits = malloc(MODELS_N * vocab * sizeof(float));
        pgl_reference_draft_rows draft = {.hidden = want.hidden + layers * MODELS_N * hidden,
                                          .tokens = tokens + 1,
                                          .n = MODELS_N - 1,
                                          .logits = logits};
        assert_int_equal(pgl_reference_draft(seq, &draft, &err), PGL_OK);
        for (size_t i = 0; i < MODELS_N - MODELS_FIRST - 1; i++)
            conf_same_floats(bits, "draft logits", r->draft_logits + i * vocab,
                             logits + (MODELS_FIRST + i) * vocab, vocab);
        free(logits);
    }
    free(want.logits);
    free(want.hidden);
    pgl_reference_close(seq);
    conf_row_free(r);
    conf_close(backend);
    synthetic_free(s);
}

#endif
