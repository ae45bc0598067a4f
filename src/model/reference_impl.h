/* Private to reference*.c: one sequence and its work space. */
#ifndef PGL_MODEL_REFERENCE_IMPL_H
#define PGL_MODEL_REFERENCE_IMPL_H

#include "model/reference.h"

/* Rows that go through a layer together: each weight is decoded once for all of them. Does not touch results.
 */
#define PGL_REFERENCE_CHUNK 64u

/* Keys and values of one layer, [token][kv_width], as f32: fp16 values in contract mode. */
typedef struct pgl_reference_kv {
    float *keys, *values;
    size_t capacity_tokens;
} pgl_reference_kv;

/* Rows of the current chunk; the width of a row beside each. All of it is carved from one block. */
typedef struct pgl_reference_work {
    float *block;
    float *x, *h, *y;         /* hidden: residual, normed input of a branch, output of a branch */
    float *u;                 /* conv width */
    float *z, *o;             /* value width */
    float *a, *b;             /* value heads */
    float *q;                 /* 2 * q width: query and gate per head */
    float *k, *v;             /* kv width */
    float *attended;          /* q width */
    float *router;            /* experts */
    float *route_weight;      /* experts used */
    float *gathered;          /* hidden: the rows of one expert */
    float *gate_up, *act;     /* 2 * moe intermediate, moe intermediate */
    float *expert_y;          /* hidden */
    float *slots;             /* experts used * hidden */
    float *mlp_gate, *mlp_up; /* the larger of shared and dense intermediate */
    float *gate;              /* 1 */
    float *pair;              /* 2 * hidden: draft input */
    float *linear;            /* the widest input, and one row more: pgl_rows_scratch */
    float *small;             /* not per row: 2 * rotary / 2 angles, value_dim */
    int32_t *experts;         /* [chunk, experts used] */
} pgl_reference_work;

struct pgl_reference {
    const pgl_model *model; /* borrowed */
    bool exact;
    uint64_t n_tokens, n_draft_rows;
    float *state, *taps, *hidden;
    pgl_reference_kv kv[PGL_MAX_LAYERS + 1]; /* attention layers of the trunk, then the draft layer */
    float *scores;                           /* [scores_capacity] */
    size_t scores_capacity;
    pgl_reference_work work;
};

/* Room for keys, values and scores of n tokens in all; contents stay. */
pgl_status pgl_reference_reserve(pgl_reference *seq, bool draft, uint64_t n, pgl_error *err);

/* One decoder layer on work.x, n rows: the mixer and the mlp, added to the residual. */
typedef struct pgl_reference_layer {
    const pgl_layer_weights *weights;
    uint32_t slot;     /* delta layer number, or index into kv */
    uint64_t position; /* of the first row */
    uint32_t n;
} pgl_reference_layer;
void pgl_reference_layer_forward(pgl_reference *seq, const pgl_reference_layer *layer);

/* Its two halves: the mixer, added to work.x, with the normed input of the mlp left in work.h; and the mlp from there. */
void pgl_reference_mix(pgl_reference *seq, const pgl_reference_layer *layer);
void pgl_reference_mlp(pgl_reference *seq, const pgl_reference_layer *layer);

/* Experts and routing weights of n rows of work.h, into work.experts and work.route_weight. */
void pgl_reference_route(pgl_reference *seq, const pgl_moe_weights *moe, uint32_t n);

/* work.h = norm(work.x; w), n rows. */
void pgl_reference_norm_rows(pgl_reference *seq, const pgl_vec *w, uint32_t n);

#endif
