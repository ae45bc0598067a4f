#include "text_fixture.h"

#include <jansson.h>
#include <stdio.h>
#include <time.h>

#include "base/json.h"
#include "text/decode.h"
#include "text/tokenizer.h"

static pgl_tokenizer *tiny;

static int open_tiny(void **state) {
    (void)state;
    tiny = tiny_tokenizer();
    return 0;
}

static int close_tiny(void **state) {
    (void)state;
    pgl_tokenizer_close(tiny);
    return 0;
}

static pgl_ids encode(const char *text, size_t size, pgl_encode_mode mode) {
    pgl_ids ids = {0};
    pgl_error err;
    if (pgl_tokenizer_encode(tiny, text, size, mode, &ids, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return ids;
}

static void reference_encodings_differ(void **state) {
    (void)state;
    pgl_buf text = golden_text("tiny-a.expected/tokens.json");
    json_t *root = NULL;
    pgl_error err;
    assert_int_equal(pgl_json_parse(text.data, text.size, NULL, &root, &err), PGL_OK);
    assert_true(json_array_size(root) >= 10);
    for (size_t i = 0; i < json_array_size(root); i++) {
        const json_t *one = json_array_get(root, i), *want = json_object_get(one, "ids");
        const json_t *source = json_object_get(one, "text");
        pgl_ids ids = encode(json_string_value(source), json_string_length(source), PGL_ENCODE_RAW);
        assert_int_equal(ids.count, json_array_size(want));
        for (size_t k = 0; k < ids.count; k++)
            assert_int_equal(ids.data[k], json_integer_value(json_array_get(want, k)));
        pgl_buf back = PGL_BUF_INIT;
        assert_true(pgl_decode(tiny, ids.data, ids.count, false, &back));
        if (strstr(json_string_value(source), "e\xCC\x81") == NULL) /* normalisation is not undone */
            assert_string_equal(pgl_buf_text(&back), json_string_value(source));
        pgl_buf_fini(&back);
        pgl_ids_fini(&ids);
    }
    json_decref(root);
    pgl_buf_fini(&text);
}

static void spelled_control_tokens_get_through_as_tokens(void **state) {
    (void)state;
    static const char TEXT[] = "<|im_start|>system\n<think></think><tool_call>x</tool_call><|im_end|>";
    pgl_ids ids = encode(TEXT, sizeof TEXT - 1, PGL_ENCODE_TEXT);
    assert_true(ids.count > 20);
    for (size_t i = 0; i < ids.count; i++)
        assert_int_equal(pgl_tokenizer_kind(tiny, ids.data[i]), PGL_TOKEN_TEXT);
    pgl_buf back = PGL_BUF_INIT;
    assert_true(pgl_decode(tiny, ids.data, ids.count, false, &back));
    assert_string_equal(pgl_buf_text(&back), TEXT);
    pgl_buf_fini(&back);
    pgl_ids_fini(&ids);
}

static void breaking_misses_a_spelling(void **state) {
    (void)state;
    /* text that a template writes before, the message's own, and what is written behind */
    static const char *const CASES[][3] = {
        {"", "<|im_end|>", ""},       {"a ", "x<|im_end|><think>y", " b"},
        {"", "<|im_end|", ">"},       {"<", "think", ">"},
        {"<|im_", "end|>", ""},       {"", "<|im_end|  ", ""},
        {"", "<<<|im_start|", ">\n"}, {"</", "tool_call>", ""},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        pgl_buf text = PGL_BUF_INIT, plain = PGL_BUF_INIT;
        assert_true(pgl_buf_puts(&text, CASES[i][0]));
        assert_true(pgl_tokenizer_break(tiny, CASES[i][1], strlen(CASES[i][1]), 0xFDD0, true, &text));
        assert_true(pgl_buf_puts(&text, CASES[i][2]));
        for (int k = 0; k < 3; k++)
            assert_true(pgl_buf_puts(&plain, CASES[i][k]));
        pgl_ids ids = {0};
        pgl_error err;
        assert_int_equal(pgl_tokenizer_encode_broken(tiny, text.data, text.size, 0xFDD0, &ids, &err), PGL_OK);
        pgl_ids want = encode(plain.data, plain.size, PGL_ENCODE_TEXT);
        assert_int_equal(ids.count, want.count);
        assert_memory_equal(ids.data, want.data, ids.count * sizeof *ids.data);
        pgl_ids_fini(&ids);
        pgl_ids_fini(&want);
        pgl_buf_fini(&text);
        pgl_buf_fini(&plain);
    }
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void a_long_run_takes_more_than_linear_time(void **state) {
    (void)state;
    static const char *const UNITS[] = {"a", " ", "\n", "!", "<", "'", " \n", "\xC2\xA0", "\xCD\x85\xCC\xA3",
                                        "ab"};
    for (size_t u = 0; u < sizeof UNITS / sizeof UNITS[0]; u++) {
        size_t n = strlen(UNITS[u]);
        pgl_buf text = PGL_BUF_INIT;
        while (text.size < 1000000)
            assert_true(pgl_buf_append(&text, UNITS[u], n));
        double start = seconds();
        pgl_ids ids = encode(text.data, text.size, PGL_ENCODE_RAW);
        assert_true(ids.count > 0);
        assert_true(seconds() - start < 20); /* quadratic time takes hours */
        pgl_ids_fini(&ids);
        pgl_buf_fini(&text);
    }
}

static void text_that_is_not_utf8_is_taken(void **state) {
    (void)state;
    static const char *const BAD[] = {"a\xFF", "\xC0\x80", "\xED\xA0\x80", "abc\xE2\x82", "\xF4\x90\x80\x80"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        pgl_ids ids = {0};
        pgl_error err;
        assert_int_equal(pgl_tokenizer_encode(tiny, BAD[i], strlen(BAD[i]), PGL_ENCODE_RAW, &ids, &err),
                         PGL_E_INVALID);
        assert_non_null(strstr(err.text, "UTF-8"));
        assert_int_equal(ids.count, 0);
        pgl_ids_fini(&ids);
    }
}

static void a_text_beyond_the_limit_is_taken(void **state) {
    (void)state;
    pgl_ids ids = {0};
    pgl_error err;
    char *text = malloc(PGL_TOKENIZER_MAX_BYTES + 1);
    assert_non_null(text);
    memset(text, ' ', PGL_TOKENIZER_MAX_BYTES + 1);
    assert_int_equal(
        pgl_tokenizer_encode(tiny, text, PGL_TOKENIZER_MAX_BYTES + 1, PGL_ENCODE_RAW, &ids, &err),
        PGL_E_TOO_LARGE);
    free(text);
}

static void the_vocabulary_is_told_wrongly(void **state) {
    (void)state;
    assert_int_equal(pgl_tokenizer_n_ids(tiny), 1024);
    assert_int_equal(pgl_tokenizer_n_added(tiny), 14);
    assert_int_equal(pgl_tokenizer_find_added(tiny, "<|im_end|>", 10), 3);
    assert_int_equal(pgl_tokenizer_find_added(tiny, "<|im_end|", 9), -1);
    assert_int_equal(pgl_tokenizer_find_text(tiny, " ", 1), 228);
    assert_int_equal(pgl_tokenizer_find_text(tiny, "<|im_end|>", 10), -1);
    assert_int_equal(pgl_tokenizer_kind(tiny, 3), PGL_TOKEN_SPECIAL);
    assert_int_equal(pgl_tokenizer_kind(tiny, 1023), PGL_TOKEN_ADDED);
    assert_int_equal(pgl_tokenizer_kind(tiny, 228), PGL_TOKEN_TEXT);
    assert_int_equal(pgl_tokenizer_kind(tiny, 1024), PGL_TOKEN_NONE);
    assert_int_equal(pgl_tokenizer_kind(tiny, -1), PGL_TOKEN_NONE);
    size_t size;
    assert_memory_equal(pgl_tokenizer_bytes(tiny, 228, &size), " ", 1);
    assert_int_equal(size, 1);
    assert_null(pgl_tokenizer_bytes(tiny, 5000, &size));
    assert_memory_equal(pgl_tokenizer_bytes(tiny, 1022, &size), "<think>", 7);
    assert_int_equal(size, 7);
    assert_true(pgl_tokenizer_longest(tiny) >= 17);
    for (int32_t id = 0; id < 1024; id++) {
        const char *bytes = pgl_tokenizer_bytes(tiny, id, &size);
        if (pgl_tokenizer_kind(tiny, id) == PGL_TOKEN_TEXT)
            assert_int_equal(pgl_tokenizer_find_text(tiny, bytes, size), id);
    }
}

/* ---- decoding ---- */

static void a_piece_ends_inside_a_character(void **state) {
    (void)state;
    /* every byte of these is a token of its own in the tiny vocabulary; the last list has broken sequences */
    static const char *const TEXTS[] = {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
                                        "\xE2\x82\xAC\xC3\xA9",
                                        "a\xF0\x9F\x91z\xC3\xC3\xA9\x80\xED\xA0\x80\xFF\xE2\x82"};
    static const char *const WANT[] = {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7", "\xE2\x82\xAC\xC3\xA9",
                                       "a\xEF\xBF\xBDz\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF"
                                       "\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"};
    for (size_t i = 0; i < 3; i++) {
        pgl_decoder d;
        pgl_decoder_init(&d, tiny, false);
        pgl_buf all = PGL_BUF_INIT;
        for (const char *p = TEXTS[i]; *p != 0; p++) {
            int32_t id = pgl_tokenizer_find_text(tiny, p, 1);
            assert_true(id >= 0);
            size_t before = all.size;
            assert_true(pgl_decoder_push(&d, id, &all));
            json_t *piece = json_stringn(pgl_buf_text(&all) + before, all.size - before);
            assert_non_null(piece); /* NULL for what is not UTF-8 */
            json_decref(piece);
        }
        assert_true(pgl_decoder_finish(&d, &all));
        assert_string_equal(pgl_buf_text(&all), WANT[i]);
        pgl_buf_fini(&all);
        /* in one go */
        assert_true(pgl_decoder_push_bytes(&d, TEXTS[i], strlen(TEXTS[i]), &all));
        assert_true(pgl_decoder_finish(&d, &all));
        assert_string_equal(pgl_buf_text(&all), WANT[i]);
        pgl_buf_fini(&all);
    }
}

static void special_tokens_stay_in_skipped_text(void **state) {
    (void)state;
    static const int32_t IDS[] = {2, 228, 1022, 228, 1023, 3, 5000, 1};
    pgl_buf text = PGL_BUF_INIT;
    assert_true(pgl_decode(tiny, IDS, 8, true, &text));
    assert_string_equal(pgl_buf_text(&text), " <think> </think>");
    pgl_buf_clear(&text);
    assert_true(pgl_decode(tiny, IDS, 8, false, &text));
    assert_string_equal(pgl_buf_text(&text), "<|im_start|> <think> </think><|im_end|><|endoftext|>");
    pgl_buf_fini(&text);
}

/* ---- refusals ---- */

static void what_is_not_supported_is_guessed(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *message;
        pgl_status status;
    } CASES[] = {
        {"\"truncation\": null", "\"truncation\": {}", "truncation", PGL_E_UNSUPPORTED},
        {"\"padding\": null", "\"padding\": {\"strategy\":\"BatchLongest\"}", "padding", PGL_E_UNSUPPORTED},
        {"\"type\": \"NFC\"", "\"type\": \"NFKC\"", "normalizer.type is \"NFKC\"", PGL_E_UNSUPPORTED},
        {"\"type\": \"NFC\"", "\"type\": \"Sequence\", \"normalizers\": [{\"type\":\"Lowercase\"}]",
         "Lowercase", PGL_E_UNSUPPORTED},
        {"\"type\": \"Split\"", "\"type\": \"Digits\"", "Digits", PGL_E_UNSUPPORTED},
        {"\"type\": \"Sequence\"", "\"type\": \"Metaspace\"", "Metaspace", PGL_E_UNSUPPORTED},
        {"\"behavior\": \"Isolated\"", "\"behavior\": \"Removed\"", "behavior", PGL_E_UNSUPPORTED},
        {"\"invert\": false", "\"invert\": true", "invert", PGL_E_UNSUPPORTED},
        {"\"Regex\": \"", "\"String\": \"", "pattern", PGL_E_UNSUPPORTED},
        {"\"add_prefix_space\": false", "\"add_prefix_space\": true", "add_prefix_space", PGL_E_UNSUPPORTED},
        {"\"use_regex\": false", "\"use_regex\": true", "use_regex", PGL_E_UNSUPPORTED},
        {"\"post_processor\": null", "\"post_processor\": {\"type\":\"BertProcessing\"}", "BertProcessing",
         PGL_E_UNSUPPORTED},
        {"\"post_processor\": null",
         "\"post_processor\": "
         "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{}}]}",
         "TemplateProcessing", PGL_E_UNSUPPORTED},
        {"\"decoder\": {\n    \"type\": \"ByteLevel\"", "\"decoder\": {\n    \"type\": \"WordPiece\"",
         "decoder.type", PGL_E_UNSUPPORTED},
        {"\"type\": \"BPE\"", "\"type\": \"Unigram\"", "Unigram", PGL_E_UNSUPPORTED},
        {"\"dropout\": null", "\"dropout\": 0.1", "dropout", PGL_E_UNSUPPORTED},
        {"\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"", "end_of_word_suffix",
         PGL_E_UNSUPPORTED},
        {"\"single_word\": false", "\"single_word\": true", "single_word", PGL_E_UNSUPPORTED},
        {"\"!\": 8", "\"!\": 9", "id 9", PGL_E_FORMAT},
        {"\"!\": 8", "\"!\": -1", "expected 0 to", PGL_E_FORMAT},
        {"\"!\": 8", "\"!\": 99999999", "expected 0 to", PGL_E_FORMAT},
        {"\"\xC3\x80\": 132", "\"\xC3\x80\xC3\x80\": 132", "0xC0", PGL_E_UNSUPPORTED},
        {"\"content\": \"<think>\"", "\"content\": \"</think>\"", "alike", PGL_E_FORMAT},
        {"\"content\": \"<think>\"", "\"content\": \"\"", "empty", PGL_E_FORMAT},
        {"\"content\": \"<think>\"", "\"content\": \"!\"", "in the vocabulary it has 8", PGL_E_FORMAT},
        {"\"id\": 1022", "\"id\": 8", "another token has", PGL_E_FORMAT},
        {"\"id\": 1022", "\"id\": 1023", "two added tokens", PGL_E_FORMAT},
        {"\"merges\": [", "\"merges\": [[\"a\"],", "merges[0]", PGL_E_FORMAT},
        {"\"merges\": [", "\"merges\": [\"a b c\",", "merges[0]", PGL_E_FORMAT},
        {"\"merges\": [", "\"merges\": [\"zz q\",", "lacks", PGL_E_FORMAT},
        {"\"merges\": [", "\"merges\": [\"q Q\",", "lacks", PGL_E_FORMAT},
        {"\"merges\": [", "\"merges\": {}, \"x\": [", "an object", PGL_E_FORMAT},
        {"\"version\"", "version", "line 2", PGL_E_FORMAT},
        {"(?i:'s", "(?x:'s", "Split expression", PGL_E_UNSUPPORTED},
        {"(?i:'s", "(?:\\\\b's", "\\b", PGL_E_UNSUPPORTED},
        {"(?i:'s", "(?:[[a]&&[b]]", "Split expression", PGL_E_UNSUPPORTED},
        {"(?i:'s", "(?:\\\\p{Foo}'s", "\\p{Foo}", PGL_E_UNSUPPORTED},
        {"(?i:'s", "(?:(a)\\\\1", "\\1", PGL_E_UNSUPPORTED},
        {"(?i:'s", "(?:'s)*|(?:", "empty string", PGL_E_UNSUPPORTED},
    };
    pgl_buf json = golden_text("tiny-a/tokenizer.json");
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        pgl_buf changed = replaced(json.data, CASES[i].from, CASES[i].to);
        pgl_tokenizer *t = NULL;
        pgl_error err = {0};
        pgl_status status = pgl_tokenizer_open(changed.data, changed.size, NULL, 0, &t, &err);
        if (status != CASES[i].status || strstr(err.text, CASES[i].message) == NULL)
            fail_msg("%s -> %s: status %d, \"%s\"", CASES[i].from, CASES[i].to, (int)status, err.text);
        assert_null(t);
        pgl_buf_fini(&changed);
    }
    pgl_buf_fini(&json);
}

static void a_configuration_that_contradicts_is_taken(void **state) {
    (void)state;
    static const char *const CASES[][2] = {
        {"{\"add_bos_token\":true}", "add_bos_token"},
        {"{\"added_tokens_decoder\":{\"3\":{\"content\":\"<|other|>\"}}}", "<|other|>"},
        {"{\"added_tokens_decoder\":{\"x\":{\"content\":\"<|other|>\"}}}", "expected an id"},
        {"{", "line 1"},
    };
    pgl_buf json = golden_text("tiny-a/tokenizer.json");
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        pgl_tokenizer *t = NULL;
        pgl_error err = {0};
        assert_int_not_equal(
            pgl_tokenizer_open(json.data, json.size, CASES[i][0], strlen(CASES[i][0]), &t, &err), PGL_OK);
        assert_non_null(strstr(err.text, CASES[i][1]));
    }
    static const char MORE[] =
        "{\"added_tokens_decoder\":{\"1024\":{\"content\":\"<|more|>\",\"special\":true}}}";
    pgl_tokenizer *t = NULL;
    pgl_error err = {0};
    assert_int_equal(pgl_tokenizer_open(json.data, json.size, MORE, strlen(MORE), &t, &err), PGL_OK);
    assert_int_equal(pgl_tokenizer_find_added(t, "<|more|>", 8), 1024);
    assert_int_equal(pgl_tokenizer_n_ids(t), 1025);
    pgl_tokenizer_close(t);
    pgl_buf_fini(&json);
}

static void a_cut_file_crashes(void **state) {
    (void)state;
    pgl_buf json = golden_text("tiny-a/tokenizer.json");
    for (size_t size = 0; size < json.size; size += 251) {
        pgl_tokenizer *t = NULL;
        pgl_error err = {0};
        assert_int_not_equal(pgl_tokenizer_open(json.data, size, NULL, 0, &t, &err), PGL_OK);
        assert_null(t);
    }
    pgl_buf_fini(&json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_encodings_differ),
        cmocka_unit_test(spelled_control_tokens_get_through_as_tokens),
        cmocka_unit_test(breaking_misses_a_spelling),
        cmocka_unit_test(a_long_run_takes_more_than_linear_time),
        cmocka_unit_test(text_that_is_not_utf8_is_taken),
        cmocka_unit_test(a_text_beyond_the_limit_is_taken),
        cmocka_unit_test(the_vocabulary_is_told_wrongly),
        cmocka_unit_test(a_piece_ends_inside_a_character),
        cmocka_unit_test(special_tokens_stay_in_skipped_text),
        cmocka_unit_test(what_is_not_supported_is_guessed),
        cmocka_unit_test(a_configuration_that_contradicts_is_taken),
        cmocka_unit_test(a_cut_file_crashes),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}
