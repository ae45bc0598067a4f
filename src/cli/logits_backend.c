/* Owns one CPU backend with one slot, whose pages are all of the backend's pages in order. */
#include "cli/logits_backend.h"

#include <stdlib.h>

#include "backend/backend.h"
#include "base/alloc.h"

struct pgl_logits_backend {
    pgl_backend *backend;
    pgl_op *start; /* RESET, then BIND for every page */
    size_t n_start;
    bool started;
};

pgl_status pgl_logits_backend_open(const pgl_model *model, const pgl_logits_backend_options *options,
                                   pgl_logits_backend **out, pgl_error *err) {
    enum { PAGE_TOKENS = 64 };
    uint32_t n_pages = options->most_tokens / PAGE_TOKENS + (options->most_tokens % PAGE_TOKENS != 0);
    pgl_backend_options open = {.n_threads = options->n_threads,
                                .n_slots = 1,
                                .n_pages = n_pages,
                                .page_tokens = PAGE_TOKENS,
                                .max_context = options->most_tokens,
                                .max_rows = 1,
                                .max_step_tokens = options->piece_tokens,
                                .n_vocab = model->config->vocab_size};
    *out = NULL;
    pgl_logits_backend *b = pgl_new(1, sizeof *b);
    if (b == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "out of memory");
    b->n_start = (size_t)n_pages + 1;
    b->start = pgl_new(b->n_start, sizeof *b->start);
    pgl_status status = PGL_E_MEMORY;
    if (b->start != NULL)
        status = pgl_backend_open_cpu(model, &open, &b->backend, err);
    else
        (void)pgl_fail(err, PGL_E_MEMORY, "no memory for a table of %u pages", n_pages);
    if (status != PGL_OK) {
        pgl_logits_backend_close(b);
        return status;
    }
    b->start[0] = (pgl_op){.kind = PGL_OP_RESET};
    for (uint32_t i = 0; i < n_pages; i++)
        b->start[i + 1] = (pgl_op){.kind = PGL_OP_BIND, .index = i, .page = i};
    *out = b;
    return PGL_OK;
}

void pgl_logits_backend_close(pgl_logits_backend *backend) {
    if (backend == NULL)
        return;
    pgl_backend_close(backend->backend);
    free(backend->start);
    free(backend);
}

void pgl_logits_backend_restart(pgl_logits_backend *backend) {
    backend->started = false;
}

pgl_status pgl_logits_backend_step(pgl_logits_backend *backend, const int32_t *tokens, uint32_t n,
                                   float *logits, bool *non_finite, pgl_error *err) {
    pgl_row_result result = {.logits = logits};
    pgl_row row = {
        .kind = PGL_ROW_COMMIT, .n_tokens = n, .tokens = tokens, .wants = PGL_WANT_LOGITS, .result = &result};
    pgl_step_plan plan = {.rows = &row, .n_rows = 1};
    if (!backend->started) {
        plan.before = backend->start;
        plan.n_before = backend->n_start;
    }
    uint64_t ticket;
    pgl_status status = pgl_backend_submit(backend->backend, &plan, &ticket, err);
    if (status == PGL_OK)
        status = pgl_backend_wait(backend->backend, ticket, NULL, err);
    backend->started = true;
    *non_finite = result.non_finite;
    return status;
}
