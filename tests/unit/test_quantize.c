/* A small 16-bit model is made, coded, and opened by the program itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include "base/buf.h"
#include "base/fs.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "model/reference.h"
#include "quantize/quantize.h"

#define HIDDEN 128u
#define VOCAB 64u
#define MOST 96

static char root[64];

static uint64_t rng_state;

static float gauss(void) {
    double u[2];
    for (int i = 0; i < 2; i++) {
        rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
        u[i] = ((double)(rng_state >> 11) + 0.5) * 0x1p-53;
    }
    return (float)(sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]));
}

static const char CONFIG[] =
    "{\"model_type\": \"qwen3_5_moe\", \"text_config\": {\"vocab_size\": 64, \"hidden_size\": 128, "
    "\"num_hidden_layers\": 2, \"layer_types\": [\"linear_attention\", \"full_attention\"], "
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 32, \"attention_bias\": false, "
    "\"linear_num_key_heads\": 1, \"linear_num_value_heads\": 2, \"linear_key_head_dim\": 16, "
    "\"linear_value_head_dim\": 16, \"linear_conv_kernel_dim\": 4, \"num_experts\": 2, "
    "\"num_experts_per_tok\": 1, "
    "\"moe_intermediate_size\": 128, \"shared_expert_intermediate_size\": 64, \"rms_norm_eps\": 1e-6, "
    "\"max_position_embeddings\": 4096, \"tie_word_embeddings\": false, \"eos_token_id\": 1, "
    "\"mtp_num_hidden_layers\": 1, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": "
    "10000.0, "
    "\"partial_rotary_factor\": 0.5}}}";

typedef struct list {
    pgl_safetensors_spec specs[MOST];
    char names[MOST][128];
    float sizes[MOST];
    size_t n;
} list;

static void add(list *l, const char *prefix, const char *name, float size, uint64_t a, uint64_t b,
                uint64_t c) {
    assert_true(l->n < MOST);
    snprintf(l->names[l->n], sizeof l->names[0], "%s%s", prefix, name);
    pgl_safetensors_spec spec = {.name = l->names[l->n], .dtype = PGL_BF16, .dims = {a, b, c}};
    spec.n_dims = c != 0 ? 3 : b != 0 ? 2 : 1;
    l->specs[l->n] = spec;
    l->sizes[l->n++] = size;
}

static void add_attention(list *l, const char *p) {
    add(l, p, "self_attn.q_proj.weight", 0.09F, 128, HIDDEN, 0);
    add(l, p, "self_attn.k_proj.weight", 0.09F, 32, HIDDEN, 0);
    add(l, p, "self_attn.v_proj.weight", 0.09F, 32, HIDDEN, 0);
    add(l, p, "self_attn.o_proj.weight", 0.12F, HIDDEN, 64, 0);
    add(l, p, "self_attn.q_norm.weight", 0.1F, 32, 0, 0);
    add(l, p, "self_attn.k_norm.weight", 0.1F, 32, 0, 0);
}

static void add_mlp(list *l, const char *p, bool experts) {
    add(l, p, "input_layernorm.weight", 0.1F, HIDDEN, 0, 0);
    add(l, p, "post_attention_layernorm.weight", 0.1F, HIDDEN, 0, 0);
    add(l, p, "mlp.gate.weight", 0.2F, 2, HIDDEN, 0);
    add(l, p, "mlp.shared_expert.gate_proj.weight", 0.09F, 64, HIDDEN, 0);
    add(l, p, "mlp.shared_expert.up_proj.weight", 0.09F, 64, HIDDEN, 0);
    add(l, p, "mlp.shared_expert.down_proj.weight", 0.12F, HIDDEN, 64, 0);
    add(l, p, "mlp.shared_expert_gate.weight", 0.09F, 1, HIDDEN, 0);
    if (experts) {
        add(l, p, "mlp.experts.gate_up_proj", 0.09F, 2, 256, HIDDEN);
        add(l, p, "mlp.experts.down_proj", 0.09F, 2, HIDDEN, 128);
    }
}

static void add_draft(list *l, bool experts) {
    add(l, "mtp.", "fc.weight", 0.06F, HIDDEN, 2 * (uint64_t)HIDDEN, 0);
    add(l, "mtp.", "pre_fc_norm_embedding.weight", 0.1F, HIDDEN, 0, 0);
    add(l, "mtp.", "pre_fc_norm_hidden.weight", 0.1F, HIDDEN, 0, 0);
    add(l, "mtp.", "norm.weight", 0.1F, HIDDEN, 0, 0);
    add_attention(l, "mtp.layers.0.");
    add_mlp(l, "mtp.layers.0.", experts);
}

static void fill_list(list *l) {
    static const char P[] = "model.language_model.";
    static const char L0[] = "model.language_model.layers.0.", L1[] = "model.language_model.layers.1.";
    add(l, P, "embed_tokens.weight", 0.05F, VOCAB, HIDDEN, 0);
    add(l, "", "lm_head.weight", 0.09F, VOCAB, HIDDEN, 0);
    add(l, P, "norm.weight", 0.1F, HIDDEN, 0, 0);
    add(l, L0, "linear_attn.in_proj_qkv.weight", 0.09F, 64, HIDDEN, 0);
    add(l, L0, "linear_attn.in_proj_z.weight", 0.09F, 32, HIDDEN, 0);
    add(l, L0, "linear_attn.in_proj_a.weight", 0.09F, 2, HIDDEN, 0);
    add(l, L0, "linear_attn.in_proj_b.weight", 0.09F, 2, HIDDEN, 0);
    add(l, L0, "linear_attn.out_proj.weight", 0.15F, HIDDEN, 32, 0);
    add(l, L0, "linear_attn.conv1d.weight", 0.3F, 64, 1, 4);
    add(l, L0, "linear_attn.A_log", 0.5F, 2, 0, 0);
    add(l, L0, "linear_attn.dt_bias", 0.5F, 2, 0, 0);
    add(l, L0, "linear_attn.norm.weight", 1.0F, 16, 0, 0);
    add_mlp(l, L0, true);
    add_attention(l, L1);
    add_mlp(l, L1, true);
    add_draft(l, false);
}

static char *path_of(const char *name) {
    char *path = pgl_fs_join(root, name);
    assert_non_null(path);
    return path;
}

static void write_text(const char *directory, const char *name, const char *text) {
    char *path = pgl_fs_join(directory, name);
    pgl_error err;
    assert_int_equal(pgl_fs_write(path, text, strlen(text), &err), PGL_OK);
    free(path);
}

static void write_tensors(const char *directory, const char *name, const list *l) {
    char *path = pgl_fs_join(directory, name);
    pgl_safetensors_writer *writer;
    pgl_error err;
    assert_int_equal(pgl_safetensors_create(path, l->specs, l->n, &writer, &err), PGL_OK);
    rng_state = 11;
    for (size_t i = 0; i < l->n; i++) {
        uint64_t bytes;
        assert_true(pgl_safetensors_spec_bytes(&l->specs[i], &bytes));
        for (uint64_t e = 0; e < bytes / 2; e++) {
            pgl_bf16 v = pgl_f32_to_bf16(l->sizes[i] * gauss());
            assert_int_equal(pgl_safetensors_write(writer, &v, 2, &err), PGL_OK);
        }
    }
    assert_int_equal(pgl_safetensors_finish(writer, &err), PGL_OK);
    free(path);
}

static int make_source(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/pergola-quantize-XXXXXX");
    assert_non_null(mkdtemp(root));
    list *l = calloc(1, sizeof *l);
    fill_list(l);
    write_tensors(root, "model.safetensors", l);
    write_text(root, "config.json", CONFIG);
    write_text(root, "tokenizer.json", "{}");
    free(l);
    return 0;
}

static int remove_all(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command) == 0 ? 0 : -1;
}

static int32_t text_ids[512];

static pgl_quantize_options options_for(const char *out) {
    for (size_t i = 0; i < 512; i++)
        text_ids[i] = (int32_t)((i * i * 7 + i) % VOCAB);
    return (pgl_quantize_options){.in = root,
                                  .out = out,
                                  .k_gate_up = 2,
                                  .k_down = 3,
                                  .rounds = 1,
                                  .seed = 3,
                                  .n_threads = 2,
                                  .calibration = text_ids,
                                  .n_calibration = 512,
                                  .sequence_tokens = 128};
}

static void same_file(const char *a_dir, const char *b_dir, const char *name) {
    pgl_buf a = PGL_BUF_INIT, b = PGL_BUF_INIT;
    pgl_error err;
    char *pa = pgl_fs_join(a_dir, name), *pb = pgl_fs_join(b_dir, name);
    assert_int_equal(pgl_fs_read(pa, 1 << 24, &a, &err), PGL_OK);
    assert_int_equal(pgl_fs_read(pb, 1 << 24, &b, &err), PGL_OK);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    pgl_buf_fini(&a);
    pgl_buf_fini(&b);
    free(pa);
    free(pb);
}

static bool stop_in_second_layer(void *user, const pgl_quantize_progress *p) {
    (void)user;
    return p->layer < 1 || p->n_experts_done < 1;
}

/* The output opens, gives finite logits, and is the same when the run is stopped and goes on, on other threads. */
static void an_interrupted_run_ends_with_the_same_bytes(void **state) {
    (void)state;
    char *whole = path_of("whole"), *pieces = path_of("pieces");
    pgl_error err;
    pgl_quantize_options o = options_for(whole);
    if (pgl_quantize(&o, &err) != PGL_OK)
        fail_msg("%s", err.text);
    o = options_for(pieces);
    o.n_threads = 1;
    o.progress = stop_in_second_layer;
    assert_int_equal(pgl_quantize(&o, &err), PGL_E_CANCELLED);
    o.seed = 4;
    assert_int_equal(pgl_quantize(&o, &err), PGL_E_INVALID);
    assert_non_null(strstr(err.text, "other options"));
    o = options_for(pieces);
    assert_int_equal(pgl_quantize(&o, &err), PGL_OK);
    static const char *const FILES[] = {
        "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors", "model.safetensors.index.json", "config.json"};
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++)
        same_file(whole, pieces, FILES[i]);

    pgl_checkpoint *checkpoint;
    pgl_checkpoint_options strict = {.strict = true, .want_draft = true};
    if (pgl_checkpoint_open(whole, &strict, &checkpoint, &err) != PGL_OK)
        fail_msg("%s", err.text);
    pgl_model model;
    pgl_reference *seq;
    float logits[VOCAB];
    pgl_reference_outputs outputs = {.last_logits = logits};
    assert_int_equal(
        pgl_model_init(&model, pgl_checkpoint_config(checkpoint), pgl_checkpoint_weights(checkpoint), &err),
        PGL_OK);
    assert_true(model.weights->draft.present && model.weights->draft.borrows_experts);
    assert_int_equal(pgl_reference_open(&model, false, &seq, &err), PGL_OK);
    assert_int_equal(pgl_reference_forward(seq, text_ids, 40, &outputs, &err), PGL_OK);
    assert_false(outputs.non_finite);
    pgl_reference_close(seq);
    pgl_checkpoint_close(checkpoint);
    free(whole);
    free(pieces);
}

static void refused_draft(const pgl_quantize_options *o, pgl_status expected, const char *text) {
    pgl_error err;
    assert_int_equal(pgl_quantize_draft(o, &err), expected);
    if (strstr(err.text, text) == NULL)
        fail_msg("expected \"%s\", found \"%s\"", text, err.text);
}

static pgl_checkpoint *open_strict(const char *directory, const char **notes) {
    pgl_checkpoint_options strict = {.strict = true, .want_draft = true};
    pgl_checkpoint *checkpoint;
    pgl_error err;
    if (pgl_checkpoint_open(directory, &strict, &checkpoint, &err) != PGL_OK)
        fail_msg("%s", err.text);
    *notes = pgl_checkpoint_notes(checkpoint);
    return checkpoint;
}

/* Of the original's two files the one without draft head is not there; the result replaces a head without experts. */
static void a_draft_head_is_coded_from_its_own_files_alone(void **state) {
    (void)state;
    char *in = path_of("original"), *out = path_of("coded"), *made = path_of("coded/mtp/model.safetensors");
    pgl_error err;
    pgl_quantize_options o = options_for(out);
    if (pgl_quantize(&o, &err) != PGL_OK)
        fail_msg("%s", err.text);
    o.in = in;
    o.calibration = NULL;
    o.n_calibration = 0;
    assert_int_equal(mkdir(in, 0700), 0);
    write_text(in, "config.json", CONFIG);
    list *l = calloc(1, sizeof *l);
    add_draft(l, false);
    write_tensors(in, "model-00002-of-00002.safetensors", l);
    pgl_buf index = PGL_BUF_INIT;
    pgl_buf_puts(&index, "{\"weight_map\": {\"lm_head.weight\": \"model-00001-of-00002.safetensors\"");
    for (size_t i = 0; i < l->n; i++)
        pgl_buf_printf(&index, ", \"%s\": \"model-00002-of-00002.safetensors\"", l->names[i]);
    pgl_buf_puts(&index, "}}");
    write_text(in, "model.safetensors.index.json", pgl_buf_text(&index));
    refused_draft(&o, PGL_E_FORMAT, "mtp.layers.0.mlp.experts.gate_up_proj");
    assert_false(pgl_fs_is_file(made));

    l->n = 0;
    add_draft(l, true);
    write_tensors(in, "model-00002-of-00002.safetensors", l);
    refused_draft(&o, PGL_E_FORMAT, "expected an entry for it in model.safetensors.index.json");
    index.size -= 2;
    pgl_buf_puts(&index, ", \"mtp.layers.0.mlp.experts.gate_up_proj\": \"model-00002-of-00002.safetensors\", "
                         "\"mtp.layers.0.mlp.experts.down_proj\": \"model-00002-of-00002.safetensors\"}}");
    write_text(in, "model.safetensors.index.json", pgl_buf_text(&index));
    if (pgl_quantize_draft(&o, &err) != PGL_OK)
        fail_msg("%s", err.text);
    refused_draft(&o, PGL_E_INVALID, "there is a draft head already");

    const char *notes;
    pgl_checkpoint *checkpoint = open_strict(out, &notes);
    assert_non_null(strstr(notes, "tensors of the draft head: mtp/ has another"));
    const pgl_draft_weights *draft = &pgl_checkpoint_weights(checkpoint)->draft;
    assert_true(draft->present && !draft->borrows_experts);
    assert_int_equal(draft->layer.moe.gate_up.k, 2);
    assert_int_equal(draft->layer.moe.down.k, 3);
    pgl_checkpoint_close(checkpoint);

    char *other = path_of("coded/config.json");
    pgl_buf theirs = PGL_BUF_INIT;
    assert_int_equal(pgl_fs_read(other, 1 << 20, &theirs, &err), PGL_OK);
    char *size = strstr(pgl_buf_text(&theirs), "\"num_experts\": 2");
    assert_non_null(size);
    size[strlen("\"num_experts\": ")] = '4';
    write_text(out, "config.json", pgl_buf_text(&theirs));
    o.restart = true;
    refused_draft(&o, PGL_E_INVALID, "num_experts: expected 2 for this draft head, found 4");
    o.calibration = text_ids;
    refused_draft(&o, PGL_E_UNSUPPORTED, "without calibration");
    pgl_buf_fini(&theirs);
    pgl_buf_fini(&index);
    free(l);
    free(other);
    free(made);
    free(in);
    free(out);
}

static void refuses_before_the_output_is_touched(void **state) {
    (void)state;
    pgl_error err;
    char *out = path_of("refused");
    pgl_quantize_options o = options_for(out);
    o.k_down = 9;
    assert_int_equal(pgl_quantize(&o, &err), PGL_E_INVALID);
    assert_non_null(strstr(err.text, "9 for down"));
    o = options_for(out);
    o.in = "/nonexistent";
    assert_int_equal(pgl_quantize(&o, &err), PGL_E_NOT_FOUND);
    o = options_for(out);
    o.in = PGL_GOLDENS "/tiny-a";
    assert_int_equal(pgl_quantize(&o, &err), PGL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "quantized already"));
    assert_false(pgl_fs_is_directory(out));
    o = options_for(root); /* not empty, and not ours */
    assert_int_equal(pgl_quantize(&o, &err), PGL_E_INVALID);
    free(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_before_the_output_is_touched),
        cmocka_unit_test(an_interrupted_run_ends_with_the_same_bytes),
        cmocka_unit_test(a_draft_head_is_coded_from_its_own_files_alone),
    };
    return cmocka_run_group_tests(tests, make_source, remove_all);
}
