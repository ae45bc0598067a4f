/* Every tensor of small checkpoints of both kinds is removed, renamed, reshaped, retyped, cut and contradicted; each
 * refusal must name the tensor, the file, what was expected and what was found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"
#include "checkpoint_builder.h"

static const pgl_checkpoint_options STRICT = {.strict = true, .want_draft = true};

static pgl_checkpoint *open_written(const cb *b, const pgl_checkpoint_options *options) {
    pgl_error err;
    pgl_checkpoint *c = NULL;
    if (pgl_checkpoint_open(b->directory, options, &c, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return c;
}

/* The message must hold every part; the last is NULL. */
static void assert_refused(const cb *b, const pgl_checkpoint_options *options, const char *const *parts) {
    pgl_error err = {.text = ""};
    pgl_checkpoint *c = (pgl_checkpoint *)&err;
    if (pgl_checkpoint_open(b->directory, options, &c, &err) == PGL_OK)
        fail_msg("opened although \"%s\" is wrong", parts[0]);
    assert_null(c);
    assert_true(err.status == PGL_E_FORMAT || err.status == PGL_E_UNSUPPORTED);
    for (; *parts != NULL; parts++)
        if (strstr(err.text, *parts) == NULL)
            fail_msg("message \"%s\" lacks \"%s\"", err.text, *parts);
}

#define REFUSED(b, ...) assert_refused(b, NULL, (const char *const[]){__VA_ARGS__, NULL})
#define REFUSED_STRICT(b, ...) assert_refused(b, &STRICT, (const char *const[]){__VA_ARGS__, NULL})

static void both_kinds_open_strictly(void **state) {
    (void)state;
    for (int dense = 0; dense < 2; dense++) {
        cb *b = cb_new(dense != 0);
        cb_write(b);
        pgl_checkpoint *c = open_written(b, &STRICT);
        assert_string_equal(pgl_checkpoint_notes(c), "");
        for (size_t i = 0; i < pgl_checkpoint_n_tensors(c); i++)
            assert_true(pgl_checkpoint_tensor(c, i).used);
        assert_int_equal(pgl_checkpoint_n_tensors(c), b->n_tensors);
        assert_int_equal(pgl_checkpoint_check_values(c, NULL, NULL, NULL), PGL_OK);
        const pgl_weights *w = pgl_checkpoint_weights(c);
        assert_true(w->draft.present);
        assert_int_equal(w->draft.borrows_experts, !dense);
        assert_int_equal(w->layers[0].moe.up.kind, dense ? PGL_LINEAR_CODED : PGL_LINEAR_NONE);
        assert_int_equal(w->layers[0].delta.in_proj_qkv.kind, dense ? PGL_LINEAR_CODED : PGL_LINEAR_INT8);
        if (dense) {
            assert_int_equal(w->layers[0].moe.gate.coded.k, 2);
            assert_int_equal(w->layers[0].moe.up.coded.k, 3);
            assert_int_equal(w->layers[0].moe.up.coded.n_experts, 1);
            assert_non_null(w->layers[0].moe.up.coded.bias);
            assert_int_equal(w->draft.layer.moe.gate.kind, PGL_LINEAR_PLAIN);
        }
        pgl_checkpoint_close(c);
        cb_free(b);
    }
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

static bool is_optional(const cb *b, const cb_tensor *t) {
    return ends_with(t->name, ".escha_s_in") || ends_with(t->name, ".escha_s_out") ||
           ends_with(t->name, ".escha_config") || (b->dense && ends_with(t->name, ".bias"));
}

/* What a message about a tensor that is missing must hold: a plain weight could be another form of the same linear, so
 * that the message names the linear. */
static const char *missing_name(const cb_tensor *t, char *out, size_t size) {
    snprintf(out, size, "%s", t->name);
    if (t->n_dims == 2 && ends_with(t->name, ".weight"))
        out[strlen(out) - 7] = 0;
    return out;
}

/* Runs one way of breaking over every tensor of both kinds; only the file that holds it is written anew. */
static void for_every_tensor(void (*one)(cb *b, cb_tensor *t)) {
    for (int dense = 0; dense < 2; dense++) {
        cb *b = cb_new(dense != 0);
        cb_write(b);
        for (unsigned file = 0; file < (dense ? 3u : 2u); file++) {
            b->only = (int)file + 1;
            for (size_t i = 0; i < b->n_tensors; i++) {
                cb_tensor kept = b->tensors[i];
                if (kept.file != file)
                    continue;
                one(b, &b->tensors[i]);
                b->tensors[i] = kept;
            }
            cb_write(b);
        }
        cb_free(b);
    }
}

static void removed(cb *b, cb_tensor *t) {
    char name[200];
    t->removed = true;
    cb_write(b);
    if (is_optional(b, t)) {
        pgl_checkpoint_close(open_written(b, &STRICT));
        return;
    }
    REFUSED(b, "model.safetensors.index.json: ", missing_name(t, name, sizeof name), ": expected ",
            ", found no such tensor");
}

static void a_removed_tensor_is_missed_by_name(void **state) {
    (void)state;
    for_every_tensor(removed);
}

static void renamed(cb *b, cb_tensor *t) {
    char name[200], old[200];
    bool optional = is_optional(b, t);
    missing_name(t, old, sizeof old);
    strcat(t->name, "_x");
    snprintf(name, sizeof name, "%s", t->name);
    cb_write(b);
    if (strstr(name, "escha_") != NULL)
        REFUSED(b, CB_FILES[t->file], name, "expected one of escha_code", "found escha_");
    else if (optional)
        REFUSED(b, CB_FILES[t->file], name, "expected no such tensor in this model", "found F16 [");
    else
        REFUSED(b, old, ": expected ", ", found no such tensor");
}

static void a_renamed_tensor_is_missed_or_refused_by_name(void **state) {
    (void)state;
    for_every_tensor(renamed);
}

static void expect_shape(cb *b, cb_tensor *t) {
    char found[PGL_SHAPE_TEXT + 32], shape[PGL_SHAPE_TEXT];
    cb_write(b);
    pgl_shape_text(t->n_dims, t->dims, shape);
    snprintf(found, sizeof found, "found %s %s", t->dtype, shape);
    if (ends_with(t->name, ".escha_config"))
        REFUSED_STRICT(b, CB_FILES[t->file], t->name, "expected I32 [", found);
    else if (ends_with(t->name, ".escha_code") && t->n_dims == (b->dense ? 3 : 4) &&
             t->dims[t->n_dims - 1] % 16 != 0)
        REFUSED(b, CB_FILES[t->file], t->name,
                "expected a last dimension of 16 K with K from 1 to 8, found ");
    else
        REFUSED(b, CB_FILES[t->file], t->name, ": expected ", found);
}

static void longer(cb *b, cb_tensor *t) {
    t->dims[t->n_dims - 1]++;
    expect_shape(b, t);
}

static void shorter_in_front(cb *b, cb_tensor *t) {
    t->dims[0]--;
    expect_shape(b, t);
}

static void deeper(cb *b, cb_tensor *t) {
    t->dims[t->n_dims++] = 1;
    expect_shape(b, t);
}

static void turned(cb *b, cb_tensor *t) {
    if (t->n_dims < 2 || t->dims[0] == t->dims[1])
        return;
    uint64_t first = t->dims[0];
    t->dims[0] = t->dims[1];
    t->dims[1] = first;
    expect_shape(b, t);
}

static void a_wrong_shape_is_refused_with_both_shapes(void **state) {
    (void)state;
    for_every_tensor(longer);
    for_every_tensor(shorter_in_front);
    for_every_tensor(deeper);
    for_every_tensor(turned);
}

static void retype(cb *b, cb_tensor *t, const char *dtype) {
    if (strcmp(t->dtype, dtype) == 0)
        return;
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    expect_shape(b, t);
}

static void to_i32(cb *b, cb_tensor *t) {
    retype(b, t, "I32");
}

static void to_foreign(cb *b, cb_tensor *t) {
    retype(b, t, "F64");
}

/* Where only some float types will do: rin, rout and bias are F16, s_in and s_out F32, an int8 scale F16 or F32. */
static void to_bf16(cb *b, cb_tensor *t) {
    static const char *const FIXED[] = {".escha_rin",    ".escha_rout",  ".escha_s_in", ".escha_s_out",
                                        ".weight_scale", ".weight_int8", ".bias",       ".escha_code"};
    for (size_t i = 0; i < sizeof FIXED / sizeof FIXED[0]; i++)
        if (ends_with(t->name, FIXED[i]))
            retype(b, t, "BF16");
}

static void a_wrong_type_is_refused_with_both_types(void **state) {
    (void)state;
    for_every_tensor(to_i32);
    for_every_tensor(to_foreign);
    for_every_tensor(to_bf16);
}

static void beginning_early(cb *b, cb_tensor *t) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        elements *= t->dims[i];
    t->shift_end = (int64_t)(elements * cb_size(t->dtype)) * -1 - 1;
    cb_write(b);
    REFUSED(b, CB_FILES[t->file], t->name);
}

static void too_few_bytes(cb *b, cb_tensor *t) {
    t->shift_end = -1;
    cb_write(b);
    REFUSED(b, CB_FILES[t->file], t->name, ": expected ", " bytes for ", "found data_offsets of ");
}

static void far_away(cb *b, cb_tensor *t) {
    t->shift_begin = t->shift_end = 1 << 24;
    cb_write(b);
    REFUSED(b, CB_FILES[t->file], t->name, "data_offsets end at ", "expected at most ", "found");
}

static void offsets_that_contradict_are_refused(void **state) {
    (void)state;
    for_every_tensor(beginning_early);
    for_every_tensor(too_few_bytes);
    for_every_tensor(far_away);
}

/* A tensor on the bytes of its neighbour. */
static void overlapping_tensors_are_refused(void **state) {
    (void)state;
    cb *b = cb_new(false);
    cb_tensor *t = cb_find(b, "model.language_model.layers.1.input_layernorm.weight");
    t->shift_begin = t->shift_end = -2;
    cb_write(b);
    REFUSED(b, CB_FILES[t->file], t->name, "expected bytes of its own, found data_offsets", "overlap");
    cb_free(b);
}

static void number_contradicts(cb *b, cb_tensor *t) {
    if (!ends_with(t->name, ".escha_config"))
        return;
    for (uint64_t i = 0; i < t->dims[0]; i++) {
        t->numbers[i]++;
        cb_write(b);
        char found[64], element[32];
        snprintf(found, sizeof found, "expected %d, found %d", t->numbers[i] - 1, t->numbers[i]);
        snprintf(element, sizeof element, "element %u", (unsigned)i);
        pgl_checkpoint *c = open_written(b, NULL);
        assert_non_null(strstr(pgl_checkpoint_notes(c), t->name));
        assert_non_null(strstr(pgl_checkpoint_notes(c), found));
        pgl_checkpoint_close(c);
        REFUSED_STRICT(b, CB_FILES[t->file], t->name, element, found);
        t->numbers[i]--;
    }
}

static void escha_config_only_warns_unless_strict(void **state) {
    (void)state;
    for_every_tensor(number_contradicts);
}

static void not_finite(cb *b, cb_tensor *t) {
    if (strcmp(t->dtype, "F16") != 0 && strcmp(t->dtype, "BF16") != 0 && strcmp(t->dtype, "F32") != 0)
        return;
    t->bad_value = true;
    cb_write(b);
    pgl_checkpoint *c = open_written(b, NULL);
    pgl_error err = {.text = ""};
    assert_int_equal(pgl_checkpoint_check_values(c, NULL, NULL, &err), PGL_E_FORMAT);
    pgl_checkpoint_close(c);
    assert_non_null(strstr(err.text, t->name));
    assert_non_null(strstr(err.text, CB_FILES[t->file]));
    assert_non_null(strstr(err.text, "expected finite numbers, found "));
    uint64_t elements = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        elements *= t->dims[i];
    char element[64];
    snprintf(element, sizeof element, "at element %u of %u", (unsigned)elements - 1, (unsigned)elements);
    assert_non_null(strstr(err.text, element));
}

static void a_number_that_is_not_finite_is_found_in_every_tensor(void **state) {
    (void)state;
    for_every_tensor(not_finite);
}

static void cut_files_are_refused(void **state) {
    (void)state;
    for (int dense = 0; dense < 2; dense++) {
        for (unsigned f = 0; f < (dense ? 3u : 2u); f++) {
            cb *b = cb_new(dense != 0);
            b->cut[f] = 1;
            cb_write(b);
            REFUSED(b, CB_FILES[f], "data_offsets end at ", "expected at most the ", "is it truncated");
            char *path = pgl_fs_join(b->directory, CB_FILES[f]);
            assert_int_equal(truncate(path, 100), 0);
            REFUSED(b, CB_FILES[f], "expected a header of ", "found a file of 100 bytes");
            assert_int_equal(truncate(path, 5), 0);
            REFUSED(b, CB_FILES[f], "expected a safetensors file, found only 5 bytes");
            assert_int_equal(truncate(path, 0), 0);
            REFUSED(b, CB_FILES[f], "expected a safetensors file, found only 0 bytes");
            free(path);
            cb_free(b);
        }
    }
}

static void bytes_behind_the_last_tensor_are_noted(void **state) {
    (void)state;
    cb *b = cb_new(false);
    b->extra[1] = 3;
    cb_write(b);
    pgl_checkpoint *c = open_written(b, NULL);
    assert_string_equal(pgl_checkpoint_notes(c),
                        "model-00002-of-00002.safetensors: expected nothing after its last "
                        "tensor, found 3 bytes\n");
    pgl_checkpoint_close(c);
    REFUSED_STRICT(b, CB_FILES[1], "found 3 bytes");
    cb_free(b);
}

static void tensors_of_nobody_are_refused(void **state) {
    (void)state;
    static const char *const NAMES[] = {
        "model.language_model.layers.2.input_layernorm.weight",
        "model.language_model.layers.0.self_attn.q_proj.weight",
        "model.language_model.layers.0.linear_attn.in_proj_z.bias",
        "model.language_model.layers.1.mlp.experts.gate_up_proj.bias",
        "model.language_model.layers.1.mlp.gate_proj.weight",
        "mtp.layers.x.input_layernorm.weight",
        "mtp.embed_tokens.weight",
        "model.language_model.layers.01.input_layernorm.weight",
        "something",
        "lm_head.bias",
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        cb *b = cb_new(false);
        cb_tensor *t = cb_add(b, "F16", CB_DIMS(128), "%s", NAMES[i]);
        cb_write(b);
        REFUSED(b, CB_FILES[t->file], NAMES[i], "expected no such tensor in this model", "found F16 [128]");
        cb_free(b);
    }
}

static void an_unknown_leaf_of_a_code_is_refused_first(void **state) {
    (void)state;
    for (int dense = 0; dense < 2; dense++) {
        cb *b = cb_new(dense != 0);
        const char *base = dense ? "model.language_model.layers.0.mlp.down_proj"
                                 : "model.language_model.layers.0.mlp.experts.down_proj";
        cb_tensor *t = cb_add(b, "F16", CB_DIMS(64), "%s.escha_rotation_theta", base);
        cb_write(b);
        REFUSED(b, CB_FILES[t->file], t->name, "found escha_rotation_theta");
        cb_free(b);
    }
}

static void two_forms_of_one_linear_are_refused(void **state) {
    (void)state;
    cb *b = cb_new(false);
    cb_add(b, "F16", CB_DIMS(32, 128), "lm_head.weight");
    cb_write(b);
    REFUSED(b, "lm_head", "expected one form", "found a plain weight and an int8 pair");
    cb_free(b);

    b = cb_new(true);
    cb_int8(b, "model.language_model.layers.1.self_attn.o_proj", 128, 128);
    cb_write(b);
    REFUSED(b, "layers.1.self_attn.o_proj", "found an int8 pair and a trellis code");
    cb_free(b);

    b = cb_new(true);
    cb_add(b, "F16", CB_DIMS(128, 128), "model.language_model.layers.1.self_attn.o_proj.weight");
    cb_write(b);
    REFUSED(b, "layers.1.self_attn.o_proj", "found a plain weight and a trellis code");
    cb_free(b);
}

static void one_name_twice_is_refused(void **state) {
    (void)state;
    cb *b = cb_new(false); /* the same tensor under two prefixes */
    cb_add(b, "F16", CB_DIMS(128), "model.norm.weight");
    cb_write(b);
    REFUSED(b, "model.norm.weight",
            "expected one tensor norm.weight, found model.language_model.norm.weight in ");
    cb_free(b);
}

/* A draft head that was coded later stands beside a checkpoint that has one of its own. */
static void a_draft_head_beside_replaces_the_one_within(void **state) {
    (void)state;
    cb *b = cb_new(true);
    cb_add(b, "BF16", CB_DIMS(128), "mtp.norm.weight");
    cb_add(b, "BF16", CB_DIMS(64), "mtp.pre_fc_norm_hidden.weight"); /* of another shape, and not looked at */
    cb_write(b);
    pgl_checkpoint *c = open_written(b, &STRICT);
    assert_string_equal(
        pgl_checkpoint_notes(c),
        "model.safetensors.index.json: skipped 2 tensors of the draft head: mtp/ has another\n");
    assert_true(pgl_checkpoint_weights(c)->draft.present);
    size_t unused = 0;
    for (size_t i = 0; i < pgl_checkpoint_n_tensors(c); i++)
        unused += pgl_checkpoint_tensor(c, i).used ? 0 : 1;
    assert_int_equal(unused, 2);
    pgl_checkpoint_close(c);
    cb_free(b);
}

/* The rate is the last dimension and nothing else; sizes must be whole blocks. */
static void rates_and_blocks(void **state) {
    (void)state;
    const char *name = "model.language_model.layers.0.mlp.experts.gate_up_proj.escha_code";
    for (uint64_t k = 1; k <= 9; k++) {
        cb *b = cb_new(false);
        cb_find(b, name)->dims[3] = 16 * k;
        cb_write(b);
        if (k == 9) {
            REFUSED(b, name, "expected a last dimension of 16 K with K from 1 to 8, found 144");
        } else {
            pgl_checkpoint *c = open_written(b, NULL);
            assert_int_equal(pgl_checkpoint_weights(c)->layers[0].moe.gate_up.k, k);
            assert_int_equal(pgl_checkpoint_weights(c)->layers[1].moe.gate_up.k, 2); /* rates may be mixed */
            pgl_checkpoint_close(c);
        }
        cb_free(b);
    }
    cb *b = cb_new(false);
    cb_find(b, name)->dims[3] = 0;
    cb_write(b);
    REFUSED(b, name, "found 0");
    cb_free(b);

    b = cb_new(true); /* 96 channels are six tiles, but no block of 128 */
    json_object_set_new(b->text, "intermediate_size", json_integer(96));
    cb_write(b);
    REFUSED(b, "layers.0.mlp.gate_proj.escha_code", "expected a multiple of 128 output channels, found 96");
    cb_free(b);
}

static void stacked_and_single_codes_are_not_mixed_up(void **state) {
    (void)state;
    cb *b = cb_new(true); /* a leading axis in a dense model */
    cb_tensor *t = cb_find(b, "model.language_model.layers.0.mlp.up_proj.escha_code");
    memmove(t->dims + 1, t->dims, 3 * sizeof t->dims[0]);
    t->dims[0] = 1;
    t->n_dims = 4;
    cb_write(b);
    REFUSED(b, t->name, "expected I16 [8, 8, ", "found I16 [1, 8, 8, 48]");
    cb_free(b);

    b = cb_new(false); /* one expert too few, as when 256 became 255 */
    t = cb_find(b, "model.language_model.layers.0.mlp.experts.down_proj.escha_code");
    t->dims[0] = 1;
    cb_write(b);
    REFUSED(b, t->name, "expected I16 [2, 8, 8, 48], found I16 [1, 8, 8, 48]");
    cb_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_kinds_open_strictly),
        cmocka_unit_test(a_removed_tensor_is_missed_by_name),
        cmocka_unit_test(a_renamed_tensor_is_missed_or_refused_by_name),
        cmocka_unit_test(a_wrong_shape_is_refused_with_both_shapes),
        cmocka_unit_test(a_wrong_type_is_refused_with_both_types),
        cmocka_unit_test(offsets_that_contradict_are_refused),
        cmocka_unit_test(overlapping_tensors_are_refused),
        cmocka_unit_test(escha_config_only_warns_unless_strict),
        cmocka_unit_test(a_number_that_is_not_finite_is_found_in_every_tensor),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(bytes_behind_the_last_tensor_are_noted),
        cmocka_unit_test(tensors_of_nobody_are_refused),
        cmocka_unit_test(an_unknown_leaf_of_a_code_is_refused_first),
        cmocka_unit_test(two_forms_of_one_linear_are_refused),
        cmocka_unit_test(one_name_twice_is_refused),
        cmocka_unit_test(a_draft_head_beside_replaces_the_one_within),
        cmocka_unit_test(rates_and_blocks),
        cmocka_unit_test(stacked_and_single_codes_are_not_mixed_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
