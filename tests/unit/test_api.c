/* The C API of pergola.h on the golden model: what it promises about answers, histories, stopping and errors. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pergola.h"

static pergola_model *model;

static int open_model(void **state) {
    (void)state;
    pergola_model_options o;
    pergola_model_options_init(&o);
    o.path = PGL_GOLDENS "/tiny-a";
    o.context = 640;
    o.slots = 2;
    o.threads = 2;
    pergola_error err;
    if (pergola_model_open(&o, &model, &err) != PERGOLA_OK)
        (void)fprintf(stderr, "%s\n", err.text);
    return model == NULL;
}

static int close_model(void **state) {
    (void)state;
    pergola_model_close(model);
    return 0;
}

typedef struct heard {
    char text[2][16384];
    size_t size[2];
    uint32_t n_calls, stop_after; /* 0: never */
    pergola_session *cancel;
} heard;

static bool hear(void *user, pergola_text_kind kind, const char *text, size_t size) {
    heard *h = user;
    assert_int_equal(text[size], 0);
    assert_true(h->size[kind] + size < sizeof h->text[kind]);
    memcpy(h->text[kind] + h->size[kind], text, size);
    h->size[kind] += size;
    h->n_calls++;
    if (h->cancel != NULL && h->n_calls == 3)
        pergola_session_cancel(h->cancel);
    return h->n_calls != h->stop_after;
}

static heard h1, h2;

static pergola_session *open_session(bool raw, int thinking) {
    pergola_session_options o;
    pergola_session_options_init(&o);
    o.raw = raw;
    o.thinking = thinking;
    pergola_session *s = NULL;
    pergola_error err;
    if (pergola_session_open(model, &o, &s, &err) != PERGOLA_OK)
        fail_msg("%s", err.text);
    return s;
}

static pergola_generate_options greedy(uint32_t max_tokens) {
    pergola_generate_options o;
    pergola_generate_options_init(model, &o);
    o.temperature = 0;
    o.max_tokens = max_tokens;
    o.ignore_end = true;
    return o;
}

static pergola_result generate(pergola_session *s, const char *text, const pergola_generate_options *o,
                               heard *h) {
    pergola_result r = {.size = sizeof r};
    pergola_error err;
    if (pergola_generate(s, text, o, h != NULL ? hear : NULL, h, &r, &err) != PERGOLA_OK)
        fail_msg("%s", err.text);
    return r;
}

static void an_answer_is_told_counted_and_repeatable(void **state) {
    (void)state;
    pergola_session *s = open_session(false, 0);
    pergola_generate_options o = greedy(20);
    h1 = h2 = (heard){.n_calls = 0};
    pergola_result r = generate(s, "Name a tree.", &o, &h1);
    assert_int_equal(r.finish, PERGOLA_FINISH_LENGTH);
    assert_int_equal(r.answer_tokens, 20);
    assert_int_equal(r.reasoning_tokens, 0);
    assert_true(r.prompt_tokens > 5 && h1.size[0] > 10 && h1.size[1] == 0);
    pergola_session_clear(s);
    pergola_result again = generate(s, "Name a tree.", &o, &h2);
    assert_string_equal(h1.text[0], h2.text[0]);
    assert_true(again.cached_tokens > 0 && again.cached_tokens < again.prompt_tokens);
    assert_int_equal(again.prompt_tokens, r.prompt_tokens);
    pergola_session_close(s);
}

static void thinking_is_told_apart(void **state) {
    (void)state;
    pergola_session *s = open_session(false, 1);
    pergola_generate_options o = greedy(10);
    h1 = (heard){.n_calls = 0};
    pergola_result r = generate(s, "Name a tree.", &o, &h1);
    assert_int_equal(r.reasoning_tokens, 10); /* the golden model does not close its thought */
    assert_true(h1.size[PERGOLA_TEXT_REASONING] > 0 && h1.size[PERGOLA_TEXT_ANSWER] == 0);
    pergola_session_close(s);
}

static void a_seed_repeats_and_another_differs(void **state) {
    (void)state;
    pergola_session *s = open_session(true, -1);
    pergola_generate_options o = greedy(20);
    o.temperature = 1;
    o.has_seed = true;
    char first[16384];
    for (uint64_t seed = 1; seed <= 3; seed++) {
        o.seed = seed < 3 ? 42 : 43;
        h1 = (heard){.n_calls = 0};
        pergola_session_clear(s);
        pergola_result r = generate(s, "Once", &o, &h1);
        assert_int_equal(r.seed, o.seed);
        if (seed == 1)
            (void)snprintf(first, sizeof first, "%s", h1.text[0]);
        else
            assert_int_equal(strcmp(first, h1.text[0]) == 0, seed == 2);
    }
    o.has_seed = false;
    uint64_t drawn = generate(s, "x", &o, NULL).seed;
    assert_true(drawn != generate(s, "x", &o, NULL).seed);
    pergola_session_close(s);
}

static void a_raw_text_goes_on_where_it_ended(void **state) {
    (void)state;
    pergola_session *s = open_session(true, -1);
    pergola_generate_options o = greedy(12);
    h1 = h2 = (heard){.n_calls = 0};
    (void)generate(s, "Once upon a time", &o, &h1);
    pergola_session_clear(s);
    o.max_tokens = 4;
    pergola_result r = generate(s, "Once upon a time", &o, &h2);
    uint32_t n = r.prompt_tokens;
    for (uint32_t i = 1; i < 3; i++) {
        r = generate(s, NULL, &o, &h2);
        assert_int_equal(r.prompt_tokens, n + 4 * i);
        assert_true(r.cached_tokens >= n + 4 * i - 5); /* but for the last answer's last token */
    }
    /* Characters that a call's end cut in two come out as marks there; compare what is before. */
    size_t same = 0;
    while (same < h1.size[0] && h1.text[0][same] == h2.text[0][same])
        same++;
    assert_true(same >= h1.size[0] / 4);
    pergola_session_close(s);
}

static void the_callback_can_end_an_answer(void **state) {
    (void)state;
    pergola_session *s = open_session(false, 0);
    pergola_generate_options o = greedy(0);
    h1 = (heard){.stop_after = 5};
    pergola_result r = generate(s, "Go on for ever.", &o, &h1);
    assert_int_equal(r.finish, PERGOLA_FINISH_STOPPED);
    assert_int_equal(h1.n_calls, 5);
    assert_true(r.answer_tokens < 30);
    assert_true(pergola_session_undo(s)); /* what was said is part of the session */
    assert_false(pergola_session_undo(s));
    pergola_session_close(s);
}

static void a_cancel_ends_an_answer(void **state) {
    (void)state;
    pergola_session *s = open_session(false, 0);
    pergola_generate_options o = greedy(0);
    h1 = (heard){.cancel = s};
    pergola_result r = generate(s, "Go on for ever.", &o, &h1);
    assert_int_equal(r.finish, PERGOLA_FINISH_CANCELLED);
    assert_true(r.answer_tokens < 60);
    o.max_tokens = 3; /* and does not reach the next */
    r = generate(s, "More.", &o, NULL);
    assert_int_equal(r.finish, PERGOLA_FINISH_LENGTH);
    pergola_session_close(s);
}

static bool is_inside_character(char c) {
    return ((unsigned char)c & 0xC0u) == 0x80u;
}

static void stop_strings_match_across_tokens_and_are_not_told(void **state) {
    (void)state;
    pergola_session *s = open_session(true, -1);
    pergola_generate_options o = greedy(30);
    h1 = (heard){.n_calls = 0};
    (void)generate(s, "Once upon a time", &o, &h1);
    for (size_t at = 1; at + 16 < h1.size[0]; at += 5) {
        char stop[16] = "";
        size_t from = at, length = 1 + at % 7;
        while (is_inside_character(h1.text[0][from]))
            from++;
        while (is_inside_character(h1.text[0][from + length]))
            length++;
        memcpy(stop, h1.text[0] + from, length);
        const char *stops[] = {"never in it", stop};
        o.stop = stops;
        o.n_stop = 2;
        pergola_session_clear(s);
        h2 = (heard){.n_calls = 0};
        pergola_result r = generate(s, "Once upon a time", &o, &h2);
        const char *found = strstr(h1.text[0], stop);
        assert_int_equal(r.finish, PERGOLA_FINISH_STOP);
        assert_int_equal(h2.size[0], found - h1.text[0]);
        assert_memory_equal(h1.text[0], h2.text[0], h2.size[0]);
    }
    static const char *const wrong[] = {"", "\xc3", NULL};
    for (size_t i = 0; i < 3; i++) {
        o.stop = &wrong[i];
        o.n_stop = 1;
        pergola_error err;
        assert_int_equal(pergola_generate(s, "x", &o, NULL, NULL, NULL, &err), PERGOLA_INVALID);
        assert_non_null(strstr(err.text, "stop"));
    }
    pergola_session_close(s);
}

static void a_failed_generation_leaves_the_session_as_it_was(void **state) {
    (void)state;
    char longer[8192];
    for (size_t i = 0; i + 1 < sizeof longer; i++)
        longer[i] = "ab "[i % 3];
    longer[sizeof longer - 1] = '\0';
    for (int raw = 0; raw < 2; raw++) {
        pergola_session *s = open_session(raw, 0);
        pergola_generate_options o = greedy(3);
        pergola_result r = generate(s, "Hello", &o, NULL), before = generate(s, "And", &o, NULL);
        (void)r;
        pergola_error err;
        assert_int_equal(pergola_generate(s, longer, &o, NULL, NULL, NULL, &err), PERGOLA_CONTEXT_FULL);
        assert_non_null(strstr(err.text, "640"));
        o.top_p = 7;
        assert_int_equal(pergola_generate(s, "x", &o, NULL, NULL, NULL, &err), PERGOLA_INVALID);
        assert_non_null(strstr(err.text, "top_p"));
        assert_int_equal(pergola_generate(s, "\xff\xfe", &o, NULL, NULL, NULL, &err), PERGOLA_INVALID);
        o.top_p = 1;
        pergola_result after = generate(s, "And", &o, NULL);
        assert_true(after.prompt_tokens > before.prompt_tokens);
        if (raw) {
            uint32_t tokens;
            assert_int_equal(pergola_count_tokens(model, "And", &tokens, NULL), PERGOLA_OK);
            assert_int_equal(after.prompt_tokens, before.prompt_tokens + 3 + tokens);
        }
        pergola_session_close(s);
    }
}

static void histories_can_be_set_undone_and_cleared(void **state) {
    (void)state;
    pergola_session *s = open_session(false, 0);
    pergola_generate_options o = greedy(2);
    pergola_error err;
    uint32_t alone = generate(s, "Hi", &o, NULL).prompt_tokens;
    pergola_session_clear(s);
    assert_int_equal(pergola_session_add(s, "user", "Earlier", &err), PERGOLA_OK);
    assert_int_equal(pergola_session_add(s, "assistant", "Yes", &err), PERGOLA_OK);
    assert_true(generate(s, "Hi", &o, NULL).prompt_tokens > alone);
    assert_true(pergola_session_undo(s));
    assert_true(pergola_session_undo(s));
    assert_int_equal(generate(s, "Hi", &o, NULL).prompt_tokens, alone);
    pergola_session_clear(s);
    assert_int_equal(pergola_session_set_system(s, "Be brief.", &err), PERGOLA_OK);
    assert_true(generate(s, "Hi", &o, NULL).prompt_tokens > alone);
    pergola_session_clear(s);
    assert_int_equal(pergola_session_set_system(s, NULL, &err), PERGOLA_OK);
    assert_int_equal(generate(s, "Hi", &o, NULL).prompt_tokens, alone);
    assert_int_equal(pergola_session_add(s, "critic", "No", &err), PERGOLA_INVALID);
    assert_non_null(strstr(err.text, "critic"));
    assert_int_equal(pergola_session_add(s, NULL, "No", &err), PERGOLA_INVALID);
    pergola_session_close(s);
}

static void message_text_never_becomes_a_control_token(void **state) {
    (void)state;
    pergola_session *chat = open_session(false, 0), *raw = open_session(true, -1);
    pergola_generate_options o = greedy(1);
    uint32_t plain = generate(chat, "x", &o, NULL).prompt_tokens;
    pergola_session_clear(chat);
    assert_true(generate(chat, "<|im_end|>", &o, NULL).prompt_tokens > plain + 2);
    assert_int_equal(generate(raw, "<|im_end|>", &o, NULL).prompt_tokens, 1);
    pergola_session_close(chat);
    pergola_session_close(raw);
}

static void *answer_in_thread(void *user) {
    heard *h = user;
    pergola_session *s = open_session(false, 0);
    pergola_generate_options o = greedy(25);
    (void)generate(s, h->stop_after == 1000 ? "Name a tree." : "Name a river.", &o, h);
    pergola_session_close(s);
    return NULL;
}

static void sessions_of_several_threads_do_not_mix(void **state) {
    (void)state;
    static heard alone[2], together[4];
    for (size_t i = 0; i < 2; i++) {
        alone[i] = (heard){.stop_after = 1000 + (uint32_t)i};
        (void)answer_in_thread(&alone[i]);
    }
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) { /* two more than there are slots */
        together[i] = (heard){.stop_after = 1000 + (uint32_t)i % 2};
        assert_int_equal(pthread_create(&threads[i], NULL, answer_in_thread, &together[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        (void)pthread_join(threads[i], NULL);
        assert_string_equal(together[i].text[0], alone[i % 2].text[0]);
    }
    assert_string_not_equal(alone[0].text[0], alone[1].text[0]);
}

static void what_cannot_be_opened_is_refused_with_a_reason(void **state) {
    (void)state;
    pergola_model_options o;
    pergola_model_options_init(&o);
    pergola_model *none = NULL;
    pergola_error err;
    assert_int_equal(pergola_model_open(&o, &none, &err), PERGOLA_INVALID);
    o.path = PGL_GOLDENS "/no-such";
    assert_int_equal(pergola_model_open(&o, &none, &err), PERGOLA_NOT_FOUND);
    assert_non_null(strstr(err.text, "no-such"));
    assert_int_equal(pergola_model_open(&o, &none, NULL), PERGOLA_NOT_FOUND);
    assert_null(none);
    assert_string_equal(pergola_status_name(err.status), "not_found");
    pergola_model_close(NULL);
    pergola_session_close(NULL);
}

static void an_older_program_with_shorter_options_gets_defaults(void **state) {
    (void)state;
    pergola_session *s = open_session(true, -1);
    pergola_generate_options o = greedy(5);
    o.size = offsetof(pergola_generate_options, temperature); /* knew only the limit */
    o.temperature = -100;
    pergola_result r = {.size = offsetof(pergola_result, reasoning_tokens), .reasoning_tokens = 77};
    pergola_error err;
    assert_int_equal(pergola_generate(s, "Once", &o, NULL, NULL, &r, &err), PERGOLA_OK);
    assert_true(r.answer_tokens <= 5);
    assert_int_equal(r.reasoning_tokens, 77);
    pergola_model_info info = {.size = offsetof(pergola_model_info, context), .context = 9};
    pergola_model_get_info(model, &info);
    assert_string_equal(info.name, "tiny-a");
    assert_int_equal(info.context, 9);
    pergola_session_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_told_counted_and_repeatable),
        cmocka_unit_test(thinking_is_told_apart),
        cmocka_unit_test(a_seed_repeats_and_another_differs),
        cmocka_unit_test(a_raw_text_goes_on_where_it_ended),
        cmocka_unit_test(the_callback_can_end_an_answer),
        cmocka_unit_test(a_cancel_ends_an_answer),
        cmocka_unit_test(stop_strings_match_across_tokens_and_are_not_told),
        cmocka_unit_test(a_failed_generation_leaves_the_session_as_it_was),
        cmocka_unit_test(histories_can_be_set_undone_and_cleared),
        cmocka_unit_test(message_text_never_becomes_a_control_token),
        cmocka_unit_test(sessions_of_several_threads_do_not_mix),
        cmocka_unit_test(what_cannot_be_opened_is_refused_with_a_reason),
        cmocka_unit_test(an_older_program_with_shorter_options_gets_defaults),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
