/* Owns the host memory of the prefix cache and which parts of it are in use, not what is in them. */
#include <stdlib.h>

#include "base/alloc.h"
#include "engine/cache_impl.h"

enum { ALIGNMENT = 64 };

static uint64_t round_up(uint64_t n) {
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

pgl_status pgl_host_open(uint64_t bytes, uint64_t page_bytes, uint64_t snapshot_bytes, host_store *host,
                         pgl_error *err) {
    *host = (host_store){.page_bytes = round_up(page_bytes), .snapshot_bytes = round_up(snapshot_bytes)};
    if (bytes == 0 || page_bytes == 0 || snapshot_bytes == 0)
        return PGL_OK;
    host->slab_bytes = host->page_bytes > host->snapshot_bytes ? host->page_bytes : host->snapshot_bytes;
    uint64_t n = bytes / host->slab_bytes, per_slab = host->slab_bytes / host->page_bytes;
    if (n == 0)
        return PGL_OK;
    if (n > UINT32_MAX / 4 / per_slab || bytes > SIZE_MAX - ALIGNMENT)
        return pgl_fail(err, PGL_E_TOO_LARGE, "host memory of %llu bytes for the prefix cache is too much",
                        (unsigned long long)bytes);
    host->n_slabs = (uint32_t)n;
    host->pages_per_slab = (uint32_t)per_slab;
    /* Untouched parts of a large allocation cost nothing: the budget is what it may become. */
    host->memory = pgl_new((size_t)(n * host->slab_bytes) + ALIGNMENT, 1);
    host->slabs = pgl_new(n, sizeof *host->slabs);
    host->next_free = pgl_new(n * per_slab, sizeof *host->next_free);
    if (host->memory == NULL || host->slabs == NULL || host->next_free == NULL) {
        pgl_host_close(host);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for %llu bytes of prefix cache in host memory",
                        (unsigned long long)bytes);
    }
    host->base = host->memory + (ALIGNMENT - (uintptr_t)host->memory % ALIGNMENT) % ALIGNMENT;
    return PGL_OK;
}

void pgl_host_close(host_store *host) {
    free(host->memory);
    free(host->slabs);
    free(host->next_free);
    *host = (host_store){.memory = NULL};
}

static uint32_t find_slab(const host_store *host, bool partial) {
    for (uint32_t i = 0; i < host->n_slabs; i++) {
        const host_slab *slab = &host->slabs[i];
        bool used = slab->n_pages > 0;
        if (!slab->has_snapshot && used == partial && slab->n_pages < host->pages_per_slab)
            return i;
    }
    return NONE;
}

uint32_t pgl_host_take_slab(host_store *host) {
    uint32_t slab = find_slab(host, false);
    if (slab == NONE)
        return NONE;
    host->slabs[slab].has_snapshot = true;
    host->n_snapshots++;
    return slab;
}

void pgl_host_free_slab(host_store *host, uint32_t slab) {
    host->slabs[slab].has_snapshot = false;
    host->n_snapshots--;
}

uint32_t pgl_host_take_block(host_store *host) {
    uint32_t index = find_slab(host, true);
    if (index == NONE) {
        index = find_slab(host, false);
        if (index == NONE)
            return NONE;
        uint32_t first = index * host->pages_per_slab;
        host->slabs[index].first_free = first;
        for (uint32_t i = 0; i < host->pages_per_slab; i++)
            host->next_free[first + i] = i + 1 < host->pages_per_slab ? first + i + 1 : NONE;
    }
    host_slab *slab = &host->slabs[index];
    uint32_t block = slab->first_free;
    slab->first_free = host->next_free[block];
    slab->n_pages++;
    host->n_pages++;
    return block;
}

void pgl_host_free_block(host_store *host, uint32_t block) {
    host_slab *slab = &host->slabs[block / host->pages_per_slab];
    host->next_free[block] = slab->first_free;
    slab->first_free = block;
    slab->n_pages--;
    host->n_pages--;
}

void *pgl_host_slab(const host_store *host, uint32_t slab) {
    return host->base + slab * host->slab_bytes;
}

void *pgl_host_block(const host_store *host, uint32_t block) {
    return host->base + block / host->pages_per_slab * host->slab_bytes +
           block % host->pages_per_slab * host->page_bytes;
}

bool pgl_host_consistent(const host_store *host) {
    uint32_t n_pages = 0, n_snapshots = 0;
    for (uint32_t i = 0; i < host->n_slabs; i++) {
        const host_slab *slab = &host->slabs[i];
        if (slab->n_pages > host->pages_per_slab || (slab->has_snapshot && slab->n_pages > 0))
            return false;
        n_pages += slab->n_pages;
        n_snapshots += slab->has_snapshot;
    }
    return n_pages == host->n_pages && n_snapshots == host->n_snapshots;
}
