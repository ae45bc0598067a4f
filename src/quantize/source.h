/* The model to be coded: a Hugging Face directory of BF16, F16 or F32 safetensors, one file or shards with an index.
 *
 * Tensors are found under the names of docs/format.md, whatever prefix the file gives them. Read-only after open: any
 * thread. Nothing of a tensor's data is read until it is asked for. */
#ifndef PGL_QUANTIZE_SOURCE_H
#define PGL_QUANTIZE_SOURCE_H

#include "checkpoint/tensor_set.h"

typedef struct pgl_source {
    pgl_tensor_set set;
    pgl_buf notes; /* lines about what was skipped */
} pgl_source;

/* draft_alone: the tensors mtp.* and nothing else; files of an index that hold none of them need not be there. */
pgl_status pgl_source_open(const char *directory, bool draft_alone, pgl_source *source, pgl_error *err);
void pgl_source_close(pgl_source *source);

/* By its name without prefix: "layers.0.mlp.gate.weight"; NULL when there is none. */
const pgl_tensor *pgl_source_find(const pgl_source *source, const char *base);

/* The same, of exactly this shape and F16, BF16 or F32; PGL_E_FORMAT names the tensor, what was expected and what was
 * found. */
pgl_status pgl_source_get(const pgl_source *source, const char *base, uint32_t n_dims, const uint64_t *dims,
                          const pgl_tensor **out, pgl_error *err);

/* n elements from first on, widened to f32. */
void pgl_source_read(const pgl_tensor *tensor, uint64_t first, uint64_t n, float *out);

#endif
