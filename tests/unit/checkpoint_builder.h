/* Builds small valid checkpoints in a temporary directory, and lets a test break any part of one before it is written.
 * The files are written by hand, not by the program's own writer, so that they can contradict themselves. */
#ifndef PGL_TESTS_CHECKPOINT_BUILDER_H
#define PGL_TESTS_CHECKPOINT_BUILDER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/fs.h"
#include "checkpoint/checkpoint.h"

#define CB_MOST_TENSORS 256
#define CB_MOST_FILES 3

typedef struct cb_tensor {
    char name[160];
    char dtype[12];
    uint32_t n_dims;
    uint64_t dims[8];
    unsigned file; /* 0 and 1: shards; 2: mtp/model.safetensors */
    bool removed;
    int64_t shift_begin, shift_end; /* of data_offsets, away from the truth */
    uint64_t gap;                   /* unused bytes before it */
    bool bad_value;                 /* its last number is NaN */
    int32_t numbers[9];             /* of an I32 tensor */
} cb_tensor;

typedef struct cb {
    bool dense;
    char directory[64];
    json_t *config, *text, *quant; /* text and quant are borrowed from config */
    json_t *generation;
    const char *prefix;
    bool single; /* one model.safetensors without an index */
    cb_tensor tensors[CB_MOST_TENSORS];
    size_t n_tensors;
    void (*edit_index)(json_t *index); /* may be NULL */
    const char *raw_config;            /* written in place of config */
    uint64_t cut[CB_MOST_FILES];       /* bytes cut from the end of a file */
    uint64_t extra[CB_MOST_FILES];     /* bytes added to it */
    bool no_file[CB_MOST_FILES];
    int only; /* 1 + the one file that cb_write writes beside the index; 0: all */
} cb;

static const char *const CB_FILES[CB_MOST_FILES] = {
    "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "mtp/model.safetensors"};

static inline cb_tensor *cb_add(cb *b, const char *dtype, uint32_t n_dims, const uint64_t *dims,
                                const char *format, ...) __attribute__((format(printf, 5, 6)));
static inline cb_tensor *cb_add(cb *b, const char *dtype, uint32_t n_dims, const uint64_t *dims,
                                const char *format, ...) {
    if (b->n_tensors == CB_MOST_TENSORS)
        abort();
    cb_tensor *t = &b->tensors[b->n_tensors];
    memset(t, 0, sizeof *t);
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    t->n_dims = n_dims;
    memcpy(t->dims, dims, n_dims * sizeof *dims);
    t->file = (unsigned)(b->n_tensors++ % 2);
    return t;
}

#define CB_DIMS(...)                                                                                         \
    (sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)), (const uint64_t[]) {                       \
        __VA_ARGS__                                                                                          \
    }

static inline void cb_int8(cb *b, const char *base, uint64_t out, uint64_t in) {
    cb_add(b, "I8", CB_DIMS(out, in), "%s.weight_int8", base);
    cb_add(b, "F16", CB_DIMS(out), "%s.weight_scale", base);
}

static inline void cb_coded(cb *b, const char *base, uint64_t experts, uint64_t in, uint64_t out,
                            uint64_t k) {
    uint32_t lead = experts > 0 ? 1 : 0;
    uint64_t code[4] = {experts}, vin[2] = {experts}, vout[2] = {experts};
    code[lead] = in / 16;
    code[lead + 1] = out / 16;
    code[lead + 2] = 16 * k;
    vin[lead] = in;
    vout[lead] = out;
    cb_add(b, "I16", lead + 3, code, "%s.escha_code", base);
    cb_add(b, "F16", lead + 1, vin, "%s.escha_rin", base);
    cb_add(b, "F16", lead + 1, vout, "%s.escha_rout", base);
    cb_add(b, "F32", lead + 1, vin, "%s.escha_s_in", base);
    cb_add(b, "F32", lead + 1, vout, "%s.escha_s_out", base);
    cb_tensor *t = cb_add(b, "I32", 1, (const uint64_t[]){experts > 0 ? 9 : 6}, "%s.escha_config", base);
    int32_t n[9] = {16, (int32_t)k, 2, 1};
    int i = 4;
    if (experts > 0)
        n[i++] = (int32_t)experts;
    for (int r = 0; r < (experts > 0 ? 2 : 1); r++) {
        n[i++] = (int32_t)in;
        n[i++] = (int32_t)out;
    }
    memcpy(t->numbers, n, sizeof n);
    if (experts == 0)
        cb_add(b, "F16", CB_DIMS(out), "%s.bias", base);
}

/* An int8 pair in MoE exports, a trellis code in dense ones. */
static inline void cb_linear(cb *b, const char *layer, const char *leaf, uint64_t out, uint64_t in) {
    char base[160];
    snprintf(base, sizeof base, "%s%s", layer, leaf);
    if (b->dense)
        cb_coded(b, base, 0, in, out, 2);
    else
        cb_int8(b, base, out, in);
}

static inline void cb_mlp(cb *b, const char *layer, bool plain) {
    if (b->dense) {
        if (plain) {
            cb_add(b, "BF16", CB_DIMS(128, 128), "%smlp.gate_proj.weight", layer);
            cb_add(b, "BF16", CB_DIMS(128, 128), "%smlp.up_proj.weight", layer);
            cb_add(b, "BF16", CB_DIMS(128, 128), "%smlp.down_proj.weight", layer);
            return;
        }
        cb_linear(b, layer, "mlp.gate_proj", 128, 128);
        char base[160];
        snprintf(base, sizeof base, "%smlp.up_proj", layer);
        cb_coded(b, base, 0, 128, 128, 3);
        cb_linear(b, layer, "mlp.down_proj", 128, 128);
        return;
    }
    static const char *const SHARED[] = {"gate_proj", "up_proj", "down_proj"};
    cb_add(b, "F16", CB_DIMS(2, 128), "%smlp.gate.weight", layer);
    cb_add(b, "F16", CB_DIMS(1, 128), "%smlp.shared_expert_gate.weight", layer);
    for (int i = 0; i < 3; i++) {
        char base[160];
        snprintf(base, sizeof base, "%smlp.shared_expert.%s", layer, SHARED[i]);
        uint64_t out = i < 2 ? 16 : 128, in = i < 2 ? 128 : 16;
        if (plain)
            cb_add(b, "BF16", CB_DIMS(out, in), "%s.weight", base);
        else
            cb_int8(b, base, out, in);
    }
}

static inline void cb_attention(cb *b, const char *layer, bool plain) {
    static const struct {
        const char *leaf;
        uint64_t out, in;
    } ROWS[] = {{"self_attn.q_proj", 256, 128},
                {"self_attn.k_proj", 128, 128},
                {"self_attn.v_proj", 128, 128},
                {"self_attn.o_proj", 128, 128}};
    for (size_t i = 0; i < 4; i++) {
        if (plain)
            cb_add(b, "F16", CB_DIMS(ROWS[i].out, ROWS[i].in), "%s%s.weight", layer, ROWS[i].leaf);
        else
            cb_linear(b, layer, ROWS[i].leaf, ROWS[i].out, ROWS[i].in);
    }
    cb_add(b, "F16", CB_DIMS(64), "%sself_attn.q_norm.weight", layer);
    cb_add(b, "BF16", CB_DIMS(64), "%sself_attn.k_norm.weight", layer);
}

static inline void cb_norms(cb *b, const char *layer) {
    cb_add(b, "F16", CB_DIMS(128), "%sinput_layernorm.weight", layer);
    cb_add(b, "F32", CB_DIMS(128), "%spost_attention_layernorm.weight", layer);
}

static inline void cb_layers(cb *b) {
    for (int i = 0; i < 2; i++) {
        char layer[96];
        snprintf(layer, sizeof layer, "%slayers.%d.", b->prefix, i);
        cb_norms(b, layer);
        if (i == 1) {
            cb_attention(b, layer, false);
        } else {
            cb_linear(b, layer, "linear_attn.in_proj_qkv", 256, 128);
            cb_linear(b, layer, "linear_attn.in_proj_z", 128, 128);
            cb_linear(b, layer, "linear_attn.out_proj", 128, 128);
            cb_add(b, "F16", CB_DIMS(2, 128), "%slinear_attn.in_proj_a.weight", layer);
            cb_add(b, "BF16", CB_DIMS(2, 128), "%slinear_attn.in_proj_b.weight", layer);
            cb_add(b, "F16", CB_DIMS(256, 1, 4), "%slinear_attn.conv1d.weight", layer);
            cb_add(b, "F32", CB_DIMS(2), "%slinear_attn.A_log", layer);
            cb_add(b, "F16", CB_DIMS(2), "%slinear_attn.dt_bias", layer);
            cb_add(b, "F16", CB_DIMS(64), "%slinear_attn.norm.weight", layer);
        }
        cb_mlp(b, layer, false);
        if (!b->dense) {
            char base[160];
            snprintf(base, sizeof base, "%smlp.experts.gate_up_proj", layer);
            cb_coded(b, base, 2, 128, 256, 2);
            snprintf(base, sizeof base, "%smlp.experts.down_proj", layer);
            cb_coded(b, base, 2, 128, 128, 3);
        }
    }
}

/* The draft head; in dense exports in its own folder. */
static inline void cb_draft(cb *b) {
    size_t first = b->n_tensors;
    cb_add(b, "BF16", CB_DIMS(128, 256), "mtp.fc.weight");
    cb_add(b, "BF16", CB_DIMS(128), "mtp.pre_fc_norm_embedding.weight");
    cb_add(b, "BF16", CB_DIMS(128), "mtp.pre_fc_norm_hidden.weight");
    cb_add(b, "BF16", CB_DIMS(128), "mtp.norm.weight");
    cb_norms(b, "mtp.layers.0.");
    cb_attention(b, "mtp.layers.0.", true);
    cb_mlp(b, "mtp.layers.0.", true);
    for (size_t i = first; i < b->n_tensors && b->dense; i++)
        b->tensors[i].file = 2;
}

static const char CB_TEXT[] =
    "{\"vocab_size\":32,\"hidden_size\":128,\"num_hidden_layers\":2,\"layer_types\":[\"linear_attention\","
    "\"full_attention\"],\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":64,\"linear_num_"
    "key_heads\":2,"
    "\"linear_num_value_heads\":2,\"linear_key_head_dim\":32,\"linear_value_head_dim\":64,\"linear_conv_"
    "kernel_dim\":4,"
    "\"rms_norm_eps\":1e-6,\"max_position_embeddings\":4096,\"eos_token_id\":7,\"mtp_num_hidden_layers\":1,"
    "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e7,\"partial_rotary_factor\":0.25}}";
static const char CB_MOE[] = "{\"num_experts\":2,\"num_experts_per_tok\":1,\"moe_intermediate_size\":128,"
                             "\"shared_expert_intermediate_size\":16}";

/* A valid checkpoint, not yet written; for prefix "" the published one is used. */
static inline cb *cb_new_with(bool dense, const char *prefix) {
    cb *b = calloc(1, sizeof *b);
    if (b == NULL)
        abort();
    b->dense = dense;
    b->prefix = prefix;
    strcpy(b->directory, "/tmp/pgl-checkpoint-XXXXXX");
    b->text = json_loads(CB_TEXT, 0, NULL);
    if (dense) {
        json_object_set_new(b->text, "intermediate_size", json_integer(128));
    } else {
        json_t *moe = json_loads(CB_MOE, 0, NULL);
        json_object_update(b->text, moe);
        json_decref(moe);
    }
    b->config = json_object();
    json_object_set_new(b->config, "text_config", b->text);
    b->quant = json_object();
    json_object_set_new(b->config, "quantization_config", b->quant);
    json_object_set_new(b->quant, "quant_method", json_string(dense ? "escha" : "eschamoe"));
    json_object_set_new(b->quant, "format_version", json_string("2.0"));
    b->generation = json_loads("{\"eos_token_id\":[3,7],\"temperature\":0.5}", 0, NULL);
    char base[160];
    snprintf(base, sizeof base, "%sembed_tokens", prefix);
    cb_int8(b, base, 32, 128);
    cb_int8(b, "lm_head", 32, 128);
    cb_add(b, "F16", CB_DIMS(128), "%snorm.weight", prefix);
    cb_layers(b);
    cb_draft(b);
    if (mkdtemp(b->directory) == NULL)
        abort();
    return b;
}

static inline cb *cb_new(bool dense) {
    return cb_new_with(dense, "model.language_model.");
}

static inline cb_tensor *cb_find(cb *b, const char *name) {
    for (size_t i = 0; i < b->n_tensors; i++)
        if (strcmp(b->tensors[i].name, name) == 0)
            return &b->tensors[i];
    fprintf(stderr, "the test names a tensor that is not there: %s\n", name);
    abort();
}

static inline uint64_t cb_size(const char *dtype) {
    return strcmp(dtype, "I8") == 0 || strcmp(dtype, "U8") == 0                                   ? 1
           : strcmp(dtype, "F16") == 0 || strcmp(dtype, "BF16") == 0 || strcmp(dtype, "I16") == 0 ? 2
           : strcmp(dtype, "F64") == 0                                                            ? 8
                                                                                                  : 4;
}

static inline void cb_write_file(const cb *b, const char *name, const void *data, size_t size) {
    char *path = pgl_fs_join(b->directory, name);
    FILE *f = path == NULL ? NULL : fopen(path, "wb");
    if (f == NULL || (size > 0 && fwrite(data, size, 1, f) != 1) || fclose(f) != 0)
        abort();
    free(path);
}

static inline void cb_write_json(const cb *b, const char *name, const json_t *value) {
    char *text = json_dumps(value, JSON_REAL_PRECISION(9));
    cb_write_file(b, name, text, strlen(text));
    free(text);
}

/* Appends the tensor's numbers: 1.0, or a count, or what I32 tensors hold. */
static inline void cb_put_numbers(pgl_buf *data, const cb_tensor *t, uint64_t n) {
    uint64_t size = cb_size(t->dtype), start = data->size;
    if (!pgl_buf_reserve(data, n * size))
        abort();
    unsigned char *p = (unsigned char *)data->data + start;
    uint32_t one = strcmp(t->dtype, "F16") == 0    ? 0x3C00
                   : strcmp(t->dtype, "BF16") == 0 ? 0x3F80
                                                   : 0x3F800000;
    for (uint64_t i = 0; i < n && strcmp(t->dtype, "I32") == 0; i++)
        memcpy(p + i * size, &t->numbers[i % 9], 4);
    if (strcmp(t->dtype, "I32") != 0 && t->dtype[0] != 'F' && t->dtype[0] != 'B')
        memset(p, 0x5A, n * size);
    else if (size == 2)
        for (uint64_t i = 0; i < n; i++)
            memcpy(p + i * 2, &one, 2);
    else if (size == 4 && strcmp(t->dtype, "I32") != 0)
        for (uint64_t i = 0; i < n; i++)
            memcpy(p + i * 4, &one, 4);
    else if (size == 8)
        memset(p, 0, n * size);
    data->size += n * size;
    if (t->bad_value && n > 0) /* all bits: NaN in every float type */
        memset(p + (n - 1) * size, 0xFF, size);
}

static inline void cb_write_shard(const cb *b, unsigned file, const char *name) {
    json_t *header = json_object();
    pgl_buf data = PGL_BUF_INIT;
    for (size_t i = 0; i < b->n_tensors; i++) {
        const cb_tensor *t = &b->tensors[i];
        unsigned in = b->single && t->file < 2 ? 0 : t->file;
        if (t->removed || in != file)
            continue;
        for (uint64_t g = 0; g < t->gap; g++)
            pgl_buf_putc(&data, 0);
        uint64_t begin = data.size, n = 1;
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->n_dims; d++) {
            json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
            n *= t->dims[d];
        }
        cb_put_numbers(&data, t, n);
        json_object_set_new(header, t->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype, "shape", shape,
                                      "data_offsets", (json_int_t)begin + t->shift_begin,
                                      (json_int_t)data.size + t->shift_end));
    }
    char *text = json_dumps(header, JSON_COMPACT);
    uint64_t length = strlen(text);
    pgl_buf whole = PGL_BUF_INIT;
    if (!pgl_buf_append(&whole, &length, sizeof length) || !pgl_buf_puts(&whole, text) ||
        !pgl_buf_append(&whole, data.data, data.size))
        abort();
    for (uint64_t i = 0; i < b->extra[file]; i++)
        pgl_buf_putc(&whole, 0);
    cb_write_file(b, name, whole.data, whole.size - b->cut[file]);
    free(text);
    json_decref(header);
    pgl_buf_fini(&data);
    pgl_buf_fini(&whole);
}

static inline bool cb_has_file(const cb *b, unsigned file) {
    for (size_t i = 0; i < b->n_tensors; i++)
        if (!b->tensors[i].removed && b->tensors[i].file == file)
            return !b->no_file[file];
    return false;
}

static inline void cb_write_index(const cb *b) {
    json_t *map = json_object();
    for (size_t i = 0; i < b->n_tensors; i++)
        if (!b->tensors[i].removed && b->tensors[i].file < 2)
            json_object_set_new(map, b->tensors[i].name, json_string(CB_FILES[b->tensors[i].file]));
    json_t *index = json_pack("{s:{}, s:o}", "metadata", "weight_map", map);
    if (b->edit_index != NULL)
        b->edit_index(index);
    cb_write_json(b, "model.safetensors.index.json", index);
    json_decref(index);
}

static inline void cb_write(const cb *b) {
    if (b->only != 0) {
        cb_write_index(b);
        cb_write_shard(b, (unsigned)b->only - 1, CB_FILES[b->only - 1]);
        return;
    }
    if (b->raw_config != NULL)
        cb_write_file(b, "config.json", b->raw_config, strlen(b->raw_config));
    else if (b->config != NULL)
        cb_write_json(b, "config.json", b->config);
    if (b->generation != NULL)
        cb_write_json(b, "generation_config.json", b->generation);
    if (cb_has_file(b, 2)) {
        char *path = pgl_fs_join(b->directory, "mtp");
        mkdir(path, 0700);
        free(path);
        cb_write_shard(b, 2, CB_FILES[2]);
    }
    if (b->single) {
        cb_write_shard(b, 0, "model.safetensors");
        return;
    }
    cb_write_index(b);
    for (unsigned f = 0; f < 2; f++)
        if (!b->no_file[f])
            cb_write_shard(b, f, CB_FILES[f]);
}

static inline void cb_remove_directory(const char *directory) {
    char **names = NULL;
    size_t n = 0;
    if (pgl_fs_list(directory, &names, &n, NULL) != PGL_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        char *path = pgl_fs_join(directory, names[i]);
        if (pgl_fs_is_directory(path))
            cb_remove_directory(path);
        else
            unlink(path);
        free(path);
    }
    free(names);
    rmdir(directory);
}

static inline void cb_free(cb *b) {
    cb_remove_directory(b->directory);
    json_decref(b->config);
    json_decref(b->generation);
    free(b);
}

#endif
