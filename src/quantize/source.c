/* Owns the opened tensors and the notes about them. */
#include "quantize/source.h"

#include <string.h>

#include "checkpoint/weights.h"

pgl_status pgl_source_open(const char *directory, bool draft_alone, pgl_source *source, pgl_error *err) {
    *source = (pgl_source){.notes = PGL_BUF_INIT};
    source->set.notes = &source->notes;
    source->set.draft_alone = draft_alone;
    pgl_status status = pgl_tensor_set_open(directory, true, &source->set, err);
    if (status != PGL_OK)
        pgl_source_close(source);
    return status;
}

void pgl_source_close(pgl_source *source) {
    pgl_tensor_set_close(&source->set);
    pgl_buf_fini(&source->notes);
}

const pgl_tensor *pgl_source_find(const pgl_source *source, const char *base) {
    return pgl_map_find(&source->set.by_key, base);
}

pgl_status pgl_source_get(const pgl_source *source, const char *base, uint32_t n_dims, const uint64_t *dims,
                          const pgl_tensor **out, pgl_error *err) {
    const pgl_tensor *t = pgl_source_find(source, base);
    char expected[PGL_SHAPE_TEXT], found[PGL_SHAPE_TEXT];
    pgl_shape_text(n_dims, dims, expected);
    *out = t;
    if (t == NULL)
        return pgl_fail(err, PGL_E_FORMAT, "tensor %s: expected shape %s, found no such tensor", base,
                        expected);
    pgl_shape_text(t->entry->n_dims, t->entry->dims, found);
    if (t->entry->n_dims != n_dims || memcmp(t->entry->dims, dims, n_dims * sizeof *dims) != 0)
        return pgl_fail(err, PGL_E_FORMAT, "%s: tensor %s: expected shape %s, found %s", t->shard->file,
                        t->name, expected, found);
    if (t->entry->dtype != PGL_F16 && t->entry->dtype != PGL_BF16 && t->entry->dtype != PGL_F32)
        return pgl_fail(err, PGL_E_FORMAT, "%s: tensor %s: expected F16, BF16 or F32, found %s",
                        t->shard->file, t->name, t->entry->dtype_name);
    return PGL_OK;
}

void pgl_source_read(const pgl_tensor *tensor, uint64_t first, uint64_t n, float *out) {
    for (uint64_t i = 0; i < n; i++)
        out[i] = pgl_read_f32(tensor->data, tensor->entry->dtype, first + i);
}
