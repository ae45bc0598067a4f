/* Pages, snapshots, and the prefix tree over both.
 *
 * A page holds the keys and values of page_tokens positions; a snapshot the recurrent state at one position. Both
 * are numbers here: their contents are the backend's. A running sequence holds references to its pages; the tree
 * holds those that a later prompt may share.
 *
 * The tree. A node is a page with the tokens that lie in it; its parent is the page before. Snapshots hang on
 * nodes, at any position inside the page. A prompt can be resumed at the deepest snapshot on its path: full pages
 * are shared, the one that the snapshot ends inside is copied. A node lives as long as there is a snapshot on it
 * or below it, so what the cache holds is always of use.
 *
 * Giving way. The first to go is the snapshot that saves least: the tokens between its neighbours on the path, which
 * may have to be read again without it, times its uses (a few of them), divided by the time since the last. So a
 * conversation thins out from its end, where the template or the user may yet change something, to its beginning, and
 * what many begin with stays.
 *
 * Host memory. With host_bytes, what gives way is first exported to host memory, and imported again when a prompt needs
 * it: a snapshot when its place is wanted, a page when the pages run out and nothing resident needs it. A snapshot and
 * a page are in one of the two places at a time. host_bytes are set aside at the start, in slabs that hold one
 * snapshot or some pages; when they are used up, what saves least there is dropped for good.
 *
 * The order of the caller's operations on the backend is the order of the calls here, and of the operations that the
 * cache itself asks for through `move`: a page, snapshot or piece of host memory that is given to somebody new may
 * still be read by operations planned before, and by none planned later.
 *
 * Owned by one thread. Nothing is allocated after open. */
#ifndef PGL_ENGINE_CACHE_H
#define PGL_ENGINE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/engine.h"

#define PGL_NO_PAGE UINT32_MAX
#define PGL_NO_SNAPSHOT UINT32_MAX

typedef struct pgl_cache pgl_cache;

typedef struct pgl_cache_options {
    uint32_t n_pages, page_tokens, n_snapshots;
    bool keep; /* false: no prefix is ever found or kept; snapshots may still be taken and dropped */

    uint64_t
        host_bytes; /* budget of host memory; less than one slab, which holds a snapshot or a page: none is used */
    uint64_t page_bytes, snapshot_bytes; /* of one, exported; needed with host_bytes */

    /* Plans COPY_PAGE, EXPORT_ or IMPORT_ operations, to be carried out before anything that is planned later. Called
     * from take_page, take_snapshot and use alone. False: it cannot be planned, and what it was for does not happen. */
    bool (*move)(void *user, const pgl_op *op);
    void *user;
} pgl_cache_options;

pgl_status pgl_cache_open(const pgl_cache_options *options, pgl_cache **out, pgl_error *err);
void pgl_cache_close(pgl_cache *cache); /* NULL is allowed */

/* ---- pages of sequences ---- */

/* A page for one sequence, free or taken from the tree; PGL_NO_PAGE when running sequences hold all. */
uint32_t pgl_cache_take_page(pgl_cache *cache);
void pgl_cache_share_page(pgl_cache *cache, uint32_t page); /* one more sequence holds it */
void pgl_cache_drop_page(pgl_cache *cache, uint32_t page);  /* one fewer */

/* Pages that take_page can give: free ones and those that the tree alone holds. */
uint32_t pgl_cache_available(const pgl_cache *cache);

/* ---- finding a prefix ---- */

typedef struct pgl_cache_hit {
    uint32_t n_tokens;           /* 0: nothing */
    uint32_t entry;              /* the cache's own name for what it found */
    uint32_t n_pages;            /* that the tokens lie in; of the last perhaps only a part */
    uint32_t n_resident;         /* of the full ones, those that need not be imported */
    uint32_t n_unused;           /* of these, held by the tree alone: to use them is to take them */
    pgl_cache_decision decision; /* its n_cached is n_tokens */
} pgl_cache_hit;

/* Nothing, for this reason. */
pgl_cache_hit pgl_cache_no_hit(pgl_miss miss);

/* The deepest snapshot on the path of tokens [n], of at most `most` tokens. */
pgl_cache_hit pgl_cache_find(const pgl_cache *cache, const int32_t *tokens, uint32_t n, uint32_t most);

/* Makes a hit just found ready for the caller's sequence: writes its pages, each with a reference, the last a copy of its
 * own when the tokens end inside it, and the snapshot to restore from, to be planned before the next call here.
 * False, with nothing held, when pages or snapshots do not suffice. */
bool pgl_cache_use(pgl_cache *cache, const pgl_cache_hit *hit, uint32_t *pages, uint32_t *snapshot);

/* ---- keeping a prefix ---- */

/* A snapshot to save into, free or one that gives way; PGL_NO_SNAPSHOT when all are being written. owner is the
 * number of the request. An owner whose unasked snapshots make up a quarter of all gives its own oldest. */
uint32_t pgl_cache_take_snapshot(pgl_cache *cache, uint64_t owner, bool unasked);

/* Later plans find the save complete: snapshot holds the state behind tokens [n], which lie in pages; the caller
 * still holds these. */
void pgl_cache_keep(pgl_cache *cache, uint32_t snapshot, const int32_t *tokens, uint32_t n,
                    const uint32_t *pages);

/* The save did not happen, or must not be used. */
void pgl_cache_drop_snapshot(pgl_cache *cache, uint32_t snapshot);

void pgl_cache_purge(pgl_cache *cache, uint64_t owner); /* all kept snapshots of one request */
void pgl_cache_clear(pgl_cache *cache);                 /* all kept snapshots */

typedef struct pgl_cache_stats {
    uint32_t n_free, n_cached, n_snapshots_used;
    uint64_t saved, evicted; /* evicted: gone for good */
    uint64_t host_bytes, host_bytes_used;
    uint32_t n_host_pages, n_host_snapshots;
    uint64_t exported_bytes, imported_bytes;
} pgl_cache_stats;

pgl_cache_stats pgl_cache_get_stats(const pgl_cache *cache);

/* True when every count agrees with what it counts: for tests. */
bool pgl_cache_consistent(const pgl_cache *cache);

#endif
