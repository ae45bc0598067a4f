/* The prefix cache against a plain model of it: a list of every kept prefix. The contents of pages and snapshots are
 * simulated by recording, for each position of a page and for each snapshot, the tokens that led there; whatever the
 * cache hands out must hold what the prompt says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/cache.h"

enum { PAGE = 4, N_PAGES = 40, N_SNAPSHOTS = 9, LONGEST = 64, N_SEQS = 5 };

typedef struct world {
    pgl_cache *cache;
    uint64_t page[N_PAGES][PAGE]; /* hash of all tokens up to this position */
    uint64_t snapshot[N_SNAPSHOTS];
    uint32_t snapshot_length[N_SNAPSHOTS];
    uint32_t fail_moves; /* one of so many; 0: none */
    uint64_t n_moves;
} world;

typedef struct saved {
    uint64_t state;
    uint32_t length;
} saved;

typedef struct running {
    bool live;
    uint64_t owner;
    int32_t tokens[LONGEST];
    uint64_t state; /* hash of the first n tokens */
    uint32_t n, n_cached;
    uint32_t pages[LONGEST / PAGE];
    uint32_t n_pages;
    pgl_cache_hit hit;
} running;

static uint64_t random_state = 88172645463325252u;

static uint32_t random_below(uint32_t n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 20) % n;
}

static uint64_t mix(uint64_t hash, int32_t token) {
    return (hash + (uint64_t)token + 1) * 6364136223846793005u ^ hash >> 29;
}

static uint64_t hash_of(const int32_t *tokens, uint32_t n) {
    uint64_t hash = 7;
    for (uint32_t i = 0; i < n; i++)
        hash = mix(hash, tokens[i]);
    return hash;
}

/* Carried out at once: the order of the calls is the order of the operations. */
static bool move(void *user, const pgl_op *op) {
    world *w = user;
    if (w->fail_moves > 0 && random_below(w->fail_moves) == 0)
        return false;
    saved *kept = op->host;
    switch (op->kind) {
    case PGL_OP_COPY_PAGE:
        memcpy(w->page[op->page2], w->page[op->page], sizeof w->page[0]);
        break;
    case PGL_OP_EXPORT_PAGE:
        memcpy(op->host, w->page[op->page], sizeof w->page[0]);
        break;
    case PGL_OP_IMPORT_PAGE:
        memcpy(w->page[op->page], op->host, sizeof w->page[0]);
        break;
    case PGL_OP_EXPORT_SNAPSHOT:
        *kept = (saved){w->snapshot[op->snapshot], w->snapshot_length[op->snapshot]};
        break;
    case PGL_OP_IMPORT_SNAPSHOT:
        assert_int_equal(kept->length, op->n);
        w->snapshot[op->snapshot] = kept->state;
        w->snapshot_length[op->snapshot] = op->n;
        break;
    default:
        fail_msg("operation %d", (int)op->kind);
    }
    w->n_moves++;
    return true;
}

enum {
    PAGE_BYTES = PAGE * 8,
    SNAPSHOT_BYTES = 180,
    SLAB_BYTES = 192
}; /* a page of 32 is 64 there: three in a slab */

static void open_world(world *w, bool keep, uint32_t n_snapshots, uint64_t host_bytes) {
    memset(w, 0, sizeof *w);
    pgl_cache_options options = {.n_pages = N_PAGES,
                                 .page_tokens = PAGE,
                                 .n_snapshots = n_snapshots,
                                 .keep = keep,
                                 .host_bytes = host_bytes,
                                 .page_bytes = PAGE_BYTES,
                                 .snapshot_bytes = SNAPSHOT_BYTES,
                                 .move = move,
                                 .user = w};
    assert_int_equal(pgl_cache_open(&options, &w->cache, NULL), PGL_OK);
}

static void stop(world *w, running *r) {
    for (uint32_t i = 0; i < r->n_pages; i++)
        pgl_cache_drop_page(w->cache, r->pages[i]);
    r->live = false;
}

/* Starts a sequence on prompt [n], as the engine does: hit, shared pages, copied tail. */
static void start(world *w, running *r, uint64_t owner, const int32_t *prompt, uint32_t n) {
    *r = (running){.live = true, .owner = owner, .state = 7};
    r->hit = pgl_cache_find(w->cache, prompt, n, n - 1);
    assert_true(r->hit.n_tokens < n);
    if (r->hit.n_tokens == 0)
        return;
    uint32_t snapshot;
    if (!pgl_cache_use(w->cache, &r->hit, r->pages, &snapshot)) {
        r->live = false;
        return;
    }
    r->n_pages = r->hit.n_pages;
    assert_int_equal(r->n_pages, (r->hit.n_tokens + PAGE - 1) / PAGE);
    r->n = r->n_cached = r->hit.n_tokens;
    memcpy(r->tokens, prompt, r->n * sizeof *prompt);
    for (uint32_t i = 0; i < r->n; i++)
        assert_true(w->page[r->pages[i / PAGE]][i % PAGE] == hash_of(prompt, i + 1));
    assert_int_equal(w->snapshot_length[snapshot], r->n);
    r->state = w->snapshot[snapshot];
    assert_true(r->state == hash_of(prompt, r->n));
}

/* False when there is no page. */
static bool feed(world *w, running *r, int32_t token) {
    if (r->n == r->n_pages * PAGE) {
        uint32_t page = pgl_cache_take_page(w->cache);
        if (page == PGL_NO_PAGE)
            return false;
        r->pages[r->n_pages++] = page;
    }
    r->tokens[r->n] = token;
    r->state = mix(r->state, token);
    w->page[r->pages[r->n / PAGE]][r->n % PAGE] = r->state;
    r->n++;
    return true;
}

static void save(world *w, running *r, bool unasked) {
    uint32_t snapshot = pgl_cache_take_snapshot(w->cache, r->owner, unasked);
    assert_int_not_equal(snapshot, PGL_NO_SNAPSHOT);
    w->snapshot[snapshot] = r->state;
    w->snapshot_length[snapshot] = r->n;
    pgl_cache_keep(w->cache, snapshot, r->tokens, r->n, r->pages);
}

/* Runs a whole prompt and takes a snapshot at its end. */
static pgl_cache_hit serve(world *w, uint64_t owner, const int32_t *prompt, uint32_t n) {
    running r;
    start(w, &r, owner, prompt, n);
    while (r.n < n)
        assert_true(feed(w, &r, prompt[r.n]));
    save(w, &r, false);
    stop(w, &r);
    assert_true(pgl_cache_consistent(w->cache));
    return r.hit;
}

typedef struct tally {
    uint64_t hits, cached, full, from_host;
} tally;

static void run_random(world *w, uint32_t n_steps, tally *sum) {
    running seqs[N_SEQS] = {0};
    uint64_t owner = 0;
    for (uint32_t i = 0; i < n_steps; i++) {
        running *r = &seqs[random_below(N_SEQS)];
        if (!r->live) {
            int32_t prompt[LONGEST];
            uint32_t n = 1 + random_below(LONGEST - 1);
            for (uint32_t t = 0; t < n; t++) /* few ids, one of them likely: prompts share much */
                prompt[t] = random_below(6) == 0 ? (int32_t)random_below(3) : 0;
            start(w, r, ++owner, prompt, n);
            sum->hits += r->n > 0;
            sum->cached += r->n;
            sum->from_host += r->n > 0 && r->hit.decision.from_host;
        } else if (r->n >= LONGEST || random_below(40) == 0) {
            if (random_below(3) == 0 && r->n > 0)
                save(w, r, false);
            stop(w, r);
            if (random_below(50) == 0)
                pgl_cache_purge(w->cache, r->owner);
        } else if (random_below(12) == 0 && r->n > 0) {
            save(w, r, random_below(2) == 0);
        } else if (!feed(w, r, random_below(6) == 0 ? (int32_t)random_below(3) : 0)) {
            sum->full++;
            stop(w, r);
        }
        pgl_cache_stats stats = pgl_cache_get_stats(w->cache);
        assert_true(stats.host_bytes_used <= stats.host_bytes);
        if (i % 16 == 0)
            assert_true(pgl_cache_consistent(w->cache));
    }
    for (size_t s = 0; s < N_SEQS; s++)
        if (seqs[s].live)
            stop(w, &seqs[s]);
    assert_int_equal(pgl_cache_available(w->cache), N_PAGES);
    pgl_cache_clear(w->cache);
    pgl_cache_stats stats = pgl_cache_get_stats(w->cache);
    assert_int_equal(stats.n_free, N_PAGES);
    assert_int_equal(stats.n_snapshots_used, 0);
    assert_int_equal(stats.host_bytes_used, 0);
    assert_true(pgl_cache_consistent(w->cache));
}

static void whatever_is_handed_out_holds_what_the_prompt_says(void **state) {
    (void)state;
    world w;
    open_world(&w, true, N_SNAPSHOTS, 0);
    tally sum = {0};
    run_random(&w, 200000, &sum);
    assert_true(sum.hits > 1000 && sum.cached > 5000 && sum.full > 20 && sum.from_host == 0);
    pgl_cache_close(w.cache);
}

/* With a budget of one slab, of a few, and of more than there is to keep; and with operations that cannot be planned. */
static void host_memory_gives_back_what_it_was_given_within_its_budget(void **state) {
    (void)state;
    static const uint32_t slabs[] = {1, 2, 7, 40, 400};
    for (size_t i = 0; i < 2 * sizeof slabs / sizeof *slabs; i++) {
        world w;
        uint64_t bytes = (uint64_t)slabs[i / 2] * SLAB_BYTES + SLAB_BYTES / 2;
        open_world(&w, true, i % 4 == 1 ? 1 : 4, bytes);
        w.fail_moves = i % 2 == 1 ? 5 : 0;
        assert_int_equal(pgl_cache_get_stats(w.cache).host_bytes, slabs[i / 2] * SLAB_BYTES);
        tally sum = {0};
        run_random(&w, 40000, &sum);
        assert_true(sum.hits > 50 && w.n_moves > 100);
        assert_true(sum.from_host > (slabs[i / 2] > 2 ? 50 : 0));
        pgl_cache_close(w.cache);
    }
}

static void a_repeated_prompt_is_taken_up_to_its_last_kept_place(void **state) {
    (void)state;
    world w;
    open_world(&w, true, N_SNAPSHOTS, 0);
    const int32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    assert_int_equal(serve(&w, 1, prompt, 6).decision.miss, PGL_MISS_COLD);
    pgl_cache_hit hit = serve(&w, 2, prompt, 10); /* goes on where the first ended, in the middle of a page */
    assert_int_equal(hit.n_tokens, 6);
    assert_int_equal(hit.decision.miss, PGL_MISS_NONE);
    hit = pgl_cache_find(w.cache, prompt, 10, 9); /* the snapshot at 10 is one too far */
    assert_int_equal(hit.n_tokens, 6);
    assert_int_equal(hit.decision.miss, PGL_MISS_NO_SNAPSHOT);
    assert_int_equal(hit.decision.miss_at, 10);
    pgl_cache_close(w.cache);
}

static void the_first_differing_token_is_named(void **state) {
    (void)state;
    world w;
    open_world(&w, true, N_SNAPSHOTS, 0);
    const int32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    (void)serve(&w, 1, prompt, 10);
    int32_t other[10];
    for (uint32_t at = 0; at < 9; at++) {
        memcpy(other, prompt, sizeof other);
        other[at] = 77;
        pgl_cache_hit hit = pgl_cache_find(w.cache, other, 10, 9);
        assert_int_equal(hit.n_tokens, 0);
        assert_int_equal(hit.decision.miss, at == 0 ? PGL_MISS_COLD : PGL_MISS_DIFFERS);
        assert_int_equal(hit.decision.miss_at, at);
        assert_int_equal(hit.decision.n_matched, at);
        assert_int_equal(hit.decision.cached_id, at == 0 ? -1 : prompt[at]);
        assert_int_equal(hit.decision.prompt_id, at == 0 ? -1 : 77);
    }
    pgl_cache_close(w.cache);
}

/* Two conversations are kept: the one that goes along further is the one that is named, also where it parts from the
 * prompt in a page behind its last snapshot. */
static void of_several_the_nearest_sequence_is_compared(void **state) {
    (void)state;
    world w;
    open_world(&w, true, N_SNAPSHOTS, 0);
    int32_t far[20], near[20], prompt[20];
    for (int32_t i = 0; i < 20; i++)
        far[i] = near[i] = prompt[i] = i;
    far[6] = 60;
    near[13] = 61;
    prompt[13] = 62;
    (void)serve(&w, 1, near, 9);
    (void)serve(&w, 2, near, 20);
    (void)serve(&w, 3, far, 20);
    pgl_cache_hit hit = pgl_cache_find(w.cache, prompt, 20, 19);
    assert_int_equal(hit.n_tokens, 9);
    assert_int_equal(hit.decision.n_cached, 9);
    assert_int_equal(hit.decision.n_matched, 13);
    assert_int_equal(hit.decision.miss, PGL_MISS_DIFFERS);
    assert_int_equal(hit.decision.miss_at, 13);
    assert_int_equal(hit.decision.cached_id, 61);
    assert_int_equal(hit.decision.prompt_id, 62);
    hit = pgl_cache_find(w.cache, near, 14, 13); /* known to its end, but saved earlier only */
    assert_int_equal(hit.n_tokens, 9);
    assert_int_equal(hit.decision.n_matched, 14);
    assert_int_equal(hit.decision.miss, PGL_MISS_NO_SNAPSHOT);
    assert_int_equal(hit.decision.cached_id, -1);
    assert_int_equal(pgl_cache_find(w.cache, near, 1, 0).decision.miss, PGL_MISS_TOO_SHORT);
    pgl_cache_close(w.cache);
}

static void a_miss_by_eviction_says_which_kind(void **state) {
    (void)state;
    world w;
    open_world(&w, true, 2, 0);
    int32_t a[8] = {1, 1, 1, 1, 1}, b[8] = {2, 2, 2, 2, 2}, c[8] = {3, 3, 3, 3, 3};
    (void)serve(&w, 1, a, 5);
    (void)serve(&w, 2, b, 5);
    (void)serve(&w, 3, c, 5); /* two snapshots: a's gave way */
    pgl_cache_hit hit = pgl_cache_find(w.cache, a, 8, 7);
    assert_int_equal(hit.decision.miss, PGL_MISS_SNAPSHOT_EVICTED);
    assert_int_equal(hit.decision.miss_at, 5);
    running r;
    int32_t big[LONGEST] = {4};
    start(&w, &r, 4, big, 2);
    while (pgl_cache_get_stats(w.cache).n_cached > 0) /* take pages until nothing cached is left */
        r.pages[r.n_pages++ % (LONGEST / PAGE)] = pgl_cache_take_page(w.cache);
    hit = pgl_cache_find(w.cache, c, 8, 7);
    assert_int_equal(hit.decision.miss, PGL_MISS_PAGE_EVICTED);
    pgl_cache_close(w.cache);
}

static void the_least_recently_used_gives_way(void **state) {
    (void)state;
    world w;
    open_world(&w, true, 3, 0);
    int32_t p[4][6] = {{1, 1, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 2}, {3, 3, 3, 3, 3, 3}, {4, 4, 4, 4, 4, 4}};
    for (uint64_t i = 0; i < 3; i++)
        (void)serve(&w, i, p[i], 5);
    running r; /* a use of the first makes the second the oldest */
    start(&w, &r, 9, p[0], 6);
    stop(&w, &r);
    (void)serve(&w, 4, p[3], 5);
    assert_int_equal(pgl_cache_find(w.cache, p[0], 6, 5).n_tokens, 5);
    assert_int_equal(pgl_cache_find(w.cache, p[1], 6, 5).n_tokens, 0);
    assert_int_equal(pgl_cache_find(w.cache, p[2], 6, 5).n_tokens, 5);
    assert_int_equal(pgl_cache_find(w.cache, p[3], 6, 5).n_tokens, 5);
    pgl_cache_close(w.cache);
}

/* Small steps of one conversation, far more than there are snapshots: wherever a later prompt parts from it, the place
 * where it can be taken up is not much further back than the end is ahead. */
static void a_long_conversation_thins_out_from_its_end(void **state) {
    (void)state;
    world w;
    open_world(&w, true, 6, 0);
    int32_t text[LONGEST], other[LONGEST];
    for (int32_t i = 0; i < LONGEST; i++)
        text[i] = i;
    for (uint32_t n = 1; n <= 62; n++)
        (void)serve(&w, n, text, n);
    for (uint32_t at = 2; at < 62; at++) {
        memcpy(other, text, sizeof other);
        other[at] = 99;
        uint32_t found = pgl_cache_find(w.cache, other, 63, 62).n_tokens;
        assert_true(at - found <= 2 * (62 - at) + 1);
    }
    assert_int_equal(pgl_cache_find(w.cache, text, 63, 62).n_tokens, 62);
    pgl_cache_close(w.cache);
}

/* Of two beginnings the one that several conversations went on from outlives the one that none did. */
static void what_is_often_used_stays_longer(void **state) {
    (void)state;
    world w;
    open_world(&w, true, 6, 0);
    int32_t often[LONGEST] = {1}, once[LONGEST] = {2}, other[LONGEST] = {3};
    (void)serve(&w, 1, often, 20);
    for (int32_t i = 0; i < 3; i++) {
        running r;
        often[20] = i;
        start(&w, &r, 2, often, 24);
        assert_int_equal(r.n, 20);
        stop(&w, &r);
    }
    (void)serve(&w, 5, once, 20);
    bool gone = false;
    for (uint32_t n = 0; n < 60 && !gone; n++) {
        other[1] = (int32_t)n; /* one-off prompts of the same length */
        (void)serve(&w, 10 + n, other, 20);
        gone = pgl_cache_find(w.cache, once, 24, 23).n_tokens == 0;
    }
    assert_true(gone);
    assert_int_equal(pgl_cache_find(w.cache, often, 24, 23).n_tokens, 20);
    for (uint32_t n = 60; n < 200; n++) { /* but not for ever */
        other[1] = (int32_t)n;
        (void)serve(&w, 10 + n, other, 20);
    }
    assert_int_equal(pgl_cache_find(w.cache, often, 24, 23).n_tokens, 0);
    pgl_cache_close(w.cache);
}

/* ---- host memory ---- */

static void what_gave_way_comes_back(void **state) {
    (void)state;
    world w;
    open_world(&w, true, 1, 64 * SLAB_BYTES);
    int32_t p[10][30];
    for (int32_t i = 0; i < 10; i++)
        for (int32_t t = 0; t < 30; t++)
            p[i][t] = t < 5 ? t : 100 * i + t; /* a beginning that all share */
    for (uint64_t i = 0; i < 10; i++)
        (void)serve(&w, i, p[i], 26); /* 70 pages in all, and there are 40 */
    pgl_cache_stats stats = pgl_cache_get_stats(w.cache);
    assert_int_equal(stats.n_host_snapshots, 9);
    assert_true(stats.n_host_pages > 10 && stats.evicted == 0);
    for (uint64_t i = 0; i < 10; i++) {
        running r;
        start(&w, &r, 20 + i, p[i], 30); /* which looks at every position */
        assert_int_equal(r.n, 26);
        assert_true(r.hit.decision.from_host == (i != 9 || r.hit.n_resident < 6));
        stop(&w, &r);
        assert_true(pgl_cache_consistent(w.cache));
    }
    stats = pgl_cache_get_stats(w.cache);
    assert_true(stats.imported_bytes >= 9 * SNAPSHOT_BYTES && stats.evicted == 0);
    pgl_cache_close(w.cache);
}

static void what_cannot_be_imported_is_read_again(void **state) {
    (void)state;
    world w;
    open_world(&w, true, 1, 8 * SLAB_BYTES);
    int32_t a[12] = {1, 1, 1, 1, 1, 1}, b[12] = {2, 2, 2, 2, 2, 2};
    (void)serve(&w, 1, a, 9);
    (void)serve(&w, 2, b, 9);
    pgl_cache_hit hit = pgl_cache_find(w.cache, a, 12, 11);
    assert_int_equal(hit.n_tokens, 9);
    assert_true(hit.decision.from_host);
    uint32_t pages[3], snapshot;
    w.fail_moves = 1;
    assert_false(pgl_cache_use(w.cache, &hit, pages, &snapshot));
    assert_int_equal(snapshot, PGL_NO_SNAPSHOT);
    assert_true(pgl_cache_consistent(w.cache));
    assert_int_equal(pgl_cache_available(w.cache), N_PAGES); /* nothing is held */
    w.fail_moves = 0;
    uint32_t writing = pgl_cache_take_snapshot(w.cache, 3, false); /* the only one is being written */
    hit = pgl_cache_find(w.cache, a, 12, 11);
    assert_false(hit.n_tokens > 0 && pgl_cache_use(w.cache, &hit, pages, &snapshot));
    pgl_cache_drop_snapshot(w.cache, writing);
    running r;
    start(&w, &r, 4, b, 12);
    stop(&w, &r);
    assert_true(pgl_cache_consistent(w.cache));
    pgl_cache_close(w.cache);
}

static void a_budget_below_one_slab_is_no_budget(void **state) {
    (void)state;
    world w;
    open_world(&w, true, 2, SLAB_BYTES - 1);
    assert_int_equal(pgl_cache_get_stats(w.cache).host_bytes, 0);
    int32_t a[8] = {1}, b[8] = {2}, c[8] = {3};
    (void)serve(&w, 1, a, 5);
    (void)serve(&w, 2, b, 5);
    (void)serve(&w, 3, c, 5);
    assert_int_equal(pgl_cache_find(w.cache, a, 8, 7).decision.miss, PGL_MISS_SNAPSHOT_EVICTED);
    pgl_cache_close(w.cache);
}

static void unasked_snapshots_of_one_request_do_not_drive_out_others(void **state) {
    (void)state;
    world w;
    open_world(&w, true, 8, 0);
    int32_t mine[] = {1, 1, 1, 1, 1, 1}, other[] = {2, 2, 2, 2, 2, 2};
    (void)serve(&w, 1, mine, 5);
    (void)serve(&w, 2, other, 5);
    running r;
    int32_t prompt[LONGEST] = {9};
    start(&w, &r, 3, prompt, LONGEST);
    for (uint32_t i = 0; i < LONGEST; i++) {
        assert_true(feed(&w, &r, 9));
        if (i % 4 == 3)
            save(&w, &r, true);
    }
    assert_int_equal(pgl_cache_get_stats(w.cache).n_snapshots_used, 4);
    stop(&w, &r);
    assert_int_equal(pgl_cache_find(w.cache, mine, 6, 5).n_tokens, 5);
    assert_int_equal(pgl_cache_find(w.cache, other, 6, 5).n_tokens, 5);
    pgl_cache_close(w.cache);
}

static void what_a_failed_request_left_is_purged(void **state) {
    (void)state;
    world w;
    open_world(&w, true, N_SNAPSHOTS, 0);
    const int32_t prompt[] = {1, 2, 3, 4, 5, 6, 7};
    (void)serve(&w, 1, prompt, 5);
    (void)serve(&w, 2, prompt, 6);
    pgl_cache_purge(w.cache, 2);
    assert_int_equal(pgl_cache_find(w.cache, prompt, 7, 6).n_tokens, 5);
    pgl_cache_purge(w.cache, 1);
    assert_int_equal(pgl_cache_find(w.cache, prompt, 7, 6).n_tokens, 0);
    assert_int_equal(pgl_cache_get_stats(w.cache).n_free, N_PAGES);
    pgl_cache_close(w.cache);
}

static void switched_off_it_finds_and_keeps_nothing(void **state) {
    (void)state;
    world w;
    open_world(&w, false, N_SNAPSHOTS, 0);
    const int32_t prompt[] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(serve(&w, 1, prompt, 5).decision.miss, PGL_MISS_OFF);
    assert_int_equal(serve(&w, 2, prompt, 6).n_tokens, 0);
    assert_int_equal(pgl_cache_get_stats(w.cache).n_free, N_PAGES);
    assert_int_equal(pgl_cache_get_stats(w.cache).n_snapshots_used, 0);
    pgl_cache_close(w.cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_is_handed_out_holds_what_the_prompt_says),
        cmocka_unit_test(a_repeated_prompt_is_taken_up_to_its_last_kept_place),
        cmocka_unit_test(the_first_differing_token_is_named),
        cmocka_unit_test(of_several_the_nearest_sequence_is_compared),
        cmocka_unit_test(a_miss_by_eviction_says_which_kind),
        cmocka_unit_test(the_least_recently_used_gives_way),
        cmocka_unit_test(a_long_conversation_thins_out_from_its_end),
        cmocka_unit_test(what_is_often_used_stays_longer),
        cmocka_unit_test(host_memory_gives_back_what_it_was_given_within_its_budget),
        cmocka_unit_test(what_gave_way_comes_back),
        cmocka_unit_test(what_cannot_be_imported_is_read_again),
        cmocka_unit_test(a_budget_below_one_slab_is_no_budget),
        cmocka_unit_test(unasked_snapshots_of_one_request_do_not_drive_out_others),
        cmocka_unit_test(what_a_failed_request_left_is_purged),
        cmocka_unit_test(switched_off_it_finds_and_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
