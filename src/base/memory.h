/* How much memory a process may use: what the machine has, and what control groups leave of it. */
#ifndef PGL_BASE_MEMORY_H
#define PGL_BASE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct pgl_memory_info {
    uint64_t total_bytes; /* of the machine, or of the tightest control group */
    uint64_t
        available_bytes; /* without swapping; cached files count as available, mapped weights among them */
    bool limited;        /* a control group sets the bound */
} pgl_memory_info;

/* Reads /proc/meminfo and the memory controllers of this process's control groups, versions 1 and 2, up to the root.
 * root is put in front of every path: "" except in tests. A controller that cannot be read sets no bound; PGL_E_IO
 * only when meminfo cannot be read. */
pgl_status pgl_memory_read(const char *root, pgl_memory_info *info, pgl_error *err);

#endif
