/* Calibration: the program's own scalar forward pass, run one layer at a time over text, gathers what every expert
 * sees. Each layer is coded before the next one is calibrated, so that later layers make up for the error of earlier
 * ones.
 *
 *   open with the tokens -> for each layer: mix (everything before the experts), moments of gate_up for the experts,
 *   [gate_up is coded], moments of down, [down is coded], finish (the experts' output joins the residual)
 *
 * The residual of all tokens is kept (tokens * hidden f32); weights of one layer at a time. One thread calls, but
 * pgl_calibration_moments_* may be called for different experts by different threads at once. */
#ifndef PGL_QUANTIZE_CALIBRATE_H
#define PGL_QUANTIZE_CALIBRATE_H

#include <stdint.h>

#include "model/model.h"

typedef struct pgl_calibration pgl_calibration;

/* tokens [n] are cut into sequences of at most sequence_tokens. model supplies the sizes and the embedding; its layers'
 * weights are given later, one at a time. Borrows model. */
pgl_status pgl_calibration_open(const pgl_model *model, const int32_t *tokens, size_t n,
                                uint32_t sequence_tokens, pgl_calibration **out, pgl_error *err);
void pgl_calibration_close(pgl_calibration *calibration); /* NULL is allowed */

/* Runs norm, mixer, norm and router of layer l over all tokens. */
pgl_status pgl_calibration_mix(pgl_calibration *calibration, uint32_t layer, const pgl_layer_weights *weights,
                               pgl_error *err);

/* Full second moments of expert e's input [hidden][hidden], rows weighted by the square of their routing weight, with
 * the layer's mean as a prior worth a few rows. Returns the number of tokens the expert saw. */
uint64_t pgl_calibration_moments_gate_up(const pgl_calibration *calibration, uint32_t expert,
                                         double *moments);

/* The same of the input of down [intermediate][intermediate], from the coded gate_up. scratch: floats,
 * pgl_calibration_scratch of them. */
uint64_t pgl_calibration_moments_down(const pgl_calibration *calibration, uint32_t expert,
                                      const pgl_coded *gate_up, double *moments, float *scratch);
size_t pgl_calibration_scratch(const pgl_calibration *calibration);

/* Adds the layer's experts, shared expert included, to the residual. weights->moe is coded now. */
pgl_status pgl_calibration_finish(pgl_calibration *calibration, uint32_t layer,
                                  const pgl_layer_weights *weights, pgl_error *err);

#endif
