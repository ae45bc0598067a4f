/* Owns nothing: asks cpuid and xgetbv. */
#include "backend/cpu/isa.h"

#include <stdint.h>
#include <string.h>

#include "backend/cpu/kernels.h"

#if defined(__x86_64__)

#include <cpuid.h>

enum { XMM_YMM = 0x6, ZMM = 0xE0 };

static uint32_t saved_registers(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool pgl_isa_has_avx2(void) {
    uint32_t a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0)
        return false;
    if ((c & bit_OSXSAVE) == 0 || (c & bit_AVX) == 0 || (c & bit_FMA) == 0 || (c & bit_F16C) == 0)
        return false;
    if ((saved_registers() & XMM_YMM) != XMM_YMM)
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_AVX2) != 0;
}

bool pgl_isa_has_avx512(void) {
    uint32_t a, b, c, d;
    if (!pgl_isa_has_avx2() || (saved_registers() & ZMM) != ZMM)
        return false;
    const uint32_t needed = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & needed) == needed;
}

#else

bool pgl_isa_has_avx2(void) {
    return false;
}

bool pgl_isa_has_avx512(void) {
    return false;
}

#endif

pgl_status pgl_kernels_choose(const char *name, const pgl_kernels **out, pgl_error *err) {
    const pgl_kernels *tables[] = {pgl_kernels_avx512(), pgl_kernels_avx2(), pgl_kernels_scalar()};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        if (tables[i] != NULL && (name == NULL || strcmp(name, tables[i]->name) == 0)) {
            *out = tables[i];
            return PGL_OK;
        }
    }
    return pgl_fail(err, PGL_E_UNSUPPORTED, "instruction set \"%s\": this processor has %s%sscalar", name,
                    tables[0] != NULL ? "avx512, " : "", tables[1] != NULL ? "avx2, " : "");
}
