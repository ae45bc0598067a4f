/* What may be sampled of an answer, token by token: a limit on thinking, and a form that the answer has to keep.
 *
 * Thinking: after so many tokens the only token allowed is the model's own </think>, and the one behind it may not end
 * the answer, so that there is one. A thought that ends by itself is left alone; one that is opened again counts against
 * the same budget. Form: enforced from the end of the thought; until then the answer may not end. */
#ifndef PGL_SERVER_ANSWER_MASK_H
#define PGL_SERVER_ANSWER_MASK_H

#include "constraint/constraint.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

typedef struct pgl_answer_mask_options {
    const pgl_tokenizer *tokenizer;
    uint32_t n_vocab;
    bool in_thought;         /* the prompt ends inside a think block */
    int64_t budget_tokens;   /* of thinking; -1: no limit */
    const int32_t *stop_ids; /* that end an answer; copied */
    uint32_t n_stop_ids;
    pgl_constraint *constraint; /* taken over when the call succeeds; NULL: any text */
} pgl_answer_mask_options;

/* Leaves *out alone when nothing has to be kept. The provider closes itself. PGL_E_UNSUPPORTED when the tokenizer has no
 * </think> token and it is needed. */
pgl_status pgl_answer_mask_open(const pgl_answer_mask_options *options, pgl_mask_provider *out,
                                pgl_error *err);

#endif
