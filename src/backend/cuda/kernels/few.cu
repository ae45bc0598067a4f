/* The experts of a few tokens: two kernels instead of four, each of which transforms its own input, for K = 2 and 3.
 *
 * A warp takes rows of eight tiles that lie side by side (128 outputs), a quarter of a warp's lanes a tile, and a lane a
 * quarter of a tile: neighbours in the stream, read with wide loads, and one shuffle for the word before them. The
 * eight-weight groups i = 0 .. 7 of a lane (docs/format.md: the tile's lanes 8 c + i) have the inputs 2 (i % 4) + {0, 1,
 * 8, 9} and the outputs 2 c + i / 4 + {0, 8}; a product takes the same i of all lanes. Lanes of a tile share its row of
 * A, so the columns of B tell them apart: column g is lane g % 4 and token g / 4, with zeros where the lane is
 * another. */
#include "backend/cuda/kernels/math.h"

#define FEW_WARPS (PGL_CUDA_FEW_THREADS / 32)
#define FEW_AHEAD 4u /* rows of tiles whose codes a warp asks for together */
#define ROW_WORDS 8u /* of fp16 inputs against one row of tiles */

/* A lane's codes of one row of tiles, behind the word before them. */
typedef struct few_codes {
    uint32_t word[7];
} few_codes;

PGL_DEVICE void few_load(const uint32_t *row, const uint32_t k, few_codes *c) {
    uint32_t lane = pgl_thread % 32;
    if (k == 2) {
        pgl_word4 w = pgl_stream4(row + lane * 4);
        c->word[1] = w.x;
        c->word[2] = w.y;
        c->word[3] = w.z;
        c->word[4] = w.w;
    } else {
        PGL_UNROLL
        for (uint32_t i = 0; i < 3; i++) {
            pgl_word2 w = pgl_stream2(row + lane * 6 + 2 * i);
            c->word[1 + 2 * i] = w.x;
            c->word[2 + 2 * i] = w.y;
        }
    }
}

/* Weight j of group i of a lane: its state ends k (8 i + j + 1) bits behind the word before. */
PGL_DEVICE uint32_t few_word(const few_codes *c, const uint32_t k, const uint32_t i, const uint32_t j) {
    const uint32_t end = 32 + k * (8 * i + j + 1), last = (end - 1) / 32, shift = 32 * (last + 1) - end;
    return k_codebook(pgl_funnel(c->word[last], c->word[last - 1], shift));
}

/* Group i of a row against `pairs` pairs of tokens, whose inputs are b. acc[pair][i / 4]. */
PGL_DEVICE void few_group(const few_codes *c, const uint32_t k, const uint32_t i, const uint32_t pairs,
                          uint32_t b[2][ROW_WORDS], uint32_t even, uint32_t odd, float acc[2][2][4]) {
    uint32_t w[8], d[2], e[2];
    PGL_UNROLL
    for (uint32_t j = 0; j < 8; j++)
        w[j] = few_word(c, k, i, j);
    pgl_mma_add(d, w[0], w[4], w[1], w[5], even, odd);
    pgl_mma_add(e, w[2], w[6], w[3], w[7], even, odd);
    const uint32_t a[4] = {d[0], d[1], e[0], e[1]};
    PGL_UNROLL
    for (uint32_t p = 0; p < pairs; p++)
        pgl_mma(acc[p][i / 4], a, b[p][2 * (i % 4)], b[p][2 * (i % 4) + 1]);
}

/* Rows of tiles first .. first + n_rows - 1 (of the matrix) against n tokens, n <= 2 pairs. code: of the expert and of
 * these outputs; ahead: the codes of the first FEW_AHEAD rows of this warp, asked for before. x [token][n_rows][ROW_WORDS]
 * is shared. Leaves red[warp][token][128]. */
PGL_DEVICE void few_product(const uint32_t *code, uint64_t stride, const uint32_t k, uint32_t n_rows,
                            few_codes *ahead, const uint32_t *x, uint32_t n, const uint32_t pairs,
                            float *red) {
    uint32_t lane = pgl_thread % 32, warp = pgl_thread / 32, g = lane / 4, c = lane % 4;
    uint32_t even = 2 * c == g ? 0x3C003C00u : 0, odd = 2 * c + 1 == g ? 0x3C003C00u : 0;
    float acc[2][2][4];
    PGL_UNROLL
    for (uint32_t p = 0; p < pairs; p++) {
        PGL_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            acc[p][0][i] = acc[p][1][i] = 0;
    }
    for (uint32_t r0 = warp; r0 < n_rows; r0 += FEW_AHEAD * FEW_WARPS) {
        PGL_UNROLL
        for (uint32_t u = 0; u < FEW_AHEAD; u++) {
            uint32_t r = r0 + u * FEW_WARPS, b[2][ROW_WORDS];
            if (r >= n_rows)
                continue;
            few_codes *now = &ahead[u];
            now->word[0] = pgl_shuffle(now->word[2 * k], lane / 4 * 4 + (c + 3) % 4);
            PGL_UNROLL
            for (uint32_t p = 0; p < pairs; p++) {
                uint32_t token = 2 * p + g / 4;
                const uint32_t *from = x + ((uint64_t)token * n_rows + r) * ROW_WORDS;
                PGL_UNROLL
                for (uint32_t i = 0; i < ROW_WORDS; i++)
                    b[p][i] = token < n && g % 4 == c ? from[i] : 0;
            }
            PGL_UNROLL
            for (uint32_t i = 0; i < 8; i++)
                few_group(now, k, i, pairs, b, even, odd, acc);
            if (r + FEW_AHEAD * FEW_WARPS < n_rows)
                few_load(code + (r + FEW_AHEAD * FEW_WARPS) * stride, k, now);
        }
    }
    PGL_UNROLL
    for (uint32_t p = 0; p < pairs;
         p++) { /* D: row = tile (and 8 outputs further), column = lane and token */
        PGL_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t token = 2 * p + c / 2, output = 16 * g + 2 * (2 * (c % 2) + j % 2) + 8 * (j / 2);
            float *to = red + ((uint64_t)warp * PGL_CUDA_FEW_ROWS + token) * 128 + output;
            to[0] = acc[p][0][j];
            to[1] = acc[p][1][j];
        }
    }
}

/* The codes that a warp begins with. */
PGL_DEVICE void few_begin(const uint32_t *code, uint64_t stride, const uint32_t k, uint32_t n_rows,
                          few_codes *ahead) {
    PGL_UNROLL
    for (uint32_t u = 0; u < FEW_AHEAD; u++) {
        uint32_t r = pgl_thread / 32 + u * FEW_WARPS;
        if (r < n_rows)
            few_load(code + r * stride, k, &ahead[u]);
    }
}

/* Four transformed inputs of a token, from input 128 block + 4 lane of these rows on, to where products look for them:
 * of the row of tiles, word 2 i + h has the inputs 2 i + 8 h and the next. */
PGL_DEVICE void few_put(uint32_t *x, uint32_t block, const float v[4]) {
    uint32_t at = block * 128 + pgl_thread % 32 * 4, *row = x + at / 16 * ROW_WORDS, in = at % 16;
    PGL_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t k = in + 2 * i, low = pgl_f2h(v[2 * i] * PGL_HADAMARD_SCALE);
        row[k % 8 / 2 * 2 + k / 8] = low | (uint32_t)pgl_f2h(v[2 * i + 1] * PGL_HADAMARD_SCALE) << 16;
    }
}

/* Sums of the warps, in order. */
PGL_DEVICE float few_sum(const float *red, uint32_t token, uint32_t output) {
    float sum = 0;
    PGL_UNROLL
    for (uint32_t w = 0; w < FEW_WARPS; w++)
        sum += red[((uint64_t)w * PGL_CUDA_FEW_ROWS + token) * 128 + output];
    return sum;
}

PGL_DEVICE void few_any(const uint32_t *code, uint64_t stride, uint32_t k, uint32_t n_rows, few_codes *ahead,
                        const uint32_t *x, uint32_t n, float *red) {
    if (k == 2) {
        if (n <= 2)
            few_product(code, stride, 2, n_rows, ahead, x, n, 1, red);
        else
            few_product(code, stride, 2, n_rows, ahead, x, n, 2, red);
    } else {
        if (n <= 2)
            few_product(code, stride, 3, n_rows, ahead, x, n, 1, red);
        else
            few_product(code, stride, 3, n_rows, ahead, x, n, 2, red);
    }
}

PGL_KERNEL(few_up, PGL_CUDA_FEW_THREADS) {
    PGL_SHARED(float, red, FEW_WARPS *PGL_CUDA_FEW_ROWS * 128);
    PGL_SHARED(uint32_t, x, PGL_CUDA_FEW_ROWS * PGL_CUDA_FEW_TILES * ROW_WORDS);
    uint32_t n_blocks = a.coded.out / 128, split = pgl_block_x / n_blocks, block = pgl_block_x % n_blocks;
    uint32_t n_rows = a.coded.in / 16 / a.splits, warp = pgl_thread / 32, lane = pgl_thread % 32,
             k = a.coded.k;
    uint64_t stride = a.coded.out / 16 * 8 * k, code_words = a.coded.in / 16 * stride;
    pgl_wait();
    pgl_release();
    uint32_t expert = a.active[pgl_block_y];
    if (expert == UINT32_MAX)
        return;
    const uint32_t *code = a.coded.code + expert * code_words + split * n_rows * stride + block * 64 * k;
    uint32_t end = a.expert_first[expert + 1];
    for (uint32_t first = a.expert_first[expert]; first < end; first += PGL_CUDA_FEW_ROWS) {
        uint32_t n = end - first < PGL_CUDA_FEW_ROWS ? end - first : PGL_CUDA_FEW_ROWS;
        few_codes ahead[FEW_AHEAD];
        if (k == 2)
            few_begin(code, stride, 2, n_rows, ahead);
        else
            few_begin(code, stride, 3, n_rows, ahead);
        for (uint32_t i = warp; i < n * (n_rows / 8); i += FEW_WARPS) {
            uint32_t t = i / (n_rows / 8), b = i % (n_rows / 8),
                     at = split * n_rows * 16 + b * 128 + lane * 4;
            const float *from = a.x32 + (uint64_t)a.token_of[first + t] * a.coded.in + at;
            float v[4];
            PGL_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                v[j] =
                    from[j] * k_effective(a.coded.rin, a.coded.s_in, (uint64_t)expert * a.coded.in + at + j);
            k_hadamard(v);
            few_put(x + t * n_rows * ROW_WORDS, b, v);
        }
        pgl_block_sync();
        few_any(code, stride, k, n_rows, ahead, x, n, red);
        pgl_block_sync();
        for (uint32_t i = pgl_thread; i < n * 128; i += PGL_CUDA_FEW_THREADS)
            a.mid[((uint64_t)split * a.n_pairs + first + i / 128) * a.coded.out + block * 128 + i % 128] =
                few_sum(red, i / 128, i % 128);
        pgl_block_sync();
    }
}

/* One pair's outputs of gate_up: the splits in order, transformed, scaled, rounded. y: shared. */
PGL_DEVICE void few_gate_up(const pgl_few_down_args *a, uint32_t expert, uint32_t pair, uint16_t *y) {
    uint32_t lane = pgl_thread % 32, out = a->gate_up.out;
    for (uint32_t b = pgl_thread / 32; b < out / 128; b += FEW_WARPS) {
        uint32_t at = b * 128 + lane * 4;
        float v[4];
        PGL_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            v[j] = a->mid[(uint64_t)pair * out + at + j];
            for (uint32_t s = 1; s < a->splits; s++)
                v[j] += a->mid[((uint64_t)s * a->n_pairs + pair) * out + at + j];
        }
        k_hadamard(v);
        PGL_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            y[at + j] = pgl_f2h((v[j] * PGL_HADAMARD_SCALE) * k_effective(a->gate_up.rout, a->gate_up.s_out,
                                                                          (uint64_t)expert * out + at + j));
    }
}

/* SwiGLU of it, and the transform of down's input. */
PGL_DEVICE void few_inner(const pgl_few_down_args *a, uint32_t expert, const uint16_t *y, uint32_t *x) {
    uint32_t lane = pgl_thread % 32, in = a->down.in;
    for (uint32_t b = pgl_thread / 32; b < in / 128; b += FEW_WARPS) {
        uint32_t at = b * 128 + lane * 4;
        float v[4];
        PGL_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            v[j] = pgl_h2f(k_swiglu_coded(pgl_h2f(y[at + j]), pgl_h2f(y[in + at + j]))) *
                   k_effective(a->down.rin, a->down.s_in, (uint64_t)expert * in + at + j);
        k_hadamard(v);
        few_put(x, b, v);
    }
}

PGL_KERNEL(few_down, PGL_CUDA_FEW_THREADS) {
    PGL_SHARED(float, red, FEW_WARPS *PGL_CUDA_FEW_ROWS * 128);
    PGL_SHARED(uint32_t, x, PGL_CUDA_FEW_ROWS * PGL_CUDA_FEW_TILES * ROW_WORDS);
    PGL_SHARED(uint16_t, y, 32 * PGL_CUDA_FEW_TILES);
    uint32_t block = pgl_block_x, n_rows = a.down.in / 16, lane = pgl_thread % 32, k = a.down.k,
             out = a.down.out;
    uint64_t stride = out / 16 * 8 * k, code_words = n_rows * stride;
    uint32_t expert = a.active[pgl_block_y]; /* of the kernel before the one before */
    if (expert == UINT32_MAX) {
        pgl_wait();
        pgl_release();
        return;
    }
    const uint32_t *code = a.down.code + expert * code_words + block * 64 * k;
    uint32_t begin = a.expert_first[expert], end = a.expert_first[expert + 1];
    few_codes ahead[FEW_AHEAD];
    for (uint32_t first = begin; first < end; first += PGL_CUDA_FEW_ROWS) {
        uint32_t n = end - first < PGL_CUDA_FEW_ROWS ? end - first : PGL_CUDA_FEW_ROWS;
        if (k == 2)
            few_begin(code, stride, 2, n_rows, ahead);
        else
            few_begin(code, stride, 3, n_rows, ahead);
        if (first == begin) {
            pgl_wait();
            pgl_release();
        }
        for (uint32_t t = 0; t < n; t++) {
            few_gate_up(&a, expert, first + t, y);
            pgl_block_sync();
            few_inner(&a, expert, y, x + t * n_rows * ROW_WORDS);
            pgl_block_sync();
        }
        few_any(code, stride, k, n_rows, ahead, x, n, red);
        pgl_block_sync();
        for (uint32_t t = pgl_thread / 32; t < n; t += FEW_WARPS) {
            uint32_t at = block * 128 + lane * 4;
            float v[4];
            PGL_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                v[j] = few_sum(red, t, lane * 4 + j);
            k_hadamard(v);
            PGL_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                a.y[(uint64_t)(first + t) * out + at + j] =
                    pgl_f2h((v[j] * PGL_HADAMARD_SCALE) *
                            k_effective(a.down.rout, a.down.s_out, (uint64_t)expert * out + at + j));
        }
        pgl_block_sync();
    }
}
