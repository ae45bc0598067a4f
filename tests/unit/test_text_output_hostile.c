/* Text that is made to cost time or to lose what stands behind it. */
#include <time.h>

#include "base/json.h"
#include "output_world.h"

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct hostile {
    const char *head, *unit;
    bool in_thought, no_thinking;
} hostile;

static double seconds_for(const hostile *h, size_t bytes, bool whole) {
    mode how = {.in_thought = h->in_thought, .no_thinking = h->no_thinking};
    pgl_buf text = PGL_BUF_INIT;
    message m = {0};
    pgl_buf_puts(&text, h->head);
    while (text.size < bytes)
        pgl_buf_puts(&text, h->unit);
    double begin = cpu_seconds();
    pgl_output *o = open_output(how, &m);
    for (size_t i = 0; i < text.size; i += whole ? text.size : 1)
        pgl_output_push(o, text.data + i, whole ? text.size : 1);
    free(finish(o, &m, how));
    double seconds = cpu_seconds() - begin;
    pgl_buf_fini(&text);
    return seconds;
}

/* Four times the text takes four times the time, and not sixteen times. */
static void time_grows_with_the_text_and_not_with_its_square(void **state) {
    (void)state;
#define CALL "<tool_call>\n<function=move>\n"
    static const hostile CASES[] = {
        {"<tool_call>", " ", false, true},
        {"<tool_call>\n<function=", "a", false, true},
        {"<tool_call>\n<function=", " ", false, true},
        {"<function=", "a", false, true},
        {"", "\n<function=now", false, true},
        {"", "  \t", false, false},
        {"", "\n", true, false},
        {"<think>", "\n", false, false},
        {"a", "\n", true, false},
        {CALL "<parameter=", "a", false, true},
        {CALL, "<parameter=", false, true},
        {CALL, "\n", false, true},
        {CALL, "<parameter=\n", false, true},
        {CALL "<parameter=memo>\n", " ", false, true},
        {CALL "<parameter=memo>\nnull", " ", false, true},
        {CALL "<parameter=x>\n1", " ", false, true},
        {CALL "<parameter=x>\n", "\n<parameter=n", false, true},
        {CALL "<parameter=from>\n", "\n<parameter=", false, true},
        {CALL "<parameter=from>\n", "</parameter>     ", false, true},
        {CALL "<parameter=from>\n", "</function>\n", false, true},
        {CALL "<parameter=rows>\n", "</parameter>\n<", false, true},
        {CALL "<parameter=>\n", "</tool_call> ", false, true},
        {"<tool_call>{\"a\": \"", "</tool_call>", false, true},
        {"<tool_call>{\"a\": [", "1,", false, true},
        {"<tool_call>{\"a\": ", "[", false, true},
        {"", "<tool_call>{\"", false, true},
        {"", "<tool_call>{\"\":\"", false, true},
        {"<tool_call>{\"", "<tool_call>{\\\"", false, true},
        {"<tool_call>{\"", "<tool_call>{", false, true},
        {"", "<tool_call>{}", false, true},
        {"", "<tool_call>\n<function=>", false, true},
        {NOW, "<tool_call>", false, true},
        {NOW, "<tool_call>{", false, true},
        {NOW, " ", false, true},
        {"a ", "<tool_call>", true, false},
        {"a ", "`</think>`", true, false},
        {"a `", "`<tool_call>", true, false},
        {"a <tool_call>{\"", "</think>", true, false},
        {"a <tool_call><function=x>", "`</think>`", true, false},
        {"a <tool_call><function=x></think>", " ", true, false},
        {"a <tool_call>", " ", true, false},
    };
    const size_t n = (size_t)48 << 10;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        for (int whole = 0; whole < 2; whole++) {
            double one = seconds_for(&CASES[i], n, whole), four = seconds_for(&CASES[i], 4 * n, whole);
            if (four > 9 * one + 0.1)
                fail_msg("%s%s.. %s: %zu bytes take %.3f s, four times as many %.3f s", CASES[i].head,
                         CASES[i].unit, whole ? "at once" : "byte by byte", n, one, four);
        }
}

static void a_call_that_is_none_is_text_and_loses_nothing_behind_it(void **state) {
    (void)state;
#define TEXT(raw) "R{}C{" raw "}"
    static const char *const BROKEN[] = {
        "<tool_call>\n<function=>\n" P("a", "b") "</function>\n</tool_call>",
        "<tool_call>\n<function=\n" P("a", "b") "</function>\n</tool_call>",
        "<tool_call>\n<function= =>\n</function>\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": \"1}}\n</tool_call>",
        "<tool_call>\n{\"name\": 7, \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"a\\u0000b\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": [1]}\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": \"no object\"}\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\\u0000\": 1}}\n</tool_call>",
        "<tool_call>\n{name: \"now\"}\n</tool_call>",
        "<tool_call>\n{}\n</tool_call>",
        "<tool_call>\nnow\n</tool_call>",
        "<tool_call>\n</tool_call>",
    };
    for (size_t i = 0; i < sizeof BROKEN / sizeof BROKEN[0]; i++) {
        pgl_buf raw = PGL_BUF_INIT, expected = PGL_BUF_INIT;
        pgl_buf_printf(&raw, "Before %s and behind.\n", BROKEN[i]);
        pgl_buf_printf(&expected, "R{}C{%s}", raw.data);
        check(PLAIN, raw.data, expected.data);
        mode thinking = THINK;
        pgl_buf_clear(&expected);
        pgl_buf_clear(&raw);
        pgl_buf_printf(&raw, "Before %s and behind.</think>\n\nok", BROKEN[i]);
        pgl_buf_printf(&expected, "R{Before %s and behind.}C{ok}", BROKEN[i]);
        check(thinking, raw.data, expected.data);
        /* a good call behind it survives, and with a good one before it it is text behind a call */
        pgl_buf_clear(&expected);
        pgl_buf_clear(&raw);
        pgl_buf_printf(&raw, "%s\n" NOW, BROKEN[i]);
        pgl_buf_printf(&expected, "R{}C{%s}now({})", BROKEN[i]);
        check(PLAIN, raw.data, expected.data);
        pgl_buf_clear(&raw);
        pgl_buf_printf(&raw, NOW "\n%s\n" MOVE(P("n", "4")), BROKEN[i]);
        check(PLAIN, raw.data, "R{}C{}now({})move({\"n\": 4})");
        pgl_buf_fini(&raw);
        pgl_buf_fini(&expected);
    }
    check(PLAIN, "<tool_call>\n{\"name\": \"now\", ", TEXT("<tool_call>\n{\"name\": \"now\", "));
    check(PLAIN, "a <tool_call>", TEXT("a <tool_call>"));
    mode cut = {.no_thinking = true, .cut = true};
    check(cut, "a <tool_call>\n<function=mo", TEXT("a <tool_call>\n<function=mo"));
    check(THINK, "I could use <tool_call> here.",
          "R{I could use <tool_call> here.}C{I could use <tool_call> here.}");
}

static void names_with_nul_or_without_end_are_none(void **state) {
    (void)state;
    static const char NUL_KEY[] = MOVE(
        "<parameter=a\0b>\nlost\n</parameter>\n" P("to", "B")) "\n<tool_call>\n<function=a\0b>\n</function>";
    for (size_t piece = 1; piece < sizeof NUL_KEY; piece += 37) {
        message m = {0};
        pgl_output *o = open_output(PLAIN, &m);
        for (size_t at = 0; at < sizeof NUL_KEY - 1; at += piece)
            pgl_output_push(o, NUL_KEY + at,
                            piece < sizeof NUL_KEY - 1 - at ? piece : sizeof NUL_KEY - 1 - at);
        char *got = finish(o, &m, PLAIN);
        assert_string_equal(got, "R{}C{}move({\"to\": \"B\"})");
        free(got);
    }
    char name[400];
    memset(name, 'k', sizeof name);
    name[300] = 0;
    pgl_buf raw = PGL_BUF_INIT, expected = PGL_BUF_INIT;
    pgl_buf_printf(&raw, MOVE("<parameter=%s>\nlost\n</parameter>\n" P("to", "B")), name);
    check(PLAIN, raw.data, "R{}C{}move({\"to\": \"B\"})");
    pgl_buf_clear(&raw);
    pgl_buf_printf(&raw, "<tool_call>\n<function=%s>\n</function>\n</tool_call>", name);
    pgl_buf_printf(&expected, "R{}C{%s}", raw.data);
    check(PLAIN, raw.data, expected.data);
    pgl_buf_fini(&raw);
    pgl_buf_fini(&expected);
}

static void arguments_of_calls_in_json_are_an_object_of_whole_characters(void **state) {
    (void)state;
#define JSON_CALL(arguments) "<tool_call>\n{\"name\": \"now\", \"arguments\": " arguments "}\n</tool_call>"
    check(PLAIN, JSON_CALL("{\"a\": \"\\ud83dx\", \"b\\ude00\": \"\\ud83d\\ude00\", \"c\": \"\\\\ud83d\"}"),
          "R{}C{}now({\"a\": \"\\ufffdx\", \"b\\ufffd\": \"\\ud83d\\ude00\", \"c\": \"\\\\ud83d\"})");
    check(PLAIN, JSON_CALL("\"{\\\"a\\\": 0.10, \\\"b\\\": \\\"\\\\ud83d\\\"}\""),
          "R{}C{}now({\"a\": 0.10, \"b\": \"\\ufffd\"})");
    check(PLAIN, JSON_CALL("\"\""), "R{}C{}now({})");
    check(PLAIN, JSON_CALL("null"), "R{}C{}now({})");
    check(PLAIN, "<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n" NOW, "R{}C{}now({})now({})");
    check(PLAIN, JSON_CALL("{\"a\": \"</tool_call> <tool_call>{\"}") "\n" NOW,
          "R{}C{}now({\"a\": \"</tool_call> <tool_call>{\"})now({})");
}

/* Where a value may be null or a string, how it was cut must not decide which. */
static void long_blanks_make_a_value_a_string_however_they_are_cut(void **state) {
    (void)state;
    for (int blanks = 62; blanks < 68; blanks++) {
        pgl_buf raw = PGL_BUF_INIT, expected = PGL_BUF_INIT;
        pgl_buf_printf(&raw, MOVE("<parameter=memo>\n%*snull\n</parameter>\n"), blanks, "");
        pgl_buf_printf(&expected,
                       blanks > 64 ? "R{}C{}move({\"memo\": \"%*snull\"})" : "R{}C{}move({\"memo\": null})",
                       blanks, "");
        check(PLAIN, raw.data, expected.data);
        pgl_buf_fini(&raw);
        pgl_buf_fini(&expected);
    }
    for (int blanks = 250; blanks < 256; blanks++) {
        pgl_buf raw = PGL_BUF_INIT, expected = PGL_BUF_INIT;
        pgl_buf_printf(&raw, MOVE("<parameter=memo>\nnull%*s\n</parameter>\n"), blanks, "");
        pgl_buf_printf(&expected,
                       blanks > 252 ? "R{}C{}move({\"memo\": \"null%*s\"})" : "R{}C{}move({\"memo\": null})",
                       blanks, "");
        check(PLAIN, raw.data, expected.data);
        pgl_buf_fini(&raw);
        pgl_buf_fini(&expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_grows_with_the_text_and_not_with_its_square),
        cmocka_unit_test(a_call_that_is_none_is_text_and_loses_nothing_behind_it),
        cmocka_unit_test(names_with_nul_or_without_end_are_none),
        cmocka_unit_test(arguments_of_calls_in_json_are_an_object_of_whole_characters),
        cmocka_unit_test(long_blanks_make_a_value_a_string_however_they_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
