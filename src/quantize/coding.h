/* One matrix to a trellis-coded linear (docs/format.md, sections 3 and 4).
 *
 * The coded linear computes y = rout * H128(H128(x * rin) W) / 128, so its effective matrix is
 * diag(rin) H W H diag(rout) / 128. Coding a target matrix is choosing rin and rout (random signs, which spread every
 * weight over its block, times scales), transforming the target the same way, searching the streams (codec/encode.h)
 * with error feedback from the input's second moments (hessian.h), and refitting the output scales. */
#ifndef PGL_QUANTIZE_CODING_H
#define PGL_QUANTIZE_CODING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fp16.h"
#include "base/status.h"

typedef struct pgl_coding_options {
    uint32_t k;      /* bits a weight, 1..8 */
    uint32_t rounds; /* of the search: codec/encode.h */
    uint64_t seed;   /* of the signs */
    double damping;  /* of the moments: hessian.h */
    /* Each ingredient can be left out, to measure what it gains. */
    bool no_signs, no_scales, no_feedback, no_refit;
} pgl_coding_options;

pgl_coding_options pgl_coding_defaults(uint32_t k);

typedef struct pgl_coding_report {
    double weight_error; /* |E|^2 / |W|^2 */
    double output_error; /* tr(E^T H E) / tr(W^T H W) */
} pgl_coding_report;

typedef struct pgl_coding_target {
    const float *w;        /* [in][out], finite */
    const double *moments; /* [in][in], full; NULL: the identity */
    uint32_t in, out;      /* multiples of 128 */
} pgl_coding_target;

typedef struct pgl_coding_result {
    void *code;    /* [in / 16][out / 16][16 k] int16, little-endian */
    pgl_f16 *rin;  /* [in] */
    pgl_f16 *rout; /* [out]; exactly zero for an output whose weights are all zero */
} pgl_coding_result;

/* Work space for matrices up to max_in x max_out; one thread at a time. */
typedef struct pgl_coder pgl_coder;
pgl_status pgl_coder_open(uint32_t k, uint32_t rounds, uint32_t max_in, uint32_t max_out, pgl_coder **out,
                          pgl_error *err);
void pgl_coder_close(pgl_coder *coder); /* NULL is allowed */

/* options->k and rounds are the coder's. PGL_E_NUMERIC for a weight that is not finite or too large for fp16 scales. */
pgl_status pgl_code_matrix(pgl_coder *coder, const pgl_coding_options *options,
                           const pgl_coding_target *target, const pgl_coding_result *result,
                           pgl_coding_report *report, pgl_error *err);

/* The effective matrix [in][out] in f32 of a coded linear given by its leaves: what decoding gives, in double. */
void pgl_coding_effective(const pgl_coding_result *result, uint32_t k, uint32_t in, uint32_t out, float *w);

#endif
