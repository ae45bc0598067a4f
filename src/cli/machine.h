/* What a measurement names beside its figures. Any thread. */
#ifndef PGL_CLI_MACHINE_H
#define PGL_CLI_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* The processor as the system names it; "unknown" where it does not. */
void pgl_cli_cpu_name(char *out, size_t size);

/* CPUs that are there. */
unsigned pgl_cli_n_cpus(void);

/* Appends "pergola", prefix (may be "") and the arguments as they were given; the value of an option called secret
 * (NULL: none) is replaced by "...". False when memory is out. */
bool pgl_cli_put_command(pgl_buf *out, const char *prefix, int argc, char **argv, const char *secret);

#endif
