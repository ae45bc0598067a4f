/* Owns nothing: every block belongs to the caller. */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

bool pgl_mul_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool pgl_add_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool pgl_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool pgl_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

void *pgl_new(size_t n, size_t size) {
    size_t bytes;
    if (!pgl_mul_size(n, size, &bytes))
        return NULL;
    return calloc(1, bytes == 0 ? 1 : bytes);
}

void *pgl_new_aligned(size_t n, size_t size) {
    size_t bytes;
    if (!pgl_mul_size(n, size, &bytes) || !pgl_add_size(bytes, 63, &bytes))
        return NULL;
    bytes &= ~(size_t)63;
    if (bytes == 0)
        bytes = 64;
    void *p = aligned_alloc(64, bytes);
    if (p != NULL)
        memset(p, 0, bytes);
    return p;
}

bool pgl_grow(void *array, size_t size, size_t *capacity, size_t need) {
    if (need <= *capacity)
        return true;
    size_t n = *capacity < 8 ? 8 : *capacity;
    while (n < need)
        if (!pgl_mul_size(n, 2, &n))
            return false;
    size_t bytes;
    if (!pgl_mul_size(n, size, &bytes))
        return false;
    void *old;
    memcpy(&old, array, sizeof old);
    void *p = realloc(old, bytes);
    if (p == NULL)
        return false;
    memcpy(array, &p, sizeof p);
    *capacity = n;
    return true;
}

char *pgl_strndup(const char *text, size_t n) {
    size_t bytes;
    if (!pgl_add_size(n, 1, &bytes))
        return NULL;
    char *p = malloc(bytes);
    if (p == NULL)
        return NULL;
    if (n > 0)
        memcpy(p, text, n);
    p[n] = 0;
    return p;
}
