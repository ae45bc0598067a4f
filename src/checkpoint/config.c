/* config.json and generation_config.json -> pgl_config. Sizes are limited so that every product the program forms of
 * them fits 64 bits, and each layer's dimensions fit 32. */
#include "checkpoint/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/config_fields.h"

#define MOST_WIDTH (1u << 20) /* of any vector inside a layer */

/* Settings of the text model that change nothing here; anything in neither this list nor the code below is noted. */
static const char *const HARMLESS[] = {
    "architectures",
    "attention_dropout",
    "bos_token_id",
    "dtype",
    "torch_dtype",
    "initializer_range",
    "pad_token_id",
    "use_cache",
    "router_aux_loss_coef",
    "output_router_logits",
    "transformers_version",
    "mamba_ssm_dtype",
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "vision_config",
    "text_config",
    "quantization_config",
    "language_model_only",
    "max_window_layers",
    "_name_or_path",
    "bos_token",
    "eos_token",
};

/* Settings that the code below reads. */
static const char *const READ[] = {
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "layer_types",
    "full_attention_interval",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "attention_bias",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "intermediate_size",
    "rms_norm_eps",
    "max_position_embeddings",
    "tie_word_embeddings",
    "eos_token_id",
    "mtp_num_hidden_layers",
    "rope_parameters",
    "rope_theta",
    "partial_rotary_factor",
    "rope_scaling",
    "model_type",
    "hidden_act",
    "attn_output_gate",
    "norm_topk_prob",
    "decoder_sparse_step",
    "mlp_only_layers",
    "use_sliding_window",
    "sliding_window",
    "quantization",
    "mtp_use_dedicated_embeddings",
};

static bool among(const char *key, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, list[i]) == 0)
            return true;
    return false;
}

static void note_unknown(pgl_fields *f) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)f->object, key, value) {
        if (!among(key, HARMLESS, sizeof HARMLESS / sizeof HARMLESS[0]) &&
            !among(key, READ, sizeof READ / sizeof READ[0]))
            pgl_fields_note(f, "%s%.100s: not a setting that this program knows; ignored", f->prefix, key);
    }
}

static void read_layer_types(pgl_fields *f, pgl_config *c) {
    uint32_t interval = pgl_fields_u32_or(f, "full_attention_interval", 1, PGL_MAX_LAYERS, 4);
    const json_t *types = pgl_fields_get(f, "layer_types");
    if (types == NULL) {
        for (uint32_t i = 0; i < c->n_layers; i++)
            c->full_attention[i] = (i + 1) % interval == 0;
        return;
    }
    if (!json_is_array(types) || json_array_size(types) != c->n_layers) {
        char expected[96];
        snprintf(expected, sizeof expected, "a list of %u layer types (num_hidden_layers)", c->n_layers);
        if (json_is_array(types) && f->status == PGL_OK)
            f->status = pgl_fail(f->err, PGL_E_FORMAT, "%s: %slayer_types: expected %s, found %zu", f->file,
                                 f->prefix, expected, json_array_size(types));
        else
            pgl_fields_fail(f, PGL_E_FORMAT, "layer_types", expected, types);
        return;
    }
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const json_t *type = json_array_get(types, i);
        const char *name = json_is_string(type) ? json_string_value(type) : "";
        c->full_attention[i] = strcmp(name, "full_attention") == 0;
        if (!c->full_attention[i] && strcmp(name, "linear_attention") != 0) {
            char key[32];
            snprintf(key, sizeof key, "layer_types[%u]", i);
            pgl_fields_fail(f, PGL_E_UNSUPPORTED, key, "\"linear_attention\" or \"full_attention\"", type);
        }
    }
}

/* The object that holds rope settings: rope_parameters, or what older files have in its place. */
static void read_rope(pgl_fields *f, pgl_config *c) {
    static const char *const OBJECTS[] = {"rope_parameters", "rope_scaling"};
    char prefix[64];
    pgl_fields rope = *f;
    for (size_t i = 0; i < 2; i++) {
        const json_t *object = pgl_fields_get(f, OBJECTS[i]);
        if (object == NULL)
            continue;
        if (!json_is_object(object)) {
            pgl_fields_fail(f, PGL_E_FORMAT, OBJECTS[i], "an object", object);
            return;
        }
        snprintf(prefix, sizeof prefix, "%s%s.", f->prefix, OBJECTS[i]);
        pgl_fields one = *f;
        one.object = object;
        one.prefix = prefix;
        static const char *const TYPES[] = {"rope_type", "type"};
        for (size_t k = 0; k < 2; k++) {
            const json_t *type = pgl_fields_get(&one, TYPES[k]);
            const char *name = json_is_string(type) ? json_string_value(type) : "";
            /* older files write "mrope" where newer ones have sections beside "default"; they coincide for text */
            bool older = k == 1 && strcmp(name, "mrope") == 0;
            if (type != NULL && strcmp(name, "default") != 0 && !older)
                pgl_fields_fail(&one, PGL_E_UNSUPPORTED, TYPES[k], "\"default\"", type);
        }
        f->status = one.status;
        if (i == 0)
            rope = one;
    }
    rope.status = f->status;
    /* each setting where it is found, rope_parameters first */
    pgl_fields theta = pgl_fields_get(&rope, "rope_theta") != NULL ? rope : *f;
    c->rope_theta = pgl_fields_number(&theta, "rope_theta", 1, 1e15);
    f->status = theta.status;
    pgl_fields part = pgl_fields_get(&rope, "partial_rotary_factor") != NULL ? rope : *f;
    part.status = f->status;
    double factor = pgl_fields_number(&part, "partial_rotary_factor", 1e-3, 1);
    double rotary = c->head_dim * factor;
    if (part.status == PGL_OK &&
        (fabs(rotary - nearbyint(rotary)) > 1e-6 || fmod(nearbyint(rotary), 2) != 0 || rotary < 2))
        part.status = pgl_fail(
            f->err, PGL_E_FORMAT,
            "%s: %spartial_rotary_factor: expected an even number of rotated dimensions, found %g of "
            "head_dim %u",
            f->file, part.prefix, rotary, c->head_dim);
    f->status = part.status;
    c->rotary_dim = (uint32_t)nearbyint(rotary);
}

static void add_eos(pgl_fields *f, const json_t *value, pgl_config *c) {
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= c->vocab_size) {
        char expected[64];
        snprintf(expected, sizeof expected, "token ids below vocab_size %u", c->vocab_size);
        pgl_fields_fail(f, PGL_E_FORMAT, "eos_token_id", expected, value);
        return;
    }
    int32_t id = (int32_t)json_integer_value(value);
    for (uint32_t i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id)
            return;
    if (c->n_eos == PGL_MAX_EOS) {
        pgl_fields_fail(f, PGL_E_UNSUPPORTED, "eos_token_id", "at most 16 different ids", value);
        return;
    }
    c->eos[c->n_eos++] = id;
}

static void read_eos(pgl_fields *f, pgl_config *c) {
    const json_t *value = pgl_fields_get(f, "eos_token_id");
    if (value == NULL)
        return;
    if (!json_is_array(value)) {
        add_eos(f, value, c);
        return;
    }
    size_t i;
    json_t *one;
    json_array_foreach(value, i, one) {
        add_eos(f, one, c);
    }
}

/* Settings with one value that the program does. */
static void read_fixed(pgl_fields *f) {
    const json_t *type = pgl_fields_get(f, "model_type");
    if (type != NULL && (!json_is_string(type) || strncmp(json_string_value(type), "qwen3", 5) != 0))
        pgl_fields_fail(f, PGL_E_UNSUPPORTED, "model_type", "a Qwen3.5 or Qwen3.6 model", type);
    const json_t *act = pgl_fields_get(f, "hidden_act");
    if (act != NULL && (!json_is_string(act) || strcmp(json_string_value(act), "silu") != 0))
        pgl_fields_fail(f, PGL_E_UNSUPPORTED, "hidden_act", "\"silu\"", act);
    if (!pgl_fields_bool_or(f, "attn_output_gate", true))
        pgl_fields_fail(f, PGL_E_UNSUPPORTED, "attn_output_gate", "true", json_false());
    if (!pgl_fields_bool_or(f, "norm_topk_prob", true))
        pgl_fields_fail(f, PGL_E_UNSUPPORTED, "norm_topk_prob", "true", json_false());
    if (pgl_fields_bool_or(f, "use_sliding_window", false))
        pgl_fields_fail(f, PGL_E_UNSUPPORTED, "use_sliding_window", "false", json_true());
    const json_t *step = pgl_fields_get(f, "decoder_sparse_step");
    if (step != NULL && !(json_is_integer(step) && json_integer_value(step) == 1))
        pgl_fields_fail(f, PGL_E_UNSUPPORTED, "decoder_sparse_step", "1", step);
    const json_t *dense = pgl_fields_get(f, "mlp_only_layers");
    if (dense != NULL && !(json_is_array(dense) && json_array_size(dense) == 0))
        pgl_fields_fail(f, PGL_E_UNSUPPORTED, "mlp_only_layers", "an empty list", dense);
    if (pgl_fields_bool_or(f, "mtp_use_dedicated_embeddings", false))
        pgl_fields_fail(f, PGL_E_UNSUPPORTED, "mtp_use_dedicated_embeddings", "false", json_true());
}

static void check_multiple(pgl_fields *f, const char *key, uint32_t value, uint32_t of) {
    if (f->status == PGL_OK && value % of != 0)
        f->status = pgl_fail(f->err, PGL_E_FORMAT, "%s: %s%s: expected a multiple of %u, found %u", f->file,
                             f->prefix, key, of, value);
}

static void check_width(pgl_fields *f, const char *what, uint64_t width) {
    if (f->status == PGL_OK && width > MOST_WIDTH)
        f->status = pgl_fail(f->err, PGL_E_UNSUPPORTED, "%s: %s: expected a width of at most %u, found %llu",
                             f->file, what, MOST_WIDTH, (unsigned long long)width);
}

static void read_mixers(pgl_fields *f, pgl_config *c) {
    c->n_heads = pgl_fields_u32(f, "num_attention_heads", 1, 4096);
    c->n_kv_heads = pgl_fields_u32(f, "num_key_value_heads", 1, 4096);
    c->head_dim = pgl_fields_u32(f, "head_dim", 2, 4096);
    c->attention_bias = pgl_fields_bool_or(f, "attention_bias", false);
    c->n_key_heads = pgl_fields_u32(f, "linear_num_key_heads", 1, 4096);
    c->n_value_heads = pgl_fields_u32(f, "linear_num_value_heads", 1, 4096);
    c->key_dim = pgl_fields_u32(f, "linear_key_head_dim", 1, 4096);
    c->value_dim = pgl_fields_u32(f, "linear_value_head_dim", 1, 4096);
    c->conv_kernel = pgl_fields_u32(f, "linear_conv_kernel_dim", 2, 16);
    if (f->status != PGL_OK)
        return;
    check_multiple(f, "num_attention_heads", c->n_heads, c->n_kv_heads);
    check_multiple(f, "linear_num_value_heads", c->n_value_heads, c->n_key_heads);
    check_width(f, "num_attention_heads x head_dim x 2", (uint64_t)c->n_heads * c->head_dim * 2);
    check_width(f, "the channels of linear_attn.in_proj_qkv",
                (uint64_t)c->n_key_heads * c->key_dim * 2 + (uint64_t)c->n_value_heads * c->value_dim);
}

static void read_mlp(pgl_fields *f, pgl_config *c) {
    c->n_experts = pgl_fields_u32_or(f, "num_experts", 0, 8192, 0);
    if (c->quant_method == PGL_QUANT_ESCHAMOE && c->n_experts == 0 && f->status == PGL_OK)
        pgl_fields_fail(f, PGL_E_FORMAT, "num_experts",
                        "the number of experts (quant_method is \"eschamoe\")",
                        pgl_fields_get(f, "num_experts"));
    if (c->quant_method == PGL_QUANT_ESCHA && c->n_experts != 0)
        pgl_fields_fail(f, PGL_E_FORMAT, "num_experts",
                        "none or 0 (quant_method \"escha\" is for dense models)",
                        pgl_fields_get(f, "num_experts"));
    if (c->n_experts == 0) {
        c->intermediate_size = pgl_fields_u32(f, "intermediate_size", 1, MOST_WIDTH / 2);
        return;
    }
    c->n_experts_used = pgl_fields_u32(f, "num_experts_per_tok", 1, c->n_experts < 64 ? c->n_experts : 64);
    c->moe_intermediate_size = pgl_fields_u32(f, "moe_intermediate_size", 1, MOST_WIDTH / 2);
    c->shared_intermediate_size = pgl_fields_u32(f, "shared_expert_intermediate_size", 1, MOST_WIDTH / 2);
    check_multiple(f, "hidden_size", c->hidden_size, 128);
    check_multiple(f, "moe_intermediate_size", c->moe_intermediate_size, 128);
}

static void read_text(pgl_fields *f, pgl_config *c) {
    read_fixed(f);
    c->vocab_size = pgl_fields_u32(f, "vocab_size", 1, 1u << 24);
    c->hidden_size = pgl_fields_u32(f, "hidden_size", 1, 1u << 17);
    c->n_layers = pgl_fields_u32(f, "num_hidden_layers", 1, PGL_MAX_LAYERS);
    c->rms_norm_eps = (float)pgl_fields_number(f, "rms_norm_eps", 1e-12, 1e-1);
    c->max_position_embeddings = pgl_fields_u32(f, "max_position_embeddings", 1, 1u << 30);
    c->has_mtp_layers = pgl_fields_get(f, "mtp_num_hidden_layers") != NULL;
    c->n_mtp_layers = pgl_fields_u32_or(f, "mtp_num_hidden_layers", 0, 64, 0);
    if (f->status == PGL_OK)
        read_layer_types(f, c);
    read_mixers(f, c);
    if (f->status == PGL_OK)
        read_mlp(f, c);
    if (f->status == PGL_OK)
        read_rope(f, c);
    if (f->status == PGL_OK)
        read_eos(f, c);
}

static void read_quantization(pgl_fields *f, pgl_config *c) {
    static const char *const KNOWN[] = {
        "quant_method", "format_version", "codebook",       "bits",
        "ignore",       "layer_meta",     "int8_embedding", "modules_to_not_convert"};
    const json_t *method = pgl_fields_get(f, "quant_method");
    const char *name = json_is_string(method) ? json_string_value(method) : "";
    if (strcmp(name, "eschamoe") == 0)
        c->quant_method = PGL_QUANT_ESCHAMOE;
    else if (strcmp(name, "escha") == 0)
        c->quant_method = PGL_QUANT_ESCHA;
    else
        pgl_fields_fail(f, method == NULL ? PGL_E_FORMAT : PGL_E_UNSUPPORTED, "quant_method",
                        "\"eschamoe\" or \"escha\"", method);
    const json_t *version = pgl_fields_get(f, "format_version");
    if (version != NULL && !(json_is_string(version) && strcmp(json_string_value(version), "2.0") == 0))
        pgl_fields_fail(f, PGL_E_UNSUPPORTED, "format_version", "\"2.0\"", version);
    const json_t *codebook = pgl_fields_get(f, "codebook");
    if (codebook != NULL)
        pgl_fields_fail(f, PGL_E_UNSUPPORTED, "codebook", "none (the published codebook)", codebook);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)f->object, key, value) {
        if (!among(key, KNOWN, sizeof KNOWN / sizeof KNOWN[0]))
            pgl_fields_note(f, "%s%.100s: not a setting that this program knows; ignored", f->prefix, key);
    }
}

/* The parts of the file: top, and the text model's settings inside it or the top itself. */
static void read_root(pgl_fields *top, pgl_config *c) {
    if (!json_is_object(top->object)) {
        pgl_fields_fail(top, PGL_E_FORMAT, "the file", "a JSON object", NULL);
        return;
    }
    pgl_fields text = *top;
    const json_t *nested = pgl_fields_get(top, "text_config");
    if (nested != NULL) {
        if (!json_is_object(nested)) {
            pgl_fields_fail(top, PGL_E_FORMAT, "text_config", "an object", nested);
            return;
        }
        text.object = nested;
        text.prefix = "text_config.";
    }
    if (pgl_fields_get(top, "quantization") != NULL || pgl_fields_get(&text, "quantization") != NULL) {
        top->status =
            pgl_fail(top->err, PGL_E_UNSUPPORTED,
                     "%s: quantization: expected no such block, found one: this checkpoint was converted for "
                     "MLX (its norm weights are already shifted); use the original export",
                     top->file);
        return;
    }
    pgl_fields quant = *top;
    quant.object = pgl_fields_get(top, "quantization_config");
    quant.prefix = "quantization_config.";
    if (quant.object == NULL && nested != NULL) {
        quant.object = pgl_fields_get(&text, "quantization_config");
        quant.prefix = "text_config.quantization_config.";
    }
    if (!json_is_object(quant.object)) {
        pgl_fields_fail(top, quant.object == NULL ? PGL_E_UNSUPPORTED : PGL_E_FORMAT, "quantization_config",
                        "an object with quant_method \"eschamoe\" or \"escha\"", quant.object);
        return;
    }
    read_quantization(&quant, c);
    text.status = quant.status;
    read_text(&text, c);
    note_unknown(&text);
    c->tie_word_embeddings = pgl_fields_bool_or(&text, "tie_word_embeddings", false);
    top->status = text.status;
    if (nested == NULL)
        return;
    read_eos(top, c);
    note_unknown(top);
    bool tied = pgl_fields_bool_or(top, "tie_word_embeddings", c->tie_word_embeddings);
    if (tied != c->tie_word_embeddings && pgl_fields_get(&text, "tie_word_embeddings") != NULL)
        pgl_fields_note(top, "tie_word_embeddings differs inside and outside of text_config; read as true");
    c->tie_word_embeddings = c->tie_word_embeddings || tied;
    if (pgl_fields_get(top, "vision_config") != NULL)
        pgl_fields_note(top, "vision_config: this program reads and writes text only; skipped");
}

static pgl_status parse_file(const char *json, size_t size, const char *name, json_t **root, pgl_error *err) {
    /* a key that occurs twice is refused: which of the two was meant is a guess */
    const pgl_json_options options = {.name = name};
    pgl_status status = pgl_json_parse(json, size, &options, root, err);
    if (status != PGL_OK && status != PGL_E_MEMORY) {
        status = PGL_E_FORMAT;
        if (err != NULL)
            err->status = status;
    }
    return status;
}

pgl_status pgl_config_parse(const char *json, size_t size, const char *name, pgl_config *config,
                            pgl_buf *notes, pgl_error *err) {
    *config = (pgl_config){0};
    json_t *root = NULL;
    pgl_status status = parse_file(json, size, name, &root, err);
    if (status != PGL_OK)
        return status;
    pgl_fields top = {
        .file = name, .prefix = "", .object = root, .notes = notes, .status = PGL_OK, .err = err};
    read_root(&top, config);
    json_decref(root);
    return top.status;
}

pgl_status pgl_config_parse_generation(const char *json, size_t size, const char *name, pgl_config *config,
                                       pgl_error *err) {
    json_t *root = NULL;
    pgl_status status = parse_file(json, size, name, &root, err);
    if (status != PGL_OK)
        return status;
    pgl_fields f = {.file = name, .prefix = "", .object = root, .notes = NULL, .status = PGL_OK, .err = err};
    if (!json_is_object(root)) {
        pgl_fields_fail(&f, PGL_E_FORMAT, "the file", "a JSON object", NULL);
    } else {
        double top_k = 0;
        read_eos(&f, config);
        config->do_sample = pgl_fields_bool_or(&f, "do_sample", false);
        pgl_fields_optional_number(&f, "temperature", 0, 100, &config->has_temperature, &config->temperature);
        pgl_fields_optional_number(&f, "top_p", 0, 1, &config->has_top_p, &config->top_p);
        pgl_fields_optional_number(&f, "top_k", -1, 1 << 24, &config->has_top_k, &top_k);
        pgl_fields_optional_number(&f, "min_p", 0, 1, &config->has_min_p, &config->min_p);
        pgl_fields_optional_number(&f, "repetition_penalty", 1e-3, 100, &config->has_repetition_penalty,
                                   &config->repetition_penalty);
        pgl_fields_optional_number(&f, "presence_penalty", -100, 100, &config->has_presence_penalty,
                                   &config->presence_penalty);
        if (top_k != floor(top_k))
            pgl_fields_fail(&f, PGL_E_FORMAT, "top_k", "a whole number", pgl_fields_get(&f, "top_k"));
        config->top_k = (int32_t)top_k;
    }
    json_decref(root);
    return f.status;
}
