/* What a generation leaves for its trace: gathered beside the answer when the server writes traces, one JSON document at
 * the end. trace_read.h reads it again. Nothing here fails a request: a trace that memory ran out for is counted as
 * lost. Called by whoever owns the generation at the time; without traces every call does nothing. */
#ifndef PGL_SERVER_TRACE_RECORD_H
#define PGL_SERVER_TRACE_RECORD_H

#include "server/generation.h"

#define PGL_TRACE_VERSION 1

/* Before a choice is submitted: asks the engine for what a trace holds, and writes the parameters down. */
void pgl_trace_params(pgl_generation *gen, const pgl_choice *choice, pgl_request_params *request);

/* All are submitted; what the body holds is still there. */
void pgl_trace_begin(pgl_generation *gen);

void pgl_trace_token(const pgl_generation *gen, const pgl_choice *choice, const pgl_event *event);
void pgl_trace_finish(const pgl_generation *gen, const pgl_choice *choice, const pgl_event *event);

/* Before the choice's request is released. */
void pgl_trace_leave(const pgl_generation *gen, const pgl_choice *choice);

/* Hands the document over and frees what was gathered. */
void pgl_trace_end(pgl_generation *gen);

#endif
