/* What a backend without a model answers: the forced tokens of the request that runs in each slot. The table is
 * made before backend and engine, the engine fills it, and the null backend asks it. Guarded by its own lock;
 * any thread. */
#ifndef PGL_ENGINE_FORCED_H
#define PGL_ENGINE_FORCED_H

#include <stdint.h>

#include "base/status.h"

typedef struct pgl_forced pgl_forced;

pgl_status pgl_forced_open(uint32_t n_slots, pgl_forced **out, pgl_error *err);
void pgl_forced_close(pgl_forced *forced); /* after backend and engine; NULL is allowed */

/* After n_prompt tokens of slot come tokens[0 .. n). tokens is borrowed until the slot is set again. */
void pgl_forced_set(pgl_forced *forced, uint32_t slot, uint32_t n_prompt, const int32_t *tokens, uint32_t n);

/* The token behind the first `length` of slot; -1: none is forced. Fits pgl_null_options.next_token, forced being
 * its user pointer. */
int32_t pgl_forced_token(void *forced, uint32_t slot, uint32_t length, int32_t last_token);

#endif
