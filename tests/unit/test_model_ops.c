/* The steps of the forward pass: each order of operations that ops.h promises, written out slowly and compared bit for
 * bit, and what must hold at the edges. (That they are the right formulas: test_reference_synthetic.c.) */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/codec.h"
#include "model/ops.h"
#include "test_random.h"

enum { WIDE = 300 };

static void fill(uint64_t *seed, float *x, size_t n, float scale) {
    for (size_t i = 0; i < n; i++)
        x[i] = scale * random_float(seed);
}

static void assert_bits(const float *a, const float *b, size_t n) {
    assert_memory_equal(a, b, n * sizeof *a);
}

static void norm_keeps_its_order(void **state) {
    (void)state;
    uint64_t seed = 1;
    float x[WIDE], w[WIDE], y[WIDE], want[WIDE];
    for (uint32_t n = 1; n <= WIDE; n += 13) {
        fill(&seed, x, n, 3);
        fill(&seed, w, n, 0.5F);
        pgl_vec vec = {w, PGL_F32, n};
        float mean = pgl_dot16(x, x, n) / (float)n;
        float r = 1.0F / sqrtf(mean + 1e-6F);
        for (uint32_t i = 0; i < n; i++) {
            float scaled = x[i] * r;
            want[i] = scaled * (1.0F + w[i]);
        }
        pgl_norm(x, &vec, 1e-6F, n, y);
        assert_bits(y, want, n);
        pgl_norm(x, &vec, 1e-6F, n, x); /* in place */
        assert_bits(x, want, n);
    }
}

static void weights_of_norms_may_be_of_any_type(void **state) {
    (void)state;
    float x[4] = {1, 2, 3, 4}, y[4], z[4], f32[4] = {0.5F, -0.25F, 0, 1};
    uint16_t f16[4], bf16[4];
    for (int i = 0; i < 4; i++) {
        f16[i] = pgl_f32_to_f16(f32[i]);
        bf16[i] = pgl_f32_to_bf16(f32[i]);
    }
    pgl_norm(x, &(pgl_vec){f32, PGL_F32, 4}, 0, 4, y);
    pgl_norm(x, &(pgl_vec){f16, PGL_F16, 4}, 0, 4, z);
    assert_bits(y, z, 4);
    pgl_norm(x, &(pgl_vec){bf16, PGL_BF16, 4}, 0, 4, z);
    assert_bits(y, z, 4);
}

static void convolution_takes_taps_in_rising_order(void **state) {
    (void)state;
    enum { WIDTH = 5, KERNEL = 4, STEPS = 7 };
    uint64_t seed = 2;
    float w[WIDTH * KERNEL], u[STEPS][WIDTH], taps[(KERNEL - 1) * WIDTH] = {0}, out[WIDTH];
    fill(&seed, w, WIDTH * KERNEL, 1);
    fill(&seed, u[0], STEPS * WIDTH, 2);
    pgl_vec vec = {w, PGL_F32, WIDTH * KERNEL};
    for (int t = 0; t < STEPS; t++) {
        pgl_conv_step(&vec, WIDTH, KERNEL, taps, u[t], out);
        for (int c = 0; c < WIDTH; c++) {
            float acc = 0;
            for (int j = 0; j < KERNEL; j++) {
                int from = t - KERNEL + 1 + j;
                acc = fmaf(w[c * KERNEL + j], from >= 0 ? u[from][c] : 0.0F, acc);
            }
            float want = pgl_silu(acc);
            assert_bits(&out[c], &want, 1);
        }
        for (int j = 0; j < KERNEL - 1 && t - j >= 0; j++) /* the newest is the last row */
            assert_bits(taps + (KERNEL - 2 - j) * WIDTH, u[t - j], WIDTH);
    }
    float none[1], one = 1.5F;
    pgl_conv_step(&(pgl_vec){w, PGL_F32, 1}, 1, 1, none, &one, out); /* a kernel of one has no taps */
    float want = pgl_silu(fmaf(w[0], one, 0.0F));
    assert_bits(out, &want, 1);
}

static void delta_rule_keeps_its_order(void **state) {
    (void)state;
    enum { DK = 24, DV = 19 };
    uint64_t seed = 3;
    float s[DK * DV], slow[DK * DV], q[DK], k[DK], v[DV], o[DV], scratch[DV];
    fill(&seed, s, DK * DV, 1);
    memcpy(slow, s, sizeof s);
    for (int t = 0; t < 5; t++) {
        fill(&seed, q, DK, 1);
        fill(&seed, k, DK, 1);
        fill(&seed, v, DV, 1);
        float decay = 0.9F, beta = 0.7F;
        pgl_delta_head head = {s, q, k, v, decay, beta, DK, DV, o, scratch};
        pgl_delta_step(&head);
        for (int j = 0; j < DV; j++) {
            float m = 0, out = 0;
            for (int i = 0; i < DK; i++) {
                slow[i * DV + j] = slow[i * DV + j] * decay;
                m = fmaf(k[i], slow[i * DV + j], m);
            }
            float d = (v[j] - m) * beta;
            for (int i = 0; i < DK; i++) {
                slow[i * DV + j] = fmaf(k[i], d, slow[i * DV + j]);
                out = fmaf(q[i], slow[i * DV + j], out);
            }
            assert_bits(&o[j], &out, 1);
        }
        assert_bits(s, slow, DK * DV);
    }
}

static void attention_keeps_its_order_for_every_length(void **state) {
    (void)state;
    enum { DIM = 40, STRIDE = 50, MOST = 70 };
    uint64_t seed = 4;
    static float keys[MOST * STRIDE], values[MOST * STRIDE];
    float q[DIM], p[MOST], o[DIM], slow[MOST];
    fill(&seed, keys, MOST * STRIDE, 2);
    fill(&seed, values, MOST * STRIDE, 2);
    fill(&seed, q, DIM, 2);
    for (size_t n = 1; n <= MOST; n++) {
        pgl_attention_head head = {q, keys, values, STRIDE, n, DIM, p, o};
        pgl_attention_step(&head);
        float scale = 1.0F / sqrtf((float)DIM), top = -INFINITY, lane[16] = {0};
        for (size_t j = 0; j < n; j++) {
            slow[j] = pgl_dot16(q, keys + j * STRIDE, DIM) * scale;
            top = fmaxf(top, slow[j]);
        }
        for (size_t j = 0; j < n; j++) {
            slow[j] = pgl_expf(slow[j] - top);
            lane[j % 16] += slow[j];
        }
        float inverse = 1.0F / pgl_lanes_sum(lane);
        for (size_t c = 0; c < DIM; c++) {
            float acc = 0;
            for (size_t j = 0; j < n; j++)
                acc = fmaf(slow[j], values[j * STRIDE + c], acc);
            acc = acc * inverse;
            assert_bits(&o[c], &acc, 1);
        }
        if (n == 1)
            assert_bits(o, values, DIM); /* one key: its value itself */
    }
}

static void attention_survives_scores_that_overflow_the_exponential(void **state) {
    (void)state;
    float q[16], keys[2 * 16], values[2 * 16], p[2], o[16];
    for (int i = 0; i < 16; i++) {
        q[i] = 100;
        keys[i] = 100;
        keys[16 + i] = -100;
        values[i] = 1;
        values[16 + i] = 2;
    }
    pgl_attention_head head = {q, keys, values, 16, 2, 16, p, o};
    pgl_attention_step(&head);
    for (int i = 0; i < 16; i++)
        assert_true(o[i] == 1.0F);
}

static void rope_turns_half_split_pairs(void **state) {
    (void)state;
    enum { ROTARY = 64, DIM = 256 };
    float x[DIM], y[DIM], cosine[ROTARY / 2], sine[ROTARY / 2];
    uint64_t seed = 5;
    for (uint64_t position = 0; position < 262144; position = position * 3 + 1) {
        fill(&seed, x, DIM, 1);
        memcpy(y, x, sizeof x);
        pgl_rope_angles(1e7, ROTARY, position, cosine, sine);
        pgl_rope(y, ROTARY, cosine, sine);
        for (int i = 0; i < ROTARY / 2; i++) {
            double angle = (double)position * pow(1e7, -2.0 * i / ROTARY);
            double a = (double)x[i], b = (double)x[i + 32];
            assert_true(fabs((double)y[i] - (a * cos(angle) - b * sin(angle))) < 2e-7);
            assert_true(fabs((double)y[i + 32] - (a * sin(angle) + b * cos(angle))) < 2e-7);
            float first = fmaf(-x[i + 32], sine[i], x[i] * cosine[i]);
            float second = fmaf(x[i], sine[i], x[i + 32] * cosine[i]);
            assert_bits(&y[i], &first, 1);
            assert_bits(&y[i + 32], &second, 1);
        }
        assert_bits(y + ROTARY, x + ROTARY, DIM - ROTARY); /* the rest is left alone */
        if (position == 0)
            assert_bits(x, y, DIM);
    }
}

static void routing_orders_ties_and_weighs(void **state) {
    (void)state;
    float logits[8] = {1, 3, 2, 3, -1, 3, 2, 0}, weights[8];
    int32_t experts[8];
    static const int32_t order[8] = {1, 3, 5, 2, 6, 0, 7, 4};
    for (uint32_t k = 1; k <= 8; k++) {
        pgl_route(logits, 8, k, experts, weights);
        assert_memory_equal(experts, order, k * sizeof *order);
        float sum = 0, p[8];
        for (uint32_t s = 0; s < k; s++) {
            p[s] = pgl_expf(logits[order[s]] - 3);
            sum = sum + p[s];
        }
        for (uint32_t s = 0; s < k; s++) {
            float want = p[s] / sum;
            assert_bits(&weights[s], &want, 1);
        }
    }
}

static void routing_of_nan_stays_in_range(void **state) {
    (void)state;
    float logits[5] = {NAN, INFINITY, -INFINITY, NAN, 0}, weights[5];
    int32_t experts[5];
    for (uint32_t k = 1; k <= 5; k++) {
        pgl_route(logits, 5, k, experts, weights);
        int seen[5] = {0};
        for (uint32_t s = 0; s < k; s++) {
            assert_true(experts[s] >= 0 && experts[s] < 5);
            assert_int_equal(seen[experts[s]]++, 0);
        }
    }
}

static void coded_swiglu_rounds_twice_and_overflows_to_infinity(void **state) {
    (void)state;
    float gate[4] = {1.2345678F, 60000, -3.3F, 100}, up[4] = {0.7654321F, 60000, 1e-7F, -70000}, h[4];
    pgl_swiglu_coded(gate, up, 4, false, h);
    for (int i = 0; i < 4; i++) {
        float want = pgl_round_f16(pgl_round_f16(pgl_silu(gate[i])) * up[i]);
        assert_bits(&h[i], &want, 1);
    }
    assert_true(h[1] == INFINITY && h[3] == -INFINITY);
    pgl_swiglu_coded(gate, up, 4, true, h);
    for (int i = 0; i < 4; i++)
        assert_true(h[i] == pgl_silu(gate[i]) * up[i]);
}

static void decay_stays_between_zero_and_one(void **state) {
    (void)state;
    for (float a_log = -20; a_log < 20; a_log += 0.5F) {
        for (float a = -200; a <= 200; a += 7.0F) {
            float d = pgl_delta_decay(a_log, 0.25F, a);
            assert_true(d >= 0 && d <= 1);
            double want =
                exp(-exp((double)a_log) * (fmax((double)a + 0.25, 0) + log1p(exp(-fabs((double)a + 0.25)))));
            assert_true(fabs((double)d - want) < 1e-5);
        }
    }
}

static void gated_norm_and_l2_norm_keep_their_order(void **state) {
    (void)state;
    uint64_t seed = 6;
    float o[48], z[48], w[48], y[48], x[48];
    fill(&seed, o, 48, 2);
    fill(&seed, z, 48, 3);
    fill(&seed, w, 48, 1);
    pgl_gated_norm(o, z, &(pgl_vec){w, PGL_F32, 48}, 1e-6F, 48, y);
    float r = 1.0F / sqrtf(pgl_dot16(o, o, 48) / 48.0F + 1e-6F);
    for (int i = 0; i < 48; i++) {
        float want = ((o[i] * r) * w[i]) * pgl_silu(z[i]);
        assert_bits(&y[i], &want, 1);
    }
    memcpy(x, o, sizeof x);
    pgl_l2_norm(x, 48, 0.125F);
    r = 1.0F / sqrtf(pgl_dot16(o, o, 48) + 1e-6F);
    for (int i = 0; i < 48; i++) {
        float want = (o[i] * r) * 0.125F;
        assert_bits(&x[i], &want, 1);
    }
    memset(x, 0, sizeof x);
    pgl_l2_norm(x, 48, 1); /* a zero vector stays one */
    for (int i = 0; i < 48; i++)
        assert_true(x[i] == 0.0F);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_keeps_its_order),
        cmocka_unit_test(weights_of_norms_may_be_of_any_type),
        cmocka_unit_test(convolution_takes_taps_in_rising_order),
        cmocka_unit_test(delta_rule_keeps_its_order),
        cmocka_unit_test(attention_keeps_its_order_for_every_length),
        cmocka_unit_test(attention_survives_scores_that_overflow_the_exponential),
        cmocka_unit_test(rope_turns_half_split_pairs),
        cmocka_unit_test(routing_orders_ties_and_weighs),
        cmocka_unit_test(routing_of_nan_stays_in_range),
        cmocka_unit_test(coded_swiglu_rounds_twice_and_overflows_to_infinity),
        cmocka_unit_test(decay_stays_between_zero_and_one),
        cmocka_unit_test(gated_norm_and_l2_norm_keep_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
