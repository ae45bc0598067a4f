/* Private to the cache: cache.c has pages and snapshots, cache_tree.c the tree. */
#ifndef PGL_ENGINE_CACHE_IMPL_H
#define PGL_ENGINE_CACHE_IMPL_H

#include "engine/cache.h"

#define NONE UINT32_MAX

typedef enum snapshot_state { SNAPSHOT_FREE, SNAPSHOT_WRITING, SNAPSHOT_KEPT } snapshot_state;

/* Kept: position is in its node. */
typedef struct snapshot {
    snapshot_state state;
    bool unasked;
    uint64_t owner;
    uint64_t used;         /* clock of the last use */
    uint32_t node, offset; /* the first offset tokens of the node's page: 1 .. page_tokens */
    uint32_t length;       /* tokens from the start */
    uint64_t hash;         /* of them */
    uint32_t next;         /* in its node, or of the free list */
} snapshot;

/* Of one page. A node's number is its page's; the root is number n_pages. */
typedef struct node {
    uint32_t n_holders; /* sequences */
    bool in_tree;
    uint32_t next_free; /* of the free list */
    uint32_t parent, first_child, next_sibling;
    uint32_t n_tokens;       /* of the page, that are known to the tree */
    uint32_t first_snapshot; /* on this page */
    uint32_t n_below;        /* snapshots on this page and on all below it */
} node;

/* What was dropped last, so that a miss can say why. */
typedef struct tombstone {
    uint64_t hash;
    uint32_t length;
    pgl_miss why;
} tombstone;

enum { N_TOMBSTONES = 128 };

struct pgl_cache {
    pgl_cache_options options;
    node *nodes;     /* [n_pages + 1] */
    int32_t *tokens; /* [n_pages][page_tokens] */
    snapshot *snapshots;
    uint32_t free_page, n_free; /* list and its length */
    uint32_t n_cached;          /* held by the tree alone */
    uint32_t free_snapshot, n_snapshots_used;
    uint64_t clock;
    uint64_t saved, evicted;
    tombstone tombstones[N_TOMBSTONES];
    uint32_t next_tombstone;
};

#define PGL_HASH_START 0xCBF29CE484222325u

static inline uint64_t pgl_hash_token(uint64_t hash, int32_t token) {
    hash = (hash ^ (uint32_t)token) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

static inline int32_t *node_tokens(const pgl_cache *cache, uint32_t page) {
    return cache->tokens + (size_t)page * cache->options.page_tokens;
}

/* Takes a kept snapshot from the tree, with the nodes that lived for it alone, and frees it. */
void pgl_cache_evict(pgl_cache *cache, uint32_t snapshot, pgl_miss why);

/* A page has come to nobody. */
void pgl_cache_free_page(pgl_cache *cache, uint32_t page);

#endif
