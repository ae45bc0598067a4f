/* Owns nothing: the noise of sampling, a pure function of seed, position and token id. Philox4x32-10 is the
 * counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
 * (2011). */
#include "sampling/noise.h"
#include "sampling/sampling.h"

#include <math.h>

enum { PHILOX_ROUNDS = 10 };
static const uint32_t philox_multiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
static const uint32_t philox_weyl[2] = {0x9E3779B9u, 0xBB67AE85u};

void pgl_philox(uint64_t key, const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)philox_multiplier[0] * c0;
        uint64_t p1 = (uint64_t)philox_multiplier[1] * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += philox_weyl[0];
        k1 += philox_weyl[1];
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint32_t pgl_noise_word(uint64_t seed, uint32_t position, uint32_t id) {
    const uint32_t counter[4] = {position, id, 0, 0};
    uint32_t out[4];
    pgl_philox(seed, counter, out);
    return out[0];
}

float pgl_noise_of_word(uint32_t word) {
    double u = ((double)word + 0.5) * 0x1p-32;
    return (float)-log(-log(u));
}

float pgl_gumbel(uint64_t seed, uint32_t position, uint32_t id) {
    return pgl_noise_of_word(pgl_noise_word(seed, position, id));
}
