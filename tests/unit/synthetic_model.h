/* For tests: small random models built in memory, for the cases that the goldens do not cover (every K, BF16 and F32,
 * real s_in and s_out, biases, dense models, routing ties, a draft head with experts of its own). All data stands at
 * odd addresses, as a checkpoint may have it. Widths are multiples of 128 so that any linear may be coded. */
#ifndef PGL_TESTS_SYNTHETIC_MODEL_H
#define PGL_TESTS_SYNTHETIC_MODEL_H

#include <stdlib.h>
#include <string.h>

#include "base/fp16.h"
#include "checkpoint/weights.h"
#include "test_random.h"

typedef struct synthetic_options {
    uint64_t seed;
    uint32_t k_gate_up, k_down; /* 0: 2 and 3 */
    pgl_dtype plain;            /* of norms, router and plain linears; PGL_NONE: F16 */
    bool plain_linears;         /* dense linears as rows of `plain` instead of int8 */
    bool f32_scales;            /* int8 scales as F32 instead of F16 */
    bool real_scales;           /* coded linears have s_in and s_out away from one */
    bool coded_bias;            /* coded linears have a bias */
    bool attention_bias;
    bool dense;         /* no experts */
    bool coded_linears; /* every linear of every layer coded (the router and its like excepted) */
    bool ties;          /* router rows repeat: exact ties at every token */
    bool no_shared;     /* no shared expert */
    bool tied;          /* the head is the embedding */
    bool draft, draft_own_experts;
} synthetic_options;

typedef struct synthetic_model {
    pgl_config config;
    pgl_weights weights;
    pgl_layer_weights layers[4];
    synthetic_options options;
    uint64_t seed;
    void *blocks[512];
    int n_blocks;
} synthetic_model;

static inline unsigned char *synthetic_block(synthetic_model *s, size_t bytes) {
    unsigned char *block = calloc(1, bytes + 1);
    assert_non_null(block);
    assert_true(s->n_blocks < 512);
    s->blocks[s->n_blocks++] = block;
    return block + 1;
}

static inline void synthetic_free(synthetic_model *s) {
    for (int i = 0; i < s->n_blocks; i++)
        free(s->blocks[i]);
    free(s);
}

/* n numbers, uniform in centre +- spread, of the given type. */
static inline void *synthetic_numbers(synthetic_model *s, size_t n, pgl_dtype dtype, float centre,
                                      float spread) {
    unsigned char *data = synthetic_block(s, n * pgl_dtype_size(dtype));
    for (size_t i = 0; i < n; i++) {
        float f = centre + spread * random_float(&s->seed);
        uint16_t h = dtype == PGL_BF16 ? pgl_f32_to_bf16(f) : pgl_f32_to_f16(f);
        if (dtype == PGL_F32)
            memcpy(data + 4 * i, &f, 4);
        else
            memcpy(data + 2 * i, &h, 2);
    }
    return data;
}

static inline pgl_vec synthetic_vec(synthetic_model *s, uint32_t n, float centre, float spread) {
    return (pgl_vec){synthetic_numbers(s, n, s->options.plain, centre, spread), s->options.plain, n};
}

static inline pgl_coded synthetic_coded(synthetic_model *s, uint32_t experts, uint32_t in, uint32_t out,
                                        uint32_t k, float gain) {
    pgl_coded c = {.n_experts = experts, .in = in, .out = out, .k = k};
    size_t bytes = (size_t)experts * in * out * k / 8, n_in = (size_t)experts * in,
           n_out = (size_t)experts * out;
    unsigned char *code = synthetic_block(s, bytes);
    for (size_t i = 0; i < bytes; i++)
        code[i] = (unsigned char)random_next(&s->seed);
    c.code = code;
    unsigned char *rin = synthetic_block(s, n_in * 2);
    for (size_t i = 0; i < n_in; i++) {
        uint16_t h = pgl_f32_to_f16(random_float(&s->seed) > 0 ? 1.0F : -1.0F);
        memcpy(rin + 2 * i, &h, 2);
    }
    c.rin = rin;
    /* the code's weights have a deviation of 1.24 */
    unsigned char *rout =
        synthetic_numbers(s, n_out, PGL_F16, 0, gain * 1.7F / 1.24F / __builtin_sqrtf((float)in));
    for (size_t o = 5; o < n_out; o += 11)
        memset(rout + 2 * o, 0, 2); /* exact zeros occur */
    c.rout = rout;
    if (s->options.real_scales) {
        c.s_in = synthetic_numbers(s, n_in, PGL_F32, 1, 0.5F);
        c.s_out = synthetic_numbers(s, n_out, PGL_F32, 1, 0.5F);
    }
    if (s->options.coded_bias)
        c.bias = synthetic_numbers(s, n_out, PGL_F16, 0, 0.1F);
    return c;
}

typedef enum synthetic_kind { SYNTHETIC_MAY_CODE, SYNTHETIC_ROWS, SYNTHETIC_PLAIN } synthetic_kind;

static inline pgl_linear synthetic_linear(synthetic_model *s, uint32_t out, uint32_t in, synthetic_kind kind,
                                          float gain) {
    const synthetic_options *o = &s->options;
    pgl_linear l = {.in = in, .out = out};
    float spread = gain * 1.7F / __builtin_sqrtf((float)in);
    if (kind == SYNTHETIC_MAY_CODE && o->coded_linears) {
        l.kind = PGL_LINEAR_CODED;
        l.coded = synthetic_coded(s, 1, in, out, o->k_gate_up, gain);
    } else if (kind == SYNTHETIC_PLAIN || o->plain_linears) {
        l.kind = PGL_LINEAR_PLAIN;
        l.dtype = o->plain;
        l.data = synthetic_numbers(s, (size_t)in * out, o->plain, 0, spread);
    } else {
        l.kind = PGL_LINEAR_INT8;
        l.dtype = PGL_I8;
        unsigned char *w8 = synthetic_block(s, (size_t)in * out);
        for (size_t i = 0; i < (size_t)in * out; i++)
            w8[i] = (unsigned char)random_next(&s->seed);
        l.data = w8;
        l.scale_dtype = o->f32_scales ? PGL_F32 : PGL_F16;
        l.scale = synthetic_numbers(s, out, l.scale_dtype, spread / 127, spread / 300);
    }
    return l;
}

static inline void synthetic_mlp(synthetic_model *s, pgl_moe_weights *m, bool own_experts) {
    const pgl_config *c = &s->config;
    const synthetic_options *o = &s->options;
    uint32_t h = c->hidden_size;
    if (o->dense) {
        m->gate = synthetic_linear(s, c->intermediate_size, h, SYNTHETIC_MAY_CODE, 1);
        m->up = synthetic_linear(s, c->intermediate_size, h, SYNTHETIC_MAY_CODE, 1);
        m->down_dense = synthetic_linear(s, h, c->intermediate_size, SYNTHETIC_MAY_CODE, 1);
        return;
    }
    m->router = synthetic_linear(s, c->n_experts, h, SYNTHETIC_PLAIN, 2);
    if (o->ties) { /* the rows of the last half are those of the first half */
        size_t half = (size_t)c->n_experts / 2 * h * pgl_dtype_size(o->plain);
        memcpy((unsigned char *)(uintptr_t)m->router.data + half, m->router.data, half);
    }
    if (own_experts) {
        m->gate_up = synthetic_coded(s, c->n_experts, h, 2 * c->moe_intermediate_size, o->k_gate_up, 1);
        m->down = synthetic_coded(s, c->n_experts, c->moe_intermediate_size, h, o->k_down, 2);
    }
    if (o->no_shared)
        return;
    m->shared_gate = synthetic_linear(s, c->shared_intermediate_size, h, SYNTHETIC_ROWS, 1);
    m->shared_up = synthetic_linear(s, c->shared_intermediate_size, h, SYNTHETIC_ROWS, 1);
    m->shared_down = synthetic_linear(s, h, c->shared_intermediate_size, SYNTHETIC_ROWS, 2);
    m->shared_expert_gate = synthetic_linear(s, 1, h, SYNTHETIC_PLAIN, 1);
}

static inline void synthetic_attention(synthetic_model *s, pgl_attention_weights *a) {
    const pgl_config *c = &s->config;
    uint32_t h = c->hidden_size, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    a->q_proj = synthetic_linear(s, 2 * q, h, SYNTHETIC_MAY_CODE, 1);
    a->k_proj = synthetic_linear(s, kv, h, SYNTHETIC_MAY_CODE, 1);
    a->v_proj = synthetic_linear(s, kv, h, SYNTHETIC_MAY_CODE, 1);
    a->o_proj = synthetic_linear(s, h, q, SYNTHETIC_MAY_CODE, 1);
    a->q_norm = synthetic_vec(s, c->head_dim, 0.5F, 0.5F);
    a->k_norm = synthetic_vec(s, c->head_dim, 0.5F, 0.5F);
    if (c->attention_bias) {
        pgl_linear *all[] = {&a->q_proj, &a->k_proj, &a->v_proj, &a->o_proj};
        for (int i = 0; i < 4; i++) {
            if (all[i]->kind != PGL_LINEAR_CODED)
                all[i]->bias = synthetic_vec(s, all[i]->out, 0, 0.3F);
        }
    }
}

static inline void synthetic_layer(synthetic_model *s, pgl_layer_weights *l, bool full_attention,
                                   bool own_experts) {
    const pgl_config *c = &s->config;
    uint32_t h = c->hidden_size, values = c->n_value_heads * c->value_dim;
    uint32_t conv = 2 * c->n_key_heads * c->key_dim + values;
    l->full_attention = full_attention;
    l->input_norm = synthetic_vec(s, h, 0, 0.2F);
    l->post_attention_norm = synthetic_vec(s, h, 0, 0.2F);
    if (full_attention) {
        synthetic_attention(s, &l->attention);
    } else {
        pgl_delta_weights *d = &l->delta;
        d->in_proj_qkv = synthetic_linear(s, conv, h, SYNTHETIC_MAY_CODE, 1);
        d->in_proj_z = synthetic_linear(s, values, h, SYNTHETIC_MAY_CODE, 1);
        d->in_proj_a = synthetic_linear(s, c->n_value_heads, h, SYNTHETIC_PLAIN, 1);
        d->in_proj_b = synthetic_linear(s, c->n_value_heads, h, SYNTHETIC_PLAIN, 1);
        d->out_proj = synthetic_linear(s, h, values, SYNTHETIC_MAY_CODE, 1);
        d->conv1d = synthetic_vec(s, conv * c->conv_kernel, 0.2F, 0.5F);
        d->a_log = synthetic_vec(s, c->n_value_heads, 0, 1.5F);
        d->dt_bias = synthetic_vec(s, c->n_value_heads, 0, 1.5F);
        d->norm = synthetic_vec(s, c->value_dim, 1, 0.2F);
    }
    synthetic_mlp(s, &l->moe, own_experts);
}

static inline synthetic_model *synthetic_new(const synthetic_options *options) {
    synthetic_model *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->options = *options;
    synthetic_options *o = &s->options;
    o->plain = o->plain == PGL_NONE ? PGL_F16 : o->plain;
    o->k_gate_up = o->k_gate_up == 0 ? 2 : o->k_gate_up;
    o->k_down = o->k_down == 0 ? 3 : o->k_down;
    s->seed = options->seed;
    s->config = (pgl_config){
        .vocab_size = 96,
        .hidden_size = 128,
        .n_layers = 4,
        .full_attention = {false, true, false, true},
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = 64,
        .rotary_dim = 16,
        .rope_theta = 10000.0,
        .attention_bias = o->attention_bias,
        .n_key_heads = 2,
        .n_value_heads = 4,
        .key_dim = 32,
        .value_dim = 32,
        .conv_kernel = 4,
        .n_experts = o->dense ? 0 : 6,
        .n_experts_used = o->dense ? 0 : 3,
        .moe_intermediate_size = o->dense ? 0 : 128,
        .shared_intermediate_size = o->dense || o->no_shared ? 0 : 64,
        .intermediate_size = o->dense ? 256 : 0,
        .rms_norm_eps = 1e-6F,
        .max_position_embeddings = 4096,
        .tie_word_embeddings = o->tied,
        .n_mtp_layers = o->draft,
        .eos = {1},
        .n_eos = 1,
        .quant_method = o->dense ? PGL_QUANT_ESCHA : PGL_QUANT_ESCHAMOE,
    };
    const pgl_config *c = &s->config;
    uint32_t h = c->hidden_size;
    pgl_weights *w = &s->weights;
    w->embed = synthetic_linear(s, c->vocab_size, h, SYNTHETIC_ROWS, 10);
    w->head = o->tied ? w->embed : synthetic_linear(s, c->vocab_size, h, SYNTHETIC_ROWS, 2);
    w->norm = synthetic_vec(s, h, 0, 0.2F);
    w->layers = s->layers;
    for (uint32_t l = 0; l < c->n_layers; l++)
        synthetic_layer(s, &s->layers[l], c->full_attention[l], true);
    if (o->draft) {
        pgl_draft_weights *d = &w->draft;
        d->present = true;
        d->fc = synthetic_linear(s, h, 2 * h, SYNTHETIC_PLAIN, 1);
        d->pre_fc_norm_embedding = synthetic_vec(s, h, 0, 0.2F);
        d->pre_fc_norm_hidden = synthetic_vec(s, h, 0, 0.2F);
        d->norm = synthetic_vec(s, h, 0, 0.2F);
        synthetic_layer(s, &d->layer, true, o->draft_own_experts);
        if (!o->draft_own_experts && !o->dense) {
            d->borrows_experts = true;
            d->borrowed_layer = c->n_layers / 2;
            d->layer.moe.gate_up = s->layers[d->borrowed_layer].moe.gate_up;
            d->layer.moe.down = s->layers[d->borrowed_layer].moe.down;
        }
    }
    return s;
}

#endif
