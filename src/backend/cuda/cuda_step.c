/* Owns nothing: carries out a step plan: operations, then rows in batches, then operations. */
#include <string.h>

#include "backend/cuda/cuda.h"

/* ---- operations */

static float *slot_state(const cuda_backend *b, uint32_t slot) {
    return b->state + slot * b->state_floats;
}

static float *slot_hidden(const cuda_backend *b, uint32_t slot) {
    return b->w.final + (size_t)slot * b->model->config->hidden_size;
}

/* A slot's state lies in two places, a snapshot's in one: state and taps, then the hidden state. */
typedef struct held_state {
    float *state, *hidden;
} held_state;

static held_state of_slot(const cuda_backend *b, uint32_t slot) {
    return (held_state){slot_state(b, slot), slot_hidden(b, slot)};
}

static held_state of_snapshot(const cuda_backend *b, uint32_t snapshot) {
    float *at = b->snapshots + snapshot * b->snapshot_floats;
    return (held_state){at, at + (b->model->state_bytes + b->model->conv_bytes) / sizeof(float)};
}

static void copy_state(cuda_backend *b, held_state to, held_state from) {
    cuda_copy_within(b, to.state, from.state, b->model->state_bytes + b->model->conv_bytes);
    cuda_copy_within(b, to.hidden, from.hidden, b->model->hidden_bytes);
}

static void run_op(cuda_backend *b, const pgl_op *op) {
    uint64_t page_bytes = b->base.caps.page_bytes, page_elements = page_bytes / sizeof(uint16_t);
    uint16_t *page = b->pages + op->page * page_elements;
    if (op->kind != PGL_OP_COMMIT)
        cuda_commit_all(b);
    switch (op->kind) {
    case PGL_OP_RESET:
        cuda_zero(b, slot_state(b, op->slot), b->model->state_bytes + b->model->conv_bytes);
        cuda_zero(b, slot_hidden(b, op->slot), b->model->hidden_bytes);
        break;
    case PGL_OP_SAVE:
        copy_state(b, of_snapshot(b, op->snapshot), of_slot(b, op->slot));
        break;
    case PGL_OP_RESTORE:
        copy_state(b, of_slot(b, op->slot), of_snapshot(b, op->snapshot));
        break;
    case PGL_OP_FORK:
        copy_state(b, of_slot(b, op->slot2), of_slot(b, op->slot));
        break;
    case PGL_OP_COPY_PAGE:
        cuda_copy_within(b, b->pages + op->page2 * page_elements, page, page_bytes);
        break;
    case PGL_OP_COMMIT:
        cuda_commit(b, op->slot, pgl_slots_commit_count(&b->slots, op));
        break;
    case PGL_OP_EXPORT_PAGE:
        cuda_copy_down(b, op->host, page, page_bytes);
        break;
    case PGL_OP_IMPORT_PAGE:
        cuda_copy_up(b, page, op->host, page_bytes);
        break;
    case PGL_OP_EXPORT_SNAPSHOT:
        cuda_copy_down(b, op->host, of_snapshot(b, op->snapshot).state, b->base.caps.snapshot_bytes);
        break;
    case PGL_OP_IMPORT_SNAPSHOT:
        cuda_copy_up(b, of_snapshot(b, op->snapshot).state, op->host, b->base.caps.snapshot_bytes);
        break;
    case PGL_OP_BIND:
    case PGL_OP_HISTORY:
    case PGL_OP_LAST_TOKEN:
        break;
    }
    pgl_slots_apply(&b->slots, op);
}

static void run_ops(cuda_backend *b, const pgl_op *ops, size_t n) {
    for (size_t i = 0; i < n; i++)
        run_op(b, &ops[i]);
    cuda_commit_all(b);
}

/* ---- what comes back */

/* Rows that want hidden states take those of one place: 0 the embedding, i after layer i - 1, the last the final norm.
 */
static void give_hidden(cuda_backend *b, uint32_t place, const float *rows) {
    size_t hidden = b->model->config->hidden_size;
    for (uint32_t s = 0; s < b->batch.n_spans; s++) {
        const pgl_span *span = &b->batch.spans[s];
        if ((span->row->wants & PGL_WANT_HIDDEN) == 0)
            continue;
        float *out =
            span->row->result->hidden + ((size_t)place * span->row->n_tokens + span->offset) * hidden;
        cuda_copy_down(b, out, rows + span->first * hidden, span->n * hidden * sizeof *out);
    }
}

/* One layer's routed experts. Returns how many different ones there are. */
static uint32_t give_experts(cuda_backend *b, uint32_t layer) {
    uint32_t used = b->model->n_used, n_experts = b->model->config->n_experts, n_active = 0;
    const int32_t *routed = b->back.expert + (size_t)layer * b->batch.n_tokens * used;
    uint32_t seen[PGL_CUDA_MOST_EXPERTS / 32] = {0};
    for (uint32_t s = 0; s < b->batch.n_spans; s++) {
        const pgl_span *span = &b->batch.spans[s];
        const int32_t *expert = routed + (size_t)span->first * used;
        size_t n = (size_t)span->n * used;
        if ((span->row->wants & PGL_WANT_EXPERTS) != 0)
            memcpy(span->row->result->experts + ((size_t)layer * span->row->n_tokens + span->offset) * used,
                   expert, n * sizeof *expert);
        for (size_t i = 0; i < n; i++) {
            uint32_t e = (uint32_t)expert[i], bit = 1u << (e % 32);
            n_active += (seen[e / 32] & bit) == 0 ? 1 : 0;
            seen[e / 32] |= bit;
            if ((span->row->wants & PGL_WANT_COUNTS) != 0)
                b->batch.plan->expert_counts[(size_t)layer * n_experts + e]++;
        }
    }
    return n_active;
}

/* After the batch's first wait: flags and experts have come back with it. */
static void take_back(cuda_backend *b) {
    for (uint32_t t = 0; t < b->batch.n_tokens; t++) {
        if (b->back.bad[t] != 0)
            pgl_batch_span(&b->batch, t)->row->result->non_finite = true;
    }
    for (uint32_t l = 0; l < b->model->config->n_layers && b->model->n_used > 0; l++)
        b->bytes_read += give_experts(b, l) * b->weights.layers[l].expert_bytes;
}

void cuda_batch_wait(cuda_backend *b) {
    if (!cuda_wait(b))
        return;
    cuda_tables_begin(b);
    if (!b->taken)
        take_back(b);
    b->taken = true;
}

/* ---- batches */

static void keep_row_hidden(cuda_backend *b) {
    const pgl_batch *batch = &b->batch;
    const void *device_from, *device_to;
    uint32_t n = 0, *from = cuda_tables_put(b, batch->n_spans, sizeof *from, &device_from);
    uint32_t *to = cuda_tables_put(b, batch->n_spans, sizeof *to, &device_to);
    for (uint32_t s = 0; s < batch->n_spans; s++) {
        const pgl_span *span = &batch->spans[s];
        uint32_t n_sampled = span->row->result->n_sampled;
        if (span->offset + span->n != span->row->n_tokens || n_sampled == 0)
            continue;
        uint32_t token = span->first + (span->row->kind == PGL_ROW_VERIFY ? n_sampled : span->n) - 1;
        from[n] = b->base.caps.n_slots + token;
        to[n++] = span->row_index;
    }
    cuda_tables_send(b);
    cuda_gather(b, b->w.final, device_from, b->w.row_hidden, device_to, n, b->model->config->hidden_size);
}

static void end_rows(cuda_backend *b) {
    if (b->base.caps.max_draft > 0)
        keep_row_hidden(b);
    for (uint32_t s = 0; s < b->batch.n_spans; s++) {
        const pgl_span *span = &b->batch.spans[s];
        if (span->offset + span->n != span->row->n_tokens)
            continue;
        uint32_t n = pgl_slots_end_row(&b->slots, span->row,
                                       b->batch.row_tokens + b->batch.row_start[span->row_index]);
        if (span->row->kind == PGL_ROW_VERIFY)
            cuda_commit(b, span->slot, n);
    }
    cuda_commit_all(b);
}

/* The trunk, and what comes back of it with the first wait. */
static void run_trunk(cuda_backend *b) {
    const pgl_config *c = b->model->config;
    uint32_t n = b->batch.n_tokens;
    float *final = b->w.final + (size_t)b->base.caps.n_slots * c->hidden_size;
    pgl_embed_args embed = {b->weights.embed.dense, b->t.tokens, b->w.x};
    CUDA_LAUNCH(b, embed, n, 1, 1, PGL_CUDA_THREADS, &embed);
    b->bytes_read += n * b->weights.embed.bytes / c->vocab_size;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        give_hidden(b, l, b->w.x);
        cuda_layer_forward(b, &b->weights.layers[l], l);
    }
    cuda_norm(b, b->weights.norm, b->w.x, final, b->w.final16, b->w.bad, n);
    give_hidden(b, c->n_layers, final);
    cuda_copy_down(b, b->back.bad, b->w.bad, n * sizeof *b->back.bad);
    cuda_copy_down(b, b->back.expert, b->w.expert,
                   (uint64_t)c->n_layers * n * b->model->n_used * sizeof *b->back.expert);
    b->taken = false;
}

static void run_batch(cuda_backend *b) {
    size_t hidden = b->model->config->hidden_size;
    const float *final = b->w.final + b->base.caps.n_slots * hidden;
    cuda_tables_of_batch(b);
    run_trunk(b);
    if (b->t.n_kept > 0)
        cuda_gather(b, final, b->t.kept_from, b->pending_hidden, b->t.kept_to, b->t.n_kept, (uint32_t)hidden);
    if (b->base.caps.max_draft > 0)
        cuda_draft_feed(b);
    /* after the draft layer has taken the hidden states before these tokens */
    cuda_gather(b, b->w.final, b->t.moved_from, b->w.final, b->t.moved_to, b->t.n_moved, (uint32_t)hidden);
    cuda_head_batch(b);
    if (!b->taken)
        cuda_batch_wait(b);
    if (b->status == PGL_OK)
        end_rows(b);
}

pgl_status cuda_execute(void *self, const pgl_step_plan *plan, pgl_step_timing *timing, pgl_error *err) {
    cuda_backend *b = self;
    if (!b->current)
        b->status =
            pgl_cuda_check(&b->driver, b->driver.context_set(b->context), &b->error, "the card's context");
    b->current = true;
    b->bytes_read = 0;
    b->n_launches = 0;
    cuda_tables_begin(b);
    run_ops(b, plan->before, plan->n_before);
    pgl_batch_begin(&b->batch, &b->slots, plan);
    bool drafts = false;
    for (size_t i = 0; i < plan->n_rows; i++)
        drafts = drafts || (plan->rows[i].wants & PGL_WANT_DRAFT) != 0;
    while (b->status == PGL_OK && pgl_batch_pack(&b->batch))
        run_batch(b);
    if (drafts && b->status == PGL_OK)
        cuda_draft_rows(b);
    run_ops(b, plan->after, plan->n_after);
    (void)cuda_wait(b);
    timing->bytes_read = b->bytes_read;
    timing->n_launches = b->n_launches;
    if (b->status != PGL_OK && err != NULL)
        *err = b->error;
    return b->status;
}
