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

#define DELTA_PARTS (PGL_CUDA_DELTA_THREADS / PGL_CUDA_MOST_STATE_DIM)
#define DELTA_MOST_ROWS (PGL_CUDA_MOST_STATE_DIM / DELTA_PARTS)

/* Sums of the parts of a column, in order, in every thread of the column. */
PGL_DEVICE float delta_parts(float v, float *sums) {
    uint32_t j = pgl_thread % PGL_CUDA_MOST_STATE_DIM;
    sums[pgl_thread] = v;
    pgl_block_sync();
    float sum = sums[j];
    PGL_UNROLL
    for (uint32_t p = 1; p < DELTA_PARTS; p++)
        sum += sums[p * PGL_CUDA_MOST_STATE_DIM + j];
    return sum;
}

/* Shared by the threads of a block. */
typedef struct delta_shared {
    float *q, *k;           /* [dk] */
    float *old_sums, *sums; /* [PGL_CUDA_DELTA_THREADS] */
    float *squares;         /* one for each warp */
} delta_shared;

/* A thread has some rows of one column of the state, in registers: four threads a column. */
PGL_DEVICE void delta_span(const pgl_delta_args *a, const pgl_cuda_span span, const uint32_t dk,
                           const delta_shared *m) {
    const uint32_t rows = dk / DELTA_PARTS;
    uint32_t head = pgl_block_y, j = pgl_thread % PGL_CUDA_MOST_STATE_DIM,
             part = pgl_thread / PGL_CUDA_MOST_STATE_DIM;
    uint32_t key_head = head / (a->nv / a->nk), width = a->nk * dk;
    float *column = a->state + span.slot * a->slot_stride + ((uint64_t)head * dk + part * rows) * a->dv + j;
    float s[DELTA_MOST_ROWS];
    int mine = j < a->dv;
    PGL_UNROLL
    for (uint32_t i = 0; i < rows; i++)
        s[i] = mine ? column[(uint64_t)i * a->dv] : 0;
    pgl_wait();
    pgl_release();
    for (uint32_t n = 0; n < span.n; n++) {
        uint64_t at = span.first + n;
        const float *u = a->u + at * a->u_stride, *q = m->q + part * rows, *k = m->k + part * rows;
        if (pgl_thread < 32)
            unit(u + key_head * dk, dk, 1.0F / sqrtf((float)dk), m->q);
        else if (pgl_thread < 64)
            unit(u + width + key_head * dk, dk, 1.0F, m->k);
        float gate = a->a[at * a->gate_stride + head] + a->dt_bias[head];
        float decay = k_exp(-k_exp(a->a_log[head]) * k_softplus(gate));
        float beta = k_sigmoid(a->b[at * a->gate_stride + head]), old = 0, o = 0;
        pgl_block_sync();
        PGL_UNROLL
        for (uint32_t i = 0; i < rows; i++) {
            s[i] *= decay;
            old = fmaf(k[i], s[i], old);
        }
        old = delta_parts(old, m->old_sums);
        float d = ((mine ? u[2 * width + head * a->dv + j] : 0) - old) * beta;
        PGL_UNROLL
        for (uint32_t i = 0; i < rows; i++) {
            s[i] = fmaf(k[i], d, s[i]);
            o = fmaf(q[i], s[i], o);
        }
        o = delta_parts(o, m->sums);
        float sum = k_block_sum(mine && part == 0 ? o * o : 0, m->squares, PGL_CUDA_DELTA_THREADS / 32);
        if (mine && part == 0 && a->z != 0) {
            float r = 1.0F / sqrtf(sum / (float)a->dv + a->eps);
            float z = a->z[at * a->nv * a->dv + head * a->dv + j];
            float y = ((o * r) * a->norm[j]) * k_silu(z);
            a->o[at * a->o_stride + head * a->dv + j] = pgl_f2h(y);
            if (a->o32 != 0)
                a->o32[at * a->nv * a->dv + head * a->dv + j] = y;
        }
    }
    PGL_UNROLL
    for (uint32_t i = 0; i < rows; i++) {
        if (mine && span.keep == 0)
            column[(uint64_t)i * a->dv] = s[i];
    }
}

PGL_KERNEL(delta, PGL_CUDA_DELTA_THREADS) {
    PGL_SHARED(float, q, PGL_CUDA_MOST_STATE_DIM);
    PGL_SHARED(float, k, PGL_CUDA_MOST_STATE_DIM);
    PGL_SHARED(float, old_sums, PGL_CUDA_DELTA_THREADS);
    PGL_SHARED(float, sums, PGL_CUDA_DELTA_THREADS);
    PGL_SHARED(float, squares, PGL_CUDA_DELTA_THREADS / 32);
    const delta_shared m = {q, k, old_sums, sums, squares};
    const pgl_cuda_span span = a.spans[pgl_block_x]; /* the host's, or of a kernel long before */
    switch (a.dk) {
    case 32:
        delta_span(&a, span, 32, &m);
        break;
    case 64:
        delta_span(&a, span, 64, &m);
        break;
    case 96:
        delta_span(&a, span, 96, &m);
        break;
    default:
        delta_span(&a, span, 128, &m);
        break;
    }
}
