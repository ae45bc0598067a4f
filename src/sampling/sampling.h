/* What a sampled token is: defined once, here, and implemented by the host and by every device alike.
 *
 * Given the logits of one position, in f32, for ids 0 .. n_vocab - 1 (n_vocab is what the tokenizer knows:
 * padding rows of the embedding can never be sampled), in this order:
 *   1. repetition penalty r (ids that occur in prompt or generated tokens): l > 0 ? l / r : l * r
 *   2. presence and frequency penalties (generated tokens only, count c > 0): l - presence - frequency * c
 *   3. logit_bias: l + bias
 *   4. mask: ids whose bit is clear are removed
 *   5. temperature 0: the largest l, ties to the lower id. Otherwise d = (l - the largest l) / T, which keeps
 * the noise's low bits at small T, and the kept set, cut in this order: top_k (the k largest; ties at the
 * edge to the lower id), top_p (the smallest set of largest probabilities, by softmax over what top_k kept,
 * whose sum reaches p; ties to the lower id; never empty), min_p (probability at least min_p times the
 * largest).
 *   6. the token is the argmax over the kept set of d + g(seed, position, id), ties to the lower id,
 * where g = -log(-log(u)), u from Philox4x32-10 with key = seed and counter = (position, id, 0, 0): see
 * pgl_gumbel. The noise is independent of neighbours, batch and device. Two implementations give the same
 * token unless scores tie within 1e-5. A NaN or +infinity among the logits makes the row non-finite
 * (reported), as does a row without any finite one; an id whose logit is -infinity is removed. Steps 1 to 3
 * saturate at the largest finite f32. History of ids from n_vocab on has no effect. Log-probabilities are
 * those of the raw logits' log-softmax over n_vocab ids (before 1..6).
 *
 * Everything here is a pure function of its arguments; any thread. */
#ifndef PGL_SAMPLING_SAMPLING_H
#define PGL_SAMPLING_SAMPLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct pgl_logit_bias {
    int32_t id;
    float bias;
} pgl_logit_bias;

typedef struct pgl_sample_params {
    float temperature;        /* [0, 100]; 0 is greedy */
    float top_p;              /* (0, 1]; 1 is off */
    float min_p;              /* [0, 1]; 0 is off */
    int32_t top_k;            /* 0 or -1 is off */
    float presence_penalty;   /* [-2, 2] */
    float frequency_penalty;  /* [-2, 2] */
    float repetition_penalty; /* (0, 10]; 1 is off */
    uint64_t seed;
    const pgl_logit_bias *bias; /* rising ids, no repeats; owned by the request */
    uint32_t n_bias;
} pgl_sample_params;

/* Greedy, everything off. */
pgl_sample_params pgl_sample_defaults(void);

/* Refuses values outside the ranges above, NaN, and bias ids outside n_vocab, naming the field. */
pgl_status pgl_sample_check(const pgl_sample_params *params, uint32_t n_vocab, pgl_error *err);

bool pgl_sample_wants_history(const pgl_sample_params *params); /* any penalty is on */

/* The noise of step 6: u = (x + 0.5) * 2^-32 with x word 0 of Philox4x32-10, key (seed low, seed high),
 * counter (position, id, 0, 0); evaluated in double, rounded to f32. */
float pgl_gumbel(uint64_t seed, uint32_t position, uint32_t id);

/* One Philox4x32-10 block. */
void pgl_philox(uint64_t key, const uint32_t counter[4], uint32_t out[4]);

typedef struct pgl_token_count {
    int32_t id;
    uint32_t generated; /* occurrences among generated tokens */
    bool in_prompt;
} pgl_token_count;

/* What a row has seen, for penalties: sorted by id. */
typedef struct pgl_sample_history {
    const pgl_token_count *counts;
    size_t n;
} pgl_sample_history;

typedef struct pgl_sample_input {
    const float *logits; /* [n_vocab] */
    uint32_t n_vocab;
    const uint32_t *mask; /* bit id % 32 of word id / 32 set: allowed; NULL: all */
    const pgl_sample_params *params;
    pgl_sample_history history;
    uint32_t position; /* of the token being sampled, counted from the start of the sequence */
} pgl_sample_input;

/* Work space for one caller. Owned by one thread at a time. */
typedef struct pgl_sampler pgl_sampler;
pgl_status pgl_sampler_open(uint32_t n_vocab, pgl_sampler **out, pgl_error *err);
void pgl_sampler_close(pgl_sampler *sampler);

/* PGL_E_NUMERIC for non-finite logits; PGL_E_INVALID for a mask that allows nothing. */
pgl_status pgl_sample(pgl_sampler *sampler, const pgl_sample_input *input, int32_t *token, pgl_error *err);

typedef struct pgl_token_logprob {
    int32_t id;
    float logprob;
} pgl_token_logprob;

/* The n_top largest log-probabilities, falling, ties to the lower id, and those of given targets: 0 for a
 * target of -1, -infinity for ids from n_vocab on. n_top is at most n_vocab. PGL_E_NUMERIC as above. */
pgl_status pgl_logprobs(pgl_sampler *sampler, const float *logits, uint32_t n_vocab, uint32_t n_top,
                        pgl_token_logprob *top, const int32_t *targets, uint32_t n_targets,
                        float *target_logprobs, pgl_error *err);

#endif
