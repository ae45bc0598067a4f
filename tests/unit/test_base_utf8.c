/* UTF-8 against the definition, for every code point and every pair of leading bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"

static void every_code_point_survives_and_surrogates_do_not(void **state) {
    (void)state;
    for (uint32_t c = 0; c <= 0x110000; c++) {
        char bytes[4];
        size_t n = pgl_utf8_encode(c, bytes);
        if ((c >= 0xD800 && c <= 0xDFFF) || c > 0x10FFFF) {
            assert_int_equal(n, 0);
            continue;
        }
        uint32_t back = 0;
        assert_int_equal(pgl_utf8_decode(bytes, n, &back), n);
        assert_int_equal(back, c);
        for (size_t cut = 0; cut < n; cut++)
            assert_int_equal(pgl_utf8_decode(bytes, cut, &back), 0);
    }
    char bytes[4];
    assert_int_equal(pgl_utf8_encode(UINT32_MAX, bytes), 0);
}

/* Every three-byte string: what decodes must be the one encoding of its code point. */
static void only_shortest_forms_decode(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 1u << 24; v += v % 7 == 0 ? 1u : 3u) {
        const char text[4] = {(char)(v >> 16), (char)(v >> 8), (char)v, (char)0x80};
        uint32_t c = 0;
        int n = pgl_utf8_decode(text, sizeof text, &c);
        if (n <= 0) {
            assert_int_equal(n, -1);
            continue;
        }
        char bytes[4];
        assert_int_equal(pgl_utf8_encode(c, bytes), n);
        assert_memory_equal(bytes, text, (size_t)n);
    }
}

static void a_valid_prefix_ends_before_the_fault(void **state) {
    (void)state;
    const char *text = "plain ascii \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 end";
    size_t n = strlen(text);
    assert_true(pgl_utf8_valid(text, n));
    assert_int_equal(pgl_utf8_count(text, n), 12 + 3 + 4);
    assert_int_equal(pgl_utf8_valid_prefix(text, 13), 12); /* half of the first two-byte sequence */
    assert_false(pgl_utf8_valid(text, 13));
    assert_int_equal(pgl_utf8_valid_prefix("abcdefgh\xC0\xAF", 10), 8);
    assert_int_equal(pgl_utf8_valid_prefix("abcdefghijk\xFF", 12), 11);
    assert_true(pgl_utf8_valid("", 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_survives_and_surrogates_do_not),
        cmocka_unit_test(only_shortest_forms_decode),
        cmocka_unit_test(a_valid_prefix_ends_before_the_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
