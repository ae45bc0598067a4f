/* Bytes to requests: every transcript must be the same however the bytes are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/http_parse.h"

/* Feeds bytes cut into pieces that end at `cut` and then every `step` bytes; writes down what comes out. */
static void transcript(const char *data, size_t size, size_t cut, size_t step, const pgl_http_limits *limits,
                       pgl_buf *out) {
    pgl_http_reader *reader = pgl_http_reader_open(limits);
    assert_non_null(reader);
    size_t at = 0, end = cut < size ? cut : size;
    for (;;) {
        size_t used;
        pgl_http_event event = pgl_http_reader_feed(reader, data + at, end - at, &used);
        at += used;
        if (event == PGL_HTTP_HEAD) {
            const pgl_http_head *head = pgl_http_reader_head(reader);
            pgl_buf_printf(out, "%s %s ? %s 1.%u%s%s%s", head->method, head->path, head->query, head->minor,
                           head->keep_alive ? " keep" : "", head->expect_continue ? " expect" : "",
                           head->chunked ? " chunked" : "");
            for (uint32_t i = 0; i < head->n_headers; i++)
                pgl_buf_printf(out, " [%s=%s]", head->headers[i].name, head->headers[i].value);
            pgl_buf_puts(out, "\n");
        } else if (event == PGL_HTTP_END) {
            pgl_buf_printf(out, "body %zu %s\n", pgl_http_reader_body(reader)->size,
                           pgl_buf_text(pgl_http_reader_body(reader)));
            pgl_http_reader_next(reader);
        } else if (event == PGL_HTTP_BAD) {
            pgl_buf_printf(out, "bad %d %s\n", pgl_http_reader_fault(reader)->status,
                           pgl_http_reader_fault(reader)->code);
            break;
        } else {
            assert_int_equal(at, end);
            if (end == size)
                break;
            end = step && step < size - end ? end + step : size;
        }
    }
    pgl_http_reader_close(reader);
}

static void check_with(const char *data, size_t size, const pgl_http_limits *limits, const char *expected) {
    pgl_buf whole = PGL_BUF_INIT;
    transcript(data, size, size, 0, limits, &whole);
    assert_string_equal(pgl_buf_text(&whole), expected);
    for (size_t cut = 1; cut < size; cut += 1 + size / 2000) {
        pgl_buf parts = PGL_BUF_INIT;
        transcript(data, size, cut, 0, limits, &parts);
        assert_string_equal(pgl_buf_text(&parts), expected);
        pgl_buf_fini(&parts);
    }
    pgl_buf single = PGL_BUF_INIT;
    transcript(data, size, 1, 1, limits, &single);
    assert_string_equal(pgl_buf_text(&single), expected);
    pgl_buf_fini(&single);
    pgl_buf_fini(&whole);
}

static void check(const char *data, const char *expected) {
    pgl_http_limits limits = pgl_http_default_limits();
    check_with(data, strlen(data), &limits, expected);
}

#define BAD "bad 400 bad_request\n"

static void requests_in_one_segment_stay_in_step(void **state) {
    (void)state;
    check("GET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\nPOST /b HTTP/1.1\r\nhost:h\r\nContent-Length: 3 \r\n\r\nabc"
          "GET /c HTTP/1.0\r\n\r\n",
          "GET /a ? x=1 1.1 keep [Host=h]\nbody 0 \n"
          "POST /b ?  1.1 keep [host=h] [Content-Length=3]\nbody 3 abc\n"
          "GET /c ?  1.0\nbody 0 \n");
}

static void chunked_body_with_one_byte_chunks_extensions_and_trailers(void **state) {
    (void)state;
    check("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\nExpect: 100-continue\r\n\r\n"
          "1;x=\"y z\"\r\n{\r\n1\r\n}\r\n02\r\nab\r\n0\r\nTrailer-A: 1\r\nTrailer-B: 2\r\n\r\nGET / "
          "HTTP/1.1\r\nHost: h\r\n\r\n",
          "POST / ?  1.1 keep expect chunked [Host=h] [Transfer-Encoding=Chunked] [Expect=100-continue]\n"
          "body 4 {}ab\nGET / ?  1.1 keep [Host=h]\nbody 0 \n");
}

static void conflicting_or_odd_lengths_are_refused(void **state) {
    (void)state;
    static const char *const heads[] = {"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
                                        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
                                        "Content-Length: 3\r\nContent-Length: 3\r\n",
                                        "Content-Length: 3\r\nContent-Length: 4\r\n",
                                        "Content-Length: +3\r\n",
                                        "Content-Length: 3,3\r\n",
                                        "Content-Length: -1\r\n",
                                        "Content-Length: 0x3\r\n",
                                        "Content-Length:\r\n",
                                        "Content-Length: 99999999999999999999999\r\n",
                                        "Transfer-Encoding: gzip, chunked\r\n",
                                        "Transfer-Encoding: chunked, chunked\r\n",
                                        "Transfer-Encoding: identity\r\n",
                                        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                                        "Transfer-Encoding : chunked\r\n",
                                        "Transfer-Encoding:\r\n chunked\r\n"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        char text[512];
        snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: h\r\n%s\r\nabc", heads[i]);
        check(text, BAD);
    }
    check("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", BAD);
}

static void malformed_heads_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"GET / HTTP/1.1\nHost: h\r\n\r\n",
                                        "GET / HTTP/1.1\r\nHost: h\n\r\n",
                                        "GET / HTTP/1.1\r\nHost: h\r\n\n",
                                        "GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n",
                                        "GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n",
                                        "GET / HTTP/1.1\r\nBad Name: h\r\n\r\n",
                                        "GET / HTTP/1.1\r\n: h\r\n\r\n",
                                        "GET / HTTP/1.1\r\nno colon\r\n\r\n",
                                        "GET / HTTP/1.1\r\nX: a\x01\r\n\r\n",
                                        "GET / HTTP/1.1\r\n\r\n",
                                        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                                        "GET x HTTP/1.1\r\nHost: h\r\n\r\n",
                                        "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
                                        "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n",
                                        "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
                                        "GET / HTCPCP/1.1\r\nHost: h\r\n\r\n",
                                        "GET / HXXP/1.1\r\nHost: h\r\n\r\n",
                                        "GET / H\r\n\r\nTTP/1.1\r\nHost: h\r\n\r\n",
                                        "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
                                        "GET / HTTP/1.1 \r\nHost: h\r\n\r\n",
                                        "GET / HTTP/1.12\r\nHost: h\r\n\r\n",
                                        "BREW / HTTP/1.1\r\nHost: h\r\n\r\n",
                                        "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n",
                                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                        "\x16\x03\x01\x02\x01\x01"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check(texts[i], BAD);
    pgl_http_limits limits = pgl_http_default_limits();
    check_with("GET / HTTP/1.1\r\nHost: h\0i\r\n\r\n", 29, &limits, BAD);
    check("GET / HTTP/2.0\r\nHost: h\r\n\r\n", "bad 505 http_version_not_supported\n");
    check("GET / HTTP/1.2\r\nHost: h\r\n\r\n", "bad 505 http_version_not_supported\n");
    check("GET /\r\n\r\n", BAD);
    check("GET / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n", "bad 417 expectation_failed\n");
}

static void malformed_chunks_are_refused(void **state) {
    (void)state;
    static const char *const bodies[] = {"x\r\n",
                                         "1\rxa\r\n",
                                         "1\r\nabb1\r\n",
                                         "1\na\r\n",
                                         "1\r\na\n",
                                         "\r\n",
                                         "1;\x01\r\n",
                                         "0\r\n\n",
                                         "0\r\n x: y\r\n",
                                         "0\r\nx\n",
                                         "-1\r\n",
                                         "1\r\nab\r\n",
                                         "ffffffffffffffffff\r\n",
                                         " 1\r\na\r\n"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char text[512];
        snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%s",
                 bodies[i]);
        check(text, "POST / ?  1.1 keep chunked [Host=h] [Transfer-Encoding=chunked]\n" BAD);
    }
}

static void target_forms(void **state) {
    (void)state;
    check("GET http://example.org:80/v1/models?a=b?c HTTP/1.1\r\nHost: h\r\n\r\n",
          "GET /v1/models ? a=b?c 1.1 keep [Host=h]\nbody 0 \n");
    check("GET http://example.org?q HTTP/1.1\r\nHost: h\r\n\r\n", "GET / ? q 1.1 keep [Host=h]\nbody 0 \n");
    check("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS * ?  1.1 keep [Host=h]\nbody 0 \n");
    check("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / ?  1.1 keep [Host=h]\nbody 0 \n");
}

static void wish_to_switch_protocols_is_ignored(void **state) {
    (void)state;
    check("POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "
          "h2c\r\nContent-Length: 2\r\n\r\n"
          "okGET /b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
          "POST / ?  1.1 keep [Host=h] [Connection=Upgrade, HTTP2-Settings] [Upgrade=h2c] "
          "[Content-Length=2]\nbody 2 ok\n"
          "GET /b ?  1.1 [Host=h] [Connection=close]\nbody 0 \n");
}

static void limits_hold_at_the_byte(void **state) {
    (void)state;
    pgl_http_limits limits = {
        .max_target_bytes = 8, .max_head_bytes = 64, .max_headers = 2, .max_body_bytes = 4};
    const char *t = "GET /1234567 HTTP/1.1\r\nHost: h\r\n\r\n";
    check_with(t, strlen(t), &limits, "GET /1234567 ?  1.1 keep [Host=h]\nbody 0 \n");
    t = "GET /12345678 HTTP/1.1\r\nHost: h\r\n\r\n";
    check_with(t, strlen(t), &limits, "bad 414 uri_too_long\n");
    t = "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\nC: d\r\n\r\n";
    check_with(t, strlen(t), &limits, "bad 431 headers_too_large\n");
    t = "GET / HTTP/1.1\r\nHost: h\r\nX: 345678901234567890123456789012345678901\r\n\r\n";
    check_with(t, strlen(t), &limits, "bad 431 headers_too_large\n");
    t = "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n"
        "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n";
    check_with(t, strlen(t), &limits, "bad 431 headers_too_large\n");
    limits.max_head_bytes = 1000;
    t = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nabcd";
    check_with(t, strlen(t), &limits, "POST / ?  1.1 keep [Host=h] [Content-Length=4]\nbody 4 abcd\n");
    t = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    check_with(
        t, strlen(t), &limits,
        "POST / ?  1.1 keep chunked [Host=h] [Transfer-Encoding=chunked]\nbad 413 request_too_large\n");
}

static void endless_chunk_extension_or_trailers_are_refused(void **state) {
    (void)state;
    static const char *const starts[] = {"1;x=", "0\r\nX: "};
    for (size_t k = 0; k < 2; k++) {
        pgl_http_limits limits = pgl_http_default_limits();
        pgl_http_reader *reader = pgl_http_reader_open(&limits);
        pgl_buf text = PGL_BUF_INIT;
        pgl_buf_printf(&text, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%s",
                       starts[k]);
        pgl_http_event event = PGL_HTTP_MORE;
        size_t used, total = 0;
        const char *at = text.data;
        size_t left = text.size;
        char fill[1024];
        memset(fill, 'a', sizeof fill);
        while (event != PGL_HTTP_BAD && total < ((size_t)1 << 20)) {
            event = pgl_http_reader_feed(reader, at, left, &used);
            at += used;
            left -= used;
            total += used;
            if (left == 0) {
                at = fill;
                left = sizeof fill;
            }
        }
        assert_int_equal(event, PGL_HTTP_BAD);
        assert_in_range(pgl_http_reader_fault(reader)->status, 400, 431);
        pgl_buf_fini(&text);
        pgl_http_reader_close(reader);
    }
}

static void a_length_that_is_too_much_is_known_before_the_body(void **state) {
    (void)state;
    pgl_http_limits limits = pgl_http_default_limits();
    pgl_http_reader *reader = pgl_http_reader_open(&limits);
    const char *t = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 200000000\r\n\r\n";
    size_t used;
    assert_int_equal(pgl_http_reader_feed(reader, t, strlen(t), &used), PGL_HTTP_HEAD);
    pgl_http_reader_expect(reader, 1000, true);
    assert_int_equal(pgl_http_reader_feed(reader, "", 0, &used), PGL_HTTP_BAD);
    assert_int_equal(pgl_http_reader_fault(reader)->status, 413);
    pgl_http_reader_close(reader);
}

static void a_body_that_is_not_kept_takes_no_memory(void **state) {
    (void)state;
    pgl_http_limits limits = pgl_http_default_limits();
    pgl_http_reader *reader = pgl_http_reader_open(&limits);
    const char *t = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabcdeGET";
    size_t used, more;
    assert_int_equal(pgl_http_reader_feed(reader, t, strlen(t), &used), PGL_HTTP_HEAD);
    pgl_http_reader_expect(reader, 1000, false);
    assert_int_equal(pgl_http_reader_feed(reader, t + used, strlen(t) - used, &more), PGL_HTTP_END);
    assert_string_equal(t + used + more, "GET");
    assert_int_equal(pgl_http_reader_body(reader)->capacity, 0);
    pgl_http_reader_close(reader);
}

static void percent_signs_decode_and_never_give_nul(void **state) {
    (void)state;
    char a[] = "org%2Fname%20x", b[] = "a%00b", c[] = "a%2", d[] = "a%zz", e[] = "";
    assert_true(pgl_http_percent_decode(a));
    assert_string_equal(a, "org/name x");
    assert_false(pgl_http_percent_decode(b));
    assert_false(pgl_http_percent_decode(c));
    assert_false(pgl_http_percent_decode(d));
    assert_true(pgl_http_percent_decode(e));
}

static void list_headers_are_read_word_by_word(void **state) {
    (void)state;
    pgl_http_header headers[] = {{"Connection", "keep-alive , Upgrade"}, {"connection", "close"}};
    pgl_http_head head = {.headers = headers, .n_headers = 2};
    assert_true(pgl_http_header_has(&head, "connection", "upgrade"));
    assert_true(pgl_http_header_has(&head, "Connection", "CLOSE"));
    assert_true(pgl_http_header_has(&head, "Connection", "keep-alive"));
    assert_false(pgl_http_header_has(&head, "Connection", "keep"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_in_one_segment_stay_in_step),
        cmocka_unit_test(chunked_body_with_one_byte_chunks_extensions_and_trailers),
        cmocka_unit_test(conflicting_or_odd_lengths_are_refused),
        cmocka_unit_test(malformed_heads_are_refused),
        cmocka_unit_test(malformed_chunks_are_refused),
        cmocka_unit_test(target_forms),
        cmocka_unit_test(wish_to_switch_protocols_is_ignored),
        cmocka_unit_test(limits_hold_at_the_byte),
        cmocka_unit_test(endless_chunk_extension_or_trailers_are_refused),
        cmocka_unit_test(a_length_that_is_too_much_is_known_before_the_body),
        cmocka_unit_test(a_body_that_is_not_kept_takes_no_memory),
        cmocka_unit_test(percent_signs_decode_and_never_give_nul),
        cmocka_unit_test(list_headers_are_read_word_by_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
