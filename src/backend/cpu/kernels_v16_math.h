/* Kernels in the vocabulary of v16_*.h, part one: what works along a row. Included once by each kernels_<isa>.c,
 * after its v16_<isa>.h; every loop repeats the operations of codec/codec.h and model/ops.h in their order. */
#ifndef PGL_BACKEND_CPU_KERNELS_V16_MATH_H
#define PGL_BACKEND_CPU_KERNELS_V16_MATH_H

#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"

/* ---- codec/codec.h: exponentials */

V16_INLINE v16 v16_exp(v16 x) {
    v16 c = v16_min(v16_set1(PGL_EXP_HIGH), v16_max(v16_set1(PGL_EXP_LOW), x));
    v16 magic = v16_set1(PGL_EXP_MAGIC);
    v16 t = v16_fma(c, v16_set1(PGL_EXP_LOG2E), magic);
    v16 n = v16_sub(t, magic);
    v16 r = v16_fma(n, v16_set1(-PGL_EXP_LN2_HIGH), c);
    r = v16_fma(n, v16_set1(-PGL_EXP_LN2_LOW), r);
    v16 q = v16_fma(v16_set1(PGL_EXP_C6), r, v16_set1(PGL_EXP_C5));
    q = v16_fma(q, r, v16_set1(PGL_EXP_C4));
    q = v16_fma(q, r, v16_set1(PGL_EXP_C3));
    q = v16_fma(q, r, v16_set1(PGL_EXP_C2));
    v16 p = v16_add(v16_fma(q, v16_mul(r, r), r), v16_set1(1.0F));
    return v16_scale2(p, t);
}

V16_INLINE v16 v16_sigmoid(v16 x) {
    v16 one = v16_set1(1.0F);
    return v16_div(one, v16_add(one, v16_exp(v16_neg(x))));
}

V16_INLINE v16 v16_silu(v16 x) {
    return v16_mul(x, v16_sigmoid(x));
}

/* ---- rows of n: whole vectors, then what is left */

/* Lanes of the vector that starts at element i of n. */
V16_INLINE uint32_t lanes_at(uint32_t i, uint32_t n) {
    return n - i < 16 ? n - i : 16;
}

V16_INLINE v16 load_some(const float *p, uint32_t lanes) {
    return lanes == 16 ? v16_load(p) : v16_load_n(p, lanes);
}

V16_INLINE void store_some(float *p, v16 x, uint32_t lanes) {
    if (lanes == 16)
        v16_store(p, x);
    else
        v16_store_n(p, x, lanes);
}

/* acc + x * y in the lanes there are */
V16_INLINE v16 fma_some(v16 x, v16 y, v16 acc, uint32_t lanes) {
    v16 sum = v16_fma(x, y, acc);
    return lanes == 16 ? sum : v16_select(lanes, sum, acc);
}

static float dot16_self(const float *x, uint32_t n) {
    v16 acc = v16_zero();
    for (uint32_t i = 0; i < n; i += 16) {
        v16 v = load_some(x + i, lanes_at(i, n));
        acc = fma_some(v, v, acc, lanes_at(i, n));
    }
    return v16_sum(acc);
}

/* ---- rows */

static void k_round16(const float *x, size_t n, float *y) {
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(y + i, v16_round16(v16_load(x + i)));
    if (i < n)
        v16_store_n(y + i, v16_round16(v16_load_n(x + i, (uint32_t)(n - i))), (uint32_t)(n - i));
}

static void k_store16(const float *x, size_t n, pgl_f16 *y) {
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store_f16(y + i, v16_load(x + i));
    if (i < n) {
        pgl_f16 rest[16];
        v16_store_f16(rest, v16_load_n(x + i, (uint32_t)(n - i)));
        memcpy(y + i, rest, (n - i) * sizeof *y);
    }
}

static void k_norm(const float *x, const float *w, float eps, uint32_t n, float *y) {
    v16 r = v16_set1(1.0F / sqrtf(dot16_self(x, n) / (float)n + eps)), one = v16_set1(1.0F);
    for (uint32_t i = 0; i < n; i += 16) {
        v16 scaled = v16_mul(load_some(x + i, lanes_at(i, n)), r);
        store_some(y + i, v16_mul(scaled, v16_add(one, load_some(w + i, lanes_at(i, n)))), lanes_at(i, n));
    }
}

static void k_add(const float *y, size_t n, float *x) {
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(x + i, v16_add(v16_load(x + i), v16_load(y + i)));
    for (; i < n; i++)
        x[i] = x[i] + y[i];
}

static void k_swiglu_coded(const float *gate, const float *up, uint32_t n, float *h) {
    for (uint32_t i = 0; i < n; i += 16) {
        v16 s = v16_round16(v16_silu(load_some(gate + i, lanes_at(i, n))));
        store_some(h + i, v16_round16(v16_mul(s, load_some(up + i, lanes_at(i, n)))), lanes_at(i, n));
    }
}

static void k_swiglu(const float *gate, const float *up, uint32_t n, float *h) {
    for (uint32_t i = 0; i < n; i += 16) {
        v16 s = v16_silu(load_some(gate + i, lanes_at(i, n)));
        store_some(h + i, v16_mul(s, load_some(up + i, lanes_at(i, n))), lanes_at(i, n));
    }
}

static void k_mix(const pgl_mix_job *job) {
    for (uint32_t i = 0; i < job->n; i += 16) {
        v16 r = v16_zero();
        for (uint32_t s = 0; s < job->n_slots; s++)
            r = v16_fma(v16_set1(job->weight[s]), load_some(job->slot[s] + i, lanes_at(i, job->n)), r);
        r = v16_round16(r);
        if (job->shared != NULL)
            r = v16_fma(v16_set1(job->gate), load_some(job->shared + i, lanes_at(i, job->n)), r);
        store_some(job->x + i, v16_add(load_some(job->x + i, lanes_at(i, job->n)), r), lanes_at(i, job->n));
    }
}

/* x * 0 is a zero for finite numbers alone, and a NaN stays in the sum. */
static bool k_finite(const float *x, size_t n) {
    v16 sum = v16_zero(), zero = v16_zero();
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        sum = v16_fma(v16_load(x + i), zero, sum);
    if (i < n)
        sum = v16_fma(v16_load_n(x + i, (uint32_t)(n - i)), zero, sum);
    return v16_all_zero(sum) != 0;
}

/* ---- gated delta net */

V16_INLINE void conv_lanes(const pgl_conv_job *job, uint32_t c, uint32_t lanes) {
    enum { MOST = 8 };
    v16 w[MOST], tap[MOST];
    uint32_t kernel = job->kernel;
    for (uint32_t j = 0; j < kernel; j++)
        w[j] = load_some(job->w + (size_t)j * job->width + c, lanes);
    for (uint32_t j = 0; j + 1 < kernel; j++)
        tap[j] = load_some(job->taps + (size_t)j * job->width + c, lanes);
    for (uint32_t t = 0; t < job->n; t++) {
        float *u = job->u + t * job->u_stride + c;
        tap[kernel - 1] = load_some(u, lanes);
        v16 acc = v16_zero();
        for (uint32_t j = 0; j < kernel; j++)
            acc = v16_fma(w[j], tap[j], acc);
        for (uint32_t j = 0; j + 1 < kernel; j++)
            tap[j] = tap[j + 1];
        store_some(u, v16_silu(acc), lanes);
    }
    for (uint32_t j = 0; j + 1 < kernel; j++)
        store_some(job->taps + (size_t)j * job->width + c, tap[j], lanes);
}

static void k_conv(const pgl_conv_job *job) {
    if (job->kernel > 8) {
        pgl_kernels_scalar()->conv(job);
        return;
    }
    for (uint32_t i = 0; i < job->count; i += 16)
        conv_lanes(job, job->first + i, lanes_at(i, job->count));
}

static void k_l2_norm(float *x, uint32_t n, float scale) {
    v16 r = v16_set1(1.0F / sqrtf(dot16_self(x, n) + 1e-6F)), s = v16_set1(scale);
    for (uint32_t i = 0; i < n; i += 16)
        store_some(x + i, v16_mul(v16_mul(load_some(x + i, lanes_at(i, n)), r), s), lanes_at(i, n));
}

/* `width` vectors of columns of S at once: the decayed S is computed twice rather than stored twice. */
V16_INLINE void delta_strip(const pgl_delta_job *job, uint32_t column, uint32_t width, uint32_t lanes) {
    v16 m[4], o[4], decay = v16_set1(job->decay), beta = v16_set1(job->beta);
    for (uint32_t w = 0; w < width; w++)
        m[w] = o[w] = v16_zero();
    for (uint32_t i = 0; i < job->dk; i++) {
        const float *row = job->s + (size_t)i * job->dv + column;
        v16 k = v16_set1(job->k[i]);
        for (uint32_t w = 0; w < width; w++)
            m[w] = v16_fma(k, v16_mul(load_some(row + (size_t)16 * w, lanes), decay), m[w]);
    }
    for (uint32_t w = 0; w < width; w++)
        m[w] = v16_mul(v16_sub(load_some(job->v + column + (size_t)16 * w, lanes), m[w]), beta);
    for (uint32_t i = 0; i < job->dk; i++) {
        float *row = job->s + (size_t)i * job->dv + column;
        v16 k = v16_set1(job->k[i]), q = v16_set1(job->q[i]);
        for (uint32_t w = 0; w < width; w++) {
            v16 s = v16_fma(k, m[w], v16_mul(load_some(row + (size_t)16 * w, lanes), decay));
            store_some(row + (size_t)16 * w, s, lanes);
            o[w] = v16_fma(q, s, o[w]);
        }
    }
    for (uint32_t w = 0; w < width; w++)
        store_some(job->o + column + (size_t)16 * w, o[w], lanes);
}

static void k_delta(const pgl_delta_job *job) {
    uint32_t column = 0;
    for (; column + 64 <= job->dv; column += 64)
        delta_strip(job, column, 4, 16);
    for (; column + 16 <= job->dv; column += 16)
        delta_strip(job, column, 1, 16);
    if (column < job->dv)
        delta_strip(job, column, 1, job->dv - column);
}

static void k_gated_norm(const float *o, const float *z, const float *w, float eps, uint32_t n, float *y) {
    v16 r = v16_set1(1.0F / sqrtf(dot16_self(o, n) / (float)n + eps));
    for (uint32_t i = 0; i < n; i += 16) {
        v16 scaled = v16_mul(v16_mul(load_some(o + i, lanes_at(i, n)), r), load_some(w + i, lanes_at(i, n)));
        store_some(y + i, v16_mul(scaled, v16_silu(load_some(z + i, lanes_at(i, n)))), lanes_at(i, n));
    }
}

/* ---- attention */

static void k_rope(float *x, uint32_t rotary_dim, const float *cosine, const float *sine) {
    uint32_t half = rotary_dim / 2;
    for (uint32_t i = 0; i < half; i += 16) {
        v16 a = load_some(x + i, lanes_at(i, half)), b = load_some(x + half + i, lanes_at(i, half));
        v16 c = load_some(cosine + i, lanes_at(i, half)), s = load_some(sine + i, lanes_at(i, half));
        store_some(x + i, v16_fnma(b, s, v16_mul(a, c)), lanes_at(i, half));
        store_some(x + half + i, v16_fma(a, s, v16_mul(b, c)), lanes_at(i, half));
    }
}

V16_INLINE v16 load_f16_some(const pgl_f16 *p, uint32_t lanes) {
    if (lanes == 16)
        return v16_load_f16(p);
    pgl_f16 rest[16] = {0};
    memcpy(rest, p, lanes * sizeof *p);
    return v16_load_f16(rest);
}

V16_INLINE void keys_of(const pgl_keys_job *job, uint32_t n_queries) {
    for (uint32_t j = 0; j < job->n; j++) {
        const pgl_f16 *key = job->keys + (size_t)j * job->dim;
        v16 acc[PGL_QUERIES];
        for (uint32_t a = 0; a < n_queries; a++)
            acc[a] = v16_zero();
        for (uint32_t i = 0; i < job->dim; i += 16) {
            v16 k = load_f16_some(key + i, lanes_at(i, job->dim));
            for (uint32_t a = 0; a < n_queries; a++)
                acc[a] = fma_some(load_some(job->q[a] + i, lanes_at(i, job->dim)), k, acc[a],
                                  lanes_at(i, job->dim));
        }
        for (uint32_t a = 0; a < n_queries; a++)
            job->s[a][j] = v16_sum(acc[a]) * job->scale;
    }
}

static void k_keys(const pgl_keys_job *job) {
    switch (job->n_queries) {
    case 1:
        keys_of(job, 1);
        break;
    case 2:
        keys_of(job, 2);
        break;
    case 3:
        keys_of(job, 3);
        break;
    default:
        keys_of(job, 4);
    }
}

static float k_softmax(float *s, size_t n) {
    size_t whole = n - n % 16;
    uint32_t rest = (uint32_t)(n % 16);
    v16 top = v16_set1(-INFINITY), lanes = v16_zero();
    for (size_t j = 0; j < whole; j += 16)
        top = v16_max(v16_load(s + j), top);
    if (rest > 0)
        top = v16_select(rest, v16_max(v16_load_n(s + whole, rest), top), top);
    v16 largest = v16_set1(v16_largest(top));
    for (size_t j = 0; j < whole; j += 16) {
        v16 p = v16_exp(v16_sub(v16_load(s + j), largest));
        v16_store(s + j, p);
        lanes = v16_add(lanes, p);
    }
    if (rest > 0) {
        v16 p = v16_exp(v16_sub(v16_load_n(s + whole, rest), largest));
        v16_store_n(s + whole, p, rest);
        lanes = v16_select(rest, v16_add(lanes, p), lanes);
    }
    return 1.0F / v16_sum(lanes);
}

/* n_queries * width accumulators at a time */
V16_INLINE void values_strip(const pgl_values_job *job, uint32_t n_queries, uint32_t c, uint32_t width,
                             uint32_t lanes) {
    v16 acc[PGL_QUERIES][4];
    for (uint32_t a = 0; a < n_queries; a++) {
        for (uint32_t w = 0; w < width; w++)
            acc[a][w] = load_some(job->acc[a] + c + (size_t)16 * w, lanes);
    }
    for (uint32_t j = 0; j < job->n; j++) {
        const pgl_f16 *value = job->values + (size_t)j * job->dim + c;
        for (uint32_t w = 0; w < width; w++) {
            v16 v = load_f16_some(value + (size_t)16 * w, lanes);
            for (uint32_t a = 0; a < n_queries; a++)
                acc[a][w] = v16_fma(v16_set1(job->p[a][j]), v, acc[a][w]);
        }
    }
    for (uint32_t a = 0; a < n_queries; a++) {
        for (uint32_t w = 0; w < width; w++)
            store_some(job->acc[a] + c + (size_t)16 * w, acc[a][w], lanes);
    }
}

V16_INLINE void values_of(const pgl_values_job *job, uint32_t n_queries, uint32_t width) {
    uint32_t c = 0;
    for (; c + 16 * width <= job->dim; c += 16 * width)
        values_strip(job, n_queries, c, width, 16);
    for (; c + 16 <= job->dim; c += 16)
        values_strip(job, n_queries, c, 1, 16);
    if (c < job->dim)
        values_strip(job, n_queries, c, 1, job->dim - c);
}

static void k_values(const pgl_values_job *job) {
    switch (job->n_queries) {
    case 1:
        values_of(job, 1, 4);
        break;
    case 2:
        values_of(job, 2, 2);
        break;
    case 3:
        values_of(job, 3, 1);
        break;
    default:
        values_of(job, 4, 1);
    }
}

static void k_attention_gate(float *o, float inverse, const float *gate, uint32_t n) {
    v16 r = v16_set1(inverse);
    for (uint32_t i = 0; i < n; i += 16) {
        v16 scaled = v16_mul(load_some(o + i, lanes_at(i, n)), r);
        store_some(o + i, v16_mul(scaled, v16_sigmoid(load_some(gate + i, lanes_at(i, n)))), lanes_at(i, n));
    }
}

#endif
