/* Full logits of token lists through a backend, one sequence at a time. Private to the commands. One thread. */
#ifndef PGL_CLI_LOGITS_BACKEND_H
#define PGL_CLI_LOGITS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "model/model.h"

typedef struct pgl_logits_backend pgl_logits_backend;

typedef struct pgl_logits_backend_options {
    uint32_t most_tokens;  /* of a sequence */
    uint32_t piece_tokens; /* most of one step */
    uint32_t n_threads;    /* 0: one for each CPU */
} pgl_logits_backend_options;

/* Opens the CPU backend. The model is borrowed. */
pgl_status pgl_logits_backend_open(const pgl_model *model, const pgl_logits_backend_options *options,
                                   pgl_logits_backend **out, pgl_error *err);
void pgl_logits_backend_close(pgl_logits_backend *backend); /* NULL is allowed */

/* Forgets the sequence: the next step is the start of another. */
void pgl_logits_backend_restart(pgl_logits_backend *backend);

/* logits [n, vocab] after each of n tokens, 1 <= n <= piece_tokens. */
pgl_status pgl_logits_backend_step(pgl_logits_backend *backend, const int32_t *tokens, uint32_t n,
                                   float *logits, bool *non_finite, pgl_error *err);

#endif
