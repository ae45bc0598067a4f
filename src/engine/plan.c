/* Owns nothing beyond the flight being built: turns what the scheduler decides into operations and rows. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_impl.h"
#include "engine/forced.h"

enum {
    LEAST_CHUNK = 16,     /* tokens of a prompt in a step, however slow the machine is */
    UNKNOWN_CHUNK = 64,   /* while its speed is not known */
    ALONE_GAPS = 4,       /* a step without answers may take so many gaps: arrivals and cancels wait for it */
    OPS_AHEAD = 64,       /* operations that are set aside at start */
    HINTLESS_PROMPT = 16, /* longer prompts without hints get a snapshot before their last token */
};

pgl_status pgl_flight_init(pgl_flight *flight, const pgl_backend_caps *caps, pgl_error *err) {
    flight->rows = pgl_new(caps->max_rows, sizeof *flight->rows);
    flight->results = pgl_new(caps->max_rows, sizeof *flight->results);
    flight->info = pgl_new(caps->max_rows, sizeof *flight->info);
    flight->targets = pgl_new(caps->max_step_tokens, sizeof *flight->targets);
    bool ops = pgl_grow(&flight->before.ops, sizeof(pgl_op), &flight->before.capacity, OPS_AHEAD) &&
               pgl_grow(&flight->after.ops, sizeof(pgl_op), &flight->after.capacity, caps->max_rows);
    if (flight->rows == NULL || flight->results == NULL || flight->info == NULL || flight->targets == NULL ||
        !ops)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for plans of %u rows", caps->max_rows);
    return PGL_OK;
}

void pgl_flight_fini(pgl_flight *flight) {
    free(flight->rows);
    free(flight->results);
    free(flight->info);
    free(flight->targets);
    free(flight->before.ops);
    free(flight->after.ops);
    *flight = (pgl_flight){.ticket = 0};
}

static bool reserve_ops(pgl_op_list *list, size_t more) {
    return pgl_grow(&list->ops, sizeof *list->ops, &list->capacity, list->n + more);
}

static void put_op(pgl_op_list *list, pgl_op op) {
    list->ops[list->n++] = op;
}

static uint32_t pages_for(const pgl_engine *engine, uint32_t n_tokens) {
    return n_tokens / engine->caps.page_tokens + (n_tokens % engine->caps.page_tokens != 0);
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* ---- what a request may do next ---- */

/* The next count of tokens at which a snapshot is wanted. */
static uint32_t next_place(const pgl_engine *engine, pgl_request *r) {
    const pgl_request_params *p = &r->params;
    if (!engine->options.prefix_cache)
        return UINT32_MAX;
    uint32_t every = engine->options.snapshot_every, given = r->seq.n_given;
    uint32_t place = given <= UINT32_MAX - 2 * every ? (given / every + 1) * every : UINT32_MAX;
    while (r->next_hint < p->n_snapshot_at && p->snapshot_at[r->next_hint] <= given)
        r->next_hint++;
    if (r->next_hint < p->n_snapshot_at)
        place = least(place, p->snapshot_at[r->next_hint]);
    bool before_last = p->n_snapshot_at == 0 && p->n_prompt > HINTLESS_PROMPT;
    if (before_last && given < p->n_prompt - 1)
        place = least(place, p->n_prompt - 1);
    return place;
}

static bool is_unasked(const pgl_request *r, uint32_t place) {
    const pgl_request_params *p = &r->params;
    for (uint32_t i = 0; i < p->n_snapshot_at; i++)
        if (p->snapshot_at[i] == place)
            return false;
    return !(p->n_snapshot_at == 0 && place == p->n_prompt - 1);
}

void pgl_engine_make_ready(pgl_engine *engine, pgl_request *r) {
    pgl_sched_seq *seq = &r->seq;
    uint32_t full = r->params.n_prompt + r->max_tokens;
    bool complete = seq->n_known == full && seq->n_given + 1 >= full && r->max_tokens > 0;
    /* Without its mask a request may be read up to the token that samples, and no further. */
    bool masked = r->params.mask.next != NULL && !r->mask_here && r->max_tokens > 0;
    uint32_t end = masked ? seq->n_known - 1 : seq->n_known;
    seq->ready = r->phase == PGL_PHASE_RUNNING && seq->n_given < end && !complete;
    r->save_at = seq->ready ? next_place(engine, r) : UINT32_MAX;
    seq->row_end = seq->ready ? least(r->save_at, masked ? end : UINT32_MAX) : UINT32_MAX;
}

/* ---- waiting for what another is reading ---- */

static bool has_slot(void *user) {
    const pgl_engine *engine = user;
    for (uint32_t i = 0; i < engine->caps.n_slots; i++)
        if (engine->slots[i].request == NULL && engine->slots[i].in_flight == 0)
            return true;
    return false;
}

static pgl_cache_hit find_prefix(const pgl_engine *engine, const pgl_request *r) {
    if (!r->prompt_complete) /* every prompt token's log-probability is wanted */
        return pgl_cache_no_hit(PGL_MISS_OFF);
    return pgl_cache_find(engine->cache, r->tokens, r->n_value, r->n_value - 1);
}

/* The furthest place in the prompt that q is reading, at most `most`, at which it will take a snapshot; 0: none. */
static uint32_t coming_place(const pgl_engine *engine, const pgl_request *q, uint32_t most) {
    const pgl_request_params *p = &q->params;
    uint32_t every = engine->options.snapshot_every, landed = q->n_landed;
    uint32_t place = most / every * every;
    if (p->n_snapshot_at == 0 && p->n_prompt > HINTLESS_PROMPT && p->n_prompt - 1 <= most)
        place = p->n_prompt - 1;
    for (uint32_t i = 0; i < p->n_snapshot_at; i++)
        if (p->snapshot_at[i] <= most && p->snapshot_at[i] > place)
            place = p->snapshot_at[i];
    return place > landed && place < p->n_prompt ? place : 0;
}

static uint32_t count_common(const int32_t *a, const int32_t *b, uint32_t n) {
    uint32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

static bool is_reading(const pgl_request *q) {
    return q != NULL && q->phase == PGL_PHASE_RUNNING && q->n_landed < q->params.n_prompt;
}

/* Whether a waiting request had better wait for a running one: both begin alike, and the running one will leave a
 * snapshot that spares the waiting one more tokens than the cache does now. */
static bool holds(void *user, pgl_sched_seq *seq) {
    const pgl_engine *engine = user;
    pgl_request *r = pgl_request_of(seq);
    if (!engine->options.prefix_cache || !r->prompt_complete)
        return false;
    uint32_t best = 0;
    uint64_t by = 0;
    for (uint32_t s = 0; s < engine->caps.n_slots; s++) {
        const pgl_request *q = engine->slots[s].request;
        if (!is_reading(q))
            continue;
        if (q->number == r->held_by && q->n_landed < r->held_place)
            return true;
        uint32_t n = least(q->params.n_prompt, r->n_value);
        uint32_t place =
            coming_place(engine, q, least(count_common(q->tokens, r->tokens, n), r->n_value - 1));
        if (place > best) {
            best = place;
            by = q->number;
        }
    }
    r->held_by = 0;
    if (best == 0 || find_prefix(engine, r).n_tokens + engine->caps.page_tokens > best)
        return false;
    r->held_by = by;
    r->held_place = best;
    return true;
}

/* ---- the scheduler's machine ---- */

/* What the cache wants moved comes in the order in which it asks, before this plan's rows. */
bool pgl_engine_plan_move(void *user, const pgl_op *op) {
    pgl_engine *engine = user;
    if (!reserve_ops(&engine->building->before, 1))
        return false;
    put_op(&engine->building->before, *op);
    return true;
}

static uint32_t pages_available(void *user) {
    const pgl_engine *engine = user;
    return pgl_cache_available(engine->cache);
}

static uint32_t pages_to_admit(void *user, const pgl_sched_seq *seq) {
    const pgl_engine *engine = user;
    pgl_cache_hit hit = find_prefix(engine, (const pgl_request *)seq);
    return pages_for(engine, seq->n_known) - hit.n_resident + hit.n_unused;
}

/* Pages of a hit and new ones for all known tokens; false, with none held, when they do not suffice. */
static bool take_pages(pgl_engine *engine, pgl_request *r, const pgl_cache_hit *hit, uint32_t *snapshot) {
    uint32_t need = pages_for(engine, r->seq.n_known);
    r->n_pages = 0;
    if (!pgl_cache_use(engine->cache, hit, r->pages, snapshot))
        return false;
    r->n_pages = hit->n_pages;
    bool enough = true;
    while (enough && r->n_pages < need) {
        uint32_t page = pgl_cache_take_page(engine->cache);
        enough = page != PGL_NO_PAGE;
        if (enough)
            r->pages[r->n_pages++] = page;
    }
    enum { OTHER_OPS = 4 };
    if (enough && reserve_ops(&engine->building->before, (size_t)need + OTHER_OPS))
        return true;
    for (uint32_t i = 0; i < r->n_pages; i++)
        pgl_cache_drop_page(engine->cache, r->pages[i]);
    r->n_pages = 0;
    return false;
}

static int by_id(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Adds the answer so far of a request that is resumed to the counts of its prompt. */
static bool count_answer(pgl_request *r) {
    uint32_t n = r->n_value - r->params.n_prompt, n_counts = r->n_counts;
    for (uint32_t i = 0; i < n_counts; i++) /* from an earlier resumption */
        r->counts[i].generated = 0;
    int32_t *sorted = pgl_new(n, sizeof *sorted);
    if (sorted == NULL)
        return false;
    memcpy(sorted, r->tokens + r->params.n_prompt, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_id);
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        while (at < n_counts && r->counts[at].id < sorted[i])
            at++;
        pgl_token_count *last = &r->counts[r->n_counts - 1];
        if (at < n_counts && r->counts[at].id == sorted[i])
            r->counts[at].generated++;
        else if (r->n_counts > n_counts && last->id == sorted[i])
            last->generated++;
        else
            r->counts[r->n_counts++] = (pgl_token_count){.id = sorted[i], .generated = 1};
    }
    free(sorted);
    qsort(r->counts, r->n_counts, sizeof *r->counts, by_id); /* id is a count's first member */
    return true;
}

static void plan_start(pgl_engine *engine, const pgl_request *r, uint32_t snapshot) {
    pgl_op_list *list = &engine->building->before;
    put_op(list, (pgl_op){.kind = PGL_OP_RESET, .slot = r->slot});
    for (uint32_t i = 0; i < r->n_pages; i++)
        put_op(list, (pgl_op){.kind = PGL_OP_BIND, .slot = r->slot, .index = i, .page = r->pages[i]});
    if (snapshot != PGL_NO_SNAPSHOT)
        put_op(list, (pgl_op){.kind = PGL_OP_RESTORE, .slot = r->slot, .snapshot = snapshot});
    if (r->counts != NULL)
        put_op(list, (pgl_op){.kind = PGL_OP_HISTORY, .slot = r->slot, .history = {r->counts, r->n_counts}});
    if (engine->options.forced != NULL)
        pgl_forced_set(engine->options.forced, r->slot, r->params.n_prompt, r->params.forced,
                       r->params.n_forced);
}

/* Counts, places and, of the first tokens that differ, the ids: no more of a prompt than these two. */
static void log_decision(const pgl_request *r, const pgl_cache_decision *d) {
    if (!pgl_log_enabled(PGL_LOG_DEBUG))
        return;
    char ids[64] = "";
    if (d->miss == PGL_MISS_DIFFERS)
        (void)snprintf(ids, sizeof ids, ": token %d there, %d here", (int)d->cached_id, (int)d->prompt_id);
    pgl_log(PGL_LOG_DEBUG, "cache",
            "request %" PRIu64 ": %u of %u prompt tokens taken%s, %u known; %s at %u%s", r->number,
            d->n_cached, r->params.n_prompt, d->from_host ? " from host memory" : "", d->n_matched,
            pgl_miss_name(d->miss), d->miss_at, ids);
}

static void note_admission(pgl_engine *engine, pgl_request *r, const pgl_cache_hit *hit) {
    if (r->admitted) {
        pgl_request_publish_state(r, PGL_REQUEST_PROMPT, hit->n_tokens);
        return;
    }
    r->admitted = true;
    r->admitted_ns = pgl_now_ns();
    pgl_request_publish_admitted(r, &hit->decision);
    log_decision(r, &hit->decision);
    engine->stats.prompt_tokens += r->params.n_prompt;
    engine->stats.cached_tokens += hit->n_tokens;
    engine->stats.host_cached_tokens += hit->decision.from_host ? hit->n_tokens : 0;
    engine->stats.host_hits += hit->decision.from_host;
    engine->stats.cache_hits += hit->n_tokens > 0;
}

static bool admit(void *user, pgl_sched_seq *seq) {
    pgl_engine *engine = user;
    pgl_request *r = pgl_request_of(seq);
    if (r->in_flight > 0) /* parked a moment ago: its last token is not known yet */
        return false;
    bool resumed = r->counts != NULL && r->n_value > r->params.n_prompt;
    if (resumed && !count_answer(r))
        return false;
    pgl_cache_hit hit = find_prefix(engine, r);
    uint32_t snapshot;
    if (!take_pages(engine, r, &hit, &snapshot)) {
        /* Holding the hit may be what made the pages too few; or there is no room for what would be imported. */
        pgl_cache_decision lost = hit.decision;
        hit = pgl_cache_no_hit(PGL_MISS_PAGE_EVICTED);
        hit.decision.n_matched = lost.n_matched;
        hit.decision.miss_at = lost.n_cached;
        if (!take_pages(engine, r, &hit, &snapshot))
            return false;
    }
    uint32_t slot = 0;
    while (engine->slots[slot].request != NULL || engine->slots[slot].in_flight > 0)
        slot++;
    engine->slots[slot].request = r;
    r->slot = slot;
    r->phase = PGL_PHASE_RUNNING;
    r->life++;
    r->next_hint = 0;
    seq->n_given = r->n_landed = hit.n_tokens;
    plan_start(engine, r, snapshot);
    note_admission(engine, r, &hit);
    if (!r->mask_here && !r->mask_asked) /* the first; one that is resumed has asked before */
        pgl_mask_ask(engine, r);
    pgl_engine_make_ready(engine, r);
    return true;
}

static bool grow(void *user, pgl_sched_seq *seq) {
    pgl_engine *engine = user;
    pgl_request *r = pgl_request_of(seq);
    if (r->n_pages >= pages_for(engine, seq->n_given + 1))
        return true;
    uint32_t page = pgl_cache_take_page(engine->cache);
    if (page == PGL_NO_PAGE)
        return false;
    if (!reserve_ops(&engine->building->before, 1)) {
        pgl_cache_drop_page(engine->cache, page);
        return false;
    }
    put_op(&engine->building->before,
           (pgl_op){.kind = PGL_OP_BIND, .slot = r->slot, .index = r->n_pages, .page = page});
    r->pages[r->n_pages++] = page;
    return true;
}

static void park(void *user, pgl_sched_seq *seq) {
    pgl_engine *engine = user;
    pgl_request *r = pgl_request_of(seq);
    pgl_engine_give_back(engine, r);
    r->phase = PGL_PHASE_WAITING;
    r->life++;
    seq->n_given = 0;
    seq->ready = false;
    engine->stats.parked++;
    pgl_request_publish_parked(r);
}

/* ---- rows ---- */

/* Room for the top log-probabilities of answer token i. */
static pgl_token_logprob *top_of(pgl_request *r, uint32_t i) {
    pgl_token_logprob **block = &r->top[i / PGL_TOP_BLOCK];
    if (*block == NULL)
        *block = pgl_new((size_t)PGL_TOP_BLOCK * r->n_top, sizeof **block);
    return *block == NULL ? NULL : *block + (size_t)(i % PGL_TOP_BLOCK) * r->n_top;
}

/* The next prompt token is the target of each. */
static void want_targets(pgl_flight *flight, const pgl_request *r, pgl_row *row, uint32_t first) {
    int32_t *targets = flight->targets + flight->n_targets;
    flight->n_targets += row->n_tokens;
    for (uint32_t i = 0; i < row->n_tokens; i++)
        targets[i] = first + i + 1 < r->params.n_prompt ? r->tokens[first + i + 1] : -1;
    row->wants |= PGL_WANT_TARGETS;
    row->targets = targets;
    row->n_top = r->n_top;
    row->result->target_logprobs = r->prompt_logprobs + first + 1;
    row->result->top = r->n_top > 0 ? r->prompt_top + (size_t)(first + 1) * r->n_top : NULL;
}

/* False when there is no memory for what the token brings with it. */
static bool want_sample(pgl_request *r, pgl_row *row) {
    uint32_t answer = r->seq.n_known - r->params.n_prompt;
    row->wants |= PGL_WANT_SAMPLE;
    row->params = &r->params.sampling;
    row->stop_ids = r->params.stop_ids;
    row->n_stop_ids = r->n_stop_ids;
    row->token_limit = r->max_tokens - answer;
    row->result->tokens = r->tokens + r->seq.n_known;
    row->result->logprobs = r->logprobs != NULL ? r->logprobs + answer : NULL;
    if (r->params.mask.next != NULL && r->mask_answer == PGL_MASK_SOME) {
        row->mask_kind = PGL_MASK_GIVEN;
        row->mask = r->mask;
    }
    if (r->n_top == 0)
        return true;
    pgl_token_logprob *top = top_of(r, answer);
    if (top != NULL && (row->wants & PGL_WANT_TARGETS) == 0) {
        row->wants |= PGL_WANT_TOP;
        row->n_top = r->n_top;
        row->result->top = top;
    }
    return top != NULL;
}

static void want_snapshot(pgl_engine *engine, pgl_flight *flight, pgl_flight_row *info) {
    uint32_t end = info->first + info->n_tokens;
    pgl_request *r = info->request;
    info->snapshot = PGL_NO_SNAPSHOT;
    if (end != r->save_at || !reserve_ops(&flight->after, 1))
        return;
    info->snapshot = pgl_cache_take_snapshot(engine->cache, r->number, is_unasked(r, end));
    if (info->snapshot != PGL_NO_SNAPSHOT)
        put_op(&flight->after, (pgl_op){.kind = PGL_OP_SAVE, .slot = r->slot, .snapshot = info->snapshot});
}

static void plan_row(pgl_engine *engine, pgl_flight *flight, pgl_request *r, uint32_t n_tokens) {
    size_t i = flight->n_rows;
    uint32_t first = r->seq.n_given, end = first + n_tokens;
    pgl_row *row = &flight->rows[i];
    pgl_flight_row *info = &flight->info[i];
    flight->results[i] = (pgl_row_result){.n_sampled = 0};
    *row = (pgl_row){
        .slot = r->slot, .kind = PGL_ROW_COMMIT, .n_tokens = n_tokens, .result = &flight->results[i]};
    *info = (pgl_flight_row){
        .request = r, .life = r->life, .slot = r->slot, .first = first, .n_tokens = n_tokens};
    row->from_last = first >= r->n_value; /* being sampled by the step before */
    row->tokens = r->tokens + first;
    if (!r->prompt_complete && first < r->params.n_prompt)
        want_targets(flight, r, row, first);
    info->samples = end == r->seq.n_known && r->max_tokens > 0;
    if (info->samples && !want_sample(r, row)) {
        pgl_error err;
        (void)pgl_fail(&err, PGL_E_MEMORY, "no memory for %u log-probabilities of a token", r->n_top);
        pgl_engine_end(engine, r, PGL_FINISH_ERROR, -1, &err);
        return;
    }
    want_snapshot(engine, flight, info);
    flight->n_rows++;
    flight->n_tokens += n_tokens;
    r->seq.n_given = end;
    r->seq.n_known += info->samples;
    r->in_flight++;
    r->mask_here = r->mask_here && !info->samples;
    engine->slots[r->slot].in_flight++;
    pgl_engine_make_ready(engine, r);
}

/* Complete answers: their state is saved before anything else of this plan, so that whoever comes after the end was
 * announced finds it. A row of theirs may still be in flight, an inert one. */
static void plan_saves(pgl_engine *engine, pgl_flight *flight) {
    for (uint32_t s = 0; s < engine->caps.n_slots; s++) {
        pgl_request *r = engine->slots[s].request;
        if (r == NULL || r->phase != PGL_PHASE_ENDED || r->end_length == 0)
            continue;
        uint32_t snapshot = pgl_cache_take_snapshot(engine->cache, r->number, false);
        if (snapshot != PGL_NO_SNAPSHOT && !reserve_ops(&flight->before, 1)) {
            pgl_cache_drop_snapshot(engine->cache, snapshot);
        } else if (snapshot != PGL_NO_SNAPSHOT) {
            put_op(&flight->before, (pgl_op){.kind = PGL_OP_SAVE, .slot = s, .snapshot = snapshot});
            pgl_cache_keep(engine->cache, snapshot, r->tokens, r->end_length, r->pages);
        }
        r->end_length = 0;
        if (r->in_flight == 0)
            pgl_engine_give_back(engine, r);
    }
}

/* Most prompt tokens of a step that is to take `aim_ns`. */
static uint32_t chunk_for(const pgl_engine *engine, double aim_ns, uint32_t most) {
    uint32_t chunk = UNKNOWN_CHUNK;
    if (engine->token_ns > 0) {
        double tokens = aim_ns / engine->token_ns;
        chunk = tokens < (double)most ? (uint32_t)tokens : most;
    }
    chunk = chunk > LEAST_CHUNK ? chunk : LEAST_CHUNK;
    return least(chunk, most);
}

bool pgl_engine_plan(pgl_engine *engine, pgl_flight *flight) {
    const pgl_sched_machine machine = {engine,         has_slot, holds, pages_available,
                                       pages_to_admit, admit,    grow,  park};
    engine->building = flight;
    flight->before.n = flight->after.n = flight->n_rows = flight->n_tokens = flight->n_targets = 0;
    plan_saves(engine, flight);
    double gap = (double)engine->options.gap_ns;
    pgl_sched_chunk chunk = {
        .beside = chunk_for(engine, gap, engine->options.prefill_chunk),
        .alone = chunk_for(engine, ALONE_GAPS * gap, engine->caps.max_step_tokens),
    };
    size_t n = pgl_sched_plan(&engine->sched, &machine, chunk, pgl_now_ns(), engine->sched_rows);
    for (size_t i = 0; i < n; i++)
        plan_row(engine, flight, pgl_request_of(engine->sched_rows[i].seq), engine->sched_rows[i].n_tokens);
    engine->building = NULL;
    flight->plan = (pgl_step_plan){
        .before = flight->before.ops,
        .n_before = flight->before.n,
        .rows = flight->rows,
        .n_rows = flight->n_rows,
        .after = flight->after.ops,
        .n_after = flight->after.n,
    };
    return flight->before.n > 0 || flight->n_rows > 0;
}
