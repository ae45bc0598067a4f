/* Thoughts whose end is told, not spelled: where a budget or the form of the answer hangs on the token. */
#include "output_world.h"

/* END stands for the call that ends the thought. */
#define END "\1"

static void push(pgl_output *o, const char *text, size_t size) {
    for (const char *at; (at = memchr(text, END[0], size)) != NULL;) {
        size_t n = (size_t)(at - text);
        pgl_output_push(o, text, n);
        pgl_output_end_thought(o);
        text += n + 1;
        size -= n + 1;
    }
    pgl_output_push(o, text, size);
}

static char *told(const char *raw, size_t at, bool by_byte, bool cut, bool tools) {
    message m = {0};
    pgl_output_options options = {.in_thought = true, .told = true, .sink = on_delta, .user = &m};
    if (tools)
        options.tools = (pgl_json_span){TOOLS, sizeof TOOLS - 1};
    pgl_output *o;
    assert_int_equal(pgl_output_open(&options, &o, NULL), PGL_OK);
    size_t n = strlen(raw);
    for (size_t i = 0; by_byte && i < n; i++)
        push(o, raw + i, 1);
    if (!by_byte) {
        push(o, raw, at);
        push(o, raw + at, n - at);
    }
    return finish(o, &m, (mode){.cut = cut});
}

static void check_told(const char *raw, bool cut, const char *expected) {
    size_t n = strlen(raw);
    for (int tools = 0; tools < 2; tools++) {
        if (!tools && strstr(raw, "<tool_call>"))
            continue;
        for (size_t at = 0; at <= n + 1; at++) {
            char *got = told(raw, at <= n ? at : 0, at > n, cut, tools);
            if (strcmp(got, expected) != 0)
                fail_msg("cut at %zu of\n%s\nexpected\n%s\nfound\n%s", at, raw, expected, got);
            free(got);
        }
    }
}

static void quotation_marks_around_the_end_do_not_hide_it(void **state) {
    (void)state;
    check_told("say '" END "' is what", false, "R{say '}C{' is what}");
    check_told("`" END "`", false, "R{`}C{`}");
    check_told("(\"" END "\xE2\x80\xA6", false, "R{(\"}C{\xE2\x80\xA6}");
}

static void a_spelled_end_inside_is_part_of_the_thought(void **state) {
    (void)state;
    check_told("a</think>b" END "c", false, "R{a</think>b}C{c}");
    check_told("<think>\na" END "</think>c", false, "R{a}C{</think>c}");
    check_told("a</th" END "ink>c", false, "R{a</th}C{ink>c}");
    check_told("<thi" END "x", false, "R{<thi}C{x}");
    check_told("a</think>b", true, "R{a</think>b}C{}");
}

static void layout_around_the_end_is_dropped(void **state) {
    (void)state;
    check_told("\n a \n" END "\n\nb\n", false, "R{a}C{b\n}");
    check_told(END "b", false, "R{}C{b}");
    check_told("\n" END "\n\n", false, "R{}C{}");
    check_told("a" END END "b" END "c", false, "R{a}C{bc}");
}

static void a_turn_that_ends_inside_its_thought(void **state) {
    (void)state;
    check_told("only thought", false, "R{only thought}C{only thought}");
    check_told("only thought", true, "R{only thought}C{}");
}

static void calls_inside_the_thought(void **state) {
    (void)state;
    check_told("Now.\n" NOW, false, "R{Now.}C{}now({})");
    check_told("Now.\n" NOW END, false, "R{Now.}C{}now({})");
    check_told("Now.\n" NOW END "\n\n", false, "R{Now.}C{}now({})");
    check_told("Now.\n" NOW END "\nNo.", false, "R{Now.\n" NOW "}C{No.}");
    check_told("Now." END "\n\n" NOW, false, "R{Now.}C{}now({})");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotation_marks_around_the_end_do_not_hide_it),
        cmocka_unit_test(a_spelled_end_inside_is_part_of_the_thought),
        cmocka_unit_test(layout_around_the_end_is_dropped),
        cmocka_unit_test(a_turn_that_ends_inside_its_thought),
        cmocka_unit_test(calls_inside_the_thought),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
