/* Full logits of given tokens through a backend: what `logits` and `eval` stand on.
 *
 * A scorer owns a checkpoint, its model and a backend with one slot; no engine, no sampling. One thread at a time. */
#ifndef PGL_API_SCORER_H
#define PGL_API_SCORER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"

typedef struct pgl_scorer pgl_scorer;

typedef struct pgl_scorer_options {
    const char *model;       /* directory */
    const char *backend;     /* "cpu"; NULL: the best there is */
    uint32_t context_tokens; /* the longest list; 0: 4,096 or the model's limit when less */
    uint32_t n_threads;      /* 0: one for each CPU */
    const char *force_isa;   /* as in pgl_backend_options */
} pgl_scorer_options;

pgl_status pgl_scorer_open(const pgl_scorer_options *options, pgl_scorer **out, pgl_error *err);
void pgl_scorer_close(pgl_scorer *scorer); /* NULL is allowed */

const pgl_model *pgl_scorer_model(const pgl_scorer *scorer);
const pgl_checkpoint *pgl_scorer_checkpoint(const pgl_scorer *scorer);

/* Rows first .. first + n - 1 of a list's logits [n][vocab_size], row i being those after token i. A status other than
 * PGL_OK ends the run. */
typedef pgl_status (*pgl_scorer_fn)(void *user, size_t first, size_t n, const float *logits, pgl_error *err);

/* Runs a list from its beginning. PGL_E_CONTEXT for more tokens than the context, PGL_E_INVALID for an id outside the
 * vocabulary, PGL_E_NUMERIC after the first piece whose logits are not finite (fn has seen it). */
pgl_status pgl_scorer_run(pgl_scorer *scorer, const int32_t *ids, size_t n, pgl_scorer_fn fn, void *user,
                          pgl_error *err);

#endif
