/* No kernel has a host build yet. */
#include "emulate.h"

size_t pgl_emulate_args(const char *name) {
    (void)name;
    return 0;
}

int pgl_emulate(const char *name, const uint32_t grid[3], const uint32_t block[3], const void *args) {
    (void)name;
    (void)grid;
    (void)block;
    (void)args;
    return -1;
}
