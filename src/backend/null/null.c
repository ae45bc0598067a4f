/* Owns a null backend: slots, the hashes that stand for a model's state, and pages that hold one entry a position.
 *
 * A slot's state is H(... H(H(0, t0), t1) ..., tn): each page entry keeps the state after its position and the token
 * that led there, so that before a row the whole prefix can be walked and compared with the slot's state. What does
 * not fit is an engine's mistake (a page bound wrongly, written by a neighbour, not copied) and fails the step. */
#include "backend/null/null.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/executor.h"
#include "backend/slots.h"
#include "base/alloc.h"
#include "base/clock.h"

typedef struct entry {
    uint64_t state; /* after this position */
    int64_t token;
} entry;

typedef struct null_backend {
    pgl_backend base;
    pgl_null_options options;
    pgl_slots slots;
    uint64_t *state;    /* [n_slots] */
    uint64_t *snapshot; /* [n_snapshots] */
    entry *pages;       /* [n_pages][page_tokens] */
    pgl_sampler *sampler;
    float *logits;   /* [vocab_size] */
    int32_t *tokens; /* [max_step_tokens]: of the row at hand */
    uint64_t *after; /* [max_step_tokens]: state after each of them */
} null_backend;

/* splitmix64's finalizer: every bit of the result depends on every bit of x. */
static uint64_t scramble(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint64_t extend(uint64_t state, int64_t token) {
    return scramble(state * 3 + (uint64_t)token + 1);
}

/* A number in [-1, 1) that depends on both. */
static float noise(uint64_t state, uint64_t place) {
    return (float)(scramble(state ^ place * 0xD1B54A32D192ED03u) >> 40) * 0x1p-23F - 1.0F;
}

static void fill_logits(const null_backend *b, uint64_t state, float *logits) {
    for (uint32_t id = 0; id < b->base.caps.vocab_size; id++)
        logits[id] = 4 * noise(state, id + 1);
}

static int32_t best_token(const null_backend *b, uint64_t state) {
    int32_t best = 0;
    float largest = -INFINITY;
    for (uint32_t id = 0; id < b->base.caps.n_vocab; id++) {
        float l = 4 * noise(state, id + 1);
        if (l > largest) {
            largest = l;
            best = (int32_t)id;
        }
    }
    return best;
}

static int32_t forced_token(const null_backend *b, uint32_t slot, uint32_t length, int32_t last) {
    if (b->options.next_token == NULL)
        return -1;
    int32_t token = b->options.next_token(b->options.user, slot, length, last);
    return token >= 0 && (uint32_t)token < b->base.caps.n_vocab ? token : -1;
}

static entry *entry_at(const null_backend *b, uint32_t slot, uint32_t position) {
    size_t page = pgl_slot_page(&b->slots, slot, position);
    return b->pages + page * b->base.caps.page_tokens + position % b->base.caps.page_tokens;
}

/* Whether the slot's pages hold the tokens that its state stands for. */
static pgl_status check_prefix(const null_backend *b, uint32_t slot, pgl_error *err) {
    uint32_t length = b->slots.slot[slot].length;
    uint64_t state = 0;
    for (uint32_t p = 0; p < length; p++) {
        const entry *e = entry_at(b, slot, p);
        state = extend(state, e->token);
        if (state != e->state || (p + 1 == length && state != b->state[slot]))
            return pgl_fail(
                err, PGL_E_DEVICE,
                "slot %u, position %u of %u: page %u does not hold the tokens of this slot's state", slot, p,
                length, pgl_slot_page(&b->slots, slot, p));
    }
    return PGL_OK;
}

static void give_hidden(const null_backend *b, const pgl_row *row) {
    const pgl_backend_caps *caps = &b->base.caps;
    float *out = row->result->hidden;
    for (uint64_t l = 0; l <= caps->n_layers; l++) {
        for (uint32_t i = 0; i < row->n_tokens; i++) {
            for (uint64_t c = 0; c < caps->hidden_size; c++)
                *out++ = noise(b->after[i], (l + 1) << 32 | c);
        }
    }
}

/* Slot s of token i's experts in a layer. */
static uint32_t expert_of(const null_backend *b, uint32_t layer, uint32_t i, uint32_t s) {
    uint64_t first = scramble(b->after[i] + layer) % b->base.caps.n_experts;
    return (uint32_t)((first + s) % b->base.caps.n_experts);
}

static void give_experts(const null_backend *b, const pgl_row *row, uint64_t *counts) {
    const pgl_backend_caps *caps = &b->base.caps;
    for (uint32_t l = 0; l < caps->n_layers; l++) {
        for (uint32_t i = 0; i < row->n_tokens; i++) {
            for (uint32_t s = 0; s < caps->n_experts_used; s++) {
                uint32_t e = expert_of(b, l, i, s);
                if ((row->wants & PGL_WANT_EXPERTS) != 0)
                    row->result->experts[((size_t)l * row->n_tokens + i) * caps->n_experts_used + s] =
                        (int32_t)e;
                if ((row->wants & PGL_WANT_COUNTS) != 0)
                    counts[(size_t)l * caps->n_experts + e]++;
            }
        }
    }
}

/* The token that the next step will sample, wrong one time in four. */
static void give_drafts(null_backend *b, const pgl_row *row, uint64_t state, uint32_t length) {
    pgl_slot *slot = &b->slots.slot[row->slot];
    int32_t last = slot->last;
    for (uint32_t i = 0; i < row->n_draft; i++) {
        state = extend(state, last);
        length++;
        int32_t token = forced_token(b, row->slot, length, last);
        if (token < 0)
            token = best_token(b, state);
        if (state % 4 == 0)
            token = (int32_t)(((uint32_t)token + 1) % b->base.caps.n_vocab);
        slot->drafts[i] = token;
        last = token;
    }
    slot->n_drafts = row->n_draft;
    row->result->n_drafted = row->n_draft;
    memcpy(row->result->drafts, slot->drafts, row->n_draft * sizeof *slot->drafts);
}

/* One position: score and sample. Returns whether the row goes on. */
static bool run_position(null_backend *b, const pgl_row *row, uint32_t i, bool sample) {
    const pgl_slot *slot = &b->slots.slot[row->slot];
    uint32_t base = slot->length;
    pgl_position position = {.row = row, .base = base, .index = i, .tokens = b->tokens, .forced = -1};
    if (b->options.inject_non_finite != NULL &&
        b->options.inject_non_finite(b->options.user, row->slot, base + i + 1))
        row->result->non_finite = true;
    if (sample)
        position.forced = forced_token(b, row->slot, base + i + 1, b->tokens[i]);
    bool scored = (row->wants & (PGL_WANT_TARGETS | PGL_WANT_LOGITS)) != 0;
    bool needed = scored || (sample && (position.forced < 0 || row->mask_kind != PGL_MASK_NONE ||
                                        row->result->logprobs != NULL || (row->wants & PGL_WANT_TOP) != 0));
    if (needed) {
        fill_logits(b, b->after[i], b->logits);
        position.logits = b->logits;
        pgl_slots_score(&b->slots, b->sampler, &position);
    }
    return sample && pgl_slots_sample(&b->slots, b->sampler, &position);
}

static void run_row(null_backend *b, const pgl_row *row, uint32_t row_index, uint64_t *counts) {
    pgl_slot *slot = &b->slots.slot[row->slot];
    uint64_t start = b->state[row->slot], state = start;
    uint32_t base = slot->length;
    pgl_slots_row_tokens(&b->slots, row, b->tokens);
    for (uint32_t i = 0; i < row->n_tokens; i++) {
        state = extend(state, b->tokens[i]);
        b->after[i] = state;
        *entry_at(b, row->slot, base + i) = (entry){state, b->tokens[i]};
    }
    if ((row->wants & PGL_WANT_HIDDEN) != 0)
        give_hidden(b, row);
    if ((row->wants & (PGL_WANT_EXPERTS | PGL_WANT_COUNTS)) != 0)
        give_experts(b, row, counts);
    if ((row->wants & PGL_WANT_DRAFT_LOGITS) != 0) {
        for (uint32_t i = 0; i + 1 < row->n_tokens; i++)
            fill_logits(b, extend(~b->after[i], b->tokens[i + 1]),
                        row->result->draft_logits + (size_t)i * b->base.caps.vocab_size);
    }
    bool sampling = (row->wants & PGL_WANT_SAMPLE) != 0;
    if (sampling && row->mask_kind == PGL_MASK_LATE &&
        !pgl_executor_await_mask(b->base.executor, row_index)) {
        sampling = false; /* the backend is being closed */
        slot->inert = true;
    }
    uint32_t first = row->kind == PGL_ROW_VERIFY ? 0 : row->n_tokens - 1;
    for (uint32_t i = 0; i < row->n_tokens; i++) {
        bool sample = sampling && i >= first;
        bool more = run_position(b, row, i, sample);
        if (sample)
            sampling = more;
    }
    uint32_t n_sampled = row->result->n_sampled;
    uint32_t n_moved = pgl_slots_end_row(&b->slots, row, b->tokens);
    if (n_moved > 0)
        b->state[row->slot] = b->after[n_moved - 1];
    if ((row->wants & PGL_WANT_DRAFT) != 0 && n_sampled > 0 && !slot->inert) {
        uint32_t at = first + n_sampled - 1;
        give_drafts(b, row, b->after[at], base + at + 1);
    }
}

static void run_op(null_backend *b, const pgl_op *op) {
    size_t page_tokens = b->base.caps.page_tokens, page_bytes = (size_t)b->base.caps.page_bytes;
    entry *page = b->pages + op->page * page_tokens;
    pgl_slot *slot = &b->slots.slot[op->slot];
    switch (op->kind) {
    case PGL_OP_RESET:
        b->state[op->slot] = 0;
        break;
    case PGL_OP_SAVE:
        b->snapshot[op->snapshot] = b->state[op->slot];
        break;
    case PGL_OP_RESTORE:
        b->state[op->slot] = b->snapshot[op->snapshot];
        break;
    case PGL_OP_FORK:
        b->state[op->slot2] = b->state[op->slot];
        break;
    case PGL_OP_COPY_PAGE:
        memmove(b->pages + op->page2 * page_tokens, page, page_bytes);
        break;
    case PGL_OP_COMMIT:
        for (uint32_t i = 0, n = pgl_slots_commit_count(&b->slots, op); i < n; i++)
            b->state[op->slot] = extend(b->state[op->slot], slot->pending[i]);
        break;
    case PGL_OP_EXPORT_PAGE:
        memcpy(op->host, page, page_bytes);
        break;
    case PGL_OP_IMPORT_PAGE:
        memcpy(page, op->host, page_bytes);
        break;
    case PGL_OP_EXPORT_SNAPSHOT:
        memcpy(op->host, &b->snapshot[op->snapshot], sizeof *b->snapshot);
        break;
    case PGL_OP_IMPORT_SNAPSHOT:
        memcpy(&b->snapshot[op->snapshot], op->host, sizeof *b->snapshot);
        break;
    case PGL_OP_BIND:
    case PGL_OP_HISTORY:
    case PGL_OP_LAST_TOKEN:
        break;
    }
    pgl_slots_apply(&b->slots, op);
}

static void sleep_until(uint64_t deadline_ns) {
    struct timespec at = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                          .tv_nsec = (long)(deadline_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

static pgl_status execute(void *self, const pgl_step_plan *plan, pgl_step_timing *timing, pgl_error *err) {
    null_backend *b = self;
    uint64_t deadline = pgl_now_ns() + b->options.step_ns;
    (void)timing;
    for (size_t i = 0; i < plan->n_before; i++)
        run_op(b, &plan->before[i]);
    for (size_t i = 0; i < plan->n_rows; i++)
        deadline += plan->rows[i].n_tokens * b->options.token_ns;
    if (b->options.step_ns != 0 || b->options.token_ns != 0)
        sleep_until(deadline);
    for (size_t i = 0; i < plan->n_rows; i++) {
        const pgl_row *row = &plan->rows[i];
        if (!pgl_slots_begin_row(&b->slots, row))
            continue;
        pgl_status status = check_prefix(b, row->slot, err);
        if (status != PGL_OK)
            return status;
        run_row(b, row, (uint32_t)i, plan->expert_counts);
    }
    for (size_t i = 0; i < plan->n_after; i++)
        run_op(b, &plan->after[i]);
    return PGL_OK;
}

static void give_state(const void *self, pgl_plan_state *state) {
    pgl_slots_state(&((const null_backend *)self)->slots, state);
}

static void null_close(pgl_backend *backend) {
    null_backend *b = (null_backend *)backend;
    pgl_executor_close(b->base.executor);
    pgl_sampler_close(b->sampler);
    pgl_slots_close(&b->slots);
    free(b->state);
    free(b->snapshot);
    free(b->pages);
    free(b->logits);
    free(b->tokens);
    free(b->after);
    free(b);
}

static pgl_backend_memory null_memory(const pgl_backend *backend) {
    const pgl_backend_caps *caps = &backend->caps;
    return (pgl_backend_memory){
        .pages_bytes = caps->n_pages * caps->page_bytes,
        .slots_bytes = pgl_slots_bytes(caps) + caps->n_slots * sizeof(uint64_t),
        .snapshots_bytes = caps->n_snapshots * caps->snapshot_bytes,
        .work_bytes = caps->vocab_size * sizeof(float) +
                      (uint64_t)caps->max_step_tokens * (sizeof(int32_t) + sizeof(uint64_t)),
    };
}

static const pgl_backend_table TABLE = {null_close, null_memory, pgl_executor_submit, pgl_executor_mask_ready,
                                        pgl_executor_wait};

static pgl_status check_options(const pgl_null_options *o, pgl_error *err) {
    if (o->vocab_size == 0 || o->vocab_size > 1u << 24)
        return pgl_fail(err, PGL_E_INVALID, "null backend, vocab_size: expected 1 to %u, found %u", 1u << 24,
                        o->vocab_size);
    if (o->n_experts_used > o->n_experts)
        return pgl_fail(err, PGL_E_INVALID, "null backend: %u of %u experts cannot be used",
                        o->n_experts_used, o->n_experts);
    return PGL_OK;
}

static pgl_status allocate(null_backend *b, pgl_error *err) {
    const pgl_backend_caps *caps = &b->base.caps;
    b->state = pgl_new(caps->n_slots, sizeof *b->state);
    b->snapshot = pgl_new(caps->n_snapshots, sizeof *b->snapshot);
    b->pages = pgl_new((size_t)caps->n_pages * caps->page_tokens, sizeof *b->pages);
    b->logits = pgl_new(caps->vocab_size, sizeof *b->logits);
    b->tokens = pgl_new(caps->max_step_tokens, sizeof *b->tokens);
    b->after = pgl_new(caps->max_step_tokens, sizeof *b->after);
    if (b->state == NULL || b->snapshot == NULL || b->pages == NULL || b->logits == NULL ||
        b->tokens == NULL || b->after == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the null backend's %u pages and %u slots",
                        caps->n_pages, caps->n_slots);
    pgl_status status = pgl_slots_open(caps, &b->slots, err);
    if (status == PGL_OK)
        status = pgl_sampler_open(caps->n_vocab, &b->sampler, err);
    return status;
}

pgl_status pgl_backend_open_null(const pgl_null_options *null_options, const pgl_backend_options *options,
                                 pgl_backend **out, pgl_error *err) {
    *out = NULL;
    pgl_status status = check_options(null_options, err);
    if (status != PGL_OK)
        return status;
    null_backend *b = pgl_new(1, sizeof *b);
    if (b == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the null backend");
    b->options = *null_options;
    b->base = (pgl_backend){
        .table = &TABLE,
        .caps =
            {
                .name = "null",
                .detail = "no model: forced tokens",
                .max_in_flight = PGL_EXECUTOR_IN_FLIGHT,
                .vocab_size = null_options->vocab_size,
                .hidden_size = null_options->hidden_size,
                .n_layers = null_options->n_layers,
                .n_experts = null_options->n_experts,
                .n_experts_used = null_options->n_experts_used,
                .snapshot_bytes = sizeof(uint64_t),
                .bit_stable = true,
            },
    };
    status = pgl_backend_caps_init(&b->base.caps, options, err);
    b->base.caps.page_bytes = b->base.caps.page_tokens * sizeof(entry);
    if (status == PGL_OK)
        status = allocate(b, err);
    static const pgl_executor_client CLIENT = {execute, give_state};
    if (status == PGL_OK)
        status = pgl_executor_open("pgl-null", &b->base.caps, &CLIENT, b, &b->base.executor, err);
    if (status != PGL_OK) {
        null_close(&b->base);
        return status;
    }
    *out = &b->base;
    return PGL_OK;
}
