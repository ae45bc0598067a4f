/* Reading a trace: one JSON document, as trace_record.h writes it, with everything that is needed to run its sequences
 * again. It may come from anywhere: every member that is read is checked for its type and range, with the place in the
 * message; members that are not known are ignored. */
#ifndef PGL_SERVER_TRACE_READ_H
#define PGL_SERVER_TRACE_READ_H

#include "base/arena.h"
#include "constraint/constraint.h"
#include "engine/engine.h"

#define PGL_TRACE_MOST_BYTES ((size_t)256 << 20)
#define PGL_TRACE_MOST_SEQUENCES 65536u

typedef struct pgl_trace_sequence {
    const int32_t *prompt;
    uint32_t n_prompt;
    bool in_thought;
    pgl_sample_params sampling;
    const int32_t *stop_ids;
    uint32_t n_stop_ids;
    const int32_t *tokens;
    const float *logprobs; /* [n_tokens]; NaN where the trace has none */
    uint32_t n_tokens;
    pgl_finish finish; /* NONE: cut by the server or the client */
    int32_t stop_id;   /* with STOP */
} pgl_trace_sequence;

typedef struct pgl_trace {
    pgl_arena *arena; /* owns what is pointed to */
    const char *model, *fingerprint, *backend, *version;
    int64_t thinking_budget; /* -1: none */
    bool has_form;
    pgl_constraint_spec form;
    pgl_trace_sequence *sequences;
    uint32_t n_sequences;
} pgl_trace;

/* PGL_E_INVALID: no JSON, no trace, or a member that is wrong; PGL_E_UNSUPPORTED: a trace of another version;
 * PGL_E_TOO_LARGE, PGL_E_MEMORY. After a failure there is nothing to release. */
pgl_status pgl_trace_parse(const char *text, size_t size, pgl_trace *out, pgl_error *err);
void pgl_trace_fini(pgl_trace *trace);

const char *pgl_trace_form_name(pgl_constraint_kind kind);

#endif
