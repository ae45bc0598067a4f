/* Sixteen f32 lanes on AArch64 with NEON, which every such processor has: the vocabulary that kernels_v16*.h is written
 * in. Lane l of dot16 is lane l here. Included by kernels_neon.c alone. */
#ifndef PGL_BACKEND_CPU_V16_NEON_H
#define PGL_BACKEND_CPU_V16_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "codec/codec.h"

#define V16_INLINE static inline __attribute__((always_inline))

/* Register blocks: 32 registers hold 24 accumulators of 4 lanes. */
#define DENSE_ROWS_1 4 /* weight rows at once for one token */
#define DENSE_ROWS 2   /* weight rows and tokens at once for several */
#define DENSE_TOKENS 3
#define DENSE_FEW 6  /* up to here weights are widened again for each block of tokens */
#define CODED_ROWS 6 /* rows of activations that share a decoded tile */
#define CODED_CASES(f) f(2) f(3) f(4) f(5) f(6)

typedef struct v16 {
    float32x4_t v[4]; /* lanes 0 .. 3, 4 .. 7, 8 .. 11, 12 .. 15 */
} v16;

/* f(0) .. f(3), as the initialiser of a v16 */
#define V16_EACH(f)                                                                                          \
    (v16) {                                                                                                  \
        { f(0), f(1), f(2), f(3) }                                                                           \
    }

V16_INLINE v16 v16_set1(float x) {
    float32x4_t v = vdupq_n_f32(x);
    return (v16){{v, v, v, v}};
}
V16_INLINE v16 v16_zero(void) {
    return v16_set1(0.0F);
}
V16_INLINE v16 v16_load(const float *p) {
    return (v16){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
V16_INLINE void v16_store(float *p, v16 x) {
    vst1q_f32(p, x.v[0]);
    vst1q_f32(p + 4, x.v[1]);
    vst1q_f32(p + 8, x.v[2]);
    vst1q_f32(p + 12, x.v[3]);
}
V16_INLINE v16 v16_add(v16 x, v16 y) {
#define ADD(i) vaddq_f32(x.v[i], y.v[i])
    return V16_EACH(ADD);
#undef ADD
}
V16_INLINE v16 v16_sub(v16 x, v16 y) {
#define SUB(i) vsubq_f32(x.v[i], y.v[i])
    return V16_EACH(SUB);
#undef SUB
}
V16_INLINE v16 v16_mul(v16 x, v16 y) {
#define MUL(i) vmulq_f32(x.v[i], y.v[i])
    return V16_EACH(MUL);
#undef MUL
}
V16_INLINE v16 v16_div(v16 x, v16 y) {
#define DIV(i) vdivq_f32(x.v[i], y.v[i])
    return V16_EACH(DIV);
#undef DIV
}
/* x * y + z, z - x * y: rounded once */
V16_INLINE v16 v16_fma(v16 x, v16 y, v16 z) {
#define FMA(i) vfmaq_f32(z.v[i], x.v[i], y.v[i])
    return V16_EACH(FMA);
#undef FMA
}
V16_INLINE v16 v16_fnma(v16 x, v16 y, v16 z) {
#define FNMA(i) vfmsq_f32(z.v[i], x.v[i], y.v[i])
    return V16_EACH(FNMA);
#undef FNMA
}
/* x > y ? x : y and x < y ? x : y: the second operand where one is a NaN, which vmaxq and vminq do not promise */
V16_INLINE float32x4_t v4_max(float32x4_t x, float32x4_t y) {
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}
V16_INLINE v16 v16_max(v16 x, v16 y) {
#define MAX(i) v4_max(x.v[i], y.v[i])
    return V16_EACH(MAX);
#undef MAX
}
V16_INLINE v16 v16_min(v16 x, v16 y) {
#define MIN(i) vbslq_f32(vcltq_f32(x.v[i], y.v[i]), x.v[i], y.v[i])
    return V16_EACH(MIN);
#undef MIN
}
V16_INLINE v16 v16_neg(v16 x) {
#define NEG(i) vnegq_f32(x.v[i])
    return V16_EACH(NEG);
#undef NEG
}

/* x in the lanes below n, y in the others; n <= 16 */
V16_INLINE v16 v16_select(uint32_t n, v16 x, v16 y) {
    static const uint32_t LANES[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    uint32x4_t count = vdupq_n_u32(n);
#define SELECT(i) vbslq_f32(vcgtq_u32(count, vld1q_u32(LANES + 4 * (i))), x.v[i], y.v[i])
    return V16_EACH(SELECT);
#undef SELECT
}
/* The first n lanes alone, zeros in the others; nothing behind them is touched. */
V16_INLINE v16 v16_load_n(const float *p, uint32_t n) {
    float lanes[16] = {0};
    memcpy(lanes, p, n * sizeof *lanes);
    return v16_load(lanes);
}
V16_INLINE void v16_store_n(float *p, v16 x, uint32_t n) {
    float lanes[16];
    v16_store(lanes, x);
    memcpy(p, lanes, n * sizeof *lanes);
}

V16_INLINE v16 v16_xor_bits(v16 x, const void *p) {
    const uint8_t *q = p;
#define XOR(i) vreinterpretq_f32_u8(veorq_u8(vreinterpretq_u8_f32(x.v[i]), vld1q_u8(q + 16 * (size_t)(i))))
    return V16_EACH(XOR);
#undef XOR
}

/* One register, for loops that must keep accumulators in registers: four of them are a v16. */
typedef float32x4_t vec;
#define VEC_LANES 4u

V16_INLINE vec vec_zero(void) {
    return vdupq_n_f32(0.0F);
}
V16_INLINE vec vec_load(const float *p) {
    return vld1q_f32(p);
}
V16_INLINE void vec_store(float *p, vec x) {
    vst1q_f32(p, x);
}
V16_INLINE vec vec_fma(vec x, vec y, vec z) {
    return vfmaq_f32(z, x, y);
}
/* w8 * scale rounded to 11 bits: z = 8193 scale, y = 8192 scale */
V16_INLINE vec vec_scale11(vec w8, float y, float z) {
    return vfmsq_f32(vmulq_n_f32(w8, z), w8, vdupq_n_f32(y));
}
/* f16(x), widened again */
V16_INLINE float32x4_t v4_round16(float32x4_t x) {
    return vcvt_f32_f16(vcvt_f16_f32(x));
}
/* f16(x * y), widened again */
V16_INLINE vec vec_scale16(vec x, float y) {
    return v4_round16(vmulq_n_f32(x, y));
}
/* Numbers of a checkpoint, widened; no alignment. */
V16_INLINE vec vec_load_f16(const void *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
V16_INLINE vec vec_load_bf16(const void *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}
V16_INLINE vec vec_load_i8(const void *p) {
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four)))));
}
V16_INLINE float f32_of_f16(const void *p) {
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
}
V16_INLINE v16 v16_of(const vec x[4]) {
    return (v16){{x[0], x[1], x[2], x[3]}};
}

V16_INLINE v16 v16_load_f16(const void *p) {
#define LOAD(i) vec_load_f16((const char *)p + 8 * (size_t)(i))
    return V16_EACH(LOAD);
#undef LOAD
}
V16_INLINE void v16_store_f16(void *p, v16 x) {
    for (size_t i = 0; i < 4; i++)
        vst1_u8((uint8_t *)p + 8 * i, vreinterpret_u8_f16(vcvt_f16_f32(x.v[i])));
}
V16_INLINE v16 v16_round16(v16 x) {
#define ROUND(i) v4_round16(x.v[i])
    return V16_EACH(ROUND);
#undef ROUND
}

/* pgl_lanes_sum */
V16_INLINE float v16_sum(v16 x) {
    float32x4_t four = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
V16_INLINE float v16_largest(v16 x) {
    float32x4_t four = v4_max(v4_max(x.v[0], x.v[2]), v4_max(x.v[1], x.v[3]));
    float32x4_t two = v4_max(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(v4_max(two, vextq_f32(two, two, 1)), 0);
}
/* Whether all lanes are zero (of either sign). */
V16_INLINE int v16_all_zero(v16 x) {
    uint32x4_t all = vandq_u32(vandq_u32(vceqzq_f32(x.v[0]), vceqzq_f32(x.v[1])),
                               vandq_u32(vceqzq_f32(x.v[2]), vceqzq_f32(x.v[3])));
    return vminvq_u32(all) != 0;
}

V16_INLINE float32x4_t v4_scale2(float32x4_t p, float32x4_t t) {
    int32x4_t i = vsubq_s32(vreinterpretq_s32_f32(t), vdupq_n_s32((int32_t)PGL_EXP_MAGIC_BITS));
    int32x4_t half = vshrq_n_s32(i, 1), bias = vdupq_n_s32(127);
    int32x4_t first = vshlq_n_s32(vaddq_s32(half, bias), 23);
    int32x4_t second = vshlq_n_s32(vaddq_s32(vsubq_s32(i, half), bias), 23);
    return vmulq_f32(vmulq_f32(p, vreinterpretq_f32_s32(first)), vreinterpretq_f32_s32(second));
}
/* The last line of pgl_expf: (p * 2^h) * 2^(i - h), i the integer in t. */
V16_INLINE v16 v16_scale2(v16 p, v16 t) {
#define SCALE(i) v4_scale2(p.v[i], t.v[i])
    return V16_EACH(SCALE);
#undef SCALE
}

/* The butterfly of lanes that are `stride` (1, 2, 4 or 8) apart: the sum below, the difference above. */
V16_INLINE float32x4_t v4_butterfly(float32x4_t x, float32x4_t swapped, uint32x4_t above) {
    uint32x4_t sign = vandq_u32(above, vdupq_n_u32(0x80000000u));
    return vaddq_f32(swapped, vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(x), sign)));
}
V16_INLINE v16 v16_butterfly(v16 x, int stride) {
    static const uint32_t ABOVE_1[4] = {0, ~0u, 0, ~0u}, ABOVE_2[4] = {0, 0, ~0u, ~0u};
    if (stride == 1) {
#define ONE(i) v4_butterfly(x.v[i], vrev64q_f32(x.v[i]), vld1q_u32(ABOVE_1))
        return V16_EACH(ONE);
#undef ONE
    }
    if (stride == 2) {
#define TWO(i) v4_butterfly(x.v[i], vextq_f32(x.v[i], x.v[i], 2), vld1q_u32(ABOVE_2))
        return V16_EACH(TWO);
#undef TWO
    }
    int far = stride / 4; /* registers apart */
    v16 y;
    for (int i = 0; i < 4; i++) {
        float32x4_t u = x.v[i & ~far], v = x.v[i | far];
        y.v[i] = (i & far) == 0 ? vaddq_f32(u, v) : vsubq_f32(u, v);
    }
    return y;
}

/* ---- the trellis */

/* The 32-bit windows of one tile's lanes q = 0 .. 3, one vector lane for each pair of output channels c and c + 8, in
 * their order. Weight j of lane q stands `shift` bits above the end of its window. */
typedef struct v8_words {
    uint32x4_t v[2]; /* c = 0 .. 3 and 4 .. 7 */
} v8_words;

typedef struct v16_windows {
    v8_words low[4], high[4]; /* j = 0 .. 3 and 4 .. 7 */
} v16_windows;

/* pgl_codebook of the states in the low 16 bits of each lane, as f32. Both halves have exponents of 2^-3 .. 2^0, so
 * that their f32 sum f is an exact multiple of 2^-13 below 4, and its rounding to 11 bits is 8193 f - 8192 f: the
 * first product is rounded where 8192 f is exact. */
V16_INLINE float32x4_t v4_codebook(uint32x4_t state) {
    const uint32x4_t keep = vdupq_n_u32(0x81FFE000u), flip = vdupq_n_u32(0x3F6C0000u);
    uint32x4_t m = vmulq_u32(state, vdupq_n_u32(0xCBAC1FEDu));
    uint32x4_t high = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(m), 3));
    uint32x4_t low = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(vshlq_n_u32(m, 16)), 3));
    float32x4_t f = vaddq_f32(vreinterpretq_f32_u32(veorq_u32(vandq_u32(high, keep), flip)),
                              vreinterpretq_f32_u32(veorq_u32(vandq_u32(low, keep), flip)));
    return vfmsq_f32(vmulq_n_f32(f, 8193.0F), f, vdupq_n_f32(8192.0F));
}
V16_INLINE float32x4_t v4_weight(uint32x4_t window, int shift) {
    uint32x4_t state = vshlq_u32(window, vdupq_n_s32(-shift)); /* to the right */
    return v4_codebook(vandq_u32(state, vdupq_n_u32(0xFFFF)));
}
V16_INLINE v8_words v8_funnel(v8_words before, v8_words word, int bits) {
    int32x4_t left = vdupq_n_s32(bits), right = vdupq_n_s32(bits - 32);
    return (v8_words){{vorrq_u32(vshlq_u32(before.v[0], left), vshlq_u32(word.v[0], right)),
                       vorrq_u32(vshlq_u32(before.v[1], left), vshlq_u32(word.v[1], right))}};
}
/* Word by word those of channel c - 1, around the tile. */
V16_INLINE v8_words v8_before(v8_words x) {
    return (v8_words){{vextq_u32(x.v[1], x.v[0], 3), vextq_u32(x.v[0], x.v[1], 3)}};
}
V16_INLINE uint32x4_t v4_words(const void *code, int at) {
    return vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)code + 4 * at));
}

/* K = 2: two words for each c. The lane pairs of q end 16 (q + 1) bits into them. */
V16_INLINE v16_windows v16_windows_2(const void *code) {
    uint32x4_t a = v4_words(code, 0), b = v4_words(code, 4), c = v4_words(code, 8), d = v4_words(code, 12);
    v8_words even = {{vuzp1q_u32(a, b), vuzp1q_u32(c, d)}}, odd = {{vuzp2q_u32(a, b), vuzp2q_u32(c, d)}};
    v16_windows w;
    w.low[0] = v8_funnel(v8_before(odd), even, 16);
    w.low[1] = even;
    w.low[2] = v8_funnel(even, odd, 16);
    w.low[3] = odd;
    for (int q = 0; q < 4; q++)
        w.high[q] = w.low[q];
    return w;
}

/* K = 3: three words for each c. */
V16_INLINE v16_windows v16_windows_3(const void *code) {
    uint32_t words[24]; /* of no alignment in the file */
    memcpy(words, code, sizeof words);
    uint32x4x3_t first = vld3q_u32(words), second = vld3q_u32(words + 12);
    v8_words x = {{first.val[0], second.val[0]}}, y = {{first.val[1], second.val[1]}},
             z = {{first.val[2], second.val[2]}}, before = v8_before(z);
    v16_windows w;
    w.low[0] = v8_funnel(before, x, 12);
    w.high[0] = v8_funnel(before, x, 24);
    w.low[1] = v8_funnel(x, y, 4);
    w.high[1] = v8_funnel(x, y, 16);
    w.low[2] = v8_funnel(x, y, 28);
    w.high[2] = v8_funnel(y, z, 8);
    w.low[3] = v8_funnel(y, z, 20);
    w.high[3] = z;
    return w;
}

/* Row i (input channel) of a tile. k is 2 or 3. */
V16_INLINE v16 v16_tile_row(const v16_windows *w, int k, uint32_t i) {
    uint32_t q = i % 8 / 2;
    int j = (int)((i & 1) + 2 * (i >> 3));
    int low = k == 2 ? 2 * (7 - j) : 3 * (3 - j), high = k * (3 - j);
    return (v16){{v4_weight(w->low[q].v[0], low), v4_weight(w->low[q].v[1], low),
                  v4_weight(w->high[q].v[0], high), v4_weight(w->high[q].v[1], high)}};
}

/* 16 states in order, one behind the other. */
V16_INLINE v16 v16_codebook(const uint16_t *state) {
#define STATE(i) v4_codebook(vmovl_u16(vld1_u16(state + 4 * (size_t)(i))))
    return V16_EACH(STATE);
#undef STATE
}

/* Accumulators of v16_tile_row are in the order of channels already. */
V16_INLINE v16 v16_unscramble(v16 x, uint32_t k) {
    (void)k;
    return x;
}

#endif
