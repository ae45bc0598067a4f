/* The file of the request log: whole lines in from any thread, one thread that writes them.
 *
 * Nobody waits for the file. Lines wait in a bounded queue; what does not fit is dropped and counted, and so are lines
 * that could not be written: neither stops a request. What a line says is request_record.h's. */
#ifndef PGL_SERVER_REQUEST_LOG_H
#define PGL_SERVER_REQUEST_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct pgl_request_log pgl_request_log;

/* Opens the file for appending, making it with mode 0600, and starts the thread. "-" is standard output. PGL_E_IO when
 * it cannot be opened for writing. */
pgl_status pgl_request_log_open(const char *path, pgl_request_log **out, pgl_error *err);

/* Takes the line over, whether it is written or not; it ends with a newline. Any thread; never waits. */
void pgl_request_log_put(pgl_request_log *log, pgl_buf *line);

/* A line was lost before it was one: memory was out. */
void pgl_request_log_lost(pgl_request_log *log);

/* Opens the path again before the next line: the file has been moved away. Keeps the old one when that fails. Any
 * thread; returns at once. */
void pgl_request_log_reopen(pgl_request_log *log);

typedef struct pgl_request_log_figures {
    uint64_t written, dropped, failed; /* dropped: the queue was full, or memory out; failed: the write */
} pgl_request_log_figures;

pgl_request_log_figures pgl_request_log_get_figures(const pgl_request_log *log);

/* Writes what is left, for a second at most, and ends the thread. NULL is allowed. */
void pgl_request_log_close(pgl_request_log *log);

#endif
