/* The CPU backend against the scalar reference, bit for bit, on random models for what the goldens do not cover: every
 * K, BF16 and F32 rows, F32 scales, s_in and s_out, biases, dense models, all linears coded, tied heads, routing ties,
 * a draft head with experts of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "conformance.h"
#include "model/model.h"
#include "model/reference.h"
#include "synthetic_model.h"

enum { N = 11, FIRST = 4 }; /* a prompt of FIRST tokens, then the rest in one piece: few rows and several */

static void check_on(const char *name, const char *isa, const synthetic_options *options) {
    synthetic_model *s = synthetic_new(options);
    pgl_model model;
    pgl_error err = {PGL_OK, ""};
    if (pgl_model_init(&model, &s->config, &s->weights, &err) != PGL_OK)
        fail_msg("%s: %s", name, err.text);
    conf_subject subject = {.name = name,
                            .open = conf_open_cpu,
                            .context = &model,
                            .isa = isa,
                            .n_threads = 2,
                            .has_draft = options->draft};
    pgl_backend *backend = conf_open(&subject);
    conf_row *r = conf_row_new(backend);
    pgl_reference *seq = NULL;
    assert_int_equal(pgl_reference_open(&model, false, &seq, &err), PGL_OK);
    int32_t tokens[N];
    size_t vocab = model.config->vocab_size, hidden = model.config->hidden_size,
           layers = model.config->n_layers;
    conf_tokens(backend, options->seed, tokens, N);
    pgl_reference_outputs want = {.logits = malloc(N * vocab * sizeof(float)),
                                  .hidden = malloc((layers + 1) * N * hidden * sizeof(float))};
    assert_int_equal(pgl_reference_forward(seq, tokens, N, &want, &err), PGL_OK);
    conf_reset(backend, 0);
    const uint32_t cuts[] = {0, 1, FIRST, N};
    for (size_t c = 0; c < 3; c++) {
        uint32_t at = cuts[c], n = cuts[c + 1] - at;
        conf_row_set(r, 0, tokens + at, n, PGL_WANT_LOGITS | (options->draft ? PGL_WANT_DRAFT_LOGITS : 0));
        conf_run_row(backend, r);
        conf_same_bits(name, r->logits, want.logits + at * vocab, n * vocab * sizeof(float));
    }
    if (options->draft) {
        float *logits = malloc(N * vocab * sizeof(float));
        pgl_reference_draft_rows draft = {
            .hidden = want.hidden + layers * N * hidden, .tokens = tokens + 1, .n = N - 1, .logits = logits};
        assert_int_equal(pgl_reference_draft(seq, &draft, &err), PGL_OK);
        conf_same_bits("draft logits", r->draft_logits, logits + FIRST * vocab,
                       (N - FIRST - 1) * vocab * sizeof(float));
        free(logits);
    }
    free(want.logits);
    free(want.hidden);
    pgl_reference_close(seq);
    conf_row_free(r);
    pgl_backend_close(backend);
    synthetic_free(s);
}

/* On every instruction set but the scalar one, whose kernels are the contract's own functions. */
static void check(const char *name, const synthetic_options *options) {
    const pgl_kernels *all[PGL_MOST_KERNELS];
    size_t n = pgl_kernels_all(all), vectors = n > 1 ? n - 1 : n;
    for (size_t i = 0; i < vectors; i++)
        check_on(name, all[i]->name, options);
}

static void experts_of_every_k(void **state) {
    (void)state;
    for (uint32_t k = 1; k <= 8; k++)
        check("experts of K", &(synthetic_options){.seed = k, .k_gate_up = k, .k_down = 9 - k});
}

static void weights_of_every_type(void **state) {
    (void)state;
    check("bf16", &(synthetic_options){.seed = 21, .plain = PGL_BF16, .plain_linears = true});
    check("f32", &(synthetic_options){.seed = 22, .plain = PGL_F32, .plain_linears = true});
    check("f16 rows", &(synthetic_options){.seed = 20, .plain_linears = true});
    check("f32 scales of int8", &(synthetic_options){.seed = 23, .f32_scales = true});
    check("s_in, s_out", &(synthetic_options){.seed = 24, .real_scales = true});
    check("coded bias", &(synthetic_options){.seed = 25, .coded_bias = true});
    check("attention bias", &(synthetic_options){.seed = 26, .attention_bias = true});
    check("no shared expert", &(synthetic_options){.seed = 27, .no_shared = true});
    check("tied head", &(synthetic_options){.seed = 28, .tied = true});
    check("ties", &(synthetic_options){.seed = 41, .ties = true});
}

static void draft_heads(void **state) {
    (void)state;
    check("draft, borrowed experts", &(synthetic_options){.seed = 29, .draft = true});
    check("draft, own experts", &(synthetic_options){.seed = 30, .draft = true, .draft_own_experts = true});
}

static void dense_and_fully_coded_models(void **state) {
    (void)state;
    check("dense int8", &(synthetic_options){.seed = 31, .dense = true});
    check("dense coded",
          &(synthetic_options){.seed = 32, .dense = true, .coded_linears = true, .k_gate_up = 4});
    check("dense coded, all parts", &(synthetic_options){.seed = 33,
                                                         .dense = true,
                                                         .coded_linears = true,
                                                         .coded_bias = true,
                                                         .real_scales = true,
                                                         .draft = true});
    check("experts, all linears coded", &(synthetic_options){.seed = 34, .coded_linears = true});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_of_every_k),
        cmocka_unit_test(weights_of_every_type),
        cmocka_unit_test(draft_heads),
        cmocka_unit_test(dense_and_fully_coded_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
