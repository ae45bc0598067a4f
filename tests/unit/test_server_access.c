#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/access.h"

static pgl_access *with(const pgl_access_options *options) {
    pgl_access *access;
    pgl_error err;
    assert_int_equal(pgl_access_open(options, &access, &err), PGL_OK);
    return access;
}

static bool key_fits(const pgl_access *access, const char *name, const char *value) {
    pgl_http_header header = {name, value};
    pgl_http_head head = {.headers = &header, .n_headers = name ? 1 : 0};
    return pgl_access_key_fits(access, &head);
}

static void only_the_whole_key_opens(void **state) {
    (void)state;
    static const char *const keys[] = {"sk-first", "sk-second-longer"};
    pgl_access *access = with(&(pgl_access_options){.keys = keys, .n_keys = 2});
    assert_true(key_fits(access, "Authorization", "Bearer sk-first"));
    assert_true(key_fits(access, "authorization", "bearer sk-second-longer"));
    assert_true(key_fits(access, "x-api-key", "sk-first"));
    assert_false(key_fits(access, NULL, NULL));
    static const char *const wrong[] = {"",          "sk-firs",    "sk-first1",        "SK-FIRST",
                                        "sk-second", "sk-first\t", "sk-firstsk-first", "Basic sk-first"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[64] = "Bearer ";
        strcat(text, wrong[i]);
        assert_false(key_fits(access, "Authorization", text));
        assert_false(key_fits(access, "x-api-key", wrong[i]));
    }
    assert_false(key_fits(access, "Authorization", "sk-first"));
    pgl_access_close(access);
}

static void keys_that_no_header_carries_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {"", "a b", "a\n", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pgl_access *access;
        pgl_error err;
        assert_int_equal(
            pgl_access_open(&(pgl_access_options){.keys = &wrong[i], .n_keys = 1}, &access, &err),
            PGL_E_INVALID);
        if (wrong[i][0])
            assert_null(strstr(err.text, wrong[i]));
    }
}

static void key_files_have_one_key_a_line(void **state) {
    (void)state;
    char text[] = "# ours\n key-one \r\n\nkey-two\n#key-three\nkey-four";
    const char *keys[8];
    assert_int_equal(pgl_access_split_keys(text, keys, 8), 3);
    assert_string_equal(keys[0], "key-one");
    assert_string_equal(keys[1], "key-two");
    assert_string_equal(keys[2], "key-four");
}

static bool origin_passes(const pgl_access *access, const char *host, const char *origin) {
    pgl_http_header headers[] = {{"Host", host}, {"Origin", origin}};
    pgl_http_head head = {.headers = headers, .n_headers = origin ? 2 : 1};
    pgl_http_fault why;
    return pgl_access_check_origin(access, &head, &why);
}

static void rebound_names_and_foreign_pages_are_kept_out(void **state) {
    (void)state;
    static const char *const origins[] = {"https://chat.example"};
    static const char *const hosts[] = {"box.lan"};
    pgl_access *access = with(&(pgl_access_options){
        .origins = origins, .n_origins = 1, .hosts = hosts, .n_hosts = 1, .loopback_only = true});
    static const char *const good[] = {"localhost", "LOCALHOST:8000", "127.0.0.1:8000", "127.1.2.3",
                                       "[::1]:80",  "[::1]",          "a.localhost",    "box.lan:8000"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(origin_passes(access, good[i], NULL));
    static const char *const bad[] = {"evil.example",
                                      "localhost.evil.example",
                                      "192.168.1.2",
                                      "127.0.0.1.evil.example",
                                      "",
                                      ":80",
                                      "[::1",
                                      "[::1]x",
                                      "localhost:80:9",
                                      "0x7f.1",
                                      "xlocalhost",
                                      "localhost:x",
                                      "[::2]:80",
                                      "evil.example:8000",
                                      "127.0.0.1:80x",
                                      "2130706433"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (origin_passes(access, bad[i], NULL))
            fail_msg("Host %s passed", bad[i]);
    assert_true(origin_passes(access, "localhost:8000", "http://localhost:3000"));
    assert_true(origin_passes(access, "localhost:8000", "http://[::1]:3000"));
    assert_true(origin_passes(access, "localhost:8000", "https://chat.example"));
    assert_true(origin_passes(access, "box.lan:8000", "http://box.lan:8000"));
    static const char *const foreign[] = {
        "https://evil.example", "null",   "http://localhost.evil.example", "", "https://chat.example.evil",
        "http://box.lan",       "file://"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (origin_passes(access, "localhost:8000", foreign[i]))
            fail_msg("Origin %s passed", foreign[i]);
    pgl_access_close(access);
    access = with(&(pgl_access_options){.loopback_only = false});
    assert_true(origin_passes(access, "192.168.1.2:8000", NULL));
    assert_false(origin_passes(access, "evil.example", NULL));
    pgl_access_close(access);
}

static const char *allowed(const pgl_access *access, const char *origin) {
    static pgl_http_header headers[] = {{"Host", "localhost:8000"}, {"Origin", ""}};
    headers[1].value = origin;
    pgl_http_head head = {.headers = headers, .n_headers = origin ? 2 : 1};
    return pgl_access_allow_origin(access, &head);
}

static void cors_header_follows_the_rules(void **state) {
    (void)state;
    static const char *const keys[] = {"k"};
    static const char *const origins[] = {"https://chat.example"};
    static const char *const every[] = {"*"};
    pgl_access *access = with(&(pgl_access_options){.keys = keys, .n_keys = 1});
    assert_string_equal(allowed(access, "https://any.example"), "*");
    assert_null(allowed(access, NULL));
    pgl_access_close(access);
    access = with(&(pgl_access_options){.keys = keys, .n_keys = 1, .origins = origins, .n_origins = 1});
    assert_string_equal(allowed(access, "https://chat.example"), "https://chat.example");
    assert_null(allowed(access, "https://any.example"));
    pgl_access_close(access);
    access = with(&(pgl_access_options){.loopback_only = true});
    assert_string_equal(allowed(access, "http://localhost:1"), "http://localhost:1");
    assert_null(allowed(access, "https://any.example"));
    pgl_access_close(access);
    access = with(&(pgl_access_options){.origins = every, .n_origins = 1});
    assert_string_equal(allowed(access, "https://any.example"), "*");
    pgl_access_close(access);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_whole_key_opens),
        cmocka_unit_test(keys_that_no_header_carries_are_refused),
        cmocka_unit_test(key_files_have_one_key_a_line),
        cmocka_unit_test(rebound_names_and_foreign_pages_are_kept_out),
        cmocka_unit_test(cors_header_follows_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
