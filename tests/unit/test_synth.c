/* Synthetic checkpoints: the same bytes whatever the threads, nothing left behind, nothing of others' removed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/fs.h"
#include "checkpoint/checkpoint.h"
#include "model/reference.h"
#include "model/synth.h"
#include "model/synth_plan.h"

static char root[64];

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/pergola-synth-XXXXXX");
    return mkdtemp(root) == NULL ? -1 : 0;
}

static int remove_root(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static const char *path(const char *name) {
    static char paths[8][160];
    static unsigned next;
    char *out = paths[next++ % 8];
    snprintf(out, sizeof paths[0], "%s/%s", root, name);
    return out;
}

static pgl_synth_shape tiny(void) {
    pgl_synth_shape shape;
    assert_int_equal(pgl_synth_preset("tiny", &shape, NULL), PGL_OK);
    return shape;
}

static pgl_status write_tiny(const char *name, uint64_t seed, uint32_t n_threads, bool force,
                             pgl_error *err) {
    const pgl_synth_shape shape = tiny();
    const pgl_synth_options options = {
        .shape = &shape, .seed = seed, .directory = path(name), .force = force, .n_threads = n_threads};
    return pgl_synth_write(&options, err);
}

static pgl_buf read_file(const char *directory, const char *name) {
    char full[400];
    snprintf(full, sizeof full, "%s/%s", path(directory), name);
    pgl_buf out = PGL_BUF_INIT;
    pgl_error err;
    if (pgl_fs_read(full, (size_t)1 << 30, &out, &err) != PGL_OK) {
        fail_msg("%s", err.text);
    }
    return out;
}

static size_t count_files(const char *name) {
    char **names;
    size_t n;
    assert_int_equal(pgl_fs_list(path(name), &names, &n, NULL), PGL_OK);
    free(names);
    return n;
}

static const char *const files[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "chat_template.jinja",
    "tokenizer_config.json",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
};
#define N_FILES (sizeof files / sizeof files[0])

/* True when all files of two checkpoints are equal. */
static bool equal(const char *a, const char *b) {
    bool same = true;
    for (size_t i = 0; i < N_FILES; i++) {
        pgl_buf x = read_file(a, files[i]);
        pgl_buf y = read_file(b, files[i]);
        same = same && x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
        pgl_buf_fini(&x);
        pgl_buf_fini(&y);
    }
    return same;
}

static void bytes_depend_on_the_seed_and_not_on_threads(void **state) {
    (void)state;
    assert_int_equal(write_tiny("one", 7, 1, false, NULL), PGL_OK);
    assert_int_equal(write_tiny("five", 7, 5, false, NULL), PGL_OK);
    assert_int_equal(write_tiny("other", 8, 5, false, NULL), PGL_OK);
    assert_int_equal(count_files("one"), N_FILES);
    assert_true(equal("one", "five"));
    assert_false(equal("one", "other"));
}

/* FNV-1a of the first shard: a change of the contents must come with a new PGL_SYNTH_VERSION. */
static void bytes_stay_the_same_from_release_to_release(void **state) {
    (void)state;
    pgl_buf shard = read_file("one", "model-00001-of-00002.safetensors");
    uint64_t hash = 0xcbf29ce484222325U;
    for (size_t i = 0; i < shard.size; i++) {
        hash = (hash ^ (unsigned char)shard.data[i]) * 0x100000001b3U;
    }
    pgl_buf_fini(&shard);
    assert_int_equal(PGL_SYNTH_VERSION, 1);
    assert_int_equal(hash, 0x6de8fd86d434d1beU);
}

static void a_directory_in_use_is_replaced_only_with_force(void **state) {
    (void)state;
    pgl_error err;
    assert_int_equal(write_tiny("other", 9, 0, false, &err), PGL_E_INVALID);
    assert_non_null(strstr(err.text, "--force"));
    assert_int_equal(write_tiny("other", 7, 0, true, &err), PGL_OK);
    assert_true(equal("one", "other"));
}

static void a_directory_with_other_things_is_never_replaced(void **state) {
    (void)state;
    pgl_error err;
    assert_int_equal(pgl_fs_write(path("five/thesis.txt"), "x", 1, NULL), PGL_OK);
    assert_int_equal(write_tiny("five", 9, 0, true, &err), PGL_E_INVALID);
    assert_non_null(strstr(err.text, "thesis.txt"));
    assert_true(equal("one", "five"));
    assert_int_equal(count_files("five"), N_FILES + 1);
}

static bool stop_at_once(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    (void)context;
    (void)done_bytes;
    (void)total_bytes;
    return false;
}

static void cancelling_leaves_nothing_and_keeps_what_was_there(void **state) {
    (void)state;
    const pgl_synth_shape shape = tiny();
    pgl_synth_options options = {
        .shape = &shape, .seed = 3, .directory = path("cancelled"), .progress = stop_at_once};
    pgl_error err;
    assert_int_equal(pgl_synth_write(&options, &err), PGL_E_CANCELLED);
    assert_int_equal(access(path("cancelled"), F_OK), -1);
    options.directory = path("one");
    options.force = true;
    assert_int_equal(pgl_synth_write(&options, &err), PGL_E_CANCELLED);
    assert_true(equal("one", "other"));
    assert_int_equal(count_files("one"), N_FILES);
}

static void a_checkpoint_that_does_not_fit_the_disk_is_refused_at_once(void **state) {
    (void)state;
    pgl_synth_shape shape;
    assert_int_equal(pgl_synth_preset("35b-a3b", &shape, NULL), PGL_OK);
    shape.config.n_layers = 256;
    shape.config.n_experts = 1U << 20;
    const pgl_synth_options options = {.shape = &shape, .directory = path("huge")};
    pgl_error err;
    assert_int_equal(pgl_synth_write(&options, &err), PGL_E_IO);
    assert_non_null(strstr(err.text, "GB are free"));
    assert_int_equal(access(path("huge"), F_OK), -1);
}

static void sizes_that_make_no_checkpoint_are_refused(void **state) {
    (void)state;
    pgl_error err;
    uint64_t bytes;
    pgl_synth_shape shape;
    assert_int_equal(pgl_synth_preset("70b", &shape, &err), PGL_E_INVALID);
    assert_non_null(strstr(err.text, "35b-a3b"));
    shape = tiny();
    shape.config.hidden_size = 250;
    assert_int_equal(pgl_synth_size(&shape, &bytes, &err), PGL_E_INVALID);
    shape = tiny();
    shape.config.n_experts = 0;
    assert_int_equal(pgl_synth_size(&shape, &bytes, &err), PGL_E_INVALID);
    shape = tiny();
    shape.n_tokens = 2047;
    assert_int_equal(pgl_synth_size(&shape, &bytes, &err), PGL_E_INVALID);
    shape = tiny();
    shape.config.vocab_size = UINT32_MAX;
    shape.n_tokens = 1000000;
    const pgl_synth_options options = {.shape = &shape, .directory = "/nonexistent/synth"};
    assert_int_equal(pgl_synth_write(&options, &err), PGL_E_IO);
}

static void the_full_size_is_that_of_the_published_export(void **state) {
    (void)state;
    pgl_synth_shape shape;
    uint64_t bytes = 0;
    assert_int_equal(pgl_synth_preset("35b-a3b", &shape, NULL), PGL_OK);
    assert_int_equal(pgl_synth_size(&shape, &bytes, NULL), PGL_OK);
    /* 40 layers of 256 experts at 2 and 3 bits alone are 9.395 GB (docs/format.md). */
    assert_in_range(bytes, 12200000000U, 12400000000U);
}

/* Every merge makes a token that is in the vocabulary, from two that are; ids are dense. */
static void the_full_vocabulary_is_a_byte_pair_encoding(void **state) {
    (void)state;
    pgl_synth_shape shape;
    pgl_buf text = PGL_BUF_INIT;
    assert_int_equal(pgl_synth_preset("35b-a3b", &shape, NULL), PGL_OK);
    assert_int_equal(pgl_synth_tokenizer(&shape, &text, NULL), PGL_OK);
    json_t *root_json = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
    pgl_buf_fini(&text);
    assert_non_null(root_json);
    const json_t *model = json_object_get(root_json, "model");
    const json_t *vocab = json_object_get(model, "vocab");
    const json_t *merges = json_object_get(model, "merges");
    assert_int_equal(json_object_size(vocab), 248044);
    assert_int_equal(json_array_size(merges), 248044 - 256);
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *pair = json_array_get(merges, i);
        const char *left = json_string_value(json_array_get(pair, 0));
        const char *right = json_string_value(json_array_get(pair, 1));
        char whole[128];
        snprintf(whole, sizeof whole, "%s%s", left, right);
        assert_in_range(json_integer_value(json_object_get(vocab, left)), 0, 255 + i);
        assert_in_range(json_integer_value(json_object_get(vocab, right)), 0, 255 + i);
        assert_non_null(json_object_get(vocab, left));
        assert_non_null(json_object_get(vocab, right));
        assert_int_equal(json_integer_value(json_object_get(vocab, whole)), 256 + i);
    }
    const json_t *added = json_object_get(root_json, "added_tokens");
    assert_int_equal(json_array_size(added), 33);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(added, 0), "id")), 248044);
    json_decref(root_json);
}

/* Activations neither fade nor explode, and tokens are sent to different experts. */
static void activations_and_routing_are_healthy(void **state) {
    (void)state;
    const pgl_checkpoint_options options = {.strict = true, .want_draft = true};
    pgl_checkpoint *checkpoint;
    pgl_model model;
    pgl_reference *sequence;
    pgl_error err;
    if (pgl_checkpoint_open(path("one"), &options, &checkpoint, &err) != PGL_OK ||
        pgl_model_init(&model, pgl_checkpoint_config(checkpoint), pgl_checkpoint_weights(checkpoint), &err) !=
            PGL_OK ||
        pgl_reference_open(&model, false, &sequence, &err) != PGL_OK) {
        fail_msg("%s", err.text);
    }
    enum { N = 24, HIDDEN = 256, LAYERS = 8, VOCAB = 2048, USED = 4, EXPERTS = 16 };
    static float residual[N * HIDDEN], logits[N * VOCAB];
    static int32_t experts[LAYERS * N * USED];
    int32_t tokens[N];
    for (int i = 0; i < N; i++) {
        tokens[i] = (i * 977 + 13) % 2000;
    }
    pgl_reference_outputs outputs = {.residual = residual, .logits = logits, .experts = experts};
    assert_int_equal(pgl_reference_forward(sequence, tokens, N, &outputs, &err), PGL_OK);
    assert_false(outputs.non_finite);
    double sum = 0;
    for (size_t i = 0; i < N * HIDDEN; i++) {
        sum += (double)residual[i] * (double)residual[i];
    }
    const double rms = sqrt(sum / (N * HIDDEN));
    assert_true(rms > 0.8 && rms < 3);
    sum = 0;
    for (size_t i = 0; i < N * VOCAB; i++) {
        sum += (double)logits[i] * (double)logits[i];
    }
    const double deviation = sqrt(sum / (N * VOCAB));
    assert_true(deviation > 1.5 && deviation < 4);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        bool hit[EXPERTS] = {false};
        int n_hit = 0;
        for (size_t i = 0; i < N * USED; i++) {
            bool *one = &hit[experts[layer * N * USED + i]];
            n_hit += *one ? 0 : 1;
            *one = true;
        }
        assert_true(n_hit >= 12);
    }
    pgl_reference_close(sequence);
    pgl_checkpoint_close(checkpoint);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_depend_on_the_seed_and_not_on_threads),
        cmocka_unit_test(bytes_stay_the_same_from_release_to_release),
        cmocka_unit_test(activations_and_routing_are_healthy),
        cmocka_unit_test(a_directory_in_use_is_replaced_only_with_force),
        cmocka_unit_test(a_directory_with_other_things_is_never_replaced),
        cmocka_unit_test(cancelling_leaves_nothing_and_keeps_what_was_there),
        cmocka_unit_test(a_checkpoint_that_does_not_fit_the_disk_is_refused_at_once),
        cmocka_unit_test(sizes_that_make_no_checkpoint_are_refused),
        cmocka_unit_test(the_full_size_is_that_of_the_published_export),
        cmocka_unit_test(the_full_vocabulary_is_a_byte_pair_encoding),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
