/* What a schema says is held to exactly, or refused by its keyword. */
#include "base/buf.h"
#include "base/clock.h"
#include "constraint_world.h"

static void numbers_do_not_run_on(void **state) {
    (void)state;
    takes(SCHEMA, "{\"type\":\"number\"}", "-12345678901234567890.12345678901234567890e-99");
    refuses(SCHEMA, "{\"type\":\"number\"}", "123456789012345678901234567890");
    refuses(SCHEMA, "{\"type\":\"number\"}", "1.00000000000000000000000000000000000");
    refuses(SCHEMA, "{\"type\":\"number\"}", "1e999");
    refuses(SCHEMA, "{}", "[1, 123456789012345678901234567890]");
    takes(SCHEMA, "{\"type\":\"string\"}", "\"123456789012345678901234567890\"");
    takes(SCHEMA, "{\"const\":0.5}", "0.5");
}

static void excluded_bounds_are_excluded(void **state) {
    (void)state;
    const char *s = "{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":0.5}";
    refuses(SCHEMA, s, "0");
    refuses(SCHEMA, s, "0.0");
    refuses(SCHEMA, s, "-0");
    takes(SCHEMA, s, "0.25");
    takes(SCHEMA, s, "0.5");
    s = "{\"type\":\"number\",\"minimum\":-0.5,\"exclusiveMaximum\":0}";
    refuses(SCHEMA, s, "0");
    refuses(SCHEMA, s, "-0");
    takes(SCHEMA, s, "-0.25");
    s = "{\"allOf\":[{\"type\":\"number\",\"exclusiveMinimum\":1},{\"maximum\":1.5}]}";
    refuses(SCHEMA, s, "1");
    takes(SCHEMA, s, "1.25");
    takes(SCHEMA, "{\"type\":\"integer\",\"exclusiveMinimum\":0}", "1");
    takes(SCHEMA, "{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}",
          "17");
    refuses(SCHEMA, "{\"type\":\"number\",\"minimum\":0,\"maximum\":1e-6}", "0.0000010000000000000002");
}

/* "\u0061" is another way to write the name "a". */
static void names_have_one_spelling(void **state) {
    (void)state;
    const char *s = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"c\\\"d\":{\"type\":"
                    "\"boolean\"}},"
                    "\"required\":[\"c\\\"d\"],\"additionalProperties\":{\"type\":\"string\"}}";
    refuses(SCHEMA, s, "{\"c\\\"d\":true,\"\\u0061\":\"x\"}");
    refuses(SCHEMA, s, "{\"c\\\"d\":true,\"a\":\"x\"}");
    takes(SCHEMA, s, "{\"a\":1,\"c\\\"d\":true,\"b\":\"\\u0061\\n\"}");
    s = "{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"integer\"}},\"additionalProperties\":"
        "{\"type\":"
        "\"array\",\"items\":{\"type\":\"string\"}}}";
    refuses(SCHEMA, s, "{\"\\u0061\":[]}");
    takes(SCHEMA, s, "{\"b\":[\"\\u0061\",\"\\\\\"],\"ab\":7}");
    takes(SCHEMA, "{}", "{\"a\\n\":\"\\\"\"}");
}

static void dates_are_those_of_the_calendar(void **state) {
    (void)state;
    const char *s = "{\"type\":\"string\",\"format\":\"date\"}";
    static const char *const RIGHT[] = {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\"",
                                        "\"0004-02-29\""};
    static const char *const WRONG[] = {"\"2023-02-29\"", "\"1900-02-29\"", "\"0000-01-01\"",
                                        "\"2024-04-31\"", "\"2024-13-01\""};
    for (size_t i = 0; i < 4; i++)
        takes(SCHEMA, s, RIGHT[i]);
    for (size_t i = 0; i < 5; i++)
        refuses(SCHEMA, s, WRONG[i]);
    s = "{\"type\":[\"string\",\"null\"],\"format\":\"date-time\",\"pattern\":\"Z$\"}";
    takes(SCHEMA, s, "\"2024-02-29T23:59:59.5Z\"");
    takes(SCHEMA, s, "null");
    refuses(SCHEMA, s, "\"2024-02-29T23:59:60Z\"");
    refuses(SCHEMA, s, "\"2024-02-29T23:59:59+01:00\"");
    takes(SCHEMA, "{\"properties\":{\"format\":{\"const\":\"date\"}},\"type\":\"object\"}",
          "{\"format\":\"date\"}");
}

static void refusals_name_the_keyword(void **state) {
    (void)state;
    static const struct {
        const char *schema, *keyword;
    } CASES[] = {
        {"{\"const\":9007199254740993}", "const"},
        {"{\"enum\":[1,[{\"a\":12345678901234567890}]]}", "enum"},
        {"{\"type\":\"number\",\"minimum\":1e20}", "minimum"},
        {"{\"type\":\"number\",\"exclusiveMaximum\":1e-300}", "exclusiveMaximum"},
        {"{\"type\":\"number\",\"maximum\":0.12345678901234567}", "maximum"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":0.00005}", "exclusiveMinimum"},
        {"{\"type\":\"number\",\"multipleOf\":0}", "multipleOf"},
        {"{\"allOf\":[{\"multipleOf\":100000},{\"multipleOf\":99999}],\"type\":\"integer\"}", "multipleOf"},
        {"{\"type\":\"object\",\"minProperties\":2}", "minProperties"},
        {"{\"type\":\"object\",\"patternProperties\":{\"a\":{}},\"additionalProperties\":false,"
         "\"minProperties\":3}",
         "minProperties"},
        {"{\"type\":\"array\",\"items\":{\"properties\":{\"pattern\":{\"type\":\"string\",\"pattern\":\"(?=a)"
         "b\"}}}}",
         "pattern"},
        {"{\"type\":\"string\",\"pattern\":\"[a\"}", "pattern"},
        {"{\"type\":\"string\",\"format\":\"date\",\"maxLength\":5}", "format, maxLength"},
        {"{\"type\":\"string\",\"format\":\"colour\"}", "format"},
        {"{\"not\":{}}", "not"},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems"},
        {"{\"if\":{\"type\":\"integer\"},\"then\":{\"minimum\":1}}", "\"if\""},
        {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}", "dependentRequired"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "oneOf"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        pgl_error err;
        pgl_status status = status_of(SCHEMA, CASES[i].schema, &err);
        if (status != PGL_E_INVALID || strstr(err.text, CASES[i].keyword) == NULL)
            fail_msg("%s: expected a refusal that names %s, found %s", CASES[i].schema, CASES[i].keyword,
                     status == PGL_OK ? "that it is taken" : err.text);
    }
    takes(SCHEMA, "{\"type\":\"array\",\"uniqueItems\":false,\"items\":{\"const\":1}}", "[1,1]");
    takes(SCHEMA,
          "{\"type\":\"object\",\"required\":[\"a\"],\"minProperties\":2,\"additionalProperties\":{\"const\":"
          "1}}",
          "{\"a\":1,\"b\":1}");
}

#define PET(kind, member)                                                                                    \
    "{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"" kind "\"}," member                         \
    "},\"required\":[\"kind\"],\"additionalProperties\":false}"

/* As generators write unions with a discriminator. */
static void one_of_several_is_taken_where_a_member_tells_them_apart(void **state) {
    (void)state;
    const char *s = "{\"$defs\":{\"Cat\":" PET("cat", "\"lives\":{\"const\":9}") ",\"Dog\":" PET(
        "dog", "\"good\":{\"const\":true}") "},\"oneOf\":[{\"$ref\":\"#/$defs/Cat\"},{\"$ref\":\"#/$defs/"
                                            "Dog\"}],\"discriminator\":{\"propertyName\":\"kind\"}}";
    takes(SCHEMA, s, "{\"kind\":\"cat\",\"lives\":9}");
    takes(SCHEMA, s, "{\"kind\":\"dog\",\"good\":true}");
    refuses(SCHEMA, s, "{\"kind\":\"dog\",\"lives\":9}");
    pgl_error err;
    static const char *const MEETING[] = {
        "{\"$defs\":{\"C\":" PET("cat", "\"a\":{}") ",\"D\":" PET(
            "cat", "\"b\":{}") "},\"oneOf\":[{\"$ref\":\"#/$defs/C\"},{\"$ref\":\"#/$defs/D\"}]}",
        "{\"$defs\":{\"C\":{\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":[\"k\"]},\"D\":{"
        "\"properties\":{\"k\":{\"const\":\"b\"}},"
        "\"required\":[\"k\"]}},\"oneOf\":[{\"$ref\":\"#/$defs/C\"},{\"$ref\":\"#/$defs/D\"}]}",
    };
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(status_of(SCHEMA, MEETING[i], &err), PGL_E_INVALID);
        assert_non_null(strstr(err.text, "oneOf"));
    }
}

static void a_grammar_of_the_caller_is_of_text(void **state) {
    (void)state;
    static const char *const REFUSED[] = {"start: <tool_call>\n", "start: \"a\" <think> \"b\"\n",
                                          "start: \"a\" | <[261]>\n", "start: \"a\"* <[*]>\n",
                                          "start: (\"<x>\"|/a\\/<y>/) <|im_end|>\n"};
    pgl_error err;
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++) {
        if (status_of(PGL_CONSTRAINT_LARK, REFUSED[i], &err) != PGL_E_INVALID ||
            strstr(err.text, "names a token") == NULL)
            fail_msg("%s", REFUSED[i]);
    }
    takes(PGL_CONSTRAINT_LARK, "start: \"<b>\" /[a-z\\/]+<\\/b>/ // and <no token>\n", "<b>x</b>");
}

static int32_t only_byte(pgl_constraint *c) {
    uint32_t mask[N_WORDS];
    pgl_error err;
    int32_t found = -1;
    if (pgl_constraint_mask(c, mask, N_WORDS, &err) != PGL_OK)
        fail_msg("%s", err.text);
    for (int32_t i = 0; i < 256; i++)
        if (allowed(mask, i)) {
            assert_int_equal(found, -1);
            found = i;
        }
    return found;
}

static void choices_of_one_request_move_by_themselves(void **state) {
    (void)state;
    pgl_constraint_spec spec = {.kind = PGL_CONSTRAINT_REGEX, .text = "abc", .size = 3};
    pgl_constraint *form, *one, *two;
    pgl_error err;
    assert_int_equal(pgl_constraint_open(vocabulary, &spec, &form, &err), PGL_OK);
    assert_int_equal(pgl_constraint_again(form, &one, &err), PGL_OK);
    assert_int_equal(only_byte(one), 'a');
    assert_int_equal(pgl_constraint_accept(one, 'a', &err), PGL_OK);
    assert_int_equal(pgl_constraint_again(form, &two, &err), PGL_OK);
    pgl_constraint_close(form);
    assert_int_equal(only_byte(two), 'a');
    assert_int_equal(only_byte(one), 'b');
    assert_int_equal(pgl_constraint_accept(two, 'b', &err), PGL_E_INTERNAL);
    assert_int_equal(only_byte(one), 'b');
    pgl_constraint_close(one);
    pgl_constraint_close(two);
}

/* A fault on the way is an error, and stays one; a step that takes too long is one. */
static void fails_on_its_way(const char *start, const char *alternative, int n) {
    pgl_buf grammar = PGL_BUF_INIT;
    pgl_buf_puts(&grammar, start);
    for (int i = 0; i < n; i++)
        pgl_buf_printf(&grammar, " | %s a%d", alternative, i);
    pgl_buf_puts(&grammar, "\n");
    for (int i = 0; i < n; i++)
        pgl_buf_printf(&grammar, "a%d: \"x\"? \"y\"?\n", i);
    pgl_constraint_spec spec = {.kind = PGL_CONSTRAINT_LARK, .text = grammar.data, .size = grammar.size};
    pgl_constraint *c;
    pgl_error err;
    if (pgl_constraint_open(vocabulary, &spec, &c, &err) != PGL_OK)
        fail_msg("%s", err.text);
    uint32_t mask[N_WORDS];
    pgl_status status = PGL_OK;
    uint64_t longest = 0;
    for (int i = 0; i < 2000 && status == PGL_OK; i++) {
        uint64_t begin = pgl_now_ns();
        status = pgl_constraint_mask(c, mask, N_WORDS, &err);
        uint64_t middle = pgl_now_ns();
        if (status == PGL_OK)
            status = pgl_constraint_accept(c, 'x', &err);
        longest = middle - begin > longest ? middle - begin : longest;
        longest = pgl_now_ns() - middle > longest ? pgl_now_ns() - middle : longest;
    }
    assert_int_not_equal(status, PGL_OK);
    print_message("longest step %.2f s: %s\n", (double)longest * 1e-9, err.text);
    assert_true(longest < UINT64_C(40000000000)); /* a second of the processor, on a busy machine */
    for (int i = 0; i < 3; i++) {
        assert_int_not_equal(pgl_constraint_mask(c, mask, N_WORDS, &err), PGL_OK);
        assert_int_not_equal(pgl_constraint_accept(c, 'x', &err), PGL_OK);
    }
    assert_false(pgl_constraint_complete(c));
    pgl_constraint_close(c);
    pgl_buf_fini(&grammar);
}

static void nothing_fails_open_or_goes_on_for_ever(void **state) {
    (void)state;
    fails_on_its_way("start: s\ns: \"x\"", "s s", 40);
    fails_on_its_way("start: s\ns: \"x\"", "s", 900);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_do_not_run_on),
        cmocka_unit_test(excluded_bounds_are_excluded),
        cmocka_unit_test(names_have_one_spelling),
        cmocka_unit_test(dates_are_those_of_the_calendar),
        cmocka_unit_test(refusals_name_the_keyword),
        cmocka_unit_test(one_of_several_is_taken_where_a_member_tells_them_apart),
        cmocka_unit_test(a_grammar_of_the_caller_is_of_text),
        cmocka_unit_test(choices_of_one_request_move_by_themselves),
        cmocka_unit_test(nothing_fails_open_or_goes_on_for_ever),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
