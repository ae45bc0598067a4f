/* Owns nothing beyond a call. */
#include "quantize/quantize_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mapped.h"
#include "checkpoint/safetensors.h"

#define SMALL_FILE_BYTES ((size_t)64 << 20)
#define STATE_FILE "pergola-quantize.json"

static pgl_status read_small(const char *directory, const char *name, pgl_buf *out, pgl_error *err) {
    char *path = pgl_fs_join(directory, name);
    if (path == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a path");
    pgl_status status = pgl_fs_read(path, SMALL_FILE_BYTES, out, err);
    free(path);
    return status;
}

static pgl_status write_small(const char *directory, const char *name, const void *data, size_t size,
                              pgl_error *err) {
    char *path = pgl_fs_join(directory, name);
    if (path == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a path");
    pgl_status status = pgl_fs_write(path, data, size, err);
    free(path);
    return status;
}

static json_t *layer_meta(uint32_t k, uint32_t in, uint32_t out) {
    return json_pack("{s:i, s:f, s:i, s:i}", "K", (int)k, "bits", (double)k, "in_features", (int)in,
                     "out_features", (int)out);
}

static uint32_t size_of(const json_t *text, const char *key) {
    json_int_t value = json_integer_value(json_object_get(text, key));
    return value > 0 && value < (1 << 24) ? (uint32_t)value : 0;
}

static bool add_quantization(const pgl_quantize_options *options, json_t *root) {
    json_t *text = json_object_get(root, "text_config");
    text = text != NULL ? text : root;
    uint32_t layers = size_of(text, "num_hidden_layers"), hidden = size_of(text, "hidden_size");
    uint32_t inter = size_of(text, "moe_intermediate_size");
    json_t *meta = json_object();
    for (uint32_t l = 0; meta != NULL && l < layers && l < PGL_MAX_LAYERS; l++) {
        char name[128];
        snprintf(name, sizeof name, "model.language_model.layers.%u.mlp.experts.gate_up_proj", l);
        json_object_set_new(meta, name, layer_meta(options->k_gate_up, hidden, 2 * inter));
        snprintf(name, sizeof name, "model.language_model.layers.%u.mlp.experts.down_proj", l);
        json_object_set_new(meta, name, layer_meta(options->k_down, inter, hidden));
    }
    json_t *quantization = json_pack(
        "{s:s, s:s, s:f, s:b, s:[s,s,s,s,s,s,s], s:o}", "quant_method", "eschamoe", "format_version", "2.0",
        "bits", (double)options->k_gate_up, "int8_embedding", 1, "ignore", "lm_head", "embed_tokens",
        "visual", "mlp.gate", "shared_expert_gate", "in_proj_a", "in_proj_b", "layer_meta", meta);
    return quantization != NULL && json_object_set_new(root, "quantization_config", quantization) == 0;
}

pgl_status pgl_quantize_config(const pgl_quantize_options *options, pgl_buf *text, pgl_config *config,
                               pgl_error *err) {
    pgl_buf source = PGL_BUF_INIT;
    json_t *root = NULL;
    char *printed = NULL;
    pgl_json_options parse = {.name = "config.json"};
    pgl_status status = read_small(options->in, "config.json", &source, err);
    if (status == PGL_OK)
        status = pgl_json_parse(source.data, source.size, &parse, &root, err);
    if (status == PGL_OK && !json_is_object(root))
        status = pgl_fail(err, PGL_E_FORMAT, "config.json: expected an object");
    if (status == PGL_OK && (json_object_get(root, "quantization_config") != NULL ||
                             json_object_get(root, "quantization") != NULL))
        status =
            pgl_fail(err, PGL_E_UNSUPPORTED,
                     "config.json: expected a model in 16 or 32 bits, found one that is quantized already");
    if (status == PGL_OK && (!add_quantization(options, root) ||
                             (printed = json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER)) == NULL ||
                             !pgl_buf_puts(text, printed) || !pgl_buf_putc(text, '\n')))
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for config.json");
    if (status == PGL_OK)
        status = pgl_config_parse(text->data, text->size, "config.json", config, NULL, err);
    if (status == PGL_OK && config->n_experts == 0)
        status = pgl_fail(err, PGL_E_UNSUPPORTED,
                          "config.json: expected a mixture of experts, found a dense model");
    if (status == PGL_OK && (config->hidden_size % 128 != 0 || config->moe_intermediate_size % 128 != 0))
        status = pgl_fail(err, PGL_E_UNSUPPORTED,
                          "config.json: expected hidden_size and moe_intermediate_size to be multiples of "
                          "128, found %u and %u",
                          config->hidden_size, config->moe_intermediate_size);
    free(printed);
    json_decref(root);
    pgl_buf_fini(&source);
    return status;
}

/* What a run depends on, as the text of the state file. */
static bool describe(const pgl_quantize_options *options, pgl_buf *out) {
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a over the calibration ids */
    for (size_t i = 0; i < options->n_calibration; i++)
        for (int b = 0; b < 32; b += 8)
            hash = (hash ^ ((uint32_t)options->calibration[i] >> b & 255u)) * 0x100000001B3u;
    return pgl_buf_puts(out, "{\n  \"in\": ") && pgl_json_put_string(out, options->in, strlen(options->in)) &&
           pgl_buf_printf(out,
                          ",\n  \"k_gate_up\": %u,\n  \"k_down\": %u,\n  \"rounds\": %u,\n  \"seed\": %llu,\n"
                          "  \"calibration_tokens\": %zu,\n  \"calibration_hash\": \"%016llx\",\n"
                          "  \"sequence_tokens\": %u,\n  \"version\": 1\n}\n",
                          options->k_gate_up, options->k_down, options->rounds,
                          (unsigned long long)options->seed, options->n_calibration, (unsigned long long)hash,
                          options->sequence_tokens);
}

/* Removes what an earlier run left: only files of our own naming. */
static pgl_status clear(const char *directory, pgl_error *err) {
    char **names = NULL;
    size_t n = 0;
    pgl_status status = pgl_fs_list(directory, &names, &n, err);
    for (size_t i = 0; i < n && status == PGL_OK; i++) {
        bool ours = strncmp(names[i], "model-", 6) == 0 || strcmp(names[i], STATE_FILE) == 0 ||
                    strcmp(names[i], "model.safetensors.index.json") == 0;
        char *path = ours ? pgl_fs_join(directory, names[i]) : NULL;
        if (ours && (path == NULL || unlink(path) != 0))
            status =
                pgl_fail(err, PGL_E_IO, "%s/%s: cannot be removed: %s", directory, names[i], strerror(errno));
        free(path);
    }
    free(names);
    return status;
}

static pgl_status make_directory(const char *path, pgl_error *err) {
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return pgl_fail(err, PGL_E_IO, "%s: cannot make the directory: %s", path, strerror(errno));
    return PGL_OK;
}

pgl_status pgl_quantize_begin(const pgl_quantize_options *options, pgl_error *err) {
    char **names = NULL;
    size_t n = 0;
    pgl_buf want = PGL_BUF_INIT, have = PGL_BUF_INIT;
    pgl_status status = make_directory(options->out, err);
    if (status == PGL_OK && options->restart)
        status = clear(options->out, err);
    if (status == PGL_OK)
        status = pgl_fs_list(options->out, &names, &n, err);
    if (status == PGL_OK && !describe(options, &want))
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for " STATE_FILE);
    if (status == PGL_OK) {
        status = read_small(options->out, STATE_FILE, &have, err);
        if (status == PGL_E_NOT_FOUND)
            status = n == 0 || options->restart
                         ? write_small(options->out, STATE_FILE, want.data, want.size, err)
                         : pgl_fail(err, PGL_E_INVALID,
                                    "%s: expected an empty directory or one of an unfinished run, found %s",
                                    options->out, names[0]);
        else if (status == PGL_OK && strcmp(pgl_buf_text(&have), pgl_buf_text(&want)) != 0)
            status = pgl_fail(err, PGL_E_INVALID,
                              "%s: holds a run with other options (see " STATE_FILE
                              "): use them again, or start anew",
                              options->out);
    }
    free(names);
    pgl_buf_fini(&want);
    pgl_buf_fini(&have);
    return status;
}

/* The sizes that a draft head shares with the model it drafts for. */
static pgl_status same_sizes(const pgl_quantize_options *options, const pgl_config *ours,
                             const pgl_config *theirs, pgl_error *err) {
    const struct {
        const char *name;
        uint32_t ours, theirs;
    } sizes[] = {
        {"hidden_size", ours->hidden_size, theirs->hidden_size},
        {"num_attention_heads", ours->n_heads, theirs->n_heads},
        {"num_key_value_heads", ours->n_kv_heads, theirs->n_kv_heads},
        {"head_dim", ours->head_dim, theirs->head_dim},
        {"num_experts", ours->n_experts, theirs->n_experts},
        {"moe_intermediate_size", ours->moe_intermediate_size, theirs->moe_intermediate_size},
        {"shared_expert_intermediate_size", ours->shared_intermediate_size, theirs->shared_intermediate_size},
        {"mtp_num_hidden_layers", 1, theirs->has_mtp_layers ? theirs->n_mtp_layers : 1},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].ours != sizes[i].theirs)
            return pgl_fail(err, PGL_E_INVALID,
                            "%s/config.json: %s: expected %u for this draft head, found %u", options->out,
                            sizes[i].name, sizes[i].ours, sizes[i].theirs);
    return PGL_OK;
}

pgl_status pgl_quantize_begin_draft(const pgl_quantize_options *options, const pgl_config *config,
                                    char **path, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT;
    pgl_config theirs;
    pgl_status status = read_small(options->out, "config.json", &text, err);
    if (status == PGL_OK)
        status = pgl_config_parse(text.data, text.size, "config.json", &theirs, NULL, err);
    if (status == PGL_OK)
        status = same_sizes(options, config, &theirs, err);
    else if (status == PGL_E_NOT_FOUND)
        status = PGL_OK; /* no checkpoint there: the head is made by itself */
    pgl_buf_fini(&text);
    if (status == PGL_OK)
        status = make_directory(options->out, err);
    char *directory = pgl_fs_join(options->out, "mtp");
    *path = directory == NULL ? NULL : pgl_fs_join(directory, "model.safetensors");
    if (status == PGL_OK && *path == NULL)
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for a path");
    if (status == PGL_OK)
        status = make_directory(directory, err);
    if (status == PGL_OK && !options->restart && pgl_fs_is_file(*path))
        status = pgl_fail(err, PGL_E_INVALID, "%s: there is a draft head already: start anew to replace it",
                          *path);
    free(directory);
    return status;
}

char *pgl_quantize_path(const pgl_quantize_options *options, uint32_t i, uint32_t n_files) {
    char name[64];
    snprintf(name, sizeof name, "model-%05u-of-%05u.safetensors", i + 1, n_files);
    return pgl_fs_join(options->out, name);
}

static pgl_status index_file(const pgl_quantize_options *options, uint32_t i, uint32_t n_files, json_t *map,
                             uint64_t *total, pgl_error *err) {
    char *path = pgl_quantize_path(options, i, n_files);
    pgl_mapped mapped = PGL_MAPPED_INIT;
    if (path == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a path");
    pgl_safetensors_header header;
    pgl_status status = pgl_mapped_open(path, &mapped, err);
    if (status == PGL_OK)
        status = pgl_safetensors_read_header(mapped.data, mapped.size, path, &header, err);
    if (status == PGL_OK) {
        for (size_t t = 0; t < header.n_tensors && status == PGL_OK; t++) {
            *total += header.tensors[t].bytes;
            if (json_object_set_new(map, header.tensors[t].name, json_string(strrchr(path, '/') + 1)) != 0)
                status = pgl_fail(err, PGL_E_MEMORY, "no memory for the index");
        }
        pgl_safetensors_header_fini(&header);
    }
    pgl_mapped_close(&mapped);
    free(path);
    return status;
}

static pgl_status write_index(const pgl_quantize_options *options, uint32_t n_files, pgl_error *err) {
    json_t *map = json_object();
    uint64_t total = 0;
    pgl_status status = map == NULL ? pgl_fail(err, PGL_E_MEMORY, "no memory for the index") : PGL_OK;
    for (uint32_t i = 0; i < n_files && status == PGL_OK; i++)
        status = index_file(options, i, n_files, map, &total, err);
    if (status == PGL_OK) {
        json_t *root =
            json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
        char *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
        status = text == NULL
                     ? pgl_fail(err, PGL_E_MEMORY, "no memory for the index")
                     : write_small(options->out, "model.safetensors.index.json", text, strlen(text), err);
        free(text);
        json_decref(root);
    }
    json_decref(map);
    return status;
}

pgl_status pgl_quantize_end(const pgl_quantize_options *options, const pgl_buf *config, uint32_t n_files,
                            pgl_error *err) {
    static const char *const COPIED[] = {"tokenizer.json", "tokenizer_config.json", "generation_config.json",
                                         "chat_template.jinja"};
    pgl_status status = write_small(options->out, "config.json", config->data, config->size, err);
    for (size_t i = 0; i < sizeof COPIED / sizeof COPIED[0] && status == PGL_OK; i++) {
        pgl_buf text = PGL_BUF_INIT;
        status = read_small(options->in, COPIED[i], &text, err);
        if (status == PGL_OK)
            status = write_small(options->out, COPIED[i], pgl_buf_text(&text), text.size, err);
        else if (status == PGL_E_NOT_FOUND && i > 0)
            status = PGL_OK; /* only the tokenizer itself has to be there */
        pgl_buf_fini(&text);
    }
    if (status == PGL_OK)
        status = write_index(options, n_files, err);
    char *state = pgl_fs_join(options->out, STATE_FILE);
    if (status == PGL_OK && (state == NULL || unlink(state) != 0))
        status = pgl_fail(err, PGL_E_IO, "%s/" STATE_FILE ": cannot be removed: %s", options->out,
                          strerror(errno));
    free(state);
    return status;
}
