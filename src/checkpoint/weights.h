/* Typed views of a model's weights, as they lie in the mapped checkpoint files (docs/format.md).
 *
 * Views own nothing: the checkpoint owns the mapping and outlives them. Shards promise no alignment beyond
 * one byte, so every pointer here may be odd; read through memcpy or an unaligned vector load. All numbers
 * are little-endian. Read-only after load: any thread. */
#ifndef PGL_CHECKPOINT_WEIGHTS_H
#define PGL_CHECKPOINT_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/config.h"
#include "checkpoint/dtype.h"

/* n numbers of F16, BF16 or F32. dtype PGL_NONE and data NULL: absent. */
typedef struct pgl_vec {
    const void *data;
    pgl_dtype dtype;
    uint32_t n;
} pgl_vec;

/* A stack of n_experts trellis-coded linears [in -> out] (dense models: one). Expert e starts at e times the
 * size of one: code [in/16][out/16][16 K] int16, rin [in] F16, rout [out] F16, s_in [in] F32, s_out [out]
 * F32, bias [out] F16. s_in, s_out and bias are NULL where the checkpoint has none. in and out are multiples
 * of 128; K is 1..8. */
typedef struct pgl_coded {
    const void *code;
    const void *rin, *rout;
    const void *s_in, *s_out;
    const void *bias;
    uint32_t n_experts, in, out, k;
} pgl_coded;

typedef enum pgl_linear_kind {
    PGL_LINEAR_NONE,
    PGL_LINEAR_INT8,  /* data int8 [out, in], scale [out] F16 or F32; weight = f16(w8 * scale) */
    PGL_LINEAR_PLAIN, /* data F16, BF16 or F32 [out, in] */
    PGL_LINEAR_CODED, /* coded, n_experts = 1 */
} pgl_linear_kind;

/* y[out] = W[out, in] x[in] (+ bias). */
typedef struct pgl_linear {
    pgl_linear_kind kind;
    uint32_t in, out;
    const void *data;
    pgl_dtype dtype; /* of data */
    const void *scale;
    pgl_dtype scale_dtype;
    pgl_vec bias; /* absent unless attention_bias */
    pgl_coded coded;
} pgl_linear;

/* Gated delta net. nk key heads of dk, nv value heads of dv. */
typedef struct pgl_delta_weights {
    pgl_linear in_proj_qkv;          /* [2 nk dk + nv dv, hidden]: q, then k, then v */
    pgl_linear in_proj_z;            /* [nv dv, hidden] */
    pgl_linear in_proj_a, in_proj_b; /* [nv, hidden] */
    pgl_linear out_proj;             /* [hidden, nv dv] */
    pgl_vec conv1d;                  /* [2 nk dk + nv dv, 1, kernel]; the last tap is the current token */
    pgl_vec a_log, dt_bias;          /* [nv] */
    pgl_vec norm;                    /* [dv], plain w */
} pgl_delta_weights;

typedef struct pgl_attention_weights {
    pgl_linear q_proj;         /* [heads * 2 head_dim, hidden]: per head, query rows, then gate rows */
    pgl_linear k_proj, v_proj; /* [kv_heads * head_dim, hidden] */
    pgl_linear o_proj;         /* [hidden, heads * head_dim] */
    pgl_vec q_norm, k_norm;    /* [head_dim], zero-centred */
} pgl_attention_weights;

typedef struct pgl_moe_weights {
    pgl_linear router;                 /* mlp.gate [n_experts, hidden]; NONE in dense models */
    pgl_coded gate_up;                 /* n_experts x [hidden -> 2 moe_intermediate], gate first */
    pgl_coded down;                    /* n_experts x [moe_intermediate -> hidden] */
    pgl_linear shared_gate, shared_up; /* [shared_intermediate, hidden] */
    pgl_linear shared_down;            /* [hidden, shared_intermediate] */
    pgl_linear shared_expert_gate;     /* [1, hidden] */
    pgl_linear gate, up, down_dense;   /* dense models: [intermediate, hidden] x 2, [hidden, intermediate] */
} pgl_moe_weights;

typedef struct pgl_layer_weights {
    bool full_attention;
    pgl_vec input_norm, post_attention_norm; /* [hidden], zero-centred */
    pgl_delta_weights delta;                 /* unless full_attention */
    pgl_attention_weights attention;         /* if full_attention */
    pgl_moe_weights moe;
} pgl_layer_weights;

/* The draft head. Its layer is a full-attention one; moe.gate_up and moe.down are its own where the export
 * ships them and otherwise those of trunk layer borrowed_layer = n_layers / 2. */
typedef struct pgl_draft_weights {
    bool present;
    pgl_linear fc; /* [hidden, 2 hidden]: embedding half first, then hidden half */
    pgl_vec pre_fc_norm_embedding, pre_fc_norm_hidden, norm;
    pgl_layer_weights layer;
    bool borrows_experts;
    uint32_t borrowed_layer;
} pgl_draft_weights;

typedef struct pgl_weights {
    pgl_linear embed;          /* [vocab, hidden]: INT8 or PLAIN */
    pgl_linear head;           /* [vocab, hidden]; equal to embed when tied */
    pgl_vec norm;              /* [hidden], zero-centred */
    pgl_layer_weights *layers; /* [config.n_layers] */
    pgl_draft_weights draft;
} pgl_weights;

#endif
