/* For tests of backends: what backend.h promises, as tests that any backend must pass. Each takes a conf_subject as
 * cmocka state. Numbers are equal bit by bit on backends that say bit_stable, otherwise within a bound; which experts and
 * tokens are chosen is demanded of all. */
#ifndef PGL_TESTS_CONFORMANCE_SUITE_H
#define PGL_TESTS_CONFORMANCE_SUITE_H

#include <pthread.h>
#include <time.h>

#include "conformance.h"

/* ---- prompts */

static inline void conf_chunks_of_any_size_give_equal_bits(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    const pgl_backend_caps *caps = pgl_backend_get_caps(backend);
    conf_row *r = conf_row_new(backend), *whole = conf_row_new(backend);
    int32_t tokens[CONF_STEP];
    uint32_t n = subject->n_tokens, wants = PGL_WANT_LOGITS | PGL_WANT_HIDDEN | PGL_WANT_EXPERTS;
    conf_tokens(backend, 1, tokens, n);
    conf_truth truth = conf_truth_of(backend, r, 0, tokens, n);
    unsigned char *end = conf_state(backend, 0);
    conf_reset(backend, 1);
    conf_row_set(whole, 1, tokens, n, wants);
    conf_run_row(backend, whole);
    conf_same_logits(whole, &truth, 0, n, "logits of one whole row");
    conf_same_state(backend, 1, end, "after one whole row");
    const uint32_t sizes[] = {3, 7, 16, 17};
    for (size_t s = 0; s < 4; s++) {
        conf_reset(backend, 2);
        for (uint32_t at = 0; at < n; at += sizes[s]) {
            uint32_t some = n - at < sizes[s] ? n - at : sizes[s];
            conf_row_set(r, 2, tokens + at, some, wants);
            conf_run_row(backend, r);
            assert_int_equal(r->result.length, at + some);
            assert_false(r->result.non_finite);
            conf_same_logits(r, &truth, at, some, "logits of a chunk");
            for (size_t l = 0; l <= caps->n_layers; l++)
                conf_same_floats(
                    caps->bit_stable, "hidden states of a chunk", r->hidden + l * some * caps->hidden_size,
                    whole->hidden + (l * n + at) * caps->hidden_size, (size_t)some * caps->hidden_size);
            for (size_t l = 0; l < caps->n_layers; l++)
                conf_same_bits("experts of a chunk", r->experts + l * some * caps->n_experts_used,
                               whole->experts + (l * n + at) * caps->n_experts_used,
                               (size_t)some * caps->n_experts_used * sizeof(int32_t));
        }
        conf_same_state(backend, 2, end, "after chunks");
    }
    free(end);
    conf_truth_free(&truth);
    conf_row_free(r);
    conf_row_free(whole);
    conf_close(backend);
}

/* Four sequences, each in random spans, as prompts, verify rows that are committed in part, and nothing at all. */
static inline void conf_neighbours_do_not_matter(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    conf_row *rows[CONF_SLOTS];
    conf_truth truth[CONF_SLOTS];
    int32_t tokens[CONF_STEP];
    uint32_t n = subject->n_tokens;
    for (uint32_t s = 0; s < CONF_SLOTS; s++) {
        rows[s] = conf_row_new(backend);
        conf_tokens(backend, 10 + s, tokens, n);
        truth[s] = conf_truth_of(backend, rows[s], s, tokens, n);
        conf_reset(backend, s);
    }
    uint64_t seed = 5;
    uint32_t at[CONF_SLOTS] = {0}, commit[CONF_SLOTS] = {0};
    for (bool left = true; left;) {
        conf_step step = {0};
        left = false;
        uint32_t rotation = conf_random(&seed);
        for (uint32_t i = 0; i < CONF_SLOTS; i++) {
            uint32_t s = (i + rotation) % CONF_SLOTS; /* rows in changing order */
            uint32_t some = 1 + conf_random(&seed) % 9, kind = conf_random(&seed) % 4;
            uint32_t rest = n - at[s] - commit[s];
            left = left || rest > 0;
            if (kind == 0 || rest == 0)
                continue;
            if (commit[s] > 0)
                conf_op(&step, (pgl_op){.kind = PGL_OP_COMMIT, .slot = s, .n = commit[s]});
            at[s] += commit[s];
            commit[s] = 0;
            if (kind == 1 && subject->has_draft) {
                some = some % (CONF_DRAFT + 1) + 1;
                some = some < rest ? some : rest;
                conf_row_verify(rows[s], s, truth[s].tokens + at[s], some, PGL_WANT_LOGITS);
                commit[s] = conf_random(&seed) % (some + 1);
            } else {
                some = some < rest ? some : rest;
                conf_row_set(rows[s], s, truth[s].tokens + at[s], some, PGL_WANT_LOGITS);
            }
            conf_add_row(&step, rows[s]);
        }
        conf_run(backend, &step);
        for (size_t i = 0; i < step.plan.n_rows; i++) {
            uint32_t s = step.rows[i].slot, length = step.rows[i].n_tokens;
            conf_same_logits(rows[s], &truth[s], at[s], length, "logits among neighbours");
            if (step.rows[i].kind == PGL_ROW_COMMIT)
                at[s] += length;
            else if (commit[s] == 0) /* an empty commit: the next row starts where this one did */
                conf_run_op(backend, (pgl_op){.kind = PGL_OP_COMMIT, .slot = s, .n = 0});
        }
    }
    for (uint32_t s = 0; s < CONF_SLOTS; s++) {
        conf_truth_free(&truth[s]);
        conf_row_free(rows[s]);
    }
    conf_close(backend);
}

/* ---- verify rows */

/* k drafts of which `right` are what decoding would sample. */
static inline void verify_once(pgl_backend *backend, conf_row *r, const int32_t *prompt, uint32_t n,
                               const int32_t *decoded, uint32_t right, bool auto_commit,
                               const conf_truth *truth) {
    int32_t tokens[CONF_DRAFT + 1];
    conf_reset(backend, 1);
    conf_feed(backend, r, 1, prompt, n);
    for (uint32_t i = 0; i <= CONF_DRAFT; i++)
        tokens[i] = i <= right ? decoded[i] : (decoded[i] + 1) % 7;
    pgl_row *row = conf_row_verify(r, 1, tokens, CONF_DRAFT + 1, PGL_WANT_LOGITS);
    row->auto_commit = auto_commit;
    conf_run_row(backend, r);
    assert_int_equal(r->result.n_sampled, right + 1);
    for (uint32_t i = 0; i <= right; i++)
        assert_int_equal(r->tokens[i], decoded[i + 1]);
    conf_same_logits(r, truth, n, right + 1, "logits of a verify row");
    assert_int_equal(r->result.length, n + (auto_commit ? right + 1 : 0));
    if (!auto_commit)
        conf_run_op(backend, (pgl_op){.kind = PGL_OP_COMMIT, .slot = 1, .n = right + 1});
    /* the state is that of a slot which decoded those tokens, and so is what follows */
    conf_reset(backend, 2);
    conf_feed(backend, r, 2, prompt, n);
    for (uint32_t i = 0; i <= right; i++)
        conf_feed(backend, r, 2, decoded + i, 1);
    unsigned char *want = conf_state(backend, 2);
    conf_same_state(backend, 1, want, "after a commit");
    free(want);
    conf_row_set(r, 1, decoded + right + 1, 1, PGL_WANT_LOGITS);
    conf_run_row(backend, r);
    conf_same_logits(r, truth, n + right + 1, 1, "logits after a commit");
}

static inline void conf_verify_rows_compute_what_decode_rows_do(void **state) {
    const conf_subject *subject = *state;
    if (!subject->has_draft)
        skip();
    pgl_backend *backend = conf_open(subject);
    conf_row *r = conf_row_new(backend);
    int32_t tokens[CONF_STEP];
    uint32_t n = 14; /* the row crosses a page */
    conf_tokens(backend, 3, tokens, n);
    conf_reset(backend, 0);
    conf_row_set(r, 0, tokens, n, PGL_WANT_SAMPLE);
    conf_run_row(backend, r);
    for (uint32_t i = 0; i <= CONF_DRAFT + 1; i++) { /* greedy decoding */
        tokens[n + i] = r->tokens[0];
        conf_row_set(r, 0, NULL, 1, PGL_WANT_SAMPLE)->from_last = true;
        conf_run_row(backend, r);
    }
    conf_truth truth = conf_truth_of(backend, r, 0, tokens, n + CONF_DRAFT + 2);
    for (uint32_t right = 0; right <= CONF_DRAFT; right++) {
        verify_once(backend, r, tokens, n, tokens + n, right, false, &truth);
        verify_once(backend, r, tokens, n, tokens + n, right, true, &truth);
    }
    conf_truth_free(&truth);
    conf_row_free(r);
    conf_close(backend);
}

/* ---- snapshots and pages */

static inline void conf_snapshots_restore_at_any_position(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    conf_row *r = conf_row_new(backend);
    int32_t tokens[CONF_STEP], other[CONF_STEP];
    uint32_t n = subject->n_tokens;
    conf_tokens(backend, 20, tokens, n);
    conf_tokens(backend, 21, other, n);
    conf_truth truth = conf_truth_of(backend, r, 0, tokens, n);
    const uint32_t places[] = {1, 15, 16, 17};
    for (size_t i = 0; i < 4; i++) {
        uint32_t at = places[i];
        conf_reset(backend, 1);
        conf_step step = {0};
        conf_row_set(r, 1, tokens, at, 0);
        conf_add_row(&step, r);
        conf_op_after(&step, (pgl_op){.kind = PGL_OP_SAVE, .slot = 1, .snapshot = (uint32_t)i % 3});
        conf_run(backend, &step);
        conf_feed(backend, r, 1, other,
                  n - at); /* moves on, overwrites the rest of the page, and is thrown away */
        step = (conf_step){0};
        conf_op(&step, (pgl_op){.kind = PGL_OP_RESTORE, .slot = 1, .snapshot = (uint32_t)i % 3});
        conf_row_set(r, 1, tokens + at, n - at, PGL_WANT_LOGITS);
        conf_add_row(&step, r);
        conf_run(backend, &step);
        assert_int_equal(r->result.length, n);
        conf_same_logits(r, &truth, at, n - at, "logits after a restore");
    }
    conf_truth_free(&truth);
    conf_row_free(r);
    conf_close(backend);
}

/* Two branches that share whole pages, and the page that the fork ends in as copies. */
static inline void conf_forks_share_pages_and_part(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    conf_row *r = conf_row_new(backend), *r2 = conf_row_new(backend);
    int32_t left[CONF_STEP], right[CONF_STEP];
    uint32_t n = subject->n_tokens < 36 ? subject->n_tokens : 36;
    const uint32_t places[] = {5, 16, 19};
    for (size_t i = 0; i < 3; i++) {
        uint32_t at = places[i];
        conf_tokens(backend, 30, left, n);
        conf_tokens(backend, 31, right, n);
        memcpy(right, left, at * sizeof *left);
        conf_truth left_truth = conf_truth_of(backend, r, 2, left, n);
        conf_truth right_truth = conf_truth_of(backend, r, 3, right, n);
        conf_reset(backend, 0);
        conf_feed(backend, r, 0, left, at);
        conf_step step = {0};
        uint32_t page = at / CONF_PAGE;
        conf_op(&step, (pgl_op){.kind = PGL_OP_FORK, .slot = 0, .slot2 = 1});
        conf_op(&step, (pgl_op){.kind = PGL_OP_COPY_PAGE, .page = page, .page2 = CONF_SPARE});
        conf_op(&step, (pgl_op){.kind = PGL_OP_BIND, .slot = 1, .index = page, .page = CONF_SPARE});
        for (uint32_t p = page + 1; p < CONF_TABLE; p++)
            conf_op(&step, (pgl_op){.kind = PGL_OP_BIND, .slot = 1, .index = p, .page = CONF_SPARE + p});
        conf_row_set(r, 0, left + at, n - at, PGL_WANT_LOGITS);
        conf_row_set(r2, 1, right + at, n - at, PGL_WANT_LOGITS);
        conf_add_row(&step, r);
        conf_add_row(&step, r2);
        conf_run(backend, &step);
        conf_same_logits(r, &left_truth, at, n - at, "logits of the one branch");
        conf_same_logits(r2, &right_truth, at, n - at, "logits of the other branch");
        conf_truth_free(&left_truth);
        conf_truth_free(&right_truth);
    }
    conf_row_free(r);
    conf_row_free(r2);
    conf_close(backend);
}

/* A sequence leaves for host memory and comes back to other pages, another slot and another backend. */
static inline void conf_exports_come_back_elsewhere(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *from = conf_open(subject), *to = conf_open(subject);
    const pgl_backend_caps *caps = pgl_backend_get_caps(from);
    conf_row *r = conf_row_new(from);
    int32_t tokens[CONF_STEP];
    uint32_t n = subject->n_tokens, at = 19;
    conf_tokens(from, 40, tokens, n);
    conf_truth truth = conf_truth_of(from, r, 1, tokens, n);
    unsigned char *pages = malloc(2 * caps->page_bytes), *snapshot = malloc(caps->snapshot_bytes);
    conf_reset(from, 0);
    conf_step step = {0};
    conf_row_set(r, 0, tokens, at, 0);
    conf_add_row(&step, r);
    conf_op_after(&step, (pgl_op){.kind = PGL_OP_SAVE, .slot = 0, .snapshot = 2});
    conf_op_after(&step, (pgl_op){.kind = PGL_OP_EXPORT_SNAPSHOT, .snapshot = 2, .host = snapshot});
    conf_op_after(&step, (pgl_op){.kind = PGL_OP_EXPORT_PAGE, .page = 0, .host = pages});
    conf_op_after(&step, (pgl_op){.kind = PGL_OP_EXPORT_PAGE, .page = 1, .host = pages + caps->page_bytes});
    conf_run(from, &step);
    conf_reset(to, 3);
    step = (conf_step){0};
    conf_op(&step, (pgl_op){.kind = PGL_OP_IMPORT_PAGE, .page = CONF_SPARE + 3, .host = pages});
    conf_op(&step,
            (pgl_op){.kind = PGL_OP_IMPORT_PAGE, .page = CONF_SPARE, .host = pages + caps->page_bytes});
    conf_op(&step, (pgl_op){.kind = PGL_OP_BIND, .slot = 3, .index = 0, .page = CONF_SPARE + 3});
    conf_op(&step, (pgl_op){.kind = PGL_OP_BIND, .slot = 3, .index = 1, .page = CONF_SPARE});
    conf_op(&step, (pgl_op){.kind = PGL_OP_IMPORT_SNAPSHOT, .snapshot = 0, .n = at, .host = snapshot});
    conf_op(&step, (pgl_op){.kind = PGL_OP_RESTORE, .slot = 3, .snapshot = 0});
    conf_row_set(r, 3, tokens + at, n - at, PGL_WANT_LOGITS);
    conf_add_row(&step, r);
    conf_run(to, &step);
    conf_same_logits(r, &truth, at, n - at, "logits after an import");
    free(pages);
    free(snapshot);
    conf_truth_free(&truth);
    conf_row_free(r);
    conf_close(from);
    conf_close(to);
}

/* ---- sampling */

static inline void conf_sample_on_host(const pgl_backend *backend, const conf_row *r, const float *logits,
                                       uint32_t position, const uint32_t *mask, pgl_sample_history history,
                                       int32_t *token) {
    pgl_sampler *sampler = NULL;
    uint32_t n_vocab = pgl_backend_get_caps(backend)->n_vocab;
    assert_int_equal(pgl_sampler_open(n_vocab, &sampler, NULL), PGL_OK);
    pgl_sample_input input = {logits, n_vocab, mask, &r->params, history, position};
    assert_int_equal(pgl_sample(sampler, &input, token, NULL), PGL_OK);
    pgl_sampler_close(sampler);
}

static inline void conf_samples_are_those_of_the_logits(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    uint32_t vocab = pgl_backend_get_caps(backend)->n_vocab, differ = 0;
    conf_row *r = conf_row_new(backend);
    int32_t tokens[CONF_STEP], greedy = 0, want = 0;
    conf_tokens(backend, 50, tokens, 12);
    conf_reset(backend, 0);
    uint32_t mask[2048];
    assert_true(vocab <= 2048 * 32);
    for (uint32_t i = 0; i < 12; i++) {
        conf_row_set(r, 0, tokens + i, 1, PGL_WANT_LOGITS | PGL_WANT_SAMPLE | PGL_WANT_TOP);
        r->row.n_top = 3;
        r->params.temperature = 0.9F;
        r->params.top_k = i % 2 == 0 ? 20 : 0;
        r->params.top_p = i % 3 == 0 ? 0.9F : 1.0F;
        r->params.seed = 77 + i;
        memset(mask, i % 4 == 3 ? 0xAA : 0xFF, sizeof mask);
        if (i % 4 == 3) {
            r->row.mask_kind = PGL_MASK_GIVEN;
            r->row.mask = mask;
        }
        conf_run_row(backend, r);
        conf_sample_on_host(backend, r, r->logits, i + 1, mask, (pgl_sample_history){0}, &want);
        assert_int_equal(r->tokens[0], want);
        assert_int_equal(r->result.n_sampled, 1);
        assert_true(i % 4 != 3 || r->tokens[0] % 2 == 1);
        r->params.temperature = 0;
        conf_sample_on_host(backend, r, r->logits, i + 1, NULL, (pgl_sample_history){0}, &greedy);
        differ += greedy != want;
        assert_int_equal(r->top[0].id, greedy);
        assert_true(r->top[0].logprob >= r->top[1].logprob && r->top[1].logprob >= r->top[2].logprob);
        assert_true(r->logprobs[0] <= r->top[0].logprob && r->logprobs[0] < 0);
    }
    assert_true(differ > 0);
    conf_row_free(r);
    conf_close(backend);
}

/* Penalties count what HISTORY said and what was sampled since. */
static inline void conf_penalties_count_history_and_samples(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    conf_row *r = conf_row_new(backend);
    int32_t prompt[8], greedy = 0, want = 0;
    conf_tokens(backend, 60, prompt, 8);
    conf_reset(backend, 0);
    conf_row_set(r, 0, prompt, 8, PGL_WANT_LOGITS);
    conf_run_row(backend, r);
    conf_sample_on_host(backend, r, r->logits + 7 * (size_t)pgl_backend_get_caps(backend)->vocab_size, 8,
                        NULL, (pgl_sample_history){0}, &greedy);
    pgl_token_count counts[2] = {{.id = greedy, .generated = 3, .in_prompt = true}};
    pgl_sample_history history = {counts, 1};
    for (uint32_t i = 0; i < 3; i++) { /* the same token again and again: penalties grow */
        conf_step step = {0};
        if (i == 0)
            conf_op(&step, (pgl_op){.kind = PGL_OP_HISTORY, .slot = 0, .history = history});
        conf_row_set(r, 0, &greedy, 1, PGL_WANT_LOGITS | PGL_WANT_SAMPLE);
        r->params.frequency_penalty = 1.5F;
        r->params.presence_penalty = 0.5F;
        r->params.repetition_penalty = 1.3F;
        conf_add_row(&step, r);
        conf_run(backend, &step);
        conf_sample_on_host(backend, r, r->logits, 9 + i, NULL, history, &want);
        assert_int_equal(r->tokens[0], want);
        if (i == 2)
            break;
        /* what was sampled counts from now on */
        if (want == counts[0].id) {
            counts[0].generated++;
        } else if (history.n == 2) {
            break;
        } else {
            bool before = want < counts[0].id;
            counts[1] = counts[0];
            counts[before ? 0 : 1] = (pgl_token_count){.id = want, .generated = 1};
            history.n = 2;
            if (!before)
                counts[0] = (pgl_token_count){.id = greedy, .generated = 3, .in_prompt = true};
        }
    }
    conf_row_free(r);
    conf_close(backend);
}

static inline void conf_targets_and_tops_are_those_of_the_logits(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    const pgl_backend_caps *caps = pgl_backend_get_caps(backend);
    conf_row *r = conf_row_new(backend);
    int32_t tokens[CONF_STEP];
    uint32_t n = subject->n_tokens;
    conf_tokens(backend, 70, tokens, n + 1);
    conf_reset(backend, 0);
    conf_row_set(r, 0, tokens, n, PGL_WANT_LOGITS | PGL_WANT_TARGETS | PGL_WANT_SAMPLE);
    r->row.n_top = 4;
    for (uint32_t i = 0; i < n; i++)
        r->targets[i] = i % 5 == 2 ? -1 : (int32_t)((uint32_t)tokens[i + 1] % caps->n_vocab);
    conf_run_row(backend, r);
    pgl_sampler *sampler = NULL;
    assert_int_equal(pgl_sampler_open(caps->n_vocab, &sampler, NULL), PGL_OK);
    for (uint32_t i = 0; i < n; i++) {
        pgl_token_logprob top[4];
        float target = 0;
        assert_int_equal(pgl_logprobs(sampler, r->logits + (size_t)i * caps->vocab_size, caps->n_vocab, 4,
                                      top, &r->targets[i], 1, &target, NULL),
                         PGL_OK);
        assert_memory_equal(&r->target_logprobs[i], &target, sizeof target);
        for (size_t t = 0; t < 4; t++) {
            assert_int_equal(r->top[4 * (size_t)i + t].id, top[t].id);
            assert_memory_equal(&r->top[4 * (size_t)i + t].logprob, &top[t].logprob, sizeof(float));
        }
    }
    assert_int_equal(r->result.n_sampled, 1);
    pgl_sampler_close(sampler);
    conf_row_free(r);
    conf_close(backend);
}

/* ---- late masks */

typedef struct late_mask {
    pgl_backend *backend;
    uint64_t ticket;
    uint32_t row, words;
    uint32_t *mask;
    pgl_status status;
} late_mask;

static inline void *fill_late(void *arg) {
    late_mask *late = arg;
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    nanosleep(&pause, NULL);
    for (uint32_t i = 0; i < late->words; i++)
        late->mask[i] = i == 1 ? 1u << 9 : 0;
    late->status = pgl_backend_mask_ready(late->backend, late->ticket, late->row, NULL);
    return NULL;
}

static inline void conf_late_masks_are_waited_for(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    conf_row *plain = conf_row_new(backend), *masked = conf_row_new(backend);
    int32_t tokens[4] = {1, 2, 3, 4};
    uint32_t words = (pgl_backend_get_caps(backend)->n_vocab + 31) / 32;
    uint32_t *mask = malloc((CONF_DRAFT + 1) * (size_t)words * sizeof *mask);
    for (uint32_t verify = 0; verify < (subject->has_draft ? 2u : 1u); verify++) {
        conf_reset(backend, 0);
        conf_reset(backend, 1);
        memset(mask, 0xFF, (CONF_DRAFT + 1) * (size_t)words * sizeof *mask);
        conf_step step = {0};
        conf_row_set(plain, 0, tokens, 4, PGL_WANT_SAMPLE);
        if (verify == 1)
            conf_row_verify(masked, 1, tokens, 3, 0);
        else
            conf_row_set(masked, 1, tokens, 4, PGL_WANT_SAMPLE);
        masked->row.mask_kind = PGL_MASK_LATE;
        masked->row.mask = mask;
        conf_add_row(&step, plain);
        conf_add_row(&step, masked);
        conf_submit(backend, &step);
        late_mask late = {backend, step.ticket, 1, words, mask, PGL_E_INTERNAL};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, fill_late, &late), 0);
        conf_wait(backend, &step);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(late.status, PGL_OK);
        assert_int_equal(masked->tokens[0], 32 + 9);
        assert_int_equal(masked->result.n_sampled, 1); /* the draft behind it is another token */
        assert_int_equal(plain->result.n_sampled, 1);
    }
    free(mask);
    conf_row_free(plain);
    conf_row_free(masked);
    conf_close(backend);
}

/* ---- ends */

/* The second plan is submitted before the first is known to have ended its slot. */
static inline void conf_ended_slots_are_inert_until_a_new_life(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    conf_row *a = conf_row_new(backend), *c = conf_row_new(backend);
    int32_t tokens[6], stop = 0;
    conf_tokens(backend, 80, tokens, 6);
    conf_reset(backend, 0);
    conf_row_set(a, 0, tokens, 6, PGL_WANT_SAMPLE);
    conf_run_row(backend, a);
    stop = a->tokens[0];
    for (uint32_t by_limit = 0; by_limit < 2; by_limit++) {
        conf_reset(backend, 0);
        conf_step first = {0}, second = {0};
        conf_row_set(a, 0, tokens, 6, PGL_WANT_SAMPLE);
        a->row.token_limit = by_limit != 0 ? 1 : 100;
        a->row.stop_ids = &stop;
        a->row.n_stop_ids = by_limit != 0 ? 0 : 1;
        conf_add_row(&first, a);
        conf_row_set(c, 0, NULL, 1, PGL_WANT_SAMPLE)->from_last = true;
        conf_add_row(&second, c);
        conf_submit(backend, &first);
        conf_submit(backend, &second);
        conf_wait(backend, &first);
        conf_wait(backend, &second);
        assert_int_equal(a->result.end, by_limit != 0 ? PGL_ROW_LIMIT : PGL_ROW_STOP);
        assert_int_equal(a->tokens[0], stop);
        assert_int_equal(a->result.length, 6);
        assert_int_equal(c->result.end, PGL_ROW_INERT);
        assert_int_equal(c->result.n_sampled, 0);
        assert_int_equal(c->result.length, 6);
        conf_row_set(c, 0, tokens, 1, 0);
        conf_run_row(backend, c);
        assert_int_equal(c->result.end, PGL_ROW_INERT);
    }
    conf_run_op(backend, (pgl_op){.kind = PGL_OP_SAVE, .slot = 0, .snapshot = 0});
    conf_run_op(backend, (pgl_op){.kind = PGL_OP_RESTORE, .slot = 0, .snapshot = 0});
    conf_row_set(c, 0, tokens, 1, PGL_WANT_SAMPLE);
    conf_run_row(backend, c);
    assert_int_equal(c->result.end, PGL_ROW_RUNS);
    assert_int_equal(c->result.length, 7);
    conf_row_free(a);
    conf_row_free(c);
    conf_close(backend);
}

/* Two plans in flight all the time, tokens from the device: the same text as one by one. */
static inline void conf_plans_in_flight_change_nothing(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    conf_row *r[2] = {conf_row_new(backend), conf_row_new(backend)};
    int32_t tokens[8], want[16];
    conf_tokens(backend, 90, tokens, 8);
    uint32_t n = 12;
    for (uint32_t run = 0; run < 2; run++) {
        conf_reset(backend, 0);
        conf_step steps[2] = {0};
        for (uint32_t i = 0; i < n + run; i++) {
            conf_row *row = r[i % 2];
            if (i < n) {
                steps[i % 2] = (conf_step){0};
                conf_row_set(row, 0, tokens, i == 0 ? 8 : 1, PGL_WANT_SAMPLE)->from_last = i > 0;
                row->params.temperature = 1;
                row->params.seed = 4;
                conf_add_row(&steps[i % 2], row);
                conf_submit(backend, &steps[i % 2]);
            }
            if (run == 1 && i == 0)
                continue;
            uint32_t done = i - run;
            conf_wait(backend, &steps[done % 2]);
            if (run == 0)
                want[done] = r[done % 2]->tokens[0];
            else
                assert_int_equal(r[done % 2]->tokens[0], want[done]);
        }
    }
    conf_row_free(r[0]);
    conf_row_free(r[1]);
    conf_close(backend);
}

/* ---- drafts */

/* Speculation with the draft head gives the text of plain decoding, greedy and sampled. */
static inline void conf_drafts_are_lossless(void **state) {
    const conf_subject *subject = *state;
    if (!subject->has_draft)
        skip();
    pgl_backend *backend = conf_open(subject);
    conf_row *r = conf_row_new(backend);
    int32_t prompt[9], want[CONF_STEP];
    conf_tokens(backend, 100, prompt, 9);
    for (uint32_t sampled = 0; sampled < 2; sampled++) {
        uint32_t n = subject->n_tokens / 2, got = 0, accepted = 0;
        for (uint32_t run = 0; run < 2; run++) {
            conf_reset(backend, 0);
            got = 0;
            for (bool first = true; got < n; first = false) {
                bool verify = run == 1 && !first;
                conf_row_set(r, 0, first ? prompt : NULL,
                             first    ? 9
                             : verify ? 1 + CONF_DRAFT
                                      : 1,
                             PGL_WANT_SAMPLE);
                r->row.from_last = !first;
                r->params.temperature = sampled != 0 ? 0.8F : 0;
                r->params.seed = 9;
                r->row.n_draft = CONF_DRAFT;
                r->row.wants |= run == 1 ? PGL_WANT_DRAFT : 0;
                if (verify) {
                    r->row.kind = PGL_ROW_VERIFY;
                    r->row.from_drafts = true;
                    r->row.auto_commit = true;
                }
                conf_run_row(backend, r);
                assert_true(r->result.n_sampled >= 1);
                assert_int_equal(r->result.n_drafted, run == 1 ? CONF_DRAFT : 0);
                for (uint32_t i = 0; i < r->result.n_sampled && got < n; i++, got++) {
                    if (run == 0)
                        want[got] = r->tokens[i];
                    else
                        assert_int_equal(r->tokens[i], want[got]);
                }
                accepted += r->result.n_sampled - 1;
            }
        }
        (void)accepted; /* how many is the model's affair */
    }
    conf_row_free(r);
    conf_close(backend);
}

/* Drafts and the draft head's logits depend on the slot's history alone. */
static inline void conf_drafts_do_not_depend_on_chunks_or_neighbours(void **state) {
    const conf_subject *subject = *state;
    if (!subject->has_draft)
        skip();
    pgl_backend *backend = conf_open(subject);
    const pgl_backend_caps *caps = pgl_backend_get_caps(backend);
    conf_row *r = conf_row_new(backend), *beside = conf_row_new(backend);
    int32_t tokens[CONF_STEP], want[CONF_DRAFT];
    uint32_t n = 21;
    float *logits = malloc((size_t)n * caps->vocab_size * sizeof *logits);
    conf_tokens(backend, 110, tokens, n);
    const uint32_t cuts[][2] = {{0, 0}, {1, 0}, {15, 0}, {16, 1}, {17, 1}, {20, 1}};
    for (size_t c = 0; c < 6; c++) {
        uint32_t cut = cuts[c][0];
        conf_reset(backend, 0);
        conf_reset(backend, 1);
        if (cut > 0)
            conf_feed(backend, r, 0, tokens, cut);
        conf_step step = {0};
        if (cuts[c][1] == 1) {
            conf_row_set(beside, 1, tokens + 3, 6, PGL_WANT_SAMPLE | PGL_WANT_DRAFT | PGL_WANT_DRAFT_LOGITS);
            beside->row.n_draft = 2;
            conf_add_row(&step, beside);
        }
        conf_row_set(r, 0, tokens + cut, n - cut, PGL_WANT_SAMPLE | PGL_WANT_DRAFT | PGL_WANT_DRAFT_LOGITS);
        r->row.n_draft = CONF_DRAFT;
        conf_add_row(&step, r);
        conf_run(backend, &step);
        assert_int_equal(r->result.n_drafted, CONF_DRAFT);
        if (c == 0) {
            memcpy(want, r->drafts, sizeof want);
            memcpy(logits, r->draft_logits, (size_t)(n - 1) * caps->vocab_size * sizeof *logits);
        }
        assert_memory_equal(r->drafts, want, sizeof want);
        conf_same_floats(caps->bit_stable, "draft logits", r->draft_logits,
                         logits + (size_t)cut * caps->vocab_size, (size_t)(n - 1 - cut) * caps->vocab_size);
    }
    free(logits);
    conf_row_free(r);
    conf_row_free(beside);
    conf_close(backend);
}

/* ---- counts and refusals */

static inline void conf_expert_counts_are_those_of_the_tokens(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    const pgl_backend_caps *caps = pgl_backend_get_caps(backend);
    conf_row *r = conf_row_new(backend), *other = conf_row_new(backend);
    int32_t tokens[20];
    conf_tokens(backend, 120, tokens, 20);
    conf_reset(backend, 0);
    conf_reset(backend, 1);
    size_t n_counts = (size_t)caps->n_layers * caps->n_experts;
    uint64_t *counts = calloc(n_counts, sizeof *counts);
    counts[0] = 1000; /* added to */
    conf_step step = {0};
    conf_row_set(r, 0, tokens, 20, PGL_WANT_COUNTS | PGL_WANT_EXPERTS);
    conf_row_set(other, 1, tokens + 3, 5, PGL_WANT_EXPERTS); /* not counted */
    conf_add_row(&step, r);
    conf_add_row(&step, other);
    step.plan.expert_counts = counts;
    conf_run(backend, &step);
    counts[0] -= 1000;
    for (uint32_t l = 0; l < caps->n_layers; l++) {
        for (uint32_t i = 0; i < 20 * caps->n_experts_used; i++) {
            int32_t e = r->experts[(size_t)l * 20 * caps->n_experts_used + i];
            assert_true(e >= 0 && (uint32_t)e < caps->n_experts);
            counts[(size_t)l * caps->n_experts + (uint32_t)e]--;
        }
    }
    for (size_t i = 0; i < n_counts; i++)
        assert_int_equal(counts[i], 0);
    free(counts);
    conf_row_free(r);
    conf_row_free(other);
    conf_close(backend);
}

static inline void conf_a_refused_plan_has_no_effect(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    conf_row *r = conf_row_new(backend), *bad = conf_row_new(backend);
    int32_t tokens[20];
    conf_tokens(backend, 130, tokens, 20);
    conf_truth truth = conf_truth_of(backend, r, 0, tokens, 20);
    conf_reset(backend, 0);
    conf_feed(backend, r, 0, tokens, 10);
    unsigned char *before = conf_state(backend, 0);
    conf_step step = {0};
    conf_op(&step, (pgl_op){.kind = PGL_OP_RESET, .slot = 0}); /* right in itself, before what is wrong */
    conf_op(&step, (pgl_op){.kind = PGL_OP_COPY_PAGE, .page = CONF_TABLE, .page2 = 0});
    conf_row_set(bad, 1, tokens, 4, 0);
    bad->in[2] = (int32_t)pgl_backend_get_caps(backend)->vocab_size;
    conf_add_row(&step, bad);
    step.plan.before = step.before;
    step.plan.rows = step.rows;
    pgl_error err = {PGL_OK, ""};
    assert_int_equal(pgl_backend_submit(backend, &step.plan, &step.ticket, &err), PGL_E_INVALID);
    assert_non_null(strstr(err.text, "row 0"));
    conf_same_state(backend, 0, before, "after a refused plan");
    conf_row_set(r, 0, tokens + 10, 10, PGL_WANT_LOGITS);
    conf_run_row(backend, r);
    assert_int_equal(r->result.length, 20);
    conf_same_logits(r, &truth, 10, 10, "logits after a refused plan");
    free(before);
    conf_truth_free(&truth);
    conf_row_free(r);
    conf_row_free(bad);
    conf_close(backend);
}

static inline void conf_caps_say_what_was_asked_for(void **state) {
    const conf_subject *subject = *state;
    pgl_backend *backend = conf_open(subject);
    const pgl_backend_caps *caps = pgl_backend_get_caps(backend);
    assert_non_null(caps->name);
    assert_non_null(caps->detail);
    assert_int_equal(caps->n_slots, CONF_SLOTS);
    assert_int_equal(caps->n_pages, CONF_PAGES);
    assert_int_equal(caps->n_snapshots, CONF_SNAPSHOTS);
    assert_int_equal(caps->page_tokens, CONF_PAGE);
    assert_int_equal(caps->max_context, CONF_CONTEXT);
    assert_int_equal(caps->max_draft, subject->has_draft ? CONF_DRAFT : 0);
    assert_true(caps->max_in_flight >= 2);
    assert_true(caps->page_bytes > 0 && caps->snapshot_bytes > 0);
    pgl_backend_memory memory = pgl_backend_get_memory(backend);
    assert_true(memory.pages_bytes >= CONF_PAGES * caps->page_bytes);
    assert_true(memory.slots_bytes >= CONF_SLOTS * caps->snapshot_bytes);
    conf_close(backend);
}

#define CONF_SUITE(subject)                                                                                  \
    cmocka_unit_test_prestate(conf_caps_say_what_was_asked_for, (void *)(subject)),                          \
        cmocka_unit_test_prestate(conf_chunks_of_any_size_give_equal_bits, (void *)(subject)),               \
        cmocka_unit_test_prestate(conf_neighbours_do_not_matter, (void *)(subject)),                         \
        cmocka_unit_test_prestate(conf_verify_rows_compute_what_decode_rows_do, (void *)(subject)),          \
        cmocka_unit_test_prestate(conf_snapshots_restore_at_any_position, (void *)(subject)),                \
        cmocka_unit_test_prestate(conf_forks_share_pages_and_part, (void *)(subject)),                       \
        cmocka_unit_test_prestate(conf_exports_come_back_elsewhere, (void *)(subject)),                      \
        cmocka_unit_test_prestate(conf_samples_are_those_of_the_logits, (void *)(subject)),                  \
        cmocka_unit_test_prestate(conf_penalties_count_history_and_samples, (void *)(subject)),              \
        cmocka_unit_test_prestate(conf_targets_and_tops_are_those_of_the_logits, (void *)(subject)),         \
        cmocka_unit_test_prestate(conf_late_masks_are_waited_for, (void *)(subject)),                        \
        cmocka_unit_test_prestate(conf_ended_slots_are_inert_until_a_new_life, (void *)(subject)),           \
        cmocka_unit_test_prestate(conf_plans_in_flight_change_nothing, (void *)(subject)),                   \
        cmocka_unit_test_prestate(conf_drafts_are_lossless, (void *)(subject)),                              \
        cmocka_unit_test_prestate(conf_drafts_do_not_depend_on_chunks_or_neighbours, (void *)(subject)),     \
        cmocka_unit_test_prestate(conf_expert_counts_are_those_of_the_tokens, (void *)(subject)),            \
        cmocka_unit_test_prestate(conf_a_refused_plan_has_no_effect, (void *)(subject))

#endif
