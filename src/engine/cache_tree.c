/* Owns the links of the prefix tree. */
#include "engine/cache_impl.h"

#include <string.h>

static uint32_t root_of(const pgl_cache *cache) {
    return cache->options.n_pages;
}

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
    uint32_t n_known;  /* tokens that the tree knows */
    bool goes_on;      /* somewhere there, with other tokens */
    int32_t other;     /* the first of these; -1 */
    uint32_t length;   /* of the deepest snapshot */
    uint32_t snapshot; /* NONE: none */
} path;

static void look_at_snapshots(const pgl_cache *cache, const node *child, uint32_t n_common, uint32_t most,
                              path *p) {
    for (uint32_t s = child->first_snapshot; s != NONE; s = cache->snapshots[s].next) {
        const snapshot *snap = &cache->snapshots[s];
        if (snap->offset <= n_common && snap->length <= most && snap->length > p->length) {
            p->length = snap->length;
            p->snapshot = s;
        }
    }
}

static path walk(const pgl_cache *cache, const int32_t *tokens, uint32_t n, uint32_t most) {
    path p = {.other = -1, .snapshot = NONE};
    uint32_t page_tokens = cache->options.page_tokens, at = 0;
    for (uint32_t here = root_of(cache); here != NONE;) {
        uint32_t next = NONE;
        for (uint32_t c = cache->nodes[here].first_child; c != NONE; c = cache->nodes[c].next_sibling) {
            const node *child = &cache->nodes[c];
            uint32_t l = common(node_tokens(cache, c), tokens + at, least(child->n_tokens, n - at));
            look_at_snapshots(cache, child, l, most, &p);
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
    return (pgl_cache_hit){.snapshot = PGL_NO_SNAPSHOT,
                           .decision = {.miss = miss, .cached_id = -1, .prompt_id = -1}};
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
    hit.snapshot = p.snapshot;
    if (p.snapshot != NONE) {
        uint32_t page = cache->snapshots[p.snapshot].node;
        bool partial = p.length % cache->options.page_tokens != 0;
        for (; page != root_of(cache); page = cache->nodes[page].parent, partial = false) {
            hit.n_pages++;
            hit.n_unused += !partial && cache->nodes[page].n_holders == 0;
        }
    }
    hit.decision = explain(cache, &p, tokens, most);
    return hit;
}

void pgl_cache_use(pgl_cache *cache, const pgl_cache_hit *hit, uint32_t *pages) {
    if (hit->snapshot == PGL_NO_SNAPSHOT)
        return;
    snapshot *s = &cache->snapshots[hit->snapshot];
    s->used = ++cache->clock;
    uint32_t page = s->node;
    for (uint32_t i = hit->n_pages; i > 0; i--) {
        pages[i - 1] = page;
        pgl_cache_share_page(cache, page);
        page = cache->nodes[page].parent;
    }
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

static void leave_tree(pgl_cache *cache, uint32_t page) {
    node *n = &cache->nodes[page];
    unlink_child(cache, page);
    n->in_tree = false;
    n->n_tokens = 0;
    if (n->n_holders == 0) {
        cache->n_cached--;
        pgl_cache_free_page(cache, page);
    }
}

void pgl_cache_evict(pgl_cache *cache, uint32_t index, pgl_miss why) {
    snapshot *s = &cache->snapshots[index];
    uint32_t *at = &cache->nodes[s->node].first_snapshot;
    while (*at != index)
        at = &cache->snapshots[*at].next;
    *at = s->next;
    for (uint32_t page = s->node; page != root_of(cache);) {
        uint32_t parent = cache->nodes[page].parent;
        if (--cache->nodes[page].n_below == 0)
            leave_tree(cache, page);
        page = parent;
    }
    cache->tombstones[cache->next_tombstone] = (tombstone){.hash = s->hash, .length = s->length, .why = why};
    cache->next_tombstone = (cache->next_tombstone + 1) % N_TOMBSTONES;
    cache->evicted++;
    pgl_cache_drop_snapshot(cache, index);
}

/* A child of parent, other than `except`, that begins with tokens [n]. */
static uint32_t find_child(const pgl_cache *cache, uint32_t parent, const int32_t *tokens, uint32_t n,
                           uint32_t except) {
    for (uint32_t c = cache->nodes[parent].first_child; c != NONE; c = cache->nodes[c].next_sibling)
        if (c != except && cache->nodes[c].n_tokens >= n && common(node_tokens(cache, c), tokens, n) == n)
            return c;
    return NONE;
}

/* The page has become full, and a sibling has the same tokens: its snapshots move there. */
static void merge(pgl_cache *cache, uint32_t from, uint32_t to) {
    node *f = &cache->nodes[from];
    while (f->first_snapshot != NONE) {
        uint32_t s = f->first_snapshot;
        f->first_snapshot = cache->snapshots[s].next;
        cache->snapshots[s].node = to;
        cache->snapshots[s].next = cache->nodes[to].first_snapshot;
        cache->nodes[to].first_snapshot = s;
        f->n_below--;
        cache->nodes[to].n_below++;
    }
    leave_tree(cache, from);
}

/* The node below parent for tokens [n], which lie in page: an equal one that is there, or the page itself. NONE
 * when the page stands elsewhere in the tree. */
static uint32_t child_for(pgl_cache *cache, uint32_t parent, const int32_t *tokens, uint32_t n,
                          uint32_t page) {
    node *own = &cache->nodes[page];
    uint32_t twin = find_child(cache, parent, tokens, n, page);
    if (own->in_tree) {
        if (own->parent != parent)
            return NONE;
        if (n > own->n_tokens) {
            memcpy(node_tokens(cache, page), tokens, n * sizeof *tokens);
            own->n_tokens = n;
            if (n == cache->options.page_tokens && twin != NONE) {
                merge(cache, page, twin);
                return twin;
            }
        }
        return page;
    }
    if (twin != NONE)
        return twin;
    memcpy(node_tokens(cache, page), tokens, n * sizeof *tokens);
    own->n_tokens = n;
    own->in_tree = true; /* its caller holds it, so it is not among the cached ones yet */
    link_child(cache, parent, page);
    return page;
}

static bool has_snapshot_at(const pgl_cache *cache, uint32_t page, uint32_t offset) {
    for (uint32_t s = cache->nodes[page].first_snapshot; s != NONE; s = cache->snapshots[s].next)
        if (cache->snapshots[s].offset == offset)
            return true;
    return false;
}

/* Nodes of the path that were made and then not used. */
static void take_back(pgl_cache *cache, uint32_t page) {
    while (page != root_of(cache) && cache->nodes[page].n_below == 0) {
        uint32_t parent = cache->nodes[page].parent;
        leave_tree(cache, page);
        page = parent;
    }
}

void pgl_cache_keep(pgl_cache *cache, uint32_t index, const int32_t *tokens, uint32_t n,
                    const uint32_t *pages) {
    snapshot *s = &cache->snapshots[index];
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
    if (lost || has_snapshot_at(cache, here, offset)) {
        take_back(cache, here);
        pgl_cache_drop_snapshot(cache, index);
        return;
    }
    s->state = SNAPSHOT_KEPT;
    s->used = ++cache->clock;
    s->node = here;
    s->offset = offset;
    s->length = n;
    s->hash = hash;
    s->next = cache->nodes[here].first_snapshot;
    cache->nodes[here].first_snapshot = index;
    for (uint32_t page = here; page != root_of(cache); page = cache->nodes[page].parent)
        cache->nodes[page].n_below++;
    cache->saved++;
}
