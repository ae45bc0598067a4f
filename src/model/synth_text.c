/* The small files of a synthetic checkpoint: configurations in the nested form of the published export. */
#include <string.h>

#include "base/embed.h"
#include "model/synth_plan.h"

PGL_EMBEDDED(synth_chat_template)

const char *pgl_synth_chat_template(void) {
    return pgl_embedded_synth_chat_template;
}

static const char *boolean(bool value) {
    return value ? "true" : "false";
}

static bool put_layer_types(const pgl_config *c, pgl_buf *out) {
    bool ok = pgl_buf_puts(out, "  \"layer_types\": [");
    for (uint32_t i = 0; ok && i < c->n_layers; i++) {
        ok = pgl_buf_printf(out, "%s\n   \"%s\"", i == 0 ? "" : ",",
                            c->full_attention[i] ? "full_attention" : "linear_attention");
    }
    return ok && pgl_buf_puts(out, "\n  ],\n");
}

static bool put_text_config(const pgl_synth_shape *shape, pgl_buf *out) {
    const pgl_config *c = &shape->config;
    const uint32_t end_of_text = shape->n_tokens + PGL_SPECIAL_END_OF_TEXT;
    return pgl_buf_printf(
               out,
               " \"text_config\": {\n"
               "  \"attention_bias\": %s,\n  \"attention_dropout\": 0.0,\n  \"attn_output_gate\": true,\n"
               "  \"bos_token_id\": %u,\n  \"eos_token_id\": %u,\n  \"pad_token_id\": null,\n"
               "  \"full_attention_interval\": 4,\n  \"head_dim\": %u,\n  \"hidden_act\": \"silu\",\n"
               "  \"hidden_size\": %u,\n  \"initializer_range\": 0.02,\n",
               boolean(c->attention_bias), end_of_text, end_of_text, c->head_dim, c->hidden_size) &&
           put_layer_types(c, out) &&
           pgl_buf_printf(
               out,
               "  \"linear_conv_kernel_dim\": %u,\n  \"linear_key_head_dim\": %u,\n"
               "  \"linear_num_key_heads\": %u,\n  \"linear_num_value_heads\": %u,\n"
               "  \"linear_value_head_dim\": %u,\n  \"mamba_ssm_dtype\": \"float32\",\n"
               "  \"max_position_embeddings\": %u,\n  \"model_type\": \"qwen3_5_moe_text\",\n"
               "  \"moe_intermediate_size\": %u,\n  \"mtp_num_hidden_layers\": %u,\n"
               "  \"mtp_use_dedicated_embeddings\": false,\n  \"num_attention_heads\": %u,\n"
               "  \"num_experts\": %u,\n  \"num_experts_per_tok\": %u,\n  \"num_hidden_layers\": %u,\n"
               "  \"num_key_value_heads\": %u,\n",
               c->conv_kernel, c->key_dim, c->n_key_heads, c->n_value_heads, c->value_dim,
               c->max_position_embeddings, c->moe_intermediate_size, c->n_mtp_layers, c->n_heads,
               c->n_experts, c->n_experts_used, c->n_layers, c->n_kv_heads) &&
           pgl_buf_printf(
               out,
               "  \"rms_norm_eps\": %.6g,\n  \"rope_parameters\": {\n   \"mrope_interleaved\": true,\n"
               "   \"mrope_section\": [11, 11, 10],\n   \"partial_rotary_factor\": %.9g,\n"
               "   \"rope_theta\": %.17g,\n   \"rope_type\": \"default\"\n  },\n"
               "  \"router_aux_loss_coef\": 0.001,\n  \"shared_expert_intermediate_size\": %u,\n"
               "  \"tie_word_embeddings\": %s,\n  \"use_cache\": true,\n  \"vocab_size\": %u\n },\n",
               (double)c->rms_norm_eps, (double)c->rotary_dim / c->head_dim, c->rope_theta,
               c->shared_intermediate_size, boolean(c->tie_word_embeddings), c->vocab_size);
}

static bool put_quantization(const pgl_config *c, pgl_buf *out) {
    bool ok =
        pgl_buf_puts(out, " \"quantization_config\": {\n  \"quant_method\": \"eschamoe\",\n  \"bits\": 2.0,\n"
                          "  \"format_version\": \"2.0\",\n  \"int8_embedding\": true,\n"
                          "  \"ignore\": [\"lm_head\", \"embed_tokens\", \"visual\", \"mlp.gate\", "
                          "\"shared_expert_gate\", \"in_proj_a\", \"in_proj_b\"],\n  \"layer_meta\": {");
    for (uint32_t i = 0; ok && i < c->n_layers; i++) {
        ok = pgl_buf_printf(
            out,
            "%s\n   \"model.language_model.layers.%u.mlp.experts.gate_up_proj\": {\"K\": 2, \"bits\": "
            "2.0, \"in_features\": %u, \"out_features\": %u},\n"
            "   \"model.language_model.layers.%u.mlp.experts.down_proj\": {\"K\": 3, \"bits\": 3.0, "
            "\"in_features\": %u, \"out_features\": %u}",
            i == 0 ? "" : ",", i, c->hidden_size, 2 * c->moe_intermediate_size, i, c->moe_intermediate_size,
            c->hidden_size);
    }
    return ok && pgl_buf_puts(out, "\n  }\n },\n");
}

pgl_status pgl_synth_config(const pgl_synth_shape *shape, pgl_buf *out, pgl_error *err) {
    const uint32_t special = shape->n_tokens;
    const bool ok =
        pgl_buf_puts(out, "{\n \"architectures\": [\n  \"Qwen3_5MoeForConditionalGeneration\"\n ],\n"
                          " \"model_type\": \"qwen3_5_moe\",\n") &&
        put_text_config(shape, out) &&
        pgl_buf_printf(out,
                       " \"tie_word_embeddings\": %s,\n"
                       " \"vision_config\": {\n  \"depth\": 27,\n  \"hidden_size\": 1152,\n"
                       "  \"model_type\": \"qwen3_5_moe\"\n },\n"
                       " \"image_token_id\": %u,\n \"video_token_id\": %u,\n \"vision_start_token_id\": %u,\n"
                       " \"vision_end_token_id\": %u,\n",
                       boolean(shape->config.tie_word_embeddings), special + PGL_SPECIAL_IMAGE_PAD,
                       special + PGL_SPECIAL_IMAGE_PAD + 1, special + PGL_SPECIAL_VISION_START,
                       special + PGL_SPECIAL_VISION_START + 1) &&
        put_quantization(&shape->config, out) &&
        pgl_buf_puts(out, " \"transformers_version\": \"4.57.1\"\n}\n");
    return ok ? PGL_OK : pgl_fail(err, PGL_E_MEMORY, "no memory for config.json");
}

pgl_status pgl_synth_generation_config(const pgl_synth_shape *shape, pgl_buf *out, pgl_error *err) {
    const uint32_t end_of_text = shape->n_tokens + PGL_SPECIAL_END_OF_TEXT;
    const bool ok =
        pgl_buf_printf(out,
                       "{\n \"bos_token_id\": %u,\n \"do_sample\": true,\n \"eos_token_id\": [\n  %u,\n"
                       "  %u\n ],\n \"pad_token_id\": %u,\n \"temperature\": 0.6,\n \"top_k\": 20,\n"
                       " \"top_p\": 0.95\n}\n",
                       end_of_text, shape->n_tokens + PGL_SPECIAL_IM_END, end_of_text, end_of_text);
    return ok ? PGL_OK : pgl_fail(err, PGL_E_MEMORY, "no memory for generation_config.json");
}

pgl_status pgl_synth_tokenizer_config(const pgl_synth_shape *shape, pgl_buf *out, pgl_error *err) {
    bool ok = pgl_buf_puts(out, "{\n \"add_bos_token\": false,\n \"add_prefix_space\": false,\n"
                                " \"added_tokens_decoder\": {");
    for (uint32_t i = 0; ok && i < PGL_SYNTH_N_SPECIAL; i++) {
        const pgl_synth_special *s = &pgl_synth_specials[i];
        ok = pgl_buf_printf(out,
                            "%s\n  \"%u\": {\"content\": \"%s\", \"lstrip\": false, \"normalized\": false, "
                            "\"rstrip\": false, \"single_word\": false, \"special\": %s}",
                            i == 0 ? "" : ",", shape->n_tokens + i, s->text, boolean(s->special));
    }
    ok = ok && pgl_buf_printf(out,
                              "\n },\n \"bos_token\": null,\n \"clean_up_tokenization_spaces\": false,\n"
                              " \"eos_token\": \"<|im_end|>\",\n \"errors\": \"replace\",\n"
                              " \"model_max_length\": %u,\n \"pad_token\": \"<|endoftext|>\",\n"
                              " \"split_special_tokens\": false,\n \"tokenizer_class\": \"Qwen2Tokenizer\",\n"
                              " \"unk_token\": null\n}\n",
                              shape->config.max_position_embeddings);
    return ok ? PGL_OK : pgl_fail(err, PGL_E_MEMORY, "no memory for tokenizer_config.json");
}
