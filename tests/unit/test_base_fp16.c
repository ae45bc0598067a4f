/* fp16 conversions against the compiler's own _Float16, over every half and the floats around every rounding
 * point. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fp16.h"

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void every_half_survives_a_round_trip(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = pgl_f16_to_f32((pgl_f16)h);
        pgl_f16 back = pgl_f32_to_f16(f);
        if ((h & 0x7FFFu) > 0x7C00u)
            assert_true((back & 0x7FFFu) > 0x7C00u);
        else
            assert_int_equal(back, h);
    }
}

/* Between two neighbouring halves: the lower, the upper, and the tie to the even one. */
static void rounds_to_nearest_even_between_neighbours(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7BFFu; h++) {
        double low = (double)pgl_f16_to_f32((pgl_f16)h), high = (double)pgl_f16_to_f32((pgl_f16)(h + 1));
        float middle = (float)((low + high) / 2);
        uint32_t u;
        memcpy(&u, &middle, sizeof u);
        assert_int_equal(pgl_f32_to_f16(middle), (h & 1u) ? h + 1 : h);
        assert_int_equal(pgl_f32_to_f16(float_of(u - 1)), h);
        assert_int_equal(pgl_f32_to_f16(float_of(u + 1)), h + 1);
        assert_int_equal(pgl_f32_to_f16(-middle), 0x8000u | ((h & 1u) ? h + 1 : h));
    }
    assert_int_equal(pgl_f32_to_f16(65519.996F), 0x7BFF);
    assert_int_equal(pgl_f32_to_f16(65520.0F), 0x7C00);
}

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    assert_int_equal(pgl_f32_to_bf16(float_of(0x3F808000u)), 0x3F80);
    assert_int_equal(pgl_f32_to_bf16(float_of(0x3F818000u)), 0x3F82);
    assert_int_equal(pgl_f32_to_bf16(float_of(0x3F808001u)), 0x3F81);
    assert_true((pgl_f32_to_bf16(float_of(0x7F800001u)) & 0x7FFFu) > 0x7F80u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_survives_a_round_trip),
        cmocka_unit_test(rounds_to_nearest_even_between_neighbours),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
