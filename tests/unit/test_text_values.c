/* Values of tools' parameters: whatever is taken for a string from its beginning on is one at its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/output_tools.h"

static void a_value_that_began_as_a_string_ends_as_one(void **state) {
    (void)state;
    static const char *const VALUES[] = {"2222222222222222222222222222222222222222222222222222222222222222222"
                                         "2", /* more than 64 bytes of a number */
                                         "-1.5e3",
                                         "12 monkeys",
                                         "null",
                                         "nullable",
                                         " null ",
                                         "None",
                                         "True",
                                         "truest",
                                         "{\"a\": \"b\"}",
                                         "{a}",
                                         "[1, 2]",
                                         "\"quoted\"",
                                         "  two words ",
                                         "",
                                         " ",
                                         "1e999",
                                         "0.5"};
    for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
        size_t size = strlen(VALUES[i]);
        for (unsigned types = PGL_TYPE_STRING; types < 128; types += 2) {
            pgl_buf whole = PGL_BUF_INIT, string = PGL_BUF_INIT;
            assert_true(pgl_tool_put_value(&whole, VALUES[i], size, types));
            assert_true(pgl_json_put_string(&string, VALUES[i], size));
            for (size_t n = 0; n <= size; n++)
                if (pgl_tool_is_string(VALUES[i], n, types) && strcmp(whole.data, string.data) != 0)
                    fail_msg("'%s' of types %u: a string after %zu bytes, and in the end %s", VALUES[i],
                             types, n, whole.data);
            pgl_buf_fini(&whole);
            pgl_buf_fini(&string);
        }
    }
}

static void integers_need_no_fraction_and_may_be_long(void **state) {
    (void)state;
    static const char *const TAKEN[] = {"5", "-0", "5.0", "1e3", "123456789012345678901234567890"};
    static const char *const NOT[] = {"5.5", "1e-3", "x", "null", "\"5\""};
    for (size_t i = 0; i < 5; i++) {
        pgl_buf out = PGL_BUF_INIT;
        assert_true(pgl_tool_put_value(&out, TAKEN[i], strlen(TAKEN[i]), PGL_TYPE_INTEGER));
        assert_string_equal(out.data, TAKEN[i]);
        pgl_buf_clear(&out);
        assert_true(pgl_tool_put_value(&out, NOT[i], strlen(NOT[i]), PGL_TYPE_INTEGER));
        assert_int_equal(out.data[0], '"');
        pgl_buf_fini(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_that_began_as_a_string_ends_as_one),
        cmocka_unit_test(integers_need_no_fraction_and_may_be_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
