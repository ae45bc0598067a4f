#include "server/request_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

pgl_request_record *pgl_request_record_new(void) {
    return pgl_new(1, sizeof(pgl_request_record));
}

void pgl_request_record_free(pgl_request_record *record) {
    if (!record)
        return;
    pgl_out_fini(&record->finish);
    pgl_out_fini(&record->text);
    free(record);
}

void pgl_request_record_error(pgl_request_record *record, const pgl_refusal *err) {
    if (record->code)
        return;
    record->code = err->code;
    snprintf(record->param, sizeof record->param, "%s", err->param);
}

static const char *outcome(const pgl_request_record *r) {
    if (r->client_gone)
        return "gone";
    if (r->failed || (r->status >= 500 && r->status != 503))
        return "failed";
    return r->status >= 400 ? "refused" : "ok";
}

/* Milliseconds, or null where there is nothing to say. */
static void put_ms(pgl_out *out, const char *name, bool known, uint64_t ns) {
    if (known)
        pgl_out_printf(out, ",\"%s\":%.3f", name, (double)ns * 1e-6);
    else
        pgl_out_printf(out, ",\"%s\":null", name);
}

static void put_count(pgl_out *out, const char *name, bool known, uint64_t value) {
    if (known)
        pgl_out_printf(out, ",\"%s\":%" PRIu64, name, value);
    else
        pgl_out_printf(out, ",\"%s\":null", name);
}

static void put_text(pgl_out *out, const char *name, const char *text) {
    pgl_out_printf(out, ",\"%s\":", name);
    pgl_out_str(out, text && text[0] ? text : NULL);
}

static void put_answer(const pgl_request_record *r, pgl_out *out) {
    bool any = r->generated, token = r->ttft_ns > 0;
    uint32_t n = r->first.n_generated;
    pgl_out_printf(out, ",\"stream\":%s,\"finish\":", !any ? "null" : r->stream ? "true" : "false");
    if (any) {
        pgl_out_raw(out, "[");
        pgl_out_bytes(out, pgl_buf_text(&r->finish.buf), r->finish.buf.size);
        pgl_out_raw(out, "]");
    } else {
        pgl_out_raw(out, "null");
    }
    put_count(out, "prompt_tokens", r->prompt_tokens > 0, r->prompt_tokens);
    put_count(out, "cached_tokens", r->admitted, r->cached_tokens);
    put_count(out, "completion_tokens", r->queued, r->completion_tokens);
    put_count(out, "reasoning_tokens", r->queued, r->reasoning_tokens);
    put_text(out, "cache_miss", r->admitted ? pgl_miss_name(r->first.cache.miss) : NULL);
    put_count(out, "cache_miss_at", r->admitted, r->first.cache.miss_at);
    put_ms(out, "queue_ms", r->queued, r->first.queued_ns);
    put_ms(out, "prefill_ms", token, r->first.prompt_ns);
    put_ms(out, "decode_ms", token, r->first.generation_ns);
    put_ms(out, "ttft_ms", token, r->ttft_ns);
    put_ms(out, "tpot_ms", n > 1, n > 1 ? r->first.generation_ns / (n - 1) : 0);
}

void pgl_request_record_write(const pgl_request_record *r, pgl_out *out) {
    char time[PGL_TIME_TEXT];
    pgl_wall_text(r->wall_ns, time);
    pgl_out_printf(out, "{\"v\":%d,\"time\":\"%s\"", PGL_REQUEST_LOG_VERSION, time);
    put_text(out, "id", r->id);
    put_text(out, "client", r->client);
    put_text(out, "method", r->method);
    put_text(out, "route", r->route);
    put_text(out, "model", r->model);
    pgl_out_printf(out, ",\"status\":%d,\"outcome\":\"%s\"", r->status, outcome(r));
    put_text(out, "error", r->code);
    put_text(out, "param", r->param);
    put_answer(r, out);
    put_ms(out, "total_ms", true, r->duration_ns);
    pgl_out_printf(out, ",\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64 ",\"client_gone\":%s", r->bytes_in,
                   r->bytes_out, r->client_gone ? "true" : "false");
    pgl_out_bytes(out, pgl_buf_text(&r->text.buf), r->text.buf.size);
    pgl_out_raw(out, "}\n");
    out->failed = out->failed || r->finish.failed || r->text.failed;
}
