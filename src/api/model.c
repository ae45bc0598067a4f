/* Owns the handle of a model. */
#include <stdlib.h>
#include <string.h>

#include "api/api_impl.h"
#include "base/alloc.h"

const char *pergola_version(void) {
    return PGL_VERSION;
}

int pergola_api_version(void) {
    return PERGOLA_API_VERSION;
}

void pergola_model_options_init(pergola_model_options *options) {
    *options = (pergola_model_options){.size = sizeof *options};
}

pergola_status pergola_model_open(const pergola_model_options *options, pergola_model **out,
                                  pergola_error *err) {
    *out = NULL;
    pergola_model_options o;
    pergola_model_options_init(&o);
    if (options == NULL || options->size == 0 || options->path == NULL)
        return pgl_api_error(err, PERGOLA_INVALID,
                             "options: expected pergola_model_options_init and a path, found none");
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    pergola_model *model = pgl_new(1, sizeof *model);
    if (model == NULL)
        return pgl_api_error(err, PERGOLA_NO_MEMORY, "no memory for a model");
    enum { WAITING_PER_SLOT = 64 };
    const pgl_runtime_options runtime = {
        .model = o.path,
        .backend = o.backend,
        .context = o.context,
        .n_slots = o.slots,
        .n_threads = o.threads,
        .memory_bytes = o.memory_bytes,
        .lock_memory = o.lock_memory,
        .strict = o.strict,
        .max_queue = (o.slots > 0 ? o.slots : 1) * WAITING_PER_SLOT,
        .progress = o.progress,
        .user = o.user,
    };
    pgl_error inner;
    if (pgl_runtime_open(&runtime, &model->runtime, &inner) != PGL_OK) {
        free(model);
        return pgl_api_fail(err, &inner);
    }
    *out = model;
    return PERGOLA_OK;
}

void pergola_model_close(pergola_model *model) {
    if (model == NULL)
        return;
    pgl_runtime_close(model->runtime);
    free(model);
}

void pergola_model_get_info(const pergola_model *model, pergola_model_info *info) {
    const pgl_runtime *r = model->runtime;
    const pgl_backend_caps *caps = pgl_runtime_caps(r);
    pergola_model_info all = {
        .size = info->size,
        .name = pgl_runtime_name(r),
        .backend = caps->name,
        .device = caps->detail,
        .memory = pgl_runtime_plan(r),
        .notes = pgl_runtime_notes(r),
        .context = pgl_runtime_context(r),
        .vocabulary = pgl_runtime_n_vocab(r),
        .has_chat = pgl_runtime_chat(r) != NULL,
    };
    memcpy(info, &all, info->size < sizeof all ? info->size : sizeof all);
}

pergola_status pergola_count_tokens(const pergola_model *model, const char *text, uint32_t *n_tokens,
                                    pergola_error *err) {
    pgl_ids ids = {.data = NULL};
    pgl_error inner;
    pgl_status status = pgl_tokenizer_encode(pgl_runtime_tokenizer(model->runtime), text, strlen(text),
                                             PGL_ENCODE_RAW, &ids, &inner);
    *n_tokens = (uint32_t)ids.count;
    pgl_ids_fini(&ids);
    return status == PGL_OK ? PERGOLA_OK : pgl_api_fail(err, &inner);
}
