/* What an open checkpoint is, in numbers: for `pergola inspect`.
 *
 * Parameters are the weights of the model that the checkpoint stands for; the vectors and scales that belong to a code or
 * an int8 row count as bytes only. Everything is computed from the typed weights and the config; no page of weights is
 * touched. */
#ifndef PGL_CHECKPOINT_INSPECT_H
#define PGL_CHECKPOINT_INSPECT_H

#include "checkpoint/checkpoint.h"

#define PGL_INSPECT_MOST_K 8

typedef struct pgl_inspect_count {
    uint64_t parameters;
    uint64_t bytes;
} pgl_inspect_count;

typedef struct pgl_inspect_report {
    bool dense;
    uint32_t n_layers, n_attention_layers, n_delta_layers;
    bool tied_head;     /* the head is the embedding, and counted there */
    bool draft;         /* a draft head is part of the weights */
    bool draft_borrows; /* the routed experts of a trunk layer */

    /* The trunk, each weight in one class. */
    pgl_inspect_count coded[PGL_INSPECT_MOST_K + 1]; /* by K, 1 .. 8 */
    pgl_inspect_count int8;
    pgl_inspect_count plain; /* matrices and vectors of 16 or 32 bits */
    pgl_inspect_count embedding, head;
    pgl_inspect_count draft_head; /* what it has of its own, of any class */
    pgl_inspect_count trunk;      /* all of the above but the draft head */

    double bits_per_weight;       /* of the trunk, everything counted */
    double coded_bits_per_weight; /* of the coded linears, with their vectors */
    uint64_t active_parameters;   /* of the trunk, that one token meets; of the embedding one row */
    uint64_t token_read_bytes;    /* that one token at batch 1 reads of the trunk */
    uint64_t skipped_bytes;       /* of tensors that are not used */
    uint64_t file_bytes;          /* of all shards */

    uint64_t kv_token_bytes;       /* keys and values of a token in fp16, without the draft layer's */
    uint64_t draft_kv_token_bytes; /* of the draft layer */
    uint64_t state_bytes; /* of a sequence: S and convolution inputs of all delta-net layers, in f32 */

    bool has_tokenizer,
        has_chat_template; /* tokenizer.json; chat_template.jinja or one in tokenizer_config.json */
} pgl_inspect_report;

/* PGL_E_IO or PGL_E_MEMORY when a small file of the directory cannot be read. */
pgl_status pgl_inspect(const pgl_checkpoint *checkpoint, pgl_inspect_report *report, pgl_error *err);

#endif
