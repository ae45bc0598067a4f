/* Owns the handle of the driver's library. */
#include "backend/cuda/driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

static pgl_status find_functions(pgl_cuda_driver *d, const char *library, pgl_error *err) {
    /* POSIX lets a data pointer from dlsym be a function; C has no cast for it. */
#define FIND(member, symbol, parameters)                                                                     \
    {                                                                                                        \
        void *found = dlsym(d->library, #symbol);                                                            \
        if (found == NULL)                                                                                   \
            return pgl_fail(err, PGL_E_UNSUPPORTED,                                                          \
                            "%s: the CUDA driver lacks %s; CUDA %d.%d (driver 580 or later) is needed",      \
                            library, #symbol, PGL_CUDA_NEEDED_VERSION / 1000,                                \
                            PGL_CUDA_NEEDED_VERSION % 1000 / 10);                                            \
        memcpy(&d->member, &found, sizeof found);                                                            \
    }
    PGL_CUDA_FUNCTIONS(FIND)
#undef FIND
    return PGL_OK;
}

static pgl_status check_version(pgl_cuda_driver *d, const char *library, pgl_error *err) {
    /* The version can be asked for before cuInit, which an old driver may refuse for reasons of its own. */
    pgl_status status = pgl_cuda_check(d, d->driver_version(&d->version), err, "%s: its version", library);
    if (status != PGL_OK)
        return status;
    if (d->version < PGL_CUDA_NEEDED_VERSION)
        return pgl_fail(
            err, PGL_E_UNSUPPORTED,
            "the CUDA driver is too old: it speaks CUDA %d.%d, needed is %d.%d (driver 580 or later)",
            d->version / 1000, d->version % 1000 / 10, PGL_CUDA_NEEDED_VERSION / 1000,
            PGL_CUDA_NEEDED_VERSION % 1000 / 10);
    pgl_cu_result result = d->init(0);
    if (result == PGL_CU_NO_DEVICE)
        return pgl_fail(err, PGL_E_NOT_FOUND, "no CUDA device: the driver is here, but it sees no card");
    return pgl_cuda_check(d, result, err, "%s: starting the CUDA driver", library);
}

pgl_status pgl_cuda_driver_open(const char *library, pgl_cuda_driver *out, pgl_error *err) {
    *out = (pgl_cuda_driver){0};
    if (library == NULL)
        library = getenv(PGL_CUDA_DRIVER_VARIABLE);
    if (library == NULL || library[0] == '\0')
        library = LIBRARY;
    out->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (out->library == NULL) {
        const char *why = dlerror();
        return pgl_fail(err, PGL_E_NOT_FOUND, "no CUDA driver on this machine (%s)",
                        why != NULL ? why : library);
    }
    pgl_status status = find_functions(out, library, err);
    if (status == PGL_OK)
        status = check_version(out, library, err);
    if (status != PGL_OK)
        pgl_cuda_driver_close(out);
    return status;
}

void pgl_cuda_driver_close(pgl_cuda_driver *driver) {
    if (driver->library != NULL)
        (void)dlclose(driver->library);
    *driver = (pgl_cuda_driver){0};
}

pgl_status pgl_cuda_check(const pgl_cuda_driver *driver, pgl_cu_result result, pgl_error *err,
                          const char *format, ...) {
    if (result == 0)
        return PGL_OK;
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const char *name = NULL, *text = NULL;
    if (driver->error_name(result, &name) != 0 || name == NULL)
        name = "unknown CUDA error";
    if (driver->error_text(result, &text) != 0 || text == NULL)
        text = "the driver has no words for it";
    return pgl_fail(err, result == PGL_CU_OUT_OF_MEMORY ? PGL_E_MEMORY : PGL_E_DEVICE, "%s: %s %d (%s)", what,
                    name, result, text);
}

pgl_status pgl_cuda_device_count(const pgl_cuda_driver *driver, int *count, pgl_error *err) {
    return pgl_cuda_check(driver, driver->device_count(count), err, "counting CUDA devices");
}

static pgl_status describe(const pgl_cuda_driver *d, pgl_cuda_device *out, pgl_error *err) {
    int ordinal = out->ordinal, major = 0, minor = 0;
    size_t bytes = 0;
    pgl_status status =
        pgl_cuda_check(d, d->device_get(&out->handle, ordinal), err, "CUDA device %d", ordinal);
    if (status == PGL_OK)
        status = pgl_cuda_check(d, d->device_name(out->name, (int)sizeof out->name, out->handle), err,
                                "the name of CUDA device %d", ordinal);
    if (status == PGL_OK)
        status = pgl_cuda_check(d, d->device_memory(&bytes, out->handle), err, "the memory of CUDA device %d",
                                ordinal);
    const struct {
        int attribute, *value;
    } attributes[] = {{PGL_CU_CAPABILITY_MAJOR, &major},
                      {PGL_CU_CAPABILITY_MINOR, &minor},
                      {PGL_CU_MULTIPROCESSORS, &out->n_multiprocessors}};
    for (size_t i = 0; status == PGL_OK && i < sizeof attributes / sizeof attributes[0]; i++)
        status =
            pgl_cuda_check(d, d->device_attribute(attributes[i].value, attributes[i].attribute, out->handle),
                           err, "attribute %d of CUDA device %d", attributes[i].attribute, ordinal);
    out->name[sizeof out->name - 1] = '\0';
    out->capability = 10 * major + minor;
    out->total_bytes = bytes;
    return status;
}

pgl_status pgl_cuda_device_find(const pgl_cuda_driver *driver, int ordinal, pgl_cuda_device *out,
                                pgl_error *err) {
    int count = 0;
    *out = (pgl_cuda_device){.ordinal = ordinal};
    pgl_status status = pgl_cuda_device_count(driver, &count, err);
    if (status != PGL_OK)
        return status;
    if (count == 0)
        return pgl_fail(err, PGL_E_NOT_FOUND, "no CUDA device: the driver is here, but it sees no card");
    if (ordinal < 0 || ordinal >= count)
        return pgl_fail(err, PGL_E_NOT_FOUND, "CUDA device %d: this machine has %d, counted from 0", ordinal,
                        count);
    return describe(driver, out, err);
}
