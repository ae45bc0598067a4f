/* Any trace: what is accepted can be walked, and every array is as long as it says. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/trace_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth) {
    if (!truth)
        abort();
}

static void walk(const pgl_trace_sequence *s) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->n_prompt; i++)
        sum += s->prompt[i];
    for (uint32_t i = 0; i < s->n_stop_ids; i++)
        sum += s->stop_ids[i];
    for (uint32_t i = 0; i < s->n_tokens; i++)
        sum += s->tokens[i] + (s->logprobs[i] <= 0.01F);
    for (uint32_t i = 0; i < s->sampling.n_bias; i++)
        sum += s->sampling.bias[i].id;
    require(sum >= 0 && s->n_prompt > 0 && s->n_stop_ids <= PGL_MAX_STOP_IDS);
    (void)pgl_sample_check(&s->sampling, 1000, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pgl_trace trace;
    pgl_error err = {.status = PGL_OK};
    if (pgl_trace_parse(size > 0 ? (const char *)data : "", size, &trace, &err) != PGL_OK) {
        require(err.status != PGL_OK && err.text[0] != '\0' && trace.arena == NULL);
        return 0;
    }
    require(trace.fingerprint != NULL && trace.backend != NULL);
    require(!trace.has_form || trace.form.text[trace.form.size] == '\0');
    for (uint32_t i = 0; i < trace.n_sequences; i++)
        walk(&trace.sequences[i]);
    pgl_trace_fini(&trace);
    return 0;
}
