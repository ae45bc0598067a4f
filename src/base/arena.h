/* Memory and other things that end together: one arena per request or per load.
 *
 * Allocations are never freed alone. Cleanup hooks (close a descriptor, free a grammar state) run in reverse
 * order of registration when the arena ends. One thread at a time. */
#ifndef PGL_BASE_ARENA_H
#define PGL_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct pgl_arena pgl_arena;

/* block_bytes: how much is asked of the system at a time; 0: 16 KiB. NULL when memory is out. */
pgl_arena *pgl_arena_open(size_t block_bytes);
void pgl_arena_close(pgl_arena *arena); /* runs the hooks, then frees; NULL is allowed */

/* Zeroed, aligned to 16 bytes; NULL when n * size overflows or memory is out. */
void *pgl_arena_new(pgl_arena *arena, size_t n, size_t size);

/* A copy with a zero behind it. */
char *pgl_arena_strndup(pgl_arena *arena, const char *text, size_t n);

/* False when memory is out: the hook was not registered, and the caller still owns the thing. */
bool pgl_arena_on_close(pgl_arena *arena, void (*hook)(void *), void *arg);

/* Bytes handed out so far. */
size_t pgl_arena_used(const pgl_arena *arena);

#endif
