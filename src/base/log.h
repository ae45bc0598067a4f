/* The program's log: one line per event on stderr, as text or as JSON lines. Never prompts, answers, keys or
 * file contents: names, counts and times only.
 *
 * Lines of several threads do not mix. Level and form are set once by the command line before other threads
 * start; this is one of the few places with process-wide state. */
#ifndef PGL_BASE_LOG_H
#define PGL_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"

typedef enum pgl_log_level { PGL_LOG_ERROR, PGL_LOG_WARN, PGL_LOG_INFO, PGL_LOG_DEBUG } pgl_log_level;

/* The start: PGL_LOG_INFO, text, descriptor 2. */
void pgl_log_setup(pgl_log_level least, bool json, int fd);

/* "error", "warn", "info", "debug"; false for any other name. */
bool pgl_log_level_of(const char *name, pgl_log_level *out);

bool pgl_log_enabled(pgl_log_level level);

/* Writes "2026-01-31T23:59:59.123Z info  part: message" or {"time":..,"level":..,"part":..,"message":..}.
 * part names the layer or module. Control characters in the message become spaces; more than 4 KiB are cut.
 */
void pgl_log(pgl_log_level level, const char *part, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
