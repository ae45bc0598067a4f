/* The backend without a model: tokens are forced. For tests of the engine and the server, and for `echo`.
 *
 * Slots, pages and snapshots are kept and checked exactly as a real backend's (a row whose pages are not
 * bound is an error), so an engine that mishandles them fails here. A slot's "state" is a running hash of all
 * its tokens: save, restore, fork, copy, commit, export and import carry it, and logits are a function of it,
 * so two sequences that should be equal are equal and all others differ. */
#ifndef PGL_BACKEND_NULL_NULL_H
#define PGL_BACKEND_NULL_NULL_H

#include "backend/backend.h"

typedef struct pgl_null_options {
    uint32_t vocab_size, hidden_size, n_layers, n_experts, n_experts_used; /* reported in caps */
    uint64_t step_ns;                                                      /* time a step takes: fixed part */
    uint64_t token_ns; /* and for each token of its rows */
    /* The token that a slot samples after `length` tokens, -1: by logits. Called on the backend's own thread.
     */
    int32_t (*next_token)(void *user, uint32_t slot, uint32_t length, int32_t last_token);
    /* true: the row at this slot and length is reported non-finite (fault injection). May be NULL. */
    bool (*inject_non_finite)(void *user, uint32_t slot, uint32_t length);
    void *user;
} pgl_null_options;

pgl_status pgl_backend_open_null(const pgl_null_options *null_options, const pgl_backend_options *options,
                                 pgl_backend **out, pgl_error *err);

#endif
