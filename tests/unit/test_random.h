/* For tests: a small generator with the same numbers everywhere. */
#ifndef PGL_TESTS_RANDOM_H
#define PGL_TESTS_RANDOM_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t *s) { /* splitmix64 */
    uint64_t z = (*s += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Uniform in [-1, 1). */
static inline float random_float(uint64_t *s) {
    return (float)((double)(int64_t)random_next(s) * 0x1p-63);
}

static inline uint32_t random_below(uint64_t *s, uint32_t n) {
    return (uint32_t)(((random_next(s) >> 32) * n) >> 32);
}

#endif
