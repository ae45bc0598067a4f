/* Owns the parsers of one answer, and the text that they gave out. */
#include "api/answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static bool is_over(const pgl_answer *a) {
    return a->stopped || a->matched || a->failed;
}

/* Keeps what lies in piece and hands it to the callback. */
static void give(pgl_answer *a, pergola_text_kind kind, const char *text, size_t size) {
    pgl_buf *kept = kind == PERGOLA_TEXT_REASONING ? &a->reasoning : &a->answer;
    size_t from = kept->size;
    if (size == 0 || a->stopped || a->failed)
        return;
    if (!pgl_buf_append(kept, text, size))
        a->failed = true;
    else if (a->options.callback != NULL &&
             !a->options.callback(a->options.user, kind, kept->data + from, size))
        a->stopped = true;
}

static void take_content(pgl_answer *a, const char *text, size_t size) {
    if (is_over(a))
        return;
    pgl_buf out = PGL_BUF_INIT;
    pgl_stop_answer found = pgl_stop_push(a->stop, text, size, &out);
    give(a, PERGOLA_TEXT_ANSWER, pgl_buf_text(&out), out.size);
    a->matched = found == PGL_STOP_MATCHED;
    a->failed = a->failed || found == PGL_STOP_FAILED;
    pgl_buf_fini(&out);
}

static void on_delta(void *user, const pgl_output_delta *delta) {
    pgl_answer *a = user;
    if (delta->kind == PGL_OUTPUT_REASONING)
        give(a, PERGOLA_TEXT_REASONING, delta->text, delta->size);
    else if (delta->kind == PGL_OUTPUT_CONTENT) /* without tools there are no calls */
        take_content(a, delta->text, delta->size);
}

static pgl_status open_stop(pgl_answer *a, pgl_error *err) {
    uint32_t n = a->options.n_stop;
    pgl_stop_string *strings = pgl_new(n, sizeof *strings);
    if (strings == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for %u stop strings", n);
    for (uint32_t i = 0; i < n; i++)
        strings[i] = (pgl_stop_string){a->options.stop[i], strlen(a->options.stop[i])};
    pgl_status status = pgl_stop_open(strings, n, &a->stop, err);
    free(strings);
    return status;
}

pgl_status pgl_answer_open(pgl_answer *a, const pgl_answer_options *options, pgl_error *err) {
    *a = (pgl_answer){.options = *options};
    pgl_decoder_init(&a->decoder, options->tokenizer, true);
    a->decoder.replace_nul = true; /* texts end at one in C, and the answer is part of the next prompt */
    pgl_status status = open_stop(a, err);
    if (status != PGL_OK || !options->chat)
        return status;
    const pgl_output_options output = {
        .in_thought = options->in_thought, .no_thinking = options->no_thinking, .sink = on_delta, .user = a};
    return pgl_output_open(&output, &a->output, err);
}

void pgl_answer_close(pgl_answer *a) {
    pgl_output_close(a->output);
    pgl_stop_close(a->stop);
    pgl_buf_fini(&a->piece);
    pgl_buf_fini(&a->answer);
    pgl_buf_fini(&a->reasoning);
    a->output = NULL;
    a->stop = NULL;
}

static void take_piece(pgl_answer *a) {
    if (a->output == NULL) {
        take_content(a, pgl_buf_text(&a->piece), a->piece.size);
        return;
    }
    pgl_output_push(a->output, pgl_buf_text(&a->piece), a->piece.size);
    a->failed = a->failed || pgl_output_failed(a->output);
}

bool pgl_answer_push(pgl_answer *a, int32_t token) {
    a->n_reasoning += a->output != NULL && pgl_output_in_thought(a->output);
    pgl_buf_clear(&a->piece);
    if (!pgl_decoder_push(&a->decoder, token, &a->piece))
        a->failed = true;
    else
        take_piece(a);
    return !is_over(a);
}

void pgl_answer_finish(pgl_answer *a, bool cut) {
    if (is_over(a))
        return;
    pgl_buf_clear(&a->piece);
    if (!pgl_decoder_finish(&a->decoder, &a->piece)) {
        a->failed = true;
        return;
    }
    take_piece(a);
    if (a->output != NULL)
        pgl_output_finish(a->output, cut);
    if (is_over(a))
        return;
    pgl_buf_clear(&a->piece);
    if (pgl_stop_finish(a->stop, &a->piece))
        give(a, PERGOLA_TEXT_ANSWER, pgl_buf_text(&a->piece), a->piece.size);
    else
        a->failed = true;
}
