/* The CUDA backend's kernels, run on the host by tests/emulator, against the scalar contract: linears, norms, the
 * mixture of experts, the head. Random inputs, odd sizes, guarded and poisoned outputs. */
#include "kernel_world.h"

#include "codec/codec.h"
#include "model/linear.h"
#include "model/ops.h"

/* ---- dense linears */

static pgl_cuda_matrix matrix(kernel_world *w, uint32_t type, uint32_t out, uint32_t in, pgl_linear *linear) {
    pgl_cuda_matrix m = {.type = type, .in = in, .out = out};
    size_t n = (size_t)out * in;
    *linear = (pgl_linear){.kind = PGL_LINEAR_PLAIN, .in = in, .out = out};
    switch (type) {
    case PGL_CUDA_INT8_F16:
    case PGL_CUDA_INT8_F32:
        m.w = kw_random_bytes(w, n);
        m.scale = type == PGL_CUDA_INT8_F16 ? (const void *)kw_random16(w, out, 0.01F)
                                            : (const void *)kw_random(w, out, 0.01F);
        linear->kind = PGL_LINEAR_INT8;
        linear->scale = m.scale;
        linear->scale_dtype = type == PGL_CUDA_INT8_F16 ? PGL_F16 : PGL_F32;
        break;
    case PGL_CUDA_F16:
        m.w = kw_random16(w, n, 1);
        linear->dtype = PGL_F16;
        break;
    case PGL_CUDA_F32:
        m.w = kw_random(w, n, 1);
        linear->dtype = PGL_F32;
        break;
    default: {
        uint16_t *p = KW_GET(w, uint16_t, n);
        for (size_t i = 0; i < n; i++)
            p[i] = pgl_f32_to_bf16(random_float(&w->seed));
        m.w = p;
        linear->dtype = PGL_BF16;
    }
    }
    linear->data = m.w;
    return m;
}

static void linear_rows(kernel_world *w, const pgl_linear *linear, const float *x, uint32_t n, float *y) {
    pgl_rows rows = {x, y, n, false, KW_GET(w, float, pgl_rows_scratch(linear->in, n))};
    pgl_linear_forward(linear, &rows);
}

static void dense_products_are_those_of_the_contract(void **state) {
    static const uint32_t widths[] = {64, 96, 320, 2176}, heights[] = {1, 16, 37},
                          counts[] = {1, 8, 9, 33, 70};
    kernel_world w = {.seed = 1};
    (void)state;
    for (uint32_t i = 0; i < 5 * 4; i++) {
        uint32_t in = widths[i % 4], n = counts[(i * 3) % 5], stride = in + 8 * (i % 3);
        pgl_dense_args a = {.n_parts = 3, .n = n, .x_stride = stride, .add = i % 2};
        uint16_t *x16 = kw_random16(&w, (size_t)n * stride, 2);
        float *x = KW_GET(&w, float, (size_t)n *in), *want[3];
        for (uint32_t t = 0; t < n; t++) {
            for (uint32_t k = 0; k < in; k++)
                x[(size_t)t * in + k] = pgl_f16_to_f32(x16[(size_t)t * stride + k]);
        }
        a.x = x16;
        for (uint32_t p = 0; p < 3; p++) {
            pgl_linear linear;
            uint32_t out = heights[(i + p) % 3];
            a.part[p].m = matrix(&w, (i + p) % 5, out, in, &linear);
            a.part[p].y = kw_random(&w, (size_t)n * out, 1);
            want[p] = KW_GET(&w, float, (size_t)n *out);
            linear_rows(&w, &linear, x, n, want[p]);
            a.part[p].m.bias = p == 1 ? kw_random(&w, out, 1) : NULL;
            for (uint32_t j = 0; j < n * out; j++) {
                want[p][j] += p == 1 ? a.part[p].m.bias[j % out] : 0;
                want[p][j] += a.add != 0 ? a.part[p].y[j] : 0;
            }
        }
        kw_launch("dense", pgl_dense_blocks(&a), (n + PGL_CUDA_DENSE_TOKENS - 1) / PGL_CUDA_DENSE_TOKENS, 1,
                  PGL_CUDA_DENSE_THREADS, &a);
        for (uint32_t p = 0; p < 3; p++)
            kw_near("dense", a.part[p].y, want[p], 1, (size_t)n * a.part[p].m.out, 1e-5);
        kw_end(&w);
    }
}

static void int8_weights_are_rounded_once_to_fp16(void **state) {
    kernel_world w = {.seed = 2};
    (void)state;
    for (uint32_t type = PGL_CUDA_INT8_F16; type <= PGL_CUDA_F32; type++) {
        pgl_linear linear;
        pgl_dense_args a = {.n_parts = 1, .n = 64, .x_stride = 64};
        a.part[0].m = matrix(&w, type, 48, 64, &linear);
        uint16_t *x = KW_GET(&w, uint16_t, 64 * 64);
        a.x = x;
        for (uint32_t i = 0; i < 64 * 64; i++) /* the identity: products are the weights */
            x[i] = i % 65 == 0 ? 0x3C00 : 0;
        a.part[0].y = KW_GET(&w, float, 64 * 48);
        kw_launch("dense", pgl_dense_blocks(&a), 64 / PGL_CUDA_DENSE_TOKENS, 1, PGL_CUDA_DENSE_THREADS, &a);
        for (uint32_t o = 0; o < 48; o++) {
            float row[64];
            pgl_linear_row(&linear, o, row);
            for (uint32_t i = 0; i < 64; i++)
                assert_true(a.part[0].y[i * 48 + o] == row[i]);
        }
        kw_end(&w);
    }
}

static void embedding_rows_are_exact(void **state) {
    kernel_world w = {.seed = 3};
    (void)state;
    for (uint32_t type = PGL_CUDA_INT8_F16; type <= PGL_CUDA_F32; type++) {
        pgl_linear linear;
        pgl_embed_args a = {.table = matrix(&w, type, 50, 200, &linear)};
        int32_t *tokens = KW_GET(&w, int32_t, 3);
        float want[200];
        tokens[0] = 49;
        tokens[1] = 0;
        tokens[2] = 17;
        a.tokens = tokens;
        a.x = KW_GET(&w, float, 3 * 200);
        kw_launch("embed", 3, 1, 1, PGL_CUDA_THREADS, &a);
        for (uint32_t t = 0; t < 3; t++) {
            pgl_linear_row(&linear, (uint32_t)tokens[t], want);
            assert_memory_equal(a.x + (size_t)t * 200, want, sizeof want);
        }
        kw_end(&w);
    }
}

static void norms_are_those_of_the_contract(void **state) {
    static const uint32_t widths[] = {1, 128, 200, 2048};
    kernel_world w = {.seed = 4};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t width = widths[i], n = 3;
        float *x = kw_random(&w, (size_t)n * (width + 5), 3), *want = KW_GET(&w, float, (size_t)n *width);
        float *weight = kw_random(&w, width, 1);
        pgl_vec vec = {.data = weight, .dtype = PGL_F32, .n = width};
        x[2 * (width + 5)] = INFINITY;
        pgl_norm_args a = {.x = x,
                           .w = weight,
                           .h = KW_GET(&w, float, (size_t)n *width),
                           .h16 = KW_GET(&w, uint16_t, (size_t)n * (width + 8)),
                           .bad = KW_GET(&w, uint32_t, n),
                           .x_stride = width + 5,
                           .h16_stride = width + 8,
                           .width = width,
                           .eps = 1e-6F};
        kw_launch("norm", n, 1, 1, PGL_CUDA_THREADS, &a);
        for (uint32_t t = 0; t < 2; t++) {
            pgl_norm(x + (size_t)t * (width + 5), &vec, 1e-6F, width, want + (size_t)t * width);
            for (uint32_t k = 0; k < width; k++)
                assert_int_equal(a.h16[(size_t)t * (width + 8) + k],
                                 pgl_f32_to_f16(a.h[(size_t)t * width + k]));
        }
        kw_near("norm", a.h, want, 2, width, 1e-6);
        assert_int_equal(a.bad[0] + a.bad[1], 0);
        assert_int_equal(a.bad[2], 1);
        kw_end(&w);
    }
}

static void swiglu_rounds_where_the_contract_says(void **state) {
    kernel_world w = {.seed = 5};
    enum { N = 3, WIDTH = 131 };
    float want[WIDTH];
    (void)state;
    for (uint32_t coded = 0; coded < 2; coded++) {
        float *gate = kw_widened(&w, kw_random16(&w, N * WIDTH, 6), N * WIDTH);
        float *up = kw_widened(&w, kw_random16(&w, N * WIDTH, 3), N * WIDTH);
        pgl_swiglu_args a = {.gate = gate,
                             .up = up,
                             .h16 = KW_GET(&w, uint16_t, N * 136),
                             .h32 = KW_GET(&w, float, N *WIDTH),
                             .width = WIDTH,
                             .h16_stride = 136,
                             .coded = coded};
        kw_launch("swiglu", N, 1, 1, PGL_CUDA_THREADS, &a);
        for (uint32_t t = 0; t < N; t++) {
            if (coded != 0)
                pgl_swiglu_coded(gate + t * WIDTH, up + t * WIDTH, WIDTH, false, want);
            else
                pgl_swiglu(gate + t * WIDTH, up + t * WIDTH, WIDTH, want);
            assert_memory_equal(a.h32 + t * WIDTH, want, sizeof want);
            for (uint32_t i = 0; i < WIDTH; i++)
                assert_int_equal(a.h16[t * 136 + i], pgl_f32_to_f16(want[i]));
        }
        kw_end(&w);
    }
}

/* ---- routing */

static void routes_and_ties_are_those_of_the_contract(void **state) {
    static const uint32_t sizes[][2] = {{16, 4}, {256, 8}, {5, 5}, {1000, 64}, {1, 1}};
    kernel_world w = {.seed = 6};
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t n_experts = sizes[i][0], used = sizes[i][1], n = 9;
        float *logits = kw_random(&w, (size_t)n * n_experts, 4);
        for (uint32_t e = 0; e < n_experts;
             e++) /* only few values: ties all over; and one row is all equal */
            logits[e] = (float)(random_below(&w.seed, 3)), logits[n_experts + e] = -1;
        pgl_route_args a = {.logits = logits,
                            .expert = KW_GET(&w, int32_t, (size_t)n * used),
                            .weight = KW_GET(&w, float, (size_t)n *used),
                            .n_experts = n_experts,
                            .used = used};
        kw_launch("route", n, 1, 1, PGL_CUDA_THREADS, &a);
        for (uint32_t t = 0; t < n; t++) {
            float rounded[1000], weights[64];
            int32_t experts[64];
            for (uint32_t e = 0; e < n_experts; e++)
                rounded[e] = pgl_round_f16(logits[(size_t)t * n_experts + e]);
            pgl_route(rounded, n_experts, used, experts, weights);
            for (uint32_t s = 0; s < used; s++) {
                assert_int_equal(a.expert[t * used + s], experts[s]);
                assert_true(a.weight[t * used + s] == pgl_round_f16(weights[s]));
            }
        }
        kw_end(&w);
    }
}

static pgl_cuda_pairs sorted(kernel_world *w, const int32_t *expert, uint32_t n, uint32_t used,
                             uint32_t n_experts) {
    pgl_sort_args a = {.expert = expert,
                       .pairs = {.expert_first = KW_GET(w, uint32_t, n_experts + 1),
                                 .active = KW_GET(w, uint32_t, n_experts),
                                 .pair_of = KW_GET(w, uint32_t, n * used),
                                 .token_of = KW_GET(w, uint32_t, n * used),
                                 .expert_of = KW_GET(w, uint32_t, n * used)},
                       .n = n,
                       .used = used,
                       .n_experts = n_experts};
    kw_launch("sort", 1, 1, 1, PGL_CUDA_SORT_THREADS, &a);
    return a.pairs;
}

static int32_t *random_experts(kernel_world *w, uint32_t n, uint32_t used, uint32_t n_experts) {
    int32_t *expert = KW_GET(w, int32_t, n * used);
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t s = 0; s < used; s++)
            expert[t * used + s] =
                (int32_t)((random_below(&w->seed, n_experts / used) * used + s) % n_experts);
    }
    return expert;
}

static void pairs_stand_in_the_order_of_experts_and_tokens(void **state) {
    static const uint32_t sizes[][3] = {{1, 8, 256}, {33, 4, 16}, {1, 1, 1}, {512, 2, 1024}};
    kernel_world w = {.seed = 7};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t n = sizes[i][0], used = sizes[i][1], n_experts = sizes[i][2], place = 0, n_active = 0;
        int32_t *expert = random_experts(&w, n, used, n_experts);
        pgl_cuda_pairs p = sorted(&w, expert, n, used, n_experts);
        for (uint32_t e = 0; e < n_experts; e++) {
            assert_int_equal(p.expert_first[e], place);
            uint32_t before = place;
            for (uint32_t q = 0; q < n * used; q++) {
                if (expert[q] != (int32_t)e)
                    continue;
                assert_int_equal(p.pair_of[q], place);
                assert_int_equal(p.token_of[place], q / used);
                assert_int_equal(p.expert_of[place], e);
                place++;
            }
            if (place > before)
                assert_int_equal(p.active[n_active++], e);
        }
        assert_int_equal(p.expert_first[n_experts], n * used);
        for (; n_active < n_experts; n_active++)
            assert_int_equal(p.active[n_active], UINT32_MAX);
        kw_end(&w);
    }
}

/* ---- coded linears */

static void coded_stack(kernel_world *w, const uint32_t sizes[4], bool scaled, bool biased, pgl_coded *coded,
                        pgl_cuda_coded *device) {
    uint32_t k = sizes[0], in = sizes[1], out = sizes[2], n_experts = sizes[3];
    *device = (pgl_cuda_coded){.n_experts = n_experts, .in = in, .out = out, .k = k};
    *coded = (pgl_coded){.n_experts = n_experts, .in = in, .out = out, .k = k};
    device->code = kw_random_bytes(w, (size_t)n_experts * in * out * k / 8);
    device->rin = kw_random16(w, (size_t)n_experts * in, 1);
    uint16_t *rout = kw_random16(w, (size_t)n_experts * out, 0.1F);
    rout[3] = 0;
    rout[out - 1] = 0;
    device->rout = rout;
    if (scaled) {
        device->s_in = kw_random(w, (size_t)n_experts * in, 2);
        device->s_out = kw_random(w, (size_t)n_experts * out, 2);
    }
    if (biased)
        device->bias = kw_random16(w, (size_t)n_experts * out, 1);
    coded->code = device->code;
    coded->rin = device->rin;
    coded->rout = device->rout;
    coded->s_in = device->s_in;
    coded->s_out = device->s_out;
    coded->bias = device->bias;
}

static void coded_products_are_those_of_the_contract(void **state) {
    kernel_world w = {.seed = 8};
    (void)state;
    for (uint32_t k = 1; k <= 8; k++) {
        const uint32_t sizes[4] = {k, k % 2 == 0 ? 384 : 128, k % 3 == 0 ? 256 : 128, 3};
        uint32_t in = sizes[1], out = sizes[2], n = k == 2 ? 39 : k == 3 ? 17 : 4, used = 1;
        pgl_coded coded;
        pgl_cuda_coded device;
        coded_stack(&w, sizes, k % 2 == 1, k == 5, &coded, &device);
        int32_t *expert = random_experts(&w, n, used, 3);
        if (k != 2)
            expert[0] = 2;
        pgl_cuda_pairs p = sorted(&w, expert, n, used, 3);
        float *x = kw_random(&w, (size_t)n * in, 2), *want = KW_GET(&w, float, (size_t)n *out);
        pgl_coded_input_args front = {.coded = device,
                                      .token_of = p.token_of,
                                      .expert_of = p.expert_of,
                                      .x32 = x,
                                      .xh = KW_GET(&w, uint16_t, (size_t)n * in)};
        kw_launch("coded_input", n, in / 128, 1, 32, &front);
        pgl_coded_args a = {.coded = device,
                            .active = p.active,
                            .expert_first = p.expert_first,
                            .xh = front.xh,
                            .y = KW_GET(&w, uint16_t, (size_t)n * out)};
        kw_launch("coded", out / 128, 3, 1, PGL_CUDA_THREADS, &a);
        float *scratch = KW_GET(&w, float, pgl_rows_scratch(in, 1));
        for (uint32_t q = 0; q < n; q++) {
            pgl_rows rows = {x + (size_t)p.token_of[q] * in, want + (size_t)q * out, 1, false, scratch};
            pgl_coded_forward(&coded, p.expert_of[q], &rows);
        }
        if (device.bias != NULL) /* which may cancel all but the last places of y */
            kw_near16("coded with a bias", a.y, want, n, out, 1e-3);
        else
            kw_units("coded", a.y, want, (size_t)n * out);
        kw_end(&w);
    }
}

static void coded_weights_are_exact(void **state) {
    kernel_world w = {.seed = 9};
    (void)state;
    for (uint32_t k = 1; k <= 8; k++) {
        const uint32_t sizes[4] = {k, 128, 128, 1};
        pgl_coded coded;
        pgl_cuda_coded device;
        coded_stack(&w, sizes, false, false, &coded, &device);
        uint16_t *rout = KW_GET(&w, uint16_t, 128), *xh = KW_GET(&w, uint16_t, 128 * 128);
        device.rout = rout;
        for (uint32_t i = 0; i < 128; i++)
            rout[i] = 0x3C00;
        for (uint32_t i = 0; i < 128 * 128;
             i++) /* inputs one at a time: outputs are the transformed rows of weights */
            xh[i] = i % 129 == 0 ? 0x3C00 : 0;
        float *matrix_rows = KW_GET(&w, float, 128 * 128);
        pgl_coded_matrix(&coded, 0, matrix_rows);
        pgl_coded_args a = {.coded = device, .xh = xh, .y32 = KW_GET(&w, float, 128 * 128), .n = 128};
        kw_launch("coded", 1, 1, 1, PGL_CUDA_THREADS, &a);
        for (uint32_t i = 0; i < 128; i++) {
            pgl_hadamard(matrix_rows + i * 128, 128);
            for (uint32_t o = 0; o < 128; o++)
                assert_true(a.y32[i * 128 + o] ==
                            pgl_round_f16(matrix_rows[i * 128 + o] * PGL_HADAMARD_SCALE));
        }
        kw_end(&w);
    }
}

static void inputs_of_down_are_made_from_gate_and_up(void **state) {
    kernel_world w = {.seed = 10};
    const uint32_t sizes[4] = {3, 256, 128, 2};
    pgl_coded coded;
    pgl_cuda_coded device;
    (void)state;
    coded_stack(&w, sizes, false, false, &coded, &device);
    uint32_t *expert_of = KW_GET(&w, uint32_t, 3);
    expert_of[0] = expert_of[1] = 0;
    expert_of[2] = 1;
    uint16_t *gate_up = kw_random16(&w, 3 * 512, 5);
    pgl_coded_input_args a = {
        .coded = device, .expert_of = expert_of, .gate_up = gate_up, .xh = KW_GET(&w, uint16_t, 3 * 256)};
    kw_launch("coded_input", 3, 2, 1, 32, &a);
    for (uint32_t p = 0; p < 3; p++) {
        float gate[256], up[256], h[256];
        for (uint32_t i = 0; i < 256; i++) {
            gate[i] = pgl_f16_to_f32(gate_up[p * 512 + i]);
            up[i] = pgl_f16_to_f32(gate_up[p * 512 + 256 + i]);
        }
        pgl_swiglu_coded(gate, up, 256, false, h);
        for (uint32_t i = 0; i < 256; i++)
            h[i] *= pgl_f16_to_f32(device.rin[expert_of[p] * 256 + i]);
        pgl_hadamard(h, 256);
        for (uint32_t i = 0; i < 256; i++)
            assert_int_equal(a.xh[p * 256 + i], pgl_f32_to_f16(h[i] * PGL_HADAMARD_SCALE));
    }
    kw_end(&w);
}

/* The two kernels for few tokens against the contract's two linears with SwiGLU between. */
static void few_case(uint32_t k_up, uint32_t k_down, uint32_t hidden, uint32_t inner, uint32_t splits,
                     uint32_t n) {
    kernel_world w = {.seed = 20 + n};
    const uint32_t up_sizes[4] = {k_up, hidden, 2 * inner, 3}, down_sizes[4] = {k_down, inner, hidden, 3};
    pgl_coded up, down;
    pgl_few_up_args a = {.splits = splits, .n_pairs = n};
    pgl_few_down_args b = {.splits = splits, .n_pairs = n};
    coded_stack(&w, up_sizes, n % 2 == 0, false, &up, &a.coded);
    coded_stack(&w, down_sizes, n % 2 == 0, false, &down, &b.down);
    int32_t *expert = random_experts(&w, n, 1, 3);
    if (n > 5) /* one expert with most of them: several passes */
        memset(expert, 0, (n - 1) * sizeof *expert);
    pgl_cuda_pairs p = sorted(&w, expert, n, 1, 3);
    a.active = b.active = p.active;
    a.expert_first = b.expert_first = p.expert_first;
    a.token_of = p.token_of;
    a.x32 = kw_random(&w, (size_t)n * hidden, 2);
    a.mid = KW_GET(&w, float, (size_t)splits *n * 2 * inner);
    b.mid = a.mid;
    b.gate_up = a.coded;
    b.y = KW_GET(&w, uint16_t, (size_t)n * hidden);
    kw_launch("few_up", splits * 2 * inner / 128, 3, 1, PGL_CUDA_FEW_THREADS, &a);
    kw_launch("few_down", hidden / 128, 3, 1, PGL_CUDA_FEW_THREADS, &b);
    float *scratch = KW_GET(&w, float, pgl_rows_scratch(hidden > inner ? hidden : inner, 1));
    float *middle = KW_GET(&w, float, 2 * inner), *h = KW_GET(&w, float, inner);
    float *want = KW_GET(&w, float, (size_t)n *hidden);
    for (uint32_t q = 0; q < n; q++) {
        pgl_rows rows = {a.x32 + (size_t)p.token_of[q] * hidden, middle, 1, false, scratch};
        pgl_coded_forward(&up, p.expert_of[q], &rows);
        pgl_swiglu_coded(middle, middle + inner, inner, false, h);
        rows = (pgl_rows){h, want + (size_t)q * hidden, 1, false, scratch};
        pgl_coded_forward(&down, p.expert_of[q], &rows);
    }
    kw_near16("few", b.y, want, n, hidden,
              2e-3); /* a unit of the middle moves many outputs by less than one */
    kw_end(&w);
}

static void few_tokens_go_through_their_experts_in_two_kernels(void **state) {
    (void)state;
    few_case(2, 3, 256, 128, 1, 1);
    few_case(2, 3, 2048, 512, 2, 2);
    few_case(3, 2, 512, 256, 2, 5);
    few_case(3, 3, 384, 128, 1, 11);
    few_case(2, 2, 1024, 256, 1, 4);
}

static void experts_are_summed_in_the_order_of_slots(void **state) {
    kernel_world w = {.seed = 11};
    enum { N = 5, USED = 3, HIDDEN = 200 };
    (void)state;
    for (uint32_t shared = 0; shared < 2; shared++) {
        uint32_t *pair_of = KW_GET(&w, uint32_t, N * USED);
        for (uint32_t i = 0; i < N * USED; i++)
            pair_of[i] = (i * 7) % (N * USED);
        uint16_t *y = kw_random16(&w, N * USED * HIDDEN, 4);
        float *weight = kw_widened(&w, kw_random16(&w, N * USED, 1), N * USED),
              *x = kw_random(&w, N * HIDDEN, 2);
        float *want = KW_GET(&w, float, N *HIDDEN);
        pgl_mix_args a = {
            .weight = weight, .pair_of = pair_of, .y = y, .x = x, .used = USED, .hidden = HIDDEN};
        if (shared != 0) {
            a.shared = kw_random(&w, N * HIDDEN, 2);
            a.shared_gate = kw_random(&w, N, 3);
        }
        for (uint32_t i = 0; i < N * HIDDEN; i++) {
            float sum = 0;
            for (uint32_t s = 0; s < USED; s++)
                sum += weight[i / HIDDEN * USED + s] *
                       pgl_f16_to_f32(y[(size_t)pair_of[i / HIDDEN * USED + s] * HIDDEN + i % HIDDEN]);
            float routed = pgl_round_f16(sum);
            if (shared != 0)
                routed += pgl_sigmoid(a.shared_gate[i / HIDDEN]) * a.shared[i];
            want[i] = x[i] + routed;
        }
        kw_launch("mix", N, 1, 1, PGL_CUDA_THREADS, &a);
        kw_near("mix", a.x, want, N, HIDDEN, 1e-7);
        kw_end(&w);
    }
}

/* ---- the head */

static void the_largest_logit_is_found_with_its_ties_and_faults(void **state) {
    kernel_world w = {.seed = 12};
    enum { ROWS = 7, VOCAB = 3001, STRIDE = 3050 };
    float *logits = kw_random(&w, ROWS * STRIDE, 5);
    (void)state;
    logits[1 * STRIDE + 2999] = logits[1 * STRIDE + 17] = logits[1 * STRIDE + 1024 + 17] = 9;
    logits[2 * STRIDE + 40] = NAN;
    logits[3 * STRIDE + 3000] = INFINITY;
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[4 * STRIDE + i] = i == 2000 ? -7 : -INFINITY, logits[5 * STRIDE + i] = -INFINITY;
    logits[6 * STRIDE + VOCAB] = 100; /* beyond what may be sampled */
    pgl_argmax_args a = {.logits = logits,
                         .token = KW_GET(&w, int32_t, ROWS),
                         .bad = KW_GET(&w, uint32_t, ROWS),
                         .n_vocab = VOCAB,
                         .stride = STRIDE};
    kw_launch("argmax", ROWS, 1, 1, PGL_CUDA_SORT_THREADS, &a);
    for (uint32_t r = 0; r < ROWS; r += 6) {
        int32_t best = 0;
        for (int32_t i = 1; i < VOCAB; i++)
            best = logits[r * STRIDE + (uint32_t)i] > logits[r * STRIDE + (uint32_t)best] ? i : best;
        assert_int_equal(a.token[r], best);
    }
    assert_int_equal(a.token[1], 17);
    assert_int_equal(a.token[4], 2000);
    static const uint32_t bad[ROWS] = {0, 0, 1, 1, 0, 1, 0};
    for (uint32_t r = 0; r < ROWS; r++)
        assert_int_equal(a.bad[r], bad[r]);
    kw_end(&w);
}

static void gathered_rows_are_copies(void **state) {
    kernel_world w = {.seed = 13};
    float *x = kw_random(&w, 5 * 33, 1);
    uint16_t *x16 = kw_random16(&w, 5 * 40, 1);
    uint32_t *row = KW_GET(&w, uint32_t, 2);
    (void)state;
    row[0] = 4;
    row[1] = 1;
    pgl_gather_args a = {.x = x,
                         .x16 = x16,
                         .out = KW_GET(&w, float, 2 * 33),
                         .out16 = KW_GET(&w, uint16_t, 2 * 40),
                         .row = row,
                         .width = 33,
                         .width16 = 40};
    kw_launch("gather", 2, 1, 1, PGL_CUDA_THREADS, &a);
    for (uint32_t i = 0; i < 2; i++) {
        assert_memory_equal(a.out + i * 33, x + (size_t)row[i] * 33, 33 * sizeof *x);
        assert_memory_equal(a.out16 + i * 40, x16 + (size_t)row[i] * 40, 40 * sizeof *x16);
    }
    kw_end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_products_are_those_of_the_contract),
        cmocka_unit_test(int8_weights_are_rounded_once_to_fp16),
        cmocka_unit_test(embedding_rows_are_exact),
        cmocka_unit_test(norms_are_those_of_the_contract),
        cmocka_unit_test(swiglu_rounds_where_the_contract_says),
        cmocka_unit_test(routes_and_ties_are_those_of_the_contract),
        cmocka_unit_test(pairs_stand_in_the_order_of_experts_and_tokens),
        cmocka_unit_test(coded_products_are_those_of_the_contract),
        cmocka_unit_test(coded_weights_are_exact),
        cmocka_unit_test(inputs_of_down_are_made_from_gate_and_up),
        cmocka_unit_test(few_tokens_go_through_their_experts_in_two_kernels),
        cmocka_unit_test(experts_are_summed_in_the_order_of_slots),
        cmocka_unit_test(the_largest_logit_is_found_with_its_ties_and_faults),
        cmocka_unit_test(gathered_rows_are_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
