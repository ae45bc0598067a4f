/* What this machine can do with the CPU backend's own kernels, measured now: the yardsticks of a benchmark. */
#ifndef PGL_BACKEND_CPU_PROBE_H
#define PGL_BACKEND_CPU_PROBE_H

#include <stdint.h>

#include "base/status.h"

typedef struct pgl_cpu_rates {
    const char *isa;
    uint32_t n_threads;
    double read_bytes_per_s;     /* streaming reads of memory far larger than the caches */
    double fma_flops_per_s;      /* fused multiply-adds from registers, two operations each */
    double coded2_weights_per_s; /* decoding and multiplying one row, codes in the cache, K = 2 */
    double coded3_weights_per_s; /* the same for K = 3 */
    double int8_bytes_per_s;     /* int8 rows times one row, weights in the cache */
} pgl_cpu_rates;

/* The best of several short runs each; takes about a second and 256 MiB. isa NULL: the best there is; n_threads 0: one
 * for each CPU. PGL_E_UNSUPPORTED, PGL_E_MEMORY, PGL_E_INVALID. */
pgl_status pgl_cpu_measure(const char *isa, uint32_t n_threads, pgl_cpu_rates *rates, pgl_error *err);

#endif
