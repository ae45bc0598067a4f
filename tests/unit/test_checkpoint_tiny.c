/* The published layout, as the reference checkpoint has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/checkpoint.h"

static pgl_checkpoint *open_tiny(const pgl_checkpoint_options *options) {
    pgl_error err;
    pgl_checkpoint *c = NULL;
    if (pgl_checkpoint_open(PGL_GOLDENS "/tiny-a", options, &c, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return c;
}

static void the_published_layout_loads_strictly(void **state) {
    (void)state;
    const pgl_checkpoint_options strict = {.strict = true, .want_draft = true};
    pgl_checkpoint *c = open_tiny(&strict);
    const pgl_config *g = pgl_checkpoint_config(c);
    assert_int_equal(g->vocab_size, 1024);
    assert_int_equal(g->n_layers, 8);
    assert_int_equal(g->n_experts, 16);
    assert_int_equal(g->n_experts_used, 4);
    assert_int_equal(g->rotary_dim, 64);
    assert_true(g->rope_theta == 1e7);
    assert_int_equal(g->n_eos, 2);
    assert_int_equal(g->eos[0], 1);
    assert_int_equal(g->eos[1], 3);
    assert_true(g->has_temperature && g->temperature == 0.6 && g->has_top_k && g->top_k == 20 &&
                g->do_sample);
    assert_false(g->has_min_p);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(g->full_attention[i], i % 4 == 3);
    assert_string_equal(pgl_checkpoint_notes(c),
                        "config.json: vision_config: this program reads and writes text only; skipped\n");
    pgl_checkpoint_close(c);
}

static void every_tensor_is_used_and_lies_in_its_file(void **state) {
    (void)state;
    pgl_checkpoint *c = open_tiny(NULL);
    uint64_t bytes = 0;
    for (size_t i = 0; i < pgl_checkpoint_n_tensors(c); i++) {
        pgl_tensor_info t = pgl_checkpoint_tensor(c, i);
        assert_true(t.used);
        bytes += t.bytes;
        if (i > 0)
            assert_true(strcmp(pgl_checkpoint_tensor(c, i - 1).name, t.name) < 0);
    }
    assert_int_equal(bytes, 13683360); /* metadata.total_size of the index */
    assert_int_equal(pgl_checkpoint_file_bytes(c), 6129200 + 7590768);
    pgl_checkpoint_close(c);
}

static void views_have_the_shapes_of_the_format(void **state) {
    (void)state;
    pgl_checkpoint *c = open_tiny(NULL);
    const pgl_weights *w = pgl_checkpoint_weights(c);
    assert_int_equal(w->embed.kind, PGL_LINEAR_INT8);
    assert_int_equal(w->embed.scale_dtype, PGL_F16);
    assert_int_equal(w->embed.out, 1024);
    assert_int_equal(w->head.kind, PGL_LINEAR_INT8);
    assert_ptr_not_equal(w->head.data, w->embed.data);
    const pgl_layer_weights *l = &w->layers[0];
    assert_false(l->full_attention);
    assert_int_equal(l->moe.gate_up.k, 2);
    assert_int_equal(l->moe.gate_up.in, 256);
    assert_int_equal(l->moe.gate_up.out, 256);
    assert_int_equal(l->moe.gate_up.n_experts, 16);
    assert_int_equal(l->moe.down.k, 3);
    assert_non_null(l->moe.down.s_in);
    assert_null(l->moe.down.bias);
    assert_int_equal(l->moe.router.kind, PGL_LINEAR_PLAIN);
    assert_int_equal(l->delta.conv1d.n, 4096);
    assert_int_equal(l->delta.conv1d.dtype, PGL_F16);
    assert_true(w->layers[3].full_attention);
    assert_int_equal(w->layers[3].attention.q_proj.out, 2048);
    assert_true(w->draft.present && w->draft.borrows_experts);
    assert_int_equal(w->draft.borrowed_layer, 4);
    assert_ptr_equal(w->draft.layer.moe.down.code, w->layers[4].moe.down.code);
    assert_int_equal(w->draft.fc.in, 512);
    pgl_checkpoint_close(c);
}

static void the_draft_head_can_be_left_out(void **state) {
    (void)state;
    const pgl_checkpoint_options plain = {.want_draft = false};
    pgl_checkpoint *c = open_tiny(&plain);
    assert_false(pgl_checkpoint_weights(c)->draft.present);
    assert_non_null(strstr(pgl_checkpoint_notes(c), "skipped 17 tensors of the draft head"));
    pgl_checkpoint_close(c);
}

static void other_files_of_the_directory_can_be_read(void **state) {
    (void)state;
    pgl_checkpoint *c = open_tiny(NULL);
    pgl_buf text = PGL_BUF_INIT;
    bool found = false;
    assert_int_equal(pgl_checkpoint_read_file(c, "tokenizer.json", &text, &found, NULL), PGL_OK);
    assert_true(found);
    assert_int_equal(text.size, 55926);
    assert_int_equal(pgl_checkpoint_read_file(c, "nothing.json", &text, &found, NULL), PGL_OK);
    assert_false(found);
    pgl_buf_fini(&text);
    pgl_checkpoint_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_layout_loads_strictly),
        cmocka_unit_test(every_tensor_is_used_and_lies_in_its_file),
        cmocka_unit_test(views_have_the_shapes_of_the_format),
        cmocka_unit_test(the_draft_head_can_be_left_out),
        cmocka_unit_test(other_files_of_the_directory_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
