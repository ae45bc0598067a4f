/* Raw model text through the output parser: whole, cut in two at every byte, and byte by byte, always the same message. */
#ifndef PGL_TEST_OUTPUT_WORLD_H
#define PGL_TEST_OUTPUT_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "text/output.h"

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"write\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"path\":"
    "{\"type\":\"string\"},\"content\":{\"type\":\"string\"}},\"required\":[\"path\",\"content\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"move\",\"parameters\":{\"properties\":{\"from\":{"
    "\"type\":\"string\"},"
    "\"to\":{\"type\":\"string\"},\"rows\":{\"type\":\"array\"},\"n\":{\"type\":\"integer\"},\"on\":{"
    "\"type\":\"boolean\"},"
    "\"memo\":{\"type\":[\"string\",\"null\"]},\"x\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"null\"}]}}"
    "}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

/* R{reasoning}C{content} and for each call name(arguments) */
typedef struct message {
    pgl_buf reasoning, content, calls;
    uint32_t next_call;
    bool open;
} message;

static inline void on_delta(void *user, const pgl_output_delta *d) {
    message *m = user;
    switch (d->kind) {
    case PGL_OUTPUT_REASONING:
        assert_true(d->size > 0 && m->next_call == 0);
        pgl_buf_append(&m->reasoning, d->text, d->size);
        break;
    case PGL_OUTPUT_CONTENT:
        assert_true(d->size > 0 && m->next_call == 0);
        pgl_buf_append(&m->content, d->text, d->size);
        break;
    case PGL_OUTPUT_CALL:
        assert_false(m->open);
        assert_int_equal(d->call, m->next_call);
        m->next_call++;
        m->open = true;
        pgl_buf_append(&m->calls, d->text, d->size);
        pgl_buf_putc(&m->calls, '(');
        break;
    case PGL_OUTPUT_ARGUMENTS:
        assert_true(m->open && d->size > 0 && d->call == m->next_call - 1);
        pgl_buf_append(&m->calls, d->text, d->size);
        break;
    case PGL_OUTPUT_CALL_END:
        assert_true(m->open);
        m->open = false;
        pgl_buf_putc(&m->calls, ')');
        break;
    }
}

typedef struct mode {
    bool in_thought, no_thinking, no_tools, cut;
} mode;

static inline pgl_output *open_output(mode how, message *m) {
    pgl_output_options options = {
        .in_thought = how.in_thought, .no_thinking = how.no_thinking, .sink = on_delta, .user = m};
    if (!how.no_tools)
        options.tools = (pgl_json_span){TOOLS, sizeof TOOLS - 1};
    pgl_output *o;
    assert_int_equal(pgl_output_open(&options, &o, NULL), PGL_OK);
    return o;
}

static inline char *finish(pgl_output *o, message *m, mode how) {
    pgl_output_finish(o, how.cut);
    assert_false(pgl_output_failed(o));
    assert_int_equal(pgl_output_n_calls(o), m->next_call);
    pgl_output_close(o);
    pgl_buf all = PGL_BUF_INIT;
    pgl_buf_printf(&all, "R{%s}C{%s}%s", pgl_buf_text(&m->reasoning), pgl_buf_text(&m->content),
                   pgl_buf_text(&m->calls));
    pgl_buf_fini(&m->reasoning);
    pgl_buf_fini(&m->content);
    pgl_buf_fini(&m->calls);
    return all.data;
}

static inline void check(mode how, const char *raw, const char *expected) {
    size_t n = strlen(raw);
    for (size_t at = 0; at <= n + 1; at++) {
        message m = {0};
        pgl_output *o = open_output(how, &m);
        if (at <= n) {
            pgl_output_push(o, raw, at);
            pgl_output_push(o, raw + at, n - at);
        } else {
            for (size_t i = 0; i < n; i++)
                pgl_output_push(o, raw + i, 1);
        }
        char *got = finish(o, &m, how);
        if (strcmp(got, expected) != 0)
            fail_msg("cut at %zu of\n%s\nexpected\n%s\nfound\n%s", at, raw, expected, got);
        free(got);
    }
}

#define WRITE(body) "<tool_call>\n<function=write>\n" body "</function>\n</tool_call>"
#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define MOVE(body) "<tool_call>\n<function=move>\n" body "</function>\n</tool_call>"
#define NOW "<tool_call>\n<function=now>\n</function>\n</tool_call>"

static const mode PLAIN = {.no_thinking = true};
static const mode THINK = {.in_thought = true};

#endif
