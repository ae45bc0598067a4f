/* Owns nothing: what is put into the stream, and the first fault. */
#include "backend/cuda/cuda.h"

static const char *const NAMES[] = {
#define NAME(name) #name,
    PGL_CUDA_KERNELS(NAME)
#undef NAME
};

static bool runs(const cuda_backend *b) {
    return b->status == PGL_OK;
}

void cuda_launch(cuda_backend *b, cuda_kernel kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t threads,
                 void *args) {
    if (!runs(b) || x == 0 || y == 0 || z == 0)
        return;
    void *arguments[] = {args};
    b->status = pgl_cuda_check(
        &b->driver,
        b->driver.launch(b->kernels[kernel], x, y, z, threads, 1, 1, 0, b->stream, arguments, NULL),
        &b->error, "launching %s (%u x %u x %u blocks)", NAMES[kernel], x, y, z);
    b->n_launches++;
}

void cuda_copy_up(cuda_backend *b, void *to, const void *from, uint64_t bytes) {
    if (runs(b) && bytes > 0)
        b->status = pgl_cuda_check(&b->driver, b->driver.copy_up(cuda_at(to), from, bytes, b->stream),
                                   &b->error, "a copy of %llu bytes to the card", (unsigned long long)bytes);
}

void cuda_copy_down(cuda_backend *b, void *to, const void *from, uint64_t bytes) {
    if (runs(b) && bytes > 0)
        b->status =
            pgl_cuda_check(&b->driver, b->driver.copy_down(to, cuda_at(from), bytes, b->stream), &b->error,
                           "a copy of %llu bytes from the card", (unsigned long long)bytes);
}

void cuda_copy_within(cuda_backend *b, void *to, const void *from, uint64_t bytes) {
    if (runs(b) && bytes > 0 && to != from)
        b->status =
            pgl_cuda_check(&b->driver, b->driver.copy_within(cuda_at(to), cuda_at(from), bytes, b->stream),
                           &b->error, "a copy of %llu bytes on the card", (unsigned long long)bytes);
}

void cuda_zero(cuda_backend *b, void *to, uint64_t bytes) {
    if (runs(b) && bytes > 0)
        b->status = pgl_cuda_check(&b->driver, b->driver.fill(cuda_at(to), 0, bytes, b->stream), &b->error,
                                   "zeroing %llu bytes on the card", (unsigned long long)bytes);
}

bool cuda_wait(cuda_backend *b) {
    if (runs(b))
        b->status = pgl_cuda_check(&b->driver, b->driver.stream_wait(b->stream), &b->error,
                                   "waiting for the card, after %u launches of the step", b->n_launches);
    return runs(b);
}
