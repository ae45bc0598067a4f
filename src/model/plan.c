/* Owns nothing: arithmetic on a model's sizes, every step of it checked. */
#include "model/plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* A thread's stack and small buffers. */
#define THREAD_BYTES ((uint64_t)256 << 10)

/* a * b + c, or false. */
static bool mul_add(uint64_t a, uint64_t b, uint64_t c, uint64_t *out) {
    uint64_t product;
    return pgl_mul_u64(a, b, &product) && pgl_add_u64(product, c, out);
}

static bool add_line(pgl_memory_plan *plan, const char *name, uint64_t bytes, const char *detail, ...)
    __attribute__((format(printf, 4, 5)));

static bool add_line(pgl_memory_plan *plan, const char *name, uint64_t bytes, const char *detail, ...) {
    pgl_plan_line *line = &plan->lines[plan->n_lines++];
    line->name = name;
    line->bytes = bytes;
    va_list args;
    va_start(args, detail);
    (void)vsnprintf(line->detail, sizeof line->detail, detail, args);
    va_end(args);
    return pgl_add_u64(plan->total_bytes, bytes, &plan->total_bytes);
}

void pgl_size_text(uint64_t bytes, char out[16]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024.0 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024.0;
        unit++;
    }
    (void)snprintf(out, 16, unit == 0 || value >= 999.5 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Activations of one token of a step: every row that the CPU backend holds at once. Widths are below 2^31 and few: no
 * overflow. */
static uint64_t row_bytes(const pgl_model *m, bool draft) {
    const pgl_config *c = m->config;
    uint64_t hidden = c->hidden_size, used = m->n_used, expert = c->moe_intermediate_size;
    uint64_t inner = larger(c->shared_intermediate_size, c->intermediate_size);
    uint64_t widest = larger(larger(larger(hidden, m->value_width), m->q_width), inner);
    widest = draft ? larger(widest, 2 * hidden) : widest;
    uint64_t mixer = larger(m->conv_width, 2ull * m->q_width) + m->value_width +
                     larger(m->value_width, m->q_width) + 2ull * c->n_value_heads + 2ull * m->kv_width +
                     c->rotary_dim;
    uint64_t experts = c->n_experts + used * (2 * hidden + 3 * expert + 4);
    return 4 * ((draft ? 7 : 5) * hidden + 2 * widest + mixer + experts + 2 * inner);
}

/* Beside them: logits of 16 positions; and for each thread scores of a few queries for every position, a sampler, and
 * the state of one head. */
static bool work_bytes(const pgl_model *m, const pgl_plan_request *r, uint64_t *out) {
    const pgl_config *c = m->config;
    uint64_t head = 4ull * c->key_dim * c->value_dim + 4ull * c->conv_kernel * m->conv_width;
    uint64_t thread = THREAD_BYTES + 16ull * r->context_tokens + 20ull * c->vocab_size + head;
    uint64_t rows, threads;
    return mul_add(row_bytes(m, r->draft_tokens > 0), r->step_tokens, 64ull * c->vocab_size, &rows) &&
           mul_add(thread, r->n_threads, rows, &threads) &&
           mul_add(4ull * m->conv_width * c->conv_kernel, m->n_delta_layers, threads, out);
}

/* Of one slot: the state, what drafts leave pending, and its records (page table, counts for penalties). */
static bool slot_bytes(const pgl_model *m, const pgl_plan_request *r, uint64_t *out) {
    uint64_t inputs = m->conv_width + 2ull * m->config->n_value_heads;
    uint64_t ids =
        2ull * r->context_tokens < m->config->vocab_size ? 2ull * r->context_tokens : m->config->vocab_size;
    uint64_t pending, records = 12 * ids + 4ull * (r->context_tokens / r->page_tokens + 1);
    return mul_add(4 * inputs, m->n_delta_layers, m->hidden_bytes, &pending) &&
           mul_add(pending, (uint64_t)r->draft_tokens + 1, records, &pending) &&
           pgl_add_u64(m->slot_bytes, pending, out);
}

static pgl_status settle(const pgl_model *model, const pgl_plan_request *request, pgl_plan_request *r,
                         pgl_error *err) {
    uint32_t limit = model->config->max_position_embeddings;
    *r = *request;
    r->context_tokens = r->context_tokens == 0 ? limit : r->context_tokens;
    r->n_slots = r->n_slots == 0 ? 1 : r->n_slots;
    r->page_tokens = r->page_tokens == 0 ? PGL_PLAN_PAGE_TOKENS : r->page_tokens;
    r->n_threads = r->n_threads == 0 ? 1 : r->n_threads;
    if (r->step_tokens == 0)
        r->step_tokens = r->context_tokens < PGL_PLAN_STEP_TOKENS ? r->context_tokens : PGL_PLAN_STEP_TOKENS;
    if (r->context_tokens > limit)
        return pgl_fail(err, PGL_E_INVALID,
                        "context: expected at most %" PRIu32 " tokens, the model's limit; found %" PRIu32,
                        limit, r->context_tokens);
    if (r->page_tokens < 16 || r->page_tokens > 1024 || (r->page_tokens & (r->page_tokens - 1)) != 0)
        return pgl_fail(err, PGL_E_INVALID,
                        "page size: expected a power of two from 16 to 1024 tokens, found %" PRIu32,
                        r->page_tokens);
    return PGL_OK;
}

/* The table without a verdict. */
static pgl_status tabulate(const pgl_model *model, const pgl_plan_request *request, pgl_memory_plan *plan,
                           pgl_error *err) {
    pgl_plan_request r;
    pgl_status status = settle(model, request, &r, err);
    if (status != PGL_OK)
        return status;
    *plan = (pgl_memory_plan){.settled = r, .budget_bytes = r.budget_bytes};
    plan->token_bytes = model->kv_token_bytes + (r.draft_tokens > 0 ? model->draft_kv_token_bytes : 0);

    uint64_t slot_pages = ((uint64_t)r.context_tokens + r.page_tokens - 1) / r.page_tokens;
    uint64_t cache_pages = r.cache_tokens / r.page_tokens + (r.cache_tokens % r.page_tokens != 0);
    uint64_t pages, page, kv, slot, states, snapshots, work;
    if (!mul_add(slot_pages, r.n_slots, cache_pages, &pages) || pages > UINT32_MAX - 1)
        return pgl_fail(err, PGL_E_TOO_LARGE,
                        "%" PRIu32 " slots of %" PRIu32 " tokens: more pages of %" PRIu32
                        " tokens than can be numbered",
                        r.n_slots, r.context_tokens, r.page_tokens);
    plan->n_pages = (uint32_t)pages;
    char token[16], state[16];
    bool ok = slot_bytes(model, &r, &slot) && pgl_mul_u64(plan->token_bytes, r.page_tokens, &page) &&
              pgl_mul_u64(page, pages, &kv) && pgl_mul_u64(slot, r.n_slots, &states) &&
              pgl_mul_u64(model->snapshot_bytes, r.n_snapshots, &snapshots) && work_bytes(model, &r, &work);
    pgl_size_text(plan->token_bytes, token);
    pgl_size_text(ok ? slot : 0, state);
    ok = ok && add_line(plan, "weights", r.weights_bytes, "used straight from the mapped files") &&
         add_line(plan, "keys and values", kv, "%" PRIu32 " pages of %" PRIu32 " tokens, %s a token",
                  plan->n_pages, r.page_tokens, token) &&
         add_line(plan, "recurrent state", states, "%" PRIu32 " slot%s, %s each", r.n_slots,
                  r.n_slots == 1 ? "" : "s", state) &&
         add_line(plan, "snapshots", snapshots, "%" PRIu32 ", for the prefix cache", r.n_snapshots) &&
         add_line(plan, "work space", work, "%" PRIu32 " tokens a step, %" PRIu32 " thread%s", r.step_tokens,
                  r.n_threads, r.n_threads == 1 ? "" : "s") &&
         (r.host_cache_bytes == 0 ||
          add_line(plan, "host cache", r.host_cache_bytes, "of what gives way in the prefix cache")) &&
         add_line(plan, "other", r.other_bytes, "tokenizer, queues");
    if (!ok)
        return pgl_fail(err, PGL_E_INVALID,
                        "%" PRIu32 " slots of %" PRIu32 " tokens with %" PRIu32
                        " snapshots: the sizes do not fit 64 bits",
                        r.n_slots, r.context_tokens, r.n_snapshots);
    plan->fits = r.budget_bytes == 0 || plan->total_bytes <= r.budget_bytes;
    return PGL_OK;
}

/* Whether the request fits with another number of tokens and slots. */
static bool would_fit(const pgl_model *model, const pgl_plan_request *request, uint64_t context,
                      uint64_t slots) {
    pgl_plan_request r = *request;
    pgl_memory_plan plan;
    r.context_tokens = (uint32_t)context;
    r.n_slots = (uint32_t)slots;
    return tabulate(model, &r, &plan, NULL) == PGL_OK && plan.fits;
}

/* The largest n <= most units that fits, in contexts of unit tokens (slots = false) or in slots; 0: none. */
static uint64_t largest(const pgl_model *model, const pgl_plan_request *r, uint64_t most, uint32_t unit,
                        bool slots) {
    uint64_t low = 0, high = most;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        bool fits = slots ? would_fit(model, r, r->context_tokens, middle)
                          : would_fit(model, r, middle * unit, r->n_slots);
        if (fits)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

pgl_status pgl_plan_largest_context(const pgl_model *model, const pgl_plan_request *request,
                                    uint32_t *context_tokens, pgl_error *err) {
    pgl_memory_plan plan;
    *context_tokens = 0;
    pgl_status status = tabulate(model, request, &plan, err);
    if (status != PGL_OK)
        return status;
    pgl_plan_request open = plan.settled;
    const pgl_plan_request *r = &open;
    open.step_tokens =
        request->step_tokens; /* where it follows the context, it follows the one that is tried */
    if (plan.fits)
        *context_tokens = r->context_tokens;
    else
        *context_tokens =
            (uint32_t)largest(model, r, r->context_tokens / r->page_tokens, r->page_tokens, false) *
            r->page_tokens;
    return PGL_OK;
}

/* Says what would fit. */
static void advise(const pgl_model *model, const pgl_plan_request *request, pgl_memory_plan *plan) {
    pgl_plan_request open = plan->settled, least;
    const pgl_plan_request *r = &open;
    open.step_tokens = request->step_tokens; /* as in pgl_plan_largest_context */
    least = open;
    least.n_snapshots = 0;
    least.cache_tokens = 0;
    uint64_t pages = r->context_tokens / r->page_tokens;
    uint64_t context = largest(model, r, pages, r->page_tokens, false) * r->page_tokens;
    uint64_t slots = largest(model, r, r->n_slots - 1, 1, true);
    bool cache = r->n_snapshots > 0 || r->cache_tokens > 0;
    char missing[16];
    pgl_size_text(plan->total_bytes - plan->budget_bytes, missing);
    size_t n = (size_t)snprintf(plan->advice, sizeof plan->advice, "%s too much.", missing);
    char *at = plan->advice + n;
    size_t left = sizeof plan->advice - n;
    if (context > 0 && slots > 0)
        (void)snprintf(at, left,
                       " It fits with a context of %" PRIu64 " tokens in %" PRIu32 " slots, or with %" PRIu64
                       " slot%s of %" PRIu32 " tokens.",
                       context, r->n_slots, slots, slots == 1 ? "" : "s", r->context_tokens);
    else if (context > 0)
        (void)snprintf(at, left, " It fits with a context of %" PRIu64 " tokens.", context);
    else if (slots > 0)
        (void)snprintf(at, left, " It fits with %" PRIu64 " slot%s.", slots, slots == 1 ? "" : "s");
    else if (cache && largest(model, &least, pages, r->page_tokens, false) > 0)
        (void)snprintf(at, left,
                       " Lower the prefix cache: %" PRIu32 " snapshots and %" PRIu64
                       " cached tokens leave no room for a context.",
                       r->n_snapshots, r->cache_tokens);
    else if (r->weights_bytes >= plan->budget_bytes)
        (void)snprintf(at, left,
                       " The weights alone take more than there is: no setting helps, the model needs a "
                       "machine with more memory.");
    else
        (void)snprintf(at, left, " Not even the smallest context and one slot fit beside the weights.");
}

pgl_status pgl_plan_memory(const pgl_model *model, const pgl_plan_request *request, pgl_memory_plan *plan,
                           pgl_error *err) {
    pgl_status status = tabulate(model, request, plan, err);
    if (status == PGL_OK && !plan->fits)
        advise(model, request, plan);
    return status;
}

bool pgl_plan_text(const pgl_memory_plan *plan, pgl_buf *out) {
    char size[16];
    bool ok = true;
    for (uint32_t i = 0; i < plan->n_lines && ok; i++) {
        if (plan->lines[i].bytes == 0)
            continue;
        pgl_size_text(plan->lines[i].bytes, size);
        ok = pgl_buf_printf(out, "%-16s %10s  %s\n", plan->lines[i].name, size, plan->lines[i].detail);
    }
    pgl_size_text(plan->total_bytes, size);
    ok = ok && pgl_buf_printf(out, "%-16s %10s\n", "total", size);
    if (ok && plan->budget_bytes > 0) {
        pgl_size_text(plan->budget_bytes, size);
        ok = pgl_buf_printf(out, "%-16s %10s\n", "memory there is", size);
        ok = ok && (plan->fits ? pgl_buf_puts(out, "It fits.\n")
                               : pgl_buf_printf(out, "It does not fit: %s\n", plan->advice));
    }
    return ok;
}

pgl_status pgl_plan_check_fits(const pgl_memory_plan *plan, pgl_error *err) {
    if (plan->fits)
        return PGL_OK;
    char total[16], budget[16];
    pgl_size_text(plan->total_bytes, total);
    pgl_size_text(plan->budget_bytes, budget);
    return pgl_fail(err, PGL_E_MEMORY,
                    "%" PRIu32 " slot%s of %" PRIu32 " tokens need %s, and there are %s: %s",
                    plan->settled.n_slots, plan->settled.n_slots == 1 ? "" : "s",
                    plan->settled.context_tokens, total, budget, plan->advice);
}
