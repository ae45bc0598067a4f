/* Owns nothing: one decoder layer on the tokens of a batch, and its mixture of experts or dense mlp. */
#include "backend/cuda/cuda.h"

/* ---- the mixture of experts */

static void experts(cuda_backend *b, const cuda_layer *layer, int32_t *expert) {
    const pgl_config *c = b->model->config;
    uint32_t n = b->batch.n_tokens, used = b->model->n_used, n_pairs = n * used;
    uint32_t most_active = n_pairs < c->n_experts ? n_pairs : c->n_experts;
    const pgl_cuda_pairs *pairs = &b->w.pairs;
    pgl_route_args route = {b->w.router, expert, b->w.weight, c->n_experts, used};
    CUDA_LAUNCH(b, route, n, 1, 1, PGL_CUDA_THREADS, &route);
    pgl_sort_args sort = {expert, *pairs, n, used, c->n_experts};
    CUDA_LAUNCH(b, sort, 1, 1, 1, PGL_CUDA_SORT_THREADS, &sort);
    pgl_coded_input_args in = {
        .coded = layer->experts_gate_up,
        .token_of = pairs->token_of,
        .expert_of = pairs->expert_of,
        .x32 = b->w.h,
        .xh = b->w.xh,
    };
    CUDA_LAUNCH(b, coded_input, n_pairs, c->hidden_size / 128, 1, 32, &in);
    pgl_coded_args product = {
        .coded = layer->experts_gate_up,
        .active = pairs->active,
        .expert_first = pairs->expert_first,
        .xh = b->w.xh,
        .y = b->w.gate_up,
    };
    CUDA_LAUNCH(b, coded, 2 * c->moe_intermediate_size / 128, most_active, 1, PGL_CUDA_THREADS, &product);
    in = (pgl_coded_input_args){
        .coded = layer->experts_down,
        .token_of = pairs->token_of,
        .expert_of = pairs->expert_of,
        .gate_up = b->w.gate_up,
        .xh = b->w.xh,
    };
    CUDA_LAUNCH(b, coded_input, n_pairs, c->moe_intermediate_size / 128, 1, 32, &in);
    product.coded = layer->experts_down;
    product.y = b->w.y;
    CUDA_LAUNCH(b, coded, c->hidden_size / 128, most_active, 1, PGL_CUDA_THREADS, &product);
}

/* SwiGLU of inner and inner_up: rounded for a dense linear, in place and in f32 for a coded one. */
static void swiglu(cuda_backend *b, uint32_t width, bool coded_outputs, const cuda_linear *next) {
    pgl_swiglu_args args = {
        .gate = b->w.inner,
        .up = b->w.inner_up,
        .h16 = b->w.inner16,
        .h32 = next->coded.code != NULL ? b->w.inner : NULL,
        .width = width,
        .h16_stride = width,
        .coded = coded_outputs ? 1 : 0,
    };
    CUDA_LAUNCH(b, swiglu, b->batch.n_tokens, 1, 1, PGL_CUDA_THREADS, &args);
}

static void moe_mlp(cuda_backend *b, const cuda_layer *layer, uint32_t place) {
    const pgl_config *c = b->model->config;
    uint32_t n = b->batch.n_tokens, used = b->model->n_used, width = c->shared_intermediate_size;
    int32_t *expert = b->w.expert + (size_t)place * n * used;
    cuda_input input = {b->w.h, b->w.h16, c->hidden_size, n, false};
    const cuda_product in[] = {
        {&layer->router, b->w.router},
        {&layer->shared_gate, b->w.inner},
        {&layer->shared_up, b->w.inner_up},
        {&layer->shared_expert_gate, b->w.shared_gate},
    };
    cuda_products(b, &input, in, width > 0 ? 4 : 1);
    experts(b, layer, expert);
    if (width > 0) {
        swiglu(b, width, false, &layer->shared_down);
        cuda_input inner = {b->w.inner, b->w.inner16, width, n, false};
        cuda_product shared = {&layer->shared_down, b->w.shared};
        cuda_products(b, &inner, &shared, 1);
    }
    pgl_mix_args mix = {
        .weight = b->w.weight,
        .pair_of = b->w.pairs.pair_of,
        .y = b->w.y,
        .shared = width > 0 ? b->w.shared : NULL,
        .shared_gate = width > 0 ? b->w.shared_gate : NULL,
        .x = b->w.x,
        .used = used,
        .hidden = c->hidden_size,
    };
    CUDA_LAUNCH(b, mix, n, 1, 1, PGL_CUDA_THREADS, &mix);
}

/* ---- dense models */

static void dense_mlp(cuda_backend *b, const cuda_layer *layer) {
    const pgl_config *c = b->model->config;
    uint32_t n = b->batch.n_tokens, width = c->intermediate_size;
    cuda_input input = {b->w.h, b->w.h16, c->hidden_size, n, false};
    const cuda_product in[] = {{&layer->gate, b->w.inner}, {&layer->up, b->w.inner_up}};
    cuda_products(b, &input, in, 2);
    swiglu(b, width, layer->gate.coded.code != NULL && layer->up.coded.code != NULL, &layer->down_dense);
    cuda_input inner = {b->w.inner, b->w.inner16, width, n, true};
    cuda_product out = {&layer->down_dense, b->w.x};
    cuda_products(b, &inner, &out, 1);
}

void cuda_mlp(cuda_backend *b, const cuda_layer *layer, uint32_t place) {
    if (b->model->config->n_experts > 0)
        moe_mlp(b, layer, place);
    else
        dense_mlp(b, layer);
}

void cuda_layer_forward(cuda_backend *b, const cuda_layer *layer, uint32_t place) {
    uint32_t n = b->batch.n_tokens;
    cuda_norm(b, layer->input_norm, b->w.x, b->w.h, b->w.h16, NULL, n);
    if (layer->full_attention)
        cuda_attention_mixer(b, layer);
    else
        cuda_delta_mixer(b, layer);
    cuda_norm(b, layer->post_norm, b->w.x, b->w.h, b->w.h16, NULL, n);
    cuda_mlp(b, layer, place);
}
