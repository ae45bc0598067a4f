/* Opening and ending the server, and what happens to a request before its handler runs: access, dispatch, limits. */
#include "server/server.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "server/generation.h"
#include "server/request_record.h"
#include "server/server_impl.h"
#include "server/vocabulary.h"

#define CUT_NS 2000000000
#define HUGE_BODY_BYTES ((size_t)2 << 20)
#define UNUSED_BODY_BYTES 65536 /* what a request may carry whose route takes no body */

/* ---- answers that every route can give ---- */

void pgl_answer_error(pgl_exchange *exchange, const pgl_refusal *err) {
    pgl_out out = {0};
    char headers[64] = "";
    pgl_request_record *record = pgl_exchange_record(exchange);
    if (record)
        pgl_request_record_error(record, err);
    out.failed = !pgl_refusal_write(err, &out.buf);
    if (err->retry_after)
        snprintf(headers, sizeof headers, "Retry-After: %u\r\n", err->retry_after);
    if (out.failed) {
        pgl_answer_json(exchange, 500, &out);
        return;
    }
    pgl_exchange_answer(exchange, &(pgl_answer){.status = err->status,
                                                .content_type = "application/json",
                                                .headers = headers,
                                                .body = out.buf.data,
                                                .size = out.buf.size});
    pgl_out_fini(&out);
}

static void answer_fault(pgl_exchange *exchange, const pgl_http_fault *fault) {
    pgl_refusal err;
    pgl_refuse(&err, fault->status, fault->code, NULL, "%s", fault->text);
    pgl_answer_error(exchange, &err);
}

bool pgl_check_model(const pgl_server *server, const char *name, pgl_refusal *err) {
    if (!name || name[0] == '\0')
        return true;
    for (uint32_t i = 0; i < server->n_names; i++)
        if (strcmp(server->names[i], name) == 0)
            return true;
    return pgl_refuse(err, 404, "model_not_found", "model",
                      "the model \"%.200s\" is not served here; \"%.200s\" is", name, server->names[0]);
}

/* ---- before the handler ---- */

/* Headers that a preflight asks for are allowed as they are asked for, when they are names of headers. */
static bool good_header_list(const char *text) {
    for (const char *c = text; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '-' ||
              *c == '_' || *c == ',' || *c == ' '))
            return false;
    return strlen(text) < 400;
}

static void add_cors(const pgl_server *server, pgl_exchange *exchange) {
    const pgl_http_head *head = pgl_exchange_head(exchange);
    const char *origin = pgl_access_allow_origin(server->access, head);
    if (!origin)
        return;
    pgl_exchange_add_header(exchange, "Access-Control-Allow-Origin: %s", origin);
    pgl_exchange_add_header(exchange, "Access-Control-Expose-Headers: X-Request-Id, Retry-After");
    if (origin[0] != '*')
        pgl_exchange_add_header(exchange, "Vary: Origin");
}

static void answer_options(pgl_exchange *exchange) {
    const pgl_http_head *head = pgl_exchange_head(exchange);
    const char *asked = pgl_http_header_find(head, "Access-Control-Request-Headers");
    char headers[640], allow[64];
    pgl_route_allow(head->path, allow, sizeof allow);
    int n = snprintf(headers, sizeof headers,
                     "Allow: %s\r\nAccess-Control-Allow-Methods: %s\r\nAccess-Control-Max-Age: 86400\r\n",
                     allow, allow);
    if (asked && good_header_list(asked) && n > 0)
        snprintf(headers + n, sizeof headers - (size_t)n, "Access-Control-Allow-Headers: %s\r\n", asked);
    pgl_exchange_answer(exchange, &(pgl_answer){.status = 204, .headers = headers});
}

static bool refuse(pgl_exchange *exchange, int status, const char *code, const char *text) {
    pgl_http_fault fault = {.status = status, .code = code};
    snprintf(fault.text, sizeof fault.text, "%s", text);
    answer_fault(exchange, &fault);
    return false;
}

static bool refuse_method(pgl_exchange *exchange) {
    const pgl_http_head *head = pgl_exchange_head(exchange);
    char allow[64];
    pgl_route_allow(head->path, allow, sizeof allow);
    pgl_exchange_add_header(exchange, "Allow: %s", allow);
    return refuse(exchange, 405, "method_not_allowed",
                  "this path does not take this method; Allow says which it takes");
}

/* What the request log will say. */
static void open_record(pgl_server *server, pgl_exchange *exchange) {
    if (!server->request_log || pgl_exchange_record(exchange))
        return;
    pgl_request_record *record = pgl_request_record_new();
    if (!record) {
        pgl_request_log_lost(server->request_log);
        return;
    }
    record->wall_ns = pgl_wall_ns();
    pgl_exchange_set_record(exchange, record);
}

static void on_end(void *user, void *arg) {
    pgl_server *server = user;
    pgl_request_record *record = arg;
    pgl_out line = {0};
    pgl_request_record_write(record, &line);
    if (line.failed)
        pgl_request_log_lost(server->request_log);
    else
        pgl_request_log_put(server->request_log, &line.buf);
    pgl_out_fini(&line);
    pgl_request_record_free(record);
}

static bool on_head(void *user, pgl_exchange *exchange, size_t *max_body_bytes) {
    pgl_server *server = user;
    open_record(server, exchange);
    const pgl_http_head *head = pgl_exchange_head(exchange);
    pgl_http_fault fault;
    add_cors(server, exchange);
    if (!pgl_access_check_origin(server->access, head, &fault)) {
        answer_fault(exchange, &fault);
        return false;
    }
    const pgl_route *route = pgl_route_find(head->method, head->path);
    pgl_exchange_set_tag(exchange, route ? route : pgl_route_find(NULL, head->path));
    if (strcmp(head->method, "OPTIONS") == 0) {
        answer_options(exchange);
        return false;
    }
    if (!route && pgl_exchange_tag(exchange))
        return refuse_method(exchange);
    if (!route)
        return refuse(exchange, 404, "not_found",
                      "there is no such path; GET /openapi.json says what there is");
    if (route->scope == PGL_SCOPE_KEY && !pgl_access_key_fits(server->access, head)) {
        pgl_exchange_add_header(exchange, "WWW-Authenticate: Bearer");
        return refuse(exchange, 401, "invalid_api_key",
                      "a valid API key is needed: Authorization: Bearer KEY");
    }
    if (atomic_load(&server->draining) && !(route->flags & PGL_ROUTE_WHEN_DRAINING))
        return refuse(exchange, 503, "overloaded", "the server is shutting down");
    if (!route->fields)
        *max_body_bytes = UNUSED_BODY_BYTES;
    return true;
}

typedef struct handler_job {
    pgl_job job;
    pgl_server *server;
    pgl_exchange *exchange;
    bool huge;
} handler_job;

static const pgl_route *route_of(const pgl_exchange *exchange) {
    return pgl_exchange_tag(exchange);
}

static void run_handler(pgl_job *job) {
    handler_job *self = (handler_job *)job;
    pgl_server *server = self->server;
    pgl_exchange *exchange = self->exchange;
    bool huge = self->huge;
    free(self);
    route_of(exchange)->handler(server, exchange);
    if (huge)
        malloc_trim(0); /* a million small pieces would stay with this thread's arena */
}

static void on_request(void *user, pgl_exchange *exchange) {
    pgl_server *server = user;
    const pgl_route *route = route_of(exchange);
    pgl_request_record *record = pgl_exchange_record(exchange);
    if (record)
        record->bytes_in = pgl_exchange_body(exchange)->size;
    if (route->flags & PGL_ROUTE_INLINE) {
        route->handler(server, exchange);
        return;
    }
    handler_job *job = pgl_new(1, sizeof *job);
    if (!job) {
        refuse(exchange, 500, "out_of_memory", "no memory for this request");
        pgl_exchange_release(exchange);
        return;
    }
    bool huge = pgl_exchange_body(exchange)->size > HUGE_BODY_BYTES;
    *job = (handler_job){.job.run = run_handler, .server = server, .exchange = exchange, .huge = huge};
    pgl_workers_put(server->workers, huge ? PGL_JOB_HUGE : PGL_JOB_LONG, &job->job);
}

static void on_fault(void *user, pgl_exchange *exchange, const pgl_http_fault *fault) {
    open_record(user, exchange);
    answer_fault(exchange, fault);
}

static void fill_record(pgl_exchange *exchange, int status, uint64_t bytes, uint64_t duration_ns) {
    pgl_request_record *record = pgl_exchange_record(exchange);
    const pgl_route *route = route_of(exchange);
    if (!record)
        return;
    const char *method = pgl_exchange_head(exchange)->method;
    snprintf(record->id, sizeof record->id, "%s", pgl_exchange_request_id(exchange));
    snprintf(record->client, sizeof record->client, "%s", pgl_exchange_peer(exchange));
    snprintf(record->method, sizeof record->method, "%s", method ? method : "");
    record->route = route ? route->path : NULL;
    record->status = status;
    record->bytes_out = bytes;
    record->duration_ns = duration_ns;
    record->client_gone = pgl_exchange_is_gone(exchange);
}

static void on_done(void *user, pgl_exchange *exchange, int status, uint64_t bytes, uint64_t duration_ns) {
    pgl_server *server = user;
    const pgl_route *route = route_of(exchange);
    const pgl_http_head *head = pgl_exchange_head(exchange);
    const char *path = route ? route->path : "other";
    pgl_metrics_http(server->metrics, path, status, duration_ns);
    fill_record(exchange, status, bytes, duration_ns);
    bool quiet = route && (route->flags & PGL_ROUTE_WHEN_DRAINING) && status == 200;
    pgl_log(quiet ? PGL_LOG_DEBUG : PGL_LOG_INFO, "http", "%s %s %s %s %d %llu bytes %.1f ms",
            pgl_exchange_peer(exchange), pgl_exchange_request_id(exchange), head->method ? head->method : "-",
            path, status, (unsigned long long)bytes, (double)duration_ns * 1e-6);
}

/* ---- life ---- */

/* So that the first structured answer does not pay for it. What fails here is tried again by whoever needs it. */
static void prepare_forms(pgl_job *job) {
    pgl_server *server = (pgl_server *)((char *)job - offsetof(pgl_server, prepare_forms));
    uint64_t start = pgl_now_ns();
    pgl_error err;
    if (pgl_constraint_vocabulary_prepare(server->vocabulary, &err) != PGL_OK)
        pgl_log(PGL_LOG_WARN, "server", "%s", err.text);
    else
        pgl_log(PGL_LOG_DEBUG, "server", "ready for structured output after %.1f ms",
                (double)(pgl_now_ns() - start) * 1e-6);
}

static bool copy_names(pgl_server *server, const char *const *names, uint32_t n) {
    const char *own = pgl_runtime_name(server->runtime);
    if (n == 0) {
        names = &own;
        n = 1;
    }
    server->names = pgl_new(n, sizeof *server->names);
    if (!server->names)
        return false;
    for (; server->n_names < n; server->n_names++) {
        server->names[server->n_names] = pgl_strndup(names[server->n_names], strlen(names[server->n_names]));
        if (!server->names[server->n_names])
            return false;
    }
    return true;
}

static pgl_status open_parts(pgl_server *server, const pgl_server_options *options, pgl_error *err) {
    if (!copy_names(server, options->names, options->n_names))
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the model's names");
    pgl_status status = pgl_access_open(&options->access, &server->access, err);
    if (status == PGL_OK)
        status = pgl_openapi_write(server, &server->openapi, err);
    if (status == PGL_OK)
        status = pgl_metrics_open(&server->metrics, err);
    if (status == PGL_OK)
        status = pgl_workers_open(options->n_workers, &server->workers, err);
    if (status == PGL_OK && options->request_log)
        status = pgl_request_log_open(options->request_log, &server->request_log, err);
    if (status == PGL_OK && options->trace)
        status = pgl_runtime_fingerprint(server->runtime, server->fingerprint, err);
    if (status == PGL_OK && options->trace)
        status = pgl_trace_log_open(options->trace, options->trace_bytes, &server->traces, err);
    if (status == PGL_OK)
        status = pgl_generation_watch_open(server, err);
    if (status != PGL_OK)
        return status;
    pgl_http_app app = {.user = server,
                        .on_head = on_head,
                        .on_request = on_request,
                        .on_fault = on_fault,
                        .on_done = on_done,
                        .on_end = on_end};
    return pgl_http_open(&options->sockets, &options->http, &app, &server->http, err);
}

pgl_status pgl_server_open(const pgl_server_options *options, pgl_server **out, pgl_error *err) {
    pgl_http_sockets sockets = options->sockets;
    pgl_server *server = pgl_new(1, sizeof *server);
    if (!server) {
        pgl_http_unbind(&sockets);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the server");
    }
    server->runtime = options->runtime;
    server->engine = pgl_runtime_engine(server->runtime);
    server->tokenizer = pgl_runtime_tokenizer(server->runtime);
    server->chat = pgl_runtime_chat(server->runtime);
    server->context = pgl_runtime_context(server->runtime);
    server->n_vocab = pgl_runtime_n_vocab(server->runtime);
    server->sampling = pgl_runtime_sampling(server->runtime);
    server->echo = pgl_runtime_is_echo(server->runtime);
    server->thinking = pgl_runtime_thinking(server->runtime, options->thinking);
    server->log_prompts = options->request_log && options->log_prompts;
    server->request_timeout_ns = options->request_timeout_ns;
    server->created = (int64_t)time(NULL);
    pthread_mutex_init(&server->watch_lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&server->watch_changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pgl_status status = pgl_vocabulary_open(server->runtime, &server->vocabulary, err);
    if (status == PGL_OK)
        status = open_parts(server, options, err);
    if (status != PGL_OK) {
        if (!server->http)
            pgl_http_unbind(&sockets);
        pgl_server_close(server);
        return status;
    }
    server->prepare_forms.run = prepare_forms;
    if (server->vocabulary && !server->echo)
        pgl_workers_put(server->workers, PGL_JOB_FORM, &server->prepare_forms);
    *out = server;
    return PGL_OK;
}

void pgl_server_reopen_log(pgl_server *server) {
    if (server->request_log)
        pgl_request_log_reopen(server->request_log);
}

void pgl_server_start_drain(pgl_server *server) {
    atomic_store(&server->draining, true);
    pgl_http_drain(server->http);
}

bool pgl_server_wait_drained(pgl_server *server, uint64_t wait_ns) {
    return pgl_http_wait_drained(server->http, wait_ns);
}

void pgl_server_close(pgl_server *server) {
    if (!server)
        return;
    atomic_store(&server->draining, true);
    if (server->http) {
        pgl_http_stop_listening(server->http);
        pgl_generation_cut_all(server);
        pgl_http_wait_idle(server->http, CUT_NS); /* for the errors to be written */
        pgl_http_close(server->http);
    }
    pgl_generation_watch_close(server);
    pgl_workers_close(server->workers);
    pgl_request_log_close(server->request_log);
    pgl_trace_log_close(server->traces);
    pgl_metrics_close(server->metrics);
    pgl_access_close(server->access);
    pgl_constraint_vocabulary_close(server->vocabulary);
    for (uint32_t i = 0; i < server->n_names; i++)
        free(server->names[i]);
    free(server->names);
    pgl_buf_fini(&server->openapi);
    pthread_cond_destroy(&server->watch_changed);
    pthread_mutex_destroy(&server->watch_lock);
    free(server);
}
