/* The tiny tokenizer of tests/goldens, and small changes to its file. */
#ifndef PGL_TEST_TEXT_FIXTURE_H
#define PGL_TEST_TEXT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "text/tokenizer.h"

static inline pgl_buf golden_text(const char *name) {
    char *path = pgl_fs_join(PGL_GOLDENS, name);
    pgl_buf text = PGL_BUF_INIT;
    pgl_error err;
    assert_non_null(path);
    if (pgl_fs_read(path, (size_t)1 << 24, &text, &err) != PGL_OK)
        fail_msg("%s", err.text);
    free(path);
    return text;
}

static inline pgl_tokenizer *tiny_tokenizer(void) {
    pgl_buf json = golden_text("tiny-a/tokenizer.json");
    pgl_buf config = golden_text("tiny-a/tokenizer_config.json");
    pgl_tokenizer *tokenizer;
    pgl_error err;
    if (pgl_tokenizer_open(json.data, json.size, config.data, config.size, &tokenizer, &err) != PGL_OK)
        fail_msg("%s", err.text);
    pgl_buf_fini(&json);
    pgl_buf_fini(&config);
    return tokenizer;
}

/* A copy of text with the first `from` replaced by `to`; fails when `from` is not there. */
static inline pgl_buf replaced(const char *text, const char *from, const char *to) {
    pgl_buf out = PGL_BUF_INIT;
    const char *at = strstr(text, from);
    if (at == NULL)
        fail_msg("not there: %s", from);
    assert_true(pgl_buf_append(&out, text, (size_t)(at - text)));
    assert_true(pgl_buf_puts(&out, to));
    assert_true(pgl_buf_puts(&out, at + strlen(from)));
    return out;
}

#endif
