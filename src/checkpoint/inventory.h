/* From tensor names to typed weights: what every tensor of the model must be, and the check that there are no others.
 * Private to checkpoint. */
#ifndef PGL_CHECKPOINT_INVENTORY_H
#define PGL_CHECKPOINT_INVENTORY_H

#include "checkpoint/tensor_set.h"
#include "checkpoint/weights.h"

/* Fills weights (layers are allocated: free(weights->layers) releases) with views into the set. Every tensor that
 * config asks for must be there with the right shape and type; every other must be one that is skipped. Reads headers,
 * and of the data only escha_config. */
pgl_status pgl_inventory_build(const pgl_config *config, bool want_draft, pgl_tensor_set *set,
                               pgl_weights *weights, pgl_error *err);

#endif
