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
} world;

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

static world make_world(bool keep, uint32_t n_snapshots) {
    world w = {0};
    pgl_cache_options options = {
        .n_pages = N_PAGES, .page_tokens = PAGE, .n_snapshots = n_snapshots, .keep = keep};
    assert_int_equal(pgl_cache_open(&options, &w.cache, NULL), PGL_OK);
    return w;
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
    pgl_cache_use(w->cache, &r->hit, r->pages);
    r->n_pages = r->hit.n_pages;
    assert_int_equal(r->n_pages, (r->hit.n_tokens + PAGE - 1) / PAGE);
    r->n = r->n_cached = r->hit.n_tokens;
    memcpy(r->tokens, prompt, r->n * sizeof *prompt);
    for (uint32_t i = 0; i < r->n; i++)
        assert_true(w->page[r->pages[i / PAGE]][i % PAGE] == hash_of(prompt, i + 1));
    assert_int_equal(w->snapshot_length[r->hit.snapshot], r->n);
    r->state = w->snapshot[r->hit.snapshot];
    assert_true(r->state == hash_of(prompt, r->n));
    if (r->n % PAGE != 0) {
        uint32_t tail = r->pages[r->n_pages - 1], copy = pgl_cache_take_page(w->cache);
        if (copy == PGL_NO_PAGE) { /* all are in use: this one cannot start now */
            assert_int_equal(pgl_cache_available(w->cache), 0);
            stop(w, r);
            return;
        }
        memcpy(w->page[copy], w->page[tail], sizeof w->page[copy]);
        pgl_cache_drop_page(w->cache, tail);
        r->pages[r->n_pages - 1] = copy;
    }
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

static void whatever_is_handed_out_holds_what_the_prompt_says(void **state) {
    (void)state;
    world w = make_world(true, N_SNAPSHOTS);
    running seqs[N_SEQS] = {0};
    uint64_t owner = 0, hits = 0, cached = 0, full = 0;
    for (int i = 0; i < 200000; i++) {
        running *r = &seqs[random_below(N_SEQS)];
        if (!r->live) {
            int32_t prompt[LONGEST];
            uint32_t n = 1 + random_below(LONGEST - 1);
            for (uint32_t t = 0; t < n; t++) /* few ids, one of them likely: prompts share much */
                prompt[t] = random_below(6) == 0 ? (int32_t)random_below(3) : 0;
            start(&w, r, ++owner, prompt, n);
            hits += r->n > 0;
            cached += r->n;
        } else if (r->n >= LONGEST || random_below(40) == 0) {
            if (random_below(3) == 0 && r->n > 0)
                save(&w, r, false);
            stop(&w, r);
            if (random_below(50) == 0)
                pgl_cache_purge(w.cache, r->owner);
        } else if (random_below(12) == 0 && r->n > 0) {
            save(&w, r, random_below(2) == 0);
        } else if (!feed(&w, r, random_below(6) == 0 ? (int32_t)random_below(3) : 0)) {
            full++;
            stop(&w, r);
        }
        if (i % 16 == 0)
            assert_true(pgl_cache_consistent(w.cache));
    }
    for (size_t s = 0; s < N_SEQS; s++)
        if (seqs[s].live)
            stop(&w, &seqs[s]);
    assert_true(hits > 1000 && cached > 5000 && full > 20);
    assert_int_equal(pgl_cache_available(w.cache), N_PAGES);
    pgl_cache_clear(w.cache);
    assert_int_equal(pgl_cache_get_stats(w.cache).n_free, N_PAGES);
    assert_int_equal(pgl_cache_get_stats(w.cache).n_snapshots_used, 0);
    pgl_cache_close(w.cache);
}

static void a_repeated_prompt_is_taken_up_to_its_last_kept_place(void **state) {
    (void)state;
    world w = make_world(true, N_SNAPSHOTS);
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
    world w = make_world(true, N_SNAPSHOTS);
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
    world w = make_world(true, N_SNAPSHOTS);
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
    world w = make_world(true, 2);
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
    world w = make_world(true, 3);
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

static void unasked_snapshots_of_one_request_do_not_drive_out_others(void **state) {
    (void)state;
    world w = make_world(true, 8);
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
    world w = make_world(true, N_SNAPSHOTS);
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
    world w = make_world(false, N_SNAPSHOTS);
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
        cmocka_unit_test(unasked_snapshots_of_one_request_do_not_drive_out_others),
        cmocka_unit_test(what_a_failed_request_left_is_purged),
        cmocka_unit_test(switched_off_it_finds_and_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
