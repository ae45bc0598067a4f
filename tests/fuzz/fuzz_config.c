/* config.json and generation_config.json: whatever is accepted has sizes that later arithmetic relies on. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "checkpoint/config.h"

static void require(int condition) {
    if (!condition)
        abort();
}

static void check(const pgl_config *c) {
    require(c->vocab_size >= 1 && c->vocab_size <= 1u << 24 && c->hidden_size >= 1 &&
            c->hidden_size <= 1u << 17);
    require(c->n_layers >= 1 && c->n_layers <= PGL_MAX_LAYERS);
    require(c->n_heads >= 1 && c->n_kv_heads >= 1 && c->n_heads % c->n_kv_heads == 0);
    require(c->n_key_heads >= 1 && c->n_value_heads % c->n_key_heads == 0 && c->n_value_heads >= 1);
    require((uint64_t)c->n_heads * c->head_dim * 2 <= 1u << 20);
    require((uint64_t)c->n_key_heads * c->key_dim * 2 + (uint64_t)c->n_value_heads * c->value_dim <=
            1u << 20);
    require(c->rotary_dim >= 2 && c->rotary_dim % 2 == 0 && c->rotary_dim <= c->head_dim);
    require(c->rope_theta >= 1 && c->rms_norm_eps > 0);
    require(c->n_experts == 0 ? c->intermediate_size >= 1
                              : c->n_experts_used >= 1 && c->n_experts_used <= c->n_experts &&
                                    c->moe_intermediate_size % 128 == 0 && c->hidden_size % 128 == 0);
    require((c->n_experts == 0) == (c->quant_method == PGL_QUANT_ESCHA));
    require(c->n_eos <= PGL_MAX_EOS);
    for (uint32_t i = 0; i < c->n_eos; i++)
        require(c->eos[i] >= 0 && (uint32_t)c->eos[i] < c->vocab_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pgl_config config;
    pgl_error err;
    pgl_buf notes = PGL_BUF_INIT;
    const char *text = (const char *)data;
    if (pgl_config_parse(text, size, "config.json", &config, &notes, &err) == PGL_OK) {
        check(&config);
        (void)pgl_config_parse_generation(text, size, "generation_config.json", &config, NULL);
    } else {
        require(pgl_utf8_valid(err.text, strlen(err.text)));
        memset(&config, 0, sizeof config);
        config.vocab_size = 1000;
        if (pgl_config_parse_generation(text, size, "generation_config.json", &config, NULL) == PGL_OK)
            require(config.n_eos <= PGL_MAX_EOS);
    }
    pgl_buf_fini(&notes);
    return 0;
}
