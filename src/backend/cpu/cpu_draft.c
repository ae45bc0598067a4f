/* Owns nothing: the draft head. Row t of a slot takes the trunk's final hidden state at t and token t + 1; it is fed as
 * soon as both are known, which is when token t + 1 is in a batch, and keeps its key and value at entry t + 1. Chains of
 * drafts start from the last sampled token and keep theirs in draft_kv until the step ends. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "model/linear.h"

typedef struct draft_context {
    cpu_backend *b;
    bool chain; /* hidden states come from draft_hidden, by span; otherwise from the tokens before */
} draft_context;

/* pair = norm(embedding of the token) | norm(hidden state before it) */
static void pair_task(void *context, uint32_t task, uint32_t thread) {
    const draft_context *c = context;
    cpu_backend *b = c->b;
    uint32_t hidden = b->model->config->hidden_size;
    float eps = b->model->config->rms_norm_eps, *pair = b->w.pair + (size_t)task * 2 * hidden;
    const pgl_span *span = &b->batch.spans[b->batch.span_of[task]];
    const float *before = c->chain              ? b->draft_hidden + (size_t)task * hidden
                          : task == span->first ? cpu_last_hidden(b, cpu_slot_state(b, span->slot))
                                                : b->w.final + (size_t)(task - 1) * hidden;
    (void)thread;
    pgl_linear_row(&b->model->weights->embed, (uint32_t)b->batch.tokens[task], pair);
    b->k->norm(pair, b->draft_norm_embedding, eps, hidden, pair);
    b->k->norm(before, b->draft_norm_hidden, eps, hidden, pair + hidden);
}

/* w.x = fc(pair) */
static void draft_input(cpu_backend *b, bool chain) {
    draft_context c = {b, chain};
    cpu_work work = {pair_task, &c, b->batch.n_tokens};
    cpu_run(b, &work, 1);
    const cpu_product fc = {&b->model->weights->draft.fc, b->w.x};
    cpu_products(b, b->w.pair, b->batch.n_tokens, &fc, 1);
}

/* Logits of the rows whose both tokens belong to the plan's row. */
static void give_logits(cpu_backend *b) {
    size_t hidden = b->model->config->hidden_size, vocab = b->base.caps.vocab_size;
    cpu_norm_rows(b, b->draft_norm, b->w.x, b->w.h, b->batch.n_tokens);
    for (uint32_t t = 0; t < b->batch.n_tokens; t++) {
        const pgl_span *span = &b->batch.spans[b->batch.span_of[t]];
        uint32_t place = span->offset + t - span->first;
        if ((span->row->wants & PGL_WANT_DRAFT_LOGITS) == 0 || place == 0)
            continue;
        memcpy(b->logit_input, b->w.h + t * hidden, hidden * sizeof(float));
        cpu_head_logits(b, 1);
        memcpy(span->row->result->draft_logits + (place - 1) * vocab, b->logits, vocab * sizeof(float));
    }
}

void cpu_draft_feed(cpu_backend *b) {
    uint32_t wants = 0;
    for (uint32_t s = 0; s < b->batch.n_spans; s++)
        wants |= b->batch.spans[s].row->wants;
    cpu_rotations(b, -1);
    draft_input(b, false);
    if ((wants & PGL_WANT_DRAFT_LOGITS) != 0) {
        cpu_layer_forward(b, &b->draft);
        give_logits(b);
        return;
    }
    cpu_norm_rows(b, b->draft.input_norm, b->w.x, b->w.h, b->batch.n_tokens);
    cpu_attention_keys(b, &b->draft);
}

/* ---- chains */

/* Ties to the lower id; a NaN is never chosen unless there is nothing else. */
static void argmax_task(void *context, uint32_t task, uint32_t thread) {
    cpu_backend *b = context;
    const float *logits = b->logits + (size_t)task * b->base.caps.vocab_size;
    uint32_t best = 0;
    (void)thread;
    for (uint32_t i = 1; i < b->base.caps.n_vocab; i++) {
        if (logits[i] > logits[best])
            best = i;
    }
    b->draft_choice[task] = (int32_t)best;
}

/* One more draft for the first n_tokens spans of the batch. */
static void draft_step(cpu_backend *b) {
    uint32_t n = b->batch.n_tokens;
    size_t hidden = b->model->config->hidden_size;
    cpu_rotations(b, (int32_t)b->batch.n_tentative - 2);
    draft_input(b, true);
    cpu_layer_forward(b, &b->draft);
    cpu_norm_rows(b, b->draft_norm, b->w.x, b->draft_hidden, n);
    for (uint32_t first = 0; first < n; first += CPU_LOGIT_ROWS) {
        uint32_t some = n - first < CPU_LOGIT_ROWS ? n - first : CPU_LOGIT_ROWS;
        memcpy(b->logit_input, b->draft_hidden + first * hidden, some * hidden * sizeof(float));
        cpu_head_logits(b, some);
        cpu_work work = {argmax_task, b, some};
        cpu_run(b, &work, 1);
        for (uint32_t i = 0; i < some; i++) {
            const pgl_span *span = &b->batch.spans[first + i];
            pgl_slot *slot = &b->slots.slot[span->slot];
            slot->drafts[slot->n_drafts++] = b->draft_choice[i];
            b->batch.tokens[first + i] = b->draft_choice[i];
        }
    }
}

/* Spans of rows that want more drafts than there are, packed; draft_hidden moves along. */
static void keep_wanting(cpu_backend *b) {
    size_t hidden = b->model->config->hidden_size;
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->batch.n_tokens; i++) {
        const pgl_span span = b->batch.spans[i];
        if (b->slots.slot[span.slot].n_drafts == span.row->n_draft)
            continue;
        b->batch.spans[n] = span;
        b->batch.spans[n].first = n;
        b->batch.tokens[n] = b->batch.tokens[i];
        b->batch.position[n] = b->batch.position[i];
        b->batch.span_of[n] = n;
        if (n != i)
            memcpy(b->draft_hidden + n * hidden, b->draft_hidden + i * hidden, hidden * sizeof(float));
        n++;
    }
    b->batch.n_tokens = n;
    b->batch.n_spans = n;
}

void cpu_draft_rows(cpu_backend *b) {
    size_t hidden = b->model->config->hidden_size;
    pgl_batch_drafts(&b->batch, &b->slots);
    for (uint32_t i = 0; i < b->batch.n_spans; i++)
        memcpy(b->draft_hidden + i * hidden, b->row_hidden + b->batch.spans[i].row_index * hidden,
               hidden * sizeof(float));
    for (; b->batch.n_tokens > 0; b->batch.n_tentative++) {
        draft_step(b);
        keep_wanting(b);
    }
    pgl_batch_give_drafts(&b->batch, &b->slots);
}
