/* Owns the residual, the experts' input and the routes of all calibration tokens, and one reference sequence whose
 * state is started anew for every sequence and layer. */
#include "quantize/calibrate.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/linear.h"
#include "model/ops.h"
#include "model/reference_impl.h"
#include "quantize/hessian.h"

/* Rows' worth of the layer's mean moments that every expert starts from: an expert that saw little text is not coded
 * for a few rows alone. */
#define PRIOR_ROWS 64.0
/* Rows that share the decoding of an expert's tiles, which costs as much as the products of many rows. */
#define BATCH_ROWS 64u

struct pgl_calibration {
    const pgl_model *model;
    pgl_reference *seq;
    size_t n;
    uint32_t sequence_tokens;
    float *x;         /* [n][hidden] residual */
    float *h;         /* [n][hidden] input of the experts of the layer at hand */
    int32_t *experts; /* [n][used] */
    float *weights;   /* [n][used] */
    double *mean;     /* [hidden][hidden]: moments of h over all tokens, per token */
};

pgl_status pgl_calibration_open(const pgl_model *model, const int32_t *tokens, size_t n,
                                uint32_t sequence_tokens, pgl_calibration **out, pgl_error *err) {
    *out = NULL;
    const pgl_config *config = model->config;
    if (n == 0 || sequence_tokens == 0)
        return pgl_fail(err, PGL_E_INVALID, "calibration: expected at least one token, found none");
    if (sequence_tokens > config->max_position_embeddings)
        return pgl_fail(err, PGL_E_INVALID, "calibration: expected sequences of at most %u tokens, found %u",
                        config->max_position_embeddings, sequence_tokens);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= config->vocab_size)
            return pgl_fail(err, PGL_E_INVALID, "calibration: token %zu: expected an id below %u, found %d",
                            i, config->vocab_size, tokens[i]);
    pgl_calibration *c = pgl_new(1, sizeof *c);
    if (c == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for calibration");
    size_t hidden = config->hidden_size, used = model->n_used, count;
    *c = (pgl_calibration){.model = model, .n = n, .sequence_tokens = sequence_tokens};
    pgl_status status = pgl_reference_open(model, false, &c->seq, err);
    if (status == PGL_OK)
        status = pgl_reference_reserve(c->seq, false, sequence_tokens, err);
    if (status == PGL_OK && pgl_mul_size(n, hidden > used ? hidden : used, &count)) {
        c->x = pgl_new_aligned(n * hidden, sizeof *c->x);
        c->h = pgl_new_aligned(n * hidden, sizeof *c->h);
        c->experts = pgl_new(n * used, sizeof *c->experts);
        c->weights = pgl_new(n * used, sizeof *c->weights);
        c->mean = pgl_new_aligned(hidden * hidden, sizeof *c->mean);
    }
    if (status == PGL_OK &&
        (c->x == NULL || c->h == NULL || c->experts == NULL || c->weights == NULL || c->mean == NULL))
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for calibration on %zu tokens", n);
    if (status != PGL_OK) {
        pgl_calibration_close(c);
        return status;
    }
    for (size_t i = 0; i < n; i++)
        pgl_linear_row(&model->weights->embed, (uint32_t)tokens[i], c->x + i * hidden);
    *out = c;
    return PGL_OK;
}

void pgl_calibration_close(pgl_calibration *calibration) {
    if (calibration == NULL)
        return;
    pgl_reference_close(calibration->seq);
    free(calibration->x);
    free(calibration->h);
    free(calibration->experts);
    free(calibration->weights);
    free(calibration->mean);
    free(calibration);
}

/* Walks the tokens in chunks that do not cross sequences. */
typedef struct walk {
    size_t first;
    uint32_t n;
    uint64_t position;
} walk;

static bool walk_next(const pgl_calibration *c, walk *w) {
    w->first += w->n;
    if (w->first >= c->n)
        return false;
    w->position = w->first % c->sequence_tokens;
    size_t left = c->n - w->first, in_sequence = c->sequence_tokens - (size_t)w->position;
    size_t n = left < in_sequence ? left : in_sequence;
    w->n = (uint32_t)(n < PGL_REFERENCE_CHUNK ? n : PGL_REFERENCE_CHUNK);
    return true;
}

pgl_status pgl_calibration_mix(pgl_calibration *calibration, uint32_t layer, const pgl_layer_weights *weights,
                               pgl_error *err) {
    pgl_calibration *c = calibration;
    const pgl_model *m = c->model;
    size_t hidden = m->config->hidden_size, used = m->n_used;
    pgl_reference_work *work = &c->seq->work;
    for (walk w = {0}; walk_next(c, &w);) {
        if (w.position == 0) {
            memset(c->seq->state, 0, m->state_bytes);
            memset(c->seq->taps, 0, m->conv_bytes);
        }
        memcpy(work->x, c->x + w.first * hidden, w.n * hidden * sizeof *work->x);
        pgl_reference_layer at = {weights, m->layer_slot[layer], w.position, w.n};
        pgl_reference_mix(c->seq, &at);
        memcpy(c->x + w.first * hidden, work->x, w.n * hidden * sizeof *work->x);
        memcpy(c->h + w.first * hidden, work->h, w.n * hidden * sizeof *work->h);
        if (used > 0) {
            pgl_reference_route(c->seq, &weights->moe, w.n);
            memcpy(c->experts + w.first * used, work->experts, w.n * used * sizeof *c->experts);
            memcpy(c->weights + w.first * used, work->route_weight, w.n * used * sizeof *c->weights);
        }
    }
    memset(c->mean, 0, hidden * hidden * sizeof *c->mean);
    pgl_hessian_add(c->mean, (uint32_t)hidden, c->h, (uint32_t)c->n);
    for (size_t i = 0; i < hidden * hidden; i++)
        c->mean[i] /= (double)c->n;
    for (size_t i = 0; i < hidden; i++)
        if (!(c->mean[i * hidden + i] >= 0) || c->mean[i * hidden + i] > 1e30)
            return pgl_fail(err, PGL_E_NUMERIC,
                            "calibration: layer %u: channel %zu of the experts' input is not finite", layer,
                            i);
    return PGL_OK;
}

/* The next token from *i on that chose the expert; its routing weight. */
static bool next_row(const pgl_calibration *c, uint32_t expert, size_t *i, float *weight) {
    size_t used = c->model->n_used;
    for (; *i < c->n; (*i)++) {
        for (size_t s = 0; s < used; s++) {
            if (c->experts[*i * used + s] == (int32_t)expert) {
                *weight = c->weights[*i * used + s];
                return true;
            }
        }
    }
    return false;
}

uint64_t pgl_calibration_moments_gate_up(const pgl_calibration *calibration, uint32_t expert,
                                         double *moments) {
    const pgl_calibration *c = calibration;
    uint32_t hidden = c->model->config->hidden_size;
    double share = 1.0 / c->model->n_used; /* a typical routing weight, for the prior */
    for (size_t i = 0; i < (size_t)hidden * hidden; i++)
        moments[i] = c->mean[i] * PRIOR_ROWS * share * share;
    uint64_t seen = 0;
    float weight;
    for (size_t i = 0; next_row(c, expert, &i, &weight); i++, seen++) {
        const float *h = c->h + i * hidden;
        double w2 = (double)weight * (double)weight;
        for (uint32_t a = 0; a < hidden; a++) {
            double ha = w2 * (double)h[a];
            for (uint32_t b = 0; b <= a; b++)
                moments[(size_t)a * hidden + b] += ha * (double)h[b];
        }
    }
    pgl_hessian_mirror(moments, hidden);
    return seen;
}

size_t pgl_calibration_scratch(const pgl_calibration *calibration) {
    const pgl_config *config = calibration->model->config;
    size_t hidden = config->hidden_size;
    return pgl_rows_scratch(config->hidden_size, BATCH_ROWS) +
           BATCH_ROWS * (hidden + 3 * (size_t)config->moe_intermediate_size);
}

/* The activations of n rows of one expert, each times its routing weight, added to the moments. */
static void add_batch(const pgl_coded *gate_up, uint32_t expert, const pgl_rows *rows, const float *weights,
                      float *act, double *moments) {
    uint32_t inter = gate_up->out / 2;
    pgl_coded_forward(gate_up, expert, rows);
    for (uint32_t r = 0; r < rows->n; r++) {
        const float *y = rows->y + (size_t)r * 2 * inter;
        float *a = act + (size_t)r * inter;
        pgl_swiglu_coded(y, y + inter, inter, false, a);
        for (uint32_t i = 0; i < inter; i++)
            a[i] *= weights[r];
    }
    pgl_hessian_add(moments, inter, act, rows->n);
}

uint64_t pgl_calibration_moments_down(const pgl_calibration *calibration, uint32_t expert,
                                      const pgl_coded *gate_up, double *moments, float *scratch) {
    const pgl_calibration *c = calibration;
    size_t hidden = c->model->config->hidden_size;
    uint32_t inter = c->model->config->moe_intermediate_size;
    float *x = scratch, *y = x + BATCH_ROWS * hidden, *act = y + BATCH_ROWS * 2 * (size_t)inter;
    float weights[BATCH_ROWS];
    pgl_rows rows = {.x = x, .y = y, .exact = false, .scratch = act + BATCH_ROWS * (size_t)inter};
    memset(moments, 0, (size_t)inter * inter * sizeof *moments);
    uint64_t seen = 0;
    for (size_t i = 0; next_row(c, expert, &i, &weights[rows.n]); i++, seen++) {
        memcpy(x + rows.n * hidden, c->h + i * hidden, hidden * sizeof *x);
        if (++rows.n == BATCH_ROWS) {
            add_batch(gate_up, expert, &rows, weights, act, moments);
            rows.n = 0;
        }
    }
    add_batch(gate_up, expert, &rows, weights, act, moments);
    /* Directions that no row has shown count as the mean of those that were, by a weight that falls with their number. */
    double mean = 0;
    for (uint32_t a = 0; a < inter; a++)
        mean += moments[(size_t)a * inter + a] / inter;
    double prior = seen == 0 ? 1 : mean * PRIOR_ROWS / (PRIOR_ROWS + (double)seen) + 1e-12;
    for (uint32_t a = 0; a < inter; a++)
        moments[(size_t)a * inter + a] += prior;
    pgl_hessian_mirror(moments, inter);
    return seen;
}

pgl_status pgl_calibration_finish(pgl_calibration *calibration, uint32_t layer,
                                  const pgl_layer_weights *weights, pgl_error *err) {
    pgl_calibration *c = calibration;
    size_t hidden = c->model->config->hidden_size;
    pgl_reference_work *work = &c->seq->work;
    for (walk w = {0}; walk_next(c, &w);) {
        memcpy(work->x, c->x + w.first * hidden, w.n * hidden * sizeof *work->x);
        memcpy(work->h, c->h + w.first * hidden, w.n * hidden * sizeof *work->h);
        pgl_reference_layer at = {weights, c->model->layer_slot[layer], w.position, w.n};
        pgl_reference_mlp(c->seq, &at);
        memcpy(c->x + w.first * hidden, work->x, w.n * hidden * sizeof *work->x);
    }
    for (size_t i = 0; i < c->n * hidden; i++)
        if (!(c->x[i] >= -1e30F && c->x[i] <= 1e30F))
            return pgl_fail(err, PGL_E_NUMERIC,
                            "calibration: layer %u: the residual of token %zu is not finite", layer,
                            i / hidden);
    return PGL_OK;
}
