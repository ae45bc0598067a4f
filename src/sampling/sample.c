/* Owns the work space of one caller and carries out the six steps of sampling.h on the host. Nothing is
 * allocated after open. All orders are total (score falling, then id rising) and all sums run in a fixed
 * order, so the same input gives the same token every time.
 *
 * The kept set is found without sorting the vocabulary: scores are counted in buckets of 1/64 nat below the
 * largest, the buckets that can matter are gathered, and only those are sorted (radix, linear also when a
 * model makes all scores equal). */
#include "sampling/sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "sampling/noise.h"

enum {
    N_BUCKETS = 4096,
    BUCKETS_PER_NAT = 64,
    RADIX_BITS = 11,
    RADIX_PASSES = 3, /* keys have 31 bits */
    N_RADIX = 1 << RADIX_BITS,
};

/* key rises as the score falls: the bits of -score, which is not negative. */
typedef struct entry {
    uint32_t key;
    int32_t id;
} entry;

struct pgl_sampler {
    uint32_t n_vocab;
    float *score;  /* [n_vocab]: logits, then (l - largest) / T; -infinity: removed */
    entry *sorted; /* [n_vocab] */
    entry *spare;  /* [n_vocab] */
    uint32_t count[N_BUCKETS];
    double mass[N_BUCKETS];
    uint32_t radix[N_RADIX];
};

pgl_status pgl_sampler_open(uint32_t n_vocab, pgl_sampler **out, pgl_error *err) {
    *out = NULL;
    pgl_sampler *sampler = pgl_new_aligned(1, sizeof *sampler);
    if (sampler == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a sampler");
    sampler->n_vocab = n_vocab;
    sampler->score = pgl_new_aligned(n_vocab, sizeof *sampler->score);
    sampler->sorted = pgl_new_aligned(n_vocab, sizeof *sampler->sorted);
    sampler->spare = pgl_new_aligned(n_vocab, sizeof *sampler->spare);
    if (sampler->score == NULL || sampler->sorted == NULL || sampler->spare == NULL) {
        pgl_sampler_close(sampler);
        return pgl_fail(err, PGL_E_MEMORY, "no memory to sample from %u ids", n_vocab);
    }
    *out = sampler;
    return PGL_OK;
}

void pgl_sampler_close(pgl_sampler *sampler) {
    if (sampler == NULL)
        return;
    free(sampler->score);
    free(sampler->sorted);
    free(sampler->spare);
    free(sampler);
}

static float saturate(float x) {
    return fminf(fmaxf(x, -FLT_MAX), FLT_MAX);
}

/* Copies the logits; PGL_E_NUMERIC when one is NaN or +infinity, or none is finite. */
static pgl_status take_logits(pgl_sampler *sampler, const float *logits, uint32_t n, float *largest,
                              pgl_error *err) {
    float max = -INFINITY;
    unsigned bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        float l = logits[i];
        bad |= (unsigned)!(l <= FLT_MAX);
        max = l > max ? l : max;
        sampler->score[i] = l;
    }
    if (bad != 0 || max == -INFINITY) {
        uint32_t at = 0;
        while (at + 1 < n && logits[at] <= FLT_MAX)
            at++;
        return pgl_fail(err, PGL_E_NUMERIC, "logits are not finite: %g for token %u", (double)logits[at], at);
    }
    *largest = max;
    return PGL_OK;
}

/* Steps 1 to 3. Each step's result saturates at the largest finite number. */
static void apply_penalties(float *score, const pgl_sample_input *input) {
    const pgl_sample_params *params = input->params;
    const pgl_sample_history *history = &input->history;
    size_t n_history = pgl_sample_wants_history(params) ? history->n : 0;
    for (size_t i = 0; i < n_history; i++) {
        const pgl_token_count *count = &history->counts[i];
        if (count->id < 0 || (uint32_t)count->id >= input->n_vocab || score[count->id] == -INFINITY)
            continue;
        float l = score[count->id];
        if (count->in_prompt || count->generated > 0)
            l = saturate(l > 0.0F ? l / params->repetition_penalty : l * params->repetition_penalty);
        if (count->generated > 0)
            l = saturate(l - params->presence_penalty - params->frequency_penalty * (float)count->generated);
        score[count->id] = l;
    }
    for (uint32_t i = 0; i < params->n_bias; i++) {
        const pgl_logit_bias *bias = &params->bias[i];
        if (bias->id >= 0 && (uint32_t)bias->id < input->n_vocab && score[bias->id] != -INFINITY)
            score[bias->id] = saturate(score[bias->id] + bias->bias);
    }
}

static void apply_mask(float *score, const uint32_t *mask, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if ((mask[i / 32] >> (i % 32) & 1u) == 0)
            score[i] = -INFINITY;
}

/* The largest score's id, ties to the lower; -1 when every id is removed. */
static int32_t find_largest(const float *score, uint32_t n) {
    float max = -INFINITY;
    int32_t at = -1;
    for (uint32_t i = 0; i < n; i++)
        if (score[i] > max) {
            max = score[i];
            at = (int32_t)i;
        }
    return at;
}

/* score <- (score - largest) / divisor, never above zero and never -0. */
static void scale_scores(float *score, uint32_t n, float largest, float divisor) {
    for (uint32_t i = 0; i < n; i++)
        score[i] = (score[i] - largest) / divisor + 0.0F;
}

/* Falls with the score. Removed ids (-infinity) have no bucket: ask only for others. */
static uint32_t bucket_of(float score) {
    float place = -score * (float)BUCKETS_PER_NAT;
    return place < (float)(N_BUCKETS - 1) ? (uint32_t)place : N_BUCKETS - 1;
}

static uint32_t key_of(float score) {
    float positive = 0.0F - score;
    uint32_t bits;
    memcpy(&bits, &positive, sizeof bits);
    return bits;
}

static float score_of(uint32_t key) {
    float positive;
    memcpy(&positive, &key, sizeof positive);
    return -positive;
}

/* Entries of all ids whose bucket is at most last, sorted. */
static size_t gather(pgl_sampler *sampler, uint32_t n, uint32_t last) {
    size_t m = 0;
    for (uint32_t i = 0; i < n; i++) {
        float s = sampler->score[i];
        if (s != -INFINITY && bucket_of(s) <= last)
            sampler->sorted[m++] = (entry){key_of(s), (int32_t)i};
    }
    entry *from = sampler->sorted, *to = sampler->spare;
    for (int pass = 0; pass < RADIX_PASSES; pass++) {
        int shift = pass * RADIX_BITS;
        memset(sampler->radix, 0, sizeof sampler->radix);
        for (size_t i = 0; i < m; i++)
            sampler->radix[from[i].key >> shift & (N_RADIX - 1)]++;
        uint32_t place = 0;
        for (size_t d = 0; d < N_RADIX; d++) {
            uint32_t c = sampler->radix[d];
            sampler->radix[d] = place;
            place += c;
        }
        for (size_t i = 0; i < m; i++)
            to[sampler->radix[from[i].key >> shift & (N_RADIX - 1)]++] = from[i];
        entry *swap = from;
        from = to;
        to = swap;
    }
    sampler->sorted = from;
    sampler->spare = to;
    return m;
}

/* The k best ids in order; fewer when fewer are left. */
static size_t keep_top_k(pgl_sampler *sampler, uint32_t n, uint32_t k) {
    memset(sampler->count, 0, sizeof sampler->count);
    for (uint32_t i = 0; i < n; i++)
        if (sampler->score[i] != -INFINITY)
            sampler->count[bucket_of(sampler->score[i])]++;
    uint32_t last = 0;
    uint64_t seen = sampler->count[0];
    while (seen < k && last + 1 < N_BUCKETS)
        seen += sampler->count[++last];
    size_t m = gather(sampler, n, last);
    return m < k ? m : k;
}

/* A superset of the nucleus, in order; *total is the mass of all ids. */
static size_t keep_mass(pgl_sampler *sampler, uint32_t n, double p, double *total) {
    memset(sampler->mass, 0, sizeof sampler->mass);
    for (uint32_t i = 0; i < n; i++)
        if (sampler->score[i] != -INFINITY)
            sampler->mass[bucket_of(sampler->score[i])] += (double)expf(sampler->score[i]);
    *total = 0;
    for (size_t b = 0; b < N_BUCKETS; b++)
        *total += sampler->mass[b];
    uint32_t last = 0;
    double seen = sampler->mass[0];
    while (seen < p * *total && last + 1 < N_BUCKETS)
        seen += sampler->mass[++last];
    /* One bucket more: the walk in order adds up the same numbers in another order. */
    return gather(sampler, n, last + 1 < N_BUCKETS ? last + 1 : last);
}

typedef struct draw {
    const pgl_sample_input *input;
    float best;
    int32_t id;
} draw;

/* The largest that pgl_noise_of_word can be. */
#define NOISE_MAX 22.9F

static void draw_one(draw *d, int32_t id, float score) {
    if (score + NOISE_MAX < d->best)
        return;
    uint32_t word = pgl_noise_word(d->input->params->seed, d->input->position, (uint32_t)id);
    if (score + pgl_noise_bound(word) < d->best)
        return;
    float noisy = score + pgl_noise_of_word(word);
    bool better = d->id < 0 || noisy > d->best || (noisy == d->best && id < d->id);
    if (better && expf(score) >= d->input->params->min_p) {
        d->best = noisy;
        d->id = id;
    }
}

/* Steps 5 and 6 at T > 0. first is the id of the largest score. */
static int32_t draw_token(pgl_sampler *sampler, const pgl_sample_input *input, int32_t first) {
    const pgl_sample_params *params = input->params;
    uint32_t n = input->n_vocab;
    bool by_k = params->top_k > 0 && (uint32_t)params->top_k < n;
    bool by_p = params->top_p < 1.0F;
    draw d = {.input = input, .best = -INFINITY, .id = -1};
    if (!by_k && !by_p) {
        draw_one(&d, first, 0.0F); /* a good start spares most of the others their logarithms */
        for (uint32_t i = 0; i < n; i++)
            if (sampler->score[i] != -INFINITY)
                draw_one(&d, (int32_t)i, sampler->score[i]);
        return d.id;
    }
    double total = 0, seen = 0;
    size_t kept = 0;
    if (by_k) {
        kept = keep_top_k(sampler, n, (uint32_t)params->top_k);
        for (size_t i = 0; i < kept; i++)
            total += (double)expf(score_of(sampler->sorted[i].key));
    } else {
        kept = keep_mass(sampler, n, (double)params->top_p, &total);
    }
    double enough = by_p ? (double)params->top_p * total : INFINITY;
    for (size_t i = 0; i < kept && seen < enough; i++) {
        float score = score_of(sampler->sorted[i].key);
        seen += (double)expf(score);
        draw_one(&d, sampler->sorted[i].id, score);
    }
    return d.id;
}

pgl_status pgl_sample(pgl_sampler *sampler, const pgl_sample_input *input, int32_t *token, pgl_error *err) {
    uint32_t n = input->n_vocab;
    if (n == 0 || n > sampler->n_vocab)
        return pgl_fail(err, PGL_E_INVALID, "sampler: made for %u ids, asked for %u", sampler->n_vocab, n);
    float largest;
    pgl_status status = take_logits(sampler, input->logits, n, &largest, err);
    if (status != PGL_OK)
        return status;
    apply_penalties(sampler->score, input);
    if (input->mask != NULL)
        apply_mask(sampler->score, input->mask, n);
    int32_t first = find_largest(sampler->score, n);
    if (first < 0)
        return pgl_fail(err, PGL_E_INVALID, "the token mask allows none of %u ids", n);
    if (input->params->temperature > 0.0F) {
        scale_scores(sampler->score, n, sampler->score[first], input->params->temperature);
        first = draw_token(sampler, input, first);
    }
    *token = first;
    return PGL_OK;
}

pgl_status pgl_logprobs(pgl_sampler *sampler, const float *logits, uint32_t n_vocab, uint32_t n_top,
                        pgl_token_logprob *top, const int32_t *targets, uint32_t n_targets,
                        float *target_logprobs, pgl_error *err) {
    if (n_vocab == 0 || n_vocab > sampler->n_vocab)
        return pgl_fail(err, PGL_E_INVALID, "sampler: made for %u ids, asked for %u", sampler->n_vocab,
                        n_vocab);
    if (n_top > n_vocab)
        return pgl_fail(err, PGL_E_INVALID, "log-probabilities: %u of %u ids asked for", n_top, n_vocab);
    float largest;
    pgl_status status = take_logits(sampler, logits, n_vocab, &largest, err);
    if (status != PGL_OK)
        return status;
    scale_scores(sampler->score, n_vocab, largest, 1.0F);
    double total = 0;
    for (uint32_t i = 0; i < n_vocab; i++)
        total += (double)expf(sampler->score[i]);
    double log_total = log(total);
    for (uint32_t i = 0; i < n_targets; i++) {
        int32_t id = targets[i];
        if (id < -1)
            return pgl_fail(err, PGL_E_INVALID, "log-probabilities: target %u is %d", i, (int)id);
        if (id == -1)
            target_logprobs[i] = 0.0F;
        else if ((uint32_t)id >= n_vocab)
            target_logprobs[i] = -INFINITY;
        else
            target_logprobs[i] = (float)((double)sampler->score[id] - log_total);
    }
    size_t found = n_top > 0 ? keep_top_k(sampler, n_vocab, n_top) : 0;
    for (size_t i = 0; i < found; i++)
        top[i] = (pgl_token_logprob){sampler->sorted[i].id,
                                     (float)((double)score_of(sampler->sorted[i].key) - log_total)};
    int32_t id = -1; /* what is left, if anything is, has no probability: the lowest ids */
    for (size_t i = found; i < n_top; i++) {
        do
            id++;
        while (sampler->score[id] != -INFINITY);
        top[i] = (pgl_token_logprob){id, -INFINITY};
    }
    return PGL_OK;
}
