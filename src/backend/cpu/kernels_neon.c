/* Owns nothing: the table for AArch64. */
#include "backend/cpu/kernels.h"

#if defined(__aarch64__)

#include "backend/cpu/v16_neon.h"

/* written in that vocabulary */
#include "backend/cpu/kernels_v16_math.h"

#include "backend/cpu/kernels_v16_linear.h"

static const pgl_kernels TABLE = V16_TABLE("neon");

const pgl_kernels *pgl_kernels_neon(void) {
    return &TABLE;
}

#else

const pgl_kernels *pgl_kernels_neon(void) {
    return NULL;
}

#endif
