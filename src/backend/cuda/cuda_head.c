/* Owns nothing: from final hidden states to logits, and from logits to what the rows want. Positions are taken in the
 * order of the batch, CUDA_LOGIT_ROWS at a time. Where the host has no need of the logits, the card finds the largest. */
#include "backend/cuda/cuda.h"

void cuda_head_logits(cuda_backend *b, uint32_t n) {
    cuda_input input = {NULL, b->w.logit_input, b->model->config->hidden_size, n, false};
    cuda_product head = {&b->weights.head, b->w.logits};
    cuda_products(b, &input, &head, 1);
}

void cuda_head_argmax(cuda_backend *b, uint32_t n) {
    pgl_argmax_args args = {b->w.logits, b->w.token, b->w.token_bad, b->base.caps.n_vocab,
                            b->model->config->vocab_size};
    CUDA_LAUNCH(b, argmax, n, 1, 1, PGL_CUDA_SORT_THREADS, &args);
    cuda_copy_down(b, b->back.token, b->w.token, 2 * CUDA_LOGIT_ROWS * sizeof(int32_t));
}

/* Positions of one chunk: tokens of the batch. */
typedef struct chunk {
    uint32_t token[CUDA_LOGIT_ROWS];
    uint32_t n;
} chunk;

/* Whether the largest logit is all that this row asks of its positions. */
static bool largest_will_do(const pgl_row *row) {
    const pgl_sample_params *p = row->params;
    return (row->wants & (PGL_WANT_TOP | PGL_WANT_TARGETS | PGL_WANT_LOGITS)) == 0 &&
           row->result->logprobs == NULL && row->mask_kind == PGL_MASK_NONE && p->temperature == 0 &&
           p->n_bias == 0 && !pgl_sample_wants_history(p);
}

static bool all_largest(const cuda_backend *b, const chunk *c) {
    for (uint32_t i = 0; i < c->n; i++) {
        if (!largest_will_do(pgl_batch_span(&b->batch, c->token[i])->row))
            return false;
    }
    return true;
}

/* Position i of a chunk that came back: as logits, or as the largest of them. */
static void use_position(cuda_backend *b, const chunk *c, uint32_t i, bool largest) {
    uint32_t token = c->token[i];
    const pgl_span *span = pgl_batch_span(&b->batch, token);
    if (!pgl_batch_is_wanted(&b->batch, token))
        return; /* a draft before it was refused */
    pgl_position position = pgl_batch_position(&b->batch, token);
    if (largest) {
        position.forced = b->back.token[i];
        span->row->result->non_finite = span->row->result->non_finite || b->back.bad_row[i] != 0;
    } else {
        position.logits = b->back.logits + (size_t)i * b->base.caps.vocab_size;
        pgl_slots_score(&b->slots, b->sampler, &position);
    }
    if (pgl_batch_is_sampled(&b->batch, token))
        b->batch.row_samples[span->row_index] = pgl_slots_sample(&b->slots, b->sampler, &position);
}

static void head_chunk(cuda_backend *b, chunk *c) {
    const pgl_config *config = b->model->config;
    const void *rows;
    uint32_t *host = cuda_tables_put(b, c->n, sizeof *host, &rows);
    for (uint32_t i = 0; i < c->n; i++)
        host[i] = c->token[i];
    cuda_tables_send(b);
    pgl_gather_args gather = {
        .x16 = b->w.final16, .out16 = b->w.logit_input, .row = rows, .width16 = config->hidden_size};
    CUDA_LAUNCH(b, gather, c->n, 1, 1, PGL_CUDA_THREADS, &gather);
    cuda_head_logits(b, c->n);
    bool largest = all_largest(b, c);
    if (largest)
        cuda_head_argmax(b, c->n);
    else
        cuda_copy_down(b, b->back.logits, b->w.logits, (uint64_t)c->n * config->vocab_size * sizeof(float));
    pgl_batch_await_masks(&b->batch, &b->slots, b->base.executor, c->token, c->n);
    cuda_batch_wait(b);
    for (uint32_t i = 0; i < c->n && b->status == PGL_OK; i++)
        use_position(b, c, i, largest);
    c->n = 0;
}

void cuda_head_batch(cuda_backend *b) {
    chunk c = {.n = 0};
    for (uint32_t t = 0; t < b->batch.n_tokens; t++) {
        if (c.n == CUDA_LOGIT_ROWS)
            head_chunk(b, &c); /* may end verify rows, so before the next token is looked at */
        if (pgl_batch_is_wanted(&b->batch, t))
            c.token[c.n++] = t;
    }
    if (c.n > 0)
        head_chunk(b, &c);
}
