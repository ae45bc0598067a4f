/* The sizes of a model, read from config.json (nested `text_config` or flat) and generation_config.json.
 *
 * Nothing in the program assumes the sizes of one published model: they all come from here. Reading checks
 * every field against a range that makes later size arithmetic safe, and refuses by name what the program
 * does not do (docs/format.md). Takes bytes, not paths: the functions have fuzz targets. Any thread; no
 * shared state. */
#ifndef PGL_CHECKPOINT_CONFIG_H
#define PGL_CHECKPOINT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PGL_MAX_LAYERS 256
#define PGL_MAX_EOS 16

typedef enum pgl_quant_method {
    PGL_QUANT_ESCHAMOE, /* one code stream per expert, stacked on a leading axis */
    PGL_QUANT_ESCHA,    /* dense model: no leading axis */
} pgl_quant_method;

typedef struct pgl_config {
    uint32_t vocab_size;
    uint32_t hidden_size;
    uint32_t n_layers;
    bool full_attention[PGL_MAX_LAYERS]; /* else gated delta net */

    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t rotary_dim; /* head_dim * partial_rotary_factor, even */
    double rope_theta;
    bool attention_bias;

    uint32_t n_key_heads, n_value_heads; /* gated delta net */
    uint32_t key_dim, value_dim;         /* per head */
    uint32_t conv_kernel;

    uint32_t n_experts; /* 0: a dense model, intermediate_size instead */
    uint32_t n_experts_used;
    uint32_t moe_intermediate_size;
    uint32_t shared_intermediate_size;
    uint32_t intermediate_size; /* dense models */

    float rms_norm_eps;
    uint32_t max_position_embeddings;
    bool tie_word_embeddings;
    bool has_mtp_layers;   /* the config says how many; else the tensors decide */
    uint32_t n_mtp_layers; /* of the draft head; the program can use one */

    int32_t eos[PGL_MAX_EOS]; /* config's and generation_config's, merged, without repeats */
    uint32_t n_eos;

    pgl_quant_method quant_method;

    /* generation_config.json: default sampling, each with whether the file has it. */
    bool has_temperature, has_top_p, has_top_k, has_min_p, has_repetition_penalty, has_presence_penalty;
    bool do_sample;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty;
    int32_t top_k;
} pgl_config;

/* Reads config.json. name is used in messages. notes, when not NULL, receives one line per thing that was
 * skipped or looks odd but is allowed (a vision tower without weights; layer_meta that disagrees). */
struct pgl_buf;
pgl_status pgl_config_parse(const char *json, size_t size, const char *name, pgl_config *config,
                            struct pgl_buf *notes, pgl_error *err);

/* Adds generation_config.json to a config that was read before. */
pgl_status pgl_config_parse_generation(const char *json, size_t size, const char *name, pgl_config *config,
                                       pgl_error *err);

#endif
