/* A checkpoint directory, opened and checked.
 *
 * pgl_checkpoint_open reads config, index and shard headers, maps the shards, and builds the typed weights;
 * it refuses (PGL_E_FORMAT, PGL_E_UNSUPPORTED, PGL_E_IO) with the tensor, the file, what was expected and
 * what was found before anything is computed. It reads headers only: no page of weights is touched. The
 * weights are used straight from the mapping, which the checkpoint owns; it must outlive every view. After
 * open everything is read-only: any thread. A file that shrinks under the mapping: a SIGBUS handler
 * (base/mapped.h) names it and exits. */
#ifndef PGL_CHECKPOINT_CHECKPOINT_H
#define PGL_CHECKPOINT_CHECKPOINT_H

#include "base/buf.h"
#include "base/mapped.h"
#include "checkpoint/weights.h"

typedef struct pgl_checkpoint pgl_checkpoint;

typedef struct pgl_checkpoint_options {
    bool strict;     /* contradictions that are warnings become errors */
    bool want_draft; /* false: the draft head is not looked at */
} pgl_checkpoint_options;

/* options may be NULL: not strict, with the draft head. */
pgl_status pgl_checkpoint_open(const char *directory, const pgl_checkpoint_options *options,
                               pgl_checkpoint **out, pgl_error *err);
void pgl_checkpoint_close(pgl_checkpoint *checkpoint); /* NULL is allowed */

/* Called now and then during long work; false stops it, which gives PGL_E_CANCELLED. */
typedef bool (*pgl_checkpoint_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* Reads every number that is stored as a float (scales, rin, rout, norms, 16-bit matrices) and refuses, with PGL_E_FORMAT,
 * the first that is infinite or NaN, by file, tensor and element. Not part of open, which reads headers only: the program
 * calls it once before it computes. Of the published 12.3 GB it reads 0.49 GB: 0.3 s when the file is in memory, else the
 * time the disk takes. progress may be NULL. */
pgl_status pgl_checkpoint_check_values(const pgl_checkpoint *checkpoint, pgl_checkpoint_progress progress,
                                       void *context, pgl_error *err);

/* Says how these bytes of a tensor will be used (base/mapped.h): to start reading them, or to have them all in memory
 * before they are needed. Bytes that are not the checkpoint's: PGL_E_INVALID. */
pgl_status pgl_checkpoint_advise(const pgl_checkpoint *checkpoint, const void *data, uint64_t bytes,
                                 pgl_mapped_use use, pgl_error *err);

const pgl_config *pgl_checkpoint_config(const pgl_checkpoint *checkpoint);
const pgl_weights *pgl_checkpoint_weights(const pgl_checkpoint *checkpoint);
const char *pgl_checkpoint_directory(const pgl_checkpoint *checkpoint);

/* Lines about what was skipped or looks odd; "" when there are none. */
const char *pgl_checkpoint_notes(const pgl_checkpoint *checkpoint);

/* Whole small files of the directory, each at most 64 MiB: "tokenizer.json", "chat_template.jinja", ...
 * *found is false, with PGL_OK, where there is no such file. The caller owns out. */
pgl_status pgl_checkpoint_read_file(const pgl_checkpoint *checkpoint, const char *name, pgl_buf *out,
                                    bool *found, pgl_error *err);

/* The tensors, in the order of their names: for `inspect` and tests. */
typedef struct pgl_tensor_info {
    const char *name; /* as in the file */
    const char *key;  /* without the checkpoint's prefix: "layers.0.mlp.gate.weight" */
    const char *file; /* relative to the directory */
    pgl_dtype dtype;  /* PGL_NONE for types that no weight has */
    const char *dtype_name;
    uint32_t n_dims;
    uint64_t dims[6];
    const void *data;
    uint64_t bytes;
    bool used; /* part of the typed weights */
} pgl_tensor_info;

size_t pgl_checkpoint_n_tensors(const pgl_checkpoint *checkpoint);
pgl_tensor_info pgl_checkpoint_tensor(const pgl_checkpoint *checkpoint, size_t i);
uint64_t pgl_checkpoint_file_bytes(const pgl_checkpoint *checkpoint); /* of all shards */
uint64_t pgl_checkpoint_used_bytes(const pgl_checkpoint *checkpoint); /* of the tensors that the model uses */

/* Keeps all shards in memory until close (mlock); PGL_E_MEMORY when the system does not allow it. */
pgl_status pgl_checkpoint_lock(const pgl_checkpoint *checkpoint, pgl_error *err);

#endif
