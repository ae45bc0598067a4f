#include "server/metrics.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define MOST_BUCKETS 24
#define MOST_ROUTES 64
#define N_CLASSES 6 /* 1xx .. 5xx, and none: the client went before an answer */

static const double SECONDS[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1,
                                 2.5,   5,     7.5,  10,   20,   40,   80,   160, 320,  640, 1280};
static const double SHORT_SECONDS[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                       0.3,   0.4,    0.5,   0.75, 1,     2.5,  5,     7.5, 10,   20};
static const double TOKENS[] = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                                1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

typedef struct histogram_row {
    const char *name, *help;
    const double *buckets;
    size_t n_buckets;
} histogram_row;

static const histogram_row histograms[] = {
#define ROW(name, text, help, buckets) {text, help, buckets, sizeof(buckets) / sizeof(buckets)[0]},
    PGL_HISTOGRAMS(ROW)
#undef ROW
};

typedef struct histogram {
    uint64_t counts[MOST_BUCKETS + 1]; /* the last: above all bounds */
    uint64_t count;
    double sum;
} histogram;

typedef struct route_counts {
    const char *route;
    uint64_t by_class[N_CLASSES];
    uint64_t total_ns;
} route_counts;

struct pgl_metrics {
    pthread_mutex_t lock; /* guards everything below */
    histogram histograms[PGL_N_HISTOGRAMS];
    route_counts routes[MOST_ROUTES];
    size_t n_routes;
    uint64_t finished[PGL_FINISH_ERROR + 1];
};

pgl_status pgl_metrics_open(pgl_metrics **out, pgl_error *err) {
    pgl_metrics *metrics = pgl_new(1, sizeof *metrics);
    if (!metrics)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the metrics");
    pthread_mutex_init(&metrics->lock, NULL);
    *out = metrics;
    return PGL_OK;
}

void pgl_metrics_close(pgl_metrics *metrics) {
    if (!metrics)
        return;
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

static void observe(pgl_metrics *metrics, pgl_histogram which, double value) {
    const histogram_row *row = &histograms[which];
    histogram *h = &metrics->histograms[which];
    size_t i = 0;
    while (i < row->n_buckets && value > row->buckets[i])
        i++;
    h->counts[i]++;
    h->count++;
    h->sum += value;
}

void pgl_metrics_observe(pgl_metrics *metrics, pgl_histogram which, double value) {
    pthread_mutex_lock(&metrics->lock);
    observe(metrics, which, value);
    pthread_mutex_unlock(&metrics->lock);
}

void pgl_metrics_http(pgl_metrics *metrics, const char *route, int status, uint64_t duration_ns) {
    pthread_mutex_lock(&metrics->lock);
    size_t i = 0;
    while (i < metrics->n_routes && strcmp(metrics->routes[i].route, route) != 0)
        i++;
    if (i < MOST_ROUTES) {
        if (i == metrics->n_routes)
            metrics->routes[metrics->n_routes++].route = route;
        int class = status / 100;
        metrics->routes[i].by_class[class >= 1 && class <= 5 ? class - 1 : N_CLASSES - 1]++;
        metrics->routes[i].total_ns += duration_ns;
    }
    pthread_mutex_unlock(&metrics->lock);
}

static double seconds(uint64_t ns) {
    return (double)ns * 1e-9;
}

void pgl_metrics_finish(pgl_metrics *metrics, const pgl_event *finish, uint64_t duration_ns) {
    const pgl_usage *usage = &finish->usage;
    pthread_mutex_lock(&metrics->lock);
    metrics->finished[finish->finish]++;
    observe(metrics, PGL_HISTOGRAM_E2E, seconds(duration_ns));
    observe(metrics, PGL_HISTOGRAM_QUEUE, seconds(usage->queued_ns));
    observe(metrics, PGL_HISTOGRAM_PROMPT, usage->n_prompt);
    observe(metrics, PGL_HISTOGRAM_GENERATION, usage->n_generated);
    if (usage->n_generated > 0) {
        observe(metrics, PGL_HISTOGRAM_PREFILL, seconds(usage->prompt_ns));
        observe(metrics, PGL_HISTOGRAM_DECODE, seconds(usage->generation_ns));
    }
    if (usage->n_generated > 1)
        observe(metrics, PGL_HISTOGRAM_TPOT, seconds(usage->generation_ns) / (usage->n_generated - 1));
    pthread_mutex_unlock(&metrics->lock);
}

void pgl_metrics_abort(pgl_metrics *metrics) {
    pthread_mutex_lock(&metrics->lock);
    metrics->finished[PGL_FINISH_CANCELLED]++;
    pthread_mutex_unlock(&metrics->lock);
}

/* ---- text ---- */

static void put_head(pgl_out *out, const char *name, const char *help, const char *type) {
    pgl_out_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* {model_name="..."} with the name escaped as Prometheus wants it; more is put behind it. */
static void put_labels(pgl_out *out, const char *model, const char *more) {
    pgl_out_raw(out, "{model_name=");
    pgl_out_str(out, model);
    pgl_out_printf(out, "%s%s}", *more ? "," : "", more);
}

static void put_value(pgl_out *out, const char *model, const char *type, const char *name, const char *help,
                      double value) {
    put_head(out, name, help, type);
    pgl_out_raw(out, name);
    put_labels(out, model, "");
    pgl_out_printf(out, " %.17g\n", value);
}

static void put_histogram(pgl_out *out, const char *model, const histogram_row *row, const histogram *h) {
    put_head(out, row->name, row->help, "histogram");
    uint64_t sum = 0;
    for (size_t i = 0; i <= row->n_buckets; i++) {
        char label[64] = "le=\"+Inf\"";
        if (i < row->n_buckets)
            snprintf(label, sizeof label, "le=\"%g\"", row->buckets[i]);
        sum += h->counts[i];
        pgl_out_printf(out, "%s_bucket", row->name);
        put_labels(out, model, label);
        pgl_out_printf(out, " %llu\n", (unsigned long long)sum);
    }
    pgl_out_printf(out, "%s_sum", row->name);
    put_labels(out, model, "");
    pgl_out_printf(out, " %.9g\n%s_count", h->sum, row->name);
    put_labels(out, model, "");
    pgl_out_printf(out, " %llu\n", (unsigned long long)h->count);
}

static void put_finished(pgl_out *out, const char *model, const pgl_metrics *metrics) {
    static const char name[] = "vllm:request_success_total";
    put_head(out, name, "Ended sequences by reason.", "counter");
    static const pgl_finish reasons[] = {PGL_FINISH_STOP, PGL_FINISH_LENGTH, PGL_FINISH_CANCELLED,
                                         PGL_FINISH_ERROR};
    static const char *const words[] = {"stop", "length", "abort", "error"};
    for (size_t i = 0; i < 4; i++) {
        char label[64];
        snprintf(label, sizeof label, "finished_reason=\"%s\"", words[i]);
        pgl_out_raw(out, name);
        put_labels(out, model, label);
        pgl_out_printf(out, " %llu\n", (unsigned long long)metrics->finished[reasons[i]]);
    }
}

static void put_routes(pgl_out *out, const pgl_metrics *metrics) {
    static const char *const classes[] = {"1xx", "2xx", "3xx", "4xx", "5xx", "gone"};
    put_head(out, "pergola:http_requests_total", "HTTP requests by route and status.", "counter");
    for (size_t i = 0; i < metrics->n_routes; i++)
        for (size_t k = 0; k < N_CLASSES; k++)
            if (metrics->routes[i].by_class[k] > 0)
                pgl_out_printf(out, "pergola:http_requests_total{route=\"%s\",status=\"%s\"} %llu\n",
                               metrics->routes[i].route, classes[k],
                               (unsigned long long)metrics->routes[i].by_class[k]);
    put_head(out, "pergola:http_request_seconds_total", "Time spent on HTTP requests by route.", "counter");
    for (size_t i = 0; i < metrics->n_routes; i++)
        pgl_out_printf(out, "pergola:http_request_seconds_total{route=\"%s\"} %.9g\n",
                       metrics->routes[i].route, seconds(metrics->routes[i].total_ns));
}

static void put_engine(pgl_out *out, const char *model, const pgl_engine_stats *e) {
    double pages = e->n_pages ? (double)(e->n_pages - e->n_pages_free - e->n_pages_cached) / e->n_pages : 0;
    put_value(out, model, "gauge", "vllm:num_requests_running", "Sequences that are being computed.",
              e->n_running);
    put_value(out, model, "gauge", "vllm:num_requests_waiting", "Sequences that wait.",
              e->n_waiting + e->n_parked);
    put_value(out, model, "gauge", "vllm:kv_cache_usage_perc",
              "Share of the pages that running sequences hold.", pages);
    put_value(out, model, "counter", "vllm:prompt_tokens_total", "Prompt tokens.", (double)e->prompt_tokens);
    put_value(out, model, "counter", "vllm:generation_tokens_total", "Sampled tokens.",
              (double)e->generated_tokens);
    put_value(out, model, "counter", "vllm:prefix_cache_queries_total",
              "Prompt tokens looked up in the cache.", (double)e->prompt_tokens);
    put_value(out, model, "counter", "vllm:prefix_cache_hits_total", "Prompt tokens found there.",
              (double)e->cached_tokens);
    put_value(out, model, "counter", "vllm:num_preemptions_total", "Times a sequence gave its pages away.",
              (double)e->parked);
    put_value(out, model, "gauge", "pergola:slots", "Sequences that can run at the same time.", e->n_slots);
    put_value(out, model, "gauge", "pergola:snapshots_used", "Snapshots of recurrent state held.",
              e->n_snapshots_used);
    put_value(out, model, "gauge", "pergola:cache_bytes", "Memory of pages and snapshots.",
              (double)e->cache_bytes);
    put_value(out, model, "gauge", "pergola:cache_used_bytes", "Of it, held by the prefix cache alone.",
              (double)e->cache_bytes_used);
    put_value(out, model, "gauge", "pergola:host_cache_bytes", "Host memory for what gives way there.",
              (double)e->host_cache_bytes);
    put_value(out, model, "gauge", "pergola:host_cache_used_bytes", "Of it, in use.",
              (double)e->host_cache_bytes_used);
    put_value(out, model, "counter", "pergola:cache_hits_total", "Prompts that began in the cache.",
              (double)e->cache_hits);
    put_value(out, model, "counter", "pergola:host_cache_hits_total",
              "Of them, those for which something came from host memory.", (double)e->host_hits);
    put_value(out, model, "counter", "pergola:host_cache_hit_tokens_total", "Prompt tokens of these.",
              (double)e->host_cached_tokens);
    put_value(out, model, "counter", "pergola:host_cache_exported_bytes_total", "Moved to host memory.",
              (double)e->exported_bytes);
    put_value(out, model, "counter", "pergola:host_cache_imported_bytes_total", "And back.",
              (double)e->imported_bytes);
    put_value(out, model, "counter", "pergola:snapshots_evicted_total",
              "Snapshots that the cache gave up for good.", (double)e->snapshots_evicted);
    put_value(out, model, "counter", "pergola:requests_refused_total",
              "Requests refused because the queue was full.", (double)e->requests_refused);
    put_value(out, model, "counter", "pergola:steps_total", "Steps of the backend.", (double)e->steps);
    put_value(out, model, "counter", "pergola:step_seconds_total", "Time in them.", seconds(e->step_ns));
}

static void put_log(pgl_out *out, const pgl_request_log_figures *log) {
    static const char name[] = "pergola:request_log_lines_total";
    const struct {
        const char *result;
        uint64_t count;
    } rows[] = {{"written", log->written}, {"dropped", log->dropped}, {"failed", log->failed}};
    put_head(out, name, "Lines of the request log by what became of them.", "counter");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        pgl_out_printf(out, "%s{result=\"%s\"} %llu\n", name, rows[i].result,
                       (unsigned long long)rows[i].count);
}

void pgl_metrics_write(pgl_metrics *metrics, const char *model, const pgl_engine_stats *engine,
                       const pgl_http_figures *http, const pgl_request_log_figures *log,
                       const pgl_trace_figures *traces, pgl_out *out) {
    put_engine(out, model, engine);
    put_value(out, model, "gauge", "pergola:http_connections", "Open connections.", http->connections);
    put_value(out, model, "counter", "pergola:http_connections_refused_total", "Connections refused.",
              (double)http->refused);
    if (log)
        put_log(out, log);
    if (traces) {
        put_value(out, model, "counter", "pergola:traces_written_total", "Traces of requests.",
                  (double)traces->written);
        put_value(out, model, "counter", "pergola:traces_lost_total", "Traces that could not be written.",
                  (double)traces->lost);
    }
    pthread_mutex_lock(&metrics->lock);
    put_finished(out, model, metrics);
    for (size_t i = 0; i < PGL_N_HISTOGRAMS; i++)
        put_histogram(out, model, &histograms[i], &metrics->histograms[i]);
    put_routes(out, metrics);
    pthread_mutex_unlock(&metrics->lock);
}
