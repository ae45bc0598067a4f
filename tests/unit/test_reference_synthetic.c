/* The reference forward pass on random models, for what the goldens do not cover, against a second implementation in
 * double (naive_model.h); and what must hold for any model: pieces, forks, refusals. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "model/reference.h"
#include "naive_model.h"
#include "synthetic_model.h"

enum { N = 24 };

typedef struct distance {
    double best, median, worst;
} distance;

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Relative errors of rows of logits. */
static distance compare(const float *got, const double *want, int rows, uint32_t vocab) {
    double errors[N];
    for (int r = 0; r < rows; r++) {
        double difference = 0, norm = 0;
        for (uint32_t i = 0; i < vocab; i++) {
            size_t at = (size_t)r * vocab + i;
            difference += pow((double)got[at] - want[at], 2);
            norm += want[at] * want[at];
        }
        errors[r] = sqrt(difference / norm);
    }
    qsort(errors, (size_t)rows, sizeof *errors, by_size);
    return (distance){errors[0], errors[rows / 2], errors[rows - 1]};
}

static void random_tokens(uint64_t seed, uint32_t vocab, int32_t *tokens, int n) {
    for (int i = 0; i < n; i++)
        tokens[i] = (int32_t)random_below(&seed, vocab);
}

/* Everything that a run of N tokens gives. */
typedef struct run {
    float *logits, *hidden, *residual, *draft;
    int32_t *experts;
} run;

static run run_new(const pgl_config *c) {
    size_t vocab = c->vocab_size, hidden = c->hidden_size;
    run r = {naive_get(N * vocab), naive_get((c->n_layers + 1) * N * hidden), naive_get(N * hidden),
             naive_get(N * vocab), naive_get((size_t)c->n_layers * N * 8)};
    return r;
}

static void run_free(run *r) {
    free(r->logits);
    free(r->hidden);
    free(r->residual);
    free(r->draft);
    free(r->experts);
}

static pgl_model model_of(const synthetic_model *s) {
    pgl_model model;
    pgl_error err;
    if (pgl_model_init(&model, &s->config, &s->weights, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return model;
}

static run run_reference(const pgl_model *model, const int32_t *tokens, bool exact) {
    pgl_error err;
    pgl_reference *seq;
    run r = run_new(model->config);
    assert_int_equal(pgl_reference_open(model, exact, &seq, &err), PGL_OK);
    pgl_reference_outputs out = {
        .logits = r.logits, .hidden = r.hidden, .residual = r.residual, .experts = r.experts};
    assert_int_equal(pgl_reference_forward(seq, tokens, N, &out, &err), PGL_OK);
    assert_false(out.non_finite);
    if (model->weights->draft.present) {
        pgl_reference_draft_rows rows = {.hidden = r.hidden + (size_t)model->config->n_layers * N *
                                                                  model->config->hidden_size,
                                         .tokens = tokens + 1,
                                         .n = N - 1,
                                         .logits = r.draft};
        assert_int_equal(pgl_reference_draft(seq, &rows, &err), PGL_OK);
    }
    pgl_reference_close(seq);
    return r;
}

/* The same tokens by the naive model. */
typedef struct naive_run {
    double *logits, *draft, *first; /* first: the residual after layer 0 */
    int32_t *experts;
} naive_run;

static naive_run run_naive(const synthetic_model *s, const int32_t *tokens, bool contract) {
    const pgl_config *c = &s->config;
    size_t vocab = c->vocab_size, width = c->hidden_size, used = c->n_experts_used;
    naive_run r = {naive_get(N * vocab), naive_get(N * vocab), naive_get(N * width),
                   naive_get(c->n_layers * N * 8)};
    naive_model *m = naive_new(c, &s->weights, contract);
    double hidden[NAIVE_MAX_WIDTH];
    int32_t chosen[32];
    for (size_t t = 0; t < N; t++) {
        naive_token(m, tokens[t], r.logits + t * vocab, hidden, chosen);
        memcpy(r.first + t * width, m->first, width * sizeof *r.first);
        for (uint32_t l = 0; l < c->n_layers; l++)
            memcpy(r.experts + (l * N + t) * used, chosen + l * used, used * sizeof *chosen);
        if (s->weights.draft.present && t + 1 < N)
            naive_draft(m, hidden, tokens[t + 1], r.draft + t * vocab);
    }
    naive_free(m);
    return r;
}

static void naive_run_free(naive_run *r) {
    free(r->logits);
    free(r->draft);
    free(r->first);
    free(r->experts);
}

static int flips(const pgl_config *c, const int32_t *a, const int32_t *b) {
    int n = 0;
    for (size_t i = 0; i < (size_t)c->n_layers * N * c->n_experts_used; i++)
        n += a[i] != b[i];
    return n;
}

/* Exact mode within 1e-4 of the naive model with equal experts. Contract mode: roundings flip where two sums differ in
 * their last bits, and layers multiply that; so its roundings are checked after the first layer, where it must be much
 * nearer to a naive run that rounds than to one that does not. */
static void check_model(const char *name, const synthetic_options *options) {
    synthetic_model *s = synthetic_new(options);
    const pgl_config *c = &s->config;
    pgl_model model = model_of(s);
    int32_t tokens[N];
    random_tokens(options->seed, c->vocab_size, tokens, N);
    run exact = run_reference(&model, tokens, true), contract = run_reference(&model, tokens, false);
    naive_run plain = run_naive(s, tokens, false), rounded = run_naive(s, tokens, true);

    distance d = compare(exact.logits, plain.logits, N, c->vocab_size);
    distance all = compare(contract.logits, plain.logits, N, c->vocab_size);
    int exact_flips = flips(c, exact.experts, plain.experts);
    double draft =
        s->weights.draft.present ? compare(exact.draft, plain.draft, N - 1, c->vocab_size).worst : 0;
    const float *first = contract.hidden + (size_t)N * c->hidden_size;
    distance twin = compare(first, rounded.first, N, c->hidden_size);
    distance away = compare(first, plain.first, N, c->hidden_size);
    print_message(
        "%-24s exact %.1e, draft %.1e, %d flips; contract %.1e; layer 0: %.1e (best %.1e), unrounded %.1e\n",
        name, d.worst, draft, exact_flips, all.median, twin.median, twin.best, away.median);
    assert_true(d.worst < 1e-4 && draft < 1e-4);
    assert_int_equal(exact_flips, 0);
    assert_true(all.median > 1e-5 && all.median < 5e-2);
    assert_true(twin.best < 1e-6); /* a token at which every rounding fell alike */
    if (!options->coded_linears)   /* where every linear rounds its output, most tokens see a flip */
        assert_true(twin.median < 0.2 * away.median);
    run_free(&exact);
    run_free(&contract);
    naive_run_free(&plain);
    naive_run_free(&rounded);
    synthetic_free(s);
}

static void every_k_of_experts_is_the_formula(void **state) {
    (void)state;
    for (uint32_t k = 1; k <= 8; k++) {
        char name[32];
        snprintf(name, sizeof name, "K = %u and %u", k, 9 - k);
        check_model(name, &(synthetic_options){.seed = k, .k_gate_up = k, .k_down = 9 - k});
    }
}

static void every_option_is_the_formula(void **state) {
    (void)state;
    check_model("bf16", &(synthetic_options){.seed = 21, .plain = PGL_BF16, .plain_linears = true});
    check_model("f32", &(synthetic_options){.seed = 22, .plain = PGL_F32, .plain_linears = true});
    check_model("f32 scales of int8", &(synthetic_options){.seed = 23, .f32_scales = true});
    check_model("s_in, s_out", &(synthetic_options){.seed = 24, .real_scales = true});
    check_model("coded bias", &(synthetic_options){.seed = 25, .coded_bias = true});
    check_model("attention bias", &(synthetic_options){.seed = 26, .attention_bias = true});
    check_model("no shared expert", &(synthetic_options){.seed = 27, .no_shared = true});
    check_model("tied head", &(synthetic_options){.seed = 28, .tied = true});
    check_model("draft, borrowed experts", &(synthetic_options){.seed = 29, .draft = true});
    check_model("draft, own experts",
                &(synthetic_options){.seed = 30, .draft = true, .draft_own_experts = true});
}

static void dense_models_are_the_formula(void **state) {
    (void)state;
    check_model("dense int8", &(synthetic_options){.seed = 31, .dense = true});
    check_model("dense coded K = 4",
                &(synthetic_options){.seed = 32, .dense = true, .coded_linears = true, .k_gate_up = 4});
    check_model("dense coded, all parts", &(synthetic_options){.seed = 33,
                                                               .dense = true,
                                                               .coded_linears = true,
                                                               .k_gate_up = 3,
                                                               .real_scales = true,
                                                               .coded_bias = true,
                                                               .tied = true,
                                                               .plain = PGL_BF16});
}

static void routing_ties_go_to_the_lower_expert(void **state) {
    (void)state;
    synthetic_options options = {.seed = 41, .ties = true};
    check_model("ties", &options);
    synthetic_model *s = synthetic_new(&options);
    pgl_model model = model_of(s);
    int32_t tokens[N];
    random_tokens(3, s->config.vocab_size, tokens, N);
    run r = run_reference(&model, tokens, false);
    for (uint32_t i = 0; i < s->config.n_layers * N;
         i++) { /* e and e + 3 are twins: the first two are such a pair */
        assert_true(r.experts[3 * i] < 3);
        assert_int_equal(r.experts[3 * i + 1], r.experts[3 * i] + 3);
    }
    run_free(&r);
    synthetic_free(s);
}

/* Runs tokens in pieces and compares every output and the state with one call's, bit for bit. */
static void check_pieces(const pgl_model *model, const int32_t *tokens, int n, int piece, bool exact) {
    const pgl_config *c = model->config;
    size_t vocab = c->vocab_size, hidden = c->hidden_size, used = model->n_used;
    pgl_error err;
    pgl_reference *whole, *parts;
    float *a = naive_get((size_t)n * vocab), *b = naive_get((size_t)n * vocab);
    float *ha = naive_get((c->n_layers + 1) * (size_t)n * hidden),
          *hb = naive_get((c->n_layers + 1) * 160 * hidden);
    int32_t *ea = naive_get((size_t)c->n_layers * (size_t)n * 8),
            *eb = naive_get((size_t)c->n_layers * 160 * 8);
    assert_int_equal(pgl_reference_open(model, exact, &whole, &err), PGL_OK);
    assert_int_equal(pgl_reference_open(model, exact, &parts, &err), PGL_OK);
    pgl_reference_outputs out = {.logits = a, .hidden = ha, .experts = ea};
    assert_int_equal(pgl_reference_forward(whole, tokens, (size_t)n, &out, &err), PGL_OK);
    for (int at = 0; at < n; at += piece) {
        int m = n - at < piece ? n - at : piece;
        float *last = naive_get(vocab);
        out = (pgl_reference_outputs){
            .logits = b + (size_t)at * vocab, .last_logits = last, .hidden = hb, .experts = eb};
        assert_int_equal(pgl_reference_forward(parts, tokens + at, (size_t)m, &out, &err), PGL_OK);
        assert_memory_equal(last, b + (size_t)(at + m - 1) * vocab, vocab * sizeof *last);
        for (uint32_t l = 0; l <= c->n_layers; l++)
            assert_memory_equal(hb + (size_t)l * (size_t)m * hidden,
                                ha + ((size_t)l * (size_t)n + (size_t)at) * hidden,
                                (size_t)m * hidden * sizeof *ha);
        for (uint32_t l = 0; l < c->n_layers && used > 0; l++)
            assert_memory_equal(eb + (size_t)l * (size_t)m * used,
                                ea + ((size_t)l * (size_t)n + (size_t)at) * used,
                                (size_t)m * used * sizeof *ea);
        free(last);
    }
    assert_memory_equal(a, b, (size_t)n * vocab * sizeof *a);
    pgl_reference_state sa = pgl_reference_get_state(whole), sb = pgl_reference_get_state(parts);
    assert_memory_equal(sa.state, sb.state, model->state_bytes);
    assert_memory_equal(sa.taps, sb.taps, model->conv_bytes);
    assert_memory_equal(sa.hidden, sb.hidden, model->hidden_bytes);
    pgl_reference_close(whole);
    pgl_reference_close(parts);
    free(a);
    free(b);
    free(ha);
    free(hb);
    free(ea);
    free(eb);
}

static void prompts_in_pieces_are_bit_equal(void **state) {
    (void)state;
    int32_t tokens[100];
    for (int dense = 0; dense < 2; dense++) {
        synthetic_model *s = synthetic_new(&(synthetic_options){
            .seed = 51, .dense = dense != 0, .coded_linears = dense != 0, .draft = true});
        pgl_model model = model_of(s);
        random_tokens(52, s->config.vocab_size, tokens, 100);
        static const int pieces[] = {1, 7, 64, 65};
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
            check_pieces(&model, tokens, 100, pieces[i], false);
        check_pieces(&model, tokens, 100, 7, true);
        synthetic_free(s);
    }
}

static void a_fork_goes_on_like_the_original(void **state) {
    (void)state;
    synthetic_model *s = synthetic_new(&(synthetic_options){.seed = 61, .draft = true});
    pgl_model model = model_of(s);
    size_t vocab = s->config.vocab_size, hidden = s->config.hidden_size;
    int32_t tokens[90];
    random_tokens(62, s->config.vocab_size, tokens, 90);
    pgl_error err;
    pgl_reference *seq, *copy;
    float *a = naive_get(20 * vocab), *b = naive_get(20 * vocab), *h = naive_get(70 * hidden);
    assert_int_equal(pgl_reference_open(&model, false, &seq, &err), PGL_OK);
    pgl_reference_outputs out = {.residual = h};
    assert_int_equal(pgl_reference_forward(seq, tokens, 70, &out, &err), PGL_OK);
    pgl_reference_draft_rows rows = {.hidden = h, .tokens = tokens + 1, .n = 69};
    assert_int_equal(pgl_reference_draft(seq, &rows, &err), PGL_OK);
    assert_int_equal(pgl_reference_fork(seq, &copy, &err), PGL_OK);
    assert_int_equal(pgl_reference_n_tokens(copy), 70);
    assert_int_equal(pgl_reference_n_draft_rows(copy), 69);
    out = (pgl_reference_outputs){.logits = a};
    assert_int_equal(pgl_reference_forward(seq, tokens + 70, 20, &out, &err), PGL_OK);
    out = (pgl_reference_outputs){.logits = b};
    assert_int_equal(pgl_reference_forward(copy, tokens + 70, 20, &out, &err), PGL_OK);
    assert_memory_equal(a, b, 20 * vocab * sizeof *a);

    /* A rejected draft leaves no trace: the row after it is computed as if it had never been. */
    rows = (pgl_reference_draft_rows){.hidden = h + 69 * hidden, .tokens = tokens + 70, .n = 1, .logits = a};
    assert_int_equal(pgl_reference_draft(seq, &rows, &err), PGL_OK);
    rows.tokens = tokens + 75;
    rows.logits = NULL;
    assert_int_equal(pgl_reference_draft(copy, &rows, &err), PGL_OK);
    pgl_reference_rewind_draft(copy, 69);
    rows.tokens = tokens + 70;
    rows.logits = b;
    assert_int_equal(pgl_reference_draft(copy, &rows, &err), PGL_OK);
    assert_memory_equal(a, b, vocab * sizeof *a);
    pgl_reference_close(seq);
    pgl_reference_close(copy);
    free(a);
    free(b);
    free(h);
    synthetic_free(s);
}

static void bad_tokens_and_lengths_are_refused_without_effect(void **state) {
    (void)state;
    synthetic_model *s = synthetic_new(&(synthetic_options){.seed = 71});
    s->config.max_position_embeddings = 8;
    pgl_model model = model_of(s);
    pgl_error err;
    pgl_reference *seq;
    assert_int_equal(pgl_reference_open(&model, false, &seq, &err), PGL_OK);
    int32_t good[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, bad[3] = {1, -1, 96}, high[3] = {1, 2, 96};
    assert_int_equal(pgl_reference_forward(seq, bad, 3, NULL, &err), PGL_E_INVALID);
    assert_non_null(strstr(err.text, "token 1"));
    assert_int_equal(pgl_reference_forward(seq, high, 3, NULL, &err), PGL_E_INVALID);
    assert_non_null(strstr(err.text, "0 to 95, found 96"));
    assert_int_equal(pgl_reference_forward(seq, good, 0, NULL, &err), PGL_E_INVALID);
    assert_int_equal(pgl_reference_forward(seq, good, 9, NULL, &err), PGL_E_CONTEXT);
    assert_int_equal(pgl_reference_n_tokens(seq), 0);
    assert_int_equal(pgl_reference_forward(seq, good, 8, NULL, &err), PGL_OK);
    assert_int_equal(pgl_reference_forward(seq, good, 1, NULL, &err), PGL_E_CONTEXT);
    assert_int_equal(pgl_reference_n_tokens(seq), 8);
    pgl_reference_draft_rows rows = {.hidden = NULL, .tokens = good, .n = 1};
    assert_int_equal(pgl_reference_draft(seq, &rows, &err), PGL_E_UNSUPPORTED);
    pgl_reference_close(seq);
    synthetic_free(s);
}

static void numbers_that_are_not_finite_are_reported(void **state) {
    (void)state;
    synthetic_model *s = synthetic_new(&(synthetic_options){.seed = 72});
    pgl_model model = model_of(s);
    pgl_error err;
    pgl_reference *seq;
    int32_t tokens[2] = {3, 4};
    float *logits = naive_get(s->config.vocab_size);
    uint16_t nan = 0x7E00;
    memcpy((unsigned char *)(uintptr_t)s->layers[1].attention.k_norm.data + 6, &nan, 2);
    assert_int_equal(pgl_reference_open(&model, false, &seq, &err), PGL_OK);
    pgl_reference_outputs out = {.last_logits = logits};
    assert_int_equal(pgl_reference_forward(seq, tokens, 2, &out, &err), PGL_OK);
    assert_true(out.non_finite);
    pgl_reference_close(seq);
    free(logits);
    synthetic_free(s);
}

/* Each row of the table breaks one thing in a good model. */
static void shapes_that_do_not_fit_are_named(void **state) {
    (void)state;
    synthetic_model *s = synthetic_new(&(synthetic_options){.seed = 73, .draft = true});
    pgl_weights *w = &s->weights;
    const struct {
        uint32_t *field;
        uint32_t value;
        const char *names;
    } rows[] = {
        {&w->embed.out, 95, "embed_tokens"},
        {&w->head.in, 64, "lm_head"},
        {&w->norm.n, 127, "norm"},
        {&s->layers[0].input_norm.n, 1, "layers.0.input_layernorm"},
        {&s->layers[0].delta.in_proj_qkv.out, 255, "layers.0.linear_attn.in_proj_qkv"},
        {&s->layers[2].delta.conv1d.n, 4, "layers.2.linear_attn.conv1d"},
        {&s->layers[2].delta.a_log.n, 5, "layers.2.linear_attn.A_log"},
        {&s->layers[1].attention.q_proj.out, 256, "layers.1.self_attn.q_proj"},
        {&s->layers[3].attention.k_norm.n, 63, "layers.3.self_attn.k_norm"},
        {&s->layers[3].moe.router.out, 7, "layers.3.mlp.gate"},
        {&s->layers[1].moe.gate_up.n_experts, 5, "layers.1.mlp.experts.gate_up_proj"},
        {&s->layers[1].moe.down.k, 9, "layers.1.mlp.experts.down_proj"},
        {&s->layers[0].moe.shared_down.in, 65, "layers.0.mlp.shared_expert.down_proj"},
        {&w->draft.fc.in, 128, "mtp.fc"},
        {&w->draft.layer.attention.o_proj.in, 1, "mtp.layers.0.self_attn.o_proj"},
        {&s->config.n_kv_heads, 3, "key/value heads"},
        {&s->config.rotary_dim, 66, "rotary 66"},
        {&s->config.n_key_heads, 3, "key heads"},
        {&s->config.n_experts_used, 7, "found 7"},
        {&s->config.key_dim, 0x7FFFFFFF, "overflow"},
    };
    pgl_model model;
    pgl_error err;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t good = *rows[i].field;
        *rows[i].field = rows[i].value;
        pgl_status status = pgl_model_init(&model, &s->config, w, &err);
        if (status == PGL_OK || strstr(err.text, rows[i].names) == NULL)
            fail_msg("row %zu: expected a message with '%s', found '%s'", i, rows[i].names,
                     status == PGL_OK ? "(accepted)" : err.text);
        *rows[i].field = good;
    }
    assert_int_equal(pgl_model_init(&model, &s->config, w, &err), PGL_OK);
    synthetic_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_k_of_experts_is_the_formula),
        cmocka_unit_test(every_option_is_the_formula),
        cmocka_unit_test(dense_models_are_the_formula),
        cmocka_unit_test(routing_ties_go_to_the_lower_expert),
        cmocka_unit_test(prompts_in_pieces_are_bit_equal),
        cmocka_unit_test(a_fork_goes_on_like_the_original),
        cmocka_unit_test(bad_tokens_and_lengths_are_refused_without_effect),
        cmocka_unit_test(numbers_that_are_not_finite_are_reported),
        cmocka_unit_test(shapes_that_do_not_fit_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
