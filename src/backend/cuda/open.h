/* Opening the CUDA backend (backend.h): the whole model on one NVIDIA card.
 *
 * The card is options->devices[0], or the first. options->device_bytes is the budget on it, weights included; 0: what
 * is free there. Everything is allocated by open, on the card and beside it. The backend is not bit_stable: results agree
 * with other backends within the bounds of docs/model.md, and two runs of the same plans have the same bits.
 *
 * Errors: those of backend/cuda/driver.h for what is missing on the machine; PGL_E_UNSUPPORTED for a model that the
 * kernels have no room for, naming the size; PGL_E_MEMORY with the table of what was asked for and what is there. */
#ifndef PGL_BACKEND_CUDA_OPEN_H
#define PGL_BACKEND_CUDA_OPEN_H

#include "backend/backend.h"
#include "backend/cuda/images.h"

typedef struct pgl_cuda_options {
    const char *library;          /* the driver; NULL: as pgl_cuda_driver_open has it */
    const pgl_cuda_image *images; /* NULL: those of the program */
    size_t n_images;
    /* Bytes of weights that are on the card, now and then while they go there; false cancels. May be NULL. */
    bool (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
} pgl_cuda_options;

/* cuda may be NULL. model is borrowed and must outlive the backend. */
pgl_status pgl_backend_open_cuda(const struct pgl_model *model, const pgl_backend_options *options,
                                 const pgl_cuda_options *cuda, pgl_backend **out, pgl_error *err);

/* What open would need on the card, without looking for one. */
typedef struct pgl_cuda_needs {
    uint64_t weights_bytes, pages_bytes, slots_bytes, snapshots_bytes, work_bytes;
    uint64_t pinned_bytes; /* page-locked memory of the host */
} pgl_cuda_needs;

pgl_status pgl_cuda_plan(const struct pgl_model *model, const pgl_backend_options *options,
                         pgl_cuda_needs *out, pgl_error *err);

#endif
