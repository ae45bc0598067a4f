/* Entries lie in order of insertion; an open-addressed table of indices finds them. A removed entry keeps its
 * slot until the next rebuild, so that probing past it goes on. */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"

#define MOST_ENTRIES ((size_t)1 << 31)

static uint64_t rotate(uint64_t x, int n) {
    return (x << n) | (x >> (64 - n));
}

static void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

/* SipHash-1-3 of Aumasson and Bernstein, in host byte order. */
static uint64_t hash_of(const pgl_map *map, const char *key, size_t size) {
    uint64_t v[4] = {map->seed[0] ^ UINT64_C(0x736f6d6570736575), map->seed[1] ^ UINT64_C(0x646f72616e646f6d),
                     map->seed[0] ^ UINT64_C(0x6c7967656e657261),
                     map->seed[1] ^ UINT64_C(0x7465646279746573)};
    size_t i = 0;
    for (; size - i >= 8; i += 8) {
        uint64_t m;
        memcpy(&m, key + i, sizeof m);
        v[3] ^= m;
        sip_round(v);
        v[0] ^= m;
    }
    uint64_t last = 0;
    if (size > i)
        memcpy(&last, key + i, size - i);
    last ^= (uint64_t)size << 56;
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xFF;
    for (int r = 0; r < 3; r++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void pgl_map_fini(pgl_map *map) {
    for (size_t i = 0; i < map->n_entries; i++)
        free(map->entries[i].key);
    free(map->entries);
    free(map->slots);
    *map = (pgl_map)PGL_MAP_INIT;
}

static void place(pgl_map *map, size_t index) {
    size_t slot = (size_t)map->entries[index].hash & (map->n_slots - 1);
    while (map->slots[slot] != 0)
        slot = (slot + 1) & (map->n_slots - 1);
    map->slots[slot] = (uint32_t)index + 1;
}

/* Room for one more: drops removed entries and keeps the table at most half full. */
static bool make_room(pgl_map *map) {
    if (map->n_slots != 0 && (map->n_entries + 1) * 2 <= map->n_slots)
        return map->n_entries < map->capacity ||
               pgl_grow(&map->entries, sizeof *map->entries, &map->capacity, map->n_entries + 1);
    if (map->count + 1 >= MOST_ENTRIES)
        return false;
    if (map->n_slots == 0 &&
        getrandom(map->seed, sizeof map->seed, GRND_NONBLOCK) != (ssize_t)sizeof map->seed)
        map->seed[0] = (uint64_t)(uintptr_t)map ^ UINT64_C(0x9E3779B97F4A7C15);
    size_t n_slots = 16;
    while (n_slots < (map->count + 1) * 4)
        n_slots *= 2;
    if (!pgl_grow(&map->entries, sizeof *map->entries, &map->capacity, map->n_entries + 1))
        return false;
    uint32_t *slots = pgl_new(n_slots, sizeof *slots);
    if (slots == NULL)
        return false;
    free(map->slots);
    map->slots = slots;
    map->n_slots = n_slots;
    size_t kept = 0;
    for (size_t i = 0; i < map->n_entries; i++)
        if (map->entries[i].key != NULL)
            map->entries[kept++] = map->entries[i];
    map->n_entries = kept;
    for (size_t i = 0; i < kept; i++)
        place(map, i);
    return true;
}

static pgl_map_entry *lookup(const pgl_map *map, const char *key, size_t size, uint64_t hash) {
    if (map->n_slots == 0)
        return NULL;
    for (size_t slot = (size_t)hash & (map->n_slots - 1); map->slots[slot] != 0;
         slot = (slot + 1) & (map->n_slots - 1)) {
        pgl_map_entry *e = &map->entries[map->slots[slot] - 1];
        if (e->key != NULL && e->hash == hash && e->key_size == size && memcmp(e->key, key, size) == 0)
            return e;
    }
    return NULL;
}

bool pgl_map_set(pgl_map *map, const char *key, size_t key_size, void *value, void **old) {
    if (old != NULL)
        *old = NULL;
    pgl_map_entry *e = lookup(map, key, key_size, hash_of(map, key, key_size));
    if (e != NULL) {
        if (old != NULL)
            *old = e->value;
        e->value = value;
        return true;
    }
    if (!make_room(map))
        return false;
    char *copy = pgl_strndup(key, key_size);
    if (copy == NULL)
        return false;
    map->entries[map->n_entries] = (pgl_map_entry){
        .key = copy, .key_size = key_size, .hash = hash_of(map, key, key_size), .value = value};
    place(map, map->n_entries);
    map->n_entries++;
    map->count++;
    return true;
}

void *pgl_map_get(const pgl_map *map, const char *key, size_t key_size) {
    const pgl_map_entry *e = lookup(map, key, key_size, hash_of(map, key, key_size));
    return e == NULL ? NULL : e->value;
}

void *pgl_map_find(const pgl_map *map, const char *key) {
    return pgl_map_get(map, key, strlen(key));
}

void *pgl_map_remove(pgl_map *map, const char *key, size_t key_size) {
    pgl_map_entry *e = lookup(map, key, key_size, hash_of(map, key, key_size));
    if (e == NULL)
        return NULL;
    free(e->key);
    e->key = NULL;
    map->count--;
    return e->value;
}

const pgl_map_entry *pgl_map_next(const pgl_map *map, size_t *cursor) {
    while (*cursor < map->n_entries) {
        const pgl_map_entry *e = &map->entries[(*cursor)++];
        if (e->key != NULL)
            return e;
    }
    return NULL;
}
