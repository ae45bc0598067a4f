/* Owns nothing: full attention over pages, for the trunk's attention layers and the draft layer.
 *
 * In the trunk, token p of a slot keeps its key and value at entry p and looks at entries 0 .. p. The draft layer's row
 * for token p takes the hidden state before it (its place is p - 1) and keeps its entry at p, beside the trunk's own
 * for that token: a page that ends before p can then be shared by sequences that go on differently. Entry 0 of the
 * draft layer is never used. Drafts that are not fed yet keep theirs in draft_kv. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"

typedef struct attention_context {
    cpu_backend *b;
    const cpu_layer *layer;
    uint32_t group;  /* query heads of one task */
    uint32_t groups; /* tasks of one token and key head */
} attention_context;

/* Keys of draft i of a row that is not fed yet; values lie max_draft * kv_width behind. */
static pgl_f16 *draft_keys(const cpu_backend *b, uint32_t row, uint32_t kv_head) {
    size_t n = b->base.caps.max_draft;
    return b->draft_kv + row * 2 * n * b->model->kv_width + kv_head * n * b->model->config->head_dim;
}

static void store_token(void *context, uint32_t task, uint32_t thread) {
    const attention_context *c = context;
    cpu_backend *b = c->b;
    const pgl_config *config = b->model->config;
    const pgl_batch *batch = &b->batch;
    uint32_t dim = config->head_dim, position = batch->position[task];
    const pgl_span *span = &batch->spans[batch->span_of[task]];
    size_t angles = (size_t)task * (config->rotary_dim / 2);
    (void)thread;
    if (c->layer->draft && position == 0)
        return;
    for (uint32_t h = 0; h < config->n_kv_heads; h++) {
        float *k = b->w.k + (size_t)task * b->model->kv_width + (size_t)h * dim;
        const float *v = b->w.v + (size_t)task * b->model->kv_width + (size_t)h * dim;
        b->k->norm(k, c->layer->k_norm, config->rms_norm_eps, dim, k);
        b->k->rope(k, config->rotary_dim, b->w.cosine + angles, b->w.sine + angles);
        pgl_f16 *keys;
        size_t values;
        if (batch->n_tentative > 0) {
            keys = draft_keys(b, span->row_index, h) + (size_t)(batch->n_tentative - 1) * dim;
            values = (size_t)b->base.caps.max_draft * b->model->kv_width;
        } else {
            uint32_t page = pgl_slot_page(&b->slots, span->slot, position);
            keys = cpu_page_keys(b, page, c->layer->slot, h) +
                   (size_t)(position % b->base.caps.page_tokens) * dim;
            values = cpu_page_values(b);
        }
        b->k->store16(k, dim, keys);
        b->k->store16(v, dim, keys + values);
    }
}

/* One run of entries that lie together. */
typedef struct entries {
    const pgl_f16 *keys;
    size_t values; /* behind the keys */
    uint32_t n;
} entries;

/* The run that starts with entry `at` of the n that a token looks at. */
static entries entries_at(const attention_context *c, const pgl_span *span, uint32_t kv_head, uint32_t at,
                          uint32_t n) {
    const cpu_backend *b = c->b;
    uint32_t dim = b->model->config->head_dim, page_tokens = b->base.caps.page_tokens;
    uint32_t in_pages = n - b->batch.n_tentative, entry = at + (c->layer->draft ? 1 : 0);
    entries e;
    if (at >= in_pages) {
        e.keys = draft_keys(b, span->row_index, kv_head) + (size_t)(at - in_pages) * dim;
        e.values = (size_t)b->base.caps.max_draft * b->model->kv_width;
        e.n = n - at;
        return e;
    }
    uint32_t page = pgl_slot_page(&b->slots, span->slot, entry), in_page = entry % page_tokens;
    e.keys = cpu_page_keys(b, page, c->layer->slot, kv_head) + (size_t)in_page * dim;
    e.values = cpu_page_values(b);
    e.n = page_tokens - in_page < in_pages - at ? page_tokens - in_page : in_pages - at;
    return e;
}

/* Entries that token `task` looks at. */
static uint32_t n_entries(const attention_context *c, uint32_t token) {
    const pgl_batch *batch = &c->b->batch;
    if (!c->layer->draft)
        return batch->position[token] + 1;
    if (batch->n_tentative == 0)
        return batch->position[token];
    return batch->position[token] - 1 + batch->n_tentative;
}

static void attend(void *context, uint32_t task, uint32_t thread) {
    const attention_context *c = context;
    cpu_backend *b = c->b;
    const pgl_config *config = b->model->config;
    uint32_t dim = config->head_dim, share = config->n_heads / config->n_kv_heads;
    uint32_t group = task % c->groups, kv_head = task / c->groups % config->n_kv_heads;
    uint32_t token = task / (c->groups * config->n_kv_heads), n = n_entries(c, token);
    const pgl_span *span = &b->batch.spans[b->batch.span_of[token]];
    size_t angles = (size_t)token * (config->rotary_dim / 2);
    size_t score_floats = (size_t)b->base.caps.max_context + b->base.caps.max_draft;
    uint32_t first = group * c->group, heads = share - first < c->group ? share - first : c->group;
    pgl_keys_job keys = {.n_queries = heads, .dim = dim, .scale = 1.0F / sqrtf((float)dim)};
    pgl_values_job values = {.n_queries = heads, .dim = dim};
    float *q[PGL_QUERIES], *scores[PGL_QUERIES], *o[PGL_QUERIES];
    for (uint32_t a = 0; a < heads; a++) {
        size_t head = (size_t)kv_head * share + first + a;
        q[a] = b->w.u + (size_t)token * 2 * b->model->q_width + head * 2 * dim;
        o[a] = b->w.o + (size_t)token * b->model->q_width + head * dim;
        scores[a] = b->scores + ((size_t)thread * PGL_QUERIES + a) * score_floats;
        b->k->norm(q[a], c->layer->q_norm, config->rms_norm_eps, dim, q[a]);
        b->k->rope(q[a], config->rotary_dim, b->w.cosine + angles, b->w.sine + angles);
        memset(o[a], 0, dim * sizeof *o[a]);
        keys.q[a] = q[a];
        values.acc[a] = o[a];
    }
    if (n == 0)
        return;
    for (uint32_t at = 0; at < n; at += keys.n) {
        entries e = entries_at(c, span, kv_head, at, n);
        keys.keys = e.keys;
        keys.n = e.n;
        for (uint32_t a = 0; a < heads; a++)
            keys.s[a] = scores[a] + at;
        b->k->keys(&keys);
    }
    float inverse[PGL_QUERIES];
    for (uint32_t a = 0; a < heads; a++)
        inverse[a] = b->k->softmax(scores[a], n);
    for (uint32_t at = 0; at < n; at += values.n) {
        entries e = entries_at(c, span, kv_head, at, n);
        values.values = e.keys + e.values;
        values.n = e.n;
        for (uint32_t a = 0; a < heads; a++)
            values.p[a] = scores[a] + at;
        b->k->values(&values);
    }
    for (uint32_t a = 0; a < heads; a++)
        b->k->attention_gate(o[a], inverse[a], q[a] + dim, dim);
}

void cpu_attention_keys(cpu_backend *b, const cpu_layer *layer) {
    const pgl_attention_weights *w = &layer->weights->attention;
    const cpu_product in[] = {{&w->k_proj, b->w.k}, {&w->v_proj, b->w.v}};
    cpu_products(b, b->w.h, b->batch.n_tokens, in, 2);
    attention_context c = {.b = b, .layer = layer};
    cpu_work store = {store_token, &c, b->batch.n_tokens};
    cpu_run(b, &store, 1);
}

void cpu_attention_mixer(cpu_backend *b, const cpu_layer *layer) {
    const pgl_attention_weights *w = &layer->weights->attention;
    const pgl_config *config = b->model->config;
    uint32_t n = b->batch.n_tokens, share = config->n_heads / config->n_kv_heads;
    const cpu_product in[] = {{&w->q_proj, b->w.u}, {&w->k_proj, b->w.k}, {&w->v_proj, b->w.v}};
    cpu_products(b, b->w.h, n, in, 3);
    attention_context c = {
        .b = b, .layer = layer, .group = share < CPU_HEADS_PER_TASK ? share : CPU_HEADS_PER_TASK};
    while (c.group > 1 && n * config->n_kv_heads * (share / c.group) < 2 * b->n_threads)
        c.group /= 2;
    c.groups = (share + c.group - 1) / c.group;
    cpu_work store = {store_token, &c, n};
    cpu_run(b, &store, 1);
    cpu_work work = {attend, &c, n * config->n_kv_heads * c.groups};
    cpu_run(b, &work, 1);
    for (uint32_t i = 0; i < n; i++)
        b->bytes_read += (uint64_t)n_entries(&c, i) * 4 * b->model->kv_width;
    const cpu_product out = {&w->o_proj, b->w.y};
    cpu_products(b, b->w.o, n, &out, 1);
}
