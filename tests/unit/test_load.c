/* The parts of `pergola bench serve` that know no socket: reading of streams, lengths of prompts, ranks, URLs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/load_prompt.h"
#include "cli/load_stats.h"
#include "cli/load_stream.h"

/* ---- streams ---- */

typedef struct notes {
    char text[64];
} notes;

static void note(void *user, unsigned what) {
    notes *n = user;
    size_t used = strlen(n->text);
    assert_true(used < sizeof n->text - 1);
    n->text[used] = ".tfb"[what];
    n->text[used + 1] = '\0';
}

static pgl_load_stream_fault feed_in_two(const char *text, size_t cut, pgl_load_stream *stream, notes *n) {
    *n = (notes){0};
    pgl_load_stream_init(stream, 100, note, n);
    pgl_load_stream_fault fault = pgl_load_stream_feed(stream, text, cut);
    if (fault == PGL_LOAD_STREAM_FINE)
        fault = pgl_load_stream_feed(stream, text + cut, strlen(text) - cut);
    return fault;
}

static void a_stream_reads_the_same_at_every_cut(void **state) {
    (void)state;
    static const char text[] =
        ": a comment\r\n\r\n"
        "event: message\rid: 7\r\rdata: "
        "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
        "data:{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\n"
        "data: {\"choices\":\ndata: [{\"text\":\"b\"}]}\n\n"
        "data: {\"choices\":[{\"delta\":{\"reasoning\":\"c\"},\"finish_reason\":\"length\"}]}\n\n"
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3,"
        "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n"
        "data: [DONE]\n\ndata: no json, and not read\n\n";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        pgl_load_stream stream;
        notes n;
        assert_int_equal(feed_in_two(text, cut, &stream, &n), PGL_LOAD_STREAM_FINE);
        assert_string_equal(n.text, ".ttb.");
        assert_true(stream.done && stream.finished);
        assert_int_equal(stream.prompt_tokens, 5);
        assert_int_equal(stream.completion_tokens, 3);
        assert_int_equal(stream.cached_tokens, 4);
        pgl_load_stream_fini(&stream);
    }
}

static void faults_of_a_stream_are_told_apart(void **state) {
    (void)state;
    const struct {
        const char *text;
        pgl_load_stream_fault fault;
    } rows[] = {
        {"data: {\"choices\":null,\"error\":null}\n\n", PGL_LOAD_STREAM_FINE},
        {"data: {}\n\n", PGL_LOAD_STREAM_FINE},
        {"data\n\n", PGL_LOAD_STREAM_BAD_EVENT},
        {"data: {\n\n", PGL_LOAD_STREAM_BAD_EVENT},
        {"data: []\n\n", PGL_LOAD_STREAM_BAD_EVENT},
        {"data: {\"error\":{\"message\":\"no\\u0007 \\ud83d\\ude00\"}}\n\n", PGL_LOAD_STREAM_ERROR},
        {"datum: {\n\n", PGL_LOAD_STREAM_FINE},
        {"data: {", PGL_LOAD_STREAM_FINE}, /* never sent off */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pgl_load_stream stream;
        notes n;
        assert_int_equal(feed_in_two(rows[i].text, 3, &stream, &n), rows[i].fault);
        if (rows[i].fault == PGL_LOAD_STREAM_ERROR)
            assert_string_equal(stream.message, "no  \xf0\x9f\x98\x80");
        pgl_load_stream_fini(&stream);
    }
}

static void a_stream_cannot_grow_for_ever(void **state) {
    (void)state;
    pgl_load_stream stream;
    notes n = {0};
    char *block = calloc(1 << 20, 1);
    assert_non_null(block);
    memset(block, 'x', 1 << 20);
    pgl_load_stream_fault fault = PGL_LOAD_STREAM_FINE;
    pgl_load_stream_init(&stream, 100, note, &n);
    for (int i = 0; i < 16 && fault == PGL_LOAD_STREAM_FINE; i++)
        fault = pgl_load_stream_feed(&stream, block, 1 << 20);
    assert_int_equal(fault, PGL_LOAD_STREAM_TOO_LARGE);
    pgl_load_stream_fini(&stream);
    fault = PGL_LOAD_STREAM_FINE; /* the same in lines */
    memcpy(block, "data:", 5);
    block[(1 << 20) - 1] = '\n';
    pgl_load_stream_init(&stream, 100, note, &n);
    for (int i = 0; i < 16 && fault == PGL_LOAD_STREAM_FINE; i++)
        fault = pgl_load_stream_feed(&stream, block, 1 << 20);
    assert_int_equal(fault, PGL_LOAD_STREAM_TOO_LARGE);
    pgl_load_stream_fini(&stream);
    free(block);
    fault = PGL_LOAD_STREAM_FINE;
    pgl_load_stream_init(&stream, 50, note, &n);
    for (int i = 0; i < 100 && fault == PGL_LOAD_STREAM_FINE; i++)
        fault = pgl_load_stream_feed(&stream, "data: {}\n\n", 10);
    assert_int_equal(fault, PGL_LOAD_STREAM_TOO_MANY);
    assert_int_equal(stream.n_events, 51);
    pgl_load_stream_fini(&stream);
}

static void messages_are_short_printable_and_whole_characters(void **state) {
    (void)state;
    char out[PGL_LOAD_TEXT_BYTES], body[1000];
    pgl_load_error_message("{\"detail\":\"a\\nb\"}", 17, out);
    assert_string_equal(out, "a b");
    pgl_load_error_message("{\"message\":\"c\"}", 15, out);
    assert_string_equal(out, "c");
    pgl_load_error_message("{\"error\":\"d\"}", 13, out);
    assert_string_equal(out, "d");
    pgl_load_error_message("\xff<\x1b>\xc2\x85", 6, out);
    assert_string_equal(out, " < > ");
    pgl_load_error_message("", 0, out);
    assert_string_equal(out, "");
    for (size_t i = 0; i < sizeof body; i += 2)
        memcpy(body + i, "\xc3\xa4", 2);
    pgl_load_error_message(body, sizeof body, out);
    assert_int_equal(strlen(out), 198);
}

/* ---- prompts ---- */

typedef struct tokens {
    uint32_t calls, overhead, per_word, per_letter_word;
    int mode;
} tokens;

/* A tokenizer: words of one letter and others, and what the template adds. */
static pgl_status count(void *user, const char *text, size_t size, uint32_t *n, pgl_error *err) {
    tokens *t = user;
    (void)err;
    t->calls++;
    *n = t->overhead;
    if (t->mode == 1)
        return PGL_OK; /* whatever it gets */
    if (t->mode == 2) {
        *n = t->calls * 7919u % 1000u;
        return PGL_OK;
    }
    for (size_t i = 0; i < size;) {
        size_t end = i;
        while (end < size && text[end] != ' ')
            end++;
        if (end > i)
            *n += end - i > 1 ? t->per_word : t->per_letter_word;
        i = end + 1;
    }
    return PGL_OK;
}

static void prompts_are_exactly_as_long_as_asked(void **state) {
    (void)state;
    for (uint32_t per_word = 1; per_word <= 4; per_word++) {
        tokens t = {.overhead = 9, .per_word = per_word, .per_letter_word = 1};
        pgl_load_counter counter = {.user = &t, .count = count};
        pgl_load_prompts prompts = {.counter = &counter, .tokens_per_word = 1};
        for (uint32_t n = 9; n < 200; n += 1 + n / 20) {
            pgl_buf text = PGL_BUF_INIT;
            pgl_error err;
            uint32_t found = 0, check = 0;
            t.calls = 0;
            assert_int_equal(pgl_load_prompt_make(&prompts, n, n, &text, &found, &err), PGL_OK);
            assert_true(t.calls <= 20);
            assert_int_equal(found, n);
            assert_int_equal(count(&t, pgl_buf_text(&text), text.size, &check, &err), PGL_OK);
            assert_int_equal(check, n);
            pgl_buf_fini(&text);
        }
        pgl_buf text = PGL_BUF_INIT;
        pgl_error err;
        uint32_t found;
        assert_int_equal(pgl_load_prompt_make(&prompts, 1, 8, &text, &found, &err), PGL_E_INVALID);
        assert_non_null(strstr(err.text, "9 already"));
        pgl_buf_fini(&text);
    }
}

static void a_counter_that_lies_ends_the_search(void **state) {
    (void)state;
    for (int mode = 1; mode <= 2; mode++) {
        for (uint32_t n = 5; n < 3000; n *= 3) {
            tokens t = {.overhead = 3, .mode = mode};
            pgl_load_counter counter = {.user = &t, .count = count};
            pgl_load_prompts prompts = {.counter = &counter, .tokens_per_word = 1};
            pgl_buf text = PGL_BUF_INIT;
            pgl_error err;
            uint32_t found = 0;
            pgl_status status = pgl_load_prompt_make(&prompts, 1, n, &text, &found, &err);
            assert_true(status == PGL_OK || status == PGL_E_INVALID);
            assert_true(t.calls <= 60 && text.size < 1 << 20);
            pgl_buf_fini(&text);
        }
    }
}

static void seeds_give_the_same_prompt_and_others_another(void **state) {
    (void)state;
    pgl_load_prompts prompts = {.tokens_per_word = 1};
    pgl_buf texts[3] = {PGL_BUF_INIT, PGL_BUF_INIT, PGL_BUF_INIT};
    const uint64_t seeds[] = {1, 1, 2};
    pgl_error err;
    uint32_t found;
    for (int i = 0; i < 3; i++) {
        assert_true(pgl_buf_puts(&texts[i], "two words"));
        assert_int_equal(pgl_load_prompt_make(&prompts, seeds[i], 50, &texts[i], &found, &err), PGL_OK);
        assert_int_equal(found, 50);
        assert_memory_equal(texts[i].data, "two words ", 10);
    }
    assert_string_equal(texts[0].data, texts[1].data);
    assert_string_not_equal(texts[0].data, texts[2].data);
    for (int i = 0; i < 3; i++)
        pgl_buf_fini(&texts[i]);
}

/* ---- figures ---- */

static void percentiles_are_the_nearest_rank(void **state) {
    (void)state;
    double values[200];
    const size_t sizes[] = {1, 2, 9, 10, 11, 99, 100, 101, 200};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        for (size_t i = 0; i < n; i++)
            values[i] = (double)((i * 7919) % n + 1); /* 1 .. n in some order: the value is the rank */
        pgl_load_spread spread = pgl_load_spread_of(values, n, 2 * n);
        assert_int_equal(spread.n, n);
        assert_true(spread.share == 0.5);
        assert_int_equal(spread.p50, (n * 50 + 99) / 100);
        assert_int_equal(spread.p90, (n * 90 + 99) / 100);
        assert_int_equal(spread.p99, (n * 99 + 99) / 100);
        assert_int_equal(spread.max, n);
        assert_true(spread.mean == (double)(n + 1) / 2);
    }
    pgl_load_spread none = pgl_load_spread_of(values, 0, 0);
    assert_true(none.n == 0 && none.share == 0);
}

static void failed_requests_are_in_no_figure(void **state) {
    (void)state;
    const uint64_t MS = 1000000;
    pgl_load_record records[] = {
        {.status = 200,
         .due_ns = 10 * MS,
         .sent_ns = 12 * MS,
         .first_ns = 110 * MS,
         .last_ns = 210 * MS,
         .end_ns = 220 * MS,
         .n_pieces = 11,
         .prompt_tokens = 7,
         .output_tokens = -1,
         .cached_tokens = -1},
        {.failure = PGL_LOAD_CUT_OFF,
         .status = 200,
         .due_ns = 10 * MS,
         .sent_ns = 10 * MS,
         .first_ns = 9000 * MS,
         .last_ns = 9000 * MS,
         .end_ns = 9000 * MS,
         .n_pieces = 3,
         .prompt_tokens = 999,
         .output_tokens = 999,
         .cached_tokens = 999},
        {.status = 200,
         .due_ns = 10 * MS,
         .sent_ns = 10 * MS,
         .first_ns = 60 * MS,
         .last_ns = 60 * MS,
         .end_ns = 60 * MS,
         .n_pieces = 1,
         .prompt_tokens = 5,
         .output_tokens = 1,
         .cached_tokens = 4},
    };
    pgl_load_result result = {.records = records, .n = 3, .begin_ns = 10 * MS, .end_ns = 1010 * MS};
    pgl_load_slo slo = {.ttft_ms = 70, .tpot_ms = 10};
    pgl_load_summary sum;
    pgl_error err;
    assert_int_equal(pgl_load_summarize(&result, &slo, &sum, &err), PGL_OK);
    assert_true(sum.n == 3 && sum.ok == 2 && sum.failed == 1 && sum.good == 1 && sum.counted == 1);
    assert_true(sum.ttft.n == 2 && sum.ttft.p50 == 50 && sum.ttft.max == 100 && sum.ttft.share == 1);
    assert_true(sum.tpot.n == 1 && sum.tpot.p50 == 10 && sum.tpot.share == 1);
    assert_true(sum.e2e.n == 2 && sum.e2e.max == 210);
    assert_true(sum.lag.max == 2);
    assert_true(sum.prompt.total == 12 && sum.output.total == 12 && sum.cached.n == 1 &&
                sum.cached.total == 4);
    assert_true(sum.duration_s == 1 && sum.output_per_s == 12 && sum.total_per_s == 24 &&
                sum.requests_per_s == 2);
    assert_true(sum.good_per_s == 1);
}

/* ---- URLs ---- */

static void urls_are_taken_apart(void **state) {
    (void)state;
    const struct {
        const char *url, *host, *port, *authority, *base, *root;
    } rows[] = {
        {"http://a/v1", "a", "80", "a", "/v1", ""},
        {"HTTP://a:8000/v1///", "a", "8000", "a:8000", "/v1", ""},
        {"http://[::1]:81/x/v1", "::1", "81", "[::1]:81", "/x/v1", "/x"},
        {"http://[::1]", "::1", "80", "[::1]", "", ""},
        {"http://a:1/api", "a", "1", "a:1", "/api", "/api"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pgl_load_target target;
        assert_int_equal(pgl_load_target_parse(rows[i].url, &target, NULL), PGL_OK);
        assert_string_equal(target.host, rows[i].host);
        assert_string_equal(target.port, rows[i].port);
        assert_string_equal(target.authority, rows[i].authority);
        assert_string_equal(target.base, rows[i].base);
        assert_string_equal(target.root, rows[i].root);
    }
    static const char *const wrong[] = {"",
                                        "a",
                                        "http://",
                                        "http://:80/",
                                        "http://a:/v1",
                                        "http://[",
                                        "http://[]/",
                                        "http://a:0/",
                                        "http://a:+1/",
                                        "http://a:80x/",
                                        "http://a\r\nX: y/",
                                        "http://a/\n",
                                        "http://a/v1#x",
                                        "http://u:p@a/",
                                        "https://a/v1",
                                        "http://a:123456/"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pgl_load_target target;
        if (pgl_load_target_parse(wrong[i], &target, NULL) == PGL_OK)
            fail_msg("taken: %s", wrong[i]);
    }
    char *lengthy = calloc(5000, 1);
    pgl_load_target target;
    assert_non_null(lengthy);
    for (size_t n = 8; n < 4000; n += n / 8) {
        memset(lengthy, 'a', n);
        lengthy[n] = '\0';
        memcpy(lengthy, "http://", 7);
        (void)pgl_load_target_parse(lengthy, &target, NULL);
        lengthy[8] = '/';
        (void)pgl_load_target_parse(lengthy, &target, NULL);
    }
    free(lengthy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_reads_the_same_at_every_cut),
        cmocka_unit_test(faults_of_a_stream_are_told_apart),
        cmocka_unit_test(a_stream_cannot_grow_for_ever),
        cmocka_unit_test(messages_are_short_printable_and_whole_characters),
        cmocka_unit_test(prompts_are_exactly_as_long_as_asked),
        cmocka_unit_test(a_counter_that_lies_ends_the_search),
        cmocka_unit_test(seeds_give_the_same_prompt_and_others_another),
        cmocka_unit_test(percentiles_are_the_nearest_rank),
        cmocka_unit_test(failed_requests_are_in_no_figure),
        cmocka_unit_test(urls_are_taken_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
