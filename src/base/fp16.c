#include "base/fp16.h"

#include <string.h>

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float pgl_f16_to_f32(pgl_f16 h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 31u;
    uint32_t mantissa = h & 0x3FFu;
    if (exponent == 31)
        return float_of(sign | 0x7F800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0));
    if (exponent == 0) {
        if (mantissa == 0)
            return float_of(sign);
        uint32_t shift = (uint32_t)__builtin_clz(mantissa) - 21; /* bring the leading one to bit 10 */
        mantissa = (mantissa << shift) & 0x3FFu;
        return float_of(sign | ((113u - shift) << 23) | (mantissa << 13));
    }
    return float_of(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

pgl_f16 pgl_f32_to_f16(float f) {
    uint32_t u = bits_of(f);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u)
        return (pgl_f16)(sign | 0x7E00u | ((a >> 13) & 0x3FFu));
    if (a >= 0x477FF000u) /* 65520 and above round to infinity */
        return (pgl_f16)(sign | 0x7C00u);
    if (a < 0x38800000u) { /* below 2^-14: subnormal or zero */
        if (a < 0x33000000u)
            return (pgl_f16)sign; /* below 2^-25: zero; 2^-25 itself ties to even, zero, in the code below */
        uint32_t exponent = a >> 23;
        uint32_t mantissa = (a & 0x7FFFFFu) | 0x800000u;
        uint32_t shift = 126u - exponent; /* 14 .. 24 */
        uint32_t half = 1u << (shift - 1);
        uint32_t rest = mantissa & ((1u << shift) - 1u);
        uint32_t r = mantissa >> shift;
        if (rest > half || (rest == half && (r & 1u) != 0))
            r++;
        return (pgl_f16)(sign | r);
    }
    uint32_t r = a - 0x38000000u;
    r += 0xFFFu + ((r >> 13) & 1u);
    return (pgl_f16)(sign | (r >> 13));
}

float pgl_bf16_to_f32(pgl_bf16 h) {
    return float_of((uint32_t)h << 16);
}

pgl_bf16 pgl_f32_to_bf16(float f) {
    uint32_t u = bits_of(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return (pgl_bf16)((u >> 16) | 0x40u);
    return (pgl_bf16)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

float pgl_round_f16(float f) {
    return pgl_f16_to_f32(pgl_f32_to_f16(f));
}
