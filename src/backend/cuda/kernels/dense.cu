/* Embedding, norms, dense linears, and the ends of the head. */
#include "backend/cuda/kernels/math.h"

PGL_KERNEL(embed, PGL_CUDA_THREADS) {
    uint32_t t = pgl_block_x, in = a.table.in, row = (uint32_t)a.tokens[t];
    for (uint32_t i = pgl_thread; i < in; i += PGL_CUDA_THREADS)
        a.x[(uint64_t)t * in + i] = k_weight(&a.table, row, i);
}

PGL_KERNEL(norm, PGL_CUDA_THREADS) {
    PGL_SHARED(float, part, PGL_CUDA_THREADS / 32);
    uint32_t t = pgl_block_x;
    const float *x = a.x + (uint64_t)t * a.x_stride;
    float sum = 0;
    for (uint32_t i = pgl_thread; i < a.width; i += PGL_CUDA_THREADS)
        sum = fmaf(x[i], x[i], sum);
    sum = k_block_sum(sum, part, PGL_CUDA_THREADS / 32);
    float r = 1.0F / sqrtf(sum / (float)a.width + a.eps);
    for (uint32_t i = pgl_thread; i < a.width; i += PGL_CUDA_THREADS) {
        float h = (x[i] * r) * (1.0F + a.w[i]);
        if (a.h != 0)
            a.h[(uint64_t)t * a.width + i] = h;
        if (a.h16 != 0)
            a.h16[(uint64_t)t * a.h16_stride + i] = pgl_f2h(h);
    }
    if (a.bad != 0 && pgl_thread == 0)
        a.bad[t] = sum * 0.0F == 0.0F ? 0 : 1;
}

/* ---- y = W x */

/* Two words of fp16 weights from four int8: w ^ 0x80 is the weight + 128, and 0x6400 + b the fp16 number 1024 + b, so
 * that one subtraction gives the weight exactly; the product with the scale is the one rounding. */
PGL_DEVICE void dequantise(uint32_t w, uint32_t scale, uint32_t *lo, uint32_t *hi) {
    uint32_t biased = w ^ 0x80808080u;
    *lo = pgl_hmul2(pgl_hsub2(pgl_permute(biased, 0x64646464u, 0x4140), 0x64806480u), scale);
    *hi = pgl_hmul2(pgl_hsub2(pgl_permute(biased, 0x64646464u, 0x4342), 0x64806480u), scale);
}

PGL_DEVICE uint32_t quantum(uint32_t w, uint32_t byte, float scale) {
    return pgl_f2h((float)(int8_t)(w >> (8 * byte)) * scale);
}

PGL_DEVICE void dequantise_f32(uint32_t w, float scale, uint32_t *lo, uint32_t *hi) {
    *lo = quantum(w, 0, scale) | quantum(w, 1, scale) << 16;
    *hi = quantum(w, 2, scale) | quantum(w, 3, scale) << 16;
}

/* Sixteen stored weights of one row: eight words where they are fp16, the first four where they are int8. */
typedef struct dense_stored {
    uint32_t word[8];
} dense_stored;

PGL_DEVICE void dense_load(const pgl_cuda_matrix *m, const uint32_t type, uint32_t row, uint32_t at,
                           dense_stored *w) {
    uint64_t first = (uint64_t)row * m->in + at;
    pgl_word4 p, q = {0, 0, 0, 0};
    if (type == PGL_CUDA_F16) {
        p = pgl_stream4((const uint16_t *)m->w + first);
        q = pgl_stream4((const uint16_t *)m->w + first + 8);
    } else {
        p = pgl_stream4((const int8_t *)m->w + first);
    }
    w->word[0] = p.x;
    w->word[1] = p.y;
    w->word[2] = p.z;
    w->word[3] = p.w;
    w->word[4] = q.x;
    w->word[5] = q.y;
    w->word[6] = q.z;
    w->word[7] = q.w;
}

/* Words 2 i and 2 i + 1 of fp16 weights. */
PGL_DEVICE void dense_widen(const uint32_t type, const dense_stored *w, const uint32_t i, uint32_t scale16,
                            float scale32, uint32_t *lo, uint32_t *hi) {
    if (type == PGL_CUDA_F16) {
        *lo = w->word[2 * i];
        *hi = w->word[2 * i + 1];
    } else if (type == PGL_CUDA_INT8_F16) {
        dequantise(w->word[i], scale16, lo, hi);
    } else {
        dequantise_f32(w->word[i], scale32, lo, hi);
    }
}

#define DENSE_WARPS (PGL_CUDA_DENSE_THREADS / 32)
#define DENSE_GROUPS (PGL_CUDA_DENSE_TOKENS / 8)
#define DENSE_AHEAD 4u /* runs of 64 inputs whose weights a warp asks for together */

/* The runs of one warp: every DENSE_WARPS-th. */
PGL_DEVICE void dense_begin(const pgl_cuda_matrix *m, const uint32_t type, uint32_t r0, uint32_t first,
                            dense_stored w[DENSE_AHEAD][2]) {
    uint32_t lane = pgl_thread % 32, warp = pgl_thread / 32, g = lane / 4, c = lane % 4;
    PGL_UNROLL
    for (uint32_t u = 0; u < DENSE_AHEAD; u++) {
        uint32_t run = first + warp + u * DENSE_WARPS;
        if (run < m->in / 64 && r0 + g < m->out)
            dense_load(m, type, r0 + g, run * 64 + c * 16, &w[u][0]);
        if (run < m->in / 64 && r0 + g + 8 < m->out)
            dense_load(m, type, r0 + g + 8, run * 64 + c * 16, &w[u][1]);
    }
}

/* One run of 64 inputs against groups of eight tokens. A lane reads 16 neighbouring inputs, so the products see the
 * inputs in another order, the same on both sides. */
PGL_DEVICE void dense_run(const pgl_dense_args *a, const uint32_t type, uint32_t run, uint32_t t0,
                          const uint32_t groups, const dense_stored w[2], const uint32_t scale16[2],
                          const float scale32[2], float acc[DENSE_GROUPS][4]) {
    uint32_t lane = pgl_thread % 32, g = lane / 4, at = run * 64 + lane % 4 * 16, f[4][4];
    PGL_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        dense_widen(type, &w[0], i, scale16[0], scale32[0], &f[i][0], &f[i][2]);
        dense_widen(type, &w[1], i, scale16[1], scale32[1], &f[i][1], &f[i][3]);
    }
    PGL_UNROLL
    for (uint32_t j = 0; j < groups; j++) {
        pgl_word4 p = {0, 0, 0, 0}, q = {0, 0, 0, 0};
        if (t0 + 8 * j + g < a->n) {
            const uint16_t *row = a->x + (uint64_t)(t0 + 8 * j + g) * a->x_stride + at;
            p = pgl_load4(row);
            q = pgl_load4(row + 8);
        }
        pgl_mma(acc[j], f[0], p.x, p.y);
        pgl_mma(acc[j], f[1], p.z, p.w);
        pgl_mma(acc[j], f[2], q.x, q.y);
        pgl_mma(acc[j], f[3], q.z, q.w);
    }
}

/* Sixteen rows from r0 on against the tokens from t0 on, on tensor cores. w: the first runs' weights, asked for
 * already. Leaves red[warp][row][PGL_CUDA_DENSE_TOKENS]. */
PGL_DEVICE void dense_fast(const pgl_dense_args *a, const pgl_cuda_matrix *m, const uint32_t type,
                           uint32_t r0, uint32_t t0, const uint32_t groups, dense_stored w[DENSE_AHEAD][2],
                           float *red) {
    uint32_t lane = pgl_thread % 32, warp = pgl_thread / 32, g = lane / 4, c = lane % 4, scale16[2] = {0, 0};
    float acc[DENSE_GROUPS][4], scale32[2] = {0, 0};
    PGL_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t row = r0 + g + 8 * i;
        if (row < m->out && type == PGL_CUDA_INT8_F16)
            scale16[i] = ((const uint16_t *)m->scale)[row] * 0x10001u;
        if (row < m->out && type == PGL_CUDA_INT8_F32)
            scale32[i] = ((const float *)m->scale)[row];
    }
    PGL_UNROLL
    for (uint32_t j = 0; j < groups; j++)
        acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0;
    for (uint32_t first = 0; first < m->in / 64; first += DENSE_AHEAD * DENSE_WARPS) {
        PGL_UNROLL
        for (uint32_t u = 0; u < DENSE_AHEAD; u++) {
            uint32_t run = first + warp + u * DENSE_WARPS;
            if (run < m->in / 64)
                dense_run(a, type, run, t0, groups, w[u], scale16, scale32, acc);
        }
        if (first + DENSE_AHEAD * DENSE_WARPS < m->in / 64)
            dense_begin(m, type, r0, first + DENSE_AHEAD * DENSE_WARPS, w);
    }
    PGL_UNROLL
    for (uint32_t j = 0; j < groups; j++) {
        PGL_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            red[(warp * PGL_CUDA_DENSE_ROWS + g + 8 * (i / 2)) * PGL_CUDA_DENSE_TOKENS + 8 * j + 2 * c +
                i % 2] = acc[j][i];
    }
}

/* Weights of one kind: asked for before the inputs are there. */
PGL_DEVICE void dense_tiles(const pgl_dense_args *a, const pgl_cuda_matrix *m, const uint32_t type,
                            uint32_t r0, uint32_t t0, float *red) {
    dense_stored w[DENSE_AHEAD][2] = {{{{0}}}};
    dense_begin(m, type, r0, 0, w);
    pgl_wait();
    pgl_release();
    if (a->n - t0 <= 8)
        dense_fast(a, m, type, r0, t0, 1, w, red);
    else
        dense_fast(a, m, type, r0, t0, DENSE_GROUPS, w, red);
}

/* The same for weights that are not fp16, and for odd widths: a warp takes some of the rows, eight tokens at a time. */
PGL_DEVICE void dense_plain(const pgl_dense_args *a, const pgl_cuda_matrix *m, uint32_t r0, uint32_t t0,
                            float *red) {
    uint32_t lane = pgl_thread % 32, warp = pgl_thread / 32;
    for (uint32_t r = warp; r < PGL_CUDA_DENSE_ROWS; r += DENSE_WARPS) {
        for (uint32_t j = 0; j < PGL_CUDA_DENSE_TOKENS && t0 + j < a->n; j += 8) {
            float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            for (uint32_t i = lane; i < m->in && r0 + r < m->out; i += 32) {
                float w = k_weight(m, r0 + r, i);
                PGL_UNROLL
                for (uint32_t t = 0; t < 8; t++) {
                    if (t0 + j + t < a->n)
                        acc[t] = fmaf(w, pgl_h2f(a->x[(uint64_t)(t0 + j + t) * a->x_stride + i]), acc[t]);
                }
            }
            PGL_UNROLL
            for (uint32_t t = 0; t < 8; t++) {
                float sum = k_warp_sum(acc[t]);
                if (lane == 0)
                    red[r * PGL_CUDA_DENSE_TOKENS + j + t] = sum;
            }
        }
    }
}

PGL_KERNEL(dense, PGL_CUDA_DENSE_THREADS) {
    PGL_SHARED(float, red, DENSE_WARPS *PGL_CUDA_DENSE_ROWS *PGL_CUDA_DENSE_TOKENS);
    uint32_t block = pgl_block_x, part = 0, t0 = pgl_block_y * PGL_CUDA_DENSE_TOKENS;
    for (;; part++) {
        uint32_t blocks = (a.part[part].m.out + PGL_CUDA_DENSE_ROWS - 1) / PGL_CUDA_DENSE_ROWS;
        if (block < blocks)
            break;
        block -= blocks;
    }
    const pgl_cuda_matrix *m = &a.part[part].m;
    uint32_t r0 = block * PGL_CUDA_DENSE_ROWS, left = a.n - t0, warps = DENSE_WARPS;
    if (m->in % 64 == 0 && m->type == PGL_CUDA_INT8_F16) {
        dense_tiles(&a, m, PGL_CUDA_INT8_F16, r0, t0, red);
    } else if (m->in % 64 == 0 && m->type == PGL_CUDA_INT8_F32) {
        dense_tiles(&a, m, PGL_CUDA_INT8_F32, r0, t0, red);
    } else if (m->in % 64 == 0 && m->type == PGL_CUDA_F16) {
        dense_tiles(&a, m, PGL_CUDA_F16, r0, t0, red);
    } else {
        warps = 1;
        pgl_wait();
        pgl_release();
        dense_plain(&a, m, r0, t0, red);
    }
    pgl_block_sync();
    for (uint32_t i = pgl_thread; i < PGL_CUDA_DENSE_ROWS * PGL_CUDA_DENSE_TOKENS;
         i += PGL_CUDA_DENSE_THREADS) {
        uint32_t row = r0 + i % PGL_CUDA_DENSE_ROWS, t = i / PGL_CUDA_DENSE_ROWS;
        if (row >= m->out || t >= left)
            continue;
        float sum = 0;
        for (uint32_t w = 0; w < warps; w++)
            sum += red[(w * PGL_CUDA_DENSE_ROWS + i % PGL_CUDA_DENSE_ROWS) * PGL_CUDA_DENSE_TOKENS + t];
        if (m->bias != 0)
            sum += m->bias[row];
        float *y = a.part[part].y + (uint64_t)(t0 + t) * m->out + row;
        *y = a.add != 0 ? *y + sum : sum;
    }
}

PGL_KERNEL(swiglu, PGL_CUDA_THREADS) {
    uint64_t row = pgl_block_x;
    for (uint32_t i = pgl_thread; i < a.width; i += PGL_CUDA_THREADS) {
        float gate = a.gate[row * a.width + i], up = a.up[row * a.width + i];
        float h = a.coded != 0 ? pgl_h2f(k_swiglu_coded(gate, up)) : k_silu(gate) * up;
        if (a.h16 != 0)
            a.h16[row * a.h16_stride + i] = pgl_f2h(h);
        if (a.h32 != 0)
            a.h32[row * a.width + i] = h;
    }
}

/* ---- the head */

PGL_KERNEL(gather, PGL_CUDA_THREADS) {
    uint64_t to = a.to != 0 ? a.to[pgl_block_x] : pgl_block_x, from = a.row[pgl_block_x];
    for (uint32_t i = pgl_thread; a.out != 0 && i < a.width; i += PGL_CUDA_THREADS)
        a.out[to * a.width + i] = a.x[from * a.width + i];
    for (uint32_t i = pgl_thread; a.out16 != 0 && i < a.width16; i += PGL_CUDA_THREADS)
        a.out16[to * a.width16 + i] = a.x16[from * a.width16 + i];
}

/* Of two candidates the larger, and of equal ones the lower id. */
PGL_DEVICE int better(float v, uint32_t id, float best, uint32_t best_id) {
    return v > best || (v == best && id < best_id);
}

PGL_KERNEL(argmax, PGL_CUDA_SORT_THREADS) {
    PGL_SHARED(float, value, 32);
    PGL_SHARED(uint32_t, where, 32);
    PGL_SHARED(uint32_t, state, 32);
    const float *l = a.logits + (uint64_t)pgl_block_x * a.stride;
    float best = -INFINITY;
    uint32_t best_id = UINT32_MAX,
             seen = 0; /* bit 0: something that a row may not have; bit 1: a finite number */
    for (uint32_t i = pgl_thread; i < a.n_vocab; i += PGL_CUDA_SORT_THREADS) {
        float v = l[i];
        if (best_id == UINT32_MAX || better(v, i, best, best_id)) {
            best = v;
            best_id = i;
        }
        seen |= v - v == 0.0F ? 2u : v < 0 ? 0u : 1u;
    }
    for (uint32_t pass = 0; pass < 2; pass++) { /* within the warps, then over them by the first one */
        for (uint32_t m = 16; m > 0; m >>= 1) {
            float v = pgl_exchange(best, m);
            uint32_t id = pgl_exchange_u32(best_id, m);
            seen |= pgl_exchange_u32(seen, m);
            if (id != UINT32_MAX && (best_id == UINT32_MAX || better(v, id, best, best_id))) {
                best = v;
                best_id = id;
            }
        }
        if (pass == 0) {
            if (pgl_thread % 32 == 0) {
                value[pgl_thread / 32] = best;
                where[pgl_thread / 32] = best_id;
                state[pgl_thread / 32] = seen;
            }
            pgl_block_sync();
            best = value[pgl_thread % 32];
            best_id = where[pgl_thread % 32];
            seen = state[pgl_thread % 32];
        }
    }
    if (pgl_thread == 0) {
        a.token[pgl_block_x] = (int32_t)best_id;
        a.bad[pgl_block_x] = seen == 2u ? 0 : 1;
    }
}
