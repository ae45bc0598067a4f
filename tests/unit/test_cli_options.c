/* The command line parser: every spelling of an option, what is refused, and which source wins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/commands.h"
#include "cli/options.h"

static struct {
    const char *model, *mode;
    uint32_t count;
    int32_t top_k;
    uint64_t memory;
    double temperature;
    bool json;
    int think;
} v;

static const char *const modes[] = {"fast", "slow", NULL};

static pgl_option options[] = {
    PGL_OPTION_ROW_MODEL(&v.model),
    PGL_OPTION_ROW_JSON(&v.json),
    PGL_OPTION_ROW_MEMORY(&v.memory),
    {.name = "count", .letter = 'n', .kind = PGL_OPTION_U32, .target = &v.count, .min = 1, .max = 100},
    {.name = "top-k", .kind = PGL_OPTION_I32, .target = &v.top_k},
    {.name = "temperature", .kind = PGL_OPTION_REAL, .target = &v.temperature, .max = 2},
    {.name = "mode", .kind = PGL_OPTION_CHOICE, .target = &v.mode, .choices = modes},
    {.name = "think", .kind = PGL_OPTION_SWITCH, .target = &v.think},
    {.name = "quiet", .letter = 'q', .kind = PGL_OPTION_FLAG, .target = &v.json},
};
static pgl_command command;

static int parse(const char *line, int *exit_code) {
    static char text[512];
    static char *argv[32];
    int argc = 0;
    (void)snprintf(text, sizeof text, "%s", line);
    for (char *save = NULL, *word = strtok_r(text, " ", &save); word != NULL;
         word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    memset(&v, 0, sizeof v);
    v.think = -1;
    for (size_t i = 0; i < PGL_COUNT(options); i++)
        options[i].source = PGL_OPTION_DEFAULT;
    command = (pgl_command){.name = "test",
                            .operands = "[A] [B]",
                            .summary = "A test.",
                            .options = options,
                            .n_options = PGL_COUNT(options),
                            .max_operands = 2};
    return pgl_options_parse(&command, argc, argv, exit_code);
}

static void every_spelling_of_an_option_is_read(void **state) {
    (void)state;
    int code;
    assert_true(parse("test --model a --count=7 -qn8 --top-k -1 --temperature .5 x -mb - --think", &code));
    assert_string_equal(v.model, "b");
    assert_int_equal(v.count, 8);
    assert_int_equal(v.top_k, -1);
    assert_true(v.temperature == 0.5);
    assert_true(v.json);
    assert_int_equal(v.think, 1);
    assert_int_equal(command.n_found, 2);
    assert_string_equal(command.found[0], "x");
    assert_string_equal(command.found[1], "-");
    assert_true(parse("test --no-think --mode slow --memory 1.5g -- --json", &code));
    assert_int_equal(v.think, 0);
    assert_string_equal(v.mode, "slow");
    assert_int_equal(v.memory, 3ull << 29);
    assert_false(v.json);
    assert_string_equal(command.found[0], "--json");
    assert_true(parse("test --think=off", &code));
    assert_int_equal(v.think, 0);
}

static void wrong_lines_are_refused_with_the_usage_code(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "test --nonsense",
        "test -x",
        "test --count",
        "test --count 0",
        "test --count 101",
        "test --count 7x",
        "test --count=",
        "test --count -3",
        "test --temperature nan",
        "test --top-k 1e3",
        "test --mode quick",
        "test --memory 12Q",
        "test --memory -1",
        "test a b c",
        "test --think=x",
        "test --count 99999999999999999999",
        "test --memory 99999999T",
        "test -n",
    };
    for (size_t i = 0; i < PGL_COUNT(wrong); i++) {
        int code = -1;
        assert_false(parse(wrong[i], &code));
        assert_int_equal(code, PGL_EXIT_USAGE);
    }
}

static void the_message_names_option_expectation_and_finding(void **state) {
    (void)state;
    int code;
    pgl_error err;
    assert_true(parse("test", &code));
    assert_int_equal(pgl_options_set(&command, "count", "200", PGL_OPTION_FROM_CONFIG, &err), PGL_E_INVALID);
    assert_string_equal(err.text, "count: expected a whole number from 1 to 100, found \"200\"");
    assert_int_equal(pgl_options_set(&command, "cuont", "2", PGL_OPTION_FROM_CONFIG, &err), PGL_E_NOT_FOUND);
    assert_string_equal(err.text, "unknown name \"cuont\"; did you mean \"count\"?");
    assert_int_equal(pgl_options_set(&command, "mode", "x", PGL_OPTION_FROM_CONFIG, &err), PGL_E_INVALID);
    assert_string_equal(err.text, "mode: expected one of fast, slow, found \"x\"");
}

static void command_line_beats_environment_beats_config(void **state) {
    (void)state;
    int code;
    assert_int_equal(setenv("PERGOLA_MODEL", "from-env", 1), 0);
    assert_true(parse("test", &code));
    assert_string_equal(v.model, "from-env");
    assert_true(parse("test -m from-line", &code));
    assert_string_equal(v.model, "from-line");
    assert_int_equal(pgl_options_set(&command, "model", "from-file", PGL_OPTION_FROM_CONFIG, NULL), PGL_OK);
    assert_string_equal(v.model, "from-line");
    assert_int_equal(pgl_options_set(&command, "count", "9", PGL_OPTION_FROM_CONFIG, NULL), PGL_OK);
    assert_int_equal(v.count, 9);
    assert_int_equal(setenv("PERGOLA_MEMORY", "much", 1), 0);
    assert_false(parse("test", &code));
    assert_int_equal(unsetenv("PERGOLA_MEMORY"), 0);
    assert_int_equal(setenv("PERGOLA_MODEL", "", 1), 0); /* empty is unset */
    assert_true(parse("test", &code));
    assert_null(v.model);
}

static void sizes_are_powers_of_1024(void **state) {
    (void)state;
    uint64_t bytes;
    assert_true(pgl_parse_size("4096", &bytes) && bytes == 4096);
    assert_true(pgl_parse_size("2k", &bytes) && bytes == 2048);
    assert_true(pgl_parse_size("12GiB", &bytes) && bytes == 12ull << 30);
    assert_true(pgl_parse_size("0.5 TB", &bytes) && bytes == 1ull << 39);
    static const char *const wrong[] = {"",    "G",   "-1",    "1X", "1GG",     "0x10",
                                        "nan", "inf", "1e400", " 1", "8388608T"};
    for (size_t i = 0; i < PGL_COUNT(wrong); i++)
        assert_false(pgl_parse_size(wrong[i], &bytes));
}

static void near_names_are_suggested_and_far_ones_not(void **state) {
    (void)state;
    static const char *const names[] = {"run", "chat", "inspect", "tokenize", "detokenize"};
    assert_string_equal(pgl_nearest("caht", names, 5), "chat");
    assert_string_equal(pgl_nearest("inspct", names, 5), "inspect");
    assert_string_equal(pgl_nearest("tok", names, 5), "tokenize");
    assert_null(pgl_nearest("frobnicate", names, 5));
    assert_null(pgl_nearest("", names, 5));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_of_an_option_is_read),
        cmocka_unit_test(wrong_lines_are_refused_with_the_usage_code),
        cmocka_unit_test(the_message_names_option_expectation_and_finding),
        cmocka_unit_test(command_line_beats_environment_beats_config),
        cmocka_unit_test(sizes_are_powers_of_1024),
        cmocka_unit_test(near_names_are_suggested_and_far_ones_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
