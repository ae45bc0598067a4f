/* Safetensors files: reading a header, and writing files.
 *
 * Reading takes bytes, not paths, checks everything a header can get wrong, and touches no tensor data. Writing streams:
 * the tensors are named first, then their bytes follow in the same order; a file appears under its name only when it is
 * complete. Headers belong to one thread at a time, and any thread may read one that does not change; a writer belongs
 * to one thread. */
#ifndef PGL_CHECKPOINT_SAFETENSORS_H
#define PGL_CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "checkpoint/dtype.h"

#define PGL_SAFETENSORS_MOST_DIMS 6
#define PGL_SAFETENSORS_MOST_HEADER_BYTES ((uint64_t)100000000)

typedef struct pgl_safetensors_tensor {
    const char *name;
    const char *dtype_name; /* as in the file */
    pgl_dtype dtype;        /* PGL_NONE for a type that safetensors knows and this program has no use for */
    uint32_t n_dims;
    uint64_t dims[PGL_SAFETENSORS_MOST_DIMS];
    uint64_t offset; /* from the start of the file; any alignment */
    uint64_t bytes;
} pgl_safetensors_tensor;

typedef struct pgl_safetensors_header {
    pgl_safetensors_tensor *tensors; /* in the order of the header */
    size_t n_tensors;
    uint64_t data_bytes;     /* of all tensors */
    uint64_t trailing_bytes; /* in the file after the last tensor */
    pgl_arena *arena;        /* owns the names and tensors */
} pgl_safetensors_header;

/* Reads the header of a file of file_bytes bytes, all of them at data. name is used in messages. PGL_E_FORMAT: too short,
 * header length past the end or above the limit, broken JSON, a repeated name, an entry without dtype, shape or
 * data_offsets or with wrong ones, an unknown dtype, more than six dimensions, offsets that do not fit the shape, lie
 * outside the file or overlap. `__metadata__` is ignored. */
pgl_status pgl_safetensors_read_header(const void *data, uint64_t file_bytes, const char *name,
                                       pgl_safetensors_header *out, pgl_error *err);
void pgl_safetensors_header_fini(pgl_safetensors_header *header);

/* "[16, 256]"; "[]" for no dimensions. */
#define PGL_SHAPE_TEXT 160
void pgl_shape_text(uint32_t n_dims, const uint64_t *dims, char out[PGL_SHAPE_TEXT]);

/* One tensor to be written. */
typedef struct pgl_safetensors_spec {
    const char *name;
    pgl_dtype dtype; /* not PGL_NONE */
    uint32_t n_dims;
    uint64_t dims[PGL_SAFETENSORS_MOST_DIMS];
} pgl_safetensors_spec;

/* Bytes of the tensor's data; false when it does not fit 63 bits. */
bool pgl_safetensors_spec_bytes(const pgl_safetensors_spec *spec, uint64_t *bytes);

typedef struct pgl_safetensors_writer pgl_safetensors_writer;

/* Starts one file at path, where there may be a file, which is replaced at the end, or nothing: PGL_E_IO for anything
 * else. specs are copied as far as needed; names must differ. */
pgl_status pgl_safetensors_create(const char *path, const pgl_safetensors_spec *specs, size_t n_specs,
                                  pgl_safetensors_writer **out, pgl_error *err);

/* Starts a set in an existing directory: model-00001-of-NNNNN.safetensors ... with tensors in the given order, a new
 * file whenever the next tensor would pass shard_bytes, and model.safetensors.index.json; or, when all of it fits
 * shard_bytes or shard_bytes is 0, model.safetensors alone. */
pgl_status pgl_safetensors_create_set(const char *directory, uint64_t shard_bytes,
                                      const pgl_safetensors_spec *specs, size_t n_specs,
                                      pgl_safetensors_writer **out, pgl_error *err);

/* The next bytes of the data, in the order of specs; pieces may be cut anywhere. PGL_E_INVALID for more bytes than the
 * specs have. */
pgl_status pgl_safetensors_write(pgl_safetensors_writer *writer, const void *data, size_t size,
                                 pgl_error *err);

/* Ends the files and gives them their names, the index last. PGL_E_INVALID when bytes are missing. The writer is gone in
 * every case; after a failure so are the files that have no name yet. */
pgl_status pgl_safetensors_finish(pgl_safetensors_writer *writer, pgl_error *err);

/* Gives up: removes what was written. NULL is allowed. */
void pgl_safetensors_abandon(pgl_safetensors_writer *writer);

#endif
