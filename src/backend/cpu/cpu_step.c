/* Owns nothing: carries out a step plan: operations, then rows in batches, then operations. */
#include <fenv.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "codec/codec.h"
#include "model/linear.h"

/* ---- operations */

#define COPY_BYTES ((size_t)1 << 20) /* of one task */

typedef struct copy_context {
    unsigned char *to;
    const unsigned char *from; /* NULL: zeros */
    size_t bytes;
} copy_context;

static void copy_task(void *context, uint32_t task, uint32_t thread) {
    const copy_context *c = context;
    size_t at = task * COPY_BYTES, n = c->bytes - at < COPY_BYTES ? c->bytes - at : COPY_BYTES;
    (void)thread;
    if (c->from == NULL)
        memset(c->to + at, 0, n);
    else
        memmove(c->to + at, c->from + at, n);
}

static void copy(cpu_backend *b, void *to, const void *from, uint64_t bytes) {
    copy_context c = {to, from, (size_t)bytes};
    cpu_work work = {copy_task, &c, (uint32_t)((bytes + COPY_BYTES - 1) / COPY_BYTES)};
    if (to != from)
        cpu_run(b, &work, 1);
}

static void run_op(cpu_backend *b, const pgl_op *op) {
    uint64_t state_bytes = b->base.caps.snapshot_bytes, page_bytes = b->base.caps.page_bytes;
    float *slot = cpu_slot_state(b, op->slot), *snapshot = b->snapshots + op->snapshot * b->state_floats;
    unsigned char *page = b->pages + op->page * page_bytes;
    switch (op->kind) {
    case PGL_OP_RESET:
        copy(b, slot, NULL, state_bytes);
        break;
    case PGL_OP_SAVE:
        copy(b, snapshot, slot, state_bytes);
        break;
    case PGL_OP_RESTORE:
        copy(b, slot, snapshot, state_bytes);
        break;
    case PGL_OP_FORK:
        copy(b, cpu_slot_state(b, op->slot2), slot, state_bytes);
        break;
    case PGL_OP_COPY_PAGE:
        copy(b, b->pages + op->page2 * page_bytes, page, page_bytes);
        break;
    case PGL_OP_COMMIT:
        cpu_commit(b, op->slot, pgl_slots_commit_count(&b->slots, op));
        break;
    case PGL_OP_EXPORT_PAGE:
        copy(b, op->host, page, page_bytes);
        break;
    case PGL_OP_IMPORT_PAGE:
        copy(b, page, op->host, page_bytes);
        break;
    case PGL_OP_EXPORT_SNAPSHOT:
        copy(b, op->host, snapshot, state_bytes);
        break;
    case PGL_OP_IMPORT_SNAPSHOT:
        copy(b, snapshot, op->host, state_bytes);
        break;
    case PGL_OP_BIND:
    case PGL_OP_HISTORY:
    case PGL_OP_LAST_TOKEN:
        break;
    }
    pgl_slots_apply(&b->slots, op);
}

/* ---- batches */

static void embed_task(void *context, uint32_t task, uint32_t thread) {
    cpu_backend *b = context;
    (void)thread;
    pgl_linear_row(&b->model->weights->embed, (uint32_t)b->batch.tokens[task],
                   b->w.x + (size_t)task * b->model->config->hidden_size);
}

/* Rows that want hidden states take those of one place: 0 the embedding, i after layer i - 1, the last the final norm.
 */
static void give_hidden(cpu_backend *b, uint32_t place, const float *rows) {
    size_t hidden = b->model->config->hidden_size;
    for (uint32_t s = 0; s < b->batch.n_spans; s++) {
        const pgl_span *span = &b->batch.spans[s];
        if ((span->row->wants & PGL_WANT_HIDDEN) == 0)
            continue;
        float *out =
            span->row->result->hidden + ((size_t)place * span->row->n_tokens + span->offset) * hidden;
        memcpy(out, rows + span->first * hidden, span->n * hidden * sizeof *out);
    }
}

static void give_experts(cpu_backend *b, uint32_t layer) {
    uint32_t used = b->model->n_used;
    for (uint32_t s = 0; s < b->batch.n_spans && used > 0; s++) {
        const pgl_span *span = &b->batch.spans[s];
        const int32_t *expert = b->w.expert + (size_t)span->first * used;
        if ((span->row->wants & PGL_WANT_EXPERTS) != 0)
            memcpy(span->row->result->experts + ((size_t)layer * span->row->n_tokens + span->offset) * used,
                   expert, (size_t)span->n * used * sizeof *expert);
        if ((span->row->wants & PGL_WANT_COUNTS) == 0)
            continue;
        uint64_t *counts = b->batch.plan->expert_counts + (size_t)layer * b->model->config->n_experts;
        for (size_t i = 0; i < (size_t)span->n * used; i++)
            counts[expert[i]]++;
    }
}

/* Final hidden states: into the slots (or what a verify row leaves pending), and for rows that draft. */
static void keep_hidden(cpu_backend *b) {
    size_t hidden = b->model->config->hidden_size, bytes = hidden * sizeof(float);
    for (uint32_t s = 0; s < b->batch.n_spans; s++) {
        const pgl_span *span = &b->batch.spans[s];
        const float *rows = b->w.final + span->first * hidden;
        if (!b->k->finite(b->w.x + span->first * hidden, span->n * hidden))
            span->row->result->non_finite = true;
        if (span->row->kind == PGL_ROW_VERIFY) {
            for (uint32_t i = 0; i < span->n; i++)
                memcpy(cpu_pending_hidden(b, span->slot, i), rows + i * hidden, bytes);
        }
    }
}

/* After the draft layer has taken the hidden states before these tokens. */
static void move_hidden(cpu_backend *b) {
    size_t hidden = b->model->config->hidden_size;
    for (uint32_t s = 0; s < b->batch.n_spans; s++) {
        const pgl_span *span = &b->batch.spans[s];
        if (span->row->kind == PGL_ROW_COMMIT)
            memcpy(cpu_last_hidden(b, cpu_slot_state(b, span->slot)),
                   b->w.final + (span->first + span->n - 1) * hidden, hidden * sizeof(float));
    }
}

static void end_row(cpu_backend *b, const pgl_span *span) {
    const pgl_row *row = span->row;
    uint32_t i = span->row_index, n_sampled = row->result->n_sampled;
    size_t hidden = b->model->config->hidden_size;
    if (b->row_hidden != NULL && n_sampled > 0) {
        uint32_t token = span->first + (row->kind == PGL_ROW_VERIFY ? n_sampled : span->n) - 1;
        memcpy(b->row_hidden + i * hidden, b->w.final + token * hidden, hidden * sizeof(float));
    }
    uint32_t n = pgl_slots_end_row(&b->slots, row, b->batch.row_tokens + b->batch.row_start[i]);
    if (row->kind == PGL_ROW_VERIFY)
        cpu_commit(b, row->slot, n);
}

static void run_batch(cpu_backend *b) {
    const pgl_model *m = b->model;
    uint32_t n = b->batch.n_tokens;
    cpu_work embed = {embed_task, b, n};
    cpu_run(b, &embed, 1);
    b->bytes_read += n * cpu_linear_bytes(&m->weights->embed) / m->weights->embed.out;
    cpu_rotations(b, 0);
    for (uint32_t l = 0; l < m->config->n_layers; l++) {
        give_hidden(b, l, b->w.x);
        cpu_layer_forward(b, &b->layers[l]);
        give_experts(b, l);
    }
    cpu_norm_rows(b, b->final_norm, b->w.x, b->w.final, n);
    give_hidden(b, m->config->n_layers, b->w.final);
    keep_hidden(b);
    if (b->base.caps.max_draft > 0)
        cpu_draft_feed(b);
    move_hidden(b);
    cpu_head_batch(b);
    for (uint32_t s = 0; s < b->batch.n_spans; s++) {
        const pgl_span *span = &b->batch.spans[s];
        if (span->offset + span->n == span->row->n_tokens)
            end_row(b, span);
    }
}

/* Whatever rounding and flushing to zero the program around us has chosen: not here. */
static void default_arithmetic(void *arg, uint32_t thread, uint32_t n_threads) {
    (void)arg;
    (void)thread;
    (void)n_threads;
    (void)fesetenv(FE_DFL_ENV);
}

pgl_status cpu_execute(void *self, const pgl_step_plan *plan, pgl_step_timing *timing, pgl_error *err) {
    cpu_backend *b = self;
    (void)err;
    if (!b->started)
        pgl_pool_each(b->pool, default_arithmetic, NULL);
    b->started = true;
    b->bytes_read = 0;
    for (size_t i = 0; i < plan->n_before; i++)
        run_op(b, &plan->before[i]);
    pgl_batch_begin(&b->batch, &b->slots, plan);
    bool drafts = false;
    for (size_t i = 0; i < plan->n_rows; i++)
        drafts = drafts || (plan->rows[i].wants & PGL_WANT_DRAFT) != 0;
    while (pgl_batch_pack(&b->batch))
        run_batch(b);
    if (drafts)
        cpu_draft_rows(b);
    for (size_t i = 0; i < plan->n_after; i++)
        run_op(b, &plan->after[i]);
    timing->bytes_read = b->bytes_read;
    return PGL_OK;
}
