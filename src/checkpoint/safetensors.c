/* Reads safetensors headers. The header's arena owns everything that is handed out. */
#include "checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"

static const struct {
    const char *name;
    uint32_t size;
    pgl_dtype dtype;
} TYPES[] = {
    {"F16", 2, PGL_F16},   {"BF16", 2, PGL_BF16},    {"F32", 4, PGL_F32},      {"I8", 1, PGL_I8},
    {"I16", 2, PGL_I16},   {"I32", 4, PGL_I32},      {"F64", 8, PGL_NONE},     {"I64", 8, PGL_NONE},
    {"U8", 1, PGL_NONE},   {"U16", 2, PGL_NONE},     {"U32", 4, PGL_NONE},     {"U64", 8, PGL_NONE},
    {"BOOL", 1, PGL_NONE}, {"F8_E4M3", 1, PGL_NONE}, {"F8_E5M2", 1, PGL_NONE}, {"F8_E8M0", 1, PGL_NONE},
};

void pgl_shape_text(uint32_t n_dims, const uint64_t *dims, char out[PGL_SHAPE_TEXT]) {
    size_t n = 0;
    out[n++] = '[';
    for (uint32_t i = 0; i < n_dims && n < PGL_SHAPE_TEXT; i++) {
        int k = snprintf(out + n, PGL_SHAPE_TEXT - n, "%s%" PRIu64, i == 0 ? "" : ", ", dims[i]);
        n += k > 0 ? (size_t)k : 0;
    }
    if (n > PGL_SHAPE_TEXT - 2)
        n = PGL_SHAPE_TEXT - 2;
    out[n++] = ']';
    out[n] = 0;
}

typedef struct reader {
    const char *file;
    uint64_t data_start, data_bytes; /* of the file's data part */
    pgl_error *err;
} reader;

static pgl_status fail(const reader *r, const char *tensor, const char *what) {
    return pgl_fail(r->err, PGL_E_FORMAT, "%s: %.200s: %s", r->file, tensor, what);
}

static pgl_status read_dtype(const reader *r, const json_t *value, pgl_safetensors_tensor *t,
                             uint32_t *size) {
    const char *text = json_string_value(value);
    if (text == NULL)
        return fail(r, t->name, "expected a dtype, found none");
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        if (strcmp(text, TYPES[i].name) == 0) {
            t->dtype_name = TYPES[i].name;
            t->dtype = TYPES[i].dtype;
            *size = TYPES[i].size;
            return PGL_OK;
        }
    }
    return pgl_fail(r->err, PGL_E_FORMAT, "%s: %.200s: expected a known dtype, found \"%.40s\"", r->file,
                    t->name, text);
}

/* A whole number of at most 2^63 - 1 that is not negative. */
static bool read_count(const json_t *value, uint64_t *out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static pgl_status read_shape(const reader *r, const json_t *value, pgl_safetensors_tensor *t) {
    if (!json_is_array(value))
        return fail(r, t->name, "expected a shape, found none");
    if (json_array_size(value) > PGL_SAFETENSORS_MOST_DIMS)
        return pgl_fail(r->err, PGL_E_FORMAT, "%s: %.200s: expected at most %d dimensions, found %zu",
                        r->file, t->name, PGL_SAFETENSORS_MOST_DIMS, json_array_size(value));
    t->n_dims = (uint32_t)json_array_size(value);
    for (uint32_t i = 0; i < t->n_dims; i++)
        if (!read_count(json_array_get(value, i), &t->dims[i]))
            return fail(r, t->name, "expected a shape of whole numbers, found something else");
    return PGL_OK;
}

static pgl_status read_offsets(const reader *r, const json_t *value, uint32_t size,
                               pgl_safetensors_tensor *t) {
    uint64_t begin, end;
    if (!json_is_array(value) || json_array_size(value) != 2 ||
        !read_count(json_array_get(value, 0), &begin) || !read_count(json_array_get(value, 1), &end))
        return fail(r, t->name, "expected data_offsets of two whole numbers, found something else");
    if (begin > end)
        return pgl_fail(r->err, PGL_E_FORMAT,
                        "%s: %.200s: expected rising data_offsets, found [%" PRIu64 ", %" PRIu64 "]", r->file,
                        t->name, begin, end);
    if (end > r->data_bytes)
        return pgl_fail(r->err, PGL_E_FORMAT,
                        "%s: %.200s: data_offsets end at %" PRIu64 ", expected at most the %" PRIu64
                        " bytes of data that were found in the file (is it truncated?)",
                        r->file, t->name, end, r->data_bytes);
    uint64_t bytes = size;
    bool fits = true;
    for (uint32_t i = 0; i < t->n_dims; i++)
        fits = fits && pgl_mul_u64(bytes, t->dims[i], &bytes);
    char shape[PGL_SHAPE_TEXT];
    pgl_shape_text(t->n_dims, t->dims, shape);
    if (!fits)
        return pgl_fail(r->err, PGL_E_FORMAT, "%s: %.200s: expected a size that fits 64 bits, found shape %s",
                        r->file, t->name, shape);
    if (bytes != end - begin)
        return pgl_fail(r->err, PGL_E_FORMAT,
                        "%s: %.200s: expected %" PRIu64 " bytes for %s %s, found data_offsets of %" PRIu64
                        " bytes",
                        r->file, t->name, bytes, t->dtype_name, shape, end - begin);
    t->offset = r->data_start + begin;
    t->bytes = bytes;
    return PGL_OK;
}

static pgl_status read_entry(const reader *r, const json_t *entry, pgl_safetensors_tensor *t) {
    uint32_t size = 0;
    if (!json_is_object(entry))
        return fail(r, t->name,
                    "expected an object with dtype, shape and data_offsets, found something else");
    pgl_status status = read_dtype(r, json_object_get(entry, "dtype"), t, &size);
    if (status == PGL_OK)
        status = read_shape(r, json_object_get(entry, "shape"), t);
    if (status == PGL_OK)
        status = read_offsets(r, json_object_get(entry, "data_offsets"), size, t);
    return status;
}

static int by_offset(const void *a, const void *b) {
    const pgl_safetensors_tensor *x = *(const pgl_safetensors_tensor *const *)a;
    const pgl_safetensors_tensor *y = *(const pgl_safetensors_tensor *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static pgl_status check_overlap(const reader *r, pgl_safetensors_header *h) {
    const pgl_safetensors_tensor **order = pgl_new(h->n_tensors, sizeof *order);
    if (order == NULL)
        return pgl_fail(r->err, PGL_E_MEMORY, "%s: out of memory while reading its header", r->file);
    for (size_t i = 0; i < h->n_tensors; i++)
        order[i] = &h->tensors[i];
    qsort(order, h->n_tensors, sizeof *order, by_offset);
    uint64_t end = r->data_start;
    pgl_status status = PGL_OK;
    for (size_t i = 0; i < h->n_tensors && status == PGL_OK; i++) {
        const pgl_safetensors_tensor *t = order[i];
        if (t->bytes == 0)
            continue;
        if (t->offset < end) {
            size_t k =
                i - 1; /* the one that reaches furthest lies before: the offsets so far did not overlap */
            while (order[k]->bytes == 0)
                k--;
            status = pgl_fail(r->err, PGL_E_FORMAT,
                              "%s: %.200s: expected bytes of its own, found data_offsets [%" PRIu64
                              ", %" PRIu64 "] that overlap [%" PRIu64 ", %" PRIu64 "] of %.200s",
                              r->file, t->name, t->offset - r->data_start,
                              t->offset - r->data_start + t->bytes, order[k]->offset - r->data_start,
                              order[k]->offset - r->data_start + order[k]->bytes, order[k]->name);
        }
        end = t->offset + t->bytes;
        h->data_bytes += t->bytes;
    }
    h->trailing_bytes = r->data_start + r->data_bytes - end;
    free(order);
    return status;
}

static pgl_status read_entries(const reader *r, json_t *root, pgl_safetensors_header *out) {
    if (!json_is_object(root))
        return pgl_fail(r->err, PGL_E_FORMAT,
                        "%s: expected a JSON object as its header, found something else", r->file);
    out->arena = pgl_arena_open(0);
    if (out->arena != NULL)
        out->tensors = pgl_arena_new(out->arena, json_object_size(root), sizeof *out->tensors);
    pgl_status status = PGL_OK;
    const char *key;
    json_t *entry;
    json_object_foreach(root, key, entry) {
        if (strcmp(key, "__metadata__") == 0)
            continue;
        char *name = out->tensors == NULL ? NULL : pgl_arena_strndup(out->arena, key, strlen(key));
        if (name == NULL)
            return pgl_fail(r->err, PGL_E_MEMORY, "%s: out of memory while reading its header", r->file);
        pgl_safetensors_tensor *t = &out->tensors[out->n_tensors++];
        t->name = name;
        status = read_entry(r, entry, t);
        if (status != PGL_OK)
            return status;
    }
    return check_overlap(r, out);
}

pgl_status pgl_safetensors_read_header(const void *data, uint64_t file_bytes, const char *name,
                                       pgl_safetensors_header *out, pgl_error *err) {
    *out = (pgl_safetensors_header){0};
    uint64_t length;
    if (file_bytes < sizeof length)
        return pgl_fail(err, PGL_E_FORMAT, "%s: expected a safetensors file, found only %" PRIu64 " bytes",
                        name, file_bytes);
    memcpy(&length, data, sizeof length);
    if (length > PGL_SAFETENSORS_MOST_HEADER_BYTES)
        return pgl_fail(err, PGL_E_FORMAT,
                        "%s: expected a safetensors header of at most %" PRIu64
                        " bytes, found a length of %" PRIu64 " (is it a safetensors file?)",
                        name, PGL_SAFETENSORS_MOST_HEADER_BYTES, length);
    if (length > file_bytes - sizeof length)
        return pgl_fail(err, PGL_E_FORMAT,
                        "%s: expected a header of %" PRIu64 " bytes, found a file of %" PRIu64
                        " bytes (is it truncated?)",
                        name, length, file_bytes);
    reader r = {.file = name,
                .data_start = sizeof length + length,
                .data_bytes = file_bytes - sizeof length - length,
                .err = err};
    const pgl_json_options options = {
        .name = "header", .max_bytes = (size_t)PGL_SAFETENSORS_MOST_HEADER_BYTES, .max_depth = 8};
    json_t *root = NULL;
    pgl_status status =
        pgl_json_parse((const char *)data + sizeof length, (size_t)length, &options, &root, err);
    if (status != PGL_OK) {
        pgl_error_prefix(err, "%s", name);
        if (status != PGL_E_MEMORY) {
            status = PGL_E_FORMAT;
            if (err != NULL)
                err->status = status;
        }
        return status;
    }
    status = read_entries(&r, root, out);
    json_decref(root);
    if (status != PGL_OK)
        pgl_safetensors_header_fini(out);
    return status;
}

void pgl_safetensors_header_fini(pgl_safetensors_header *header) {
    pgl_arena_close(header->arena);
    *header = (pgl_safetensors_header){0};
}
