/* The presets, and the order in which a synthetic checkpoint is written. */
#include "model/synth.h"

#include <stdio.h>
#include <string.h>

#include "model/synth_write.h"

/* What both presets share with every published model of the family. */
static void family(pgl_config *c) {
    c->head_dim = 256;
    c->rotary_dim = 64;
    c->rope_theta = 1e7;
    c->key_dim = 128;
    c->value_dim = 128;
    c->conv_kernel = 4;
    c->rms_norm_eps = 1e-6F;
    c->max_position_embeddings = 262144;
    c->n_mtp_layers = 1;
    c->quant_method = PGL_QUANT_ESCHAMOE;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        c->full_attention[i] = (i + 1) % 4 == 0;
    }
}

static void preset_35b(pgl_synth_shape *shape) {
    pgl_config *c = &shape->config;
    c->vocab_size = 248320;
    c->hidden_size = 2048;
    c->n_layers = 40;
    c->n_heads = 16;
    c->n_kv_heads = 2;
    c->n_key_heads = 16;
    c->n_value_heads = 32;
    c->n_experts = 256;
    c->n_experts_used = 8;
    c->moe_intermediate_size = 512;
    c->shared_intermediate_size = 512;
    shape->n_tokens = 248044;
    shape->max_shard_bytes = 5000000000U;
}

static void preset_tiny(pgl_synth_shape *shape) {
    pgl_config *c = &shape->config;
    c->vocab_size = 2048;
    c->hidden_size = 256;
    c->n_layers = 8;
    c->n_heads = 4;
    c->n_kv_heads = 2;
    c->n_key_heads = 2;
    c->n_value_heads = 4;
    c->n_experts = 16;
    c->n_experts_used = 4;
    c->moe_intermediate_size = 128;
    c->shared_intermediate_size = 128;
    shape->n_tokens = 2000;
    shape->max_shard_bytes = 8000000;
}

pgl_status pgl_synth_preset(const char *name, pgl_synth_shape *shape, pgl_error *err) {
    memset(shape, 0, sizeof *shape);
    if (strcmp(name, "35b-a3b") == 0) {
        preset_35b(shape);
    } else if (strcmp(name, "tiny") == 0) {
        preset_tiny(shape);
    } else {
        return pgl_fail(err, PGL_E_INVALID, "no preset is called \"%s\"; there are 35b-a3b and tiny", name);
    }
    family(&shape->config);
    return PGL_OK;
}

pgl_status pgl_synth_size(const pgl_synth_shape *shape, uint64_t *bytes, pgl_error *err) {
    pgl_synth_plan plan = {0};
    const pgl_status status = pgl_synth_plan_init(&plan, shape, 0, err);
    *bytes = plan.total_bytes;
    pgl_synth_plan_fini(&plan);
    return status;
}

typedef pgl_status text_writer(const pgl_synth_shape *shape, pgl_buf *out, pgl_error *err);

static pgl_status put_text(const pgl_synth_shape *shape, pgl_synth_files *files, const char *name,
                           text_writer *write, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT;
    pgl_status status = write(shape, &text, err);
    if (status == PGL_OK) {
        status = pgl_synth_files_put(files, name, text.data, text.size, err);
    }
    pgl_buf_fini(&text);
    return status;
}

static pgl_status put_index(const pgl_synth_plan *plan, pgl_synth_files *files, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT;
    pgl_status status = pgl_synth_index(plan, &text, err);
    if (status == PGL_OK) {
        status = pgl_synth_files_put(files, "model.safetensors.index.json", text.data, text.size, err);
    }
    pgl_buf_fini(&text);
    return status;
}

static pgl_status write_all(const pgl_synth_options *options, const pgl_synth_plan *plan,
                            pgl_synth_files *files, pgl_error *err) {
    const pgl_synth_shape *shape = options->shape;
    const char *template = pgl_synth_chat_template();
    pgl_status status = pgl_synth_write_shards(options, plan, files, err);
    if (status == PGL_OK && plan->n_shards > 1) {
        status = put_index(plan, files, err);
    }
    if (status == PGL_OK) {
        status = put_text(shape, files, "tokenizer.json", pgl_synth_tokenizer, err);
    }
    if (status == PGL_OK) {
        status = put_text(shape, files, "tokenizer_config.json", pgl_synth_tokenizer_config, err);
    }
    if (status == PGL_OK) {
        status = pgl_synth_files_put(files, "chat_template.jinja", template, strlen(template), err);
    }
    if (status == PGL_OK) {
        status = put_text(shape, files, "generation_config.json", pgl_synth_generation_config, err);
    }
    if (status == PGL_OK) {
        status = put_text(shape, files, "config.json", pgl_synth_config, err);
    }
    return status == PGL_OK ? pgl_synth_files_commit(files, err) : status;
}

pgl_status pgl_synth_write(const pgl_synth_options *options, pgl_error *err) {
    pgl_synth_plan plan = {0};
    pgl_status status = pgl_synth_plan_init(&plan, options->shape, options->seed, err);
    if (status != PGL_OK) {
        return status;
    }
    pgl_synth_files files;
    bool made = false;
    status = pgl_synth_files_open(&files, options->directory, options->force, &made, err);
    if (status == PGL_OK) {
        status = write_all(options, &plan, &files, err);
        if (status != PGL_OK) {
            pgl_synth_files_abandon(&files, made);
        }
        pgl_synth_files_close(&files);
    }
    pgl_synth_plan_fini(&plan);
    return status;
}
