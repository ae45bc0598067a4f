/* The trellis code, the Hadamard transform and the int8 rows: plain scalar C that says what the format means
 * (docs/format.md). Kernels of every backend are held to these functions, bit by bit.
 *
 * Summation orders are part of this contract, so that vector code can reproduce them:
 *   - coded products: for each output channel, sequential over rising input index, one fma per weight
 *     (exact products: both factors are fp16), accumulator f32 starting at +0;
 *   - "dot16" (every other product over a row, every mean square): lane l = i mod 16 accumulates its elements
 *     with one fmaf each in rising order from +0; then lanes l and l + 8 are added for l < 8, then l and l + 4,
 *     l + 2, l + 1.
 * Nothing here allocates; any thread. Pointers into checkpoints may be unaligned. */
#ifndef PGL_CODEC_CODEC_H
#define PGL_CODEC_CODEC_H

#include <stdint.h>

#include "base/fp16.h"

#define PGL_TILE 16
#define PGL_HADAMARD 128
#define PGL_HADAMARD_SCALE 0x1.6a09e6p-4F /* 0x3DB504F3, 1/sqrt(128) */

/* The weight of a 16-bit state, as fp16 bits. */
pgl_f16 pgl_codebook(uint16_t state);

/* Decodes one tile of 256 k bits (16 k int16, little-endian, possibly unaligned) into fp16 bits
 * weight[16][16] = [input channel][output channel]. k is 1..8. */
void pgl_tile_decode(const void *code, uint32_t k, pgl_f16 weight[256]);

/* The 256 states of a tile in stream order: for encoders and tests. */
void pgl_tile_states(const void *code, uint32_t k, uint16_t state[256]);

/* Packs 256 states that overlap as the circular stream demands (the low k bits of state t are its own);
 * inverse of pgl_tile_states. */
void pgl_tile_pack(const uint16_t state[256], uint32_t k, void *code);

/* Where weight t of the stream stands: input channel * 16 + output channel. */
uint32_t pgl_tile_place(uint32_t t);

/* In place, unnormalised, on n / 128 blocks; n a multiple of 128. */
void pgl_hadamard(float *x, uint32_t n);

/* sum over i < n of a[i] * b[i] in the dot16 order. */
float pgl_dot16(const float *a, const float *b, uint32_t n);

/* f16(w8 * scale), as fp16 bits. */
pgl_f16 pgl_int8_weight(int8_t w8, float scale);

/* The last step of dot16: lanes l and l + 8 are added for l < 8, then l and l + 4, l + 2, l + 1. */
float pgl_lanes_sum(const float lane[16]);

/* ---- Exponentials (math.c). Every operation below is one correctly rounded f32 operation, in this order, so
 * that vector code repeats them bit for bit; a NaN gives a NaN (which one is not promised).
 *
 * pgl_expf(x), at most 1.01 ulp from the true value (subnormal results: 1 unit), 0 from about -103.98 down, +inf
 * from about 88.7229 up:
 *   c = x < LOW ? LOW : x;  c = c > HIGH ? HIGH : c      (max(LOW, x), min(HIGH, c) as x86 has them: NaN stays)
 *   t = fmaf(c, LOG2E, MAGIC);  n = t - MAGIC            n = c / ln 2 to the nearest integer
 *   i = bits(t) - MAGIC_BITS                             n as an integer
 *   r = fmaf(n, -LN2_HIGH, c);  r = fmaf(n, -LN2_LOW, r)
 *   q = fmaf(fmaf(fmaf(fmaf(C6, r, C5), r, C4), r, C3), r, C2)
 *   p = fmaf(q, r * r, r) + 1
 *   h = i >> 1 (arithmetic);  result = (p * 2^h) * 2^(i - h)
 */
#define PGL_EXP_LOW (-104.0F)
#define PGL_EXP_HIGH 89.0F
#define PGL_EXP_LOG2E 0x1.715476p+0F
#define PGL_EXP_MAGIC 0x1.8p+23F
#define PGL_EXP_MAGIC_BITS 0x4B400000u
#define PGL_EXP_LN2_HIGH 0x1.62e43p-1F
#define PGL_EXP_LN2_LOW (-0x1.05c61p-29F)
#define PGL_EXP_C2 0x1.fffffcp-2F
#define PGL_EXP_C3 0x1.555492p-3F
#define PGL_EXP_C4 0x1.5558f2p-5F
#define PGL_EXP_C5 0x1.1239e2p-7F
#define PGL_EXP_C6 0x1.6a2434p-10F
float pgl_expf(float x);

/* 1 / (1 + pgl_expf(-x)); exactly 0 where the exponential is infinite, below about -88.72. */
float pgl_sigmoid(float x);
/* x * pgl_sigmoid(x) */
float pgl_silu(float x);

/* log(1 + exp(x)), at most 1.8 ulp from the true value:
 *     e = pgl_expf(-|x|);  s = e / (2 + e);  w = s * s                     log1p(e) = 2 atanh(s)
 *     q = fmaf(fmaf(fmaf(fmaf(C4, w, C3), w, C2), w, C1), w, C0)
 *     result = (x > 0 ? x : 0) + fmaf(s, fmaf(w, q, -e), e)
 */
#define PGL_LOG1P_C0 0x1.555558p-1F
#define PGL_LOG1P_C1 0x1.9996ccp-2F
#define PGL_LOG1P_C2 0x1.25061cp-2F
#define PGL_LOG1P_C3 0x1.b71854p-3F
#define PGL_LOG1P_C4 0x1.f0cb0ep-3F
float pgl_softplus(float x);

#endif
