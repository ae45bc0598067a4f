/* Owns nothing: calls through the table of a backend, and what all backends do alike with options. */
#include "backend/backend_impl.h"

void pgl_backend_close(pgl_backend *backend) {
    if (backend != NULL)
        backend->table->close(backend);
}

const pgl_backend_caps *pgl_backend_get_caps(const pgl_backend *backend) {
    return &backend->caps;
}

pgl_backend_memory pgl_backend_get_memory(const pgl_backend *backend) {
    return backend->table->memory(backend);
}

pgl_status pgl_backend_submit(pgl_backend *backend, const pgl_step_plan *plan, uint64_t *ticket,
                              pgl_error *err) {
    return backend->table->submit(backend, plan, ticket, err);
}

pgl_status pgl_backend_mask_ready(pgl_backend *backend, uint64_t ticket, uint32_t row, pgl_error *err) {
    return backend->table->mask_ready(backend, ticket, row, err);
}

pgl_status pgl_backend_wait(pgl_backend *backend, uint64_t ticket, pgl_step_timing *timing, pgl_error *err) {
    return backend->table->wait(backend, ticket, timing, err);
}

uint32_t pgl_caps_table_pages(const pgl_backend_caps *caps) {
    return caps->max_context / caps->page_tokens + (caps->max_context % caps->page_tokens != 0);
}

uint32_t pgl_caps_history(const pgl_backend_caps *caps) {
    uint64_t most =
        2 * (uint64_t)caps->max_context; /* a prompt that fills the context, and as many sampled */
    return most < caps->vocab_size ? (uint32_t)most : caps->vocab_size;
}

/* Bounds that keep every product of two options within 64 bits and every array index within 32. */
#define MAX_SLOTS 65536u
#define MAX_PAGES (1u << 26)
#define MAX_SNAPSHOTS (1u << 20)
#define MAX_CONTEXT (1u << 24)
#define MAX_STEP_TOKENS (1u << 20)
#define MAX_DRAFT 64u

static pgl_status check_count(const char *name, uint32_t value, uint32_t low, uint32_t high, pgl_error *err) {
    if (value >= low && value <= high)
        return PGL_OK;
    return pgl_fail(err, PGL_E_INVALID, "backend option %s: expected %u to %u, found %u", name, low, high,
                    value);
}

pgl_status pgl_backend_caps_init(pgl_backend_caps *caps, const pgl_backend_options *options, pgl_error *err) {
    const struct {
        const char *name;
        uint32_t value, low, high;
    } counts[] = {
        {"n_slots", options->n_slots, 1, MAX_SLOTS},
        {"n_pages", options->n_pages, 1, MAX_PAGES},
        {"n_snapshots", options->n_snapshots, 0, MAX_SNAPSHOTS},
        {"max_context", options->max_context, 1, MAX_CONTEXT},
        {"max_rows", options->max_rows, 1, MAX_SLOTS},
        {"max_step_tokens", options->max_step_tokens, 1, MAX_STEP_TOKENS},
        {"max_draft", options->max_draft, 0, MAX_DRAFT},
        {"n_vocab", options->n_vocab, 0, caps->vocab_size},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        pgl_status status = check_count(counts[i].name, counts[i].value, counts[i].low, counts[i].high, err);
        if (status != PGL_OK)
            return status;
    }
    uint32_t page_tokens = options->page_tokens == 0 ? 64 : options->page_tokens;
    if (page_tokens < 16 || page_tokens > 1024 || (page_tokens & (page_tokens - 1)) != 0)
        return pgl_fail(err, PGL_E_INVALID,
                        "backend option page_tokens: expected a power of two from 16 to 1024, found %u",
                        page_tokens);
    caps->n_slots = options->n_slots;
    caps->n_pages = options->n_pages;
    caps->n_snapshots = options->n_snapshots;
    caps->page_tokens = page_tokens;
    caps->max_context = options->max_context;
    caps->max_rows = options->max_rows < options->n_slots ? options->max_rows : options->n_slots;
    caps->max_step_tokens = options->max_step_tokens;
    caps->max_draft = options->max_draft;
    caps->n_vocab = options->n_vocab == 0 ? caps->vocab_size : options->n_vocab;
    return PGL_OK;
}
