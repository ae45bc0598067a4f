/* Kernels in the vocabulary of v16_*.h, part two: linears. Included once by each kernels_<isa>.c, after part one.
 *
 * dense: lanes run along the input, as dot16 has them. A few tokens: weights are widened in registers and used at
 * once. More: a block of weight rows is widened once into the first-level cache and used for a run of tokens, whose
 * lane accumulators wait in memory between blocks of inputs.
 * coded: lanes run along the output channels. One row: a tile is decoded into registers and used at once. More: runs
 * of tiles are decoded into the first-level cache and used for all rows. */
#ifndef PGL_BACKEND_CPU_KERNELS_V16_LINEAR_H
#define PGL_BACKEND_CPU_KERNELS_V16_LINEAR_H

#include <string.h>

#include "backend/cpu/kernels.h"

/* ---- ThreadSanitizer */

/* Most of its time went into the loads of these loops, one by one. They are left alone, and it is told once for each job
 * which rows are read and written: that is all that threads share. Weights never change. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WATCHED 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define WATCHED 1
#endif

#ifdef WATCHED
#define UNWATCHED __attribute__((no_sanitize_thread))
void __tsan_read_range(const void *start, unsigned long size);
void __tsan_write_range(const void *start, unsigned long size);

static void tell_rows(const float *x, size_t x_stride, uint32_t in, const float *y, size_t y_stride,
                      uint32_t count, uint32_t n) {
    for (uint32_t r = 0; r < n; r++) {
        __tsan_read_range(x + r * x_stride, in * sizeof *x);
        __tsan_write_range(y + r * y_stride, count * sizeof *y);
    }
}
#else
#define UNWATCHED
#define tell_rows(...) ((void)0)
#endif

/* ---- dense */

/* How the numbers of a weight row are stored and widened. */
typedef enum row_kind {
    ROW_I8,      /* an fp16 scale in the range where f16(w8 * scale) is normal */
    ROW_I8_SLOW, /* any scale */
    ROW_F16,
    ROW_BF16,
    ROW_F32,
} row_kind;

/* Registers of a v16. */
#define VECS (16 / VEC_LANES)

typedef struct weight_row {
    const unsigned char *data;
    float scale;
    row_kind kind;
} weight_row;

V16_INLINE uint32_t row_element(row_kind kind) {
    return kind == ROW_I8 || kind == ROW_I8_SLOW ? 1 : kind == ROW_F32 ? 4 : 2;
}

/* VEC_LANES weights from element i of the row on.
 * ROW_I8: the scale has at most 11 bits, the product w8 * scale 19; 8193 times it, rounded once, less 8192 times it is the product
 * rounded to 11 bits, ties to even. Both factors of scale are exact in f32. */
V16_INLINE vec weights_at(row_kind kind, const weight_row *row, size_t i) {
    switch (kind) {
    case ROW_I8:
        return vec_scale11(vec_load_i8(row->data + i), row->scale * 8192.0F, row->scale * 8193.0F);
    case ROW_I8_SLOW:
        return vec_scale16(vec_load_i8(row->data + i), row->scale);
    case ROW_F16:
        return vec_load_f16(row->data + 2 * i);
    case ROW_BF16:
        return vec_load_bf16(row->data + 2 * i);
    case ROW_F32:
        break;
    }
    float w[VEC_LANES];
    memcpy(w, row->data + 4 * i, sizeof w);
    return vec_load(w);
}

/* The last n < 16 weights of a row, zeros behind them; nothing else is read. */
V16_INLINE v16 weights_at_end(row_kind kind, const weight_row *row, size_t i, uint32_t n) {
    unsigned char bytes[64] = {0};
    uint32_t element = row_element(kind);
    memcpy(bytes, row->data + i * element, (size_t)n * element);
    weight_row end = {bytes, row->scale, kind};
    vec w[VECS];
    for (uint32_t h = 0; h < VECS; h++)
        w[h] = weights_at(kind, &end, (size_t)h * VEC_LANES);
    return v16_of(w);
}

V16_INLINE weight_row row_at(const pgl_linear *linear, uint32_t o) {
    if (linear->kind != PGL_LINEAR_INT8) {
        row_kind kind = linear->dtype == PGL_F16 ? ROW_F16 : linear->dtype == PGL_BF16 ? ROW_BF16 : ROW_F32;
        size_t bytes = (size_t)linear->in * row_element(kind);
        return (weight_row){(const unsigned char *)linear->data + o * bytes, 0, kind};
    }
    const unsigned char *data = (const unsigned char *)linear->data + (size_t)o * linear->in,
                        *scale = linear->scale;
    if (linear->scale_dtype == PGL_F16) {
        float s = f32_of_f16(scale + 2 * (size_t)o), size = s < 0 ? -s : s;
        bool normal = size >= 0x1p-14F && size <= 256.0F;
        return (weight_row){data, s, normal ? ROW_I8 : ROW_I8_SLOW};
    }
    return (weight_row){data, pgl_read_f32(scale, linear->scale_dtype, o), ROW_I8_SLOW};
}

V16_INLINE float add_bias(const pgl_linear *linear, uint32_t o, float y) {
    return linear->bias.data != NULL ? y + pgl_read_f32(linear->bias.data, linear->bias.dtype, o) : y;
}

/* Weight rows that follow one another are one stretch of memory: those of the next block are asked for while these
 * are used. */
V16_INLINE void prefetch_rows(row_kind kind, const weight_row *row, uint32_t rows, uint32_t in, uint32_t i) {
    size_t bytes = (size_t)in * row_element(kind), at = (size_t)i * row_element(kind);
    if (at % 64 >= 16 * row_element(kind))
        return;
    for (uint32_t m = 0; m < rows; m++)
        __builtin_prefetch(row[m].data + rows * bytes + at);
}

/* `rows` weight rows from o on, all of one kind, for `tokens` tokens from t on. */
V16_INLINE void dense_few(const pgl_dense_job *job, row_kind kind, const weight_row *row, uint32_t o,
                          uint32_t rows, uint32_t t, uint32_t tokens) {
    vec acc[DENSE_ROWS_1][DENSE_TOKENS][VECS];
    uint32_t in = job->linear->in;
    size_t stride = job->x_stride;
    const float *x = job->x + t * stride;
    for (uint32_t m = 0; m < rows; m++) {
        for (uint32_t r = 0; r < tokens; r++) {
            for (uint32_t h = 0; h < VECS; h++)
                acc[m][r][h] = vec_zero();
        }
    }
    uint32_t i = 0;
    for (; i + 16 <= in; i += 16) {
        prefetch_rows(kind, row, rows, in, i);
        for (uint32_t h = 0; h < VECS; h++) {
            vec w[DENSE_ROWS_1];
            for (uint32_t m = 0; m < rows; m++)
                w[m] = weights_at(kind, &row[m], i + h * VEC_LANES);
            for (uint32_t r = 0; r < tokens; r++) {
                vec v = vec_load(x + r * stride + i + (size_t)h * VEC_LANES);
                for (uint32_t m = 0; m < rows; m++)
                    acc[m][r][h] = vec_fma(v, w[m], acc[m][r][h]);
            }
        }
    }
    for (uint32_t m = 0; m < rows; m++) {
        for (uint32_t r = 0; r < tokens; r++) {
            v16 sum = v16_of(acc[m][r]);
            if (i < in)
                sum = fma_some(v16_load_n(x + r * stride + i, in - i),
                               weights_at_end(kind, &row[m], i, in - i), sum, in - i);
            job->y[(t + r) * job->y_stride + o + m] = add_bias(job->linear, o + m, v16_sum(sum));
        }
    }
}

/* Rows from o on, at most `most`, that are of one kind. */
V16_INLINE uint32_t same_kind(const pgl_dense_job *job, uint32_t o, uint32_t most, weight_row *row) {
    uint32_t end = job->first + job->count - o, n = 1;
    row[0] = row_at(job->linear, o);
    for (; n < most && n < end; n++) {
        row[n] = row_at(job->linear, o + n);
        if (row[n].kind != row[0].kind)
            break;
    }
    return n;
}

/* The sizes of a block must be constants for its accumulators to stay in registers. */
V16_INLINE void dense_kind(const pgl_dense_job *job, row_kind kind, const weight_row *row, uint32_t o,
                           uint32_t rows, uint32_t t, uint32_t tokens) {
    if (tokens == 1 && rows == DENSE_ROWS_1) {
        dense_few(job, kind, row, o, DENSE_ROWS_1, t, 1);
    } else if (tokens == 2 && rows == DENSE_ROWS) {
        dense_few(job, kind, row, o, DENSE_ROWS, t, 2);
    } else if (tokens == 3 && rows == DENSE_ROWS) {
        dense_few(job, kind, row, o, DENSE_ROWS, t, 3);
#if DENSE_TOKENS > 3
    } else if (tokens == 4 && rows == DENSE_ROWS) {
        dense_few(job, kind, row, o, DENSE_ROWS, t, 4);
#endif
    } else {
        for (uint32_t m = 0; m < rows; m++) {
            for (uint32_t r = 0; r < tokens; r++)
                dense_few(job, kind, row + m, o + m, 1, t + r, 1);
        }
    }
}

/* `tokens` <= DENSE_TOKENS tokens from t on. */
UNWATCHED static void dense_in_registers(const pgl_dense_job *job, uint32_t t, uint32_t tokens) {
    uint32_t end = job->first + job->count, most = tokens == 1 ? DENSE_ROWS_1 : DENSE_ROWS, rows;
    for (uint32_t o = job->first; o < end; o += rows) {
        weight_row row[DENSE_ROWS_1];
        rows = same_kind(job, o, most, row);
        switch (row[0].kind) {
        case ROW_I8:
            dense_kind(job, ROW_I8, row, o, rows, t, tokens);
            break;
        case ROW_I8_SLOW:
            dense_kind(job, ROW_I8_SLOW, row, o, rows, t, tokens);
            break;
        case ROW_F16:
            dense_kind(job, ROW_F16, row, o, rows, t, tokens);
            break;
        case ROW_BF16:
            dense_kind(job, ROW_BF16, row, o, rows, t, tokens);
            break;
        case ROW_F32:
            dense_kind(job, ROW_F32, row, o, rows, t, tokens);
            break;
        }
    }
}

/* Weight rows, inputs and tokens of one block: 16 KiB of widened weights, 64 KiB of accumulators. */
enum { PANEL_ROWS = 8, PANEL_IN = 512, PANEL_TOKENS = 128 };

typedef struct panel {
    _Alignas(64) float w[PANEL_ROWS][PANEL_IN];
    _Alignas(64) float acc[PANEL_ROWS][PANEL_TOKENS][16];
} panel;

V16_INLINE void widen_row(row_kind kind, const weight_row *row, size_t first, uint32_t n, float *w) {
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (uint32_t h = 0; h < VECS; h++)
            vec_store(w + i + (size_t)h * VEC_LANES,
                      weights_at(kind, row, first + i + (size_t)h * VEC_LANES));
    }
    if (i < n)
        v16_store(w + i, weights_at_end(kind, row, first + i, n - i));
}

UNWATCHED static void widen(const pgl_linear *linear, uint32_t o, size_t first, uint32_t n, float *w) {
    weight_row row = row_at(linear, o);
    switch (row.kind) {
    case ROW_I8:
        widen_row(ROW_I8, &row, first, n, w);
        break;
    case ROW_I8_SLOW:
        widen_row(ROW_I8_SLOW, &row, first, n, w);
        break;
    case ROW_F16:
        widen_row(ROW_F16, &row, first, n, w);
        break;
    case ROW_BF16:
        widen_row(ROW_BF16, &row, first, n, w);
        break;
    case ROW_F32:
        widen_row(ROW_F32, &row, first, n, w);
        break;
    }
}

/* rows x tokens accumulators over n inputs. x: of the first token, at the first input. */
V16_INLINE void panel_block(panel *p, uint32_t m0, uint32_t rows, uint32_t r0, uint32_t tokens,
                            const float *x, size_t x_stride, uint32_t n) {
    vec acc[DENSE_ROWS][DENSE_TOKENS][VECS];
    for (uint32_t m = 0; m < rows; m++) {
        for (uint32_t r = 0; r < tokens; r++) {
            for (uint32_t h = 0; h < VECS; h++)
                acc[m][r][h] = vec_load(p->acc[m0 + m][r0 + r] + (size_t)h * VEC_LANES);
        }
    }
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (uint32_t h = 0; h < VECS; h++) {
            vec w[DENSE_ROWS];
            for (uint32_t m = 0; m < rows; m++)
                w[m] = vec_load(&p->w[m0 + m][i + h * VEC_LANES]);
            for (uint32_t r = 0; r < tokens; r++) {
                vec v = vec_load(x + r * x_stride + i + (size_t)h * VEC_LANES);
                for (uint32_t m = 0; m < rows; m++)
                    acc[m][r][h] = vec_fma(v, w[m], acc[m][r][h]);
            }
        }
    }
    for (uint32_t m = 0; m < rows; m++) {
        for (uint32_t r = 0; r < tokens; r++) {
            v16 sum = v16_of(acc[m][r]);
            if (i < n)
                sum =
                    fma_some(v16_load_n(x + r * x_stride + i, n - i), v16_load(&p->w[m0 + m][i]), sum, n - i);
            v16_store(p->acc[m0 + m][r0 + r], sum);
        }
    }
}

/* A few tokens and all rows of the panel. */
V16_INLINE void panel_tokens(panel *p, uint32_t rows, uint32_t r, uint32_t tokens, const float *x,
                             size_t x_stride, uint32_t n) {
    uint32_t m = 0;
    for (; m + DENSE_ROWS <= rows; m += DENSE_ROWS)
        panel_block(p, m, DENSE_ROWS, r, tokens, x, x_stride, n);
    for (; m < rows; m++)
        panel_block(p, m, 1, r, tokens, x, x_stride, n);
}

/* n things in groups of at most `most`, as equal as they can be: the size of the first group. */
V16_INLINE uint32_t group_of(uint32_t n, uint32_t most) {
    uint32_t groups = (n + most - 1) / most;
    return (n + groups - 1) / groups;
}

UNWATCHED static void panel_blocks(panel *p, uint32_t rows, uint32_t tokens, const float *x, size_t x_stride,
                                   uint32_t n) {
    for (uint32_t r = 0, some; r < tokens; r += some) {
        some = group_of(tokens - r, DENSE_TOKENS);
        const float *from = x + r * x_stride;
        switch (some) {
#if DENSE_TOKENS > 3
        case 4:
            panel_tokens(p, rows, r, 4, from, x_stride, n);
            break;
#endif
        case 3:
            panel_tokens(p, rows, r, 3, from, x_stride, n);
            break;
        case 2:
            panel_tokens(p, rows, r, 2, from, x_stride, n);
            break;
        default:
            panel_tokens(p, rows, r, 1, from, x_stride, n);
        }
    }
}

UNWATCHED static void dense_in_panels(const pgl_dense_job *job, uint32_t t, uint32_t tokens) {
    const pgl_linear *linear = job->linear;
    uint32_t end = job->first + job->count, in = linear->in;
    panel p;
    for (uint32_t o = job->first; o < end; o += PANEL_ROWS) {
        uint32_t rows = end - o < PANEL_ROWS ? end - o : PANEL_ROWS;
        for (uint32_t m = 0; m < rows; m++)
            memset(p.acc[m], 0, tokens * sizeof p.acc[m][0]);
        for (uint32_t first = 0; first < in; first += PANEL_IN) {
            uint32_t n = in - first < PANEL_IN ? in - first : PANEL_IN;
            for (uint32_t m = 0; m < rows; m++)
                widen(linear, o + m, first, n, p.w[m]);
            panel_blocks(&p, rows, tokens, job->x + t * job->x_stride + first, job->x_stride, n);
        }
        for (uint32_t m = 0; m < rows; m++) {
            for (uint32_t r = 0; r < tokens; r++)
                job->y[(t + r) * job->y_stride + o + m] =
                    add_bias(linear, o + m, v16_sum(v16_load(p.acc[m][r])));
        }
    }
}

static void k_dense(const pgl_dense_job *job) {
    tell_rows(job->x, job->x_stride, job->linear->in, job->y + job->first, job->y_stride, job->count, job->n);
    if (job->n <= DENSE_FEW) {
        for (uint32_t t = 0, some; t < job->n; t += some) {
            some = group_of(job->n - t, DENSE_TOKENS);
            dense_in_registers(job, t, some);
        }
        return;
    }
    for (uint32_t t = 0; t < job->n; t += PANEL_TOKENS)
        dense_in_panels(job, t, job->n - t < PANEL_TOKENS ? job->n - t : PANEL_TOKENS);
}

/* ---- coded */

/* H128 of eight vectors, unnormalised. */
V16_INLINE void hadamard(v16 x[8]) {
    for (int stride = 1; stride < 16; stride *= 2) {
        for (int i = 0; i < 8; i++)
            x[i] = v16_butterfly(x[i], stride);
    }
    for (int step = 1; step < 8; step *= 2) {
        for (int i = 0; i < 8; i++) {
            if ((i & step) != 0)
                continue;
            v16 u = x[i], v = x[i + step];
            x[i] = v16_add(u, v);
            x[i + step] = v16_sub(u, v);
        }
    }
}

/* 16 of an expert's rin or rout, with their factors where there are some. */
V16_INLINE v16 effective_at(const void *f16, const void *factor, size_t at) {
    v16 r = v16_load_f16((const unsigned char *)f16 + 2 * at);
    if (factor == NULL)
        return r;
    float s[16];
    memcpy(s, (const unsigned char *)factor + 4 * at, sizeof s);
    return v16_mul(r, v16_load(s));
}

static void k_coded_input(const pgl_coded *coded, uint32_t expert, uint32_t first, uint32_t count,
                          const float *x, float *xh) {
    size_t base = (size_t)expert * coded->in;
    v16 scale = v16_set1(PGL_HADAMARD_SCALE);
    for (uint32_t block = first; block < first + count; block += PGL_HADAMARD) {
        v16 v[8];
        for (uint32_t i = 0; i < 8; i++)
            v[i] = v16_mul(v16_load(x + block + (size_t)16 * i),
                           effective_at(coded->rin, coded->s_in, base + block + (size_t)16 * i));
        hadamard(v);
        for (uint32_t i = 0; i < 8; i++)
            v16_store(xh + block + (size_t)16 * i, v16_round16(v16_mul(v[i], scale)));
    }
}

/* y: the 128 products of a block, in the order of accumulators. */
UNWATCHED static void output_block(const pgl_coded *coded, uint32_t expert, uint32_t block, float *y) {
    size_t base = (size_t)expert * coded->out + block;
    v16 v[8], scale = v16_set1(PGL_HADAMARD_SCALE);
    for (uint32_t i = 0; i < 8; i++)
        v[i] = v16_unscramble(v16_load(y + (size_t)16 * i), coded->k);
    hadamard(v);
    for (uint32_t i = 0; i < 8; i++) {
        v16 r = effective_at(coded->rout, coded->s_out, base + (size_t)16 * i);
        v[i] = v16_round16(v16_mul(v16_mul(v[i], scale), r));
        if (coded->bias != NULL)
            v[i] = v16_round16(v16_add(
                v[i], v16_load_f16((const unsigned char *)coded->bias + 2 * (base + (size_t)16 * i))));
        v16_store(y + (size_t)16 * i, v[i]);
    }
}

/* The 256 states in the order of rows. */
V16_INLINE void placed_states(const void *code, uint32_t k, uint16_t state[256]) {
    uint16_t stream[256];
    pgl_tile_states(code, k, stream);
    for (uint32_t t = 0; t < 256; t++)
        state[pgl_tile_place(t)] = stream[t];
}

/* f(0) .. f(15): the shifts of a tile's rows must be constants, whatever the compiler thinks of unrolling. */
#define ROWS_16(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15)

/* The tile as f32 rows, channels in the order of accumulators. */
V16_INLINE void decode_tile(const void *code, uint32_t k, float *w) {
    if (k == 2) {
        v16_windows windows = v16_windows_2(code);
#define STORE_2(i) v16_store(w + 16 * (i), v16_tile_row(&windows, 2, (i)));
        ROWS_16(STORE_2)
#undef STORE_2
    } else if (k == 3) {
        v16_windows windows = v16_windows_3(code);
#define STORE_3(i) v16_store(w + 16 * (i), v16_tile_row(&windows, 3, (i)));
        ROWS_16(STORE_3)
#undef STORE_3
    } else {
        uint16_t state[256];
        placed_states(code, k, state);
        for (uint32_t i = 0; i < 16; i++)
            v16_store(w + (size_t)16 * i, v16_codebook(state + (size_t)16 * i));
    }
}

static void k_tile(const void *code, uint32_t k, float w[256]) {
    float scrambled[256];
    decode_tile(code, k, scrambled);
    for (uint32_t i = 0; i < 16; i++)
        v16_store(w + (size_t)16 * i, v16_unscramble(v16_load(scrambled + (size_t)16 * i), k));
}

/* acc += x[0 .. 15] times the tile's rows, in order */
V16_INLINE v16 multiply_tile(const void *code, uint32_t k, const float *x, v16 acc) {
    if (k == 2) {
        v16_windows windows = v16_windows_2(code);
#define MULTIPLY_2(i) acc = v16_fma(v16_set1(x[i]), v16_tile_row(&windows, 2, (i)), acc);
        ROWS_16(MULTIPLY_2)
#undef MULTIPLY_2
    } else if (k == 3) {
        v16_windows windows = v16_windows_3(code);
#define MULTIPLY_3(i) acc = v16_fma(v16_set1(x[i]), v16_tile_row(&windows, 3, (i)), acc);
        ROWS_16(MULTIPLY_3)
#undef MULTIPLY_3
    } else {
        uint16_t state[256];
        placed_states(code, k, state);
        for (uint32_t i = 0; i < 16; i++)
            acc = v16_fma(v16_set1(x[i]), v16_codebook(state + (size_t)16 * i), acc);
    }
    return acc;
}

typedef struct tiles {
    const unsigned char *code; /* of the job's first column */
    size_t row_bytes, tile_bytes;
} tiles;

static tiles tiles_of(const pgl_coded_job *job) {
    const pgl_coded *c = job->coded;
    tiles t;
    t.tile_bytes = (size_t)32 * c->k;
    t.row_bytes = c->out / PGL_TILE * t.tile_bytes;
    t.code = (const unsigned char *)c->code + (size_t)job->expert * (c->in / PGL_TILE) * t.row_bytes +
             job->first / PGL_TILE * t.tile_bytes;
    return t;
}

/* Rows of tiles are far apart: the next ones are asked for while these are decoded. */
enum { PREFETCH_ROWS = 3 };

V16_INLINE void prefetch(const void *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch((const char *)p + at);
}

/* One block of 128 channels, one row. */
V16_INLINE void coded_block_1(const tiles *t, uint32_t k, uint32_t n_in, const float *xh, float *y) {
    for (uint32_t a = 0; a < n_in; a++) {
        const unsigned char *code = t->code + a * t->row_bytes;
        if (a + PREFETCH_ROWS < n_in)
            prefetch(code + PREFETCH_ROWS * t->row_bytes, 8 * t->tile_bytes);
        for (uint32_t b = 0; b < 8; b++) {
            v16 acc = a == 0 ? v16_zero() : v16_load(y + (size_t)16 * b);
            acc = multiply_tile(code + b * t->tile_bytes, k, xh + (size_t)16 * a, acc);
            v16_store(y + (size_t)16 * b, acc);
        }
    }
}

enum { RUN = 8 }; /* tiles that are decoded together, one below the other */

/* acc of `rows` rows of 16 channels over n inputs */
V16_INLINE void coded_rows(const float *w, uint32_t n, uint32_t rows, const float *x, size_t x_stride,
                           float *y, size_t y_stride) {
    v16 acc[CODED_ROWS];
    for (uint32_t r = 0; r < rows; r++)
        acc[r] = v16_load(y + r * y_stride);
    for (uint32_t i = 0; i < n; i++) {
        v16 v = v16_load(w + (size_t)16 * i);
        for (uint32_t r = 0; r < rows; r++)
            acc[r] = v16_fma(v16_set1(x[r * x_stride + i]), v, acc[r]);
    }
    for (uint32_t r = 0; r < rows; r++)
        v16_store(y + r * y_stride, acc[r]);
}

UNWATCHED static void coded_run(const pgl_coded_job *job, const float *w, uint32_t first, uint32_t n,
                                float *y) {
    size_t x_stride = job->xh_stride, y_stride = job->y_stride;
    for (uint32_t r = 0, some; r < job->n; r += some) {
        some = group_of(job->n - r, CODED_ROWS);
        const float *x = job->xh + r * x_stride + first;
        float *to = y + r * y_stride;
        switch (some) {
#define CODED_CASE(rows)                                                                                     \
    case rows:                                                                                               \
        coded_rows(w, n, rows, x, x_stride, to, y_stride);                                                   \
        break;
            CODED_CASES(CODED_CASE)
#undef CODED_CASE
        default:
            coded_rows(w, n, 1, x, x_stride, to, y_stride);
            some = 1;
        }
    }
}

/* One block of 128 channels, several rows. */
UNWATCHED static void coded_block(const pgl_coded_job *job, const tiles *t, float *y) {
    _Alignas(64) float w[RUN * 256];
    uint32_t n_in = job->coded->in / PGL_TILE, k = job->coded->k;
    for (uint32_t r = 0; r < job->n; r++)
        memset(y + r * job->y_stride, 0, PGL_HADAMARD * sizeof *y);
    for (uint32_t a = 0; a < n_in; a += RUN) {
        uint32_t run = n_in - a < RUN ? n_in - a : RUN;
        for (uint32_t b = 0; b < 8; b++) {
            for (uint32_t i = 0; i < run; i++) {
                const unsigned char *code = t->code + (a + i) * t->row_bytes + b * t->tile_bytes;
                if (a + i + RUN < n_in)
                    prefetch(code + RUN * t->row_bytes, t->tile_bytes);
                decode_tile(code, k, w + (size_t)256 * i);
            }
            coded_run(job, w, PGL_TILE * a, PGL_TILE * run, y + (size_t)16 * b);
        }
    }
}

UNWATCHED static void coded_blocks(const pgl_coded_job *job) {
    const pgl_coded *c = job->coded;
    tiles t = tiles_of(job);
    for (uint32_t block = job->first; block < job->first + job->count; block += PGL_HADAMARD) {
        float *y = job->y + block;
        if (job->n > 1)
            coded_block(job, &t, y);
        else if (c->k == 2)
            coded_block_1(&t, 2, c->in / PGL_TILE, job->xh, y);
        else if (c->k == 3)
            coded_block_1(&t, 3, c->in / PGL_TILE, job->xh, y);
        else
            coded_block_1(&t, c->k, c->in / PGL_TILE, job->xh, y);
        for (uint32_t r = 0; r < job->n; r++)
            output_block(c, job->expert, block, y + r * job->y_stride);
        t.code += 8 * t.tile_bytes;
    }
}

static void k_coded(const pgl_coded_job *job) {
    tell_rows(job->xh, job->xh_stride, job->coded->in, job->y + job->first, job->y_stride, job->count,
              job->n);
    coded_blocks(job);
}

/* ---- benchmarks */

static uint64_t k_stream(const void *p, size_t n) {
    const unsigned char *bytes = p;
    uint64_t sum = 0;
    size_t i = 0;
    v16 acc[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    for (; i + 256 <= n; i += 256) {
        for (size_t j = 0; j < 4; j++)
            acc[j] = v16_xor_bits(acc[j], bytes + i + 64 * j);
    }
    float lanes[16];
    for (size_t j = 0; j < 4; j++) {
        v16_store(lanes, acc[j]);
        uint64_t words[8];
        memcpy(words, lanes, sizeof words);
        for (size_t l = 0; l < 8; l++)
            sum += words[l];
    }
    for (; i < n; i++)
        sum += bytes[i];
    return sum;
}

static float k_spin(uint32_t steps) {
    v16 acc[6], w = v16_set1(0.5F);
    for (uint32_t i = 0; i < 6; i++)
        acc[i] = v16_set1((float)i);
    for (uint32_t s = 0; s < steps; s++) {
        for (uint32_t i = 0; i < 6; i++)
            acc[i] = v16_fma(acc[i], w, w);
    }
    for (uint32_t i = 1; i < 6; i++)
        acc[0] = v16_add(acc[0], acc[i]);
    return v16_sum(acc[0]);
}

#define V16_TABLE(isa)                                                                                       \
    {                                                                                                        \
        .name = (isa), .round16 = k_round16, .dense = k_dense, .coded_input = k_coded_input,                 \
        .coded = k_coded, .tile = k_tile, .norm = k_norm, .add = k_add, .swiglu_coded = k_swiglu_coded,      \
        .swiglu = k_swiglu, .mix = k_mix, .finite = k_finite, .conv = k_conv, .l2_norm = k_l2_norm,          \
        .delta = k_delta, .gated_norm = k_gated_norm, .rope = k_rope, .store16 = k_store16, .keys = k_keys,  \
        .softmax = k_softmax, .values = k_values, .attention_gate = k_attention_gate, .stream = k_stream,    \
        .spin = k_spin,                                                                                      \
    }

#endif
