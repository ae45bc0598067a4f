/* Owns what a CPU backend allocates: five regions of memory, the widened vectors, slots, samplers, pool and executor.
 * Regions come from mmap and are not touched here: what is never used is never resident. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "model/ops.h"

/* ---- memory */

/* Cuts a block into arrays. With base NULL it only measures. */
typedef struct carve {
    unsigned char *base;
    uint64_t used;
    bool overflow;
} carve;

static void *take(carve *c, uint64_t n, uint64_t size) {
    uint64_t bytes, end;
    if (!pgl_mul_u64(n, size, &bytes) || !pgl_add_u64(bytes, 63, &bytes) || bytes > INT64_MAX ||
        !pgl_add_u64(c->used, bytes & ~(uint64_t)63, &end)) {
        c->overflow = true;
        return NULL;
    }
    void *p = c->base != NULL ? c->base + c->used : NULL;
    c->used = end;
    return p;
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* The widest input of any linear. */
static uint32_t widest_input(const pgl_model *m, bool draft) {
    const pgl_config *c = m->config;
    uint32_t w = larger(larger(c->hidden_size, m->value_width), m->q_width);
    w = larger(w, larger(c->shared_intermediate_size, c->intermediate_size));
    return draft ? larger(w, 2 * c->hidden_size) : w;
}

/* Widths of the arrays of a batch, in floats. */
static void carve_arrays(cpu_backend *b, carve *k) {
    const pgl_model *m = b->model;
    const pgl_config *c = m->config;
    cpu_arrays *w = &b->w;
    bool draft = b->base.caps.max_draft > 0, moe = c->n_experts > 0;
    uint64_t hidden = c->hidden_size, used = m->n_used, inner = moe ? c->moe_intermediate_size : 0;
    uint64_t dense_inner = larger(c->shared_intermediate_size, c->intermediate_size);
    const struct {
        float **array;
        uint64_t width;
    } parts[] = {
        {&w->x, hidden},
        {&w->h, hidden},
        {&w->y, hidden},
        {&w->rounded, cpu_padded(widest_input(m, draft))},
        {&w->u, larger(m->conv_width, 2 * m->q_width)},
        {&w->z, m->value_width},
        {&w->o, larger(m->value_width, m->q_width)},
        {&w->a, c->n_value_heads},
        {&w->b, c->n_value_heads},
        {&w->k, m->kv_width},
        {&w->v, m->kv_width},
        {&w->cosine, c->rotary_dim / 2},
        {&w->sine, c->rotary_dim / 2},
        {&w->router, c->n_experts},
        {&w->weight, used},
        {&w->xh, used * cpu_padded(hidden)},
        {&w->yd, used * cpu_padded(hidden)},
        {&w->gate_up, used * cpu_padded(2 * inner)},
        {&w->xd, used * cpu_padded(inner)},
        {&w->inner, dense_inner},
        {&w->inner_up, dense_inner},
        {&w->shared, hidden},
        {&w->shared_gate, 1},
        {&w->coded, cpu_padded(widest_input(m, draft))},
        {&w->final, hidden},
        {&w->pair, draft ? 2 * hidden : 0},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        *parts[i].array = take(k, b->batch_tokens * parts[i].width, sizeof(float));
    w->expert = take(k, b->batch_tokens * used, sizeof *w->expert);
    w->pair_of = take(k, b->batch_tokens * used, sizeof *w->pair_of);
    w->token_of = take(k, b->batch_tokens * used, sizeof *w->token_of);
}

static void carve_work(cpu_backend *b, carve *k) {
    const pgl_backend_caps *caps = &b->base.caps;
    const pgl_model *m = b->model;
    const pgl_config *c = m->config;
    uint64_t hidden = c->hidden_size, threads = b->n_threads, draft = caps->max_draft;
    carve_arrays(b, k);
    b->expert_first = take(k, (uint64_t)c->n_experts + 1, sizeof *b->expert_first);
    b->active = take(k, c->n_experts, sizeof *b->active);
    b->scores = take(k, threads * PGL_QUERIES * (caps->max_context + draft), sizeof(float));
    b->head_state = take(k, threads * c->key_dim * c->value_dim, sizeof(float));
    b->head_taps =
        take(k, threads * (c->conv_kernel > 0 ? c->conv_kernel - 1 : 0) * m->conv_width, sizeof(float));
    b->commit_outputs = take(k, threads * (draft + 1) * m->value_width, sizeof(float));
    b->logit_input = take(k, CPU_LOGIT_ROWS * hidden, sizeof(float));
    b->logits = take(k, CPU_LOGIT_ROWS * (uint64_t)c->vocab_size, sizeof(float));
    if (draft == 0)
        return;
    b->draft_hidden = take(k, caps->max_rows * hidden, sizeof(float));
    b->draft_kv = take(k, caps->max_rows * 2 * draft * m->kv_width, sizeof *b->draft_kv);
    b->row_hidden = take(k, caps->max_rows * hidden, sizeof(float));
    b->draft_choice = take(k, CPU_LOGIT_ROWS, sizeof *b->draft_choice);
}

static pgl_status map_region(struct cpu_region *region, uint64_t bytes, const char *what, pgl_error *err) {
    if (bytes == 0)
        bytes = 64;
    if (bytes > SIZE_MAX / 2)
        return pgl_fail(err, PGL_E_MEMORY, "the %s take %llu bytes: too many for this machine", what,
                        (unsigned long long)bytes);
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the %s: %llu bytes", what,
                        (unsigned long long)bytes);
    (void)madvise(p, (size_t)bytes, MADV_HUGEPAGE); /* a wish */
    *region = (struct cpu_region){p, (size_t)bytes};
    return PGL_OK;
}

static void unmap_region(struct cpu_region *region) {
    if (region->p != NULL)
        (void)munmap(region->p, region->bytes);
}

/* n arrays of bytes each, as one number; false when it does not fit. */
static bool total_bytes(uint64_t n, uint64_t bytes, uint64_t *out) {
    return pgl_mul_u64(n, bytes, out) && *out <= INT64_MAX;
}

static pgl_status check_budget(const cpu_backend *b, uint64_t budget, pgl_error *err) {
    const pgl_backend_memory *m = &b->memory;
    const double mib = 1.0 / (1024 * 1024);
    uint64_t all = m->pages_bytes + m->slots_bytes + m->snapshots_bytes + m->work_bytes;
    if (budget == 0 || all <= budget)
        return PGL_OK;
    return pgl_fail(
        err, PGL_E_MEMORY,
        "the CPU backend needs %.1f MiB beside the weights (pages %.1f, slots %.1f, snapshots %.1f, work "
        "space %.1f), allowed are %.1f: fewer slots, snapshots or a shorter context would fit",
        (double)all * mib, (double)m->pages_bytes * mib, (double)m->slots_bytes * mib,
        (double)m->snapshots_bytes * mib, (double)m->work_bytes * mib, (double)budget * mib);
}

static pgl_status allocate(cpu_backend *b, uint64_t budget, pgl_error *err) {
    const pgl_backend_caps *caps = &b->base.caps;
    pgl_backend_memory *m = &b->memory;
    carve measure = {0};
    carve_work(b, &measure);
    uint64_t states, pending;
    bool ok = !measure.overflow && total_bytes(caps->n_slots, b->state_floats * sizeof(float), &states) &&
              total_bytes(caps->n_slots, b->pending_floats * sizeof(float), &pending) &&
              total_bytes(caps->n_snapshots, b->state_floats * sizeof(float), &m->snapshots_bytes) &&
              total_bytes(caps->n_pages, caps->page_bytes, &m->pages_bytes);
    if (!ok)
        return pgl_fail(err, PGL_E_MEMORY, "the sizes of slots, snapshots, pages and work space do not fit");
    uint64_t sampler_bytes = (uint64_t)caps->n_vocab * 20; /* scores and two lists of entries */
    m->slots_bytes = states + pending + pgl_slots_bytes(caps);
    m->work_bytes = measure.used + pgl_batch_bytes(caps, b->batch_tokens) + b->n_threads * sampler_bytes;
    pgl_status status = check_budget(b, budget, err);
    if (status == PGL_OK)
        status = map_region(&b->state_region, states, "slots", err);
    if (status == PGL_OK)
        status = map_region(&b->pending_region, pending, "slots' pending tokens", err);
    if (status == PGL_OK)
        status = map_region(&b->snapshot_region, m->snapshots_bytes, "snapshots", err);
    if (status == PGL_OK)
        status = map_region(&b->page_region, m->pages_bytes, "pages", err);
    if (status == PGL_OK)
        status = map_region(&b->work_region, measure.used, "work space", err);
    if (status != PGL_OK)
        return status;
    b->state = b->state_region.p;
    b->pending = b->pending_region.p;
    b->snapshots = b->snapshot_region.p;
    b->pages = b->page_region.p;
    carve place = {.base = b->work_region.p};
    carve_work(b, &place);
    status = pgl_batch_open(caps, b->batch_tokens, &b->batch, err);
    return status == PGL_OK ? pgl_slots_open(caps, &b->slots, err) : status;
}

/* ---- vectors */

static const float *widen(float **at, const pgl_vec *vec) {
    float *out = *at;
    for (uint32_t i = 0; i < vec->n; i++)
        out[i] = pgl_vec_at(vec, i);
    *at += vec->n;
    return out;
}

/* [width][kernel] of the checkpoint as [kernel][width]. */
static const float *widen_conv(float **at, const pgl_vec *vec, uint32_t kernel) {
    float *out = *at;
    uint32_t width = vec->n / kernel;
    for (uint32_t c = 0; c < width; c++) {
        for (uint32_t j = 0; j < kernel; j++)
            out[(size_t)j * width + c] = pgl_vec_at(vec, c * kernel + j);
    }
    *at += vec->n;
    return out;
}

static uint64_t layer_floats(const pgl_layer_weights *w) {
    uint64_t n = (uint64_t)w->input_norm.n + w->post_attention_norm.n;
    if (w->full_attention)
        return n + w->attention.q_norm.n + w->attention.k_norm.n;
    return n + w->delta.conv1d.n + w->delta.a_log.n + w->delta.dt_bias.n + w->delta.norm.n;
}

static void prepare_layer(const cpu_backend *b, cpu_layer *layer, const pgl_layer_weights *w, float **at) {
    layer->weights = w;
    layer->input_norm = widen(at, &w->input_norm);
    layer->post_norm = widen(at, &w->post_attention_norm);
    if (w->full_attention) {
        layer->q_norm = widen(at, &w->attention.q_norm);
        layer->k_norm = widen(at, &w->attention.k_norm);
    } else {
        layer->conv = widen_conv(at, &w->delta.conv1d, b->model->config->conv_kernel);
        layer->a_log = widen(at, &w->delta.a_log);
        layer->dt_bias = widen(at, &w->delta.dt_bias);
        layer->delta_norm = widen(at, &w->delta.norm);
    }
}

static pgl_status prepare_vectors(cpu_backend *b, pgl_error *err) {
    const pgl_config *c = b->model->config;
    const pgl_weights *w = b->model->weights;
    bool draft = b->base.caps.max_draft > 0;
    uint64_t n = w->norm.n + (draft ? layer_floats(&w->draft.layer) + 3 * (uint64_t)c->hidden_size : 0);
    for (uint32_t l = 0; l < c->n_layers; l++)
        n += layer_floats(&w->layers[l]); /* each is far below 2^40, and layers are at most 256 */
    b->vectors = pgl_new_aligned((size_t)n, sizeof *b->vectors);
    b->layers = pgl_new(c->n_layers, sizeof *b->layers);
    if (b->vectors == NULL || b->layers == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for %llu norm and convolution weights",
                        (unsigned long long)n);
    b->memory.work_bytes += n * sizeof(float);
    float *at = b->vectors;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        b->layers[l].slot = b->model->layer_slot[l];
        prepare_layer(b, &b->layers[l], &w->layers[l], &at);
    }
    b->final_norm = widen(&at, &w->norm);
    if (!draft)
        return PGL_OK;
    b->draft.slot = b->model->n_attention_layers;
    b->draft.draft = true;
    prepare_layer(b, &b->draft, &w->draft.layer, &at);
    b->draft_norm = widen(&at, &w->draft.norm);
    b->draft_norm_embedding = widen(&at, &w->draft.pre_fc_norm_embedding);
    b->draft_norm_hidden = widen(&at, &w->draft.pre_fc_norm_hidden);
    return PGL_OK;
}

/* ---- sizes */

static uint64_t stack_bytes(const pgl_coded *coded) {
    uint64_t vectors = 2 + (coded->s_in != NULL ? 4 : 0);
    return coded->n_experts *
           ((uint64_t)coded->in * coded->out / 8 * coded->k + vectors * ((uint64_t)coded->in + coded->out));
}

static uint64_t layer_weight_bytes(const pgl_config *c, const pgl_layer_weights *w, bool experts) {
    const pgl_linear *linears[] = {
        &w->delta.in_proj_qkv, &w->delta.in_proj_z,
        &w->delta.in_proj_a,   &w->delta.in_proj_b,
        &w->delta.out_proj,    &w->attention.q_proj,
        &w->attention.k_proj,  &w->attention.v_proj,
        &w->attention.o_proj,  &w->moe.router,
        &w->moe.shared_gate,   &w->moe.shared_up,
        &w->moe.shared_down,   &w->moe.shared_expert_gate,
        &w->moe.gate,          &w->moe.up,
        &w->moe.down_dense,
    };
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++)
        bytes += cpu_linear_bytes(linears[i]);
    return bytes +
           (experts && c->n_experts > 0 ? stack_bytes(&w->moe.gate_up) + stack_bytes(&w->moe.down) : 0);
}

static uint64_t weights_bytes(const cpu_backend *b) {
    const pgl_weights *w = b->model->weights;
    const pgl_config *c = b->model->config;
    uint64_t bytes = cpu_linear_bytes(&w->embed);
    if (w->head.data != w->embed.data)
        bytes += cpu_linear_bytes(&w->head);
    for (uint32_t l = 0; l < c->n_layers; l++)
        bytes += layer_weight_bytes(c, &w->layers[l], true);
    if (b->base.caps.max_draft > 0)
        bytes += cpu_linear_bytes(&w->draft.fc) +
                 layer_weight_bytes(c, &w->draft.layer, !w->draft.borrows_experts);
    return bytes;
}

static void set_sizes(cpu_backend *b) {
    const pgl_model *m = b->model;
    pgl_backend_caps *caps = &b->base.caps;
    uint32_t layers = m->n_attention_layers + (caps->max_draft > 0 ? 1 : 0);
    b->layer_bytes = (uint64_t)caps->page_tokens * m->kv_width * 2 * sizeof(pgl_f16);
    caps->page_bytes = b->layer_bytes * layers;
    caps->snapshot_bytes = m->snapshot_bytes;
    b->state_floats = (size_t)(m->slot_bytes / sizeof(float) + 15) & ~(size_t)15;
    uint64_t pending =
        (uint64_t)m->n_delta_layers * (m->conv_width + 2 * (uint64_t)m->config->n_value_heads) +
        m->config->hidden_size;
    b->pending_floats = (size_t)((caps->max_draft + 1) * pending + 15) & ~(size_t)15;
    b->batch_tokens = pgl_batch_capacity(caps, CPU_MOST_BATCH);
    b->memory.weights_bytes = weights_bytes(b);
}

/* ---- open and close */

static void cpu_close(pgl_backend *backend) {
    cpu_backend *b = (cpu_backend *)backend;
    pgl_executor_close(b->base.executor);
    pgl_pool_close(b->pool);
    for (uint32_t i = 0; b->samplers != NULL && i < b->n_threads; i++)
        pgl_sampler_close(b->samplers[i]);
    free(b->samplers);
    pgl_slots_close(&b->slots);
    pgl_batch_close(&b->batch);
    unmap_region(&b->state_region);
    unmap_region(&b->snapshot_region);
    unmap_region(&b->page_region);
    unmap_region(&b->pending_region);
    unmap_region(&b->work_region);
    free(b->vectors);
    free(b->layers);
    free(b);
}

static pgl_backend_memory cpu_memory(const pgl_backend *backend) {
    return ((const cpu_backend *)backend)->memory;
}

static const pgl_backend_table TABLE = {cpu_close, cpu_memory, pgl_executor_submit, pgl_executor_mask_ready,
                                        pgl_executor_wait};

static void give_state(const void *self, pgl_plan_state *state) {
    pgl_slots_state(&((const cpu_backend *)self)->slots, state);
}

static pgl_status check_model(const pgl_model *model, const pgl_backend_options *options, pgl_error *err) {
    const pgl_config *c = model->config;
    if (options->max_draft > 0 && !model->weights->draft.present)
        return pgl_fail(err, PGL_E_UNSUPPORTED,
                        "drafts: max_draft is %u, but this checkpoint has no draft head", options->max_draft);
    if (options->max_context > c->max_position_embeddings)
        return pgl_fail(err, PGL_E_INVALID,
                        "backend option max_context: the model has %u positions, found %u",
                        c->max_position_embeddings, options->max_context);
    if (model->n_used > CPU_MOST_USED)
        return pgl_fail(err, PGL_E_UNSUPPORTED, "experts: at most %u for one token, found %u", CPU_MOST_USED,
                        model->n_used);
    return PGL_OK;
}

static pgl_status open_threads(cpu_backend *b, const pgl_backend_options *options, pgl_error *err) {
    pgl_pool_options pool = {.n_threads = options->n_threads, .pin = options->pin_threads};
    pgl_status status = pgl_pool_open(&pool, &b->pool, err);
    if (status != PGL_OK)
        return status;
    b->n_threads = pgl_pool_n_threads(b->pool);
    snprintf(b->detail, sizeof b->detail, "%s, %u thread%s", b->k->name, b->n_threads,
             b->n_threads == 1 ? "" : "s");
    b->base.caps.detail = b->detail;
    b->samplers = pgl_new(b->n_threads, sizeof(pgl_sampler *));
    if (b->samplers == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the samplers of %u threads", b->n_threads);
    for (uint32_t i = 0; status == PGL_OK && i < b->n_threads; i++)
        status = pgl_sampler_open(b->base.caps.n_vocab, &b->samplers[i], err);
    return status;
}

static pgl_status open_parts(cpu_backend *b, const pgl_backend_options *options, pgl_error *err) {
    static const pgl_executor_client CLIENT = {cpu_execute, give_state};
    pgl_status status = pgl_kernels_choose(options->force_isa, &b->k, err);
    if (status == PGL_OK)
        status = pgl_backend_caps_init(&b->base.caps, options, err);
    if (status == PGL_OK)
        status = open_threads(b, options, err);
    if (status != PGL_OK)
        return status;
    set_sizes(b);
    status = allocate(b, options->device_bytes, err);
    if (status == PGL_OK)
        status = prepare_vectors(b, err);
    if (status == PGL_OK)
        status = pgl_executor_open("pgl-cpu", &b->base.caps, &CLIENT, b, &b->base.executor, err);
    return status;
}

pgl_status pgl_backend_open_cpu(const pgl_model *model, const pgl_backend_options *options, pgl_backend **out,
                                pgl_error *err) {
    *out = NULL;
    pgl_status status = check_model(model, options, err);
    if (status != PGL_OK)
        return status;
    cpu_backend *b = pgl_new(1, sizeof *b);
    if (b == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the CPU backend");
    const pgl_config *c = model->config;
    b->model = model;
    b->base = (pgl_backend){
        .table = &TABLE,
        .caps =
            {
                .name = "cpu",
                .max_in_flight = PGL_EXECUTOR_IN_FLIGHT,
                .vocab_size = c->vocab_size,
                .hidden_size = c->hidden_size,
                .n_layers = c->n_layers,
                .n_experts = c->n_experts,
                .n_experts_used = model->n_used,
                .bit_stable = true,
            },
    };
    status = open_parts(b, options, err);
    if (status != PGL_OK) {
        cpu_close(&b->base);
        return status;
    }
    *out = &b->base;
    return PGL_OK;
}
