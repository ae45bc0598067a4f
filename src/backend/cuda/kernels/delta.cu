/* The gated delta net: the convolution and the recurrence, token by token. */
#include "backend/cuda/kernels/math.h"

/* A thread is a channel. */
PGL_KERNEL(conv, PGL_CUDA_THREADS) {
    const pgl_cuda_span span = a.spans[pgl_block_x];
    uint32_t c = pgl_block_y * PGL_CUDA_THREADS + pgl_thread, n_taps = a.kernel - 1;
    if (c >= a.width)
        return;
    float *taps = a.taps + span.slot * a.slot_stride + c, kept[PGL_CUDA_MOST_KERNEL], w[PGL_CUDA_MOST_KERNEL];
    PGL_UNROLL
    for (uint32_t j = 0; j < PGL_CUDA_MOST_KERNEL; j++) {
        kept[j] = j < n_taps ? taps[(uint64_t)j * a.width] : 0;
        w[j] = j < a.kernel ? a.w[(uint64_t)j * a.width + c] : 0;
    }
    for (uint32_t i = 0; i < span.n; i++) {
        float *u = a.u + (uint64_t)(span.first + i) * a.u_stride + c, in = *u, acc = 0;
        PGL_UNROLL
        for (uint32_t j = 0; j < PGL_CUDA_MOST_KERNEL - 1; j++) {
            if (j < n_taps) {
                acc = fmaf(w[j], kept[j], acc);
                kept[j] = j + 1 < n_taps ? kept[j + 1] : in;
            } else if (j == n_taps) {
                acc = fmaf(w[j], in, acc);
            }
        }
        if (n_taps == PGL_CUDA_MOST_KERNEL - 1)
            acc = fmaf(w[PGL_CUDA_MOST_KERNEL - 1], in, acc);
        *u = k_silu(acc);
    }
    PGL_UNROLL
    for (uint32_t j = 0; j < PGL_CUDA_MOST_KERNEL; j++) {
        if (j < n_taps && span.keep == 0)
            taps[(uint64_t)j * a.width] = kept[j];
    }
}

/* q (or k) of one head, normed, by one warp. */
PGL_DEVICE void unit(const float *x, uint32_t n, float scale, float *out) {
    uint32_t lane = pgl_thread % 32;
    float sum = 0;
    for (uint32_t i = lane; i < n; i += 32)
        sum = fmaf(x[i], x[i], sum);
    float r = 1.0F / sqrtf(k_warp_sum(sum) + 1e-6F);
    for (uint32_t i = lane; i < n; i += 32)
        out[i] = x[i] * r * scale;
}

/* What a thread needs of one token. */
typedef struct delta_token {
    const float *q, *k;
    float v, decay, beta;
} delta_token;

/* A thread has one column of the state, in registers; dk is a constant where this is called. */
PGL_DEVICE float delta_step(float *s, uint32_t dk, const delta_token *t) {
    float m = 0, o = 0;
    PGL_UNROLL
    for (uint32_t i = 0; i < dk; i++) {
        s[i] *= t->decay;
        m = fmaf(t->k[i], s[i], m);
    }
    float d = (t->v - m) * t->beta;
    PGL_UNROLL
    for (uint32_t i = 0; i < dk; i++) {
        s[i] = fmaf(t->k[i], d, s[i]);
        o = fmaf(t->q[i], s[i], o);
    }
    return o;
}

PGL_DEVICE void delta_span(const pgl_delta_args *a, const pgl_cuda_span span, const uint32_t dk, float *q,
                           float *k, float *part) {
    uint32_t head = pgl_block_y, j = pgl_thread, key_head = head / (a->nv / a->nk), width = a->nk * dk;
    float *column = a->state + span.slot * a->slot_stride + (uint64_t)head * dk * a->dv + j,
          s[PGL_CUDA_MOST_STATE_DIM];
    int mine = j < a->dv;
    PGL_UNROLL
    for (uint32_t i = 0; i < dk; i++)
        s[i] = mine ? column[(uint64_t)i * a->dv] : 0;
    for (uint32_t n = 0; n < span.n; n++) {
        uint64_t at = span.first + n;
        const float *u = a->u + at * a->u_stride;
        if (pgl_thread < 32)
            unit(u + key_head * dk, dk, 1.0F / sqrtf((float)dk), q);
        else if (pgl_thread < 64)
            unit(u + width + key_head * dk, dk, 1.0F, k);
        pgl_block_sync();
        float gate = a->a[at * a->gate_stride + head] + a->dt_bias[head];
        delta_token t = {
            .q = q,
            .k = k,
            .v = mine ? u[2 * width + head * a->dv + j] : 0,
            .decay = k_exp(-k_exp(a->a_log[head]) * k_softplus(gate)),
            .beta = k_sigmoid(a->b[at * a->gate_stride + head]),
        };
        float o = delta_step(s, dk, &t);
        float sum = k_block_sum(mine ? o * o : 0, part, PGL_CUDA_THREADS / 32);
        if (mine && a->z != 0) {
            float r = 1.0F / sqrtf(sum / (float)a->dv + a->eps);
            float z = a->z[at * a->nv * a->dv + head * a->dv + j];
            float y = ((o * r) * a->norm[j]) * k_silu(z);
            a->o[at * a->o_stride + head * a->dv + j] = pgl_f2h(y);
            if (a->o32 != 0)
                a->o32[at * a->nv * a->dv + head * a->dv + j] = y;
        }
    }
    PGL_UNROLL
    for (uint32_t i = 0; i < dk; i++) {
        if (mine && span.keep == 0)
            column[(uint64_t)i * a->dv] = s[i];
    }
}

PGL_KERNEL(delta, PGL_CUDA_THREADS) {
    PGL_SHARED(float, q, PGL_CUDA_MOST_STATE_DIM);
    PGL_SHARED(float, k, PGL_CUDA_MOST_STATE_DIM);
    PGL_SHARED(float, part, PGL_CUDA_THREADS / 32);
    const pgl_cuda_span span = a.spans[pgl_block_x];
    switch (a.dk) {
    case 32:
        delta_span(&a, span, 32, q, k, part);
        break;
    case 64:
        delta_span(&a, span, 64, q, k, part);
        break;
    case 96:
        delta_span(&a, span, 96, q, k, part);
        break;
    default:
        delta_span(&a, span, 128, q, k, part);
        break;
    }
}
