/* A limit on thinking, kept by the mask of what may be sampled: after so many thinking tokens the only token allowed is
 * the model's own </think>, and the one behind it may not end the answer, so that there is one. A thought that ends by
 * itself is left alone; one that is opened again counts against the same budget. */
#ifndef PGL_SERVER_THINK_BUDGET_H
#define PGL_SERVER_THINK_BUDGET_H

#include "engine/engine.h"
#include "text/tokenizer.h"

/* For a prompt that ends inside a think block. stop_ids are copied. The provider closes itself. PGL_E_UNSUPPORTED when
 * the tokenizer has no </think> token. */
pgl_status pgl_think_budget_open(const pgl_tokenizer *tokenizer, uint32_t n_vocab, uint32_t budget_tokens,
                                 const int32_t *stop_ids, uint32_t n_stop_ids, pgl_mask_provider *out,
                                 pgl_error *err);

#endif
