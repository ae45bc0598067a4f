/* One function a kind of block, in the order of docs/format.md. A builder keeps the first error and does nothing after
 * it, so that a list of tensors needs one check at its end. */
#include "checkpoint/inventory.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define BIT(dtype) (1u << (dtype))
#define FLOATS (BIT(PGL_F16) | BIT(PGL_BF16) | BIT(PGL_F32))
#define MOST_NAME 256

typedef struct builder {
    const pgl_config *c;
    pgl_tensor_set *set;
    pgl_status status;
    pgl_error *err;
} builder;

/* What one tensor must be. */
typedef struct want {
    unsigned dtypes; /* BIT(..) of those allowed */
    uint32_t n_dims;
    uint64_t dims[4];
} want;

typedef struct name {
    char text[MOST_NAME];
} name;

static name name_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
static name name_of(const char *format, ...) {
    name n;
    va_list args;
    va_start(args, format);
    vsnprintf(n.text, sizeof n.text, format, args);
    va_end(args);
    return n;
}

static pgl_tensor *find(const builder *b, const char *base, const char *leaf) {
    name key = name_of("%s%s", base, leaf);
    return pgl_map_find(&b->set->by_key, key.text);
}

/* "F16, BF16 or F32 [16, 256]" */
static void want_text(const want *w, char *out, size_t size) {
    char shape[PGL_SHAPE_TEXT];
    pgl_shape_text(w->n_dims, w->dims, shape);
    size_t n = 0;
    unsigned left = w->dtypes;
    out[0] = 0;
    for (unsigned d = PGL_I8; d <= PGL_F32 && n < size; d++) {
        if ((w->dtypes & BIT(d)) == 0)
            continue;
        left &= ~BIT(d);
        const char *join = n == 0 ? "" : left == 0 ? " or " : ", ";
        int k = snprintf(out + n, size - n, "%s%s", join, pgl_dtype_name((pgl_dtype)d));
        n += k > 0 ? (size_t)k : 0;
    }
    if (n < size)
        snprintf(out + n, size - n, " %s", shape);
}

/* The full name that a tensor of this key would have here. */
static name full_name(const builder *b, const char *base, const char *leaf) {
    bool top = strncmp(base, "lm_head", 7) == 0 || strncmp(base, "mtp.", 4) == 0;
    return name_of("%s%s%s", top ? "" : b->set->prefix, base, leaf);
}

static void fail_missing(builder *b, const char *base, const char *leaf, const char *expected) {
    if (b->status != PGL_OK)
        return;
    name full = full_name(b, base, leaf);
    b->status = pgl_fail(b->err, PGL_E_FORMAT, "%s: %s: expected %s, found no such tensor", b->set->listing,
                         full.text, expected);
}

static void check(builder *b, pgl_tensor *t, const want *w) {
    if (b->status != PGL_OK)
        return;
    const pgl_safetensors_tensor *e = t->entry;
    bool right = (w->dtypes & BIT(e->dtype)) != 0 && e->dtype != PGL_NONE && e->n_dims == w->n_dims;
    for (uint32_t i = 0; right && i < w->n_dims; i++)
        right = e->dims[i] == w->dims[i];
    if (right) {
        t->role = PGL_TENSOR_USED;
        return;
    }
    char expected[256];
    char shape[PGL_SHAPE_TEXT];
    want_text(w, expected, sizeof expected);
    pgl_shape_text(e->n_dims, e->dims, shape);
    b->status = pgl_fail(b->err, PGL_E_FORMAT, "%s: %.200s: expected %s, found %s %s", t->shard->file,
                         t->name, expected, e->dtype_name, shape);
}

/* The tensor base + leaf; NULL after an error, or when it is not there and not required. */
static pgl_tensor *take(builder *b, const char *base, const char *leaf, bool required, const want *w) {
    if (b->status != PGL_OK)
        return NULL;
    pgl_tensor *t = find(b, base, leaf);
    if (t == NULL && required) {
        char expected[256];
        want_text(w, expected, sizeof expected);
        fail_missing(b, base, leaf, expected);
    }
    if (t != NULL)
        check(b, t, w);
    return b->status == PGL_OK ? t : NULL;
}

static pgl_vec vec_of(const pgl_tensor *t, uint64_t n) {
    if (t == NULL)
        return (pgl_vec){NULL, PGL_NONE, 0};
    return (pgl_vec){.data = t->data, .dtype = t->entry->dtype, .n = (uint32_t)n};
}

static pgl_vec vector(builder *b, const char *base, const char *leaf, bool required, uint32_t n) {
    const want w = {FLOATS, 1, {n}};
    return vec_of(take(b, base, leaf, required, &w), n);
}

static void check_multiple(builder *b, const pgl_tensor *t, const char *what, uint32_t value) {
    if (b->status == PGL_OK && value % 128 != 0)
        b->status =
            pgl_fail(b->err, PGL_E_FORMAT, "%s: %.200s: expected a multiple of 128 %s channels, found %u",
                     t->shard->file, t->name, what, value);
}

/* escha_config repeats what other leaves say: it is compared, and never used. */
static void check_config_leaf(builder *b, const char *base, const pgl_coded *coded, bool stacked) {
    pgl_tensor *t = find(b, base, ".escha_config");
    if (b->status != PGL_OK || t == NULL)
        return;
    t->role = PGL_TENSOR_USED;
    int32_t expected[9] = {16, (int32_t)coded->k, 2, 1};
    size_t n = 4;
    if (stacked)
        expected[n++] = (int32_t)coded->n_experts;
    for (int i = 0; i < (stacked ? 2 : 1); i++) {
        expected[n++] = (int32_t)coded->in;
        expected[n++] = (int32_t)coded->out;
    }
    const pgl_safetensors_tensor *e = t->entry;
    if (e->dtype != PGL_I32 || e->n_dims != 1 || e->dims[0] != n) {
        char shape[PGL_SHAPE_TEXT];
        pgl_shape_text(e->n_dims, e->dims, shape);
        b->status = pgl_tensor_set_odd(b->set, b->err, "%s: %.200s: expected I32 [%zu], found %s %s",
                                       t->shard->file, t->name, n, e->dtype_name, shape);
        return;
    }
    for (size_t i = 0; i < n && b->status == PGL_OK; i++) {
        int32_t found;
        memcpy(&found, (const char *)t->data + i * sizeof found, sizeof found);
        if (found != expected[i])
            b->status = pgl_tensor_set_odd(b->set, b->err, "%s: %.200s: element %zu: expected %d, found %d",
                                           t->shard->file, t->name, i, expected[i], found);
    }
}

/* n_experts 0: no leading axis. */
static pgl_coded coded(builder *b, const char *base, uint32_t n_experts, uint32_t in, uint32_t out) {
    pgl_coded r = {.n_experts = n_experts == 0 ? 1 : n_experts, .in = in, .out = out};
    bool stacked = n_experts != 0;
    uint32_t lead = stacked ? 1 : 0;
    want code = {BIT(PGL_I16), lead + 3, {n_experts}};
    code.dims[lead] = in / 16;
    code.dims[lead + 1] = out / 16;
    code.dims[lead + 2] = 32;
    if (b->status != PGL_OK)
        return r;
    pgl_tensor *t = find(b, base, ".escha_code");
    if (t == NULL) {
        char expected[256];
        want_text(&code, expected, sizeof expected);
        strncat(expected, " (the last is 16 K)", sizeof expected - strlen(expected) - 1);
        fail_missing(b, base, ".escha_code", expected);
        return r;
    }
    check_multiple(b, t, "input", in);
    check_multiple(b, t, "output", out);
    uint64_t last = t->entry->n_dims == code.n_dims ? t->entry->dims[lead + 2] : 32;
    if (b->status == PGL_OK && (last % 16 != 0 || last == 0 || last > 128))
        b->status =
            pgl_fail(b->err, PGL_E_FORMAT,
                     "%s: %.200s: expected a last dimension of 16 K with K from 1 to 8, found %" PRIu64,
                     t->shard->file, t->name, last);
    code.dims[lead + 2] = last;
    check(b, t, &code);
    r.code = t->data;
    r.k = (uint32_t)(last / 16);
    want w_in = {BIT(PGL_F16), lead + 1, {n_experts}};
    want w_out = w_in;
    w_in.dims[lead] = in;
    w_out.dims[lead] = out;
    const pgl_tensor *rin = take(b, base, ".escha_rin", true, &w_in);
    const pgl_tensor *rout = take(b, base, ".escha_rout", true, &w_out);
    w_in.dtypes = w_out.dtypes = BIT(PGL_F32);
    const pgl_tensor *s_in = take(b, base, ".escha_s_in", false, &w_in);
    const pgl_tensor *s_out = take(b, base, ".escha_s_out", false, &w_out);
    const want w_bias = {BIT(PGL_F16), 1, {out}};
    const pgl_tensor *bias = stacked ? NULL : take(b, base, ".bias", false, &w_bias);
    r.rin = rin == NULL ? NULL : rin->data;
    r.rout = rout == NULL ? NULL : rout->data;
    r.s_in = s_in == NULL ? NULL : s_in->data;
    r.s_out = s_out == NULL ? NULL : s_out->data;
    r.bias = bias == NULL ? NULL : bias->data;
    check_config_leaf(b, base, &r, stacked);
    return r;
}

static bool has_coded_leaf(const builder *b, const char *base) {
    static const char *const LEAVES[] = {".escha_code", ".escha_rin",   ".escha_rout",
                                         ".escha_s_in", ".escha_s_out", ".escha_config"};
    for (size_t i = 0; i < sizeof LEAVES / sizeof LEAVES[0]; i++)
        if (find(b, base, LEAVES[i]) != NULL)
            return true;
    return false;
}

typedef struct linear_want {
    uint32_t out, in;
    bool coded; /* may be trellis coded */
    bool bias;  /* has a bias unless it is coded, where it may or may not */
} linear_want;

/* int8 pair, plain or coded, whichever leaves are there. */
static pgl_linear linear(builder *b, const char *base, linear_want l) {
    pgl_linear r = {.kind = PGL_LINEAR_NONE, .in = l.in, .out = l.out};
    if (b->status != PGL_OK)
        return r;
    pgl_tensor *plain = find(b, base, ".weight");
    pgl_tensor *int8 = find(b, base, ".weight_int8");
    if (int8 == NULL)
        int8 = find(b, base, ".weight_scale");
    bool is_coded = has_coded_leaf(b, base);
    if ((plain != NULL) + (int8 != NULL) + is_coded > 1) {
        const pgl_tensor *t = plain != NULL ? plain : int8;
        name full = full_name(b, base, "");
        b->status = pgl_fail(b->err, PGL_E_FORMAT, "%s: %.200s: expected one form of %s, found %s",
                             t->shard->file, t->name, full.text,
                             plain == NULL  ? "an int8 pair and a trellis code"
                             : int8 == NULL ? "a plain weight and a trellis code"
                                            : "a plain weight and an int8 pair");
        return r;
    }
    if (is_coded && l.coded) {
        r.kind = PGL_LINEAR_CODED;
        r.coded = coded(b, base, 0, l.in, l.out);
        return r;
    }
    const want w_plain = {FLOATS, 2, {l.out, l.in}};
    const want w_int8 = {BIT(PGL_I8), 2, {l.out, l.in}};
    const want w_scale = {BIT(PGL_F16) | BIT(PGL_F32), 1, {l.out}};
    if (int8 != NULL) {
        const pgl_tensor *data = take(b, base, ".weight_int8", true, &w_int8);
        const pgl_tensor *scale = take(b, base, ".weight_scale", true, &w_scale);
        if (b->status == PGL_OK)
            r = (pgl_linear){.kind = PGL_LINEAR_INT8,
                             .in = l.in,
                             .out = l.out,
                             .data = data->data,
                             .dtype = PGL_I8,
                             .scale = scale->data,
                             .scale_dtype = scale->entry->dtype};
    } else if (plain != NULL) {
        check(b, plain, &w_plain);
        r.kind = PGL_LINEAR_PLAIN;
        r.data = plain->data;
        r.dtype = plain->entry->dtype;
    } else {
        char expected[256];
        snprintf(expected, sizeof expected,
                 "weight_int8 [%u, %u] with weight_scale [%u], or a 16-bit weight [%u, %u]%s", l.out, l.in,
                 l.out, l.out, l.in, l.coded ? ", or a trellis code" : "");
        fail_missing(b, base, "", expected);
    }
    if (l.bias)
        r.bias = vector(b, base, ".bias", true, l.out);
    return r;
}

static pgl_linear part(builder *b, const char *prefix, const char *leaf, uint32_t out, uint32_t in) {
    name base = name_of("%s%s", prefix, leaf);
    return linear(b, base.text, (linear_want){.out = out, .in = in, .coded = true});
}

static pgl_linear projection(builder *b, const char *prefix, const char *leaf, uint32_t out, uint32_t in) {
    name base = name_of("%s%s", prefix, leaf);
    return linear(b, base.text,
                  (linear_want){.out = out, .in = in, .coded = true, .bias = b->c->attention_bias});
}

static void delta(builder *b, const char *layer, pgl_delta_weights *d) {
    const pgl_config *c = b->c;
    uint32_t channels = 2 * c->n_key_heads * c->key_dim + c->n_value_heads * c->value_dim;
    uint32_t values = c->n_value_heads * c->value_dim;
    d->in_proj_qkv = part(b, layer, "linear_attn.in_proj_qkv", channels, c->hidden_size);
    d->in_proj_z = part(b, layer, "linear_attn.in_proj_z", values, c->hidden_size);
    d->in_proj_a = part(b, layer, "linear_attn.in_proj_a", c->n_value_heads, c->hidden_size);
    d->in_proj_b = part(b, layer, "linear_attn.in_proj_b", c->n_value_heads, c->hidden_size);
    d->out_proj = part(b, layer, "linear_attn.out_proj", c->hidden_size, values);
    const want conv = {FLOATS, 3, {channels, 1, c->conv_kernel}};
    d->conv1d =
        vec_of(take(b, layer, "linear_attn.conv1d.weight", true, &conv), (uint64_t)channels * c->conv_kernel);
    d->a_log = vector(b, layer, "linear_attn.A_log", true, c->n_value_heads);
    d->dt_bias = vector(b, layer, "linear_attn.dt_bias", true, c->n_value_heads);
    d->norm = vector(b, layer, "linear_attn.norm.weight", true, c->value_dim);
}

static void attention(builder *b, const char *layer, pgl_attention_weights *a) {
    const pgl_config *c = b->c;
    uint32_t queries = c->n_heads * c->head_dim;
    uint32_t keys = c->n_kv_heads * c->head_dim;
    a->q_proj = projection(b, layer, "self_attn.q_proj", 2 * queries, c->hidden_size);
    a->k_proj = projection(b, layer, "self_attn.k_proj", keys, c->hidden_size);
    a->v_proj = projection(b, layer, "self_attn.v_proj", keys, c->hidden_size);
    a->o_proj = projection(b, layer, "self_attn.o_proj", c->hidden_size, queries);
    a->q_norm = vector(b, layer, "self_attn.q_norm.weight", true, c->head_dim);
    a->k_norm = vector(b, layer, "self_attn.k_norm.weight", true, c->head_dim);
}

static void routed_experts(builder *b, const char *layer, pgl_moe_weights *m) {
    const pgl_config *c = b->c;
    name gate_up = name_of("%smlp.experts.gate_up_proj", layer);
    name down = name_of("%smlp.experts.down_proj", layer);
    m->gate_up = coded(b, gate_up.text, c->n_experts, c->hidden_size, 2 * c->moe_intermediate_size);
    m->down = coded(b, down.text, c->n_experts, c->moe_intermediate_size, c->hidden_size);
}

/* Everything of the block but the routed experts. */
static void mlp(builder *b, const char *layer, pgl_moe_weights *m) {
    const pgl_config *c = b->c;
    if (c->n_experts == 0) {
        m->gate = part(b, layer, "mlp.gate_proj", c->intermediate_size, c->hidden_size);
        m->up = part(b, layer, "mlp.up_proj", c->intermediate_size, c->hidden_size);
        m->down_dense = part(b, layer, "mlp.down_proj", c->hidden_size, c->intermediate_size);
        return;
    }
    uint32_t shared = c->shared_intermediate_size;
    m->router = part(b, layer, "mlp.gate", c->n_experts, c->hidden_size);
    m->shared_gate = part(b, layer, "mlp.shared_expert.gate_proj", shared, c->hidden_size);
    m->shared_up = part(b, layer, "mlp.shared_expert.up_proj", shared, c->hidden_size);
    m->shared_down = part(b, layer, "mlp.shared_expert.down_proj", c->hidden_size, shared);
    m->shared_expert_gate = part(b, layer, "mlp.shared_expert_gate", 1, c->hidden_size);
}

static void layer_norms(builder *b, const char *layer, pgl_layer_weights *l) {
    l->input_norm = vector(b, layer, "input_layernorm.weight", true, b->c->hidden_size);
    l->post_attention_norm = vector(b, layer, "post_attention_layernorm.weight", true, b->c->hidden_size);
}

static void trunk(builder *b, pgl_weights *w) {
    const pgl_config *c = b->c;
    w->embed = linear(b, "embed_tokens", (linear_want){.out = c->vocab_size, .in = c->hidden_size});
    w->norm = vector(b, "norm.weight", "", true, c->hidden_size);
    for (uint32_t i = 0; i < c->n_layers && b->status == PGL_OK; i++) {
        pgl_layer_weights *l = &w->layers[i];
        name layer = name_of("layers.%u.", i);
        l->full_attention = c->full_attention[i];
        layer_norms(b, layer.text, l);
        if (l->full_attention)
            attention(b, layer.text, &l->attention);
        else
            delta(b, layer.text, &l->delta);
        mlp(b, layer.text, &l->moe);
        if (c->n_experts != 0)
            routed_experts(b, layer.text, &l->moe);
    }
    bool has_head = find(b, "lm_head.weight", "") != NULL || find(b, "lm_head.weight_int8", "") != NULL ||
                    find(b, "lm_head.weight_scale", "") != NULL || has_coded_leaf(b, "lm_head");
    if (!has_head && c->tie_word_embeddings)
        w->head = w->embed;
    else
        w->head =
            linear(b, "lm_head", (linear_want){.out = c->vocab_size, .in = c->hidden_size, .coded = true});
}

static bool any_with_prefix(const builder *b, const char *prefix) {
    size_t cursor = 0;
    for (const pgl_map_entry *e; (e = pgl_map_next(&b->set->by_key, &cursor)) != NULL;)
        if (strncmp(e->key, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

static void skip_draft(builder *b, const char *why) {
    size_t n = 0;
    for (size_t i = 0; i < b->set->n_tensors; i++) {
        pgl_tensor *t = &b->set->tensors[i];
        if (t->role == PGL_TENSOR_NEW && strncmp(t->key, "mtp.", 4) == 0) {
            t->role = PGL_TENSOR_SKIPPED;
            n++;
        }
    }
    if (n > 0 && b->status == PGL_OK)
        b->status = pgl_tensor_set_note(b->set, b->err, "%s: skipped %zu tensors of the draft head: %s",
                                        b->set->listing, n, why);
}

/* Layers of the draft head beyond the one that can be used. */
static void skip_further_layers(builder *b) {
    static const char LAYERS[] = "mtp.layers.";
    size_t n = 0;
    for (size_t i = 0; i < b->set->n_tensors; i++) {
        pgl_tensor *t = &b->set->tensors[i];
        const char *number = t->key + sizeof LAYERS - 1;
        if (t->role != PGL_TENSOR_NEW || strncmp(t->key, LAYERS, sizeof LAYERS - 1) != 0 || *number < '1' ||
            *number > '9')
            continue;
        t->role = PGL_TENSOR_SKIPPED;
        n++;
    }
    if (n > 0 && b->status == PGL_OK)
        b->status =
            pgl_tensor_set_odd(b->set, b->err,
                               "%s: mtp.layers: expected one layer of the draft head, found %zu tensors of "
                               "further ones; skipped",
                               b->set->listing, n);
}

static void draft(builder *b, bool want_draft, pgl_weights *w) {
    const pgl_config *c = b->c;
    pgl_draft_weights *d = &w->draft;
    if (b->status != PGL_OK)
        return;
    if (!want_draft) {
        skip_draft(b, "it is not wanted");
        return;
    }
    if (c->has_mtp_layers && c->n_mtp_layers != 1) {
        skip_draft(b, c->n_mtp_layers == 0
                          ? "mtp_num_hidden_layers is 0"
                          : "mtp_num_hidden_layers is above 1, and one layer is what can be used");
        return;
    }
    if (!any_with_prefix(b, "mtp.")) {
        if (c->has_mtp_layers)
            b->status = pgl_tensor_set_note(b->set, b->err,
                                            "%s: mtp_num_hidden_layers is 1, but there is no draft head",
                                            b->set->listing);
        return;
    }
    skip_further_layers(b);
    d->fc = part(b, "mtp.", "fc", c->hidden_size, 2 * c->hidden_size);
    d->pre_fc_norm_embedding = vector(b, "mtp.pre_fc_norm_embedding.weight", "", true, c->hidden_size);
    d->pre_fc_norm_hidden = vector(b, "mtp.pre_fc_norm_hidden.weight", "", true, c->hidden_size);
    d->norm = vector(b, "mtp.norm.weight", "", true, c->hidden_size);
    d->layer.full_attention = true;
    layer_norms(b, "mtp.layers.0.", &d->layer);
    attention(b, "mtp.layers.0.", &d->layer.attention);
    mlp(b, "mtp.layers.0.", &d->layer.moe);
    if (c->n_experts != 0) {
        d->borrowed_layer = c->n_layers / 2;
        d->borrows_experts = !any_with_prefix(b, "mtp.layers.0.mlp.experts.");
        if (d->borrows_experts) {
            d->layer.moe.gate_up = w->layers[d->borrowed_layer].moe.gate_up;
            d->layer.moe.down = w->layers[d->borrowed_layer].moe.down;
        } else {
            routed_experts(b, "mtp.layers.0.", &d->layer.moe);
        }
    }
    d->present = true;
}

/* A leaf that belongs to a trellis code and is not in the format changes what the code means: refused before anything
 * else about the linear is. */
static void check_leaves(builder *b, bool want_draft) {
    static const char *const KNOWN[] = {"escha_code", "escha_rin",   "escha_rout",
                                        "escha_s_in", "escha_s_out", "escha_config"};
    for (size_t i = 0; i < b->set->n_tensors && b->status == PGL_OK; i++) {
        const pgl_tensor *t = &b->set->tensors[i];
        const char *dot = strrchr(t->name, '.');
        const char *leaf = dot == NULL ? t->name : dot + 1;
        bool known = t->role != PGL_TENSOR_NEW || strncmp(leaf, "escha_", 6) != 0 ||
                     (!want_draft && strncmp(t->key, "mtp.", 4) == 0);
        for (size_t k = 0; k < sizeof KNOWN / sizeof KNOWN[0] && !known; k++)
            known = strcmp(leaf, KNOWN[k]) == 0;
        if (!known)
            b->status = pgl_fail(
                b->err, PGL_E_UNSUPPORTED,
                "%s: %.200s: expected one of escha_code, escha_rin, escha_rout, escha_s_in, escha_s_out, "
                "escha_config, found %.100s",
                t->shard->file, t->name, leaf);
    }
}

static void check_all_used(builder *b) {
    for (size_t i = 0; i < b->set->n_tensors && b->status == PGL_OK; i++) {
        const pgl_tensor *t = &b->set->tensors[i];
        if (t->role != PGL_TENSOR_NEW)
            continue;
        char shape[PGL_SHAPE_TEXT];
        pgl_shape_text(t->entry->n_dims, t->entry->dims, shape);
        b->status = pgl_fail(b->err, PGL_E_FORMAT,
                             "%s: %.200s: expected no such tensor in this model (%u layers), found %s %s",
                             t->shard->file, t->name, b->c->n_layers, t->entry->dtype_name, shape);
    }
}

pgl_status pgl_inventory_build(const pgl_config *config, bool want_draft, pgl_tensor_set *set,
                               pgl_weights *weights, pgl_error *err) {
    builder b = {.c = config, .set = set, .status = PGL_OK, .err = err};
    weights->layers = pgl_new(config->n_layers, sizeof *weights->layers);
    if (weights->layers == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "out of memory while opening a checkpoint");
    check_leaves(&b, want_draft);
    trunk(&b, weights);
    draft(&b, want_draft, weights);
    check_all_used(&b);
    return b.status;
}
