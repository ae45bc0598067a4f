#include "checkpoint/dtype.h"

#include <string.h>

#include "base/fp16.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checkpoints are little-endian and are used as they lie in memory"
#endif

static const struct {
    const char *name;
    uint32_t size;
} DTYPES[] = {
    [PGL_NONE] = {"none", 0}, [PGL_I8] = {"I8", 1},     [PGL_I16] = {"I16", 2}, [PGL_I32] = {"I32", 4},
    [PGL_F16] = {"F16", 2},   [PGL_BF16] = {"BF16", 2}, [PGL_F32] = {"F32", 4}};

uint32_t pgl_dtype_size(pgl_dtype dtype) {
    return DTYPES[dtype].size;
}

const char *pgl_dtype_name(pgl_dtype dtype) {
    return DTYPES[dtype].name;
}

float pgl_read_f32(const void *data, pgl_dtype dtype, uint64_t i) {
    const char *p = data;
    uint16_t half;
    float value;
    switch (dtype) {
    case PGL_F16:
        memcpy(&half, p + 2 * i, sizeof half);
        return pgl_f16_to_f32(half);
    case PGL_BF16:
        memcpy(&half, p + 2 * i, sizeof half);
        return pgl_bf16_to_f32(half);
    case PGL_F32:
        memcpy(&value, p + 4 * i, sizeof value);
        return value;
    default:
        return 0;
    }
}
