/* The search's step in AVX2 and AVX-512: the same operations on the same numbers as pgl_encode_step_scalar. The step
 * reads two tables and writes one of 256 KiB each, so it is bound by the second-level cache, not by arithmetic. */
#include "codec/encode_impl.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define STATES 65536u

/* Narrow groups (k = 1, 2, 3: 2, 4, 8 states a group) are spread from a vector of minima by a permutation. */
__attribute__((target("avx2"))) static inline __m256 minimum_avx2(const float *from, uint32_t n,
                                                                  uint32_t branches, __m256i *which) {
    __m256 best = _mm256_load_ps(from);
    __m256i h = _mm256_setzero_si256();
    for (uint32_t i = 1; i < branches; i++) {
        __m256 other = _mm256_load_ps(from + (size_t)i * n);
        __m256 less = _mm256_cmp_ps(other, best, _CMP_LT_OQ);
        best = _mm256_blendv_ps(best, other, less);
        h = _mm256_blendv_epi8(h, _mm256_set1_epi32((int)i), _mm256_castps_si256(less));
    }
    *which = h;
    return best;
}

__attribute__((target("avx2"))) void pgl_encode_step_avx2(uint32_t k, float target, const float *codebook,
                                                          const float *from, float *to, uint8_t *choice) {
    uint32_t n = STATES >> k, branches = 1u << k;
    __m256 w = _mm256_set1_ps(target);
    for (uint32_t q = 0; q < n; q += 8) {
        __m256i which;
        __m256 best = minimum_avx2(from + q, n, branches, &which);
        __m128i narrow = _mm_packus_epi32(_mm256_castsi256_si128(which), _mm256_extracti128_si256(which, 1));
        _mm_storel_epi64((__m128i *)(void *)(choice + q), _mm_packus_epi16(narrow, narrow));
        for (uint32_t v = 0; v < branches; v++) { /* 8 groups of `branches` states: `branches` vectors */
            uint32_t first = 8 * v;
            __m256i lane =
                _mm256_add_epi32(_mm256_set1_epi32((int)first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
            __m256 spread = _mm256_permutevar8x32_ps(best, _mm256_srli_epi32(lane, (int)k));
            uint32_t s = (q << k) + first;
            __m256 d = _mm256_sub_ps(w, _mm256_load_ps(codebook + s));
            _mm256_store_ps(to + s, _mm256_add_ps(spread, _mm256_mul_ps(d, d)));
        }
    }
}

__attribute__((target("avx512f,avx512bw"))) void pgl_encode_step_avx512(uint32_t k, float target,
                                                                        const float *codebook,
                                                                        const float *from, float *to,
                                                                        uint8_t *choice) {
    uint32_t n = STATES >> k, branches = 1u << k;
    __m512 w = _mm512_set1_ps(target);
    __m512i iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (uint32_t q = 0; q < n; q += 16) {
        __m512 best = _mm512_load_ps(from + q);
        __m512i h = _mm512_setzero_si512();
        for (uint32_t i = 1; i < branches; i++) {
            __m512 other = _mm512_load_ps(from + (size_t)i * n + q);
            __mmask16 less = _mm512_cmp_ps_mask(other, best, _CMP_LT_OQ);
            best = _mm512_mask_mov_ps(best, less, other);
            h = _mm512_mask_mov_epi32(h, less, _mm512_set1_epi32((int)i));
        }
        _mm_store_si128((__m128i *)(void *)(choice + q), _mm512_cvtepi32_epi8(h));
        for (uint32_t v = 0; v < branches; v++) {
            uint32_t first = 16 * v;
            __m512i lane = _mm512_add_epi32(_mm512_set1_epi32((int)first), iota);
            __m512 spread = _mm512_permutexvar_ps(_mm512_srli_epi32(lane, k), best);
            uint32_t s = (q << k) + first;
            __m512 d = _mm512_sub_ps(w, _mm512_load_ps(codebook + s));
            _mm512_store_ps(to + s, _mm512_add_ps(spread, _mm512_mul_ps(d, d)));
        }
    }
}

#endif
