/* What the host and the kernels of the CUDA backend agree on: one struct of arguments for each kernel, its grid, and
 * what it computes. Plain C, read by the C host code, by nvcc, and by the host build of the kernels that tests run.
 *
 * Every kernel takes one struct by value. Pointers are device addresses; arrays are row-major, strides are in elements;
 * fp16 numbers are uint16_t holding their bits. A block has PGL_CUDA_THREADS threads unless the kernel says otherwise;
 * no kernel uses dynamic shared memory. `n` is the number of tokens of the batch (of pairs, where it says so), up to
 * PGL_CUDA_MOST_BATCH. No kernel writes outside what is said; every sum has one order that depends on the shapes and
 * the batch alone; there are no atomics on floats.
 *
 * The numbers are those of docs/model.md and docs/format.md, with every rounding point kept. Sums run in other orders
 * than on the CPU, so results agree within the bounds of docs/model.md and not bit by bit; exponentials are those of
 * codec/codec.h, operation by operation. */
#ifndef PGL_BACKEND_CUDA_KERNELS_KERNELS_H
#define PGL_BACKEND_CUDA_KERNELS_KERNELS_H

#include <stdint.h>

#define PGL_CUDA_THREADS 128u
#define PGL_CUDA_MOST_BATCH 512u
#define PGL_CUDA_MOST_USED 64u /* experts of one token */
#define PGL_CUDA_MOST_EXPERTS 1024u
#define PGL_CUDA_MOST_HEAD_DIM 256u  /* of attention; a multiple of 32 */
#define PGL_CUDA_MOST_STATE_DIM 128u /* key and value dimensions of the delta net; multiples of 32 */

/* ---- dense linears */

typedef enum pgl_cuda_type {
    PGL_CUDA_INT8_F16, /* int8 rows, fp16 scales */
    PGL_CUDA_INT8_F32, /* int8 rows, f32 scales */
    PGL_CUDA_F16,
    PGL_CUDA_BF16,
    PGL_CUDA_F32,
} pgl_cuda_type;

/* A matrix [out][in], rows one after the other, 256-byte aligned. */
typedef struct pgl_cuda_matrix {
    const void *w;
    const void *scale; /* [out] fp16 or f32; NULL without */
    const float *bias; /* [out], NULL without */
    uint32_t type;     /* pgl_cuda_type */
    uint32_t in, out;
} pgl_cuda_matrix;

/* x[t] = row tokens[t] of the embedding, f32. Grid (n). */
typedef struct pgl_embed_args {
    pgl_cuda_matrix table;
    const int32_t *tokens; /* [n], within the table */
    float *x;              /* [n][table.in] */
} pgl_embed_args;

/* h = x / sqrt(mean(x^2) + eps) * (1 + w), in f32 and rounded to fp16. Grid (n). */
typedef struct pgl_norm_args {
    const float *x; /* [n][x_stride] */
    const float *w; /* [width] */
    float *h;       /* [n][width], or NULL */
    uint16_t *h16;  /* [n][h16_stride], or NULL */
    uint32_t *bad;  /* [n]: set to 1 where x is not finite, else to 0; or NULL */
    uint32_t x_stride, h16_stride, width;
    float eps;
} pgl_norm_args;

/* y = W x (+ bias), or y += W x, for up to PGL_CUDA_MOST_PARTS matrices that share their input: fp16 x, products summed
 * in f32. Grid (pgl_dense_blocks(args), (n + PGL_CUDA_DENSE_TOKENS - 1) / PGL_CUDA_DENSE_TOKENS), blocks of
 * PGL_CUDA_DENSE_THREADS; a part's blocks come one after the other. */
#define PGL_CUDA_MOST_PARTS 5u
#define PGL_CUDA_DENSE_THREADS 256u
#define PGL_CUDA_DENSE_ROWS 16u   /* outputs of one block */
#define PGL_CUDA_DENSE_TOKENS 32u /* that use weights which were widened once */
typedef struct pgl_dense_args {
    struct {
        pgl_cuda_matrix m;
        float *y; /* [n][m.out] */
    } part[PGL_CUDA_MOST_PARTS];
    const uint16_t *x;             /* [n][x_stride], 16-byte aligned rows */
    uint32_t n_parts, n, x_stride; /* x_stride: a multiple of 8 */
    uint32_t add;                  /* 1: y += */
} pgl_dense_args;

static inline uint32_t pgl_dense_blocks(const pgl_dense_args *a) {
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < a->n_parts; i++)
        blocks += (a->part[i].m.out + PGL_CUDA_DENSE_ROWS - 1) / PGL_CUDA_DENSE_ROWS;
    return blocks;
}

/* h = f16(silu(gate) * up) for dense linears' f32 outputs; with `coded`, h = f16(f16(silu(gate)) * up) as SwiGLU on the
 * fp16 outputs of coded linears has it; h32 takes the same numbers in f32. Grid (n). */
typedef struct pgl_swiglu_args {
    const float *gate, *up; /* [n][width] */
    uint16_t *h16;          /* [n][h16_stride], or NULL */
    float *h32;             /* [n][width], or NULL; before the last rounding unless coded */
    uint32_t width, h16_stride, coded;
} pgl_swiglu_args;

/* ---- coded linears */

/* A stack of coded linears on the device, as the file has them, each array 256-byte aligned. */
typedef struct pgl_cuda_coded {
    const uint32_t *code;       /* [n_experts][in / 16][out / 16][8 k] */
    const uint16_t *rin, *rout; /* [n_experts][in], [n_experts][out] */
    const float *s_in, *s_out;  /* the same; NULL without */
    const uint16_t *bias;       /* [n_experts][out]; NULL without */
    uint32_t n_experts, in, out, k;
} pgl_cuda_coded;

/* Which rows go through which expert: pairs of a token and one of its experts, in the order of experts. */
typedef struct pgl_cuda_pairs {
    uint32_t *expert_first; /* [n_experts + 1]: pairs before each expert's */
    uint32_t *active;       /* [n_experts]: experts with pairs, rising; UINT32_MAX behind the last */
    uint32_t *pair_of;      /* [n tokens][used]: where the pair of a token and slot stands */
    uint32_t *token_of;     /* [pairs] */
    uint32_t *expert_of;    /* [pairs] */
} pgl_cuda_pairs;

/* Routing: logits rounded to fp16, the `used` largest in falling order (ties to the lower index), softmax over them,
 * rounded to fp16. Grid (n). */
typedef struct pgl_route_args {
    const float *logits; /* [n][n_experts] */
    int32_t *expert;     /* [n][used] */
    float *weight;       /* [n][used], fp16 values */
    uint32_t n_experts, used;
} pgl_route_args;

/* Fills all of pairs from expert [n][used]; the pairs of one expert in the order of tokens. Grid (1), a block of
 * PGL_CUDA_SORT_THREADS threads. */
#define PGL_CUDA_SORT_THREADS 1024u
typedef struct pgl_sort_args {
    const int32_t *expert;
    pgl_cuda_pairs pairs;
    uint32_t n, used, n_experts;
} pgl_sort_args;

/* xh = f16(H128(x * rin * s_in) * RS). x is x32[token_of[pair]], or, where gate_up is given,
 * f16(f16(silu(gate)) * up) of the pair's own row. Grid (pairs, in / 128); a block is one warp. */
typedef struct pgl_coded_input_args {
    pgl_cuda_coded coded;
    const uint32_t *token_of, *expert_of; /* [pairs]; NULL: pair p is token p, and the expert 0 */
    const float *x32;                     /* [n][in], or NULL */
    const uint16_t *gate_up;              /* [pairs][2 in], or NULL */
    uint16_t *xh;                         /* [pairs][in] */
} pgl_coded_input_args;

/* y = f16(H128(xh W) * RS * rout * s_out) (+ bias, rounded once more). Grid (out / 128, experts): block row i takes the
 * expert active[i] and nothing where that is UINT32_MAX; as many rows of the grid as experts can be active. */
typedef struct pgl_coded_args {
    pgl_cuda_coded coded;
    const uint32_t *active, *expert_first; /* both NULL: one expert with n rows */
    const uint16_t *xh;                    /* [pairs][in] */
    uint16_t *y;                           /* [pairs][out], or NULL */
    float *y32;                            /* the same numbers, or NULL */
    uint32_t n;                            /* rows, where active is NULL */
    uint32_t add;                          /* 1: y32 += */
} pgl_coded_args;

/* The two coded linears of an expert in two kernels, for steps of few tokens: k is 2 or 3 in both, the tiles of a split
 * (in / 16 / splits of gate_up, in / 16 of down) at most PGL_CUDA_FEW_TILES and a multiple of 8. Blocks of
 * PGL_CUDA_FEW_THREADS. The numbers are those of coded_input and coded. */
#define PGL_CUDA_FEW_THREADS 512u
#define PGL_CUDA_FEW_ROWS 4u /* of one expert that one decoding serves */
#define PGL_CUDA_FEW_TILES 64u

/* mid: products of the transformed inputs, not transformed yet, one part of the inputs a split.
 * Grid (splits * out / 128, experts) as for coded. */
typedef struct pgl_few_up_args {
    pgl_cuda_coded coded;
    const uint32_t *active, *expert_first, *token_of;
    const float *x32; /* [n][in] */
    float *mid;       /* [splits][n_pairs][out] */
    uint32_t n_pairs, splits;
} pgl_few_up_args;

/* From mid to y of down. active and expert_first were written before the kernel before this one. Grid (down.out / 128,
 * experts). */
typedef struct pgl_few_down_args {
    pgl_cuda_coded gate_up, down;
    const uint32_t *active, *expert_first;
    const float *mid;
    uint16_t *y; /* [n_pairs][down.out] */
    uint32_t n_pairs, splits;
} pgl_few_down_args;

/* x += f16(sum over slots of weight * y) + sigmoid(shared_gate) * shared. Grid (n). */
typedef struct pgl_mix_args {
    const float *weight;               /* [n][used] */
    const uint32_t *pair_of;           /* [n][used] */
    const uint16_t *y;                 /* [pairs][hidden] */
    const float *shared, *shared_gate; /* [n][hidden], [n]; NULL without */
    float *x;                          /* [n][hidden] */
    uint32_t used, hidden;
} pgl_mix_args;

/* ---- the gated delta net */

/* Neighbouring tokens of one sequence. */
typedef struct pgl_cuda_span {
    uint32_t first, n; /* tokens of the batch */
    uint32_t slot;
    uint32_t keep; /* 1: taps and state stay as they are (verify rows) */
} pgl_cuda_span;

/* The causal convolution and silu, in place; moves the taps of a span's slot on by its n tokens.
 * Grid (spans, (width + PGL_CUDA_THREADS - 1) / PGL_CUDA_THREADS). */
typedef struct pgl_conv_args {
    const pgl_cuda_span *spans;
    const float *w; /* [kernel][width] */
    float *u;       /* [n][u_stride] */
    float *taps;    /* of slot s: taps + s * slot_stride: [kernel - 1][width], oldest first */
    uint64_t slot_stride;
    uint32_t width, kernel, u_stride;
} pgl_conv_args;
#define PGL_CUDA_MOST_KERNEL 8u /* taps and the current token */

/* One value head of one span, token by token: normed q and k, decay, the delta rule, and where z is given the gated norm
 * of the output, rounded to fp16. dk and dv are multiples of 32.
 * Grid (spans, nv), blocks of PGL_CUDA_DELTA_THREADS. */
#define PGL_CUDA_DELTA_THREADS 512u
typedef struct pgl_delta_args {
    const pgl_cuda_span *spans;
    const float *u;     /* [n][u_stride]: q [nk][dk], k [nk][dk], v [nv][dv] after the convolution */
    const float *a, *b; /* [n][gate_stride]: outputs of in_proj_a and in_proj_b, [nv] used */
    const float *a_log, *dt_bias; /* [nv] */
    const float *norm;            /* [dv] */
    const float *z;               /* [n][nv dv]; NULL: the state alone is wanted */
    uint16_t *o;                  /* [n][o_stride] */
    float *o32;                   /* [n][nv dv]: the same before rounding, for coded linears; or NULL */
    float *state;                 /* of slot s: state + s * slot_stride: [nv][dk][dv] */
    uint64_t slot_stride;
    uint32_t u_stride, gate_stride, o_stride;
    uint32_t nk, nv, dk, dv;
    float eps;
} pgl_delta_args;

/* ---- full attention */

/* Where entry i of a slot lives: keys + page * page_stride + (head * page_tokens + i % page_tokens) * head_dim, with
 * page = table[slot * table_stride + i / page_tokens]; values likewise, values_offset behind. In fp16 elements. */
typedef struct pgl_cuda_pages {
    uint16_t *keys;
    const uint32_t *table;
    uint64_t page_stride, values_offset;
    uint32_t table_stride, page_tokens;
} pgl_cuda_pages;

/* Entries of drafts that are not fed yet: of row r, key head h and draft i at keys + ((r * 2 * kv_heads + h) * most + i)
 * * head_dim, values kv_heads * most * head_dim behind. */
typedef struct pgl_cuda_draft_keys {
    uint16_t *keys;
    const uint32_t *row; /* [n]: of each token */
    uint32_t most;
} pgl_cuda_draft_keys;

/* Norm and rotation of queries in place and of keys, and keys and values into their entries.
 * Grid (n, heads + kv_heads): query heads first; a block is one warp. */
typedef struct pgl_attention_prepare_args {
    float *q; /* [n][heads][2 head_dim]: query, gate; NULL: keys and values alone, grid (n, kv_heads) */
    const float *k, *v;           /* [n][kv_heads][head_dim] */
    const float *q_norm, *k_norm; /* [head_dim], zero-centred */
    const float *cosine, *sine;   /* [n][rotary_dim / 2] */
    const uint32_t *slot;         /* [n] */
    const uint32_t *entry;        /* [n]: where key and value go, UINT32_MAX: nowhere */
    pgl_cuda_pages pages;
    pgl_cuda_draft_keys drafts; /* keys NULL: entries are those of pages */
    uint32_t n_heads, n_kv_heads, head_dim, rotary_dim;
    float eps;
} pgl_attention_prepare_args;

/* Softmax over the entries first .. first + count - 1 of pages, then n_drafts entries of drafts. Cut in `splits` pieces,
 * each of which leaves its maximum, sum and weighted values; join adds them in order.
 * Grid (n, kv_heads * groups, splits), groups = (heads / kv_heads + PGL_CUDA_QUERIES - 1) / PGL_CUDA_QUERIES. */
#define PGL_CUDA_QUERIES 8u
typedef struct pgl_attend_args {
    const float *q;        /* as above, prepared */
    const uint32_t *slot;  /* [n] */
    const uint32_t *count; /* [n]: entries in pages */
    uint32_t first;
    pgl_cuda_pages pages;
    pgl_cuda_draft_keys drafts;
    uint32_t n_drafts;
    float *part; /* [n][heads][splits][head_dim + 2]: maximum, sum, values */
    uint32_t n_heads, n_kv_heads, head_dim, splits;
} pgl_attend_args;

/* o = f16(values / sum * sigmoid(gate)); zeros where there was no entry. Grid (n, heads). */
typedef struct pgl_attend_join_args {
    const float *part, *q;
    uint16_t *o; /* [n][o_stride], heads in order */
    float *o32;  /* [n][heads * head_dim]: the same before rounding, for coded linears; or NULL */
    uint32_t n_heads, head_dim, splits, o_stride;
} pgl_attend_join_args;

/* ---- the head */

/* Rows of x to where they are wanted: out[to[i]] = x[row[i]], in f32 and, from fp16 x16, the bits. Grid (count). No row
 * of out is one of x. */
typedef struct pgl_gather_args {
    const float *x;      /* [..][width], or NULL */
    const uint16_t *x16; /* [..][width16], or NULL */
    float *out;
    uint16_t *out16;
    const uint32_t *row;
    const uint32_t *to; /* NULL: i */
    uint32_t width, width16;
} pgl_gather_args;

/* The largest of logits[i][0 .. n_vocab), ties to the lower id; a NaN is never chosen unless it comes first and there is
 * nothing larger. bad[i]: 1 where a NaN or +infinity is among them, or no finite number. Grid (rows), a block of
 * PGL_CUDA_SORT_THREADS threads. */
typedef struct pgl_argmax_args {
    const float *logits; /* [rows][stride] */
    int32_t *token;
    uint32_t *bad;
    uint32_t n_vocab, stride;
} pgl_argmax_args;

/* X(name): kernel pgl_k_name with arguments pgl_name_args. */
#define PGL_CUDA_KERNELS(X)                                                                                  \
    X(embed)                                                                                                 \
    X(norm)                                                                                                  \
    X(dense)                                                                                                 \
    X(swiglu)                                                                                                \
    X(route)                                                                                                 \
    X(sort)                                                                                                  \
    X(coded_input)                                                                                           \
    X(coded)                                                                                                 \
    X(few_up)                                                                                                \
    X(few_down)                                                                                              \
    X(mix)                                                                                                   \
    X(conv)                                                                                                  \
    X(delta)                                                                                                 \
    X(attention_prepare)                                                                                     \
    X(attend)                                                                                                \
    X(attend_join)                                                                                           \
    X(gather)                                                                                                \
    X(argmax)

#endif
