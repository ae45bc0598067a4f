/* Owns nothing: the draft head. What is fed to it when, and where its entries stand, is as backend/cpu/cpu_draft.c has it;
 * chains keep theirs in draft_keys until the step ends. */
#include <string.h>

#include "backend/cuda/cuda.h"

/* pair = norm(embedding of the token) | norm(hidden state before it);  x = fc(pair) */
static void draft_input(cuda_backend *b, const float *before) {
    const pgl_config *c = b->model->config;
    uint32_t n = b->batch.n_tokens, hidden = c->hidden_size;
    pgl_embed_args embed = {b->weights.embed.dense, b->t.tokens, b->w.h};
    CUDA_LAUNCH(b, embed, n, 1, 1, PGL_CUDA_THREADS, &embed);
    pgl_norm_args norm = {
        .x = b->w.h,
        .w = b->weights.draft_norm_embedding,
        .h16 = b->w.pair,
        .x_stride = hidden,
        .h16_stride = 2 * hidden,
        .width = hidden,
        .eps = c->rms_norm_eps,
    };
    CUDA_LAUNCH(b, norm, n, 1, 1, PGL_CUDA_THREADS, &norm);
    norm.x = before;
    norm.w = b->weights.draft_norm_hidden;
    norm.h16 = b->w.pair + hidden;
    CUDA_LAUNCH(b, norm, n, 1, 1, PGL_CUDA_THREADS, &norm);
    cuda_input input = {NULL, b->w.pair, 2 * hidden, n, false};
    cuda_product fc = {&b->weights.fc, b->w.x};
    cuda_products(b, &input, &fc, 1);
}

/* The head's input: rows of h16 from `first` on. */
static void logits_of(cuda_backend *b, uint32_t first, uint32_t n) {
    size_t hidden = b->model->config->hidden_size;
    cuda_copy_within(b, b->w.logit_input, b->w.h16 + first * hidden, n * hidden * sizeof(uint16_t));
    cuda_head_logits(b, n);
}

/* Logits of the rows whose both tokens belong to the plan's row. */
static void give_logits(cuda_backend *b) {
    size_t vocab = b->base.caps.vocab_size;
    cuda_norm(b, b->weights.draft_norm, b->w.x, NULL, b->w.h16, NULL, b->batch.n_tokens);
    for (uint32_t t = 0; t < b->batch.n_tokens; t++) {
        const pgl_row *row = pgl_batch_span(&b->batch, t)->row;
        uint32_t place = pgl_batch_place(&b->batch, t);
        if ((row->wants & PGL_WANT_DRAFT_LOGITS) == 0 || place == 0)
            continue;
        logits_of(b, t, 1);
        cuda_copy_down(b, row->result->draft_logits + (place - 1) * vocab, b->w.logits,
                       vocab * sizeof(float));
    }
}

void cuda_draft_feed(cuda_backend *b) {
    uint32_t wants = 0, n = b->batch.n_tokens;
    for (uint32_t s = 0; s < b->batch.n_spans; s++)
        wants |= b->batch.spans[s].row->wants;
    cuda_gather(b, b->w.final, b->t.before_from, b->w.before, NULL, n, b->model->config->hidden_size);
    draft_input(b, b->w.before);
    if ((wants & PGL_WANT_DRAFT_LOGITS) != 0) {
        cuda_layer_forward(b, &b->weights.draft, b->model->config->n_layers);
        give_logits(b);
        return;
    }
    cuda_norm(b, b->weights.draft.input_norm, b->w.x, b->w.h, b->w.h16, NULL, n);
    cuda_attention_keys(b, &b->weights.draft);
}

/* ---- chains */

/* One more draft for each token of the batch; hidden [n] are the states before, and after. */
static void draft_step(cuda_backend *b, float *hidden) {
    uint32_t n = b->batch.n_tokens;
    cuda_tables_of_batch(b);
    draft_input(b, hidden);
    cuda_layer_forward(b, &b->weights.draft, b->model->config->n_layers);
    cuda_norm(b, b->weights.draft_norm, b->w.x, hidden, b->w.h16, NULL, n);
    for (uint32_t first = 0; first < n && b->status == PGL_OK; first += CUDA_LOGIT_ROWS) {
        uint32_t some = n - first < CUDA_LOGIT_ROWS ? n - first : CUDA_LOGIT_ROWS;
        logits_of(b, first, some);
        cuda_head_argmax(b, some);
        if (!cuda_wait(b))
            return;
        for (uint32_t i = 0; i < some; i++) {
            pgl_slot *slot = &b->slots.slot[b->batch.spans[first + i].slot];
            slot->drafts[slot->n_drafts++] = b->back.token[i];
            b->batch.tokens[first + i] = b->back.token[i];
        }
    }
    cuda_tables_begin(b);
}

/* Spans of rows that want more drafts than there are, packed; their hidden states go along to `to`. False where all
 * stay, and stand where they were. */
static bool keep_wanting(cuda_backend *b, const float *hidden, float *to) {
    pgl_batch *batch = &b->batch;
    const void *device;
    uint32_t n = 0, *from = cuda_tables_put(b, batch->n_tokens, sizeof *from, &device);
    for (uint32_t i = 0; i < batch->n_tokens; i++) {
        const pgl_span span = batch->spans[i];
        if (b->slots.slot[span.slot].n_drafts == span.row->n_draft)
            continue;
        batch->spans[n] = span;
        batch->spans[n].first = n;
        batch->tokens[n] = batch->tokens[i];
        batch->position[n] = batch->position[i];
        batch->span_of[n] = n;
        from[n++] = i;
    }
    bool fewer = n < batch->n_tokens;
    batch->n_tokens = n;
    batch->n_spans = n;
    if (!fewer || n == 0)
        return false;
    cuda_tables_send(b);
    cuda_gather(b, hidden, device, to, NULL, n, b->model->config->hidden_size);
    return true;
}

void cuda_draft_rows(cuda_backend *b) {
    pgl_batch_drafts(&b->batch, &b->slots);
    uint32_t n = b->batch.n_spans, turn = 0;
    const void *device;
    uint32_t *from = cuda_tables_put(b, n, sizeof *from, &device);
    for (uint32_t i = 0; i < n; i++)
        from[i] = b->batch.spans[i].row_index;
    cuda_tables_send(b);
    cuda_gather(b, b->w.row_hidden, device, b->w.draft_hidden[turn], NULL, n, b->model->config->hidden_size);
    for (; b->batch.n_tokens > 0 && b->status == PGL_OK; b->batch.n_tentative++) {
        draft_step(b, b->w.draft_hidden[turn]);
        if (b->status == PGL_OK && keep_wanting(b, b->w.draft_hidden[turn], b->w.draft_hidden[1 - turn]))
            turn = 1 - turn;
    }
    pgl_batch_give_drafts(&b->batch, &b->slots);
}
