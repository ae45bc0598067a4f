/* The directory of traces: whole files in from any thread, one thread that writes them.
 *
 * A trace holds what a user wrote and what was answered, so that the directory must be its owner's alone (it is made with
 * mode 0700; one that others may enter is refused), and so are the files (0600). A file appears under its name when it
 * is complete. Nobody waits for the disk: traces wait in a bounded queue, and what does not fit there, does not fit
 * the directory's budget, or cannot be written is counted and dropped. */
#ifndef PGL_SERVER_TRACE_LOG_H
#define PGL_SERVER_TRACE_LOG_H

#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct pgl_trace_log pgl_trace_log;

/* most_bytes: of all files together that this log writes. PGL_E_IO for a directory that cannot be made or opened, or is not the
 * owner's alone. */
pgl_status pgl_trace_log_open(const char *directory, uint64_t most_bytes, pgl_trace_log **out,
                              pgl_error *err);

/* Takes the text over. Any thread; never waits. */
void pgl_trace_log_put(pgl_trace_log *log, pgl_buf *text);

/* A trace was lost before it was one: memory was out. */
void pgl_trace_log_lost(pgl_trace_log *log);

typedef struct pgl_trace_figures {
    uint64_t written, lost; /* lost: for any reason */
    uint64_t bytes;         /* written */
} pgl_trace_figures;

pgl_trace_figures pgl_trace_log_get_figures(const pgl_trace_log *log);

/* Writes what is left, for two seconds at most, and ends the thread. NULL is allowed. */
void pgl_trace_log_close(pgl_trace_log *log);

#endif
