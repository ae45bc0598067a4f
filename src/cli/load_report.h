/* The report of a load test, as a table or as JSON. */
#ifndef PGL_CLI_LOAD_REPORT_H
#define PGL_CLI_LOAD_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/load_site.h"
#include "cli/load_stats.h"

typedef struct pgl_load_cell {
    /* asked for */
    uint32_t input, output, concurrency; /* concurrency: 0 with a rate */
    double rate;
    uint32_t n_requests, n_warmup;
    /* found */
    uint32_t n_inexact; /* prompts that no text of the wanted length was found for */
    uint32_t warmup_failed;
    bool interrupted;
    uint64_t gaps_dropped;
    pgl_load_summary summary;
    pgl_load_error_kind kinds[PGL_LOAD_MOST_KINDS];
    uint32_t n_kinds;
} pgl_load_cell;

typedef struct pgl_load_report {
    const char *command;
    const pgl_load_site *site; /* NULL: no server; then: */
    const char *engine, *engine_model;
    pgl_load_slo slo;
    uint64_t seed;
    uint32_t shared_prefix;
    const pgl_load_cell *cells; /* [n_cells] those that were run */
    uint32_t n_cells;
    bool interrupted;
} pgl_load_report;

/* False when memory is out. */
bool pgl_load_report_markdown(const pgl_load_report *report, pgl_buf *out);
bool pgl_load_report_json(const pgl_load_report *report, pgl_buf *out);

#endif
