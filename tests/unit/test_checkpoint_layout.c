/* The layouts that a checkpoint may have: files, index, prefixes, types, parts that are optional. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint_builder.h"

static const pgl_checkpoint_options STRICT = {.strict = true, .want_draft = true};
static const pgl_checkpoint_options NO_DRAFT = {.strict = true, .want_draft = false};

static pgl_checkpoint *open_with(const cb *b, const pgl_checkpoint_options *options) {
    pgl_error err;
    pgl_checkpoint *c = NULL;
    cb_write(b);
    if (pgl_checkpoint_open(b->directory, options, &c, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return c;
}

static void assert_opens(const cb *b) {
    pgl_checkpoint_close(open_with(b, &STRICT));
}

static void assert_refused(const cb *b, const pgl_checkpoint_options *options, const char *const *parts) {
    pgl_error err = {.text = ""};
    pgl_checkpoint *c = NULL;
    cb_write(b);
    if (pgl_checkpoint_open(b->directory, options, &c, &err) == PGL_OK)
        fail_msg("opened although \"%s\" is wrong", parts[0]);
    for (; *parts != NULL; parts++)
        if (strstr(err.text, *parts) == NULL)
            fail_msg("message \"%s\" lacks \"%s\"", err.text, *parts);
}

#define REFUSED(b, ...) assert_refused(b, NULL, (const char *const[]){__VA_ARGS__, NULL})
#define REFUSED_STRICT(b, ...) assert_refused(b, &STRICT, (const char *const[]){__VA_ARGS__, NULL})

static void one_file_needs_no_index(void **state) {
    (void)state;
    cb *b = cb_new(false);
    b->single = true;
    assert_opens(b);
    cb_find(b, "model.language_model.norm.weight")->removed = true;
    REFUSED(b, "model.safetensors: model.language_model.norm.weight: expected F16, BF16 or F32 [128], found "
               "no such tensor");
    cb_free(b);
}

static void every_prefix_is_understood(void **state) {
    (void)state;
    static const char *const PREFIXES[] = {"model.language_model.", "language_model.model.", "model."};
    for (size_t i = 0; i < 3; i++) {
        for (int dense = 0; dense < 2; dense++) {
            cb *b = cb_new_with(dense != 0, PREFIXES[i]);
            assert_opens(b);
            char name[96];
            snprintf(name, sizeof name, "%slayers.1.input_layernorm.weight", PREFIXES[i]);
            cb_find(b, name)->removed = true;
            REFUSED(b, name, "found no such tensor"); /* named as it would be named here */
            cb_free(b);
        }
    }
    cb *b = cb_new_with(false, "transformer.");
    REFUSED(b, "embed_tokens: expected", "found no such tensor");
    cb_free(b);
}

static void odd_addresses_and_gaps_are_allowed(void **state) {
    (void)state;
    cb *b = cb_new(false);
    for (size_t i = 0; i < b->n_tensors; i++)
        b->tensors[i].gap = 1 + i % 5;
    assert_opens(b);
    cb_free(b);
}

/* Every float type in every place that says "16-bit", and a plain weight wherever an int8 pair may stand. */
static void every_type_is_accepted_where_it_may_stand(void **state) {
    (void)state;
    static const char *const TYPES[] = {"F16", "BF16", "F32"};
    static const pgl_dtype DTYPES[] = {PGL_F16, PGL_BF16, PGL_F32};
    for (size_t k = 0; k < 3; k++) {
        cb *b = cb_new(false);
        for (size_t i = 0; i < b->n_tensors; i++) {
            cb_tensor *t = &b->tensors[i];
            char *leaf = strrchr(t->name, '.');
            if (strcmp(leaf, ".weight_int8") == 0)
                strcpy(leaf, ".weight");
            if (strcmp(leaf, ".weight_scale") == 0)
                t->removed = true;
            else if (strncmp(leaf, ".escha_", 7) != 0)
                strcpy(t->dtype, TYPES[k]);
        }
        pgl_checkpoint *c = open_with(b, &STRICT);
        const pgl_weights *w = pgl_checkpoint_weights(c);
        assert_int_equal(w->embed.kind, PGL_LINEAR_PLAIN);
        assert_int_equal(w->embed.dtype, DTYPES[k]);
        assert_int_equal(w->head.dtype, DTYPES[k]);
        assert_int_equal(w->layers[0].delta.out_proj.dtype, DTYPES[k]);
        assert_int_equal(w->layers[0].delta.a_log.dtype, DTYPES[k]);
        assert_true(pgl_read_f32(w->layers[0].delta.a_log.data, DTYPES[k], 1) == 1.0F);
        assert_int_equal(w->layers[1].attention.q_norm.dtype, DTYPES[k]);
        assert_int_equal(w->draft.fc.dtype, DTYPES[k]);
        pgl_checkpoint_close(c);
        cb_free(b);
    }
    cb *b = cb_new(false);
    strcpy(cb_find(b, "lm_head.weight_scale")->dtype, "F32");
    pgl_checkpoint *c = open_with(b, &STRICT);
    assert_int_equal(pgl_checkpoint_weights(c)->head.scale_dtype, PGL_F32);
    pgl_checkpoint_close(c);
    cb_free(b);
}

static void a_trellis_code_may_stand_for_any_linear(void **state) {
    (void)state;
    cb *b = cb_new(false); /* a coded linear without experts inside a mixture export, and a coded head */
    cb_find(b, "model.language_model.layers.1.self_attn.q_proj.weight_int8")->removed = true;
    cb_find(b, "model.language_model.layers.1.self_attn.q_proj.weight_scale")->removed = true;
    b->dense = true;
    cb_linear(b, "model.language_model.layers.1.", "self_attn.q_proj", 256, 128);
    b->dense = false;
    pgl_checkpoint *c = open_with(b, &STRICT);
    assert_int_equal(pgl_checkpoint_weights(c)->layers[1].attention.q_proj.kind, PGL_LINEAR_CODED);
    pgl_checkpoint_close(c);
    cb_free(b);

    b = cb_new(true); /* never the embedding: its rows are looked up */
    cb_find(b, "model.language_model.embed_tokens.weight_int8")->removed = true;
    cb_find(b, "model.language_model.embed_tokens.weight_scale")->removed = true;
    cb_linear(b, "model.language_model.", "embed_tokens", 128, 128);
    REFUSED(b, "model.language_model.embed_tokens: expected weight_int8 [32, 128] with weight_scale [32], or "
               "a 16-bit "
               "weight [32, 128], found no such tensor");
    cb_free(b);
}

static void attention_bias_is_needed_when_the_config_says_so(void **state) {
    (void)state;
    static const char *const LEAVES[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    static const uint64_t OUT[] = {256, 128, 128, 128};
    cb *b = cb_new(false);
    json_object_set_new(b->text, "attention_bias", json_true());
    REFUSED(b, "layers.1.self_attn.q_proj.bias: expected F16, BF16 or F32 [256], found no such tensor");
    for (size_t i = 0; i < 4; i++) {
        cb_add(b, "BF16", CB_DIMS(OUT[i]), "model.language_model.layers.1.self_attn.%s.bias", LEAVES[i]);
        cb_add(b, "F32", CB_DIMS(OUT[i]), "mtp.layers.0.self_attn.%s.bias", LEAVES[i]);
    }
    pgl_checkpoint *c = open_with(b, &STRICT);
    assert_int_equal(pgl_checkpoint_weights(c)->layers[1].attention.o_proj.bias.dtype, PGL_BF16);
    assert_int_equal(pgl_checkpoint_weights(c)->layers[1].attention.q_proj.bias.n, 256);
    pgl_checkpoint_close(c);
    json_object_set_new(b->text, "attention_bias", json_false());
    REFUSED(b, ".bias", "expected no such tensor in this model");
    cb_free(b);
}

static void the_head_may_be_the_embedding(void **state) {
    (void)state;
    cb *b = cb_new(false);
    json_object_set_new(b->text, "tie_word_embeddings", json_true());
    pgl_checkpoint *c = open_with(b, &STRICT); /* a head that is there is used */
    assert_ptr_not_equal(pgl_checkpoint_weights(c)->head.data, pgl_checkpoint_weights(c)->embed.data);
    pgl_checkpoint_close(c);
    cb_find(b, "lm_head.weight_int8")->removed = true;
    REFUSED(
        b,
        "lm_head.weight_int8: expected I8 [32, 128], found no such tensor"); /* half a head is no tied one */
    cb_find(b, "lm_head.weight_scale")->removed = true;
    c = open_with(b, &STRICT);
    assert_ptr_equal(pgl_checkpoint_weights(c)->head.data, pgl_checkpoint_weights(c)->embed.data);
    pgl_checkpoint_close(c);
    json_object_set_new(b->text, "tie_word_embeddings", json_false());
    REFUSED(b, ": lm_head: expected weight_int8 [32, 128] with weight_scale [32]", "found no such tensor");
    cb_free(b);
}

static void remove_draft(cb *b) {
    for (size_t i = 0; i < b->n_tensors; i++)
        if (strncmp(b->tensors[i].name, "mtp.", 4) == 0)
            b->tensors[i].removed = true;
}

static void assert_draft(const cb *b, const pgl_checkpoint_options *options, bool present, const char *note) {
    pgl_checkpoint *c = open_with(b, options);
    assert_int_equal(pgl_checkpoint_weights(c)->draft.present, present);
    const char *notes = pgl_checkpoint_notes(c);
    if (note == NULL ? notes[0] != 0 : strstr(notes, note) == NULL)
        fail_msg("notes \"%s\", expected \"%s\"", notes, note == NULL ? "" : note);
    pgl_checkpoint_close(c);
}

static void the_draft_head_is_optional(void **state) {
    (void)state;
    cb *b = cb_new(false);
    assert_draft(b, &STRICT, true, NULL);
    assert_draft(b, &NO_DRAFT, false, "skipped 17 tensors of the draft head: it is not wanted");
    json_object_set_new(b->text, "mtp_num_hidden_layers", json_integer(0));
    assert_draft(b, &STRICT, false, "mtp_num_hidden_layers is 0");
    json_object_set_new(b->text, "mtp_num_hidden_layers", json_integer(2));
    assert_draft(b, &STRICT, false, "mtp_num_hidden_layers is above 1");
    json_object_del(b->text, "mtp_num_hidden_layers"); /* then the tensors decide */
    assert_draft(b, &STRICT, true, NULL);
    remove_draft(b);
    assert_draft(b, &STRICT, false, NULL);
    json_object_set_new(b->text, "mtp_num_hidden_layers", json_integer(1));
    assert_draft(b, &STRICT, false, "mtp_num_hidden_layers is 1, but there is no draft head");
    cb_free(b);

    b = cb_new(true); /* in its own folder, with names that repeat "mtp." and with names that do not */
    assert_draft(b, &STRICT, true, NULL);
    assert_draft(b, &NO_DRAFT, false, NULL);
    for (size_t i = 0; i < b->n_tensors; i++)
        if (strncmp(b->tensors[i].name, "mtp.", 4) == 0)
            memmove(b->tensors[i].name, b->tensors[i].name + 4, strlen(b->tensors[i].name + 4) + 1);
    assert_draft(b, &STRICT, true, NULL);
    cb_find(b, "fc.weight")->dims[0] = 64;
    REFUSED(b,
            "mtp/model.safetensors: fc.weight: expected F16, BF16 or F32 [128, 256], found BF16 [64, 256]");
    cb_free(b);
}

static void further_layers_of_the_draft_head_are_skipped(void **state) {
    (void)state;
    cb *b = cb_new(false);
    cb_add(b, "F16", CB_DIMS(128), "mtp.layers.1.input_layernorm.weight");
    cb_add(b, "F16", CB_DIMS(128), "mtp.layers.12.mlp.experts.down_proj.escha_rout");
    assert_draft(b, NULL, true,
                 "mtp.layers: expected one layer of the draft head, found 2 tensors of further ones");
    REFUSED_STRICT(b, "expected one layer of the draft head, found 2 tensors");
    cb_free(b);
}

static void the_draft_head_may_bring_its_own_experts(void **state) {
    (void)state;
    cb *b = cb_new(false);
    cb_coded(b, "mtp.layers.0.mlp.experts.gate_up_proj", 2, 128, 256, 4);
    REFUSED(b, "mtp.layers.0.mlp.experts.down_proj.escha_code: expected I16 [2, 8, 8, 32] (the last is 16 "
               "K), found no "
               "such tensor");
    cb_coded(b, "mtp.layers.0.mlp.experts.down_proj", 2, 128, 128, 4);
    pgl_checkpoint *c = open_with(b, &STRICT);
    const pgl_draft_weights *d = &pgl_checkpoint_weights(c)->draft;
    assert_false(d->borrows_experts);
    assert_int_equal(d->layer.moe.gate_up.k, 4);
    pgl_checkpoint_close(c);
    cb_free(b);
}

static void the_vision_tower_is_skipped_and_said_so(void **state) {
    (void)state;
    cb *b = cb_new(false);
    cb_add(b, "F64", CB_DIMS(3, 4, 5, 6, 7), "model.visual.patch_embed.proj.weight");
    cb_add(b, "U8", CB_DIMS(3), "visual.escha_odd");
    pgl_checkpoint *c = open_with(b, &STRICT);
    assert_non_null(strstr(pgl_checkpoint_notes(c), "skipped 2 tensors of the vision tower"));
    size_t unused = 0;
    for (size_t i = 0; i < pgl_checkpoint_n_tensors(c); i++)
        unused += !pgl_checkpoint_tensor(c, i).used;
    assert_int_equal(unused, 2);
    pgl_checkpoint_close(c);
    cb_free(b);
}

static json_t *weight_map(json_t *index) {
    return json_object_get(index, "weight_map");
}

static void drop_entry(json_t *index) {
    json_object_del(weight_map(index), "lm_head.weight_int8");
}

static void add_entry(json_t *index) {
    json_object_set_new(weight_map(index), "extra.weight", json_string(CB_FILES[1]));
}

static void move_entry(json_t *index) {
    json_t *file = json_object_get(weight_map(index), "lm_head.weight_int8");
    json_object_set_new(
        weight_map(index), "lm_head.weight_int8",
        json_string(strcmp(json_string_value(file), CB_FILES[0]) == 0 ? CB_FILES[1] : CB_FILES[0]));
}

static void leave_directory(json_t *index) {
    json_object_set_new(weight_map(index), "lm_head.weight_int8", json_string("../model.safetensors"));
}

static void other_kind_of_file(json_t *index) {
    json_object_set_new(weight_map(index), "lm_head.weight_int8", json_string("model.bin"));
}

static void number_for_file(json_t *index) {
    json_object_set_new(weight_map(index), "lm_head.weight_int8", json_integer(1));
}

static void empty_map(json_t *index) {
    json_object_clear(weight_map(index));
}

static void no_map(json_t *index) {
    json_object_clear(index);
}

static void wrong_total(json_t *index) {
    json_object_set_new(json_object_get(index, "metadata"), "total_size", json_integer(12345));
}

static void the_index_is_checked_both_ways(void **state) {
    (void)state;
    static const char INDEX[] = "model.safetensors.index.json: ";
    cb *b = cb_new(false);
    b->edit_index = drop_entry;
    REFUSED(b, "lm_head.weight_int8: expected an entry for it in model.safetensors.index.json, found none",
            "model-0000");
    b->edit_index = add_entry;
    REFUSED(b, INDEX, "extra.weight: expected in ", CB_FILES[1], "found no such tensor there");
    b->edit_index = move_entry;
    REFUSED(b, INDEX, "lm_head.weight_int8: expected in model-0000", "found in model-0000");
    b->edit_index = leave_directory;
    REFUSED(b, INDEX,
            "lm_head.weight_int8: expected the name of a .safetensors file in the same directory, found "
            "\"../model.safetensors\"");
    b->edit_index = other_kind_of_file;
    REFUSED(b, INDEX, "lm_head.weight_int8: expected the name of a .safetensors file", "\"model.bin\"");
    b->edit_index = number_for_file;
    REFUSED(b, INDEX, "lm_head.weight_int8: expected a file name, found something else");
    b->edit_index = empty_map;
    REFUSED(b, INDEX, "weight_map: expected an object with tensor names, found an empty one");
    b->edit_index = no_map;
    REFUSED(b, INDEX, "weight_map: expected an object with tensor names, found none");
    b->edit_index = wrong_total;
    REFUSED_STRICT(b, INDEX, "metadata.total_size: expected ", "found 12345");
    pgl_checkpoint *c = open_with(b, NULL);
    assert_non_null(strstr(pgl_checkpoint_notes(c), "metadata.total_size: expected "));
    pgl_checkpoint_close(c);
    cb_free(b);

    b = cb_new(false);
    b->no_file[1] = true;
    REFUSED(b, INDEX, "expected the file model-00002-of-00002.safetensors beside it, found none");
    cb_free(b);
}

static void a_single_file_beside_an_index_is_not_read(void **state) {
    (void)state;
    cb *b = cb_new(false);
    cb_write_file(b, "model.safetensors", "old", 3);
    pgl_checkpoint *c = open_with(b, NULL);
    assert_string_equal(pgl_checkpoint_notes(c), "model.safetensors: expected to be named in "
                                                 "model.safetensors.index.json, found no entry; not read\n");
    pgl_checkpoint_close(c);
    REFUSED_STRICT(b, "model.safetensors: expected to be named in model.safetensors.index.json");
    cb_free(b);
}

static void a_broken_index_is_refused(void **state) {
    (void)state;
    static const char *const TEXTS[] = {"", "{", "[]",
                                        "{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"x.safetensors\"}}"};
    cb *b = cb_new(false);
    cb_write(b);
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        cb_write_file(b, "model.safetensors.index.json", TEXTS[i], strlen(TEXTS[i]));
        pgl_error err;
        pgl_checkpoint *c;
        assert_int_equal(pgl_checkpoint_open(b->directory, NULL, &c, &err), PGL_E_FORMAT);
        assert_int_equal(strncmp(err.text, "model.safetensors.index.json: ", 30), 0);
    }
    cb_free(b);
}

/* The same tensor in two shards, both of which say that it is theirs. */
static void a_tensor_in_two_shards_is_refused(void **state) {
    (void)state;
    cb *b = cb_new(false);
    cb_tensor *t = cb_add(b, "F16", CB_DIMS(128), "model.language_model.norm.weight");
    if (t->file == cb_find(b, t->name)->file)
        t->file = 1 - t->file;
    REFUSED(b, "model.language_model.norm.weight: expected in ", "found in ");
    cb_free(b);
}

static void layer_meta_is_a_cross_check(void **state) {
    (void)state;
    cb *b = cb_new(false);
    json_object_set_new(b->quant, "layer_meta",
                        json_loads("{\"model.language_model.layers.0.mlp.experts.down_proj\":"
                                   "{\"K\":3,\"bits\":2.0,\"in_features\":128,\"out_features\":128},"
                                   "\"layers.1.mlp.experts.gate_up_proj\":{\"K\":2}}",
                                   0, NULL));
    assert_opens(b); /* bits may disagree */
    json_t *one =
        json_object_get(json_object_get(b->quant, "layer_meta"), "layers.1.mlp.experts.gate_up_proj");
    json_object_set_new(one, "K", json_integer(3));
    REFUSED_STRICT(
        b, "config.json: layer_meta: layers.1.mlp.experts.gate_up_proj: K: expected 2 as in model-0000",
        "found 3");
    pgl_checkpoint *c = open_with(b, NULL);
    assert_int_equal(pgl_checkpoint_weights(c)->layers[1].moe.gate_up.k, 2);
    assert_non_null(strstr(pgl_checkpoint_notes(c), "K: expected 2"));
    pgl_checkpoint_close(c);
    json_object_set_new(one, "K", json_integer(2));
    json_object_set_new(one, "out_features", json_integer(512));
    REFUSED_STRICT(b, "out_features: expected 256", "found 512");
    json_object_clear(json_object_get(b->quant, "layer_meta"));
    json_object_set_new(json_object_get(b->quant, "layer_meta"), "layers.9.nothing", json_object());
    REFUSED_STRICT(b, "layer_meta: layers.9.nothing: expected a coded linear of that name, found none");
    cb_free(b);
}

static void what_is_no_checkpoint_is_named(void **state) {
    (void)state;
    pgl_error err;
    pgl_checkpoint *c;
    assert_int_equal(pgl_checkpoint_open("/nowhere", NULL, &c, &err), PGL_E_NOT_FOUND);
    assert_string_equal(err.text, "/nowhere: expected the directory of a checkpoint, found nothing");
    assert_int_equal(pgl_checkpoint_open("/dev/null", NULL, &c, &err), PGL_E_NOT_FOUND);
    cb *b = cb_new(false);
    assert_int_equal(pgl_checkpoint_open(b->directory, NULL, &c, &err), PGL_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "expected a checkpoint with config.json, found no such file"));
    cb_write_json(b, "config.json", b->config);
    assert_int_equal(pgl_checkpoint_open(b->directory, NULL, &c, &err), PGL_E_NOT_FOUND);
    assert_non_null(
        strstr(err.text, "expected model.safetensors or model.safetensors.index.json, found neither"));
    cb_write(b);
    cb_write_file(b, "generation_config.json", "{", 1);
    assert_int_equal(pgl_checkpoint_open(b->directory, NULL, &c, &err), PGL_E_FORMAT);
    assert_int_equal(strncmp(err.text, "generation_config.json: ", 24), 0);
    cb_free(b);
    pgl_checkpoint_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file_needs_no_index),
        cmocka_unit_test(every_prefix_is_understood),
        cmocka_unit_test(odd_addresses_and_gaps_are_allowed),
        cmocka_unit_test(every_type_is_accepted_where_it_may_stand),
        cmocka_unit_test(a_trellis_code_may_stand_for_any_linear),
        cmocka_unit_test(attention_bias_is_needed_when_the_config_says_so),
        cmocka_unit_test(the_head_may_be_the_embedding),
        cmocka_unit_test(the_draft_head_is_optional),
        cmocka_unit_test(further_layers_of_the_draft_head_are_skipped),
        cmocka_unit_test(the_draft_head_may_bring_its_own_experts),
        cmocka_unit_test(the_vision_tower_is_skipped_and_said_so),
        cmocka_unit_test(the_index_is_checked_both_ways),
        cmocka_unit_test(a_single_file_beside_an_index_is_not_read),
        cmocka_unit_test(a_broken_index_is_refused),
        cmocka_unit_test(a_tensor_in_two_shards_is_refused),
        cmocka_unit_test(layer_meta_is_a_cross_check),
        cmocka_unit_test(what_is_no_checkpoint_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
