/* Owns nothing: from final hidden states to logits, and from logits to what the rows want. Positions are taken in the
 * order of the batch, CPU_LOGIT_ROWS at a time; the samples of one row are drawn one after the other by one thread. */
#include <string.h>

#include "backend/cpu/cpu.h"

void cpu_head_logits(cpu_backend *b, uint32_t n) {
    const cpu_product head = {&b->model->weights->head, b->logits};
    cpu_products(b, b->logit_input, n, &head, 1);
}

/* Positions of one chunk: `token` of the batch, neighbours of one row in a run. */
typedef struct head_context {
    cpu_backend *b;
    uint32_t token[CPU_LOGIT_ROWS];
    uint32_t n;
    uint32_t run[CPU_LOGIT_ROWS + 1]; /* where runs start */
    uint32_t n_runs;
} head_context;

static void run_task(void *context, uint32_t task, uint32_t thread) {
    const head_context *c = context;
    cpu_backend *b = c->b;
    pgl_sampler *sampler = b->samplers[thread];
    for (uint32_t i = c->run[task]; i < c->run[task + 1]; i++) {
        uint32_t token = c->token[i];
        if (!pgl_batch_is_wanted(&b->batch, token))
            continue; /* a draft before it was refused */
        bool sampled = pgl_batch_is_sampled(&b->batch, token);
        pgl_position position = pgl_batch_position(&b->batch, token);
        position.logits = b->logits + (size_t)i * b->base.caps.vocab_size;
        pgl_slots_score(&b->slots, sampler, &position);
        if (sampled)
            b->batch.row_samples[pgl_batch_span(&b->batch, token)->row_index] =
                pgl_slots_sample(&b->slots, sampler, &position);
    }
}

static void head_chunk(cpu_backend *b, head_context *c) {
    size_t hidden = b->model->config->hidden_size;
    c->n_runs = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (i == 0 || b->batch.span_of[c->token[i]] != b->batch.span_of[c->token[i - 1]])
            c->run[c->n_runs++] = i;
        memcpy(b->logit_input + i * hidden, b->w.final + c->token[i] * hidden, hidden * sizeof(float));
    }
    c->run[c->n_runs] = c->n;
    cpu_head_logits(b, c->n);
    pgl_batch_await_masks(&b->batch, &b->slots, b->base.executor, c->token, c->n);
    cpu_work work = {run_task, c, c->n_runs};
    cpu_run(b, &work, 1);
    c->n = 0;
}

void cpu_head_batch(cpu_backend *b) {
    head_context c = {.b = b};
    for (uint32_t t = 0; t < b->batch.n_tokens; t++) {
        if (c.n == CPU_LOGIT_ROWS)
            head_chunk(b, &c); /* may end verify rows, so before the next token is looked at */
        if (pgl_batch_is_wanted(&b->batch, t))
            c.token[c.n++] = t;
    }
    if (c.n > 0)
        head_chunk(b, &c);
}
