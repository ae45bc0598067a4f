/* A vocabulary of single bytes and a few longer tokens, and walks of texts through grammars over it. */
#ifndef PGL_TEST_CONSTRAINT_WORLD_H
#define PGL_TEST_CONSTRAINT_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "constraint/constraint.h"

/* ids 0..255 are bytes; then a few merges, control tokens and the end tokens. */
static const char *const MORE[] = {"\": ",        "true",         "\n\n",    "\"a",        "hello",
                                   "<tool_call>", "</tool_call>", "<think>", "<|im_end|>", "<|endoftext|>"};
#define N_MORE 10u
#define N_IDS (256u + N_MORE)
#define FIRST_CONTROL 261
#define N_WORDS ((N_IDS + 31) / 32)

static inline const char *bytes_of(const void *user, int32_t id, size_t *size, bool *control) {
    const char *single = user;
    *control = id >= FIRST_CONTROL;
    if (id < 256) {
        *size = 1;
        return single + id;
    }
    *size = strlen(MORE[id - 256]);
    return MORE[id - 256];
}

static pgl_constraint_vocabulary *vocabulary;
static char single[256];

static inline int open_all(void **state) {
    (void)state;
    for (int i = 0; i < 256; i++)
        single[i] = (char)i;
    const int32_t ends[] = {264, 265};
    pgl_constraint_tokens tokens = {N_IDS, bytes_of, single, ends, 2};
    return pgl_constraint_vocabulary_open(&tokens, &vocabulary, NULL) == PGL_OK ? 0 : -1;
}

static inline int close_all(void **state) {
    (void)state;
    pgl_constraint_vocabulary_close(vocabulary);
    return 0;
}

static inline bool allowed(const uint32_t *mask, int32_t id) {
    return (mask[id / 32] >> (id % 32) & 1u) != 0;
}

/* How many bytes of text (with <tool_call> and such taken as control tokens) are accepted, and whether the answer may
 * end there. The masks are poisoned first. */
static inline size_t walk(const pgl_constraint_spec *spec, const char *text, bool *complete) {
    pgl_constraint *c;
    pgl_error err;
    if (pgl_constraint_open(vocabulary, spec, &c, &err) != PGL_OK)
        fail_msg("%s", err.text);
    size_t at = 0;
    *complete = false;
    for (;;) {
        uint32_t mask[N_WORDS];
        memset(mask, 0xA5, sizeof mask);
        if (pgl_constraint_mask(c, mask, N_WORDS, &err) != PGL_OK)
            fail_msg("%s", err.text);
        *complete = allowed(mask, 264);
        assert_int_equal(allowed(mask, 264), allowed(mask, 265));
        assert_false(allowed(mask, 263)); /* <think> is in no grammar */
        if (text[at] == 0)
            break;
        int32_t id = (unsigned char)text[at];
        size_t step = 1;
        for (int32_t m = FIRST_CONTROL; m < FIRST_CONTROL + 2; m++) {
            if (strncmp(text + at, MORE[m - 256], strlen(MORE[m - 256])) == 0) {
                id = m;
                step = strlen(MORE[m - 256]);
            }
        }
        if (!allowed(mask, id))
            break;
        if (pgl_constraint_accept(c, id, &err) != PGL_OK)
            fail_msg("%s", err.text);
        at += step;
    }
    pgl_constraint_close(c);
    return at;
}

static inline void takes(pgl_constraint_kind kind, const char *grammar, const char *text) {
    pgl_constraint_spec spec = {.kind = kind, .text = grammar, .size = strlen(grammar)};
    bool complete;
    size_t n = walk(&spec, text, &complete);
    if (n != strlen(text) || !complete)
        fail_msg("%s: expected to take all of '%s', took %zu bytes, %s", grammar, text, n,
                 complete ? "complete" : "incomplete");
}

static inline void refuses(pgl_constraint_kind kind, const char *grammar, const char *text) {
    pgl_constraint_spec spec = {.kind = kind, .text = grammar, .size = strlen(grammar)};
    bool complete;
    size_t n = walk(&spec, text, &complete);
    if (n == strlen(text) && complete)
        fail_msg("%s: expected to refuse '%s'", grammar, text);
}

static inline pgl_status status_of(pgl_constraint_kind kind, const char *grammar, pgl_error *err) {
    pgl_constraint_spec spec = {.kind = kind, .text = grammar, .size = strlen(grammar)};
    pgl_constraint *c;
    pgl_status status = pgl_constraint_open(vocabulary, &spec, &c, err);
    pgl_constraint_close(c);
    return status;
}

#define SCHEMA PGL_CONSTRAINT_JSON_SCHEMA

#endif
