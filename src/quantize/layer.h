/* One decoder layer from the source to the coded layout: its tensors, its typed views, and its experts' codes. */
#ifndef PGL_QUANTIZE_LAYER_H
#define PGL_QUANTIZE_LAYER_H

#include "base/pool.h"
#include "model/model.h"
#include "quantize/calibrate.h"
#include "quantize/coding.h"
#include "quantize/output.h"

/* Where a layer is found and put: "layers.3." of the source becomes "model.language_model.layers.3.", "mtp.layers.0."
 * stays. */
typedef struct pgl_layer_place {
    const char *prefix; /* put in front of base in the output */
    char base[64];      /* with the dot */
    bool full_attention;
    bool draft; /* dense layers stay 16-bit, as published */
} pgl_layer_place;

/* Everything of the layer but its routed experts. */
pgl_status pgl_layer_add_dense(pgl_quant_output *output, const pgl_source *source, const pgl_config *config,
                               const pgl_layer_place *place, pgl_error *err);

/* Empty tensors for the experts' leaves. */
pgl_status pgl_layer_add_experts(pgl_quant_output *output, const pgl_config *config,
                                 const pgl_layer_place *place, uint32_t k_gate_up, uint32_t k_down,
                                 pgl_error *err);

/* Typed views of an output that holds the layer; the routed experts' are empty where the output has none. */
pgl_status pgl_layer_views(const pgl_quant_output *output, const pgl_config *config,
                           const pgl_layer_place *place, pgl_layer_weights *out, pgl_error *err);

/* True when the source has routed experts for the layer, in either of the two layouts (docs/format.md). */
bool pgl_layer_has_experts(const pgl_source *source, const pgl_layer_place *place);

typedef struct pgl_layer_coding {
    const pgl_source *source;
    const pgl_config *config;
    const pgl_layer_place *place;
    const pgl_layer_weights *views; /* with the experts' leaves, which are filled */
    pgl_calibration *calibration;   /* mixed for this layer; NULL: plain least squares */
    pgl_coding_options gate_up, down;
    pgl_pool *pool;
    bool (*done)(void *user, uint32_t n_done,
                 uint32_t n); /* after each expert; one call at a time; false: stop */
    void *user;
} pgl_layer_coding;

typedef struct pgl_layer_report {
    double gate_up_weight_error, gate_up_output_error, down_weight_error,
        down_output_error; /* means over experts */
    uint64_t fewest_rows;  /* calibration tokens of the expert that saw least */
} pgl_layer_report;

/* Codes all experts; the result does not depend on the number of threads. */
pgl_status pgl_layer_code_experts(const pgl_layer_coding *coding, pgl_layer_report *report, pgl_error *err);

#endif
