/* The compiled kernels inside the program (cmake/cuda.cmake): for each source file one image for each architecture, and
 * PTX that the driver compiles for architectures that come later. */
#ifndef PGL_BACKEND_CUDA_IMAGES_H
#define PGL_BACKEND_CUDA_IMAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct pgl_cuda_image {
    const char *unit;       /* source file, without its ending */
    const char *data, *end; /* PTX: a zero follows */
    int capability;         /* 10 * major + minor */
    bool exact;             /* runs on this capability alone (90a) */
    bool ptx;
} pgl_cuda_image;

/* Those that the program was built with: none where the build had no nvcc. */
extern const pgl_cuda_image pgl_cuda_images[];
extern const size_t pgl_cuda_n_images;

/* Which images a card of this capability takes: the one of the highest capability of its own major version that is not
 * above it, else PTX that is not above it. All units have the same architectures. PGL_E_UNSUPPORTED names what there is.
 * Gives the first such image; the others of the choice have the same capability and ptx. */
pgl_status pgl_cuda_images_choose(const pgl_cuda_image *images, size_t n, int capability,
                                  const pgl_cuda_image **out, pgl_error *err);

/* "sm_90a", "compute_80 (PTX)". */
void pgl_cuda_image_name(const pgl_cuda_image *image, char *out, size_t size);

/* "sm_80 sm_90a compute_80 (PTX)": each once, in their order; "none". */
void pgl_cuda_images_list(const pgl_cuda_image *images, size_t n, char *out, size_t size);

#endif
