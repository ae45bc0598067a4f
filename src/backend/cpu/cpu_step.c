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

/* Where packing stands: the next row, and the next token in it. */
typedef struct packing {
    uint32_t row, offset;
} packing;

static void add_span(cpu_backend *b, packing *p, const pgl_row *row, uint32_t n) {
    cpu_batch *batch = &b->batch;
    cpu_span *span = &batch->spans[batch->n_spans];
    *span = (cpu_span){
        .row = row,
        .row_index = p->row,
        .slot = row->slot,
        .first = batch->n_tokens,
        .n = n,
        .offset = p->offset,
        .position = b->row_base[p->row] + p->offset,
    };
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = span->first + i;
        batch->tokens[t] = b->row_tokens[b->row_start[p->row] + p->offset + i];
        batch->position[t] = span->position + i;
        batch->span_of[t] = batch->n_spans;
    }
    batch->n_tokens += n;
    batch->n_spans++;
}

/* Fills the batch with the next tokens of the step. False when there are none left. */
static bool pack(cpu_backend *b, packing *p) {
    const pgl_step_plan *plan = b->plan;
    b->batch.n_tokens = 0;
    b->batch.n_spans = 0;
    while (p->row < plan->n_rows) {
        const pgl_row *row = &plan->rows[p->row];
        uint32_t room = b->batch_tokens - b->batch.n_tokens, left = row->n_tokens - p->offset;
        if (!b->row_runs[p->row]) {
            p->row++;
            continue;
        }
        if (room == 0 || (left > room && row->kind == PGL_ROW_VERIFY)) /* verify rows stay in one piece */
            break;
        uint32_t n = left < room ? left : room;
        add_span(b, p, row, n);
        p->offset += n;
        if (n == left)
            *p = (packing){p->row + 1, 0};
    }
    return b->batch.n_tokens > 0;
}

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
        const cpu_span *span = &b->batch.spans[s];
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
        const cpu_span *span = &b->batch.spans[s];
        const int32_t *expert = b->w.expert + (size_t)span->first * used;
        if ((span->row->wants & PGL_WANT_EXPERTS) != 0)
            memcpy(span->row->result->experts + ((size_t)layer * span->row->n_tokens + span->offset) * used,
                   expert, (size_t)span->n * used * sizeof *expert);
        if ((span->row->wants & PGL_WANT_COUNTS) == 0)
            continue;
        uint64_t *counts = b->plan->expert_counts + (size_t)layer * b->model->config->n_experts;
        for (size_t i = 0; i < (size_t)span->n * used; i++)
            counts[expert[i]]++;
    }
}

/* Final hidden states: into the slots (or what a verify row leaves pending), and for rows that draft. */
static void keep_hidden(cpu_backend *b) {
    size_t hidden = b->model->config->hidden_size, bytes = hidden * sizeof(float);
    for (uint32_t s = 0; s < b->batch.n_spans; s++) {
        const cpu_span *span = &b->batch.spans[s];
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
        const cpu_span *span = &b->batch.spans[s];
        if (span->row->kind == PGL_ROW_COMMIT)
            memcpy(cpu_last_hidden(b, cpu_slot_state(b, span->slot)),
                   b->w.final + (span->first + span->n - 1) * hidden, hidden * sizeof(float));
    }
}

static void end_row(cpu_backend *b, const cpu_span *span) {
    const pgl_row *row = span->row;
    uint32_t i = span->row_index, n_sampled = row->result->n_sampled;
    size_t hidden = b->model->config->hidden_size;
    if (b->row_hidden != NULL && n_sampled > 0) {
        uint32_t token = span->first + (row->kind == PGL_ROW_VERIFY ? n_sampled : span->n) - 1;
        memcpy(b->row_hidden + i * hidden, b->w.final + token * hidden, hidden * sizeof(float));
    }
    uint32_t n = pgl_slots_end_row(&b->slots, row, b->row_tokens + b->row_start[i]);
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
        const cpu_span *span = &b->batch.spans[s];
        if (span->offset + span->n == span->row->n_tokens)
            end_row(b, span);
    }
}

static void begin_rows(cpu_backend *b) {
    const pgl_step_plan *plan = b->plan;
    uint32_t start = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const pgl_row *row = &plan->rows[i];
        b->row_runs[i] = pgl_slots_begin_row(&b->slots, row);
        b->row_samples[i] = b->row_runs[i] && (row->wants & PGL_WANT_SAMPLE) != 0;
        b->row_base[i] = b->slots.slot[row->slot].length;
        b->row_start[i] = start;
        if (b->row_runs[i])
            pgl_slots_row_tokens(&b->slots, row, b->row_tokens + start);
        start += row->n_tokens;
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
    b->plan = plan;
    b->bytes_read = 0;
    for (size_t i = 0; i < plan->n_before; i++)
        run_op(b, &plan->before[i]);
    begin_rows(b);
    bool drafts = false;
    for (size_t i = 0; i < plan->n_rows; i++)
        drafts = drafts || (plan->rows[i].wants & PGL_WANT_DRAFT) != 0;
    for (packing p = {0, 0}; pack(b, &p);)
        run_batch(b);
    if (drafts)
        cpu_draft_rows(b);
    for (size_t i = 0; i < plan->n_after; i++)
        run_op(b, &plan->after[i]);
    timing->bytes_read = b->bytes_read;
    return PGL_OK;
}
