/* Random checkpoints in the published layout: for tests, for measuring speed and memory at full size, and for trying
 * the program out where there is no model. Random codes are valid codes, so speed is that of a real checkpoint; the
 * scales are chosen so that activations keep a healthy range through all layers and routing spreads as a trained
 * router spreads it. The text that such a model writes is babble.
 *
 * The contents are a function of the sizes and the seed alone: not of threads, machine or time. */
#ifndef PGL_MODEL_SYNTH_H
#define PGL_MODEL_SYNTH_H

#include "checkpoint/config.h"

/* Changes whenever the same sizes and seed give other bytes. */
#define PGL_SYNTH_VERSION 1

/* What a preset fixes besides the model's sizes: the tokenizer has n_tokens ordinary tokens, then the special ones of
 * the family in their published order; rows of the vocabulary after those belong to no token. */
typedef struct pgl_synth_shape {
    pgl_config config;
    uint32_t n_tokens;        /* 256 bytes and the merges */
    uint64_t max_shard_bytes; /* a file is closed before it exceeds this */
} pgl_synth_shape;

typedef struct pgl_synth_options {
    const pgl_synth_shape *shape; /* MoE: n_experts > 0 */
    uint64_t seed;
    const char *directory; /* made where it does not exist */
    bool force;            /* an existing checkpoint in directory is replaced */
    uint32_t n_threads;    /* 0: one per core, at most 16; each takes 4 MiB */

    /* Called from the calling thread some times a second, and once at the end; may be NULL. false: stop, remove what
     * was written, return PGL_E_CANCELLED. */
    bool (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
} pgl_synth_options;

/* "35b-a3b" or "tiny"; PGL_E_INVALID names the presets there are. */
pgl_status pgl_synth_preset(const char *name, pgl_synth_shape *shape, pgl_error *err);

/* The bytes of the tensors of a checkpoint of this shape. */
pgl_status pgl_synth_size(const pgl_synth_shape *shape, uint64_t *bytes, pgl_error *err);

/* Writes the checkpoint. Files appear under their names when all are complete, config.json last; after a failure
 * nothing new is left. PGL_E_INVALID: directory exists and is not empty (without force), or holds something that is
 * no checkpoint; PGL_E_IO: also when the disk has too little room, before anything is written. */
pgl_status pgl_synth_write(const pgl_synth_options *options, pgl_error *err);

#endif
