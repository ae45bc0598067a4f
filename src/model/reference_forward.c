/* Owns nothing: the trunk and the draft head of a reference sequence, from tokens to logits. */
#include <math.h>
#include <string.h>

#include "model/linear.h"
#include "model/ops.h"
#include "model/reference_impl.h"

static pgl_status check_tokens(const pgl_config *config, const int32_t *tokens, size_t n, pgl_error *err) {
    if (n == 0)
        return pgl_fail(err, PGL_E_INVALID, "expected at least one token, found none");
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= config->vocab_size)
            return pgl_fail(err, PGL_E_INVALID, "token %zu: expected an id from 0 to %u, found %d", i,
                            config->vocab_size - 1, tokens[i]);
    }
    return PGL_OK;
}

static pgl_status check_length(const pgl_config *config, uint64_t before, size_t n, pgl_error *err) {
    uint64_t limit = config->max_position_embeddings;
    if (before > limit || n > limit - before)
        return pgl_fail(err, PGL_E_CONTEXT, "%zu tokens after %llu: the model's limit is %llu", n,
                        (unsigned long long)before, (unsigned long long)limit);
    return PGL_OK;
}

static bool all_finite(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return false;
    }
    return true;
}

static void head_rows(pgl_reference *seq, const float *h, float *logits, uint32_t n) {
    pgl_rows rows = {.x = h, .y = logits, .n = n, .exact = seq->exact, .scratch = seq->work.linear};
    pgl_linear_forward(&seq->model->weights->head, &rows);
}

/* Where a chunk stands among the rows of its call. */
typedef struct chunk {
    size_t first, total;
    uint32_t n;
} chunk;

static void put_rows(float *array, const chunk *c, size_t plane, size_t width, const float *rows) {
    if (array != NULL)
        memcpy(array + (plane * c->total + c->first) * width, rows, c->n * width * sizeof *array);
}

/* The chunk's logits and last hidden state, from work.x. */
static void finish_chunk(pgl_reference *seq, const chunk *c, pgl_reference_outputs *out) {
    const pgl_config *config = seq->model->config;
    size_t hidden = config->hidden_size, vocab = config->vocab_size;
    put_rows(out->residual, c, 0, hidden, seq->work.x);
    pgl_reference_norm_rows(seq, &seq->model->weights->norm, c->n);
    put_rows(out->hidden, c, config->n_layers, hidden, seq->work.h);
    const float *last = seq->work.h + (c->n - 1) * hidden;
    memcpy(seq->hidden, last, hidden * sizeof *last);
    out->non_finite = out->non_finite || !all_finite(seq->work.x, c->n * hidden);
    if (out->logits != NULL) {
        float *logits = out->logits + c->first * vocab;
        head_rows(seq, seq->work.h, logits, c->n);
        out->non_finite = out->non_finite || !all_finite(logits, c->n * vocab);
    }
    if (out->last_logits != NULL && c->first + c->n == c->total) {
        head_rows(seq, last, out->last_logits, 1);
        out->non_finite = out->non_finite || !all_finite(out->last_logits, vocab);
    }
}

static void trunk_chunk(pgl_reference *seq, const int32_t *tokens, const chunk *c,
                        pgl_reference_outputs *out) {
    const pgl_model *m = seq->model;
    size_t hidden = m->config->hidden_size, used = m->n_used;
    for (uint32_t row = 0; row < c->n; row++)
        pgl_linear_row(&m->weights->embed, (uint32_t)tokens[row], seq->work.x + row * hidden);
    put_rows(out->hidden, c, 0, hidden, seq->work.x);
    for (uint32_t l = 0; l < m->config->n_layers; l++) {
        pgl_reference_layer layer = {&m->weights->layers[l], m->layer_slot[l], seq->n_tokens, c->n};
        pgl_reference_layer_forward(seq, &layer);
        if (l + 1 < m->config->n_layers)
            put_rows(out->hidden, c, l + 1, hidden, seq->work.x);
        if (out->experts != NULL && used > 0)
            memcpy(out->experts + (l * c->total + c->first) * used, seq->work.experts,
                   c->n * used * sizeof *out->experts);
    }
    finish_chunk(seq, c, out);
    seq->n_tokens += c->n;
}

static uint32_t chunk_size(size_t left) {
    return left < PGL_REFERENCE_CHUNK ? (uint32_t)left : PGL_REFERENCE_CHUNK;
}

pgl_status pgl_reference_forward(pgl_reference *seq, const int32_t *tokens, size_t n,
                                 pgl_reference_outputs *outputs, pgl_error *err) {
    const pgl_config *config = seq->model->config;
    pgl_reference_outputs none = {0};
    pgl_reference_outputs *out = outputs != NULL ? outputs : &none;
    pgl_status status = check_tokens(config, tokens, n, err);
    if (status == PGL_OK)
        status = check_length(config, seq->n_tokens, n, err);
    if (status == PGL_OK)
        status = pgl_reference_reserve(seq, false, seq->n_tokens + n, err);
    if (status != PGL_OK)
        return status;
    out->non_finite = false;
    for (size_t first = 0; first < n;) {
        chunk c = {first, n, chunk_size(n - first)};
        trunk_chunk(seq, tokens + first, &c, out);
        first += c.n;
    }
    return PGL_OK;
}

/* work.x = fc(norm(embedding of the token) | norm(hidden)) */
static void draft_input(pgl_reference *seq, const pgl_reference_draft_rows *rows, const chunk *c) {
    const pgl_draft_weights *draft = &seq->model->weights->draft;
    size_t hidden = seq->model->config->hidden_size;
    float eps = seq->model->config->rms_norm_eps;
    for (uint32_t row = 0; row < c->n; row++) {
        float *pair = seq->work.pair + row * 2 * hidden;
        pgl_linear_row(&seq->model->weights->embed, (uint32_t)rows->tokens[c->first + row], pair);
        pgl_norm(pair, &draft->pre_fc_norm_embedding, eps, (uint32_t)hidden, pair);
        pgl_norm(rows->hidden + (c->first + row) * hidden, &draft->pre_fc_norm_hidden, eps, (uint32_t)hidden,
                 pair + hidden);
    }
    pgl_rows fc = {seq->work.pair, seq->work.x, c->n, seq->exact, seq->work.linear};
    pgl_linear_forward(&draft->fc, &fc);
}

pgl_status pgl_reference_draft(pgl_reference *seq, const pgl_reference_draft_rows *rows, pgl_error *err) {
    const pgl_model *m = seq->model;
    const pgl_draft_weights *draft = &m->weights->draft;
    size_t hidden = m->config->hidden_size, vocab = m->config->vocab_size;
    if (!draft->present)
        return pgl_fail(err, PGL_E_UNSUPPORTED, "this checkpoint has no draft head (no mtp.* tensors)");
    pgl_status status = check_tokens(m->config, rows->tokens, rows->n, err);
    if (status == PGL_OK)
        status = check_length(m->config, seq->n_draft_rows, rows->n, err);
    if (status == PGL_OK)
        status = pgl_reference_reserve(seq, true, seq->n_draft_rows + rows->n, err);
    if (status != PGL_OK)
        return status;
    for (size_t first = 0; first < rows->n;) {
        chunk c = {first, rows->n, chunk_size(rows->n - first)};
        draft_input(seq, rows, &c);
        pgl_reference_layer layer = {&draft->layer, m->n_attention_layers, seq->n_draft_rows, c.n};
        pgl_reference_layer_forward(seq, &layer);
        put_rows(rows->out_residual, &c, 0, hidden, seq->work.x);
        pgl_reference_norm_rows(seq, &draft->norm, c.n);
        put_rows(rows->out_hidden, &c, 0, hidden, seq->work.h);
        if (rows->logits != NULL)
            head_rows(seq, seq->work.h, rows->logits + first * vocab, c.n);
        seq->n_draft_rows += c.n;
        first += c.n;
    }
    return PGL_OK;
}
