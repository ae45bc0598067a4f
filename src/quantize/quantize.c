/* Owns a run: source, work threads, calibration. */
#include "quantize/quantize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "quantize/quantize_files.h"

#define TRUNK_PREFIX "model.language_model."

typedef struct run {
    const pgl_quantize_options *options;
    pgl_source source;
    pgl_buf config_text;
    pgl_config config;
    pgl_quant_output top; /* the first file: embedding, head, norm, draft head */
    pgl_weights weights;
    pgl_model model;
    pgl_pool *pool;
    pgl_calibration *calibration;
    uint32_t layer;
} run;

static bool expert_done(void *user, uint32_t n_done, uint32_t n) {
    run *r = user;
    if (r->options->progress == NULL)
        return true;
    pgl_quantize_progress p = {
        .layer = r->layer, .n_layers = r->config.n_layers, .n_experts_done = n_done, .n_experts = n};
    return r->options->progress(r->options->user, &p);
}

static pgl_layer_coding coding_of(run *r, const pgl_layer_place *place, const pgl_layer_weights *views,
                                  pgl_calibration *calibration) {
    pgl_layer_coding coding = {.source = &r->source,
                               .config = &r->config,
                               .place = place,
                               .views = views,
                               .calibration = calibration,
                               .gate_up = pgl_coding_defaults(r->options->k_gate_up),
                               .down = pgl_coding_defaults(r->options->k_down),
                               .pool = r->pool,
                               .done = expert_done,
                               .user = r};
    coding.gate_up.rounds = coding.down.rounds = r->options->rounds;
    coding.gate_up.seed = coding.down.seed = r->options->seed ^ ((uint64_t)(r->layer + 1) << 32);
    return coding;
}

static pgl_status report_layer(run *r, const pgl_layer_report *report, bool skipped, pgl_error *err) {
    pgl_quantize_progress p = {.layer = r->layer,
                               .n_layers = r->config.n_layers,
                               .n_experts_done = r->config.n_experts,
                               .n_experts = r->config.n_experts,
                               .report = report,
                               .skipped = skipped};
    if (r->options->progress != NULL && !r->options->progress(r->options->user, &p))
        return pgl_fail(err, PGL_E_CANCELLED, "stopped on request");
    return PGL_OK;
}

static pgl_layer_place place_of(const run *r, uint32_t layer) {
    pgl_layer_place place = {.prefix = TRUNK_PREFIX, .full_attention = r->config.full_attention[layer]};
    snprintf(place.base, sizeof place.base, "layers.%u.", layer);
    return place;
}

static pgl_layer_place draft_place(void) {
    return (pgl_layer_place){.prefix = "", .base = "mtp.layers.0.", .full_attention = true, .draft = true};
}

/* Draft head: as published, 16-bit; with routed experts only where the source has them. */
static pgl_status add_draft(run *r, pgl_error *err) {
    const uint64_t hidden = r->config.hidden_size, fc[2] = {hidden, 2 * hidden}, one[1] = {hidden};
    if (pgl_source_find(&r->source, "mtp.fc.weight") == NULL)
        return PGL_OK;
    pgl_layer_place place = draft_place();
    pgl_status status =
        pgl_quant_output_add_plain(&r->top, &r->source, "", "mtp.fc.weight", 2, fc, false, err);
    static const char *const NORMS[] = {"mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight",
                                        "mtp.norm.weight"};
    for (size_t i = 0; i < 3 && status == PGL_OK; i++)
        status = pgl_quant_output_add_plain(&r->top, &r->source, "", NORMS[i], 1, one, false, err);
    if (status == PGL_OK)
        status = pgl_layer_add_dense(&r->top, &r->source, &r->config, &place, err);
    if (status != PGL_OK || !pgl_layer_has_experts(&r->source, &place))
        return status;
    pgl_layer_weights views;
    pgl_layer_report report;
    r->layer = r->config.n_layers;
    status =
        pgl_layer_add_experts(&r->top, &r->config, &place, r->options->k_gate_up, r->options->k_down, err);
    if (status == PGL_OK)
        status = pgl_layer_views(&r->top, &r->config, &place, &views, err);
    if (status != PGL_OK)
        return status;
    pgl_layer_coding coding = coding_of(r, &place, &views, NULL);
    status = pgl_layer_code_experts(&coding, &report, err);
    return status == PGL_OK ? report_layer(r, &report, false, err) : status;
}

static pgl_status make_top(run *r, pgl_error *err) {
    const uint64_t hidden = r->config.hidden_size, vocab = r->config.vocab_size, one[1] = {hidden};
    pgl_status status =
        pgl_quant_output_add_int8(&r->top, &r->source, TRUNK_PREFIX, "embed_tokens", vocab, hidden, err);
    if (status == PGL_OK && !r->config.tie_word_embeddings)
        status = pgl_quant_output_add_int8(&r->top, &r->source, "", "lm_head", vocab, hidden, err);
    if (status == PGL_OK)
        status =
            pgl_quant_output_add_plain(&r->top, &r->source, TRUNK_PREFIX, "norm.weight", 1, one, false, err);
    return status == PGL_OK ? add_draft(r, err) : status;
}

/* The first file, read back or made, and the embedding's view, which is all that calibration needs of it. */
static pgl_status top_file(run *r, pgl_error *err) {
    uint32_t n_files = r->config.n_layers + 1;
    char *path = pgl_quantize_path(r->options, 0, n_files);
    if (path == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a path");
    pgl_status status;
    if (pgl_fs_is_file(path)) {
        status = pgl_quant_output_read(&r->top, path, err);
    } else {
        status = make_top(r, err);
        if (status == PGL_OK)
            status = pgl_quant_output_write(&r->top, path, err);
    }
    const pgl_quant_output_tensor *w8 =
        pgl_quant_output_tensor_named(&r->top, TRUNK_PREFIX "embed_tokens.weight_int8");
    const pgl_quant_output_tensor *scale =
        pgl_quant_output_tensor_named(&r->top, TRUNK_PREFIX "embed_tokens.weight_scale");
    if (status == PGL_OK && (w8 == NULL || scale == NULL))
        status = pgl_fail(err, PGL_E_FORMAT, "%s: expected the embedding, found none", path);
    if (status == PGL_OK)
        r->weights.embed = (pgl_linear){.kind = PGL_LINEAR_INT8,
                                        .in = r->config.hidden_size,
                                        .out = r->config.vocab_size,
                                        .data = w8->data,
                                        .dtype = PGL_I8,
                                        .scale = scale->data,
                                        .scale_dtype = PGL_F16};
    free(path);
    return status;
}

static pgl_status make_layer(run *r, const pgl_layer_place *place, pgl_quant_output *output,
                             pgl_layer_weights *views, pgl_layer_report *report, pgl_error *err) {
    pgl_status status = pgl_layer_add_dense(output, &r->source, &r->config, place, err);
    if (status == PGL_OK)
        status =
            pgl_layer_add_experts(output, &r->config, place, r->options->k_gate_up, r->options->k_down, err);
    if (status == PGL_OK)
        status = pgl_layer_views(output, &r->config, place, views, err);
    if (status == PGL_OK && r->calibration != NULL)
        status = pgl_calibration_mix(r->calibration, r->layer, views, err);
    if (status != PGL_OK)
        return status;
    pgl_layer_coding coding = coding_of(r, place, views, r->calibration);
    return pgl_layer_code_experts(&coding, report, err);
}

static pgl_status layer_file(run *r, pgl_error *err) {
    char *path = pgl_quantize_path(r->options, r->layer + 1, r->config.n_layers + 1);
    if (path == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a path");
    pgl_layer_place place = place_of(r, r->layer);
    pgl_quant_output output = {0};
    pgl_layer_weights views;
    pgl_layer_report report;
    bool there = pgl_fs_is_file(path);
    pgl_status status = PGL_OK;
    if (!there) {
        status = make_layer(r, &place, &output, &views, &report, err);
        if (status == PGL_OK)
            status = pgl_quant_output_write(&output, path, err);
    } else if (r->calibration != NULL) {
        status = pgl_quant_output_read(&output, path, err);
        if (status == PGL_OK)
            status = pgl_layer_views(&output, &r->config, &place, &views, err);
        if (status == PGL_OK)
            status = pgl_calibration_mix(r->calibration, r->layer, &views, err);
    }
    if (status == PGL_OK && r->calibration != NULL)
        status = pgl_calibration_finish(r->calibration, r->layer, &views, err);
    if (status == PGL_OK)
        status = report_layer(r, there ? NULL : &report, there, err);
    pgl_quant_output_fini(&output);
    free(path);
    return status;
}

static pgl_status check_options(const pgl_quantize_options *options, pgl_error *err) {
    if (options->k_gate_up < 1 || options->k_gate_up > 8 || options->k_down < 1 || options->k_down > 8)
        return pgl_fail(err, PGL_E_INVALID,
                        "expected 1 to 8 bits a weight, found %u for gate_up and %u for down",
                        options->k_gate_up, options->k_down);
    if (options->rounds < 1 || options->rounds > 64)
        return pgl_fail(err, PGL_E_INVALID, "expected 1 to 64 rounds of the search, found %u",
                        options->rounds);
    return PGL_OK;
}

/* Everything that can be refused is, before the output directory is touched. */
static pgl_status prepare(run *r, pgl_error *err) {
    const pgl_quantize_options *o = r->options;
    pgl_status status = pgl_quantize_config(o, &r->config_text, &r->config, err);
    if (status == PGL_OK)
        status = pgl_source_open(o->in, false, &r->source, err);
    for (uint32_t l = 0; l < r->config.n_layers && status == PGL_OK; l++) {
        pgl_layer_place place = place_of(r, l);
        if (!pgl_layer_has_experts(&r->source, &place))
            status = pgl_fail(err, PGL_E_FORMAT,
                              "%s: expected %smlp.experts.gate_up_proj or per-expert weights, found neither",
                              o->in, place.base);
    }
    pgl_pool_options pool = {.n_threads = o->n_threads};
    if (status == PGL_OK)
        status = pgl_pool_open(&pool, &r->pool, err);
    return status == PGL_OK ? pgl_quantize_begin(o, err) : status;
}

/* Sizes alone: the layers' weights are given to calibration one at a time. */
static pgl_status open_calibration(run *r, pgl_error *err) {
    const pgl_quantize_options *o = r->options;
    if (o->calibration == NULL)
        return PGL_OK;
    pgl_status status = pgl_model_sizes(&r->model, &r->config, &r->weights, err);
    if (status != PGL_OK)
        return status;
    return pgl_calibration_open(&r->model, o->calibration, o->n_calibration, o->sequence_tokens,
                                &r->calibration, err);
}

static pgl_status open_run(const pgl_quantize_options *options, run **out, pgl_error *err) {
    pgl_status status = check_options(options, err);
    if (status != PGL_OK)
        return status;
    *out = pgl_new(1, sizeof **out);
    if (*out == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a run");
    (*out)->options = options;
    return PGL_OK;
}

static void close_run(run *r) {
    pgl_calibration_close(r->calibration);
    pgl_pool_close(r->pool);
    pgl_quant_output_fini(&r->top);
    pgl_source_close(&r->source);
    pgl_buf_fini(&r->config_text);
    free(r);
}

/* Everything that can be refused is, before the output directory is touched. */
static pgl_status prepare_draft(run *r, char **path, pgl_error *err) {
    const pgl_quantize_options *o = r->options;
    pgl_layer_place place = draft_place();
    if (o->calibration != NULL)
        return pgl_fail(
            err, PGL_E_UNSUPPORTED,
            "a draft head alone is coded without calibration: the text would have to run through the "
            "model before it");
    pgl_status status = pgl_quantize_config(o, &r->config_text, &r->config, err);
    if (status == PGL_OK)
        status = pgl_source_open(o->in, true, &r->source, err);
    if (status == PGL_OK && pgl_source_find(&r->source, "mtp.fc.weight") == NULL)
        status = pgl_fail(err, PGL_E_FORMAT, "%s: expected a draft head (mtp.fc.weight), found none", o->in);
    if (status == PGL_OK && !pgl_layer_has_experts(&r->source, &place))
        status = pgl_fail(err, PGL_E_FORMAT,
                          "%s: expected %smlp.experts.gate_up_proj or per-expert weights, found neither",
                          o->in, place.base);
    pgl_pool_options pool = {.n_threads = o->n_threads};
    if (status == PGL_OK)
        status = pgl_pool_open(&pool, &r->pool, err);
    return status == PGL_OK ? pgl_quantize_begin_draft(o, &r->config, path, err) : status;
}

pgl_status pgl_quantize_draft(const pgl_quantize_options *options, pgl_error *err) {
    run *r = NULL;
    char *path = NULL;
    pgl_status status = open_run(options, &r, err);
    if (status != PGL_OK)
        return status;
    status = prepare_draft(r, &path, err);
    if (status == PGL_OK)
        status = add_draft(r, err);
    if (status == PGL_OK)
        status = pgl_quant_output_write(&r->top, path, err);
    free(path);
    close_run(r);
    return status;
}

pgl_status pgl_quantize(const pgl_quantize_options *options, pgl_error *err) {
    run *r = NULL;
    pgl_status status = open_run(options, &r, err);
    if (status != PGL_OK)
        return status;
    status = prepare(r, err);
    if (status == PGL_OK)
        status = top_file(r, err);
    if (status == PGL_OK)
        status = open_calibration(r, err);
    for (r->layer = 0; r->layer < r->config.n_layers && status == PGL_OK; r->layer++)
        status = layer_file(r, err);
    if (status == PGL_OK)
        status = pgl_quantize_end(options, &r->config_text, r->config.n_layers + 1, err);
    close_run(r);
    return status;
}
