/* Tokens to bytes (text/decode), in chat bytes to thinking, content and calls (text/output), content past the stop
 * strings (text/stop), and what remains to the sink. */
#include "server/choice_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/runtime.h"
#include "base/alloc.h"
#include "text/decode.h"
#include "text/output.h"
#include "text/stop.h"

#define CLOSE_THINK "</think>"

struct pgl_choice_text {
    const pgl_gen_params *params;
    pgl_decoder decoder;
    pgl_output *output; /* NULL: plain text */
    pgl_stop *stop;
    pgl_buf bytes;  /* of one token */
    pgl_buf sure;   /* content that no stop string can take any more */
    int32_t end_id; /* of the token that ends the thought, whatever stands around it; -1: its spelling does */
    uint32_t n_reasoning, n_calls;
    bool complete, failed;

    /* during a call */
    pgl_delta_sink sink;
    void *user;
};

static void give(pgl_choice_text *text, pgl_delta delta) {
    if (delta.size > 0 || delta.kind == PGL_DELTA_CALL)
        text->sink(text->user, &delta);
}

static void give_sure(pgl_choice_text *text) {
    give(text, (pgl_delta){.kind = PGL_DELTA_CONTENT, .text = text->sure.data, .size = text->sure.size});
    pgl_buf_clear(&text->sure);
}

static void on_content(pgl_choice_text *text, const char *data, size_t size) {
    if (text->complete)
        return;
    switch (pgl_stop_push(text->stop, data, size, &text->sure)) {
    case PGL_STOP_GOES_ON:
        break;
    case PGL_STOP_MATCHED:
        text->complete = true;
        break;
    case PGL_STOP_FAILED:
        text->failed = true;
        return;
    }
    give_sure(text);
}

/* Content that was held back because of a stop string: a call or the end comes, it is text. */
static void release_content(pgl_choice_text *text) {
    if (text->complete)
        return;
    text->failed = !pgl_stop_finish(text->stop, &text->sure) || text->failed;
    give_sure(text);
}

static void on_call(pgl_choice_text *text, const pgl_output_delta *delta) {
    char id[32];
    release_content(text);
    if (text->complete)
        return;
    text->n_calls++;
    snprintf(id, sizeof id, "call_%016" PRIx64, pgl_random_seed());
    give(
        text,
        (pgl_delta){
            .kind = PGL_DELTA_CALL, .text = delta->text, .size = delta->size, .id = id, .call = delta->call});
}

static void on_output(void *user, const pgl_output_delta *delta) {
    pgl_choice_text *text = user;
    switch (delta->kind) {
    case PGL_OUTPUT_REASONING:
        give(text, (pgl_delta){.kind = PGL_DELTA_REASONING, .text = delta->text, .size = delta->size});
        break;
    case PGL_OUTPUT_CONTENT:
        on_content(text, delta->text, delta->size);
        break;
    case PGL_OUTPUT_CALL:
        on_call(text, delta);
        break;
    case PGL_OUTPUT_ARGUMENTS:
        if (!text->complete)
            give(text, (pgl_delta){.kind = PGL_DELTA_ARGUMENTS,
                                   .text = delta->text,
                                   .size = delta->size,
                                   .call = delta->call});
        break;
    case PGL_OUTPUT_CALL_END:
        text->complete = text->complete || !text->params->parallel_tool_calls;
        break;
    }
}

/* ---- life ---- */

static pgl_status open_stop(pgl_choice_text *text, pgl_error *err) {
    pgl_stop_string strings[PGL_MOST_STOPS];
    for (uint32_t i = 0; i < text->params->n_stops; i++)
        strings[i] = (pgl_stop_string){text->params->stops[i].text, text->params->stops[i].size};
    return pgl_stop_open(strings, text->params->n_stops, &text->stop, err);
}

pgl_status pgl_choice_text_open(const pgl_choice_text_options *options, pgl_choice_text **out,
                                pgl_error *err) {
    pgl_choice_text *text = pgl_new(1, sizeof *text);
    if (!text)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for an answer's text");
    text->params = options->params;
    text->end_id = options->told_thought
                       ? pgl_tokenizer_find_added(options->tokenizer, CLOSE_THINK, strlen(CLOSE_THINK))
                       : -1;
    pgl_decoder_init(&text->decoder, options->tokenizer, true);
    text->decoder.replace_nul =
        true; /* requests may not carry one: what is returned must be fit to be sent back */
    pgl_status status = open_stop(text, err);
    if (status == PGL_OK && options->chat) {
        pgl_output_options output = {.in_thought = options->in_thought,
                                     .no_thinking = options->no_thinking,
                                     .told = text->end_id >= 0,
                                     .tools = options->tools,
                                     .sink = on_output,
                                     .user = text};
        status = pgl_output_open(&output, &text->output, err);
    }
    if (status != PGL_OK) {
        pgl_choice_text_close(text);
        return status;
    }
    *out = text;
    return PGL_OK;
}

void pgl_choice_text_close(pgl_choice_text *text) {
    if (!text)
        return;
    pgl_output_close(text->output);
    pgl_stop_close(text->stop);
    pgl_buf_fini(&text->bytes);
    pgl_buf_fini(&text->sure);
    free(text);
}

/* ---- text ---- */

static void push_bytes(pgl_choice_text *text) {
    if (text->output)
        pgl_output_push(text->output, pgl_buf_text(&text->bytes), text->bytes.size);
    else
        on_content(text, pgl_buf_text(&text->bytes), text->bytes.size);
    pgl_buf_clear(&text->bytes);
}

/* The token's own text stands at the end of what came with it. */
static void end_thought(pgl_choice_text *text) {
    size_t n = strlen(CLOSE_THINK);
    if (text->bytes.size >= n && memcmp(text->bytes.data + text->bytes.size - n, CLOSE_THINK, n) == 0)
        text->bytes.size -= n;
    push_bytes(text);
    pgl_output_end_thought(text->output);
}

bool pgl_choice_text_push(pgl_choice_text *text, int32_t id, pgl_delta_sink sink, void *user) {
    text->sink = sink;
    text->user = user;
    bool thought = text->output && pgl_output_in_thought(text->output);
    text->failed = !pgl_decoder_push(&text->decoder, id, &text->bytes) || text->failed;
    if (thought && id == text->end_id)
        end_thought(text);
    else
        push_bytes(text);
    text->n_reasoning += thought && pgl_output_in_thought(text->output);
    return !text->complete;
}

pgl_choice_end pgl_choice_text_finish(pgl_choice_text *text, bool length, pgl_delta_sink sink, void *user) {
    text->sink = sink;
    text->user = user;
    bool stopped = text->complete;
    if (!stopped) {
        text->failed = !pgl_decoder_finish(&text->decoder, &text->bytes) || text->failed;
        push_bytes(text);
        if (text->output)
            pgl_output_finish(text->output, length);
        release_content(text);
    }
    size_t which = pgl_stop_which(text->stop);
    bool matched = which != (size_t)-1;
    const char *finish = "stop";
    if (length && !matched)
        finish = "length";
    else if (text->n_calls > 0)
        finish = "tool_calls";
    return (pgl_choice_end){.finish = finish, .stop_text = matched ? text->params->stops[which].text : NULL};
}

bool pgl_choice_text_failed(const pgl_choice_text *text) {
    return text->failed || (text->output && pgl_output_failed(text->output));
}

uint32_t pgl_choice_text_n_reasoning(const pgl_choice_text *text) {
    return text->n_reasoning;
}
