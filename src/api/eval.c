/* Owns a run's work space and the reference file being read or written. */
#include "api/eval.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/mapped.h"
#include "checkpoint/safetensors.h"

typedef struct reference {
    pgl_mapped mapped;
    pgl_safetensors_header header;
    bool open;
    uint32_t n_top;
    const unsigned char *ids, *top_ids, *top_logprobs, *rest; /* of the sequence at hand; any alignment */
} reference;

typedef struct run {
    const pgl_eval_options *o;
    pgl_eval_report *report;
    size_t sequence;
    reference ref;
    pgl_safetensors_writer *writer;
    double *kl; /* [positions] */
    double sum_nll, sequence_nll;
    double sum_mean, sum_mean2; /* over sequences of their mean nll */
    uint64_t sequence_predicted, done_tokens, total_tokens, agreed;
    size_t vocab_size;   /* width of a row of logits */
    unsigned char *kept; /* [n_vocab]: marks the reference's ids */
    int32_t *top_ids;    /* what is saved: [tokens of the longest sequence][n_top] */
    float *top_logprobs, *rest_logprob;
} run;

/* log(sum exp) over n_vocab logits. */
static double log_sum(const float *logits, uint32_t n_vocab, float *most) {
    float m = logits[0];
    for (uint32_t i = 1; i < n_vocab; i++)
        m = logits[i] > m ? logits[i] : m;
    double sum = 0;
    for (uint32_t i = 0; i < n_vocab; i++)
        sum += exp((double)logits[i] - (double)m);
    *most = m;
    return (double)m + log(sum);
}

static float finite_log(double sum) {
    return sum > 0 ? (float)fmax(log(sum), -(double)FLT_MAX) : -FLT_MAX;
}

static uint32_t argmax(const float *logits, uint32_t n_vocab) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static int32_t i32_at(const unsigned char *p, size_t i) {
    int32_t v;
    memcpy(&v, p + 4 * i, sizeof v);
    return v;
}

static float f32_at(const unsigned char *p, size_t i) {
    float v;
    memcpy(&v, p + 4 * i, sizeof v);
    return v;
}

/* ---- the reference file */

static const pgl_safetensors_tensor *find_tensor(const reference *ref, const char *stem, size_t k) {
    char name[64];
    snprintf(name, sizeof name, "%s.%zu", stem, k);
    for (size_t i = 0; i < ref->header.n_tensors; i++)
        if (strcmp(ref->header.tensors[i].name, name) == 0)
            return &ref->header.tensors[i];
    return NULL;
}

static pgl_status open_reference(run *r, pgl_error *err) {
    if (r->o->reference == NULL)
        return PGL_OK;
    pgl_status status = pgl_mapped_open(r->o->reference, &r->ref.mapped, err);
    if (status == PGL_OK)
        status = pgl_safetensors_read_header(r->ref.mapped.data, r->ref.mapped.size, r->o->reference,
                                             &r->ref.header, err);
    r->ref.open = status == PGL_OK;
    return status;
}

static pgl_status take_tensor(run *r, const char *stem, pgl_dtype dtype, uint64_t rows, uint32_t columns,
                              const unsigned char **out, pgl_error *err) {
    const pgl_safetensors_tensor *t = find_tensor(&r->ref, stem, r->sequence);
    uint32_t n_dims = columns == 0 ? 1 : 2;
    if (t == NULL || t->dtype != dtype || t->n_dims != n_dims || t->dims[0] != rows ||
        (columns != 0 && t->dims[1] != columns)) {
        char found[PGL_SHAPE_TEXT] = "no such tensor";
        if (t != NULL)
            pgl_shape_text(t->n_dims, t->dims, found);
        return pgl_fail(err, PGL_E_FORMAT, "%s: %s.%zu: expected %s of %llu rows, found %s", r->o->reference,
                        stem, r->sequence, pgl_dtype_name(dtype), (unsigned long long)rows, found);
    }
    *out = r->ref.mapped.data + t->offset;
    return PGL_OK;
}

/* The reference's tensors for the sequence at hand; its ids must be ours. */
static pgl_status take_sequence(run *r, pgl_error *err) {
    if (!r->ref.open)
        return PGL_OK;
    const pgl_eval_sequence *s = &r->o->sequences[r->sequence];
    const pgl_safetensors_tensor *top = find_tensor(&r->ref, "top_ids", r->sequence);
    r->ref.n_top =
        top != NULL && top->n_dims == 2 && top->dims[1] <= PGL_EVAL_MOST_TOP ? (uint32_t)top->dims[1] : 1;
    pgl_status status = take_tensor(r, "ids", PGL_I32, s->n, 0, &r->ref.ids, err);
    if (status == PGL_OK)
        status = take_tensor(r, "top_ids", PGL_I32, s->n, r->ref.n_top, &r->ref.top_ids, err);
    if (status == PGL_OK)
        status = take_tensor(r, "top_logprobs", PGL_F32, s->n, r->ref.n_top, &r->ref.top_logprobs, err);
    if (status == PGL_OK)
        status = take_tensor(r, "rest_logprob", PGL_F32, s->n, 0, &r->ref.rest, err);
    for (size_t i = 0; status == PGL_OK && i < s->n; i++)
        if (i32_at(r->ref.ids, i) != s->ids[i])
            status = pgl_fail(err, PGL_E_INVALID,
                              "%s: sequence %zu, token %zu: expected %d, found %d: another text or tokenizer",
                              r->o->reference, r->sequence, i, s->ids[i], i32_at(r->ref.ids, i));
    for (size_t i = 0; status == PGL_OK && i < s->n * r->ref.n_top; i++)
        if (i32_at(r->ref.top_ids, i) < 0 || (uint32_t)i32_at(r->ref.top_ids, i) >= r->o->n_vocab)
            status = pgl_fail(err, PGL_E_FORMAT, "%s: top_ids.%zu: expected ids below %u, found %d",
                              r->o->reference, r->sequence, r->o->n_vocab, i32_at(r->ref.top_ids, i));
    return status;
}

static double clamp_exp(float logprob) {
    return logprob <= -FLT_MAX ? 0 : exp((double)logprob);
}

/* KL of one position: sum over kept ids and the rest of p (log p - log q), both as f32 log-probabilities. */
static double divergence(run *r, size_t row, const float *logits, double total) {
    size_t at = row * r->ref.n_top;
    double kl = 0, rest = 0;
    for (uint32_t j = 0; j < r->ref.n_top; j++) {
        uint32_t id = (uint32_t)i32_at(r->ref.top_ids, at + j);
        float p = f32_at(r->ref.top_logprobs, at + j), q = (float)((double)logits[id] - total);
        kl += clamp_exp(p) * ((double)p - (double)q);
        r->kept[id] = 1;
    }
    for (uint32_t id = 0; id < r->o->n_vocab; id++)
        if (!r->kept[id])
            rest += exp((double)logits[id] - total);
    for (uint32_t j = 0; j < r->ref.n_top; j++)
        r->kept[i32_at(r->ref.top_ids, at + j)] = 0;
    float p = f32_at(r->ref.rest, row), q = finite_log(rest);
    if (p > -FLT_MAX)
        kl += clamp_exp(p) * ((double)p - (double)q);
    return kl;
}

/* ---- what is saved */

typedef struct ranked {
    float logit;
    uint32_t id;
} ranked;

static int by_logit(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static pgl_status keep_top(run *r, size_t row, const float *logits, double total, pgl_error *err) {
    ranked *all = pgl_new(r->o->n_vocab, sizeof *all);
    if (all == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory to rank %u logits", r->o->n_vocab);
    for (uint32_t i = 0; i < r->o->n_vocab; i++)
        all[i] = (ranked){logits[i], i};
    qsort(all, r->o->n_vocab, sizeof *all, by_logit);
    double rest = 0;
    for (uint32_t i = 0; i < r->o->n_vocab; i++) {
        if (i < r->o->n_top) {
            r->top_ids[row * r->o->n_top + i] = (int32_t)all[i].id;
            r->top_logprobs[row * r->o->n_top + i] = (float)((double)all[i].logit - total);
        }
    }
    for (uint32_t i = 0; i < r->o->n_top; i++)
        r->kept[all[i].id] = 1;
    for (uint32_t id = 0; id < r->o->n_vocab; id++) /* the order of divergence() */
        if (!r->kept[id])
            rest += exp((double)logits[id] - total);
    for (uint32_t i = 0; i < r->o->n_top; i++)
        r->kept[all[i].id] = 0;
    r->rest_logprob[row] = finite_log(rest);
    free(all);
    return PGL_OK;
}

static pgl_status create_file(run *r, pgl_error *err) {
    static const char *const STEM[] = {"ids", "top_ids", "top_logprobs", "rest_logprob"};
    if (r->o->save == NULL)
        return PGL_OK;
    size_t n = 4 * r->o->n_sequences;
    pgl_safetensors_spec *specs = pgl_new(n, sizeof *specs);
    char(*names)[40] = pgl_new(n, sizeof *names);
    pgl_status status = PGL_OK;
    if (specs == NULL || names == NULL)
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for the names of %zu tensors", n);
    for (size_t i = 0; i < n && status == PGL_OK; i++) {
        snprintf(names[i], sizeof names[i], "%s.%zu", STEM[i % 4], i / 4);
        specs[i] =
            (pgl_safetensors_spec){.name = names[i], .dtype = i % 4 < 2 ? PGL_I32 : PGL_F32, .n_dims = 1};
        specs[i].dims[0] = r->o->sequences[i / 4].n;
        if (i % 4 == 1 || i % 4 == 2) {
            specs[i].n_dims = 2;
            specs[i].dims[1] = r->o->n_top;
        }
    }
    if (status == PGL_OK)
        status = pgl_safetensors_create(r->o->save, specs, n, &r->writer, err);
    free(specs);
    free(names);
    return status;
}

static pgl_status write_sequence(run *r, pgl_error *err) {
    const pgl_eval_sequence *s = &r->o->sequences[r->sequence];
    if (r->writer == NULL)
        return PGL_OK;
    size_t kept = s->n * r->o->n_top;
    pgl_status status = pgl_safetensors_write(r->writer, s->ids, s->n * sizeof *s->ids, err);
    if (status == PGL_OK)
        status = pgl_safetensors_write(r->writer, r->top_ids, kept * sizeof *r->top_ids, err);
    if (status == PGL_OK)
        status = pgl_safetensors_write(r->writer, r->top_logprobs, kept * sizeof *r->top_logprobs, err);
    if (status == PGL_OK)
        status = pgl_safetensors_write(r->writer, r->rest_logprob, s->n * sizeof *r->rest_logprob, err);
    return status;
}

/* ---- the run */

static pgl_status score_row(run *r, size_t row, const float *logits, pgl_error *err) {
    const pgl_eval_sequence *s = &r->o->sequences[r->sequence];
    float most;
    double total = log_sum(logits, r->o->n_vocab, &most);
    if (row + 1 < s->n) {
        r->sequence_nll += total - (double)logits[s->ids[row + 1]];
        r->sequence_predicted++;
    }
    if (r->ref.open) {
        r->kl[r->report->n_compared++] = divergence(r, row, logits, total);
        r->agreed += argmax(logits, r->o->n_vocab) == (uint32_t)i32_at(r->ref.top_ids, row * r->ref.n_top);
    }
    return r->writer == NULL ? PGL_OK : keep_top(r, row, logits, total, err);
}

static pgl_status score_rows(void *user, size_t first, size_t n, const float *logits, pgl_error *err) {
    run *r = user;
    pgl_status status = PGL_OK;
    for (size_t i = 0; i < n && status == PGL_OK; i++)
        status = score_row(r, first + i, logits + i * r->vocab_size, err);
    r->done_tokens += n;
    if (status == PGL_OK && r->o->progress != NULL &&
        !r->o->progress(r->o->user, r->done_tokens, r->total_tokens))
        status = pgl_fail(err, PGL_E_CANCELLED, "stopped on request");
    return status;
}

static pgl_status score_sequence(run *r, pgl_scorer *scorer, pgl_error *err) {
    const pgl_eval_sequence *s = &r->o->sequences[r->sequence];
    r->sequence_nll = 0;
    r->sequence_predicted = 0;
    pgl_status status = take_sequence(r, err);
    if (status == PGL_OK)
        status = pgl_scorer_run(scorer, s->ids, s->n, score_rows, r, err);
    if (status == PGL_OK)
        status = write_sequence(r, err);
    if (status != PGL_OK)
        pgl_error_prefix(err, "sequence %zu", r->sequence);
    double mean = r->sequence_predicted == 0 ? 0 : r->sequence_nll / (double)r->sequence_predicted;
    r->sum_nll += r->sequence_nll;
    r->report->n_predicted += r->sequence_predicted;
    r->sum_mean += mean;
    r->sum_mean2 += mean * mean;
    return status;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void finish(run *r) {
    pgl_eval_report *p = r->report;
    double n = (double)r->o->n_sequences;
    p->nll = p->n_predicted > 0 ? r->sum_nll / (double)p->n_predicted : 0;
    p->perplexity = exp(p->nll);
    double variance = n > 1 ? (r->sum_mean2 - r->sum_mean * r->sum_mean / n) / (n - 1) : 0;
    p->nll_error = variance > 0 ? sqrt(variance / n) : 0;
    if (p->n_compared == 0)
        return;
    qsort(r->kl, p->n_compared, sizeof *r->kl, by_value);
    for (uint64_t i = 0; i < p->n_compared; i++)
        p->kl += r->kl[i] / (double)p->n_compared;
    p->kl_median = r->kl[p->n_compared / 2];
    p->kl_p99 = r->kl[(p->n_compared - 1) * 99 / 100];
    p->kl_max = r->kl[p->n_compared - 1];
    p->top1_agreement = (double)r->agreed / (double)p->n_compared;
}

static pgl_status prepare(run *r, const pgl_scorer *scorer, pgl_error *err) {
    const pgl_eval_options *o = r->o;
    r->vocab_size = pgl_scorer_model(scorer)->config->vocab_size;
    size_t longest = 0;
    if (o->n_sequences == 0)
        return pgl_fail(err, PGL_E_INVALID, "eval: expected at least one sequence, found none");
    if (o->n_vocab == 0 || o->n_vocab > r->vocab_size)
        return pgl_fail(err, PGL_E_INVALID, "eval: expected 1 to %zu ids that count, found %u", r->vocab_size,
                        o->n_vocab);
    if (o->save != NULL && (o->n_top == 0 || o->n_top > o->n_vocab || o->n_top > PGL_EVAL_MOST_TOP))
        return pgl_fail(err, PGL_E_INVALID,
                        "eval: expected 1 to %u kept entries and at most the %u ids there are, found %u",
                        PGL_EVAL_MOST_TOP, o->n_vocab, o->n_top);
    for (size_t i = 0; i < o->n_sequences; i++) {
        const pgl_eval_sequence *s = &o->sequences[i];
        if (s->n < 2)
            return pgl_fail(err, PGL_E_INVALID, "eval: sequence %zu: expected at least 2 tokens, found %zu",
                            i, s->n);
        for (size_t t = 0; t < s->n; t++)
            if (s->ids[t] < 0 || (uint32_t)s->ids[t] >= o->n_vocab)
                return pgl_fail(err, PGL_E_INVALID,
                                "eval: sequence %zu, token %zu: expected an id below %u, found %d", i, t,
                                o->n_vocab, s->ids[t]);
        longest = s->n > longest ? s->n : longest;
        r->total_tokens += s->n;
    }
    size_t kept = 0;
    r->kept = pgl_new(o->n_vocab, 1);
    r->kl = o->reference == NULL ? NULL : pgl_new(r->total_tokens, sizeof *r->kl);
    if (o->save != NULL && pgl_mul_size(longest, o->n_top, &kept)) {
        r->top_ids = pgl_new(kept, sizeof *r->top_ids);
        r->top_logprobs = pgl_new(kept, sizeof *r->top_logprobs);
        r->rest_logprob = pgl_new(longest, sizeof *r->rest_logprob);
    }
    if (r->kept == NULL || (o->reference != NULL && r->kl == NULL) ||
        (o->save != NULL && (r->top_ids == NULL || r->top_logprobs == NULL || r->rest_logprob == NULL)))
        return pgl_fail(err, PGL_E_MEMORY, "no memory to evaluate %llu tokens",
                        (unsigned long long)r->total_tokens);
    pgl_status status = open_reference(r, err);
    return status == PGL_OK ? create_file(r, err) : status;
}

pgl_status pgl_eval(pgl_scorer *scorer, const pgl_eval_options *options, pgl_eval_report *report,
                    pgl_error *err) {
    *report = (pgl_eval_report){0};
    run r = {.o = options, .report = report, .ref = {.mapped = PGL_MAPPED_INIT}};
    pgl_status status = prepare(&r, scorer, err);
    for (r.sequence = 0; r.sequence < options->n_sequences && status == PGL_OK; r.sequence++)
        status = score_sequence(&r, scorer, err);
    if (status == PGL_OK && r.writer != NULL) {
        status = pgl_safetensors_finish(r.writer, err);
        r.writer = NULL;
    }
    if (status == PGL_OK)
        finish(&r);
    pgl_safetensors_abandon(r.writer);
    if (r.ref.open)
        pgl_safetensors_header_fini(&r.ref.header);
    pgl_mapped_close(&r.ref.mapped);
    free(r.kept);
    free(r.kl);
    free(r.top_ids);
    free(r.top_logprobs);
    free(r.rest_logprob);
    return status;
}

/* ---- choices */

typedef struct continuation {
    const int32_t *ids;
    size_t n, first, vocab_size;
    uint32_t n_vocab;
    double sum;
    bool greedy;
} continuation;

static pgl_status score_continuation(void *user, size_t first, size_t n, const float *logits,
                                     pgl_error *err) {
    continuation *c = user;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        size_t next = first + i + 1;
        if (next < c->first || next >= c->n)
            continue;
        const float *row = logits + i * c->vocab_size;
        float most;
        c->sum += (double)row[c->ids[next]] - log_sum(row, c->n_vocab, &most);
        c->greedy = c->greedy && argmax(row, c->n_vocab) == (uint32_t)c->ids[next];
    }
    return PGL_OK;
}

pgl_status pgl_eval_continuation(pgl_scorer *scorer, const int32_t *ids, size_t n, size_t first,
                                 uint32_t n_vocab, double *loglikelihood, bool *greedy, pgl_error *err) {
    continuation c = {.ids = ids,
                      .n = n,
                      .first = first,
                      .vocab_size = pgl_scorer_model(scorer)->config->vocab_size,
                      .n_vocab = n_vocab,
                      .greedy = true};
    if (first < 1 || first >= n)
        return pgl_fail(err, PGL_E_INVALID,
                        "a choice: expected a token before it and one in it, found %zu and %zu", first,
                        n - (first < n ? first : n));
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
            return pgl_fail(err, PGL_E_INVALID, "a choice: token %zu: expected an id below %u, found %d", i,
                            n_vocab, ids[i]);
    pgl_status status = pgl_scorer_run(scorer, ids, n, score_continuation, &c, err);
    *loglikelihood = c.sum;
    *greedy = c.greedy;
    return status;
}
