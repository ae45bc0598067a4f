#include "checkpoint/layer_meta.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

/* The code tensor of an entry: entries are named like the linear, with or without one of the prefixes. */
static const pgl_tensor *code_of(const pgl_tensor_set *set, const char *linear) {
    static const char *const PREFIXES[] = {"model.language_model.", "language_model.model.", "model.", ""};
    for (size_t i = 0; i < sizeof PREFIXES / sizeof PREFIXES[0]; i++) {
        size_t n = strlen(PREFIXES[i]);
        char key[256];
        if (strncmp(linear, PREFIXES[i], n) != 0)
            continue;
        snprintf(key, sizeof key, "%s.escha_code", linear + n);
        const pgl_tensor *t = pgl_map_find(&set->by_key, key);
        if (t != NULL)
            return t;
    }
    return NULL;
}

static pgl_status check_entry(const char *linear, const json_t *meta, const char *name, pgl_tensor_set *set,
                              pgl_error *err) {
    const pgl_tensor *t = code_of(set, linear);
    if (t == NULL)
        return pgl_tensor_set_odd(set, err,
                                  "%s: layer_meta: %.200s: expected a coded linear of that name, found none",
                                  name, linear);
    if (t->role != PGL_TENSOR_USED)
        return PGL_OK;
    const pgl_safetensors_tensor *e = t->entry;
    const struct {
        const char *key;
        uint64_t expected;
    } rows[] = {{"K", e->dims[e->n_dims - 1] / 16},
                {"in_features", e->dims[e->n_dims - 3] * 16},
                {"out_features", e->dims[e->n_dims - 2] * 16}};
    pgl_status status = PGL_OK;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && status == PGL_OK; i++) {
        const json_t *value = json_object_get(meta, rows[i].key);
        if (value == NULL || json_is_null(value))
            continue;
        double found = json_number_value(value);
        if (!json_is_number(value) || found != (double)rows[i].expected)
            status = pgl_tensor_set_odd(set, err,
                                        "%s: layer_meta: %.200s: %s: expected %" PRIu64 " as in %s, found %g",
                                        name, linear, rows[i].key, rows[i].expected, t->shard->file, found);
    }
    return status;
}

pgl_status pgl_layer_meta_check(const char *json, size_t size, const char *name, pgl_tensor_set *set,
                                pgl_error *err) {
    json_t *root = NULL;
    pgl_status status = pgl_json_parse(json, size, NULL, &root, err);
    if (status != PGL_OK)
        return status;
    json_t *quant = json_object_get(root, "quantization_config");
    if (!json_is_object(quant))
        quant = json_object_get(json_object_get(root, "text_config"), "quantization_config");
    json_t *meta = json_object_get(quant, "layer_meta");
    const char *linear;
    json_t *entry;
    json_object_foreach(meta, linear, entry) {
        status = check_entry(linear, entry, name, set, err);
        if (status != PGL_OK)
            break;
    }
    json_decref(root);
    return status;
}
