/* How good a model is: perplexity, distance from a reference, and likelihood of choices.
 *
 * Everything is computed in double from the f32 logits over the ids that the tokenizer knows; log-probabilities that are
 * stored or compared with stored ones are rounded to f32 first, so that a model compared with itself gives exactly 0.
 *
 * A reference file is safetensors with, for sequence k of n tokens and t kept entries a position:
 *   ids.k        I32 [n]
 *   top_ids.k    I32 [n, t]   the t most likely next ids after token i, falling
 *   top_logprobs.k F32 [n, t]
 *   rest_logprob.k F32 [n]    of all other ids together; -inf as the lowest finite number when there are none
 * One thread. */
#ifndef PGL_API_EVAL_H
#define PGL_API_EVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/scorer.h"

#define PGL_EVAL_MOST_TOP 8192u

typedef struct pgl_eval_sequence {
    const int32_t *ids;
    size_t n;
} pgl_eval_sequence;

typedef struct pgl_eval_options {
    const pgl_eval_sequence *sequences; /* each of at least 2 tokens */
    size_t n_sequences;
    uint32_t n_vocab;      /* ids that count; the padding of the vocabulary does not */
    uint32_t n_top;        /* kept entries of the file that is saved */
    const char *save;      /* reference file to write; NULL: none */
    const char *reference; /* to compare with; its ids must be those of the sequences. NULL: none */
    bool (*progress)(void *user, uint64_t done_tokens,
                     uint64_t total_tokens); /* false: stop, PGL_E_CANCELLED */
    void *user;
} pgl_eval_options;

typedef struct pgl_eval_report {
    uint64_t n_predicted; /* positions with a next token */
    double nll;           /* mean negative log-likelihood of the next token, nats */
    double perplexity;    /* exp(nll) */
    double nll_error;     /* standard error of nll over sequences; 0 for one */
    uint64_t n_compared;  /* positions compared with the reference */
    double kl; /* mean over positions of KL(reference || model), nats, kept entries and the rest as one */
    double kl_median, kl_p99, kl_max;
    double top1_agreement; /* share of positions with the same most likely id */
} pgl_eval_report;

pgl_status pgl_eval(pgl_scorer *scorer, const pgl_eval_options *options, pgl_eval_report *report,
                    pgl_error *err);

/* Sum of log-likelihoods of ids[first ..] given what stands before; first >= 1. *greedy: each was the most likely. */
pgl_status pgl_eval_continuation(pgl_scorer *scorer, const int32_t *ids, size_t n, size_t first,
                                 uint32_t n_vocab, double *loglikelihood, bool *greedy, pgl_error *err);

#endif
