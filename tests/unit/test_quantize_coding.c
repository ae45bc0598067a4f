/* Coding one matrix: what each ingredient gains, and that the leaves mean what the decoder makes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "model/linear.h"
#include "quantize/coding.h"
#include "quantize/hessian.h"

#define IN 256u
#define OUT 128u
#define ROWS 512u

static uint64_t rng_state = 1;

static double uniform(void) {
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(rng_state >> 11) + 0.5) * 0x1p-53;
}

static double gauss(void) {
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

typedef struct fixture {
    float w[IN * OUT];
    double moments[IN * IN];
    unsigned char code[(IN / 16) * (OUT / 16) * 32 * 3];
    pgl_f16 rin[IN], rout[OUT];
} fixture;

/* Weights with uneven channels and outliers; inputs that are correlated and uneven. */
static fixture *make(void) {
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    rng_state = 5;
    float row_size[IN], x[IN];
    for (uint32_t i = 0; i < IN; i++)
        row_size[i] = (float)exp(0.7 * gauss());
    for (uint32_t j = 0; j < OUT; j++) {
        float size = 0.02F * (float)exp(0.7 * gauss());
        for (uint32_t i = 0; i < IN; i++)
            f->w[i * OUT + j] = row_size[i] * size * (float)gauss();
    }
    for (uint32_t i = 0; i < 20; i++)
        f->w[(uint32_t)(uniform() * IN * OUT)] = 1.0F;
    for (uint32_t r = 0; r < ROWS; r++) {
        double common = gauss();
        for (uint32_t i = 0; i < IN; i++)
            x[i] = (float)((gauss() + 0.8 * common * sin(i)) * (i % 32 == 3 ? 6 : 1));
        pgl_hessian_add(f->moments, IN, x, 1);
    }
    pgl_hessian_mirror(f->moments, IN);
    return f;
}

static pgl_coding_report code(fixture *f, const pgl_coding_options *options, bool moments) {
    pgl_coder *coder;
    pgl_error err;
    pgl_coding_report report = {0};
    assert_int_equal(pgl_coder_open(options->k, options->rounds, IN, OUT, &coder, &err), PGL_OK);
    pgl_coding_target target = {f->w, moments ? f->moments : NULL, IN, OUT};
    pgl_coding_result result = {f->code, f->rin, f->rout};
    assert_int_equal(pgl_code_matrix(coder, options, &target, &result, &report, &err), PGL_OK);
    pgl_coder_close(coder);
    return report;
}

static void each_ingredient_lowers_the_error(void **state) {
    (void)state;
    fixture *f = make();
    pgl_coding_options all = pgl_coding_defaults(2);
    pgl_coding_report full = code(f, &all, true);
    pgl_coding_options o = all;
    o.no_feedback = true;
    double no_feedback = code(f, &o, true).output_error;
    o = all;
    o.no_scales = true;
    double no_scales = code(f, &o, true).output_error;
    o = all;
    o.no_refit = true;
    double no_refit = code(f, &o, true).output_error;
    o = all;
    o.no_signs = true;
    double no_signs = code(f, &o, true).output_error;
    print_message("output error: all %.5f, no feedback %.5f, no scales %.5f, no refit %.5f, no signs %.5f\n",
                  full.output_error, no_feedback, no_scales, no_refit, no_signs);
    assert_true(full.output_error < no_feedback);
    assert_true(full.output_error < no_scales);
    assert_true(full.output_error <= no_refit);
    assert_true(full.output_error > 0);
    free(f);
}

/* The program's own linear, run on the leaves, gives x times the reported effective matrix. */
static void the_leaves_decode_to_the_effective_matrix(void **state) {
    (void)state;
    fixture *f = make();
    pgl_coding_options options = pgl_coding_defaults(3);
    pgl_coding_report report = code(f, &options, true);
    float *effective = calloc((size_t)IN * OUT, sizeof *effective);
    float *scratch = calloc(pgl_rows_scratch(IN, 1) + 4096, sizeof *scratch);
    pgl_coding_result result = {f->code, f->rin, f->rout};
    pgl_coding_effective(&result, 3, IN, OUT, effective);
    pgl_coded coded = {
        .code = f->code, .rin = f->rin, .rout = f->rout, .n_experts = 1, .in = IN, .out = OUT, .k = 3};
    double error = 0, power = 0;
    for (uint32_t i = 0; i < IN * OUT; i++) {
        error += pow((double)effective[i] - (double)f->w[i], 2);
        power += pow((double)f->w[i], 2);
    }
    assert_true(fabs(error / power - report.weight_error) < 1e-4);
    float x[IN], y[OUT];
    for (uint32_t i = 0; i < IN; i++)
        x[i] = (float)gauss();
    pgl_rows rows = {.x = x, .y = y, .n = 1, .exact = true, .scratch = scratch};
    pgl_coded_forward(&coded, 0, &rows);
    for (uint32_t j = 0; j < OUT; j++) {
        double expected = 0, size = 0;
        for (uint32_t i = 0; i < IN; i++) {
            expected += (double)x[i] * (double)effective[i * OUT + j];
            size += fabs((double)x[i] * (double)effective[i * OUT + j]);
        }
        assert_true(fabs(expected - (double)y[j]) < 1e-4 * size + 1e-6);
    }
    free(scratch);
    free(effective);
    free(f);
}

static void a_dead_output_stays_exactly_zero(void **state) {
    (void)state;
    fixture *f = make();
    for (uint32_t i = 0; i < IN; i++)
        f->w[i * OUT + 17] = 0;
    pgl_coding_options options = pgl_coding_defaults(2);
    code(f, &options, false);
    assert_int_equal(f->rout[17], 0);
    assert_int_not_equal(f->rout[16], 0);
    free(f);
}

static void weights_that_are_not_finite_are_refused(void **state) {
    (void)state;
    fixture *f = make();
    f->w[5] = NAN;
    pgl_coder *coder;
    pgl_error err;
    pgl_coding_report report;
    pgl_coding_options options = pgl_coding_defaults(2);
    assert_int_equal(pgl_coder_open(2, 1, IN, OUT, &coder, &err), PGL_OK);
    pgl_coding_target target = {f->w, NULL, IN, OUT};
    pgl_coding_result result = {f->code, f->rin, f->rout};
    assert_int_equal(pgl_code_matrix(coder, &options, &target, &result, &report, &err), PGL_E_NUMERIC);
    pgl_coder_close(coder);
    free(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_ingredient_lowers_the_error),
        cmocka_unit_test(the_leaves_decode_to_the_effective_matrix),
        cmocka_unit_test(a_dead_output_stays_exactly_zero),
        cmocka_unit_test(weights_that_are_not_finite_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
