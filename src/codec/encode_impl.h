/* One step of the search, for encode.c and its vector twins. */
#ifndef PGL_CODEC_ENCODE_IMPL_H
#define PGL_CODEC_ENCODE_IMPL_H

#include <stdint.h>

/* n = 2^(16 - k). from[v] is the least cost of the steps so far over all states whose low 16 - k bits are v: a state s
 * follows those with v = s >> k. For every q < n, over the states s = h * n + q, h < 2^k:
 *     cost_s = from[s >> k] + (target - codebook[s])^2                subtraction, multiplication, addition: no fma
 *     choice[q] = the least h whose cost is smallest;  to[q] = that cost
 * from and to hold PGL_ENCODE_PAD numbers more than n, which are never looked at but may be read. Aligned to 64 bytes. */
#define PGL_ENCODE_PAD 16u

typedef void pgl_encode_step(uint32_t k, float target, const float *codebook, const float *from, float *to,
                             uint8_t *choice);

pgl_encode_step pgl_encode_step_scalar;
#if defined(__x86_64__)
pgl_encode_step pgl_encode_step_avx2;
pgl_encode_step pgl_encode_step_avx512;
#endif

#endif
