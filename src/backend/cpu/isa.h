/* What this processor and this system can run. Any thread. */
#ifndef PGL_BACKEND_CPU_ISA_H
#define PGL_BACKEND_CPU_ISA_H

#include <stdbool.h>

/* AVX2, FMA and F16C, with the registers saved by the system. */
bool pgl_isa_has_avx2(void);

/* Those, and AVX-512 F, BW, DQ and VL. */
bool pgl_isa_has_avx512(void);

#endif
