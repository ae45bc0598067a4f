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

/* Sixteen weights of one row, from `at` on, as eight words of fp16. */
PGL_DEVICE void weights16(const pgl_cuda_matrix *m, uint32_t row, uint32_t at, uint32_t out[8]) {
    uint64_t first = (uint64_t)row * m->in + at;
    if (m->type == PGL_CUDA_F16) {
        const uint16_t *w = (const uint16_t *)m->w + first;
        pgl_word4 p = pgl_stream4(w), q = pgl_stream4(w + 8);
        out[0] = p.x;
        out[1] = p.y;
        out[2] = p.z;
        out[3] = p.w;
        out[4] = q.x;
        out[5] = q.y;
        out[6] = q.z;
        out[7] = q.w;
        return;
    }
    pgl_word4 p = pgl_stream4((const int8_t *)m->w + first);
    if (m->type == PGL_CUDA_INT8_F16) {
        uint32_t scale = ((const uint16_t *)m->scale)[row] * 0x10001u;
        dequantise(p.x, scale, out, out + 1);
        dequantise(p.y, scale, out + 2, out + 3);
        dequantise(p.z, scale, out + 4, out + 5);
        dequantise(p.w, scale, out + 6, out + 7);
    } else {
        float scale = ((const float *)m->scale)[row];
        dequantise_f32(p.x, scale, out, out + 1);
        dequantise_f32(p.y, scale, out + 2, out + 3);
        dequantise_f32(p.z, scale, out + 4, out + 5);
        dequantise_f32(p.w, scale, out + 6, out + 7);
    }
}

#define DENSE_WARPS (PGL_CUDA_THREADS / 32)

/* Sixteen rows from r0 on against eight tokens from t0 on, on tensor cores: the warps take every fourth run of 64
 * inputs. A lane reads 16 neighbouring inputs, so the products see the inputs in another order, the same on both sides. */
PGL_DEVICE void dense_fast(const pgl_dense_args *a, const pgl_cuda_matrix *m, uint32_t r0, uint32_t t0,
                           float *red) {
    uint32_t lane = pgl_thread % 32, warp = pgl_thread / 32, g = lane / 4, c = lane % 4;
    float acc[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    for (uint32_t run = warp; run < m->in / 64; run += DENSE_WARPS) {
        uint32_t at = run * 64 + c * 16, w[2][8] = {{0}, {0}}, x[8] = {0};
        if (r0 + g < m->out)
            weights16(m, r0 + g, at, w[0]);
        if (r0 + g + 8 < m->out)
            weights16(m, r0 + g + 8, at, w[1]);
        if (t0 + g < a->n) {
            const uint16_t *row = a->x + (uint64_t)(t0 + g) * a->x_stride + at;
            pgl_word4 p = pgl_load4(row), q = pgl_load4(row + 8);
            x[0] = p.x;
            x[1] = p.y;
            x[2] = p.z;
            x[3] = p.w;
            x[4] = q.x;
            x[5] = q.y;
            x[6] = q.z;
            x[7] = q.w;
        }
        PGL_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t f[4] = {w[0][2 * i], w[1][2 * i], w[0][2 * i + 1], w[1][2 * i + 1]};
            pgl_mma(acc[i % 2], f, x[2 * i], x[2 * i + 1]);
        }
    }
    float *mine = red + warp * 128;
    PGL_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        mine[(g + 8 * (i / 2)) * 8 + 2 * c + i % 2] = acc[0][i] + acc[1][i];
}

/* The same for weights that are not fp16, and for odd widths: a warp takes four of the rows. */
PGL_DEVICE void dense_plain(const pgl_dense_args *a, const pgl_cuda_matrix *m, uint32_t r0, uint32_t t0,
                            float *red) {
    uint32_t lane = pgl_thread % 32, warp = pgl_thread / 32;
    for (uint32_t r = warp; r < PGL_CUDA_DENSE_ROWS; r += DENSE_WARPS) {
        float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (uint32_t i = lane; i < m->in && r0 + r < m->out; i += 32) {
            float w = k_weight(m, r0 + r, i);
            PGL_UNROLL
            for (uint32_t t = 0; t < 8; t++) {
                if (t0 + t < a->n)
                    acc[t] = fmaf(w, pgl_h2f(a->x[(uint64_t)(t0 + t) * a->x_stride + i]), acc[t]);
            }
        }
        PGL_UNROLL
        for (uint32_t t = 0; t < 8; t++) {
            float sum = k_warp_sum(acc[t]);
            if (lane == 0)
                red[r * 8 + t] = sum;
        }
    }
}

PGL_KERNEL(dense, PGL_CUDA_THREADS) {
    PGL_SHARED(float, red, DENSE_WARPS * 128);
    uint32_t block = pgl_block_x, part = 0, t0 = pgl_block_y * 8;
    for (;; part++) {
        uint32_t blocks = (a.part[part].m.out + PGL_CUDA_DENSE_ROWS - 1) / PGL_CUDA_DENSE_ROWS;
        if (block < blocks)
            break;
        block -= blocks;
    }
    const pgl_cuda_matrix *m = &a.part[part].m;
    uint32_t r0 = block * PGL_CUDA_DENSE_ROWS, row = r0 + pgl_thread / 8, t = t0 + pgl_thread % 8;
    int fast = m->in % 64 == 0 && m->type != PGL_CUDA_BF16 && m->type != PGL_CUDA_F32;
    if (fast)
        dense_fast(&a, m, r0, t0, red);
    else
        dense_plain(&a, m, r0, t0, red);
    pgl_block_sync();
    if (row >= m->out || t >= a.n)
        return;
    float sum = red[pgl_thread];
    for (uint32_t w = 1; w < DENSE_WARPS && fast; w++)
        sum += red[w * 128 + pgl_thread];
    if (m->bias != 0)
        sum += m->bias[row];
    float *y = a.part[part].y + (uint64_t)t * m->out + row;
    *y = a.add != 0 ? *y + sum : sum;
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
