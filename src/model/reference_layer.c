/* Owns nothing: one decoder layer of a reference sequence, on the rows in its work space. reference.h states
 * the order of operations. */
#include <math.h>
#include <string.h>

#include "codec/codec.h"
#include "model/linear.h"
#include "model/ops.h"
#include "model/reference_impl.h"

static float stored_f16(const pgl_reference *seq, float x) {
    return seq->exact ? x : pgl_round_f16(x);
}

static void linear(pgl_reference *seq, const pgl_linear *weights, const float *x, float *y, uint32_t n) {
    pgl_rows rows = {.x = x, .y = y, .n = n, .exact = seq->exact, .scratch = seq->work.linear};
    pgl_linear_forward(weights, &rows);
}

static void delta_row(pgl_reference *seq, const pgl_reference_layer *layer, uint32_t row) {
    const pgl_model *m = seq->model;
    const pgl_config *c = m->config;
    const pgl_delta_weights *w = &layer->weights->delta;
    uint32_t dk = c->key_dim, dv = c->value_dim, share = c->n_value_heads / c->n_key_heads;
    float *u = seq->work.u + (size_t)row * m->conv_width;
    float *o = seq->work.o + (size_t)row * m->value_width;
    const float *z = seq->work.z + (size_t)row * m->value_width;
    float *taps = seq->taps + (size_t)layer->slot * (c->conv_kernel - 1) * m->conv_width;
    float *state = seq->state + (size_t)layer->slot * m->value_width * dk;

    pgl_conv_step(&w->conv1d, m->conv_width, c->conv_kernel, taps, u, u);
    float *q = u, *k = u + m->key_width, *v = u + 2 * (size_t)m->key_width;
    for (uint32_t h = 0; h < c->n_key_heads; h++) {
        pgl_l2_norm(q + (size_t)h * dk, dk, 1.0F / sqrtf((float)dk));
        pgl_l2_norm(k + (size_t)h * dk, dk, 1.0F);
    }
    for (uint32_t h = 0; h < c->n_value_heads; h++) {
        size_t key = (size_t)(h / share) * dk, value = (size_t)h * dv;
        size_t gate = (size_t)row * c->n_value_heads + h;
        pgl_delta_head head = {
            .s = state + (size_t)h * dk * dv,
            .q = q + key,
            .k = k + key,
            .v = v + value,
            .decay = pgl_delta_decay(pgl_vec_at(&w->a_log, h), pgl_vec_at(&w->dt_bias, h), seq->work.a[gate]),
            .beta = pgl_sigmoid(seq->work.b[gate]),
            .dk = dk,
            .dv = dv,
            .o = o + value,
            .scratch = seq->work.small,
        };
        pgl_delta_step(&head);
        pgl_gated_norm(o + value, z + value, &w->norm, c->rms_norm_eps, dv, o + value);
    }
}

static void delta_mixer(pgl_reference *seq, const pgl_reference_layer *layer) {
    const pgl_delta_weights *w = &layer->weights->delta;
    pgl_reference_work *work = &seq->work;
    linear(seq, &w->in_proj_qkv, work->h, work->u, layer->n);
    linear(seq, &w->in_proj_z, work->h, work->z, layer->n);
    linear(seq, &w->in_proj_a, work->h, work->a, layer->n);
    linear(seq, &w->in_proj_b, work->h, work->b, layer->n);
    for (uint32_t row = 0; row < layer->n; row++)
        delta_row(seq, layer, row);
    linear(seq, &w->out_proj, work->o, work->y, layer->n);
}

static void attention_row(pgl_reference *seq, const pgl_reference_layer *layer, uint32_t row) {
    const pgl_model *m = seq->model;
    const pgl_config *c = m->config;
    const pgl_attention_weights *w = &layer->weights->attention;
    pgl_reference_kv *kv = &seq->kv[layer->slot];
    uint32_t dim = c->head_dim, share = c->n_heads / c->n_kv_heads;
    uint64_t position = layer->position + row;
    float *cosine = seq->work.small, *sine = cosine + c->rotary_dim / 2;
    pgl_rope_angles(c->rope_theta, c->rotary_dim, position, cosine, sine);

    float *k = seq->work.k + (size_t)row * m->kv_width;
    const float *v = seq->work.v + (size_t)row * m->kv_width;
    for (uint32_t h = 0; h < c->n_kv_heads; h++) {
        float *head = k + (size_t)h * dim;
        pgl_norm(head, &w->k_norm, c->rms_norm_eps, dim, head);
        pgl_rope(head, c->rotary_dim, cosine, sine);
    }
    for (uint32_t i = 0; i < m->kv_width; i++) {
        kv->keys[position * m->kv_width + i] = stored_f16(seq, k[i]);
        kv->values[position * m->kv_width + i] = stored_f16(seq, v[i]);
    }
    for (uint32_t h = 0; h < c->n_heads; h++) {
        float *q = seq->work.q + (size_t)row * 2 * m->q_width + (size_t)h * 2 * dim;
        const float *gate = q + dim;
        float *o = seq->work.attended + (size_t)row * m->q_width + (size_t)h * dim;
        pgl_norm(q, &w->q_norm, c->rms_norm_eps, dim, q);
        pgl_rope(q, c->rotary_dim, cosine, sine);
        pgl_attention_head head = {
            .q = q,
            .keys = kv->keys + (size_t)(h / share) * dim,
            .values = kv->values + (size_t)(h / share) * dim,
            .stride = m->kv_width,
            .n = (size_t)position + 1,
            .head_dim = dim,
            .p = seq->scores,
            .o = o,
        };
        pgl_attention_step(&head);
        for (uint32_t i = 0; i < dim; i++)
            o[i] = o[i] * pgl_sigmoid(gate[i]);
    }
}

static void attention_mixer(pgl_reference *seq, const pgl_reference_layer *layer) {
    const pgl_attention_weights *w = &layer->weights->attention;
    pgl_reference_work *work = &seq->work;
    linear(seq, &w->q_proj, work->h, work->q, layer->n);
    linear(seq, &w->k_proj, work->h, work->k, layer->n);
    linear(seq, &w->v_proj, work->h, work->v, layer->n);
    for (uint32_t row = 0; row < layer->n; row++)
        attention_row(seq, layer, row);
    linear(seq, &w->o_proj, work->attended, work->y, layer->n);
}

void pgl_reference_route(pgl_reference *seq, const pgl_moe_weights *moe, uint32_t n) {
    pgl_reference_work *work = &seq->work;
    uint32_t n_experts = seq->model->config->n_experts, used = seq->model->n_used;
    linear(seq, &moe->router, work->h, work->router, n);
    for (uint32_t row = 0; row < n; row++) {
        float *logits = work->router + (size_t)row * n_experts;
        float *weight = work->route_weight + (size_t)row * used;
        for (uint32_t e = 0; e < n_experts; e++)
            logits[e] = stored_f16(seq, logits[e]);
        pgl_route(logits, n_experts, used, work->experts + (size_t)row * used, weight);
        for (uint32_t s = 0; s < used; s++)
            weight[s] = stored_f16(seq, weight[s]);
    }
}

/* All rows that chose expert e, together; their outputs go to work.slots [row][slot][hidden]. */
static void run_expert(pgl_reference *seq, const pgl_moe_weights *moe, uint32_t e, uint32_t n) {
    pgl_reference_work *work = &seq->work;
    uint32_t hidden = seq->model->config->hidden_size, used = seq->model->n_used;
    uint32_t m = seq->model->config->moe_intermediate_size, count = 0;
    uint32_t place[PGL_REFERENCE_CHUNK]; /* row * used + slot of each gathered row */
    for (uint32_t i = 0; i < n * used; i++) {
        if (work->experts[i] != (int32_t)e)
            continue;
        memcpy(work->gathered + (size_t)count * hidden, work->h + (size_t)(i / used) * hidden,
               hidden * sizeof *work->h);
        place[count++] = i; /* an expert takes at most one slot of a row */
    }
    if (count == 0)
        return;
    pgl_rows up = {work->gathered, work->gate_up, count, seq->exact, work->linear};
    pgl_coded_forward(&moe->gate_up, e, &up);
    for (uint32_t i = 0; i < count; i++) {
        const float *gate = work->gate_up + (size_t)i * 2 * m;
        pgl_swiglu_coded(gate, gate + m, m, seq->exact, work->act + (size_t)i * m);
    }
    pgl_rows down = {work->act, work->expert_y, count, seq->exact, work->linear};
    pgl_coded_forward(&moe->down, e, &down);
    for (uint32_t i = 0; i < count; i++)
        memcpy(work->slots + (size_t)place[i] * hidden, work->expert_y + (size_t)i * hidden,
               hidden * sizeof *work->slots);
}

static void shared_expert(pgl_reference *seq, const pgl_moe_weights *moe, uint32_t n) {
    pgl_reference_work *work = &seq->work;
    uint32_t hidden = seq->model->config->hidden_size;
    size_t inter = seq->model->config->shared_intermediate_size;
    linear(seq, &moe->shared_gate, work->h, work->mlp_gate, n);
    linear(seq, &moe->shared_up, work->h, work->mlp_up, n);
    for (uint32_t row = 0; row < n; row++)
        pgl_swiglu(work->mlp_gate + row * inter, work->mlp_up + row * inter, (uint32_t)inter,
                   work->mlp_gate + row * inter);
    linear(seq, &moe->shared_down, work->mlp_gate, work->expert_y, n);
    linear(seq, &moe->shared_expert_gate, work->h, work->gate, n);
    for (uint32_t row = 0; row < n; row++) {
        float g = pgl_sigmoid(work->gate[row]);
        for (size_t i = (size_t)row * hidden; i < (size_t)(row + 1) * hidden; i++)
            work->y[i] = fmaf(g, work->expert_y[i], work->y[i]);
    }
}

static void moe_mlp(pgl_reference *seq, const pgl_reference_layer *layer) {
    const pgl_moe_weights *moe = &layer->weights->moe;
    pgl_reference_work *work = &seq->work;
    uint32_t hidden = seq->model->config->hidden_size, used = seq->model->n_used;
    pgl_reference_route(seq, moe, layer->n);
    for (uint32_t e = 0; e < seq->model->config->n_experts; e++)
        run_expert(seq, moe, e, layer->n);
    for (uint32_t row = 0; row < layer->n; row++) {
        const float *weight = work->route_weight + (size_t)row * used;
        const float *slots = work->slots + (size_t)row * used * hidden;
        float *y = work->y + (size_t)row * hidden;
        for (uint32_t i = 0; i < hidden; i++) {
            float sum = 0.0F;
            for (uint32_t s = 0; s < used; s++)
                sum = fmaf(weight[s], slots[(size_t)s * hidden + i], sum);
            y[i] = stored_f16(seq, sum);
        }
    }
    if (seq->model->config->shared_intermediate_size > 0)
        shared_expert(seq, moe, layer->n);
}

static void dense_mlp(pgl_reference *seq, const pgl_reference_layer *layer) {
    const pgl_moe_weights *moe = &layer->weights->moe;
    pgl_reference_work *work = &seq->work;
    size_t inter = seq->model->config->intermediate_size;
    bool coded = moe->gate.kind == PGL_LINEAR_CODED && moe->up.kind == PGL_LINEAR_CODED;
    linear(seq, &moe->gate, work->h, work->mlp_gate, layer->n);
    linear(seq, &moe->up, work->h, work->mlp_up, layer->n);
    for (uint32_t row = 0; row < layer->n; row++) {
        float *gate = work->mlp_gate + row * inter;
        const float *up = work->mlp_up + row * inter;
        if (coded)
            pgl_swiglu_coded(gate, up, (uint32_t)inter, seq->exact, gate);
        else
            pgl_swiglu(gate, up, (uint32_t)inter, gate);
    }
    linear(seq, &moe->down_dense, work->mlp_gate, work->y, layer->n);
}

void pgl_reference_norm_rows(pgl_reference *seq, const pgl_vec *w, uint32_t n) {
    const pgl_config *c = seq->model->config;
    for (uint32_t row = 0; row < n; row++) {
        size_t at = (size_t)row * c->hidden_size;
        pgl_norm(seq->work.x + at, w, c->rms_norm_eps, c->hidden_size, seq->work.h + at);
    }
}

static void add_branch(pgl_reference *seq, uint32_t n) {
    for (size_t i = 0; i < (size_t)n * seq->model->config->hidden_size; i++)
        seq->work.x[i] = seq->work.x[i] + seq->work.y[i];
}

void pgl_reference_mix(pgl_reference *seq, const pgl_reference_layer *layer) {
    pgl_reference_norm_rows(seq, &layer->weights->input_norm, layer->n);
    if (layer->weights->full_attention)
        attention_mixer(seq, layer);
    else
        delta_mixer(seq, layer);
    add_branch(seq, layer->n);
    pgl_reference_norm_rows(seq, &layer->weights->post_attention_norm, layer->n);
}

void pgl_reference_mlp(pgl_reference *seq, const pgl_reference_layer *layer) {
    if (seq->model->config->n_experts > 0)
        moe_mlp(seq, layer);
    else
        dense_mlp(seq, layer);
    add_branch(seq, layer->n);
}

void pgl_reference_layer_forward(pgl_reference *seq, const pgl_reference_layer *layer) {
    pgl_reference_mix(seq, layer);
    pgl_reference_mlp(seq, layer);
}
