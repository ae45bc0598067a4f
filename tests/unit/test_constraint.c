/* Structured output on a vocabulary of single bytes and a few longer tokens: what masks allow is walked, text by text. */
#include <pthread.h>
#include <stdatomic.h>

#include "constraint_world.h"

static void schemas_hold_types_bounds_and_required_members(void **state) {
    (void)state;
    const char *s =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":5}},"
        "\"required\":[\"a\"],\"additionalProperties\":false}";
    takes(SCHEMA, s, "{\"a\":3}");
    takes(SCHEMA, s, "\n\n{\"a\": 5}");
    takes(SCHEMA, s, "{\n  \"a\": 1\n}");
    refuses(SCHEMA, s, "{\"a\":9}");
    refuses(SCHEMA, s, "{\"a\":\"3\"}");
    refuses(SCHEMA, s, "{}");
    refuses(SCHEMA, s, "{\"a\":3,\"b\":1}");
    takes(SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}", "[]");
    takes(SCHEMA, "true", "{\"x\": [1, null]}");
    takes(PGL_CONSTRAINT_JSON_OBJECT, "", "{\"x\":{\"y\":[]}}");
    refuses(PGL_CONSTRAINT_JSON_OBJECT, "", "[1]");
}

static void references_and_recursion_work(void **state) {
    (void)state;
    const char *s = "{\"$defs\":{\"N\":{\"type\":\"object\",\"properties\":{\"v\":{\"$ref\":\"#/$defs/"
                    "C\"},\"kids\":{\"type\":"
                    "\"array\",\"items\":{\"$ref\":\"#/$defs/"
                    "N\"}}},\"required\":[\"v\",\"kids\"],\"additionalProperties\":"
                    "false},\"C\":{\"enum\":[\"red\",\"blue\",3,null]}},\"$ref\":\"#/$defs/N\"}";
    takes(SCHEMA, s, "{\"v\":\"red\",\"kids\":[{\"v\":null,\"kids\":[]}]}");
    refuses(SCHEMA, s, "{\"v\":\"green\",\"kids\":[]}");
    pgl_error err;
    assert_int_equal(status_of(SCHEMA,
                               "{\"$defs\":{\"A\":{\"$ref\":\"#/$defs/B\"},\"B\":{\"$ref\":\"#/$defs/"
                               "A\"}},\"$ref\":\"#/$defs/A\"}",
                               &err),
                     PGL_E_INVALID);
    assert_int_equal(status_of(SCHEMA, "{\"$ref\":\"http://example.org/x.json\"}", &err), PGL_E_INVALID);
    assert_int_equal(status_of(SCHEMA, "{\"$ref\":\"#/$defs/none\"}", &err), PGL_E_INVALID);
}

static void runs_of_blanks_are_bounded(void **state) {
    (void)state;
    refuses(SCHEMA, "{\"type\":\"object\"}", "{                                                  \"a\":1}");
    refuses(SCHEMA, "{}", "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n1");
    refuses(SCHEMA, "{\"type\":\"object\"}", "{}                    ");
}

static void lengths_count_code_points_and_escapes_stay_reachable(void **state) {
    (void)state;
    const char *s = "{\"type\":\"string\",\"minLength\":2,\"maxLength\":2}";
    takes(SCHEMA, s, "\"\xC3\xA9\xE6\x97\xA5\"");
    takes(SCHEMA, s, "\"\\n\\\"\"");
    refuses(SCHEMA, s, "\"abc\"");
    takes(SCHEMA, "{\"type\":\"string\"}", "\"\\u00e9\\ud83d\\ude00\\t\"");
}

static void expressions_choices_and_grammars(void **state) {
    (void)state;
    takes(PGL_CONSTRAINT_REGEX, "[0-9]{4}/[a-z]+", "2026/nov");
    refuses(PGL_CONSTRAINT_REGEX, "[0-9]{4}/[a-z]+", "26/nov");
    takes(PGL_CONSTRAINT_CHOICE, "[\"yes\", \"no\\n\"]", "no\n");
    refuses(PGL_CONSTRAINT_CHOICE, "[\"yes\", \"no\"]", "maybe");
    takes(PGL_CONSTRAINT_LARK, "start: \"a\" b\nb: /[xy]+/\n", "axyx");
    pgl_error err;
    assert_int_equal(status_of(PGL_CONSTRAINT_REGEX, "a(b", &err), PGL_E_INVALID);
    assert_int_equal(status_of(PGL_CONSTRAINT_REGEX, "a\\", &err), PGL_E_INVALID);
    assert_int_equal(status_of(PGL_CONSTRAINT_LARK, "start: nowhere\n", &err), PGL_E_INVALID);
    assert_int_equal(status_of(PGL_CONSTRAINT_CHOICE, "[]", &err), PGL_E_INVALID);
}

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"write\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"path\":"
    "{\"type\":\"string\"},\"lines\":{\"type\":\"integer\"},\"mode\":{\"type\":\"string\",\"enum\":[\"new\","
    "\"old\"]}},"
    "\"required\":[\"path\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

static bool call(const char *tool, bool parallel, const char *text) {
    pgl_constraint_spec spec = {PGL_CONSTRAINT_TOOLS, TOOLS, strlen(TOOLS), tool, parallel};
    bool complete;
    return walk(&spec, text, &complete) == strlen(text) && complete;
}

#define WRITE(body) "<tool_call>\n<function=write>\n" body "</function>\n</tool_call>"
#define NOW "<tool_call>\n<function=now>\n</function>\n</tool_call>"

static void required_tools_take_the_models_own_form(void **state) {
    (void)state;
    assert_true(call(NULL, true, "\n\n" WRITE("<parameter=path>\na</b> <parameter=x>\n{}\n</parameter>\n")));
    assert_true(call(NULL, true,
                     WRITE("<parameter=path>\na\n</parameter>\n<parameter=lines>\n12\n</parameter>\n"
                           "<parameter=mode>\nold\n</parameter>\n")));
    assert_false(call(NULL, true, WRITE("")));
    assert_false(call(NULL, true,
                      WRITE("<parameter=path>\na\n</parameter>\n<parameter=lines>\nmany\n</parameter>\n")));
    assert_false(call(NULL, true,
                      WRITE("<parameter=path>\na\n</parameter>\n<parameter=mode>\nother\n</parameter>\n")));
    assert_true(call(NULL, true, NOW "\n" NOW));
    assert_false(call(NULL, false, NOW "\n" NOW));
    assert_true(call("now", false, NOW));
    assert_false(call("now", false, WRITE("<parameter=path>\na\n</parameter>\n")));
    assert_false(call(NULL, true, "I will look."));
    pgl_constraint_spec spec = {PGL_CONSTRAINT_TOOLS, TOOLS, strlen(TOOLS), "gone", false};
    pgl_constraint *c;
    pgl_error err;
    assert_int_equal(pgl_constraint_open(vocabulary, &spec, &c, &err), PGL_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "gone"));
}

static void broken_and_deep_schemas_are_refused(void **state) {
    (void)state;
    pgl_error err;
    char deep[4096];
    size_t n = 0;
    for (int i = 0; i < 200; i++)
        n += (size_t)snprintf(deep + n, sizeof deep - n, "{\"not\":");
    assert_int_equal(status_of(SCHEMA, deep, &err), PGL_E_INVALID);
    assert_int_equal(status_of(SCHEMA, "[1]", &err), PGL_E_INVALID);
    assert_int_equal(status_of(SCHEMA, "false", &err), PGL_E_INVALID);
    assert_int_equal(status_of(SCHEMA, "{\"type\":\"strin\"}", &err), PGL_E_INVALID);
    assert_int_equal(
        status_of(SCHEMA, "{\"type\":\"object\",\"x-guidance\":{\"lenient\":true},\"unevaluatedItems\":1}",
                  &err),
        PGL_E_INVALID);
    print_message("%s\n", err.text);
}

typedef struct counted {
    pgl_constraint_vocabulary *vocabulary;
    atomic_uint n_asked;
    atomic_uint n_waiting;
} counted;

static const char *counted_bytes(const void *user, int32_t id, size_t *size, bool *control) {
    counted *c = (counted *)(uintptr_t)user;
    atomic_fetch_add(&c->n_asked, 1);
    return bytes_of(single, id, size, control);
}

enum { PREPARERS = 6 };

static void *prepare_or_open(void *user) {
    counted *c = user;
    pgl_constraint_spec spec = {.kind = PGL_CONSTRAINT_JSON_OBJECT};
    pgl_constraint *constraint = NULL;
    bool opens = atomic_fetch_add(&c->n_waiting, 1) % 2 == 0;
    while (atomic_load(&c->n_waiting) < PREPARERS) {
    }
    pgl_status status = opens ? pgl_constraint_open(c->vocabulary, &spec, &constraint, NULL)
                              : pgl_constraint_vocabulary_prepare(c->vocabulary, NULL);
    pgl_constraint_close(constraint);
    return status == PGL_OK ? c : NULL;
}

static void a_vocabulary_is_made_once_by_however_many_threads(void **state) {
    (void)state;
    const int32_t ends[] = {264, 265};
    counted c;
    atomic_init(&c.n_asked, 0);
    atomic_init(&c.n_waiting, 0);
    pgl_constraint_tokens tokens = {N_IDS, counted_bytes, &c, ends, 2};
    assert_int_equal(pgl_constraint_vocabulary_open(&tokens, &c.vocabulary, NULL), PGL_OK);
    assert_int_equal(pgl_constraint_vocabulary_prepare(c.vocabulary, NULL), PGL_OK);
    assert_int_equal(atomic_load(&c.n_asked), N_IDS);
    pgl_constraint_spec spec = {.kind = PGL_CONSTRAINT_JSON_OBJECT};
    pgl_constraint *constraint;
    assert_int_equal(pgl_constraint_open(c.vocabulary, &spec, &constraint, NULL), PGL_OK);
    assert_int_equal(atomic_load(&c.n_asked), N_IDS); /* the first grammar finds it made */
    pgl_constraint_close(constraint);
    pgl_constraint_vocabulary_close(c.vocabulary);

    atomic_store(&c.n_asked, 0);
    assert_int_equal(pgl_constraint_vocabulary_open(&tokens, &c.vocabulary, NULL), PGL_OK);
    pthread_t threads[PREPARERS];
    for (int i = 0; i < PREPARERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, prepare_or_open, &c), 0);
    for (int i = 0; i < PREPARERS; i++) {
        void *done;
        assert_int_equal(pthread_join(threads[i], &done), 0);
        assert_non_null(done);
    }
    assert_int_equal(atomic_load(&c.n_asked), N_IDS);
    pgl_constraint_vocabulary_close(c.vocabulary);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemas_hold_types_bounds_and_required_members),
        cmocka_unit_test(references_and_recursion_work),
        cmocka_unit_test(runs_of_blanks_are_bounded),
        cmocka_unit_test(lengths_count_code_points_and_escapes_stay_reachable),
        cmocka_unit_test(expressions_choices_and_grammars),
        cmocka_unit_test(required_tools_take_the_models_own_form),
        cmocka_unit_test(a_vocabulary_is_made_once_by_however_many_threads),
        cmocka_unit_test(broken_and_deep_schemas_are_refused),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
