/* Owns nothing: choosing among the kernels' images. */
#include "backend/cuda/images.h"

#include <stdio.h>
#include <string.h>

static bool runs(const pgl_cuda_image *image, int capability) {
    if (image->ptx)
        return capability >= image->capability;
    if (image->exact)
        return capability == image->capability;
    return capability >= image->capability && capability / 10 == image->capability / 10;
}

/* Code before PTX, then the higher capability, then the one for this capability alone. */
static bool better(const pgl_cuda_image *a, const pgl_cuda_image *b) {
    if (a->ptx != b->ptx)
        return !a->ptx;
    if (a->capability != b->capability)
        return a->capability > b->capability;
    return a->exact && !b->exact;
}

pgl_status pgl_cuda_images_choose(const pgl_cuda_image *images, size_t n, int capability,
                                  const pgl_cuda_image **out, pgl_error *err) {
    *out = NULL;
    if (n == 0)
        return pgl_fail(
            err, PGL_E_UNSUPPORTED,
            "this program was built without CUDA kernels (no nvcc was found; scripts/setup --cuda)");
    for (size_t i = 0; i < n; i++) {
        if (runs(&images[i], capability) && (*out == NULL || better(&images[i], *out)))
            *out = &images[i];
    }
    if (*out != NULL)
        return PGL_OK;
    char list[256];
    pgl_cuda_images_list(images, n, list, sizeof list);
    return pgl_fail(err, PGL_E_UNSUPPORTED,
                    "no kernels for compute capability %d.%d; this program has those for %s", capability / 10,
                    capability % 10, list);
}

void pgl_cuda_image_name(const pgl_cuda_image *image, char *out, size_t size) {
    snprintf(out, size, image->ptx ? "compute_%d%s (PTX)" : "sm_%d%s", image->capability,
             image->exact ? "a" : "");
}

void pgl_cuda_images_list(const pgl_cuda_image *images, size_t n, char *out, size_t size) {
    size_t used = 0;
    snprintf(out, size, "none");
    for (size_t i = 0; i < n && strcmp(images[i].unit, images[0].unit) == 0 && used < size; i++) {
        char name[32];
        pgl_cuda_image_name(&images[i], name, sizeof name);
        int more = snprintf(out + used, size - used, used > 0 ? " %s" : "%s", name);
        used += more > 0 ? (size_t)more : 0;
    }
}
