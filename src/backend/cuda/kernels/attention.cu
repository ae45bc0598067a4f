/* Full attention over pages. */
#include "backend/cuda/kernels/math.h"

/* ---- keys, values, rotations */

/* Norm and rotation of one head by one warp; v is shared. */
PGL_DEVICE void norm_and_rotate(float *v, const float *w, uint32_t dim, uint32_t rotary, const float *cosine,
                                const float *sine, float eps) {
    uint32_t lane = pgl_thread % 32, half = rotary / 2;
    float sum = 0;
    for (uint32_t i = lane; i < dim; i += 32)
        sum = fmaf(v[i], v[i], sum);
    float r = 1.0F / sqrtf(k_warp_sum(sum) / (float)dim + eps);
    for (uint32_t i = lane; i < dim; i += 32)
        v[i] = (v[i] * r) * (1.0F + w[i]);
    pgl_warp_sync();
    for (uint32_t i = lane; i < half; i += 32) {
        float x = v[i], y = v[i + half];
        v[i] = fmaf(-y, sine[i], x * cosine[i]);
        v[i + half] = fmaf(x, sine[i], y * cosine[i]);
    }
    pgl_warp_sync();
}

PGL_DEVICE uint16_t *page_entry(const pgl_cuda_pages *pages, uint32_t slot, uint32_t entry, uint32_t head,
                                uint32_t dim) {
    uint64_t page = pages->table[(uint64_t)slot * pages->table_stride + entry / pages->page_tokens];
    return pages->keys + page * pages->page_stride +
           ((uint64_t)head * pages->page_tokens + entry % pages->page_tokens) * dim;
}

PGL_DEVICE uint16_t *draft_entry(const pgl_cuda_draft_keys *drafts, uint32_t row, uint32_t draft,
                                 uint32_t head, uint32_t n_heads, uint32_t dim) {
    return drafts->keys + (((uint64_t)row * 2 * n_heads + head) * drafts->most + draft) * dim;
}

PGL_KERNEL(attention_prepare, 32) {
    PGL_SHARED(float, v, PGL_CUDA_MOST_HEAD_DIM);
    uint32_t t = pgl_block_x, head = pgl_block_y, dim = a.head_dim, lane = pgl_thread;
    const float *cosine = a.cosine + (uint64_t)t * (a.rotary_dim / 2),
                *sine = a.sine + (uint64_t)t * (a.rotary_dim / 2);
    if (a.q != 0 && head < a.n_heads) {
        float *q = a.q + ((uint64_t)t * a.n_heads + head) * 2 * dim;
        for (uint32_t i = lane; i < dim; i += 32)
            v[i] = q[i];
        pgl_warp_sync();
        norm_and_rotate(v, a.q_norm, dim, a.rotary_dim, cosine, sine, a.eps);
        for (uint32_t i = lane; i < dim; i += 32)
            q[i] = v[i];
        return;
    }
    head -= a.q != 0 ? a.n_heads : 0;
    uint64_t from = ((uint64_t)t * a.n_kv_heads + head) * dim;
    uint32_t entry = a.entry[t];
    for (uint32_t i = lane; i < dim; i += 32)
        v[i] = a.k[from + i];
    pgl_warp_sync();
    norm_and_rotate(v, a.k_norm, dim, a.rotary_dim, cosine, sine, a.eps);
    if (entry == UINT32_MAX)
        return;
    uint16_t *key = a.drafts.keys != 0
                        ? draft_entry(&a.drafts, a.drafts.row[t], entry, head, a.n_kv_heads, dim)
                        : page_entry(&a.pages, a.slot[t], entry, head, dim);
    uint64_t values =
        a.drafts.keys != 0 ? (uint64_t)a.n_kv_heads * a.drafts.most * dim : a.pages.values_offset;
    for (uint32_t i = lane; i < dim; i += 32) {
        key[i] = pgl_f2h(v[i]);
        key[values + i] = pgl_f2h(a.v[from + i]);
    }
}

/* ---- scores and values */

#define TILE 32u /* entries looked at together */
#define LANE_DIMS (PGL_CUDA_MOST_HEAD_DIM / 32)
#define THREAD_DIMS (PGL_CUDA_MOST_HEAD_DIM / PGL_CUDA_THREADS)
#define ENTRIES_PER_WARP (TILE / (PGL_CUDA_THREADS / 32))
#define THREADS_PER_QUERY (PGL_CUDA_THREADS / PGL_CUDA_QUERIES)

/* Entry `at` of those that a token looks at, and how far behind its values are. */
PGL_DEVICE const uint16_t *entry_at(const pgl_attend_args *a, uint32_t t, uint32_t kv_head, uint32_t at,
                                    uint64_t *values) {
    uint32_t in_pages = a->count[t];
    if (at < in_pages) {
        *values = a->pages.values_offset;
        return page_entry(&a->pages, a->slot[t], a->first + at, kv_head, a->head_dim);
    }
    *values = (uint64_t)a->n_kv_heads * a->drafts.most * a->head_dim;
    return draft_entry(&a->drafts, a->drafts.row[t], at - in_pages, kv_head, a->n_kv_heads, a->head_dim);
}

/* Scores of the tile's entries for all queries: a warp takes eight entries, a lane head_dim / 32 neighbouring dimensions. */
PGL_DEVICE void tile_scores(const pgl_attend_args *a, uint32_t t, uint32_t kv_head, uint32_t at, uint32_t n,
                            float q[PGL_CUDA_QUERIES][LANE_DIMS], float *score) {
    uint32_t lane = pgl_thread % 32, warp = pgl_thread / 32, per = a->head_dim / 32;
    float scale = 1.0F / sqrtf((float)a->head_dim);
    for (uint32_t i = warp * ENTRIES_PER_WARP; i < (warp + 1) * ENTRIES_PER_WARP; i++) {
        uint64_t values;
        float k[LANE_DIMS];
        const uint16_t *key = i < n ? entry_at(a, t, kv_head, at + i, &values) + lane * per : 0;
        PGL_UNROLL
        for (uint32_t d = 0; d < LANE_DIMS; d++)
            k[d] = key != 0 && d < per ? pgl_h2f(key[d]) : 0;
        PGL_UNROLL
        for (uint32_t h = 0; h < PGL_CUDA_QUERIES; h++) {
            float sum = 0;
            PGL_UNROLL
            for (uint32_t d = 0; d < LANE_DIMS; d++)
                sum = fmaf(q[h][d], k[d], sum);
            sum = k_warp_sum(sum);
            if (lane == 0)
                score[h * TILE + i] = i < n ? sum * scale : -INFINITY;
        }
    }
}

/* The scores of one query become exponentials against the new maximum; sixteen threads each. */
PGL_DEVICE void tile_softmax(float *score, uint32_t n, float *maximum, float *sum, float *correction) {
    uint32_t h = pgl_thread / THREADS_PER_QUERY, i = pgl_thread % THREADS_PER_QUERY;
    float x = score[h * TILE + i], y = score[h * TILE + i + THREADS_PER_QUERY];
    float most = x > y ? x : y, old = maximum[h];
    for (uint32_t m = THREADS_PER_QUERY / 2; m > 0; m >>= 1) {
        float other = pgl_exchange(most, m);
        most = other > most ? other : most;
    }
    most = old > most ? old : most;
    x = i < n ? k_exp(x - most) : 0;
    y = i + THREADS_PER_QUERY < n ? k_exp(y - most) : 0;
    score[h * TILE + i] = x;
    score[h * TILE + i + THREADS_PER_QUERY] = y;
    float part = x + y;
    for (uint32_t m = THREADS_PER_QUERY / 2; m > 0; m >>= 1)
        part += pgl_exchange(part, m);
    if (i == 0) {
        correction[h] = old > -INFINITY ? k_exp(old - most) : 0;
        maximum[h] = most;
        sum[h] = sum[h] * correction[h] + part;
    }
}

/* Weighted values are added to acc; a thread takes every PGL_CUDA_THREADS-th dimension. */
PGL_DEVICE void tile_values(const pgl_attend_args *a, uint32_t t, uint32_t kv_head, uint32_t at, uint32_t n,
                            const float *score, const float *correction,
                            float acc[PGL_CUDA_QUERIES][THREAD_DIMS]) {
    PGL_UNROLL
    for (uint32_t h = 0; h < PGL_CUDA_QUERIES; h++) {
        PGL_UNROLL
        for (uint32_t d = 0; d < THREAD_DIMS; d++)
            acc[h][d] *= correction[h];
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t values;
        const uint16_t *value = entry_at(a, t, kv_head, at + i, &values);
        PGL_UNROLL
        for (uint32_t d = 0; d < THREAD_DIMS; d++) {
            uint32_t at_dim = pgl_thread + d * PGL_CUDA_THREADS;
            float v = at_dim < a->head_dim ? pgl_h2f(value[values + at_dim]) : 0;
            PGL_UNROLL
            for (uint32_t h = 0; h < PGL_CUDA_QUERIES; h++)
                acc[h][d] = fmaf(score[h * TILE + i], v, acc[h][d]);
        }
    }
}

PGL_KERNEL(attend, PGL_CUDA_THREADS) {
    PGL_SHARED(float, score, PGL_CUDA_QUERIES *TILE);
    PGL_SHARED(float, maximum, PGL_CUDA_QUERIES);
    PGL_SHARED(float, sum, PGL_CUDA_QUERIES);
    PGL_SHARED(float, correction, PGL_CUDA_QUERIES);
    uint32_t t = pgl_block_x, share = a.n_heads / a.n_kv_heads;
    uint32_t groups = (share + PGL_CUDA_QUERIES - 1) / PGL_CUDA_QUERIES, kv_head = pgl_block_y / groups;
    uint32_t in_share = pgl_block_y % groups * PGL_CUDA_QUERIES, dim = a.head_dim, per = dim / 32;
    uint32_t n_queries = share - in_share < PGL_CUDA_QUERIES ? share - in_share : PGL_CUDA_QUERIES;
    uint64_t first_head = (uint64_t)t * a.n_heads + kv_head * share + in_share;
    uint32_t total = a.count[t] + a.n_drafts,
             piece = ((total + a.splits - 1) / a.splits + TILE - 1) / TILE * TILE;
    uint32_t begin = pgl_block_z * piece, end = begin + piece < total ? begin + piece : total;
    float q[PGL_CUDA_QUERIES][LANE_DIMS], acc[PGL_CUDA_QUERIES][THREAD_DIMS];
    PGL_UNROLL
    for (uint32_t h = 0; h < PGL_CUDA_QUERIES; h++) {
        PGL_UNROLL
        for (uint32_t d = 0; d < LANE_DIMS; d++)
            q[h][d] =
                h < n_queries && d < per ? a.q[(first_head + h) * 2 * dim + pgl_thread % 32 * per + d] : 0;
        PGL_UNROLL
        for (uint32_t d = 0; d < THREAD_DIMS; d++)
            acc[h][d] = 0;
    }
    if (pgl_thread < PGL_CUDA_QUERIES) {
        maximum[pgl_thread] = -INFINITY;
        sum[pgl_thread] = 0;
    }
    for (uint32_t at = begin; at < end; at += TILE) {
        uint32_t n = end - at < TILE ? end - at : TILE;
        tile_scores(&a, t, kv_head, at, n, q, score);
        pgl_block_sync();
        tile_softmax(score, n, maximum, sum, correction);
        pgl_block_sync();
        tile_values(&a, t, kv_head, at, n, score, correction, acc);
        pgl_block_sync();
    }
    pgl_block_sync();
    PGL_UNROLL
    for (uint32_t h = 0; h < PGL_CUDA_QUERIES; h++) {
        if (h >= n_queries)
            continue;
        float *part = a.part + ((first_head + h) * a.splits + pgl_block_z) * (dim + 2);
        if (pgl_thread == 0) {
            part[0] = maximum[h];
            part[1] = sum[h];
        }
        PGL_UNROLL
        for (uint32_t d = 0; d < THREAD_DIMS; d++) {
            if (pgl_thread + d * PGL_CUDA_THREADS < dim)
                part[2 + pgl_thread + d * PGL_CUDA_THREADS] = acc[h][d];
        }
    }
}

PGL_KERNEL(attend_join, PGL_CUDA_THREADS) {
    uint64_t head = (uint64_t)pgl_block_x * a.n_heads + pgl_block_y;
    uint32_t dim = a.head_dim, stride = dim + 2;
    const float *part = a.part + head * a.splits * stride, *gate = a.q + head * 2 * dim + dim;
    float most = -INFINITY, sum = 0;
    for (uint32_t s = 0; s < a.splits; s++)
        most = part[s * stride] > most ? part[s * stride] : most;
    for (uint32_t s = 0; s < a.splits; s++) {
        if (part[s * stride + 1] != 0)
            sum += part[s * stride + 1] * k_exp(part[s * stride] - most);
    }
    for (uint32_t i = pgl_thread; i < dim; i += PGL_CUDA_THREADS) {
        float v = 0;
        for (uint32_t s = 0; s < a.splits; s++) {
            if (part[s * stride + 1] != 0)
                v = fmaf(part[s * stride + 2 + i], k_exp(part[s * stride] - most), v);
        }
        float o = sum != 0 ? (v * (1.0F / sum)) * k_sigmoid(gate[i]) : 0;
        a.o[(uint64_t)pgl_block_x * a.o_stride + pgl_block_y * dim + i] = pgl_f2h(o);
        if (a.o32 != 0)
            a.o32[head * dim + i] = o;
    }
}
