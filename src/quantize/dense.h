/* Weights that are not trellis coded: int8 rows and 16-bit vectors (docs/format.md, section 2). Any thread. */
#ifndef PGL_QUANTIZE_DENSE_H
#define PGL_QUANTIZE_DENSE_H

#include <stdint.h>

#include "base/fp16.h"
#include "base/status.h"

/* One row w [n] to int8 with an fp16 scale, such that f16(w8 * scale) is near w: of a few scales at and below
 * max |w| / 127 the one of least squared error. A row of zeros has scale 0. PGL_E_NUMERIC for a weight that is not
 * finite or a row whose scale fp16 does not hold. */
pgl_status pgl_quantize_row(const float *w, uint32_t n, int8_t *w8, pgl_f16 *scale, pgl_error *err);

/* n numbers to fp16. PGL_E_NUMERIC for one that is not finite or that fp16 overflows. */
pgl_status pgl_quantize_f16(const float *w, uint64_t n, pgl_f16 *out, pgl_error *err);

#endif
