/* Private to the scalar contract code (src/codec, src/model): lets the same C text also be compiled for
 * machines with a fused multiply-add instruction, where fmaf() would otherwise be a call into libm on every
 * element. Both builds give the same bits, because fmaf is exactly rounded either way.
 *
 * A function's body is written once as PGL_FMA_BODY, instantiated as PGL_FMA_TARGET, and chosen by
 * pgl_has_fma(). */
#ifndef PGL_CODEC_FMA_H
#define PGL_CODEC_FMA_H

#include <stdbool.h>

#define PGL_FMA_BODY static inline __attribute__((always_inline))

#if defined(__x86_64__)
#define PGL_FMA_TARGET __attribute__((target("avx2,fma")))
static inline bool pgl_has_fma(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
#define PGL_FMA_TARGET
static inline bool pgl_has_fma(void) {
    return true;
}
#endif

#endif
