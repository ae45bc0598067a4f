/* Files that a command writes. */
#ifndef PGL_CLI_OUTPUT_FILE_H
#define PGL_CLI_OUTPUT_FILE_H

#include "base/status.h"

/* PGL_E_INVALID when writing path would replace what the command reads: a file in the model's directory, or input (NULL:
 * none). option names it in the message. */
pgl_status pgl_cli_check_output(const char *option, const char *path, const char *model_directory,
                                const char *input, pgl_error *err);

#endif
