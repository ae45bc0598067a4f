/* Owns the form of the report. */
#include "cli/load_report.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/version.h"
#include "cli/machine.h"

static bool has_limits(const pgl_load_slo *slo) {
    return slo->ttft_ms > 0 || slo->tpot_ms > 0 || slo->e2e_ms > 0;
}

static const char *counting(pgl_load_tokenizer tokenizer) {
    switch (tokenizer) {
    case PGL_LOAD_COUNTS_WHOLE:
        return "prompts were counted by the server's /tokenize";
    case PGL_LOAD_COUNTS_TEXT:
        return "prompts were counted by the server's /tokenize, without the chat template";
    case PGL_LOAD_WORDS:
        break;
    }
    return "prompt lengths are approximate: the server does not count tokens, so a word was taken for one";
}

/* ---- the table ---- */

static bool put_load(const pgl_load_cell *cell, pgl_buf *out) {
    return cell->rate > 0 ? pgl_buf_printf(out, "%g/s", cell->rate)
                          : pgl_buf_printf(out, "%u", cell->concurrency);
}

static bool put_spread(const pgl_load_spread *s, pgl_buf *out) {
    if (s->n == 0)
        return pgl_buf_puts(out, " - |");
    return pgl_buf_printf(out, " %.1f / %.1f / %.1f |", s->p50, s->p90, s->p99);
}

static bool put_row(const pgl_load_report *report, const pgl_load_cell *cell, pgl_buf *out) {
    const pgl_load_summary *s = &cell->summary;
    bool ok =
        pgl_buf_printf(out, "| %u | %u | ", cell->input, cell->output) && put_load(cell, out) &&
        pgl_buf_printf(out, " | %u / %u |", s->ok, s->failed) && put_spread(&s->ttft, out) &&
        put_spread(&s->tpot, out) && put_spread(&s->itl, out) && put_spread(&s->e2e, out) &&
        pgl_buf_printf(out, " %.1f | %.1f | %.2f |", s->output_per_s, s->total_per_s, s->requests_per_s);
    if (has_limits(&report->slo))
        ok = ok &&
             pgl_buf_printf(out, " %.2f (%.0f %%) |", s->good_per_s, s->n > 0 ? 100.0 * s->good / s->n : 0.0);
    return ok && pgl_buf_puts(out, "\n");
}

/* What a reader must know to trust a row; nothing where all is as asked. */
static bool put_remarks(const pgl_load_cell *cell, pgl_buf *out) {
    const pgl_load_summary *s = &cell->summary;
    char name[80];
    bool ok = true;
    (void)snprintf(name, sizeof name, "%u in, %u out, %s%g", cell->input, cell->output,
                   cell->rate > 0 ? "rate " : "concurrency ",
                   cell->rate > 0 ? cell->rate : cell->concurrency);
    for (uint32_t i = 0; i < cell->n_kinds; i++) {
        const pgl_load_error_kind *kind = &cell->kinds[i];
        ok = ok && pgl_buf_printf(out, "* %s: %u failed with %s", name, kind->count,
                                  pgl_load_failure_name(kind->failure));
        if (kind->status != 0)
            ok = ok && pgl_buf_printf(out, " %d", kind->status);
        ok = ok && (kind->message[0] == '\0' || pgl_buf_printf(out, ": %s", kind->message)) &&
             pgl_buf_puts(out, "\n");
    }
    if (cell->warmup_failed > 0)
        ok = ok && pgl_buf_printf(out, "* %s: %u of %u requests of the warm-up failed\n", name,
                                  cell->warmup_failed, cell->n_warmup);
    if (cell->n_inexact > 0)
        ok = ok && pgl_buf_printf(out, "* %s: %u prompts are not exactly that long\n", name, cell->n_inexact);
    if (s->prompt.n > 0 && (s->prompt.min != cell->input || s->prompt.max != cell->input))
        ok = ok && pgl_buf_printf(out, "* %s: the server counted %llu to %llu prompt tokens\n", name,
                                  (unsigned long long)s->prompt.min, (unsigned long long)s->prompt.max);
    if (s->output.n > 0 && (s->output.min != cell->output || s->output.max != cell->output))
        ok = ok && pgl_buf_printf(out, "* %s: answers had %llu to %llu tokens\n", name,
                                  (unsigned long long)s->output.min, (unsigned long long)s->output.max);
    if (s->counted < s->ok)
        ok = ok && pgl_buf_printf(
                       out, "* %s: of %u answers the server did not say the tokens; events were counted\n",
                       name, s->ok - s->counted);
    if (s->cached.total > 0)
        ok = ok && pgl_buf_printf(out, "* %s: %.1f %% of the prompt tokens came from the cache\n", name,
                                  100.0 * (double)s->cached.total / (double)s->prompt.total);
    if (s->lag.p99 > 1)
        ok = ok &&
             pgl_buf_printf(out, "* %s: requests went out up to %.1f ms late (p99 %.1f); times count that\n",
                            name, s->lag.max, s->lag.p99);
    const struct {
        const char *name;
        const pgl_load_spread *spread;
    } spreads[] = {{"TTFT", &s->ttft}, {"TPOT", &s->tpot}, {"ITL", &s->itl}};
    for (size_t i = 0; i < 3; i++)
        if (spreads[i].spread->share < 0.995 && s->output.max > 1)
            ok = ok && pgl_buf_printf(out, "* %s: %s was measured on %.0f %% of what there was\n", name,
                                      spreads[i].name, 100 * spreads[i].spread->share);
    return ok && (!cell->interrupted || pgl_buf_printf(out, "* %s: interrupted\n", name));
}

static bool put_title(const pgl_load_report *report, pgl_buf *out) {
    const pgl_load_site *site = report->site;
    char cpu[128];
    pgl_cli_cpu_name(cpu, sizeof cpu);
    if (site == NULL)
        return pgl_buf_printf(out, "%s, the engine alone: %s; %s, %u CPUs\n\n", report->engine_model,
                              report->engine, cpu, pgl_cli_n_cpus());
    return pgl_buf_printf(out, "%s at %s%s, %s; load from %s, %u CPUs\n\n", site->model,
                          site->target.authority, site->target.base,
                          site->options.chat ? "chat" : "completions", cpu, pgl_cli_n_cpus());
}

bool pgl_load_report_markdown(const pgl_load_report *report, pgl_buf *out) {
    bool limits = has_limits(&report->slo);
    bool ok = put_title(report, out) &&
              pgl_buf_printf(out,
                             "| in | out | load | ok / failed | TTFT ms | TPOT ms | ITL ms | E2E ms | out "
                             "tok/s | tok/s | req/s |%s\n",
                             limits ? " good/s |" : "") &&
              pgl_buf_printf(out, "| --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |%s\n",
                             limits ? " --: |" : "");
    for (uint32_t i = 0; i < report->n_cells; i++)
        ok = ok && put_row(report, &report->cells[i], out);
    ok = ok && pgl_buf_printf(out, "\nTimes are p50 / p90 / p99 (nearest rank); %s.\n",
                              report->site != NULL ? counting(report->site->tokenizer) : "tokens are random");
    for (uint32_t i = 0; i < report->n_cells; i++)
        ok = ok && put_remarks(&report->cells[i], out);
    return ok && (!report->interrupted || pgl_buf_puts(out, "* interrupted: cells are missing\n"));
}

/* ---- JSON ---- */

static bool put_text(pgl_buf *out, const char *name, const char *text) {
    return pgl_buf_printf(out, "\"%s\": ", name) && pgl_json_put_string(out, text, strlen(text));
}

static bool put_json_spread(pgl_buf *out, const char *name, const pgl_load_spread *s) {
    bool ok = pgl_buf_printf(out, ",\n   \"%s\": {\"n\": %llu, \"measured\": %.4f", name,
                             (unsigned long long)s->n, s->share);
    if (s->n > 0)
        ok = ok && pgl_buf_printf(
                       out, ", \"mean\": %.4f, \"p50\": %.4f, \"p90\": %.4f, \"p99\": %.4f, \"max\": %.4f",
                       s->mean, s->p50, s->p90, s->p99, s->max);
    return ok && pgl_buf_puts(out, "}");
}

static bool put_json_range(pgl_buf *out, const char *name, const pgl_load_range *r) {
    return pgl_buf_printf(out, ",\n   \"%s\": {\"n\": %llu, \"total\": %llu, \"min\": %llu, \"max\": %llu}",
                          name, (unsigned long long)r->n, (unsigned long long)r->total,
                          (unsigned long long)r->min, (unsigned long long)r->max);
}

static bool put_errors(pgl_buf *out, const pgl_load_cell *cell) {
    bool ok = pgl_buf_puts(out, ",\n   \"errors\": [");
    for (uint32_t i = 0; i < cell->n_kinds; i++) {
        const pgl_load_error_kind *kind = &cell->kinds[i];
        ok = ok &&
             pgl_buf_printf(out, "%s{\"kind\": \"%s\", \"status\": %d, \"count\": %u, ", i > 0 ? ", " : "",
                            pgl_load_failure_name(kind->failure), kind->status, kind->count) &&
             put_text(out, "first", kind->message) && pgl_buf_puts(out, "}");
    }
    return ok && pgl_buf_puts(out, "]");
}

static bool put_json_cell(pgl_buf *out, const pgl_load_report *report, const pgl_load_cell *cell) {
    const pgl_load_summary *s = &cell->summary;
    bool ok = pgl_buf_printf(out, "  {\"input\": %u, \"output\": %u, ", cell->input, cell->output);
    if (cell->rate > 0)
        ok = ok && pgl_buf_printf(out, "\"rate_per_s\": %.6g", cell->rate);
    else
        ok = ok && pgl_buf_printf(out, "\"concurrency\": %u", cell->concurrency);
    ok = ok &&
         pgl_buf_printf(
             out, ", \"warmup\": %u, \"warmup_failed\": %u,\n   \"requests\": %u, \"ok\": %u, \"failed\": %u",
             cell->n_warmup, cell->warmup_failed, s->n, s->ok, s->failed) &&
         put_errors(out, cell) && pgl_buf_printf(out, ",\n   \"duration_s\": %.6f", s->duration_s) &&
         put_json_spread(out, "ttft_ms", &s->ttft) && put_json_spread(out, "tpot_ms", &s->tpot) &&
         put_json_spread(out, "itl_ms", &s->itl) && put_json_spread(out, "e2e_ms", &s->e2e) &&
         put_json_spread(out, "send_lag_ms", &s->lag) && put_json_range(out, "prompt_tokens", &s->prompt) &&
         put_json_range(out, "output_tokens", &s->output) &&
         put_json_range(out, "cached_tokens", &s->cached) &&
         pgl_buf_printf(out,
                        ",\n   \"counted_by_server\": %u, \"inexact_prompts\": %u, \"interrupted\": %s"
                        ",\n   \"output_tokens_per_s\": %.4f, \"total_tokens_per_s\": %.4f, "
                        "\"requests_per_s\": %.4f",
                        s->counted, cell->n_inexact, cell->interrupted ? "true" : "false", s->output_per_s,
                        s->total_per_s, s->requests_per_s);
    if (has_limits(&report->slo))
        ok = ok &&
             pgl_buf_printf(out, ",\n   \"good\": %u, \"goodput_requests_per_s\": %.4f, \"good_share\": %.4f",
                            s->good, s->good_per_s, s->n > 0 ? (double)s->good / s->n : 0.0);
    return ok && pgl_buf_puts(out, "}");
}

static bool put_slo(pgl_buf *out, const pgl_load_slo *slo) {
    const struct {
        const char *name;
        double ms;
    } limits[] = {{"ttft", slo->ttft_ms}, {"tpot", slo->tpot_ms}, {"e2e", slo->e2e_ms}};
    bool ok = pgl_buf_puts(out, "{"), any = false;
    for (size_t i = 0; i < 3; i++) {
        if (limits[i].ms <= 0)
            continue;
        ok = ok && pgl_buf_printf(out, "%s\"%s\": %g", any ? ", " : "", limits[i].name, limits[i].ms);
        any = true;
    }
    return ok && pgl_buf_puts(out, "}");
}

static bool put_server(const pgl_load_report *report, pgl_buf *out) {
    const pgl_load_site *site = report->site;
    if (site == NULL)
        return pgl_buf_puts(out, "\"engine\": {") && put_text(out, "backend", report->engine) &&
               pgl_buf_puts(out, ", ") && put_text(out, "model", report->engine_model) &&
               pgl_buf_puts(out, "}");
    return pgl_buf_puts(out, "\"server\": {") && put_text(out, "url", site->options.url) &&
           pgl_buf_puts(out, ", ") && put_text(out, "version", site->version) && pgl_buf_puts(out, ", ") &&
           put_text(out, "model", site->model) && pgl_buf_puts(out, "},\n ") &&
           put_text(out, "endpoint", site->options.chat ? "chat" : "completions") &&
           pgl_buf_printf(out, ",\n \"ignore_eos\": %s, \"shared_prefix\": %u,\n ",
                          site->options.ignore_eos ? "true" : "false", report->shared_prefix) &&
           put_text(out, "counting", counting(site->tokenizer)) && pgl_buf_puts(out, ",\n \"slo_ms\": ") &&
           put_slo(out, &report->slo);
}

bool pgl_load_report_json(const pgl_load_report *report, pgl_buf *out) {
    char cpu[128], date[PGL_TIME_TEXT];
    struct utsname system = {0};
    pgl_cli_cpu_name(cpu, sizeof cpu);
    (void)uname(&system);
    pgl_wall_text(pgl_wall_ns(), date);
    bool ok = pgl_buf_puts(out, "{\n \"schema\": 1,\n ") && put_text(out, "command", report->command) &&
              pgl_buf_puts(out, ",\n ") && put_text(out, "date", date) && pgl_buf_puts(out, ",\n ") &&
              put_text(out, "version", pgl_version()) && pgl_buf_puts(out, ",\n ") &&
              put_text(out, "revision", pgl_revision()) && pgl_buf_puts(out, ",\n \"machine\": {") &&
              put_text(out, "cpu", cpu) && pgl_buf_printf(out, ", \"cpus\": %u, ", pgl_cli_n_cpus()) &&
              put_text(out, "system", system.sysname) && pgl_buf_puts(out, "},\n ") &&
              put_server(report, out) &&
              pgl_buf_printf(out, ",\n \"seed\": %llu,\n \"interrupted\": %s,\n \"cells\": [\n",
                             (unsigned long long)report->seed, report->interrupted ? "true" : "false");
    for (uint32_t i = 0; i < report->n_cells; i++)
        ok = ok && (i == 0 || pgl_buf_puts(out, ",\n")) && put_json_cell(out, report, &report->cells[i]);
    return ok && pgl_buf_puts(out, "\n ]\n}\n");
}
