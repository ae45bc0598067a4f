/* Coded and dense linears against the codec goldens and against the contract's formulas written out slowly. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/codec.h"
#include "golden_file.h"
#include "model/linear.h"
#include "naive_model.h"
#include "test_random.h"

#define CODEC_GOLDEN PGL_GOLDENS "/codec.safetensors"

static void *get(size_t n, size_t size) {
    void *p = calloc(n, size);
    assert_non_null(p);
    return p;
}

static void coded_run(const pgl_coded *coded, uint32_t expert, const float *x, float *y, uint32_t n,
                      bool exact) {
    float *scratch = get(pgl_rows_scratch(coded->in, n), sizeof *scratch);
    pgl_rows rows = {x, y, n, exact, scratch};
    pgl_coded_forward(coded, expert, &rows);
    free(scratch);
}

static void linear_run(const pgl_linear *linear, const float *x, float *y, uint32_t n, bool exact) {
    float *scratch = get(pgl_rows_scratch(linear->in, n), sizeof *scratch);
    pgl_rows rows = {x, y, n, exact, scratch};
    pgl_linear_forward(linear, &rows);
    free(scratch);
}

static pgl_coded golden_coded(const golden_file *g, uint32_t k) {
    char name[16];
    pgl_coded coded = {.n_experts = 1, .in = 256, .out = 256, .k = k};
    snprintf(name, sizeof name, "k%u.code", k);
    coded.code = golden_tensor(g, name, "I16", NULL);
    snprintf(name, sizeof name, "k%u.rin", k);
    coded.rin = golden_tensor(g, name, "F16", NULL);
    snprintf(name, sizeof name, "k%u.rout", k);
    coded.rout = golden_tensor(g, name, "F16", NULL);
    return coded;
}

static void golden_x(const golden_file *g, uint32_t k, float x[5 * 256]) {
    char name[16];
    snprintf(name, sizeof name, "k%u.x", k);
    const uint16_t *half = golden_tensor(g, name, "F16", NULL);
    for (int i = 0; i < 5 * 256; i++)
        x[i] = pgl_f16_to_f32(half[i]);
}

static void golden_transformed_input_is_bit_exact(void **state) {
    (void)state;
    golden_file g = golden_open(CODEC_GOLDEN);
    for (uint32_t k = 2; k <= 3; k++) {
        pgl_coded coded = golden_coded(&g, k);
        const uint16_t *xh = golden_tensor(&g, k == 2 ? "k2.xh" : "k3.xh", "F16", NULL);
        float x[5 * 256];
        golden_x(&g, k, x);
        for (int row = 0; row < 5; row++) {
            float h[256];
            for (int i = 0; i < 256; i++)
                h[i] = x[row * 256 + i] * pgl_f16_to_f32(((const uint16_t *)coded.rin)[i]);
            pgl_hadamard(h, 256);
            for (int i = 0; i < 256; i++)
                assert_int_equal(pgl_f32_to_f16(h[i] * PGL_HADAMARD_SCALE), xh[row * 256 + i]);
        }
    }
    golden_close(&g);
}

static void golden_outputs_are_bit_exact(void **state) {
    (void)state;
    golden_file g = golden_open(CODEC_GOLDEN);
    int zeros = 0;
    for (uint32_t k = 2; k <= 3; k++) {
        pgl_coded coded = golden_coded(&g, k);
        const uint16_t *expected = golden_tensor(&g, k == 2 ? "k2.y" : "k3.y", "F16", NULL);
        const uint16_t *rout = coded.rout;
        float x[5 * 256], y[5 * 256];
        golden_x(&g, k, x);
        coded_run(&coded, 0, x, y, 5, false);
        for (int i = 0; i < 5 * 256; i++) {
            assert_int_equal(pgl_f32_to_f16(y[i]), expected[i]);
            assert_true(y[i] == pgl_f16_to_f32(expected[i])); /* nothing below fp16 is left in it */
            if ((rout[i % 256] & 0x7FFF) == 0) {
                assert_true(y[i] == 0.0F);
                zeros++;
            }
        }
    }
    print_message("%d outputs have a zero scale\n", zeros);
    golden_close(&g);
}

static void exact_form_is_the_effective_matrix(void **state) {
    (void)state;
    golden_file g = golden_open(CODEC_GOLDEN);
    for (uint32_t k = 2; k <= 3; k++) {
        pgl_coded coded = golden_coded(&g, k);
        const double *m = golden_tensor(&g, k == 2 ? "k2.effective" : "k3.effective", "F64", NULL);
        float x[5 * 256], y[5 * 256];
        golden_x(&g, k, x);
        coded_run(&coded, 0, x, y, 5, true);
        double difference = 0, norm = 0;
        for (int row = 0; row < 5; row++) {
            for (int o = 0; o < 256; o++) {
                double want = 0;
                for (int i = 0; i < 256; i++)
                    want += (double)x[row * 256 + i] * m[i * 256 + o];
                difference += pow((double)y[row * 256 + o] - want, 2);
                norm += want * want;
            }
        }
        assert_true(sqrt(difference / norm) < 2e-6);
    }
    golden_close(&g);
}

/* A stack of coded linears at odd addresses, with every optional part. */
typedef struct stack {
    unsigned char *bytes[6];
    pgl_coded coded;
} stack;

static void *odd_copy(stack *s, int i, const void *data, size_t n) {
    s->bytes[i] = get(n + 1, 1);
    memcpy(s->bytes[i] + 1, data, n);
    return s->bytes[i] + 1;
}

static stack random_stack(uint64_t *seed, uint32_t experts, uint32_t in, uint32_t out, uint32_t k) {
    stack s = {.coded = {.n_experts = experts, .in = in, .out = out, .k = k}};
    size_t code_bytes = (size_t)experts * in * out * k / 8;
    unsigned char *code = get(code_bytes, 1);
    for (size_t i = 0; i < code_bytes; i++)
        code[i] = (unsigned char)random_next(seed);
    s.coded.code = odd_copy(&s, 0, code, code_bytes);
    free(code);
    size_t n_in = (size_t)experts * in, n_out = (size_t)experts * out;
    size_t largest = n_in > n_out ? n_in : n_out;
    uint16_t *half = get(largest, 2);
    float *full = get(largest, 4);
    for (size_t i = 0; i < n_in; i++)
        half[i] = pgl_f32_to_f16(random_float(seed) > 0 ? 0.03F : -0.05F);
    s.coded.rin = odd_copy(&s, 1, half, n_in * 2);
    for (size_t i = 0; i < n_out; i++)
        half[i] = i % 7 == 3 ? 0x8000 : pgl_f32_to_f16(random_float(seed) * 0.1F);
    s.coded.rout = odd_copy(&s, 2, half, n_out * 2);
    for (size_t i = 0; i < n_in; i++)
        full[i] = 1.0F + 0.5F * random_float(seed);
    s.coded.s_in = odd_copy(&s, 3, full, n_in * 4);
    for (size_t i = 0; i < n_out; i++)
        full[i] = 1.0F + 0.5F * random_float(seed);
    s.coded.s_out = odd_copy(&s, 4, full, n_out * 4);
    for (size_t i = 0; i < n_out; i++)
        half[i] = pgl_f32_to_f16(random_float(seed));
    s.coded.bias = odd_copy(&s, 5, half, n_out * 2);
    free(half);
    free(full);
    return s;
}

static void free_stack(stack *s) {
    for (int i = 0; i < 6; i++)
        free(s->bytes[i]);
}

static void every_k_expert_and_option_is_the_formula(void **state) {
    (void)state;
    uint64_t seed = 5;
    static naive_model naive;
    for (uint32_t k = 1; k <= 8; k++) {
        stack s = random_stack(&seed, 3, 256, 128, k);
        for (uint32_t variant = 0; variant < 8; variant++) {
            pgl_coded c = s.coded;
            c.s_in = variant & 1 ? c.s_in : NULL;
            c.s_out = variant & 2 ? c.s_out : NULL;
            c.bias = variant & 4 ? c.bias : NULL;
            for (uint32_t e = 0; e < 3; e++) {
                float x[256], y[128], rounded[128];
                double wide[256], want[128], difference = 0, norm = 0, far = 0;
                for (int i = 0; i < 256; i++)
                    wide[i] = (double)(x[i] = random_float(&seed));
                coded_run(&c, e, x, y, 1, true);
                coded_run(&c, e, x, rounded, 1, false);
                naive_coded(&naive, &c, e, wide, want);
                for (int i = 0; i < 128; i++) {
                    difference += pow((double)y[i] - want[i], 2);
                    far += pow((double)rounded[i] - want[i], 2);
                    norm += want[i] * want[i];
                    assert_true(rounded[i] == pgl_round_f16(rounded[i]));
                }
                assert_true(sqrt(difference / norm) < 2e-6);
                assert_true(sqrt(far / norm) < 2e-3);
                assert_true(sqrt(far / norm) > 1e-5); /* the contract does round */
            }
        }
        naive_forget(&naive);
        free_stack(&s);
    }
}

static void a_zero_scale_gives_exactly_zero(void **state) {
    (void)state;
    uint64_t seed = 6;
    stack s = random_stack(&seed, 2, 128, 256, 2);
    s.coded.bias = NULL;
    float x[128], y[256];
    for (int i = 0; i < 128; i++)
        x[i] = 100 * random_float(&seed);
    coded_run(&s.coded, 1, x, y, 1, false);
    int zeros = 0;
    for (int o = 0; o < 256; o++) {
        if ((256 + o) % 7 == 3) {
            assert_true(y[o] == 0.0F);
            zeros++;
        }
    }
    assert_true(zeros > 30);
    free_stack(&s);
}

/* f16(f16(y) + bias) is not f16(y + bias): the first rounding is seen where bias and y differ in size. */
static void a_bias_is_a_second_rounding(void **state) {
    (void)state;
    uint64_t seed = 7;
    stack s = random_stack(&seed, 1, 128, 128, 3);
    float x[128], plain[128], biased[128];
    for (int i = 0; i < 128; i++)
        x[i] = random_float(&seed);
    pgl_coded without = s.coded;
    without.bias = NULL;
    coded_run(&without, 0, x, plain, 1, false);
    coded_run(&s.coded, 0, x, biased, 1, false);
    for (int o = 0; o < 128; o++) {
        float bias = pgl_read_f32(s.coded.bias, PGL_F16, (uint64_t)o);
        assert_true(biased[o] == pgl_round_f16(plain[o] + bias));
    }
    free_stack(&s);
}

static void rows_together_equal_rows_alone(void **state) {
    (void)state;
    uint64_t seed = 8;
    stack s = random_stack(&seed, 2, 256, 256, 3);
    float x[5 * 256], together[5 * 256], alone[256];
    for (int i = 0; i < 5 * 256; i++)
        x[i] = random_float(&seed);
    for (int exact = 0; exact < 2; exact++) {
        coded_run(&s.coded, 1, x, together, 5, exact != 0);
        for (int row = 0; row < 5; row++) {
            coded_run(&s.coded, 1, x + row * 256, alone, 1, exact != 0);
            assert_memory_equal(alone, together + row * 256, sizeof alone);
        }
    }
    free_stack(&s);
}

static void overflow_and_nan_stay_visible(void **state) {
    (void)state;
    uint64_t seed = 9;
    stack s = random_stack(&seed, 1, 128, 128, 2);
    float x[128] = {0}, y[128];
    x[5] = NAN;
    coded_run(&s.coded, 0, x, y, 1, false);
    assert_true(isnan(y[0]));
    x[5] = 1e30F; /* xh overflows fp16: infinity, then NaN in the sums */
    coded_run(&s.coded, 0, x, y, 1, false);
    assert_true(!isfinite(y[0]));
    free_stack(&s);
}

static void golden_int8_products_are_close(void **state) {
    (void)state;
    golden_file g = golden_open(CODEC_GOLDEN);
    pgl_linear linear = {
        .kind = PGL_LINEAR_INT8, .in = 256, .out = 64, .dtype = PGL_I8, .scale_dtype = PGL_F16};
    linear.data = golden_tensor(&g, "int8.w", "I8", NULL);
    linear.scale = golden_tensor(&g, "int8.scale", "F16", NULL);
    const uint16_t *half = golden_tensor(&g, "int8.x", "F16", NULL);
    const double *want = golden_tensor(&g, "int8.y_f64", "F64", NULL);
    float x[3 * 256], y[3 * 64];
    for (int i = 0; i < 3 * 256; i++)
        x[i] = pgl_f16_to_f32(half[i]);
    for (int exact = 0; exact < 2; exact++) {
        linear_run(&linear, x, y, 3, exact != 0);
        double difference = 0, norm = 0;
        for (int i = 0; i < 3 * 64; i++) {
            difference += pow((double)y[i] - want[i], 2);
            norm += want[i] * want[i];
        }
        assert_true(sqrt(difference / norm) < 5e-7);
    }
    golden_close(&g);
}

static void dense_rows_follow_the_contract_bit_for_bit(void **state) {
    (void)state;
    enum { IN = 272, OUT = 5 };
    uint64_t seed = 11;
    static const pgl_dtype types[] = {PGL_F16, PGL_BF16, PGL_F32, PGL_I8};
    for (int t = 0; t < 4; t++) {
        unsigned char data[1 + IN * OUT * 4];
        uint32_t size = pgl_dtype_size(types[t]);
        float scales[OUT];
        pgl_linear linear = {
            .kind = PGL_LINEAR_PLAIN, .in = IN, .out = OUT, .data = data + 1, .dtype = types[t]};
        float w[OUT][IN];
        for (int o = 0; o < OUT; o++) {
            scales[o] = 0.01F * random_float(&seed);
            for (int i = 0; i < IN; i++) {
                float f = random_float(&seed) * 1e-3F;
                uint16_t h = types[t] == PGL_F16 ? pgl_f32_to_f16(f) : pgl_f32_to_bf16(f);
                int8_t w8 = (int8_t)(random_next(&seed) >> 56);
                const void *from = types[t] == PGL_F32 ? (const void *)&f : (const void *)&h;
                if (types[t] == PGL_I8)
                    from = &w8;
                memcpy(data + 1 + (size_t)(o * IN + i) * size, from, size);
                w[o][i] = types[t] == PGL_F32    ? f
                          : types[t] == PGL_F16  ? pgl_f16_to_f32(h)
                          : types[t] == PGL_BF16 ? pgl_bf16_to_f32(h)
                                                 : pgl_round_f16((float)w8 * scales[o]);
            }
        }
        if (types[t] == PGL_I8) {
            linear.kind = PGL_LINEAR_INT8;
            linear.scale = scales;
            linear.scale_dtype = PGL_F32;
        }
        float bias[OUT] = {0.5F, -0.25F, 1e-4F, 3.0F, 0.0F};
        float x[IN], xr[IN], y[OUT];
        for (int i = 0; i < IN; i++) {
            x[i] = random_float(&seed);
            xr[i] = pgl_round_f16(x[i]);
        }
        for (int with_bias = 0; with_bias < 2; with_bias++) {
            linear.bias = with_bias ? (pgl_vec){bias, PGL_F32, OUT} : (pgl_vec){0};
            for (int exact = 0; exact < 2; exact++) {
                linear_run(&linear, x, y, 1, exact != 0);
                for (int o = 0; o < OUT; o++) {
                    float want = pgl_dot16(exact ? x : xr, w[o], IN);
                    want = with_bias ? want + bias[o] : want;
                    assert_memory_equal(&want, &y[o], sizeof want);
                }
            }
        }
    }
}

static void no_linear_gives_zeros(void **state) {
    (void)state;
    pgl_linear linear = {.kind = PGL_LINEAR_NONE, .in = 16, .out = 4};
    float x[16] = {1}, y[4] = {1, 2, 3, 4};
    linear_run(&linear, x, y, 1, false);
    for (int i = 0; i < 4; i++)
        assert_true(y[i] == 0.0F);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_transformed_input_is_bit_exact),
        cmocka_unit_test(golden_outputs_are_bit_exact),
        cmocka_unit_test(exact_form_is_the_effective_matrix),
        cmocka_unit_test(every_k_expert_and_option_is_the_formula),
        cmocka_unit_test(a_zero_scale_gives_exactly_zero),
        cmocka_unit_test(a_bias_is_a_second_rounding),
        cmocka_unit_test(rows_together_equal_rows_alone),
        cmocka_unit_test(overflow_and_nan_stay_visible),
        cmocka_unit_test(golden_int8_products_are_close),
        cmocka_unit_test(dense_rows_follow_the_contract_bit_for_bit),
        cmocka_unit_test(no_linear_gives_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
