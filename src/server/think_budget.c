#include "server/think_budget.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

typedef struct think_budget {
    /* fixed after open */
    uint32_t n_vocab, budget_tokens;
    int32_t start, end; /* ids of <think> (-1: none) and </think> */
    int32_t stop_ids[PGL_MAX_STOP_IDS];
    uint32_t n_stop_ids;

    /* the engine's mask thread */
    uint32_t n_tokens;
    bool in_thought, forced;
} think_budget;

static pgl_mask_answer only(const think_budget *self, uint32_t *mask, int32_t id) {
    memset(mask, 0, (self->n_vocab + 31) / 32 * sizeof *mask);
    mask[id / 32] |= 1u << (id % 32);
    return PGL_MASK_SOME;
}

static pgl_mask_answer no_end(const think_budget *self, uint32_t *mask) {
    memset(mask, 0xff, (self->n_vocab + 31) / 32 * sizeof *mask);
    for (uint32_t i = 0; i < self->n_stop_ids; i++)
        mask[self->stop_ids[i] / 32] &= ~(1u << (self->stop_ids[i] % 32));
    return PGL_MASK_SOME;
}

static pgl_mask_answer next(void *user, int32_t token, uint32_t *mask, pgl_error *err) {
    (void)err;
    think_budget *self = user;
    if (token >= 0 && self->in_thought && token == self->end) {
        bool forced = self->forced;
        self->in_thought = self->forced = false;
        return forced ? no_end(self, mask) : PGL_MASK_ALL;
    }
    if (token >= 0 && self->in_thought)
        self->n_tokens++;
    else if (token >= 0 && token == self->start)
        self->in_thought = true;
    if (!self->in_thought || self->n_tokens < self->budget_tokens)
        return PGL_MASK_ALL;
    self->forced = true;
    return only(self, mask, self->end);
}

pgl_status pgl_think_budget_open(const pgl_tokenizer *tokenizer, uint32_t n_vocab, uint32_t budget_tokens,
                                 const int32_t *stop_ids, uint32_t n_stop_ids, pgl_mask_provider *out,
                                 pgl_error *err) {
    int32_t start = pgl_tokenizer_find_added(tokenizer, "<think>", 7);
    int32_t end = pgl_tokenizer_find_added(tokenizer, "</think>", 8);
    if (end < 0 || (uint32_t)end >= n_vocab)
        return pgl_fail(err, PGL_E_UNSUPPORTED,
                        "this model has no </think> token, so that thinking has no budget");
    think_budget *self = pgl_new(1, sizeof *self);
    if (!self)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a thinking budget");
    *self = (think_budget){
        .n_vocab = n_vocab, .budget_tokens = budget_tokens, .start = start, .end = end, .in_thought = true};
    for (uint32_t i = 0; i < n_stop_ids && i < PGL_MAX_STOP_IDS; i++)
        if (stop_ids[i] >= 0 && (uint32_t)stop_ids[i] < n_vocab)
            self->stop_ids[self->n_stop_ids++] = stop_ids[i];
    *out = (pgl_mask_provider){.next = next, .close = free, .user = self};
    return PGL_OK;
}
