/* The encoder's inner search: 256 weights of a tile to the circular bit stream of docs/format.md, section 3.
 *
 * A state is 16 bits, its successor shifts k new bits in, and a weight is the codebook's value of its state: finding
 * the stream of least squared error is a shortest path over 65,536 states and 256 steps whose first and last state
 * agree in 16 - k bits (tail-biting). The exact answer needs one search for each of the 2^(16 - k) values of the shared
 * bits; this one takes the shared bits from an unconstrained search over the tile turned by half, where they stand in
 * the middle, and then searches once with them fixed. More turns may be asked for; the best is kept.
 *
 * Ties go to the smaller predecessor, every sum is one f32 operation in a stated order, and the vector code gives the
 * same streams as the scalar code. An encoder is owned by one thread at a time. */
#ifndef PGL_CODEC_ENCODE_H
#define PGL_CODEC_ENCODE_H

#include <stdint.h>

#include "base/status.h"

typedef struct pgl_encoder pgl_encoder;

/* Work space for streams of k bits a weight, k in 1..8: 256 KiB and 264 * 2^(16 - k) bytes. rounds >= 1: how many
 * turns are tried (1: turned by 128). isa: "scalar", "avx2", "avx512", or NULL for the best the machine has. */
pgl_status pgl_encoder_open(uint32_t k, uint32_t rounds, const char *isa, pgl_encoder **out, pgl_error *err);
void pgl_encoder_close(pgl_encoder *encoder); /* NULL is allowed */

/* Encodes target[16][16] ([input channel][output channel], in units of the codebook, finite) into code [16 k] int16,
 * little-endian, any alignment. Returns the sum of squared errors. */
float pgl_encode_tile(pgl_encoder *encoder, const float target[256], void *code);

/* The sum of squared errors of the best stream whose 16 - k shared bits are `shared`: the exact search is the minimum
 * over all of them (tests). states receives the stream when not NULL. */
float pgl_encode_shared(pgl_encoder *encoder, const float target[256], uint32_t shared, uint16_t states[256]);

#endif
