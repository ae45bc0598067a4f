/* Owns a coder's matrices. */
#include "quantize/coding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "codec/codec.h"
#include "codec/encode.h"
#include "quantize/hessian.h"
#include "sampling/sampling.h"

#define BLOCK 16u

struct pgl_coder {
    uint32_t k, max_in, max_out;
    pgl_encoder *encoder;
    double *h;        /* [max_in][max_in]: moments of the transformed input, then their factor */
    float *w;         /* [max_in][max_out]: the transformed target, then the error of what is coded */
    float *effective; /* [max_in][max_out] */
    float *feedback;  /* [BLOCK][max_out] */
    float *rin, *rout;
    double *column;     /* [max_in] */
    double *energy;     /* [max(max_in, max_out)] */
    double *importance; /* [max_in] */
};

pgl_coding_options pgl_coding_defaults(uint32_t k) {
    return (pgl_coding_options){.k = k, .rounds = 1, .seed = 1, .damping = 0.01};
}

pgl_status pgl_coder_open(uint32_t k, uint32_t rounds, uint32_t max_in, uint32_t max_out, pgl_coder **out,
                          pgl_error *err) {
    *out = NULL;
    if (max_in == 0 || max_out == 0 || max_in % PGL_HADAMARD != 0 || max_out % PGL_HADAMARD != 0 ||
        max_in > 65536 || max_out > 65536)
        return pgl_fail(err, PGL_E_INVALID,
                        "coder: expected sizes that are multiples of 128 up to 65536, found %u x %u", max_in,
                        max_out);
    pgl_coder *c = pgl_new(1, sizeof *c);
    if (c == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "coder: no memory for its work space");
    pgl_status status = pgl_encoder_open(k, rounds, NULL, &c->encoder, err);
    if (status != PGL_OK) {
        free(c);
        return status;
    }
    c->k = k;
    c->max_in = max_in;
    c->max_out = max_out;
    c->h = pgl_new_aligned((size_t)max_in * max_in, sizeof *c->h);
    c->w = pgl_new_aligned((size_t)max_in * max_out, sizeof *c->w);
    c->effective = pgl_new_aligned((size_t)max_in * max_out, sizeof *c->effective);
    c->feedback = pgl_new_aligned((size_t)BLOCK * max_out, sizeof *c->feedback);
    c->rin = pgl_new(max_in, sizeof *c->rin);
    c->rout = pgl_new(max_out, sizeof *c->rout);
    c->column = pgl_new(max_in, sizeof *c->column);
    c->energy = pgl_new(max_in > max_out ? max_in : max_out, sizeof *c->energy);
    c->importance = pgl_new(max_in, sizeof *c->importance);
    if (c->h == NULL || c->w == NULL || c->effective == NULL || c->feedback == NULL || c->rin == NULL ||
        c->rout == NULL || c->column == NULL || c->energy == NULL || c->importance == NULL) {
        pgl_coder_close(c);
        return pgl_fail(err, PGL_E_MEMORY, "coder: no memory for matrices of %u x %u", max_in, max_out);
    }
    *out = c;
    return PGL_OK;
}

void pgl_coder_close(pgl_coder *coder) {
    if (coder == NULL)
        return;
    pgl_encoder_close(coder->encoder);
    free(coder->h);
    free(coder->w);
    free(coder->effective);
    free(coder->feedback);
    free(coder->rin);
    free(coder->rout);
    free(coder->column);
    free(coder->energy);
    free(coder->importance);
    free(coder);
}

/* The standard deviation that the transformed weights are given. The codebook's own is 1.2441; measured on Gaussian
 * tiles the error is least a little below (2 bits: 0.0695 at 1.20 against 0.0696; 4 bits: 0.00458 against 0.00472). */
static double best_deviation(uint32_t k) {
    return k <= 3 ? 1.20 : 1.17;
}

/* Scales for one side, from the energies of its n channels. Blocks of 128 that share a transform are brought to equal
 * energy; inside a block the scale is the square root of a channel's magnitude over its importance, which minimises the
 * error of noise that the transform spreads evenly (Cauchy-Schwarz on sum(r_i^2 m_i) sum(e_i / r_i^2)). importance m
 * may be NULL: all alike. */
static void balance(const double *energy, const double *importance, uint32_t n, float *scale) {
    for (uint32_t b = 0; b < n; b += PGL_HADAMARD) {
        double total = 0, mean_importance = 0, left = 0;
        for (uint32_t i = b; i < b + PGL_HADAMARD; i++) {
            total += energy[i];
            mean_importance += importance == NULL ? 1 : importance[i];
        }
        mean_importance /= PGL_HADAMARD;
        double least = total > 0 ? 1e-6 * total / PGL_HADAMARD : 1;
        for (uint32_t i = b; i < b + PGL_HADAMARD; i++) {
            double e = fmax(energy[i], least);
            double m =
                importance == NULL || mean_importance <= 0 ? 1 : fmax(importance[i] / mean_importance, 1e-3);
            double r2 = sqrt(e / m);
            scale[i] = (float)sqrt(r2);
            left += e / r2;
        }
        /* What stands in the block after division has energy `left`; bring it to 1 a channel. */
        float f = (float)sqrt(left / PGL_HADAMARD);
        for (uint32_t i = b; i < b + PGL_HADAMARD; i++)
            scale[i] *= f;
    }
}

static float sign_of(const pgl_coding_options *options, uint32_t side, uint32_t i) {
    if (options->no_signs)
        return 1.0F;
    uint32_t counter[4] = {i, side, 0, 0}, word[4];
    pgl_philox(options->seed, counter, word);
    return (word[0] & 1u) != 0 ? -1.0F : 1.0F;
}

/* The energy of each row of w / rin (by_row) or column of it. */
static void energies(const pgl_coder *c, const pgl_coding_target *t, bool by_row, double *energy) {
    memset(energy, 0, (by_row ? t->in : t->out) * sizeof *energy);
    for (uint32_t i = 0; i < t->in; i++) {
        for (uint32_t j = 0; j < t->out; j++) {
            double v = (double)t->w[(size_t)i * t->out + j] / (double)c->rin[i];
            energy[by_row ? i : j] += v * v;
        }
    }
}

/* Rounds scale * gain to fp16 with its sign. */
static pgl_status round_scales(const pgl_coding_options *options, uint32_t side, float gain, float *scale,
                               uint32_t n, pgl_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        float r = pgl_round_f16(scale[i] * gain);
        if (!isfinite(r) || r < 0x1p-18F)
            return pgl_fail(err, PGL_E_NUMERIC, "%s channel %u: expected a scale that fp16 holds, found %g",
                            side == 0 ? "input" : "output", i, (double)(scale[i] * gain));
        scale[i] = r * sign_of(options, side, i);
    }
    return PGL_OK;
}

static pgl_status choose_scales(pgl_coder *c, const pgl_coding_options *options, const pgl_coding_target *t,
                                pgl_error *err) {
    uint32_t in = t->in, out = t->out;
    for (uint32_t i = 0; i < in; i++)
        c->rin[i] = 1;
    for (uint32_t j = 0; j < out; j++)
        c->rout[j] = 1;
    if (!options->no_scales) {
        for (uint32_t i = 0; i < in; i++)
            c->importance[i] = t->moments == NULL ? 1 : t->moments[(size_t)i * in + i];
        energies(c, t, true, c->energy);
        balance(c->energy, c->importance, in, c->rin);
        energies(c, t, false, c->energy);
        balance(c->energy, NULL, out, c->rout);
    }
    double power = 0, mean_log = 0;
    for (uint32_t i = 0; i < in; i++) {
        mean_log += log2((double)c->rin[i]) / in;
        for (uint32_t j = 0; j < out; j++) {
            double v = (double)t->w[(size_t)i * out + j] / ((double)c->rin[i] * (double)c->rout[j]);
            power += v * v;
        }
    }
    double deviation = sqrt(power / ((double)in * out));
    if (!isfinite(deviation))
        return pgl_fail(err, PGL_E_NUMERIC, "expected finite weights, found one that is not");
    /* Input scales near 1, where the activations' fp16 rounding wants them; the size of the weights goes outside. */
    float shift = (float)exp2(-round(mean_log));
    float gain = deviation > 0 ? (float)(deviation / best_deviation(options->k)) / shift : 1;
    pgl_status status = round_scales(options, 0, shift, c->rin, in, err);
    return status != PGL_OK ? status : round_scales(options, 1, gain, c->rout, out, err);
}

/* w = H diag(1 / rin) target diag(1 / rout) H / 128 */
static void transform_target(pgl_coder *c, const pgl_coding_target *t) {
    uint32_t in = t->in, out = t->out;
    for (uint32_t i = 0; i < in; i++) {
        float *row = c->w + (size_t)i * out;
        for (uint32_t j = 0; j < out; j++)
            row[j] = t->w[(size_t)i * out + j] / (c->rin[i] * c->rout[j]) * (1.0F / 128);
        pgl_hadamard(row, out);
    }
    for (uint32_t b = 0; b < in; b += PGL_HADAMARD) {
        for (uint32_t j = 0; j < out; j++) {
            float column[PGL_HADAMARD];
            for (uint32_t i = 0; i < PGL_HADAMARD; i++)
                column[i] = c->w[(size_t)(b + i) * out + j];
            pgl_hadamard(column, PGL_HADAMARD);
            for (uint32_t i = 0; i < PGL_HADAMARD; i++)
                c->w[(size_t)(b + i) * out + j] = column[i];
        }
    }
}

/* feedback = sum over blocks i > b of L_ib^T E_i, with E in the rows of c->w that are done. */
static void gather_feedback(pgl_coder *c, uint32_t in, uint32_t out, uint32_t b) {
    memset(c->feedback, 0, (size_t)BLOCK * out * sizeof *c->feedback);
    for (uint32_t i = b + BLOCK; i < in; i++) {
        const float *error = c->w + (size_t)i * out;
        for (uint32_t r = 0; r < BLOCK; r++) {
            float l = (float)c->h[(size_t)i * in + b + r];
            float *f = c->feedback + (size_t)r * out;
            for (uint32_t j = 0; j < out; j++)
                f[j] += l * error[j];
        }
    }
}

/* Codes the blocks of input channels from the last to the first; c->w ends as the error (target - coded). */
static void code_blocks(pgl_coder *c, const pgl_coding_target *t, bool feedback, unsigned char *code) {
    uint32_t in = t->in, out = t->out;
    size_t tile_bytes = 32 * (size_t)c->k;
    for (uint32_t b = in; b > 0;) {
        b -= BLOCK;
        if (feedback)
            gather_feedback(c, in, out, b);
        for (uint32_t j = 0; j < out; j += BLOCK) {
            float tile[256];
            pgl_f16 coded[256];
            for (uint32_t r = 0; r < BLOCK; r++)
                for (uint32_t l = 0; l < BLOCK; l++)
                    tile[r * BLOCK + l] = c->w[(size_t)(b + r) * out + j + l] +
                                          (feedback ? c->feedback[(size_t)r * out + j + l] : 0.0F);
            unsigned char *place = code + ((size_t)(b / BLOCK) * (out / BLOCK) + j / BLOCK) * tile_bytes;
            pgl_encode_tile(c->encoder, tile, place);
            pgl_tile_decode(place, c->k, coded);
            for (uint32_t r = 0; r < BLOCK; r++)
                for (uint32_t l = 0; l < BLOCK; l++)
                    c->w[(size_t)(b + r) * out + j + l] -= pgl_f16_to_f32(coded[r * BLOCK + l]);
        }
    }
}

void pgl_coding_effective(const pgl_coding_result *result, uint32_t k, uint32_t in, uint32_t out, float *w) {
    for (uint32_t i = 0; i < in; i += BLOCK) {
        for (uint32_t j = 0; j < out; j += BLOCK) {
            pgl_f16 tile[256];
            const unsigned char *code = result->code;
            pgl_tile_decode(code + ((size_t)(i / BLOCK) * (out / BLOCK) + j / BLOCK) * 32 * k, k, tile);
            for (uint32_t r = 0; r < BLOCK; r++)
                for (uint32_t l = 0; l < BLOCK; l++)
                    w[(size_t)(i + r) * out + j + l] = pgl_f16_to_f32(tile[r * BLOCK + l]);
        }
    }
    for (uint32_t i = 0; i < in; i++)
        pgl_hadamard(w + (size_t)i * out, out);
    for (uint32_t b = 0; b < in; b += PGL_HADAMARD) {
        for (uint32_t j = 0; j < out; j++) {
            float column[PGL_HADAMARD];
            for (uint32_t i = 0; i < PGL_HADAMARD; i++)
                column[i] = w[(size_t)(b + i) * out + j];
            pgl_hadamard(column, PGL_HADAMARD);
            for (uint32_t i = 0; i < PGL_HADAMARD; i++)
                w[(size_t)(b + i) * out + j] = column[i] * (1.0F / 128) * pgl_f16_to_f32(result->rin[b + i]) *
                                               pgl_f16_to_f32(result->rout[j]);
        }
    }
}

/* a^T H b over column j of two [in][out] matrices; H NULL is the identity. */
static double moment(const pgl_coder *c, const pgl_coding_target *t, const float *a, const float *b,
                     uint32_t j) {
    double sum = 0;
    for (uint32_t i = 0; i < t->in; i++)
        c->column[i] = (double)b[(size_t)i * t->out + j];
    for (uint32_t i = 0; i < t->in; i++) {
        double ai = (double)a[(size_t)i * t->out + j], row = c->column[i];
        if (t->moments != NULL) {
            row = 0;
            for (uint32_t l = 0; l < t->in; l++)
                row += t->moments[(size_t)i * t->in + l] * c->column[l];
        }
        sum += ai * row;
    }
    return sum;
}

/* For each output the factor on rout that makes its error least; then the errors that are left. */
static void refit(pgl_coder *c, const pgl_coding_options *options, const pgl_coding_target *t,
                  const pgl_coding_result *result, pgl_coding_report *report) {
    double error = 0, power = 0, output_error = 0, output_power = 0;
    pgl_coding_effective(result, c->k, t->in, t->out, c->effective);
    for (uint32_t j = 0; j < t->out; j++) {
        double cross = moment(c, t, c->effective, t->w, j), own = moment(c, t, c->effective, c->effective, j);
        float before = pgl_f16_to_f32(result->rout[j]), after = before;
        if (!options->no_refit && own > 0)
            after = pgl_round_f16((float)((double)before * cross / own));
        double weight_power = 0, weight_error = 0;
        float factor = before != 0 ? after / before : 0;
        for (uint32_t i = 0; i < t->in; i++) {
            float *e = c->effective + (size_t)i * t->out + j;
            double w = (double)t->w[(size_t)i * t->out + j];
            *e = (float)((double)*e * (double)factor - w);
            weight_power += w * w;
            weight_error += (double)*e * (double)*e;
        }
        if (weight_power == 0) {
            after = 0;
            weight_error = 0;
        } else {
            output_error += moment(c, t, c->effective, c->effective, j);
            output_power += moment(c, t, t->w, t->w, j);
        }
        result->rout[j] = pgl_f32_to_f16(after);
        error += weight_error;
        power += weight_power;
    }
    report->weight_error = power > 0 ? error / power : 0;
    report->output_error = output_power > 0 ? output_error / output_power : 0;
}

pgl_status pgl_code_matrix(pgl_coder *coder, const pgl_coding_options *options,
                           const pgl_coding_target *target, const pgl_coding_result *result,
                           pgl_coding_report *report, pgl_error *err) {
    uint32_t in = target->in, out = target->out;
    if (in == 0 || out == 0 || in % PGL_HADAMARD != 0 || out % PGL_HADAMARD != 0 || in > coder->max_in ||
        out > coder->max_out)
        return pgl_fail(err, PGL_E_INVALID,
                        "coder for %u x %u: expected a matrix of multiples of 128 within, found %u x %u",
                        coder->max_in, coder->max_out, in, out);
    pgl_status status = choose_scales(coder, options, target, err);
    if (status != PGL_OK)
        return status;
    for (uint32_t i = 0; i < in; i++)
        result->rin[i] = pgl_f32_to_f16(coder->rin[i]);
    for (uint32_t j = 0; j < out; j++)
        result->rout[j] = pgl_f32_to_f16(coder->rout[j]);
    bool feedback = target->moments != NULL && !options->no_feedback;
    if (feedback) {
        memcpy(coder->h, target->moments, (size_t)in * in * sizeof *coder->h);
        pgl_hessian_transform(coder->h, in, coder->rin);
        if (!pgl_hessian_decompose(coder->h, in, options->damping))
            return pgl_fail(err, PGL_E_NUMERIC, "the input's second moments are not positive definite");
    }
    transform_target(coder, target);
    code_blocks(coder, target, feedback, result->code);
    refit(coder, options, target, result, report);
    return PGL_OK;
}
