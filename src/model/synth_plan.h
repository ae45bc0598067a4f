/* The tensors of a synthetic checkpoint: names, types, sizes, and how each is filled. Private to the synthesizer. */
#ifndef PGL_MODEL_SYNTH_PLAN_H
#define PGL_MODEL_SYNTH_PLAN_H

#include "base/buf.h"
#include "checkpoint/weights.h"
#include "model/synth.h"

typedef enum pgl_synth_fill_kind {
    PGL_FILL_BITS,    /* any dtype: random bits */
    PGL_FILL_INT8,    /* a triangle over -128..127 */
    PGL_FILL_NORMAL,  /* F16: mean + std * bell */
    PGL_FILL_SIGNED,  /* F16: the same with a random sign; one in zero_one_in is exactly zero */
    PGL_FILL_UNIFORM, /* F16 or F32: mean +- std, evenly */
    PGL_FILL_ONES,    /* F32 */
    PGL_FILL_CONFIG,  /* I32: escha_config */
} pgl_synth_fill_kind;

typedef struct pgl_synth_tensor {
    char name[96];
    pgl_dtype dtype;
    uint32_t n_dims;
    uint64_t dims[4];
    uint64_t bytes;
    pgl_synth_fill_kind fill;
    float mean, std;
    uint32_t zero_one_in; /* 0: never */
    int32_t config[9];
    uint64_t key; /* of the random stream */
    uint32_t shard;
    uint64_t offset_bytes; /* in the data of its shard */
} pgl_synth_tensor;

typedef struct pgl_synth_plan {
    pgl_synth_tensor *tensors;
    size_t n_tensors;
    size_t capacity;
    uint32_t n_shards;
    uint64_t total_bytes;
} pgl_synth_plan;

/* plan starts zeroed. */
pgl_status pgl_synth_plan_init(pgl_synth_plan *plan, const pgl_synth_shape *shape, uint64_t seed,
                               pgl_error *err);
void pgl_synth_plan_fini(pgl_synth_plan *plan);

/* Bytes begin .. begin + size of a tensor's data; begin is a multiple of 64, size is unless it ends the tensor.
 * out has room for size rounded up to 64. Any thread. */
void pgl_synth_fill(const pgl_synth_tensor *tensor, uint64_t begin_bytes, size_t size, void *out);

/* Writes a shard's header, padded to 8 bytes, without the length in front. */
pgl_status pgl_synth_shard_header(const pgl_synth_plan *plan, uint32_t shard, pgl_buf *out, pgl_error *err);
pgl_status pgl_synth_index(const pgl_synth_plan *plan, pgl_buf *out, pgl_error *err);
/* "model.safetensors", or "model-00001-of-00003.safetensors" */
void pgl_synth_shard_name(const pgl_synth_plan *plan, uint32_t shard, char name[64]);

/* The small files. */
pgl_status pgl_synth_config(const pgl_synth_shape *shape, pgl_buf *out, pgl_error *err);
pgl_status pgl_synth_generation_config(const pgl_synth_shape *shape, pgl_buf *out, pgl_error *err);
pgl_status pgl_synth_tokenizer(const pgl_synth_shape *shape, pgl_buf *out, pgl_error *err);
pgl_status pgl_synth_tokenizer_config(const pgl_synth_shape *shape, pgl_buf *out, pgl_error *err);
const char *pgl_synth_chat_template(void);

/* The special tokens of the family in the order of their ids, the first one at id n_tokens. */
typedef struct pgl_synth_special {
    const char *text;
    bool special;
} pgl_synth_special;

#define PGL_SYNTH_N_SPECIAL 33
extern const pgl_synth_special pgl_synth_specials[PGL_SYNTH_N_SPECIAL];

/* Places of some of them in the list. */
enum {
    PGL_SPECIAL_END_OF_TEXT = 0,
    PGL_SPECIAL_IM_END = 2,
    PGL_SPECIAL_VISION_START = 9,
    PGL_SPECIAL_IMAGE_PAD = 12
};

#endif
