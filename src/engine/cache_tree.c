/* Owns the links of the prefix tree. */
#include "engine/cache_impl.h"

#include <string.h>

static uint32_t common(const int32_t *a, const int32_t *b, uint32_t n) {
    uint32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* ---- finding ---- */

typedef struct path {
    uint32_t n_known; /* tokens that the tree knows */
    bool goes_on;     /* somewhere there, with other tokens */
    int32_t other;    /* the first of these; -1 */
    uint32_t length;  /* of the deepest snapshot */
    uint32_t entry;   /* NONE: none */
} path;

static void look_at_entries(const pgl_cache *cache, const node *child, uint32_t n_common, uint32_t most,
                            path *p) {
    for (uint32_t i = child->first_entry; i != NONE; i = cache->entries[i].next) {
        const entry *e = &cache->entries[i];
        if (e->offset <= n_common && e->length <= most && e->length > p->length) {
            p->length = e->length;
            p->entry = i;
        }
    }
}

static path walk(const pgl_cache *cache, const int32_t *tokens, uint32_t n, uint32_t most) {
    path p = {.other = -1, .entry = NONE};
    uint32_t page_tokens = cache->options.page_tokens, at = 0;
    for (uint32_t here = root_of(cache); here != NONE;) {
        uint32_t next = NONE;
        for (uint32_t c = cache->nodes[here].first_child; c != NONE; c = cache->nodes[c].next_sibling) {
            const node *child = &cache->nodes[c];
            uint32_t l = common(node_tokens(cache, c), tokens + at, least(child->n_tokens, n - at));
            look_at_entries(cache, child, l, most, &p);
            if (at + l > p.n_known || (at + l == p.n_known && !p.goes_on)) {
                p.n_known = at + l;
                p.goes_on = l < child->n_tokens && at + l < n;
                p.other = p.goes_on ? node_tokens(cache, c)[l] : -1;
            }
            if (l == page_tokens)
                next = c;
        }
        at += next != NONE ? page_tokens : 0;
        here = next;
    }
    return p;
}

/* The longest prefix of tokens, longer than `over`, that was kept once and dropped. */
static bool find_dropped(const pgl_cache *cache, const int32_t *tokens, uint32_t over, uint32_t most,
                         tombstone *found) {
    const tombstone *order[N_TOMBSTONES];
    size_t n = 0;
    for (size_t i = 0; i < N_TOMBSTONES; i++) {
        const tombstone *t = &cache->tombstones[i];
        if (t->length <= over || t->length > most)
            continue;
        size_t at = n++;
        for (; at > 0 && order[at - 1]->length > t->length; at--)
            order[at] = order[at - 1];
        order[at] = t;
    }
    uint64_t hash = PGL_HASH_START;
    uint32_t length = 0;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        for (; length < order[i]->length; length++)
            hash = pgl_hash_token(hash, tokens[length]);
        if (hash == order[i]->hash) {
            *found = *order[i];
            any = true;
        }
    }
    return any;
}

pgl_cache_hit pgl_cache_no_hit(pgl_miss miss) {
    return (pgl_cache_hit){.entry = NONE, .decision = {.miss = miss, .cached_id = -1, .prompt_id = -1}};
}

/* Why a prompt with path p gets no more than p's snapshot. */
static pgl_cache_decision explain(const pgl_cache *cache, const path *p, const int32_t *tokens,
                                  uint32_t most) {
    pgl_cache_decision why = {.miss = PGL_MISS_NONE,
                              .n_cached = p->length,
                              .n_matched = p->n_known,
                              .cached_id = -1,
                              .prompt_id = -1};
    tombstone dropped;
    if (most == 0) {
        why.miss = PGL_MISS_TOO_SHORT;
    } else if (p->length == most) {
        why.miss = PGL_MISS_NONE;
    } else if (find_dropped(cache, tokens, p->length, most, &dropped)) {
        why.miss = dropped.why;
        why.miss_at = dropped.length;
    } else if (p->n_known == 0) {
        why.miss = PGL_MISS_COLD;
    } else if (p->goes_on) {
        why.miss = PGL_MISS_DIFFERS;
        why.miss_at = p->n_known;
        why.cached_id = p->other;
        why.prompt_id = tokens[p->n_known];
    } else if (p->n_known > p->length) {
        why.miss = PGL_MISS_NO_SNAPSHOT;
        why.miss_at = p->n_known;
    }
    return why;
}

pgl_cache_hit pgl_cache_find(const pgl_cache *cache, const int32_t *tokens, uint32_t n, uint32_t most) {
    pgl_cache_hit hit = pgl_cache_no_hit(PGL_MISS_OFF);
    if (!cache->options.keep)
        return hit;
    path p = walk(cache, tokens, n, most);
    hit.n_tokens = p.length;
    hit.entry = p.entry;
    bool from_host = false;
    if (p.entry != NONE) {
        uint32_t at = cache->entries[p.entry].node;
        bool part = p.length % cache->options.page_tokens != 0;
        from_host = cache->entries[p.entry].slab != NONE;
        for (; at != root_of(cache); at = cache->nodes[at].parent, part = false) {
            uint32_t own = cache->nodes[at].page;
            hit.n_pages++;
            hit.n_resident += !part && own != NONE;
            hit.n_unused += !part && own != NONE && cache->pages[own].n_holders == 0;
            from_host = from_host || own == NONE;
        }
    }
    hit.decision = explain(cache, &p, tokens, most);
    hit.decision.from_host = from_host;
    return hit;
}

/* ---- keeping ---- */

static void link_child(pgl_cache *cache, uint32_t parent, uint32_t child) {
    cache->nodes[child].parent = parent;
    cache->nodes[child].next_sibling = cache->nodes[parent].first_child;
    cache->nodes[parent].first_child = child;
}

static void unlink_child(pgl_cache *cache, uint32_t child) {
    uint32_t *at = &cache->nodes[cache->nodes[child].parent].first_child;
    while (*at != child)
        at = &cache->nodes[*at].next_sibling;
    *at = cache->nodes[child].next_sibling;
    cache->nodes[child].parent = NONE;
    cache->nodes[child].next_sibling = NONE;
}

static uint32_t new_node(pgl_cache *cache, uint32_t at) {
    uint32_t index = cache->free_node;
    cache->free_node = cache->nodes[index].next_sibling;
    cache->nodes[index].page = at;
    cache->pages[at].node = index;
    return index;
}

static void leave_tree(pgl_cache *cache, uint32_t index) {
    node *n = &cache->nodes[index];
    unlink_child(cache, index);
    if (n->block != NONE)
        pgl_host_free_block(&cache->host, n->block);
    if (n->page != NONE) {
        page *p = &cache->pages[n->page];
        p->node = NONE;
        if (p->n_holders == 0) {
            cache->n_cached--;
            pgl_cache_free_page(cache, n->page);
        }
    }
    n->page = n->block = NONE;
    n->n_tokens = 0;
    n->next_sibling = cache->free_node;
    cache->free_node = index;
}

/* Length of the shallowest entry on the node that is longer than `over`; UINT32_MAX: none. */
static uint32_t next_on(const pgl_cache *cache, uint32_t index, uint32_t over) {
    uint32_t next = UINT32_MAX;
    for (uint32_t i = cache->nodes[index].first_entry; i != NONE; i = cache->entries[i].next)
        if (cache->entries[i].length > over && cache->entries[i].length < next)
            next = cache->entries[i].length;
    return next;
}

/* The same of all nodes below. */
static uint32_t next_below(const pgl_cache *cache, uint32_t top) {
    uint32_t next = UINT32_MAX;
    for (uint32_t at = cache->nodes[top].first_child; at != NONE;) {
        const node *n = &cache->nodes[at];
        next = least(next, next_on(cache, at, 0));
        if (n->first_entry == NONE && n->first_child != NONE) {
            at = n->first_child;
            continue;
        }
        while (at != top && cache->nodes[at].next_sibling == NONE)
            at = cache->nodes[at].parent;
        at = at == top ? NONE : cache->nodes[at].next_sibling;
    }
    return next;
}

uint32_t pgl_cache_span(const pgl_cache *cache, uint32_t index) {
    const entry *e = &cache->entries[index];
    uint32_t before = 0;
    for (uint32_t at = e->node; at != root_of(cache) && before == 0; at = cache->nodes[at].parent)
        for (uint32_t i = cache->nodes[at].first_entry; i != NONE; i = cache->entries[i].next)
            if (cache->entries[i].length < e->length && cache->entries[i].length > before)
                before = cache->entries[i].length;
    uint32_t next = next_on(cache, e->node, e->length);
    if (next == UINT32_MAX)
        next = next_below(cache, e->node);
    return (next == UINT32_MAX ? e->length : next) - before;
}

void pgl_cache_evict(pgl_cache *cache, uint32_t index, pgl_miss why) {
    entry *e = &cache->entries[index];
    uint32_t *link = &cache->nodes[e->node].first_entry;
    while (*link != index)
        link = &cache->entries[*link].next;
    *link = e->next;
    if (e->device != NONE) {
        pgl_cache_count_resident(cache, e->node, -1);
        pgl_cache_release_device(cache, index);
    } else {
        pgl_host_free_slab(&cache->host, e->slab);
    }
    for (uint32_t at = e->node; at != root_of(cache);) {
        uint32_t parent = cache->nodes[at].parent;
        if (--cache->nodes[at].n_below == 0)
            leave_tree(cache, at);
        at = parent;
    }
    cache->tombstones[cache->next_tombstone] = (tombstone){.hash = e->hash, .length = e->length, .why = why};
    cache->next_tombstone = (cache->next_tombstone + 1) % N_TOMBSTONES;
    cache->evicted++;
    e->state = ENTRY_FREE;
    e->next = cache->free_entry;
    cache->free_entry = index;
}

/* A child of parent, other than `except`, that begins with tokens [n]. */
static uint32_t find_child(const pgl_cache *cache, uint32_t parent, const int32_t *tokens, uint32_t n,
                           uint32_t except) {
    for (uint32_t c = cache->nodes[parent].first_child; c != NONE; c = cache->nodes[c].next_sibling)
        if (c != except && cache->nodes[c].n_tokens >= n && common(node_tokens(cache, c), tokens, n) == n)
            return c;
    return NONE;
}

/* Contents that were in host memory are on a page of the backend, too: they stay there. */
static void settle_on(pgl_cache *cache, uint32_t index, uint32_t at) {
    node *n = &cache->nodes[index];
    pgl_host_free_block(&cache->host, n->block);
    n->block = NONE;
    n->page = at;
    cache->pages[at].node = index;
}

/* The page has become full, and a sibling has the same tokens: its entries move there, and the page, when the
 * sibling's contents are in host memory. */
static void merge(pgl_cache *cache, uint32_t from, uint32_t to) {
    node *f = &cache->nodes[from], *t = &cache->nodes[to];
    while (f->first_entry != NONE) {
        uint32_t i = f->first_entry;
        f->first_entry = cache->entries[i].next;
        cache->entries[i].node = to;
        cache->entries[i].next = t->first_entry;
        t->first_entry = i;
    }
    t->n_below += f->n_below;
    t->n_resident += f->n_resident;
    f->n_below = f->n_resident = 0;
    if (t->page == NONE) {
        uint32_t at = f->page;
        f->page = NONE;
        settle_on(cache, to, at);
    }
    leave_tree(cache, from);
}

/* The node below parent for tokens [n], which lie in a page: an equal one that is there, or one for the page. NONE
 * when the page stands elsewhere in the tree. */
static uint32_t child_for(pgl_cache *cache, uint32_t parent, const int32_t *tokens, uint32_t n, uint32_t at) {
    uint32_t own = cache->pages[at].node;
    uint32_t twin = find_child(cache, parent, tokens, n, own);
    if (own != NONE) {
        node *o = &cache->nodes[own];
        if (o->parent != parent)
            return NONE;
        if (n > o->n_tokens) {
            memcpy(node_tokens(cache, own), tokens, n * sizeof *tokens);
            o->n_tokens = n;
            if (n == cache->options.page_tokens && twin != NONE) {
                merge(cache, own, twin);
                return twin;
            }
        }
        return own;
    }
    if (twin != NONE) {
        if (cache->nodes[twin].page == NONE && cache->nodes[twin].n_tokens == n)
            settle_on(cache, twin, at);
        return twin;
    }
    own = new_node(cache, at); /* its caller holds the page, so it is not among the cached ones yet */
    memcpy(node_tokens(cache, own), tokens, n * sizeof *tokens);
    cache->nodes[own].n_tokens = n;
    link_child(cache, parent, own);
    return own;
}

static uint32_t entry_at(const pgl_cache *cache, uint32_t index, uint32_t offset) {
    uint32_t i = cache->nodes[index].first_entry;
    while (i != NONE && cache->entries[i].offset != offset)
        i = cache->entries[i].next;
    return i;
}

/* Nodes of the path that were made and then not used. */
static void take_back(pgl_cache *cache, uint32_t index) {
    while (index != root_of(cache) && cache->nodes[index].n_below == 0) {
        uint32_t parent = cache->nodes[index].parent;
        leave_tree(cache, index);
        index = parent;
    }
}

/* The state is known already. A copy of it that is in host memory gives way to the fresh one. */
static void replace(pgl_cache *cache, uint32_t known, uint32_t fresh) {
    entry *e = &cache->entries[known];
    uint32_t device = cache->entries[fresh].device;
    e->used = ++cache->clock;
    if (e->device == NONE) {
        pgl_host_free_slab(&cache->host, e->slab);
        e->slab = NONE;
        e->device = device;
        e->owner = cache->entries[fresh].owner;
        pgl_cache_count_resident(cache, e->node, 1);
        cache->device_entry[device] = known;
        cache->entries[fresh] = (entry){.state = ENTRY_FREE, .next = cache->free_entry};
        cache->free_entry = fresh;
    } else {
        pgl_cache_drop_snapshot(cache, device);
    }
}

void pgl_cache_keep(pgl_cache *cache, uint32_t device, const int32_t *tokens, uint32_t n,
                    const uint32_t *pages) {
    uint32_t index = cache->device_entry[device];
    entry *e = &cache->entries[index];
    uint32_t page_tokens = cache->options.page_tokens, here = root_of(cache), at = 0;
    uint64_t hash = PGL_HASH_START;
    bool lost = !cache->options.keep || n == 0;
    for (; at < n && !lost; at += page_tokens) {
        uint32_t length = least(page_tokens, n - at);
        uint32_t child = child_for(cache, here, tokens + at, length, pages[at / page_tokens]);
        lost = child == NONE;
        here = lost ? here : child;
        for (uint32_t i = 0; i < length; i++)
            hash = pgl_hash_token(hash, tokens[at + i]);
    }
    uint32_t offset = (n - 1) % page_tokens + 1;
    uint32_t known = lost ? NONE : entry_at(cache, here, offset);
    if (lost) {
        take_back(cache, here);
        pgl_cache_drop_snapshot(cache, device);
        return;
    }
    if (known != NONE) {
        replace(cache, known, index);
        return;
    }
    e->state = ENTRY_KEPT;
    e->used = ++cache->clock;
    e->node = here;
    e->offset = offset;
    e->length = n;
    e->hash = hash;
    e->next = cache->nodes[here].first_entry;
    cache->nodes[here].first_entry = index;
    for (uint32_t i = here; i != root_of(cache); i = cache->nodes[i].parent) {
        cache->nodes[i].n_below++;
        cache->nodes[i].n_resident++;
        cache->nodes[i].used = cache->clock;
    }
    cache->saved++;
}
