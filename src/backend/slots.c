/* Owns the slots' records; slots.h says what they are. */
#include "backend/slots.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

uint64_t pgl_slots_bytes(const pgl_backend_caps *caps) {
    uint64_t per_slot = sizeof(pgl_slot) + (uint64_t)pgl_caps_table_pages(caps) * sizeof(uint32_t) +
                        (2 * (uint64_t)caps->max_draft + 1) * sizeof(int32_t) +
                        (uint64_t)pgl_caps_history(caps) * sizeof(pgl_token_count);
    return caps->n_slots * per_slot + (uint64_t)caps->n_snapshots * sizeof(uint32_t);
}

pgl_status pgl_slots_open(const pgl_backend_caps *caps, pgl_slots *slots, pgl_error *err) {
    *slots = (pgl_slots){.caps = caps};
    size_t n = caps->n_slots;
    size_t n_pages = pgl_caps_table_pages(caps), n_history = pgl_caps_history(caps),
           n_draft = caps->max_draft;
    slots->slot = pgl_new(n, sizeof *slots->slot);
    slots->snapshot_length = pgl_new(caps->n_snapshots, sizeof *slots->snapshot_length);
    uint32_t *pages = pgl_new(n * n_pages, sizeof *pages);
    int32_t *drafts = pgl_new(n * (2 * n_draft + 1), sizeof *drafts);
    pgl_token_count *history = pgl_new(n * n_history, sizeof *history);
    slots->blocks[0] = slots->snapshot_length;
    slots->blocks[1] = pages;
    slots->blocks[2] = drafts;
    slots->blocks[3] = history;
    if (slots->slot == NULL || slots->snapshot_length == NULL || pages == NULL || drafts == NULL ||
        history == NULL) {
        pgl_slots_close(slots);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the records of %u slots (%llu bytes)",
                        caps->n_slots, (unsigned long long)pgl_slots_bytes(caps));
    }
    for (size_t i = 0; i < n; i++) {
        slots->slot[i].pages = pages + i * n_pages;
        slots->slot[i].drafts = drafts + i * (2 * n_draft + 1);
        slots->slot[i].pending = slots->slot[i].drafts + n_draft;
        slots->slot[i].history = history + i * n_history;
    }
    for (uint32_t i = 0; i < caps->n_snapshots; i++)
        slots->snapshot_length[i] = PGL_SNAPSHOT_EMPTY;
    return PGL_OK;
}

void pgl_slots_close(pgl_slots *slots) {
    free(slots->slot);
    for (size_t i = 0; i < sizeof slots->blocks / sizeof slots->blocks[0]; i++)
        free(slots->blocks[i]);
    *slots = (pgl_slots){0};
}

void pgl_slots_state(const pgl_slots *slots, pgl_plan_state *state) {
    for (uint32_t i = 0; i < slots->caps->n_slots; i++) {
        const pgl_slot *slot = &slots->slot[i];
        state->slots[i] = (pgl_slot_shadow){
            .length = slot->length,
            .n_bound = slot->n_bound,
            .n_pending = slot->n_pending,
            .n_drafts = slot->n_drafts,
            .n_history = (uint32_t)slot->n_history,
            .has_last = slot->has_last,
        };
    }
    if (slots->caps->n_snapshots > 0)
        memcpy(state->snapshot_length, slots->snapshot_length,
               slots->caps->n_snapshots * sizeof *state->snapshot_length);
}

/* A new life, with the page table kept. */
static void revive(pgl_slot *slot, uint32_t length) {
    slot->length = length;
    slot->n_pending = 0;
    slot->n_drafts = 0;
    slot->n_history = 0;
    slot->has_last = false;
    slot->inert = false;
}

uint32_t pgl_slots_commit_count(const pgl_slots *slots, const pgl_op *op) {
    uint32_t n_pending = slots->slot[op->slot].n_pending;
    return op->n < n_pending ? op->n : n_pending;
}

static void apply_fork(pgl_slots *slots, const pgl_op *op) {
    const pgl_slot *from = &slots->slot[op->slot];
    pgl_slot *to = &slots->slot[op->slot2];
    revive(to, from->length);
    to->n_bound = from->n_bound;
    memcpy(to->pages, from->pages, from->n_bound * sizeof *to->pages);
}

void pgl_slots_apply(pgl_slots *slots, const pgl_op *op) {
    pgl_slot *slot = &slots->slot[op->slot];
    switch (op->kind) {
    case PGL_OP_RESET:
        revive(slot, 0);
        slot->n_bound = 0;
        break;
    case PGL_OP_BIND:
        slot->pages[op->index] = op->page;
        if (op->index == slot->n_bound)
            slot->n_bound++;
        break;
    case PGL_OP_SAVE:
        slots->snapshot_length[op->snapshot] = slot->length;
        break;
    case PGL_OP_RESTORE:
        revive(slot, slots->snapshot_length[op->snapshot]);
        break;
    case PGL_OP_FORK:
        apply_fork(slots, op);
        break;
    case PGL_OP_COMMIT:
        slot->length += pgl_slots_commit_count(slots, op);
        slot->n_pending = 0;
        break;
    case PGL_OP_HISTORY:
        if (op->history.n > 0)
            memcpy(slot->history, op->history.counts, op->history.n * sizeof *slot->history);
        slot->n_history = op->history.n;
        break;
    case PGL_OP_LAST_TOKEN:
        slot->has_last = true;
        slot->last = op->token;
        break;
    case PGL_OP_IMPORT_SNAPSHOT:
        slots->snapshot_length[op->snapshot] = op->n;
        break;
    case PGL_OP_COPY_PAGE:
    case PGL_OP_EXPORT_PAGE:
    case PGL_OP_IMPORT_PAGE:
    case PGL_OP_EXPORT_SNAPSHOT:
        break;
    }
}

void pgl_slots_row_tokens(const pgl_slots *slots, const pgl_row *row, int32_t *out) {
    const pgl_slot *slot = &slots->slot[row->slot];
    uint32_t n = 0, host = pgl_row_host_tokens(row);
    if (row->from_last)
        out[n++] = slot->last;
    for (uint32_t i = 0; i < host; i++)
        out[n++] = row->tokens[i];
    for (uint32_t i = 0; n < row->n_tokens; i++)
        out[n++] = slot->drafts[i];
}

bool pgl_slots_begin_row(const pgl_slots *slots, const pgl_row *row) {
    const pgl_slot *slot = &slots->slot[row->slot];
    pgl_row_result *result = row->result;
    result->end = slot->inert ? PGL_ROW_INERT : PGL_ROW_RUNS;
    result->non_finite = false;
    result->length = slot->length;
    result->n_sampled = 0;
    result->n_drafted = 0;
    return !slot->inert;
}

static void count_token(pgl_slot *slot, size_t capacity, int32_t token) {
    size_t low = 0, high = slot->n_history;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (slot->history[middle].id < token)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < slot->n_history && slot->history[low].id == token) {
        slot->history[low].generated++;
        return;
    }
    if (slot->n_history == capacity) /* pgl_plan_check lets no such row through */
        return;
    memmove(slot->history + low + 1, slot->history + low, (slot->n_history - low) * sizeof *slot->history);
    slot->history[low] = (pgl_token_count){.id = token, .generated = 1};
    slot->n_history++;
}

static bool all_finite(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i]) || x[i] == INFINITY)
            return false;
    }
    return true;
}

void pgl_slots_score(pgl_slots *slots, pgl_sampler *sampler, const pgl_position *position) {
    const pgl_backend_caps *caps = slots->caps;
    const pgl_row *row = position->row;
    pgl_row_result *result = row->result;
    uint32_t i = position->index;
    if ((row->wants & PGL_WANT_LOGITS) != 0)
        memcpy(result->logits + (size_t)i * caps->vocab_size, position->logits,
               caps->vocab_size * sizeof *result->logits);
    if ((row->wants & PGL_WANT_TARGETS) != 0) {
        pgl_token_logprob *top = row->n_top > 0 ? result->top + (size_t)i * row->n_top : NULL;
        pgl_status status = pgl_logprobs(sampler, position->logits, caps->n_vocab, row->n_top, top,
                                         &row->targets[i], 1, &result->target_logprobs[i], NULL);
        if (status == PGL_OK)
            return;
        result->target_logprobs[i] = 0;
        if (top != NULL)
            memset(top, 0, row->n_top * sizeof *top);
        result->non_finite = true;
    } else if (!all_finite(position->logits, caps->n_vocab)) {
        result->non_finite = true;
    }
}

static bool mask_allows(const uint32_t *mask, int32_t token) {
    return mask == NULL || (mask[(uint32_t)token / 32] >> ((uint32_t)token % 32) & 1u) != 0;
}

static const uint32_t *mask_of(const pgl_backend_caps *caps, const pgl_position *position) {
    const pgl_row *row = position->row;
    if (row->mask_kind == PGL_MASK_NONE)
        return NULL;
    size_t words = (caps->n_vocab + 31) / 32;
    return row->mask + (row->kind == PGL_ROW_VERIFY ? position->index * words : 0);
}

/* The token, or a status that says that there is none. */
static pgl_status choose(const pgl_slots *slots, pgl_sampler *sampler, const pgl_position *position,
                         int32_t *token) {
    const pgl_row *row = position->row;
    const pgl_slot *slot = &slots->slot[row->slot];
    pgl_sample_input input = {
        .logits = position->logits,
        .n_vocab = slots->caps->n_vocab,
        .mask = mask_of(slots->caps, position),
        .params = row->params,
        .history = {slot->history, slot->n_history},
        .position = position->base + position->index + 1,
    };
    if (position->forced >= 0 && mask_allows(input.mask, position->forced)) {
        *token = position->forced;
        return PGL_OK;
    }
    return pgl_sample(sampler, &input, token, NULL);
}

static void give_logprobs(const pgl_slots *slots, pgl_sampler *sampler, const pgl_position *position,
                          int32_t token) {
    const pgl_row *row = position->row;
    pgl_row_result *result = row->result;
    bool top = (row->wants & PGL_WANT_TOP) != 0 && (row->wants & PGL_WANT_TARGETS) == 0;
    if (!top && result->logprobs == NULL)
        return;
    float logprob = 0;
    pgl_status status = pgl_logprobs(sampler, position->logits, slots->caps->n_vocab, top ? row->n_top : 0,
                                     top ? result->top + (size_t)result->n_sampled * row->n_top : NULL,
                                     &token, 1, &logprob, NULL);
    if (status != PGL_OK)
        result->non_finite = true;
    if (result->logprobs != NULL)
        result->logprobs[result->n_sampled] = logprob;
}

static bool is_stop(const pgl_row *row, int32_t token) {
    for (uint32_t i = 0; i < row->n_stop_ids; i++) {
        if (row->stop_ids[i] == token)
            return true;
    }
    return false;
}

bool pgl_slots_sample(pgl_slots *slots, pgl_sampler *sampler, const pgl_position *position) {
    const pgl_row *row = position->row;
    pgl_slot *slot = &slots->slot[row->slot];
    pgl_row_result *result = row->result;
    int32_t token = 0;
    if (result->non_finite || choose(slots, sampler, position, &token) != PGL_OK) {
        result->non_finite = true;
        slot->inert = true;
        return false;
    }
    give_logprobs(slots, sampler, position, token);
    result->tokens[result->n_sampled++] = token;
    count_token(slot, pgl_caps_history(slots->caps), token);
    slot->has_last = true;
    slot->last = token;
    slot->n_drafts = 0;
    if (is_stop(row, token))
        result->end = PGL_ROW_STOP;
    else if (result->n_sampled >= row->token_limit)
        result->end = PGL_ROW_LIMIT;
    slot->inert = result->end != PGL_ROW_RUNS;
    return !slot->inert && row->kind == PGL_ROW_VERIFY && position->index + 1 < row->n_tokens &&
           position->tokens[position->index + 1] == token;
}

uint32_t pgl_slots_end_row(pgl_slots *slots, const pgl_row *row, const int32_t *tokens) {
    pgl_slot *slot = &slots->slot[row->slot];
    pgl_row_result *result = row->result;
    uint32_t n = 0;
    if (row->kind == PGL_ROW_COMMIT) {
        n = row->n_tokens;
    } else if (row->auto_commit) {
        n = result->n_sampled;
    } else {
        slot->n_pending = row->n_tokens;
        memcpy(slot->pending, tokens, row->n_tokens * sizeof *tokens);
    }
    slot->length += n;
    result->length = slot->length;
    return n;
}
