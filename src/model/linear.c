/* Owns nothing: linears on the caller's rows, with the caller's scratch. */
#include "model/linear.h"

#include <math.h>
#include <string.h>

#include "codec/codec.h"
#include "codec/fma.h"

size_t pgl_rows_scratch(uint32_t in, uint32_t n) {
    return ((size_t)n + 1) * in;
}

/* Bytes of one tile's code. */
static size_t tile_bytes(const pgl_coded *coded) {
    return (size_t)32 * coded->k;
}

static const unsigned char *tile_at(const pgl_coded *coded, uint32_t expert, uint32_t a, uint32_t b) {
    size_t columns = coded->out / PGL_TILE;
    size_t tiles = coded->in / PGL_TILE * columns;
    return (const unsigned char *)coded->code + (expert * tiles + a * columns + b) * tile_bytes(coded);
}

static void decode_tile(const pgl_coded *coded, uint32_t expert, uint32_t a, uint32_t b, float w[256]) {
    pgl_f16 half[256];
    pgl_tile_decode(tile_at(coded, expert, a, b), coded->k, half);
    for (uint32_t i = 0; i < 256; i++)
        w[i] = pgl_f16_to_f32(half[i]);
}

/* Element i of expert's vector of n: the fp16 sign or scale, times the f32 factor where there is one. */
static float effective(const void *f16, const void *factor, uint64_t expert, uint32_t n, uint32_t i) {
    uint64_t at = expert * n + i;
    float r = pgl_read_f32(f16, PGL_F16, at);
    return factor != NULL ? r * pgl_read_f32(factor, PGL_F32, at) : r;
}

/* acc[o] += sum over the tile's 16 inputs of x[i] * w[i][o], in rising i. */
PGL_FMA_BODY void tile_multiply_body(const float *restrict w, const float *restrict x, float *restrict acc) {
    for (uint32_t half = 0; half < PGL_TILE; half += 8) { /* eight sums at a time stay in one register */
        float sum[8];
        for (uint32_t o = 0; o < 8; o++)
            sum[o] = acc[half + o];
        for (uint32_t i = 0; i < PGL_TILE; i++) {
#pragma GCC unroll 1
            for (uint32_t o = 0; o < 8; o++)
                sum[o] = fmaf(x[i], w[i * PGL_TILE + half + o], sum[o]);
        }
        for (uint32_t o = 0; o < 8; o++)
            acc[half + o] = sum[o];
    }
}

PGL_FMA_TARGET static void tile_multiply_fma(const float *w, const float *x, float *acc) {
    tile_multiply_body(w, x, acc);
}

static void tile_multiply(const float *w, const float *x, float *acc) {
    if (pgl_has_fma())
        tile_multiply_fma(w, x, acc);
    else
        tile_multiply_body(w, x, acc);
}

void pgl_coded_forward(const pgl_coded *coded, uint32_t expert, const pgl_rows *rows) {
    uint32_t in = coded->in, out = coded->out;
    float *xh = rows->scratch;
    for (uint32_t r = 0; r < rows->n; r++) {
        const float *x = rows->x + (size_t)r * in;
        float *h = xh + (size_t)r * in;
        for (uint32_t i = 0; i < in; i++)
            h[i] = x[i] * effective(coded->rin, coded->s_in, expert, in, i);
        pgl_hadamard(h, in);
        for (uint32_t i = 0; i < in; i++) {
            h[i] = h[i] * PGL_HADAMARD_SCALE;
            if (!rows->exact)
                h[i] = pgl_round_f16(h[i]);
        }
    }
    memset(rows->y, 0, (size_t)rows->n * out * sizeof *rows->y);
    for (uint32_t b = 0; b < out / PGL_TILE; b++) {
        for (uint32_t a = 0; a < in / PGL_TILE; a++) {
            float w[256];
            decode_tile(coded, expert, a, b, w);
            for (uint32_t r = 0; r < rows->n; r++)
                tile_multiply(w, xh + (size_t)r * in + (size_t)a * PGL_TILE,
                              rows->y + (size_t)r * out + (size_t)b * PGL_TILE);
        }
    }
    for (uint32_t r = 0; r < rows->n; r++) {
        float *y = rows->y + (size_t)r * out;
        pgl_hadamard(y, out);
        for (uint32_t o = 0; o < out; o++) {
            y[o] = (y[o] * PGL_HADAMARD_SCALE) * effective(coded->rout, coded->s_out, expert, out, o);
            if (!rows->exact)
                y[o] = pgl_round_f16(y[o]);
            if (coded->bias != NULL) {
                y[o] = y[o] + pgl_read_f32(coded->bias, PGL_F16, (uint64_t)expert * out + o);
                if (!rows->exact)
                    y[o] = pgl_round_f16(y[o]);
            }
        }
    }
}

void pgl_linear_row(const pgl_linear *linear, uint32_t row, float *out) {
    uint64_t first = (uint64_t)row * linear->in;
    if (linear->kind == PGL_LINEAR_INT8) {
        float scale = pgl_read_f32(linear->scale, linear->scale_dtype, row);
        const unsigned char *w8 = (const unsigned char *)linear->data + first;
        for (uint32_t i = 0; i < linear->in; i++)
            out[i] = pgl_f16_to_f32(pgl_int8_weight((int8_t)w8[i], scale));
    } else {
        for (uint32_t i = 0; i < linear->in; i++)
            out[i] = pgl_read_f32(linear->data, linear->dtype, first + i);
    }
}

static void dense_forward(const pgl_linear *linear, const pgl_rows *rows) {
    uint32_t in = linear->in, out = linear->out;
    float *weight = rows->scratch;
    float *rounded = rows->scratch + in;
    const float *x = rows->x;
    if (!rows->exact) {
        for (size_t i = 0; i < (size_t)rows->n * in; i++)
            rounded[i] = pgl_round_f16(rows->x[i]);
        x = rounded;
    }
    for (uint32_t o = 0; o < out; o++) {
        pgl_linear_row(linear, o, weight);
        for (uint32_t r = 0; r < rows->n; r++) {
            float y = pgl_dot16(x + (size_t)r * in, weight, in);
            if (linear->bias.data != NULL)
                y = y + pgl_read_f32(linear->bias.data, linear->bias.dtype, o);
            rows->y[(size_t)r * out + o] = y;
        }
    }
}

void pgl_linear_forward(const pgl_linear *linear, const pgl_rows *rows) {
    switch (linear->kind) {
    case PGL_LINEAR_CODED:
        pgl_coded_forward(&linear->coded, 0, rows);
        break;
    case PGL_LINEAR_INT8:
    case PGL_LINEAR_PLAIN:
        dense_forward(linear, rows);
        break;
    case PGL_LINEAR_NONE:
        memset(rows->y, 0, (size_t)rows->n * linear->out * sizeof *rows->y);
        break;
    }
}

void pgl_coded_matrix(const pgl_coded *coded, uint32_t expert, float *out) {
    for (uint32_t a = 0; a < coded->in / PGL_TILE; a++) {
        for (uint32_t b = 0; b < coded->out / PGL_TILE; b++) {
            float w[256];
            decode_tile(coded, expert, a, b, w);
            for (uint32_t i = 0; i < PGL_TILE; i++)
                memcpy(out + (size_t)(a * PGL_TILE + i) * coded->out + (size_t)b * PGL_TILE, w + i * PGL_TILE,
                       PGL_TILE * sizeof *w);
        }
    }
}
