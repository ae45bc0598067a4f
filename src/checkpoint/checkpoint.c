/* Owns the mapped shards, the typed weights' layer array and the notes. */
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "checkpoint/inventory.h"
#include "checkpoint/layer_meta.h"
#include "checkpoint/tensor_set.h"

#define MOST_FILE_BYTES ((size_t)64 << 20)

struct pgl_checkpoint {
    char *directory;
    pgl_config config;
    pgl_weights weights;
    pgl_tensor_set set;
    pgl_buf notes;
};

pgl_status pgl_checkpoint_read_file(const pgl_checkpoint *checkpoint, const char *name, pgl_buf *out,
                                    bool *found, pgl_error *err) {
    char *path = pgl_fs_join(checkpoint->directory, name);
    if (path == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "%s: out of memory while reading it", name);
    pgl_status status = pgl_fs_read(path, MOST_FILE_BYTES, out, err);
    free(path);
    *found = status == PGL_OK;
    return status == PGL_E_NOT_FOUND ? PGL_OK : status;
}

static pgl_status read_configs(pgl_checkpoint *c, pgl_buf *config_text, pgl_error *err) {
    bool found;
    pgl_status status = pgl_checkpoint_read_file(c, "config.json", config_text, &found, err);
    if (status != PGL_OK)
        return status;
    if (!found)
        return pgl_fail(err, PGL_E_NOT_FOUND,
                        "%s: expected a checkpoint with config.json, found no such file", c->directory);
    status = pgl_config_parse(pgl_buf_text(config_text), config_text->size, "config.json", &c->config,
                              &c->notes, err);
    if (status != PGL_OK)
        return status;
    pgl_buf text = PGL_BUF_INIT;
    status = pgl_checkpoint_read_file(c, "generation_config.json", &text, &found, err);
    if (status == PGL_OK && found)
        status = pgl_config_parse_generation(pgl_buf_text(&text), text.size, "generation_config.json",
                                             &c->config, err);
    pgl_buf_fini(&text);
    return status;
}

static pgl_status open_all(pgl_checkpoint *c, const pgl_checkpoint_options *o, pgl_error *err) {
    if (!pgl_fs_is_directory(c->directory))
        return pgl_fail(err, PGL_E_NOT_FOUND, "%s: expected the directory of a checkpoint, found %s",
                        c->directory, pgl_fs_is_file(c->directory) ? "a file" : "nothing");
    pgl_buf config_text = PGL_BUF_INIT;
    pgl_status status = read_configs(c, &config_text, err);
    if (status == PGL_OK)
        status = pgl_tensor_set_open(c->directory, o->want_draft, &c->set, err);
    if (status == PGL_OK)
        status = pgl_inventory_build(&c->config, o->want_draft, &c->set, &c->weights, err);
    if (status == PGL_OK)
        status =
            pgl_layer_meta_check(pgl_buf_text(&config_text), config_text.size, "config.json", &c->set, err);
    pgl_buf_fini(&config_text);
    return status;
}

pgl_status pgl_checkpoint_open(const char *directory, const pgl_checkpoint_options *options,
                               pgl_checkpoint **out, pgl_error *err) {
    static const pgl_checkpoint_options DEFAULTS = {.strict = false, .want_draft = true};
    *out = NULL;
    pgl_checkpoint *c = pgl_new(1, sizeof *c);
    if (c != NULL)
        c->directory = pgl_strndup(directory, strlen(directory));
    if (c == NULL || c->directory == NULL) {
        free(c);
        return pgl_fail(err, PGL_E_MEMORY, "out of memory while opening a checkpoint");
    }
    const pgl_checkpoint_options *o = options == NULL ? &DEFAULTS : options;
    c->set.notes = &c->notes;
    c->set.strict = o->strict;
    pgl_status status = open_all(c, o, err);
    if (status != PGL_OK) {
        pgl_checkpoint_close(c);
        return status;
    }
    *out = c;
    return PGL_OK;
}

void pgl_checkpoint_close(pgl_checkpoint *checkpoint) {
    if (checkpoint == NULL)
        return;
    free(checkpoint->weights.layers);
    pgl_tensor_set_close(&checkpoint->set);
    pgl_buf_fini(&checkpoint->notes);
    free(checkpoint->directory);
    free(checkpoint);
}

const pgl_config *pgl_checkpoint_config(const pgl_checkpoint *checkpoint) {
    return &checkpoint->config;
}

const pgl_weights *pgl_checkpoint_weights(const pgl_checkpoint *checkpoint) {
    return &checkpoint->weights;
}

const char *pgl_checkpoint_directory(const pgl_checkpoint *checkpoint) {
    return checkpoint->directory;
}

const char *pgl_checkpoint_notes(const pgl_checkpoint *checkpoint) {
    return pgl_buf_text(&checkpoint->notes);
}

size_t pgl_checkpoint_n_tensors(const pgl_checkpoint *checkpoint) {
    return checkpoint->set.n_tensors;
}

pgl_tensor_info pgl_checkpoint_tensor(const pgl_checkpoint *checkpoint, size_t i) {
    const pgl_tensor *t = &checkpoint->set.tensors[i];
    pgl_tensor_info info = {.name = t->name,
                            .key = t->key,
                            .file = t->shard->file,
                            .dtype = t->entry->dtype,
                            .dtype_name = t->entry->dtype_name,
                            .n_dims = t->entry->n_dims,
                            .data = t->data,
                            .bytes = t->entry->bytes,
                            .used = t->role == PGL_TENSOR_USED};
    memcpy(info.dims, t->entry->dims, sizeof info.dims);
    return info;
}

uint64_t pgl_checkpoint_file_bytes(const pgl_checkpoint *checkpoint) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < checkpoint->set.n_shards; i++)
        bytes += checkpoint->set.shards[i].map.size;
    return bytes;
}

uint64_t pgl_checkpoint_used_bytes(const pgl_checkpoint *checkpoint) {
    uint64_t bytes = 0; /* within the files' sizes: no overflow */
    for (size_t i = 0; i < checkpoint->set.n_tensors; i++)
        if (checkpoint->set.tensors[i].role == PGL_TENSOR_USED)
            bytes += checkpoint->set.tensors[i].entry->bytes;
    return bytes;
}

pgl_status pgl_checkpoint_lock(const pgl_checkpoint *checkpoint, pgl_error *err) {
    for (size_t i = 0; i < checkpoint->set.n_shards; i++) {
        const pgl_shard *shard = &checkpoint->set.shards[i];
        pgl_status status = pgl_mapped_lock(&shard->map, err);
        if (status != PGL_OK) {
            pgl_error_prefix(err, "%s", shard->file);
            return status;
        }
    }
    return PGL_OK;
}

pgl_status pgl_checkpoint_advise(const pgl_checkpoint *checkpoint, const void *data, uint64_t bytes,
                                 pgl_mapped_use use, pgl_error *err) {
    uintptr_t at = (uintptr_t)data;
    for (size_t i = 0; i < checkpoint->set.n_shards; i++) {
        const pgl_shard *shard = &checkpoint->set.shards[i];
        uintptr_t start = (uintptr_t)shard->map.data;
        if (at < start || at - start >= shard->map.size || bytes > shard->map.size - (at - start))
            continue;
        pgl_status status = pgl_mapped_advise(&shard->map, at - start, (size_t)bytes, use, err);
        if (status != PGL_OK)
            pgl_error_prefix(err, "%s", shard->file);
        return status;
    }
    return pgl_fail(err, PGL_E_INVALID, "%llu bytes that are not the checkpoint's",
                    (unsigned long long)bytes);
}
