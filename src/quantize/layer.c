/* Owns nothing beyond a call: tensors go to the caller's output. */
#include "quantize/layer.h"

#include <stdio.h>
#include <string.h>

typedef enum storage { INT8, PLAIN, KEEP_F32 } storage;

/* One tensor of a layer; a dimension of 0 is left out. */
typedef struct row {
    const char *base;
    storage storage;
    uint64_t dims[3];
} row;

static size_t layer_rows(const pgl_config *c, const pgl_layer_place *place, row rows[24]) {
    uint64_t hidden = c->hidden_size, value = (uint64_t)c->n_value_heads * c->value_dim;
    uint64_t conv = 2 * (uint64_t)c->n_key_heads * c->key_dim + value, heads = c->n_value_heads;
    uint64_t q = (uint64_t)c->n_heads * c->head_dim, kv = (uint64_t)c->n_kv_heads * c->head_dim;
    size_t n = 0;
    rows[n++] = (row){"input_layernorm.weight", PLAIN, {hidden}};
    rows[n++] = (row){"post_attention_layernorm.weight", PLAIN, {hidden}};
    if (place->full_attention) {
        rows[n++] = (row){"self_attn.q_proj", INT8, {2 * q, hidden}};
        rows[n++] = (row){"self_attn.k_proj", INT8, {kv, hidden}};
        rows[n++] = (row){"self_attn.v_proj", INT8, {kv, hidden}};
        rows[n++] = (row){"self_attn.o_proj", INT8, {hidden, q}};
        rows[n++] = (row){"self_attn.q_norm.weight", PLAIN, {c->head_dim}};
        rows[n++] = (row){"self_attn.k_norm.weight", PLAIN, {c->head_dim}};
    } else {
        rows[n++] = (row){"linear_attn.in_proj_qkv", INT8, {conv, hidden}};
        rows[n++] = (row){"linear_attn.in_proj_z", INT8, {value, hidden}};
        rows[n++] = (row){"linear_attn.in_proj_a.weight", PLAIN, {heads, hidden}};
        rows[n++] = (row){"linear_attn.in_proj_b.weight", PLAIN, {heads, hidden}};
        rows[n++] = (row){"linear_attn.out_proj", INT8, {hidden, value}};
        rows[n++] = (row){"linear_attn.conv1d.weight", PLAIN, {conv, 1, c->conv_kernel}};
        rows[n++] = (row){"linear_attn.A_log", KEEP_F32, {heads}};
        rows[n++] = (row){"linear_attn.dt_bias", KEEP_F32, {heads}};
        rows[n++] = (row){"linear_attn.norm.weight", PLAIN, {c->value_dim}};
    }
    rows[n++] = (row){"mlp.gate.weight", PLAIN, {c->n_experts, hidden}};
    if (c->shared_intermediate_size > 0) {
        uint64_t shared = c->shared_intermediate_size;
        rows[n++] = (row){"mlp.shared_expert.gate_proj", INT8, {shared, hidden}};
        rows[n++] = (row){"mlp.shared_expert.up_proj", INT8, {shared, hidden}};
        rows[n++] = (row){"mlp.shared_expert.down_proj", INT8, {hidden, shared}};
        rows[n++] = (row){"mlp.shared_expert_gate.weight", PLAIN, {1, hidden}};
    }
    return n;
}

static uint32_t n_dims(const row *r) {
    return r->dims[2] != 0 ? 3 : r->dims[1] != 0 ? 2 : 1;
}

pgl_status pgl_layer_add_dense(pgl_quant_output *output, const pgl_source *source, const pgl_config *config,
                               const pgl_layer_place *place, pgl_error *err) {
    row rows[24];
    size_t n = layer_rows(config, place, rows);
    pgl_status status = PGL_OK;
    for (size_t i = 0; i < n && status == PGL_OK; i++) {
        char base[128];
        bool pair = rows[i].storage == INT8;
        snprintf(base, sizeof base, "%s%s%s", place->base, rows[i].base,
                 pair && place->draft ? ".weight" : "");
        if (pair && !place->draft)
            status = pgl_quant_output_add_int8(output, source, place->prefix, base, rows[i].dims[0],
                                               rows[i].dims[1], err);
        else
            status = pgl_quant_output_add_plain(output, source, place->prefix, base, n_dims(&rows[i]),
                                                rows[i].dims, rows[i].storage == KEEP_F32, err);
    }
    return status;
}

static pgl_status add_leaf(pgl_quant_output *output, const pgl_layer_place *place, const char *linear,
                           const char *leaf, pgl_dtype dtype, uint32_t count, const uint64_t *dims,
                           pgl_quant_output_tensor **out, pgl_error *err) {
    char name[256];
    snprintf(name, sizeof name, "%s%smlp.experts.%s.%s", place->prefix, place->base, linear, leaf);
    return pgl_quant_output_add(output, name, dtype, count, dims, out, err);
}

static pgl_status add_coded(pgl_quant_output *output, const pgl_layer_place *place, const char *linear,
                            uint32_t k, uint64_t experts, uint64_t in, uint64_t out, pgl_error *err) {
    const uint64_t code[4] = {experts, in / 16, out / 16, 16 * (uint64_t)k};
    const uint64_t vin[2] = {experts, in}, vout[2] = {experts, out}, nine[1] = {9};
    pgl_quant_output_tensor *t = NULL;
    pgl_status status = add_leaf(output, place, linear, "escha_code", PGL_I16, 4, code, &t, err);
    if (status == PGL_OK)
        status = add_leaf(output, place, linear, "escha_rin", PGL_F16, 2, vin, &t, err);
    if (status == PGL_OK)
        status = add_leaf(output, place, linear, "escha_rout", PGL_F16, 2, vout, &t, err);
    if (status == PGL_OK)
        status = add_leaf(output, place, linear, "escha_config", PGL_I32, 1, nine, &t, err);
    if (status == PGL_OK) {
        const int32_t values[9] = {16,          (int32_t)k,   2,           1,           (int32_t)experts,
                                   (int32_t)in, (int32_t)out, (int32_t)in, (int32_t)out};
        memcpy(t->data, values, sizeof values);
    }
    return status;
}

pgl_status pgl_layer_add_experts(pgl_quant_output *output, const pgl_config *config,
                                 const pgl_layer_place *place, uint32_t k_gate_up, uint32_t k_down,
                                 pgl_error *err) {
    uint64_t hidden = config->hidden_size, inter = config->moe_intermediate_size;
    pgl_status status =
        add_coded(output, place, "gate_up_proj", k_gate_up, config->n_experts, hidden, 2 * inter, err);
    if (status == PGL_OK)
        status = add_coded(output, place, "down_proj", k_down, config->n_experts, inter, hidden, err);
    return status;
}

static const pgl_quant_output_tensor *leaf(const pgl_quant_output *output, const pgl_layer_place *place,
                                           const char *base, const char *suffix) {
    char name[256];
    snprintf(name, sizeof name, "%s%s%s%s", place->prefix, place->base, base, suffix);
    return pgl_quant_output_tensor_named(output, name);
}

static pgl_linear linear_view(const pgl_quant_output *output, const pgl_layer_place *place,
                              const char *base) {
    const pgl_quant_output_tensor *w8 = leaf(output, place, base, ".weight_int8");
    const pgl_quant_output_tensor *scale = leaf(output, place, base, ".weight_scale");
    const pgl_quant_output_tensor *plain = leaf(output, place, base, ".weight");
    const pgl_quant_output_tensor *t = w8 != NULL ? w8 : plain;
    pgl_linear linear = {.kind = PGL_LINEAR_NONE};
    if (t == NULL || (w8 != NULL && scale == NULL) || t->spec.n_dims != 2)
        return linear;
    linear.kind = w8 != NULL ? PGL_LINEAR_INT8 : PGL_LINEAR_PLAIN;
    linear.out = (uint32_t)t->spec.dims[0];
    linear.in = (uint32_t)t->spec.dims[1];
    linear.data = t->data;
    linear.dtype = t->spec.dtype;
    if (w8 != NULL) {
        linear.scale = scale->data;
        linear.scale_dtype = scale->spec.dtype;
    }
    return linear;
}

static pgl_vec vec_view(const pgl_quant_output *output, const pgl_layer_place *place, const char *base) {
    const pgl_quant_output_tensor *t = leaf(output, place, base, "");
    if (t == NULL)
        return (pgl_vec){0};
    return (pgl_vec){t->data, t->spec.dtype, (uint32_t)(t->bytes / pgl_dtype_size(t->spec.dtype))};
}

static pgl_coded coded_view(const pgl_quant_output *output, const pgl_layer_place *place, const char *base) {
    const pgl_quant_output_tensor *code = leaf(output, place, base, ".escha_code");
    const pgl_quant_output_tensor *rin = leaf(output, place, base, ".escha_rin"),
                                  *rout = leaf(output, place, base, ".escha_rout");
    if (code == NULL || rin == NULL || rout == NULL || code->spec.n_dims != 4)
        return (pgl_coded){0};
    return (pgl_coded){.code = code->data,
                       .rin = rin->data,
                       .rout = rout->data,
                       .n_experts = (uint32_t)code->spec.dims[0],
                       .in = (uint32_t)(16 * code->spec.dims[1]),
                       .out = (uint32_t)(16 * code->spec.dims[2]),
                       .k = (uint32_t)(code->spec.dims[3] / 16)};
}

pgl_status pgl_layer_views(const pgl_quant_output *output, const pgl_config *config,
                           const pgl_layer_place *place, pgl_layer_weights *out, pgl_error *err) {
    row rows[24];
    size_t n = layer_rows(config, place, rows);
    for (size_t i = 0; i < n; i++) {
        const char *suffix = rows[i].storage != INT8 ? "" : place->draft ? ".weight" : ".weight_int8";
        if (leaf(output, place, rows[i].base, suffix) == NULL)
            return pgl_fail(err, PGL_E_FORMAT, "expected tensor %s%s%s%s, found none", place->prefix,
                            place->base, rows[i].base, suffix);
    }
    *out = (pgl_layer_weights){.full_attention = place->full_attention};
    out->input_norm = vec_view(output, place, "input_layernorm.weight");
    out->post_attention_norm = vec_view(output, place, "post_attention_layernorm.weight");
    pgl_attention_weights *a = &out->attention;
    a->q_proj = linear_view(output, place, "self_attn.q_proj");
    a->k_proj = linear_view(output, place, "self_attn.k_proj");
    a->v_proj = linear_view(output, place, "self_attn.v_proj");
    a->o_proj = linear_view(output, place, "self_attn.o_proj");
    a->q_norm = vec_view(output, place, "self_attn.q_norm.weight");
    a->k_norm = vec_view(output, place, "self_attn.k_norm.weight");
    pgl_delta_weights *d = &out->delta;
    d->in_proj_qkv = linear_view(output, place, "linear_attn.in_proj_qkv");
    d->in_proj_z = linear_view(output, place, "linear_attn.in_proj_z");
    d->in_proj_a = linear_view(output, place, "linear_attn.in_proj_a");
    d->in_proj_b = linear_view(output, place, "linear_attn.in_proj_b");
    d->out_proj = linear_view(output, place, "linear_attn.out_proj");
    d->conv1d = vec_view(output, place, "linear_attn.conv1d.weight");
    d->a_log = vec_view(output, place, "linear_attn.A_log");
    d->dt_bias = vec_view(output, place, "linear_attn.dt_bias");
    d->norm = vec_view(output, place, "linear_attn.norm.weight");
    pgl_moe_weights *m = &out->moe;
    m->router = linear_view(output, place, "mlp.gate");
    m->shared_gate = linear_view(output, place, "mlp.shared_expert.gate_proj");
    m->shared_up = linear_view(output, place, "mlp.shared_expert.up_proj");
    m->shared_down = linear_view(output, place, "mlp.shared_expert.down_proj");
    m->shared_expert_gate = linear_view(output, place, "mlp.shared_expert_gate");
    m->gate_up = coded_view(output, place, "mlp.experts.gate_up_proj");
    m->down = coded_view(output, place, "mlp.experts.down_proj");
    return PGL_OK;
}
