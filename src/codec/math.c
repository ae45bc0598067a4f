/* Owns nothing: the exponential of the contract and what is built on it. codec.h states every operation;
 * vector code repeats them in this order. */
#include "codec/codec.h"

#include <math.h>
#include <string.h>

static float power_of_two(int32_t n) {
    uint32_t u = (uint32_t)(n + 127) << 23;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float pgl_expf(float x) {
    float c = x < PGL_EXP_LOW ? PGL_EXP_LOW : x; /* comparisons that keep a NaN */
    c = c > PGL_EXP_HIGH ? PGL_EXP_HIGH : c;
    float t = fmaf(c, PGL_EXP_LOG2E, PGL_EXP_MAGIC);
    float n = t - PGL_EXP_MAGIC;
    float r = fmaf(n, -PGL_EXP_LN2_HIGH, c);
    r = fmaf(n, -PGL_EXP_LN2_LOW, r);
    float q = fmaf(PGL_EXP_C6, r, PGL_EXP_C5);
    q = fmaf(q, r, PGL_EXP_C4);
    q = fmaf(q, r, PGL_EXP_C3);
    q = fmaf(q, r, PGL_EXP_C2);
    float p = fmaf(q, r * r, r) + 1.0F;
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    int32_t i = (int32_t)(bits - PGL_EXP_MAGIC_BITS); /* n; a NaN gives some number, and p is NaN */
    int32_t half = i >> 1;
    return p * power_of_two(half) * power_of_two(i - half);
}

float pgl_sigmoid(float x) {
    return 1.0F / (1.0F + pgl_expf(-x));
}

float pgl_silu(float x) {
    return x * pgl_sigmoid(x);
}

float pgl_softplus(float x) {
    float e = pgl_expf(-fabsf(x));
    float s = e / (2.0F + e);
    float w = s * s;
    float q = fmaf(PGL_LOG1P_C4, w, PGL_LOG1P_C3);
    q = fmaf(q, w, PGL_LOG1P_C2);
    q = fmaf(q, w, PGL_LOG1P_C1);
    q = fmaf(q, w, PGL_LOG1P_C0);
    float log1p_e = fmaf(s, fmaf(w, q, -e), e);
    float positive = x > 0.0F ? x : 0.0F;
    return positive + log1p_e;
}
