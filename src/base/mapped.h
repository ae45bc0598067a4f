/* A file mapped read-only.
 *
 * When the file shrinks (or its disk fails) while it is mapped, touching the lost part raises SIGBUS. The
 * first mapping installs a handler that finds the file by the address, writes one line that names it to
 * stderr, and ends the process with PGL_MAPPED_LOST_EXIT: there is no way to go on with half a model. A
 * SIGBUS at any other address goes to the handler that was there before. The handler only calls what is safe
 * in a signal handler; the table it reads has 1,024 places, and is one of the few pieces of process-wide
 * state.
 *
 * Opening and closing: any thread. The bytes: any thread, until close. */
#ifndef PGL_BASE_MAPPED_H
#define PGL_BASE_MAPPED_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PGL_MAPPED_LOST_EXIT 74

typedef struct pgl_mapped {
    const uint8_t *data; /* never NULL when open; nothing may be read when size is 0 */
    size_t size;
    int place; /* in the handler's table */
} pgl_mapped;

#define PGL_MAPPED_INIT                                                                                      \
    { NULL, 0, -1 }

/* Only regular files. PGL_E_NOT_FOUND, PGL_E_IO, PGL_E_MEMORY; PGL_E_TOO_LARGE when 1,024 files are mapped
 * already. */
pgl_status pgl_mapped_open(const char *path, pgl_mapped *out, pgl_error *err);
void pgl_mapped_close(pgl_mapped *mapped); /* again, or of PGL_MAPPED_INIT: nothing happens */

typedef enum pgl_mapped_use {
    PGL_MAPPED_RANDOM,     /* no read-ahead */
    PGL_MAPPED_SEQUENTIAL, /* read far ahead */
    PGL_MAPPED_SOON,       /* start reading now, do not wait */
    PGL_MAPPED_NOW,        /* read all of it and enter it into the page table before returning */
    PGL_MAPPED_DONE,       /* may leave this process's memory; stays readable */
} pgl_mapped_use;

/* Says how [offset, offset + size) will be used (clipped to the file). PGL_MAPPED_NOW can fail with PGL_E_IO
 * or PGL_E_MEMORY; the others are hints and always succeed. */
pgl_status pgl_mapped_advise(const pgl_mapped *mapped, size_t offset, size_t size, pgl_mapped_use use,
                             pgl_error *err);

/* Keeps the whole file in memory until close (mlock). PGL_E_MEMORY, with the limit in the message, when the
 * system does not allow it. */
pgl_status pgl_mapped_lock(const pgl_mapped *mapped, pgl_error *err);

#endif
