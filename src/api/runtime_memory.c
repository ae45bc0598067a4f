/* Owns nothing: chooses context and cache within the budget. */
#include "api/runtime_memory.h"

#include <string.h>

#include "base/memory.h"
#include "base/pool.h"

enum {
    LEAST_SNAPSHOTS = 8, /* that a cache is given when it is not told otherwise */
    MOST_SNAPSHOTS = 256,
    CACHED_CONTEXTS = 4, /* conversations' worth of pages beside those that run */
};

static const uint64_t snapshots_bytes = (uint64_t)512
                                        << 20; /* of snapshots, when there may be more than the least */
static const uint64_t cached_page_bytes = (uint64_t)256 << 20; /* of pages, likewise */
static const uint64_t tokenizer_bytes = (uint64_t)48 << 20; /* the published one: 39 MB at most, measured */

static uint64_t clamp(uint64_t x, uint64_t low, uint64_t high) {
    return x < low ? low : x > high ? high : x;
}

static uint64_t token_bytes(const pgl_model *model) {
    return model->kv_token_bytes > 0 ? model->kv_token_bytes : 1;
}

/* What the cache would like to have. */
static void wish_for_cache(const pgl_runtime_options *o, const pgl_model *model, pgl_plan_request *request) {
    if (o->no_prefix_cache)
        return;
    uint64_t snapshot = model->snapshot_bytes > 0 ? model->snapshot_bytes : 1;
    if (o->cache_bytes > 0) {
        request->n_snapshots = (uint32_t)clamp(o->cache_bytes / 2 / snapshot, 1, 65536);
        request->cache_tokens = clamp(o->cache_bytes / 2 / token_bytes(model), 0, UINT32_MAX);
        return;
    }
    request->n_snapshots = (uint32_t)clamp(snapshots_bytes / snapshot, LEAST_SNAPSHOTS, MOST_SNAPSHOTS);
    request->cache_tokens =
        clamp(cached_page_bytes / token_bytes(model), 0, (uint64_t)CACHED_CONTEXTS * request->context_tokens);
}

/* The largest part of the wish that fits; the last plan that was made. */
static pgl_status fit_cache(const pgl_model *model, pgl_plan_request *request, pgl_memory_plan *plan,
                            pgl_error *err) {
    for (;;) {
        pgl_status status = pgl_plan_memory(model, request, plan, err);
        if (status != PGL_OK || plan->fits || (request->n_snapshots == 0 && request->cache_tokens == 0))
            return status;
        request->n_snapshots /= 2;
        request->cache_tokens /= 2;
    }
}

pgl_status pgl_runtime_plan_memory(const pgl_runtime_options *o, const pgl_checkpoint *checkpoint,
                                   const pgl_model *model, pgl_memory_plan *plan, pgl_error *err) {
    pgl_memory_info memory = {.available_bytes = o->memory_bytes};
    pgl_status status = o->memory_bytes == 0 ? pgl_memory_read("", &memory, err) : PGL_OK;
    if (status != PGL_OK)
        return status;
    pgl_plan_request request = {
        .context_tokens = o->context,
        .n_slots = o->n_slots > 0 ? o->n_slots : 1,
        .n_threads = o->n_threads > 0 ? o->n_threads : pgl_cpu_count(),
        .weights_bytes = pgl_checkpoint_used_bytes(checkpoint),
        .host_cache_bytes = o->no_prefix_cache ? 0 : o->host_cache_bytes,
        .other_bytes = tokenizer_bytes,
        .budget_bytes = memory.available_bytes,
    };
    if (o->context == 0) {
        uint32_t limit = model->config->max_position_embeddings, fits;
        request.context_tokens = limit < PGL_RUNTIME_CONTEXT ? limit : PGL_RUNTIME_CONTEXT;
        status = pgl_plan_largest_context(model, &request, &fits, err);
        if (status != PGL_OK)
            return status;
        request.context_tokens =
            fits > 0 ? fits : request.context_tokens; /* nothing fits: the plan says so */
    }
    wish_for_cache(o, model, &request);
    /* A size that was asked for is kept, or what is asked does not fit. */
    if (o->cache_bytes > 0)
        return pgl_plan_memory(model, &request, plan, err);
    return fit_cache(model, &request, plan, err);
}

pgl_status pgl_runtime_check_fits(const pgl_memory_plan *plan, pgl_error *err) {
    if (plan->fits)
        return PGL_OK;
    pgl_error reason;
    pgl_buf table = PGL_BUF_INIT;
    (void)pgl_plan_check_fits(plan, &reason);
    bool ok = pgl_plan_text(plan, &table);
    char *verdict = ok ? strstr(table.data, "\nIt does not fit") : NULL; /* the reason has said it */
    if (verdict != NULL)
        *verdict = '\0';
    pgl_status status =
        pgl_fail(err, PGL_E_MEMORY, "%s%s%s", reason.text, ok ? "\n" : "", ok ? pgl_buf_text(&table) : "");
    pgl_buf_fini(&table);
    return status;
}

pgl_status pgl_runtime_plan_of(const pgl_runtime_options *options, pgl_memory_plan *plan, pgl_error *err) {
    pgl_checkpoint *checkpoint = NULL;
    pgl_model model;
    const pgl_checkpoint_options checkpoint_options = {.strict = options->strict, .want_draft = false};
    pgl_status status = pgl_checkpoint_open(options->model, &checkpoint_options, &checkpoint, err);
    if (status == PGL_OK)
        status = pgl_model_init(&model, pgl_checkpoint_config(checkpoint), pgl_checkpoint_weights(checkpoint),
                                err);
    if (status == PGL_OK)
        status = pgl_runtime_plan_memory(options, checkpoint, &model, plan, err);
    pgl_checkpoint_close(checkpoint);
    return status;
}
