/* config.json and generation_config.json: every field is removed, mistyped and pushed out of its range, and whatever asks
 * for something that the program does not do is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint_builder.h"

static pgl_status parse_text(const char *text, pgl_config *config, pgl_buf *notes, pgl_error *err) {
    return pgl_config_parse(text, strlen(text), "config.json", config, notes, err);
}

static pgl_status parse(const cb *b, pgl_config *config, pgl_buf *notes, pgl_error *err) {
    char *text = json_dumps(b->config, JSON_REAL_PRECISION(9));
    pgl_status status = parse_text(text, config, notes, err);
    free(text);
    return status;
}

static void assert_refused(const cb *b, const char *key, const char *expected, const char *found) {
    pgl_error err = {.text = ""};
    pgl_config config;
    pgl_status status = parse(b, &config, NULL, &err);
    if (status == PGL_OK)
        fail_msg("%s: accepted although it should be %s", key, expected);
    assert_true(status == PGL_E_FORMAT || status == PGL_E_UNSUPPORTED);
    assert_int_equal(err.status, status);
    char found_text[128];
    snprintf(found_text, sizeof found_text, "found %s", found);
    const char *parts[] = {"config.json: ", key, expected, found_text};
    for (size_t i = 0; i < 4; i++)
        if (strstr(err.text, parts[i]) == NULL)
            fail_msg("message \"%s\" lacks \"%s\"", err.text, parts[i]);
}

static pgl_config accepted(const cb *b, const char *notes_part) {
    pgl_error err;
    pgl_config config;
    pgl_buf notes = PGL_BUF_INIT;
    if (parse(b, &config, &notes, &err) != PGL_OK)
        fail_msg("%s", err.text);
    if (notes_part == NULL ? notes.size != 0 : strstr(pgl_buf_text(&notes), notes_part) == NULL)
        fail_msg("notes \"%s\", expected \"%s\"", pgl_buf_text(&notes), notes_part == NULL ? "" : notes_part);
    pgl_buf_fini(&notes);
    return config;
}

typedef struct field {
    const char *key;
    bool dense_only, moe_only, optional;
    const char *expected;
    const char *outside; /* JSON of a value out of range */
} field;

static const field FIELDS[] = {
    {"vocab_size", 0, 0, 0, "a whole number from 1 to 16777216", "0"},
    {"hidden_size", 0, 0, 0, "a whole number from 1 to 131072", "131073"},
    {"num_hidden_layers", 0, 0, 0, "a whole number from 1 to 256", "257"},
    {"num_attention_heads", 0, 0, 0, "a whole number from 1 to", "-2"},
    {"num_key_value_heads", 0, 0, 0, "a whole number from 1 to", "0"},
    {"head_dim", 0, 0, 0, "a whole number from 2 to", "1"},
    {"linear_num_key_heads", 0, 0, 0, "a whole number from 1 to", "0"},
    {"linear_num_value_heads", 0, 0, 0, "a whole number from 1 to", "0"},
    {"linear_key_head_dim", 0, 0, 0, "a whole number from 1 to", "0"},
    {"linear_value_head_dim", 0, 0, 0, "a whole number from 1 to", "99999999999999999999"},
    {"linear_conv_kernel_dim", 0, 0, 0, "a whole number from 2 to 16", "1"},
    {"rms_norm_eps", 0, 0, 0, "a number from 1e-12 to 0.1", "0"},
    {"max_position_embeddings", 0, 0, 0, "a whole number from 1 to", "0"},
    {"mtp_num_hidden_layers", 0, 0, 1, "a whole number from 0 to 64", "65"},
    {"intermediate_size", 1, 0, 0, "a whole number from 1 to", "0"},
    {"num_experts", 0, 1, 0, "number", "8193"},
    {"num_experts_per_tok", 0, 1, 0, "a whole number from 1 to 2", "3"},
    {"moe_intermediate_size", 0, 1, 0, "a whole number from 1 to", "0"},
    {"shared_expert_intermediate_size", 0, 1, 0, "a whole number from 1 to", "0"},
};

static void every_size_is_required_and_limited(void **state) {
    (void)state;
    for (int dense = 0; dense < 2; dense++) {
        for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++) {
            const field *f = &FIELDS[i];
            if (dense ? f->moe_only : f->dense_only)
                continue;
            cb *b = cb_new(dense != 0);
            json_object_del(b->text, f->key);
            if (f->optional)
                (void)accepted(b, NULL);
            else
                assert_refused(b, f->key, f->expected, "none");
            json_object_set_new(b->text, f->key, json_null());
            if (!f->optional)
                assert_refused(b, f->key, f->expected, "none");
            json_object_set_new(b->text, f->key, json_string("4"));
            assert_refused(b, f->key, f->expected, "\"4\"");
            json_object_set_new(b->text, f->key, json_true());
            assert_refused(b, f->key, f->expected, "true");
            json_object_set_new(b->text, f->key,
                                json_loads(f->outside, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL));
            assert_refused(b, f->key, f->expected, "");
            if (strcmp(f->key, "rms_norm_eps") != 0) {
                json_object_set_new(b->text, f->key, json_real(4.5));
                assert_refused(b, f->key, f->expected, "4.5");
            }
            cb_free(b);
        }
    }
}

typedef struct setting {
    const char *where; /* "text", "quant", "top", "rope" */
    const char *key;
    const char *value; /* JSON */
    const char *expected, *found;
} setting;

static const setting REFUSED[] = {
    {"quant", "quant_method", "\"gptq\"",
     "quantization_config.quant_method: expected \"eschamoe\" or \"escha\"", "\"gptq\""},
    {"quant", "quant_method", "null", "quant_method: expected", "none"},
    {"quant", "quant_method", "7", "quant_method: expected", "7"},
    {"quant", "format_version", "\"3.0\"", "expected \"2.0\"", "\"3.0\""},
    {"quant", "format_version", "2", "expected \"2.0\"", "2"},
    {"quant", "codebook", "\"other\"", "codebook: expected none (the published codebook)", "\"other\""},
    {"quant", "codebook", "1", "codebook: expected none", "1"},
    {"top", "quantization_config", "null", "an object with quant_method", "none"},
    {"top", "quantization_config", "[]", "an object with quant_method", "[]"},
    {"top", "text_config", "[]", "text_config: expected an object", "[]"},
    {"top", "quantization", "{\"group_size\":64,\"bits\":4}", "converted for MLX", "one"},
    {"text", "quantization", "{\"group_size\":64,\"bits\":4}", "converted for MLX", "one"},
    {"text", "model_type", "\"llama\"", "a Qwen3.5 or Qwen3.6 model", "\"llama\""},
    {"text", "hidden_act", "\"gelu\"", "expected \"silu\"", "\"gelu\""},
    {"text", "attn_output_gate", "false", "expected true", "false"},
    {"text", "norm_topk_prob", "false", "expected true", "false"},
    {"text", "use_sliding_window", "true", "expected false", "true"},
    {"text", "decoder_sparse_step", "2", "expected 1", "2"},
    {"text", "mlp_only_layers", "[0]", "an empty list", "[0]"},
    {"text", "mtp_use_dedicated_embeddings", "true", "expected false", "true"},
    {"text", "attention_bias", "1", "true or false", "1"},
    {"text", "tie_word_embeddings", "\"no\"", "true or false", "\"no\""},
    {"text", "layer_types", "[\"linear_attention\"]", "a list of 2 layer types (num_hidden_layers)", "1"},
    {"text", "layer_types", "[\"linear_attention\",\"full_attention\",\"full_attention\"]",
     "a list of 2 layer types", "3"},
    {"text", "layer_types", "{}", "a list of 2 layer types", "{}"},
    {"text", "layer_types", "[\"linear_attention\",\"sliding_attention\"]",
     "layer_types[1]: expected \"linear_attention\" or \"full_attention\"", "\"sliding_attention\""},
    {"text", "layer_types", "[1,2]", "layer_types[0]: expected", "1"},
    {"text", "full_attention_interval", "0", "a whole number from 1", "0"},
    {"text", "hidden_size", "192", "a multiple of 128", "192"},
    {"text", "moe_intermediate_size", "64", "a multiple of 128", "64"},
    {"text", "num_attention_heads", "3", "a multiple of 2", "3"},
    {"text", "linear_num_value_heads", "3", "a multiple of 2", "3"},
    {"text", "head_dim", "4096", "", ""},
    {"text", "rope_parameters", "[]", "rope_parameters: expected an object", "[]"},
    {"text", "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":4}",
     "rope_scaling.rope_type: expected \"default\"", "\"yarn\""},
    {"text", "rope_scaling", "{\"type\":\"linear\"}", "rope_scaling.type: expected \"default\"",
     "\"linear\""},
    {"rope", "rope_type", "\"yarn\"", "rope_parameters.rope_type: expected \"default\"", "\"yarn\""},
    {"rope", "rope_type", "\"mrope\"", "rope_parameters.rope_type: expected \"default\"", "\"mrope\""},
    {"rope", "rope_type", "5", "rope_parameters.rope_type: expected \"default\"", "5"},
    {"rope", "rope_theta", "null", "rope_theta: expected a number", "none"},
    {"rope", "rope_theta", "\"x\"", "rope_parameters.rope_theta: expected a number", "\"x\""},
    {"rope", "partial_rotary_factor", "null", "partial_rotary_factor: expected a number", "none"},
    {"rope", "partial_rotary_factor", "1.5", "partial_rotary_factor: expected a number", "1.5"},
    {"rope", "partial_rotary_factor", "0.05", "an even number of rotated dimensions", "3.2"},
    {"rope", "partial_rotary_factor", "0.015625", "an even number of rotated dimensions", "1"},
    {"text", "eos_token_id", "32", "token ids below vocab_size 32", "32"},
    {"text", "eos_token_id", "-1", "token ids below vocab_size 32", "-1"},
    {"text", "eos_token_id", "[1,\"a\"]", "token ids below vocab_size 32", "\"a\""},
    {"top", "eos_token_id", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", "at most 16", ""},
};

static void what_the_program_does_not_do_is_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++) {
        const setting *s = &REFUSED[i];
        cb *b = cb_new(false);
        json_t *where = strcmp(s->where, "text") == 0    ? b->text
                        : strcmp(s->where, "quant") == 0 ? b->quant
                        : strcmp(s->where, "top") == 0   ? b->config
                                                         : json_object_get(b->text, "rope_parameters");
        json_object_set_new(where, s->key, json_loads(s->value, JSON_DECODE_ANY, NULL));
        if (strcmp(s->key, "head_dim") == 0) { /* 2 x 4096 x 2 is fine, and so would be 0.25 of it */
            (void)accepted(b, NULL);
            json_object_set_new(b->text, "num_attention_heads", json_integer(4096));
            assert_refused(b, "num_attention_heads x head_dim", "a width of at most 1048576", "33554432");
        } else {
            assert_refused(b, s->key, s->expected, s->found);
        }
        cb_free(b);
    }
}

static void method_and_experts_must_agree(void **state) {
    (void)state;
    cb *b = cb_new(false);
    json_object_set_new(b->text, "num_experts", json_integer(0));
    assert_refused(b, "num_experts", "the number of experts (quant_method is \"eschamoe\")", "0");
    json_object_set_new(b->text, "num_experts", json_integer(2));
    json_object_set_new(b->quant, "quant_method", json_string("escha"));
    assert_refused(b, "num_experts", "quant_method \"escha\" is for dense models", "2");
    cb_free(b);
}

static void text_that_is_no_config_is_refused(void **state) {
    (void)state;
    pgl_config config;
    pgl_error err;
    static const char *const TEXTS[] = {
        "", "[]", "null", "{", "{\"a\":1,\"a\":2}", "{\"text_config\":{\"vocab_size\":1,\"vocab_size\":2}}"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        assert_int_equal(parse_text(TEXTS[i], &config, NULL, &err), PGL_E_FORMAT);
        assert_int_equal(err.status, PGL_E_FORMAT);
        assert_int_equal(strncmp(err.text, "config.json: ", 13), 0);
    }
}

static void flat_and_older_files_give_the_same_sizes(void **state) {
    (void)state;
    cb *b = cb_new(false);
    pgl_config nested = accepted(b, NULL);
    assert_int_equal(nested.rotary_dim, 16);
    assert_true(nested.rope_theta == 1e7);

    json_t *flat = json_copy(b->text);
    json_object_set(flat, "quantization_config", b->quant);
    json_decref(b->config);
    b->config = flat;
    pgl_config other = accepted(b, NULL);
    assert_memory_equal(&other, &nested, sizeof nested);

    json_object_del(flat, "rope_parameters"); /* older: at the top, with or without rope_scaling */
    json_object_set_new(flat, "rope_theta", json_integer(10000000));
    json_object_set_new(flat, "partial_rotary_factor", json_real(0.25));
    other = accepted(b, NULL);
    assert_memory_equal(&other, &nested, sizeof nested);
    json_object_set_new(flat, "rope_scaling",
                        json_loads("{\"type\":\"mrope\",\"mrope_section\":[11,11,10]}", 0, NULL));
    other = accepted(b, NULL);
    assert_memory_equal(&other, &nested, sizeof nested);
    json_object_set_new(flat, "rope_scaling", json_null());

    json_object_del(flat, "layer_types"); /* every fourth by default, every second here */
    other = accepted(b, NULL);
    assert_false(other.full_attention[0] || other.full_attention[1]);
    json_object_set_new(flat, "full_attention_interval", json_integer(2));
    other = accepted(b, NULL);
    assert_memory_equal(&other, &nested, sizeof nested);
    cb_free(b);
}

static void unknown_settings_are_noted_and_known_ones_are_not(void **state) {
    (void)state;
    cb *b = cb_new(false);
    json_object_set_new(b->text, "attention_dropout", json_real(0));
    json_object_set_new(b->text, "dtype", json_string("bfloat16"));
    json_object_set_new(b->text, "new_trick", json_true());
    json_object_set_new(b->config, "surprise", json_integer(1));
    json_object_set_new(b->quant, "novelty", json_integer(1));
    pgl_buf notes = PGL_BUF_INIT;
    pgl_config config;
    assert_int_equal(parse(b, &config, &notes, NULL), PGL_OK);
    assert_string_equal(
        pgl_buf_text(&notes),
        "config.json: quantization_config.novelty: not a setting that this program knows; ignored\n"
        "config.json: text_config.new_trick: not a setting that this program knows; ignored\n"
        "config.json: surprise: not a setting that this program knows; ignored\n");
    pgl_buf_fini(&notes);
    cb_free(b);
}

static void tied_embeddings_are_read_inside_and_outside(void **state) {
    (void)state;
    cb *b = cb_new(false);
    assert_false(accepted(b, NULL).tie_word_embeddings);
    json_object_set_new(b->config, "tie_word_embeddings", json_true());
    assert_true(accepted(b, NULL).tie_word_embeddings);
    json_object_set_new(b->text, "tie_word_embeddings", json_false());
    assert_true(accepted(b, "tie_word_embeddings differs").tie_word_embeddings);
    cb_free(b);
}

static pgl_status generation(const char *text, pgl_config *config, pgl_error *err) {
    return pgl_config_parse_generation(text, strlen(text), "generation_config.json", config, err);
}

static void generation_defaults_are_read_and_end_tokens_merged(void **state) {
    (void)state;
    cb *b = cb_new(false);
    json_object_set_new(b->config, "eos_token_id", json_loads("[9,7]", 0, NULL));
    pgl_config c = accepted(b, NULL);
    pgl_error err;
    const char *text =
        "{\"eos_token_id\":[3,7,3],\"do_sample\":true,\"temperature\":0,\"top_p\":0.95,\"top_k\":20,"
        "\"presence_penalty\":1.5,\"min_p\":null,\"transformers_version\":\"4\"}";
    assert_int_equal(generation(text, &c, &err), PGL_OK);
    assert_int_equal(c.n_eos, 3);
    assert_int_equal(c.eos[0], 7);
    assert_int_equal(c.eos[1], 9);
    assert_int_equal(c.eos[2], 3);
    assert_true(c.do_sample && c.has_temperature && c.temperature == 0 && c.has_top_p && c.top_p == 0.95);
    assert_true(c.has_top_k && c.top_k == 20 && c.has_presence_penalty && c.presence_penalty == 1.5);
    assert_false(c.has_min_p || c.has_repetition_penalty);

    static const struct {
        const char *text, *part;
    } WRONG[] = {
        {"[]", "expected a JSON object"},
        {"{\"eos_token_id\":32}", "eos_token_id: expected token ids below vocab_size 32, found 32"},
        {"{\"temperature\":-1}", "temperature: expected a number from 0 to 100, found -1"},
        {"{\"temperature\":\"hot\"}", "temperature: expected a number from 0 to 100, found \"hot\""},
        {"{\"top_p\":2}", "top_p: expected a number from 0 to 1, found 2"},
        {"{\"top_k\":1.5}", "top_k: expected a whole number, found 1.5"},
        {"{\"min_p\":-0.5}", "min_p: expected"},
        {"{\"repetition_penalty\":0}", "repetition_penalty: expected"},
        {"{\"presence_penalty\":[]}", "presence_penalty: expected"},
        {"{\"do_sample\":1}", "do_sample: expected true or false, found 1"},
    };
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        assert_int_equal(generation(WRONG[i].text, &c, &err), PGL_E_FORMAT);
        if (strstr(err.text, WRONG[i].part) == NULL || strncmp(err.text, "generation_config.json: ", 24) != 0)
            fail_msg("message \"%s\" lacks \"%s\"", err.text, WRONG[i].part);
    }
    cb_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_required_and_limited),
        cmocka_unit_test(what_the_program_does_not_do_is_refused_by_name),
        cmocka_unit_test(method_and_experts_must_agree),
        cmocka_unit_test(text_that_is_no_config_is_refused),
        cmocka_unit_test(flat_and_older_files_give_the_same_sizes),
        cmocka_unit_test(unknown_settings_are_noted_and_known_ones_are_not),
        cmocka_unit_test(tied_embeddings_are_read_inside_and_outside),
        cmocka_unit_test(generation_defaults_are_read_and_end_tokens_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
