/* A whole model from a Hugging Face directory to a checkpoint in the published layout (docs/format.md).
 *
 * The output has one file of tensors for the embedding, head, final norm and draft head, and one for each layer, so that
 * memory stays within one layer and a run that was interrupted goes on with the first layer that is not there: a file
 * appears under its name only when it is complete, and pergola-quantize.json beside them says with which options. The
 * index is written last; until then the directory is no checkpoint. The same input and options give the same bytes,
 * whatever the number of threads and however often the run was interrupted. */
#ifndef PGL_QUANTIZE_QUANTIZE_H
#define PGL_QUANTIZE_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "quantize/layer.h"

typedef struct pgl_quantize_progress {
    uint32_t layer, n_layers; /* n_layers: at the draft head */
    uint32_t n_experts_done, n_experts;
    const pgl_layer_report *report; /* once the layer is done; else NULL */
    bool skipped;                   /* the layer was there already */
} pgl_quantize_progress;

typedef struct pgl_quantize_options {
    const char *in, *out;
    uint32_t k_gate_up, k_down; /* 1..8 */
    uint32_t rounds;            /* of the search, >= 1 */
    uint64_t seed;
    uint32_t n_threads;         /* 0: one for each CPU */
    const int32_t *calibration; /* token ids; NULL: plain least squares */
    size_t n_calibration;
    uint32_t sequence_tokens; /* the calibration text is cut into sequences of this many */
    bool restart;             /* forget what an earlier run left in out */
    /* One call at a time, from any thread. False: stop, with PGL_E_CANCELLED; what is complete is left to go on from. */
    bool (*progress)(void *user, const pgl_quantize_progress *progress);
    void *user;
} pgl_quantize_options;

/* PGL_E_FORMAT, PGL_E_UNSUPPORTED: the source is not a model this can code, by name. PGL_E_INVALID: out holds something
 * else, or a run with other options. */
pgl_status pgl_quantize(const pgl_quantize_options *options, pgl_error *err);

/* The draft head alone, its routed experts coded, into out/mtp/model.safetensors, where it stands beside a checkpoint and
 * replaces the draft head that one has. in: config.json and the tensors mtp.*; files of its index without any of these
 * need not be there. Without calibration. PGL_E_INVALID: the checkpoint in out has other sizes, or there is a draft head
 * in out/mtp already (restart replaces it). The file appears when it is complete. */
pgl_status pgl_quantize_draft(const pgl_quantize_options *options, pgl_error *err);

#endif
