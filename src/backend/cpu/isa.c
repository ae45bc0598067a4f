/* Owns nothing: asks cpuid and xgetbv. */
#include "backend/cpu/isa.h"

#include <stdint.h>
#include <stdio.h>
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

size_t pgl_kernels_all(const pgl_kernels *out[PGL_MOST_KERNELS]) {
    const pgl_kernels *const tables[PGL_MOST_KERNELS] = {pgl_kernels_avx512(), pgl_kernels_avx2(),
                                                         pgl_kernels_neon(), pgl_kernels_scalar()};
    size_t n = 0;
    for (size_t i = 0; i < PGL_MOST_KERNELS; i++) {
        if (tables[i] != NULL)
            out[n++] = tables[i];
    }
    return n;
}

pgl_status pgl_kernels_choose(const char *name, const pgl_kernels **out, pgl_error *err) {
    const pgl_kernels *all[PGL_MOST_KERNELS];
    size_t n = pgl_kernels_all(all);
    char names[64] = "";
    for (size_t i = 0; i < n; i++) {
        if (name == NULL || strcmp(name, all[i]->name) == 0) {
            *out = all[i];
            return PGL_OK;
        }
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ", all[i]->name);
    }
    return pgl_fail(err, PGL_E_UNSUPPORTED, "instruction set \"%s\": this processor has %s", name, names);
}
