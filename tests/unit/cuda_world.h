/* For tests of the CUDA backend on the fake driver. */
#ifndef PGL_TESTS_CUDA_WORLD_H
#define PGL_TESTS_CUDA_WORLD_H

#include <dlfcn.h>

#include "backend/cuda/open.h"
#include "conformance.h"
#include "fake_cuda.h"
#include "model/model.h"

/* The fake driver runs the kernels' sources, whatever the image. */
static inline const pgl_cuda_options *cuda_world_options(void) {
    static const char nothing[1] = {0};
    static const pgl_cuda_image image = {"all", nothing, nothing, 80, false, true};
    static const pgl_cuda_options options = {
        .library = PGL_FAKE_CUDA_LIBRARY, .images = &image, .n_images = 1};
    return &options;
}

/* context: the pgl_model */
static inline pgl_status conf_open_cuda(const conf_subject *subject, const pgl_backend_options *options,
                                        pgl_backend **out, pgl_error *err) {
    return pgl_backend_open_cuda(subject->context, options, cuda_world_options(), out, err);
}

static inline pgl_fake_cuda_stats cuda_world_stats(void) {
    pgl_fake_cuda_stats_fn *stats;
    void *library = dlopen(PGL_FAKE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    void *found = dlsym(library, PGL_FAKE_CUDA_STATS);
    assert_non_null(found);
    memcpy(&stats, &found, sizeof found);
    pgl_fake_cuda_stats now = stats();
    dlclose(library);
    return now;
}

#endif
