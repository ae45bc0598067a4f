#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define ALIGNMENT ((size_t)16)

typedef struct block {
    struct block *next;
    size_t capacity, used; /* of the bytes after the header */
} block;

typedef struct hook {
    struct hook *next;
    void (*run)(void *);
    void *arg;
} hook;

struct pgl_arena {
    block *blocks; /* the current one first */
    hook *hooks;   /* the last one first */
    size_t block_bytes;
    size_t used;
};

/* malloc aligns the block to 16; the header's size is a multiple of it. */
#define HEADER ((sizeof(block) + ALIGNMENT - 1) & ~(ALIGNMENT - 1))

pgl_arena *pgl_arena_open(size_t block_bytes) {
    pgl_arena *arena = pgl_new(1, sizeof *arena);
    if (arena != NULL)
        arena->block_bytes = block_bytes == 0 ? (size_t)16 << 10 : block_bytes;
    return arena;
}

void pgl_arena_close(pgl_arena *arena) {
    if (arena == NULL)
        return;
    for (hook *h = arena->hooks; h != NULL; h = h->next)
        h->run(h->arg);
    for (block *b = arena->blocks; b != NULL;) {
        block *next = b->next;
        free(b);
        b = next;
    }
    free(arena);
}

static block *add_block(pgl_arena *arena, size_t capacity) {
    size_t bytes;
    if (!pgl_add_size(HEADER, capacity, &bytes))
        return NULL;
    block *b = malloc(bytes);
    if (b == NULL)
        return NULL;
    b->capacity = capacity;
    b->used = 0;
    if (arena->blocks != NULL &&
        capacity > arena->block_bytes) { /* a large one: the current block stays in use */
        b->next = arena->blocks->next;
        arena->blocks->next = b;
    } else {
        b->next = arena->blocks;
        arena->blocks = b;
    }
    return b;
}

void *pgl_arena_new(pgl_arena *arena, size_t n, size_t size) {
    size_t bytes;
    if (!pgl_mul_size(n, size, &bytes) || !pgl_add_size(bytes, ALIGNMENT - 1, &bytes))
        return NULL;
    bytes &= ~(ALIGNMENT - 1);
    block *b = arena->blocks;
    if (b == NULL || b->capacity - b->used < bytes) {
        b = add_block(arena, bytes > arena->block_bytes ? bytes : arena->block_bytes);
        if (b == NULL)
            return NULL;
    }
    char *p = (char *)b + HEADER + b->used;
    b->used += bytes;
    arena->used += bytes;
    memset(p, 0, bytes);
    return p;
}

char *pgl_arena_strndup(pgl_arena *arena, const char *text, size_t n) {
    size_t bytes;
    if (!pgl_add_size(n, 1, &bytes))
        return NULL;
    char *p = pgl_arena_new(arena, bytes, 1);
    if (p != NULL && n > 0)
        memcpy(p, text, n);
    return p;
}

bool pgl_arena_on_close(pgl_arena *arena, void (*run)(void *), void *arg) {
    hook *h = pgl_arena_new(arena, 1, sizeof *h);
    if (h == NULL)
        return false;
    *h = (hook){.next = arena->hooks, .run = run, .arg = arg};
    arena->hooks = h;
    return true;
}

size_t pgl_arena_used(const pgl_arena *arena) {
    return arena->used;
}
