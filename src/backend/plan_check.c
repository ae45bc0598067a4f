/* The one check of a step plan, shared by all backends: pure, on shadows of the slots. Owns the two arrays of a
 * pgl_plan_state between open and close. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend_impl.h"
#include "base/alloc.h"

pgl_status pgl_plan_state_open(const pgl_backend_caps *caps, pgl_plan_state *state, pgl_error *err) {
    state->slots = pgl_new(caps->n_slots, sizeof *state->slots);
    state->snapshot_length = pgl_new(caps->n_snapshots, sizeof *state->snapshot_length);
    if (state->slots == NULL || state->snapshot_length == NULL) {
        pgl_plan_state_close(state);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the records of %u slots and %u snapshots",
                        caps->n_slots, caps->n_snapshots);
    }
    for (uint32_t i = 0; i < caps->n_snapshots; i++)
        state->snapshot_length[i] = PGL_SNAPSHOT_EMPTY;
    return PGL_OK;
}

void pgl_plan_state_close(pgl_plan_state *state) {
    free(state->slots);
    free(state->snapshot_length);
    state->slots = NULL;
    state->snapshot_length = NULL;
}

void pgl_plan_state_copy(const pgl_backend_caps *caps, pgl_plan_state *to, const pgl_plan_state *from) {
    memcpy(to->slots, from->slots, caps->n_slots * sizeof *to->slots);
    if (caps->n_snapshots > 0)
        memcpy(to->snapshot_length, from->snapshot_length, caps->n_snapshots * sizeof *to->snapshot_length);
}

bool pgl_mask_allows_any(const uint32_t *mask, uint32_t n_vocab) {
    for (uint32_t w = 0; w < n_vocab / 32; w++) {
        if (mask[w] != 0)
            return true;
    }
    uint32_t rest = n_vocab % 32;
    return rest != 0 && (mask[n_vocab / 32] & ((1u << rest) - 1)) != 0;
}

uint32_t pgl_row_host_tokens(const pgl_row *row) {
    if (row->from_drafts)
        return row->from_last ? 0 : 1;
    return row->n_tokens - (row->from_last ? 1 : 0);
}

uint32_t pgl_row_sampled(const pgl_row *row) {
    if ((row->wants & PGL_WANT_SAMPLE) == 0)
        return 0;
    return row->kind == PGL_ROW_VERIFY ? row->n_tokens : 1;
}

/* What one check works on; next is changed as the plan goes. */
typedef struct check {
    const pgl_backend_caps *caps;
    const pgl_step_plan *plan;
    pgl_plan_state *next;
    pgl_error *err;
    char where[64]; /* "before operation 3 (BIND)", "row 2" */
} check;

/* Puts the place in front of the message that err holds. */
static pgl_status place(const check *c) {
    pgl_error_prefix(c->err, "plan, %s", c->where);
    return PGL_E_INVALID;
}

#define refuse(c, ...) (pgl_fail((c)->err, PGL_E_INVALID, __VA_ARGS__), place(c))

static pgl_status in_range(check *c, const char *name, uint32_t value, uint32_t count) {
    if (value < count)
        return PGL_OK;
    return refuse(c, "%s: expected below %u, found %u", name, count, value);
}

static const char *op_name(pgl_op_kind kind) {
    static const char *const NAMES[] = {
        [PGL_OP_RESET] = "RESET",
        [PGL_OP_BIND] = "BIND",
        [PGL_OP_SAVE] = "SAVE",
        [PGL_OP_RESTORE] = "RESTORE",
        [PGL_OP_FORK] = "FORK",
        [PGL_OP_COPY_PAGE] = "COPY_PAGE",
        [PGL_OP_COMMIT] = "COMMIT",
        [PGL_OP_HISTORY] = "HISTORY",
        [PGL_OP_LAST_TOKEN] = "LAST_TOKEN",
        [PGL_OP_EXPORT_PAGE] = "EXPORT_PAGE",
        [PGL_OP_IMPORT_PAGE] = "IMPORT_PAGE",
        [PGL_OP_EXPORT_SNAPSHOT] = "EXPORT_SNAPSHOT",
        [PGL_OP_IMPORT_SNAPSHOT] = "IMPORT_SNAPSHOT",
    };
    return (size_t)kind < sizeof NAMES / sizeof NAMES[0] ? NAMES[kind] : "unknown";
}

/* Which indices and pointers an operation uses. */
enum { USES_SLOT = 1, USES_SLOT2 = 2, USES_PAGE = 4, USES_PAGE2 = 8, USES_SNAPSHOT = 16, USES_HOST = 32 };

static unsigned op_uses(pgl_op_kind kind) {
    switch (kind) {
    case PGL_OP_RESET:
    case PGL_OP_COMMIT:
    case PGL_OP_HISTORY:
    case PGL_OP_LAST_TOKEN:
        return USES_SLOT;
    case PGL_OP_BIND:
        return USES_SLOT | USES_PAGE;
    case PGL_OP_SAVE:
    case PGL_OP_RESTORE:
        return USES_SLOT | USES_SNAPSHOT;
    case PGL_OP_FORK:
        return USES_SLOT | USES_SLOT2;
    case PGL_OP_COPY_PAGE:
        return USES_PAGE | USES_PAGE2;
    case PGL_OP_EXPORT_PAGE:
    case PGL_OP_IMPORT_PAGE:
        return USES_PAGE | USES_HOST;
    case PGL_OP_EXPORT_SNAPSHOT:
    case PGL_OP_IMPORT_SNAPSHOT:
        return USES_SNAPSHOT | USES_HOST;
    }
    return 0;
}

static pgl_status check_op_indices(check *c, const pgl_op *op) {
    const pgl_backend_caps *caps = c->caps;
    unsigned uses = op_uses(op->kind);
    const struct {
        unsigned use;
        const char *name;
        uint32_t value, count;
    } fields[] = {
        {USES_SLOT, "slot", op->slot, caps->n_slots},
        {USES_SLOT2, "slot2", op->slot2, caps->n_slots},
        {USES_PAGE, "page", op->page, caps->n_pages},
        {USES_PAGE2, "page2", op->page2, caps->n_pages},
        {USES_SNAPSHOT, "snapshot", op->snapshot, caps->n_snapshots},
    };
    if (uses == 0)
        return refuse(c, "unknown kind of operation %u", (unsigned)op->kind);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if ((uses & fields[i].use) == 0)
            continue;
        pgl_status status = in_range(c, fields[i].name, fields[i].value, fields[i].count);
        if (status != PGL_OK)
            return status;
    }
    if ((uses & USES_HOST) != 0 && op->host == NULL)
        return refuse(c, "host: expected memory to copy to or from, found NULL");
    return PGL_OK;
}

static pgl_status check_history(check *c, const pgl_op *op) {
    const pgl_sample_history *history = &op->history;
    uint32_t most = pgl_caps_history(c->caps);
    if (history->n > most)
        return refuse(c, "history: expected at most %u ids, found %zu", most, history->n);
    if (history->n > 0 && history->counts == NULL)
        return refuse(c, "history: expected %zu counts, found NULL", history->n);
    for (size_t i = 0; i < history->n; i++) {
        int32_t id = history->counts[i].id;
        if (id < 0 || (uint32_t)id >= c->caps->vocab_size)
            return refuse(c, "history: expected ids below %u, found %d at %zu", c->caps->vocab_size, id, i);
        if (i > 0 && id <= history->counts[i - 1].id)
            return refuse(c, "history: expected rising ids, found %d after %d", id,
                          history->counts[i - 1].id);
    }
    return PGL_OK;
}

static pgl_status check_bind(check *c, const pgl_op *op) {
    uint32_t n_bound = c->next->slots[op->slot].n_bound;
    if (op->index > n_bound)
        return refuse(c, "index: pages of slot %u are bound up to %u; expected at most that, found %u",
                      op->slot, n_bound, op->index);
    return in_range(c, "index", op->index, pgl_caps_table_pages(c->caps));
}

static pgl_status check_commit(check *c, const pgl_op *op) {
    const pgl_slot_shadow *slot = &c->next->slots[op->slot];
    if (slot->n_pending == 0)
        return refuse(c, "slot %u has no pending tokens to commit", op->slot);
    if (op->n > slot->n_pending)
        return refuse(c, "n: slot %u has %u pending tokens, found %u", op->slot, slot->n_pending, op->n);
    return PGL_OK;
}

static pgl_status check_saved(check *c, const pgl_op *op) {
    if (c->next->snapshot_length[op->snapshot] == PGL_SNAPSHOT_EMPTY)
        return refuse(c, "snapshot %u holds nothing", op->snapshot);
    return PGL_OK;
}

static pgl_status check_op(check *c, const pgl_op *op) {
    pgl_status status = check_op_indices(c, op);
    if (status != PGL_OK)
        return status;
    switch (op->kind) {
    case PGL_OP_BIND:
        return check_bind(c, op);
    case PGL_OP_RESTORE:
    case PGL_OP_EXPORT_SNAPSHOT:
        return check_saved(c, op);
    case PGL_OP_FORK:
        return op->slot != op->slot2 ? PGL_OK : refuse(c, "slot2: expected another slot than %u", op->slot);
    case PGL_OP_COMMIT:
        return check_commit(c, op);
    case PGL_OP_HISTORY:
        return check_history(c, op);
    case PGL_OP_LAST_TOKEN:
        if (op->token < 0 || (uint32_t)op->token >= c->caps->vocab_size)
            return refuse(c, "token: expected an id below %u, found %d", c->caps->vocab_size, op->token);
        return PGL_OK;
    case PGL_OP_IMPORT_SNAPSHOT:
        if (op->n > c->caps->max_context)
            return refuse(c, "n: expected a length of at most %u, found %u", c->caps->max_context, op->n);
        return PGL_OK;
    case PGL_OP_RESET:
    case PGL_OP_SAVE:
    case PGL_OP_COPY_PAGE:
    case PGL_OP_EXPORT_PAGE:
    case PGL_OP_IMPORT_PAGE:
        return PGL_OK;
    }
    return PGL_OK;
}

/* What a right operation changes. Tolerates what is right only for the upper bounds that it was checked with. */
static void apply_op(pgl_plan_state *state, const pgl_op *op) {
    pgl_slot_shadow *slots = state->slots;
    switch (op->kind) {
    case PGL_OP_RESET:
        slots[op->slot] = (pgl_slot_shadow){0};
        break;
    case PGL_OP_BIND:
        if (op->index == slots[op->slot].n_bound)
            slots[op->slot].n_bound++;
        break;
    case PGL_OP_SAVE:
        state->snapshot_length[op->snapshot] = slots[op->slot].length;
        break;
    case PGL_OP_RESTORE:
        slots[op->slot] = (pgl_slot_shadow){.length = state->snapshot_length[op->snapshot],
                                            .n_bound = slots[op->slot].n_bound};
        break;
    case PGL_OP_FORK:
        slots[op->slot2] =
            (pgl_slot_shadow){.length = slots[op->slot].length, .n_bound = slots[op->slot].n_bound};
        break;
    case PGL_OP_COMMIT:
        slots[op->slot].length += op->n < slots[op->slot].n_pending ? op->n : slots[op->slot].n_pending;
        slots[op->slot].n_pending = 0;
        break;
    case PGL_OP_HISTORY:
        slots[op->slot].n_history = (uint32_t)op->history.n;
        break;
    case PGL_OP_LAST_TOKEN:
        slots[op->slot].has_last = true;
        break;
    case PGL_OP_IMPORT_SNAPSHOT:
        state->snapshot_length[op->snapshot] = op->n;
        break;
    case PGL_OP_COPY_PAGE:
    case PGL_OP_EXPORT_PAGE:
    case PGL_OP_IMPORT_PAGE:
    case PGL_OP_EXPORT_SNAPSHOT:
        break;
    }
}

static pgl_status check_ops(check *c, const char *list, const pgl_op *ops, size_t n) {
    if (n > 0 && ops == NULL) {
        snprintf(c->where, sizeof c->where, "%s", list);
        return refuse(c, "expected %zu operations, found NULL", n);
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(c->where, sizeof c->where, "%s operation %zu (%s)", list, i, op_name(ops[i].kind));
        pgl_status status = check_op(c, &ops[i]);
        if (status != PGL_OK)
            return status;
        apply_op(c->next, &ops[i]);
    }
    return PGL_OK;
}

static pgl_status check_ids(check *c, const char *name, const int32_t *ids, uint32_t n, int32_t low,
                            uint32_t high) {
    if (n > 0 && ids == NULL)
        return refuse(c, "%s: expected %u ids, found NULL", name, n);
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] < low || (ids[i] >= 0 && (uint32_t)ids[i] >= high))
            return refuse(c, "%s: expected ids from %d to %u, found %d at %u", name, low, high - 1, ids[i],
                          i);
    }
    return PGL_OK;
}

static pgl_status check_row_span(check *c, const pgl_row *row, const pgl_slot_shadow *slot) {
    const pgl_backend_caps *caps = c->caps;
    if (row->n_tokens == 0)
        return refuse(c, "n_tokens: expected at least 1, found 0");
    if (slot->n_pending > 0)
        return refuse(c, "slot %u has %u pending tokens: COMMIT must come first", row->slot, slot->n_pending);
    if (row->kind == PGL_ROW_VERIFY) {
        if (row->n_tokens - 1 > caps->max_draft)
            return refuse(c, "n_tokens: a verify row holds at most %u, found %u", caps->max_draft + 1,
                          row->n_tokens);
    } else if (row->kind != PGL_ROW_COMMIT) {
        return refuse(c, "unknown kind of row %u", (unsigned)row->kind);
    } else if (row->from_drafts || row->auto_commit) {
        return refuse(c, "from_drafts and auto_commit are for verify rows");
    }
    if (row->n_tokens > caps->max_context - slot->length)
        return refuse(c, "slot %u holds %u tokens; %u more exceed the context of %u", row->slot, slot->length,
                      row->n_tokens, caps->max_context);
    uint64_t bound = (uint64_t)slot->n_bound * caps->page_tokens;
    if ((uint64_t)slot->length + row->n_tokens > bound)
        return refuse(c, "slot %u needs pages for %u tokens, found pages bound for %llu", row->slot,
                      slot->length + row->n_tokens, (unsigned long long)bound);
    if (row->from_last && !slot->has_last)
        return refuse(c, "from_last: slot %u has no last sampled token", row->slot);
    if (row->from_drafts && row->n_tokens - 1 > slot->n_drafts)
        return refuse(c, "from_drafts: slot %u holds %u drafts, expected %u", row->slot, slot->n_drafts,
                      row->n_tokens - 1);
    return check_ids(c, "tokens", row->tokens, pgl_row_host_tokens(row), 0, caps->vocab_size);
}

static pgl_status check_row_sampling(check *c, const pgl_row *row) {
    const pgl_backend_caps *caps = c->caps;
    if (row->params == NULL)
        return refuse(c, "params: expected sampling parameters, found NULL");
    pgl_error inner = {PGL_OK, ""};
    if (pgl_sample_check(row->params, caps->n_vocab, &inner) != PGL_OK)
        return refuse(c, "params: %s", inner.text);
    if (row->token_limit == 0)
        return refuse(c, "token_limit: expected at least 1, found 0");
    if (row->n_stop_ids > PGL_MAX_STOP_IDS)
        return refuse(c, "n_stop_ids: expected at most %u, found %u", PGL_MAX_STOP_IDS, row->n_stop_ids);
    pgl_status status = check_ids(c, "stop_ids", row->stop_ids, row->n_stop_ids, 0, caps->vocab_size);
    if (status != PGL_OK)
        return status;
    if ((unsigned)row->mask_kind > PGL_MASK_LATE)
        return refuse(c, "mask_kind: expected none, given or late, found %u", (unsigned)row->mask_kind);
    if (row->mask_kind != PGL_MASK_NONE && row->mask == NULL)
        return refuse(c, "mask: expected memory for the mask, found NULL");
    if (row->mask_kind == PGL_MASK_GIVEN && !pgl_mask_allows_any(row->mask, caps->n_vocab))
        return refuse(c, "mask: expected at least one allowed id, found none");
    if (row->result->tokens == NULL)
        return refuse(c, "result tokens: expected memory, found NULL");
    return PGL_OK;
}

static pgl_status check_row_logprobs(check *c, const pgl_row *row) {
    const pgl_backend_caps *caps = c->caps;
    bool top = (row->wants & PGL_WANT_TOP) != 0, targets = (row->wants & PGL_WANT_TARGETS) != 0;
    if (top && row->n_top == 0)
        return refuse(c, "n_top: expected at least 1 with TOP, found 0");
    if ((top || targets) && (row->n_top > PGL_MAX_TOP || row->n_top > caps->n_vocab))
        return refuse(c, "n_top: expected at most %u, found %u",
                      PGL_MAX_TOP < caps->n_vocab ? PGL_MAX_TOP : caps->n_vocab, row->n_top);
    if ((top || targets) && row->n_top > 0 && row->result->top == NULL)
        return refuse(c, "result top: expected memory, found NULL");
    if (!targets)
        return PGL_OK;
    if (row->result->target_logprobs == NULL)
        return refuse(c, "result target_logprobs: expected memory, found NULL");
    return check_ids(c, "targets", row->targets, row->n_tokens, -1, caps->n_vocab);
}

static pgl_status check_row_wants(check *c, const pgl_row *row) {
    const pgl_backend_caps *caps = c->caps;
    uint32_t wants = row->wants;
    if ((wants & ~(uint32_t)PGL_WANT_ALL) != 0)
        return refuse(c, "wants: unknown bits 0x%x", wants & ~(uint32_t)PGL_WANT_ALL);
    bool sample = (wants & PGL_WANT_SAMPLE) != 0;
    if (row->kind == PGL_ROW_VERIFY && !sample)
        return refuse(c, "wants: a verify row is sampled; SAMPLE is missing");
    if (!sample && (wants & (PGL_WANT_TOP | PGL_WANT_DRAFT)) != 0)
        return refuse(c, "wants: TOP and DRAFT need SAMPLE");
    if (!sample && row->mask_kind != PGL_MASK_NONE)
        return refuse(c, "mask_kind: a mask needs SAMPLE");
    pgl_status status = sample ? check_row_sampling(c, row) : PGL_OK;
    if (status == PGL_OK)
        status = check_row_logprobs(c, row);
    if (status != PGL_OK)
        return status;
    const pgl_row_result *result = row->result;
    if ((wants & PGL_WANT_LOGITS) != 0 && result->logits == NULL)
        return refuse(c, "result logits: expected memory, found NULL");
    if ((wants & PGL_WANT_HIDDEN) != 0 && result->hidden == NULL)
        return refuse(c, "result hidden: expected memory, found NULL");
    if ((wants & (PGL_WANT_EXPERTS | PGL_WANT_COUNTS)) != 0 && caps->n_experts == 0)
        return refuse(c, "wants: EXPERTS and COUNTS need a model with experts");
    if ((wants & PGL_WANT_EXPERTS) != 0 && result->experts == NULL)
        return refuse(c, "result experts: expected memory, found NULL");
    if ((wants & PGL_WANT_COUNTS) != 0 && c->plan->expert_counts == NULL)
        return refuse(c, "wants: COUNTS needs the plan's expert_counts, found NULL");
    if ((wants & (PGL_WANT_DRAFT | PGL_WANT_DRAFT_LOGITS)) != 0 && caps->max_draft == 0)
        return refuse(c, "wants: DRAFT and DRAFT_LOGITS need a draft head (max_draft is 0)");
    if ((wants & PGL_WANT_DRAFT) != 0) {
        if (row->n_draft == 0 || row->n_draft > caps->max_draft)
            return refuse(c, "n_draft: expected 1 to %u, found %u", caps->max_draft, row->n_draft);
        if (result->drafts == NULL)
            return refuse(c, "result drafts: expected memory, found NULL");
    }
    if ((wants & PGL_WANT_DRAFT_LOGITS) != 0 && row->n_tokens > 1 && result->draft_logits == NULL)
        return refuse(c, "result draft_logits: expected memory, found NULL");
    return PGL_OK;
}

static void apply_row(const pgl_backend_caps *caps, pgl_plan_state *state, const pgl_row *row) {
    pgl_slot_shadow *slot = &state->slots[row->slot];
    if (row->kind == PGL_ROW_VERIFY && !row->auto_commit)
        slot->n_pending = row->n_tokens;
    else
        slot->length += row->n_tokens;
    uint32_t n_sampled = pgl_row_sampled(row);
    if (n_sampled == 0)
        return;
    uint32_t most = pgl_caps_history(caps);
    slot->has_last = true;
    slot->n_history = (uint64_t)slot->n_history + n_sampled > most ? most : slot->n_history + n_sampled;
    slot->n_drafts = (row->wants & PGL_WANT_DRAFT) != 0 ? row->n_draft : 0;
}

static pgl_status check_row(check *c, const pgl_row *row) {
    pgl_status status = in_range(c, "slot", row->slot, c->caps->n_slots);
    if (status != PGL_OK)
        return status;
    pgl_slot_shadow *slot = &c->next->slots[row->slot];
    if (slot->has_row)
        return refuse(c, "slot %u has a row in this plan already", row->slot);
    if (row->result == NULL)
        return refuse(c, "result: expected memory, found NULL");
    status = check_row_span(c, row, slot);
    if (status == PGL_OK)
        status = check_row_wants(c, row);
    if (status != PGL_OK)
        return status;
    uint32_t most = pgl_caps_history(c->caps);
    if (most < c->caps->vocab_size && slot->n_history + (uint64_t)pgl_row_sampled(row) > most)
        return refuse(
            c,
            "slot %u: the penalty history holds at most %u ids and %u are counted: HISTORY must come first",
            row->slot, most, slot->n_history);
    apply_row(c->caps, c->next, row);
    slot->has_row = true;
    return PGL_OK;
}

static pgl_status check_rows(check *c) {
    const pgl_step_plan *plan = c->plan;
    snprintf(c->where, sizeof c->where, "rows");
    if (plan->n_rows > c->caps->max_rows)
        return refuse(c, "expected at most %u rows, found %zu", c->caps->max_rows, plan->n_rows);
    if (plan->n_rows > 0 && plan->rows == NULL)
        return refuse(c, "expected %zu rows, found NULL", plan->n_rows);
    for (uint32_t i = 0; i < c->caps->n_slots; i++)
        c->next->slots[i].has_row = false;
    uint64_t n_tokens = 0;
    for (size_t i = 0; i < plan->n_rows; i++) {
        snprintf(c->where, sizeof c->where, "row %zu", i);
        pgl_status status = check_row(c, &plan->rows[i]);
        if (status != PGL_OK)
            return status;
        n_tokens += plan->rows[i].n_tokens;
    }
    snprintf(c->where, sizeof c->where, "rows");
    if (n_tokens > c->caps->max_step_tokens)
        return refuse(c, "expected at most %u tokens in all rows, found %llu", c->caps->max_step_tokens,
                      (unsigned long long)n_tokens);
    return PGL_OK;
}

pgl_status pgl_plan_check(const pgl_backend_caps *caps, const pgl_step_plan *plan, pgl_plan_state *state,
                          pgl_plan_state *scratch, pgl_error *err) {
    check c = {.caps = caps, .plan = plan, .next = scratch, .err = err};
    pgl_plan_state_copy(caps, scratch, state);
    pgl_status status = check_ops(&c, "before", plan->before, plan->n_before);
    if (status == PGL_OK)
        status = check_rows(&c);
    if (status == PGL_OK)
        status = check_ops(&c, "after", plan->after, plan->n_after);
    if (status == PGL_OK)
        pgl_plan_state_copy(caps, state, scratch);
    return status;
}

void pgl_plan_apply(const pgl_backend_caps *caps, const pgl_step_plan *plan, pgl_plan_state *state) {
    for (size_t i = 0; i < plan->n_before; i++)
        apply_op(state, &plan->before[i]);
    for (size_t i = 0; i < plan->n_rows; i++)
        apply_row(caps, state, &plan->rows[i]);
    for (size_t i = 0; i < plan->n_after; i++)
        apply_op(state, &plan->after[i]);
}
