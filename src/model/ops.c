/* Owns nothing: the steps of the forward pass on the caller's arrays. */
#include "model/ops.h"

#include <math.h>
#include <string.h>

#include "codec/codec.h"
#include "codec/fma.h"

float pgl_vec_at(const pgl_vec *vec, uint32_t i) {
    return pgl_read_f32(vec->data, vec->dtype, i);
}

void pgl_norm(const float *x, const pgl_vec *w, float eps, uint32_t n, float *y) {
    float r = 1.0F / sqrtf(pgl_dot16(x, x, n) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = (x[i] * r) * (1.0F + pgl_vec_at(w, i));
}

void pgl_conv_step(const pgl_vec *w, uint32_t width, uint32_t kernel, float *taps, const float *u,
                   float *out) {
    for (uint32_t c = 0; c < width; c++) {
        float acc = 0.0F, newest = u[c];
        for (uint32_t j = 0; j + 1 < kernel; j++)
            acc = fmaf(pgl_vec_at(w, c * kernel + j), taps[(size_t)j * width + c], acc);
        acc = fmaf(pgl_vec_at(w, c * kernel + kernel - 1), newest, acc);
        for (uint32_t j = 0; j + 2 < kernel; j++)
            taps[(size_t)j * width + c] = taps[(size_t)(j + 1) * width + c];
        if (kernel > 1)
            taps[(size_t)(kernel - 2) * width + c] = newest;
        out[c] = pgl_silu(acc);
    }
}

void pgl_l2_norm(float *x, uint32_t n, float scale) {
    float r = 1.0F / sqrtf(pgl_dot16(x, x, n) + 1e-6F);
    for (uint32_t i = 0; i < n; i++)
        x[i] = (x[i] * r) * scale;
}

float pgl_delta_decay(float a_log, float dt_bias, float a) {
    return pgl_expf((-pgl_expf(a_log)) * pgl_softplus(a + dt_bias));
}

PGL_FMA_BODY void delta_body(const pgl_delta_head *head) {
    uint32_t dk = head->dk, dv = head->dv;
    float *restrict s = head->s, *restrict o = head->o, *restrict d = head->scratch;
    memset(d, 0, dv * sizeof *d);
    memset(o, 0, dv * sizeof *o);
    for (uint32_t i = 0; i < dk; i++) {
        float *restrict row = s + (size_t)i * dv;
        float k = head->k[i], decay = head->decay;
        for (uint32_t j = 0; j < dv; j++) {
            float kept = row[j] * decay;
            row[j] = kept;
            d[j] = fmaf(k, kept, d[j]);
        }
    }
    for (uint32_t j = 0; j < dv; j++)
        d[j] = (head->v[j] - d[j]) * head->beta;
    for (uint32_t i = 0; i < dk; i++) {
        float *restrict row = s + (size_t)i * dv;
        float k = head->k[i], q = head->q[i];
        for (uint32_t j = 0; j < dv; j++) {
            float next = fmaf(k, d[j], row[j]);
            row[j] = next;
            o[j] = fmaf(q, next, o[j]);
        }
    }
}

PGL_FMA_TARGET static void delta_fma(const pgl_delta_head *head) {
    delta_body(head);
}

void pgl_delta_step(const pgl_delta_head *head) {
    if (pgl_has_fma())
        delta_fma(head);
    else
        delta_body(head);
}

void pgl_gated_norm(const float *o, const float *z, const pgl_vec *w, float eps, uint32_t n, float *y) {
    float r = 1.0F / sqrtf(pgl_dot16(o, o, n) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = ((o[i] * r) * pgl_vec_at(w, i)) * pgl_silu(z[i]);
}

void pgl_rope_angles(double theta, uint32_t rotary_dim, uint64_t position, float *cosine, float *sine) {
    for (uint32_t i = 0; i < rotary_dim / 2; i++) {
        double angle = (double)position * pow(theta, -2.0 * i / rotary_dim);
        cosine[i] = (float)cos(angle);
        sine[i] = (float)sin(angle);
    }
}

void pgl_rope(float *x, uint32_t rotary_dim, const float *cosine, const float *sine) {
    uint32_t h = rotary_dim / 2;
    for (uint32_t i = 0; i < h; i++) {
        float a = x[i], b = x[i + h];
        x[i] = fmaf(-b, sine[i], a * cosine[i]);
        x[i + h] = fmaf(a, sine[i], b * cosine[i]);
    }
}

PGL_FMA_BODY void weigh_values_body(const pgl_attention_head *head) {
    uint32_t n = head->head_dim;
    float *restrict o = head->o;
    memset(o, 0, n * sizeof *o);
    for (size_t j = 0; j < head->n; j++) {
        const float *restrict v = head->values + j * head->stride;
        float p = head->p[j];
        for (uint32_t c = 0; c < n; c++)
            o[c] = fmaf(p, v[c], o[c]);
    }
}

PGL_FMA_TARGET static void weigh_values_fma(const pgl_attention_head *head) {
    weigh_values_body(head);
}

void pgl_attention_step(const pgl_attention_head *head) {
    uint32_t dim = head->head_dim;
    float scale = 1.0F / sqrtf((float)dim);
    float top = -INFINITY;
    for (size_t j = 0; j < head->n; j++) {
        float s = pgl_dot16(head->q, head->keys + j * head->stride, dim) * scale;
        head->p[j] = s;
        top = s > top ? s : top;
    }
    float lane[16] = {0};
    for (size_t j = 0; j < head->n; j++) {
        head->p[j] = pgl_expf(head->p[j] - top);
        lane[j % 16] += head->p[j];
    }
    float inverse = 1.0F / pgl_lanes_sum(lane);
    if (pgl_has_fma())
        weigh_values_fma(head);
    else
        weigh_values_body(head);
    for (uint32_t c = 0; c < dim; c++)
        head->o[c] = head->o[c] * inverse;
}

static bool taken(const int32_t *experts, uint32_t n, uint32_t e) {
    for (uint32_t i = 0; i < n; i++) {
        if (experts[i] == (int32_t)e)
            return true;
    }
    return false;
}

void pgl_route(const float *logits, uint32_t n, uint32_t k, int32_t *experts, float *weights) {
    for (uint32_t s = 0; s < k; s++) {
        uint32_t best = n;
        for (uint32_t e = 0; e < n; e++) {
            if (!taken(experts, s, e) && (best == n || logits[e] > logits[best]))
                best = e;
        }
        experts[s] = (int32_t)best;
    }
    float sum = 0.0F;
    for (uint32_t s = 0; s < k; s++) {
        weights[s] = pgl_expf(logits[experts[s]] - logits[experts[0]]);
        sum = sum + weights[s];
    }
    for (uint32_t s = 0; s < k; s++)
        weights[s] = weights[s] / sum;
}

void pgl_swiglu_coded(const float *gate, const float *up, uint32_t n, bool exact, float *h) {
    for (uint32_t i = 0; i < n; i++) {
        float s = pgl_silu(gate[i]);
        h[i] = exact ? s * up[i] : pgl_round_f16(pgl_round_f16(s) * up[i]);
    }
}

void pgl_swiglu(const float *gate, const float *up, uint32_t n, float *h) {
    for (uint32_t i = 0; i < n; i++)
        h[i] = pgl_silu(gate[i]) * up[i];
}
