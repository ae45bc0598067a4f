/* Safetensors: what is written is read back, and a header that lies is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

static char directory[64];

static int make_directory(void **state) {
    (void)state;
    strcpy(directory, "/tmp/pgl-safetensors-XXXXXX");
    return mkdtemp(directory) == NULL ? -1 : 0;
}

static int remove_directory(void **state) {
    (void)state;
    char **names;
    size_t n;
    if (pgl_fs_list(directory, &names, &n, NULL) != PGL_OK)
        return -1;
    for (size_t i = 0; i < n; i++) {
        char *path = pgl_fs_join(directory, names[i]);
        unlink(path);
        free(path);
    }
    free(names);
    return rmdir(directory);
}

static char *in_directory(const char *name) {
    return pgl_fs_join(directory, name);
}

static void assert_refused(const char *json, size_t data_bytes, const char *part) {
    pgl_buf file = PGL_BUF_INIT;
    uint64_t length = strlen(json);
    assert_true(pgl_buf_append(&file, &length, sizeof length) && pgl_buf_puts(&file, json));
    for (size_t i = 0; i < data_bytes; i++)
        assert_true(pgl_buf_putc(&file, 0));
    pgl_safetensors_header h;
    pgl_error err;
    if (pgl_safetensors_read_header(file.data, file.size, "f.safetensors", &h, &err) != PGL_E_FORMAT)
        fail_msg("accepted: %s", json);
    assert_null(h.arena);
    assert_int_equal(strncmp(err.text, "f.safetensors: ", 15), 0);
    if (strstr(err.text, part) == NULL)
        fail_msg("message \"%s\" lacks \"%s\"", err.text, part);
    pgl_buf_fini(&file);
}

static void a_header_that_lies_is_refused_with_the_reason(void **state) {
    (void)state;
    assert_refused("", 0, "there is none");
    assert_refused("[]", 0, "expected a JSON object as its header");
    assert_refused("{\"a\":1}", 0, "a: expected an object with dtype");
    assert_refused("{\"a\":{}}", 0, "a: expected a dtype, found none");
    assert_refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,0]}}", 0,
                   "a: expected a known dtype, found \"F4\"");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4,
                   "a: expected a shape, found none");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
                   "a shape of whole numbers");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4,
                   "a shape of whole numbers");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
                   "at most 6 dimensions, found 7");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4,
                   "expected data_offsets of two whole numbers");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "two whole numbers");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4,
                   "two whole numbers");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4,
                   "expected rising data_offsets, found [4, 0]");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7,
                   "a: data_offsets end at 8, expected at most the 7 bytes of data that were found");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8,
                   "a: expected 12 bytes for F32 [3], found data_offsets of 8 bytes");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
                   "expected a size that fits 64 bits");
    assert_refused("{\"a\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                   "\"z\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[4,4]},"
                   "\"b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
                   8, "b: expected bytes of its own, found data_offsets [3, 7] that overlap [0, 4] of a");
    assert_refused("{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                   "\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                   2, "duplicate");
}

static void lengths_beyond_the_file_are_refused(void **state) {
    (void)state;
    pgl_safetensors_header h;
    pgl_error err;
    uint64_t length = 100;
    assert_int_equal(pgl_safetensors_read_header(&length, 7, "f", &h, &err), PGL_E_FORMAT);
    assert_string_equal(err.text, "f: expected a safetensors file, found only 7 bytes");
    assert_int_equal(pgl_safetensors_read_header(&length, 8, "f", &h, &err), PGL_E_FORMAT);
    assert_string_equal(err.text,
                        "f: expected a header of 100 bytes, found a file of 8 bytes (is it truncated?)");
    length = UINT64_MAX;
    assert_int_equal(pgl_safetensors_read_header(&length, 8, "f", &h, &err), PGL_E_FORMAT);
    assert_non_null(strstr(err.text, "found a length of 18446744073709551615"));
}

/* Gaps and foreign types are legal; what lies behind the last tensor is reported. */
static void gaps_and_types_of_others_are_read(void **state) {
    (void)state;
    const char *json =
        "{\"__metadata__\":{\"x\":\"y\"},\"b\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[5,13]},"
        "\"a\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}   ";
    pgl_buf file = PGL_BUF_INIT;
    uint64_t length = strlen(json);
    assert_true(pgl_buf_append(&file, &length, sizeof length) && pgl_buf_puts(&file, json));
    assert_true(pgl_buf_append(&file, "0123456789abcdef", 16));
    pgl_safetensors_header h;
    assert_int_equal(pgl_safetensors_read_header(file.data, file.size, "f", &h, NULL), PGL_OK);
    assert_int_equal(h.n_tensors, 2);
    assert_string_equal(h.tensors[0].name, "b");
    assert_string_equal(h.tensors[0].dtype_name, "F64");
    assert_int_equal(h.tensors[0].dtype, PGL_NONE);
    assert_int_equal(h.tensors[0].bytes, 8);
    assert_int_equal(h.tensors[1].dtype, PGL_BF16);
    assert_int_equal(h.tensors[1].offset, 8 + length);
    assert_int_equal(h.data_bytes, 12);
    assert_int_equal(h.trailing_bytes, 3);
    pgl_safetensors_header_fini(&h);
    pgl_buf_fini(&file);
}

static const pgl_safetensors_spec SPECS[] = {
    {"one", PGL_F32, 2, {2, 3}}, {"none", PGL_F16, 1, {0}},        {"two \"x\"", PGL_I8, 1, {5}},
    {"scalar", PGL_I32, 0, {0}}, {"big", PGL_I16, 2, {1000, 700}},
};
#define N_SPECS (sizeof SPECS / sizeof SPECS[0])
#define DATA_BYTES (24 + 5 + 4 + 1400000)

static unsigned char data_byte(size_t i) {
    return (unsigned char)((i * 2654435761u) >> 13);
}

/* Writes all data in pieces of the given size. */
static void write_data(pgl_safetensors_writer *w, size_t piece) {
    unsigned char *data = malloc(DATA_BYTES);
    assert_non_null(data);
    for (size_t i = 0; i < DATA_BYTES; i++)
        data[i] = data_byte(i);
    for (size_t i = 0; i < DATA_BYTES; i += piece) {
        size_t n = DATA_BYTES - i < piece ? DATA_BYTES - i : piece;
        assert_int_equal(pgl_safetensors_write(w, data + i, n, NULL), PGL_OK);
    }
    free(data);
}

/* Finds spec k in the file, with its bytes from position `at` of the data. */
static void assert_holds(const char *file, size_t k, size_t at) {
    char *path = in_directory(file);
    pgl_buf text = PGL_BUF_INIT;
    assert_int_equal(pgl_fs_read(path, 1 << 24, &text, NULL), PGL_OK);
    pgl_safetensors_header h;
    pgl_error err;
    if (pgl_safetensors_read_header(text.data, text.size, file, &h, &err) != PGL_OK)
        fail_msg("%s", err.text);
    assert_int_equal(h.trailing_bytes, 0);
    size_t found = 0;
    for (size_t i = 0; i < h.n_tensors; i++) {
        const pgl_safetensors_tensor *t = &h.tensors[i];
        if (strcmp(t->name, SPECS[k].name) != 0)
            continue;
        found++;
        assert_int_equal(t->dtype, SPECS[k].dtype);
        assert_int_equal(t->n_dims, SPECS[k].n_dims);
        assert_memory_equal(t->dims, SPECS[k].dims, t->n_dims * sizeof t->dims[0]);
        for (uint64_t j = 0; j < t->bytes; j++)
            if ((unsigned char)text.data[t->offset + j] != data_byte(at + j))
                fail_msg("%s: byte %u differs", t->name, (unsigned)j);
    }
    assert_int_equal(found, 1);
    pgl_safetensors_header_fini(&h);
    pgl_buf_fini(&text);
    free(path);
}

static void a_file_reads_back_whatever_the_pieces(void **state) {
    (void)state;
    const size_t pieces[] = {DATA_BYTES, 1 << 20, 4097, 7};
    char *path = in_directory("one.safetensors");
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        pgl_safetensors_writer *w;
        assert_int_equal(pgl_safetensors_create(path, SPECS, N_SPECS, &w, NULL), PGL_OK);
        write_data(w, pieces[i]);
        assert_int_equal(pgl_safetensors_finish(w, NULL), PGL_OK);
        const size_t at[N_SPECS] = {0, 24, 24, 29, 33};
        for (size_t k = 0; k < N_SPECS; k++)
            assert_holds("one.safetensors", k, at[k]);
        unlink(path);
    }
    free(path);
}

static void a_set_has_an_index_that_names_every_tensor(void **state) {
    (void)state;
    pgl_safetensors_writer *w;
    assert_int_equal(pgl_safetensors_create_set(directory, 30, SPECS, N_SPECS, &w, NULL), PGL_OK);
    write_data(w, 100);
    assert_int_equal(pgl_safetensors_finish(w, NULL), PGL_OK);
    assert_holds("model-00001-of-00003.safetensors", 0, 0);
    assert_holds("model-00001-of-00003.safetensors", 1, 24);
    assert_holds("model-00001-of-00003.safetensors", 2, 24);
    assert_holds("model-00002-of-00003.safetensors", 3, 29);
    assert_holds("model-00003-of-00003.safetensors", 4, 33);
    char *path = in_directory("model.safetensors.index.json");
    pgl_buf text = PGL_BUF_INIT;
    assert_int_equal(pgl_fs_read(path, 1 << 20, &text, NULL), PGL_OK);
    json_t *root;
    assert_int_equal(pgl_json_parse(text.data, text.size, NULL, &root, NULL), PGL_OK);
    json_t *map = json_object_get(root, "weight_map");
    assert_int_equal(json_object_size(map), N_SPECS);
    assert_string_equal(json_string_value(json_object_get(map, "scalar")),
                        "model-00002-of-00003.safetensors");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "metadata"), "total_size")),
                     DATA_BYTES);
    json_decref(root);
    pgl_buf_fini(&text);
    free(path);
}

static void nothing_appears_before_it_is_complete(void **state) {
    (void)state;
    char *path = in_directory("half.safetensors");
    pgl_safetensors_writer *w;
    pgl_error err;
    assert_int_equal(pgl_safetensors_create(path, SPECS, N_SPECS, &w, NULL), PGL_OK);
    assert_int_equal(pgl_safetensors_write(w, "abcd", 4, NULL), PGL_OK);
    assert_false(pgl_fs_is_file(path));
    assert_int_equal(pgl_safetensors_finish(w, &err), PGL_E_INVALID);
    assert_non_null(strstr(err.text, "half.safetensors: 1400029 bytes of its tensors are missing"));
    assert_false(pgl_fs_is_file(path));
    char *part = in_directory("half.safetensors.part");
    assert_false(pgl_fs_is_file(part));

    assert_int_equal(pgl_safetensors_create(path, SPECS + 3, 1, &w, NULL), PGL_OK);
    assert_int_equal(pgl_safetensors_write(w, "abcde", 5, &err), PGL_E_INVALID);
    assert_non_null(strstr(err.text, "1 bytes more"));
    pgl_safetensors_abandon(w);
    assert_false(pgl_fs_is_file(part));

    const pgl_safetensors_spec twice[] = {{"a", PGL_I8, 1, {1}}, {"a", PGL_I8, 1, {1}}};
    assert_int_equal(pgl_safetensors_create(path, twice, 2, &w, &err), PGL_E_INVALID);
    const pgl_safetensors_spec untyped = {"a", PGL_NONE, 1, {1}};
    assert_int_equal(pgl_safetensors_create(path, &untyped, 1, &w, &err), PGL_E_INVALID);
    const pgl_safetensors_spec huge = {"a", PGL_F32, 2, {UINT64_C(1) << 40, UINT64_C(1) << 40}};
    assert_int_equal(pgl_safetensors_create(path, &huge, 1, &w, &err), PGL_E_INVALID);
    assert_int_equal(pgl_safetensors_create("/nowhere/x.safetensors", SPECS, 1, &w, &err), PGL_E_IO);
    assert_non_null(strstr(err.text, "/nowhere/x.safetensors.part: cannot write it"));
    free(part);
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_that_lies_is_refused_with_the_reason),
        cmocka_unit_test(lengths_beyond_the_file_are_refused),
        cmocka_unit_test(gaps_and_types_of_others_are_read),
        cmocka_unit_test(a_file_reads_back_whatever_the_pieces),
        cmocka_unit_test(a_set_has_an_index_that_names_every_tensor),
        cmocka_unit_test(nothing_appears_before_it_is_complete),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
