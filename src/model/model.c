/* Owns nothing: derives sizes from a borrowed config and checks borrowed weights against it. */
#include "model/model.h"

#include <stdio.h>

#include "base/alloc.h"
#include "codec/codec.h"

/* One weight that is checked, named as messages show it: "layers.3.self_attn.q_proj". */
typedef struct check {
    const char *scope;
    pgl_error *err;
} check;

static pgl_status check_linear(const check *c, const char *name, const pgl_linear *linear, uint64_t out,
                               uint64_t in) {
    if (linear->kind == PGL_LINEAR_NONE)
        return pgl_fail(c->err, PGL_E_FORMAT, "%s%s: expected a linear [%llu, %llu], found none", c->scope,
                        name, (unsigned long long)out, (unsigned long long)in);
    if (linear->out != out || linear->in != in)
        return pgl_fail(c->err, PGL_E_FORMAT, "%s%s: expected [%llu, %llu], found [%u, %u]", c->scope, name,
                        (unsigned long long)out, (unsigned long long)in, linear->out, linear->in);
    if (linear->kind != PGL_LINEAR_CODED)
        return PGL_OK;
    const pgl_coded *coded = &linear->coded;
    if (coded->out != out || coded->in != in || coded->n_experts != 1 || in % PGL_HADAMARD != 0 ||
        out % PGL_HADAMARD != 0 || coded->k < 1 || coded->k > 8)
        return pgl_fail(
            c->err, PGL_E_FORMAT,
            "%s%s: expected one code stream [%llu, %llu] with sizes that are multiples of %d and K "
            "from 1 to 8, found %u of [%u, %u] with K = %u",
            c->scope, name, (unsigned long long)out, (unsigned long long)in, PGL_HADAMARD, coded->n_experts,
            coded->out, coded->in, coded->k);
    return PGL_OK;
}

static pgl_status check_experts(const check *c, const char *name, const pgl_coded *coded,
                                const pgl_config *config, uint64_t out, uint64_t in) {
    if (coded->code == NULL || coded->rin == NULL || coded->rout == NULL ||
        coded->n_experts != config->n_experts || coded->out != out || coded->in != in ||
        in % PGL_HADAMARD != 0 || out % PGL_HADAMARD != 0 || coded->k < 1 || coded->k > 8)
        return pgl_fail(
            c->err, PGL_E_FORMAT,
            "%s%s: expected %u experts, in %llu, out %llu (multiples of %d), K from 1 to 8; found %u "
            "experts, in %u, out %u, K = %u%s",
            c->scope, name, config->n_experts, (unsigned long long)in, (unsigned long long)out, PGL_HADAMARD,
            coded->n_experts, coded->in, coded->out, coded->k, coded->code == NULL ? ", no codes" : "");
    return PGL_OK;
}

static pgl_status check_vec(const check *c, const char *name, const pgl_vec *vec, uint64_t n) {
    if (vec->data == NULL || vec->n != n ||
        (vec->dtype != PGL_F16 && vec->dtype != PGL_BF16 && vec->dtype != PGL_F32))
        return pgl_fail(c->err, PGL_E_FORMAT, "%s%s: expected %llu numbers of F16, BF16 or F32, found %u%s",
                        c->scope, name, (unsigned long long)n, vec->n, vec->data == NULL ? " (absent)" : "");
    return PGL_OK;
}

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        pgl_status try_status = (call);                                                                      \
        if (try_status != PGL_OK)                                                                            \
            return try_status;                                                                               \
    } while (0)

static pgl_status check_moe(const check *c, const pgl_config *config, const pgl_moe_weights *moe) {
    uint64_t h = config->hidden_size, m = config->moe_intermediate_size, s = config->shared_intermediate_size;
    if (config->n_experts == 0) {
        TRY(check_linear(c, "mlp.gate_proj", &moe->gate, config->intermediate_size, h));
        TRY(check_linear(c, "mlp.up_proj", &moe->up, config->intermediate_size, h));
        return check_linear(c, "mlp.down_proj", &moe->down_dense, h, config->intermediate_size);
    }
    TRY(check_linear(c, "mlp.gate", &moe->router, config->n_experts, h));
    TRY(check_experts(c, "mlp.experts.gate_up_proj", &moe->gate_up, config, 2 * m, h));
    TRY(check_experts(c, "mlp.experts.down_proj", &moe->down, config, h, m));
    if (s == 0)
        return PGL_OK;
    TRY(check_linear(c, "mlp.shared_expert.gate_proj", &moe->shared_gate, s, h));
    TRY(check_linear(c, "mlp.shared_expert.up_proj", &moe->shared_up, s, h));
    TRY(check_linear(c, "mlp.shared_expert.down_proj", &moe->shared_down, h, s));
    return check_linear(c, "mlp.shared_expert_gate", &moe->shared_expert_gate, 1, h);
}

static pgl_status check_attention(const check *c, const pgl_model *model, const pgl_attention_weights *a) {
    uint64_t h = model->config->hidden_size;
    TRY(check_linear(c, "self_attn.q_proj", &a->q_proj, 2ull * model->q_width, h));
    TRY(check_linear(c, "self_attn.k_proj", &a->k_proj, model->kv_width, h));
    TRY(check_linear(c, "self_attn.v_proj", &a->v_proj, model->kv_width, h));
    TRY(check_linear(c, "self_attn.o_proj", &a->o_proj, h, model->q_width));
    TRY(check_vec(c, "self_attn.q_norm", &a->q_norm, model->config->head_dim));
    return check_vec(c, "self_attn.k_norm", &a->k_norm, model->config->head_dim);
}

static pgl_status check_delta(const check *c, const pgl_model *model, const pgl_delta_weights *d) {
    const pgl_config *config = model->config;
    uint64_t h = config->hidden_size, nv = config->n_value_heads;
    TRY(check_linear(c, "linear_attn.in_proj_qkv", &d->in_proj_qkv, model->conv_width, h));
    TRY(check_linear(c, "linear_attn.in_proj_z", &d->in_proj_z, model->value_width, h));
    TRY(check_linear(c, "linear_attn.in_proj_a", &d->in_proj_a, nv, h));
    TRY(check_linear(c, "linear_attn.in_proj_b", &d->in_proj_b, nv, h));
    TRY(check_linear(c, "linear_attn.out_proj", &d->out_proj, h, model->value_width));
    TRY(check_vec(c, "linear_attn.conv1d", &d->conv1d, (uint64_t)model->conv_width * config->conv_kernel));
    TRY(check_vec(c, "linear_attn.A_log", &d->a_log, nv));
    TRY(check_vec(c, "linear_attn.dt_bias", &d->dt_bias, nv));
    return check_vec(c, "linear_attn.norm", &d->norm, config->value_dim);
}

static pgl_status check_layer(const check *c, const pgl_model *model, const pgl_layer_weights *layer,
                              bool full_attention) {
    uint64_t h = model->config->hidden_size;
    TRY(check_vec(c, "input_layernorm", &layer->input_norm, h));
    TRY(check_vec(c, "post_attention_layernorm", &layer->post_attention_norm, h));
    if (layer->full_attention != full_attention)
        return pgl_fail(c->err, PGL_E_FORMAT, "%slayer kind: expected %s, found %s", c->scope,
                        full_attention ? "full attention" : "gated delta net",
                        layer->full_attention ? "full attention" : "gated delta net");
    if (full_attention)
        TRY(check_attention(c, model, &layer->attention));
    else
        TRY(check_delta(c, model, &layer->delta));
    return check_moe(c, model->config, &layer->moe);
}

static pgl_status check_weights(const pgl_model *model, pgl_error *err) {
    const pgl_config *config = model->config;
    const pgl_weights *weights = model->weights;
    check top = {"", err};
    uint64_t h = config->hidden_size;
    TRY(check_linear(&top, "embed_tokens", &weights->embed, config->vocab_size, h));
    if (weights->embed.kind == PGL_LINEAR_CODED)
        return pgl_fail(err, PGL_E_FORMAT, "embed_tokens: expected int8 or plain rows, found a coded linear");
    TRY(check_linear(&top, "lm_head", &weights->head, config->vocab_size, h));
    TRY(check_vec(&top, "norm", &weights->norm, h));
    for (uint32_t l = 0; l < config->n_layers; l++) {
        char scope[32];
        snprintf(scope, sizeof scope, "layers.%u.", l);
        check c = {scope, err};
        TRY(check_layer(&c, model, &weights->layers[l], config->full_attention[l]));
    }
    const pgl_draft_weights *draft = &weights->draft;
    if (!draft->present)
        return PGL_OK;
    check c = {"mtp.", err};
    TRY(check_linear(&c, "fc", &draft->fc, h, 2 * h));
    TRY(check_vec(&c, "pre_fc_norm_embedding", &draft->pre_fc_norm_embedding, h));
    TRY(check_vec(&c, "pre_fc_norm_hidden", &draft->pre_fc_norm_hidden, h));
    TRY(check_vec(&c, "norm", &draft->norm, h));
    check layer = {"mtp.layers.0.", err};
    return check_layer(&layer, model, &draft->layer, true);
}

/* Sizes whose relations the forward pass relies on; the ranges of single fields are checked where config is
 * read. */
static pgl_status check_config(const pgl_config *c, uint32_t n_attention, uint32_t n_delta, pgl_error *err) {
    if (c->n_layers == 0 || c->n_layers > PGL_MAX_LAYERS || c->hidden_size == 0 || c->vocab_size == 0)
        return pgl_fail(err, PGL_E_UNSUPPORTED,
                        "expected 1 to %d layers, a hidden size and a vocabulary; found %u, %u, %u",
                        PGL_MAX_LAYERS, c->n_layers, c->hidden_size, c->vocab_size);
    if ((n_attention > 0 || c->n_mtp_layers > 0) &&
        (c->n_kv_heads == 0 || c->n_heads == 0 || c->n_heads % c->n_kv_heads != 0 || c->head_dim == 0 ||
         c->rotary_dim % 2 != 0 || c->rotary_dim > c->head_dim))
        return pgl_fail(
            err, PGL_E_UNSUPPORTED,
            "attention: expected key/value heads that divide the heads and an even rotary size within "
            "the head; found %u heads, %u key/value heads, head_dim %u, rotary %u",
            c->n_heads, c->n_kv_heads, c->head_dim, c->rotary_dim);
    if (n_delta > 0 &&
        (c->n_key_heads == 0 || c->n_value_heads == 0 || c->n_value_heads % c->n_key_heads != 0 ||
         c->key_dim == 0 || c->value_dim == 0 || c->conv_kernel == 0))
        return pgl_fail(
            err, PGL_E_UNSUPPORTED,
            "gated delta net: expected key heads that divide the value heads and a kernel of at least "
            "1; found %u key heads of %u, %u value heads of %u, kernel %u",
            c->n_key_heads, c->key_dim, c->n_value_heads, c->value_dim, c->conv_kernel);
    if (c->n_experts > 0 && (c->n_experts_used == 0 || c->n_experts_used > c->n_experts))
        return pgl_fail(err, PGL_E_UNSUPPORTED, "experts: expected 1 to %u used per token, found %u",
                        c->n_experts, c->n_experts_used);
    return PGL_OK;
}

/* a * b where both and the product are widths of rows. */
static bool width(uint32_t a, uint32_t b, uint32_t *out) {
    return !__builtin_mul_overflow(a, b, out) && *out <= INT32_MAX / 4;
}

static bool derive_sizes(pgl_model *m) {
    const pgl_config *c = m->config;
    uint64_t s, taps;
    bool ok = width(c->n_key_heads, c->key_dim, &m->key_width) &&
              width(c->n_value_heads, c->value_dim, &m->value_width) &&
              width(c->n_heads, c->head_dim, &m->q_width) && width(c->n_kv_heads, c->head_dim, &m->kv_width);
    if (!ok)
        return false;
    m->conv_width = 2 * m->key_width + m->value_width; /* each below 2^29 */
    m->draft_kv_token_bytes = m->weights->draft.present ? 4ull * m->kv_width : 0;
    m->kv_token_bytes = 4ull * m->kv_width * m->n_attention_layers;
    ok = pgl_mul_u64(m->value_width, c->key_dim, &s) &&
         pgl_mul_u64(s, 4ull * m->n_delta_layers, &m->state_bytes) &&
         pgl_mul_u64(m->conv_width, c->conv_kernel > 0 ? c->conv_kernel - 1 : 0, &taps) &&
         pgl_mul_u64(taps, 4ull * m->n_delta_layers, &m->conv_bytes);
    m->hidden_bytes = 4ull * c->hidden_size;
    if (!ok || !pgl_add_u64(m->state_bytes, m->conv_bytes, &m->slot_bytes) ||
        !pgl_add_u64(m->slot_bytes, m->hidden_bytes, &m->slot_bytes))
        return false;
    m->snapshot_bytes = m->slot_bytes;
    return true;
}

pgl_status pgl_model_sizes(pgl_model *model, const pgl_config *config, const pgl_weights *weights,
                           pgl_error *err) {
    *model = (pgl_model){.config = config, .weights = weights};
    for (uint32_t l = 0; l < config->n_layers && l < PGL_MAX_LAYERS; l++)
        model->layer_slot[l] =
            config->full_attention[l] ? model->n_attention_layers++ : model->n_delta_layers++;
    model->n_used = config->n_experts > 0 ? config->n_experts_used : 0;
    TRY(check_config(config, model->n_attention_layers, model->n_delta_layers, err));
    if (!derive_sizes(model))
        return pgl_fail(err, PGL_E_UNSUPPORTED,
                        "the sizes of this model do not fit: heads, widths or state overflow");
    return PGL_OK;
}

pgl_status pgl_model_init(pgl_model *model, const pgl_config *config, const pgl_weights *weights,
                          pgl_error *err) {
    TRY(pgl_model_sizes(model, config, weights, err));
    return check_weights(model, err);
}
