/* Owns, from the file up: checkpoint, model, tokenizer and chat template, backend, engine. Closed in the other order. */
#include "api/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "api/runtime_memory.h"
#include "backend/null/null.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/pool.h"
#include "checkpoint/checkpoint.h"
#include "engine/forced.h"
#include "text/files.h"

struct pgl_runtime {
    pgl_runtime_options options; /* strings of the caller are not kept */
    char *name;
    pgl_checkpoint *checkpoint;
    pgl_model model;
    pgl_text_files text;
    pgl_memory_plan plan;
    pgl_buf plan_text;
    pgl_forced *forced; /* echo */
    pgl_backend *backend;
    pgl_engine *engine;
    pgl_backend_caps caps;
    uint32_t n_vocab;
    int32_t stop_ids[PGL_MAX_EOS];
    uint32_t n_stop_ids;
};

uint64_t pgl_random_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        seed = pgl_wall_ns() * 0x9E3779B97F4A7C15u ^ pgl_now_ns();
    return seed;
}

/* ---- checkpoint and text ---- */

static void tell(const pgl_runtime *r, const char *what, uint64_t done, uint64_t total) {
    if (r->options.progress != NULL)
        r->options.progress(r->options.user, what, done, total);
}

static bool on_checked(void *context, uint64_t done, uint64_t total) {
    tell(context, "checking weights", done, total);
    return true;
}

static char *last_part(const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    return end > begin ? pgl_strndup(path + begin, end - begin) : pgl_strndup("model", 5);
}

static pgl_status open_text(pgl_runtime *r, const char *directory, pgl_error *err) {
    const pgl_config *config = pgl_checkpoint_config(r->checkpoint);
    pgl_status status = pgl_text_files_open(directory, &r->text, err);
    if (status != PGL_OK)
        return status;
    int32_t n_ids = pgl_tokenizer_n_ids(r->text.tokenizer);
    if (n_ids <= 0 || (uint32_t)n_ids > config->vocab_size)
        return pgl_fail(err, PGL_E_FORMAT,
                        "tokenizer.json: expected at most %u ids, the rows of the embedding, found %d",
                        config->vocab_size, (int)n_ids);
    r->n_vocab = (uint32_t)n_ids;
    for (uint32_t i = 0; i < config->n_eos; i++)
        if (config->eos[i] >= 0 && (uint32_t)config->eos[i] < config->vocab_size)
            r->stop_ids[r->n_stop_ids++] = config->eos[i];
    return PGL_OK;
}

static pgl_status open_checkpoint(pgl_runtime *r, bool computes, pgl_error *err) {
    const pgl_checkpoint_options options = {.strict = r->options.strict, .want_draft = false};
    tell(r, "reading the checkpoint", 0, 0);
    pgl_status status = pgl_checkpoint_open(r->options.model, &options, &r->checkpoint, err);
    if (status == PGL_OK)
        status = open_text(r, r->options.model, err);
    if (status != PGL_OK || !computes)
        return status;
    status = pgl_model_init(&r->model, pgl_checkpoint_config(r->checkpoint),
                            pgl_checkpoint_weights(r->checkpoint), err);
    if (status == PGL_OK)
        status = pgl_checkpoint_check_values(r->checkpoint, on_checked, r, err);
    if (status == PGL_OK && r->options.lock_memory)
        status = pgl_checkpoint_lock(r->checkpoint, err);
    return status;
}

/* ---- backend ---- */

static pgl_backend_options backend_options(const pgl_runtime *r) {
    const pgl_plan_request *settled = &r->plan.settled;
    return (pgl_backend_options){
        .n_threads = settled->n_threads,
        .pin_threads = r->options.pin_threads,
        .n_slots = settled->n_slots,
        .n_pages = r->plan.n_pages,
        .n_snapshots = settled->n_snapshots,
        .page_tokens = settled->page_tokens,
        .max_context = settled->context_tokens,
        .max_rows = settled->n_slots,
        .max_step_tokens = settled->step_tokens > settled->n_slots ? settled->step_tokens : settled->n_slots,
        .n_vocab = r->n_vocab,
        .force_isa = r->options.force_isa,
    };
}

static pgl_status open_cpu(pgl_runtime *r, pgl_error *err) {
    pgl_status status = pgl_runtime_plan_memory(&r->options, r->checkpoint, &r->model, &r->plan, err);
    if (status == PGL_OK)
        status = pgl_runtime_check_fits(&r->plan, err);
    if (status != PGL_OK)
        return status;
    if (!pgl_plan_text(&r->plan, &r->plan_text))
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the memory table");
    pgl_backend_options options = backend_options(r);
    return pgl_backend_open_cpu(&r->model, &options, &r->backend, err);
}

static pgl_status open_echo(pgl_runtime *r, pgl_error *err) {
    const pgl_config *config = pgl_checkpoint_config(r->checkpoint);
    enum { SNAPSHOTS = 64, CACHE_CONTEXTS = 4 };
    uint32_t limit = config->max_position_embeddings;
    uint32_t context = r->options.context > 0 ? r->options.context : PGL_RUNTIME_CONTEXT;
    if (r->options.context > limit)
        return pgl_fail(err, PGL_E_INVALID,
                        "context: expected at most %u tokens, the model's limit; found %u", limit,
                        r->options.context);
    context = context < limit ? context : limit;
    uint32_t n_slots = r->options.n_slots > 0 ? r->options.n_slots : 1;
    uint64_t pages = ((uint64_t)context / PGL_PLAN_PAGE_TOKENS + 1) * (n_slots + CACHE_CONTEXTS);
    if (pages > UINT32_MAX / 2)
        return pgl_fail(err, PGL_E_INVALID, "%u slots of %u tokens: too many pages", n_slots, context);
    r->plan.settled = (pgl_plan_request){.context_tokens = context,
                                         .n_slots = n_slots,
                                         .n_snapshots = r->options.no_prefix_cache ? 0 : SNAPSHOTS,
                                         .page_tokens = PGL_PLAN_PAGE_TOKENS,
                                         .step_tokens = PGL_PLAN_STEP_TOKENS};
    r->plan.n_pages = (uint32_t)pages;
    pgl_status status = pgl_forced_open(n_slots, &r->forced, err);
    if (status != PGL_OK)
        return status;
    const pgl_null_options null_options = {.vocab_size = config->vocab_size,
                                           .hidden_size = config->hidden_size,
                                           .n_layers = config->n_layers,
                                           .n_experts = config->n_experts,
                                           .n_experts_used = config->n_experts_used,
                                           .step_ns = r->options.echo_step_ns,
                                           .next_token = pgl_forced_token,
                                           .user = r->forced};
    pgl_backend_options options = backend_options(r);
    return pgl_backend_open_null(&null_options, &options, &r->backend, err);
}

/* A few tokens through the whole model: what comes out must be finite. */
static pgl_status check_backend(pgl_runtime *r, pgl_error *err) {
    static const char text[] = "The answer is";
    enum { MOST = 4 };
    tell(r, "trying the model", 0, 0);
    pgl_ids ids = {.data = NULL};
    pgl_status status =
        pgl_tokenizer_encode(r->text.tokenizer, text, sizeof text - 1, PGL_ENCODE_RAW, &ids, err);
    if (status != PGL_OK || ids.count == 0) {
        pgl_ids_fini(&ids);
        return status;
    }
    uint32_t context = pgl_backend_get_caps(r->backend)->max_context;
    uint32_t n = ids.count < MOST ? (uint32_t)ids.count : MOST;
    n = n < context ? n : context;
    int32_t token;
    const pgl_sample_params params = pgl_sample_defaults();
    pgl_row_result result = {.tokens = &token};
    const pgl_op before[] = {{.kind = PGL_OP_RESET}, {.kind = PGL_OP_BIND}};
    const pgl_row row = {.kind = PGL_ROW_COMMIT,
                         .n_tokens = n,
                         .tokens = ids.data,
                         .wants = PGL_WANT_SAMPLE,
                         .params = &params,
                         .token_limit = 1,
                         .result = &result};
    const pgl_step_plan plan = {.before = before, .n_before = 2, .rows = &row, .n_rows = 1};
    uint64_t ticket;
    status = pgl_backend_submit(r->backend, &plan, &ticket, err);
    if (status == PGL_OK)
        status = pgl_backend_wait(r->backend, ticket, NULL, err);
    if (status == PGL_OK && result.non_finite)
        status = pgl_fail(
            err, PGL_E_NUMERIC,
            "the model's logits for a prompt of %u tokens are not finite: its weights are damaged", n);
    pgl_ids_fini(&ids);
    return status;
}

static pgl_status open_backend(pgl_runtime *r, bool echo, pgl_error *err) {
    pgl_status status = echo ? open_echo(r, err) : open_cpu(r, err);
    if (status == PGL_OK)
        r->caps = *pgl_backend_get_caps(r->backend);
    return status == PGL_OK && !echo ? check_backend(r, err) : status;
}

static pgl_status open_engine(pgl_runtime *r, pgl_error *err) {
    const pgl_engine_options options = {.backend = r->backend,
                                        .max_queue = r->options.max_queue,
                                        .prefill_chunk = r->options.prefill_chunk,
                                        .forced = r->forced,
                                        .prefix_cache = !r->options.no_prefix_cache,
                                        .host_cache_bytes = r->options.host_cache_bytes};
    return pgl_engine_open(&options, &r->engine, err);
}

/* ---- open and close ---- */

static pgl_status open_all(pgl_runtime *r, pgl_error *err) {
    const char *backend = r->options.backend != NULL ? r->options.backend : "cpu";
    bool echo = strcmp(backend, "echo") == 0;
    if (!echo && strcmp(backend, "cpu") != 0)
        return pgl_fail(err, PGL_E_INVALID, "backend: expected cpu or echo, found \"%s\"", backend);
    if (r->options.model == NULL)
        return pgl_fail(err, PGL_E_INVALID, "model: expected the directory of a checkpoint, found none");
    r->name = last_part(r->options.model);
    if (r->name == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a model's name");
    pgl_status status = open_checkpoint(r, !echo, err);
    if (status == PGL_OK)
        status = open_backend(r, echo, err);
    return status == PGL_OK ? open_engine(r, err) : status;
}

pgl_status pgl_runtime_open(const pgl_runtime_options *options, pgl_runtime **out, pgl_error *err) {
    *out = NULL;
    pgl_runtime *r = pgl_new(1, sizeof *r);
    if (r == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a runtime");
    r->options = *options;
    pgl_status status = open_all(r, err);
    if (status != PGL_OK) {
        pgl_runtime_close(r);
        return status;
    }
    r->options.model = r->options.backend = r->options.force_isa = NULL;
    r->options.progress = NULL;
    *out = r;
    return PGL_OK;
}

void pgl_runtime_close(pgl_runtime *r) {
    if (r == NULL)
        return;
    pgl_engine_close(r->engine);
    pgl_backend_close(r->backend);
    pgl_forced_close(r->forced);
    pgl_text_files_close(&r->text);
    pgl_checkpoint_close(r->checkpoint);
    pgl_buf_fini(&r->plan_text);
    free(r->name);
    free(r);
}

/* ---- what it gives out ---- */

const pgl_config *pgl_runtime_config(const pgl_runtime *r) {
    return pgl_checkpoint_config(r->checkpoint);
}

const pgl_tokenizer *pgl_runtime_tokenizer(const pgl_runtime *r) {
    return r->text.tokenizer;
}

const pgl_chat *pgl_runtime_chat(const pgl_runtime *r) {
    return r->text.chat;
}

pgl_engine *pgl_runtime_engine(const pgl_runtime *r) {
    return r->engine;
}

const pgl_backend_caps *pgl_runtime_caps(const pgl_runtime *r) {
    return &r->caps;
}

bool pgl_runtime_is_echo(const pgl_runtime *r) {
    return r->forced != NULL;
}

int pgl_runtime_thinking(const pgl_runtime *r, int asked) {
    return asked < 0 && pgl_runtime_is_echo(r) ? 0 : asked;
}

const char *pgl_runtime_name(const pgl_runtime *r) {
    return r->name;
}

uint32_t pgl_runtime_context(const pgl_runtime *r) {
    return r->caps.max_context;
}

uint32_t pgl_runtime_n_vocab(const pgl_runtime *r) {
    return r->n_vocab;
}

pgl_sample_params pgl_runtime_sampling(const pgl_runtime *r) {
    const pgl_config *c = pgl_runtime_config(r);
    pgl_sample_params p = pgl_sample_defaults();
    p.temperature = c->has_temperature ? (float)c->temperature : 1.0F;
    if (!c->do_sample && !c->has_temperature)
        p.temperature = 0.0F;
    p.top_p = c->has_top_p ? (float)c->top_p : p.top_p;
    p.top_k = c->has_top_k ? c->top_k : p.top_k;
    p.min_p = c->has_min_p ? (float)c->min_p : p.min_p;
    p.repetition_penalty = c->has_repetition_penalty ? (float)c->repetition_penalty : p.repetition_penalty;
    p.presence_penalty = c->has_presence_penalty ? (float)c->presence_penalty : p.presence_penalty;
    return p;
}

const int32_t *pgl_runtime_stop_ids(const pgl_runtime *r, uint32_t *n) {
    *n = r->n_stop_ids;
    return r->stop_ids;
}

pgl_status pgl_runtime_fingerprint(const pgl_runtime *r, char out[PGL_FINGERPRINT_TEXT], pgl_error *err) {
    return pgl_checkpoint_fingerprint(r->checkpoint, out, err);
}

const char *pgl_runtime_plan(const pgl_runtime *r) {
    return pgl_buf_text(&r->plan_text);
}

const char *pgl_runtime_notes(const pgl_runtime *r) {
    return pgl_checkpoint_notes(r->checkpoint);
}
