/* The words of src/backend/cuda/kernels/vocab.h on the host. */
#ifndef PGL_TESTS_EMULATE_DEVICE_H
#define PGL_TESTS_EMULATE_DEVICE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/fp16.h"

#define PGL_DEVICE static inline __attribute__((unused))
#define PGL_KERNEL(name, threads)                                                                            \
    void pgl_k_##name(const pgl_##name##_args a);                                                            \
    void pgl_k_##name(const pgl_##name##_args a)
#define PGL_SHARED(type, name, count) type *name = emu_shared((count) * sizeof(type))
#define PGL_UNROLL

typedef struct emu_place {
    uint32_t thread, block[3], grid[3];
} emu_place;
extern emu_place emu_now; /* of the fibre that runs */

#define pgl_thread (emu_now.thread)
#define pgl_block_x (emu_now.block[0])
#define pgl_block_y (emu_now.block[1])
#define pgl_block_z (emu_now.block[2])
#define pgl_grid_y (emu_now.grid[1])

typedef struct pgl_word4 {
    uint32_t x, y, z, w;
} pgl_word4;

typedef struct pgl_word2 {
    uint32_t x, y;
} pgl_word2;

void *emu_shared(size_t bytes);
void pgl_block_sync(void);
void pgl_warp_sync(void);
float pgl_exchange(float v, uint32_t mask);
uint32_t pgl_exchange_u32(uint32_t v, uint32_t mask);
uint32_t pgl_shuffle(uint32_t v, uint32_t from);
pgl_word2 pgl_stream2(const void *p); /* ends the program where p is not a multiple of 8 */
pgl_word4 pgl_load4(const void *p);   /* ends the program where p is not a multiple of 16 */
void pgl_mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1);
void pgl_mma_add(uint32_t d[2], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1);
uint32_t pgl_hmul2(uint32_t x, uint32_t y);
uint32_t pgl_hsub2(uint32_t x, uint32_t y);
uint32_t pgl_permute(uint32_t lo, uint32_t hi, uint32_t s);
float pgl_h2f(uint32_t h);
uint16_t pgl_f2h(float v);

static inline pgl_word4 pgl_stream4(const void *p) {
    return pgl_load4(p);
}
static inline void pgl_wait(void) {}
static inline void pgl_release(void) {}
static inline uint32_t pgl_bits(float v) {
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}
static inline float pgl_from_bits(uint32_t b) {
    float v;
    memcpy(&v, &b, sizeof v);
    return v;
}
static inline uint32_t pgl_funnel(uint32_t lo, uint32_t hi, uint32_t n) {
    return (uint32_t)(((uint64_t)hi << 32 | lo) >> n);
}

#endif
