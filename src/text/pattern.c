/* Owns the compiled expression (pattern) and the match data and JIT stack (state). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

struct pgl_pattern {
    pcre2_code *code;
};

/* A match of the published expression needs one step for each character it covers; a run of n blanks is gone over a few
 * times. The limit is far above that, and stops an expression that backtracks without bound. */
#define STEPS_AT_LEAST 10000000u
#define STEPS_PER_BYTE 64u
#define JIT_STACK_BYTES ((size_t)16 << 20)

struct pgl_pattern_state {
    const pgl_pattern *pattern;
    pcre2_match_context *context;
    pcre2_match_data *match;
    pcre2_jit_stack *stack; /* made when the 32 KiB that a match has by itself do not do */
    size_t limit_for;       /* size of text that the step limit was set for */
    /* the match found last, to be handed out after the gap before it */
    size_t start, end;
    const char *text;
};

pgl_status pgl_pattern_open(const char *source, size_t size, pgl_pattern **out, pgl_error *err) {
    *out = NULL;
    pgl_buf text = PGL_BUF_INIT;
    pgl_pattern *p = NULL;
    pgl_status status = pgl_pattern_translate(source, size, &text, err);
    if (status != PGL_OK)
        goto out;
    p = pgl_new(1, sizeof *p);
    if (p == NULL) {
        status = pgl_fail(err, PGL_E_MEMORY, "tokenizer: no memory for the expression");
        goto out;
    }
    int code;
    PCRE2_SIZE at;
    p->code =
        pcre2_compile((PCRE2_SPTR)pgl_buf_text(&text), text.size, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (p->code == NULL) {
        PCRE2_UCHAR why[160];
        pcre2_get_error_message(code, why, sizeof why);
        status = pgl_fail(err, PGL_E_UNSUPPORTED, "tokenizer.json: Split expression: %s (at byte %zu of %s)",
                          (const char *)why, (size_t)at, pgl_buf_text(&text));
        goto out;
    }
    uint32_t empty = 0;
    pcre2_pattern_info(p->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty != 0) {
        status =
            pgl_fail(err, PGL_E_UNSUPPORTED, "tokenizer.json: the Split expression matches the empty string");
        goto out;
    }
    /* Without JIT (a system that forbids new code in memory) matching is slower and gives the same. */
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    *out = p;
    p = NULL;
out:
    pgl_pattern_close(p);
    pgl_buf_fini(&text);
    return status;
}

void pgl_pattern_close(pgl_pattern *p) {
    if (p == NULL)
        return;
    pcre2_code_free(p->code);
    free(p);
}

pgl_status pgl_pattern_state_open(const pgl_pattern *pattern, pgl_pattern_state **out, pgl_error *err) {
    pgl_pattern_state *s = pgl_new(1, sizeof *s);
    *out = s;
    if (s != NULL) {
        s->pattern = pattern;
        s->context = pcre2_match_context_create(NULL);
        s->match = pcre2_match_data_create(1, NULL);
        if (s->context != NULL && s->match != NULL)
            return PGL_OK;
    }
    pgl_pattern_state_close(s);
    *out = NULL;
    return pgl_fail(err, PGL_E_MEMORY, "tokenizer: no memory for matching");
}

void pgl_pattern_state_close(pgl_pattern_state *s) {
    if (s == NULL)
        return;
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    free(s);
}

static int match(pgl_pattern_state *s, const char *text, size_t size, size_t at) {
    return pcre2_match(s->pattern->code, (PCRE2_SPTR)text, size, at, PCRE2_NO_UTF_CHECK, s->match,
                       s->context);
}

pgl_status pgl_pattern_next(pgl_pattern_state *s, const char *text, size_t size, size_t at, size_t *end,
                            pgl_error *err) {
    if (at == 0) /* a new text, perhaps in the place of the last */
        s->text = NULL;
    if (s->text == text && s->start == at) { /* found by the call before, behind a gap */
        *end = s->end;
        return PGL_OK;
    }
    if (s->limit_for < size) {
        size_t limit = size > (UINT32_MAX - STEPS_AT_LEAST) / STEPS_PER_BYTE
                           ? UINT32_MAX
                           : STEPS_AT_LEAST + size * STEPS_PER_BYTE;
        pcre2_set_match_limit(s->context, (uint32_t)limit);
        s->limit_for = size;
    }
    int n = match(s, text, size, at);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT && s->stack == NULL) {
        s->stack = pcre2_jit_stack_create(64 << 10, JIT_STACK_BYTES, NULL);
        if (s->stack == NULL)
            return pgl_fail(err, PGL_E_MEMORY, "tokenizer: no memory for matching");
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
        n = match(s, text, size, at);
    }
    if (n == PCRE2_ERROR_NOMATCH) {
        *end = size;
        return PGL_OK;
    }
    if (n < 0) {
        PCRE2_UCHAR why[160];
        pcre2_get_error_message(n, why, sizeof why);
        return pgl_fail(err, PGL_E_INTERNAL, "tokenizer: the Split expression failed at byte %zu of %zu: %s",
                        at, size, (const char *)why);
    }
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->match);
    if (range[1] <= range[0])
        return pgl_fail(err, PGL_E_INTERNAL, "tokenizer: the Split expression matched nothing at byte %zu",
                        range[0]);
    s->text = text;
    s->start = range[0];
    s->end = range[1];
    *end = range[0] > at ? range[0] : range[1];
    return PGL_OK;
}
