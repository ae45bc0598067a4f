/* Owns nothing. */
#include "quantize/dense.h"

#include <math.h>

#include "codec/codec.h"

static double row_error(const float *w, uint32_t n, float scale) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        float q = scale > 0 ? fminf(fmaxf(rintf(w[i] / scale), -127), 127) : 0;
        double d = (double)w[i] - (double)pgl_f16_to_f32(pgl_int8_weight((int8_t)q, scale));
        sum += d * d;
    }
    return sum;
}

pgl_status pgl_quantize_row(const float *w, uint32_t n, int8_t *w8, pgl_f16 *scale, pgl_error *err) {
    float most = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(w[i]))
            return pgl_fail(err, PGL_E_NUMERIC, "column %u: expected a finite weight, found %g", i,
                            (double)w[i]);
        most = fmaxf(most, fabsf(w[i]));
    }
    pgl_f16 best = 0;
    double best_error = INFINITY;
    for (int step = 0; step <= 6 && most > 0; step++) {
        pgl_f16 candidate = pgl_f32_to_f16(most / 127 * (1.0F - 0.02F * (float)step));
        float s = pgl_f16_to_f32(candidate);
        if (!isfinite(s) || !isfinite(s * 127))
            return pgl_fail(err, PGL_E_NUMERIC, "expected a row that fp16 holds, found a weight of size %g",
                            (double)most);
        double error = row_error(w, n, s);
        if (error < best_error) {
            best_error = error;
            best = candidate;
        }
    }
    if (most > 0 && best == 0)
        return pgl_fail(err, PGL_E_NUMERIC, "expected a row whose scale fp16 holds, found weights of size %g",
                        (double)most);
    float s = pgl_f16_to_f32(best);
    for (uint32_t i = 0; i < n; i++)
        w8[i] = (int8_t)(s > 0 ? fminf(fmaxf(rintf(w[i] / s), -127), 127) : 0);
    *scale = best;
    return PGL_OK;
}

pgl_status pgl_quantize_f16(const float *w, uint64_t n, pgl_f16 *out, pgl_error *err) {
    for (uint64_t i = 0; i < n; i++) {
        out[i] = pgl_f32_to_f16(w[i]);
        if (!isfinite(w[i]) || !isfinite(pgl_f16_to_f32(out[i])))
            return pgl_fail(err, PGL_E_NUMERIC, "element %llu: expected a number that fp16 holds, found %g",
                            (unsigned long long)i, (double)w[i]);
    }
    return PGL_OK;
}
