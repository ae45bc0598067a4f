/* What the grammar library does not survive, or only finds while an answer is written, is refused when a constraint is
 * opened; and tools' values are written in the form in which calls are read. */
#include "base/buf.h"
#include "base/clock.h"
#include "constraint_world.h"
#include "text/output.h"

/* "$defs" d0 .. dN, each with a reference to the next between head and tail; the schema is d0. */
static char *chain(int n, const char *head, const char *tail) {
    pgl_buf text = PGL_BUF_INIT;
    pgl_buf_puts(&text, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < n; i++)
        pgl_buf_printf(&text, "\"d%d\":%s\"$ref\":\"#/$defs/d%d\"%s,", i, head, i + 1, tail);
    assert_true(pgl_buf_printf(&text, "\"d%d\":{\"type\":\"integer\"}}}", n));
    return text.data;
}

static void long_chains_of_references_do_not_overrun_the_stack(void **state) {
    (void)state;
    pgl_error err;
    static const char *const HEADS[] = {"{\"type\":\"object\",\"properties\":{\"n\":{", "{\"anyOf\":[{",
                                        "{\"allOf\":[{"};
    static const char *const TAILS[] = {"}}}", "},{\"type\":\"null\"}]}", "},{}]}"};
    for (size_t i = 0; i < 3; i++) {
        char *text = chain(2500, HEADS[i], TAILS[i]);
        pgl_status status = status_of(SCHEMA, text, &err);
        if (status != PGL_OK && status != PGL_E_INVALID)
            fail_msg("%s", err.text);
        free(text);
        text = chain(20000, HEADS[i], TAILS[i]);
        assert_int_equal(status_of(SCHEMA, text, &err), PGL_E_INVALID);
        free(text);
    }
    pgl_buf grammar = PGL_BUF_INIT;
    pgl_buf_puts(&grammar, "start: r0\n");
    for (int i = 0; i < 4000; i++)
        pgl_buf_printf(&grammar, "r%d: r%d\n", i, i + 1);
    pgl_buf_puts(&grammar, "r4000: \"x\"\n");
    takes(PGL_CONSTRAINT_LARK, grammar.data, "x");
    while (grammar.size <= PGL_CONSTRAINT_MOST_GRAMMAR_BYTES)
        pgl_buf_puts(&grammar, "// more\n");
    assert_int_equal(status_of(PGL_CONSTRAINT_LARK, grammar.data, &err), PGL_E_INVALID);
    pgl_buf_fini(&grammar);
}

static void schemas_that_no_finite_answer_fits_are_refused(void **state) {
    (void)state;
    static const char *const ENDLESS[] = {
        "{\"$ref\":\"#\"}",
        "{\"$defs\":{\"A\":{\"anyOf\":[{\"$ref\":\"#/$defs/A\"}]}},\"$ref\":\"#/$defs/A\"}",
        "{\"$defs\":{\"A\":{\"allOf\":[{\"$ref\":\"#/$defs/B\"}]},\"B\":{\"oneOf\":[{\"$ref\":\"#/$defs/"
        "A\"}]}},"
        "\"$ref\":\"#/$defs/A\"}",
        "{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#\"}},\"required\":[\"n\"]}",
        "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"minItems\":1}",
        "{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"$ref\":\"#\"}],\"minItems\":2}",
    };
    static const char *const ENDING[] = {
        "{\"$defs\":{\"A\":{\"anyOf\":[{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
        "A\"},\"minItems\":1},{"
        "\"const\":1}]}},\"$ref\":\"#/$defs/A\"}",
        "{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#\"}}}",
        "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}",
        "{\"type\":\"object\",\"properties\":{\"default\":{\"$ref\":\"#/$defs/"
        "enum\"}},\"required\":[\"default\"],"
        "\"$defs\":{\"enum\":{\"const\":1}}}",
    };
    pgl_error err;
    for (size_t i = 0; i < sizeof ENDLESS / sizeof ENDLESS[0]; i++) {
        if (status_of(SCHEMA, ENDLESS[i], &err) != PGL_E_INVALID)
            fail_msg("taken: %s", ENDLESS[i]);
        assert_non_null(strstr(err.text, "finite"));
    }
    for (size_t i = 0; i < sizeof ENDING / sizeof ENDING[0]; i++)
        if (status_of(SCHEMA, ENDING[i], &err) != PGL_OK)
            fail_msg("%s: %s", ENDING[i], err.text);
}

static void references_are_read_as_pointers_in_fragments(void **state) {
    (void)state;
    takes(SCHEMA,
          "{\"$defs\":{\"a/b\":{\"const\":1},\"c~d\":{\"const\":2},\"e f\":{\"const\":3}},\"type\":\"array\","
          "\"prefixItems\":[{\"$ref\":\"#/$defs/a~1b\"},{\"$ref\":\"#/$defs/c~0d\"},{\"$ref\":\"#/$defs/"
          "e%20f\"}],\"minItems\":3,\"maxItems\":3}",
          "[1,2,3]");
    pgl_error err;
    assert_int_equal(
        status_of(SCHEMA,
                  "{\"properties\":{\"a\":{\"anyOf\":[{}]},\"b\":{\"$ref\":\"#/properties/a/anyOf/x\"}}}",
                  &err),
        PGL_E_INVALID);
}

/* An answer's state holds one item for each member or alternative that may come next, and the library gives up over some
 * number of them in the middle of an answer. */
static void objects_and_choices_too_wide_to_follow_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *head, *before, *behind, *tail; /* each: before, its number, behind */
        int n_taken, n_refused;
    } CASES[] = {
        {"{\"type\":\"object\",\"properties\":{", "\"p", "\":{\"type\":\"string\"}", "}}", 1490, 1600},
        {"{\"anyOf\":[", "{\"type\":\"object\",\"properties\":{\"k", "\":{\"const\":1}}}", "]}", 690, 710},
    };
    pgl_error err;
    for (size_t k = 0; k < 2; k++) {
        for (int refused = 0; refused < 2; refused++) {
            int n = refused ? CASES[k].n_refused : CASES[k].n_taken;
            pgl_buf text = PGL_BUF_INIT;
            pgl_buf_puts(&text, CASES[k].head);
            for (int i = 0; i < n; i++) {
                pgl_buf_printf(&text, "%s%s%d%s", i == 0 ? "" : ",", CASES[k].before, i, CASES[k].behind);
            }
            pgl_buf_puts(&text, CASES[k].tail);
            if (refused)
                assert_int_equal(status_of(SCHEMA, text.data, &err), PGL_E_INVALID);
            else
                takes(SCHEMA, text.data, k == 0 ? "{\"p1489\":\"\",\"more\":1}" : "{\"k689\":1}");
            pgl_buf_fini(&text);
        }
    }
}

static void many_choices_and_odd_ones_are_taken(void **state) {
    (void)state;
    pgl_buf text = PGL_BUF_INIT;
    for (int i = 0; i < 20000; i++)
        pgl_buf_printf(&text, "%s\"v%d\"", i == 0 ? "[" : ",", i);
    pgl_buf_puts(&text, "]");
    uint64_t begin = pgl_now_ns();
    takes(PGL_CONSTRAINT_CHOICE, text.data, "v19999");
    refuses(PGL_CONSTRAINT_CHOICE, text.data, "v20000");
    if (pgl_now_ns() - begin > 20u * 1000000000u)
        fail_msg("20000 choices take %.1f s", (double)(pgl_now_ns() - begin) / 1e9);
    pgl_buf_fini(&text);
    for (int c = 1; c < 128; c++) {
        char json[16], plain[4] = {'a', (char)c, 'b', 0};
        snprintf(json, sizeof json, "[\"a\\u%04xb\"]", (unsigned)c);
        takes(PGL_CONSTRAINT_CHOICE, json, plain);
    }
}

static void an_expression_cannot_leave_its_place(void **state) {
    (void)state;
    pgl_error err;
    assert_int_equal(status_of(PGL_CONSTRAINT_REGEX, "a)|(?:b", &err), PGL_E_INVALID);
    assert_int_equal(status_of(PGL_CONSTRAINT_REGEX, "(?s:a))|(b", &err), PGL_E_INVALID);
    takes(PGL_CONSTRAINT_REGEX, "(?x)a # b", "a");
    takes(PGL_CONSTRAINT_REGEX, "a|b.", "b\n");
    refuses(PGL_CONSTRAINT_REGEX, "a|b.", "bb.");
}

static void refusals_say_why_and_do_not_show_our_grammar(void **state) {
    (void)state;
    static const struct {
        pgl_constraint_kind kind;
        const char *text, *says;
    } CASES[] = {
        {SCHEMA, "{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "schema: Unsatisfiable"},
        {SCHEMA, "{\"type\":\"string\",\"pattern\":\"(?=a)b\"}", "look-around"},
        {PGL_CONSTRAINT_REGEX, "(?=a)b", "regular expression: look-around"},
        {PGL_CONSTRAINT_REGEX, "[a&&b]", "regular expression: it allows no answer"},
        {PGL_CONSTRAINT_LARK, "start: start \"a\"\n", "grammar: it allows no answer"},
        {PGL_CONSTRAINT_TOOLS,
         "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":5,"
         "\"maximum\":4}}}}]",
         "tools: Unsatisfiable"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        pgl_error err;
        assert_int_equal(status_of(CASES[i].kind, CASES[i].text, &err), PGL_E_INVALID);
        if (strstr(err.text, CASES[i].says) == NULL || strstr(err.text, "start:") != NULL ||
            strchr(err.text, '\n') != NULL)
            fail_msg("%s: %s", CASES[i].text, err.text);
    }
}

/* ---- tools */

static const char DEFINED[] =
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"$defs\":{\"Color\":{\"type\":"
    "\"string\",\"enum\":[\"red\",\"a b\"]},\"Point\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":"
    "\"integer\"}},\"required\":[\"x\"],\"additionalProperties\":false}},\"definitions\":{\"Size\":{\"type\":"
    "\"integer\",\"maximum\":9}},\"properties\":{\"color\":{\"$ref\":\"#/$defs/Color\"},\"old\":{\"allOf\":[{"
    "\"$ref\":\"#/$defs/Color\"}]},\"maybe\":{\"anyOf\":[{\"$ref\":\"#/$defs/Color\"},{\"type\":\"null\"}]},"
    "\"text\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},\"mixed\":{\"enum\":[\"x\",1,null,[2]]}"
    ","
    "\"one\":{\"const\":\"only\"},\"point\":{\"$ref\":\"#/$defs/Point\"},\"size\":{\"$ref\":\"#/definitions/"
    "Size\"},\"same\":{\"$ref\":\"#/properties/"
    "size\"},\"number\":{\"type\":\"integer\"},\"part\":{\"allOf\":[{\"type\":\"number\"},{\"minimum\":2}]},"
    "\"never\":false,\"a>b\":{\"type\":\"string\"}}}}},"
    "{\"function\":{\"name\":\"g\",\"parameters\":null}},{\"function\":{\"name\":\"h\",\"parameters\":{"
    "\"type\":\"object\",\"properties\":[1]}}},{\"name\":\"i\",\"parameters\":{\"anyOf\":[{\"type\":"
    "\"object\"}]}},"
    "{\"function\":{\"name\":\"j\",\"strict\":true,\"parameters\":{\"type\":\"object\"}}}]";

static void keep_arguments(void *user, const pgl_output_delta *d) {
    if (d->kind == PGL_OUTPUT_ARGUMENTS)
        pgl_buf_append(user, d->text, d->size);
}

/* Whether the grammar takes a call with this one argument; if so, *arguments is how it is read. */
static bool call(const char *function, const char *key, const char *text, pgl_buf *arguments) {
    pgl_buf raw = PGL_BUF_INIT;
    pgl_buf_printf(&raw, "<tool_call>\n<function=%s>\n", function);
    if (key != NULL)
        pgl_buf_printf(&raw, "<parameter=%s>\n%s\n</parameter>\n", key, text);
    pgl_buf_puts(&raw, "</function>\n</tool_call>");
    pgl_constraint_spec spec = {.kind = PGL_CONSTRAINT_TOOLS, .text = DEFINED, .size = strlen(DEFINED)};
    bool complete, taken = walk(&spec, raw.data, &complete) == raw.size && complete;
    pgl_output_options options = {
        .no_thinking = true, .tools = {DEFINED, strlen(DEFINED)}, .sink = keep_arguments, .user = arguments};
    pgl_output *output;
    assert_int_equal(pgl_output_open(&options, &output, NULL), PGL_OK);
    pgl_output_push(output, raw.data, raw.size);
    pgl_output_finish(output, false);
    pgl_output_close(output);
    pgl_buf_fini(&raw);
    return taken;
}

/* The grammar takes the text as f's argument, and the call is then read as the JSON; NULL: it does not take it. */
static void check_argument(const char *key, const char *text, const char *json) {
    pgl_buf arguments = PGL_BUF_INIT, expected = PGL_BUF_INIT;
    bool taken = call("f", key, text, &arguments);
    pgl_buf_printf(&expected, "{\"%s\": %s}", key, json == NULL ? "" : json);
    if (taken != (json != NULL) || (taken && strcmp(arguments.data, expected.data) != 0))
        fail_msg("%s = %s: %s, read as %s", key, text, taken ? "taken" : "not taken", arguments.data);
    pgl_buf_fini(&arguments);
    pgl_buf_fini(&expected);
}

static void values_of_tools_have_the_form_in_which_calls_are_read(void **state) {
    (void)state;
    check_argument("color", "a b", "\"a b\"");
    check_argument("color", "\"red\"", NULL);
    check_argument("color", "green", NULL);
    check_argument("old", "red", "\"red\"");
    check_argument("old", "\"red\"", NULL);
    check_argument("maybe", "red", "\"red\"");
    check_argument("maybe", "null", "null");
    check_argument("maybe", "\"red\"", NULL);
    check_argument("maybe", "12", NULL);
    check_argument("text", "any <b>text</b>", "\"any <b>text</b>\"");
    check_argument("mixed", "x", "\"x\"");
    check_argument("mixed", "1", "1");
    check_argument("mixed", "[2]", "[2]");
    check_argument("mixed", "y", NULL);
    check_argument("one", "only", "\"only\"");
    check_argument("point", "{\"x\": 3}", "{\"x\": 3}");
    check_argument("point", "{\"x\": \"3\"}", NULL);
    check_argument("size", "9", "9");
    check_argument("size", "10", NULL);
    check_argument("same", "9", "9");
    check_argument("same", "10", NULL);
    check_argument("number", "123456789012345678901234567890", "123456789012345678901234567890");
    check_argument("part", "5", "5");
    check_argument("never", "1", NULL);
}

/* A tool `f` with one parameter of the schema: whether its grammar takes the value. */
static bool takes_value(const char *schema, bool strict, const char *text, pgl_error *err) {
    pgl_buf tools = PGL_BUF_INIT, raw = PGL_BUF_INIT;
    pgl_buf_printf(
        &tools,
        "[{\"function\":{\"name\":\"f\",\"strict\":%s,\"parameters\":{\"$defs\":{\"D\":{\"type\":\"string\","
        "\"maxLength\":2}},\"properties\":{\"a\":%s}}}}]",
        strict ? "true" : "false", schema);
    pgl_constraint_spec spec = {.kind = PGL_CONSTRAINT_TOOLS, .text = tools.data, .size = tools.size};
    pgl_buf_printf(
        &raw, "<tool_call>\n<function=f>\n<parameter=a>\n%s\n</parameter>\n</function>\n</tool_call>", text);
    pgl_constraint *c;
    bool taken = false;
    if (pgl_constraint_open(vocabulary, &spec, &c, err) == PGL_OK) {
        bool complete;
        err->text[0] = 0;
        pgl_constraint_close(c);
        taken = walk(&spec, raw.data, &complete) == raw.size && complete;
    }
    pgl_buf_fini(&tools);
    pgl_buf_fini(&raw);
    return taken;
}

static void strings_of_tools_keep_what_their_form_can_say(void **state) {
    (void)state;
    static const struct {
        const char *schema, *fits, *fails; /* fails NULL: any text is taken, and a strict tool refused */
    } CASES[] = {
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]{2,3}/\\\\d+$\"}", "ab/12", "ab/x"},
        {"{\"type\":\"string\",\"pattern\":\"^(?:a|b)c?$\"}", "bc", "c"},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\xC3\xA9\n", "abcd"},
        {"{\"type\":\"string\",\"minLength\":2}", "a long one", "a"},
        {"{\"type\":\"string\",\"format\":\"date\"}", "2024-02-29", "2023-02-29"},
        {"{\"type\":\"string\",\"format\":\"date-time\"}", "2024-02-29T01:02:03Z", "2024-02-29"},
        {"{\"$ref\":\"#/$defs/D\"}", "ab", "abc"},
        {"{\"type\":\"string\",\"enum\":[\"x\",\"y\"],\"maxLength\":1}", "x", "z"},
        {"{\"type\":\"string\",\"pattern\":\"a\"}", "anything", NULL},
        {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}", "anything", NULL},
        {"{\"type\":\"string\",\"pattern\":\"^(?=a)b$\"}", "anything", NULL},
        {"{\"type\":\"string\",\"pattern\":\"^[[]$\"}", "anything", NULL},
        {"{\"type\":\"string\",\"pattern\":\"^\\\\bx$\"}", "anything", NULL},
        {"{\"type\":\"string\",\"format\":\"email\"}", "anything", NULL},
        {"{\"type\":\"string\",\"maxLength\":100000}", "anything", NULL},
        {"{\"type\":[\"string\",\"null\"],\"maxLength\":2}", "anything", NULL},
        {"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":2},{\"type\":\"null\"}]}", "anything", NULL},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        pgl_error err = {.text = ""};
        if (!takes_value(CASES[i].schema, false, CASES[i].fits, &err))
            fail_msg("%s: '%s' is not taken %s", CASES[i].schema, CASES[i].fits, err.text);
        if (CASES[i].fails != NULL && takes_value(CASES[i].schema, false, CASES[i].fails, &err))
            fail_msg("%s: '%s' is taken", CASES[i].schema, CASES[i].fails);
        bool strict = takes_value(CASES[i].schema, true, CASES[i].fits, &err);
        if (strict != (CASES[i].fails != NULL) || (!strict && strstr(err.text, "'a': strict") == NULL))
            fail_msg("%s: strict: %s", CASES[i].schema, strict ? "taken" : err.text);
    }
}

static void odd_tools_disturb_nothing(void **state) {
    (void)state;
    static const char *const NAMES[] = {"f", "g", "h", "i", "j"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        pgl_buf arguments = PGL_BUF_INIT;
        assert_true(call(NAMES[i], NULL, NULL, &arguments));
        assert_string_equal(pgl_buf_text(&arguments), "{}");
        pgl_buf_fini(&arguments);
    }
    static const char *const REFUSED[] = {
        "[{\"function\":null}]",
        "[{\"function\":{\"name\":\"a>b\"}}]",
        "[{\"function\":{\"name\":\"a\\nb\"}}]",
        "[{\"function\":{\"name\":\" a\"}}]",
        "[{\"function\":{\"name\":\"\"}}]",
        "[{\"function\":{\"name\":7}}]",
        "[7]",
        "{}",
        "[]",
        "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a>b\":{}},\"required\":[\"a>b\"]}}]",
        "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":false},\"required\":[\"a\"]}}]",
        "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"string\",\"enum\":[1]}}}}]",
        "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"$ref\":\"#/$defs/none\"}}}}]",
    };
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++) {
        pgl_error err;
        if (status_of(PGL_CONSTRAINT_TOOLS, REFUSED[i], &err) != PGL_E_INVALID)
            fail_msg("taken: %s", REFUSED[i]);
    }
    pgl_error err;
    const char *odd =
        "[{\"name\":\"say \\\"x\\\" \\\\ / $f\",\"parameters\":{\"properties\":{\"k \\\"/\\\\\":{}}}}]";
    assert_int_equal(status_of(PGL_CONSTRAINT_TOOLS, odd, &err), PGL_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_chains_of_references_do_not_overrun_the_stack),
        cmocka_unit_test(schemas_that_no_finite_answer_fits_are_refused),
        cmocka_unit_test(references_are_read_as_pointers_in_fragments),
        cmocka_unit_test(objects_and_choices_too_wide_to_follow_are_refused),
        cmocka_unit_test(many_choices_and_odd_ones_are_taken),
        cmocka_unit_test(an_expression_cannot_leave_its_place),
        cmocka_unit_test(refusals_say_why_and_do_not_show_our_grammar),
        cmocka_unit_test(values_of_tools_have_the_form_in_which_calls_are_read),
        cmocka_unit_test(strings_of_tools_keep_what_their_form_can_say),
        cmocka_unit_test(odd_tools_disturb_nothing),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
