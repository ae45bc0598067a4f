/* Private to src/backend/cpu: the backend's own struct, and the parts that a step is made of.
 *
 * Memory. Everything is allocated by open: slots and snapshots (one block of state each), pages, and a work space for
 * the tokens of one batch. A step's rows are cut into batches of at most `batch_tokens` tokens, in order; a batch goes
 * through all layers before the next one starts. Weights stay where the checkpoint has them, but for short vectors
 * (norms, convolution taps), which are widened once.
 *
 * Threads. The executor's thread runs the step and is thread 0 of the pool; work is handed to the pool as lists of
 * tasks (cpu_run). No result depends on which thread does a task, and none on how the work is cut. */
#ifndef PGL_BACKEND_CPU_CPU_H
#define PGL_BACKEND_CPU_CPU_H

#include "backend/batch.h"
#include "backend/cpu/kernels.h"
#include "backend/executor.h"
#include "base/pool.h"
#include "model/model.h"

#define CPU_MOST_BATCH 512u   /* tokens that go through a layer together */
#define CPU_LOGIT_ROWS 16u    /* positions whose logits are computed together */
#define CPU_HEADS_PER_TASK 4u /* PGL_QUERIES */
#define CPU_DENSE_ROWS 64u    /* weight rows of one task */
#define CPU_MOST_USED 64u     /* experts of one token */

/* ---- tasks */

typedef void (*cpu_task_fn)(void *context, uint32_t task, uint32_t thread);

typedef struct cpu_work {
    cpu_task_fn fn;
    void *context;
    uint32_t n_tasks;
} cpu_work;

#define CPU_MOST_WORKS 8u

/* A layer's weights, with its short vectors widened. */
typedef struct cpu_layer {
    const pgl_layer_weights *weights;
    uint32_t
        slot; /* number among the delta or the attention layers; the draft layer comes behind the latter */
    bool draft;
    const float *input_norm, *post_norm;
    const float *conv;            /* [kernel][conv_width] */
    const float *a_log, *dt_bias; /* [nv] */
    const float *delta_norm;      /* [dv] */
    const float *q_norm, *k_norm; /* [head_dim] */
} cpu_layer;

/* The stride of rows that kernels use together (kernels.h). */
static inline size_t cpu_padded(size_t width) {
    return width + PGL_PAD;
}

/* Arrays for the tokens of a batch; the width of a row beside each. */
typedef struct cpu_arrays {
    float *x, *h;   /* hidden: residual, normed input */
    float *y;       /* hidden: output of a mixer */
    float *rounded; /* the widest input of a dense linear: fp16 values */
    float *u;       /* the larger of conv width and 2 q width: inputs of the convolution, or query and gate */
    float *z, *o;   /* the larger of value width and q width */
    float *a, *b;   /* value heads */
    float *k, *v;   /* kv width */
    float *cosine, *sine;    /* rotary / 2 */
    float *router;           /* experts */
    float *weight;           /* experts used: fp16 values */
    float *xh, *yd;          /* experts used * hidden, padded: input of gate_up, output of down, by pair */
    float *gate_up;          /* experts used * 2 moe intermediate, padded, by pair */
    float *xd;               /* experts used * moe intermediate, padded: input of down, by pair */
    float *inner, *inner_up; /* the larger of shared and dense intermediate */
    float *shared;           /* hidden */
    float *shared_gate;      /* 1 */
    float *coded;            /* the widest input of a coded linear of a dense model, padded: transformed */
    float *final;            /* hidden: output of the final norm */
    float *pair;             /* 2 hidden: input of the draft head; 0 wide without one */
    int32_t *expert;         /* [experts used] in falling order */
    uint32_t *pair_of;       /* [experts used]: where the pair of this token and slot stands */
    uint32_t *token_of;      /* [experts used]: of a pair, in the order of experts */
} cpu_arrays;

typedef struct cpu_backend {
    pgl_backend base;

    /* fixed after open */
    const pgl_model *model;
    const pgl_kernels *k;
    pgl_pool *pool;
    uint32_t n_threads;
    char detail[96];
    cpu_layer *layers; /* [n_layers] */
    cpu_layer draft;
    const float *final_norm, *draft_norm, *draft_norm_embedding, *draft_norm_hidden;
    float *vectors; /* all widened vectors */
    uint32_t batch_tokens;
    uint64_t layer_bytes; /* of keys and values of one page and one layer */
    pgl_backend_memory memory;
    struct cpu_region {
        void *p;
        size_t bytes;
    } state_region, snapshot_region, page_region, pending_region, work_region;

    /* executor's thread; single slots, pages and tokens are handed to tasks */
    pgl_slots slots;
    float *state;     /* [n_slots][state_floats] */
    float *snapshots; /* [n_snapshots][state_floats] */
    float *pending;   /* [n_slots][pending_floats] */
    unsigned char *pages;
    size_t state_floats, pending_floats;
    pgl_batch batch;
    int32_t rotation_shift; /* of the batch */
    cpu_arrays w;
    uint32_t *expert_first; /* [n_experts + 1]: pairs of each expert */
    uint32_t *active;       /* [n_experts]: experts with pairs */
    float *scores;          /* [n_threads][PGL_QUERIES][max_context + max_draft] */
    float *head_state;      /* [n_threads][dk * dv]: of verify rows */
    float *head_taps;       /* [n_threads][(kernel - 1) * conv_width] */
    float *commit_outputs;  /* [n_threads][max_draft + 1][value_width] */
    float *logit_input;     /* [CPU_LOGIT_ROWS][hidden] */
    float *logits;          /* [CPU_LOGIT_ROWS][vocab] */
    pgl_sampler **samplers; /* [n_threads] */
    float *draft_hidden;    /* [max_rows][hidden]: input of the next draft */
    pgl_f16 *draft_kv;      /* [max_rows][2][kv_heads][max_draft][head_dim]: of drafts that are not fed yet */
    float *row_hidden; /* [max_rows][hidden]: trunk hidden state at the last sampled position; NULL without a
                               draft head, as the two before and: */
    int32_t *draft_choice; /* [CPU_LOGIT_ROWS] */

    bool started; /* the first step has begun */

    /* of the step at hand */
    uint64_t bytes_read;
} cpu_backend;

/* ---- cpu_open.c: memory */

/* Where slot's state lies: S of all delta layers, taps, last hidden state, in this order (as pgl_reference_state). */
static inline float *cpu_slot_state(const cpu_backend *b, uint32_t slot) {
    return b->state + slot * b->state_floats;
}
static inline float *cpu_delta_state(const cpu_backend *b, float *state, uint32_t delta_layer) {
    return state + (size_t)delta_layer * b->model->value_width * b->model->config->key_dim;
}
static inline float *cpu_delta_taps(const cpu_backend *b, float *state, uint32_t delta_layer) {
    size_t taps = (size_t)(b->model->config->conv_kernel - 1) * b->model->conv_width;
    return state + b->model->state_bytes / sizeof(float) + delta_layer * taps;
}
static inline float *cpu_last_hidden(const cpu_backend *b, float *state) {
    return state + (b->model->state_bytes + b->model->conv_bytes) / sizeof(float);
}

/* What a verify row leaves: for each of max_draft + 1 tokens and each delta layer the inputs of the convolution and of
 * the gates, and the final hidden state of each token. */
static inline float *cpu_pending_inputs(const cpu_backend *b, uint32_t slot, uint32_t delta_layer,
                                        uint32_t token) {
    size_t row = (size_t)b->model->conv_width + 2 * (size_t)b->model->config->n_value_heads;
    size_t tokens = (size_t)b->base.caps.max_draft + 1;
    return b->pending + slot * b->pending_floats + (delta_layer * tokens + token) * row;
}
static inline float *cpu_pending_hidden(const cpu_backend *b, uint32_t slot, uint32_t token) {
    return cpu_pending_inputs(b, slot, b->model->n_delta_layers, 0) +
           (size_t)token * b->model->config->hidden_size;
}

/* Keys of one layer and head in a page, [page_tokens][head_dim]; values lie page_tokens * kv_width behind. */
static inline pgl_f16 *cpu_page_keys(const cpu_backend *b, uint32_t page, uint32_t layer_slot,
                                     uint32_t kv_head) {
    unsigned char *p = b->pages + page * b->base.caps.page_bytes + layer_slot * b->layer_bytes;
    return (pgl_f16 *)(void *)p + (size_t)kv_head * b->base.caps.page_tokens * b->model->config->head_dim;
}
static inline size_t cpu_page_values(const cpu_backend *b) {
    return (size_t)b->base.caps.page_tokens * b->model->kv_width;
}

/* ---- cpu_tasks.c */

/* Does all tasks of all works, each once, on the pool. */
void cpu_run(cpu_backend *b, const cpu_work *works, uint32_t n_works);

/* One linear on n rows. */
typedef struct cpu_product {
    const pgl_linear *linear;
    float *y; /* [n][linear->out] */
} cpu_product;

#define CPU_MOST_PRODUCTS 5u

/* y = linear(x) for linears that share their n inputs x [n][in]. Uses w.rounded and w.coded. */
void cpu_products(cpu_backend *b, const float *x, uint32_t n, const cpu_product *products,
                  uint32_t n_products);

/* For works that are combined with others by the caller: the tasks of one dense product. context is the caller's
 * memory; x is rounded already. */
typedef struct cpu_dense_context {
    cpu_backend *b;
    pgl_dense_job job;
} cpu_dense_context;
cpu_work cpu_dense_work(cpu_backend *b, cpu_dense_context *context, const cpu_product *product,
                        const float *rounded, uint32_t n);

/* h = norm(x; w) for n rows. */
void cpu_norm_rows(cpu_backend *b, const float *w, const float *x, float *h, uint32_t n);
void cpu_round_rows(cpu_backend *b, const float *x, float *rounded, uint32_t n, uint32_t width);
/* x += y for n rows of hidden */
void cpu_add_rows(cpu_backend *b, const float *y, float *x, uint32_t n);

/* Bytes that reading a linear's weights takes. */
uint64_t cpu_linear_bytes(const pgl_linear *linear);

/* ---- the layers */

/* Cosine and sine of every token of the batch, for its position plus shift (at least 0). */
void cpu_rotations(cpu_backend *b, int32_t shift);

/* One decoder layer on w.x, for the tokens of b->batch. w.expert has the routed experts afterwards. */
void cpu_layer_forward(cpu_backend *b, const cpu_layer *layer);

void cpu_delta_mixer(cpu_backend *b, const cpu_layer *layer);
void cpu_attention_mixer(cpu_backend *b, const cpu_layer *layer);
/* Its keys and values alone, from the normed input in w.h. */
void cpu_attention_keys(cpu_backend *b, const cpu_layer *layer);
void cpu_mlp(cpu_backend *b, const cpu_layer *layer);

/* Moves the state of a slot past the first n of its pending tokens. */
void cpu_commit(cpu_backend *b, uint32_t slot, uint32_t n);

/* ---- cpu_draft.c */

/* Keys and values of the draft layer for the tokens of the batch (from position 1 on), and the logits that tests
 * want. */
void cpu_draft_feed(cpu_backend *b);

/* Drafts for the rows of the step that want them and have sampled. */
void cpu_draft_rows(cpu_backend *b);

/* ---- cpu_head.c */

/* Logits of the batch's positions that some row wants: scores and samples. */
void cpu_head_batch(cpu_backend *b);

/* logits [n][vocab] of n <= CPU_LOGIT_ROWS rows of final hidden states in logit_input. */
void cpu_head_logits(cpu_backend *b, uint32_t n);

/* ---- cpu_step.c */

pgl_status cpu_execute(void *self, const pgl_step_plan *plan, pgl_step_timing *timing, pgl_error *err);

#endif
