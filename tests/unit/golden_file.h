/* For tests: the tensors of one well-formed safetensors file, by name. A plain reader that shares no code
 * with the program's own. Fails the running test on any surprise. */
#ifndef PGL_TESTS_GOLDEN_FILE_H
#define PGL_TESTS_GOLDEN_FILE_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct golden_file {
    unsigned char *bytes;
    size_t size, data;
    json_t *header;
} golden_file;

static inline golden_file golden_open(const char *path) {
    golden_file g = {0};
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("cannot open %s", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long size = ftell(f);
    assert_true(size > 8);
    rewind(f);
    g.size = (size_t)size;
    g.bytes = malloc(g.size);
    assert_non_null(g.bytes);
    assert_int_equal(fread(g.bytes, 1, g.size, f), g.size);
    fclose(f);
    uint64_t n;
    memcpy(&n, g.bytes, 8);
    assert_true(n < g.size);
    g.data = 8 + (size_t)n;
    g.header = json_loadb((const char *)g.bytes + 8, (size_t)n, 0, NULL);
    assert_non_null(g.header);
    return g;
}

static inline void golden_close(golden_file *g) {
    json_decref(g->header);
    free(g->bytes);
}

/* The data of a tensor of the given type, and its number of bytes. Aligned only as the file aligns it. */
static inline const void *golden_tensor(const golden_file *g, const char *name, const char *dtype,
                                        size_t *bytes) {
    json_t *t = json_object_get(g->header, name);
    if (t == NULL)
        fail_msg("no tensor %s", name);
    assert_string_equal(json_string_value(json_object_get(t, "dtype")), dtype);
    json_t *offsets = json_object_get(t, "data_offsets");
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
    assert_true(begin <= end && g->data + end <= g->size);
    if (bytes != NULL)
        *bytes = end - begin;
    return g->bytes + g->data + begin;
}

/* Dimension d of a tensor. */
static inline size_t golden_dim(const golden_file *g, const char *name, size_t d) {
    json_t *t = json_object_get(g->header, name);
    if (t == NULL)
        fail_msg("no tensor %s", name);
    return (size_t)json_integer_value(json_array_get(json_object_get(t, "shape"), d));
}

#endif
