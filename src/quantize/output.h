/* The tensors of one output file while it is being made: each owns its data. One thread at a time. */
#ifndef PGL_QUANTIZE_OUTPUT_H
#define PGL_QUANTIZE_OUTPUT_H

#include "quantize/source.h"

typedef struct pgl_quant_output_tensor {
    char name[256];
    pgl_safetensors_spec spec; /* spec.name is name */
    void *data;
    uint64_t bytes;
} pgl_quant_output_tensor;

typedef struct pgl_quant_output {
    pgl_quant_output_tensor **tensors; /* pointers, so that they stay where they are */
    size_t n, capacity;
} pgl_quant_output;

void pgl_quant_output_fini(pgl_quant_output *output); /* leaves an empty one */

/* A zeroed tensor of that type and shape under prefix + base + leaf. */
pgl_status pgl_quant_output_add(pgl_quant_output *output, const char *name, pgl_dtype dtype, uint32_t n_dims,
                                const uint64_t *dims, pgl_quant_output_tensor **out, pgl_error *err);

const pgl_quant_output_tensor *pgl_quant_output_tensor_named(const pgl_quant_output *output,
                                                             const char *name);

/* base + ".weight" [rows, columns] of the source as an int8 pair under prefix. */
pgl_status pgl_quant_output_add_int8(pgl_quant_output *output, const pgl_source *source, const char *prefix,
                                     const char *base, uint64_t rows, uint64_t columns, pgl_error *err);

/* The tensor `base` of the source, of that shape, kept 16-bit: F16 and BF16 as they are, F32 rounded to fp16; as_f32
 * keeps F32. */
pgl_status pgl_quant_output_add_plain(pgl_quant_output *output, const pgl_source *source, const char *prefix,
                                      const char *base, uint32_t n_dims, const uint64_t *dims, bool as_f32,
                                      pgl_error *err);

/* Writes the file; it appears under its name only when complete. */
pgl_status pgl_quant_output_write(const pgl_quant_output *output, const char *path, pgl_error *err);

/* Reads a file that pgl_quant_output_write made into an empty output. */
pgl_status pgl_quant_output_read(pgl_quant_output *output, const char *path, pgl_error *err);

#endif
