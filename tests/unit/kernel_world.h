/* For tests of the CUDA backend's kernels on the host: arrays with guards, launches, comparisons. */
#ifndef PGL_TESTS_KERNEL_WORLD_H
#define PGL_TESTS_KERNEL_WORLD_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/kernels/kernels.h"
#include "base/fp16.h"
#include "emulate.h"
#include "test_random.h"

#define KW_GUARD 256u
#define KW_POISON 0xFD /* as floats and as fp16: NaN would hide in comparisons; this is a large number */

/* Arrays of one test, released together; each has a guard on either side that must stay as it was. */
typedef struct kernel_world {
    unsigned char *block[128];
    size_t bytes[128];
    uint32_t n;
    uint64_t seed;
} kernel_world;

static inline void *kw_get(kernel_world *w, size_t count, size_t size) {
    size_t bytes = (count * size + 15) / 16 * 16;
    unsigned char *p = aligned_alloc(16, bytes + 2 * KW_GUARD);
    assert_non_null(p);
    assert_true(w->n < 128);
    memset(p, KW_POISON, bytes + 2 * KW_GUARD);
    w->block[w->n] = p;
    w->bytes[w->n++] = count * size;
    return p + KW_GUARD;
}
#define KW_GET(world, type, count) ((type *)kw_get((world), (count), sizeof(type)))

static inline void kw_end(kernel_world *w) {
    for (uint32_t i = 0; i < w->n; i++) {
        unsigned char *p = w->block[i];
        for (size_t j = 0; j < KW_GUARD; j++) {
            if (p[j] != KW_POISON || p[KW_GUARD + w->bytes[i] + j] != KW_POISON)
                fail_msg("array %u was written outside its %zu bytes", i, w->bytes[i]);
        }
        free(p);
    }
    w->n = 0;
}

static inline float *kw_random(kernel_world *w, size_t count, float scale) {
    float *p = KW_GET(w, float, count);
    for (size_t i = 0; i < count; i++)
        p[i] = random_float(&w->seed) * scale;
    return p;
}

static inline uint16_t *kw_random16(kernel_world *w, size_t count, float scale) {
    uint16_t *p = KW_GET(w, uint16_t, count);
    for (size_t i = 0; i < count; i++)
        p[i] = pgl_f32_to_f16(random_float(&w->seed) * scale);
    return p;
}

static inline void *kw_random_bytes(kernel_world *w, size_t count) {
    unsigned char *p = KW_GET(w, unsigned char, count);
    for (size_t i = 0; i < count; i++)
        p[i] = (unsigned char)(random_next(&w->seed) >> 56);
    return p;
}

static inline float *kw_widened(kernel_world *w, const uint16_t *x, size_t count) {
    float *p = KW_GET(w, float, count);
    for (size_t i = 0; i < count; i++)
        p[i] = pgl_f16_to_f32(x[i]);
    return p;
}

static inline void kw_launch(const char *name, uint32_t x, uint32_t y, uint32_t z, uint32_t threads,
                             const void *args) {
    const uint32_t grid[3] = {x, y, z}, block[3] = {threads, 1, 1};
    if (pgl_emulate(name, grid, block, args) != 0)
        fail_msg("kernel %s was not run", name);
}

/* Every entry within `within` of the largest entry of its row. */
static inline void kw_near(const char *what, const float *got, const float *want, size_t rows, size_t width,
                           double within) {
    for (size_t r = 0; r < rows; r++) {
        double most = 0;
        for (size_t i = 0; i < width; i++)
            most = fmax(most, fabs((double)want[r * width + i]));
        for (size_t i = 0; i < width; i++) {
            double d = fabs((double)got[r * width + i] - (double)want[r * width + i]);
            if (!(d <= within * most))
                fail_msg("%s: row %zu, %zu: %.9g, expected %.9g (largest %.9g)", what, r, i,
                         (double)got[r * width + i], (double)want[r * width + i], most);
        }
    }
}

static inline void kw_near16(const char *what, const uint16_t *got, const float *want, size_t rows,
                             size_t width, double within) {
    float *wide = malloc(rows * width * sizeof *wide);
    assert_non_null(wide);
    for (size_t i = 0; i < rows * width; i++)
        wide[i] = pgl_f16_to_f32(got[i]);
    kw_near(what, wide, want, rows, width, within);
    free(wide);
}

static inline int32_t kw_order(uint16_t h) { /* rises with the number, by one a unit in the last place */
    return (h & 0x8000) != 0 ? -(int32_t)(h & 0x7FFF) : (int32_t)h;
}

/* fp16 numbers: equal but for one unit in the last place in at most 1 % of the entries, zeros exactly. */
static inline void kw_units(const char *what, const uint16_t *got, const float *want, size_t n) {
    size_t off = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t d = kw_order(got[i]) - kw_order(pgl_f32_to_f16(want[i]));
        if (d > 1 || d < -1 || (want[i] == 0 && d != 0))
            fail_msg("%s: %zu: %.9g, expected %.9g", what, i, (double)pgl_f16_to_f32(got[i]),
                     (double)want[i]);
        off += d != 0;
    }
    if (off > n / 100 + 1)
        fail_msg("%s: %zu of %zu differ by a unit", what, off, n);
}

#endif
