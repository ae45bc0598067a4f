/* All tensors of a checkpoint's shards under one set of names: the shards mapped, the index checked against their
 * headers in both directions. Private to checkpoint; one thread until the checkpoint is open, then read-only. */
#ifndef PGL_CHECKPOINT_TENSOR_SET_H
#define PGL_CHECKPOINT_TENSOR_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/map.h"
#include "base/mapped.h"
#include "checkpoint/safetensors.h"

typedef struct pgl_shard {
    const char
        *file; /* relative to the checkpoint: "model-00001-of-00002.safetensors", "mtp/model.safetensors" */
    pgl_mapped map;
    pgl_safetensors_header header;
} pgl_shard;

typedef enum pgl_tensor_role {
    PGL_TENSOR_NEW,     /* nobody asked for it yet */
    PGL_TENSOR_USED,    /* part of the typed weights */
    PGL_TENSOR_SKIPPED, /* visual, or a draft head that is not wanted or that mtp/ replaces */
} pgl_tensor_role;

typedef struct pgl_tensor {
    const char *name; /* as in the file */
    const char *key;  /* without the prefix; mtp.* in full */
    const pgl_safetensors_tensor *entry;
    const pgl_shard *shard;
    const void *data;
    pgl_tensor_role role;
} pgl_tensor;

typedef struct pgl_tensor_set {
    pgl_shard *shards;
    size_t n_shards, shards_capacity;
    pgl_tensor *tensors; /* sorted by name */
    size_t n_tensors, tensors_capacity;
    pgl_map by_key;      /* key -> pgl_tensor; not the skipped visual ones */
    const char *prefix;  /* most tensors' prefix, for naming one that is missing */
    const char *listing; /* the file that a missing tensor is missing from */
    pgl_arena *arena;
    pgl_buf *notes; /* borrowed */
    bool strict;
    bool draft_alone; /* mtp.* and nothing else: files of an index that hold none of it need not be there */
} pgl_tensor_set;

/* Opens DIR/model.safetensors or the index and its shards, and with want_draft the same inside DIR/mtp where that is a
 * directory with weights: that draft head replaces one among the other tensors. set->notes, set->strict and
 * set->draft_alone are given; everything else is filled. After a failure pgl_tensor_set_close is still needed. */
pgl_status pgl_tensor_set_open(const char *directory, bool want_draft, pgl_tensor_set *set, pgl_error *err);
void pgl_tensor_set_close(pgl_tensor_set *set);

/* Something contradicts itself without making the weights unclear: a note, or under strict the error. */
pgl_status pgl_tensor_set_odd(pgl_tensor_set *set, pgl_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One line of notes. */
pgl_status pgl_tensor_set_note(pgl_tensor_set *set, pgl_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
