/* The trellis code, Hadamard, int8 rows and dot16 against the goldens and against slow forms written from the
 * text of the format. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codec/codec.h"
#include "golden_file.h"
#include "test_random.h"

#define CODEC_GOLDEN PGL_GOLDENS "/codec.safetensors"

static void every_codebook_entry_is_the_golden_one(void **state) {
    (void)state;
    golden_file g = golden_open(CODEC_GOLDEN);
    size_t bytes;
    const uint16_t *expected = golden_tensor(&g, "codebook", "F16", &bytes);
    assert_int_equal(bytes, 65536 * 2);
    for (uint32_t s = 0; s < 65536; s++)
        assert_int_equal(pgl_codebook((uint16_t)s), expected[s]);
    golden_close(&g);
}

static void check_weight(const golden_file *g, const char *code_name, const char *weight_name, uint32_t k) {
    size_t bytes;
    const unsigned char *code = golden_tensor(g, code_name, "I16", &bytes);
    const uint16_t *expected = golden_tensor(g, weight_name, "F16", NULL);
    assert_int_equal(bytes, 16u * 16 * 16 * k * 2);
    unsigned char odd[1 + 16 * 3 * 2];
    for (uint32_t a = 0; a < 16; a++) {
        for (uint32_t b = 0; b < 16; b++) {
            pgl_f16 w[256];
            memcpy(odd + 1, code + (size_t)(a * 16 + b) * 32 * k, (size_t)32 * k); /* an odd address */
            pgl_tile_decode(odd + 1, k, w);
            for (uint32_t i = 0; i < 16; i++) {
                for (uint32_t o = 0; o < 16; o++)
                    assert_int_equal(w[i * 16 + o], expected[(a * 16 + i) * 256 + b * 16 + o]);
            }
        }
    }
}

static void golden_weights_decode_bit_for_bit(void **state) {
    (void)state;
    golden_file g = golden_open(CODEC_GOLDEN);
    check_weight(&g, "k2.code", "k2.weight", 2);
    check_weight(&g, "k3.code", "k3.weight", 3);
    golden_close(&g);
}

/* The text of the format, read literally: the stream as 256 k single bits, states cut out of it one bit at a
 * time, the weight's place by its formula. */
static void slow_decode(const unsigned char *code, uint32_t k, uint16_t states[256], double weight[256]) {
    unsigned char bits[256 * 8];
    for (uint32_t word = 0; word < 8 * k; word++) {
        uint32_t first = code[4 * word] | (uint32_t)code[4 * word + 1] << 8;
        uint32_t second = code[4 * word + 2] | (uint32_t)code[4 * word + 3] << 8;
        for (uint32_t i = 0; i < 16; i++) {
            bits[word * 32 + i] = (second >> (15 - i)) & 1u;
            bits[word * 32 + 16 + i] = (first >> (15 - i)) & 1u;
        }
    }
    for (int t = 0; t < 256; t++) {
        uint32_t s = 0;
        for (int p = (t + 1) * (int)k - 16; p < (t + 1) * (int)k; p++)
            s = s << 1 | bits[(p + 256 * (int)k) % (256 * (int)k)];
        states[t] = (uint16_t)s;
        uint32_t r = (uint32_t)((uint64_t)s * 0xCBAC1FEDu % 0x100000000u);
        r = (r & 0x8FFF8FFFu) ^ 0x3B603B60u;
        double sum =
            (double)pgl_f16_to_f32((pgl_f16)(r & 0xFFFFu)) + (double)pgl_f16_to_f32((pgl_f16)(r >> 16));
        int lane = t / 8, j = t % 8;
        int row = 2 * (lane % 4) + (j % 2) + 8 * (j / 2 % 2), col = lane / 4 + 8 * (j / 4);
        weight[row * 16 + col] = sum;
    }
}

static void every_k_reads_the_stream_as_the_text_says(void **state) {
    (void)state;
    uint64_t seed = 1;
    for (uint32_t k = 1; k <= 8; k++) {
        for (int round = 0; round < 200; round++) {
            unsigned char code[256];
            for (uint32_t i = 0; i < 32 * k; i++)
                code[i] = (unsigned char)random_next(&seed);
            uint16_t slow_states[256], states[256];
            double slow[256];
            pgl_f16 weight[256];
            slow_decode(code, k, slow_states, slow);
            pgl_tile_states(code, k, states);
            pgl_tile_decode(code, k, weight);
            assert_memory_equal(states, slow_states, sizeof states);
            for (int i = 0; i < 256; i++) {
                float w = pgl_f16_to_f32(weight[i]);
                assert_true((double)w == (double)pgl_round_f16((float)slow[i]));
                assert_true(fabs((double)w - slow[i]) <= 0x1p-10); /* half a unit below 4 */
            }
            unsigned char packed[256];
            pgl_tile_pack(states, k, packed);
            assert_memory_equal(packed, code, (size_t)32 * k);
        }
    }
}

static void places_cover_the_tile_once(void **state) {
    (void)state;
    int seen[256] = {0};
    for (uint32_t t = 0; t < 256; t++)
        seen[pgl_tile_place(t)]++;
    for (int i = 0; i < 256; i++)
        assert_int_equal(seen[i], 1);
}

static void codebook_has_the_published_distribution(void **state) {
    (void)state;
    static unsigned char seen[65536];
    double sum2 = 0, sum = 0, top = 0;
    int distinct = 0;
    for (uint32_t s = 0; s < 65536; s++) {
        pgl_f16 h = pgl_codebook((uint16_t)s);
        if (h == 0x8000)
            h = 0;
        distinct += seen[h] == 0;
        seen[h] = 1;
        double w = (double)pgl_f16_to_f32(h);
        sum += w;
        sum2 += w * w;
        top = fabs(w) > top ? fabs(w) : top;
    }
    assert_int_equal(distinct, 10746);
    double mean = sum / 65536;
    assert_true(fabs(sqrt(sum2 / 65536 - mean * mean) - 1.2441) < 1e-4);
    assert_true(fabs(top - 3.949) < 1e-3);
}

static void hadamard_is_the_golden_one(void **state) {
    (void)state;
    golden_file g = golden_open(CODEC_GOLDEN);
    const float *in = golden_tensor(&g, "h128.in", "F32", NULL);
    const float *out = golden_tensor(&g, "h128.out", "F32", NULL);
    for (int row = 0; row < 3; row++) {
        float x[256];
        memcpy(x, in + row * 256, sizeof x);
        pgl_hadamard(x, 256);
        assert_memory_equal(x, out + row * 256, sizeof x);
    }
    golden_close(&g);
}

static void int8_weights_are_rounded_once(void **state) {
    (void)state;
    golden_file g = golden_open(CODEC_GOLDEN);
    const int8_t *w8 = golden_tensor(&g, "int8.w", "I8", NULL);
    const uint16_t *scale = golden_tensor(&g, "int8.scale", "F16", NULL);
    const uint16_t *expected = golden_tensor(&g, "int8.weight_f16", "F16", NULL);
    for (uint32_t i = 0; i < 64 * 256; i++)
        assert_int_equal(pgl_int8_weight(w8[i], pgl_f16_to_f32(scale[i / 256])), expected[i]);
    golden_close(&g);
}

/* The order that codec.h states, written out: 16 lanes, then the tree. */
static float slow_dot16(const float *a, const float *b, uint32_t n) {
    float lane[16] = {0};
    for (uint32_t l = 0; l < 16; l++) {
        for (uint32_t i = l; i < n; i += 16)
            lane[l] = fmaf(a[i], b[i], lane[l]);
    }
    float s8[8], s4[4];
    for (int l = 0; l < 8; l++)
        s8[l] = lane[l] + lane[l + 8];
    for (int l = 0; l < 4; l++)
        s4[l] = s8[l] + s8[l + 4];
    return (s4[0] + s4[2]) + (s4[1] + s4[3]);
}

static void dot16_keeps_its_order_for_every_length(void **state) {
    (void)state;
    float a[300], b[300];
    uint64_t seed = 3;
    for (int i = 0; i < 300; i++) {
        a[i] = (float)((double)(int64_t)random_next(&seed) * 0x1p-60);
        b[i] = (float)((double)(int64_t)random_next(&seed) * 0x1p-60);
    }
    for (uint32_t n = 0; n <= 300; n++) {
        float expected = slow_dot16(a, b, n), got = pgl_dot16(a, b, n);
        assert_memory_equal(&expected, &got, sizeof got);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codebook_entry_is_the_golden_one),
        cmocka_unit_test(golden_weights_decode_bit_for_bit),
        cmocka_unit_test(every_k_reads_the_stream_as_the_text_says),
        cmocka_unit_test(places_cover_the_tile_once),
        cmocka_unit_test(codebook_has_the_published_distribution),
        cmocka_unit_test(hadamard_is_the_golden_one),
        cmocka_unit_test(int8_weights_are_rounded_once),
        cmocka_unit_test(dot16_keeps_its_order_for_every_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
