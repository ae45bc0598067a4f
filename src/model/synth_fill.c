/* Random numbers by position: word i of a stream is a function of the stream's key and i, so that any thread can
 * fill any part of any tensor. No library function takes part: the bytes are the same on every machine. */
#include <string.h>

#include "base/fp16.h"
#include "model/synth_plan.h"

/* A bijective mixer of 64 bits (two multiplications), applied to key + i * odd constant. */
static inline uint64_t word_at(uint64_t key, uint64_t i) {
    uint64_t x = key + (i + 1) * 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/* The sum of four uniform numbers, scaled to mean 0 and standard deviation 1: a bell that ends at +-3.46. */
static inline float bell(uint64_t word) {
    const int64_t sum =
        (int64_t)((word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48));
    return (float)(sum - 131070) * (1.0F / 37837.227F);
}

static void fill_bits(uint64_t key, uint64_t first, size_t n_words, uint64_t *out) {
    for (size_t i = 0; i < n_words; i++) {
        out[i] = word_at(key, first + i);
    }
}

/* Half the difference of two uniform bytes, eight at a time: a triangle of mean 0. One word in two rounds down, the
 * other up; the one difference in 65,536 that would give 128 gives -128. */
static void fill_int8(uint64_t key, uint64_t first, size_t n_words, uint64_t *out) {
    const uint64_t low_bits = 0x7f7f7f7f7f7f7f7fU;
    const uint64_t ones = 0x0101010101010101U;
    for (size_t i = 0; i < n_words; i++) {
        const uint64_t a = word_at(key, 2 * (first + i));
        const uint64_t b = ~word_at(key, 2 * (first + i) + 1);
        const uint64_t half = ((a ^ b) >> 1) & low_bits;
        const uint64_t down = ((a | b) - half) ^ ~low_bits;
        const uint64_t below_up = ((a & b) + half) ^ ~low_bits;
        const uint64_t up = ((below_up & low_bits) + ones) ^ (below_up & ~low_bits);
        out[i] = (i & 1) != 0 ? up : down;
    }
}

static float number_at(const pgl_synth_tensor *tensor, uint64_t i) {
    const uint64_t word = word_at(tensor->key, i);
    if (tensor->fill == PGL_FILL_ONES) {
        return 1.0F;
    }
    if (tensor->fill == PGL_FILL_UNIFORM) {
        return tensor->mean + tensor->std * ((float)(word >> 40) * 0x1p-23F - 1.0F);
    }
    const float value = tensor->mean + tensor->std * bell(word);
    if (tensor->fill == PGL_FILL_SIGNED) {
        const uint64_t other = word_at(tensor->key ^ 0x5bf0363546c7a1d9U, i);
        if (tensor->zero_one_in != 0 && (other >> 1) % tensor->zero_one_in == 0) {
            return 0.0F;
        }
        return (other & 1) != 0 ? -value : value;
    }
    return value;
}

static void fill_f16(const pgl_synth_tensor *tensor, uint64_t first, size_t n, uint16_t *out) {
    for (size_t i = 0; i < n; i++) {
        out[i] = pgl_f32_to_f16(number_at(tensor, first + i));
    }
}

static void fill_f32(const pgl_synth_tensor *tensor, uint64_t first, size_t n, float *out) {
    for (size_t i = 0; i < n; i++) {
        out[i] = number_at(tensor, first + i);
    }
}

void pgl_synth_fill(const pgl_synth_tensor *tensor, uint64_t begin_bytes, size_t size, void *out) {
    switch (tensor->fill) {
    case PGL_FILL_CONFIG:
        memcpy(out, (const char *)tensor->config + begin_bytes, size);
        return;
    case PGL_FILL_BITS:
        fill_bits(tensor->key, begin_bytes / 8, (size + 7) / 8, out);
        return;
    case PGL_FILL_INT8:
        fill_int8(tensor->key, begin_bytes / 8, (size + 7) / 8, out);
        return;
    case PGL_FILL_NORMAL:
    case PGL_FILL_SIGNED:
    case PGL_FILL_UNIFORM:
    case PGL_FILL_ONES:
        break;
    }
    if (tensor->dtype == PGL_F16) {
        fill_f16(tensor, begin_bytes / 2, size / 2, out);
    } else {
        fill_f32(tensor, begin_bytes / 4, size / 4, out);
    }
}
