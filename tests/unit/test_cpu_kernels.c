/* Every kernel of every instruction set that this processor has, against the scalar contract: random inputs, odd
 * sizes, memory that is poisoned around inputs and outputs. PGL_TEST_ISA=avx512 runs one table alone and fails where
 * the processor lacks it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "backend/cpu/kernels.h"
#include "codec/codec.h"
#include "model/linear.h"
#include "model/ops.h"

static const pgl_kernels *g_tables[3];
static size_t g_n_tables;

#define FOR_TABLES(k)                                                                                        \
    for (size_t table_index = 0; table_index < g_n_tables; table_index++)                                    \
        for (const pgl_kernels *k = g_tables[table_index]; k != NULL; k = NULL)

/* ---- random numbers and guarded memory */

static uint64_t g_seed = 1;

static uint32_t random_bits(void) {
    g_seed += 0x9E3779B97F4A7C15u;
    uint64_t x = g_seed;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)(x >> 32);
}

static float uniform(float low, float high) {
    return low + (high - low) * ((float)(random_bits() >> 8) * 0x1p-24F);
}

#define GUARD 64u
#define POISON 0xA5u

/* bytes + misalign bytes of payload between poisoned guards; the payload starts poisoned too. */
typedef struct guarded {
    unsigned char *block, *payload;
    size_t bytes;
} guarded;

static guarded guarded_new(size_t bytes, size_t misalign) {
    guarded g = {.bytes = bytes};
    g.block = malloc(bytes + misalign + 2 * (size_t)GUARD);
    assert_non_null(g.block);
    memset(g.block, POISON, bytes + misalign + 2 * (size_t)GUARD);
    g.payload = g.block + GUARD + misalign;
    return g;
}

static void guarded_check(const guarded *g) {
    for (const unsigned char *p = g->block; p < g->payload; p++)
        assert_int_equal(*p, POISON);
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(g->payload[g->bytes + i], POISON);
}

static void guarded_free(guarded *g) {
    guarded_check(g);
    free(g->block);
}

static float *floats_of(const guarded *g) {
    return (float *)(void *)g->payload;
}

static guarded random_floats(size_t n, float low, float high) {
    guarded g = guarded_new(n * sizeof(float), 4);
    for (size_t i = 0; i < n; i++)
        floats_of(&g)[i] = uniform(low, high);
    return g;
}

static guarded copy_of(const guarded *g) {
    guarded c = guarded_new(g->bytes, 4);
    memcpy(c.payload, g->payload, g->bytes);
    return c;
}

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static void same_floats(const pgl_kernels *k, const char *what, const float *got, const float *want,
                        size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool both_nan = isnan(got[i]) && isnan(want[i]);
        if (!both_nan && bits_of(got[i]) != bits_of(want[i]))
            fail_msg("%s, %s, element %zu of %zu: %a, expected %a", k->name, what, i, n, (double)got[i],
                     (double)want[i]);
    }
}

/* Values that conversions and exponentials may stumble over. */
static const float SPECIAL[] = {
    0.0F,     -0.0F,     1.0F,     -1.0F,     65504.0F,   65519.99F,      65520.0F,  -70000.0F,
    0x1p-14F, 0x1p-15F,  0x1p-24F, 0x1p-25F,  0x1.8p-25F, 0x1p-26F,       -0x1p-30F, 88.7F,
    88.73F,   89.5F,     -87.3F,   -88.8F,    -103.9F,    -104.5F,        1e30F,     -1e30F,
    INFINITY, -INFINITY, NAN,      0x1p-149F, 0x1p-126F,  1.00048828125F, 1.0014648F};

static void put_specials(float *x, size_t n) {
    for (size_t i = 0; i < n && i < sizeof SPECIAL / sizeof SPECIAL[0]; i++)
        x[(i * 7) % n] = SPECIAL[i];
}

static const uint32_t SIZES[] = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 100, 128, 129, 257, 1000};
#define N_SIZES (sizeof SIZES / sizeof SIZES[0])

/* ---- rows */

static void rows_keep_the_contract(void **state) {
    (void)state;
    const pgl_kernels *scalar = pgl_kernels_scalar();
    FOR_TABLES(k) for (size_t s = 0; s < N_SIZES; s++) {
        uint32_t n = SIZES[s];
        guarded x = random_floats(n, -4, 4), y = random_floats(n, -4, 4), w = random_floats(n, -1, 1);
        guarded got = copy_of(&x), want = copy_of(&x);
        k->norm(floats_of(&x), floats_of(&w), 1e-6F, n, floats_of(&got));
        pgl_vec vec = {.data = w.payload, .dtype = PGL_F32, .n = n};
        pgl_norm(floats_of(&x), &vec, 1e-6F, n, floats_of(&want));
        same_floats(k, "norm", floats_of(&got), floats_of(&want), n);
        k->gated_norm(floats_of(&x), floats_of(&y), floats_of(&w), 1e-6F, n, floats_of(&got));
        pgl_gated_norm(floats_of(&x), floats_of(&y), &vec, 1e-6F, n, floats_of(&want));
        same_floats(k, "gated_norm", floats_of(&got), floats_of(&want), n);
        memcpy(got.payload, x.payload, x.bytes);
        memcpy(want.payload, x.payload, x.bytes);
        k->l2_norm(floats_of(&got), n, 0.0883F);
        pgl_l2_norm(floats_of(&want), n, 0.0883F);
        same_floats(k, "l2_norm", floats_of(&got), floats_of(&want), n);

        put_specials(floats_of(&x), n);
        k->round16(floats_of(&x), n, floats_of(&got));
        scalar->round16(floats_of(&x), n, floats_of(&want));
        same_floats(k, "round16", floats_of(&got), floats_of(&want), n);
        guarded half = guarded_new(n * sizeof(pgl_f16), 2), half_want = guarded_new(n * sizeof(pgl_f16), 2);
        k->store16(floats_of(&x), n, (pgl_f16 *)(void *)half.payload);
        scalar->store16(floats_of(&x), n, (pgl_f16 *)(void *)half_want.payload);
        for (uint32_t i = 0; i < n; i++) {
            pgl_f16 a, b;
            memcpy(&a, half.payload + 2 * (size_t)i, 2);
            memcpy(&b, half_want.payload + 2 * (size_t)i, 2);
            assert_true(a == b || ((a & 0x7FFFu) > 0x7C00u && (b & 0x7FFFu) > 0x7C00u));
        }
        guarded_free(&half);
        guarded_free(&half_want);
        k->swiglu_coded(floats_of(&x), floats_of(&y), n, floats_of(&got));
        pgl_swiglu_coded(floats_of(&x), floats_of(&y), n, false, floats_of(&want));
        same_floats(k, "swiglu_coded", floats_of(&got), floats_of(&want), n);
        k->swiglu(floats_of(&x), floats_of(&y), n, floats_of(&got));
        pgl_swiglu(floats_of(&x), floats_of(&y), n, floats_of(&want));
        same_floats(k, "swiglu", floats_of(&got), floats_of(&want), n);
        memcpy(got.payload, y.payload, y.bytes);
        memcpy(want.payload, y.payload, y.bytes);
        k->add(floats_of(&x), n, floats_of(&got));
        scalar->add(floats_of(&x), n, floats_of(&want));
        same_floats(k, "add", floats_of(&got), floats_of(&want), n);
        memcpy(got.payload, y.payload, y.bytes);
        memcpy(want.payload, y.payload, y.bytes);
        k->attention_gate(floats_of(&got), 0.37F, floats_of(&x), n);
        scalar->attention_gate(floats_of(&want), 0.37F, floats_of(&x), n);
        same_floats(k, "attention_gate", floats_of(&got), floats_of(&want), n);
        guarded *all[] = {&x, &y, &w, &got, &want};
        for (size_t i = 0; i < 5; i++)
            guarded_free(all[i]);
    }
}

static void finite_sees_every_element(void **state) {
    (void)state;
    const float bad[] = {INFINITY, -INFINITY, NAN};
    FOR_TABLES(k) for (size_t s = 0; s < N_SIZES; s++) {
        uint32_t n = SIZES[s];
        guarded x = random_floats(n, -1e30F, 1e30F);
        memset(x.block, 0xFF, GUARD); /* NaNs around it must not count */
        memset(x.payload + x.bytes, 0xFF, GUARD);
        assert_true(k->finite(floats_of(&x), n));
        for (uint32_t i = 0; i < n; i += n < 40 ? 1 : 13) {
            float old = floats_of(&x)[i];
            floats_of(&x)[i] = bad[i % 3];
            assert_false(k->finite(floats_of(&x), n));
            floats_of(&x)[i] = old;
        }
        free(x.block);
    }
}

static void mixtures_are_summed_in_slot_order(void **state) {
    (void)state;
    FOR_TABLES(k) for (size_t s = 0; s < N_SIZES; s++) {
        uint32_t n = SIZES[s];
        guarded slots[8], shared = random_floats(n, -2, 2), got = random_floats(n, -2, 2),
                          want = copy_of(&got);
        const float *slot[8];
        float weight[8];
        for (size_t i = 0; i < 8; i++) {
            slots[i] = random_floats(n, -2, 2);
            slot[i] = floats_of(&slots[i]);
            weight[i] = pgl_round_f16(uniform(0, 0.3F));
        }
        pgl_mix_job job = {.weight = weight, .slot = slot, .n_slots = 8, .n = n, .gate = 0.61F};
        for (uint32_t with = 0; with < 2; with++) {
            job.shared = with ? floats_of(&shared) : NULL;
            job.x = floats_of(&got);
            k->mix(&job);
            job.x = floats_of(&want);
            pgl_kernels_scalar()->mix(&job);
            same_floats(k, "mix", floats_of(&got), floats_of(&want), n);
        }
        for (size_t i = 0; i < 8; i++)
            guarded_free(&slots[i]);
        guarded_free(&shared);
        guarded_free(&got);
        guarded_free(&want);
    }
}

/* ---- dense linears */

typedef struct dense_case {
    pgl_linear linear;
    guarded data, scale, bias;
} dense_case;

static guarded random_numbers(size_t n, pgl_dtype dtype, float range, size_t misalign) {
    guarded g = guarded_new(n * pgl_dtype_size(dtype), misalign);
    for (size_t i = 0; i < n; i++) {
        float f = uniform(-range, range);
        pgl_f16 half = dtype == PGL_BF16 ? pgl_f32_to_bf16(f) : pgl_f32_to_f16(f);
        if (dtype == PGL_F32)
            memcpy(g.payload + 4 * i, &f, 4);
        else if (dtype == PGL_I8)
            g.payload[i] = (unsigned char)(random_bits() >> 24);
        else
            memcpy(g.payload + 2 * i, &half, 2);
    }
    return g;
}

/* Scales of every size: normal, those whose products are subnormal or infinite in fp16, zero, f32 with all bits. */
static guarded random_scales(uint32_t n, pgl_dtype dtype) {
    guarded g = guarded_new((size_t)n * pgl_dtype_size(dtype), 1);
    const float base[] = {1e-3F, 2e-4F, 7e-5F, 3e-5F, 1e-6F, 0.0F, 1.5F, 600.0F, -2e-3F};
    for (uint32_t i = 0; i < n; i++) {
        float f = base[i / 5 % 9] * uniform(0.9F, 1.1F);
        pgl_f16 half = pgl_f32_to_f16(f);
        if (dtype == PGL_F32)
            memcpy(g.payload + 4 * (size_t)i, &f, 4);
        else
            memcpy(g.payload + 2 * (size_t)i, &half, 2);
    }
    return g;
}

static dense_case make_dense(uint32_t in, uint32_t out, pgl_linear_kind kind, pgl_dtype dtype, bool bias) {
    dense_case d = {.linear = {.kind = kind, .in = in, .out = out, .dtype = dtype}};
    d.data = random_numbers((size_t)in * out, dtype, 0.1F, 1);
    d.scale = random_scales(out, kind == PGL_LINEAR_INT8 && out % 2 == 1 ? PGL_F32 : PGL_F16);
    d.bias = random_numbers(out, PGL_F16, 1.0F, 1);
    d.linear.data = d.data.payload;
    if (kind == PGL_LINEAR_INT8) {
        d.linear.scale = d.scale.payload;
        d.linear.scale_dtype = out % 2 == 1 ? PGL_F32 : PGL_F16;
    }
    if (bias)
        d.linear.bias = (pgl_vec){.data = d.bias.payload, .dtype = PGL_F16, .n = out};
    return d;
}

static void check_dense(const pgl_kernels *k, const pgl_linear *linear, uint32_t n) {
    uint32_t in = linear->in, out = linear->out;
    guarded x = random_floats((size_t)n * in, -3, 3), want = random_floats((size_t)n * out, 0, 1);
    pgl_kernels_scalar()->round16(floats_of(&x), (size_t)n * in, floats_of(&x));
    float *scratch = malloc(pgl_rows_scratch(in, n) * sizeof *scratch);
    pgl_rows rows = {.x = floats_of(&x), .y = floats_of(&want), .n = n, .scratch = scratch};
    pgl_linear_forward(linear, &rows);
    size_t stride = out + 3, x_stride = in + 5;
    guarded got = guarded_new((size_t)n * stride * sizeof(float), 4);
    guarded spread =
        guarded_new((size_t)n * x_stride * sizeof(float), 4); /* what lies between rows are NaNs */
    memset(spread.payload, 0xFF, spread.bytes);
    for (uint32_t r = 0; r < n; r++)
        memcpy(floats_of(&spread) + r * x_stride, floats_of(&x) + (size_t)r * in, in * sizeof(float));
    uint32_t cut = out / 3; /* in two pieces, with what lies between rows untouched */
    pgl_dense_job job = {.linear = linear,
                         .first = cut,
                         .count = out - cut,
                         .x = floats_of(&spread),
                         .x_stride = x_stride,
                         .y = floats_of(&got),
                         .y_stride = stride,
                         .n = n};
    k->dense(&job);
    job.first = 0;
    job.count = cut;
    if (cut > 0)
        k->dense(&job);
    for (uint32_t r = 0; r < n; r++) {
        same_floats(k, "dense", floats_of(&got) + r * stride, floats_of(&want) + (size_t)r * out, out);
        for (size_t b = 0; b < 3 * sizeof(float); b++)
            assert_int_equal(((unsigned char *)(floats_of(&got) + r * stride + out))[b], POISON);
    }
    free(scratch);
    guarded_free(&x);
    guarded_free(&spread);
    guarded_free(&want);
    guarded_free(&got);
}

static void dense_linears_of_every_kind(void **state) {
    (void)state;
    const struct {
        pgl_linear_kind kind;
        pgl_dtype dtype;
    } kinds[] = {{PGL_LINEAR_INT8, PGL_I8},
                 {PGL_LINEAR_PLAIN, PGL_F16},
                 {PGL_LINEAR_PLAIN, PGL_BF16},
                 {PGL_LINEAR_PLAIN, PGL_F32}};
    const uint32_t ins[] = {1, 16, 40, 512, 523}, outs[] = {1, 9, 46, 47}, ns[] = {1, 2, 3, 4, 5, 7, 131};
    FOR_TABLES(k) for (size_t c = 0; c < 4; c++) {
        for (size_t i = 0; i < 5; i++) {
            for (size_t o = 0; o < 4; o++) {
                dense_case d = make_dense(ins[i], outs[o], kinds[c].kind, kinds[c].dtype, o % 2 == 1);
                for (size_t n = 0; n < 7; n++) {
                    if (ns[n] < 100 || (i == 4 && o == 3))
                        check_dense(k, &d.linear, ns[n]);
                }
                guarded_free(&d.data);
                guarded_free(&d.scale);
                guarded_free(&d.bias);
            }
        }
    }
}

/* All 256 weights under 4,000 scales, fp16 ones of every exponent among them. */
static void int8_weights_are_rounded_once(void **state) {
    (void)state;
    signed char w8[256];
    for (int i = 0; i < 256; i++)
        w8[i] = (signed char)(i - 128);
    float *x = calloc((size_t)256 * 256, sizeof *x), *y = malloc((size_t)256 * sizeof *y);
    for (size_t i = 0; i < 256; i++)
        x[i * 256 + i] = 1.0F;
    FOR_TABLES(k) for (uint32_t round = 0; round < 4000; round++) {
        pgl_f16 half = (pgl_f16)(round * 16 + random_bits() % 16);
        float full = uniform(1e-6F, 1e-2F);
        bool wide = round % 4 == 0;
        pgl_linear linear = {.kind = PGL_LINEAR_INT8, .in = 256, .out = 1, .data = w8, .dtype = PGL_I8};
        linear.scale = wide ? (const void *)&full : (const void *)&half;
        linear.scale_dtype = wide ? PGL_F32 : PGL_F16;
        float scale = wide ? full : pgl_f16_to_f32(half);
        if (isnan(scale) || isinf(scale))
            continue;
        uint32_t n = round % 8 == 0 ? 4 : 1, first = random_bits() % 252;
        pgl_dense_job job = {.linear = &linear,
                             .count = 1,
                             .x = x + (size_t)first * 256,
                             .x_stride = 256,
                             .y = y,
                             .y_stride = 1,
                             .n = n};
        for (uint32_t at = 0; at < 252; at += n) { /* unit vectors: the sum is the weight */
            job.x = x + (size_t)at * 256;
            k->dense(&job);
            for (uint32_t r = 0; r < n; r++) {
                float want = pgl_f16_to_f32(pgl_int8_weight(w8[at + r], scale));
                if (isfinite(pgl_f16_to_f32(pgl_int8_weight(-128, scale))))
                    assert_true(y[r] == want);
            }
            if (round % 16 != 0 && at > 40)
                break;
        }
    }
    free(x);
    free(y);
}

/* ---- coded linears */

typedef struct coded_case {
    pgl_coded coded;
    guarded code, rin, rout, s_in, s_out, bias;
} coded_case;

static coded_case make_coded(uint32_t in, uint32_t out, uint32_t k, uint32_t n_experts, bool scales,
                             bool bias) {
    coded_case c = {.coded = {.n_experts = n_experts, .in = in, .out = out, .k = k}};
    size_t bytes = (size_t)n_experts * (in / 16) * (out / 16) * 32 * k;
    c.code = guarded_new(bytes, 1);
    for (size_t i = 0; i < bytes; i++)
        c.code.payload[i] = (unsigned char)(random_bits() >> 24);
    c.rin = random_numbers((size_t)n_experts * in, PGL_F16, 1.0F, 1);
    c.rout = random_numbers((size_t)n_experts * out, PGL_F16, 1.0F, 1);
    for (size_t i = 0; i < (size_t)n_experts * out; i += 37) /* exact zeros occur */
        memset(c.rout.payload + 2 * i, 0, 2);
    c.s_in = random_numbers((size_t)n_experts * in, PGL_F32, 1.2F, 1);
    c.s_out = random_numbers((size_t)n_experts * out, PGL_F32, 1.2F, 1);
    c.bias = random_numbers((size_t)n_experts * out, PGL_F16, 1.0F, 1);
    c.coded.code = c.code.payload;
    c.coded.rin = c.rin.payload;
    c.coded.rout = c.rout.payload;
    c.coded.s_in = scales ? c.s_in.payload : NULL;
    c.coded.s_out = scales ? c.s_out.payload : NULL;
    c.coded.bias = bias ? c.bias.payload : NULL;
    return c;
}

static void drop_coded(coded_case *c) {
    guarded *all[] = {&c->code, &c->rin, &c->rout, &c->s_in, &c->s_out, &c->bias};
    for (size_t i = 0; i < 6; i++)
        guarded_free(all[i]);
}

static void check_coded(const pgl_kernels *k, const pgl_coded *coded, uint32_t expert, uint32_t n) {
    uint32_t in = coded->in, out = coded->out;
    guarded x = random_floats((size_t)n * in, -3, 3), want = random_floats((size_t)n * out, 0, 1);
    size_t xh_stride = in + PGL_PAD;
    guarded xh = guarded_new((size_t)n * xh_stride * sizeof(float), 4);
    float *scratch = malloc(pgl_rows_scratch(in, n) * sizeof *scratch);
    pgl_rows rows = {.x = floats_of(&x), .y = floats_of(&want), .n = n, .scratch = scratch};
    pgl_coded_forward(coded, expert, &rows);
    for (uint32_t r = 0; r < n; r++) { /* block by block, the last one first */
        for (uint32_t first = in; first > 0; first -= 128)
            k->coded_input(coded, expert, first - 128, 128, floats_of(&x) + (size_t)r * in,
                           floats_of(&xh) + r * xh_stride);
        same_floats(k, "coded_input", floats_of(&xh) + r * xh_stride, scratch + (size_t)r * in, in);
    }
    size_t stride = out + 5;
    guarded got = guarded_new((size_t)n * stride * sizeof(float), 4);
    pgl_coded_job job = {.coded = coded,
                         .expert = expert,
                         .first = 128,
                         .count = out - 128,
                         .xh = floats_of(&xh),
                         .xh_stride = xh_stride,
                         .y = floats_of(&got),
                         .y_stride = stride,
                         .n = n};
    if (out > 128)
        k->coded(&job);
    job.first = 0;
    job.count = 128;
    k->coded(&job);
    for (uint32_t r = 0; r < n; r++) {
        same_floats(k, "coded", floats_of(&got) + r * stride, floats_of(&want) + (size_t)r * out, out);
        for (size_t b = 0; b < 5 * sizeof(float); b++)
            assert_int_equal(((unsigned char *)(floats_of(&got) + r * stride + out))[b], POISON);
    }
    free(scratch);
    guarded_free(&x);
    guarded_free(&want);
    guarded_free(&xh);
    guarded_free(&got);
}

static void coded_linears_of_every_k(void **state) {
    (void)state;
    const uint32_t ns[] = {1, 2, 3, 6, 7, 19};
    FOR_TABLES(table) for (uint32_t k = 1; k <= 8; k++) {
        for (uint32_t shape = 0; shape < 3; shape++) {
            coded_case c =
                make_coded(shape == 1 ? 384 : 128, shape == 2 ? 384 : 128, k, 2, shape != 1, k % 2 == 1);
            for (size_t n = 0; n < 6; n++)
                check_coded(table, &c.coded, (uint32_t)n % 2, ns[n]);
            drop_coded(&c);
        }
    }
}

static void tiles_of_every_k_are_decoded_alike(void **state) {
    (void)state;
    FOR_TABLES(table) for (uint32_t k = 1; k <= 8; k++) {
        for (uint32_t round = 0; round < 50; round++) {
            guarded code = guarded_new((size_t)32 * k, round % 8), got = guarded_new(256 * sizeof(float), 4);
            for (size_t i = 0; i < (size_t)32 * k; i++)
                code.payload[i] = (unsigned char)(random_bits() >> 24);
            pgl_f16 half[256];
            float want[256];
            pgl_tile_decode(code.payload, k, half);
            for (size_t i = 0; i < 256; i++)
                want[i] = pgl_f16_to_f32(half[i]);
            table->tile(code.payload, k, floats_of(&got));
            same_floats(table, "tile", floats_of(&got), want, 256);
            guarded_free(&code);
            guarded_free(&got);
        }
    }
}

/* All 65,536 states, through tiles of K = 8: low bytes come from one weight, high bytes from the one before it. */
static void every_state_gives_its_weight(void **state) {
    (void)state;
    bool *seen = calloc(65536, sizeof *seen);
    for (uint32_t high = 0; high < 256; high++) {
        for (uint32_t low = 0; low < 256; low += 128) {
            uint16_t states[256], back[256];
            unsigned char code[256];
            for (uint32_t t = 0; t < 256; t++)
                states[t] = (uint16_t)(t % 2 == 0 ? high : low + t / 2);
            pgl_tile_pack(states, 8, code);
            pgl_tile_states(code, 8, back);
            pgl_f16 half[256];
            float want[256], got[256];
            pgl_tile_decode(code, 8, half);
            for (size_t i = 0; i < 256; i++) {
                seen[back[i]] = true;
                want[i] = pgl_f16_to_f32(half[i]);
            }
            FOR_TABLES(table) {
                table->tile(code, 8, got);
                same_floats(table, "state", got, want, 256);
            }
        }
    }
    for (size_t s = 0; s < 65536; s++)
        assert_true(seen[s]);
    free(seen);
}

/* ---- delta net */

static void convolutions_carry_their_taps(void **state) {
    (void)state;
    const uint32_t kernels[] = {1, 2, 4, 8, 9};
    FOR_TABLES(k) for (size_t i = 0; i < 5; i++) {
        uint32_t kernel = kernels[i], width = 75, n = 5;
        size_t taps_n = (size_t)(kernel - 1) * width;
        guarded w = random_floats((size_t)width * kernel, -1, 1), taps = random_floats(taps_n, -2, 2);
        guarded u = random_floats((size_t)n * (width + 2), -2, 2), taps_want = copy_of(&taps);
        guarded transposed = copy_of(&w), want = random_floats((size_t)n * width, 0, 1);
        for (uint32_t c = 0; c < width; c++) {
            for (uint32_t j = 0; j < kernel; j++)
                floats_of(&transposed)[(size_t)j * width + c] = floats_of(&w)[(size_t)c * kernel + j];
        }
        pgl_vec vec = {.data = w.payload, .dtype = PGL_F32, .n = width * kernel};
        for (uint32_t t = 0; t < n; t++)
            pgl_conv_step(&vec, width, kernel, floats_of(&taps_want), floats_of(&u) + (size_t)t * (width + 2),
                          floats_of(&want) + (size_t)t * width);
        pgl_conv_job job = {.w = floats_of(&transposed),
                            .width = width,
                            .kernel = kernel,
                            .taps = floats_of(&taps),
                            .u = floats_of(&u),
                            .u_stride = width + 2,
                            .n = n};
        const uint32_t cuts[] = {0, 16, 53, 54, 75}; /* channels in pieces */
        for (size_t p = 0; p + 1 < 5; p++) {
            job.first = cuts[p];
            job.count = cuts[p + 1] - cuts[p];
            k->conv(&job);
        }
        for (uint32_t t = 0; t < n; t++)
            same_floats(k, "conv", floats_of(&u) + (size_t)t * (width + 2),
                        floats_of(&want) + (size_t)t * width, width);
        same_floats(k, "taps", floats_of(&taps), floats_of(&taps_want), taps_n);
        guarded *all[] = {&w, &taps, &u, &taps_want, &transposed, &want};
        for (size_t a = 0; a < 6; a++)
            guarded_free(all[a]);
    }
}

static void delta_steps_keep_the_state(void **state) {
    (void)state;
    const uint32_t dims[][2] = {{128, 128}, {16, 16}, {5, 7}, {33, 80}, {64, 200}};
    FOR_TABLES(k) for (size_t i = 0; i < 5; i++) {
        uint32_t dk = dims[i][0], dv = dims[i][1];
        guarded s = random_floats((size_t)dk * dv, -1, 1), s_want = copy_of(&s);
        guarded q = random_floats(dk, -0.2F, 0.2F), key = random_floats(dk, -0.2F, 0.2F),
                v = random_floats(dv, -2, 2);
        guarded got = random_floats(dv, 0, 1), want = copy_of(&got), scratch = copy_of(&got);
        for (uint32_t t = 0; t < 3; t++) {
            float decay = uniform(0.5F, 1), beta = uniform(0, 1);
            pgl_delta_job job = {.s = floats_of(&s),
                                 .q = floats_of(&q),
                                 .k = floats_of(&key),
                                 .v = floats_of(&v),
                                 .decay = decay,
                                 .beta = beta,
                                 .dk = dk,
                                 .dv = dv,
                                 .o = floats_of(&got)};
            k->delta(&job);
            pgl_delta_head head = {.s = floats_of(&s_want),
                                   .q = floats_of(&q),
                                   .k = floats_of(&key),
                                   .v = floats_of(&v),
                                   .decay = decay,
                                   .beta = beta,
                                   .dk = dk,
                                   .dv = dv,
                                   .o = floats_of(&want),
                                   .scratch = floats_of(&scratch)};
            pgl_delta_step(&head);
            same_floats(k, "delta o", floats_of(&got), floats_of(&want), dv);
            same_floats(k, "delta S", floats_of(&s), floats_of(&s_want), (size_t)dk * dv);
        }
        guarded *all[] = {&s, &s_want, &q, &key, &v, &got, &want, &scratch};
        for (size_t a = 0; a < 8; a++)
            guarded_free(all[a]);
    }
}

/* ---- attention */

/* Runs of keys as pages cut them, against the one loop of the contract. */
static void attention_over_pages_is_one_sum(void **state) {
    (void)state;
    const uint32_t dims[] = {256, 64, 16, 20, 33}, lengths[] = {1, 3, 16, 17, 70};
    FOR_TABLES(k) for (size_t c = 0; c < 25; c++) {
        uint32_t dim = dims[c / 5], n = lengths[c % 5], n_queries = 1 + (uint32_t)c % PGL_QUERIES;
        guarded keys = random_numbers((size_t)n * dim, PGL_F16, 1.0F, 2),
                values = random_numbers((size_t)n * dim, PGL_F16, 1.0F, 2);
        guarded wide_k = random_floats((size_t)n * dim, 0, 1), wide_v = random_floats((size_t)n * dim, 0, 1);
        for (size_t i = 0; i < (size_t)n * dim; i++) {
            floats_of(&wide_k)[i] = pgl_read_f32(keys.payload, PGL_F16, i);
            floats_of(&wide_v)[i] = pgl_read_f32(values.payload, PGL_F16, i);
        }
        guarded q[PGL_QUERIES], s[PGL_QUERIES], o[PGL_QUERIES], p = random_floats(n, 0, 1),
                                                                want = random_floats(dim, 0, 1);
        for (uint32_t a = 0; a < n_queries; a++) {
            q[a] = random_floats(dim, -3, 3);
            s[a] = guarded_new(n * sizeof(float), 4);
            o[a] = guarded_new(dim * sizeof(float), 4);
            memset(o[a].payload, 0, o[a].bytes);
        }
        float scale = 1.0F / sqrtf((float)dim);
        for (uint32_t first = 0, run; first < n; first += run) {
            run = n - first < 16 ? n - first : 16;
            pgl_keys_job job = {.keys = (pgl_f16 *)(void *)keys.payload + (size_t)first * dim,
                                .n_queries = n_queries,
                                .n = run,
                                .dim = dim,
                                .scale = scale};
            for (uint32_t a = 0; a < n_queries; a++) {
                job.q[a] = floats_of(&q[a]);
                job.s[a] = floats_of(&s[a]) + first;
            }
            k->keys(&job);
        }
        float inverse[PGL_QUERIES];
        for (uint32_t a = 0; a < n_queries; a++)
            inverse[a] = k->softmax(floats_of(&s[a]), n);
        for (uint32_t first = 0, run; first < n; first += run) {
            run = n - first < 16 ? n - first : 16;
            pgl_values_job job = {.values = (pgl_f16 *)(void *)values.payload + (size_t)first * dim,
                                  .n_queries = n_queries,
                                  .n = run,
                                  .dim = dim};
            for (uint32_t a = 0; a < n_queries; a++) {
                job.p[a] = floats_of(&s[a]) + first;
                job.acc[a] = floats_of(&o[a]);
            }
            k->values(&job);
        }
        for (uint32_t a = 0; a < n_queries; a++) {
            pgl_attention_head head = {.q = floats_of(&q[a]),
                                       .keys = floats_of(&wide_k),
                                       .values = floats_of(&wide_v),
                                       .stride = dim,
                                       .n = n,
                                       .head_dim = dim,
                                       .p = floats_of(&p),
                                       .o = floats_of(&want)};
            pgl_attention_step(&head);
            same_floats(k, "probabilities", floats_of(&s[a]), floats_of(&p), n);
            for (uint32_t i = 0; i < dim; i++)
                floats_of(&o[a])[i] *= inverse[a];
            same_floats(k, "attention", floats_of(&o[a]), floats_of(&want), dim);
            guarded_free(&q[a]);
            guarded_free(&s[a]);
            guarded_free(&o[a]);
        }
        guarded *all[] = {&keys, &values, &wide_k, &wide_v, &p, &want};
        for (size_t a = 0; a < 6; a++)
            guarded_free(all[a]);
    }
}

static void rotations_touch_the_rotary_part_alone(void **state) {
    (void)state;
    const uint32_t dims[] = {2, 6, 32, 64, 70};
    FOR_TABLES(k) for (size_t i = 0; i < 5; i++) {
        uint32_t dim = dims[i];
        guarded x = random_floats(dim, -2, 2), want = copy_of(&x);
        float cosine[64], sine[64];
        pgl_rope_angles(1e7, dim, 12345, cosine, sine);
        k->rope(floats_of(&x), dim, cosine, sine);
        pgl_rope(floats_of(&want), dim, cosine, sine);
        same_floats(k, "rope", floats_of(&x), floats_of(&want), dim);
        guarded_free(&x);
        guarded_free(&want);
    }
}

static void streams_depend_on_every_byte(void **state) {
    (void)state;
    FOR_TABLES(k) {
        guarded g = guarded_new(1000, 3);
        uint64_t before = k->stream(g.payload, g.bytes);
        for (size_t i = 0; i < g.bytes; i += 29) {
            g.payload[i] ^= 1;
            uint64_t after = k->stream(g.payload, g.bytes);
            assert_true(after != before);
            before = after;
        }
        guarded_free(&g);
    }
}

static void unknown_instruction_sets_are_refused_by_name(void **state) {
    (void)state;
    const pgl_kernels *k = NULL;
    pgl_error err = {PGL_OK, ""};
    assert_int_equal(pgl_kernels_choose("sse9", &k, &err), PGL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "sse9"));
    assert_non_null(strstr(err.text, "scalar"));
    assert_int_equal(pgl_kernels_choose("scalar", &k, &err), PGL_OK);
    assert_ptr_equal(k, pgl_kernels_scalar());
    assert_int_equal(pgl_kernels_choose(NULL, &k, &err), PGL_OK);
}

int main(void) {
    const pgl_kernels *all[PGL_MOST_KERNELS];
    size_t n = pgl_kernels_all(all);
    const char *only = getenv("PGL_TEST_ISA");
    for (size_t i = 0; i < n; i++) {
        if (only == NULL || strcmp(only, all[i]->name) == 0)
            g_tables[g_n_tables++] = all[i];
    }
    for (size_t i = 0; i < g_n_tables; i++)
        printf("instruction set: %s\n", g_tables[i]->name);
    if (g_n_tables == 0) {
        printf("PGL_TEST_ISA=%s: this processor does not have it\n", only);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_keep_the_contract),
        cmocka_unit_test(finite_sees_every_element),
        cmocka_unit_test(mixtures_are_summed_in_slot_order),
        cmocka_unit_test(dense_linears_of_every_kind),
        cmocka_unit_test(int8_weights_are_rounded_once),
        cmocka_unit_test(coded_linears_of_every_k),
        cmocka_unit_test(tiles_of_every_k_are_decoded_alike),
        cmocka_unit_test(every_state_gives_its_weight),
        cmocka_unit_test(convolutions_carry_their_taps),
        cmocka_unit_test(delta_steps_keep_the_state),
        cmocka_unit_test(attention_over_pages_is_one_sum),
        cmocka_unit_test(rotations_touch_the_rotary_part_alone),
        cmocka_unit_test(streams_depend_on_every_byte),
        cmocka_unit_test(unknown_instruction_sets_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
