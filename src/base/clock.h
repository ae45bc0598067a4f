/* Time. Nothing here fails; any thread. */
#ifndef PGL_BASE_CLOCK_H
#define PGL_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since an arbitrary start; never goes back. For durations and deadlines. */
uint64_t pgl_now_ns(void);

/* Processor time of the calling thread: what only waits for a processor takes none. */
uint64_t pgl_thread_ns(void);

/* Nanoseconds since 1970-01-01 UTC, as the system's clock has it. */
uint64_t pgl_wall_ns(void);

#define PGL_TIME_TEXT 32
/* "2026-01-31T23:59:59.123Z" of a pgl_wall_ns value. */
void pgl_wall_text(uint64_t wall_ns, char out[PGL_TIME_TEXT]);

#endif
