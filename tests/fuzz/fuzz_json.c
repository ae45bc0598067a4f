/* JSON: what is accepted must be read the same by jansson and by the walk over the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

static void require(int condition) {
    if (!condition)
        abort();
}

static json_t *parse_span(pgl_json_span span, const pgl_json_options *options) {
    json_t *value = NULL;
    require(pgl_json_parse(span.text, span.size, options, &value, NULL) == PGL_OK);
    return value;
}

static void compare(pgl_json_span span, const json_t *tree, const pgl_json_options *options, unsigned depth);

static void compare_string(pgl_json_span span, const json_t *string) {
    pgl_buf text = PGL_BUF_INIT, again = PGL_BUF_INIT;
    require(pgl_json_raw_string(span, &text));
    require(text.size == json_string_length(string) &&
            (text.size == 0 || memcmp(text.data, json_string_value(string), text.size) == 0));
    pgl_buf written = PGL_BUF_INIT;
    require(pgl_json_put_string(&written, pgl_buf_text(&text), text.size));
    require(pgl_json_raw_string((pgl_json_span){written.data, written.size}, &again));
    require(again.size == text.size && (text.size == 0 || memcmp(again.data, text.data, text.size) == 0));
    pgl_buf_fini(&text);
    pgl_buf_fini(&again);
    pgl_buf_fini(&written);
}

static void compare_members(pgl_json_span span, const json_t *tree, const pgl_json_options *options,
                            unsigned depth) {
    pgl_json_iter it = pgl_json_iter_begin(span);
    pgl_json_span key, value;
    size_t n = 0;
    while (pgl_json_iter_next(&it, &key, &value)) {
        if (json_is_array(tree)) {
            compare(value, json_array_get(tree, n), options, depth + 1);
        } else {
            pgl_buf name = PGL_BUF_INIT;
            require(pgl_json_raw_string(key, &name));
            const char *text = pgl_buf_text(&name);
            if (strlen(text) == name.size) { /* keys with NUL are refused by jansson */
                pgl_json_span last = pgl_json_raw_member(span, text);
                require(last.text != NULL);
                if (last.text == value.text)
                    compare(value, json_object_get(tree, text), options, depth + 1);
            }
            pgl_buf_fini(&name);
        }
        n++;
    }
    if (json_is_array(tree))
        require(n == json_array_size(tree));
    else
        require(n >= json_object_size(tree) && (options->last_wins || n == json_object_size(tree)));
}

static void compare(pgl_json_span span, const json_t *tree, const pgl_json_options *options, unsigned depth) {
    require(tree != NULL && span.text != NULL);
    if (json_is_string(tree)) {
        compare_string(span, tree);
    } else if (json_is_object(tree) || json_is_array(tree)) {
        compare_members(span, tree, options, depth);
    } else {
        json_t *value = parse_span(span, options);
        require(json_equal(value, tree));
        json_decref(value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    const pgl_json_options options = {.last_wins = (data[0] & 1) != 0,
                                      .allow_nul = (data[0] & 2) != 0,
                                      .replace_surrogates = (data[0] & 4) != 0,
                                      .max_depth = (data[0] & 8) != 0 ? 5 : 0};
    const char *text = (const char *)data + 1;
    pgl_error err;
    json_t *tree = NULL;
    pgl_json_span span = pgl_json_raw((pgl_json_span){text, size - 1}, NULL, 0);
    pgl_status status = pgl_json_parse(text, size - 1, &options, &tree, &err);
    require(status != PGL_E_MEMORY); /* what the scan accepts and jansson does not is taken for it */
    if (status == PGL_OK) {
        compare(span, tree, &options, 0);
        json_decref(tree);
    } else {
        require(tree == NULL && pgl_utf8_valid(err.text, strlen(err.text)));
        pgl_json_span key, value;
        pgl_json_iter it = pgl_json_iter_begin((pgl_json_span){text, size - 1});
        while (pgl_json_iter_next(&it, &key, &value))
            require(value.text >= text && value.text + value.size <= text + size - 1);
    }
    return 0;
}
