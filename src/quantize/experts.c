/* Owns the work space of the threads that code a layer's experts. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "quantize/layer.h"

/* One thread's coders and matrices. */
typedef struct bench {
    pgl_coder *gate_up, *down;
    float *w, *scratch;
    double *moments;
} bench;

typedef struct job {
    const pgl_layer_coding *coding;
    bench *benches;
    pgl_coding_report *reports; /* [experts][2] */
    uint64_t *rows;             /* [experts] */
    pthread_mutex_t lock;       /* guards what follows */
    uint32_t n_done;
    pgl_status status;
    pgl_error error;
} job;

bool pgl_layer_has_experts(const pgl_source *source, const pgl_layer_place *place) {
    char name[160];
    snprintf(name, sizeof name, "%smlp.experts.gate_up_proj", place->base);
    if (pgl_source_find(source, name) != NULL)
        return true;
    snprintf(name, sizeof name, "%smlp.experts.0.gate_proj.weight", place->base);
    return pgl_source_find(source, name) != NULL;
}

/* w[in][out at column..] = transposed rows [out][in] of a tensor from element first on. */
static void read_transposed(const pgl_tensor *t, uint64_t first, uint32_t in, uint32_t rows, uint32_t out,
                            uint32_t column, float *w) {
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < in; i++)
            w[(size_t)i * out + column + r] =
                pgl_read_f32(t->data, t->entry->dtype, first + (uint64_t)r * in + i);
}

/* Expert e's [in][out] matrix from `fused` [experts, out, in], or from per-expert parts side by side. */
static pgl_status read_expert(const pgl_layer_coding *c, const char *fused, const char *const *parts,
                              size_t n_parts, uint32_t e, uint32_t in, uint32_t out, float *w,
                              pgl_error *err) {
    char name[160];
    const pgl_tensor *t;
    snprintf(name, sizeof name, "%smlp.experts.%s", c->place->base, fused);
    if (pgl_source_find(c->source, name) != NULL) {
        const uint64_t dims[3] = {c->config->n_experts, out, in};
        pgl_status status = pgl_source_get(c->source, name, 3, dims, &t, err);
        if (status == PGL_OK)
            read_transposed(t, (uint64_t)e * out * in, in, out, out, 0, w);
        return status;
    }
    uint32_t each = out / (uint32_t)n_parts;
    for (size_t p = 0; p < n_parts; p++) {
        const uint64_t dims[2] = {each, in};
        snprintf(name, sizeof name, "%smlp.experts.%u.%s.weight", c->place->base, e, parts[p]);
        pgl_status status = pgl_source_get(c->source, name, 2, dims, &t, err);
        if (status != PGL_OK)
            return status;
        read_transposed(t, 0, in, each, out, (uint32_t)p * each, w);
    }
    return PGL_OK;
}

static pgl_coding_result place_of(const pgl_coded *coded, uint32_t e) {
    /* The views point into the output's own tensors, which this job fills. */
    unsigned char *code = (unsigned char *)(uintptr_t)coded->code;
    pgl_f16 *rin = (pgl_f16 *)(uintptr_t)coded->rin, *rout = (pgl_f16 *)(uintptr_t)coded->rout;
    return (pgl_coding_result){code + (size_t)e * coded->in * coded->out / 8 * coded->k,
                               rin + (size_t)e * coded->in, rout + (size_t)e * coded->out};
}

static pgl_status code_expert(job *j, bench *b, uint32_t e, pgl_error *err) {
    static const char *const UP[] = {"gate_proj", "up_proj"}, *const DOWN[] = {"down_proj"};
    const pgl_layer_coding *c = j->coding;
    const pgl_moe_weights *moe = &c->views->moe;
    uint32_t hidden = c->config->hidden_size, inter = c->config->moe_intermediate_size;
    pgl_coding_options up = c->gate_up, down = c->down;
    up.seed += 2 * (uint64_t)e;
    down.seed += 2 * (uint64_t)e + 1;
    pgl_coding_target target = {.w = b->w, .in = hidden, .out = 2 * inter};
    pgl_status status = read_expert(c, "gate_up_proj", UP, 2, e, hidden, 2 * inter, b->w, err);
    if (status == PGL_OK && c->calibration != NULL) {
        j->rows[e] = pgl_calibration_moments_gate_up(c->calibration, e, b->moments);
        target.moments = b->moments;
    }
    pgl_coding_result result = place_of(&moe->gate_up, e);
    if (status == PGL_OK)
        status = pgl_code_matrix(b->gate_up, &up, &target, &result, &j->reports[2 * (size_t)e], err);
    if (status != PGL_OK) {
        pgl_error_prefix(err, "%smlp.experts.gate_up_proj: expert %u", c->place->base, e);
        return status;
    }
    target = (pgl_coding_target){.w = b->w, .in = inter, .out = hidden};
    status = read_expert(c, "down_proj", DOWN, 1, e, inter, hidden, b->w, err);
    if (status == PGL_OK && c->calibration != NULL) {
        pgl_calibration_moments_down(c->calibration, e, &moe->gate_up, b->moments, b->scratch);
        target.moments = b->moments;
    }
    result = place_of(&moe->down, e);
    if (status == PGL_OK)
        status = pgl_code_matrix(b->down, &down, &target, &result, &j->reports[2 * (size_t)e + 1], err);
    if (status != PGL_OK)
        pgl_error_prefix(err, "%smlp.experts.down_proj: expert %u", c->place->base, e);
    return status;
}

static void code_task(void *arg, uint32_t task, uint32_t thread) {
    job *j = arg;
    pthread_mutex_lock(&j->lock);
    bool failed = j->status != PGL_OK;
    pthread_mutex_unlock(&j->lock);
    if (failed)
        return;
    pgl_error error;
    pgl_status status = code_expert(j, &j->benches[thread], task, &error);
    pthread_mutex_lock(&j->lock);
    j->n_done++;
    if (status != PGL_OK && j->status == PGL_OK) {
        j->status = status;
        j->error = error;
    }
    if (j->status == PGL_OK && j->coding->done != NULL &&
        !j->coding->done(j->coding->user, j->n_done, j->coding->config->n_experts))
        j->status = pgl_fail(&j->error, PGL_E_CANCELLED, "stopped on request");
    pthread_mutex_unlock(&j->lock);
}

static pgl_status open_bench(const pgl_layer_coding *c, bench *b, pgl_error *err) {
    uint32_t hidden = c->config->hidden_size, inter = c->config->moe_intermediate_size;
    uint32_t widest = hidden > inter ? hidden : inter;
    pgl_status status = pgl_coder_open(c->gate_up.k, c->gate_up.rounds, hidden, 2 * inter, &b->gate_up, err);
    if (status == PGL_OK)
        status = pgl_coder_open(c->down.k, c->down.rounds, inter, hidden, &b->down, err);
    if (status != PGL_OK)
        return status;
    b->w = pgl_new_aligned((size_t)2 * hidden * inter, sizeof *b->w);
    b->moments = pgl_new_aligned((size_t)widest * widest, sizeof *b->moments);
    b->scratch = c->calibration == NULL
                     ? NULL
                     : pgl_new_aligned(pgl_calibration_scratch(c->calibration), sizeof *b->scratch);
    if (b->w == NULL || b->moments == NULL || (b->scratch == NULL && c->calibration != NULL))
        return pgl_fail(err, PGL_E_MEMORY, "no memory to code experts of %u x %u", hidden, inter);
    return PGL_OK;
}

static void close_benches(bench *benches, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        pgl_coder_close(benches[i].gate_up);
        pgl_coder_close(benches[i].down);
        free(benches[i].w);
        free(benches[i].moments);
        free(benches[i].scratch);
    }
    free(benches);
}

pgl_status pgl_layer_code_experts(const pgl_layer_coding *coding, pgl_layer_report *report, pgl_error *err) {
    uint32_t n_threads = pgl_pool_n_threads(coding->pool), n = coding->config->n_experts;
    job j = {.coding = coding, .status = PGL_OK};
    j.benches = pgl_new(n_threads, sizeof *j.benches);
    j.reports = pgl_new((size_t)n * 2, sizeof *j.reports);
    j.rows = pgl_new(n, sizeof *j.rows);
    pgl_status status = PGL_OK;
    if (j.benches == NULL || j.reports == NULL || j.rows == NULL)
        status = pgl_fail(err, PGL_E_MEMORY, "no memory to code %u experts", n);
    for (uint32_t i = 0; i < n_threads && status == PGL_OK; i++)
        status = open_bench(coding, &j.benches[i], err);
    if (status == PGL_OK && pthread_mutex_init(&j.lock, NULL) != 0)
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for a lock");
    if (status == PGL_OK) {
        pgl_pool_run_dynamic(coding->pool, code_task, &j, n);
        pthread_mutex_destroy(&j.lock);
        status = j.status;
        if (status != PGL_OK && err != NULL)
            *err = j.error;
    }
    if (status == PGL_OK) {
        *report = (pgl_layer_report){.fewest_rows = UINT64_MAX};
        for (uint32_t e = 0; e < n; e++) {
            report->gate_up_weight_error += j.reports[2 * (size_t)e].weight_error / n;
            report->gate_up_output_error += j.reports[2 * (size_t)e].output_error / n;
            report->down_weight_error += j.reports[2 * (size_t)e + 1].weight_error / n;
            report->down_output_error += j.reports[2 * (size_t)e + 1].output_error / n;
            report->fewest_rows = j.rows[e] < report->fewest_rows ? j.rows[e] : report->fewest_rows;
        }
    }
    if (j.benches != NULL)
        close_benches(j.benches, n_threads);
    free(j.reports);
    free(j.rows);
    return status;
}
