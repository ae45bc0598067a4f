/* Owns the search's work space. The vector steps are in encode_x86.c. */
#include "codec/encode.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "codec/codec.h"
#include "codec/encode_impl.h"

#define STATES 65536u
#define STEPS 256u

struct pgl_encoder {
    uint32_t k, rounds;
    pgl_encode_step *step;
    float *codebook; /* [STATES] */
    float *cost[2];  /* [2^(16 - k) + PGL_ENCODE_PAD] each */
    uint8_t *choice; /* [STEPS][2^(16 - k)] */
};

void pgl_encode_step_scalar(uint32_t k, float target, const float *codebook, const float *from, float *to,
                            uint8_t *choice) {
    uint32_t n = STATES >> k, branches = 1u << k;
    for (uint32_t q = 0; q < n; q++) {
        float best = INFINITY;
        uint32_t which = 0;
        for (uint32_t h = 0; h < branches; h++) {
            uint32_t s = h * n + q;
            float d = target - codebook[s];
            float cost = from[s >> k] + d * d;
            if (cost < best) {
                best = cost;
                which = h;
            }
        }
        to[q] = best;
        choice[q] = (uint8_t)which;
    }
}

static pgl_status choose_step(const char *isa, pgl_encode_step **step, pgl_error *err) {
    bool any = isa == NULL;
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    bool avx2 = __builtin_cpu_supports("avx2");
    if (avx512 && (any || strcmp(isa, "avx512") == 0)) {
        *step = pgl_encode_step_avx512;
        return PGL_OK;
    }
    if (avx2 && (any || strcmp(isa, "avx2") == 0)) {
        *step = pgl_encode_step_avx2;
        return PGL_OK;
    }
#endif
    if (any || strcmp(isa, "scalar") == 0) {
        *step = pgl_encode_step_scalar;
        return PGL_OK;
    }
    return pgl_fail(err, PGL_E_UNSUPPORTED, "encoder: instruction set '%s' is unknown or not on this machine",
                    isa);
}

pgl_status pgl_encoder_open(uint32_t k, uint32_t rounds, const char *isa, pgl_encoder **out, pgl_error *err) {
    *out = NULL;
    if (k < 1 || k > 8)
        return pgl_fail(err, PGL_E_INVALID, "encoder: expected 1 to 8 bits a weight, found %u", k);
    if (rounds < 1 || rounds > 64)
        return pgl_fail(err, PGL_E_INVALID, "encoder: expected 1 to 64 rounds, found %u", rounds);
    pgl_encode_step *step = NULL;
    pgl_status status = choose_step(isa, &step, err);
    if (status != PGL_OK)
        return status;
    pgl_encoder *e = pgl_new(1, sizeof *e);
    if (e == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "encoder: no memory for its work space");
    e->k = k;
    e->rounds = rounds;
    e->step = step;
    e->codebook = pgl_new_aligned(STATES, sizeof *e->codebook);
    e->cost[0] = pgl_new_aligned((STATES >> k) + PGL_ENCODE_PAD, sizeof *e->cost[0]);
    e->cost[1] = pgl_new_aligned((STATES >> k) + PGL_ENCODE_PAD, sizeof *e->cost[1]);
    e->choice = pgl_new_aligned((size_t)STEPS * (STATES >> k), 1);
    if (e->codebook == NULL || e->cost[0] == NULL || e->cost[1] == NULL || e->choice == NULL) {
        pgl_encoder_close(e);
        return pgl_fail(err, PGL_E_MEMORY, "encoder: no memory for its work space");
    }
    for (uint32_t s = 0; s < STATES; s++)
        e->codebook[s] = pgl_f16_to_f32(pgl_codebook((uint16_t)s));
    *out = e;
    return PGL_OK;
}

void pgl_encoder_close(pgl_encoder *encoder) {
    if (encoder == NULL)
        return;
    free(encoder->codebook);
    free(encoder->cost[0]);
    free(encoder->cost[1]);
    free(encoder->choice);
    free(encoder);
}

/* Runs the 256 steps over stream[]. With shared, the 16 - k bits before the stream are *shared and so are its last.
 * Writes the path; returns its cost. */
static float search(pgl_encoder *e, const float stream[STEPS], const uint32_t *shared,
                    uint16_t states[STEPS]) {
    uint32_t n = STATES >> e->k, last = 0;
    float *from = e->cost[0], *to = e->cost[1];
    for (uint32_t v = 0; v < n; v++)
        from[v] = shared == NULL || v == *shared ? 0.0F : INFINITY;
    for (uint32_t t = 0; t < STEPS; t++) {
        e->step(e->k, stream[t], e->codebook, from, to, e->choice + (size_t)t * n);
        float *swap = from;
        from = to;
        to = swap;
    }
    if (shared != NULL)
        last = *shared;
    else
        for (uint32_t v = 1; v < n; v++)
            if (from[v] < from[last])
                last = v;
    float cost = from[last];
    for (uint32_t t = STEPS; t-- > 0;) {
        uint32_t s = e->choice[(size_t)t * n + last] * n + last;
        states[t] = (uint16_t)s;
        last = s >> e->k;
    }
    return cost;
}

static void to_stream(const float target[256], float stream[STEPS]) {
    for (uint32_t t = 0; t < STEPS; t++)
        stream[t] = target[pgl_tile_place(t)];
}

float pgl_encode_shared(pgl_encoder *encoder, const float target[256], uint32_t shared,
                        uint16_t states[256]) {
    float stream[STEPS];
    uint16_t path[STEPS];
    to_stream(target, stream);
    float cost = search(encoder, stream, &shared, path);
    if (states != NULL)
        memcpy(states, path, sizeof path);
    return cost;
}

float pgl_encode_tile(pgl_encoder *encoder, const float target[256], void *code) {
    float stream[STEPS], turned[STEPS], best_cost = INFINITY;
    uint16_t path[STEPS], best[STEPS] = {0};
    to_stream(target, stream);
    uint32_t mask = (STATES >> encoder->k) - 1, tried[64];
    for (uint32_t round = 0; round < encoder->rounds; round++) {
        uint32_t turn = STEPS / 2 + round * STEPS / 2 / encoder->rounds;
        for (uint32_t t = 0; t < STEPS; t++)
            turned[t] = stream[(t + turn) % STEPS];
        search(encoder, turned, NULL, path);
        tried[round] = path[STEPS - 1 - turn] & mask;
        bool again = false;
        for (uint32_t i = 0; i < round; i++)
            again = again || tried[i] == tried[round];
        if (again)
            continue;
        float cost = search(encoder, stream, &tried[round], path);
        if (cost < best_cost) {
            best_cost = cost;
            memcpy(best, path, sizeof best);
        }
    }
    pgl_tile_pack(best, encoder->k, code);
    return best_cost;
}
