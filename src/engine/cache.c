/* Owns the counts of who holds each page, where each snapshot is, and what gives way. */
#include "engine/cache_impl.h"

#include <stdlib.h>

#include "base/alloc.h"

static pgl_status open_tables(pgl_cache *cache, pgl_error *err) {
    uint32_t n_pages = cache->options.n_pages, n_snapshots = cache->options.n_snapshots;
    cache->n_nodes = n_pages + cache->host.n_slabs * cache->host.pages_per_slab;
    cache->n_entries = n_snapshots + cache->host.n_slabs;
    size_t n_tokens;
    bool fits = pgl_mul_size(cache->n_nodes, cache->options.page_tokens, &n_tokens);
    cache->pages = pgl_new(n_pages, sizeof *cache->pages);
    cache->nodes = pgl_new((size_t)cache->n_nodes + 1, sizeof *cache->nodes);
    cache->tokens = fits ? pgl_new(n_tokens, sizeof *cache->tokens) : NULL;
    cache->entries = pgl_new(cache->n_entries, sizeof *cache->entries);
    cache->device_entry = pgl_new(n_snapshots, sizeof *cache->device_entry);
    if (cache->pages == NULL || cache->nodes == NULL || cache->tokens == NULL || cache->entries == NULL ||
        cache->device_entry == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the tables of %u pages", cache->n_nodes);
    for (uint32_t i = 0; i < n_pages; i++)
        cache->pages[i] = (page){.node = NONE, .next_free = i + 1 < n_pages ? i + 1 : NONE};
    for (uint32_t i = 0; i <= cache->n_nodes; i++)
        cache->nodes[i] = (node){.page = NONE,
                                 .block = NONE,
                                 .parent = NONE,
                                 .first_child = NONE,
                                 .next_sibling = i + 1 < cache->n_nodes ? i + 1 : NONE,
                                 .first_entry = NONE};
    cache->nodes[cache->n_nodes].next_sibling = NONE;
    for (uint32_t i = 0; i < cache->n_entries; i++)
        cache->entries[i].next = i + 1 < cache->n_entries ? i + 1 : NONE;
    for (uint32_t i = 0; i < n_snapshots; i++)
        cache->device_entry[i] = i + 1 < n_snapshots ? i + 1 : NONE;
    cache->free_entry = cache->n_entries > 0 ? 0 : NONE;
    cache->free_device = n_snapshots > 0 ? 0 : NONE;
    cache->n_free = n_pages;
    cache->pinned = NONE;
    return PGL_OK;
}

pgl_status pgl_cache_open(const pgl_cache_options *options, pgl_cache **out, pgl_error *err) {
    *out = NULL;
    if (options->page_tokens == 0 || options->n_pages == 0 || options->n_pages > 1u << 30)
        return pgl_fail(err, PGL_E_INVALID, "cache of %u pages of %u tokens", options->n_pages,
                        options->page_tokens);
    pgl_cache *cache = pgl_new(1, sizeof *cache);
    if (cache == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a cache");
    cache->options = *options;
    uint64_t host_bytes = options->keep && options->move != NULL ? options->host_bytes : 0;
    pgl_status status =
        pgl_host_open(host_bytes, options->page_bytes, options->snapshot_bytes, &cache->host, err);
    if (status == PGL_OK)
        status = open_tables(cache, err);
    if (status != PGL_OK) {
        pgl_cache_close(cache);
        return status;
    }
    *out = cache;
    return PGL_OK;
}

void pgl_cache_close(pgl_cache *cache) {
    if (cache == NULL)
        return;
    pgl_host_close(&cache->host);
    free(cache->pages);
    free(cache->nodes);
    free(cache->tokens);
    free(cache->entries);
    free(cache->device_entry);
    free(cache);
}

void pgl_cache_free_page(pgl_cache *cache, uint32_t index) {
    cache->pages[index].next_free = cache->n_free > 0 ? cache->free_page : NONE;
    cache->free_page = index;
    cache->n_free++;
}

/* ---- what gives way ---- */

typedef bool (*entry_test)(const pgl_cache *cache, const entry *e);

static bool is_resident(const pgl_cache *cache, const entry *e) {
    (void)cache;
    return e->device != NONE;
}

static bool is_exported(const pgl_cache *cache, const entry *e) {
    (void)cache;
    return e->slab != NONE;
}

static bool on_unused_page(const pgl_cache *cache, const entry *e) {
    uint32_t at = cache->nodes[e->node].page;
    return is_resident(cache, e) && at != NONE && cache->pages[at].n_holders == 0;
}

/* Without it nothing resident needs the page that it ends in. */
static bool frees_a_page(const pgl_cache *cache, const entry *e) {
    return on_unused_page(cache, e) && cache->nodes[e->node].n_resident == 1;
}

enum { MOST_USES = 7 }; /* that count: what was popular once is not kept for ever */

/* What is saved by keeping it. */
static double worth(const pgl_cache *cache, uint32_t index) {
    const entry *e = &cache->entries[index];
    uint32_t uses = e->n_used < MOST_USES ? e->n_used : MOST_USES;
    return (double)pgl_cache_span(cache, index) * (1 + uses) / (double)(cache->clock - e->used + 1);
}

/* The kept entry that is worth least, the one that was used longest ago where several are. */
static uint32_t find_least(const pgl_cache *cache, entry_test of) {
    uint32_t found = NONE;
    double least = 0;
    for (uint32_t i = 0; i < cache->n_entries; i++) {
        const entry *e = &cache->entries[i];
        if (e->state != ENTRY_KEPT || i == cache->pinned || !of(cache, e))
            continue;
        double mine = worth(cache, i);
        if (found == NONE || mine < least || (mine == least && e->used < cache->entries[found].used)) {
            found = i;
            least = mine;
        }
    }
    return found;
}

void pgl_cache_count_resident(pgl_cache *cache, uint32_t index, int change) {
    for (; index != root_of(cache); index = cache->nodes[index].parent)
        cache->nodes[index].n_resident += (uint32_t)change;
}

void pgl_cache_release_device(pgl_cache *cache, uint32_t index) {
    entry *e = &cache->entries[index];
    cache->device_entry[e->device] = cache->free_device;
    cache->free_device = e->device;
    e->device = NONE;
    cache->n_snapshots_used--;
}

static bool move(const pgl_cache *cache, pgl_op op) {
    return cache->options.move != NULL && cache->options.move(cache->options.user, &op);
}

/* The entry leaves the backend's memory: for host memory, where it is worth more than what has to go there; else for
 * good. */
static void demote(pgl_cache *cache, uint32_t index, pgl_miss why) {
    entry *e = &cache->entries[index];
    uint32_t slab = pgl_host_take_slab(&cache->host);
    if (slab == NONE && cache->host.n_snapshots > 0) {
        uint32_t least = find_least(cache, is_exported);
        if (least != NONE && worth(cache, least) <= worth(cache, index)) {
            pgl_cache_evict(cache, least, why);
            slab = pgl_host_take_slab(&cache->host);
        }
    }
    if (slab == NONE) {
        pgl_cache_evict(cache, index, why);
        return;
    }
    pgl_op op = {
        .kind = PGL_OP_EXPORT_SNAPSHOT, .snapshot = e->device, .host = pgl_host_slab(&cache->host, slab)};
    if (!move(cache, op)) {
        pgl_host_free_slab(&cache->host, slab);
        pgl_cache_evict(cache, index, why);
        return;
    }
    e->slab = slab;
    pgl_cache_release_device(cache, index);
    pgl_cache_count_resident(cache, e->node, -1);
    cache->exported_bytes += cache->options.snapshot_bytes;
}

/* ---- pages ---- */

/* A page that the tree alone holds and no resident snapshot needs, the one that was used longest ago. */
static uint32_t find_orphan(const pgl_cache *cache) {
    uint32_t found = NONE;
    for (uint32_t i = 0; i < cache->options.n_pages; i++) {
        const page *p = &cache->pages[i];
        if (p->n_holders > 0 || p->node == NONE || cache->nodes[p->node].n_resident > 0)
            continue;
        if (found == NONE || cache->nodes[p->node].used < cache->nodes[cache->pages[found].node].used)
            found = i;
    }
    return found;
}

static uint32_t some_entry_below(const pgl_cache *cache, uint32_t index) {
    while (cache->nodes[index].first_entry == NONE)
        index = cache->nodes[index].first_child;
    return cache->nodes[index].first_entry;
}

/* Frees an orphan's page: its contents go to host memory, for which others may have to leave that, and then perhaps the
 * orphan itself has gone. */
static void move_out(pgl_cache *cache, uint32_t index) {
    uint32_t block;
    while ((block = pgl_host_take_block(&cache->host)) == NONE) {
        uint32_t least = find_least(cache, is_exported);
        pgl_cache_evict(cache, least != NONE ? least : some_entry_below(cache, cache->pages[index].node),
                        PGL_MISS_PAGE_EVICTED);
        if (cache->n_free > 0)
            return;
    }
    node *n = &cache->nodes[cache->pages[index].node];
    pgl_op op = {.kind = PGL_OP_EXPORT_PAGE, .page = index, .host = pgl_host_block(&cache->host, block)};
    if (!move(cache, op)) {
        pgl_host_free_block(&cache->host, block);
        while (cache->n_free == 0)
            pgl_cache_evict(cache, some_entry_below(cache, cache->pages[index].node), PGL_MISS_PAGE_EVICTED);
        return;
    }
    n->page = NONE;
    n->block = block;
    cache->pages[index].node = NONE;
    cache->n_cached--;
    pgl_cache_free_page(cache, index);
    cache->exported_bytes += cache->options.page_bytes;
}

/* One step towards a free page; false: there is nothing that could give way. */
static bool make_page(pgl_cache *cache) {
    if (cache->n_cached == 0)
        return false;
    uint32_t orphan = cache->host.n_slabs > 0 ? find_orphan(cache) : NONE;
    if (orphan != NONE) {
        move_out(cache, orphan);
        return true;
    }
    uint32_t victim = find_least(cache, frees_a_page);
    if (victim == NONE)
        victim = find_least(cache, on_unused_page);
    if (victim == NONE) /* unused pages with a used one below them */
        victim = find_least(cache, is_resident);
    if (victim == NONE)
        return false;
    demote(cache, victim, PGL_MISS_PAGE_EVICTED);
    return true;
}

uint32_t pgl_cache_take_page(pgl_cache *cache) {
    while (cache->n_free == 0)
        if (!make_page(cache))
            return PGL_NO_PAGE;
    uint32_t index = cache->free_page;
    cache->free_page = cache->pages[index].next_free;
    cache->n_free--;
    cache->pages[index].n_holders = 1;
    return index;
}

void pgl_cache_share_page(pgl_cache *cache, uint32_t index) {
    page *p = &cache->pages[index];
    if (p->n_holders++ == 0 && p->node != NONE)
        cache->n_cached--;
}

void pgl_cache_drop_page(pgl_cache *cache, uint32_t index) {
    page *p = &cache->pages[index];
    if (--p->n_holders > 0)
        return;
    if (p->node != NONE)
        cache->n_cached++;
    else
        pgl_cache_free_page(cache, index);
}

uint32_t pgl_cache_available(const pgl_cache *cache) {
    return cache->n_free + cache->n_cached;
}

/* ---- snapshots ---- */

/* A free snapshot of the backend for entry, which something resident may have to leave. */
static bool take_device(pgl_cache *cache, uint32_t index) {
    if (cache->free_device == NONE) {
        uint32_t victim = find_least(cache, is_resident);
        if (victim == NONE)
            return false;
        demote(cache, victim, PGL_MISS_SNAPSHOT_EVICTED);
    }
    uint32_t device = cache->free_device;
    cache->free_device = cache->device_entry[device];
    cache->device_entry[device] = index;
    cache->entries[index].device = device;
    cache->n_snapshots_used++;
    return true;
}

/* An owner with a quarter of all snapshots that nobody asked for gives its own oldest. */
static void keep_quota(pgl_cache *cache, uint64_t owner) {
    uint32_t most = cache->options.n_snapshots / 4 > 0 ? cache->options.n_snapshots / 4 : 1, n = 0;
    uint32_t oldest = NONE;
    for (uint32_t i = 0; i < cache->n_entries; i++) {
        const entry *e = &cache->entries[i];
        if (e->state != ENTRY_KEPT || !e->unasked || e->owner != owner)
            continue;
        n++;
        if (oldest == NONE || e->used < cache->entries[oldest].used)
            oldest = i;
    }
    if (n >= most)
        pgl_cache_evict(cache, oldest, PGL_MISS_SNAPSHOT_EVICTED);
}

uint32_t pgl_cache_take_snapshot(pgl_cache *cache, uint64_t owner, bool unasked) {
    if (unasked)
        keep_quota(cache, owner);
    /* As many entries as there are places: when one of the backend's is free or gives way, so is or does an entry. */
    if (cache->free_device == NONE) {
        uint32_t victim = find_least(cache, is_resident);
        if (victim == NONE)
            return PGL_NO_SNAPSHOT;
        demote(cache, victim, PGL_MISS_SNAPSHOT_EVICTED);
    }
    uint32_t index = cache->free_entry;
    entry *e = &cache->entries[index];
    cache->free_entry = e->next;
    *e = (entry){.state = ENTRY_WRITING,
                 .unasked = unasked,
                 .device = NONE,
                 .slab = NONE,
                 .owner = owner,
                 .node = NONE,
                 .next = NONE};
    (void)take_device(cache, index);
    return e->device;
}

void pgl_cache_drop_snapshot(pgl_cache *cache, uint32_t device) {
    uint32_t index = cache->device_entry[device];
    pgl_cache_release_device(cache, index);
    cache->entries[index].state = ENTRY_FREE;
    cache->entries[index].next = cache->free_entry;
    cache->free_entry = index;
}

void pgl_cache_purge(pgl_cache *cache, uint64_t owner) {
    for (uint32_t i = 0; i < cache->n_entries; i++)
        if (cache->entries[i].state == ENTRY_KEPT && cache->entries[i].owner == owner)
            pgl_cache_evict(cache, i, PGL_MISS_SNAPSHOT_EVICTED);
}

void pgl_cache_clear(pgl_cache *cache) {
    for (uint32_t i = 0; i < cache->n_entries; i++)
        if (cache->entries[i].state == ENTRY_KEPT)
            pgl_cache_evict(cache, i, PGL_MISS_SNAPSHOT_EVICTED);
}

/* ---- using what was found ---- */

static bool bring_snapshot(pgl_cache *cache, uint32_t index) {
    entry *e = &cache->entries[index];
    if (e->device != NONE)
        return true;
    if (!take_device(cache, index))
        return false;
    pgl_op op = {.kind = PGL_OP_IMPORT_SNAPSHOT,
                 .snapshot = e->device,
                 .n = e->length,
                 .host = pgl_host_slab(&cache->host, e->slab)};
    if (!move(cache, op)) {
        pgl_cache_release_device(cache, index);
        return false;
    }
    pgl_host_free_slab(&cache->host, e->slab);
    e->slab = NONE;
    pgl_cache_count_resident(cache, e->node, 1);
    cache->imported_bytes += cache->options.snapshot_bytes;
    return true;
}

/* The page for node's contents, which the caller then holds: the node's own, or when only a part is used, a copy. */
static uint32_t bring_page(pgl_cache *cache, uint32_t index, bool part) {
    node *n = &cache->nodes[index];
    if (n->page != NONE && !part)
        return n->page; /* held already */
    uint32_t fresh = pgl_cache_take_page(cache);
    if (fresh == PGL_NO_PAGE)
        return PGL_NO_PAGE;
    pgl_op op = {.kind = PGL_OP_COPY_PAGE, .page = n->page, .page2 = fresh};
    if (n->page == NONE)
        op = (pgl_op){
            .kind = PGL_OP_IMPORT_PAGE, .page = fresh, .host = pgl_host_block(&cache->host, n->block)};
    if (!move(cache, op)) {
        pgl_cache_drop_page(cache, fresh);
        return PGL_NO_PAGE;
    }
    if (n->page != NONE) {
        pgl_cache_drop_page(cache, n->page); /* it may go now: the copy is made before anything else */
        return fresh;
    }
    cache->imported_bytes += cache->options.page_bytes;
    if (part)
        return fresh;
    pgl_host_free_block(&cache->host, n->block);
    n->block = NONE;
    n->page = fresh;
    cache->pages[fresh].node = index;
    return fresh;
}

bool pgl_cache_use(pgl_cache *cache, const pgl_cache_hit *hit, uint32_t *pages, uint32_t *snapshot) {
    *snapshot = PGL_NO_SNAPSHOT;
    if (hit->n_tokens == 0)
        return true;
    entry *e = &cache->entries[hit->entry];
    e->used = ++cache->clock;
    e->n_used++;
    uint32_t at = e->node;
    for (uint32_t i = hit->n_pages; i > 0; i--, at = cache->nodes[at].parent) {
        cache->nodes[at].used = cache->clock;
        pages[i - 1] = cache->nodes[at].page;
        if (pages[i - 1] != NONE)
            pgl_cache_share_page(cache, pages[i - 1]);
    }
    cache->pinned = hit->entry;
    bool complete = bring_snapshot(cache, hit->entry);
    at = e->node;
    bool part = hit->n_tokens % cache->options.page_tokens != 0;
    for (uint32_t i = hit->n_pages; complete && i > 0; i--, at = cache->nodes[at].parent, part = false) {
        uint32_t ready = bring_page(cache, at, part);
        complete = ready != PGL_NO_PAGE;
        pages[i - 1] = complete ? ready : pages[i - 1];
    }
    cache->pinned = NONE;
    *snapshot = complete ? e->device : PGL_NO_SNAPSHOT;
    for (uint32_t i = 0; !complete && i < hit->n_pages; i++)
        if (pages[i] != NONE)
            pgl_cache_drop_page(cache, pages[i]);
    return complete;
}

/* ---- figures ---- */

pgl_cache_stats pgl_cache_get_stats(const pgl_cache *cache) {
    const host_store *host = &cache->host;
    return (pgl_cache_stats){
        .n_free = cache->n_free,
        .n_cached = cache->n_cached,
        .n_snapshots_used = cache->n_snapshots_used,
        .saved = cache->saved,
        .evicted = cache->evicted,
        .host_bytes = host->n_slabs * host->slab_bytes,
        .host_bytes_used = host->n_pages * host->page_bytes + host->n_snapshots * host->snapshot_bytes,
        .n_host_pages = host->n_pages,
        .n_host_snapshots = host->n_snapshots,
        .exported_bytes = cache->exported_bytes,
        .imported_bytes = cache->imported_bytes,
    };
}

static bool node_is_consistent(const pgl_cache *cache, uint32_t i) {
    const node *n = &cache->nodes[i];
    uint32_t below = 0, resident = 0;
    for (uint32_t e = n->first_entry; e != NONE; e = cache->entries[e].next) {
        below++;
        resident += cache->entries[e].device != NONE;
        if (cache->entries[e].node != i ||
            (cache->entries[e].device == NONE) == (cache->entries[e].slab == NONE))
            return false;
    }
    for (uint32_t c = n->first_child; c != NONE; c = cache->nodes[c].next_sibling) {
        below += cache->nodes[c].n_below;
        resident += cache->nodes[c].n_resident;
        if (cache->nodes[c].parent != i || n->n_tokens != cache->options.page_tokens)
            return false;
    }
    bool used = n->page != NONE || n->block != NONE, both = n->page != NONE && n->block != NONE;
    return below == n->n_below && resident == n->n_resident && used == (below > 0) && !both &&
           (n->page == NONE || cache->pages[n->page].node == i);
}

bool pgl_cache_consistent(const pgl_cache *cache) {
    uint32_t n_free = 0, n_cached = 0, n_used = 0, n_slabs = 0, n_blocks = 0;
    for (uint32_t i = 0; i < cache->options.n_pages; i++) {
        const page *p = &cache->pages[i];
        n_free += p->n_holders == 0 && p->node == NONE;
        n_cached += p->n_holders == 0 && p->node != NONE;
        if (p->node != NONE && cache->nodes[p->node].page != i)
            return false;
    }
    for (uint32_t i = 0; i < cache->n_nodes; i++) {
        n_blocks += cache->nodes[i].block != NONE;
        if (!node_is_consistent(cache, i))
            return false;
    }
    for (uint32_t i = 0; i < cache->n_entries; i++) {
        const entry *e = &cache->entries[i];
        n_used += e->state != ENTRY_FREE && e->device != NONE;
        n_slabs += e->state != ENTRY_FREE && e->slab != NONE;
    }
    return n_free == cache->n_free && n_cached == cache->n_cached && n_used == cache->n_snapshots_used &&
           n_slabs == cache->host.n_snapshots && n_blocks == cache->host.n_pages &&
           pgl_host_consistent(&cache->host);
}
