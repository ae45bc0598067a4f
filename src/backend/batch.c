/* Owns one block with all arrays of a batch. */
#include "backend/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

uint32_t pgl_batch_capacity(const pgl_backend_caps *caps, uint32_t most) {
    uint32_t n = caps->max_step_tokens < most ? caps->max_step_tokens : most;
    return larger(larger(n, caps->max_rows), caps->max_draft + 1);
}

static uint64_t row_bytes(void) {
    return sizeof(pgl_span) + 2 * sizeof(uint32_t) + 2 * sizeof(bool);
}

uint64_t pgl_batch_bytes(const pgl_backend_caps *caps, uint32_t capacity) {
    return caps->max_rows * row_bytes() + (uint64_t)capacity * 3 * sizeof(uint32_t) +
           (uint64_t)caps->max_step_tokens * sizeof(int32_t);
}

pgl_status pgl_batch_open(const pgl_backend_caps *caps, uint32_t capacity, pgl_batch *batch, pgl_error *err) {
    size_t rows = caps->max_rows, tokens = capacity;
    *batch = (pgl_batch){.capacity = capacity};
    batch->block = pgl_new((size_t)pgl_batch_bytes(caps, capacity), 1);
    if (batch->block == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the records of a batch (%llu bytes)",
                        (unsigned long long)pgl_batch_bytes(caps, capacity));
    batch->spans = batch->block; /* the largest alignment first */
    batch->tokens = (int32_t *)(void *)(batch->spans + rows);
    batch->position = (uint32_t *)(void *)(batch->tokens + tokens);
    batch->span_of = batch->position + tokens;
    batch->row_start = batch->span_of + tokens;
    batch->row_base = batch->row_start + rows;
    batch->row_tokens = (int32_t *)(void *)(batch->row_base + rows);
    batch->row_runs = (bool *)(void *)(batch->row_tokens + caps->max_step_tokens);
    batch->row_samples = batch->row_runs + rows;
    return PGL_OK;
}

void pgl_batch_close(pgl_batch *batch) {
    free(batch->block);
    *batch = (pgl_batch){0};
}

void pgl_batch_begin(pgl_batch *batch, const pgl_slots *slots, const pgl_step_plan *plan) {
    uint32_t start = 0;
    batch->plan = plan;
    batch->next_row = 0;
    batch->next_offset = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const pgl_row *row = &plan->rows[i];
        batch->row_runs[i] = pgl_slots_begin_row(slots, row);
        batch->row_samples[i] = batch->row_runs[i] && (row->wants & PGL_WANT_SAMPLE) != 0;
        batch->row_base[i] = slots->slot[row->slot].length;
        batch->row_start[i] = start;
        if (batch->row_runs[i])
            pgl_slots_row_tokens(slots, row, batch->row_tokens + start);
        start += row->n_tokens;
    }
}

static void add_span(pgl_batch *batch, const pgl_row *row, uint32_t n) {
    uint32_t row_index = batch->next_row, offset = batch->next_offset;
    pgl_span *span = &batch->spans[batch->n_spans];
    *span = (pgl_span){
        .row = row,
        .row_index = row_index,
        .slot = row->slot,
        .first = batch->n_tokens,
        .n = n,
        .offset = offset,
        .position = batch->row_base[row_index] + offset,
    };
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = span->first + i;
        batch->tokens[t] = batch->row_tokens[batch->row_start[row_index] + offset + i];
        batch->position[t] = span->position + i;
        batch->span_of[t] = batch->n_spans;
    }
    batch->n_tokens += n;
    batch->n_spans++;
}

bool pgl_batch_pack(pgl_batch *batch) {
    const pgl_step_plan *plan = batch->plan;
    batch->n_tokens = 0;
    batch->n_spans = 0;
    while (batch->next_row < plan->n_rows) {
        const pgl_row *row = &plan->rows[batch->next_row];
        uint32_t room = batch->capacity - batch->n_tokens, left = row->n_tokens - batch->next_offset;
        if (!batch->row_runs[batch->next_row]) {
            batch->next_row++;
            continue;
        }
        if (room == 0 || (left > room && row->kind == PGL_ROW_VERIFY)) /* verify rows stay in one piece */
            break;
        uint32_t n = left < room ? left : room;
        add_span(batch, row, n);
        batch->next_offset += n;
        if (n == left) {
            batch->next_row++;
            batch->next_offset = 0;
        }
    }
    return batch->n_tokens > 0;
}

bool pgl_batch_is_sampled(const pgl_batch *batch, uint32_t t) {
    const pgl_span *span = pgl_batch_span(batch, t);
    if (!batch->row_samples[span->row_index])
        return false;
    return span->row->kind == PGL_ROW_VERIFY || pgl_batch_place(batch, t) + 1 == span->row->n_tokens;
}

bool pgl_batch_is_wanted(const pgl_batch *batch, uint32_t t) {
    return (pgl_batch_span(batch, t)->row->wants & (PGL_WANT_TARGETS | PGL_WANT_LOGITS)) != 0 ||
           pgl_batch_is_sampled(batch, t);
}

void pgl_batch_await_masks(pgl_batch *batch, pgl_slots *slots, pgl_executor *executor, const uint32_t *tokens,
                           uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const pgl_span *span = pgl_batch_span(batch, tokens[i]);
        if (span->row->mask_kind != PGL_MASK_LATE || !pgl_batch_is_sampled(batch, tokens[i]) ||
            pgl_executor_await_mask(executor, span->row_index))
            continue;
        batch->row_samples[span->row_index] = false;
        slots->slot[span->slot].inert = true;
    }
}

pgl_position pgl_batch_position(const pgl_batch *batch, uint32_t t) {
    const pgl_span *span = pgl_batch_span(batch, t);
    return (pgl_position){
        .row = span->row,
        .base = batch->row_base[span->row_index],
        .index = pgl_batch_place(batch, t),
        .tokens = batch->row_tokens + batch->row_start[span->row_index],
        .forced = -1,
    };
}

/* ---- drafts */

static bool drafts(const pgl_batch *batch, const pgl_slots *slots, uint32_t row_index) {
    const pgl_row *row = &batch->plan->rows[row_index];
    return (row->wants & PGL_WANT_DRAFT) != 0 && batch->row_runs[row_index] && !slots->slot[row->slot].inert;
}

void pgl_batch_drafts(pgl_batch *batch, const pgl_slots *slots) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->plan->n_rows; i++) {
        const pgl_row *row = &batch->plan->rows[i];
        if (!drafts(batch, slots, i))
            continue;
        uint32_t sampled = row->result->n_sampled;
        uint32_t place = row->kind == PGL_ROW_VERIFY ? sampled - 1 : row->n_tokens - 1;
        batch->spans[n] = (pgl_span){.row = row, .row_index = i, .slot = row->slot, .first = n, .n = 1};
        batch->tokens[n] = slots->slot[row->slot].last;
        batch->position[n] = batch->row_base[i] + place + 1;
        batch->span_of[n] = n;
        n++;
    }
    batch->n_tokens = n;
    batch->n_spans = n;
    batch->n_tentative = 1;
}

void pgl_batch_give_drafts(pgl_batch *batch, const pgl_slots *slots) {
    batch->n_tentative = 0;
    for (uint32_t i = 0; i < batch->plan->n_rows; i++) {
        const pgl_row *row = &batch->plan->rows[i];
        const pgl_slot *slot = &slots->slot[row->slot];
        if (!drafts(batch, slots, i))
            continue;
        row->result->n_drafted = slot->n_drafts;
        memcpy(row->result->drafts, slot->drafts, slot->n_drafts * sizeof *slot->drafts);
    }
}
