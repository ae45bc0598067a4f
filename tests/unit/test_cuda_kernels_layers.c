/* The CUDA backend's kernels for the mixers, run on the host by tests/emulator, against the scalar contract: the delta
 * net's convolution and recurrence, and attention over scattered pages. */
#include "kernel_world.h"

#include "codec/codec.h"
#include "model/ops.h"

/* ---- the delta net */

enum { SLOTS = 3 };

/* Three spans: two tokens of slot 2, one of slot 0 that leaves its state alone, five of slot 1. */
static pgl_cuda_span *three_spans(kernel_world *w) {
    pgl_cuda_span *spans = KW_GET(w, pgl_cuda_span, 3);
    spans[0] = (pgl_cuda_span){.first = 0, .n = 2, .slot = 2};
    spans[1] = (pgl_cuda_span){.first = 2, .n = 1, .slot = 0, .keep = 1};
    spans[2] = (pgl_cuda_span){.first = 3, .n = 5, .slot = 1};
    return spans;
}

static void convolutions_are_exact_and_move_their_taps(void **state) {
    enum { WIDTH = 200, STRIDE = 208 };
    const size_t n = 8;
    kernel_world w = {.seed = 21};
    (void)state;
    for (uint32_t kernel = 2; kernel <= PGL_CUDA_MOST_KERNEL; kernel++) {
        size_t slot_floats = (size_t)(kernel - 1) * WIDTH + 11;
        float *weight = kw_random(&w, WIDTH * kernel, 1), *by_tap = KW_GET(&w, float, WIDTH *kernel);
        for (uint32_t c = 0; c < WIDTH; c++) {
            for (uint32_t j = 0; j < kernel; j++)
                by_tap[j * WIDTH + c] = weight[c * kernel + j];
        }
        pgl_vec vec = {.data = weight, .dtype = PGL_F32, .n = WIDTH * kernel};
        pgl_conv_args a = {.spans = three_spans(&w),
                           .w = by_tap,
                           .u = kw_random(&w, n * STRIDE, 2),
                           .taps = kw_random(&w, SLOTS * slot_floats, 2),
                           .slot_stride = slot_floats,
                           .width = WIDTH,
                           .kernel = kernel,
                           .u_stride = STRIDE};
        float *u = KW_GET(&w, float, n *STRIDE), *taps = KW_GET(&w, float, SLOTS *slot_floats);
        memcpy(u, a.u, n * STRIDE * sizeof *u);
        memcpy(taps, a.taps, SLOTS * slot_floats * sizeof *taps);
        kw_launch("conv", 3, 2, 1, PGL_CUDA_THREADS, &a);
        for (uint32_t s = 0; s < 3; s++) {
            float *mine = taps + a.spans[s].slot * slot_floats, *kept = KW_GET(&w, float, slot_floats);
            memcpy(kept, mine, slot_floats * sizeof *kept);
            for (uint32_t i = 0; i < a.spans[s].n; i++) {
                float *row = u + (size_t)(a.spans[s].first + i) * STRIDE;
                pgl_conv_step(&vec, WIDTH, kernel, mine, row, row);
            }
            if (a.spans[s].keep != 0)
                memcpy(mine, kept, slot_floats * sizeof *kept);
        }
        assert_memory_equal(a.u, u, n * STRIDE * sizeof *u);
        assert_memory_equal(a.taps, taps, SLOTS * slot_floats * sizeof *taps);
        kw_end(&w);
    }
}

static void delta_case(uint32_t nk, uint32_t nv, uint32_t dk, uint32_t dv, bool wants_output) {
    enum { N = 8 };
    kernel_world w = {.seed = dk + dv};
    uint32_t stride = 2 * nk * dk + nv * dv + 3, gates = nv + 2, o_stride = nv * dv + 8;
    size_t slot_floats = (size_t)nv * dk * dv + 7;
    pgl_delta_args a = {.spans = three_spans(&w),
                        .u = kw_random(&w, (size_t)N * stride, 2),
                        .a = kw_random(&w, (size_t)N * gates, 3),
                        .b = kw_random(&w, (size_t)N * gates, 3),
                        .a_log = kw_random(&w, nv, 2),
                        .dt_bias = kw_random(&w, nv, 2),
                        .norm = kw_random(&w, dv, 1),
                        .z = wants_output ? kw_random(&w, (size_t)N * nv * dv, 2) : NULL,
                        .o = wants_output ? KW_GET(&w, uint16_t, (size_t)N * o_stride) : NULL,
                        .state = kw_random(&w, SLOTS * slot_floats, 1),
                        .slot_stride = slot_floats,
                        .u_stride = stride,
                        .gate_stride = gates,
                        .o_stride = o_stride,
                        .nk = nk,
                        .nv = nv,
                        .dk = dk,
                        .dv = dv,
                        .eps = 1e-6F};
    float *want = KW_GET(&w, float, SLOTS *slot_floats), o[128], scratch[128], q[128], k[128], y[128];
    pgl_vec norm = {.data = a.norm, .dtype = PGL_F32, .n = dv};
    memcpy(want, a.state, SLOTS * slot_floats * sizeof *want);
    kw_launch("delta", 3, nv, 1, PGL_CUDA_DELTA_THREADS, &a);
    for (uint32_t s = 0; s < 3; s++) {
        float *mine = want + a.spans[s].slot * slot_floats, *kept = KW_GET(&w, float, slot_floats);
        memcpy(kept, mine, slot_floats * sizeof *kept);
        for (uint32_t i = 0; i < a.spans[s].n * nv; i++) {
            uint32_t t = a.spans[s].first + i / nv, h = i % nv, key_head = h / (nv / nk);
            const float *u = a.u + (size_t)t * stride;
            memcpy(q, u + (size_t)key_head * dk, dk * sizeof *q);
            memcpy(k, u + (size_t)(nk + key_head) * dk, dk * sizeof *k);
            pgl_l2_norm(q, dk, 1.0F / sqrtf((float)dk));
            pgl_l2_norm(k, dk, 1.0F);
            pgl_delta_head head = {
                .s = mine + (size_t)h * dk * dv,
                .q = q,
                .k = k,
                .v = u + 2 * (size_t)nk * dk + (size_t)h * dv,
                .decay = pgl_delta_decay(a.a_log[h], a.dt_bias[h], a.a[(size_t)t * gates + h]),
                .beta = pgl_sigmoid(a.b[(size_t)t * gates + h]),
                .dk = dk,
                .dv = dv,
                .o = o,
                .scratch = scratch,
            };
            pgl_delta_step(&head);
            if (!wants_output)
                continue;
            pgl_gated_norm(o, a.z + ((size_t)t * nv + h) * dv, &norm, 1e-6F, dv, y);
            kw_near16("delta output", a.o + (size_t)t * o_stride + (size_t)h * dv, y, 1, dv, 1e-3);
        }
        if (a.spans[s].keep != 0)
            memcpy(mine, kept, slot_floats * sizeof *kept);
    }
    kw_near("delta state", a.state, want, SLOTS, slot_floats, 1e-5);
    kw_end(&w);
}

static void the_recurrence_is_that_of_the_contract(void **state) {
    (void)state;
    delta_case(2, 4, 128, 128, true);
    delta_case(1, 3, 64, 96, true);
    delta_case(2, 2, 32, 32, true);
    delta_case(1, 1, 96, 64, true);
    delta_case(2, 4, 128, 128, false);
}

/* ---- attention */

typedef struct attention_sizes {
    uint32_t heads, kv_heads, dim, rotary, page_tokens, splits, n_drafts, first;
} attention_sizes;

enum { TOKENS = 4, PAGES = 12 };

/* Keys and values of what token t looks at, one after the other as f32, from where the kernels have them. */
static uint32_t entries_of(const pgl_attend_args *a, uint32_t t, uint32_t kv_head, float *keys,
                           float *values) {
    uint32_t n = a->count[t], dim = a->head_dim;
    for (uint32_t i = 0; i < n + a->n_drafts; i++) {
        uint32_t entry = a->first + i, page_tokens = a->pages.page_tokens;
        const uint16_t *key;
        size_t behind = a->pages.values_offset;
        if (i < n) {
            uint32_t page = a->pages.table[a->slot[t] * a->pages.table_stride + entry / page_tokens];
            key = a->pages.keys + page * a->pages.page_stride +
                  ((size_t)kv_head * page_tokens + entry % page_tokens) * dim;
        } else {
            key = a->drafts.keys +
                  (((size_t)a->drafts.row[t] * 2 * a->n_kv_heads + kv_head) * a->drafts.most + i - n) * dim;
            behind = (size_t)a->n_kv_heads * a->drafts.most * dim;
        }
        for (uint32_t d = 0; d < dim; d++) {
            keys[(size_t)i * dim + d] = pgl_f16_to_f32(key[d]);
            values[(size_t)i * dim + d] = pgl_f16_to_f32(key[behind + d]);
        }
    }
    return n + a->n_drafts;
}

static pgl_cuda_pages scattered_pages(kernel_world *w, const attention_sizes *s) {
    size_t layer = 2 * (size_t)s->kv_heads * s->page_tokens * s->dim;
    uint32_t *table = KW_GET(w, uint32_t, 2 * 6);
    for (uint32_t i = 0; i < 12; i++)
        table[i] = (i * 5) % PAGES;
    return (pgl_cuda_pages){.keys = kw_random16(w, PAGES * (layer + 64), 1),
                            .table = table,
                            .page_stride = layer + 64,
                            .values_offset = layer / 2,
                            .table_stride = 6,
                            .page_tokens = s->page_tokens};
}

static void attention_case(const attention_sizes *s) {
    kernel_world w = {.seed = s->heads + s->dim + s->splits};
    uint32_t share = s->heads / s->kv_heads, groups = (share + PGL_CUDA_QUERIES - 1) / PGL_CUDA_QUERIES;
    uint32_t *slot = KW_GET(&w, uint32_t, TOKENS), *count = KW_GET(&w, uint32_t, TOKENS);
    uint32_t *row = KW_GET(&w, uint32_t, TOKENS), most = 5 * s->page_tokens;
    for (uint32_t t = 0; t < TOKENS; t++) {
        slot[t] = t % 2;
        row[t] = TOKENS - 1 - t;
        count[t] = t == 0 ? 1 : t == 1 ? most : random_below(&w.seed, most);
    }
    if (s->first != 0)
        count[2] = 0; /* nothing to look at but drafts, or nothing at all */
    pgl_attend_args a = {.q = kw_random(&w, (size_t)TOKENS * s->heads * 2 * s->dim, 2),
                         .slot = slot,
                         .count = count,
                         .first = s->first,
                         .pages = scattered_pages(&w, s),
                         .drafts = {.row = row, .most = 3},
                         .n_drafts = s->n_drafts,
                         .part = KW_GET(&w, float, (size_t)TOKENS * s->heads * s->splits * (s->dim + 2)),
                         .n_heads = s->heads,
                         .n_kv_heads = s->kv_heads,
                         .head_dim = s->dim,
                         .splits = s->splits};
    a.drafts.keys = kw_random16(&w, (size_t)TOKENS * 2 * s->kv_heads * 3 * s->dim, 1);
    pgl_attend_join_args join = {.part = a.part,
                                 .q = a.q,
                                 .o = KW_GET(&w, uint16_t, (size_t)TOKENS * (s->heads * s->dim + 8)),
                                 .n_heads = s->heads,
                                 .head_dim = s->dim,
                                 .splits = s->splits,
                                 .o_stride = s->heads * s->dim + 8};
    kw_launch("attend", TOKENS, s->kv_heads * groups, s->splits, PGL_CUDA_THREADS, &a);
    kw_launch("attend_join", TOKENS, s->heads, 1, PGL_CUDA_THREADS, &join);
    float *keys = KW_GET(&w, float, (size_t)(most + 3) * s->dim),
          *values = KW_GET(&w, float, (size_t)(most + 3) * s->dim);
    float *p = KW_GET(&w, float, most + 3), o[256];
    for (uint32_t i = 0; i < TOKENS * s->heads; i++) {
        uint32_t t = i / s->heads, h = i % s->heads, n = entries_of(&a, t, h / share, keys, values);
        const float *q = a.q + (size_t)i * 2 * s->dim;
        pgl_attention_head head = {.q = q,
                                   .keys = keys,
                                   .values = values,
                                   .stride = s->dim,
                                   .n = n,
                                   .head_dim = s->dim,
                                   .p = p,
                                   .o = o};
        memset(o, 0, sizeof o);
        if (n > 0)
            pgl_attention_step(&head);
        for (uint32_t d = 0; d < s->dim; d++)
            o[d] *= pgl_sigmoid(q[s->dim + d]);
        kw_near16("attention", join.o + (size_t)t * join.o_stride + (size_t)h * s->dim, o, 1, s->dim, 1e-3);
    }
    kw_end(&w);
}

static void attention_over_pages_is_that_of_the_contract(void **state) {
    static const attention_sizes cases[] = {
        {.heads = 4, .kv_heads = 2, .dim = 256, .rotary = 64, .page_tokens = 16, .splits = 1},
        {.heads = 16, .kv_heads = 2, .dim = 256, .rotary = 64, .page_tokens = 32, .splits = 3},
        {.heads = 12, .kv_heads = 1, .dim = 128, .rotary = 32, .page_tokens = 16, .splits = 8, .n_drafts = 2},
        {.heads = 3, .kv_heads = 3, .dim = 96, .rotary = 96, .page_tokens = 16, .splits = 2, .first = 1},
        {.heads = 2,
         .kv_heads = 1,
         .dim = 32,
         .rotary = 8,
         .page_tokens = 16,
         .splits = 2,
         .n_drafts = 3,
         .first = 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        attention_case(&cases[i]);
}

/* What prepare leaves of one head: normed and rotated. */
static void prepared(const float *x, const float *norm, const pgl_attention_prepare_args *a, uint32_t t,
                     float *out) {
    pgl_vec vec = {.data = norm, .dtype = PGL_F32, .n = a->head_dim};
    pgl_norm(x, &vec, a->eps, a->head_dim, out);
    pgl_rope(out, a->rotary_dim, a->cosine + (size_t)t * (a->rotary_dim / 2),
             a->sine + (size_t)t * (a->rotary_dim / 2));
}

static void queries_and_keys_are_normed_rotated_and_stored(void **state) {
    static const attention_sizes s = {.heads = 4, .kv_heads = 2, .dim = 96, .rotary = 40, .page_tokens = 16};
    (void)state;
    for (uint32_t mode = 0; mode < 3; mode++) { /* all into pages; keys alone; into drafts */
        kernel_world w = {.seed = 31 + mode};
        uint32_t *slot = KW_GET(&w, uint32_t, TOKENS), *entry = KW_GET(&w, uint32_t, TOKENS);
        uint32_t *row = KW_GET(&w, uint32_t, TOKENS);
        for (uint32_t t = 0; t < TOKENS; t++) {
            slot[t] = t % 2;
            row[t] = t;
            entry[t] = t == 2 ? UINT32_MAX : mode == 2 ? t % 3 : 17 * t;
        }
        size_t q_floats = (size_t)TOKENS * s.heads * 2 * s.dim;
        float *q = kw_random(&w, q_floats, 2), *before = KW_GET(&w, float, q_floats), out[96];
        memcpy(before, q, q_floats * sizeof *q);
        pgl_attention_prepare_args a = {.q = mode == 1 ? NULL : q,
                                        .k = kw_random(&w, (size_t)TOKENS * s.kv_heads * s.dim, 2),
                                        .v = kw_random(&w, (size_t)TOKENS * s.kv_heads * s.dim, 2),
                                        .q_norm = kw_random(&w, s.dim, 1),
                                        .k_norm = kw_random(&w, s.dim, 1),
                                        .cosine = kw_random(&w, (size_t)TOKENS * s.rotary / 2, 1),
                                        .sine = kw_random(&w, (size_t)TOKENS * s.rotary / 2, 1),
                                        .slot = slot,
                                        .entry = entry,
                                        .pages = scattered_pages(&w, &s),
                                        .n_heads = s.heads,
                                        .n_kv_heads = s.kv_heads,
                                        .head_dim = s.dim,
                                        .rotary_dim = s.rotary,
                                        .eps = 1e-6F};
        uint16_t *drafts = KW_GET(&w, uint16_t, (size_t)TOKENS * 2 * s.kv_heads * 3 * s.dim);
        if (mode == 2)
            a.drafts = (pgl_cuda_draft_keys){.keys = drafts, .row = row, .most = 3};
        kw_launch("attention_prepare", TOKENS, (mode == 1 ? 0 : s.heads) + s.kv_heads, 1, 32, &a);
        for (uint32_t i = 0; i < TOKENS * s.heads; i++) {
            const float *x = before + (size_t)i * 2 * s.dim;
            prepared(x, a.q_norm, &a, i / s.heads, out);
            kw_near("query", q + (size_t)i * 2 * s.dim, mode == 1 ? x : out, 1, s.dim, 1e-6);
            assert_memory_equal(q + (size_t)i * 2 * s.dim + s.dim, x + s.dim,
                                s.dim * sizeof *x); /* the gate */
        }
        for (uint32_t i = 0; i < TOKENS * s.kv_heads; i++) {
            uint32_t t = i / s.kv_heads, h = i % s.kv_heads;
            if (entry[t] == UINT32_MAX)
                continue;
            prepared(a.k + (size_t)i * s.dim, a.k_norm, &a, t, out);
            uint32_t page = a.pages.table[slot[t] * 6 + entry[t] / 16];
            const uint16_t *key =
                mode == 2
                    ? drafts + (((size_t)t * 2 * s.kv_heads + h) * 3 + entry[t]) * s.dim
                    : a.pages.keys + page * a.pages.page_stride + ((size_t)h * 16 + entry[t] % 16) * s.dim;
            const uint16_t *value =
                key + (mode == 2 ? (size_t)s.kv_heads * 3 * s.dim : a.pages.values_offset);
            kw_near16("key", key, out, 1, s.dim, 1e-3);
            for (uint32_t d = 0; d < s.dim; d++)
                assert_int_equal(value[d], pgl_f32_to_f16(a.v[(size_t)i * s.dim + d]));
        }
        kw_end(&w);
    }
}

static void scores_that_are_not_numbers_are_not_hidden(void **state) {
    static const attention_sizes s = {.heads = 2, .kv_heads = 1, .dim = 32, .page_tokens = 16, .splits = 2};
    kernel_world w = {.seed = 41};
    uint32_t *slot = KW_GET(&w, uint32_t, 1), *count = KW_GET(&w, uint32_t, 1);
    (void)state;
    slot[0] = 0;
    count[0] = 40;
    float *q = kw_random(&w, 2 * 64, 1);
    q[5] = NAN;
    pgl_attend_args a = {.q = q,
                         .slot = slot,
                         .count = count,
                         .pages = scattered_pages(&w, &s),
                         .part = KW_GET(&w, float, 2 * 2 * 34),
                         .n_heads = 2,
                         .n_kv_heads = 1,
                         .head_dim = 32,
                         .splits = 2};
    pgl_attend_join_args join = {.part = a.part,
                                 .q = q,
                                 .o = KW_GET(&w, uint16_t, 64),
                                 .n_heads = 2,
                                 .head_dim = 32,
                                 .splits = 2,
                                 .o_stride = 64};
    kw_launch("attend", 1, 1, 2, PGL_CUDA_THREADS, &a);
    kw_launch("attend_join", 1, 2, 1, PGL_CUDA_THREADS, &join);
    for (uint32_t d = 0; d < 32; d++) {
        assert_true(pgl_f16_to_f32(join.o[d]) != pgl_f16_to_f32(join.o[d]));
        assert_true(pgl_f16_to_f32(join.o[32 + d]) == pgl_f16_to_f32(join.o[32 + d]));
    }
    kw_end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_are_exact_and_move_their_taps),
        cmocka_unit_test(the_recurrence_is_that_of_the_contract),
        cmocka_unit_test(attention_over_pages_is_that_of_the_contract),
        cmocka_unit_test(queries_and_keys_are_normed_rotated_and_stored),
        cmocka_unit_test(scores_that_are_not_numbers_are_not_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
