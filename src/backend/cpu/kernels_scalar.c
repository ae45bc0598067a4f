/* Owns nothing: the table that calls the contract itself. Slow, and right by definition. */
#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "codec/codec.h"
#include "codec/fma.h"
#include "model/ops.h"

static pgl_vec vec_of(const float *w, uint32_t n) {
    return (pgl_vec){.data = w, .dtype = PGL_F32, .n = n};
}

static void round16(const float *x, size_t n, float *y) {
    for (size_t i = 0; i < n; i++)
        y[i] = pgl_round_f16(x[i]);
}

static float weight_at(const pgl_linear *linear, uint32_t o, uint32_t i) {
    uint64_t at = (uint64_t)o * linear->in + i;
    if (linear->kind == PGL_LINEAR_INT8) {
        float scale = pgl_read_f32(linear->scale, linear->scale_dtype, o);
        return pgl_f16_to_f32(pgl_int8_weight(((const int8_t *)linear->data)[at], scale));
    }
    return pgl_read_f32(linear->data, linear->dtype, at);
}

PGL_FMA_BODY void dense_body(const pgl_dense_job *job) {
    const pgl_linear *linear = job->linear;
    enum { PIECE = 1024 }; /* a multiple of 16, so that lanes go on where they were */
    float w[PIECE];
    for (uint32_t o = job->first; o < job->first + job->count; o++) {
        for (uint32_t r = 0; r < job->n; r++) {
            float lane[16] = {0};
            for (uint32_t first = 0; first < linear->in; first += PIECE) {
                uint32_t n = linear->in - first < PIECE ? linear->in - first : PIECE;
                for (uint32_t i = 0; i < n; i++)
                    w[i] = weight_at(linear, o, first + i);
                for (uint32_t i = 0; i < n; i++)
                    lane[i % 16] = fmaf(job->x[r * job->x_stride + first + i], w[i], lane[i % 16]);
            }
            float y = pgl_lanes_sum(lane);
            if (linear->bias.data != NULL)
                y = y + pgl_read_f32(linear->bias.data, linear->bias.dtype, o);
            job->y[r * job->y_stride + o] = y;
        }
    }
}

/* Element i of expert's vector of n: the fp16 sign or scale, times the f32 factor where there is one. */
static float effective(const void *f16, const void *factor, uint64_t expert, uint32_t n, uint32_t i) {
    uint64_t at = expert * n + i;
    float r = pgl_read_f32(f16, PGL_F16, at);
    return factor != NULL ? r * pgl_read_f32(factor, PGL_F32, at) : r;
}

static void coded_input(const pgl_coded *coded, uint32_t expert, uint32_t first, uint32_t count,
                        const float *x, float *xh) {
    for (uint32_t i = first; i < first + count; i++)
        xh[i] = x[i] * effective(coded->rin, coded->s_in, expert, coded->in, i);
    pgl_hadamard(xh + first, count);
    for (uint32_t i = first; i < first + count; i++)
        xh[i] = pgl_round_f16(xh[i] * PGL_HADAMARD_SCALE);
}

static void tile(const void *code, uint32_t k, float w[256]) {
    pgl_f16 half[256];
    pgl_tile_decode(code, k, half);
    for (uint32_t i = 0; i < 256; i++)
        w[i] = pgl_f16_to_f32(half[i]);
}

static void output_transform(const pgl_coded_job *job, float *y) {
    const pgl_coded *coded = job->coded;
    pgl_hadamard(y + job->first, job->count);
    for (uint32_t o = job->first; o < job->first + job->count; o++) {
        y[o] = pgl_round_f16((y[o] * PGL_HADAMARD_SCALE) *
                             effective(coded->rout, coded->s_out, job->expert, coded->out, o));
        if (coded->bias != NULL)
            y[o] = pgl_round_f16(y[o] +
                                 pgl_read_f32(coded->bias, PGL_F16, (uint64_t)job->expert * coded->out + o));
    }
}

PGL_FMA_BODY void coded_body(const pgl_coded_job *job) {
    const pgl_coded *c = job->coded;
    size_t columns = c->out / PGL_TILE, tile_bytes = (size_t)32 * c->k;
    const unsigned char *code =
        (const unsigned char *)c->code + job->expert * (c->in / PGL_TILE) * columns * tile_bytes;
    for (uint32_t r = 0; r < job->n; r++)
        memset(job->y + r * job->y_stride + job->first, 0, job->count * sizeof *job->y);
    for (uint32_t a = 0; a < c->in / PGL_TILE; a++) {
        for (uint32_t b = job->first / PGL_TILE; b < (job->first + job->count) / PGL_TILE; b++) {
            float w[256];
            tile(code + (a * columns + b) * tile_bytes, c->k, w);
            for (uint32_t r = 0; r < job->n; r++) {
                const float *x = job->xh + r * job->xh_stride + (size_t)a * PGL_TILE;
                float *y = job->y + r * job->y_stride + (size_t)b * PGL_TILE;
                for (uint32_t i = 0; i < PGL_TILE; i++) {
                    for (uint32_t o = 0; o < PGL_TILE; o++)
                        y[o] = fmaf(x[i], w[i * PGL_TILE + o], y[o]);
                }
            }
        }
    }
    for (uint32_t r = 0; r < job->n; r++)
        output_transform(job, job->y + r * job->y_stride);
}

static void norm(const float *x, const float *w, float eps, uint32_t n, float *y) {
    pgl_vec vec = vec_of(w, n);
    pgl_norm(x, &vec, eps, n, y);
}

static void add(const float *y, size_t n, float *x) {
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] + y[i];
}

static void swiglu_coded(const float *gate, const float *up, uint32_t n, float *h) {
    pgl_swiglu_coded(gate, up, n, false, h);
}

PGL_FMA_BODY void mix_body(const pgl_mix_job *job) {
    for (uint32_t i = 0; i < job->n; i++) {
        float r = 0.0F;
        for (uint32_t s = 0; s < job->n_slots; s++)
            r = fmaf(job->weight[s], job->slot[s][i], r);
        r = pgl_round_f16(r);
        if (job->shared != NULL)
            r = fmaf(job->gate, job->shared[i], r);
        job->x[i] = job->x[i] + r;
    }
}

static bool all_finite(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return false;
    }
    return true;
}

PGL_FMA_BODY void conv_body(const pgl_conv_job *job) {
    for (uint32_t t = 0; t < job->n; t++) {
        float *u = job->u + t * job->u_stride;
        for (uint32_t c = job->first; c < job->first + job->count; c++) {
            float acc = 0.0F, newest = u[c];
            for (uint32_t j = 0; j + 1 < job->kernel; j++)
                acc = fmaf(job->w[(size_t)j * job->width + c], job->taps[(size_t)j * job->width + c], acc);
            acc = fmaf(job->w[(size_t)(job->kernel - 1) * job->width + c], newest, acc);
            for (uint32_t j = 0; j + 2 < job->kernel; j++)
                job->taps[(size_t)j * job->width + c] = job->taps[(size_t)(j + 1) * job->width + c];
            if (job->kernel > 1)
                job->taps[(size_t)(job->kernel - 2) * job->width + c] = newest;
            u[c] = pgl_silu(acc);
        }
    }
}

PGL_FMA_BODY void delta_body(const pgl_delta_job *job) {
    for (uint32_t j = 0; j < job->dv; j++) {
        float m = 0.0F, o = 0.0F;
        for (uint32_t i = 0; i < job->dk; i++)
            m = fmaf(job->k[i], job->s[(size_t)i * job->dv + j] * job->decay, m);
        float d = (job->v[j] - m) * job->beta;
        for (uint32_t i = 0; i < job->dk; i++) {
            float *s = &job->s[(size_t)i * job->dv + j];
            *s = fmaf(job->k[i], d, *s * job->decay);
            o = fmaf(job->q[i], *s, o);
        }
        job->o[j] = o;
    }
}

static void gated_norm(const float *o, const float *z, const float *w, float eps, uint32_t n, float *y) {
    pgl_vec vec = vec_of(w, n);
    pgl_gated_norm(o, z, &vec, eps, n, y);
}

static void store16(const float *x, size_t n, pgl_f16 *y) {
    for (size_t i = 0; i < n; i++)
        y[i] = pgl_f32_to_f16(x[i]);
}

PGL_FMA_BODY void keys_body(const pgl_keys_job *job) {
    for (uint32_t a = 0; a < job->n_queries; a++) {
        for (uint32_t j = 0; j < job->n; j++) {
            float lane[16] = {0};
            for (uint32_t i = 0; i < job->dim; i++)
                lane[i % 16] =
                    fmaf(job->q[a][i], pgl_f16_to_f32(job->keys[(size_t)j * job->dim + i]), lane[i % 16]);
            job->s[a][j] = pgl_lanes_sum(lane) * job->scale;
        }
    }
}

static float softmax(float *s, size_t n) {
    float top = -INFINITY, lane[16] = {0};
    for (size_t j = 0; j < n; j++)
        top = s[j] > top ? s[j] : top;
    for (size_t j = 0; j < n; j++) {
        s[j] = pgl_expf(s[j] - top);
        lane[j % 16] += s[j];
    }
    return 1.0F / pgl_lanes_sum(lane);
}

PGL_FMA_BODY void values_body(const pgl_values_job *job) {
    for (uint32_t a = 0; a < job->n_queries; a++) {
        for (uint32_t j = 0; j < job->n; j++) {
            for (uint32_t c = 0; c < job->dim; c++)
                job->acc[a][c] =
                    fmaf(job->p[a][j], pgl_f16_to_f32(job->values[(size_t)j * job->dim + c]), job->acc[a][c]);
        }
    }
}

static void attention_gate(float *o, float inverse, const float *gate, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        o[i] = (o[i] * inverse) * pgl_sigmoid(gate[i]);
}

static uint64_t stream(const void *p, size_t n) {
    const unsigned char *bytes = p;
    uint64_t sum = 0;
    size_t i = 0;
    for (; i + sizeof(uint64_t) <= n; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        sum += word;
    }
    for (; i < n; i++)
        sum += bytes[i];
    return sum;
}

static float spin(uint32_t steps) {
    float acc[16 * 6] = {0};
    for (uint32_t s = 0; s < steps; s++) {
        for (uint32_t i = 0; i < 16 * 6; i++)
            acc[i] = fmaf(acc[i], 0.5F, 0.5F);
    }
    return acc[0] + acc[16 * 6 - 1];
}

/* Each body twice: fmaf as a call into libm, and as one instruction where there is one. */
#define WITH_FMA(name, job_type)                                                                             \
    PGL_FMA_TARGET static void name##_fma(const job_type *job) {                                             \
        name##_body(job);                                                                                    \
    }                                                                                                        \
    static void name(const job_type *job) {                                                                  \
        if (pgl_has_fma())                                                                                   \
            name##_fma(job);                                                                                 \
        else                                                                                                 \
            name##_body(job);                                                                                \
    }
WITH_FMA(dense, pgl_dense_job)
WITH_FMA(coded, pgl_coded_job)
WITH_FMA(mix, pgl_mix_job)
WITH_FMA(conv, pgl_conv_job)
WITH_FMA(delta, pgl_delta_job)
WITH_FMA(keys, pgl_keys_job)
WITH_FMA(values, pgl_values_job)

static const pgl_kernels TABLE = {
    .name = "scalar",
    .round16 = round16,
    .dense = dense,
    .coded_input = coded_input,
    .coded = coded,
    .tile = tile,
    .norm = norm,
    .add = add,
    .swiglu_coded = swiglu_coded,
    .swiglu = pgl_swiglu,
    .mix = mix,
    .finite = all_finite,
    .conv = conv,
    .l2_norm = pgl_l2_norm,
    .delta = delta,
    .gated_norm = gated_norm,
    .rope = pgl_rope,
    .store16 = store16,
    .keys = keys,
    .softmax = softmax,
    .values = values,
    .attention_gate = attention_gate,
    .stream = stream,
    .spin = spin,
};

const pgl_kernels *pgl_kernels_scalar(void) {
    return &TABLE;
}
