/* Owns the arithmetic of a load test. */
#include "cli/load_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static int compare(const void *a, const void *b) {
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static double nearest_rank(const double *sorted, size_t n, double percent) {
    size_t rank = (size_t)ceil(percent / 100 * (double)n);
    return sorted[rank > 0 ? rank - 1 : 0];
}

pgl_load_spread pgl_load_spread_of(double *values, size_t n, uint64_t possible) {
    pgl_load_spread s = {.n = n, .share = possible > 0 ? (double)n / (double)possible : 0};
    if (n == 0)
        return s;
    qsort(values, n, sizeof *values, compare);
    for (size_t i = 0; i < n; i++)
        s.mean += values[i];
    s.mean /= (double)n;
    s.p50 = nearest_rank(values, n, 50);
    s.p90 = nearest_rank(values, n, 90);
    s.p99 = nearest_rank(values, n, 99);
    s.max = values[n - 1];
    return s;
}

static void add(pgl_load_range *range, int64_t value) {
    if (value < 0)
        return;
    uint64_t v = (uint64_t)value;
    range->min = range->n == 0 || v < range->min ? v : range->min;
    range->max = v > range->max ? v : range->max;
    range->total += v;
    range->n++;
}

static double ms(uint64_t from_ns, uint64_t to_ns) {
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-6 : 0;
}

static int64_t output_tokens(const pgl_load_record *r) {
    return r->output_tokens > 0 ? r->output_tokens : (int64_t)r->n_pieces;
}

/* False: there is nothing behind a first token. */
static bool tpot_of(const pgl_load_record *r, double *value) {
    int64_t n = output_tokens(r);
    if (n < 2 || r->first_ns == 0)
        return false;
    *value = ms(r->first_ns, r->last_ns) / (double)(n - 1);
    return true;
}

static bool is_good(const pgl_load_record *r, const pgl_load_slo *slo) {
    double tpot;
    if (slo->ttft_ms > 0 && (r->first_ns == 0 || ms(r->due_ns, r->first_ns) > slo->ttft_ms))
        return false;
    if (slo->tpot_ms > 0 && tpot_of(r, &tpot) && tpot > slo->tpot_ms)
        return false;
    return slo->e2e_ms <= 0 || ms(r->due_ns, r->end_ns) <= slo->e2e_ms;
}

/* Values of a kind: room for one a request. */
typedef struct columns {
    double *ttft, *tpot, *e2e, *lag, *itl;
    size_t n_ttft, n_tpot, n_e2e;
    uint64_t possible_tpot, possible_itl;
} columns;

static void read_record(const pgl_load_record *r, const pgl_load_slo *slo, columns *c,
                        pgl_load_summary *out) {
    int64_t n = output_tokens(r);
    out->ok++;
    out->good += is_good(r, slo);
    out->counted += r->output_tokens > 0;
    add(&out->prompt, r->prompt_tokens);
    add(&out->output, n);
    add(&out->cached, r->cached_tokens);
    if (r->first_ns != 0)
        c->ttft[c->n_ttft++] = ms(r->due_ns, r->first_ns);
    c->n_tpot += tpot_of(r, &c->tpot[c->n_tpot]);
    c->possible_tpot += n > 1;
    c->possible_itl += n > 1 ? (uint64_t)n - 1 : 0;
    c->e2e[c->n_e2e++] = ms(r->due_ns, r->end_ns);
}

static void fill(const pgl_load_result *result, const pgl_load_slo *slo, columns *c, pgl_load_summary *out) {
    out->n = result->n;
    for (uint32_t i = 0; i < result->n; i++) {
        const pgl_load_record *r = &result->records[i];
        c->lag[i] = ms(r->due_ns, r->sent_ns);
        if (r->failure == PGL_LOAD_OK)
            read_record(r, slo, c, out);
    }
    out->failed = out->n - out->ok;
    for (size_t i = 0; i < result->n_gaps; i++)
        c->itl[i] = (double)result->gaps_ns[i] * 1e-6;
    out->ttft = pgl_load_spread_of(c->ttft, c->n_ttft, out->ok);
    out->tpot = pgl_load_spread_of(c->tpot, c->n_tpot, c->possible_tpot);
    out->e2e = pgl_load_spread_of(c->e2e, c->n_e2e, out->ok);
    out->lag = pgl_load_spread_of(c->lag, result->n, result->n);
    out->itl = pgl_load_spread_of(c->itl, result->n_gaps, c->possible_itl);
    out->duration_s = ms(result->begin_ns, result->end_ns) * 1e-3;
    if (out->duration_s <= 0)
        return;
    out->output_per_s = (double)out->output.total / out->duration_s;
    out->total_per_s = (double)(out->output.total + out->prompt.total) / out->duration_s;
    out->requests_per_s = out->ok / out->duration_s;
    out->good_per_s = out->good / out->duration_s;
}

pgl_status pgl_load_summarize(const pgl_load_result *result, const pgl_load_slo *slo, pgl_load_summary *out,
                              pgl_error *err) {
    pgl_status status = PGL_OK;
    size_t n = (size_t)result->n + 1;
    double *values = pgl_new(4 * n, sizeof *values), *itl = pgl_new(result->n_gaps, sizeof *itl);
    *out = (pgl_load_summary){0};
    columns c = {
        .ttft = values, .tpot = values + n, .e2e = values + 2 * n, .lag = values + 3 * n, .itl = itl};
    if (values != NULL && itl != NULL)
        fill(result, slo, &c, out);
    else
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for the figures of %u requests", result->n);
    free(values);
    free(itl);
    return status;
}
