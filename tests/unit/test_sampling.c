/* Sampling against its definition: published Philox vectors, the distribution of the draw, and the kept set
 * of a plain implementation that sorts everything, on random logits with ties. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sampling/noise.h"
#include "sampling/sampling.h"

enum { MAX_N = 700 };

static uint64_t random_state = 88172645463325252u;

static uint32_t random_u32(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16);
}

static float random_unit(void) {
    return (float)(random_u32() >> 8) * 0x1p-24F;
}

static void philox_matches_the_published_vectors(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t out[4];
    } vectors[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         0x299f31d0a4093822ull,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        uint32_t out[4];
        pgl_philox(vectors[i].key, vectors[i].counter, out);
        assert_memory_equal(out, vectors[i].out, sizeof out);
    }
}

static void noise_bound_is_never_below_the_noise(void **state) {
    (void)state;
    for (uint32_t shift = 0; shift < 32; shift++)
        for (int32_t off = -3; off <= 3; off++) {
            uint32_t word = ~((1u << shift) + (uint32_t)off);
            assert_true(pgl_noise_bound(word) >= pgl_noise_of_word(word));
        }
    for (int i = 0; i < 300000; i++) {
        uint32_t word = random_u32() | ~((1u << random_u32() % 32) - 1);
        assert_true(pgl_noise_bound(word) >= pgl_noise_of_word(word));
    }
    assert_true(pgl_noise_of_word(UINT32_MAX) < 22.9F);
    assert_true(isfinite(pgl_noise_of_word(0)));
}

static void noise_depends_on_seed_position_and_id_only(void **state) {
    (void)state;
    assert_true(pgl_gumbel(1, 2, 3) == pgl_gumbel(1, 2, 3));
    assert_true(pgl_gumbel(1, 2, 3) != pgl_gumbel(1, 3, 2));
    assert_true(pgl_gumbel(1, 2, 3) != pgl_gumbel(1ull << 32 | 1, 2, 3));
    const uint32_t counter[4] = {7, 9, 0, 0};
    uint32_t out[4];
    pgl_philox(5, counter, out);
    double u = (out[0] + 0.5) / 4294967296.0;
    assert_true(pgl_gumbel(5, 7, 9) == (float)-log(-log(u)));
}

/* The definition, literally: sort everything. kept receives ids in order. */
typedef struct scored {
    float score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static bool allowed_by(const uint32_t *mask, int32_t id) {
    return mask == NULL || (mask[id / 32] >> (id % 32) & 1u) != 0;
}

static size_t naive_adjust(const pgl_sample_input *in, scored *s) {
    const pgl_sample_params *p = in->params;
    size_t n = 0;
    for (uint32_t i = 0; i < in->n_vocab; i++) {
        float l = in->logits[i];
        for (size_t h = 0; h < in->history.n; h++) {
            const pgl_token_count *c = &in->history.counts[h];
            if (c->id != (int32_t)i)
                continue;
            if (c->generated > 0 || c->in_prompt)
                l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
            if (c->generated > 0)
                l = l - p->presence_penalty - p->frequency_penalty * (float)c->generated;
        }
        for (uint32_t b = 0; b < p->n_bias; b++)
            if (p->bias[b].id == (int32_t)i)
                l = l + p->bias[b].bias;
        if (allowed_by(in->mask, (int32_t)i))
            s[n++] = (scored){l, (int32_t)i};
    }
    qsort(s, n, sizeof *s, by_score);
    return n;
}

static size_t naive_cut(const pgl_sample_params *p, scored *s, size_t n) {
    float max = s[0].score;
    for (size_t i = 0; i < n; i++)
        s[i].score = (s[i].score - max) / p->temperature + 0.0F;
    qsort(s, n, sizeof *s, by_score); /* scaling may bring ties */
    if (p->top_k > 0 && (size_t)p->top_k < n)
        n = (size_t)p->top_k;
    if (p->top_p < 1) {
        double total = 0, seen = 0;
        for (size_t i = 0; i < n; i++)
            total += (double)expf(s[i].score);
        size_t kept = 0;
        while (kept < n && seen < (double)p->top_p * total)
            seen += (double)expf(s[kept++].score);
        n = kept;
    }
    size_t kept = 0;
    while (kept < n && expf(s[kept].score) >= p->min_p)
        kept++;
    return kept;
}

static int32_t naive_sample(const pgl_sample_input *in, size_t *n_kept) {
    static scored s[MAX_N];
    size_t n = naive_adjust(in, s);
    *n_kept = 1;
    if (in->params->temperature == 0)
        return s[0].id;
    n = naive_cut(in->params, s, n);
    *n_kept = n;
    float best = -INFINITY;
    int32_t id = -1;
    for (size_t i = 0; i < n; i++) {
        float v = s[i].score + pgl_gumbel(in->params->seed, in->position, (uint32_t)s[i].id);
        if (v > best || (v == best && s[i].id < id)) {
            best = v;
            id = s[i].id;
        }
    }
    return id;
}

typedef struct random_case {
    float logits[MAX_N];
    uint32_t mask[(MAX_N + 31) / 32];
    pgl_token_count counts[40];
    pgl_logit_bias bias[8];
    pgl_sample_params params;
    pgl_sample_input input;
} random_case;

static float pick(const float *values, size_t n) {
    return values[random_u32() % n];
}

static void make_case(random_case *c) {
    static const float temperatures[] = {0, 0.01F, 0.3F, 0.6F, 1, 1.7F, 100};
    static const float ps[] = {0.05F, 0.3F, 0.5F, 0.75F, 0.95F, 1, 1};
    static const float mins[] = {0, 0, 0.05F, 0.3F, 1};
    uint32_t n = 1 + random_u32() % MAX_N;
    float width = (float)(1 + random_u32() % 30);
    uint32_t steps = random_u32() % 3 == 0 ? 1 + random_u32() % 12 : 1u << 20; /* few values: many ties */
    for (uint32_t i = 0; i < n; i++)
        c->logits[i] = (float)(random_u32() % steps) / (float)steps * width - width / 2;
    for (size_t w = 0; w < sizeof c->mask / sizeof *c->mask; w++)
        c->mask[w] = random_u32() & random_u32();
    c->mask[n / 64] |= 1u;
    c->params = pgl_sample_defaults();
    c->params.temperature = pick(temperatures, 7);
    c->params.top_p = pick(ps, 7);
    c->params.min_p = pick(mins, 5);
    c->params.top_k = (int32_t)(random_u32() % 3 == 0 ? 1 + random_u32() % 60 : random_u32() % 2 - 1);
    c->params.seed = ((uint64_t)random_u32() << 32) | random_u32();
    size_t n_counts = 0;
    if (random_u32() % 2) {
        c->params.presence_penalty = random_unit() * 4 - 2;
        c->params.frequency_penalty = random_unit() * 4 - 2;
        c->params.repetition_penalty = 0.5F + random_unit();
        for (uint32_t id = random_u32() % 20; id < MAX_N && n_counts < 40; id += 1 + random_u32() % 20)
            c->counts[n_counts++] = (pgl_token_count){(int32_t)id, random_u32() % 3, random_u32() % 2};
    }
    uint32_t n_bias = 0;
    for (uint32_t id = random_u32() % 200; id < n && n_bias < 8 && random_u32() % 4;
         id += 1 + random_u32() % 90)
        c->bias[n_bias++] = (pgl_logit_bias){(int32_t)id, random_unit() * 10 - 5};
    c->params.bias = c->bias;
    c->params.n_bias = n_bias;
    c->input = (pgl_sample_input){
        .logits = c->logits,
        .n_vocab = n,
        .mask = random_u32() % 3 == 0 ? c->mask : NULL,
        .params = &c->params,
        .history = {c->counts, n_counts},
        .position = random_u32() % 100000,
    };
}

static void every_cut_equals_the_plain_definition(void **state) {
    (void)state;
    pgl_sampler *sampler;
    assert_int_equal(pgl_sampler_open(MAX_N, &sampler, NULL), PGL_OK);
    static random_case c;
    size_t several = 0;
    for (int i = 0; i < 12000; i++) {
        make_case(&c);
        assert_int_equal(pgl_sample_check(&c.params, c.input.n_vocab, NULL), PGL_OK);
        size_t n_kept;
        int32_t expected = naive_sample(&c.input, &n_kept), token = -7;
        several += n_kept > 1;
        assert_int_equal(pgl_sample(sampler, &c.input, &token, NULL), PGL_OK);
        if (token != expected)
            fail_msg("case %d: %d instead of %d of %zu kept (T %g k %d p %g min_p %g)", i, token, expected,
                     n_kept, (double)c.params.temperature, c.params.top_k, (double)c.params.top_p,
                     (double)c.params.min_p);
    }
    assert_true(several > 3000); /* the comparison was about sets, not about single tokens */
    pgl_sampler_close(sampler);
}

/* chi^2 of draws against the softmax of the kept set, over rising positions and over seeds. */
static double chi_square(const float *logits, uint32_t n, pgl_sample_params params, bool by_seed, int draws,
                         size_t *n_kept) {
    pgl_sampler *sampler;
    assert_int_equal(pgl_sampler_open(n, &sampler, NULL), PGL_OK);
    scored s[64];
    for (uint32_t i = 0; i < n; i++)
        s[i] = (scored){logits[i], (int32_t)i};
    qsort(s, n, sizeof *s, by_score);
    size_t kept = naive_cut(&params, s, n);
    double total = 0, chi = 0;
    for (size_t i = 0; i < kept; i++)
        total += exp((double)s[i].score);
    int counts[64] = {0};
    for (int i = 0; i < draws; i++) {
        if (by_seed)
            params.seed = (uint64_t)i;
        pgl_sample_input in = {
            .logits = logits, .n_vocab = n, .params = &params, .position = by_seed ? 17 : (uint32_t)i};
        int32_t token;
        assert_int_equal(pgl_sample(sampler, &in, &token, NULL), PGL_OK);
        counts[token]++;
    }
    for (size_t i = 0; i < kept; i++) {
        double expected = exp((double)s[i].score) / total * draws, got = counts[s[i].id];
        chi += (got - expected) * (got - expected) / expected;
        counts[s[i].id] = 0;
    }
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(counts[i], 0); /* nothing outside the kept set */
    pgl_sampler_close(sampler);
    *n_kept = kept;
    return chi;
}

static void draws_follow_the_softmax_of_the_kept_set(void **state) {
    (void)state;
    float logits[40];
    for (int i = 0; i < 40; i++)
        logits[i] = (float)((i * 7) % 40) * 0.1F;
    pgl_sample_params params = pgl_sample_defaults();
    for (int which = 0; which < 5; which++) {
        params.temperature = which == 4 ? 2 : 1;
        params.top_k = which == 1 ? 12 : 0;
        params.top_p = which == 2 ? 0.8F : 1;
        params.min_p = which == 3 ? 0.2F : 0;
        for (int by_seed = 0; by_seed < 2; by_seed++) {
            size_t kept;
            double chi = chi_square(logits, 40, params, by_seed, 60000, &kept);
            double freedom = (double)kept - 1;
            assert_true(kept > 8);
            /* mean `freedom`, standard deviation sqrt(2 freedom): five of them on either side */
            assert_true(fabs(chi - freedom) < 5 * sqrt(2 * freedom));
        }
    }
}

static void padding_of_the_vocabulary_is_never_read_or_sampled(void **state) {
    (void)state;
    pgl_sampler *sampler;
    assert_int_equal(pgl_sampler_open(64, &sampler, NULL), PGL_OK);
    float logits[64];
    for (int i = 0; i < 64; i++)
        logits[i] = i < 40 ? 0.0F : NAN;
    logits[50] = 1e30F;
    pgl_sample_params params = pgl_sample_defaults();
    pgl_token_count counts[] = {{39, 1, true}, {63, 9, true}};
    params.repetition_penalty = 2;
    for (uint32_t i = 0; i < 2000; i++) {
        params.temperature = i % 2 ? 1.0F : 0.0F;
        pgl_sample_input in = {
            .logits = logits, .n_vocab = 40, .params = &params, .history = {counts, 2}, .position = i};
        int32_t token;
        assert_int_equal(pgl_sample(sampler, &in, &token, NULL), PGL_OK);
        assert_in_range(token, 0, 39);
    }
    pgl_token_logprob top[40];
    const int32_t targets[] = {0, -1, 40};
    float values[3];
    assert_int_equal(pgl_logprobs(sampler, logits, 40, 40, top, targets, 3, values, NULL), PGL_OK);
    for (int i = 0; i < 40; i++)
        assert_int_equal(top[i].id, i);
    assert_true(fabsf(values[0] + logf(40)) < 1e-6F);
    assert_true(values[1] == 0);
    assert_true(values[2] == -INFINITY);
    pgl_sampler_close(sampler);
}

static void a_non_finite_logit_is_an_error_not_a_token(void **state) {
    (void)state;
    pgl_sampler *sampler;
    assert_int_equal(pgl_sampler_open(16, &sampler, NULL), PGL_OK);
    const float bad[] = {NAN, INFINITY, -NAN};
    pgl_sample_params params = pgl_sample_defaults();
    for (size_t b = 0; b < 3; b++)
        for (uint32_t at = 0; at < 16; at++) {
            float logits[16] = {0};
            logits[at] = bad[b];
            int32_t token = -5;
            pgl_error err;
            pgl_sample_input in = {.logits = logits, .n_vocab = 16, .params = &params};
            assert_int_equal(pgl_sample(sampler, &in, &token, &err), PGL_E_NUMERIC);
            assert_int_equal(token, -5);
            pgl_token_logprob top;
            assert_int_equal(pgl_logprobs(sampler, logits, 16, 1, &top, NULL, 0, NULL, NULL), PGL_E_NUMERIC);
        }
    float none[16];
    for (int i = 0; i < 16; i++)
        none[i] = -INFINITY;
    int32_t token;
    pgl_sample_input in = {.logits = none, .n_vocab = 16, .params = &params};
    assert_int_equal(pgl_sample(sampler, &in, &token, NULL), PGL_E_NUMERIC);
    none[3] = 1; /* -infinity beside a number only removes the id */
    params.temperature = 1;
    assert_int_equal(pgl_sample(sampler, &in, &token, NULL), PGL_OK);
    assert_int_equal(token, 3);
    pgl_token_logprob top[4];
    assert_int_equal(pgl_logprobs(sampler, none, 16, 4, top, NULL, 0, NULL, NULL), PGL_OK);
    assert_int_equal(top[0].id, 3);
    assert_int_equal(top[1].id, 0);
    assert_int_equal(top[3].id, 2);
    const uint32_t empty[1] = {0xFFFF0000u};
    in.mask = empty;
    assert_int_equal(pgl_sample(sampler, &in, &token, NULL), PGL_E_INVALID);
    pgl_sampler_close(sampler);
}

static void extreme_values_do_not_break_the_order(void **state) {
    (void)state;
    pgl_sampler *sampler;
    assert_int_equal(pgl_sampler_open(8, &sampler, NULL), PGL_OK);
    float logits[8] = {-FLT_MAX, 0, FLT_MAX, -0.0F, 1e-45F, -1e-45F, 3, -FLT_MAX};
    pgl_sample_params params = pgl_sample_defaults();
    pgl_token_count counts[] = {{2, 1, false}};
    params.repetition_penalty = 1e-6F; /* saturates */
    static const float temperatures[] = {0, 1e-45F, 1e-30F, 1, 100};
    for (size_t t = 0; t < 5; t++)
        for (int32_t k = 0; k < 9; k++) {
            params.temperature = temperatures[t];
            params.top_k = k;
            params.top_p = k % 2 ? 0.9F : 1;
            pgl_sample_input in = {.logits = logits, .n_vocab = 8, .params = &params, .history = {counts, 1}};
            int32_t token;
            assert_int_equal(pgl_sample(sampler, &in, &token, NULL), PGL_OK);
            assert_int_equal(token, 2);
        }
    pgl_sampler_close(sampler);
}

static void penalties_count_what_they_say(void **state) {
    (void)state;
    pgl_sampler *sampler;
    assert_int_equal(pgl_sampler_open(4, &sampler, NULL), PGL_OK);
    float logits[4] = {2.0F, 1.9F, -1.0F, 1.0F};
    int32_t token;
    pgl_sample_params params = pgl_sample_defaults();
    pgl_token_count in_prompt[] = {{0, 0, true}}, generated[] = {{0, 3, false}};
    pgl_sample_input in = {.logits = logits, .n_vocab = 4, .params = &params, .history = {in_prompt, 1}};
    params.presence_penalty = 2; /* a prompt token is not touched by presence and frequency */
    params.frequency_penalty = 2;
    assert_int_equal(pgl_sample(sampler, &in, &token, NULL), PGL_OK);
    assert_int_equal(token, 0);
    params = pgl_sample_defaults();
    params.repetition_penalty = 1.3F; /* but by repetition */
    assert_int_equal(pgl_sample(sampler, &in, &token, NULL), PGL_OK);
    assert_int_equal(token, 1);
    in.history = (pgl_sample_history){generated, 1};
    params = pgl_sample_defaults();
    params.frequency_penalty = 0.05F; /* three times 0.05 is more than 0.1 */
    assert_int_equal(pgl_sample(sampler, &in, &token, NULL), PGL_OK);
    assert_int_equal(token, 1);
    params.frequency_penalty = 0.03F;
    assert_int_equal(pgl_sample(sampler, &in, &token, NULL), PGL_OK);
    assert_int_equal(token, 0);
    pgl_sampler_close(sampler);
}

static void logprobs_are_sorted_normalised_and_break_ties_by_id(void **state) {
    (void)state;
    enum { N = 600 };
    pgl_sampler *sampler;
    assert_int_equal(pgl_sampler_open(N, &sampler, NULL), PGL_OK);
    float logits[N], values[N];
    int32_t targets[N];
    pgl_token_logprob top[N];
    for (int round = 0; round < 200; round++) {
        scored s[N];
        double total = 0;
        for (int i = 0; i < N; i++) {
            logits[i] = (float)(random_u32() % (round % 2 ? 50 : 100000)) / (round % 2 ? 2 : 5000);
            s[i] = (scored){logits[i], i};
            targets[i] = i;
            total += exp((double)logits[i]);
        }
        qsort(s, N, sizeof *s, by_score);
        uint32_t n_top = random_u32() % (N + 1);
        assert_int_equal(pgl_logprobs(sampler, logits, N, n_top, top, targets, N, values, NULL), PGL_OK);
        for (uint32_t i = 0; i < n_top; i++) {
            assert_int_equal(top[i].id, s[i].id);
            assert_true(top[i].logprob == values[s[i].id]);
        }
        for (int i = 0; i < N; i++)
            assert_true(fabs((double)values[i] - ((double)logits[i] - log(total))) < 1e-5);
    }
    assert_int_equal(pgl_logprobs(sampler, logits, N, N + 1, top, NULL, 0, NULL, NULL), PGL_E_INVALID);
    pgl_sampler_close(sampler);
}

static void parameters_outside_their_range_are_refused_by_name(void **state) {
    (void)state;
    const pgl_logit_bias repeated[] = {{1, 1}, {1, 2}}, outside[] = {{10, 1}}, negative[] = {{-1, 1}},
                         infinite[] = {{1, INFINITY}};
    const struct {
        pgl_sample_params change;
        const char *name;
    } cases[] = {
#define CASE(field, value) {{.top_p = 1, .repetition_penalty = 1, .field = value}, #field}
        CASE(temperature, -0.1F),
        CASE(temperature, 101),
        CASE(temperature, NAN),
        CASE(min_p, 1.01F),
        CASE(min_p, -1),
        CASE(top_k, -2),
        CASE(presence_penalty, 2.1F),
        CASE(frequency_penalty, -INFINITY),
        {{.top_p = 0, .repetition_penalty = 1}, "top_p"},
        {{.top_p = NAN, .repetition_penalty = 1}, "top_p"},
        {{.top_p = 1, .repetition_penalty = 0}, "repetition_penalty"},
        {{.top_p = 1, .repetition_penalty = 1, .bias = repeated, .n_bias = 2}, "logit_bias"},
        {{.top_p = 1, .repetition_penalty = 1, .bias = outside, .n_bias = 1}, "logit_bias"},
        {{.top_p = 1, .repetition_penalty = 1, .bias = negative, .n_bias = 1}, "logit_bias"},
        {{.top_p = 1, .repetition_penalty = 1, .bias = infinite, .n_bias = 1}, "logit_bias"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pgl_error err;
        assert_int_equal(pgl_sample_check(&cases[i].change, 10, &err), PGL_E_INVALID);
        assert_non_null(strstr(err.text, cases[i].name));
    }
    pgl_sample_params good = pgl_sample_defaults();
    assert_int_equal(pgl_sample_check(&good, 10, NULL), PGL_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_matches_the_published_vectors),
        cmocka_unit_test(noise_bound_is_never_below_the_noise),
        cmocka_unit_test(noise_depends_on_seed_position_and_id_only),
        cmocka_unit_test(every_cut_equals_the_plain_definition),
        cmocka_unit_test(draws_follow_the_softmax_of_the_kept_set),
        cmocka_unit_test(padding_of_the_vocabulary_is_never_read_or_sampled),
        cmocka_unit_test(a_non_finite_logit_is_an_error_not_a_token),
        cmocka_unit_test(extreme_values_do_not_break_the_order),
        cmocka_unit_test(penalties_count_what_they_say),
        cmocka_unit_test(logprobs_are_sorted_normalised_and_break_ties_by_id),
        cmocka_unit_test(parameters_outside_their_range_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
