/* Sixteen f32 lanes on AVX-512 (F, BW, DQ, VL): the vocabulary that kernels_v16*.h is written in. Lane l of dot16 is
 * lane l here. Included by kernels_avx512.c alone. */
#ifndef PGL_BACKEND_CPU_V16_AVX512_H
#define PGL_BACKEND_CPU_V16_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "codec/codec.h"

#define V16_INLINE static inline __attribute__((always_inline))

/* Register blocks: 32 registers. */
#define DENSE_ROWS_1 8 /* weight rows at once for one token */
#define DENSE_ROWS 4   /* weight rows and tokens at once for several */
#define DENSE_TOKENS 4
#define DENSE_FEW                                                                                            \
    8 /* up to here widening weights again for each block of tokens is faster than keeping them */
#define CODED_ROWS 16 /* rows of activations that share a decoded tile */
#define CODED_CASES(f) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15) f(16)

typedef __m512 v16;

V16_INLINE v16 v16_zero(void) {
    return _mm512_setzero_ps();
}
V16_INLINE v16 v16_set1(float x) {
    return _mm512_set1_ps(x);
}
V16_INLINE v16 v16_load(const float *p) {
    return _mm512_loadu_ps(p);
}
V16_INLINE void v16_store(float *p, v16 x) {
    _mm512_storeu_ps(p, x);
}
V16_INLINE v16 v16_add(v16 x, v16 y) {
    return _mm512_add_ps(x, y);
}
V16_INLINE v16 v16_sub(v16 x, v16 y) {
    return _mm512_sub_ps(x, y);
}
V16_INLINE v16 v16_mul(v16 x, v16 y) {
    return _mm512_mul_ps(x, y);
}
V16_INLINE v16 v16_div(v16 x, v16 y) {
    return _mm512_div_ps(x, y);
}
/* x * y + z, z - x * y: rounded once */
V16_INLINE v16 v16_fma(v16 x, v16 y, v16 z) {
    return _mm512_fmadd_ps(x, y, z);
}
V16_INLINE v16 v16_fnma(v16 x, v16 y, v16 z) {
    return _mm512_fnmadd_ps(x, y, z);
}
/* x > y ? x : y and x < y ? x : y: the second operand where one is a NaN */
V16_INLINE v16 v16_max(v16 x, v16 y) {
    return _mm512_max_ps(x, y);
}
V16_INLINE v16 v16_min(v16 x, v16 y) {
    return _mm512_min_ps(x, y);
}
V16_INLINE v16 v16_neg(v16 x) {
    return _mm512_xor_ps(x, _mm512_set1_ps(-0.0F));
}

V16_INLINE __mmask16 v16_below(uint32_t n) {
    return (__mmask16)((1u << n) - 1);
}
/* x in the lanes below n, y in the others; n <= 16 */
V16_INLINE v16 v16_select(uint32_t n, v16 x, v16 y) {
    return _mm512_mask_blend_ps(v16_below(n), y, x);
}
/* The first n lanes alone, zeros in the others; nothing behind them is touched. */
V16_INLINE v16 v16_load_n(const float *p, uint32_t n) {
    return _mm512_maskz_loadu_ps(v16_below(n), p);
}
V16_INLINE void v16_store_n(float *p, v16 x, uint32_t n) {
    _mm512_mask_storeu_ps(p, v16_below(n), x);
}

V16_INLINE v16 v16_xor_bits(v16 x, const void *p) {
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(x), _mm512_loadu_si512(p)));
}

/* One register, for loops that must keep accumulators in registers: it is a v16. */
typedef __m512 vec;
#define VEC_LANES 16u

V16_INLINE vec vec_zero(void) {
    return _mm512_setzero_ps();
}
V16_INLINE vec vec_load(const float *p) {
    return _mm512_loadu_ps(p);
}
V16_INLINE void vec_store(float *p, vec x) {
    _mm512_storeu_ps(p, x);
}
V16_INLINE vec vec_fma(vec x, vec y, vec z) {
    return _mm512_fmadd_ps(x, y, z);
}
/* w8 * scale rounded to 11 bits: z = 8193 scale, y = 8192 scale */
V16_INLINE vec vec_scale11(vec w8, float y, float z) {
    return _mm512_fnmadd_ps(w8, _mm512_set1_ps(y), _mm512_mul_ps(w8, _mm512_set1_ps(z)));
}
/* f16(x * y), widened again */
V16_INLINE vec vec_scale16(vec x, float y) {
    return _mm512_cvtph_ps(_mm512_cvtps_ph(_mm512_mul_ps(x, _mm512_set1_ps(y)), _MM_FROUND_TO_NEAREST_INT));
}
/* Numbers of a checkpoint, widened; no alignment. */
V16_INLINE vec vec_load_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
V16_INLINE vec vec_load_bf16(const void *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
V16_INLINE vec vec_load_i8(const void *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}
V16_INLINE float f32_of_f16(const void *p) {
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}
V16_INLINE v16 v16_of(const vec x[1]) {
    return x[0];
}

V16_INLINE v16 v16_load_f16(const void *p) {
    return vec_load_f16(p);
}
V16_INLINE void v16_store_f16(void *p, v16 x) {
    _mm256_storeu_si256(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
/* f16(x), widened again */
V16_INLINE v16 v16_round16(v16 x) {
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

V16_INLINE float v8_tree(__m256 s) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
/* pgl_lanes_sum */
V16_INLINE float v16_sum(v16 x) {
    return v8_tree(_mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
}
V16_INLINE float v16_largest(v16 x) {
    return _mm512_reduce_max_ps(x);
}
/* Whether all lanes are zero (of either sign). */
V16_INLINE int v16_all_zero(v16 x) {
    return _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ) == 0xFFFF;
}

/* The last line of pgl_expf: (p * 2^h) * 2^(i - h), i the integer in t. */
V16_INLINE v16 v16_scale2(v16 p, v16 t) {
    __m512i i = _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_set1_epi32((int)PGL_EXP_MAGIC_BITS));
    __m512i half = _mm512_srai_epi32(i, 1), bias = _mm512_set1_epi32(127);
    __m512i first = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
    __m512i second = _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(i, half), bias), 23);
    return _mm512_mul_ps(_mm512_mul_ps(p, _mm512_castsi512_ps(first)), _mm512_castsi512_ps(second));
}

/* The butterfly of lanes that are `stride` (1, 2, 4 or 8) apart. */
V16_INLINE v16 v16_butterfly(v16 x, int stride) {
    switch (stride) {
    case 1: {
        v16 swapped = _mm512_permute_ps(x, 0xB1);
        return _mm512_mask_sub_ps(_mm512_add_ps(swapped, x), 0xAAAA, swapped, x);
    }
    case 2: {
        v16 swapped = _mm512_permute_ps(x, 0x4E);
        return _mm512_mask_sub_ps(_mm512_add_ps(swapped, x), 0xCCCC, swapped, x);
    }
    case 4: {
        v16 swapped = _mm512_shuffle_f32x4(x, x, 0xB1);
        return _mm512_mask_sub_ps(_mm512_add_ps(swapped, x), 0xF0F0, swapped, x);
    }
    default: {
        v16 swapped = _mm512_shuffle_f32x4(x, x, 0x4E);
        return _mm512_mask_sub_ps(_mm512_add_ps(swapped, x), 0xFF00, swapped, x);
    }
    }
}

/* ---- the trellis */

/* The 32-bit windows of one tile's lanes q = 0 .. 3: in vector lane c that of output channel c, in c + 8 that of
 * channel c + 8. */
typedef struct v16_windows {
    __m512i at[4];
} v16_windows;

/* pgl_codebook of the states in the low 16 bits of each lane, as f32. Both halves have exponents of 2^-3 .. 2^0, so
 * that their f32 sum f is an exact multiple of 2^-13 below 4, and its rounding to 11 bits is 8193 f - 8192 f: the
 * first product is rounded where 8192 f is exact. */
V16_INLINE v16 v16_codebook_of(__m512i state) {
    const __m512i keep = _mm512_set1_epi32((int)0x81FFE000), flip = _mm512_set1_epi32(0x3F6C0000);
    __m512i m = _mm512_mullo_epi32(state, _mm512_set1_epi32((int)0xCBAC1FED));
    __m512i high = _mm512_srai_epi32(m, 3), low = _mm512_srai_epi32(_mm512_slli_epi32(m, 16), 3);
    v16 f = _mm512_add_ps(_mm512_castsi512_ps(_mm512_ternarylogic_epi32(flip, high, keep, 0x78)),
                          _mm512_castsi512_ps(_mm512_ternarylogic_epi32(flip, low, keep, 0x78)));
    return _mm512_fnmadd_ps(f, _mm512_set1_ps(8192.0F), _mm512_mul_ps(f, _mm512_set1_ps(8193.0F)));
}

V16_INLINE __m512i v16_funnel(__m512i before, __m512i word, int bits) {
    return _mm512_or_si512(_mm512_slli_epi32(before, (unsigned)bits),
                           _mm512_srli_epi32(word, (unsigned)(32 - bits)));
}
/* Lower half from x, upper half from y. */
V16_INLINE __m512i v16_halves(__m512i x, __m512i y) {
    return _mm512_mask_blend_epi32(0xFF00, x, y);
}

/* K = 2: two words for each c. The lane pairs of q end 16 (q + 1) bits into them; weights 4 .. 7 of a lane stand 8
 * bits below weights 0 .. 3. */
V16_INLINE v16_windows v16_windows_2(const void *code) {
    __m512i words = _mm512_loadu_si512(code);
    __m512i even = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14), words);
    __m512i odd = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15), words);
    __m512i before = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(15, 1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13), words);
    const __m512i eight = _mm512_setr_epi32(8, 8, 8, 8, 8, 8, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0);
    v16_windows w;
    w.at[0] = _mm512_srlv_epi32(v16_funnel(before, even, 16), eight);
    w.at[1] = _mm512_srlv_epi32(even, eight);
    w.at[2] = _mm512_srlv_epi32(v16_funnel(even, odd, 16), eight);
    w.at[3] = _mm512_srlv_epi32(odd, eight);
    return w;
}

/* K = 3: three words for each c. */
V16_INLINE v16_windows v16_windows_3(const void *code) {
    __m512i a = _mm512_loadu_si512(code);
    __m512i b = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)((const char *)code + 64)));
    __m512i x = _mm512_permutex2var_epi32(
        a, _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 0, 3, 6, 9, 12, 15, 18, 21), b);
    __m512i y = _mm512_permutex2var_epi32(
        a, _mm512_setr_epi32(1, 4, 7, 10, 13, 16, 19, 22, 1, 4, 7, 10, 13, 16, 19, 22), b);
    __m512i z = _mm512_permutex2var_epi32(
        a, _mm512_setr_epi32(2, 5, 8, 11, 14, 17, 20, 23, 2, 5, 8, 11, 14, 17, 20, 23), b);
    __m512i before = _mm512_permutex2var_epi32(
        a, _mm512_setr_epi32(23, 2, 5, 8, 11, 14, 17, 20, 23, 2, 5, 8, 11, 14, 17, 20), b);
    v16_windows w;
    w.at[0] = v16_halves(v16_funnel(before, x, 12), v16_funnel(before, x, 24));
    w.at[1] = v16_halves(v16_funnel(x, y, 4), v16_funnel(x, y, 16));
    w.at[2] = v16_halves(v16_funnel(x, y, 28), v16_funnel(y, z, 8));
    w.at[3] = v16_halves(v16_funnel(y, z, 20), z);
    return w;
}

/* Row i (input channel) of a tile. k is 2 or 3. */
V16_INLINE v16 v16_tile_row(const v16_windows *w, int k, uint32_t i) {
    uint32_t q = i % 8 / 2;
    int j = (int)((i & 1) + 2 * (i >> 3));
    __m512i window = _mm512_srli_epi32(w->at[q], (unsigned)(k * (3 - j)));
    return v16_codebook_of(_mm512_and_si512(window, _mm512_set1_epi32(0xFFFF)));
}

/* 16 states in order, one behind the other. */
V16_INLINE v16 v16_codebook(const uint16_t *state) {
    return v16_codebook_of(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)state)));
}

/* Accumulators of v16_tile_row in the order of channels: they are. */
V16_INLINE v16 v16_unscramble(v16 x, uint32_t k) {
    (void)k;
    return x;
}

#endif
