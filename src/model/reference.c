/* Owns the memory of reference sequences: state, keys and values, work space. What is computed is in
 * reference_forward.c and reference_layer.c. */
#include "model/reference.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/linear.h"
#include "model/reference_impl.h"

static uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* The widest input of any linear. */
static uint32_t widest_input(const pgl_model *m) {
    const pgl_config *c = m->config;
    uint32_t w = 2 * c->hidden_size;
    w = max_u32(w, m->value_width);
    w = max_u32(w, m->q_width);
    w = max_u32(w, c->moe_intermediate_size);
    w = max_u32(w, c->shared_intermediate_size);
    return max_u32(w, c->intermediate_size);
}

static pgl_status carve_work(pgl_reference *seq, pgl_error *err) {
    const pgl_model *m = seq->model;
    const pgl_config *c = m->config;
    pgl_reference_work *w = &seq->work;
    size_t hidden = c->hidden_size, used = m->n_used;
    size_t inter = max_u32(c->shared_intermediate_size, c->intermediate_size);
    const struct {
        float **part;
        size_t width;
    } parts[] = {
        {&w->x, hidden},
        {&w->h, hidden},
        {&w->y, hidden},
        {&w->u, m->conv_width},
        {&w->z, m->value_width},
        {&w->o, m->value_width},
        {&w->a, c->n_value_heads},
        {&w->b, c->n_value_heads},
        {&w->q, 2 * (size_t)m->q_width},
        {&w->k, m->kv_width},
        {&w->v, m->kv_width},
        {&w->attended, m->q_width},
        {&w->router, c->n_experts},
        {&w->route_weight, used},
        {&w->gathered, hidden},
        {&w->gate_up, 2 * (size_t)c->moe_intermediate_size},
        {&w->act, c->moe_intermediate_size},
        {&w->expert_y, hidden},
        {&w->slots, used * hidden},
        {&w->mlp_gate, inter},
        {&w->mlp_up, inter},
        {&w->gate, 1},
        {&w->pair, 2 * hidden},
        {&w->linear, widest_input(m)},
        {&w->small, 0},
    };
    /* Widths are below 2^31 each and few, so that their sum fits; times the chunk it may not. */
    size_t per_row = 0, total, small = (size_t)c->rotary_dim + c->value_dim + widest_input(m);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        per_row += parts[i].width;
    if (!pgl_mul_size(per_row, PGL_REFERENCE_CHUNK, &total) || !pgl_add_size(total, small, &total))
        return pgl_fail(err, PGL_E_MEMORY, "the reference's work space does not fit: %zu numbers a row",
                        per_row);
    w->block = pgl_new_aligned(total, sizeof *w->block);
    w->experts = pgl_new(PGL_REFERENCE_CHUNK * used, sizeof *w->experts);
    if (w->block == NULL || w->experts == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the reference's work space, %zu bytes",
                        total * sizeof *w->block);
    float *at = w->block;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].part = at;
        at += parts[i].width * PGL_REFERENCE_CHUNK;
        if (parts[i].part == &w->linear)
            at += parts[i].width; /* the one row more */
    }
    return PGL_OK;
}

pgl_status pgl_reference_open(const pgl_model *model, bool exact, pgl_reference **out, pgl_error *err) {
    *out = NULL;
    pgl_reference *seq = pgl_new(1, sizeof *seq);
    if (seq == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a reference sequence");
    seq->model = model;
    seq->exact = exact;
    seq->state = pgl_new_aligned(model->state_bytes / sizeof *seq->state, sizeof *seq->state);
    seq->taps = pgl_new_aligned(model->conv_bytes / sizeof *seq->taps, sizeof *seq->taps);
    seq->hidden = pgl_new_aligned(model->config->hidden_size, sizeof *seq->hidden);
    pgl_status status = PGL_OK;
    if (seq->state == NULL || seq->taps == NULL || seq->hidden == NULL)
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for the state of a sequence, %llu bytes",
                          (unsigned long long)model->slot_bytes);
    if (status == PGL_OK)
        status = carve_work(seq, err);
    if (status != PGL_OK) {
        pgl_reference_close(seq);
        return status;
    }
    *out = seq;
    return PGL_OK;
}

void pgl_reference_close(pgl_reference *seq) {
    if (seq == NULL)
        return;
    for (size_t i = 0; i < sizeof seq->kv / sizeof seq->kv[0]; i++) {
        free(seq->kv[i].keys);
        free(seq->kv[i].values);
    }
    free(seq->state);
    free(seq->taps);
    free(seq->hidden);
    free(seq->scores);
    free(seq->work.block);
    free(seq->work.experts);
    free(seq);
}

/* Moves one array to a capacity of n rows. */
static bool regrow(float **array, size_t used_rows, size_t n, size_t row) {
    size_t count;
    if (!pgl_mul_size(n, row, &count))
        return false;
    float *larger = pgl_new_aligned(count, sizeof *larger);
    if (larger == NULL)
        return false;
    if (used_rows > 0)
        memcpy(larger, *array, used_rows * row * sizeof *larger);
    free(*array);
    *array = larger;
    return true;
}

static bool reserve_kv(pgl_reference_kv *kv, uint64_t used, uint64_t n, size_t row) {
    if (n <= kv->capacity_tokens)
        return true;
    size_t want = kv->capacity_tokens < 64 ? 64 : 2 * kv->capacity_tokens;
    if (want < n)
        want = (size_t)n;
    if (!regrow(&kv->keys, (size_t)used, want, row) || !regrow(&kv->values, (size_t)used, want, row))
        return false; /* keys may be larger already: harmless, the capacity is that of both */
    kv->capacity_tokens = want;
    return true;
}

pgl_status pgl_reference_reserve(pgl_reference *seq, bool draft, uint64_t n, pgl_error *err) {
    const pgl_model *m = seq->model;
    uint32_t first = draft ? m->n_attention_layers : 0;
    uint32_t end = draft ? first + 1 : m->n_attention_layers;
    bool ok = n <= SIZE_MAX / 2;
    for (uint32_t a = first; a < end && ok; a++)
        ok = reserve_kv(&seq->kv[a], draft ? seq->n_draft_rows : seq->n_tokens, n, m->kv_width);
    if (ok && n > seq->scores_capacity) {
        size_t want = seq->kv[first].capacity_tokens > n ? seq->kv[first].capacity_tokens : (size_t)n;
        ok = regrow(&seq->scores, 0, want, 1);
        seq->scores_capacity = ok ? want : seq->scores_capacity;
    }
    if (!ok)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for keys and values of %llu tokens",
                        (unsigned long long)n);
    return PGL_OK;
}

pgl_status pgl_reference_fork(const pgl_reference *seq, pgl_reference **out, pgl_error *err) {
    const pgl_model *m = seq->model;
    pgl_reference *copy = NULL;
    pgl_status status = pgl_reference_open(m, seq->exact, &copy, err);
    *out = NULL;
    if (copy == NULL)
        return status;
    status = pgl_reference_reserve(copy, false, seq->n_tokens, err);
    if (status == PGL_OK && m->weights->draft.present)
        status = pgl_reference_reserve(copy, true, seq->n_draft_rows, err);
    if (status != PGL_OK) {
        pgl_reference_close(copy);
        return status;
    }
    copy->n_tokens = seq->n_tokens;
    copy->n_draft_rows = seq->n_draft_rows;
    memcpy(copy->state, seq->state, m->state_bytes);
    memcpy(copy->taps, seq->taps, m->conv_bytes);
    memcpy(copy->hidden, seq->hidden, m->hidden_bytes);
    for (uint32_t a = 0; a <= m->n_attention_layers; a++) {
        size_t n = (size_t)(a < m->n_attention_layers ? seq->n_tokens : seq->n_draft_rows) * m->kv_width;
        if (n > 0) {
            memcpy(copy->kv[a].keys, seq->kv[a].keys, n * sizeof(float));
            memcpy(copy->kv[a].values, seq->kv[a].values, n * sizeof(float));
        }
    }
    *out = copy;
    return PGL_OK;
}

uint64_t pgl_reference_n_tokens(const pgl_reference *seq) {
    return seq->n_tokens;
}

uint64_t pgl_reference_n_draft_rows(const pgl_reference *seq) {
    return seq->n_draft_rows;
}

void pgl_reference_rewind_draft(pgl_reference *seq, uint64_t n_rows) {
    if (n_rows < seq->n_draft_rows)
        seq->n_draft_rows = n_rows;
}

pgl_reference_state pgl_reference_get_state(const pgl_reference *seq) {
    return (pgl_reference_state){.state = seq->state, .taps = seq->taps, .hidden = seq->hidden};
}
