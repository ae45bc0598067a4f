/* The contract's exponential and what is built on it, against double precision on a dense sample of all
 * floats. */
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

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* |got - want| in units of the last place of want as a float; subnormal results count in 2^-149. */
static double ulps(float got, double want) {
    float near = (float)want;
    if (isinf(near) || isinf(got))
        return isinf(near) && got == near ? 0 : (isinf(got) && want > 3.4028234e38 * 0.9999998 ? 1 : 1e9);
    int e;
    frexp(want, &e);
    double unit = ldexp(1.0, e - 24 < -149 ? -149 : e - 24);
    return fabs((double)got - want) / unit;
}

/* PGL_TEST_ALL_FLOATS=1 visits every float (minutes); by default every 1021st. */
static uint32_t stride(void) {
    return getenv("PGL_TEST_ALL_FLOATS") != NULL ? 1 : 1021;
}

static void exponential_is_within_its_bound(void **state) {
    (void)state;
    double worst = 0;
    float worst_at = 0;
    for (uint64_t u = 0; u < 0x100000000u; u += stride()) {
        float x = float_of((uint32_t)u);
        if (isnan(x)) {
            assert_true(isnan(pgl_expf(x)));
            continue;
        }
        double error = ulps(pgl_expf(x), exp((double)x));
        if (error > worst) {
            worst = error;
            worst_at = x;
        }
    }
    print_message("exp: at most %.3f ulp, at %a\n", worst, (double)worst_at);
    assert_true(worst <= 1.01);
}

static void exponential_at_the_edges(void **state) {
    (void)state;
    assert_true(pgl_expf(0.0F) == 1.0F && pgl_expf(-0.0F) == 1.0F);
    assert_true(pgl_expf(-104.0F) == 0.0F && pgl_expf(-1e30F) == 0.0F && pgl_expf(-INFINITY) == 0.0F);
    assert_true(!signbit(pgl_expf(-INFINITY)));
    assert_true(pgl_expf(88.73F) == INFINITY && pgl_expf(1e30F) == INFINITY &&
                pgl_expf(INFINITY) == INFINITY);
    assert_true(isfinite(pgl_expf(88.7228F)) && pgl_expf(88.7228F) > 3.4e38F);
    assert_true(pgl_expf(-103.9F) == 0x1p-149F);
    assert_true(isnan(pgl_expf(NAN)) && isnan(pgl_expf(-NAN)));
}

static void softplus_is_within_its_bound(void **state) {
    (void)state;
    double worst = 0;
    float worst_at = 0;
    for (uint64_t u = 0; u < 0x100000000u; u += stride()) {
        float x = float_of((uint32_t)u);
        if (isnan(x)) {
            assert_true(isnan(pgl_softplus(x)));
            continue;
        }
        double d = (double)x, want = (d > 0 ? d : 0) + log1p(exp(-fabs(d)));
        double error = ulps(pgl_softplus(x), want);
        if (error > worst) {
            worst = error;
            worst_at = x;
        }
    }
    print_message("softplus: at most %.3f ulp, at %a\n", worst, (double)worst_at);
    assert_true(worst <= 1.8);
    assert_true(pgl_softplus(INFINITY) == INFINITY && pgl_softplus(-INFINITY) == 0.0F);
}

static void sigmoid_and_silu_are_close(void **state) {
    (void)state;
    double worst_sigmoid = 0, worst_silu = 0;
    for (uint64_t u = 0; u < 0x100000000u; u += 1021) {
        float x = float_of((uint32_t)u);
        if (isnan(x)) {
            assert_true(isnan(pgl_sigmoid(x)) && isnan(pgl_silu(x)));
            continue;
        }
        if (x < -87.0F) { /* the quotient underflows or the exponential overflows: a stated zero */
            assert_true(pgl_sigmoid(x) <= 0x1p-125F && pgl_sigmoid(x) >= 0.0F);
            continue;
        }
        double s = 1 / (1 + exp(-(double)x));
        double a = ulps(pgl_sigmoid(x), s), b = isinf(x) ? 0 : ulps(pgl_silu(x), (double)x * s);
        worst_sigmoid = a > worst_sigmoid ? a : worst_sigmoid;
        worst_silu = b > worst_silu ? b : worst_silu;
    }
    print_message("sigmoid: at most %.3f ulp; silu: %.3f\n", worst_sigmoid, worst_silu);
    assert_true(worst_sigmoid <= 3.0 && worst_silu <= 4.0);
    assert_true(pgl_sigmoid(INFINITY) == 1.0F && pgl_sigmoid(-INFINITY) == 0.0F && pgl_sigmoid(0.0F) == 0.5F);
    assert_true(pgl_silu(INFINITY) == INFINITY);
}

/* s may differ by one unit in the last place of fp16 from the golden run's exponential; h follows from s. */
static void swiglu_is_the_golden_one_within_a_unit_of_s(void **state) {
    (void)state;
    golden_file g = golden_open(PGL_GOLDENS "/codec.safetensors");
    const uint16_t *in = golden_tensor(&g, "swiglu.in", "F16", NULL);
    const uint16_t *out = golden_tensor(&g, "swiglu.out", "F16", NULL);
    int different = 0;
    for (int row = 0; row < 4; row++) {
        for (int i = 0; i < 128; i++) {
            float gate = pgl_f16_to_f32(in[row * 256 + i]), up = pgl_f16_to_f32(in[row * 256 + 128 + i]);
            uint16_t s = pgl_f32_to_f16(pgl_silu(gate)), want = out[row * 128 + i];
            different += pgl_f32_to_f16(pgl_f16_to_f32(s) * up) != want;
            int near = 0;
            for (int d = -1; d <= 1; d++)
                near |= pgl_f32_to_f16(pgl_f16_to_f32((uint16_t)(s + d)) * up) == want;
            assert_true(near);
        }
    }
    print_message("swiglu: %d of 512 differ\n", different);
    assert_true(different <= 8);
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponential_is_within_its_bound),
        cmocka_unit_test(exponential_at_the_edges),
        cmocka_unit_test(softplus_is_within_its_bound),
        cmocka_unit_test(sigmoid_and_silu_are_close),
        cmocka_unit_test(swiglu_is_the_golden_one_within_a_unit_of_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
