/* The element types that weights come in. */
#ifndef PGL_CHECKPOINT_DTYPE_H
#define PGL_CHECKPOINT_DTYPE_H

#include <stdint.h>

typedef enum pgl_dtype { PGL_NONE, PGL_I8, PGL_I16, PGL_I32, PGL_F16, PGL_BF16, PGL_F32 } pgl_dtype;

/* Bytes of one element; 0 for PGL_NONE. */
uint32_t pgl_dtype_size(pgl_dtype dtype);

/* As safetensors spells it; "none" for PGL_NONE. */
const char *pgl_dtype_name(pgl_dtype dtype);

/* Element i of data (F16, BF16, F32, possibly unaligned, little-endian) widened to f32; 0 for any other dtype. */
float pgl_read_f32(const void *data, pgl_dtype dtype, uint64_t i);

#endif
