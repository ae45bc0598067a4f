/* Private to src/sampling: pgl_gumbel in two halves, so that the caller can drop a token by the cheap one. */
#ifndef PGL_SAMPLING_NOISE_H
#define PGL_SAMPLING_NOISE_H

#include <stdint.h>

/* Word 0 of the Philox block of (seed, position, id). */
uint32_t pgl_noise_word(uint64_t seed, uint32_t position, uint32_t id);

/* -log(-log((word + 0.5) * 2^-32)), rising with word. */
float pgl_noise_of_word(uint32_t word);

/* At least pgl_noise_of_word(word), without a logarithm. With u = (word + 0.5) * 2^-32: -log(u) >= 1 - u,
 * so -log(-log(u)) <= -log(1 - u), and 1 - u = (~word + 0.5) * 2^-32 is at least 2^-(z + 1) for z leading
 * zeros of ~word. The factor is log 2 rounded up. */
static inline float pgl_noise_bound(uint32_t word) {
    uint32_t rest = ~word;
    int zeros = rest == 0 ? 32 : __builtin_clz(rest);
    return 0.69314724F * (float)(zeros + 1);
}

#endif
