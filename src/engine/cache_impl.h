/* Private to the cache: cache.c has pages, snapshots and what gives way, cache_tree.c the tree, cache_host.c the host
 * memory. */
#ifndef PGL_ENGINE_CACHE_IMPL_H
#define PGL_ENGINE_CACHE_IMPL_H

#include "engine/cache.h"

#define NONE UINT32_MAX

typedef enum entry_state { ENTRY_FREE, ENTRY_WRITING, ENTRY_KEPT } entry_state;

/* A snapshot, wherever its contents are. WRITING: in the backend's snapshot `device`. KEPT: there or in `slab`, and its
 * position is in its node. */
typedef struct entry {
    entry_state state;
    bool unasked;
    uint32_t device, slab; /* one of them is NONE */
    uint64_t owner;
    uint64_t used;         /* clock of the last use */
    uint32_t n_used;       /* prompts that were taken up from it */
    uint32_t node, offset; /* the first offset tokens of the node's page: 1 .. page_tokens */
    uint32_t length;       /* tokens from the start */
    uint64_t hash;         /* of them */
    uint32_t next;         /* in its node, or of the free list */
} entry;

typedef struct page {
    uint32_t n_holders; /* sequences */
    uint32_t node;      /* NONE: the tree does not know it */
    uint32_t next_free; /* of the free list */
} page;

/* The root is number n_nodes. */
typedef struct node {
    uint32_t page,
        block; /* one of them is NONE (both in a free node): contents are here, or in host memory */
    uint32_t parent, first_child, next_sibling; /* next_sibling: also of the free list */
    uint32_t n_tokens;                          /* of the page, that are known to the tree */
    uint32_t first_entry;                       /* on this page */
    uint32_t n_below;                           /* entries on this page and on all below it */
    uint32_t n_resident;                        /* of them, those whose snapshot is the backend's */
    uint64_t used;                              /* clock of the last use of an entry on it or below */
} node;

/* What was dropped last, so that a miss can say why. */
typedef struct tombstone {
    uint64_t hash;
    uint32_t length;
    pgl_miss why;
} tombstone;

enum { N_TOMBSTONES = 128 };

/* Host memory: slabs that hold one snapshot, or pages_per_slab pages. Blocks are numbered through all slabs. */
typedef struct host_slab {
    bool has_snapshot;
    uint32_t n_pages;    /* in use */
    uint32_t first_free; /* block */
} host_slab;

typedef struct host_store {
    uint8_t *memory, *base; /* as allocated; the first slab */
    uint64_t slab_bytes, page_bytes, snapshot_bytes;
    uint32_t n_slabs, pages_per_slab;
    host_slab *slabs;
    uint32_t *next_free; /* [n_slabs * pages_per_slab] */
    uint32_t n_pages, n_snapshots;
} host_store;

struct pgl_cache {
    pgl_cache_options options;
    page *pages;            /* [n_pages] */
    node *nodes;            /* [n_nodes + 1] */
    int32_t *tokens;        /* [n_nodes][page_tokens] */
    entry *entries;         /* [n_entries] */
    uint32_t *device_entry; /* [n_snapshots]; of a free one: the next free one */
    uint32_t n_nodes, n_entries;
    uint32_t free_page, n_free; /* list and its length */
    uint32_t n_cached;          /* held by the tree alone */
    uint32_t free_node, free_entry, free_device, n_snapshots_used;
    uint32_t pinned; /* entry that must stay where it is; NONE */
    host_store host;
    uint64_t clock;
    uint64_t saved, evicted, exported_bytes, imported_bytes;
    tombstone tombstones[N_TOMBSTONES];
    uint32_t next_tombstone;
};

#define PGL_HASH_START 0xCBF29CE484222325u

static inline uint64_t pgl_hash_token(uint64_t hash, int32_t token) {
    hash = (hash ^ (uint32_t)token) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

static inline int32_t *node_tokens(const pgl_cache *cache, uint32_t index) {
    return cache->tokens + (size_t)index * cache->options.page_tokens;
}

static inline uint32_t root_of(const pgl_cache *cache) {
    return cache->n_nodes;
}

/* ---- cache.c ---- */

void pgl_cache_free_page(pgl_cache *cache, uint32_t page); /* it has come to nobody */
void pgl_cache_release_device(pgl_cache *cache,
                              uint32_t entry); /* the entry's snapshot of the backend becomes free */

/* Entries on the path of one, itself and its node included, have become so many more (or fewer) resident ones. */
void pgl_cache_count_resident(pgl_cache *cache, uint32_t node, int change);

/* ---- cache_tree.c ---- */

/* Takes a kept entry from the tree, with the nodes that lived for it alone, and frees it. */
void pgl_cache_evict(pgl_cache *cache, uint32_t entry, pgl_miss why);

/* What a prompt may have to read again without the entry: the tokens from the next shallower one on its path to the
 * next deeper one, or to itself when it is the deepest. */
uint32_t pgl_cache_span(const pgl_cache *cache, uint32_t entry);

/* ---- cache_host.c ---- */

/* As many slabs as bytes hold; none when page_bytes or snapshot_bytes is 0. */
pgl_status pgl_host_open(uint64_t bytes, uint64_t page_bytes, uint64_t snapshot_bytes, host_store *host,
                         pgl_error *err);
void pgl_host_close(host_store *host);

/* NONE when there is no room. */
uint32_t pgl_host_take_slab(host_store *host);
void pgl_host_free_slab(host_store *host, uint32_t slab);
uint32_t pgl_host_take_block(host_store *host);
void pgl_host_free_block(host_store *host, uint32_t block);

void *pgl_host_slab(const host_store *host, uint32_t slab);
void *pgl_host_block(const host_store *host, uint32_t block);

bool pgl_host_consistent(const host_store *host);

#endif
