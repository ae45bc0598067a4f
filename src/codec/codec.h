/* The trellis code, the Hadamard transform and the int8 rows: plain scalar C that says what the format means
 * (docs/format.md). Kernels of every backend are held to these functions, bit by bit.
 *
 * Summation orders are part of this contract, so that vector code can reproduce them:
 *   - coded products: for each output channel, sequential over rising input index, one fma per weight
 *     (exact products: both factors are fp16), accumulator f32 starting at +0;
 *   - "dot16" (every other product over a row, every mean square): lane l = i mod 16 accumulates its elements
 * with one fmaf each in rising order from +0; then lanes l and l + 8 are added for l < 8, then l and l + 4, l
 * + 2, l + 1. Nothing here allocates; any thread. Pointers into checkpoints may be unaligned. */
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

/* silu with the contract's own exponential: x * (1 / (1 + exp(-x))). */
float pgl_silu(float x);
float pgl_sigmoid(float x);
/* The exponential of the contract: mul, add and fmaf only, so that vectors reproduce it bit for bit; at most
 * 2 ulp from the true value; 0 below -104, +inf above 88.73, NaN for NaN. */
float pgl_expf(float x);
/* log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), the same way. */
float pgl_softplus(float x);

#endif
