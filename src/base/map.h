/* A hash map from byte strings to pointers, walked in the order of insertion.
 *
 * Keys are copied. Values belong to the caller. Hashing is keyed with random bits of each map, so that keys
 * from outside cannot be chosen to collide; the order of the walk does not depend on them. One thread at a
 * time; several may read an unchanging map. */
#ifndef PGL_BASE_MAP_H
#define PGL_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pgl_map_entry {
    char *key; /* with a zero behind it; NULL: removed */
    size_t key_size;
    uint64_t hash;
    void *value;
} pgl_map_entry;

typedef struct pgl_map {
    pgl_map_entry *entries;
    size_t n_entries, capacity; /* with the removed ones */
    size_t count;
    uint32_t *slots; /* 1 + index into entries; 0: free */
    size_t n_slots;  /* a power of two, or 0 */
    uint64_t seed[2];
} pgl_map;

#define PGL_MAP_INIT                                                                                         \
    {                                                                                                        \
        NULL, 0, 0, 0, NULL, 0, {                                                                            \
            0, 0                                                                                             \
        }                                                                                                    \
    }

void pgl_map_fini(pgl_map *map);

/* Puts value under key, replacing what was there; *old, when not NULL, receives what was (NULL when new).
 * False, with the map unchanged, when memory is out or there are 2^31 keys. value must not be NULL. */
bool pgl_map_set(pgl_map *map, const char *key, size_t key_size, void *value, void **old);

/* NULL when there is no such key. */
void *pgl_map_get(const pgl_map *map, const char *key, size_t key_size);
void *pgl_map_find(const pgl_map *map, const char *key); /* of a terminated key */

/* Returns the value, or NULL when there was none. */
void *pgl_map_remove(pgl_map *map, const char *key, size_t key_size);

/* The entry at or after *cursor (start with 0), moving it on; NULL at the end. Sets during a walk may or may
 * not be seen; removing the entry just returned is allowed. */
const pgl_map_entry *pgl_map_next(const pgl_map *map, size_t *cursor);

#endif
