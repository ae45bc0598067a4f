/* What a measurement names beside its figures. Any thread. */
#ifndef PGL_CLI_MACHINE_H
#define PGL_CLI_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

/* The processor as the system names it; "unknown" where it does not. */
void pgl_cli_cpu_name(char *out, size_t size);

/* CPUs that are there. */
unsigned pgl_cli_n_cpus(void);

/* Raises the soft limit of open files to the hard one. PGL_E_IO where even that is too little to listen or connect: the
 * event library would end the process. */
pgl_status pgl_cli_raise_file_limit(pgl_error *err);

/* Appends "pergola", prefix (may be "") and the arguments as they were given; the value of an option called secret
 * (NULL: none) is replaced by "...". False when memory is out. */
bool pgl_cli_put_command(pgl_buf *out, const char *prefix, int argc, char **argv, const char *secret);

#endif
