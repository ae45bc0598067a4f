/* The mixture of experts, and the coded linear: routing, the order of pairs, transforms, and the product that decodes
 * its weights on the way. */
#include "backend/cuda/kernels/math.h"

/* ---- routing */

/* Of two experts the one with the larger logit, and of equal ones the lower; id UINT32_MAX is none. */
PGL_DEVICE int comes_first(float v, uint32_t id, float best, uint32_t best_id) {
    return id != UINT32_MAX && (best_id == UINT32_MAX || v > best || (!(best > v) && id < best_id));
}

PGL_KERNEL(route, PGL_CUDA_THREADS) {
    PGL_SHARED(float, logit, PGL_CUDA_MOST_EXPERTS);
    PGL_SHARED(uint32_t, taken, PGL_CUDA_MOST_EXPERTS);
    PGL_SHARED(float, value, PGL_CUDA_THREADS / 32);
    PGL_SHARED(uint32_t, where, PGL_CUDA_THREADS / 32);
    PGL_SHARED(uint32_t, chosen, PGL_CUDA_MOST_USED);
    const float *in = a.logits + (uint64_t)pgl_block_x * a.n_experts;
    for (uint32_t e = pgl_thread; e < a.n_experts; e += PGL_CUDA_THREADS) {
        logit[e] = k_round16(in[e]);
        taken[e] = 0;
    }
    for (uint32_t s = 0; s < a.used; s++) {
        float best = 0;
        uint32_t best_id = UINT32_MAX;
        for (uint32_t e = pgl_thread; e < a.n_experts;
             e += PGL_CUDA_THREADS) { /* its own entries, each time */
            if (taken[e] == 0 && (best_id == UINT32_MAX || logit[e] > best)) {
                best = logit[e];
                best_id = e;
            }
        }
        for (uint32_t m = 16; m > 0; m >>= 1) {
            float v = pgl_exchange(best, m);
            uint32_t id = pgl_exchange_u32(best_id, m);
            if (comes_first(v, id, best, best_id)) {
                best = v;
                best_id = id;
            }
        }
        if (pgl_thread % 32 == 0) {
            value[pgl_thread / 32] = best;
            where[pgl_thread / 32] = best_id;
        }
        pgl_block_sync();
        best = value[0];
        best_id = where[0];
        for (uint32_t w = 1; w < PGL_CUDA_THREADS / 32; w++) {
            float v = value[w];
            uint32_t id = where[w];
            if (comes_first(v, id, best, best_id)) {
                best = v;
                best_id = id;
            }
        }
        if (pgl_thread == best_id % PGL_CUDA_THREADS) { /* whose entry it is */
            taken[best_id] = 1;
            chosen[s] = best_id;
        }
        pgl_block_sync();
    }
    if (pgl_thread > 0)
        return;
    float sum = 0, first = logit[chosen[0]];
    for (uint32_t s = 0; s < a.used; s++)
        sum += k_exp(logit[chosen[s]] - first);
    for (uint32_t s = 0; s < a.used; s++) {
        uint64_t at = (uint64_t)pgl_block_x * a.used + s;
        a.expert[at] = (int32_t)chosen[s];
        a.weight[at] = k_round16(k_exp(logit[chosen[s]] - first) / sum);
    }
}

/* A thread is an expert: it counts its pairs, takes the sum of the counts before it, and goes through the pairs again. */
PGL_KERNEL(sort, PGL_CUDA_SORT_THREADS) {
    PGL_SHARED(uint32_t, sums, PGL_CUDA_SORT_THREADS);
    uint32_t e = pgl_thread, n_pairs = a.n * a.used, count = 0;
    for (uint32_t p = 0; p < n_pairs && e < a.n_experts; p++)
        count += (uint32_t)a.expert[p] == e;
    /* pairs in the low 20 bits, experts that have some above */
    uint32_t mine = count | (count > 0 ? 1u << 20 : 0);
    sums[e] = mine;
    pgl_block_sync();
    for (uint32_t d = 1; d < PGL_CUDA_SORT_THREADS; d <<= 1) {
        uint32_t before = e >= d ? sums[e - d] : 0;
        pgl_block_sync();
        sums[e] += before;
        pgl_block_sync();
    }
    uint32_t first = (sums[e] - mine) & 0xFFFFFu, n_active = sums[PGL_CUDA_SORT_THREADS - 1] >> 20;
    if (e >= a.n_experts)
        return;
    a.pairs.expert_first[e] = first;
    if (e == a.n_experts - 1)
        a.pairs.expert_first[a.n_experts] = n_pairs;
    if (count > 0)
        a.pairs.active[(sums[e] - mine) >> 20] = e;
    if (e >= n_active)
        a.pairs.active[e] = UINT32_MAX;
    for (uint32_t p = 0, place = first; place < first + count; p++) {
        if ((uint32_t)a.expert[p] != e)
            continue;
        a.pairs.pair_of[p] = place;
        a.pairs.token_of[place] = p / a.used;
        a.pairs.expert_of[place] = e;
        place++;
    }
}

/* ---- the coded linear */

#define RS PGL_HADAMARD_SCALE

PGL_KERNEL(coded_input, 32) {
    uint32_t pair = pgl_block_x, in = a.coded.in, at = pgl_block_y * PGL_HADAMARD + pgl_thread * 4;
    uint32_t token = a.token_of != 0 ? a.token_of[pair] : pair;
    uint64_t row = (uint64_t)(a.expert_of != 0 ? a.expert_of[pair] : 0) * in + at;
    float v[4];
    PGL_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        if (a.gate_up != 0) {
            const uint16_t *gate = a.gate_up + (uint64_t)pair * 2 * in + at + i;
            v[i] = pgl_h2f(k_swiglu_coded(pgl_h2f(gate[0]), pgl_h2f(gate[in])));
        } else {
            v[i] = a.x32[(uint64_t)token * in + at + i];
        }
        v[i] *= k_effective(a.coded.rin, a.coded.s_in, row + i);
    }
    k_hadamard(v);
    PGL_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        a.xh[(uint64_t)pair * in + at + i] = pgl_f2h(v[i] * RS);
}

/* The states of a lane's eight weights of a tile, in the low halves (docs/format.md: a lane's weights are neighbours in the stream, and
 * stand where a tensor-core product wants them). */
PGL_DEVICE void lane_states(const uint32_t *tile, uint32_t k, uint32_t lane, uint32_t state[8]) {
    if (k == 2) {
        uint32_t here = tile[lane / 2], before = tile[(lane / 2 + 15) % 16];
        uint32_t window = lane % 2 != 0 ? here : pgl_funnel(here, before, 16);
        PGL_UNROLL
        for (uint32_t j = 0; j < 8; j++)
            state[j] = window >> (14 - 2 * j);
    } else if (k == 3) {
        uint32_t start = 24 * lane + 768 - 13, word = start / 32 % 24, shift = 27 - start % 32;
        uint32_t hi = tile[word], lo = tile[(word + 1) % 24];
        uint32_t low = pgl_funnel(lo, hi, shift), high = hi >> shift;
        PGL_UNROLL
        for (uint32_t j = 0; j < 8; j++)
            state[j] = pgl_funnel(low, high, 21 - 3 * j);
    } else {
        PGL_UNROLL
        for (uint32_t j = 0; j < 8; j++) {
            uint32_t start = ((8 * lane + j + 1) * k + 256 * k - 16) % (256 * k), shift = start % 32;
            uint32_t hi = tile[start / 32], lo = tile[(start / 32 + 1) % (8 * k)];
            state[j] = shift <= 16 ? hi >> (16 - shift) : pgl_funnel(lo, hi, 48 - shift);
        }
    }
}

/* The eight weights as the A operand of a product: outputs by inputs. The codebook's fp16 addition is done by the tensor
 * core: the words (low, high) are A, and B, which has ones for the two halves of every other column, adds them. */
PGL_DEVICE void lane_weights(const uint32_t *tile, uint32_t k, uint32_t lane, uint32_t w[4]) {
    uint32_t s[8], g = lane / 4, c = lane % 4, d[2];
    uint32_t even = 2 * c == g ? 0x3C003C00u : 0, odd = 2 * c + 1 == g ? 0x3C003C00u : 0;
    lane_states(tile, k, lane, s);
    PGL_UNROLL
    for (uint32_t j = 0; j < 8; j++)
        s[j] = k_codebook(s[j]);
    pgl_mma_add(d, s[0], s[4], s[1], s[5], even, odd);
    w[0] = d[0];
    w[1] = d[1];
    pgl_mma_add(d, s[2], s[6], s[3], s[7], even, odd);
    w[2] = d[0];
    w[3] = d[1];
}

#define CODED_WARPS (PGL_CUDA_THREADS / 32)
#define CODED_ROWS 16u /* that one decoding serves */

/* The rows first .. first + n - 1 of one expert against 128 outputs: the warps take every fourth row of tiles, and their
 * sums stand in red[warp][row][128]. groups: of eight rows. */
PGL_DEVICE void coded_product(const pgl_cuda_coded *m, uint32_t expert, uint32_t block, const uint16_t *xh,
                              uint32_t n, const uint32_t groups, float *red) {
    uint32_t lane = pgl_thread % 32, warp = pgl_thread / 32, g = lane / 4, c = lane % 4, k = m->k;
    uint64_t tile_words = 8 * (uint64_t)k, row_words = m->out / 16 * tile_words;
    const uint32_t *code = m->code + expert * (m->in / 16) * row_words + block * 8 * tile_words;
    float acc[2][8][4];
    PGL_UNROLL
    for (uint32_t i = 0; i < groups; i++) {
        PGL_UNROLL
        for (uint32_t b = 0; b < 8; b++)
            acc[i][b][0] = acc[i][b][1] = acc[i][b][2] = acc[i][b][3] = 0;
    }
    for (uint32_t r = warp; r < m->in / 16; r += CODED_WARPS) {
        uint32_t x[2][2] = {{0, 0}, {0, 0}};
        PGL_UNROLL
        for (uint32_t i = 0; i < groups; i++) {
            if (8 * i + g < n) {
                const uint32_t *row = (const uint32_t *)(xh + (uint64_t)(8 * i + g) * m->in + r * 16);
                x[i][0] = row[c];
                x[i][1] = row[c + 4];
            }
        }
        PGL_UNROLL
        for (uint32_t b = 0; b < 8; b++) {
            uint32_t w[4];
            lane_weights(code + r * row_words + b * tile_words, k, lane, w);
            PGL_UNROLL
            for (uint32_t i = 0; i < groups; i++)
                pgl_mma(acc[i][b], w, x[i][0], x[i][1]);
        }
    }
    PGL_UNROLL
    for (uint32_t i = 0; i < groups; i++) {
        PGL_UNROLL
        for (uint32_t b = 0; b < 8; b++) {
            PGL_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                red[((uint64_t)warp * CODED_ROWS + 8 * i + 2 * c + j % 2) * 128 + 16 * b + g + 8 * (j / 2)] =
                    acc[i][b][j];
        }
    }
}

/* One row's outputs: the warps' sums in order, transformed and scaled. */
PGL_DEVICE void coded_output(const pgl_coded_args *a, uint32_t expert, uint32_t block, uint32_t row,
                             const float *red) {
    uint32_t lane = pgl_thread % 32, out = a->coded.out, at = block * 128 + lane * 4;
    uint64_t vectors = (uint64_t)expert * out + at, to = (uint64_t)row * out + at;
    float v[4];
    PGL_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = red[lane * 4 + i];
        for (uint32_t w = 1; w < CODED_WARPS; w++)
            v[i] += red[w * CODED_ROWS * 128 + lane * 4 + i];
    }
    k_hadamard(v);
    PGL_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        float y = k_round16((v[i] * RS) * k_effective(a->coded.rout, a->coded.s_out, vectors + i));
        if (a->coded.bias != 0)
            y = k_round16(y + pgl_h2f(a->coded.bias[vectors + i]));
        if (a->y != 0)
            a->y[to + i] = pgl_f2h(y);
        if (a->y32 != 0)
            a->y32[to + i] = a->add != 0 ? a->y32[to + i] + y : y;
    }
}

PGL_KERNEL(coded, PGL_CUDA_THREADS) {
    PGL_SHARED(float, red, CODED_WARPS *CODED_ROWS * 128);
    uint32_t expert = a.active != 0 ? a.active[pgl_block_y] : 0;
    if (expert == UINT32_MAX)
        return;
    uint32_t first = a.active != 0 ? a.expert_first[expert] : 0;
    uint32_t end = a.active != 0 ? a.expert_first[expert + 1] : a.n;
    for (uint32_t row = first; row < end; row += CODED_ROWS) {
        uint32_t n = end - row < CODED_ROWS ? end - row : CODED_ROWS;
        const uint16_t *xh = a.xh + (uint64_t)row * a.coded.in;
        if (n <= 8)
            coded_product(&a.coded, expert, pgl_block_x, xh, n, 1, red);
        else
            coded_product(&a.coded, expert, pgl_block_x, xh, n, 2, red);
        pgl_block_sync();
        for (uint32_t r = pgl_thread / 32; r < n; r += CODED_WARPS)
            coded_output(&a, expert, pgl_block_x, row + r, red + r * 128);
        pgl_block_sync();
    }
}

PGL_KERNEL(mix, PGL_CUDA_THREADS) {
    uint64_t t = pgl_block_x;
    float gate = a.shared != 0 ? k_sigmoid(a.shared_gate[t]) : 0;
    for (uint32_t i = pgl_thread; i < a.hidden; i += PGL_CUDA_THREADS) {
        float sum = 0;
        for (uint32_t s = 0; s < a.used; s++) {
            uint64_t pair = a.pair_of[t * a.used + s];
            sum = fmaf(a.weight[t * a.used + s], pgl_h2f(a.y[pair * a.hidden + i]), sum);
        }
        float y = k_round16(sum);
        if (a.shared != 0)
            y += gate * a.shared[t * a.hidden + i];
        a.x[t * a.hidden + i] += y;
    }
}
