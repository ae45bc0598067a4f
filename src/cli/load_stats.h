/* What the requests of a cell say together. Percentiles are nearest-rank: a value that was measured. Owns nothing;
 * any thread. */
#ifndef PGL_CLI_LOAD_STATS_H
#define PGL_CLI_LOAD_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/load_run.h"

/* Milliseconds. */
typedef struct pgl_load_spread {
    uint64_t n;                      /* values */
    double share;                    /* n of how many there could be; 0 when there could be none */
    double mean, p50, p90, p99, max; /* with n = 0: 0 */
} pgl_load_spread;

/* Limits in milliseconds; 0: none. A request is good when it did not fail and keeps every limit. */
typedef struct pgl_load_slo {
    double ttft_ms, tpot_ms, e2e_ms;
} pgl_load_slo;

typedef struct pgl_load_range {
    uint64_t n, total, min, max;
} pgl_load_range;

typedef struct pgl_load_summary {
    uint32_t n, ok, failed, good; /* good: by the limits */
    uint32_t counted;  /* ok requests whose tokens the server counted (usage); of others events are counted */
    double duration_s; /* from the first request's time to the last end */
    /* Time to first text; per output token behind the first; between events with text; to the end. From the moment the
     * request was due. */
    pgl_load_spread ttft, tpot, itl, e2e;
    pgl_load_spread lag;                   /* sent behind the time it was due: the generator's own delay */
    pgl_load_range prompt, output, cached; /* tokens of ok requests; n: of how many they are known */
    double output_per_s, total_per_s, requests_per_s, good_per_s;
} pgl_load_summary;

/* Sorts n values; nearest rank: the least value that at least p per cent of them do not exceed. */
pgl_load_spread pgl_load_spread_of(double *values, size_t n, uint64_t possible);

pgl_status pgl_load_summarize(const pgl_load_result *result, const pgl_load_slo *slo, pgl_load_summary *out,
                              pgl_error *err);

#endif
