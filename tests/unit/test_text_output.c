/* The output parser and stop strings: each text is fed whole, cut in two at every byte, and byte by byte, and must give
 * the same message. */
#include "output_world.h"
#include "text/stop.h"

static void values_are_typed_and_kept_to_the_byte(void **state) {
    (void)state;
    check(PLAIN, "I will look.\n\n" WRITE(P("path", "a.txt") P("content", "x\n\n  y \"z\"\n")) "\n",
          "R{}C{I will look.}write({\"path\": \"a.txt\", \"content\": \"x\\n\\n  y \\\"z\\\"\\n\"})");
    check(PLAIN,
          MOVE(P("n", "12") P("rows", "[4, {\"a\": 0.10}]") P("on", "True") P("memo", "null") P("x", "1e3")),
          "R{}C{}move({\"n\": 12, \"rows\": [4, {\"a\": 0.10}], \"on\": true, \"memo\": null, \"x\": 1e3})");
    check(PLAIN, MOVE(P("n", "twelve") P("on", "yes") P("x", "None")),
          "R{}C{}move({\"n\": \"twelve\", \"on\": \"yes\", \"x\": null})");
    check(PLAIN, WRITE(P("path", "") "<parameter=content>\n</parameter>\n"),
          "R{}C{}write({\"path\": \"\", \"content\": \"\"})");
    check(
        PLAIN,
        WRITE(P("content", "<b>caf\xC3\xA9</b> </parameter> <parameter=x>\n{}</function> \xF0\x9F\x98\x80")),
        "R{}C{}write({\"content\": \"<b>caf\xC3\xA9</b> </parameter> <parameter=x>\\n{}</function> "
        "\xF0\x9F\x98\x80\"})");
    check(PLAIN, "<tool_call>\n<function=other>\n" P("a", "1") "</function>\n</tool_call>",
          "R{}C{}other({\"a\": \"1\"})");
}

static void calls_without_arguments_have_an_empty_object(void **state) {
    (void)state;
    check(PLAIN, NOW, "R{}C{}now({})");
    check(PLAIN, NOW "\n" NOW "\n", "R{}C{}now({})now({})");
}

static void malformed_neighbours_do_not_harm_good_calls(void **state) {
    (void)state;
    check(PLAIN, MOVE("<parameter=\npwd\n</parameter>\n" P("to", "B")), "R{}C{}move({\"to\": \"B\"})");
    check(PLAIN, MOVE("<parameter=rows: [4]\n</parameter>\n" P("to", "B")), "R{}C{}move({\"to\": \"B\"})");
    check(PLAIN, MOVE("<parameter=memo=></parameter>\n" P("to", "B")),
          "R{}C{}move({\"memo\": \"\", \"to\": \"B\"})");
    check(PLAIN, MOVE("<parameter=from>\nOslo\n<parameter=to>\nBergen\n</parameter>\n"),
          "R{}C{}move({\"from\": \"Oslo\", \"to\": \"Bergen\"})");
    check(PLAIN, MOVE("<parameter=to>\nB\n</parameter>\n</parameter>\n"), "R{}C{}move({\"to\": \"B\"})");
    check(PLAIN, MOVE("<parameter=to>\nB\n"), "R{}C{}move({\"to\": \"B\"})");
    check(PLAIN, MOVE(P("to", "A") P("to", "B")), "R{}C{}move({\"to\": \"A\"})");
    check(PLAIN, NOW "\n<tool_call>\n<function=>\n" P("a", "b") "</function>\n</tool_call>", "R{}C{}now({})");
    check(PLAIN, NOW "\n<tool_call>\nnothing\n</tool_call>\n" NOW, "R{}C{}now({})now({})");
    check(PLAIN, "<function=write>\n" P("path", "p") "</function>\n</tool_call>",
          "R{}C{}write({\"path\": \"p\"})");
    check(PLAIN, "ok\n<function=now>\n</function>", "R{}C{ok}now({})");
    check(PLAIN, "see <function=now> there", "R{}C{see <function=now> there}");
    check(PLAIN,
          "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": \"</tool_call>\", \"b\": "
          "0.10}}\n</tool_call>",
          "R{}C{}now({\"a\": \"</tool_call>\", \"b\": 0.10})");
}

static void a_value_that_quotes_calls_is_kept(void **state) {
    (void)state;
#define QUOTED                                                                                               \
    "See:\n<tool_call>\n<function=x>\n<parameter=p>\nv\n</parameter>\n<parameter=q>\nw\n</parameter>\n</"    \
    "function>\n</tool_call>"
#define QUOTED_JSON                                                                                          \
    "See:\\n<tool_call>\\n<function=x>\\n<parameter=p>\\nv\\n</parameter>\\n<parameter=q>\\nw\\n</"          \
    "parameter>\\n</function>\\n</tool_call>"
    check(PLAIN, WRITE(P("content", QUOTED "\nmore") P("path", "a")),
          "R{}C{}write({\"content\": \"" QUOTED_JSON "\\nmore\", \"path\": \"a\"})");
    check(PLAIN, WRITE(P("path", "a") P("content", QUOTED)),
          "R{}C{}write({\"path\": \"a\", \"content\": \"" QUOTED_JSON "\"})");
    check(PLAIN, WRITE(P("path", "a") P("content", QUOTED)) "\n" NOW,
          "R{}C{}write({\"path\": \"a\", \"content\": \"" QUOTED_JSON "\"})now({})");
    /* an opening tag that is only mentioned does not swallow the rest */
    check(PLAIN, WRITE(P("content", "say\n<parameter=x>\nand on") P("path", "a")),
          "R{}C{}write({\"content\": \"say\\n<parameter=x>\\nand on\", \"path\": \"a\"})");
    check(PLAIN, WRITE(P("path", "a") P("content", "say\n<parameter=x>\nand on")),
          "R{}C{}write({\"path\": \"a\", \"content\": \"say\\n<parameter=x>\\nand on\"})");
}

static void a_value_without_any_closing_tag_ends_with_its_call(void **state) {
    (void)state;
    check(PLAIN, "<tool_call>\n<function=write>\n<parameter=path>\nfoo\n</tool_call>",
          "R{}C{}write({\"path\": \"foo\"})");
    check(PLAIN, "<tool_call>\n<function=write>\n<parameter=path>\nfoo\n</function>",
          "R{}C{}write({\"path\": \"foo\"})");
    check(PLAIN, "<tool_call>\n<function=write>\n<parameter=path>\nfoo\n</tool_call>\n" NOW,
          "R{}C{}write({\"path\": \"foo\"})now({})");
    check(PLAIN, WRITE(P("content", "foo\n</tool_call>\nbar")),
          "R{}C{}write({\"content\": \"foo\\n</tool_call>\\nbar\"})");
}

static void the_newline_before_a_value_depends_on_what_follows(void **state) {
    (void)state;
    check(PLAIN, "<tool_call>\n<function=write>\n<parameter=path>\n</parameter>t",
          "R{}C{}write({\"path\": \"</parameter>t\"})");
    check(PLAIN, "<tool_call>\n<function=move>\n<parameter=memo>\r\nl\r\n</parameter>",
          "R{}C{}move({\"memo\": \"l\"})");
    check(PLAIN, "<tool_call>\n<function=write>\n<parameter=path>\n</parameter>",
          "R{}C{}write({\"path\": \"\"})");
}

static void strings_beside_other_types_are_verbatim(void **state) {
    (void)state;
    check(PLAIN, MOVE(P("memo", "  two words \n\n and more ")),
          "R{}C{}move({\"memo\": \"  two words \\n\\n and more \"})");
    check(PLAIN, MOVE(P("memo", "nullable")), "R{}C{}move({\"memo\": \"nullable\"})");
    check(PLAIN, MOVE(P("memo", "nul")), "R{}C{}move({\"memo\": \"nul\"})");
    check(PLAIN, MOVE(P("memo", "None")), "R{}C{}move({\"memo\": null})");
    check(PLAIN, MOVE(P("memo", "\"quoted\"")), "R{}C{}move({\"memo\": \"\\\"quoted\\\"\"})");
    check(PLAIN, MOVE(P("memo", "") P("x", " 1 ")), "R{}C{}move({\"memo\": \"\", \"x\": 1})");
    check(PLAIN, MOVE(P("x", "1e5 m")), "R{}C{}move({\"x\": \"1e5 m\"})");
}

/* Time that grows with the square of a text shows here as minutes. */
static void long_texts_in_small_pieces_take_long(void **state) {
    (void)state;
    static const char *const HEADS[] = {"<tool_call>\n<function=move>\n<parameter=rows>\n[", "hm " NOW " ",
                                        "<tool_call>\n<function=write>\n<parameter=content>\n", "hm ",
                                        "<tool_call>\n{\"a\": ["};
    static const char *const UNITS[] = {"1, ", "so `</think>` ", "<parameter=x></parameter>\n<",
                                        "<tool_call>", "1, "};
    for (int think = 0; think < 2; think++)
        for (size_t k = 0; k < 5; k++) {
            message m = {0};
            pgl_output *o = open_output(think ? THINK : PLAIN, &m);
            pgl_output_push(o, HEADS[k], strlen(HEADS[k]));
            size_t n = strlen(UNITS[k]);
            for (int i = 0; i < 60000; i++)
                pgl_output_push(o, UNITS[k], n);
            free(finish(o, &m, think ? THINK : PLAIN));
            pgl_buf whole = PGL_BUF_INIT;
            pgl_buf_puts(&whole, HEADS[k]);
            for (int i = 0; i < 60000; i++)
                pgl_buf_puts(&whole, UNITS[k]);
            m = (message){0};
            o = open_output(think ? THINK : PLAIN, &m);
            pgl_output_push(o, whole.data, whole.size);
            free(finish(o, &m, think ? THINK : PLAIN));
            pgl_buf_fini(&whole);
        }
}

static void a_schema_of_references_takes_for_ever(void **state) {
    (void)state;
    pgl_buf tools = PGL_BUF_INIT;
    pgl_buf_puts(
        &tools,
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"$defs\":{\"A\":{\"anyOf\":[{\"type\":\"integer\"}");
    for (int i = 0; i < 400; i++)
        pgl_buf_puts(&tools, ",{\"$ref\":\"#/$defs/A\"}");
    pgl_buf_puts(&tools, "]}},\"properties\":{\"a\":{\"$ref\":\"#/$defs/A\"}}}}}]");
    message m = {0};
    pgl_output_options options = {
        .no_thinking = true, .sink = on_delta, .user = &m, .tools = {tools.data, tools.size}};
    pgl_output *o;
    assert_int_equal(pgl_output_open(&options, &o, NULL), PGL_OK);
    static const char RAW[] = "<tool_call>\n<function=f>\n" P("a", "5") "</function>\n</tool_call>";
    pgl_output_push(o, RAW, sizeof RAW - 1);
    char *got = finish(o, &m, PLAIN);
    assert_string_equal(got, "R{}C{}f({\"a\": 5})");
    free(got);
    pgl_buf_fini(&tools);
}

static void a_turn_that_ends_inside_a_call_leaves_valid_arguments(void **state) {
    (void)state;
    check(PLAIN, "<tool_call>\n<function=write>\n<parameter=path>\na.t", "R{}C{}write({\"path\": \"a.t\"})");
    check(PLAIN, "<tool_call>\n<function=write>\n<parameter=path>\na.t\n</param",
          "R{}C{}write({\"path\": \"a.t\"})");
    check(PLAIN, "<tool_call>\n<function=move>\n<parameter=n>\n4", "R{}C{}move({\"n\": 4})");
    check(PLAIN, "<tool_call>\n<function=now", "R{}C{}now({})");
    mode cut = {.no_thinking = true, .cut = true};
    check(cut, "<tool_call>\n<function=write>\n<parameter=path>\na.t", "R{}C{}write({\"path\": \"a.t)");
}

static void without_tools_everything_is_content(void **state) {
    (void)state;
    mode none = {.no_thinking = true, .no_tools = true};
    check(none, NOW "\n", "R{}C{" NOW "\n}");
    check(none, "# A\n\n- b\n- c\n", "R{}C{# A\n\n- b\n- c\n}");
    check(PLAIN, "# A\n\n- b\n- c\n", "R{}C{# A\n\n- b\n- c\n}");
    check(PLAIN, "Write `<tool_call>` to call, or <tool_call> alone",
          "R{}C{Write `<tool_call>` to call, or <tool_call> alone}");
}

static void thoughts_end_once(void **state) {
    (void)state;
    check(THINK, "a\n</think>\n\nb", "R{a}C{b}");
    check(THINK, "a</think>b<think>c</think>d", "R{a}C{b<think>c</think>d}");
    check(THINK, "<think>\na</think>b", "R{a}C{b}");
    check(THINK, "a</think>Use the `</think>` tag.", "R{a}C{Use the `</think>` tag.}");
    check(THINK, "say `</think>` and\n\nend\n</think>\n\nyes", "R{say `</think>` and\n\nend}C{yes}");
    check(THINK, "call `foo`</think>`bar` is it", "R{call `foo`}C{`bar` is it}");
    check(THINK, "say '</think>' or \"</think>\" then</think>ok",
          "R{say '</think>' or \"</think>\" then}C{ok}");
    check(THINK, "</think>\n\nb", "R{}C{b}");
    mode closed = {0};
    check(closed, "<think>\nhm\n</think>\n\nyes", "R{hm}C{yes}");
    check(closed, "yes <think>", "R{}C{yes <think>}");
    check(PLAIN, "a </think> b", "R{}C{a </think> b}");
}

static void a_thought_that_never_closes(void **state) {
    (void)state;
    check(THINK, "The answer is 4.\n", "R{The answer is 4.}C{The answer is 4.}");
    mode cut = {.in_thought = true, .cut = true};
    check(cut, "The answer is", "R{The answer is}C{}");
    check(cut, "a</think>\n\n", "R{a}C{}");
}

static void calls_inside_a_thought(void **state) {
    (void)state;
    check(THINK, "Need the file.\n" NOW, "R{Need the file.}C{}now({})");
    check(THINK, "Need the file.\n" NOW "\n</think>\n", "R{Need the file.}C{}now({})");
    check(THINK, "Quoting " NOW " here.</think>\n\nDone.", "R{Quoting " NOW " here.}C{Done.}");
    check(THINK, "Draft " NOW " so</think>\n\n" WRITE(P("path", "p")),
          "R{Draft " NOW " so}C{}write({\"path\": \"p\"})");
    check(THINK, "Draft " NOW " `</think>` so", "R{Draft}C{}now({})");
    check(THINK, "Go.</think>\n\n" NOW, "R{Go.}C{}now({})");
    mode cut = {.in_thought = true, .cut = true};
    check(cut, "Need " NOW, "R{Need " NOW "}C{}");
}

/* The value is given out while it is written, not at its end. */
static void long_values_stream(void **state) {
    (void)state;
    message m = {0};
    pgl_output *o = open_output(PLAIN, &m);
    const char *head = "<tool_call>\n<function=write>\n<parameter=content>\n";
    pgl_output_push(o, head, strlen(head));
    size_t before = m.calls.size;
    for (int i = 0; i < 100; i++) {
        pgl_output_push(o, "line\n", 5);
        assert_true(m.calls.size >= before + 4);
        before = m.calls.size;
    }
    free(finish(o, &m, PLAIN));
}

/* ---- stop strings */

static void check_stop(const char *const *stops, size_t n, const char *text, const char *expected,
                       int which) {
    pgl_stop_string strings[4];
    for (size_t i = 0; i < n; i++)
        strings[i] = (pgl_stop_string){stops[i], strlen(stops[i])};
    size_t size = strlen(text);
    for (size_t at = 0; at <= size; at++) {
        pgl_stop *stop;
        pgl_buf out = PGL_BUF_INIT;
        assert_int_equal(pgl_stop_open(strings, n, &stop, NULL), PGL_OK);
        pgl_stop_answer answer = pgl_stop_push(stop, text, at, &out);
        if (answer == PGL_STOP_GOES_ON)
            answer = pgl_stop_push(stop, text + at, size - at, &out);
        assert_true(pgl_stop_finish(stop, &out));
        assert_string_equal(pgl_buf_text(&out), expected);
        assert_int_equal((int)pgl_stop_which(stop), which);
        assert_int_equal(answer, which < 0 ? PGL_STOP_GOES_ON : PGL_STOP_MATCHED);
        pgl_stop_close(stop);
        pgl_buf_fini(&out);
    }
}

static void stop_strings_match_across_pieces(void **state) {
    (void)state;
    check_stop((const char *[]){"END"}, 1, "one EN END two", "one EN ", 0);
    check_stop((const char *[]){"END"}, 1, "one EN", "one EN", -1);
    check_stop((const char *[]){"aab"}, 1, "aaab", "a", 0);
    check_stop((const char *[]){"abcd", "bc"}, 2, "xabcd", "xa", 1);
    check_stop((const char *[]){"c", "abc"}, 2, "xabc", "x", 1);
    check_stop((const char *[]){"\n\n"}, 1, "a\nb\n\nc", "a\nb", 0);
    check_stop(NULL, 0, "abc", "abc", -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_typed_and_kept_to_the_byte),
        cmocka_unit_test(calls_without_arguments_have_an_empty_object),
        cmocka_unit_test(malformed_neighbours_do_not_harm_good_calls),
        cmocka_unit_test(a_value_that_quotes_calls_is_kept),
        cmocka_unit_test(a_value_without_any_closing_tag_ends_with_its_call),
        cmocka_unit_test(the_newline_before_a_value_depends_on_what_follows),
        cmocka_unit_test(strings_beside_other_types_are_verbatim),
        cmocka_unit_test(long_texts_in_small_pieces_take_long),
        cmocka_unit_test(a_schema_of_references_takes_for_ever),
        cmocka_unit_test(a_turn_that_ends_inside_a_call_leaves_valid_arguments),
        cmocka_unit_test(without_tools_everything_is_content),
        cmocka_unit_test(thoughts_end_once),
        cmocka_unit_test(a_thought_that_never_closes),
        cmocka_unit_test(calls_inside_a_thought),
        cmocka_unit_test(long_values_stream),
        cmocka_unit_test(stop_strings_match_across_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
