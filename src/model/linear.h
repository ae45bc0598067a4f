/* Linears of a model on rows of activations, in plain scalar C (docs/format.md, the coded linear). Kernels of
 * every backend are held to these functions: bit by bit where they keep the order of summation stated here,
 * otherwise within the envelope of docs/model.md.
 *
 * Contract (exact = false), per row:
 *   coded   rin_eff = rin where there is no s_in, else rin * s_in; rout_eff alike
 *           xh  = f16(H128(x * rin_eff) * RS)                       one f32 product each, then the
 * butterflies mid = sum over rising input index, fmaf(xh_i, W_io, acc), acc from +0 y   = f16((H128(mid) *
 * RS) * rout_eff);  with a bias: y = f16(y + bias) y holds fp16 values. Where rout_eff is 0 and mid is
 * finite, y is a zero. dense   y_o = dot16(f16(x), w_o) (+ bias_o), f32; w = f16(w8 * scale) for int8 rows,
 * else the stored number Test-only exact form (exact = true): the same without the roundings of xh, y, y +
 * bias and f16(x). What defines a weight stays. A row's result depends on nothing but the row: rows may be
 * given one at a time or together. Nothing here allocates or fails; any thread. */
#ifndef PGL_MODEL_LINEAR_H
#define PGL_MODEL_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/weights.h"

/* Rows in, rows out. x and y must not overlap. */
typedef struct pgl_rows {
    const float *x; /* [n, in] */
    float *y;       /* [n, out] */
    uint32_t n;
    bool exact;
    float *scratch; /* pgl_rows_scratch(in, n) floats */
} pgl_rows;

/* Floats of scratch for n rows of a linear with the given input width. The caller bounds both (checked
 * sizes). */
size_t pgl_rows_scratch(uint32_t in, uint32_t n);

/* y = coded linear of one expert. expert < coded->n_experts. */
void pgl_coded_forward(const pgl_coded *coded, uint32_t expert, const pgl_rows *rows);

/* y = linear of any kind but PGL_LINEAR_NONE, which gives zeros. */
void pgl_linear_forward(const pgl_linear *linear, const pgl_rows *rows);

/* Row `row` of an int8 or plain matrix as f32: an embedding, or the weights of one output. out [linear->in].
 */
void pgl_linear_row(const pgl_linear *linear, uint32_t row, float *out);

/* An expert's [in, out] matrix as f32, decoded: for tests and tools. out [in * out]. */
void pgl_coded_matrix(const pgl_coded *coded, uint32_t expert, float *out);

#endif
