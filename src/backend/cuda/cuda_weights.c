/* Owns the list of what goes up, and the buffers that it goes through. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/alloc.h"
#include "base/fp16.h"
#include "model/ops.h"

/* ---- placing */

/* One pass over all weights. With `measure` nothing is written but sizes. */
typedef struct placing {
    cuda_backend *b;
    pgl_cu_address base;
    uint64_t used;
    bool measure, overflow;
} placing;

static const void *place(placing *p, const void *from, uint64_t n, uint64_t size) {
    uint64_t bytes, end;
    if (from == NULL || n == 0)
        return NULL;
    if (!pgl_mul_u64(n, size, &bytes) || !pgl_add_u64(p->used, bytes, &end) ||
        !pgl_add_u64(end, CUDA_ALIGN - 1, &end) || end > INT64_MAX) {
        p->overflow = true;
        return NULL;
    }
    cuda_backend *b = p->b;
    pgl_cu_address at = p->base + p->used;
    if (!p->measure)
        b->uploads[b->n_uploads] = (cuda_upload){from, bytes, p->used};
    b->n_uploads++;
    p->used = end / CUDA_ALIGN * CUDA_ALIGN;
    return (const void *)(uintptr_t)at;
}

/* n numbers, widened; they come first in the region. */
static float *next_vector(placing *p, uint32_t n, const float **device) {
    cuda_backend *b = p->b;
    float *out = p->measure ? NULL : b->vectors + b->n_vectors;
    *device = (const float *)(uintptr_t)(p->base + b->n_vectors * sizeof(float));
    b->n_vectors += ((uint64_t)n + 3) / 4 * 4;
    return out;
}

static const float *widen(placing *p, const pgl_vec *vec) {
    const float *device;
    if (vec->data == NULL)
        return NULL;
    float *out = next_vector(p, vec->n, &device);
    for (uint32_t i = 0; out != NULL && i < vec->n; i++)
        out[i] = pgl_vec_at(vec, i);
    return device;
}

/* [width][kernel] of the checkpoint as [kernel][width]. */
static const float *widen_conv(placing *p, const pgl_vec *vec) {
    const float *device;
    uint32_t kernel = p->b->model->config->conv_kernel, width = vec->n / kernel;
    float *out = next_vector(p, vec->n, &device);
    for (uint32_t c = 0; out != NULL && c < width; c++) {
        for (uint32_t j = 0; j < kernel; j++)
            out[(size_t)j * width + c] = pgl_vec_at(vec, c * kernel + j);
    }
    return device;
}

/* Scales that change nothing need no memory, and no product. */
static bool all_ones(const void *data, uint64_t n) {
    const unsigned char *at = data;
    for (uint64_t i = 0; i < n; i++) {
        float f;
        memcpy(&f, at + i * sizeof f, sizeof f);
        if (f != 1.0F)
            return false;
    }
    return true;
}

static const float *place_scales(placing *p, const void *data, uint64_t n) {
    return data == NULL || all_ones(data, n) ? NULL : place(p, data, n, sizeof(float));
}

static pgl_cuda_coded place_coded(placing *p, const pgl_coded *c) {
    uint64_t n_in = (uint64_t)c->n_experts * c->in, n_out = (uint64_t)c->n_experts * c->out;
    return (pgl_cuda_coded){
        .code = place(p, c->code, n_in * c->out / 8, c->k),
        .rin = place(p, c->rin, n_in, sizeof(uint16_t)),
        .rout = place(p, c->rout, n_out, sizeof(uint16_t)),
        .s_in = place_scales(p, c->s_in, n_in),
        .s_out = place_scales(p, c->s_out, n_out),
        .bias = place(p, c->bias, n_out, sizeof(uint16_t)),
        .n_experts = c->n_experts,
        .in = c->in,
        .out = c->out,
        .k = c->k,
    };
}

/* Bytes of one expert of a stack. */
static uint64_t coded_bytes(const pgl_cuda_coded *c) {
    uint64_t rows = (uint64_t)c->in + c->out;
    return (uint64_t)c->in * c->out * c->k / 8 + 2 * rows + (c->s_in != NULL ? 4ull * c->in : 0) +
           (c->s_out != NULL ? 4ull * c->out : 0) + (c->bias != NULL ? 2ull * c->out : 0);
}

static uint32_t plain_type(pgl_dtype dtype) {
    return dtype == PGL_F16 ? PGL_CUDA_F16 : dtype == PGL_BF16 ? PGL_CUDA_BF16 : PGL_CUDA_F32;
}

static cuda_linear place_linear(placing *p, const pgl_linear *l) {
    cuda_linear out = {.dense = {.in = l->in, .out = l->out}};
    uint64_t n = (uint64_t)l->in * l->out;
    switch (l->kind) {
    case PGL_LINEAR_INT8:
        out.dense.type = l->scale_dtype == PGL_F32 ? PGL_CUDA_INT8_F32 : PGL_CUDA_INT8_F16;
        out.dense.w = place(p, l->data, n, 1);
        out.dense.scale = place(p, l->scale, l->out, pgl_dtype_size(l->scale_dtype));
        out.bytes = n + l->out * pgl_dtype_size(l->scale_dtype);
        break;
    case PGL_LINEAR_PLAIN:
        out.dense.type = plain_type(l->dtype);
        out.dense.w = place(p, l->data, n, pgl_dtype_size(l->dtype));
        out.bytes = n * pgl_dtype_size(l->dtype);
        break;
    case PGL_LINEAR_CODED:
        out.coded = place_coded(p, &l->coded);
        out.bytes = coded_bytes(&out.coded);
        return out;
    case PGL_LINEAR_NONE:
        return out;
    }
    out.dense.bias = widen(p, &l->bias);
    return out;
}

static void place_mlp(placing *p, cuda_layer *layer, const pgl_moe_weights *w, bool experts) {
    layer->router = place_linear(p, &w->router);
    layer->shared_gate = place_linear(p, &w->shared_gate);
    layer->shared_up = place_linear(p, &w->shared_up);
    layer->shared_down = place_linear(p, &w->shared_down);
    layer->shared_expert_gate = place_linear(p, &w->shared_expert_gate);
    layer->gate = place_linear(p, &w->gate);
    layer->up = place_linear(p, &w->up);
    layer->down_dense = place_linear(p, &w->down_dense);
    if (!experts)
        return;
    layer->experts_gate_up = place_coded(p, &w->gate_up);
    layer->experts_down = place_coded(p, &w->down);
    layer->expert_bytes = coded_bytes(&layer->experts_gate_up) + coded_bytes(&layer->experts_down);
}

static void place_layer(placing *p, cuda_layer *layer, const pgl_layer_weights *w, bool experts) {
    layer->full_attention = w->full_attention;
    layer->input_norm = widen(p, &w->input_norm);
    layer->post_norm = widen(p, &w->post_attention_norm);
    if (w->full_attention) {
        layer->q_proj = place_linear(p, &w->attention.q_proj);
        layer->k_proj = place_linear(p, &w->attention.k_proj);
        layer->v_proj = place_linear(p, &w->attention.v_proj);
        layer->o_proj = place_linear(p, &w->attention.o_proj);
        layer->q_norm = widen(p, &w->attention.q_norm);
        layer->k_norm = widen(p, &w->attention.k_norm);
    } else {
        layer->in_proj_qkv = place_linear(p, &w->delta.in_proj_qkv);
        layer->in_proj_z = place_linear(p, &w->delta.in_proj_z);
        layer->in_proj_a = place_linear(p, &w->delta.in_proj_a);
        layer->in_proj_b = place_linear(p, &w->delta.in_proj_b);
        layer->out_proj = place_linear(p, &w->delta.out_proj);
        layer->conv = widen_conv(p, &w->delta.conv1d);
        layer->a_log = widen(p, &w->delta.a_log);
        layer->dt_bias = widen(p, &w->delta.dt_bias);
        layer->delta_norm = widen(p, &w->delta.norm);
    }
    place_mlp(p, layer, &w->moe, experts && p->b->model->config->n_experts > 0);
}

static void place_all(placing *p) {
    cuda_backend *b = p->b;
    const pgl_weights *w = b->model->weights;
    uint32_t n_layers = b->model->config->n_layers;
    cuda_weights *out = &b->weights;
    out->embed = place_linear(p, &w->embed);
    out->head = w->head.data == w->embed.data ? out->embed : place_linear(p, &w->head);
    out->norm = widen(p, &w->norm);
    for (uint32_t l = 0; l < n_layers; l++) {
        out->layers[l].slot = b->model->layer_slot[l];
        place_layer(p, &out->layers[l], &w->layers[l], true);
    }
    if (b->base.caps.max_draft == 0)
        return;
    const pgl_draft_weights *d = &w->draft;
    out->fc = place_linear(p, &d->fc);
    out->draft_norm = widen(p, &d->norm);
    out->draft_norm_embedding = widen(p, &d->pre_fc_norm_embedding);
    out->draft_norm_hidden = widen(p, &d->pre_fc_norm_hidden);
    out->draft.draft = true;
    out->draft.slot = b->model->n_attention_layers;
    place_layer(p, &out->draft, &d->layer, !d->borrows_experts);
    if (d->borrows_experts) {
        const cuda_layer *lender = &out->layers[d->borrowed_layer];
        out->draft.experts_gate_up = lender->experts_gate_up;
        out->draft.experts_down = lender->experts_down;
        out->draft.expert_bytes = lender->expert_bytes;
    }
}

pgl_status cuda_place_weights(cuda_backend *b, pgl_cu_address base, pgl_error *err) {
    placing p = {.b = b, .base = base, .measure = base == 0};
    if (p.measure) {
        b->weights.layers = pgl_new(b->model->config->n_layers, sizeof *b->weights.layers);
        if (b->weights.layers == NULL)
            return pgl_fail(err, PGL_E_MEMORY, "no memory for the records of the layers");
    } else {
        b->uploads = pgl_new(b->n_uploads + 1, sizeof *b->uploads);
        b->vectors = pgl_new((size_t)b->n_vectors, sizeof *b->vectors);
        if (b->uploads == NULL || b->vectors == NULL)
            return pgl_fail(err, PGL_E_MEMORY, "no memory for %llu norm and convolution weights",
                            (unsigned long long)b->n_vectors);
        p.used = (b->n_vectors * sizeof(float) + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
    }
    b->n_uploads = 0;
    b->n_vectors = 0;
    place_all(&p);
    if (p.overflow)
        return pgl_fail(err, PGL_E_MEMORY, "the sizes of the weights do not fit");
    if (p.measure)
        p.used += (b->n_vectors * sizeof(float) + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
    else
        b->uploads[b->n_uploads++] = (cuda_upload){b->vectors, b->n_vectors * sizeof(float), 0};
    b->weights_region.bytes = p.used;
    return PGL_OK;
}

void cuda_free_uploads(cuda_backend *b) {
    free(b->uploads);
    free(b->vectors);
    b->uploads = NULL;
    b->vectors = NULL;
}

/* ---- uploading */

#define BUFFER_BYTES ((size_t)16 << 20)

/* Two buffers in turn: one is filled from the file while the card takes the other. */
typedef struct pump {
    cuda_backend *b;
    const pgl_cuda_options *cuda;
    unsigned char *buffer[2];
    pgl_cu_event taken[2];
    bool busy[2];
    uint32_t turn;
    uint64_t done, total;
} pump;

static pgl_status open_pump(pump *p, pgl_error *err) {
    const pgl_cuda_driver *d = &p->b->driver;
    pgl_status status = PGL_OK;
    for (uint32_t i = 0; status == PGL_OK && i < 2; i++) {
        void *memory = NULL;
        status = pgl_cuda_check(d, d->pinned_new(&memory, BUFFER_BYTES, 0), err,
                                "page-locked memory for loading, %zu bytes", BUFFER_BYTES);
        p->buffer[i] = memory;
        if (status == PGL_OK)
            status = pgl_cuda_check(d, d->event_new(&p->taken[i], PGL_CU_EVENT_NO_TIMING), err, "an event");
    }
    return status;
}

static void close_pump(pump *p) {
    const pgl_cuda_driver *d = &p->b->driver;
    (void)d->stream_wait(p->b->stream);
    for (uint32_t i = 0; i < 2; i++) {
        if (p->taken[i] != NULL)
            (void)d->event_free(p->taken[i]);
        if (p->buffer[i] != NULL)
            (void)d->pinned_free(p->buffer[i]);
    }
}

static pgl_status send(pump *p, const unsigned char *from, pgl_cu_address to, size_t n, pgl_error *err) {
    const pgl_cuda_driver *d = &p->b->driver;
    uint32_t i = p->turn;
    pgl_status status = PGL_OK;
    if (p->busy[i])
        status = pgl_cuda_check(d, d->event_wait(p->taken[i]), err, "loading weights onto the card");
    if (status != PGL_OK)
        return status;
    memcpy(p->buffer[i], from, n);
    status = pgl_cuda_check(d, d->copy_up(to, p->buffer[i], n, p->b->stream), err,
                            "loading weights onto the card");
    if (status == PGL_OK)
        status = pgl_cuda_check(d, d->event_record(p->taken[i], p->b->stream), err,
                                "loading weights onto the card");
    p->busy[i] = true;
    p->turn = 1 - i;
    p->done += n;
    if (status == PGL_OK && p->cuda->progress != NULL &&
        !p->cuda->progress(p->cuda->context, p->done, p->total))
        status = pgl_fail(err, PGL_E_CANCELLED, "loading weights onto the card was cancelled");
    return status;
}

static pgl_status send_all(pump *p, pgl_error *err) {
    const cuda_backend *b = p->b;
    pgl_status status = PGL_OK;
    for (uint32_t i = 0; status == PGL_OK && i < b->n_uploads; i++) {
        const cuda_upload *u = &b->uploads[i];
        for (uint64_t at = 0; status == PGL_OK && at < u->bytes; at += BUFFER_BYTES) {
            size_t n = u->bytes - at < BUFFER_BYTES ? (size_t)(u->bytes - at) : BUFFER_BYTES;
            status = send(p, (const unsigned char *)u->from + at, b->weights_region.at + u->at + at, n, err);
        }
    }
    if (status == PGL_OK)
        status = pgl_cuda_check(&b->driver, b->driver.stream_wait(b->stream), err,
                                "loading weights onto the card");
    return status;
}

pgl_status cuda_upload_weights(cuda_backend *b, const pgl_cuda_options *cuda, pgl_error *err) {
    pump p = {.b = b, .cuda = cuda};
    for (uint32_t i = 0; i < b->n_uploads; i++)
        p.total += b->uploads[i].bytes;
    pgl_status status = open_pump(&p, err);
    if (status == PGL_OK)
        status = send_all(&p, err);
    close_pump(&p);
    return status;
}
