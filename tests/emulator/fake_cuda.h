/* A CUDA driver for tests, on a machine without one: libcuda_fake.so has the entry points that backend/cuda/driver.h
 * loads, device memory is host memory, and launches run the kernels' own sources, compiled for the host.
 *
 * It is strict where a card would be, so that faults of the host code show here:
 *  - Streams are lazy: what is put into one is carried out when somebody waits for it, and copies from or to pinned
 *    memory read and write it then. Who reads a result, or reuses a buffer, before waiting sees it.
 *  - Device memory is full of 0xFF (NaNs) until it is written, lies between guards that every wait looks at, and every
 *    copy must lie within one allocation.
 *  - Calls need a current context on the thread that makes them.
 *
 * PGL_FAKE_CUDA, read by cuInit, chooses faults, separated by commas:
 *   nodevice      cuInit sees no device         old           the driver speaks CUDA 12.4
 *   init          cuInit fails                  cc:N          compute capability 10 * major + minor (default 90)
 *   devices:N     so many cards                 memory:N      bytes on the card (default 2 GiB)
 *   oom:N         the Nth allocation fails      pinned        page-locked memory cannot be had
 *   image         no module can be loaded       launch:N      the Nth launch is refused
 *   late:N        the Nth launch is taken and the card faults when it runs */
#ifndef PGL_TESTS_FAKE_CUDA_H
#define PGL_TESTS_FAKE_CUDA_H

#include <stdint.h>

typedef struct pgl_fake_cuda_stats {
    uint64_t launches;
    uint64_t allocations, frees; /* device memory and page-locked memory */
    uint64_t bytes_now;          /* device memory */
    uint64_t bytes_up, bytes_down, bytes_within;
    uint64_t copies_up, copies_down;
    uint64_t pageable; /* copies that did not come from or go to page-locked memory */
    uint64_t waits;    /* streams and events */
} pgl_fake_cuda_stats;

/* To be looked up in the library that is loaded. */
typedef pgl_fake_cuda_stats pgl_fake_cuda_stats_fn(void);
#define PGL_FAKE_CUDA_STATS "pgl_fake_cuda_get_stats"

#endif
