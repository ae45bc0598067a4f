/* Owns nothing: the gated delta net and full attention on the tokens of a batch, and the commit of pending tokens.
 *
 * Entries of the trunk and of the draft layer stand in pages as backend/cpu/cpu_attention.c says. */
#include "backend/cuda/cuda.h"

/* The mixer's output, added to the residual. */
static void out_product(cuda_backend *b, const cuda_linear *out, uint32_t width) {
    cuda_input input = {b->w.o, b->w.o16, width, b->batch.n_tokens, true};
    cuda_product product = {out, b->w.x};
    cuda_products(b, &input, &product, 1);
}

static cuda_input normed(const cuda_backend *b) {
    return (cuda_input){b->w.h, b->w.h16, b->model->config->hidden_size, b->batch.n_tokens, false};
}

/* ---- the gated delta net */

/* Of one layer: pending inputs of all slots. */
static size_t pending_rows(const cuda_backend *b, uint32_t delta_layer) {
    return (size_t)delta_layer * b->base.caps.n_slots * (b->base.caps.max_draft + 1);
}

static void run_conv(cuda_backend *b, const cuda_layer *layer, const pgl_cuda_span *spans, uint32_t n_spans,
                     float *u) {
    const pgl_model *m = b->model;
    size_t taps = (size_t)(m->config->conv_kernel - 1) * m->conv_width;
    pgl_conv_args args = {
        .spans = spans,
        .w = layer->conv,
        .u = u,
        .taps = b->state + m->state_bytes / sizeof(float) + layer->slot * taps,
        .slot_stride = b->state_floats,
        .width = m->conv_width,
        .kernel = m->config->conv_kernel,
        .u_stride = m->conv_width,
    };
    CUDA_LAUNCH(b, conv, n_spans, (m->conv_width + PGL_CUDA_THREADS - 1) / PGL_CUDA_THREADS, 1,
                PGL_CUDA_THREADS, &args);
}

static pgl_delta_args delta_args(const cuda_backend *b, const cuda_layer *layer) {
    const pgl_model *m = b->model;
    const pgl_config *c = m->config;
    return (pgl_delta_args){
        .a_log = layer->a_log,
        .dt_bias = layer->dt_bias,
        .norm = layer->delta_norm,
        .state = b->state + (size_t)layer->slot * m->value_width * c->key_dim,
        .slot_stride = b->state_floats,
        .u_stride = m->conv_width,
        .gate_stride = c->n_value_heads,
        .o_stride = m->value_width,
        .nk = c->n_key_heads,
        .nv = c->n_value_heads,
        .dk = c->key_dim,
        .dv = c->value_dim,
        .eps = c->rms_norm_eps,
    };
}

/* Verify rows leave their inputs behind. */
static void keep_inputs(cuda_backend *b, const cuda_layer *layer) {
    const pgl_model *m = b->model;
    uint32_t nv = m->config->n_value_heads, n = b->t.n_kept;
    size_t first = pending_rows(b, layer->slot);
    cuda_gather(b, b->w.u, b->t.kept_from, b->pending_u + first * m->conv_width, b->t.kept_to, n,
                m->conv_width);
    cuda_gather(b, b->w.a, b->t.kept_from, b->pending_a + first * nv, b->t.kept_to, n, nv);
    cuda_gather(b, b->w.b, b->t.kept_from, b->pending_b + first * nv, b->t.kept_to, n, nv);
}

void cuda_delta_mixer(cuda_backend *b, const cuda_layer *layer) {
    const pgl_model *m = b->model;
    cuda_input input = normed(b);
    const cuda_product in[] = {{&layer->in_proj_qkv, b->w.u},
                               {&layer->in_proj_z, b->w.z},
                               {&layer->in_proj_a, b->w.a},
                               {&layer->in_proj_b, b->w.b}};
    cuda_products(b, &input, in, 4);
    if (b->t.n_kept > 0)
        keep_inputs(b, layer);
    run_conv(b, layer, b->t.spans, b->batch.n_spans, b->w.u);
    pgl_delta_args args = delta_args(b, layer);
    args.spans = b->t.spans;
    args.u = b->w.u;
    args.a = b->w.a;
    args.b = b->w.b;
    args.z = b->w.z;
    args.o = b->w.o16;
    args.o32 = layer->out_proj.coded.code != NULL ? b->w.o : NULL;
    CUDA_LAUNCH(b, delta, b->batch.n_spans, args.nv, 1, PGL_CUDA_DELTA_THREADS, &args);
    b->bytes_read += b->batch.n_spans * (m->state_bytes + m->conv_bytes) / m->n_delta_layers;
    out_product(b, &layer->out_proj, m->value_width);
}

void cuda_commit(cuda_backend *b, uint32_t slot, uint32_t n) {
    if (n > 0)
        b->commits[b->n_commits++] = (struct cuda_commit){slot, n};
}

void cuda_commit_all(cuda_backend *b) {
    const pgl_model *m = b->model;
    uint32_t n = b->n_commits, tokens = b->base.caps.max_draft + 1, nv = m->config->n_value_heads;
    if (n == 0)
        return;
    b->n_commits = 0;
    const void *device_spans, *device_from, *device_to;
    pgl_cuda_span *spans = cuda_tables_put(b, n, sizeof *spans, &device_spans);
    uint32_t *from = cuda_tables_put(b, n, sizeof *from, &device_from);
    uint32_t *to = cuda_tables_put(b, n, sizeof *to, &device_to);
    for (uint32_t i = 0; i < n; i++) {
        const struct cuda_commit c = b->commits[i];
        spans[i] = (pgl_cuda_span){.first = c.slot * tokens, .n = c.n, .slot = c.slot};
        from[i] = c.slot * tokens + c.n - 1;
        to[i] = c.slot;
    }
    cuda_tables_send(b);
    for (uint32_t l = 0; l < m->config->n_layers; l++) {
        const cuda_layer *layer = &b->weights.layers[l];
        if (layer->full_attention)
            continue;
        size_t first = pending_rows(b, layer->slot);
        float *u = b->pending_u + first * m->conv_width;
        run_conv(b, layer, device_spans, n, u);
        pgl_delta_args args = delta_args(b, layer);
        args.spans = device_spans;
        args.u = u;
        args.a = b->pending_a + first * nv;
        args.b = b->pending_b + first * nv;
        CUDA_LAUNCH(b, delta, n, nv, 1, PGL_CUDA_DELTA_THREADS, &args);
    }
    cuda_gather(b, b->pending_hidden, device_from, b->w.final, device_to, n, m->config->hidden_size);
    b->bytes_read += n * (m->state_bytes + m->conv_bytes);
}

/* ---- full attention */

/* Where a layer's keys stand, and which entries the batch's tokens use: those of the trunk, of the draft layer when
 * tokens are fed to it, or of a chain of drafts. */
typedef struct attention {
    pgl_cuda_pages pages;
    pgl_cuda_draft_keys drafts;
    const float *cosine, *sine;
    const uint32_t *count, *entry;
    uint32_t first, n_drafts, most;
} attention;

static attention attention_of(const cuda_backend *b, const cuda_layer *layer) {
    const cuda_tables *t = &b->t;
    bool fed = layer->draft && b->batch.n_tentative == 0;
    attention a = {
        .pages =
            {
                .keys = b->pages + layer->slot * b->layer_elements,
                .table = t->pages,
                .page_stride = b->base.caps.page_bytes / sizeof(uint16_t),
                .values_offset = (uint64_t)b->base.caps.page_tokens * b->model->kv_width,
                .table_stride = t->pages_stride,
                .page_tokens = b->base.caps.page_tokens,
            },
        .cosine = fed ? t->draft_cosine : t->cosine,
        .sine = fed ? t->draft_sine : t->sine,
        .count = fed ? t->draft_count : t->count,
        .entry = fed ? t->draft_entry : t->entry,
        .first = layer->draft ? 1 : 0,
        .n_drafts = b->batch.n_tentative,
        .most = t->most_count + b->batch.n_tentative,
    };
    if (b->batch.n_tentative > 0)
        a.drafts = (pgl_cuda_draft_keys){b->w.draft_keys, t->row, b->base.caps.max_draft};
    return a;
}

/* q NULL: keys and values alone. */
static void prepare(cuda_backend *b, const cuda_layer *layer, const attention *a, float *q) {
    const pgl_config *c = b->model->config;
    pgl_attention_prepare_args args = {
        .q = q,
        .k = b->w.k,
        .v = b->w.v,
        .q_norm = layer->q_norm,
        .k_norm = layer->k_norm,
        .cosine = a->cosine,
        .sine = a->sine,
        .slot = b->t.span_of,
        .entry = a->entry,
        .pages = a->pages,
        .drafts = a->drafts,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .rotary_dim = c->rotary_dim,
        .eps = c->rms_norm_eps,
    };
    CUDA_LAUNCH(b, attention_prepare, b->batch.n_tokens, (q != NULL ? c->n_heads : 0) + c->n_kv_heads, 1, 32,
                &args);
}

static uint32_t splits_for(uint32_t n, uint32_t most) {
    uint32_t splits = (most + CUDA_SPLIT_ENTRIES - 1) / CUDA_SPLIT_ENTRIES;
    uint32_t room = CUDA_MOST_PARTS / n;
    splits = splits < room ? splits : room;
    splits = splits < CUDA_MOST_SPLITS ? splits : CUDA_MOST_SPLITS;
    return splits > 0 ? splits : 1;
}

void cuda_attention_keys(cuda_backend *b, const cuda_layer *layer) {
    cuda_input input = normed(b);
    const cuda_product in[] = {{&layer->k_proj, b->w.k}, {&layer->v_proj, b->w.v}};
    cuda_products(b, &input, in, 2);
    attention a = attention_of(b, layer);
    prepare(b, layer, &a, NULL);
}

void cuda_attention_mixer(cuda_backend *b, const cuda_layer *layer) {
    const pgl_model *m = b->model;
    const pgl_config *c = m->config;
    uint32_t n = b->batch.n_tokens, share = c->n_heads / c->n_kv_heads;
    uint32_t groups = (share + PGL_CUDA_QUERIES - 1) / PGL_CUDA_QUERIES;
    cuda_input input = normed(b);
    const cuda_product in[] = {{&layer->q_proj, b->w.u}, {&layer->k_proj, b->w.k}, {&layer->v_proj, b->w.v}};
    cuda_products(b, &input, in, 3);
    attention a = attention_of(b, layer);
    prepare(b, layer, &a, b->w.u);
    pgl_attend_args attend = {
        .q = b->w.u,
        .slot = b->t.span_of,
        .count = a.count,
        .first = a.first,
        .pages = a.pages,
        .drafts = a.drafts,
        .n_drafts = a.n_drafts,
        .part = b->w.part,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .splits = splits_for(n, a.most),
    };
    CUDA_LAUNCH(b, attend, n, c->n_kv_heads * groups, attend.splits, PGL_CUDA_THREADS, &attend);
    pgl_attend_join_args join = {
        .part = b->w.part,
        .q = b->w.u,
        .o = b->w.o16,
        .o32 = layer->o_proj.coded.code != NULL ? b->w.o : NULL,
        .n_heads = c->n_heads,
        .head_dim = c->head_dim,
        .splits = attend.splits,
        .o_stride = m->q_width,
    };
    CUDA_LAUNCH(b, attend_join, n, c->n_heads, 1, PGL_CUDA_THREADS, &join);
    for (uint32_t t = 0; t < n; t++)
        b->bytes_read += ((uint64_t)b->batch.position[t] + 1) * 4 * m->kv_width;
    out_product(b, &layer->o_proj, m->q_width);
}
