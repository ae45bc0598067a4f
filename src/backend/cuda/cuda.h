/* Private to src/backend/cuda: the backend's own struct, and the parts that a step is made of.
 *
 * Memory. Open plans all regions of the card's memory and allocates each once: weights, pages, slots, snapshots, work
 * space. Beside the card it takes page-locked memory for what goes up with a batch and for what comes back.
 *
 * Order. Everything is on one stream. What a batch needs of tables goes up in one copy; the host waits where it needs
 * numbers: for logits or tokens, and at the end of each batch. The tables' buffer may be written again after that.
 *
 * Faults. Launches and copies do not return errors: the first one is kept, nothing is put into the stream after it, and
 * cuda_wait gives it. The backend can only be closed then.
 *
 * Threads. The executor's thread runs the steps; the context is current on it. */
#ifndef PGL_BACKEND_CUDA_CUDA_H
#define PGL_BACKEND_CUDA_CUDA_H

#include "backend/batch.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/open.h"
#include "backend/executor.h"
#include "model/model.h"

#define CUDA_LOGIT_ROWS 16u   /* positions whose logits are computed together */
#define CUDA_MOST_PARTS 1024u /* tokens times pieces that attention is split into */
#define CUDA_MOST_SPLITS 64u
#define CUDA_SPLIT_ENTRIES 128u /* the least that a piece is worth */
#define CUDA_ALIGN 256u

/* Numbers of kernels, in the order of PGL_CUDA_KERNELS. */
typedef enum cuda_kernel {
#define CUDA_KERNEL(name) CUDA_K_##name,
    PGL_CUDA_KERNELS(CUDA_KERNEL)
#undef CUDA_KERNEL
        CUDA_N_KERNELS,
} cuda_kernel;

/* ---- weights on the card */

/* Any linear of a layer: coded.code is NULL for dense ones. */
typedef struct cuda_linear {
    pgl_cuda_matrix dense;
    pgl_cuda_coded coded;
    uint64_t bytes; /* that reading it takes */
} cuda_linear;

typedef struct cuda_layer {
    bool full_attention, draft;
    uint32_t
        slot; /* number among the delta or the attention layers; the draft layer comes behind the latter */
    const float *input_norm, *post_norm;
    cuda_linear in_proj_qkv, in_proj_z, in_proj_a, in_proj_b, out_proj;
    const float *conv, *a_log, *dt_bias, *delta_norm;
    cuda_linear q_proj, k_proj, v_proj, o_proj;
    const float *q_norm, *k_norm;
    cuda_linear router, shared_gate, shared_up, shared_down, shared_expert_gate;
    cuda_linear gate, up, down_dense;
    pgl_cuda_coded experts_gate_up, experts_down;
    uint64_t expert_bytes; /* of one expert, both */
} cuda_layer;

typedef struct cuda_weights {
    cuda_linear embed, head, fc;
    cuda_layer *layers; /* [n_layers] */
    cuda_layer draft;
    const float *norm, *draft_norm, *draft_norm_embedding, *draft_norm_hidden;
} cuda_weights;

/* One array that goes up. */
typedef struct cuda_upload {
    const void *from;
    uint64_t bytes, at; /* in the region of weights */
} cuda_upload;

/* ---- work space: arrays of a batch on the card, and the width of a row beside each */

typedef struct cuda_arrays {
    float *x;              /* hidden */
    float *h;              /* hidden: normed input in f32, for coded linears */
    uint16_t *h16;         /* hidden: the same rounded */
    float *u;              /* the larger of conv width and 2 q width */
    float *z;              /* value width */
    float *a, *b;          /* value heads */
    float *k, *v;          /* kv width */
    float *o;              /* the larger of value width and q width: for coded out projections */
    uint16_t *o16;         /* the same rounded */
    float *part;           /* [CUDA_MOST_PARTS][heads][head_dim + 2] */
    float *router;         /* experts */
    float *weight;         /* experts used */
    int32_t *expert;       /* [n_layers + 1][tokens of the batch][experts used] */
    pgl_cuda_pairs pairs;  /* by the tokens of a batch */
    uint16_t *xh;          /* pairs: the wider input of the coded linears */
    uint16_t *gate_up, *y; /* pairs: 2 moe intermediate; hidden */
    float *inner, *inner_up;
    uint16_t *inner16;
    float *shared, *shared_gate;
    float *
        final; /* [n_slots + capacity][hidden]: the last hidden state of each slot, then of the batch's tokens */
    uint16_t *final16;      /* [capacity][hidden] */
    uint32_t *bad;          /* 1 */
    float *before;          /* hidden: the hidden states before the tokens (draft head) */
    uint16_t *pair;         /* 2 hidden */
    float *draft_hidden[2]; /* [max_rows][hidden] in turn */
    uint16_t *draft_keys;   /* [max_rows][2][kv heads][max_draft][head_dim] */
    float *row_hidden;      /* [max_rows][hidden]: at the last sampled position */
    uint16_t *logit_input;  /* [CUDA_LOGIT_ROWS][hidden] */
    float *logits;          /* [CUDA_LOGIT_ROWS][vocab] */
    int32_t *token;         /* [CUDA_LOGIT_ROWS], of argmax, then: */
    uint32_t *token_bad;    /* [CUDA_LOGIT_ROWS] */
    unsigned char *tables;  /* [tables_bytes]: what goes up with a batch */
} cuda_arrays;

/* What comes back, page-locked. */
typedef struct cuda_back {
    float *logits;     /* [CUDA_LOGIT_ROWS][vocab] */
    int32_t *token;    /* [CUDA_LOGIT_ROWS], and */
    uint32_t *bad_row; /* [CUDA_LOGIT_ROWS] behind it */
    uint32_t *bad;     /* [capacity] */
    int32_t *expert;   /* [n_layers][tokens][experts used] */
} cuda_back;

/* Tables of the batch at hand, on the card. */
typedef struct cuda_tables {
    const int32_t *tokens;
    const pgl_cuda_span *spans;
    const uint32_t *span_of, *count, *entry, *row;
    const float *cosine, *sine;
    const uint32_t *pages; /* [n_spans][stride] */
    uint32_t pages_stride;
    uint32_t most_count; /* the largest of count */
    /* of verify rows: tokens of the batch, and their places among pending ones */
    const uint32_t *kept_from, *kept_to;
    uint32_t n_kept;
    /* of the draft layer's rows: shifted rotations, its own entries */
    const float *draft_cosine, *draft_sine;
    const uint32_t *draft_count, *draft_entry;
    const uint32_t *before_from; /* in final */
    /* the last hidden state of each slot that moves on */
    const uint32_t *moved_from, *moved_to;
    uint32_t n_moved;
} cuda_tables;

typedef struct cuda_backend {
    pgl_backend base;

    /* fixed after open */
    const pgl_model *model;
    pgl_cuda_driver driver;
    pgl_cuda_device device;
    pgl_cu_context context;
    pgl_cu_stream stream;
    pgl_cu_module modules[16];
    uint32_t n_modules;
    pgl_cu_function kernels[CUDA_N_KERNELS];
    char detail[256];
    cuda_weights weights;
    cuda_upload *uploads;
    uint32_t n_uploads, most_uploads;
    float *vectors; /* short vectors, widened, until they are on the card */
    uint64_t n_vectors, most_vectors;
    uint64_t layer_elements; /* fp16 numbers of keys and values of one page and one layer */
    uint64_t tables_bytes;
    pgl_backend_memory memory;
    struct cuda_region {
        pgl_cu_address at;
        uint64_t bytes;
    } weights_region, page_region, state_region, pending_region, snapshot_region, work_region;
    void *pinned; /* tables, then what comes back */
    uint64_t pinned_bytes;

    /* executor's thread */
    bool current; /* the context is current on it */
    bool taken;   /* what comes back of the batch's trunk was looked at */
    pgl_slots slots;
    pgl_batch batch;
    pgl_sampler *sampler;
    cuda_arrays w;
    cuda_back back;
    unsigned char *tables; /* page-locked */
    uint64_t tables_used, tables_sent;
    cuda_tables t;
    float *state;        /* on the card: [n_slots][state_floats]: S of all delta layers, then taps */
    size_t state_floats; /* a slot's, rounded up */
    float *snapshots;    /* [n_snapshots][snapshot_floats]: as exported */
    size_t snapshot_floats;
    float *pending_u, *pending_a, *pending_b; /* [delta layers][n_slots][max_draft + 1][width] */
    float *pending_hidden;                    /* [n_slots][max_draft + 1][hidden] */
    uint16_t *pages;
    struct cuda_commit {
        uint32_t slot, n;
    } * commits; /* [n_slots], collected, to go together */
    uint32_t n_commits;
    pgl_status status; /* of the first thing that failed */
    pgl_error error;
    uint64_t bytes_read;
    uint32_t n_launches;
} cuda_backend;

/* ---- cuda_sizes.c */

pgl_status cuda_check_model(const pgl_model *model, const pgl_backend_options *options, pgl_error *err);
/* Sizes of all regions, from the caps. */
pgl_status cuda_set_sizes(cuda_backend *b, pgl_error *err);
/* Where arrays stand, once the regions are there. */
void cuda_place_arrays(cuda_backend *b);

/* ---- cuda_weights.c */

/* Places every array of weights and fills b->weights with addresses; with base 0 that measures. */
pgl_status cuda_place_weights(cuda_backend *b, pgl_cu_address base, pgl_error *err);
pgl_status cuda_upload_weights(cuda_backend *b, const pgl_cuda_options *cuda, pgl_error *err);
void cuda_free_uploads(cuda_backend *b);

/* ---- cuda_run.c: the stream */

static inline pgl_cu_address cuda_at(const void *p) {
    return (pgl_cu_address)(uintptr_t)p;
}
void cuda_launch(cuda_backend *b, cuda_kernel kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t threads,
                 void *args);
#define CUDA_LAUNCH(b, name, x, y, z, threads, args)                                                         \
    do {                                                                                                     \
        pgl_##name##_args *cuda_checked_ = (args);                                                           \
        cuda_launch(b, CUDA_K_##name, x, y, z, threads, cuda_checked_);                                      \
    } while (0)
void cuda_copy_up(cuda_backend *b, void *to, const void *from, uint64_t bytes);
void cuda_copy_down(cuda_backend *b, void *to, const void *from, uint64_t bytes);
void cuda_copy_within(cuda_backend *b, void *to, const void *from, uint64_t bytes);
void cuda_zero(cuda_backend *b, void *to, uint64_t bytes);
/* Waits for the stream. False when something failed, now or before. */
bool cuda_wait(cuda_backend *b);

/* ---- cuda_tables.c */

/* Starts the tables of a batch; only after a wait. */
void cuda_tables_begin(cuda_backend *b);
/* Room for n elements; *device is where they will be. Tables are planned: there is always room. */
void *cuda_tables_put(cuda_backend *b, size_t n, size_t size, const void **device);
/* What was put since the last time goes up. */
void cuda_tables_send(cuda_backend *b);
/* All tables of the batch at hand, sent. */
void cuda_tables_of_batch(cuda_backend *b);
uint64_t cuda_tables_bytes(const cuda_backend *b);

/* ---- cuda_linear.c */

typedef struct cuda_product {
    const cuda_linear *linear;
    float *y;
} cuda_product;

#define CUDA_MOST_PRODUCTS PGL_CUDA_MOST_PARTS

/* y = linear(x), or y += linear(x), for linears that share n inputs: x16 [n][x_stride] for dense ones, x32 [n][in] for
 * coded ones. */
typedef struct cuda_input {
    const float *x32;
    const uint16_t *x16;
    uint32_t x_stride, n;
    bool add;
} cuda_input;
void cuda_products(cuda_backend *b, const cuda_input *input, const cuda_product *products,
                   uint32_t n_products);

/* h, h16 or both = norm(x; w); bad may be NULL. */
void cuda_norm(cuda_backend *b, const float *w, const float *x, float *h, uint16_t *h16, uint32_t *bad,
               uint32_t n);

/* out[to[i]] = x[from[i]], rows of `width` floats; to NULL: i. */
void cuda_gather(cuda_backend *b, const float *x, const uint32_t *from, float *out, const uint32_t *to,
                 uint32_t n, uint32_t width);

/* ---- the layers: on w.x, for the tokens of the batch */

/* place: of the routed experts among those that come back. */
void cuda_layer_forward(cuda_backend *b, const cuda_layer *layer, uint32_t place);
void cuda_delta_mixer(cuda_backend *b, const cuda_layer *layer);
void cuda_attention_mixer(cuda_backend *b, const cuda_layer *layer);
/* Its keys and values alone, from the normed input. */
void cuda_attention_keys(cuda_backend *b, const cuda_layer *layer);
void cuda_mlp(cuda_backend *b, const cuda_layer *layer, uint32_t place);

/* Moves the state of a slot past the first n of its pending tokens: collected, and carried out together. */
void cuda_commit(cuda_backend *b, uint32_t slot, uint32_t n);
void cuda_commit_all(cuda_backend *b);

/* ---- cuda_draft.c, cuda_head.c, cuda_step.c */

void cuda_draft_feed(cuda_backend *b);
void cuda_draft_rows(cuda_backend *b);

void cuda_head_batch(cuda_backend *b);
/* logits of n <= CUDA_LOGIT_ROWS rows of final hidden states in logit_input. */
void cuda_head_logits(cuda_backend *b, uint32_t n);
/* The largest of each; they come back with the next wait. */
void cuda_head_argmax(cuda_backend *b, uint32_t n);

/* Waits, once with what came back of the trunk; the tables may be written anew. */
void cuda_batch_wait(cuda_backend *b);

pgl_status cuda_execute(void *self, const pgl_step_plan *plan, pgl_step_timing *timing, pgl_error *err);

#endif
