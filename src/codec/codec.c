/* Owns nothing: pure functions of their arguments. The trellis code, the Hadamard transform, dot16 and int8
 * rows. */
#include "codec/codec.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "codec/fma.h"

static uint32_t load_u32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* fp16 whose exponent field is neither 0 nor 31, as f32. */
static inline float widen_normal(uint32_t h) {
    uint32_t u = (h & 0x8000u) << 16 | (((h & 0x7FFFu) << 13) + (112u << 23));
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* The mask and the constant leave exponents of 2^-3 .. 2^0 in both halves. So their f32 sum is exact, and it is a
 * multiple of 2^-13 below 4: zero or a normal fp16 number, which leaves one rounding of the mantissa. */
static inline uint32_t codebook_entry(uint32_t state) {
    uint32_t r = ((state * 0xCBAC1FEDu) & 0x8FFF8FFFu) ^ 0x3B603B60u;
    float sum = widen_normal(r & 0xFFFFu) + widen_normal(r >> 16);
    uint32_t u;
    memcpy(&u, &sum, sizeof u);
    uint32_t a = u & 0x7FFFFFFFu;
    uint32_t rounded = (u >> 16 & 0x8000u) | (a - 0x38000000u + 0xFFFu + (a >> 13 & 1u)) >> 13;
    return a == 0 ? 0 : rounded;
}

pgl_f16 pgl_codebook(uint16_t state) {
    return (pgl_f16)codebook_entry(state);
}

void pgl_tile_states(const void *code, uint32_t k, uint16_t state[256]) {
    const unsigned char *bytes = code;
    uint32_t words[64] = {0};
    uint32_t n_words = 8 * k;
    for (uint32_t i = 0; i < n_words; i++)
        words[i] = load_u32(bytes + (size_t)4 * i);
    for (uint32_t t = 0; t < 256; t++) {
        uint32_t first = ((t + 1) * k + 256 * k - 16) % (256 * k);
        uint32_t w = first / 32;
        uint64_t window = (uint64_t)words[w] << 32 | words[w + 1 < n_words ? w + 1 : 0];
        state[t] = (uint16_t)(window >> (48 - first % 32));
    }
}

void pgl_tile_pack(const uint16_t state[256], uint32_t k, void *code) {
    uint32_t words[64] = {0};
    for (uint32_t t = 0; t < 256; t++) {
        for (uint32_t j = 0; j < k; j++) {
            uint32_t position = t * k + j;
            uint32_t bit = (uint32_t)(state[t] >> (k - 1 - j)) & 1u;
            words[position / 32] |= bit << (31 - position % 32);
        }
    }
    unsigned char *out = code;
    for (uint32_t i = 0; i < 8 * k; i++) {
        for (uint32_t b = 0; b < 4; b++)
            out[4 * i + b] = (unsigned char)(words[i] >> (8 * b));
    }
}

uint32_t pgl_tile_place(uint32_t t) {
    uint32_t lane = t / 8, j = t % 8;
    uint32_t row = 2 * (lane % 4) + (j & 1) + 8 * ((j >> 1) & 1);
    uint32_t col = lane / 4 + 8 * (j >> 2);
    return row * 16 + col;
}

void pgl_tile_decode(const void *code, uint32_t k, pgl_f16 weight[256]) {
    uint16_t state[256];
    pgl_f16 stream[256];
    pgl_tile_states(code, k, state);
    for (uint32_t t = 0; t < 256; t++)
        stream[t] = (pgl_f16)codebook_entry(state[t]);
    for (uint32_t t = 0; t < 256; t++)
        weight[pgl_tile_place(t)] = stream[t];
}

void pgl_hadamard(float *x, uint32_t n) {
    for (uint32_t block = 0; block + PGL_HADAMARD <= n; block += PGL_HADAMARD) {
        float *b = x + block;
        for (uint32_t stride = 1; stride < PGL_HADAMARD; stride *= 2) {
            for (uint32_t i = 0; i < PGL_HADAMARD; i++) {
                if ((i & stride) != 0)
                    continue;
                float u = b[i], v = b[i + stride];
                b[i] = u + v;
                b[i + stride] = u - v;
            }
        }
    }
}

PGL_FMA_BODY float dot16_body(const float *a, const float *b, uint32_t n) {
    float lane[16] = {0};
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (uint32_t l = 0; l < 16; l++)
            lane[l] = fmaf(a[i + l], b[i + l], lane[l]);
    }
    for (uint32_t l = 0; i + l < n; l++)
        lane[l] = fmaf(a[i + l], b[i + l], lane[l]);
    return pgl_lanes_sum(lane);
}

PGL_FMA_TARGET static float dot16_fma(const float *a, const float *b, uint32_t n) {
    return dot16_body(a, b, n);
}

float pgl_dot16(const float *a, const float *b, uint32_t n) {
    return pgl_has_fma() ? dot16_fma(a, b, n) : dot16_body(a, b, n);
}

float pgl_lanes_sum(const float lane[16]) {
    float s[8];
    for (uint32_t l = 0; l < 8; l++)
        s[l] = lane[l] + lane[l + 8];
    for (uint32_t half = 4; half > 0; half /= 2) {
        for (uint32_t l = 0; l < half; l++)
            s[l] = s[l] + s[l + half];
    }
    return s[0];
}

pgl_f16 pgl_int8_weight(int8_t w8, float scale) {
    return pgl_f32_to_f16((float)w8 * scale);
}
