/* Owns nothing but the lists that it gives out. */
#include "cli/logits_ids.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/json.h"

#define MOST_FILE_BYTES ((size_t)256 << 20)

/* What a value is, for messages: `"a"`, `1.5`, `null`, `a list`. */
static const char *describe(const json_t *value, char out[64]) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        (void)snprintf(out, 64, "the string \"%.40s\"", json_string_value(value));
        return out;
    case JSON_INTEGER:
        (void)snprintf(out, 64, "%lld", (long long)json_integer_value(value));
        return out;
    case JSON_REAL:
        (void)snprintf(out, 64, "%g", json_real_value(value));
        return out;
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    default:
        return "null";
    }
}

typedef struct reading {
    const char *path;
    uint32_t vocab_size;
    size_t most_tokens;
    pgl_error *err;
} reading;

static pgl_status read_list(const reading *r, const json_t *array, size_t number, pgl_id_list *out) {
    size_t n = json_array_size(array);
    char text[64];
    if (n == 0)
        return pgl_fail(r->err, PGL_E_INVALID, "%s: list %zu: expected token ids, found none", r->path,
                        number);
    if (n > r->most_tokens)
        return pgl_fail(r->err, PGL_E_CONTEXT,
                        "%s: list %zu: expected at most %zu token ids, the model's limit; found %zu", r->path,
                        number, r->most_tokens, n);
    out->ids = pgl_new(n, sizeof *out->ids);
    if (out->ids == NULL)
        return pgl_fail(r->err, PGL_E_MEMORY, "%s: no memory for %zu token ids", r->path, n);
    out->n = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) >= (json_int_t)r->vocab_size)
            return pgl_fail(r->err, PGL_E_INVALID,
                            "%s: list %zu, element %zu: expected a token id from 0 to %" PRIu32 ", found %s",
                            r->path, number, i, r->vocab_size - 1, describe(value, text));
        out->ids[i] = (int32_t)json_integer_value(value);
    }
    return PGL_OK;
}

static pgl_status read_lists(const reading *r, const json_t *top, pgl_id_lists *out) {
    char text[64];
    if (!json_is_array(top) || json_array_size(top) == 0)
        return pgl_fail(r->err, PGL_E_INVALID,
                        "%s: expected a list of token ids or a list of such lists, found %s", r->path,
                        json_is_array(top) ? "an empty list" : describe(top, text));
    bool nested = json_is_array(json_array_get(top, 0));
    size_t n = nested ? json_array_size(top) : 1;
    out->lists = pgl_new(n, sizeof *out->lists);
    if (out->lists == NULL)
        return pgl_fail(r->err, PGL_E_MEMORY, "%s: no memory for %zu lists", r->path, n);
    out->n = n;
    if (!nested)
        return read_list(r, top, 0, &out->lists[0]);
    for (size_t i = 0; i < n; i++) {
        const json_t *list = json_array_get(top, i);
        if (!json_is_array(list))
            return pgl_fail(r->err, PGL_E_INVALID,
                            "%s: list %zu: expected a list of token ids like those before it, "
                            "found %s",
                            r->path, i, describe(list, text));
        pgl_status status = read_list(r, list, i, &out->lists[i]);
        if (status != PGL_OK)
            return status;
    }
    return PGL_OK;
}

static pgl_status parse(const char *path, const pgl_buf *text, json_t **top, pgl_error *err) {
    pgl_json_options options = {.name = path, .max_bytes = MOST_FILE_BYTES, .max_depth = 8};
    pgl_status status = pgl_json_parse(pgl_buf_text(text), text->size, &options, top, err);
    if (status != PGL_OK)
        pgl_error_prefix(err, "%s", path);
    return status;
}

pgl_status pgl_id_lists_read(const char *path, uint32_t vocab_size, size_t most_tokens, pgl_id_lists *out,
                             pgl_error *err) {
    reading r = {path, vocab_size, most_tokens, err};
    pgl_buf text = PGL_BUF_INIT;
    json_t *top = NULL;
    *out = (pgl_id_lists){0};
    pgl_status status = pgl_fs_read(path, MOST_FILE_BYTES, &text, err);
    if (status == PGL_OK)
        status = parse(path, &text, &top, err);
    pgl_buf_fini(&text);
    if (status == PGL_OK)
        status = read_lists(&r, top, out);
    json_decref(top);
    return status;
}

void pgl_id_lists_fini(pgl_id_lists *lists) {
    for (size_t i = 0; i < lists->n; i++)
        free(lists->lists[i].ids);
    free(lists->lists);
    *lists = (pgl_id_lists){0};
}
