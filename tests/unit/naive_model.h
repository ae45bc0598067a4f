/* For tests: the forward pass a second time, in double, straight from docs/model.md: one token at a time, no
 * batching, convolution and attention recomputed from the whole history, weights read one by one. Rounds at the
 * contract's points when asked to. Shares only the tile decoder (tested on its own) with the program. */
#ifndef PGL_TESTS_NAIVE_MODEL_H
#define PGL_TESTS_NAIVE_MODEL_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp16.h"
#include "checkpoint/weights.h"
#include "model/linear.h"

#define NAIVE_MAX_TOKENS 160
#define NAIVE_MAX_WIDTH 1024

typedef struct naive_layer_state {
    double *inputs; /* [token][width]: every input of the convolution */
    double *k, *v;  /* [token][kv width] */
    double *s;      /* [value head][dk][dv] */
} naive_layer_state;

/* A matrix [in][out] in double, kept from its first use. */
typedef struct naive_matrix {
    const void *data;
    uint32_t expert;
    double *w;
} naive_matrix;

typedef struct naive_model {
    const pgl_config *c;
    const pgl_weights *w;
    bool contract;
    int n, n_draft;
    naive_layer_state layers[5];   /* the last: draft */
    double first[NAIVE_MAX_WIDTH]; /* the residual after layer 0 of the last token */
    naive_matrix cache[256];
    int n_cached;
} naive_model;

static inline double naive_f16(const naive_model *m, double x) {
    return m->contract ? (double)pgl_round_f16((float)x) : x;
}

static inline void *naive_get(size_t n) {
    void *p = calloc(n, sizeof(double));
    assert_non_null(p);
    return p;
}

static inline naive_model *naive_new(const pgl_config *c, const pgl_weights *w, bool contract) {
    naive_model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->c = c;
    m->w = w;
    m->contract = contract;
    for (int l = 0; l < 5; l++) {
        m->layers[l].inputs = naive_get((size_t)NAIVE_MAX_TOKENS * NAIVE_MAX_WIDTH);
        m->layers[l].k = naive_get((size_t)NAIVE_MAX_TOKENS * c->n_kv_heads * c->head_dim);
        m->layers[l].v = naive_get((size_t)NAIVE_MAX_TOKENS * c->n_kv_heads * c->head_dim);
        m->layers[l].s = naive_get((size_t)c->n_value_heads * c->key_dim * c->value_dim);
    }
    return m;
}

static inline void naive_forget(naive_model *m) {
    for (int i = 0; i < m->n_cached; i++)
        free(m->cache[i].w);
    m->n_cached = 0;
}

static inline void naive_free(naive_model *m) {
    naive_forget(m);
    for (int l = 0; l < 5; l++) {
        free(m->layers[l].inputs);
        free(m->layers[l].k);
        free(m->layers[l].v);
        free(m->layers[l].s);
    }
    free(m);
}

/* H128 as a sum over signs: row r, column c of the Sylvester matrix is (-1)^popcount(r & c). */
static inline void naive_hadamard(double *x, uint32_t n) {
    for (uint32_t b = 0; b < n; b += 128) {
        double out[128];
        for (uint32_t r = 0; r < 128; r++) {
            out[r] = 0;
            for (uint32_t c = 0; c < 128; c++)
                out[r] += __builtin_popcount(r & c) % 2 == 0 ? x[b + c] : -x[b + c];
        }
        memcpy(x + b, out, sizeof out);
    }
}

static inline double naive_weight(const pgl_linear *l, uint32_t o, uint32_t i) {
    uint64_t at = (uint64_t)o * l->in + i;
    if (l->kind == PGL_LINEAR_INT8)
        return (double)pgl_round_f16((float)((const int8_t *)l->data)[at] *
                                     pgl_read_f32(l->scale, l->scale_dtype, o));
    return (double)pgl_read_f32(l->data, l->dtype, at);
}

/* The matrix of a coded expert, or else of a dense linear. */
static inline const double *naive_matrix_of(naive_model *m, const pgl_coded *c, uint32_t e,
                                            const pgl_linear *l) {
    const void *data = c != NULL ? c->code : l->data;
    for (int i = 0; i < m->n_cached; i++) {
        if (m->cache[i].data == data && m->cache[i].expert == e)
            return m->cache[i].w;
    }
    uint32_t in = c != NULL ? c->in : l->in, out = c != NULL ? c->out : l->out;
    float *decoded = naive_get((size_t)in * out);
    double *w = naive_get((size_t)in * out);
    if (c != NULL)
        pgl_coded_matrix(c, e, decoded);
    for (uint32_t i = 0; i < in; i++) {
        for (uint32_t o = 0; o < out; o++)
            w[(size_t)i * out + o] = c != NULL ? (double)decoded[(size_t)i * out + o] : naive_weight(l, o, i);
    }
    free(decoded);
    assert_true(m->n_cached < 256);
    m->cache[m->n_cached++] = (naive_matrix){data, e, w};
    return w;
}

static inline void naive_coded(naive_model *m, const pgl_coded *c, uint32_t e, const double *x, double *y) {
    double *xh = naive_get(c->in), rs = sqrt(1.0 / 128);
    const double *w = naive_matrix_of(m, c, e, NULL);
    for (uint32_t i = 0; i < c->in; i++) {
        uint64_t at = (uint64_t)e * c->in + i;
        xh[i] = x[i] * (double)pgl_read_f32(c->rin, PGL_F16, at);
        if (c->s_in != NULL)
            xh[i] *= (double)pgl_read_f32(c->s_in, PGL_F32, at);
    }
    naive_hadamard(xh, c->in);
    for (uint32_t i = 0; i < c->in; i++)
        xh[i] = naive_f16(m, xh[i] * rs);
    memset(y, 0, c->out * sizeof *y);
    for (uint32_t i = 0; i < c->in; i++) {
        for (uint32_t o = 0; o < c->out; o++)
            y[o] += xh[i] * w[(size_t)i * c->out + o];
    }
    naive_hadamard(y, c->out);
    for (uint32_t o = 0; o < c->out; o++) {
        uint64_t at = (uint64_t)e * c->out + o;
        y[o] *= (double)pgl_read_f32(c->rout, PGL_F16, at) * rs;
        if (c->s_out != NULL)
            y[o] *= (double)pgl_read_f32(c->s_out, PGL_F32, at);
        y[o] = naive_f16(m, y[o]);
        if (c->bias != NULL)
            y[o] = naive_f16(m, y[o] + (double)pgl_read_f32(c->bias, PGL_F16, at));
    }
    free(xh);
}

static inline void naive_linear(naive_model *m, const pgl_linear *l, const double *x, double *y) {
    if (l->kind == PGL_LINEAR_CODED) {
        naive_coded(m, &l->coded, 0, x, y);
        return;
    }
    const double *w = naive_matrix_of(m, NULL, 0, l);
    for (uint32_t o = 0; o < l->out; o++)
        y[o] = l->bias.data != NULL ? (double)pgl_read_f32(l->bias.data, l->bias.dtype, o) : 0;
    for (uint32_t i = 0; i < l->in; i++) {
        double rounded = naive_f16(m, x[i]);
        for (uint32_t o = 0; o < l->out; o++)
            y[o] += rounded * w[(size_t)i * l->out + o];
    }
}

static inline double naive_at(const pgl_vec *v, uint32_t i) {
    return (double)pgl_read_f32(v->data, v->dtype, i);
}

static inline void naive_norm(const double *x, const pgl_vec *w, double eps, uint32_t n, double *y) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] / sqrt(sum / n + eps) * (1 + naive_at(w, i));
}

static inline double naive_silu(double x) {
    return x / (1 + exp(-x));
}

static inline void naive_delta(naive_model *m, const pgl_layer_weights *l, naive_layer_state *s, int t,
                               const double *h, double *y) {
    const pgl_config *c = m->c;
    const pgl_delta_weights *d = &l->delta;
    uint32_t dk = c->key_dim, dv = c->value_dim, nk = c->n_key_heads, nv = c->n_value_heads;
    uint32_t width = 2 * nk * dk + nv * dv;
    double u[NAIVE_MAX_WIDTH], z[NAIVE_MAX_WIDTH], a[64], b[64], o[NAIVE_MAX_WIDTH];
    naive_linear(m, &d->in_proj_qkv, h, s->inputs + (size_t)t * NAIVE_MAX_WIDTH);
    naive_linear(m, &d->in_proj_z, h, z);
    naive_linear(m, &d->in_proj_a, h, a);
    naive_linear(m, &d->in_proj_b, h, b);
    for (uint32_t i = 0; i < width; i++) {
        u[i] = 0;
        for (int tap = 0; tap < (int)c->conv_kernel; tap++) {
            int from = t - (int)c->conv_kernel + 1 + tap;
            if (from >= 0)
                u[i] += naive_at(&d->conv1d, i * c->conv_kernel + (uint32_t)tap) *
                        s->inputs[(size_t)from * NAIVE_MAX_WIDTH + i];
        }
        u[i] = naive_silu(u[i]);
    }
    for (uint32_t head = 0; head < nv; head++) {
        const double *q = u + head / (nv / nk) * dk, *k = q + nk * dk, *v = u + 2 * nk * dk + head * dv;
        double *S = s->s + (size_t)head * dk * dv, qq = 1e-6, kk = 1e-6, oo = 0;
        for (uint32_t i = 0; i < dk; i++) {
            qq += q[i] * q[i];
            kk += k[i] * k[i];
        }
        double dt = a[head] + naive_at(&d->dt_bias, head);
        double g = -exp(naive_at(&d->a_log, head)) * log1p(exp(dt)), beta = 1 / (1 + exp(-b[head]));
        for (uint32_t j = 0; j < dv; j++) {
            double kS = 0;
            for (uint32_t i = 0; i < dk; i++)
                kS += k[i] / sqrt(kk) * S[i * dv + j] * exp(g);
            double delta = (v[j] - kS) * beta;
            o[head * dv + j] = 0;
            for (uint32_t i = 0; i < dk; i++) {
                S[i * dv + j] = S[i * dv + j] * exp(g) + k[i] / sqrt(kk) * delta;
                o[head * dv + j] += q[i] / sqrt(qq) / sqrt((double)dk) * S[i * dv + j];
            }
            oo += o[head * dv + j] * o[head * dv + j];
        }
        for (uint32_t j = 0; j < dv; j++)
            o[head * dv + j] *= naive_at(&d->norm, j) * naive_silu(z[head * dv + j]) /
                                sqrt(oo / dv + (double)c->rms_norm_eps);
    }
    naive_linear(m, &d->out_proj, o, y);
}

/* RoPE as a rotation of the pair (i, i + half) by its angle. */
static inline void naive_rotate(const pgl_config *c, double *x, int t) {
    uint32_t half = c->rotary_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        double angle = t / pow(c->rope_theta, 2.0 * i / c->rotary_dim);
        double length = hypot(x[i], x[i + half]), phase = atan2(x[i + half], x[i]) + angle;
        x[i] = length * cos(phase);
        x[i + half] = length * sin(phase);
    }
}

static inline void naive_attention(naive_model *m, const pgl_layer_weights *l, naive_layer_state *s, int t,
                                   const double *h, double *y) {
    const pgl_config *c = m->c;
    const pgl_attention_weights *a = &l->attention;
    uint32_t dim = c->head_dim, kv = c->n_kv_heads * dim;
    double eps = (double)c->rms_norm_eps, qg[NAIVE_MAX_WIDTH], o[NAIVE_MAX_WIDTH];
    double *k = s->k + (size_t)t * kv, *v = s->v + (size_t)t * kv;
    naive_linear(m, &a->q_proj, h, qg);
    naive_linear(m, &a->k_proj, h, k);
    naive_linear(m, &a->v_proj, h, v);
    for (uint32_t head = 0; head < c->n_kv_heads; head++) {
        naive_norm(k + head * dim, &a->k_norm, eps, dim, k + head * dim);
        naive_rotate(c, k + head * dim, t);
    }
    for (uint32_t i = 0; i < kv; i++) {
        k[i] = naive_f16(m, k[i]);
        v[i] = naive_f16(m, v[i]);
    }
    for (uint32_t head = 0; head < c->n_heads; head++) {
        double *q = qg + (size_t)head * 2 * dim, p[NAIVE_MAX_TOKENS], sum = 0;
        naive_norm(q, &a->q_norm, eps, dim, q);
        naive_rotate(c, q, t);
        uint32_t group = head / (c->n_heads / c->n_kv_heads);
        for (int j = 0; j <= t; j++) {
            double dot = 0;
            for (uint32_t i = 0; i < dim; i++)
                dot += q[i] * s->k[(size_t)j * kv + group * dim + i];
            p[j] = exp(dot / sqrt((double)dim)); /* small models: no overflow */
            sum += p[j];
        }
        for (uint32_t i = 0; i < dim; i++) {
            double acc = 0;
            for (int j = 0; j <= t; j++)
                acc += p[j] / sum * s->v[(size_t)j * kv + group * dim + i];
            o[head * dim + i] = acc / (1 + exp(-q[dim + i]));
        }
    }
    naive_linear(m, &a->o_proj, o, y);
}

static inline void naive_experts(naive_model *m, const pgl_moe_weights *w, const double *h, double *y,
                                 int32_t *experts) {
    const pgl_config *c = m->c;
    uint32_t hidden = c->hidden_size, inter = c->moe_intermediate_size;
    double logits[64], sum = 0, gu[NAIVE_MAX_WIDTH], act[NAIVE_MAX_WIDTH], out[NAIVE_MAX_WIDTH];
    bool used[64] = {false};
    naive_linear(m, &w->router, h, logits);
    for (uint32_t e = 0; e < c->n_experts; e++)
        logits[e] = naive_f16(m, logits[e]);
    for (uint32_t s = 0; s < c->n_experts_used; s++) {
        int best = -1;
        for (int e = (int)c->n_experts - 1; e >= 0; e--) {
            if (!used[e] && (best < 0 || logits[e] >= logits[best]))
                best = e;
        }
        used[best] = true;
        experts[s] = best;
        sum += exp(logits[best]);
    }
    memset(y, 0, hidden * sizeof *y);
    for (uint32_t s = 0; s < c->n_experts_used; s++) {
        naive_coded(m, &w->gate_up, (uint32_t)experts[s], h, gu);
        for (uint32_t i = 0; i < inter; i++)
            act[i] = naive_f16(m, naive_f16(m, naive_silu(gu[i])) * gu[inter + i]);
        naive_coded(m, &w->down, (uint32_t)experts[s], act, out);
        double weight = naive_f16(m, exp(logits[experts[s]]) / sum);
        for (uint32_t i = 0; i < hidden; i++)
            y[i] += weight * out[i];
    }
    for (uint32_t i = 0; i < hidden; i++)
        y[i] = naive_f16(m, y[i]);
    if (c->shared_intermediate_size == 0)
        return;
    double gate, up[NAIVE_MAX_WIDTH];
    naive_linear(m, &w->shared_gate, h, act);
    naive_linear(m, &w->shared_up, h, up);
    for (uint32_t i = 0; i < c->shared_intermediate_size; i++)
        act[i] = naive_silu(act[i]) * up[i];
    naive_linear(m, &w->shared_down, act, out);
    naive_linear(m, &w->shared_expert_gate, h, &gate);
    for (uint32_t i = 0; i < hidden; i++)
        y[i] += out[i] / (1 + exp(-gate));
}

static inline void naive_layer(naive_model *m, const pgl_layer_weights *l, int state, int t, double *x,
                               int32_t *experts) {
    const pgl_config *c = m->c;
    double h[NAIVE_MAX_WIDTH], y[NAIVE_MAX_WIDTH], up[NAIVE_MAX_WIDTH];
    naive_norm(x, &l->input_norm, (double)c->rms_norm_eps, c->hidden_size, h);
    if (l->full_attention)
        naive_attention(m, l, &m->layers[state], t, h, y);
    else
        naive_delta(m, l, &m->layers[state], t, h, y);
    for (uint32_t i = 0; i < c->hidden_size; i++)
        x[i] += y[i];
    naive_norm(x, &l->post_attention_norm, (double)c->rms_norm_eps, c->hidden_size, h);
    if (c->n_experts > 0) {
        naive_experts(m, &l->moe, h, y, experts);
    } else {
        double act[NAIVE_MAX_WIDTH];
        bool coded = l->moe.gate.kind == PGL_LINEAR_CODED;
        naive_linear(m, &l->moe.gate, h, act);
        naive_linear(m, &l->moe.up, h, up);
        for (uint32_t i = 0; i < c->intermediate_size; i++)
            act[i] =
                coded ? naive_f16(m, naive_f16(m, naive_silu(act[i])) * up[i]) : naive_silu(act[i]) * up[i];
        naive_linear(m, &l->moe.down_dense, act, y);
    }
    for (uint32_t i = 0; i < c->hidden_size; i++)
        x[i] += y[i];
}

/* One token: logits [vocab], hidden [hidden] = output of the final norm, experts [layers][used]. */
static inline void naive_token(naive_model *m, int32_t token, double *logits, double *hidden,
                               int32_t *experts) {
    const pgl_config *c = m->c;
    double x[NAIVE_MAX_WIDTH] = {0};
    for (uint32_t i = 0; i < c->hidden_size; i++)
        x[i] = naive_weight(&m->w->embed, (uint32_t)token, i);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        naive_layer(m, &m->w->layers[l], (int)l, m->n, x, experts + l * c->n_experts_used);
        if (l == 0)
            memcpy(m->first, x, sizeof x);
    }
    naive_norm(x, &m->w->norm, (double)c->rms_norm_eps, c->hidden_size, hidden);
    naive_linear(m, &m->w->head, hidden, logits);
    m->n++;
}

/* One row of the draft head: the trunk's hidden state and the token behind it. */
static inline void naive_draft(naive_model *m, const double *hidden, int32_t token, double *logits) {
    const pgl_config *c = m->c;
    const pgl_draft_weights *d = &m->w->draft;
    uint32_t n = c->hidden_size;
    double e[NAIVE_MAX_WIDTH], pair[NAIVE_MAX_WIDTH], x[NAIVE_MAX_WIDTH];
    int32_t experts[64];
    for (uint32_t i = 0; i < n; i++)
        e[i] = naive_weight(&m->w->embed, (uint32_t)token, i);
    naive_norm(e, &d->pre_fc_norm_embedding, (double)c->rms_norm_eps, n, pair);
    naive_norm(hidden, &d->pre_fc_norm_hidden, (double)c->rms_norm_eps, n, pair + n);
    naive_linear(m, &d->fc, pair, x);
    naive_layer(m, &d->layer, 4, m->n_draft, x, experts);
    naive_norm(x, &d->norm, (double)c->rms_norm_eps, n, e);
    naive_linear(m, &m->w->head, e, logits);
    m->n_draft++;
}

#endif
