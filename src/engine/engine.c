/* Owns the engine thread, the requests' way in, and the figures. */
#include "engine/engine_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"

static const uint64_t second_ns = 1000000000u;
static const uint64_t long_step_ns = 20000000u;

const char *pgl_miss_name(pgl_miss miss) {
    static const char *const names[] = {
        "none", "off", "cold", "differs", "no_snapshot", "snapshot_evicted", "page_evicted", "too_short"};
    return (size_t)miss < sizeof names / sizeof names[0] ? names[miss] : "unknown";
}

const char *pgl_finish_name(pgl_finish finish) {
    static const char *const names[] = {"none", "stop", "length", "cancelled", "error"};
    return (size_t)finish < sizeof names / sizeof names[0] ? names[finish] : "unknown";
}

void pgl_engine_wake(pgl_engine *engine) {
    (void)pthread_mutex_lock(&engine->lock);
    engine->woken = true;
    (void)pthread_cond_signal(&engine->wake);
    (void)pthread_mutex_unlock(&engine->lock);
}

/* ---- the end of requests ---- */

void pgl_engine_give_back(pgl_engine *engine, pgl_request *r) {
    for (uint32_t i = 0; i < r->n_pages; i++)
        pgl_cache_drop_page(engine->cache, r->pages[i]);
    r->n_pages = 0;
    if (r->slot != PGL_NO_SLOT)
        engine->slots[r->slot].request = NULL;
    r->slot = PGL_NO_SLOT;
}

void pgl_engine_end(pgl_engine *engine, pgl_request *r, pgl_finish finish, int32_t stop_id,
                    const pgl_error *error) {
    pgl_sched_remove(&engine->sched, &r->seq);
    r->phase = PGL_PHASE_ENDED;
    r->seq.ready = false;
    bool keeps = finish == PGL_FINISH_STOP || finish == PGL_FINISH_LENGTH;
    if (!keeps || !engine->options.prefix_cache || r->slot == PGL_NO_SLOT)
        r->end_length = 0;
    engine->stats.requests_finished[finish]++;
    (void)pthread_mutex_lock(&engine->lock); /* first: who hears of the end may submit the next at once */
    engine->n_open--;
    (void)pthread_mutex_unlock(&engine->lock);
    pgl_request_publish_finish(r, finish, stop_id, error);
}

/* Ended requests that nothing refers to any more leave the engine; how many. */
static uint32_t reap(pgl_engine *engine) {
    uint32_t n_ended = 0;
    for (uint32_t i = 0; i < engine->n_live;) {
        pgl_request *r = engine->live[i];
        if (r->phase != PGL_PHASE_ENDED || r->in_flight > 0 || r->end_length > 0) {
            i++;
            continue;
        }
        pgl_engine_give_back(engine, r);
        engine->live[i] = engine->live[--engine->n_live];
        pgl_request_drop(r);
        n_ended++;
    }
    return n_ended;
}

static void cancel(pgl_engine *engine, pgl_request *r, bool stopping) {
    pgl_error err;
    if (stopping)
        (void)pgl_fail(&err, PGL_E_CANCELLED, "the engine is stopping");
    else
        (void)pgl_fail(&err, PGL_E_CANCELLED, "the request was cancelled");
    pgl_engine_end(engine, r, PGL_FINISH_CANCELLED, -1, &err);
}

static void fail_all(pgl_engine *engine, const pgl_error *error) {
    for (uint32_t i = 0; i < engine->n_live; i++) {
        pgl_request *r = engine->live[i];
        if (r->phase != PGL_PHASE_ENDED)
            pgl_engine_end(engine, r, PGL_FINISH_ERROR, -1, error);
        r->in_flight = 0;
        r->end_length = 0;
    }
}

/* ---- the engine thread ---- */

/* The backend is lost: every request ends with its error, and later ones are refused. */
static void backend_failed(pgl_engine *engine, const pgl_error *error) {
    pgl_log(PGL_LOG_ERROR, "engine", "the backend failed: %s", error->text);
    (void)pthread_mutex_lock(&engine->lock);
    engine->failure = *error;
    if (engine->failure.status != PGL_E_DEVICE)
        engine->failure.status = PGL_E_INTERNAL;
    (void)pthread_mutex_unlock(&engine->lock);
    for (; engine->n_flights > 0; engine->n_flights--) { /* until then the backend may write into requests */
        (void)pgl_backend_wait(engine->options.backend, engine->flights[engine->first_flight].ticket, NULL,
                               NULL);
        engine->first_flight = (engine->first_flight + 1) % PGL_MOST_IN_FLIGHT;
    }
    fail_all(engine, &engine->failure);
}

/* Takes in what others left under the lock. False: the thread is to end. */
static bool take_messages(pgl_engine *engine, bool may_sleep) {
    (void)pthread_mutex_lock(&engine->lock);
    while (may_sleep && !engine->woken && !engine->closing)
        (void)pthread_cond_wait(&engine->wake, &engine->lock);
    engine->woken = false;
    pgl_request *inbox = engine->inbox;
    engine->inbox = NULL;
    engine->inbox_end = &engine->inbox;
    bool all = engine->cancel_all, failed = engine->failure.status != PGL_OK;
    bool clear = engine->clear_asked, go_on = !engine->closing || engine->n_held > 0;
    engine->clear_asked = false;
    (void)pthread_mutex_unlock(&engine->lock);

    while (inbox != NULL) {
        pgl_request *r = inbox;
        inbox = r->next_inbox;
        engine->live[engine->n_live++] = r;
        (void)pgl_sched_add(&engine->sched, &r->seq, NULL); /* n_open is bounded by the same limit */
    }
    for (uint32_t i = 0; i < engine->n_live; i++) {
        pgl_request *r = engine->live[i];
        if (r->phase != PGL_PHASE_ENDED && (all || atomic_load(&r->cancelled)))
            cancel(engine, r, !atomic_load(&r->cancelled));
    }
    if (failed)
        fail_all(engine, &engine->failure);
    if (clear)
        pgl_cache_clear(engine->cache);
    return go_on;
}

/* What others see of the engine after a step, n_dropped requests fewer among it. */
static void show_figures(pgl_engine *engine, uint32_t n_dropped) {
    pgl_engine_stats *s = &engine->stats;
    pgl_cache_stats cache = pgl_cache_get_stats(engine->cache);
    s->n_running = engine->sched.n_running;
    s->n_waiting = engine->sched.n_waiting;
    s->n_parked = 0;
    for (uint32_t i = 0; i < engine->sched.n_waiting; i++)
        s->n_parked += pgl_request_of(engine->sched.waiting[i])->admitted;
    s->n_pages_free = cache.n_free;
    s->n_pages_cached = cache.n_cached;
    s->n_snapshots_used = cache.n_snapshots_used;
    s->snapshots_saved = cache.saved;
    s->snapshots_evicted = cache.evicted;
    s->cache_bytes_used =
        cache.n_cached * engine->caps.page_bytes + cache.n_snapshots_used * engine->caps.snapshot_bytes;
    s->host_cache_bytes_used = cache.host_bytes_used;
    s->n_host_pages = cache.n_host_pages;
    s->n_host_snapshots = cache.n_host_snapshots;
    s->exported_bytes = cache.exported_bytes;
    s->imported_bytes = cache.imported_bytes;
    (void)pthread_mutex_lock(&engine->lock);
    s->requests_submitted = engine->shown.requests_submitted;
    s->requests_refused = engine->shown.requests_refused;
    engine->shown = *s;
    for (uint32_t i = 0; i < engine->caps.n_slots; i++) {
        const pgl_request *r = engine->slots[i].request;
        engine->slot_info[i] = (pgl_slot_info){.used = r != NULL};
        if (r == NULL)
            continue;
        uint32_t n_prompt = r->params.n_prompt;
        engine->slot_info[i] = (pgl_slot_info){
            .used = true,
            .state = r->phase == PGL_PHASE_ENDED ? PGL_REQUEST_DONE
                     : r->n_value > n_prompt     ? PGL_REQUEST_ANSWER
                                                 : PGL_REQUEST_PROMPT,
            .request = r->number,
            .n_prompt = n_prompt,
            .n_read = r->seq.n_given < n_prompt ? r->seq.n_given : n_prompt,
            .n_cached = r->usage.n_cached,
            .n_generated = r->n_value - n_prompt,
            .cache = r->usage.cache,
        };
    }
    engine->n_held -= n_dropped;
    if (n_dropped > 0)
        (void)pthread_cond_broadcast(&engine->idle);
    (void)pthread_mutex_unlock(&engine->lock);
}

static void launch(pgl_engine *engine, pgl_flight *flight) {
    pgl_error err;
    if (pgl_backend_submit(engine->options.backend, &flight->plan, &flight->ticket, &err) == PGL_OK)
        engine->n_flights++;
    else
        backend_failed(engine, &err);
}

static double follow(double so_far, double now) {
    return so_far > 0 ? 0.75 * so_far + 0.25 * now : now;
}

static bool is_mostly_prompt(uint64_t n_tokens, size_t n_rows) {
    enum { FEWEST = 16 };
    return n_tokens >= FEWEST && n_tokens >= 2 * n_rows;
}

/* The time of a prompt token, from steps that were mostly prompt, and of a step of answers. */
static void measure(pgl_engine *engine, const pgl_flight *flight, const pgl_step_timing *timing) {
    engine->stats.steps++;
    engine->stats.step_tokens += timing->n_tokens;
    engine->stats.step_ns += timing->total_ns;
    engine->stats.step_bytes_read += timing->bytes_read;
    if (is_mostly_prompt(timing->n_tokens, flight->n_rows))
        engine->token_ns = follow(engine->token_ns, (double)timing->total_ns / (double)timing->n_tokens);
    else if (timing->n_tokens > 0 && timing->n_tokens == flight->n_rows)
        engine->answer_ns = follow(engine->answer_ns, (double)timing->total_ns);
}

static void land(pgl_engine *engine) {
    pgl_flight *flight = &engine->flights[engine->first_flight];
    pgl_step_timing timing = {.n_tokens = 0};
    pgl_error err;
    pgl_status status = pgl_backend_wait(engine->options.backend, flight->ticket, &timing, &err);
    engine->first_flight = (engine->first_flight + 1) % PGL_MOST_IN_FLIGHT;
    engine->n_flights--;
    if (status != PGL_OK) {
        backend_failed(engine, &err);
        return;
    }
    measure(engine, flight, &timing);
    engine->landed_ns = pgl_now_ns();
    pgl_engine_take_results(engine, flight, &timing);
}

/* Of a step that is in flight, from its beginning; UINT64_MAX: a prompt's, and none has been measured. */
static uint64_t expected_ns(const pgl_engine *engine, const pgl_flight *flight) {
    double prompt = (double)flight->n_tokens * engine->token_ns;
    if (!is_mostly_prompt(flight->n_tokens, flight->n_rows))
        return (uint64_t)engine->answer_ns;
    return prompt > 0 ? (uint64_t)prompt : UINT64_MAX;
}

/* An answer whose mask will be there for the next step, if that is planned behind this one. */
static bool brings_quick_mask(const pgl_engine *engine, const pgl_flight *flight) {
    for (size_t i = 0; i < flight->n_rows; i++)
        if (flight->info[i].samples && flight->info[i].request->phase == PGL_PHASE_RUNNING &&
            pgl_mask_is_quick(engine, flight->info[i].request))
            return true;
    return false;
}

/* A plan is made while a step runs, so that the next begins at once, but only beside a short one: what is cancelled or
 * comes meanwhile would have to wait for two, and beside a long one planning costs nothing. Nor beside an answer whose
 * mask takes no time: it would have a token in every other step. */
static bool may_plan(const pgl_engine *engine) {
    uint32_t most =
        engine->caps.max_in_flight < PGL_MOST_IN_FLIGHT ? engine->caps.max_in_flight : PGL_MOST_IN_FLIGHT;
    if (engine->n_flights == 0 || engine->n_flights == most)
        return engine->n_flights == 0;
    const pgl_flight *flight = &engine->flights[engine->first_flight];
    return expected_ns(engine, flight) < long_step_ns && !brings_quick_mask(engine, flight);
}

static void *engine_main(void *user) {
    pgl_engine *engine = user;
    (void)pthread_setname_np(pthread_self(), "pgl-engine");
    bool idle = false;
    for (;;) {
        bool may = may_plan(engine);
        if (may)
            pgl_mask_wait(engine);
        if (!take_messages(engine, idle))
            break;
        pgl_mask_take(engine);
        uint32_t n_dropped = reap(engine); /* before the plan: their slots are free for it */
        bool planned = false;
        if (may) {
            pgl_flight *flight =
                &engine->flights[(engine->first_flight + engine->n_flights) % PGL_MOST_IN_FLIGHT];
            planned = pgl_engine_plan(engine, flight);
            if (planned)
                launch(engine, flight);
        }
        bool landed = engine->n_flights > 0 && (!planned || !may_plan(engine));
        if (landed)
            land(engine);
        n_dropped += reap(engine);
        show_figures(engine, n_dropped);
        idle = !planned && !landed && n_dropped == 0; /* else there may be something new to plan */
    }
    while (engine->n_flights > 0) /* the last saves */
        land(engine);
    return NULL;
}

/* ---- requests ---- */

static pgl_status check_ids(const char *what, const int32_t *ids, uint32_t n, uint32_t below,
                            pgl_error *err) {
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= below)
            return pgl_fail(err, PGL_E_INVALID, "%s: token id must be 0 .. %u, found %d at place %u", what,
                            below - 1, (int)ids[i], i);
    return PGL_OK;
}

static pgl_status check_lengths(const pgl_engine *engine, const pgl_request_params *p, pgl_error *err) {
    uint32_t context = engine->caps.max_context;
    if (p->n_prompt == 0)
        return pgl_fail(err, PGL_E_INVALID, "prompt: expected at least one token, found none");
    if (p->max_tokens == 0 && !p->prompt_logprobs)
        return pgl_fail(err, PGL_E_INVALID, "max_tokens: expected at least 1, found 0");
    if (p->n_prompt > context || (p->n_prompt == context && p->max_tokens > 0))
        return pgl_fail(
            err, PGL_E_CONTEXT,
            "the prompt has %u tokens, and the context holds %u tokens of prompt and answer together",
            p->n_prompt, context);
    if (p->n_top > PGL_MAX_TOP || p->n_prompt_top > PGL_MAX_TOP || p->n_top > engine->caps.n_vocab ||
        p->n_prompt_top > engine->caps.n_vocab)
        return pgl_fail(err, PGL_E_INVALID, "top log-probabilities: expected at most %u, found %u",
                        PGL_MAX_TOP < engine->caps.n_vocab ? PGL_MAX_TOP : engine->caps.n_vocab,
                        p->n_top > p->n_prompt_top ? p->n_top : p->n_prompt_top);
    if (p->n_stop_ids > PGL_MAX_STOP_IDS)
        return pgl_fail(err, PGL_E_INVALID, "stop ids: expected at most %u, found %u", PGL_MAX_STOP_IDS,
                        p->n_stop_ids);
    for (uint32_t i = 0; i < p->n_snapshot_at; i++)
        if (p->snapshot_at[i] == 0 || p->snapshot_at[i] >= p->n_prompt ||
            (i > 0 && p->snapshot_at[i] <= p->snapshot_at[i - 1]))
            return pgl_fail(err, PGL_E_INVALID,
                            "snapshot_at: expected rising places inside the prompt of %u, found %u",
                            p->n_prompt, p->snapshot_at[i]);
    return PGL_OK;
}

static pgl_status check(const pgl_engine *engine, const pgl_request_params *p, pgl_error *err) {
    pgl_status status = check_lengths(engine, p, err);
    if (status == PGL_OK)
        status = check_ids("prompt", p->prompt, p->n_prompt, engine->caps.n_vocab, err);
    if (status == PGL_OK)
        status = check_ids("stop_ids", p->stop_ids, p->n_stop_ids, engine->caps.vocab_size, err);
    if (status == PGL_OK)
        status = check_ids("forced", p->forced, p->n_forced, engine->caps.n_vocab, err);
    if (status == PGL_OK && p->n_forced > 0 && engine->options.forced == NULL)
        status = pgl_fail(err, PGL_E_INVALID, "forced: this backend computes its tokens");
    return status == PGL_OK ? pgl_sample_check(&p->sampling, engine->caps.n_vocab, err) : status;
}

/* With the lock held. */
static pgl_status may_enter(const pgl_engine *engine, pgl_error *err) {
    if (engine->failure.status != PGL_OK)
        return pgl_fail(err, engine->failure.status, "%s", engine->failure.text);
    if (engine->draining)
        return pgl_fail(err, PGL_E_BUSY, "the engine is stopping and takes no new requests");
    uint32_t most = engine->caps.n_slots + engine->options.max_queue;
    if (engine->n_open >= most)
        return pgl_fail(err, PGL_E_BUSY, "%u requests are running and %u may wait: the queue is full",
                        engine->caps.n_slots, engine->options.max_queue);
    return PGL_OK;
}

pgl_status pgl_engine_submit(pgl_engine *engine, const pgl_request_params *params, pgl_request **out,
                             pgl_error *err) {
    *out = NULL;
    pgl_status status = check(engine, params, err);
    if (status != PGL_OK)
        return status;
    /* Refused early, before memory is touched; looked at again when the request enters. */
    (void)pthread_mutex_lock(&engine->lock);
    status = may_enter(engine, err);
    engine->shown.requests_refused += status != PGL_OK;
    (void)pthread_mutex_unlock(&engine->lock);
    pgl_request *r = NULL;
    if (status == PGL_OK)
        status =
            pgl_request_new(params, &engine->caps, engine->account, engine->options.request_bytes, &r, err);
    if (status != PGL_OK)
        return status;
    r->engine = engine;
    r->submitted_ns = pgl_now_ns();
    (void)pthread_mutex_lock(&engine->lock);
    status = may_enter(engine, err);
    engine->shown.requests_refused += status != PGL_OK;
    if (status == PGL_OK) {
        engine->n_open++;
        engine->n_held++;
        engine->shown.requests_submitted++;
        r->number = ++engine->next_number;
        r->seq = (pgl_sched_seq){
            .priority = params->priority,
            .arrival = r->number,
            .since_ns = r->submitted_ns,
            .n_known = params->n_prompt,
            .n_final = params->n_prompt + r->max_tokens,
            .row_end = UINT32_MAX,
        };
        *engine->inbox_end = r;
        engine->inbox_end = &r->next_inbox;
        engine->woken = true;
        (void)pthread_cond_signal(&engine->wake);
    }
    (void)pthread_mutex_unlock(&engine->lock);
    if (status != PGL_OK) {
        r->params.mask.close = NULL; /* it stays the caller's */
        pgl_request_drop(r);
        pgl_request_drop(r);
        return status;
    }
    *out = r;
    return PGL_OK;
}

/* ---- figures ---- */

pgl_engine_stats pgl_engine_get_stats(pgl_engine *engine) {
    (void)pthread_mutex_lock(&engine->lock);
    pgl_engine_stats stats = engine->shown;
    stats.n_open = engine->n_open;
    (void)pthread_mutex_unlock(&engine->lock);
    stats.n_slots = engine->caps.n_slots;
    stats.max_open = engine->caps.n_slots + engine->options.max_queue;
    stats.n_pages = engine->caps.n_pages;
    stats.n_snapshots = engine->caps.n_snapshots;
    stats.cache_bytes =
        stats.n_pages * engine->caps.page_bytes + stats.n_snapshots * engine->caps.snapshot_bytes;
    stats.host_cache_bytes = engine->host_bytes;
    stats.request_bytes = atomic_load(&engine->account->bytes);
    return stats;
}

uint32_t pgl_engine_get_slots(pgl_engine *engine, pgl_slot_info *slots, uint32_t n) {
    uint32_t n_slots = engine->caps.n_slots;
    (void)pthread_mutex_lock(&engine->lock);
    memcpy(slots, engine->slot_info, (n < n_slots ? n : n_slots) * sizeof *slots);
    (void)pthread_mutex_unlock(&engine->lock);
    return n_slots;
}

void pgl_engine_clear_cache(pgl_engine *engine) {
    (void)pthread_mutex_lock(&engine->lock);
    engine->clear_asked = true;
    engine->woken = true;
    (void)pthread_cond_signal(&engine->wake);
    (void)pthread_mutex_unlock(&engine->lock);
}

/* ---- open, drain, close ---- */

static void set_defaults(pgl_engine_options *o) {
    o->request_bytes = o->request_bytes > 0 ? o->request_bytes : (uint64_t)256 << 20;
    o->prefill_chunk = o->prefill_chunk > 0 ? o->prefill_chunk : 512;
    o->gap_ns = o->gap_ns > 0 ? o->gap_ns : second_ns / 2;
    o->reserve_tokens = o->reserve_tokens > 0 ? o->reserve_tokens : 256;
    o->age_ns = o->age_ns > 0 ? o->age_ns : 30 * second_ns;
    o->snapshot_every = o->snapshot_every > 0 ? o->snapshot_every : 2048;
}

static pgl_status open_parts(pgl_engine *engine, pgl_error *err) {
    const pgl_backend_caps *caps = &engine->caps;
    uint32_t max_live = caps->n_slots + engine->options.max_queue;
    pgl_cache_options cache = {.n_pages = caps->n_pages,
                               .page_tokens = caps->page_tokens,
                               .n_snapshots = caps->n_snapshots,
                               .keep = engine->options.prefix_cache,
                               .host_bytes = engine->options.host_cache_bytes,
                               .page_bytes = caps->page_bytes,
                               .snapshot_bytes = caps->snapshot_bytes,
                               .move = pgl_engine_plan_move,
                               .user = engine};
    pgl_sched_limits limits = {.max_live = max_live,
                               .max_rows = caps->max_rows,
                               .max_step_tokens = caps->max_step_tokens,
                               .page_tokens = caps->page_tokens,
                               .reserve_tokens = engine->options.reserve_tokens,
                               .age_ns = engine->options.age_ns};
    engine->account = pgl_new(1, sizeof *engine->account);
    engine->sched_rows = pgl_new(caps->max_rows, sizeof *engine->sched_rows);
    engine->slots = pgl_new(caps->n_slots, sizeof *engine->slots);
    engine->slot_info = pgl_new(caps->n_slots, sizeof *engine->slot_info);
    /* Beside max_live that are open there may be, for each slot and each step in flight, one that has ended. */
    engine->live = pgl_new(4 * (size_t)max_live, sizeof(pgl_request *));
    if (engine->account == NULL || engine->sched_rows == NULL || engine->slots == NULL ||
        engine->slot_info == NULL || engine->live == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the tables of an engine with %u slots",
                        caps->n_slots);
    atomic_init(&engine->account->holders, 1);
    pgl_status status = pgl_cache_open(&cache, &engine->cache, err);
    if (status == PGL_OK)
        engine->host_bytes = pgl_cache_get_stats(engine->cache).host_bytes;
    if (status == PGL_OK && engine->options.prefix_cache && cache.host_bytes > 0 && engine->host_bytes == 0)
        pgl_log(PGL_LOG_WARN, "engine",
                "%" PRIu64
                " bytes of host memory for the cache are too few and not used: a snapshot takes %" PRIu64
                ", a page %" PRIu64,
                cache.host_bytes, cache.snapshot_bytes, cache.page_bytes);
    if (status == PGL_OK)
        status = pgl_sched_init(&engine->sched, &limits, err);
    for (size_t i = 0; status == PGL_OK && i < PGL_MOST_IN_FLIGHT; i++)
        status = pgl_flight_init(&engine->flights[i], caps, err);
    return status;
}

static void free_parts(pgl_engine *engine) {
    for (size_t i = 0; i < PGL_MOST_IN_FLIGHT; i++)
        pgl_flight_fini(&engine->flights[i]);
    pgl_sched_fini(&engine->sched);
    pgl_cache_close(engine->cache);
    pgl_account_drop(engine->account);
    free(engine->sched_rows);
    free(engine->slots);
    free(engine->slot_info);
    free((void *)engine->live);
    free(engine);
}

/* With signals left to the threads that ask for them. */
static bool start_thread(pthread_t *thread, void *(*run)(void *), void *user) {
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(thread, NULL, run, user);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error == 0;
}

/* Planning waits for quick masks, so they are made beside each other; on small machines, too, a slow one holds no thread
 * that they need. */
static uint32_t mask_threads(void) {
    uint32_t n = pgl_cpu_count() / 2;
    return n < 2 ? 2 : n > PGL_MOST_MASK_THREADS ? PGL_MOST_MASK_THREADS : n;
}

static pgl_status start_threads(pgl_engine *engine, pgl_error *err) {
    pthread_condattr_t attributes; /* default ones and the clock: nothing here fails on Linux */
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&engine->idle, &attributes);
    (void)pthread_cond_init(&engine->mask_done, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_cond_init(&engine->wake, NULL);
    (void)pthread_cond_init(&engine->mask_work, NULL);
    (void)pthread_mutex_init(&engine->lock, NULL);
    (void)pthread_mutex_init(&engine->mask_lock, NULL);
    uint32_t n = mask_threads(), *started = &engine->n_mask_threads;
    engine->most_slow_masks = n - 1;
    while (*started < n && start_thread(&engine->mask_threads[*started], pgl_mask_main, engine))
        ++*started;
    if (*started == n && start_thread(&engine->thread, engine_main, engine))
        return PGL_OK;
    pgl_mask_stop(engine);
    return pgl_fail(err, PGL_E_MEMORY, "the engine's threads cannot be started");
}

pgl_status pgl_engine_open(const pgl_engine_options *options, pgl_engine **out, pgl_error *err) {
    *out = NULL;
    pgl_engine *engine = pgl_new(1, sizeof *engine);
    if (engine == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for an engine");
    engine->options = *options;
    set_defaults(&engine->options);
    engine->caps = *pgl_backend_get_caps(options->backend);
    pgl_backend_caps *caps = &engine->caps;
    uint64_t held = (uint64_t)caps->n_pages * caps->page_tokens;
    if (caps->max_context > held)
        caps->max_context = (uint32_t)held;
    engine->options.prefix_cache = options->prefix_cache && caps->n_snapshots > 0;
    engine->inbox_end = &engine->inbox;
    pgl_mask_init(engine);
    pgl_status status = open_parts(engine, err);
    if (status == PGL_OK)
        status = start_threads(engine, err);
    if (status != PGL_OK) {
        free_parts(engine);
        return status;
    }
    *out = engine;
    return PGL_OK;
}

bool pgl_engine_drain(pgl_engine *engine, uint64_t wait_ns) {
    uint64_t now = pgl_now_ns();
    uint64_t until = wait_ns < UINT64_MAX / 2 ? now + wait_ns : UINT64_MAX / 2;
    struct timespec at = {.tv_sec = (time_t)(until / second_ns), .tv_nsec = (long)(until % second_ns)};
    (void)pthread_mutex_lock(&engine->lock);
    engine->draining = true;
    int status = 0;
    while (engine->n_held > 0 && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&engine->idle, &engine->lock, &at);
    bool finished = engine->n_held == 0;
    engine->cancel_all = true;
    engine->woken = true;
    (void)pthread_cond_signal(&engine->wake);
    while (engine->n_held > 0)
        (void)pthread_cond_wait(&engine->idle, &engine->lock);
    (void)pthread_mutex_unlock(&engine->lock);
    return finished;
}

void pgl_engine_close(pgl_engine *engine) {
    if (engine == NULL)
        return;
    (void)pgl_engine_drain(engine, 0);
    (void)pthread_mutex_lock(&engine->lock);
    engine->closing = true;
    (void)pthread_cond_signal(&engine->wake);
    (void)pthread_mutex_unlock(&engine->lock);
    (void)pthread_join(engine->thread, NULL);
    pgl_mask_stop(engine);
    (void)pthread_cond_destroy(&engine->idle);
    (void)pthread_cond_destroy(&engine->wake);
    (void)pthread_cond_destroy(&engine->mask_work);
    (void)pthread_cond_destroy(&engine->mask_done);
    (void)pthread_mutex_destroy(&engine->lock);
    (void)pthread_mutex_destroy(&engine->mask_lock);
    free_parts(engine);
}
