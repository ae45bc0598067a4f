/* Owns nothing: the gated delta net on the spans of a batch, and the commit of pending tokens. Work is split by span
 * and key head: the convolution of its channels, then its value heads one after the other, token by token, so that a
 * head's state stays in the nearest cache. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "codec/codec.h"
#include "model/ops.h"

/* n tokens of one sequence in one delta layer. */
typedef struct delta_tokens {
    cpu_backend *b;
    const cpu_layer *layer;
    float *u; /* [n][u_stride]: inputs of the convolution, changed in place */
    size_t u_stride;
    const float *a, *beta; /* [n][gate_stride]: in_proj_a and in_proj_b */
    size_t gate_stride;
    const float *z; /* [n][value_width], or NULL: the state alone is wanted */
    float *o;       /* [n][value_width] */
    uint32_t n;
    float *taps;  /* of all channels */
    float *state; /* of all value heads */
    bool keep;    /* taps and state are copies for this key head only: [.. channels], [one value head] */
} delta_tokens;

static void conv_channels(const delta_tokens *t, uint32_t first, uint32_t count) {
    const pgl_model *m = t->b->model;
    pgl_conv_job job = {
        .w = t->layer->conv,
        .width = m->conv_width,
        .kernel = m->config->conv_kernel,
        .first = first,
        .count = count,
        .taps = t->taps,
        .u = t->u,
        .u_stride = t->u_stride,
        .n = t->n,
    };
    t->b->k->conv(&job);
}

static void value_head(const delta_tokens *t, uint32_t key_head, uint32_t head, float *s) {
    const pgl_model *m = t->b->model;
    const pgl_config *c = m->config;
    const pgl_kernels *k = t->b->k;
    uint32_t dk = c->key_dim, dv = c->value_dim;
    for (uint32_t i = 0; i < t->n; i++) {
        float *u = t->u + i * t->u_stride;
        const float *q = u + (size_t)key_head * dk;
        size_t gate = i * t->gate_stride + head;
        float *o = t->o + (size_t)i * m->value_width + (size_t)head * dv;
        pgl_delta_job job = {
            .s = s,
            .q = q,
            .k = q + m->key_width,
            .v = u + 2 * (size_t)m->key_width + (size_t)head * dv,
            .decay = pgl_delta_decay(t->layer->a_log[head], t->layer->dt_bias[head], t->a[gate]),
            .beta = pgl_sigmoid(t->beta[gate]),
            .dk = dk,
            .dv = dv,
            .o = o,
        };
        k->delta(&job);
        if (t->z != NULL)
            k->gated_norm(o, t->z + (size_t)i * m->value_width + (size_t)head * dv, t->layer->delta_norm,
                          c->rms_norm_eps, dv, o);
    }
}

static void key_head_tokens(const delta_tokens *t, uint32_t key_head, uint32_t thread) {
    cpu_backend *b = t->b;
    const pgl_model *m = b->model;
    const pgl_config *c = m->config;
    uint32_t dk = c->key_dim, share = c->n_value_heads / c->n_key_heads;
    uint32_t values = 2 * m->key_width + key_head * share * c->value_dim;
    conv_channels(t, key_head * dk, dk);
    conv_channels(t, m->key_width + key_head * dk, dk);
    conv_channels(t, values, share * c->value_dim);
    for (uint32_t i = 0; i < t->n; i++) {
        float *q = t->u + i * t->u_stride + (size_t)key_head * dk;
        b->k->l2_norm(q, dk, 1.0F / sqrtf((float)dk));
        b->k->l2_norm(q + m->key_width, dk, 1.0F);
    }
    size_t head_floats = (size_t)dk * c->value_dim;
    for (uint32_t h = key_head * share; h < (key_head + 1) * share; h++) {
        float *s = t->state + h * head_floats;
        if (t->keep) {
            float *copy = b->head_state + thread * head_floats;
            memcpy(copy, s, head_floats * sizeof *s);
            s = copy;
        }
        value_head(t, key_head, h, s);
    }
}

/* ---- rows */

typedef struct mixer_context {
    cpu_backend *b;
    const cpu_layer *layer;
} mixer_context;

/* The taps of one key head's channels, in the thread's own copy. */
static float *copy_taps(const cpu_backend *b, const float *taps, uint32_t key_head, uint32_t thread) {
    const pgl_model *m = b->model;
    const pgl_config *c = m->config;
    uint32_t n_taps = c->conv_kernel - 1, share = c->n_value_heads / c->n_key_heads;
    float *copy = b->head_taps + (size_t)thread * n_taps * m->conv_width;
    const struct {
        size_t first, count;
    } parts[] = {
        {(size_t)key_head * c->key_dim, c->key_dim},
        {m->key_width + (size_t)key_head * c->key_dim, c->key_dim},
        {2 * (size_t)m->key_width + (size_t)key_head * share * c->value_dim, (size_t)share * c->value_dim},
    };
    for (uint32_t j = 0; j < n_taps; j++) {
        for (size_t p = 0; p < 3; p++) {
            size_t at = (size_t)j * m->conv_width + parts[p].first;
            memcpy(copy + at, taps + at, parts[p].count * sizeof *taps);
        }
    }
    return copy;
}

static void mixer_task(void *context, uint32_t task, uint32_t thread) {
    const mixer_context *c = context;
    cpu_backend *b = c->b;
    const pgl_model *m = b->model;
    uint32_t n_key_heads = m->config->n_key_heads, nv = m->config->n_value_heads;
    const pgl_span *span = &b->batch.spans[task / n_key_heads];
    uint32_t key_head = task % n_key_heads;
    float *slot = cpu_slot_state(b, span->slot);
    bool verify = span->row->kind == PGL_ROW_VERIFY;
    delta_tokens t = {
        .b = b,
        .layer = c->layer,
        .u = b->w.u + (size_t)span->first * m->conv_width,
        .u_stride = m->conv_width,
        .a = b->w.a + (size_t)span->first * nv,
        .beta = b->w.b + (size_t)span->first * nv,
        .gate_stride = nv,
        .z = b->w.z + (size_t)span->first * m->value_width,
        .o = b->w.o + (size_t)span->first * m->value_width,
        .n = span->n,
        .taps = cpu_delta_taps(b, slot, c->layer->slot),
        .state = cpu_delta_state(b, slot, c->layer->slot),
        .keep = verify,
    };
    if (verify)
        t.taps = copy_taps(b, t.taps, key_head, thread);
    key_head_tokens(&t, key_head, thread);
}

/* Verify rows leave their inputs behind. */
static void keep_inputs(cpu_backend *b, const cpu_layer *layer) {
    const pgl_model *m = b->model;
    size_t nv = m->config->n_value_heads;
    for (uint32_t s = 0; s < b->batch.n_spans; s++) {
        const pgl_span *span = &b->batch.spans[s];
        if (span->row->kind != PGL_ROW_VERIFY)
            continue;
        for (uint32_t i = 0; i < span->n; i++) {
            float *kept = cpu_pending_inputs(b, span->slot, layer->slot, i);
            size_t token = (size_t)span->first + i;
            memcpy(kept, b->w.u + token * m->conv_width, m->conv_width * sizeof *kept);
            memcpy(kept + m->conv_width, b->w.a + token * nv, nv * sizeof *kept);
            memcpy(kept + m->conv_width + nv, b->w.b + token * nv, nv * sizeof *kept);
        }
    }
}

void cpu_delta_mixer(cpu_backend *b, const cpu_layer *layer) {
    const pgl_delta_weights *w = &layer->weights->delta;
    const pgl_model *m = b->model;
    uint32_t n = b->batch.n_tokens;
    const cpu_product in[] = {
        {&w->in_proj_qkv, b->w.u}, {&w->in_proj_z, b->w.z}, {&w->in_proj_a, b->w.a}, {&w->in_proj_b, b->w.b}};
    cpu_products(b, b->w.h, n, in, 4);
    keep_inputs(b, layer);
    mixer_context c = {b, layer};
    cpu_work work = {mixer_task, &c, b->batch.n_spans * m->config->n_key_heads};
    cpu_run(b, &work, 1);
    b->bytes_read += b->batch.n_spans * (m->state_bytes + m->conv_bytes) / m->n_delta_layers;
    const cpu_product out = {&w->out_proj, b->w.y};
    cpu_products(b, b->w.o, n, &out, 1);
}

/* ---- commit */

typedef struct commit_context {
    cpu_backend *b;
    uint32_t slot, n;
} commit_context;

static void commit_task(void *context, uint32_t task, uint32_t thread) {
    const commit_context *c = context;
    cpu_backend *b = c->b;
    const pgl_model *m = b->model;
    uint32_t nv = m->config->n_value_heads, n_key_heads = m->config->n_key_heads;
    uint32_t delta_layer = task / n_key_heads, l = 0;
    while (b->layers[l].weights->full_attention || b->layers[l].slot != delta_layer)
        l++;
    float *kept = cpu_pending_inputs(b, c->slot, delta_layer, 0);
    float *slot = cpu_slot_state(b, c->slot);
    size_t stride = (size_t)m->conv_width + 2 * (size_t)nv;
    delta_tokens t = {
        .b = b,
        .layer = &b->layers[l],
        .u = kept,
        .u_stride = stride,
        .a = kept + m->conv_width,
        .beta = kept + m->conv_width + nv,
        .gate_stride = stride,
        .o = b->commit_outputs +
             (size_t)thread * (b->base.caps.max_draft + 1) * m->value_width, /* not wanted */
        .n = c->n,
        .taps = cpu_delta_taps(b, slot, delta_layer),
        .state = cpu_delta_state(b, slot, delta_layer),
    };
    key_head_tokens(&t, task % n_key_heads, thread);
}

void cpu_commit(cpu_backend *b, uint32_t slot, uint32_t n) {
    if (n == 0)
        return;
    const pgl_model *m = b->model;
    commit_context c = {b, slot, n};
    cpu_work work = {commit_task, &c, m->n_delta_layers * m->config->n_key_heads};
    if (m->n_delta_layers > 0)
        cpu_run(b, &work, 1);
    memcpy(cpu_last_hidden(b, cpu_slot_state(b, slot)), cpu_pending_hidden(b, slot, n - 1),
           m->config->hidden_size * sizeof(float));
    b->bytes_read += m->state_bytes + m->conv_bytes;
}
