/* The list of tensors of a synthetic checkpoint, in the order of the layers, their scales, and their places in the
 * shards. Scales keep the mean square of the residual near 1 at the embedding and let each of the two branches of a
 * layer add about 1/16 to it; projections turn inputs of mean square 1 into outputs of mean square 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/synth_plan.h"

#define INT8_STD 52.26F /* of PGL_FILL_INT8 */
#define CODEBOOK_STD 1.2441F
#define SILU_GATE_RMS 0.6F /* of silu(a) * b for a, b of mean square 1 */
#define BRANCH_RMS 0.25F
#define TRUNK "model.language_model."

typedef struct planner {
    pgl_synth_plan *plan;
    const pgl_config *config;
    uint64_t seed;
    pgl_status status;
    pgl_error *err;
    pgl_synth_tensor nowhere; /* what add returns after a failure */
} planner;

/* FNV-1a over the name, the seed and the version: tensors draw from independent streams. */
static uint64_t stream_key(const char *name, uint64_t seed) {
    uint64_t hash = 0xcbf29ce484222325U ^ (seed * 0xd6e8feb86659fd93U) ^ PGL_SYNTH_VERSION;
    for (const char *c = name; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3U;
    }
    return hash;
}

/* Adds a tensor; shape ends at the first 0. The result may be refined until the next call; never NULL. */
static pgl_synth_tensor *add(planner *p, const char *prefix, const char *leaf, pgl_dtype dtype,
                             const uint64_t shape[4], pgl_synth_fill_kind fill) {
    pgl_synth_plan *plan = p->plan;
    if (p->status != PGL_OK ||
        !pgl_grow(&plan->tensors, sizeof *plan->tensors, &plan->capacity, plan->n_tensors + 1)) {
        if (p->status == PGL_OK) {
            p->status = pgl_fail(p->err, PGL_E_MEMORY, "no memory for the list of tensors");
        }
        return &p->nowhere;
    }
    pgl_synth_tensor *t = &plan->tensors[plan->n_tensors++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s%s", prefix, leaf);
    t->dtype = dtype;
    t->fill = fill;
    t->key = stream_key(t->name, p->seed);
    t->bytes = pgl_dtype_size(dtype);
    bool fits = true;
    for (uint32_t d = 0; d < 4 && shape[d] != 0; d++) {
        t->dims[t->n_dims++] = shape[d];
        fits = fits && pgl_mul_u64(t->bytes, shape[d], &t->bytes);
    }
    if (!fits || !pgl_add_u64(plan->total_bytes, t->bytes, &plan->total_bytes)) {
        p->status = pgl_fail(p->err, PGL_E_INVALID, "%s: its size does not fit in 64 bits", t->name);
    }
    return t;
}

#define SHAPE(...)                                                                                           \
    (const uint64_t[4]) {                                                                                    \
        __VA_ARGS__                                                                                          \
    }

/* n numbers around mean. */
static void vector(planner *p, const char *prefix, const char *leaf, uint64_t n, float mean, float std) {
    pgl_synth_tensor *t = add(p, prefix, leaf, PGL_F16, SHAPE(n), PGL_FILL_NORMAL);
    t->mean = mean;
    t->std = std;
}

/* A plain 16-bit matrix whose outputs have root mean square gain for inputs of mean square 1. */
static void plain(planner *p, const char *prefix, const char *leaf, uint64_t out, uint64_t in, float gain) {
    pgl_synth_tensor *t = add(p, prefix, leaf, PGL_F16, SHAPE(out, in), PGL_FILL_NORMAL);
    t->std = gain / sqrtf((float)in);
}

/* The same as an int8 pair, or plain in the draft head. */
static void linear(planner *p, bool draft, const char *prefix, const char *name, uint64_t out, uint64_t in,
                   float gain) {
    char leaf[64];
    if (draft) {
        snprintf(leaf, sizeof leaf, "%s.weight", name);
        plain(p, prefix, leaf, out, in, gain);
        return;
    }
    snprintf(leaf, sizeof leaf, "%s.weight_int8", name);
    add(p, prefix, leaf, PGL_I8, SHAPE(out, in), PGL_FILL_INT8);
    snprintf(leaf, sizeof leaf, "%s.weight_scale", name);
    const float scale = gain / (INT8_STD * sqrtf((float)in));
    vector(p, prefix, leaf, out, scale, 0.12F * scale);
}

/* Trellis-coded experts. The transforms keep mean squares, so a product has gain rin * rout * CODEBOOK_STD *
 * sqrt(in); the published export keeps the inputs' scale in rin and the weights' in rout. */
static void coded(planner *p, const char *prefix, const char *name, uint32_t k, uint64_t in, uint64_t out,
                  float gain, uint32_t zero_one_in) {
    const uint64_t n_experts = p->config->n_experts;
    char leaf[64];
    snprintf(leaf, sizeof leaf, "%s.escha_code", name);
    add(p, prefix, leaf, PGL_I16, SHAPE(n_experts, in / 16, out / 16, (uint64_t)16 * k), PGL_FILL_BITS);

    const float rin = 0.8F / sqrtf((float)in);
    snprintf(leaf, sizeof leaf, "%s.escha_rin", name);
    pgl_synth_tensor *t = add(p, prefix, leaf, PGL_F16, SHAPE(n_experts, in), PGL_FILL_SIGNED);
    t->mean = rin;
    t->std = 0.06F * rin;

    const float rout = gain / (0.8F * CODEBOOK_STD);
    snprintf(leaf, sizeof leaf, "%s.escha_rout", name);
    t = add(p, prefix, leaf, PGL_F16, SHAPE(n_experts, out), PGL_FILL_SIGNED);
    t->mean = rout;
    t->std = 0.12F * rout;
    t->zero_one_in = zero_one_in;

    snprintf(leaf, sizeof leaf, "%s.escha_s_in", name);
    add(p, prefix, leaf, PGL_F32, SHAPE(n_experts, in), PGL_FILL_ONES);
    snprintf(leaf, sizeof leaf, "%s.escha_s_out", name);
    add(p, prefix, leaf, PGL_F32, SHAPE(n_experts, out), PGL_FILL_ONES);

    snprintf(leaf, sizeof leaf, "%s.escha_config", name);
    t = add(p, prefix, leaf, PGL_I32, SHAPE(9), PGL_FILL_CONFIG);
    const int32_t i = (int32_t)in;
    const int32_t o = (int32_t)out;
    memcpy(t->config, (const int32_t[9]){16, (int32_t)k, 2, 1, (int32_t)n_experts, i, o, i, o},
           sizeof t->config);
}

static void plan_delta(planner *p, const char *prefix) {
    const pgl_config *c = p->config;
    const uint64_t hidden = c->hidden_size;
    const uint64_t values = (uint64_t)c->n_value_heads * c->value_dim;
    const uint64_t channels = 2 * (uint64_t)c->n_key_heads * c->key_dim + values;
    linear(p, false, prefix, "linear_attn.in_proj_qkv", channels, hidden, 1.0F);
    linear(p, false, prefix, "linear_attn.in_proj_z", values, hidden, 1.0F);
    plain(p, prefix, "linear_attn.in_proj_a.weight", c->n_value_heads, hidden, 0.5F);
    plain(p, prefix, "linear_attn.in_proj_b.weight", c->n_value_heads, hidden, 1.0F);
    pgl_synth_tensor *t = add(p, prefix, "linear_attn.conv1d.weight", PGL_F16,
                              SHAPE(channels, 1, c->conv_kernel), PGL_FILL_NORMAL);
    t->std = 1.0F / sqrtf((float)c->conv_kernel);
    /* exp(A_log) from 1 to 15 and softplus(dt_bias) from 0.001 to 0.1: a head forgets within 1 to 1,000 tokens. */
    t = add(p, prefix, "linear_attn.A_log", PGL_F32, SHAPE(c->n_value_heads), PGL_FILL_UNIFORM);
    t->mean = 1.35F;
    t->std = 1.35F;
    t = add(p, prefix, "linear_attn.dt_bias", PGL_F16, SHAPE(c->n_value_heads), PGL_FILL_UNIFORM);
    t->mean = -4.6F;
    t->std = 2.3F;
    vector(p, prefix, "linear_attn.norm.weight", c->value_dim, 1.0F, 0.1F);
    linear(p, false, prefix, "linear_attn.out_proj", hidden, values, BRANCH_RMS / SILU_GATE_RMS);
}

static void plan_attention(planner *p, const char *prefix, bool draft) {
    const pgl_config *c = p->config;
    const uint64_t hidden = c->hidden_size;
    const uint64_t heads = (uint64_t)c->n_heads * c->head_dim;
    const uint64_t kv = (uint64_t)c->n_kv_heads * c->head_dim;
    linear(p, draft, prefix, "self_attn.q_proj", 2 * heads, hidden, 1.0F);
    linear(p, draft, prefix, "self_attn.k_proj", kv, hidden, 1.0F);
    linear(p, draft, prefix, "self_attn.v_proj", kv, hidden, 1.0F);
    /* The average of values over some positions, times a gate about 1/2. */
    linear(p, draft, prefix, "self_attn.o_proj", hidden, heads, BRANCH_RMS / 0.3F);
    vector(p, prefix, "self_attn.q_norm.weight", c->head_dim, 0.25F, 0.1F);
    vector(p, prefix, "self_attn.k_norm.weight", c->head_dim, 0.25F, 0.1F);
}

static void plan_moe(planner *p, const char *prefix, bool draft) {
    const pgl_config *c = p->config;
    const uint64_t hidden = c->hidden_size;
    const uint64_t shared = c->shared_intermediate_size;
    plain(p, prefix, "mlp.gate.weight", c->n_experts, hidden, 2.0F);
    if (!draft) {
        /* A weighted mean of n experts has 1/sqrt(n) of one's root mean square, and a little more. */
        const float one = 0.7F * BRANCH_RMS * sqrtf((float)c->n_experts_used) / 1.15F;
        coded(p, prefix, "mlp.experts.gate_up_proj", 2, hidden, 2 * (uint64_t)c->moe_intermediate_size, 1.0F,
              512);
        coded(p, prefix, "mlp.experts.down_proj", 3, c->moe_intermediate_size, hidden, one / SILU_GATE_RMS,
              0);
    }
    linear(p, draft, prefix, "mlp.shared_expert.gate_proj", shared, hidden, 1.0F);
    linear(p, draft, prefix, "mlp.shared_expert.up_proj", shared, hidden, 1.0F);
    linear(p, draft, prefix, "mlp.shared_expert.down_proj", hidden, shared,
           0.7F * BRANCH_RMS / (0.55F * SILU_GATE_RMS));
    plain(p, prefix, "mlp.shared_expert_gate.weight", 1, hidden, 1.0F);
}

static void plan_layer(planner *p, const char *prefix, bool full_attention, bool draft) {
    const uint64_t hidden = p->config->hidden_size;
    vector(p, prefix, "input_layernorm.weight", hidden, 0.0F, 0.1F);
    if (full_attention) {
        plan_attention(p, prefix, draft);
    } else {
        plan_delta(p, prefix);
    }
    vector(p, prefix, "post_attention_layernorm.weight", hidden, 0.0F, 0.1F);
    plan_moe(p, prefix, draft);
}

static void plan_tensors(planner *p) {
    const pgl_config *c = p->config;
    const uint64_t hidden = c->hidden_size;
    char prefix[64];
    linear(p, false, TRUNK, "embed_tokens", c->vocab_size, hidden, sqrtf((float)hidden));
    for (uint32_t i = 0; i < c->n_layers; i++) {
        snprintf(prefix, sizeof prefix, TRUNK "layers.%u.", i);
        plan_layer(p, prefix, c->full_attention[i], false);
    }
    vector(p, TRUNK, "norm.weight", hidden, 0.0F, 0.1F);
    if (!c->tie_word_embeddings) {
        linear(p, false, "", "lm_head", c->vocab_size, hidden, 2.5F);
    }
    if (c->n_mtp_layers > 0) {
        plain(p, "mtp.", "fc.weight", hidden, 2 * hidden, 1.0F);
        plan_layer(p, "mtp.layers.0.", true, true);
        vector(p, "mtp.", "norm.weight", hidden, 0.0F, 0.1F);
        vector(p, "mtp.", "pre_fc_norm_embedding.weight", hidden, 0.0F, 0.1F);
        vector(p, "mtp.", "pre_fc_norm_hidden.weight", hidden, 0.0F, 0.1F);
    }
}

/* Tensors go to shards in the order of the layers, so a weight and its scale may end up in two; inside a shard the
 * widest types come first, as the safetensors library writes them. */
static void place_tensors(pgl_synth_plan *plan, uint64_t max_shard_bytes) {
    uint64_t filled = 0;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        pgl_synth_tensor *t = &plan->tensors[i];
        if (filled > 0 && t->bytes > max_shard_bytes - filled) {
            plan->n_shards++;
            filled = 0;
        }
        t->shard = plan->n_shards;
        filled = t->bytes > max_shard_bytes - filled ? max_shard_bytes : filled + t->bytes;
    }
    plan->n_shards++;
    for (uint32_t shard = 0; shard < plan->n_shards; shard++) {
        uint64_t offset = 0;
        for (uint32_t width = 4; width > 0; width /= 2) {
            for (size_t i = 0; i < plan->n_tensors; i++) {
                pgl_synth_tensor *t = &plan->tensors[i];
                if (t->shard == shard && pgl_dtype_size(t->dtype) == width) {
                    t->offset_bytes = offset;
                    offset += t->bytes;
                }
            }
        }
    }
}

pgl_status pgl_synth_plan_init(pgl_synth_plan *plan, const pgl_synth_shape *shape, uint64_t seed,
                               pgl_error *err) {
    const pgl_config *c = &shape->config;
    if (c->n_experts == 0 || c->hidden_size == 0 || c->hidden_size % 128 != 0 ||
        c->moe_intermediate_size == 0 || c->moe_intermediate_size % 128 != 0 || c->n_layers == 0 ||
        c->n_layers > PGL_MAX_LAYERS) {
        return pgl_fail(
            err, PGL_E_INVALID,
            "a synthetic checkpoint has experts, 1 to %d layers, and sizes that are multiples of 128; "
            "found %u experts, %u layers, hidden %u, intermediate %u",
            PGL_MAX_LAYERS, c->n_experts, c->n_layers, c->hidden_size, c->moe_intermediate_size);
    }
    if (shape->n_tokens < 256 || c->vocab_size < PGL_SYNTH_N_SPECIAL ||
        shape->n_tokens > c->vocab_size - PGL_SYNTH_N_SPECIAL || shape->max_shard_bytes == 0) {
        return pgl_fail(
            err, PGL_E_INVALID,
            "a vocabulary of %u rows has room for 256 to %u ordinary tokens; found %u (shards of %llu "
            "bytes)",
            c->vocab_size, c->vocab_size - PGL_SYNTH_N_SPECIAL, shape->n_tokens,
            (unsigned long long)shape->max_shard_bytes);
    }
    planner p = {.plan = plan, .config = c, .seed = seed, .err = err};
    plan_tensors(&p);
    if (p.status != PGL_OK) {
        pgl_synth_plan_fini(plan);
        return p.status;
    }
    place_tensors(plan, shape->max_shard_bytes);
    return PGL_OK;
}

void pgl_synth_plan_fini(pgl_synth_plan *plan) {
    free(plan->tensors);
    memset(plan, 0, sizeof *plan);
}

void pgl_synth_shard_name(const pgl_synth_plan *plan, uint32_t shard, char name[64]) {
    if (plan->n_shards == 1) {
        snprintf(name, 64, "model.safetensors");
    } else {
        snprintf(name, 64, "model-%05u-of-%05u.safetensors", shard + 1, plan->n_shards);
    }
}

pgl_status pgl_synth_shard_header(const pgl_synth_plan *plan, uint32_t shard, pgl_buf *out, pgl_error *err) {
    bool ok = pgl_buf_puts(out, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; ok && i < plan->n_tensors; i++) {
        const pgl_synth_tensor *t = &plan->tensors[i];
        if (t->shard != shard) {
            continue;
        }
        ok = pgl_buf_printf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, pgl_dtype_name(t->dtype));
        for (uint32_t d = 0; ok && d < t->n_dims; d++) {
            ok = pgl_buf_printf(out, d == 0 ? "%llu" : ",%llu", (unsigned long long)t->dims[d]);
        }
        const unsigned long long begin = t->offset_bytes;
        const unsigned long long size = t->bytes;
        ok = ok && pgl_buf_printf(out, "],\"data_offsets\":[%llu,%llu]}", begin, begin + size);
    }
    ok = ok && pgl_buf_putc(out, '}');
    while (ok && out->size % 8 != 0) {
        ok = pgl_buf_putc(out, ' ');
    }
    return ok ? PGL_OK : pgl_fail(err, PGL_E_MEMORY, "no memory for the header of a shard");
}

pgl_status pgl_synth_index(const pgl_synth_plan *plan, pgl_buf *out, pgl_error *err) {
    char name[64];
    bool ok = pgl_buf_printf(out, "{\n \"metadata\": {\"total_size\": %llu},\n \"weight_map\": {",
                             (unsigned long long)plan->total_bytes);
    for (size_t i = 0; ok && i < plan->n_tensors; i++) {
        pgl_synth_shard_name(plan, plan->tensors[i].shard, name);
        ok = pgl_buf_printf(out, "%s\n  \"%s\": \"%s\"", i == 0 ? "" : ",", plan->tensors[i].name, name);
    }
    ok = ok && pgl_buf_puts(out, "\n }\n}\n");
    return ok ? PGL_OK : pgl_fail(err, PGL_E_MEMORY, "no memory for the index of the shards");
}
