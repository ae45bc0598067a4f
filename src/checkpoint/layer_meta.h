/* quantization_config.layer_meta: a cross-check of what the tensors say. Private to checkpoint. */
#ifndef PGL_CHECKPOINT_LAYER_META_H
#define PGL_CHECKPOINT_LAYER_META_H

#include <stddef.h>

#include "checkpoint/tensor_set.h"

/* Compares K, in_features and out_features of each entry with the code's shape. A difference is odd (a note, an error
 * under strict); bits may differ and is not looked at. json is a config that pgl_config_parse accepted. */
pgl_status pgl_layer_meta_check(const char *json, size_t size, const char *name, pgl_tensor_set *set,
                                pgl_error *err);

#endif
