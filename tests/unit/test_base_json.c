/* Reading JSON strictly, and finding the text of values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"

static pgl_json_span span_of(const char *text) {
    return (pgl_json_span){text, strlen(text)};
}

static void assert_span(pgl_json_span span, const char *text) {
    assert_non_null(span.text);
    assert_int_equal(span.size, strlen(text));
    assert_memory_equal(span.text, text, span.size);
}

static void assert_refused_n(const char *text, size_t size, const pgl_json_options *options,
                             pgl_status status, const char *part) {
    pgl_error err;
    json_t *value = (json_t *)&err;
    assert_int_equal(pgl_json_parse(text, size, options, &value, &err), status);
    assert_null(value);
    if (strstr(err.text, part) == NULL)
        fail_msg("message \"%s\" lacks \"%s\"", err.text, part);
}

static void assert_refused(const char *text, const char *part) {
    assert_refused_n(text, strlen(text), NULL, PGL_E_INVALID, part);
}

static json_t *parse_with(const char *text, const pgl_json_options *options) {
    pgl_error err;
    json_t *value = NULL;
    if (pgl_json_parse(text, strlen(text), options, &value, &err) != PGL_OK)
        fail_msg("%s: %s", text, err.text);
    return value;
}

static void faults_are_named_with_line_and_column(void **state) {
    (void)state;
    assert_refused("{\"a\":,}", "JSON: line 1, column 6: a value was expected");
    assert_refused("{\n \"a\": 1,\n}", "line 3, column 1: a member's name in quotes");
    assert_refused("{\"é\": tru}", "line 1, column 7: a value was expected");
    assert_refused("", "there is none");
    assert_refused(" \n", "there is none");
    assert_refused("[1,2", "the text ends inside an array");
    assert_refused("{\"a\"", "the text ends inside an object");
    assert_refused("\"abc", "the text ends inside a string");
    assert_refused("[1 2]", "line 1, column 4: ',' or ']'");
    assert_refused("{\"a\":1 \"b\":2}", "',' or '}'");
    assert_refused("[1,]", "a value was expected");
    assert_refused("01", "a leading zero");
    assert_refused("-", "a number without digits");
    assert_refused("1.", "without digits after its point");
    assert_refused("1e+", "without digits in its exponent");
    assert_refused("[NaN]", "a value was expected");
    assert_refused("\"\t\"", "a control character");
    assert_refused("\"\\x\"", "an unknown escape");
    assert_refused("\"\\u12\"", "four hexadecimal digits");
    assert_refused("{} {}", "line 1, column 4: more text after the end");
    assert_refused("\xEF\xBB\xBF{}", "byte order mark");
    assert_refused("\"\xC0\xAF\"", "not UTF-8");
    assert_refused("\"\xB0\xA1\"", "not UTF-8");
    assert_refused("{\"a\":1,\"a\":2}", "duplicate");
    const pgl_json_options named = {.name = "config.json"};
    assert_refused_n("{", 1, &named, PGL_E_INVALID, "config.json: line 1");
}

static void surrogates_and_nul_are_refused_or_replaced(void **state) {
    (void)state;
    assert_refused("\"\\ud83d\"", "column 2: half of a surrogate pair");
    assert_refused("\"\\ude00x\"", "half of a surrogate pair");
    assert_refused("\"\\ud83d\\ud83d\"", "half of a surrogate pair");
    assert_refused("\"a\\u0000b\"", "\\u0000");
    const pgl_json_options loose = {.replace_surrogates = true, .allow_nul = true};
    json_t *v = parse_with("[\"\\ud83dx\\ude00\\ud83d\\ude00\", \"a\\u0000b\"]", &loose);
    assert_string_equal(json_string_value(json_array_get(v, 0)), "\xEF\xBF\xBDx\xEF\xBF\xBD\xF0\x9F\x98\x80");
    assert_int_equal(json_string_length(json_array_get(v, 1)), 3);
    json_decref(v);
}

static void nesting_and_size_are_limited(void **state) {
    (void)state;
    char text[4096];
    memset(text, '[', 2048);
    memset(text + 2048, ']', 2048);
    assert_refused_n(text, 4096, NULL, PGL_E_INVALID,
                     "line 1, column 129: objects and arrays are nested too deeply (at "
                     "most 128 levels)");
    json_t *v = NULL;
    assert_int_equal(pgl_json_parse(text + 2048 - 128, 256, NULL, &v, NULL), PGL_OK);
    json_decref(v);
    const pgl_json_options three = {.max_depth = 3};
    assert_refused_n("[[[{}]]]", 8, &three, PGL_E_INVALID, "at most 3 levels");
    json_decref(parse_with("[[[]]]", &three));
    const pgl_json_options huge = {.max_depth = 1000000};
    assert_refused_n(text, 4096, &huge, PGL_E_INVALID, "at most 1024 levels");
    const pgl_json_options small = {.max_bytes = 3};
    assert_refused_n("[1,2]", 5, &small, PGL_E_TOO_LARGE, "5 bytes, at most 3");
}

static void last_of_two_keys_wins_when_asked(void **state) {
    (void)state;
    const pgl_json_options o = {.last_wins = true};
    const char *text = "{\"a\":1,\"\\u0061\":2}";
    json_t *v = parse_with(text, &o);
    assert_int_equal(json_integer_value(json_object_get(v, "a")), 2);
    json_decref(v);
    assert_span(pgl_json_raw_member(span_of(text), "a"), "2");
}

static void numbers_beyond_the_machine_do_not_refuse_the_document(void **state) {
    (void)state;
    json_t *v =
        parse_with("{\"a\":18446744073709551616,\"b\":-9223372036854775808,\"c\":[1e999,-1e999,1e-999],"
                   "\"d\":9223372036854775807,\"e\":-9223372036854775809, \"f\":\"x\"}",
                   NULL);
    assert_true(json_is_real(json_object_get(v, "a")));
    assert_true(json_real_value(json_object_get(v, "a")) == 18446744073709551616.0);
    assert_true(json_is_integer(json_object_get(v, "b")));
    assert_true(json_integer_value(json_object_get(v, "b")) == INT64_MIN);
    assert_true(json_integer_value(json_object_get(v, "d")) == INT64_MAX);
    assert_true(json_real_value(json_object_get(v, "e")) == -9223372036854775808.0);
    json_t *c = json_object_get(v, "c");
    assert_true(json_real_value(json_array_get(c, 0)) == 1.7976931348623157e308);
    assert_true(json_real_value(json_array_get(c, 1)) == -1.7976931348623157e308);
    assert_true(json_real_value(json_array_get(c, 2)) == 0.0);
    assert_string_equal(json_string_value(json_object_get(v, "f")), "x");
    json_decref(v);

    char digits[1000];
    memset(digits, '9', sizeof digits);
    digits[sizeof digits - 1] = 0;
    v = parse_with(digits, NULL);
    assert_true(json_real_value(v) == 1.7976931348623157e308);
    json_decref(v);
}

static void the_text_of_a_value_is_found_as_written(void **state) {
    (void)state;
    const char *text = " { \"n\" : 0.1, \"tools\": [ {\"max\": 18446744073709551616 } , [1.50,\t2e0] ],\n"
                       "\"k\\u00e9\\n\": \"v\\u00e9\" ,\"n\":0.10 } ";
    pgl_json_span doc = span_of(text);
    assert_span(pgl_json_raw_member(doc, "n"), "0.10");
    const pgl_json_step max[] = {{"tools", 0}, {NULL, 0}, {"max", 0}};
    assert_span(pgl_json_raw(doc, max, 3), "18446744073709551616");
    const pgl_json_step second[] = {{"tools", 0}, {NULL, 1}};
    assert_span(pgl_json_raw(doc, second, 2), "[1.50,\t2e0]");
    const pgl_json_step past[] = {{"tools", 0}, {NULL, 2}};
    assert_null(pgl_json_raw(doc, past, 2).text);
    const pgl_json_step wrong[] = {{"n", 0}, {"x", 0}};
    assert_null(pgl_json_raw(doc, wrong, 2).text);
    const pgl_json_step index_of_object[] = {{NULL, 0}};
    assert_null(pgl_json_raw(doc, index_of_object, 1).text);
    assert_span(pgl_json_raw(doc, NULL, 0), "{ \"n\" : 0.1, \"tools\": [ {\"max\": 18446744073709551616 } , "
                                            "[1.50,\t2e0] ],\n\"k\\u00e9\\n\": \"v\\u00e9\" ,\"n\":0.10 }");
    pgl_json_span v = pgl_json_raw_member(doc, "k\xC3\xA9\n");
    assert_span(v, "\"v\\u00e9\"");
    pgl_buf out = PGL_BUF_INIT;
    assert_true(pgl_json_raw_string(v, &out));
    assert_string_equal(pgl_buf_text(&out), "v\xC3\xA9");
    pgl_buf_fini(&out);
    assert_null(pgl_json_raw_member(doc, "k").text);
    assert_null(pgl_json_raw_member((pgl_json_span){NULL, 0}, "k").text);
}

static void walking_stops_at_a_fault(void **state) {
    (void)state;
    const char *texts[] = {"[1,2", "[1,2,", "[1,2}", "{\"a\":1,\"b\":2", "{\"a\":1,\"b\":2 x"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        pgl_json_iter it = pgl_json_iter_begin(span_of(texts[i]));
        pgl_json_span key, value;
        int n = 0;
        while (pgl_json_iter_next(&it, &key, &value))
            n++;
        assert_int_equal(n, 2);
        assert_false(pgl_json_iter_next(&it, &key, &value));
    }
    const char *none[] = {"", " ", "1", "\"a\"", "[]", "{ }", "[", "{", "{1:2}", "nul"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        pgl_json_iter it = pgl_json_iter_begin(span_of(none[i]));
        pgl_json_span key, value;
        assert_false(pgl_json_iter_next(&it, &key, &value));
    }
}

static void what_is_written_reads_back(void **state) {
    (void)state;
    char all[256];
    for (int i = 0; i < 128; i++)
        all[i] = (char)i;
    memcpy(all + 128, "\xC3\xA9\xF0\x9F\x98\x80\xE2\x80\xA8", 9);
    pgl_buf out = PGL_BUF_INIT;
    assert_true(pgl_json_put_string(&out, all, 137));
    pgl_json_span span = {out.data, out.size};
    pgl_buf back = PGL_BUF_INIT;
    assert_true(pgl_json_raw_string(span, &back));
    assert_int_equal(back.size, 137);
    assert_memory_equal(back.data, all, 137);
    const pgl_json_options nul = {.allow_nul = true};
    json_t *v = NULL;
    assert_int_equal(pgl_json_parse(out.data, out.size, &nul, &v, NULL), PGL_OK);
    assert_int_equal(json_string_length(v), 137);
    json_decref(v);

    pgl_buf_clear(&out);
    assert_true(pgl_json_put_string(&out, "a\xFF\xE2\x80", 4));
    assert_string_equal(out.data, "\"a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");

    pgl_buf_clear(&out);
    const double numbers[] = {0.1, 1.0 / 3, 5, -0.0, 1e22, 1.7976931348623157e308, 5e-324};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        pgl_buf_clear(&out);
        assert_true(pgl_json_put_number(&out, numbers[i]));
        double got = strtod(out.data, NULL);
        assert_memory_equal(&got, &numbers[i], sizeof got);
    }
    pgl_buf_clear(&out);
    assert_true(pgl_json_put_number(&out, 0.1));
    assert_string_equal(out.data, "0.1");
    pgl_buf_clear(&out);
    assert_true(pgl_json_put_number(&out, -1.0 / 0.0));
    assert_string_equal(out.data, "null");
    pgl_buf_fini(&out);
    pgl_buf_fini(&back);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_named_with_line_and_column),
        cmocka_unit_test(surrogates_and_nul_are_refused_or_replaced),
        cmocka_unit_test(nesting_and_size_are_limited),
        cmocka_unit_test(last_of_two_keys_wins_when_asked),
        cmocka_unit_test(numbers_beyond_the_machine_do_not_refuse_the_document),
        cmocka_unit_test(the_text_of_a_value_is_found_as_written),
        cmocka_unit_test(walking_stops_at_a_fault),
        cmocka_unit_test(what_is_written_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
