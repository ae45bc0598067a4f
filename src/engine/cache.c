/* Owns the counts of who holds each page and the state of each snapshot. */
#include "engine/cache_impl.h"

#include <stdlib.h>

#include "base/alloc.h"

pgl_status pgl_cache_open(const pgl_cache_options *options, pgl_cache **out, pgl_error *err) {
    *out = NULL;
    uint32_t n_pages = options->n_pages;
    if (options->page_tokens == 0 || n_pages == 0 || n_pages > 1u << 30)
        return pgl_fail(err, PGL_E_INVALID, "cache of %u pages of %u tokens", n_pages, options->page_tokens);
    pgl_cache *cache = pgl_new(1, sizeof *cache);
    size_t n_tokens;
    if (cache == NULL || !pgl_mul_size(n_pages, options->page_tokens, &n_tokens)) {
        free(cache);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the tables of %u pages", n_pages);
    }
    cache->options = *options;
    cache->nodes = pgl_new((size_t)n_pages + 1, sizeof *cache->nodes);
    cache->tokens = pgl_new(n_tokens, sizeof *cache->tokens);
    cache->snapshots = pgl_new(options->n_snapshots, sizeof *cache->snapshots);
    if (cache->nodes == NULL || cache->tokens == NULL || cache->snapshots == NULL) {
        pgl_cache_close(cache);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the tables of %u pages", n_pages);
    }
    for (uint32_t i = 0; i <= n_pages; i++)
        cache->nodes[i] = (node){.parent = NONE,
                                 .first_child = NONE,
                                 .next_sibling = NONE,
                                 .first_snapshot = NONE,
                                 .next_free = i + 1 < n_pages ? i + 1 : NONE};
    for (uint32_t i = 0; i < options->n_snapshots; i++)
        cache->snapshots[i].next = i + 1 < options->n_snapshots ? i + 1 : NONE;
    cache->free_snapshot = options->n_snapshots > 0 ? 0 : NONE;
    cache->n_free = n_pages;
    *out = cache;
    return PGL_OK;
}

void pgl_cache_close(pgl_cache *cache) {
    if (cache == NULL)
        return;
    free(cache->nodes);
    free(cache->tokens);
    free(cache->snapshots);
    free(cache);
}

void pgl_cache_free_page(pgl_cache *cache, uint32_t page) {
    cache->nodes[page].next_free = cache->n_free > 0 ? cache->free_page : NONE;
    cache->free_page = page;
    cache->n_free++;
}

/* The least recently used of those kept, that `of` allows; NONE when there is none. */
static uint32_t oldest(const pgl_cache *cache,
                       bool (*of)(const pgl_cache *cache, const snapshot *s, uint64_t arg), uint64_t arg) {
    uint32_t found = NONE;
    for (uint32_t i = 0; i < cache->options.n_snapshots; i++) {
        const snapshot *s = &cache->snapshots[i];
        if (s->state == SNAPSHOT_KEPT && of(cache, s, arg) &&
            (found == NONE || s->used < cache->snapshots[found].used))
            found = i;
    }
    return found;
}

static bool any(const pgl_cache *cache, const snapshot *s, uint64_t arg) {
    (void)cache;
    (void)s;
    (void)arg;
    return true;
}

static bool on_unused_page(const pgl_cache *cache, const snapshot *s, uint64_t arg) {
    (void)arg;
    return cache->nodes[s->node].n_holders == 0;
}

static bool unasked_of(const pgl_cache *cache, const snapshot *s, uint64_t arg) {
    (void)cache;
    return s->unasked && s->owner == arg;
}

uint32_t pgl_cache_take_page(pgl_cache *cache) {
    while (cache->n_free == 0) {
        if (cache->n_cached == 0)
            return PGL_NO_PAGE;
        uint32_t victim = oldest(cache, on_unused_page, 0);
        if (victim == NONE) /* unused pages with a used one below them */
            victim = oldest(cache, any, 0);
        if (victim == NONE)
            return PGL_NO_PAGE;
        pgl_cache_evict(cache, victim, PGL_MISS_PAGE_EVICTED);
    }
    uint32_t page = cache->free_page;
    cache->free_page = cache->nodes[page].next_free;
    cache->n_free--;
    cache->nodes[page].n_holders = 1;
    return page;
}

void pgl_cache_share_page(pgl_cache *cache, uint32_t page) {
    node *n = &cache->nodes[page];
    if (n->n_holders++ == 0 && n->in_tree)
        cache->n_cached--;
}

void pgl_cache_drop_page(pgl_cache *cache, uint32_t page) {
    node *n = &cache->nodes[page];
    if (--n->n_holders > 0)
        return;
    if (n->in_tree)
        cache->n_cached++;
    else
        pgl_cache_free_page(cache, page);
}

uint32_t pgl_cache_available(const pgl_cache *cache) {
    return cache->n_free + cache->n_cached;
}

uint32_t pgl_cache_take_snapshot(pgl_cache *cache, uint64_t owner, bool unasked) {
    if (unasked) {
        uint32_t most = cache->options.n_snapshots / 4 > 0 ? cache->options.n_snapshots / 4 : 1, n = 0;
        for (uint32_t i = 0; i < cache->options.n_snapshots; i++) {
            const snapshot *s = &cache->snapshots[i];
            n += s->state == SNAPSHOT_KEPT && unasked_of(cache, s, owner);
        }
        uint32_t own = n >= most ? oldest(cache, unasked_of, owner) : NONE;
        if (own != NONE)
            pgl_cache_evict(cache, own, PGL_MISS_SNAPSHOT_EVICTED);
    }
    if (cache->free_snapshot == NONE) {
        uint32_t victim = oldest(cache, any, 0);
        if (victim == NONE)
            return PGL_NO_SNAPSHOT;
        pgl_cache_evict(cache, victim, PGL_MISS_SNAPSHOT_EVICTED);
    }
    uint32_t index = cache->free_snapshot;
    snapshot *s = &cache->snapshots[index];
    cache->free_snapshot = s->next;
    *s =
        (snapshot){.state = SNAPSHOT_WRITING, .unasked = unasked, .owner = owner, .node = NONE, .next = NONE};
    cache->n_snapshots_used++;
    return index;
}

void pgl_cache_drop_snapshot(pgl_cache *cache, uint32_t index) {
    cache->snapshots[index].state = SNAPSHOT_FREE;
    cache->snapshots[index].next = cache->free_snapshot;
    cache->free_snapshot = index;
    cache->n_snapshots_used--;
}

void pgl_cache_purge(pgl_cache *cache, uint64_t owner) {
    for (uint32_t i = 0; i < cache->options.n_snapshots; i++)
        if (cache->snapshots[i].state == SNAPSHOT_KEPT && cache->snapshots[i].owner == owner)
            pgl_cache_evict(cache, i, PGL_MISS_SNAPSHOT_EVICTED);
}

void pgl_cache_clear(pgl_cache *cache) {
    for (uint32_t i = 0; i < cache->options.n_snapshots; i++)
        if (cache->snapshots[i].state == SNAPSHOT_KEPT)
            pgl_cache_evict(cache, i, PGL_MISS_SNAPSHOT_EVICTED);
}

pgl_cache_stats pgl_cache_get_stats(const pgl_cache *cache) {
    return (pgl_cache_stats){
        .n_free = cache->n_free,
        .n_cached = cache->n_cached,
        .n_snapshots_used = cache->n_snapshots_used,
        .saved = cache->saved,
        .evicted = cache->evicted,
    };
}

bool pgl_cache_consistent(const pgl_cache *cache) {
    uint32_t n_free = 0, n_cached = 0, n_used = 0;
    for (uint32_t i = 0; i < cache->options.n_pages; i++) {
        const node *n = &cache->nodes[i];
        n_free += n->n_holders == 0 && !n->in_tree;
        n_cached += n->n_holders == 0 && n->in_tree;
        uint32_t below = 0;
        for (uint32_t s = n->first_snapshot; s != NONE; s = cache->snapshots[s].next)
            below++;
        for (uint32_t c = n->first_child; c != NONE; c = cache->nodes[c].next_sibling) {
            below += cache->nodes[c].n_below;
            if (cache->nodes[c].parent != i || n->n_tokens != cache->options.page_tokens)
                return false;
        }
        if (n->in_tree ? below != n->n_below || below == 0 : below != 0)
            return false;
    }
    for (uint32_t i = 0; i < cache->options.n_snapshots; i++)
        n_used += cache->snapshots[i].state != SNAPSHOT_FREE;
    return n_free == cache->n_free && n_cached == cache->n_cached && n_used == cache->n_snapshots_used;
}
