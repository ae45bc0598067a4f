/* The routes that say what is there: health, version, models, properties, slots, metrics. */
#include <stdio.h>
#include <string.h>

#include "base/version.h"
#include "checkpoint/config.h"
#include "server/server_impl.h"

static void answer(pgl_exchange *exchange, int status, pgl_out *out) {
    pgl_answer_json(exchange, status, out);
    pgl_exchange_release(exchange);
}

void pgl_handle_root(pgl_server *server, pgl_exchange *exchange) {
    (void)server;
    static const char text[] = "Pergola is running. The API is below /v1.\n";
    pgl_exchange_answer(exchange, &(pgl_answer){.status = 200,
                                                .content_type = "text/plain; charset=utf-8",
                                                .body = text,
                                                .size = sizeof text - 1});
    pgl_exchange_release(exchange);
}

void pgl_handle_health(pgl_server *server, pgl_exchange *exchange) {
    (void)server;
    pgl_out out = {0};
    pgl_out_raw(&out, "{\"status\":\"ok\"}");
    answer(exchange, 200, &out);
}

void pgl_handle_ready(pgl_server *server, pgl_exchange *exchange) {
    pgl_out out = {0};
    bool ready = !atomic_load(&server->draining);
    pgl_out_printf(&out, "{\"status\":\"%s\"}", ready ? "ready" : "draining");
    if (ready) {
        answer(exchange, 200, &out);
        return;
    }
    pgl_exchange_answer(exchange, &(pgl_answer){.status = 503,
                                                .content_type = "application/json",
                                                .headers = "Retry-After: 2\r\n",
                                                .body = out.buf.data,
                                                .size = out.buf.size});
    pgl_out_fini(&out);
    pgl_exchange_release(exchange);
}

void pgl_handle_version(pgl_server *server, pgl_exchange *exchange) {
    (void)server;
    pgl_out out = {0};
    pgl_out_raw(&out, "{\"version\":\"" PGL_VERSION "\",\"revision\":");
    pgl_out_str(&out, pgl_revision());
    pgl_out_raw(&out, "}");
    answer(exchange, 200, &out);
}

/* ---- models ---- */

static void put_model(const pgl_server *server, const char *name, pgl_out *out) {
    pgl_out_raw(out, "{\"id\":");
    pgl_out_str(out, name);
    pgl_out_printf(out,
                   ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"pergola\",\"max_model_len\":%u,"
                   "\"context_length\":%u,\"root\":",
                   (long long)server->created, server->context, server->context);
    pgl_out_str(out, pgl_runtime_name(server->runtime));
    pgl_out_raw(out, ",\"parent\":null}");
}

void pgl_handle_models(pgl_server *server, pgl_exchange *exchange) {
    pgl_out out = {0};
    pgl_out_raw(&out, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < server->n_names; i++) {
        if (i > 0)
            pgl_out_raw(&out, ",");
        put_model(server, server->names[i], &out);
    }
    pgl_out_raw(&out, "]}");
    answer(exchange, 200, &out);
}

void pgl_handle_model(pgl_server *server, pgl_exchange *exchange) {
    char name[1024];
    pgl_refusal err;
    const pgl_route *route = pgl_exchange_tag(exchange);
    bool known = pgl_route_rest(route, pgl_exchange_head(exchange)->path, name, sizeof name);
    if (!known)
        pgl_refuse(&err, 404, "model_not_found", "model", "there is no such model");
    else
        known = pgl_check_model(server, name, &err);
    if (!known) {
        pgl_answer_error(exchange, &err);
        pgl_exchange_release(exchange);
        return;
    }
    pgl_out out = {0};
    put_model(server, name, &out);
    answer(exchange, 200, &out);
}

/* ---- properties and state ---- */

static void put_sampling(const pgl_sample_params *sampling, pgl_out *out) {
    const struct {
        const char *name;
        double value;
    } rows[] = {{"temperature", (double)sampling->temperature},
                {"top_p", (double)sampling->top_p},
                {"min_p", (double)sampling->min_p},
                {"top_k", sampling->top_k},
                {"presence_penalty", (double)sampling->presence_penalty},
                {"frequency_penalty", (double)sampling->frequency_penalty},
                {"repetition_penalty", (double)sampling->repetition_penalty}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        pgl_out_printf(out, "%s\"%s\":%.7g", i ? "," : "", rows[i].name, rows[i].value);
}

void pgl_handle_props(pgl_server *server, pgl_exchange *exchange) {
    const pgl_backend_caps *caps = pgl_runtime_caps(server->runtime);
    pgl_out out = {0};
    pgl_out_raw(&out, "{\"model\":");
    pgl_out_str(&out, server->names[0]);
    pgl_out_printf(&out, ",\"total_slots\":%u,\"n_ctx\":%u,\"max_model_len\":%u,\"n_vocab\":%u,\"backend\":",
                   caps->n_slots, server->context, server->context, server->n_vocab);
    pgl_out_str(&out, caps->name);
    pgl_out_raw(&out, ",\"backend_detail\":");
    pgl_out_str(&out, caps->detail);
    pgl_out_printf(&out,
                   ",\"chat_template\":%s,\"thinking\":%s,\"modalities\":{\"vision\":false,\"audio\":false}",
                   server->chat ? "true" : "false",
                   server->thinking < 0 ? "null"
                   : server->thinking   ? "true"
                                        : "false");
    pgl_out_printf(&out, ",\"default_generation_settings\":{\"n_ctx\":%u,\"params\":{", server->context);
    put_sampling(&server->sampling, &out);
    pgl_out_raw(&out, "}},\"build_info\":\"pergola " PGL_VERSION "\"}");
    answer(exchange, 200, &out);
}

static const char *state_name(pgl_request_state state) {
    switch (state) {
    case PGL_REQUEST_WAITING:
        return "waiting";
    case PGL_REQUEST_PROMPT:
        return "prompt";
    case PGL_REQUEST_ANSWER:
        return "answer";
    case PGL_REQUEST_PARKED:
        return "parked";
    case PGL_REQUEST_DONE:
        return "done";
    }
    return "unknown";
}

#define MOST_SLOTS_SHOWN 256u

void pgl_handle_slots(pgl_server *server, pgl_exchange *exchange) {
    static const pgl_slot_info none;
    pgl_slot_info slots[MOST_SLOTS_SHOWN];
    uint32_t n = pgl_engine_get_slots(server->engine, slots, MOST_SLOTS_SHOWN);
    pgl_out out = {0};
    pgl_out_raw(&out, "[");
    for (uint32_t i = 0; i < n && i < MOST_SLOTS_SHOWN; i++) {
        const pgl_slot_info *slot = slots[i].used ? &slots[i] : &none;
        pgl_out_printf(&out,
                       "%s{\"id\":%u,\"is_processing\":%s,\"state\":\"%s\",\"request\":%llu,\"n_ctx\":%u,\"n_"
                       "prompt\":%u,"
                       "\"n_read\":%u,\"n_cached\":%u,\"n_matched\":%u,\"from_host\":%s,\"n_generated\":%u,"
                       "\"miss\":\"%s\",\"miss_"
                       "at\":%u}",
                       i ? "," : "", i, slot->used ? "true" : "false",
                       slot->used ? state_name(slot->state) : "idle", (unsigned long long)slot->request,
                       server->context, slot->n_prompt, slot->n_read, slot->n_cached, slot->cache.n_matched,
                       slot->cache.from_host ? "true" : "false", slot->n_generated,
                       pgl_miss_name(slot->cache.miss), slot->cache.miss_at);
    }
    pgl_out_raw(&out, "]");
    answer(exchange, 200, &out);
}

void pgl_handle_metrics(pgl_server *server, pgl_exchange *exchange) {
    pgl_out out = {0};
    pgl_engine_stats stats = pgl_engine_get_stats(server->engine);
    pgl_http_figures figures = pgl_http_get_figures(server->http);
    pgl_request_log_figures lines = {0};
    if (server->request_log)
        lines = pgl_request_log_get_figures(server->request_log);
    pgl_trace_figures traces = {0};
    if (server->traces)
        traces = pgl_trace_log_get_figures(server->traces);
    pgl_metrics_write(server->metrics, server->names[0], &stats, &figures,
                      server->request_log ? &lines : NULL, server->traces ? &traces : NULL, &out);
    if (out.failed) {
        answer(exchange, 500, &out);
        return;
    }
    pgl_exchange_answer(exchange, &(pgl_answer){.status = 200,
                                                .content_type = "text/plain; version=0.0.4; charset=utf-8",
                                                .body = out.buf.data,
                                                .size = out.buf.size});
    pgl_out_fini(&out);
    pgl_exchange_release(exchange);
}
