/* Owns nothing: the parameters of sampling, their neutral values and their ranges. */
#include "sampling/sampling.h"

#include <math.h>

pgl_sample_params pgl_sample_defaults(void) {
    return (pgl_sample_params){
        .temperature = 0.0F,
        .top_p = 1.0F,
        .min_p = 0.0F,
        .top_k = 0,
        .repetition_penalty = 1.0F,
    };
}

typedef struct range {
    const char *name;
    float value, low, high;
    bool open_low; /* low itself is outside */
} range;

static pgl_status check_bias(const pgl_sample_params *params, uint32_t n_vocab, pgl_error *err) {
    if (params->n_bias > 0 && params->bias == NULL)
        return pgl_fail(err, PGL_E_INVALID, "logit_bias: %u entries announced, none given", params->n_bias);
    for (uint32_t i = 0; i < params->n_bias; i++) {
        const pgl_logit_bias *bias = &params->bias[i];
        if (bias->id < 0 || (uint32_t)bias->id >= n_vocab)
            return pgl_fail(err, PGL_E_INVALID, "logit_bias: token id must be 0 .. %u, found %d", n_vocab - 1,
                            (int)bias->id);
        if (!isfinite(bias->bias))
            return pgl_fail(err, PGL_E_INVALID, "logit_bias: the bias of token %d is not a finite number",
                            (int)bias->id);
        if (i > 0 && params->bias[i - 1].id >= bias->id)
            return pgl_fail(err, PGL_E_INVALID, "logit_bias: ids must rise, found %d behind %d",
                            (int)bias->id, (int)params->bias[i - 1].id);
    }
    return PGL_OK;
}

pgl_status pgl_sample_check(const pgl_sample_params *params, uint32_t n_vocab, pgl_error *err) {
    const range ranges[] = {
        {"temperature", params->temperature, 0.0F, 100.0F, false},
        {"top_p", params->top_p, 0.0F, 1.0F, true},
        {"min_p", params->min_p, 0.0F, 1.0F, false},
        {"presence_penalty", params->presence_penalty, -2.0F, 2.0F, false},
        {"frequency_penalty", params->frequency_penalty, -2.0F, 2.0F, false},
        {"repetition_penalty", params->repetition_penalty, 0.0F, 10.0F, true},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const range *r = &ranges[i];
        bool inside = r->value <= r->high && (r->open_low ? r->value > r->low : r->value >= r->low);
        if (!inside) /* a NaN is never inside */
            return pgl_fail(err, PGL_E_INVALID, "%s must be %s %g and at most %g, found %g", r->name,
                            r->open_low ? "above" : "at least", (double)r->low, (double)r->high,
                            (double)r->value);
    }
    if (params->top_k < -1)
        return pgl_fail(err, PGL_E_INVALID, "top_k must be at least 1, or 0 or -1 for off, found %d",
                        (int)params->top_k);
    return check_bias(params, n_vocab, err);
}

bool pgl_sample_wants_history(const pgl_sample_params *params) {
    return params->presence_penalty != 0.0F || params->frequency_penalty != 0.0F ||
           params->repetition_penalty != 1.0F;
}
