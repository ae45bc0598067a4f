/* Sixteen f32 lanes on AVX2 with FMA and F16C: the vocabulary that kernels_v16*.h is written in. Lane l of dot16 is
 * lane l here. Included by kernels_avx2.c alone. */
#ifndef PGL_BACKEND_CPU_V16_AVX2_H
#define PGL_BACKEND_CPU_V16_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "codec/codec.h"

#define V16_INLINE static inline __attribute__((always_inline))

/* Register blocks: 16 registers hold 12 accumulators of 8 lanes. */
#define DENSE_ROWS_1 4 /* weight rows at once for one token */
#define DENSE_ROWS                                                                                           \
    2 /* weight rows and tokens at once for several: with 2 weights and an input, 15 registers */
#define DENSE_TOKENS 3
#define DENSE_FEW                                                                                            \
    6 /* up to here widening weights again for each block of tokens is faster than keeping them */
#define CODED_ROWS 6 /* rows of activations that share a decoded tile */
#define CODED_CASES(f) f(2) f(3) f(4) f(5) f(6)

typedef struct v16 {
    __m256 a, b; /* lanes 0 .. 7, 8 .. 15 */
} v16;

V16_INLINE v16 v16_zero(void) {
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
V16_INLINE v16 v16_set1(float x) {
    __m256 v = _mm256_set1_ps(x);
    return (v16){v, v};
}
V16_INLINE v16 v16_load(const float *p) {
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
V16_INLINE void v16_store(float *p, v16 x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
V16_INLINE v16 v16_add(v16 x, v16 y) {
    return (v16){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
V16_INLINE v16 v16_sub(v16 x, v16 y) {
    return (v16){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
V16_INLINE v16 v16_mul(v16 x, v16 y) {
    return (v16){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
V16_INLINE v16 v16_div(v16 x, v16 y) {
    return (v16){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
/* x * y + z, z - x * y: rounded once */
V16_INLINE v16 v16_fma(v16 x, v16 y, v16 z) {
    return (v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
V16_INLINE v16 v16_fnma(v16 x, v16 y, v16 z) {
    return (v16){_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
/* x > y ? x : y and x < y ? x : y: the second operand where one is a NaN */
V16_INLINE v16 v16_max(v16 x, v16 y) {
    return (v16){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
V16_INLINE v16 v16_min(v16 x, v16 y) {
    return (v16){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
V16_INLINE v16 v16_neg(v16 x) {
    __m256 sign = _mm256_set1_ps(-0.0F);
    return (v16){_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign)};
}

/* All bits of the lanes below n, none of the others; n <= 16. */
V16_INLINE v16 v16_below(uint32_t n) {
    const __m256i first = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i count = _mm256_set1_epi32((int)n);
    return (v16){
        _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, first)),
        _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, _mm256_add_epi32(first, _mm256_set1_epi32(8))))};
}
/* x in the lanes below n, y in the others */
V16_INLINE v16 v16_select(uint32_t n, v16 x, v16 y) {
    v16 m = v16_below(n);
    return (v16){_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)};
}
/* The first n lanes alone, zeros in the others; nothing behind them is touched. */
V16_INLINE v16 v16_load_n(const float *p, uint32_t n) {
    v16 m = v16_below(n);
    return (v16){_mm256_maskload_ps(p, _mm256_castps_si256(m.a)),
                 n > 8 ? _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b)) : _mm256_setzero_ps()};
}
V16_INLINE void v16_store_n(float *p, v16 x, uint32_t n) {
    v16 m = v16_below(n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.a), x.a);
    if (n > 8)
        _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.b), x.b);
}

V16_INLINE v16 v16_xor_bits(v16 x, const void *p) {
    const __m256i *q = p;
    return (v16){_mm256_xor_ps(x.a, _mm256_castsi256_ps(_mm256_loadu_si256(q))),
                 _mm256_xor_ps(x.b, _mm256_castsi256_ps(_mm256_loadu_si256(q + 1)))};
}

/* One register, for loops that must keep accumulators in registers: two of them are a v16. */
typedef __m256 vec;
#define VEC_LANES 8u

V16_INLINE vec vec_zero(void) {
    return _mm256_setzero_ps();
}
V16_INLINE vec vec_load(const float *p) {
    return _mm256_loadu_ps(p);
}
V16_INLINE void vec_store(float *p, vec x) {
    _mm256_storeu_ps(p, x);
}
V16_INLINE vec vec_fma(vec x, vec y, vec z) {
    return _mm256_fmadd_ps(x, y, z);
}
/* w8 * scale rounded to 11 bits: z = 8193 scale, y = 8192 scale */
V16_INLINE vec vec_scale11(vec w8, float y, float z) {
    return _mm256_fnmadd_ps(w8, _mm256_set1_ps(y), _mm256_mul_ps(w8, _mm256_set1_ps(z)));
}
/* f16(x * y), widened again */
V16_INLINE vec vec_scale16(vec x, float y) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_mul_ps(x, _mm256_set1_ps(y)), _MM_FROUND_TO_NEAREST_INT));
}
/* Numbers of a checkpoint, widened; no alignment. */
V16_INLINE vec vec_load_f16(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
V16_INLINE vec vec_load_bf16(const void *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
V16_INLINE vec vec_load_i8(const void *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
}
V16_INLINE float f32_of_f16(const void *p) {
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}
V16_INLINE v16 v16_of(const vec x[2]) {
    return (v16){x[0], x[1]};
}

V16_INLINE v16 v16_load_f16(const void *p) {
    return (v16){vec_load_f16(p), vec_load_f16((const char *)p + 16)};
}
V16_INLINE void v16_store_f16(void *p, v16 x) {
    __m128i *q = p;
    _mm_storeu_si128(q, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
/* f16(x), widened again */
V16_INLINE v16 v16_round16(v16 x) {
    return (v16){_mm256_cvtph_ps(_mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT)),
                 _mm256_cvtph_ps(_mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT))};
}

V16_INLINE float v8_tree(__m256 s) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
/* pgl_lanes_sum */
V16_INLINE float v16_sum(v16 x) {
    return v8_tree(_mm256_add_ps(x.a, x.b));
}
V16_INLINE float v16_largest(v16 x) {
    __m256 m = _mm256_max_ps(x.a, x.b);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
/* Whether all lanes are zero (of either sign). */
V16_INLINE int v16_all_zero(v16 x) {
    __m256 zero = _mm256_setzero_ps();
    __m256 both = _mm256_and_ps(_mm256_cmp_ps(x.a, zero, _CMP_EQ_OQ), _mm256_cmp_ps(x.b, zero, _CMP_EQ_OQ));
    return _mm256_movemask_ps(both) == 0xFF;
}

V16_INLINE __m256 v8_scale2(__m256 p, __m256 t) {
    __m256i i = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32((int)PGL_EXP_MAGIC_BITS));
    __m256i half = _mm256_srai_epi32(i, 1), bias = _mm256_set1_epi32(127);
    __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}
/* The last line of pgl_expf: (p * 2^h) * 2^(i - h), i the integer in t. */
V16_INLINE v16 v16_scale2(v16 p, v16 t) {
    return (v16){v8_scale2(p.a, t.a), v8_scale2(p.b, t.b)};
}

/* The butterfly of lanes that are `stride` (1, 2, 4 or 8) apart. */
V16_INLINE __m256 v8_butterfly(__m256 x, __m256 swapped, int sign_bits) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i odd = _mm256_cmpeq_epi32(_mm256_and_si256(lane, _mm256_set1_epi32(sign_bits)),
                                     _mm256_set1_epi32(sign_bits));
    __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(odd), _mm256_set1_ps(-0.0F));
    return _mm256_add_ps(swapped, _mm256_xor_ps(x, sign));
}
V16_INLINE v16 v16_butterfly(v16 x, int stride) {
    if (stride == 1)
        return (v16){v8_butterfly(x.a, _mm256_permute_ps(x.a, 0xB1), 1),
                     v8_butterfly(x.b, _mm256_permute_ps(x.b, 0xB1), 1)};
    if (stride == 2)
        return (v16){v8_butterfly(x.a, _mm256_permute_ps(x.a, 0x4E), 2),
                     v8_butterfly(x.b, _mm256_permute_ps(x.b, 0x4E), 2)};
    if (stride == 4)
        return (v16){v8_butterfly(x.a, _mm256_permute2f128_ps(x.a, x.a, 1), 4),
                     v8_butterfly(x.b, _mm256_permute2f128_ps(x.b, x.b, 1), 4)};
    return (v16){_mm256_add_ps(x.a, x.b), _mm256_sub_ps(x.a, x.b)};
}

/* ---- the trellis */

/* The 32-bit windows of one tile's lanes q = 0 .. 3, one vector lane for each pair of output channels c and c + 8.
 * Weight j of lane q stands `shift` bits above the end of its window; channels are in the order of v16_unscramble. */
typedef struct v16_windows {
    __m256i low[4], high[4]; /* j = 0 .. 3 and 4 .. 7 */
} v16_windows;

/* pgl_codebook of the states in the low 16 bits of each lane, as f32. Both halves have exponents of 2^-3 .. 2^0, so
 * that their f32 sum f is an exact multiple of 2^-13 below 4, and its rounding to 11 bits is 8193 f - 8192 f: the
 * first product is rounded where 8192 f is exact. */
V16_INLINE __m256 v8_codebook(__m256i state) {
    const __m256i keep = _mm256_set1_epi32((int)0x81FFE000), flip = _mm256_set1_epi32(0x3F6C0000);
    __m256i m = _mm256_mullo_epi32(state, _mm256_set1_epi32((int)0xCBAC1FED));
    __m256i high = _mm256_srai_epi32(m, 3), low = _mm256_srai_epi32(_mm256_slli_epi32(m, 16), 3);
    __m256 f = _mm256_add_ps(_mm256_castsi256_ps(_mm256_xor_si256(_mm256_and_si256(high, keep), flip)),
                             _mm256_castsi256_ps(_mm256_xor_si256(_mm256_and_si256(low, keep), flip)));
    return _mm256_fnmadd_ps(f, _mm256_set1_ps(8192.0F), _mm256_mul_ps(f, _mm256_set1_ps(8193.0F)));
}
V16_INLINE __m256i v8_state(__m256i window, int shift) {
    return _mm256_and_si256(shift == 0 ? window : _mm256_srli_epi32(window, shift),
                            _mm256_set1_epi32(0xFFFF));
}
V16_INLINE __m256i v8_funnel(__m256i before, __m256i word, int bits) {
    return _mm256_or_si256(_mm256_slli_epi32(before, bits), _mm256_srli_epi32(word, 32 - bits));
}
V16_INLINE __m256i v8_words(const void *code, int at) {
    return _mm256_loadu_si256((const __m256i *)((const char *)code + 4 * at));
}

/* K = 2: two words for each c. The lane pairs of q end 16 (q + 1) bits into them. */
V16_INLINE v16_windows v16_windows_2(const void *code) {
    __m256 x = _mm256_castsi256_ps(v8_words(code, 0)), y = _mm256_castsi256_ps(v8_words(code, 8));
    __m256i even = _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)); /* c = 0 1 4 5 2 3 6 7 */
    __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xDD));
    __m256i before = _mm256_permutevar8x32_epi32(odd, _mm256_setr_epi32(7, 0, 5, 2, 1, 4, 3, 6));
    v16_windows w;
    w.low[0] = v8_funnel(before, even, 16);
    w.low[1] = even;
    w.low[2] = v8_funnel(even, odd, 16);
    w.low[3] = odd;
    for (int q = 0; q < 4; q++)
        w.high[q] = w.low[q];
    return w;
}

/* K = 3: three words for each c, picked from the three vectors so that c = 0 3 6 1 4 7 2 5. */
V16_INLINE v16_windows v16_windows_3(const void *code) {
    __m256i a = v8_words(code, 0), b = v8_words(code, 8), d = v8_words(code, 16);
    /* Word 3 c + r stands in lane (3 c + r) % 8: blends gather the words of one r, a rotation by r lines them up. */
    __m256i x = _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x92), d, 0x24);
    __m256i y = _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x24), d, 0x49);
    __m256i z = _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x49), d, 0x92);
    y = _mm256_permutevar8x32_epi32(y, _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 0));
    z = _mm256_permutevar8x32_epi32(z, _mm256_setr_epi32(2, 3, 4, 5, 6, 7, 0, 1));
    /* channel c - 1 of lanes 0 3 6 1 4 7 2 5: 7 2 5 0 3 6 1 4, which stand in lanes 5 6 7 0 1 2 3 4 */
    __m256i before = _mm256_permutevar8x32_epi32(z, _mm256_setr_epi32(5, 6, 7, 0, 1, 2, 3, 4));
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
    return (v16){v8_codebook(v8_state(w->low[q], low)), v8_codebook(v8_state(w->high[q], high))};
}

/* 16 states in order, one behind the other. */
V16_INLINE v16 v16_codebook(const uint16_t *state) {
    const __m128i *q = (const __m128i *)state;
    return (v16){v8_codebook(_mm256_cvtepu16_epi32(_mm_loadu_si128(q))),
                 v8_codebook(_mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1)))};
}

/* Accumulators of v16_tile_row in the order of channels. */
V16_INLINE v16 v16_unscramble(v16 x, uint32_t k) {
    if (k != 2 && k != 3)
        return x;
    const __m256i place =
        k == 2 ? _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7) : _mm256_setr_epi32(0, 3, 6, 1, 4, 7, 2, 5);
    return (v16){_mm256_permutevar8x32_ps(x.a, place), _mm256_permutevar8x32_ps(x.b, place)};
}

#endif
