/* The search's step in AVX2 and AVX-512: the same operations on the same numbers as pgl_encode_step_scalar. Lanes are
 * neighbouring q; the predecessors' costs of a vector lie side by side, each repeated 2^k times. */
#include "codec/encode_impl.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define STATES 65536u

__attribute__((target("avx2"), always_inline)) static inline void
step_avx2(uint32_t k, float target, const float *codebook, const float *from, float *to, uint8_t *choice) {
    uint32_t n = STATES >> k, branches = 1u << k;
    __m256 w = _mm256_set1_ps(target);
    __m256i spread = _mm256_srli_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), (int)k);
    for (uint32_t q = 0; q < n; q += 8) {
        __m256 best = _mm256_set1_ps(__builtin_inff());
        __m256i which = _mm256_setzero_si256();
        for (uint32_t h = 0; h < branches; h++) {
            uint32_t s = h * n + q;
            __m256 before = _mm256_permutevar8x32_ps(_mm256_loadu_ps(from + (s >> k)), spread);
            __m256 d = _mm256_sub_ps(w, _mm256_load_ps(codebook + s));
            __m256 cost = _mm256_add_ps(before, _mm256_mul_ps(d, d));
            __m256 less = _mm256_cmp_ps(cost, best, _CMP_LT_OQ);
            best = _mm256_blendv_ps(best, cost, less);
            which = _mm256_blendv_epi8(which, _mm256_set1_epi32((int)h), _mm256_castps_si256(less));
        }
        _mm256_store_ps(to + q, best);
        __m128i narrow = _mm_packus_epi32(_mm256_castsi256_si128(which), _mm256_extracti128_si256(which, 1));
        _mm_storel_epi64((__m128i *)(void *)(choice + q), _mm_packus_epi16(narrow, narrow));
    }
}

__attribute__((target("avx512f,avx512bw"), always_inline)) static inline void
step_avx512(uint32_t k, float target, const float *codebook, const float *from, float *to, uint8_t *choice) {
    uint32_t n = STATES >> k, branches = 1u << k;
    __m512 w = _mm512_set1_ps(target);
    __m512i spread =
        _mm512_srli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), k);
    for (uint32_t q = 0; q < n; q += 16) {
        __m512 best = _mm512_set1_ps(__builtin_inff());
        __m512i which = _mm512_setzero_si512();
        for (uint32_t h = 0; h < branches; h++) {
            uint32_t s = h * n + q;
            __m512 before = _mm512_permutexvar_ps(spread, _mm512_loadu_ps(from + (s >> k)));
            __m512 d = _mm512_sub_ps(w, _mm512_load_ps(codebook + s));
            __m512 cost = _mm512_add_ps(before, _mm512_mul_ps(d, d));
            __mmask16 less = _mm512_cmp_ps_mask(cost, best, _CMP_LT_OQ);
            best = _mm512_mask_mov_ps(best, less, cost);
            which = _mm512_mask_mov_epi32(which, less, _mm512_set1_epi32((int)h));
        }
        _mm512_store_ps(to + q, best);
        _mm_store_si128((__m128i *)(void *)(choice + q), _mm512_cvtepi32_epi8(which));
    }
}

/* The widths that matter are compiled with their own constant, so that the loop over predecessors is unrolled. */
#define SPECIALISED(name, isa)                                                                               \
    __attribute__((target(isa))) void pgl_encode_##name(uint32_t k, float target, const float *codebook,     \
                                                        const float *from, float *to, uint8_t *choice) {     \
        switch (k) {                                                                                         \
        case 2:                                                                                              \
            name(2, target, codebook, from, to, choice);                                                     \
            break;                                                                                           \
        case 3:                                                                                              \
            name(3, target, codebook, from, to, choice);                                                     \
            break;                                                                                           \
        case 4:                                                                                              \
            name(4, target, codebook, from, to, choice);                                                     \
            break;                                                                                           \
        default:                                                                                             \
            name(k, target, codebook, from, to, choice);                                                     \
        }                                                                                                    \
    }

SPECIALISED(step_avx2, "avx2")
SPECIALISED(step_avx512, "avx512f,avx512bw")

#endif
