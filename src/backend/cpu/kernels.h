/* The arithmetic of the CPU backend, once per instruction set, behind one table.
 *
 * Every function computes what the named function of codec/codec.h, model/linear.h or model/ops.h computes (contract
 * mode), bit for bit: which table is in use never shows in a result. A NaN is a NaN; which one is not promised.
 * Arrays are f32 unless said otherwise and need no alignment; y may be x where that is said. Any size n >= 1, whether
 * or not it is a multiple of a vector; nothing outside the arrays is read or written. Nothing allocates or fails;
 * any thread; at most 160 KiB of stack. Strides of rows that are used together should not be a power of two: their
 * lines would share a few sets of the cache. PGL_PAD more floats than the row has are enough. */
#ifndef PGL_BACKEND_CPU_KERNELS_H
#define PGL_BACKEND_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp16.h"
#include "checkpoint/weights.h"

#define PGL_PAD 16u

/* Rows `first` to first + count of a dense linear (int8 or plain), for n rows of x that are rounded to fp16 already:
 * y[r * y_stride + o] = dot16(x_r, w_o) + bias_o, for those o only. */
typedef struct pgl_dense_job {
    const pgl_linear *linear;
    uint32_t first, count;
    const float *x; /* [n][x_stride], linear->in of each */
    size_t x_stride;
    float *y; /* [n][y_stride] */
    size_t y_stride;
    uint32_t n;
} pgl_dense_job;

/* Output channels `first` to first + count of one expert of a coded linear, for n rows xh that went through
 * coded_input: product, output transform, bias. first and count are multiples of 128. */
typedef struct pgl_coded_job {
    const pgl_coded *coded;
    uint32_t expert;
    uint32_t first, count;
    const float *xh; /* [n][xh_stride], coded->in of each */
    size_t xh_stride;
    float *y; /* [n][y_stride] */
    size_t y_stride;
    uint32_t n;
} pgl_coded_job;

/* Channels `first` to first + count of the causal convolution over n tokens: pgl_conv_step for each in turn. */
typedef struct pgl_conv_job {
    const float *w; /* [kernel][width] */
    uint32_t width, kernel, first, count;
    float *taps; /* [kernel - 1][width], oldest first; moved on */
    float *u;    /* [n][u_stride] in and out */
    size_t u_stride;
    uint32_t n;
} pgl_conv_job;

/* One token of one value head, as pgl_delta_step. */
typedef struct pgl_delta_job {
    float *s; /* [dk][dv] */
    const float *q, *k, *v;
    float decay, beta;
    uint32_t dk, dv;
    float *o; /* [dv] */
} pgl_delta_job;

#define PGL_QUERIES 4u

/* A run of n keys (values) that lie one behind the other, for n_queries <= PGL_QUERIES query heads that share them. */
typedef struct pgl_keys_job {
    const float *q[PGL_QUERIES]; /* [dim] */
    const pgl_f16 *keys;         /* [n][dim] */
    uint32_t n_queries, n, dim;
    float scale;
    float *s[PGL_QUERIES]; /* [n]: dot16(q, k_j) * scale */
} pgl_keys_job;

typedef struct pgl_values_job {
    const float *p[PGL_QUERIES]; /* [n] */
    const pgl_f16 *values;       /* [n][dim] */
    uint32_t n_queries, n, dim;
    float *acc[PGL_QUERIES]; /* [dim]: fmaf(p_j, v_j, acc) for rising j */
} pgl_values_job;

/* x_i = x_i + y_i, y the mixture: r = f16(sum over slots of fmaf(weight_s, slot_s, r)); then, with shared not NULL,
 * y = fmaf(gate, shared_i, r). */
typedef struct pgl_mix_job {
    const float *weight;      /* [n_slots] */
    const float *const *slot; /* [n_slots] of [n] */
    uint32_t n_slots, n;
    const float *shared; /* [n] or NULL */
    float gate;
    float *x; /* [n] */
} pgl_mix_job;

#define PGL_SPIN_FLOPS (2 * 16 * 6) /* multiply and add, lanes, vectors */

typedef struct pgl_kernels {
    const char *name;

    /* linears */
    void (*round16)(const float *x, size_t n, float *y); /* y = f16(x); y may be x */
    void (*dense)(const pgl_dense_job *job);
    /* Channels first .. first + count (multiples of 128) of xh = f16(H128(x * rin) * RS); x and xh are whole rows. */
    void (*coded_input)(const pgl_coded *coded, uint32_t expert, uint32_t first, uint32_t count,
                        const float *x, float *xh);
    void (*coded)(const pgl_coded_job *job);
    /* The decoded tile as f32, [input channel][output channel]. */
    void (*tile)(const void *code, uint32_t k, float w[256]);

    /* rows */
    void (*norm)(const float *x, const float *w, float eps, uint32_t n, float *y);  /* y may be x */
    void (*add)(const float *y, size_t n, float *x);                                /* x = x + y */
    void (*swiglu_coded)(const float *gate, const float *up, uint32_t n, float *h); /* h may be gate */
    void (*swiglu)(const float *gate, const float *up, uint32_t n, float *h);       /* h may be gate */
    void (*mix)(const pgl_mix_job *job);
    bool (*finite)(const float *x, size_t n); /* neither NaN nor infinite, all of them */

    /* gated delta net */
    void (*conv)(const pgl_conv_job *job);
    void (*l2_norm)(float *x, uint32_t n, float scale);
    void (*delta)(const pgl_delta_job *job);
    void (*gated_norm)(const float *o, const float *z, const float *w, float eps, uint32_t n,
                       float *y); /* y may be o */

    /* attention */
    void (*rope)(float *x, uint32_t rotary_dim, const float *cosine, const float *sine);
    void (*store16)(const float *x, size_t n, pgl_f16 *y);
    void (*keys)(const pgl_keys_job *job);
    float (*softmax)(float *s, size_t n); /* s_j = expf(s_j - max), returns 1 / their sum in lanes */
    void (*values)(const pgl_values_job *job);
    void (*attention_gate)(float *o, float inverse, const float *gate,
                           uint32_t n); /* (o * inverse) * sigmoid(gate) */

    /* Reads n bytes as fast as the machine can: for benchmarks. The result depends on all of them. */
    uint64_t (*stream)(const void *p, size_t n);
    /* PGL_SPIN_FLOPS operations in each step, all of them fused multiply-adds from registers, for the same purpose. */
    float (*spin)(uint32_t steps);
} pgl_kernels;

/* Tables that this build has; NULL where this processor cannot run them. */
const pgl_kernels *pgl_kernels_scalar(void);
const pgl_kernels *pgl_kernels_avx2(void);
const pgl_kernels *pgl_kernels_avx512(void);
const pgl_kernels *pgl_kernels_neon(void);

#define PGL_MOST_KERNELS 4

/* Those that are not NULL, the fastest first and the scalar one last: returns how many. */
size_t pgl_kernels_all(const pgl_kernels *out[PGL_MOST_KERNELS]);

/* The table called name ("scalar", "avx2", "avx512", "neon"), or with NULL the fastest. PGL_E_UNSUPPORTED names what this
 * processor has. */
pgl_status pgl_kernels_choose(const char *name, const pgl_kernels **out, pgl_error *err);

#endif
