/* The report's numbers against the tensors themselves and against the model's own sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint/inspect.h"
#include "checkpoint_builder.h"
#include "model/model.h"

static pgl_checkpoint *open_directory(const char *directory) {
    pgl_error err;
    pgl_checkpoint *c = NULL;
    if (pgl_checkpoint_open(directory, NULL, &c, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return c;
}

static pgl_inspect_report report_of(const pgl_checkpoint *c) {
    pgl_inspect_report r;
    pgl_error err;
    if (pgl_inspect(c, &r, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return r;
}

/* Every byte of every tensor is counted once, but for escha_config, which is no weight. */
static void assert_all_bytes_are_counted(const pgl_checkpoint *c) {
    pgl_inspect_report r = report_of(c);
    uint64_t bytes = 0, unused = 0;
    for (size_t i = 0; i < pgl_checkpoint_n_tensors(c); i++) {
        pgl_tensor_info t = pgl_checkpoint_tensor(c, i);
        if (!t.used)
            unused += t.bytes;
        else if (strstr(t.name, ".escha_config") == NULL)
            bytes += t.bytes;
    }
    assert_int_equal(r.trunk.bytes + r.draft_head.bytes, bytes);
    assert_int_equal(r.skipped_bytes, unused);
}

static void assert_sizes_are_the_models(const pgl_checkpoint *c) {
    pgl_inspect_report r = report_of(c);
    pgl_model model;
    pgl_error err;
    if (pgl_model_init(&model, pgl_checkpoint_config(c), pgl_checkpoint_weights(c), &err) != PGL_OK)
        fail_msg("%s", err.text);
    assert_int_equal(r.kv_token_bytes, model.kv_token_bytes);
    assert_int_equal(r.draft_kv_token_bytes, model.draft_kv_token_bytes);
    assert_int_equal(r.state_bytes, model.state_bytes + model.conv_bytes);
    assert_int_equal(r.n_attention_layers, model.n_attention_layers);
}

static void the_reference_checkpoint_is_described(void **state) {
    (void)state;
    pgl_checkpoint *c = open_directory(PGL_GOLDENS "/tiny-a");
    pgl_inspect_report r = report_of(c);
    assert_false(r.dense || r.tied_head);
    assert_true(r.draft && r.draft_borrows && r.has_tokenizer && r.has_chat_template);
    assert_int_equal(r.coded[2].parameters, 8 * 16 * 256 * 256);
    assert_int_equal(r.coded[3].parameters, 8 * 16 * 128 * 256);
    /* 2 bits a weight, and F16 and F32 vectors of 256 inputs and 256 outputs */
    assert_int_equal(r.coded[2].bytes, 8 * 16 * (256 * 256 / 4 + 6 * 512));
    assert_int_equal(r.embedding.parameters, 1024 * 256);
    assert_int_equal(r.embedding.bytes, 1024 * 256 + 1024 * 2);
    assert_int_equal(r.kv_token_bytes, 2 * 2 * 2 * 256 * 2);
    assert_all_bytes_are_counted(c);
    assert_sizes_are_the_models(c);
    /* a token meets 4 of 16 experts and one row of the embedding */
    uint64_t coded = r.coded[2].bytes + r.coded[3].bytes;
    assert_int_equal(r.token_read_bytes,
                     r.trunk.bytes - coded + coded / 4 - r.embedding.bytes + r.embedding.bytes / 1024);
    pgl_checkpoint_close(c);
}

static void every_layout_is_counted_whole(void **state) {
    (void)state;
    for (int dense = 0; dense < 2; dense++) {
        for (int tied = 0; tied < 2; tied++) {
            cb *b = cb_new(dense != 0);
            cb_add(b, "F32", CB_DIMS(3, 5), "visual.x");
            if (tied) {
                json_object_set_new(b->text, "tie_word_embeddings", json_true());
                cb_find(b, "lm_head.weight_int8")->removed = true;
                cb_find(b, "lm_head.weight_scale")->removed = true;
            } else if (!dense) {
                cb_coded(b, "mtp.layers.0.mlp.experts.gate_up_proj", 2, 128, 256, 2);
                cb_coded(b, "mtp.layers.0.mlp.experts.down_proj", 2, 128, 128, 2);
            }
            cb_write(b);
            pgl_checkpoint *c = open_directory(b->directory);
            pgl_inspect_report r = report_of(c);
            assert_int_equal(r.dense, dense);
            assert_int_equal(r.tied_head, tied);
            assert_int_equal(r.head.bytes == 0, tied);
            assert_int_equal(r.draft_borrows, !dense && tied);
            assert_false(r.has_tokenizer || r.has_chat_template);
            assert_int_equal(r.skipped_bytes, 60);
            assert_all_bytes_are_counted(c);
            assert_sizes_are_the_models(c);
            pgl_checkpoint_close(c);
            cb_free(b);
        }
    }
}

static void a_template_is_found_in_both_places(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool has;
    } ROWS[] = {{"{\"chat_template\":\"x\"}", true},
                {"{\"chat_template\":[{\"name\":\"default\",\"template\":\"x\"}]}", true},
                {"{\"chat_template\":null}", false},
                {"{}", false},
                {"{", false}};
    cb *b = cb_new(false);
    cb_write(b);
    pgl_checkpoint *c = open_directory(b->directory);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        cb_write_file(b, "tokenizer_config.json", ROWS[i].text, strlen(ROWS[i].text));
        assert_int_equal(report_of(c).has_chat_template, ROWS[i].has);
    }
    cb_write_file(b, "chat_template.jinja", "x", 1);
    assert_true(report_of(c).has_chat_template);
    pgl_checkpoint_close(c);
    cb_free(b);
}

static void tensors_can_be_read_ahead_and_strangers_cannot(void **state) {
    (void)state;
    pgl_checkpoint *c = open_directory(PGL_GOLDENS "/tiny-a");
    for (size_t i = 0; i < pgl_checkpoint_n_tensors(c); i++) {
        pgl_tensor_info t = pgl_checkpoint_tensor(c, i);
        assert_int_equal(pgl_checkpoint_advise(c, t.data, t.bytes, PGL_MAPPED_SOON, NULL), PGL_OK);
        assert_int_equal(pgl_checkpoint_advise(c, t.data, t.bytes, PGL_MAPPED_NOW, NULL), PGL_OK);
    }
    pgl_error err;
    assert_int_equal(pgl_checkpoint_advise(c, &err, sizeof err, PGL_MAPPED_NOW, &err), PGL_E_INVALID);
    assert_int_equal(
        pgl_checkpoint_advise(c, pgl_checkpoint_tensor(c, 0).data, 1 << 30, PGL_MAPPED_NOW, &err),
        PGL_E_INVALID);
    pgl_checkpoint_close(c);
}

static bool stop_at_once(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    ++*(int *)context;
    assert_true(done_bytes > 0 && done_bytes < total_bytes);
    return false;
}

static void the_check_of_numbers_can_be_stopped(void **state) {
    (void)state;
    int calls = 0;
    pgl_checkpoint *c = open_directory(PGL_GOLDENS "/tiny-a");
    assert_int_equal(pgl_checkpoint_check_values(c, stop_at_once, &calls, NULL), PGL_E_CANCELLED);
    assert_int_equal(calls, 1);
    pgl_checkpoint_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_checkpoint_is_described),
        cmocka_unit_test(every_layout_is_counted_whole),
        cmocka_unit_test(a_template_is_found_in_both_places),
        cmocka_unit_test(tensors_can_be_read_ahead_and_strangers_cannot),
        cmocka_unit_test(the_check_of_numbers_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
