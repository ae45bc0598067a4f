/* The CUDA driver, loaded at run time: libcuda.so.1 by dlopen, no toolkit and nothing linked.
 *
 * Owns the library's handle and the table of the driver's functions that are used here, under their own names and with
 * the types below, which are those of the driver's binary interface. No function of the driver is called outside
 * src/backend/cuda. Any thread may call; a context is made current by each thread that works with it.
 *
 * Errors. pgl_cuda_driver_open and pgl_cuda_device_find tell apart: no driver on this machine (PGL_E_NOT_FOUND), one
 * that is too old for the kernels (PGL_E_UNSUPPORTED, with both versions), no device, or not this one (PGL_E_NOT_FOUND),
 * a device without kernels for its architecture (PGL_E_UNSUPPORTED). Every other refusal of the driver goes through
 * pgl_cuda_check, which names what was tried and the driver's own name and words for the error. */
#ifndef PGL_BACKEND_CUDA_DRIVER_H
#define PGL_BACKEND_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Kernels are compiled by CUDA 13.0: drivers of that major version and later load them (Linux: 580 and later). */
#define PGL_CUDA_NEEDED_VERSION 13000

/* The environment variable that names another library to load, for tests of the command line. */
#define PGL_CUDA_DRIVER_VARIABLE "PERGOLA_CUDA_DRIVER"

typedef int pgl_cu_result; /* 0: success */
typedef int pgl_cu_device;
typedef uint64_t pgl_cu_address; /* of device memory */
typedef struct pgl_cu_context_object *pgl_cu_context;
typedef struct pgl_cu_module_object *pgl_cu_module;
typedef struct pgl_cu_function_object *pgl_cu_function;
typedef struct pgl_cu_stream_object *pgl_cu_stream;
typedef struct pgl_cu_event_object *pgl_cu_event;

enum {
    PGL_CU_INVALID_VALUE = 1,
    PGL_CU_OUT_OF_MEMORY = 2,
    PGL_CU_NO_DEVICE = 100,
    PGL_CU_INVALID_DEVICE = 101,
    PGL_CU_NO_BINARY = 209,
    PGL_CU_NOT_FOUND = 500,
};

/* Attributes of devices. */
enum {
    PGL_CU_MULTIPROCESSORS = 16,
    PGL_CU_CAPABILITY_MAJOR = 75,
    PGL_CU_CAPABILITY_MINOR = 76,
};

enum {
    PGL_CU_STREAM_NON_BLOCKING = 1,
    PGL_CU_EVENT_BLOCKING = 1,  /* a thread that waits sleeps */
    PGL_CU_EVENT_NO_TIMING = 2, /* cheaper where only the order counts */
};

/* X(member, symbol, parameters): symbols with the version that these types belong to. */
#define PGL_CUDA_FUNCTIONS(X)                                                                                \
    X(init, cuInit, (unsigned flags))                                                                        \
    X(driver_version, cuDriverGetVersion, (int *version))                                                    \
    X(error_name, cuGetErrorName, (pgl_cu_result error, const char **name))                                  \
    X(error_text, cuGetErrorString, (pgl_cu_result error, const char **text))                                \
    X(device_count, cuDeviceGetCount, (int *count))                                                          \
    X(device_get, cuDeviceGet, (pgl_cu_device * device, int ordinal))                                        \
    X(device_name, cuDeviceGetName, (char *name, int length, pgl_cu_device device))                          \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, pgl_cu_device device))             \
    X(device_memory, cuDeviceTotalMem_v2, (size_t * bytes, pgl_cu_device device))                            \
    X(context_retain, cuDevicePrimaryCtxRetain, (pgl_cu_context * context, pgl_cu_device device))            \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (pgl_cu_device device))                                 \
    X(context_set, cuCtxSetCurrent, (pgl_cu_context context))                                                \
    X(memory_info, cuMemGetInfo_v2, (size_t * available, size_t * total))                                    \
    X(memory_new, cuMemAlloc_v2, (pgl_cu_address * address, size_t bytes))                                   \
    X(memory_free, cuMemFree_v2, (pgl_cu_address address))                                                   \
    X(pinned_new, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                             \
    X(pinned_free, cuMemFreeHost, (void *memory))                                                            \
    X(copy_up, cuMemcpyHtoDAsync_v2,                                                                         \
      (pgl_cu_address to, const void *from, size_t bytes, pgl_cu_stream stream))                             \
    X(copy_down, cuMemcpyDtoHAsync_v2, (void *to, pgl_cu_address from, size_t bytes, pgl_cu_stream stream))  \
    X(copy_within, cuMemcpyDtoDAsync_v2,                                                                     \
      (pgl_cu_address to, pgl_cu_address from, size_t bytes, pgl_cu_stream stream))                          \
    X(fill, cuMemsetD8Async, (pgl_cu_address to, unsigned char value, size_t bytes, pgl_cu_stream stream))   \
    X(stream_new, cuStreamCreate, (pgl_cu_stream * stream, unsigned flags))                                  \
    X(stream_free, cuStreamDestroy_v2, (pgl_cu_stream stream))                                               \
    X(stream_wait, cuStreamSynchronize, (pgl_cu_stream stream))                                              \
    X(event_new, cuEventCreate, (pgl_cu_event * event, unsigned flags))                                      \
    X(event_free, cuEventDestroy_v2, (pgl_cu_event event))                                                   \
    X(event_record, cuEventRecord, (pgl_cu_event event, pgl_cu_stream stream))                               \
    X(event_wait, cuEventSynchronize, (pgl_cu_event event))                                                  \
    X(event_elapsed, cuEventElapsedTime, (float *milliseconds, pgl_cu_event start, pgl_cu_event end))        \
    X(module_load, cuModuleLoadDataEx,                                                                       \
      (pgl_cu_module * module, const void *image, unsigned n_options, int *options, void **values))          \
    X(module_free, cuModuleUnload, (pgl_cu_module module))                                                   \
    X(module_function, cuModuleGetFunction,                                                                  \
      (pgl_cu_function * function, pgl_cu_module module, const char *name))                                  \
    X(launch, cuLaunchKernel,                                                                                \
      (pgl_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,        \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, pgl_cu_stream stream, void **arguments,    \
       void **extra))

typedef struct pgl_cuda_driver {
    void *library;
    int version; /* 1000 * major + 10 * minor of the CUDA that the driver speaks */
#define PGL_CUDA_MEMBER(member, symbol, parameters) pgl_cu_result(*member) parameters;
    PGL_CUDA_FUNCTIONS(PGL_CUDA_MEMBER)
#undef PGL_CUDA_MEMBER
} pgl_cuda_driver;

/* library: a path; NULL: what PERGOLA_CUDA_DRIVER names, else libcuda.so.1. Checks the version. */
pgl_status pgl_cuda_driver_open(const char *library, pgl_cuda_driver *out, pgl_error *err);
void pgl_cuda_driver_close(pgl_cuda_driver *driver); /* one that was never opened is allowed, if zeroed */

/* PGL_OK for 0; else "WHAT: NAME (text)" as PGL_E_MEMORY where the driver says so, otherwise PGL_E_DEVICE. */
pgl_status pgl_cuda_check(const pgl_cuda_driver *driver, pgl_cu_result result, pgl_error *err,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));

/* What is known of a card without making a context. */
typedef struct pgl_cuda_device {
    pgl_cu_device handle;
    int ordinal;
    char name[128];
    int capability; /* 10 * major + minor: 90 */
    int n_multiprocessors;
    uint64_t total_bytes;
} pgl_cuda_device;

pgl_status pgl_cuda_device_count(const pgl_cuda_driver *driver, int *count, pgl_error *err);
pgl_status pgl_cuda_device_find(const pgl_cuda_driver *driver, int ordinal, pgl_cuda_device *out,
                                pgl_error *err);

#endif
