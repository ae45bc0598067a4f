/* Owns the tensors of one output file. */
#include "quantize/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/mapped.h"
#include "quantize/dense.h"

void pgl_quant_output_fini(pgl_quant_output *output) {
    for (size_t i = 0; i < output->n; i++) {
        free(output->tensors[i]->data);
        free(output->tensors[i]);
    }
    free(output->tensors);
    *output = (pgl_quant_output){0};
}

pgl_status pgl_quant_output_add(pgl_quant_output *output, const char *name, pgl_dtype dtype, uint32_t n_dims,
                                const uint64_t *dims, pgl_quant_output_tensor **out, pgl_error *err) {
    pgl_quant_output_tensor *t = pgl_new(1, sizeof *t);
    if (t == NULL || !pgl_grow(&output->tensors, sizeof *output->tensors, &output->capacity, output->n + 1)) {
        free(t);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for tensor %s", name);
    }
    int length = snprintf(t->name, sizeof t->name, "%s", name);
    t->spec = (pgl_safetensors_spec){.name = t->name, .dtype = dtype, .n_dims = n_dims};
    memcpy(t->spec.dims, dims, n_dims * sizeof *dims);
    if (length < 0 || (size_t)length >= sizeof t->name || !pgl_safetensors_spec_bytes(&t->spec, &t->bytes)) {
        free(t);
        return pgl_fail(err, PGL_E_INVALID, "tensor %s: its name or size does not fit", name);
    }
    t->data = pgl_new_aligned(t->bytes, 1);
    if (t->data == NULL) {
        pgl_fail(err, PGL_E_MEMORY, "no memory for the %llu bytes of tensor %s", (unsigned long long)t->bytes,
                 name);
        free(t);
        return PGL_E_MEMORY;
    }
    output->tensors[output->n++] = t;
    *out = t;
    return PGL_OK;
}

const pgl_quant_output_tensor *pgl_quant_output_tensor_named(const pgl_quant_output *output,
                                                             const char *name) {
    for (size_t i = 0; i < output->n; i++)
        if (strcmp(output->tensors[i]->name, name) == 0)
            return output->tensors[i];
    return NULL;
}

static pgl_status add_named(pgl_quant_output *output, const char *prefix, const char *base, const char *leaf,
                            pgl_dtype dtype, uint32_t n_dims, const uint64_t *dims,
                            pgl_quant_output_tensor **out, pgl_error *err) {
    char name[256];
    int n = snprintf(name, sizeof name, "%s%s%s", prefix, base, leaf);
    if (n < 0 || (size_t)n >= sizeof name)
        return pgl_fail(err, PGL_E_INVALID, "tensor %s%s: its name is too long", base, leaf);
    return pgl_quant_output_add(output, name, dtype, n_dims, dims, out, err);
}

pgl_status pgl_quant_output_add_int8(pgl_quant_output *output, const pgl_source *source, const char *prefix,
                                     const char *base, uint64_t rows, uint64_t columns, pgl_error *err) {
    char weight[256];
    snprintf(weight, sizeof weight, "%s.weight", base);
    const pgl_tensor *in;
    const uint64_t dims[2] = {rows, columns};
    pgl_quant_output_tensor *w8 = NULL, *scale = NULL;
    pgl_status status = pgl_source_get(source, weight, 2, dims, &in, err);
    if (status == PGL_OK)
        status = add_named(output, prefix, base, ".weight_int8", PGL_I8, 2, dims, &w8, err);
    if (status == PGL_OK)
        status = add_named(output, prefix, base, ".weight_scale", PGL_F16, 1, dims, &scale, err);
    float *row = status == PGL_OK ? pgl_new(columns, sizeof *row) : NULL;
    if (status == PGL_OK && row == NULL)
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for a row of %s", base);
    for (uint64_t r = 0; r < rows && status == PGL_OK; r++) {
        pgl_source_read(in, r * columns, columns, row);
        status = pgl_quantize_row(row, (uint32_t)columns, (int8_t *)w8->data + r * columns,
                                  (pgl_f16 *)scale->data + r, err);
        if (status != PGL_OK)
            pgl_error_prefix(err, "%s: tensor %s: row %llu", in->shard->file, in->name,
                             (unsigned long long)r);
    }
    free(row);
    return status;
}

pgl_status pgl_quant_output_add_plain(pgl_quant_output *output, const pgl_source *source, const char *prefix,
                                      const char *base, uint32_t n_dims, const uint64_t *dims, bool as_f32,
                                      pgl_error *err) {
    const pgl_tensor *in;
    pgl_quant_output_tensor *out;
    pgl_status status = pgl_source_get(source, base, n_dims, dims, &in, err);
    if (status != PGL_OK)
        return status;
    pgl_dtype from = in->entry->dtype, to = from == PGL_F32 && !as_f32 ? PGL_F16 : from;
    status = add_named(output, prefix, base, "", to, n_dims, dims, &out, err);
    if (status != PGL_OK)
        return status;
    if (to == from) {
        memcpy(out->data, in->data, out->bytes);
        return PGL_OK;
    }
    uint64_t n = out->bytes / 2;
    float *wide = pgl_new(n, sizeof *wide);
    if (wide == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for tensor %s", base);
    pgl_source_read(in, 0, n, wide);
    status = pgl_quantize_f16(wide, n, out->data, err);
    if (status != PGL_OK)
        pgl_error_prefix(err, "%s: tensor %s", in->shard->file, in->name);
    free(wide);
    return status;
}

pgl_status pgl_quant_output_write(const pgl_quant_output *output, const char *path, pgl_error *err) {
    pgl_safetensors_spec *specs = pgl_new(output->n, sizeof *specs);
    if (specs == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the header of %s", path);
    for (size_t i = 0; i < output->n; i++)
        specs[i] = output->tensors[i]->spec;
    pgl_safetensors_writer *writer = NULL;
    pgl_status status = pgl_safetensors_create(path, specs, output->n, &writer, err);
    for (size_t i = 0; i < output->n && status == PGL_OK; i++)
        status = pgl_safetensors_write(writer, output->tensors[i]->data, output->tensors[i]->bytes, err);
    free(specs);
    if (status != PGL_OK) {
        pgl_safetensors_abandon(writer);
        return status;
    }
    return pgl_safetensors_finish(writer, err);
}

pgl_status pgl_quant_output_read(pgl_quant_output *output, const char *path, pgl_error *err) {
    pgl_mapped mapped = PGL_MAPPED_INIT;
    pgl_status status = pgl_mapped_open(path, &mapped, err);
    if (status != PGL_OK)
        return status;
    pgl_safetensors_header header;
    status = pgl_safetensors_read_header(mapped.data, mapped.size, path, &header, err);
    if (status == PGL_OK) {
        for (size_t i = 0; i < header.n_tensors && status == PGL_OK; i++) {
            const pgl_safetensors_tensor *t = &header.tensors[i];
            pgl_quant_output_tensor *copy = NULL;
            status = pgl_quant_output_add(output, t->name, t->dtype, t->n_dims, t->dims, &copy, err);
            if (status == PGL_OK)
                memcpy(copy->data, mapped.data + t->offset, t->bytes);
        }
        pgl_safetensors_header_fini(&header);
    }
    pgl_mapped_close(&mapped);
    return status;
}
