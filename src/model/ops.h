/* The steps of the forward pass (docs/model.md), each as one function on plain f32 arrays. The order of every
 * sum and the association of every product are stated here and are part of the contract: vector code that
 * keeps them is bit-identical. `dot16` and its lane tree are those of codec/codec.h. Every line is one
 * correctly rounded operation where it reads so; sqrtf and / are the IEEE ones. `+=` on a sum starts from +0.
 *
 * Nothing here allocates or fails; any thread. Weights are read through pgl_vec: F16, BF16 or F32, widened
 * exactly. */
#ifndef PGL_MODEL_OPS_H
#define PGL_MODEL_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/weights.h"

/* Element i of a vector, widened. */
float pgl_vec_at(const pgl_vec *vec, uint32_t i);

/* r = 1 / sqrtf(dot16(x, x) / n + eps);  y_i = (x_i * r) * (1 + w_i).  y may be x. */
void pgl_norm(const float *x, const pgl_vec *w, float eps, uint32_t n, float *y);

/* ---- gated delta net */

/* One new input row u [width] of the causal convolution; taps holds the kernel - 1 rows before it, oldest
 * first, and is moved on by one row. acc = fmaf(w[c][0], taps[0][c], +0), then fmaf(w[c][j], taps[j][c], acc)
 * for rising j, last fmaf(w[c][kernel - 1], u[c], acc);   out[c] = silu(acc) out may be u. */
void pgl_conv_step(const pgl_vec *w, uint32_t width, uint32_t kernel, float *taps, const float *u,
                   float *out);

/* r = 1 / sqrtf(dot16(x, x) + 1e-6);  y_i = x_i * r, and where scale is not 1, (x_i * r) * scale.  In place.
 */
void pgl_l2_norm(float *x, uint32_t n, float scale);

/* decay = expf((-expf(a_log)) * softplus(a + dt_bias)),  expf and softplus those of codec.h. */
float pgl_delta_decay(float a_log, float dt_bias, float a);

/* One token of one value head. S [dk][dv]; q, k [dk]; v, o [dv]. In this order, j over all of dv
 * independently: S_ij = S_ij * decay m_j  = sum over rising i of fmaf(k_i, S_ij, m_j) d_j  = (v_j - m_j) *
 * beta S_ij = fmaf(k_i, d_j, S_ij) o_j  = sum over rising i of fmaf(q_i, S_ij, o_j) scratch [dv]. */
typedef struct pgl_delta_head {
    float *s;
    const float *q, *k, *v;
    float decay, beta;
    uint32_t dk, dv;
    float *o, *scratch;
} pgl_delta_head;
void pgl_delta_step(const pgl_delta_head *head);

/* r = 1 / sqrtf(dot16(o, o) / n + eps);  y_i = ((o_i * r) * w_i) * silu(z_i).  y may be o. */
void pgl_gated_norm(const float *o, const float *z, const pgl_vec *w, float eps, uint32_t n, float *y);

/* ---- full attention */

/* cos and sin [rotary_dim / 2] of a position: angle_i = position * pow(theta, -2 i / rotary_dim), everything
 * in double, cos and sin cast to f32 at the end. Backends call this too: libm's double functions are not
 * repeated elsewhere. */
void pgl_rope_angles(double theta, uint32_t rotary_dim, uint64_t position, float *cosine, float *sine);

/* In place on the first rotary_dim of x, half-split, h = rotary_dim / 2, a = x_i, b = x_(i + h):
 *     x_i = fmaf(-b, sin_i, a * cos_i);   x_(i + h) = fmaf(a, sin_i, b * cos_i) */
void pgl_rope(float *x, uint32_t rotary_dim, const float *cosine, const float *sine);

/* One query head over keys 0 .. n - 1. Key j is at keys + j * stride, value j at values + j * stride.
 *     s_j = dot16(q, k_j) * scale,  scale = 1 / sqrtf(head_dim)
 *     m = max s_j;  p_j = expf(s_j - m)
 *     l = sum of p_j in 16 lanes, lane j mod 16, rising j, plain additions; then dot16's lane tree
 *     acc_c = sum over rising j of fmaf(p_j, v_jc, acc_c);   o_c = acc_c * (1 / l)
 * p [n] is scratch. */
typedef struct pgl_attention_head {
    const float *q, *keys, *values;
    size_t stride, n;
    uint32_t head_dim;
    float *p, *o;
} pgl_attention_head;
void pgl_attention_step(const pgl_attention_head *head);

/* ---- mixture of experts */

/* The k largest logits, falling, ties to the lower index, into experts; then, m = the first of them:
 *     p_s = expf(logit_s - m);  sum = p_0 + p_1 + ... in slot order;  weight_s = p_s / sum
 * n >= k. A NaN is never larger than anything and nothing is larger than a NaN. */
void pgl_route(const float *logits, uint32_t n, uint32_t k, int32_t *experts, float *weights);

/* h_i = f16(f16(silu(gate_i)) * up_i): SwiGLU on the outputs of coded linears. Without rounding when exact.
 */
void pgl_swiglu_coded(const float *gate, const float *up, uint32_t n, bool exact, float *h);

/* h_i = silu(gate_i) * up_i: SwiGLU on the f32 outputs of dense linears. */
void pgl_swiglu(const float *gate, const float *up, uint32_t n, float *h);

#endif
