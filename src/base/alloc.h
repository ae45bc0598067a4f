/* Checked sizes and allocations. Every product and sum of sizes that come from outside goes through these. */
#ifndef PGL_BASE_ALLOC_H
#define PGL_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a * b (a + b); false, with *out untouched, when that does not fit. */
bool pgl_mul_size(size_t a, size_t b, size_t *out);
bool pgl_add_size(size_t a, size_t b, size_t *out);
bool pgl_mul_u64(uint64_t a, uint64_t b, uint64_t *out);
bool pgl_add_u64(uint64_t a, uint64_t b, uint64_t *out);

/* Zeroed memory for n elements of size bytes, NULL when n * size overflows or memory is out. n = 0 gives a
 * pointer that may be freed. free() releases. */
void *pgl_new(size_t n, size_t size);

/* The same, aligned to 64 bytes (a cache line, and the widest vector). free() releases. */
void *pgl_new_aligned(size_t n, size_t size);

/* Grows an array of *capacity elements to hold at least need; doubles. false leaves array and capacity as
 * they were. pgl_grow(&v, sizeof *v, &capacity, need) */
bool pgl_grow(void *array, size_t size, size_t *capacity, size_t need);

/* A copy of n bytes with a zero behind it; NULL when memory is out. free() releases. */
char *pgl_strndup(const char *text, size_t n);

#endif
