/* What several kernels compute: the exponentials of codec/codec.h operation by operation, sums over a warp or a block,
 * the Hadamard transform of one warp, weights of any kind as f32. */
#ifndef PGL_BACKEND_CUDA_KERNELS_MATH_H
#define PGL_BACKEND_CUDA_KERNELS_MATH_H

#include <math.h>

#include "backend/cuda/kernels/vocab.h"
#include "codec/codec.h"

PGL_DEVICE float k_exp(float x) {
    float c = x < PGL_EXP_LOW ? PGL_EXP_LOW : x;
    c = c > PGL_EXP_HIGH ? PGL_EXP_HIGH : c;
    float t = fmaf(c, PGL_EXP_LOG2E, PGL_EXP_MAGIC), n = t - PGL_EXP_MAGIC;
    int32_t i = (int32_t)(pgl_bits(t) - PGL_EXP_MAGIC_BITS), h = i >> 1;
    float r = fmaf(n, -PGL_EXP_LN2_HIGH, c);
    r = fmaf(n, -PGL_EXP_LN2_LOW, r);
    float q = fmaf(PGL_EXP_C6, r, PGL_EXP_C5);
    q = fmaf(fmaf(fmaf(q, r, PGL_EXP_C4), r, PGL_EXP_C3), r, PGL_EXP_C2);
    float p = fmaf(q, r * r, r) + 1.0F;
    return (p * pgl_from_bits((uint32_t)(h + 127) << 23)) * pgl_from_bits((uint32_t)(i - h + 127) << 23);
}

PGL_DEVICE float k_sigmoid(float x) {
    return 1.0F / (1.0F + k_exp(-x));
}

PGL_DEVICE float k_silu(float x) {
    return x * k_sigmoid(x);
}

PGL_DEVICE float k_softplus(float x) {
    float e = k_exp(-fabsf(x)), s = e / (2.0F + e), w = s * s;
    float q = fmaf(fmaf(PGL_LOG1P_C4, w, PGL_LOG1P_C3), w, PGL_LOG1P_C2);
    q = fmaf(fmaf(q, w, PGL_LOG1P_C1), w, PGL_LOG1P_C0);
    return (x > 0 ? x : 0) + fmaf(s, fmaf(w, q, -e), e);
}

PGL_DEVICE float k_round16(float x) {
    return pgl_h2f(pgl_f2h(x));
}

/* f16(f16(silu(gate)) * up) */
PGL_DEVICE uint16_t k_swiglu_coded(float gate, float up) {
    return pgl_f2h(k_round16(k_silu(gate)) * up);
}

/* Of all 32 lanes, in every lane. */
PGL_DEVICE float k_warp_sum(float v) {
    for (uint32_t m = 16; m > 0; m >>= 1)
        v += pgl_exchange(v, m);
    return v;
}

/* Of all threads of a block of n_warps warps, in every thread. part: shared, one float for each warp; free to be written
 * again after the next pgl_block_sync. */
PGL_DEVICE float k_block_sum(float v, float *part, const uint32_t n_warps) {
    v = k_warp_sum(v);
    if (pgl_thread % 32 == 0)
        part[pgl_thread / 32] = v;
    pgl_block_sync();
    float sum = part[0];
    PGL_UNROLL
    for (uint32_t i = 1; i < n_warps; i++)
        sum += part[i];
    return sum;
}

/* H128 of one block; a lane has the elements 4 lane .. 4 lane + 3. The butterflies of codec/codec.h, bit for bit. */
PGL_DEVICE void k_hadamard(float v[4]) {
    float p = v[0] + v[1], q = v[0] - v[1], r = v[2] + v[3], s = v[2] - v[3];
    v[0] = p + r;
    v[1] = q + s;
    v[2] = p - r;
    v[3] = q - s;
    PGL_UNROLL
    for (uint32_t m = 1; m < 32; m <<= 1) {
        PGL_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            float other = pgl_exchange(v[i], m);
            v[i] = (pgl_thread & m) != 0 ? other - v[i] : v[i] + other;
        }
    }
}

/* The two fp16 words of a state, whose sum is its weight (docs/format.md). */
PGL_DEVICE uint32_t k_codebook(uint32_t state) {
    return ((state & 0xFFFF) * 0xCBAC1FEDu & 0x8FFF8FFFu) ^ 0x3B603B60u;
}

/* rin or rout with its factor, where there is one. */
PGL_DEVICE float k_effective(const uint16_t *r, const float *s, uint64_t at) {
    float v = pgl_h2f(r[at]);
    return s != 0 ? v * s[at] : v;
}

/* Weight i of a row, widened. */
PGL_DEVICE float k_weight(const pgl_cuda_matrix *m, uint32_t row, uint32_t i) {
    uint64_t at = (uint64_t)row * m->in + i;
    switch (m->type) {
    case PGL_CUDA_INT8_F16:
        return k_round16((float)((const int8_t *)m->w)[at] * pgl_h2f(((const uint16_t *)m->scale)[row]));
    case PGL_CUDA_INT8_F32:
        return k_round16((float)((const int8_t *)m->w)[at] * ((const float *)m->scale)[row]);
    case PGL_CUDA_F16:
        return pgl_h2f(((const uint16_t *)m->w)[at]);
    case PGL_CUDA_BF16:
        return pgl_from_bits((uint32_t)((const uint16_t *)m->w)[at] << 16);
    default:
        return ((const float *)m->w)[at];
    }
}

#endif
