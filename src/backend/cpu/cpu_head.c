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
        const pgl_span *span = pgl_batch_span(&b->batch, c->token[i]);
        uint32_t row = span->row_index;
        pgl_position position = {
            .row = span->row,
            .base = b->batch.row_base[row],
            .index = pgl_batch_place(&b->batch, c->token[i]),
            .tokens = b->batch.row_tokens + b->batch.row_start[row],
            .logits = b->logits + (size_t)i * b->base.caps.vocab_size,
            .forced = -1,
        };
        bool sampled = pgl_batch_is_sampled(&b->batch, c->token[i]);
        if (!sampled && (span->row->wants & (PGL_WANT_TARGETS | PGL_WANT_LOGITS)) == 0)
            continue; /* a draft before it was refused */
        pgl_slots_score(&b->slots, sampler, &position);
        if (sampled)
            b->batch.row_samples[row] = pgl_slots_sample(&b->slots, sampler, &position);
    }
}

/* Late masks of the chunk's rows that are going to be sampled. */
static void await_masks(cpu_backend *b, const head_context *c) {
    for (uint32_t i = 0; i < c->n; i++) {
        const pgl_span *span = pgl_batch_span(&b->batch, c->token[i]);
        if (span->row->mask_kind != PGL_MASK_LATE || !pgl_batch_is_sampled(&b->batch, c->token[i]))
            continue;
        if (!pgl_executor_await_mask(b->executor, span->row_index)) {
            b->batch.row_samples[span->row_index] = false; /* the backend is being closed */
            b->slots.slot[span->slot].inert = true;
        }
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
    await_masks(b, c);
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
