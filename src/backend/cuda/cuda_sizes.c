/* Owns nothing: what the kernels can take, and how much memory goes where. */
#include "backend/cuda/cuda.h"
#include "base/alloc.h"

/* ---- what the kernels can take */

typedef struct bound {
    const char *what;
    uint32_t value, most, multiple;
} bound;

static pgl_status check_bounds(const bound *bounds, size_t n, pgl_error *err) {
    for (size_t i = 0; i < n; i++) {
        const bound *b = &bounds[i];
        if (b->most > 0 && b->value > b->most)
            return pgl_fail(err, PGL_E_UNSUPPORTED, "the CUDA backend: %s is at most %u, found %u", b->what,
                            b->most, b->value);
        if (b->multiple > 0 && b->value % b->multiple != 0)
            return pgl_fail(err, PGL_E_UNSUPPORTED, "the CUDA backend: %s is a multiple of %u, found %u",
                            b->what, b->multiple, b->value);
    }
    return PGL_OK;
}

/* Rows of fp16 are read in pieces of 16 bytes. */
#define ROW 8u

pgl_status cuda_check_model(const pgl_model *m, const pgl_backend_options *options, pgl_error *err) {
    const pgl_config *c = m->config;
    const bound bounds[] = {
        {"hidden_size", c->hidden_size, 0, ROW},
        {"head_dim", c->head_dim, PGL_CUDA_MOST_HEAD_DIM, 32},
        {"linear_key_head_dim", m->n_delta_layers > 0 ? c->key_dim : 0, PGL_CUDA_MOST_STATE_DIM, 32},
        {"linear_value_head_dim", m->n_delta_layers > 0 ? c->value_dim : 0, PGL_CUDA_MOST_STATE_DIM, 32},
        {"linear_conv_kernel_dim", c->conv_kernel, PGL_CUDA_MOST_KERNEL, 0},
        {"num_experts", c->n_experts, PGL_CUDA_MOST_EXPERTS, 0},
        {"num_experts_per_tok", m->n_used, PGL_CUDA_MOST_USED, 0},
        {"shared_expert_intermediate_size", c->shared_intermediate_size, 0, ROW},
        {"intermediate_size", c->n_experts > 0 ? 0 : c->intermediate_size, 0, ROW},
        {"backend option max_rows", options->max_rows, PGL_CUDA_MOST_BATCH, 0},
    };
    if (options->max_draft > 0 && !m->weights->draft.present)
        return pgl_fail(err, PGL_E_UNSUPPORTED,
                        "drafts: max_draft is %u, but this checkpoint has no draft head", options->max_draft);
    if (options->max_draft > 0 && m->weights->draft.fc.kind == PGL_LINEAR_CODED)
        return pgl_fail(err, PGL_E_UNSUPPORTED, "the CUDA backend: a draft head whose fc is coded");
    if (m->weights->head.kind == PGL_LINEAR_CODED)
        return pgl_fail(err, PGL_E_UNSUPPORTED, "the CUDA backend: a head that is coded");
    if (options->max_context > c->max_position_embeddings)
        return pgl_fail(err, PGL_E_INVALID,
                        "backend option max_context: the model has %u positions, found %u",
                        c->max_position_embeddings, options->max_context);
    return check_bounds(bounds, sizeof bounds / sizeof bounds[0], err);
}

/* ---- work space */

/* Cuts a region of the card into arrays. With base 0 it only measures. */
typedef struct carve {
    pgl_cu_address base;
    uint64_t used;
    bool overflow;
} carve;

static void *take(carve *c, uint64_t n, uint64_t size) {
    uint64_t bytes, end;
    if (!pgl_mul_u64(n, size, &bytes) || !pgl_add_u64(bytes, CUDA_ALIGN - 1, &bytes) || bytes > INT64_MAX ||
        !pgl_add_u64(c->used, bytes / CUDA_ALIGN * CUDA_ALIGN, &end)) {
        c->overflow = true;
        return NULL;
    }
    pgl_cu_address at = c->base + c->used;
    c->used = end;
    return (void *)(uintptr_t)at;
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* The widest input of a coded linear: of the experts by pair, of others by token. */
static uint64_t coded_width(const pgl_model *m) {
    const pgl_config *c = m->config;
    uint64_t by_pair = (uint64_t)m->n_used * larger(c->hidden_size, c->moe_intermediate_size);
    uint32_t by_token = larger(larger(c->hidden_size, m->value_width),
                               larger(m->q_width, larger(c->shared_intermediate_size, c->intermediate_size)));
    return by_pair > by_token ? by_pair : by_token;
}

static void carve_arrays(cuda_backend *b, carve *k) {
    const pgl_model *m = b->model;
    const pgl_config *c = m->config;
    cuda_arrays *w = &b->w;
    uint64_t n = b->batch.capacity, hidden = c->hidden_size, used = m->n_used;
    uint64_t out = larger(m->value_width, m->q_width);
    uint64_t inner = larger(c->shared_intermediate_size, c->intermediate_size);
    const struct {
        float **array;
        uint64_t width;
    } floats[] = {
        {&w->x, hidden},
        {&w->h, hidden},
        {&w->z, m->value_width},
        {&w->u, larger(m->conv_width, 2 * m->q_width)},
        {&w->a, c->n_value_heads},
        {&w->b, c->n_value_heads},
        {&w->k, m->kv_width},
        {&w->v, m->kv_width},
        {&w->o, out},
        {&w->router, c->n_experts},
        {&w->weight, used},
        {&w->inner, inner},
        {&w->inner_up, inner},
        {&w->shared, hidden},
        {&w->shared_gate, 1},
        {&w->before, hidden},
    };
    const struct {
        uint16_t **array;
        uint64_t width;
    } halves[] = {
        {&w->h16, hidden},        {&w->o16, out},
        {&w->xh, coded_width(m)}, {&w->gate_up, used * 2 * c->moe_intermediate_size},
        {&w->y, used * hidden},   {&w->inner16, inner},
        {&w->final16, hidden},    {&w->pair, b->base.caps.max_draft > 0 ? 2 * hidden : 0},
    };
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
        *floats[i].array = take(k, n * floats[i].width, sizeof(float));
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++)
        *halves[i].array = take(k, n * halves[i].width, sizeof(uint16_t));
    w->expert = take(k, n * used * ((uint64_t)c->n_layers + 1), sizeof *w->expert);
    w->pairs.expert_first = take(k, (uint64_t)c->n_experts + 1, sizeof(uint32_t));
    w->pairs.active = take(k, c->n_experts, sizeof(uint32_t));
    w->pairs.pair_of = take(k, n * used, sizeof(uint32_t));
    w->pairs.token_of = take(k, n * used, sizeof(uint32_t));
    w->pairs.expert_of = take(k, n * used, sizeof(uint32_t));
    w->bad = take(k, n, sizeof *w->bad);
}

static void carve_work(cuda_backend *b, carve *k) {
    const pgl_backend_caps *caps = &b->base.caps;
    const pgl_config *c = b->model->config;
    cuda_arrays *w = &b->w;
    uint64_t hidden = c->hidden_size, draft = caps->max_draft, rows = caps->max_rows;
    carve_arrays(b, k);
    w->part = take(k, (uint64_t)CUDA_MOST_PARTS * c->n_heads * (c->head_dim + 2), sizeof(float));
    w->final = take(k, (caps->n_slots + (uint64_t)b->batch.capacity) * hidden, sizeof(float));
    w->logit_input = take(k, CUDA_LOGIT_ROWS * hidden, sizeof(uint16_t));
    w->logits = take(k, CUDA_LOGIT_ROWS * (uint64_t)c->vocab_size, sizeof(float));
    w->token = take(k, 2 * CUDA_LOGIT_ROWS, sizeof *w->token);
    w->token_bad = (uint32_t *)(void *)w->token + CUDA_LOGIT_ROWS;
    w->tables = take(k, b->tables_bytes, 1);
    if (draft == 0)
        return;
    w->draft_hidden[0] = take(k, rows * hidden, sizeof(float));
    w->draft_hidden[1] = take(k, rows * hidden, sizeof(float));
    w->row_hidden = take(k, rows * hidden, sizeof(float));
    w->draft_keys = take(k, rows * 2 * draft * b->model->kv_width, sizeof(uint16_t));
}

static void carve_pending(cuda_backend *b, carve *k) {
    const pgl_model *m = b->model;
    uint64_t tokens = (uint64_t)b->base.caps.n_slots * (b->base.caps.max_draft + 1);
    uint64_t rows = tokens * m->n_delta_layers;
    b->pending_u = take(k, rows * m->conv_width, sizeof(float));
    b->pending_a = take(k, rows * m->config->n_value_heads, sizeof(float));
    b->pending_b = take(k, rows * m->config->n_value_heads, sizeof(float));
    b->pending_hidden = take(k, tokens * m->config->hidden_size, sizeof(float));
}

/* ---- regions */

static uint64_t rounded(uint64_t bytes) {
    return (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
}

static bool total(uint64_t n, uint64_t bytes, uint64_t *out) {
    return pgl_mul_u64(n, bytes, out) && *out <= INT64_MAX;
}

pgl_status cuda_set_sizes(cuda_backend *b, pgl_error *err) {
    const pgl_model *m = b->model;
    pgl_backend_caps *caps = &b->base.caps;
    uint32_t layers = m->n_attention_layers + (caps->max_draft > 0 ? 1 : 0);
    b->layer_elements = (uint64_t)caps->page_tokens * m->kv_width * 2;
    caps->page_bytes = b->layer_elements * sizeof(uint16_t) * layers;
    caps->snapshot_bytes = m->snapshot_bytes;
    b->state_floats = (size_t)(rounded(m->state_bytes + m->conv_bytes) / sizeof(float));
    b->snapshot_floats = (size_t)(rounded(m->snapshot_bytes) / sizeof(float));
    b->batch.capacity = pgl_batch_capacity(caps, PGL_CUDA_MOST_BATCH);
    b->tables_bytes = cuda_tables_bytes(b);
    carve work = {0}, pending = {0};
    carve_work(b, &work);
    carve_pending(b, &pending);
    bool ok = !work.overflow && !pending.overflow &&
              total(caps->n_slots, b->state_floats * sizeof(float), &b->state_region.bytes) &&
              total(caps->n_snapshots, b->snapshot_floats * sizeof(float), &b->snapshot_region.bytes) &&
              total(caps->n_pages, caps->page_bytes, &b->page_region.bytes);
    if (!ok)
        return pgl_fail(err, PGL_E_MEMORY, "the sizes of slots, snapshots, pages and work space do not fit");
    b->work_region.bytes = work.used;
    b->pending_region.bytes = pending.used;
    uint64_t expert = (uint64_t)b->batch.capacity * m->n_used * m->config->n_layers;
    b->pinned_bytes = rounded(b->tables_bytes) +
                      rounded(CUDA_LOGIT_ROWS * (uint64_t)m->config->vocab_size * sizeof(float)) +
                      rounded(2 * CUDA_LOGIT_ROWS * sizeof(int32_t)) +
                      rounded(b->batch.capacity * sizeof(uint32_t)) + rounded(expert * sizeof(int32_t));
    return cuda_place_weights(b, 0, err);
}

void cuda_place_arrays(cuda_backend *b) {
    carve work = {.base = b->work_region.at}, pending = {.base = b->pending_region.at};
    carve back = {.base = cuda_at(b->pinned)};
    carve_work(b, &work);
    carve_pending(b, &pending);
    b->state = (float *)(uintptr_t)b->state_region.at;
    b->snapshots = (float *)(uintptr_t)b->snapshot_region.at;
    b->pages = (uint16_t *)(uintptr_t)b->page_region.at;
    b->tables = take(&back, b->tables_bytes, 1);
    b->back.logits = take(&back, CUDA_LOGIT_ROWS * (uint64_t)b->model->config->vocab_size, sizeof(float));
    b->back.token = take(&back, 2 * CUDA_LOGIT_ROWS, sizeof(int32_t));
    b->back.bad_row = (uint32_t *)(void *)b->back.token + CUDA_LOGIT_ROWS;
    b->back.bad = take(&back, b->batch.capacity, sizeof(uint32_t));
    b->back.expert = take(&back, (uint64_t)b->batch.capacity * b->model->n_used * b->model->config->n_layers,
                          sizeof(int32_t));
}
