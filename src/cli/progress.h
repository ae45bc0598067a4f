/* A progress bar on stderr for work that takes longer than a second. Where stderr is no terminal, a line now and
 * then instead. One thread. */
#ifndef PGL_CLI_PROGRESS_H
#define PGL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pgl_progress {
    const char *what; /* "writing" */
    bool terminal;
    bool shown;
    bool ended; /* no terminal: the line that says all is there */
    uint64_t begin_ns, next_ns;
} pgl_progress;

/* what must outlive the bar. */
void pgl_progress_init(pgl_progress *progress, const char *what);
/* Draws when it is time to; done and total are bytes. */
void pgl_progress_bytes(pgl_progress *progress, uint64_t done, uint64_t total);
/* The same for things that are counted, "tokens". */
void pgl_progress_count(pgl_progress *progress, uint64_t done, uint64_t total, const char *unit);
/* Takes the bar off the terminal. */
void pgl_progress_fini(pgl_progress *progress);

#endif
