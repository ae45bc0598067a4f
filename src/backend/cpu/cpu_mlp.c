/* Owns nothing: the mixture of experts (or the dense mlp) on the tokens of a batch.
 *
 * A pair is a token and one of the experts that it is sent to. Pairs are put in the order of experts, so that each
 * expert's tiles are decoded once for all of its rows; what they give goes back to its token and is summed in the
 * order of its slots, which makes the result independent of who else is in the batch. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "codec/codec.h"
#include "model/ops.h"

typedef struct moe_context {
    cpu_backend *b;
    const pgl_moe_weights *moe;
    uint32_t n_blocks; /* of the intermediate size, or of the hidden size */
    uint32_t n_active;
} moe_context;

/* ---- routing */

#define ROUTES_PER_TASK 4u

static void route_task(void *context, uint32_t task, uint32_t thread) {
    const moe_context *c = context;
    cpu_backend *b = c->b;
    uint32_t n_experts = b->model->config->n_experts, used = b->model->n_used, n = b->batch.n_tokens;
    uint32_t end = (task + 1) * ROUTES_PER_TASK < n ? (task + 1) * ROUTES_PER_TASK : n;
    (void)thread;
    for (uint32_t t = task * ROUTES_PER_TASK; t < end; t++) {
        float *logits = b->w.router + (size_t)t * n_experts, *weight = b->w.weight + (size_t)t * used;
        b->k->round16(logits, n_experts, logits);
        pgl_route(logits, n_experts, used, b->w.expert + (size_t)t * used, weight);
        b->k->round16(weight, used, weight);
    }
}

/* Pairs in the order of experts, and the experts that have some. Returns how many those are. */
static uint32_t sort_pairs(cpu_backend *b) {
    uint32_t n_experts = b->model->config->n_experts, used = b->model->n_used,
             n_pairs = b->batch.n_tokens * used;
    uint32_t *first = b->expert_first, n_active = 0, sum = 0;
    memset(first, 0, ((size_t)n_experts + 1) * sizeof *first);
    for (uint32_t p = 0; p < n_pairs; p++)
        first[b->w.expert[p]]++;
    for (uint32_t e = 0; e < n_experts; e++) {
        uint32_t count = first[e];
        if (count > 0)
            b->active[n_active++] = e;
        first[e] = sum;
        sum += count;
    }
    for (uint32_t p = 0; p < n_pairs; p++) {
        uint32_t place = first[b->w.expert[p]]++;
        b->w.pair_of[p] = place;
        b->w.token_of[place] = p / used;
    }
    for (uint32_t e = n_experts; e > 0; e--)
        first[e] = first[e - 1];
    first[0] = 0;
    return n_active;
}

/* ---- experts */

static uint32_t expert_of_pair(const cpu_backend *b, uint32_t pair) {
    uint32_t low = 0, high = b->model->config->n_experts;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (b->expert_first[middle] <= pair)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void expert_input_task(void *context, uint32_t task, uint32_t thread) {
    const moe_context *c = context;
    cpu_backend *b = c->b;
    size_t hidden = b->model->config->hidden_size;
    (void)thread;
    b->k->coded_input(&c->moe->gate_up, expert_of_pair(b, task), 0, (uint32_t)hidden,
                      b->w.h + b->w.token_of[task] * hidden, b->w.xh + task * cpu_padded(hidden));
}

/* One expert, 128 channels of gate and the same of up: SwiGLU and the input transform of down stay within them. */
static void gate_up_task(void *context, uint32_t task, uint32_t thread) {
    const moe_context *c = context;
    cpu_backend *b = c->b;
    const pgl_kernels *k = b->k;
    uint32_t expert = b->active[task / c->n_blocks], block = task % c->n_blocks * PGL_HADAMARD;
    uint32_t pair = b->expert_first[expert], n = b->expert_first[expert + 1] - pair;
    size_t hidden = b->model->config->hidden_size, inner = b->model->config->moe_intermediate_size;
    size_t stride = cpu_padded(2 * inner);
    float *gate_up = b->w.gate_up + pair * stride;
    (void)thread;
    pgl_coded_job job = {
        .coded = &c->moe->gate_up,
        .expert = expert,
        .first = block,
        .count = PGL_HADAMARD,
        .xh = b->w.xh + pair * cpu_padded(hidden),
        .xh_stride = cpu_padded(hidden),
        .y = gate_up,
        .y_stride = stride,
        .n = n,
    };
    k->coded(&job);
    job.first = block + (uint32_t)inner;
    k->coded(&job);
    for (uint32_t r = 0; r < n; r++) {
        float *gate = gate_up + r * stride;
        k->swiglu_coded(gate + block, gate + inner + block, PGL_HADAMARD, gate + block);
        k->coded_input(&c->moe->down, expert, block, PGL_HADAMARD, gate,
                       b->w.xd + (pair + r) * cpu_padded(inner));
    }
}

static void down_task(void *context, uint32_t task, uint32_t thread) {
    const moe_context *c = context;
    cpu_backend *b = c->b;
    uint32_t expert = b->active[task / c->n_blocks];
    uint32_t pair = b->expert_first[expert], n = b->expert_first[expert + 1] - pair;
    size_t hidden = b->model->config->hidden_size, inner = b->model->config->moe_intermediate_size;
    (void)thread;
    pgl_coded_job job = {
        .coded = &c->moe->down,
        .expert = expert,
        .first = task % c->n_blocks * PGL_HADAMARD,
        .count = PGL_HADAMARD,
        .xh = b->w.xd + pair * cpu_padded(inner),
        .xh_stride = cpu_padded(inner),
        .y = b->w.yd + pair * cpu_padded(hidden),
        .y_stride = cpu_padded(hidden),
        .n = n,
    };
    b->k->coded(&job);
}

static void shared_inner_task(void *context, uint32_t task, uint32_t thread) {
    const moe_context *c = context;
    cpu_backend *b = c->b;
    uint32_t inner = b->model->config->shared_intermediate_size;
    float *gate = b->w.inner + (size_t)task * inner;
    (void)thread;
    b->k->swiglu(gate, b->w.inner_up + (size_t)task * inner, inner, gate);
    b->k->round16(gate, inner, b->w.rounded + task * cpu_padded(inner));
}

/* Residual += routed sum + gated shared expert. */
static void mix_task(void *context, uint32_t task, uint32_t thread) {
    const moe_context *c = context;
    cpu_backend *b = c->b;
    uint32_t used = b->model->n_used, hidden = b->model->config->hidden_size;
    const float *slot[CPU_MOST_USED];
    (void)thread;
    for (uint32_t s = 0; s < used; s++)
        slot[s] = b->w.yd + b->w.pair_of[(size_t)task * used + s] * cpu_padded(hidden);
    pgl_mix_job job = {
        .weight = b->w.weight + (size_t)task * used,
        .slot = slot,
        .n_slots = used,
        .n = hidden,
        .x = b->w.x + (size_t)task * hidden,
    };
    if (b->model->config->shared_intermediate_size > 0) {
        job.shared = b->w.shared + (size_t)task * hidden;
        job.gate = pgl_sigmoid(b->w.shared_gate[task]);
    }
    b->k->mix(&job);
}

/* Bytes of one expert of a coded stack. */
static uint64_t expert_bytes(const pgl_coded *coded) {
    uint64_t vectors = 2 + (coded->s_in != NULL ? 4 : 0);
    return (uint64_t)coded->in * coded->out * coded->k / 8 + vectors * (coded->in + (uint64_t)coded->out);
}

static void experts(cpu_backend *b, moe_context *c) {
    const pgl_config *config = b->model->config;
    const pgl_moe_weights *moe = c->moe;
    uint32_t n = b->batch.n_tokens, n_pairs = n * b->model->n_used;
    bool shared = config->shared_intermediate_size > 0;
    cpu_work inputs[] = {{expert_input_task, c, n_pairs}, {shared_inner_task, c, shared ? n : 0}};
    cpu_run(b, inputs, 2);
    c->n_blocks = config->moe_intermediate_size / PGL_HADAMARD;
    cpu_work up = {gate_up_task, c, c->n_active * c->n_blocks};
    cpu_run(b, &up, 1);
    c->n_blocks = config->hidden_size / PGL_HADAMARD;
    cpu_work down[2] = {{down_task, c, c->n_active * c->n_blocks}};
    cpu_dense_context context;
    const cpu_product product = {&moe->shared_down, b->w.shared};
    bool dense = shared && moe->shared_down.kind != PGL_LINEAR_CODED;
    if (dense)
        down[1] = cpu_dense_work(b, &context, &product, b->w.rounded, n);
    cpu_run(b, down, dense ? 2 : 1);
    if (shared && !dense)
        cpu_products(b, b->w.inner, n, &product, 1);
    b->bytes_read += c->n_active * (expert_bytes(&moe->gate_up) + expert_bytes(&moe->down));
}

static void moe_mlp(cpu_backend *b, const cpu_layer *layer) {
    const pgl_moe_weights *moe = &layer->weights->moe;
    uint32_t n = b->batch.n_tokens;
    bool shared = b->model->config->shared_intermediate_size > 0;
    const cpu_product in[] = {
        {&moe->router, b->w.router},
        {&moe->shared_gate, b->w.inner},
        {&moe->shared_up, b->w.inner_up},
        {&moe->shared_expert_gate, b->w.shared_gate},
    };
    cpu_products(b, b->w.h, n, in, shared ? 4 : 1);
    moe_context c = {.b = b, .moe = moe};
    cpu_work route = {route_task, &c, (n + ROUTES_PER_TASK - 1) / ROUTES_PER_TASK};
    cpu_run(b, &route, 1);
    c.n_active = sort_pairs(b);
    experts(b, &c);
    cpu_work mix = {mix_task, &c, n};
    cpu_run(b, &mix, 1);
}

/* ---- dense models */

static void dense_inner_task(void *context, uint32_t task, uint32_t thread) {
    const moe_context *c = context;
    cpu_backend *b = c->b;
    uint32_t inner = b->model->config->intermediate_size;
    float *gate = b->w.inner + (size_t)task * inner;
    const float *up = b->w.inner_up + (size_t)task * inner;
    bool coded = c->moe->gate.kind == PGL_LINEAR_CODED && c->moe->up.kind == PGL_LINEAR_CODED;
    (void)thread;
    if (coded)
        b->k->swiglu_coded(gate, up, inner, gate);
    else
        b->k->swiglu(gate, up, inner, gate);
}

static void dense_mlp(cpu_backend *b, const cpu_layer *layer) {
    const pgl_moe_weights *moe = &layer->weights->moe;
    uint32_t n = b->batch.n_tokens;
    const cpu_product in[] = {{&moe->gate, b->w.inner}, {&moe->up, b->w.inner_up}};
    cpu_products(b, b->w.h, n, in, 2);
    moe_context c = {.b = b, .moe = moe};
    cpu_work inner = {dense_inner_task, &c, n};
    cpu_run(b, &inner, 1);
    const cpu_product out = {&moe->down_dense, b->w.y};
    cpu_products(b, b->w.inner, n, &out, 1);
    cpu_add_rows(b, b->w.y, b->w.x, n);
}

void cpu_mlp(cpu_backend *b, const cpu_layer *layer) {
    if (b->model->config->n_experts > 0)
        moe_mlp(b, layer);
    else
        dense_mlp(b, layer);
}
