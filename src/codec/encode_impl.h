/* One step of the search, for encode.c and its vector twins. */
#ifndef PGL_CODEC_ENCODE_IMPL_H
#define PGL_CODEC_ENCODE_IMPL_H

#include <stdint.h>

/* For every state s of the new step, with q = s >> k and n = 2^(16 - k):
 *     h = the least h < 2^k for which from[h * n + q] is smallest;  choice[q] = h
 *     to[s] = from[h * n + q] + (target - codebook[s])^2            subtraction, multiplication, addition: no fma
 * All arrays are aligned to 64 bytes. */
typedef void pgl_encode_step(uint32_t k, float target, const float *codebook, const float *from, float *to,
                             uint8_t *choice);

pgl_encode_step pgl_encode_step_scalar;
#if defined(__x86_64__)
pgl_encode_step pgl_encode_step_avx2;
pgl_encode_step pgl_encode_step_avx512;
#endif

#endif
