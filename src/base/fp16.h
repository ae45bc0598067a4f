/* 16-bit floating point in portable integer arithmetic: exact for every input on every machine, which makes
 * it the contract that vector conversions are compared with. Rounding is to nearest even; NaN stays NaN
 * (quiet); overflow gives infinity; subnormals are kept. */
#ifndef PGL_BASE_FP16_H
#define PGL_BASE_FP16_H

#include <stdint.h>

typedef uint16_t pgl_f16;
typedef uint16_t pgl_bf16;

float pgl_f16_to_f32(pgl_f16 h);
pgl_f16 pgl_f32_to_f16(float f);
float pgl_bf16_to_f32(pgl_bf16 h);
pgl_bf16 pgl_f32_to_bf16(float f);

/* f32 -> fp16 -> f32: one rounding point of the contract. */
float pgl_round_f16(float f);

#endif
