/* Owns nothing: the table for x86 with AVX-512 F, BW, DQ and VL. */
#include "backend/cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "backend/cpu/isa.h"
#include "backend/cpu/v16_avx512.h"

/* written in that vocabulary */
#include "backend/cpu/kernels_v16_math.h"

#include "backend/cpu/kernels_v16_linear.h"

static const pgl_kernels TABLE = V16_TABLE("avx512");

const pgl_kernels *pgl_kernels_avx512(void) {
    return pgl_isa_has_avx512() ? &TABLE : NULL;
}

#else

const pgl_kernels *pgl_kernels_avx512(void) {
    return NULL;
}

#endif
