/* Counters and histograms of the server, and their text for Prometheus. Where the meaning is the same the names are
 * vLLM's, so that its dashboards work; what is ours is called pergola:. Any thread. */
#ifndef PGL_SERVER_METRICS_H
#define PGL_SERVER_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/engine.h"
#include "server/http.h"
#include "server/json_out.h"
#include "server/request_log.h"
#include "server/trace_log.h"

typedef struct pgl_metrics pgl_metrics;

pgl_status pgl_metrics_open(pgl_metrics **out, pgl_error *err);
void pgl_metrics_close(pgl_metrics *metrics); /* NULL is allowed */

/* name, help, buckets (a list of pgl_bucket_set) */
#define PGL_HISTOGRAMS(X)                                                                                    \
    X(TTFT, "vllm:time_to_first_token_seconds", "Time from a request to its first token.", SECONDS)          \
    X(TPOT, "vllm:time_per_output_token_seconds", "Time for each token after the first.", SHORT_SECONDS)     \
    X(E2E, "vllm:e2e_request_latency_seconds", "Time from a request to the end of its answer.", SECONDS)     \
    X(QUEUE, "vllm:request_queue_time_seconds", "Time in the waiting queue.", SECONDS)                       \
    X(PREFILL, "vllm:request_prefill_time_seconds", "Time from admission to the first token.", SECONDS)      \
    X(DECODE, "vllm:request_decode_time_seconds", "Time from the first token to the end.", SECONDS)          \
    X(PROMPT, "vllm:request_prompt_tokens", "Tokens of a prompt.", TOKENS)                                   \
    X(GENERATION, "vllm:request_generation_tokens", "Tokens of an answer.", TOKENS)

typedef enum pgl_histogram {
#define PGL_HISTOGRAM_ENUM(name, text, help, buckets) PGL_HISTOGRAM_##name,
    PGL_HISTOGRAMS(PGL_HISTOGRAM_ENUM)
#undef PGL_HISTOGRAM_ENUM
        PGL_N_HISTOGRAMS
} pgl_histogram;

void pgl_metrics_observe(pgl_metrics *metrics, pgl_histogram which, double value);

/* An answered HTTP request. route is static. */
void pgl_metrics_http(pgl_metrics *metrics, const char *route, int status, uint64_t duration_ns);

/* An ended sequence of the engine. */
void pgl_metrics_finish(pgl_metrics *metrics, const pgl_event *finish, uint64_t duration_ns);

/* A sequence of the engine that was given up: its client is gone, or the request failed. */
void pgl_metrics_abort(pgl_metrics *metrics);

/* log is NULL when there is no request log. */
void pgl_metrics_write(pgl_metrics *metrics, const char *model, const pgl_engine_stats *engine,
                       const pgl_http_figures *http, const pgl_request_log_figures *log,
                       const pgl_trace_figures *traces, pgl_out *out);

#endif
