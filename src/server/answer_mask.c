#include "server/answer_mask.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

typedef struct answer_mask {
    /* fixed after open */
    uint32_t n_vocab;
    int64_t budget_tokens;
    int32_t start, end; /* ids of <think> and </think>; -1: none */
    int32_t stop_ids[PGL_MAX_STOP_IDS];
    uint32_t n_stop_ids;

    /* the engine's mask thread */
    pgl_constraint *constraint;
    int64_t n_tokens;
    bool in_thought, forced;
} answer_mask;

static pgl_mask_answer only(const answer_mask *self, uint32_t *mask, int32_t id) {
    memset(mask, 0, (self->n_vocab + 31) / 32 * sizeof *mask);
    mask[id / 32] |= 1u << (id % 32);
    return PGL_MASK_SOME;
}

static pgl_mask_answer no_end(const answer_mask *self, uint32_t *mask) {
    memset(mask, 0xff, (self->n_vocab + 31) / 32 * sizeof *mask);
    for (uint32_t i = 0; i < self->n_stop_ids; i++)
        mask[self->stop_ids[i] / 32] &= ~(1u << (self->stop_ids[i] % 32));
    return PGL_MASK_SOME;
}

static pgl_mask_answer in_form(answer_mask *self, uint32_t *mask, pgl_error *err) {
    pgl_status status = pgl_constraint_mask(self->constraint, mask, (self->n_vocab + 31) / 32, err);
    if (status != PGL_OK)
        pgl_error_prefix(err, "the answer's form cannot be kept");
    return status == PGL_OK ? PGL_MASK_SOME : PGL_MASK_FAILED;
}

static pgl_mask_answer next(void *user, int32_t token, uint32_t *mask, pgl_error *err) {
    answer_mask *self = user;
    bool forced = false;
    if (token >= 0 && self->in_thought && token == self->end) {
        forced = self->forced;
        self->in_thought = self->forced = false;
    } else if (token >= 0 && self->in_thought) {
        self->n_tokens++;
    } else if (token >= 0 && self->constraint) {
        if (pgl_constraint_accept(self->constraint, token, err) != PGL_OK) {
            pgl_error_prefix(err, "the answer's form cannot be kept");
            return PGL_MASK_FAILED;
        }
    } else if (token >= 0 && token == self->start) {
        self->in_thought = self->budget_tokens >= 0;
    }
    if (self->in_thought && self->budget_tokens >= 0 && self->n_tokens >= self->budget_tokens) {
        self->forced = true;
        return only(self, mask, self->end);
    }
    if (self->constraint)
        return self->in_thought ? no_end(self, mask) : in_form(self, mask, err);
    return forced ? no_end(self, mask) : PGL_MASK_ALL;
}

static void close_mask(void *user) {
    answer_mask *self = user;
    pgl_constraint_close(self->constraint);
    free(self);
}

pgl_status pgl_answer_mask_open(const pgl_answer_mask_options *options, pgl_mask_provider *out,
                                pgl_error *err) {
    int32_t start = pgl_tokenizer_find_added(options->tokenizer, "<think>", 7);
    int32_t end = pgl_tokenizer_find_added(options->tokenizer, "</think>", 8);
    bool budget = options->budget_tokens >= 0 && options->in_thought;
    if (!budget && !options->constraint)
        return PGL_OK;
    if (options->in_thought && (end < 0 || (uint32_t)end >= options->n_vocab))
        return pgl_fail(err, PGL_E_UNSUPPORTED,
                        "this model has no </think> token, so that its thinking cannot be bounded");
    answer_mask *self = pgl_new(1, sizeof *self);
    if (!self)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for an answer's mask");
    *self = (answer_mask){.n_vocab = options->n_vocab,
                          .budget_tokens = budget ? options->budget_tokens : -1,
                          .start = start,
                          .end = end,
                          .constraint = options->constraint,
                          .in_thought = options->in_thought};
    for (uint32_t i = 0; i < options->n_stop_ids && self->n_stop_ids < PGL_MAX_STOP_IDS; i++)
        if (options->stop_ids[i] >= 0 && (uint32_t)options->stop_ids[i] < options->n_vocab)
            self->stop_ids[self->n_stop_ids++] = options->stop_ids[i];
    *out = (pgl_mask_provider){.next = next, .close = close_mask, .user = self};
    return PGL_OK;
}
