/* Owns nothing: the tables of a batch, written into page-locked memory and sent in one copy. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "model/ops.h"

#define TABLE_ALIGN 16u

static uint64_t aligned(uint64_t bytes) {
    return (bytes + TABLE_ALIGN - 1) / TABLE_ALIGN * TABLE_ALIGN;
}

/* Upper bounds of all that can stand between two waits: the operations' commits, one batch, and the head. */
uint64_t cuda_tables_bytes(const cuda_backend *b) {
    const pgl_backend_caps *caps = &b->base.caps;
    uint64_t tokens = b->batch.capacity, rotary = b->model->config->rotary_dim / 2;
    uint64_t per_token = 12 * sizeof(uint32_t) + 4 * rotary * sizeof(float);
    uint64_t per_row = sizeof(pgl_cuda_span) + 4 * sizeof(uint32_t) +
                       (uint64_t)pgl_caps_table_pages(caps) * sizeof(uint32_t);
    uint64_t per_commit = aligned(sizeof(pgl_cuda_span)) + 2 * aligned(sizeof(uint32_t));
    return tokens * per_token + caps->max_rows * per_row + 2 * caps->n_slots * per_commit +
           64 * (uint64_t)TABLE_ALIGN + CUDA_LOGIT_ROWS * sizeof(uint32_t);
}

void cuda_tables_begin(cuda_backend *b) {
    b->tables_used = 0;
    b->tables_sent = 0;
}

void *cuda_tables_put(cuda_backend *b, size_t n, size_t size, const void **device) {
    uint64_t at = b->tables_used;
    b->tables_used += aligned(n * size);
    if (b->tables_used > b->tables_bytes && b->status == PGL_OK) /* a fault of the plan, not of its caller */
        b->status = pgl_fail(&b->error, PGL_E_INTERNAL, "the tables of a batch take more than %llu bytes",
                             (unsigned long long)b->tables_bytes);
    if (b->tables_used > b->tables_bytes)
        b->tables_used = at = 0;
    *device = b->w.tables + at;
    return b->tables + at;
}

void cuda_tables_send(cuda_backend *b) {
    cuda_copy_up(b, b->w.tables + b->tables_sent, b->tables + b->tables_sent,
                 b->tables_used - b->tables_sent);
    b->tables_sent = b->tables_used;
}

/* A table of numbers: host and device place at once. */
static uint32_t *put_u32(cuda_backend *b, size_t n, const uint32_t **device) {
    const void *at;
    uint32_t *host = cuda_tables_put(b, n, sizeof *host, &at);
    *device = at;
    return host;
}

static void put_rotations(cuda_backend *b, int64_t shift, const float **cosine, const float **sine) {
    const pgl_config *c = b->model->config;
    uint32_t n = b->batch.n_tokens, half = c->rotary_dim / 2;
    const void *device;
    float *host = cuda_tables_put(b, 2 * (size_t)n * half, sizeof *host, &device);
    *cosine = device;
    *sine = *cosine + (size_t)n * half;
    for (uint32_t t = 0; t < n; t++) {
        int64_t position = (int64_t)b->batch.position[t] + shift;
        size_t at = (size_t)t * half;
        pgl_rope_angles(c->rope_theta, c->rotary_dim, position > 0 ? (uint64_t)position : 0, host + at,
                        host + (size_t)n * half + at);
    }
}

/* Pages of the entries up to the last position of each span. */
static void put_pages(cuda_backend *b) {
    const pgl_batch *batch = &b->batch;
    uint32_t page_tokens = b->base.caps.page_tokens, stride = 1;
    for (uint32_t s = 0; s < batch->n_spans; s++) {
        const pgl_span *span = &batch->spans[s];
        uint32_t pages = batch->position[span->first + span->n - 1] / page_tokens + 1;
        uint32_t n_bound = b->slots.slot[span->slot].n_bound;
        pages = pages < n_bound ? pages : n_bound;
        stride = pages > stride ? pages : stride;
    }
    uint32_t *host = put_u32(b, (size_t)batch->n_spans * stride, &b->t.pages);
    for (uint32_t s = 0; s < batch->n_spans; s++) {
        const pgl_slot *slot = &b->slots.slot[batch->spans[s].slot];
        for (uint32_t i = 0; i < stride;
             i++) /* what a slot has not bound is looked at by no token of its own */
            host[(size_t)s * stride + i] = i < slot->n_bound ? slot->pages[i] : 0;
    }
    b->t.pages_stride = stride;
}

static void put_entries(cuda_backend *b) {
    const pgl_batch *batch = &b->batch;
    uint32_t *count = put_u32(b, batch->n_tokens, &b->t.count);
    uint32_t *entry = put_u32(b, batch->n_tokens, &b->t.entry);
    b->t.most_count = 0;
    for (uint32_t t = 0; t < batch->n_tokens; t++) {
        uint32_t position = batch->position[t];
        /* A chain's drafts look at what is fed before them, from entry 1 on, and at those before them in the chain. */
        count[t] = batch->n_tentative > 0 ? position - 1 : position + 1;
        entry[t] = batch->n_tentative > 0 ? batch->n_tentative - 1 : position;
        b->t.most_count = count[t] > b->t.most_count ? count[t] : b->t.most_count;
    }
}

static void put_spans(cuda_backend *b) {
    const pgl_batch *batch = &b->batch;
    const void *device;
    pgl_cuda_span *spans = cuda_tables_put(b, batch->n_spans, sizeof *spans, &device);
    b->t.spans = device;
    for (uint32_t s = 0; s < batch->n_spans; s++) {
        const pgl_span *span = &batch->spans[s];
        spans[s] = (pgl_cuda_span){span->first, span->n, span->slot, span->row->kind == PGL_ROW_VERIFY};
    }
}

/* What verify rows leave pending, and whose last hidden state moves on. */
static void put_moves(cuda_backend *b) {
    const pgl_batch *batch = &b->batch;
    uint32_t tokens = b->base.caps.max_draft + 1, n_kept = 0, n_moved = 0;
    for (uint32_t s = 0; s < batch->n_spans; s++) {
        bool verify = batch->spans[s].row->kind == PGL_ROW_VERIFY;
        n_kept += verify ? batch->spans[s].n : 0;
        n_moved += verify ? 0 : 1;
    }
    uint32_t *kept_from = put_u32(b, n_kept, &b->t.kept_from), *kept_to = put_u32(b, n_kept, &b->t.kept_to);
    uint32_t *from = put_u32(b, n_moved, &b->t.moved_from), *to = put_u32(b, n_moved, &b->t.moved_to);
    b->t.n_kept = n_kept;
    b->t.n_moved = n_moved;
    for (uint32_t s = 0; s < batch->n_spans; s++) {
        const pgl_span *span = &batch->spans[s];
        if (span->row->kind == PGL_ROW_VERIFY) {
            for (uint32_t i = 0; i < span->n; i++) {
                *kept_from++ = span->first + i;
                *kept_to++ = span->slot * tokens + i;
            }
        } else {
            *from++ = b->base.caps.n_slots + span->first + span->n - 1;
            *to++ = span->slot;
        }
    }
}

/* For the draft layer's rows of these tokens. */
static void put_feed(cuda_backend *b) {
    const pgl_batch *batch = &b->batch;
    uint32_t n = batch->n_tokens;
    put_rotations(b, -1, &b->t.draft_cosine, &b->t.draft_sine);
    uint32_t *count = put_u32(b, n, &b->t.draft_count), *entry = put_u32(b, n, &b->t.draft_entry);
    uint32_t *before = put_u32(b, n, &b->t.before_from);
    for (uint32_t t = 0; t < n; t++) {
        const pgl_span *span = pgl_batch_span(batch, t);
        count[t] = batch->position[t];
        entry[t] = batch->position[t] > 0 ? batch->position[t] : UINT32_MAX;
        before[t] = t == span->first ? span->slot : b->base.caps.n_slots + t - 1;
    }
}

void cuda_tables_of_batch(cuda_backend *b) {
    const pgl_batch *batch = &b->batch;
    const void *device;
    int32_t *tokens = cuda_tables_put(b, batch->n_tokens, sizeof *tokens, &device);
    memcpy(tokens, batch->tokens, batch->n_tokens * sizeof *tokens);
    b->t.tokens = device;
    uint32_t *span_of = put_u32(b, batch->n_tokens, &b->t.span_of);
    memcpy(span_of, batch->span_of, batch->n_tokens * sizeof *span_of);
    if (b->model->n_attention_layers > 0 || b->base.caps.max_draft > 0) {
        put_pages(b);
        put_entries(b);
        put_rotations(b, batch->n_tentative > 0 ? (int64_t)batch->n_tentative - 2 : 0, &b->t.cosine,
                      &b->t.sine);
    }
    if (batch->n_tentative > 0) {
        uint32_t *row = put_u32(b, batch->n_tokens, &b->t.row);
        for (uint32_t t = 0; t < batch->n_tokens; t++)
            row[t] = pgl_batch_span(batch, t)->row_index;
    } else {
        put_spans(b);
        put_moves(b);
        if (b->base.caps.max_draft > 0)
            put_feed(b);
    }
    cuda_tables_send(b);
}
