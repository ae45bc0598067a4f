#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "server/params.h"

typedef struct reading {
    pgl_arena *arena;
    json_t *body;
    pgl_gen_params params;
    pgl_refusal err;
} reading;

static bool read_text(reading *r, pgl_param_routes route, const char *text) {
    pgl_error err;
    pgl_sample_params sampling = pgl_sample_defaults();
    memset(r, 0, sizeof *r);
    r->arena = pgl_arena_open(0);
    assert_int_equal(pgl_json_parse(text, strlen(text), NULL, &r->body, &err), PGL_OK);
    r->params = pgl_params_defaults(&sampling);
    return pgl_params_read(r->body, route, 1000, r->arena, &r->params, &r->err);
}

static void end(reading *r) {
    json_decref(r->body);
    pgl_arena_close(r->arena);
}

static void accept_text(pgl_param_routes route, const char *text) {
    reading r;
    if (!read_text(&r, route, text))
        fail_msg("%s: %s", text, r.err.text);
    end(&r);
}

static void refuse_text(pgl_param_routes route, const char *text, const char *param) {
    reading r;
    if (read_text(&r, route, text))
        fail_msg("%s was accepted", text);
    if (strcmp(r.err.param, param) != 0)
        fail_msg("%s: param %s, expected %s", text, r.err.param, param);
    assert_int_equal(r.err.status, 400);
    assert_true(strlen(r.err.text) > 0);
    end(&r);
}

/* Every row of the table: null is absent, the ends of the range are in, what lies beyond and other types are out. */
static void every_row_holds_its_type_and_range(void **state) {
    (void)state;
    size_t n;
    const pgl_param_row *rows = pgl_param_rows(&n);
    static const char *const values[] = {"true", "\"x\"", "{}", "[1]", "7", "0.5"};
    for (size_t i = 0; i < n; i++) {
        const pgl_param_row *row = &rows[i];
        char text[256];
        pgl_param_routes route = row->routes;
        if (route & PGL_PARAM_BOTH)
            route = row->routes & PGL_PARAM_CHAT ? PGL_PARAM_CHAT : PGL_PARAM_COMPLETIONS;
        if (row->kind == PGL_PARAM_TEXT)
            continue; /* read by its route */
        snprintf(text, sizeof text, "{\"%s\":null}", row->name);
        accept_text(route, text);
        bool number = row->kind == PGL_PARAM_INTEGER || row->kind == PGL_PARAM_NUMBER;
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            bool right = ((row->kind == PGL_PARAM_BOOL || row->kind == PGL_PARAM_FLAG) && k == 0) ||
                         (row->kind == PGL_PARAM_STRING && k == 1) ||
                         (row->kind == PGL_PARAM_OBJECT && k == 2) || (number && k >= 4) ||
                         row->kind == PGL_PARAM_ACCEPTED || row->kind == PGL_PARAM_READER;
            snprintf(text, sizeof text, "{\"%s\":%s}", row->name, values[k]);
            if (!right)
                refuse_text(route, text, row->name);
        }
        if (!number)
            continue;
        double step = row->kind == PGL_PARAM_INTEGER ? 1 : 0.001;
        double inside[] = {row->min, row->max}, outside[] = {row->min - step, row->max + step, 1e300, -1e300};
        for (size_t k = 0; k < 2; k++) {
            snprintf(text, sizeof text, "{\"%s\":%.17g%s}", row->name, inside[k],
                     strcmp(row->name, "top_logprobs") == 0 ? ",\"logprobs\":true" : "");
            bool apart = strcmp(row->name, "best_of") == 0 ||
                         (row->routes == PGL_PARAM_COMPLETIONS && strcmp(row->name, "max_tokens") == 0);
            if (!apart)
                accept_text(route, text);
        }
        for (size_t k = 0; k < 4; k++) {
            snprintf(text, sizeof text, "{\"%s\":%.17g}", row->name, outside[k]);
            refuse_text(route, text, row->name);
        }
        if (row->kind == PGL_PARAM_INTEGER) {
            snprintf(text, sizeof text, "{\"%s\":%.17g}", row->name, row->min + 0.5);
            refuse_text(route, text, row->name);
        }
    }
}

static void what_goes_wrong_together_is_named(void **state) {
    (void)state;
    refuse_text(PGL_PARAM_CHAT, "{\"top_logprobs\":1}", "top_logprobs");
    refuse_text(PGL_PARAM_CHAT, "{\"logprobs\":false,\"top_logprobs\":0}", "top_logprobs");
    refuse_text(PGL_PARAM_CHAT, "{\"stream_options\":{}}", "stream_options");
    refuse_text(PGL_PARAM_CHAT, "{\"stream\":true,\"stream_options\":{\"include_usage\":1}}",
                "stream_options.include_usage");
    accept_text(PGL_PARAM_CHAT, "{\"stream\":true,\"stream_options\":{}}");
    refuse_text(PGL_PARAM_CHAT, "{\"best_of\":2}", "best_of");
    refuse_text(PGL_PARAM_COMPLETIONS, "{\"max_tokens\":0}", "max_tokens");
    accept_text(PGL_PARAM_COMPLETIONS, "{\"max_tokens\":0,\"echo\":true}");
    refuse_text(PGL_PARAM_CHAT, "{\"continue_final_message\":true,\"add_generation_prompt\":true}",
                "continue_final_message");
}

static void limits_have_two_names_and_the_smaller_counts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t limit;
    } cases[] = {{"{}", -1},
                 {"{\"max_tokens\":7}", 7},
                 {"{\"max_completion_tokens\":7}", 7},
                 {"{\"max_completion_tokens\":7,\"max_tokens\":9}", 7},
                 {"{\"max_completion_tokens\":9,\"max_tokens\":7.0}", 7}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reading r;
        assert_true(read_text(&r, PGL_PARAM_CHAT, cases[i].text));
        assert_int_equal(r.params.max_tokens, cases[i].limit);
        end(&r);
    }
}

static void stop_takes_a_string_or_a_list(void **state) {
    (void)state;
    reading r;
    assert_true(read_text(&r, PGL_PARAM_CHAT, "{\"stop\":\"a\"}"));
    assert_int_equal(r.params.n_stops, 1);
    end(&r);
    assert_true(read_text(&r, PGL_PARAM_CHAT, "{\"stop\":[]}"));
    assert_int_equal(r.params.n_stops, 0);
    end(&r);
    assert_true(read_text(&r, PGL_PARAM_CHAT, "{\"stop\":[\"a\",\"\xc3\xa4\"]}"));
    assert_int_equal(r.params.n_stops, 2);
    assert_int_equal(r.params.stops[1].size, 2);
    end(&r);
    refuse_text(PGL_PARAM_CHAT, "{\"stop\":\"\"}", "stop");
    refuse_text(PGL_PARAM_CHAT, "{\"stop\":[\"a\",\"\"]}", "stop[1]");
    refuse_text(PGL_PARAM_CHAT, "{\"stop\":[\"a\",1]}", "stop[1]");
    refuse_text(PGL_PARAM_CHAT, "{\"stop\":1}", "stop");
    char many[1024] = "{\"stop\":[\"a\"";
    for (unsigned i = 0; i < PGL_MOST_STOPS; i++)
        strcat(many, ",\"b\"");
    strcat(many, "]}");
    refuse_text(PGL_PARAM_CHAT, many, "stop");
    refuse_text(PGL_PARAM_CHAT, "{\"stop_token_ids\":[1000]}", "stop_token_ids");
    refuse_text(PGL_PARAM_CHAT, "{\"stop_token_ids\":[-1]}", "stop_token_ids");
    refuse_text(PGL_PARAM_CHAT, "{\"stop_token_ids\":3}", "stop_token_ids");
    accept_text(PGL_PARAM_CHAT, "{\"stop_token_ids\":[0,999]}");
}

static void logit_bias_is_sorted_and_held_to_the_vocabulary(void **state) {
    (void)state;
    reading r;
    assert_true(read_text(&r, PGL_PARAM_CHAT, "{\"logit_bias\":{\"999\":-100,\"0\":100,\"17\":0.5}}"));
    assert_int_equal(r.params.n_bias, 3);
    assert_int_equal(r.params.bias[0].id, 0);
    assert_int_equal(r.params.bias[1].id, 17);
    assert_int_equal(r.params.bias[2].id, 999);
    assert_true(r.params.bias[1].bias == 0.5f);
    end(&r);
    static const char *const wrong[] = {"{\"1000\":1}", "{\"-1\":1}",   "{\"01\":1}",
                                        "{\"\":1}",     "{\"1.0\":1}",  "{\"x\":1}",
                                        "{\"1\":101}",  "{\"1\":-101}", "{\"1\":\"1\"}",
                                        "{\"1\":null}", "[1]",          "{\"99999999999999999999\":1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"logit_bias\":%s}", wrong[i]);
        refuse_text(PGL_PARAM_CHAT, text, "logit_bias");
    }
}

static void thinking_has_many_names_and_one_meaning(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t thinking, budget;
    } cases[] = {{"{}", -1, -1},
                 {"{\"enable_thinking\":false}", 0, -1},
                 {"{\"enable_thinking\":true,\"reasoning_effort\":\"none\"}", 1, -1},
                 {"{\"reasoning_effort\":\"none\"}", 0, -1},
                 {"{\"reasoning_effort\":\"low\"}", 1, -1},
                 {"{\"chat_template_kwargs\":{\"enable_thinking\":false}}", 0, -1},
                 {"{\"chat_template_kwargs\":{\"enable_thinking\":false},\"enable_thinking\":true}", 0, -1},
                 {"{\"thinking_budget\":0}", 0, 0},
                 {"{\"thinking_budget\":-1}", -1, -1},
                 {"{\"thinking_budget\":64}", -1, 64},
                 {"{\"chat_template_kwargs\":{\"thinking_budget\":5}}", -1, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reading r;
        assert_true(read_text(&r, PGL_PARAM_CHAT, cases[i].text));
        assert_int_equal(r.params.thinking, cases[i].thinking);
        assert_int_equal(r.params.thinking_budget, cases[i].budget);
        end(&r);
    }
    refuse_text(PGL_PARAM_CHAT, "{\"thinking_budget\":\"x\"}", "thinking_budget");
    refuse_text(PGL_PARAM_CHAT, "{\"thinking_budget\":-2}", "thinking_budget");
    refuse_text(PGL_PARAM_CHAT, "{\"thinking_budget\":1.5}", "thinking_budget");
    refuse_text(PGL_PARAM_CHAT, "{\"reasoning_effort\":\"x\"}", "reasoning_effort");
    refuse_text(PGL_PARAM_CHAT, "{\"enable_thinking\":\"false\"}", "enable_thinking");
    refuse_text(PGL_PARAM_CHAT, "{\"chat_template_kwargs\":{\"enable_thinking\":1}}",
                "chat_template_kwargs.enable_thinking");
}

static void what_is_known_and_not_supported_is_never_silent(void **state) {
    (void)state;
    static const char *const names[] = {"suffix",  "functions",   "function_call",     "audio",
                                        "grammar", "json_schema", "web_search_options"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[128];
        pgl_param_routes route = strcmp(names[i], "suffix") == 0 ? PGL_PARAM_COMPLETIONS : PGL_PARAM_CHAT;
        snprintf(text, sizeof text, "{\"%s\":\"x\"}", names[i]);
        refuse_text(route, text, names[i]);
    }
    refuse_text(PGL_PARAM_CHAT, "{\"response_format\":{\"type\":\"yaml\"}}", "response_format");
    refuse_text(PGL_PARAM_CHAT, "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}}",
                "response_format.json_schema");
    refuse_text(PGL_PARAM_CHAT, "{\"guided_json\":5}", "guided_json");
    refuse_text(PGL_PARAM_CHAT, "{\"guided_regex\":\"\"}", "guided_regex");
    refuse_text(PGL_PARAM_CHAT, "{\"guided_choice\":\"a\"}", "guided_choice");
    refuse_text(PGL_PARAM_CHAT, "{\"guided_grammar\":[]}", "guided_grammar");
    refuse_text(PGL_PARAM_CHAT, "{\"structured_outputs\":{\"regex\":5}}", "structured_outputs.regex");
    refuse_text(PGL_PARAM_CHAT, "{\"guided_regex\":\"a\",\"guided_json\":{}}", "guided_regex");
    accept_text(PGL_PARAM_CHAT, "{\"response_format\":{\"type\":\"json_object\"}}");
    accept_text(PGL_PARAM_CHAT, "{\"guided_choice\":[\"a\"]}");
    refuse_text(PGL_PARAM_CHAT, "{\"response_format\":\"json\"}", "response_format");
    accept_text(PGL_PARAM_CHAT, "{\"response_format\":{\"type\":\"text\"}}");
    accept_text(PGL_PARAM_CHAT, "{\"tool_choice\":\"required\"}");
    accept_text(PGL_PARAM_CHAT, "{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}}");
    refuse_text(PGL_PARAM_CHAT, "{\"tool_choice\":{\"type\":\"function\"}}", "tool_choice");
    refuse_text(PGL_PARAM_CHAT, "{\"tool_choice\":\"any\"}", "tool_choice");
    accept_text(PGL_PARAM_CHAT, "{\"no_such_field\":{\"a\":[1]},\"suffix\":\"\",\"guided_json\":null}");
}

static void seeds_of_choices_differ_and_repeat(void **state) {
    (void)state;
    reading r;
    assert_true(read_text(&r, PGL_PARAM_CHAT, "{\"seed\":-9223372036854775808,\"top_p\":0}"));
    pgl_sample_params first = pgl_params_sampling(&r.params, 5, 0),
                      second = pgl_params_sampling(&r.params, 5, 1);
    assert_true(first.seed != second.seed);
    assert_true(first.seed == pgl_params_sampling(&r.params, 6, 0).seed);
    assert_int_equal(pgl_sample_check(&first, 1000, NULL), PGL_OK);
    end(&r);
    assert_true(read_text(&r, PGL_PARAM_CHAT, "{\"seed\":-1}"));
    assert_true(pgl_params_sampling(&r.params, 6, 0).seed == 6);
    end(&r);
    refuse_text(PGL_PARAM_CHAT, "{\"seed\":1e30}", "seed");
    refuse_text(PGL_PARAM_CHAT, "{\"seed\":\"1\"}", "seed");
    refuse_text(PGL_PARAM_CHAT, "{\"seed\":1.5}", "seed");
}

static void the_field_of_a_nan_is_found(void **state) {
    (void)state;
    static const struct {
        const char *text, *field;
    } cases[] = {{"{\"temperature\": NaN}", "temperature"},
                 {"{\"a\":\"NaN\",\"top_p\":-Infinity}", "top_p"},
                 {"{\"a\":\"\\\"NaN\",\"logit_bias\":{\"5\":Infinity}}", "5"},
                 {"{\"a\":\"NaN\"}", NULL},
                 {"{\"a\":\"N\\", NULL},
                 {"NaN", NULL},
                 {"", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char field[96] = "";
        bool found = pgl_params_find_nan(cases[i].text, strlen(cases[i].text), field, sizeof field);
        assert_int_equal(found, cases[i].field != NULL);
        if (found)
            assert_string_equal(field, cases[i].field);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_holds_its_type_and_range),
        cmocka_unit_test(what_goes_wrong_together_is_named),
        cmocka_unit_test(limits_have_two_names_and_the_smaller_counts),
        cmocka_unit_test(stop_takes_a_string_or_a_list),
        cmocka_unit_test(logit_bias_is_sorted_and_held_to_the_vocabulary),
        cmocka_unit_test(thinking_has_many_names_and_one_meaning),
        cmocka_unit_test(what_is_known_and_not_supported_is_never_silent),
        cmocka_unit_test(seeds_of_choices_differ_and_repeat),
        cmocka_unit_test(the_field_of_a_nan_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
