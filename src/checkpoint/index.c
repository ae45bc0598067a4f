#include "checkpoint/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"

#define MOST_FILES 1000

static pgl_status out_of_memory(const char *name, pgl_error *err) {
    return pgl_fail(err, PGL_E_MEMORY, "%s: out of memory while reading it", name);
}

static bool plain_name(const char *file) {
    static const char END[] = ".safetensors";
    size_t n = strlen(file);
    return n >= sizeof END && n <= 255 && file[0] != '.' && strchr(file, '/') == NULL &&
           strcmp(file + n - (sizeof END - 1), END) == 0;
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The one copy of a file's name. */
static const char *intern(pgl_index *index, pgl_map *seen, const char *file) {
    const char *known = pgl_map_find(seen, file);
    if (known != NULL)
        return known;
    char *copy = pgl_arena_strndup(index->arena, file, strlen(file));
    if (copy == NULL || !pgl_map_set(seen, copy, strlen(copy), copy, NULL))
        return NULL;
    return copy;
}

static pgl_status read_map(json_t *map, const char *name, pgl_index *out, pgl_map *seen, pgl_error *err) {
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value) {
        const char *file = json_string_value(value);
        if (file == NULL)
            return pgl_fail(err, PGL_E_FORMAT,
                            "%s: weight_map: %.200s: expected a file name, found something else", name,
                            tensor);
        if (!plain_name(file))
            return pgl_fail(
                err, PGL_E_FORMAT,
                "%s: weight_map: %.200s: expected the name of a .safetensors file in the same directory, "
                "found \"%.200s\"",
                name, tensor, file);
        const char *interned = intern(out, seen, file);
        if (interned == NULL ||
            !pgl_map_set(&out->files, tensor, strlen(tensor), (void *)(uintptr_t)interned, NULL))
            return out_of_memory(name, err);
        if (seen->count > MOST_FILES)
            return pgl_fail(err, PGL_E_FORMAT, "%s: weight_map: expected at most %d files, found more", name,
                            MOST_FILES);
    }
    out->names = pgl_arena_new(out->arena, seen->count, sizeof *out->names);
    if (out->names == NULL)
        return out_of_memory(name, err);
    size_t cursor = 0;
    for (const pgl_map_entry *e; (e = pgl_map_next(seen, &cursor)) != NULL;)
        out->names[out->n_names++] = e->value;
    qsort(out->names, out->n_names, sizeof *out->names, by_bytes);
    return PGL_OK;
}

static pgl_status read_root(json_t *root, const char *name, pgl_index *out, pgl_error *err) {
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return pgl_fail(err, PGL_E_FORMAT, "%s: weight_map: expected an object with tensor names, found %s",
                        name, json_is_object(map) ? "an empty one" : "none");
    const json_t *total = json_object_get(json_object_get(root, "metadata"), "total_size");
    if (json_is_integer(total) && json_integer_value(total) >= 0) {
        out->has_total_size = true;
        out->total_size = (uint64_t)json_integer_value(total);
    }
    out->arena = pgl_arena_open(0);
    if (out->arena == NULL)
        return out_of_memory(name, err);
    pgl_map seen = PGL_MAP_INIT;
    pgl_status status = read_map(map, name, out, &seen, err);
    pgl_map_fini(&seen);
    return status;
}

pgl_status pgl_index_parse(const char *json, size_t size, const char *name, pgl_index *out, pgl_error *err) {
    *out = (pgl_index){.files = PGL_MAP_INIT};
    const pgl_json_options options = {.name = name, .max_bytes = (size_t)256 << 20};
    json_t *root = NULL;
    pgl_status status = pgl_json_parse(json, size, &options, &root, err);
    if (status != PGL_OK && status != PGL_E_MEMORY) {
        if (err != NULL)
            err->status = PGL_E_FORMAT;
        return PGL_E_FORMAT;
    }
    if (status == PGL_OK)
        status = read_root(root, name, out, err);
    json_decref(root);
    if (status != PGL_OK)
        pgl_index_fini(out);
    return status;
}

void pgl_index_fini(pgl_index *index) {
    pgl_map_fini(&index->files);
    pgl_arena_close(index->arena);
    *index = (pgl_index){.files = PGL_MAP_INIT};
}
