/* Owns nothing: the table for x86 with AVX2, FMA and F16C. */
#include "backend/cpu/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "backend/cpu/isa.h"
#include "backend/cpu/v16_avx2.h"

/* written in that vocabulary */
#include "backend/cpu/kernels_v16_math.h"

#include "backend/cpu/kernels_v16_linear.h"

static const pgl_kernels TABLE = V16_TABLE("avx2");

const pgl_kernels *pgl_kernels_avx2(void) {
    return pgl_isa_has_avx2() ? &TABLE : NULL;
}

#else

const pgl_kernels *pgl_kernels_avx2(void) {
    return NULL;
}

#endif
