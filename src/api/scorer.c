/* Owns a checkpoint, a backend with one slot, and the logits of one piece. */
#include "api/scorer.h"

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/alloc.h"

#define PAGE_TOKENS 64u
#define MOST_PIECE 64u
#define PIECE_BYTES ((size_t)64 << 20)
#define DEFAULT_CONTEXT 4096u

struct pgl_scorer {
    pgl_checkpoint *checkpoint;
    pgl_model model;
    pgl_backend *backend;
    uint32_t n_pages, piece_tokens, context_tokens;
    pgl_op *ops;   /* [1 + n_pages]: reset, then every page bound */
    float *logits; /* [piece_tokens][vocab_size] */
};

static pgl_status open_backend(pgl_scorer *s, const pgl_scorer_options *options, pgl_error *err) {
    const pgl_config *config = s->model.config;
    uint32_t limit = config->max_position_embeddings;
    uint32_t context = options->context_tokens != 0 ? options->context_tokens : DEFAULT_CONTEXT;
    if (options->context_tokens > limit)
        return pgl_fail(err, PGL_E_CONTEXT, "expected at most %u tokens, the model's limit, found %u", limit,
                        options->context_tokens);
    s->context_tokens = context < limit ? context : limit;
    s->n_pages = (s->context_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;
    size_t row = (size_t)config->vocab_size * sizeof *s->logits, fit = PIECE_BYTES / row;
    s->piece_tokens = fit < 1 ? 1 : fit > MOST_PIECE ? MOST_PIECE : (uint32_t)fit;
    s->ops = pgl_new((size_t)s->n_pages + 1, sizeof *s->ops);
    s->logits = pgl_new_aligned((size_t)s->piece_tokens * config->vocab_size, sizeof *s->logits);
    if (s->ops == NULL || s->logits == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for logits of %u tokens", s->piece_tokens);
    s->ops[0] = (pgl_op){.kind = PGL_OP_RESET};
    for (uint32_t i = 0; i < s->n_pages; i++)
        s->ops[i + 1] = (pgl_op){.kind = PGL_OP_BIND, .index = i, .page = i};
    if (options->backend != NULL && strcmp(options->backend, "cpu") != 0)
        return pgl_fail(err, PGL_E_INVALID, "backend: expected cpu, found %s", options->backend);
    pgl_backend_options open = {.n_threads = options->n_threads,
                                .n_slots = 1,
                                .n_pages = s->n_pages,
                                .page_tokens = PAGE_TOKENS,
                                .max_context = s->context_tokens,
                                .max_rows = 1,
                                .max_step_tokens = s->piece_tokens,
                                .n_vocab = config->vocab_size,
                                .force_isa = options->force_isa};
    return pgl_backend_open_cpu(&s->model, &open, &s->backend, err);
}

pgl_status pgl_scorer_open(const pgl_scorer_options *options, pgl_scorer **out, pgl_error *err) {
    *out = NULL;
    pgl_scorer *s = pgl_new(1, sizeof *s);
    if (s == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a scorer");
    pgl_checkpoint_options open = {.want_draft = false};
    pgl_status status = pgl_checkpoint_open(options->model, &open, &s->checkpoint, err);
    if (status == PGL_OK)
        status = pgl_model_init(&s->model, pgl_checkpoint_config(s->checkpoint),
                                pgl_checkpoint_weights(s->checkpoint), err);
    if (status == PGL_OK)
        status = open_backend(s, options, err);
    if (status != PGL_OK) {
        pgl_scorer_close(s);
        return status;
    }
    *out = s;
    return PGL_OK;
}

void pgl_scorer_close(pgl_scorer *scorer) {
    if (scorer == NULL)
        return;
    pgl_backend_close(scorer->backend);
    pgl_checkpoint_close(scorer->checkpoint);
    free(scorer->ops);
    free(scorer->logits);
    free(scorer);
}

const pgl_model *pgl_scorer_model(const pgl_scorer *scorer) {
    return &scorer->model;
}

const pgl_checkpoint *pgl_scorer_checkpoint(const pgl_scorer *scorer) {
    return scorer->checkpoint;
}

static pgl_status check_ids(const pgl_scorer *s, const int32_t *ids, size_t n, pgl_error *err) {
    if (n == 0)
        return pgl_fail(err, PGL_E_INVALID, "expected at least one token, found none");
    if (n > s->context_tokens)
        return pgl_fail(err, PGL_E_CONTEXT, "expected at most %u tokens, found %zu", s->context_tokens, n);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= s->model.config->vocab_size)
            return pgl_fail(err, PGL_E_INVALID, "token %zu: expected an id from 0 to %u, found %d", i,
                            s->model.config->vocab_size - 1, ids[i]);
    return PGL_OK;
}

pgl_status pgl_scorer_run(pgl_scorer *scorer, const int32_t *ids, size_t n, pgl_scorer_fn fn, void *user,
                          pgl_error *err) {
    pgl_scorer *s = scorer;
    pgl_status status = check_ids(s, ids, n, err);
    for (size_t at = 0; at < n && status == PGL_OK;) {
        size_t left = n - at, piece = left < s->piece_tokens ? left : s->piece_tokens;
        pgl_row_result result = {.logits = s->logits};
        pgl_row row = {.kind = PGL_ROW_COMMIT,
                       .n_tokens = (uint32_t)piece,
                       .tokens = ids + at,
                       .wants = PGL_WANT_LOGITS,
                       .result = &result};
        pgl_step_plan plan = {
            .rows = &row, .n_rows = 1, .before = s->ops, .n_before = at == 0 ? (size_t)s->n_pages + 1 : 0};
        uint64_t ticket;
        status = pgl_backend_submit(s->backend, &plan, &ticket, err);
        if (status == PGL_OK)
            status = pgl_backend_wait(s->backend, ticket, NULL, err);
        if (status == PGL_OK)
            status = fn(user, at, piece, s->logits, err);
        if (status == PGL_OK && result.non_finite)
            status = pgl_fail(err, PGL_E_NUMERIC, "the logits of tokens %zu to %zu are not all finite", at,
                              at + piece - 1);
        at += piece;
    }
    return status;
}
