/* Owns nothing: one decoder layer on the tokens of a batch. */
#include "backend/cpu/cpu.h"
#include "model/ops.h"

static void rotation_task(void *context, uint32_t task, uint32_t thread) {
    cpu_backend *b = context;
    const pgl_config *c = b->model->config;
    int64_t position = (int64_t)b->batch.position[task] + b->rotation_shift;
    size_t at = (size_t)task * (c->rotary_dim / 2);
    (void)thread;
    pgl_rope_angles(c->rope_theta, c->rotary_dim, position > 0 ? (uint64_t)position : 0, b->w.cosine + at,
                    b->w.sine + at);
}

void cpu_rotations(cpu_backend *b, int32_t shift) {
    b->rotation_shift = shift;
    cpu_work work = {rotation_task, b, b->batch.n_tokens};
    if (b->model->n_attention_layers > 0 || b->base.caps.max_draft > 0)
        cpu_run(b, &work, 1);
}

void cpu_layer_forward(cpu_backend *b, const cpu_layer *layer) {
    uint32_t n = b->batch.n_tokens;
    cpu_norm_rows(b, layer->input_norm, b->w.x, b->w.h, n);
    if (layer->weights->full_attention)
        cpu_attention_mixer(b, layer);
    else
        cpu_delta_mixer(b, layer);
    cpu_add_rows(b, b->w.y, b->w.x, n);
    cpu_norm_rows(b, layer->post_norm, b->w.x, b->w.h, n);
    cpu_mlp(b, layer);
}
