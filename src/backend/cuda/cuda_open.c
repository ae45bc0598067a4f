/* Owns the card's context, stream, modules and memory, and what the backend has on the host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/alloc.h"

/* ---- close */

static void free_region(cuda_backend *b, struct cuda_region *region) {
    if (region->at != 0)
        (void)b->driver.memory_free(region->at);
    *region = (struct cuda_region){0};
}

static void close_card(cuda_backend *b) {
    if (b->context == NULL)
        return;
    (void)b->driver.context_set(b->context);
    if (b->stream != NULL)
        (void)b->driver.stream_wait(b->stream);
    free_region(b, &b->weights_region);
    free_region(b, &b->page_region);
    free_region(b, &b->state_region);
    free_region(b, &b->pending_region);
    free_region(b, &b->snapshot_region);
    free_region(b, &b->work_region);
    if (b->pinned != NULL)
        (void)b->driver.pinned_free(b->pinned);
    for (uint32_t i = 0; i < b->n_modules; i++)
        (void)b->driver.module_free(b->modules[i]);
    if (b->stream != NULL)
        (void)b->driver.stream_free(b->stream);
    (void)b->driver.context_set(NULL);
    (void)b->driver.context_release(b->device.handle);
}

static void cuda_close(pgl_backend *backend) {
    cuda_backend *b = (cuda_backend *)backend;
    pgl_executor_close(b->base.executor);
    close_card(b);
    pgl_cuda_driver_close(&b->driver);
    pgl_sampler_close(b->sampler);
    pgl_slots_close(&b->slots);
    pgl_batch_close(&b->batch);
    cuda_free_uploads(b);
    free(b->weights.layers);
    free(b->commits);
    free(b);
}

/* ---- the table */

static pgl_backend_memory cuda_memory(const pgl_backend *backend) {
    return ((const cuda_backend *)backend)->memory;
}

static const pgl_backend_table TABLE = {cuda_close, cuda_memory, pgl_executor_submit, pgl_executor_mask_ready,
                                        pgl_executor_wait};

static void give_state(const void *self, pgl_plan_state *state) {
    pgl_slots_state(&((const cuda_backend *)self)->slots, state);
}

/* ---- the card */

static pgl_status load_images(cuda_backend *b, const pgl_cuda_options *cuda, pgl_error *err) {
    const pgl_cuda_driver *d = &b->driver;
    const pgl_cuda_image *chosen;
    char name[32];
    pgl_status status =
        pgl_cuda_images_choose(cuda->images, cuda->n_images, b->device.capability, &chosen, err);
    if (status != PGL_OK) {
        pgl_error_prefix(err, "CUDA device %d, %s", b->device.ordinal, b->device.name);
        return status;
    }
    pgl_cuda_image_name(chosen, name, sizeof name);
    snprintf(b->detail, sizeof b->detail, "%s (%s), %.1f GiB, CUDA %d.%d driver", b->device.name, name,
             (double)b->device.total_bytes / (1024.0 * 1024 * 1024), d->version / 1000,
             d->version % 1000 / 10);
    for (size_t i = 0; status == PGL_OK && i < cuda->n_images; i++) {
        const pgl_cuda_image *image = &cuda->images[i];
        if (image->capability != chosen->capability || image->ptx != chosen->ptx ||
            image->exact != chosen->exact)
            continue;
        if (b->n_modules == sizeof b->modules / sizeof b->modules[0])
            return pgl_fail(err, PGL_E_INTERNAL, "more than %u kernel images", b->n_modules);
        status = pgl_cuda_check(d, d->module_load(&b->modules[b->n_modules], image->data, 0, NULL, NULL), err,
                                "loading the kernels %s for %s onto %s", image->unit, name, b->device.name);
        b->n_modules += status == PGL_OK ? 1 : 0;
    }
    return status;
}

static pgl_status find_kernels(cuda_backend *b, pgl_error *err) {
    static const char *const NAMES[] = {
#define NAME(name) "pgl_k_" #name,
        PGL_CUDA_KERNELS(NAME)
#undef NAME
    };
    for (size_t k = 0; k < CUDA_N_KERNELS; k++) {
        pgl_cu_result result = PGL_CU_NOT_FOUND;
        for (uint32_t i = 0; i < b->n_modules && result != 0; i++)
            result = b->driver.module_function(&b->kernels[k], b->modules[i], NAMES[k]);
        pgl_status status = pgl_cuda_check(&b->driver, result, err, "finding the kernel %s", NAMES[k]);
        if (status != PGL_OK)
            return status;
    }
    return PGL_OK;
}

static pgl_status open_card(cuda_backend *b, const pgl_backend_options *options, const pgl_cuda_options *cuda,
                            pgl_error *err) {
    const pgl_cuda_driver *d = &b->driver;
    int ordinal = options->n_devices > 0 ? options->devices[0] : 0;
    if (options->n_devices > 1)
        return pgl_fail(err, PGL_E_UNSUPPORTED, "the CUDA backend uses one card, found %u in the options",
                        options->n_devices);
    pgl_status status = pgl_cuda_driver_open(cuda->library, &b->driver, err);
    if (status == PGL_OK)
        status = pgl_cuda_device_find(d, ordinal, &b->device, err);
    if (status == PGL_OK)
        status = pgl_cuda_check(d, d->context_retain(&b->context, b->device.handle), err,
                                "a context on CUDA device %d, %s", ordinal, b->device.name);
    if (status == PGL_OK)
        status = pgl_cuda_check(d, d->context_set(b->context), err, "the context of %s", b->device.name);
    if (status == PGL_OK)
        status = load_images(b, cuda, err);
    if (status == PGL_OK)
        status = find_kernels(b, err);
    if (status == PGL_OK)
        status = pgl_cuda_check(d, d->stream_new(&b->stream, PGL_CU_STREAM_NON_BLOCKING), err, "a stream");
    return status;
}

/* ---- memory */

static pgl_status check_budget(const cuda_backend *b, uint64_t budget, pgl_error *err) {
    const pgl_backend_memory *m = &b->memory;
    const double mib = 1.0 / (1024 * 1024);
    uint64_t all = m->weights_bytes + m->pages_bytes + m->slots_bytes + m->snapshots_bytes + m->work_bytes;
    size_t available = 0, in_all = 0;
    pgl_status status = pgl_cuda_check(&b->driver, b->driver.memory_info(&available, &in_all), err,
                                       "the memory of %s", b->device.name);
    if (status != PGL_OK)
        return status;
    bool asked = budget > 0 && budget < available;
    uint64_t allowed = asked ? budget : available;
    if (all <= allowed)
        return PGL_OK;
    return pgl_fail(err, PGL_E_MEMORY,
                    "%s: %.1f MiB are needed (weights %.1f, pages %.1f, slots %.1f, snapshots %.1f, work "
                    "space %.1f), %.1f "
                    "are %s: %.1f too many. Fewer slots, snapshots or a shorter context would take less",
                    b->device.name, (double)all * mib, (double)m->weights_bytes * mib,
                    (double)m->pages_bytes * mib, (double)m->slots_bytes * mib,
                    (double)m->snapshots_bytes * mib, (double)m->work_bytes * mib, (double)allowed * mib,
                    asked ? "allowed" : "free", (double)(all - allowed) * mib);
}

static void set_memory(cuda_backend *b) {
    b->memory = (pgl_backend_memory){
        .weights_bytes = b->weights_region.bytes,
        .pages_bytes = b->page_region.bytes,
        .slots_bytes = b->state_region.bytes + b->pending_region.bytes,
        .snapshots_bytes = b->snapshot_region.bytes,
        .work_bytes = b->work_region.bytes,
    };
}

static pgl_status new_region(cuda_backend *b, struct cuda_region *region, const char *what, pgl_error *err) {
    if (region->bytes == 0)
        return PGL_OK;
    return pgl_cuda_check(&b->driver, b->driver.memory_new(&region->at, (size_t)region->bytes), err,
                          "%s: %.1f MiB for the %s", b->device.name, (double)region->bytes / (1024 * 1024),
                          what);
}

static pgl_status allocate(cuda_backend *b, uint64_t budget, pgl_error *err) {
    pgl_status status = check_budget(b, budget, err);
    if (status == PGL_OK)
        status = new_region(b, &b->weights_region, "weights", err);
    if (status == PGL_OK)
        status = new_region(b, &b->page_region, "pages", err);
    if (status == PGL_OK)
        status = new_region(b, &b->state_region, "slots", err);
    if (status == PGL_OK)
        status = new_region(b, &b->pending_region, "slots' pending tokens", err);
    if (status == PGL_OK)
        status = new_region(b, &b->snapshot_region, "snapshots", err);
    if (status == PGL_OK)
        status = new_region(b, &b->work_region, "work space", err);
    if (status == PGL_OK)
        status = pgl_cuda_check(&b->driver, b->driver.pinned_new(&b->pinned, (size_t)b->pinned_bytes, 0), err,
                                "page-locked memory of the host, %.1f MiB",
                                (double)b->pinned_bytes / (1024 * 1024));
    if (status == PGL_OK)
        cuda_place_arrays(b);
    return status;
}

/* Slots start with zero state, as after a reset. */
static pgl_status clear_slots(cuda_backend *b, pgl_error *err) {
    cuda_zero(b, b->state, b->state_region.bytes);
    cuda_zero(b, b->w.final, b->base.caps.n_slots * b->model->hidden_bytes);
    if (!cuda_wait(b) && err != NULL)
        *err = b->error;
    return b->status;
}

/* ---- open */

static pgl_status open_host(cuda_backend *b, pgl_error *err) {
    const pgl_backend_caps *caps = &b->base.caps;
    pgl_status status = pgl_batch_open(caps, b->batch.capacity, &b->batch, err);
    if (status == PGL_OK)
        status = pgl_slots_open(caps, &b->slots, err);
    if (status == PGL_OK)
        status = pgl_sampler_open(caps->n_vocab, &b->sampler, err);
    b->commits = pgl_new(caps->n_slots, sizeof *b->commits);
    if (status == PGL_OK && b->commits == NULL)
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for the records of %u slots", caps->n_slots);
    return status;
}

static pgl_status open_parts(cuda_backend *b, const pgl_backend_options *options,
                             const pgl_cuda_options *cuda, pgl_error *err) {
    static const pgl_executor_client CLIENT = {cuda_execute, give_state};
    pgl_status status = open_card(b, options, cuda, err);
    if (status == PGL_OK)
        status = allocate(b, options->device_bytes, err);
    if (status == PGL_OK)
        status = cuda_place_weights(b, b->weights_region.at, err);
    if (status == PGL_OK)
        status = cuda_upload_weights(b, cuda, err);
    cuda_free_uploads(b);
    if (status == PGL_OK)
        status = open_host(b, err);
    if (status == PGL_OK)
        status = clear_slots(b, err);
    if (status == PGL_OK)
        status = pgl_executor_open("pgl-cuda", &b->base.caps, &CLIENT, b, &b->base.executor, err);
    return status;
}

/* Everything that needs no card. */
static pgl_status open_sizes(const pgl_model *model, const pgl_backend_options *options, cuda_backend **out,
                             pgl_error *err) {
    *out = NULL;
    pgl_status status = cuda_check_model(model, options, err);
    if (status != PGL_OK)
        return status;
    cuda_backend *b = pgl_new(1, sizeof *b);
    if (b == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the CUDA backend");
    const pgl_config *c = model->config;
    b->model = model;
    b->base = (pgl_backend){
        .table = &TABLE,
        .caps =
            {
                .name = "cuda",
                .detail = b->detail,
                .max_in_flight = PGL_EXECUTOR_IN_FLIGHT,
                .vocab_size = c->vocab_size,
                .hidden_size = c->hidden_size,
                .n_layers = c->n_layers,
                .n_experts = c->n_experts,
                .n_experts_used = model->n_used,
            },
    };
    status = pgl_backend_caps_init(&b->base.caps, options, err);
    if (status == PGL_OK)
        status = cuda_set_sizes(b, err);
    if (status != PGL_OK) {
        cuda_close(&b->base);
        return status;
    }
    set_memory(b);
    *out = b;
    return PGL_OK;
}

pgl_status pgl_backend_open_cuda(const pgl_model *model, const pgl_backend_options *options,
                                 const pgl_cuda_options *cuda, pgl_backend **out, pgl_error *err) {
    pgl_cuda_options settled = cuda != NULL ? *cuda : (pgl_cuda_options){0};
    cuda_backend *b;
    *out = NULL;
    if (settled.images == NULL) {
        settled.images = pgl_cuda_images;
        settled.n_images = pgl_cuda_n_images;
    }
    pgl_status status = open_sizes(model, options, &b, err);
    if (status != PGL_OK)
        return status;
    status = open_parts(b, options, &settled, err);
    if (b->context != NULL)
        (void)b->driver.context_set(NULL); /* the executor's thread takes it from here */
    if (status != PGL_OK) {
        cuda_close(&b->base);
        return status;
    }
    *out = &b->base;
    return PGL_OK;
}

pgl_status pgl_cuda_plan(const pgl_model *model, const pgl_backend_options *options, pgl_cuda_needs *out,
                         pgl_error *err) {
    cuda_backend *b;
    pgl_status status = open_sizes(model, options, &b, err);
    if (status != PGL_OK)
        return status;
    *out = (pgl_cuda_needs){
        .weights_bytes = b->memory.weights_bytes,
        .pages_bytes = b->memory.pages_bytes,
        .slots_bytes = b->memory.slots_bytes,
        .snapshots_bytes = b->memory.snapshots_bytes,
        .work_bytes = b->memory.work_bytes,
        .pinned_bytes = b->pinned_bytes,
    };
    cuda_close(&b->base);
    return PGL_OK;
}
