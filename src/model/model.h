/* The model: config and weights as one thing, with every size that follows from them.
 *
 * pgl_model_init checks that the weights have the shapes that the config asks for (cheap: no page of weights
 * is touched) and that every size below fits; after that the model is read-only and any thread may use it. It
 * borrows config and weights, usually from a checkpoint, which must outlive it. There is nothing to release.
 */
#ifndef PGL_MODEL_MODEL_H
#define PGL_MODEL_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "checkpoint/weights.h"

typedef struct pgl_model {
    const pgl_config *config;
    const pgl_weights *weights;

    uint32_t n_attention_layers; /* of the trunk */
    uint32_t n_delta_layers;
    uint32_t layer_slot[PGL_MAX_LAYERS]; /* layer l is attention (or delta) layer number layer_slot[l] */

    uint32_t key_width;   /* nk * dk */
    uint32_t value_width; /* nv * dv */
    uint32_t conv_width;  /* 2 nk dk + nv dv: channels of in_proj_qkv and of the convolution */
    uint32_t q_width;     /* heads * head_dim */
    uint32_t kv_width;    /* kv_heads * head_dim */
    uint32_t n_used;      /* experts a token is sent to: 0 in dense models */

    /* What a sequence owns, in bytes as a backend stores it: keys and values fp16, the rest f32. */
    uint64_t kv_token_bytes;       /* keys and values of one token, all trunk attention layers */
    uint64_t draft_kv_token_bytes; /* of the draft layer; 0 without one */
    uint64_t state_bytes;          /* S of all delta layers */
    uint64_t conv_bytes;           /* the conv_kernel - 1 last inputs of every convolution */
    uint64_t hidden_bytes;         /* the last trunk hidden state */
    uint64_t slot_bytes;           /* state + conv + hidden */
    uint64_t snapshot_bytes;       /* what can be restored later: the same three */
} pgl_model;

/* PGL_E_FORMAT names the weight and both shapes; PGL_E_UNSUPPORTED a size that the forward pass has no
 * meaning for. */
pgl_status pgl_model_init(pgl_model *model, const pgl_config *config, const pgl_weights *weights,
                          pgl_error *err);

/* The same without a look at the weights, which may still be missing: for tools that make a model layer by layer. */
pgl_status pgl_model_sizes(pgl_model *model, const pgl_config *config, const pgl_weights *weights,
                           pgl_error *err);

#endif
