/* Owns the parsed list of tools. */
#include "text/output_tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Where a string is allowed, a value with more blanks before it, or a number or word of more bytes with those behind it,
 * is one: as many are looked at again for each piece that comes. */
#define MOST_BLANKS 64
#define MOST_OTHER_BYTES 256

struct pgl_tool_table {
    json_t *list;
    pgl_tool *tools;
    pgl_map by_name;
};

pgl_status pgl_tool_table_open(pgl_json_span tools, pgl_tool_table **out, pgl_error *err) {
    *out = NULL;
    pgl_tool_table *t = pgl_new(1, sizeof *t);
    if (t == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the tools");
    t->by_name = (pgl_map)PGL_MAP_INIT;
    pgl_json_options options = {
        .name = "tools", .last_wins = true, .allow_nul = true, .replace_surrogates = true};
    pgl_status status = pgl_json_parse(tools.text, tools.size, &options, &t->list, err);
    if (status == PGL_OK && !json_is_array(t->list))
        status = pgl_fail(err, PGL_E_INVALID, "tools: expected a list");
    size_t n = status == PGL_OK ? json_array_size(t->list) : 0;
    t->tools = pgl_new(n, sizeof *t->tools);
    if (status == PGL_OK && t->tools == NULL)
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for %zu tools", n);
    for (size_t i = 0; i < n && status == PGL_OK; i++) {
        const json_t *tool = json_array_get(t->list, i), *function = json_object_get(tool, "function");
        function = function != NULL ? function : tool;
        const json_t *name = json_object_get(function, "name");
        t->tools[i].parameters = json_object_get(function, "parameters");
        t->tools[i].properties = json_object_get(t->tools[i].parameters, "properties");
        if (json_is_string(name) &&
            !pgl_map_set(&t->by_name, json_string_value(name), json_string_length(name), &t->tools[i], NULL))
            status = pgl_fail(err, PGL_E_MEMORY, "no memory for %zu tools", n);
    }
    if (status != PGL_OK) {
        pgl_tool_table_close(t);
        return status;
    }
    *out = t;
    return PGL_OK;
}

void pgl_tool_table_close(pgl_tool_table *table) {
    if (table == NULL)
        return;
    pgl_map_fini(&table->by_name);
    free(table->tools);
    json_decref(table->list);
    free(table);
}

const pgl_tool *pgl_tool_find(const pgl_tool_table *table, const char *name, size_t size) {
    return pgl_map_get(&table->by_name, name, size);
}

static const json_t *property(const pgl_tool *tool, const char *key, size_t size) {
    return tool == NULL ? NULL : json_object_getn(tool->properties, key, size);
}

bool pgl_tool_has_key(const pgl_tool *tool, const char *key, size_t size) {
    return property(tool, key, size) != NULL;
}

unsigned pgl_tool_types(const pgl_tool *tool, const char *key, size_t size) {
    const json_t *schema = property(tool, key, size);
    return schema == NULL ? 0 : pgl_schema_types(tool->parameters, schema);
}

bool pgl_tool_seen_add(pgl_tool_seen *seen, const char *key, size_t size) {
    return pgl_map_get(&seen->keys, key, size) == NULL && pgl_map_set(&seen->keys, key, size, seen, NULL);
}

bool pgl_tool_seen_has(const pgl_tool_seen *seen, const char *key, size_t size) {
    return pgl_map_get(&seen->keys, key, size) != NULL;
}

void pgl_tool_seen_clear(pgl_tool_seen *seen) {
    pgl_map_fini(&seen->keys);
    seen->keys = (pgl_map)PGL_MAP_INIT;
}

static bool is_word(const char *text, size_t size, const char *word) {
    return size == strlen(word) && memcmp(text, word, size) == 0;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A number without a fraction is an integer, also one of more than 64 bits, which is read as a real. */
static unsigned type_of(const json_t *value) {
    double real = json_real_value(value);
    bool whole = json_is_real(value) && real - floor(real) == 0;
    return pgl_schema_type_of(value) | (whole ? (unsigned)PGL_TYPE_INTEGER : 0u);
}

bool pgl_tool_put_value(pgl_buf *out, const char *text, size_t size, unsigned types) {
    const char *word = text;
    size_t n = size;
    for (; n > 0 && is_blank(word[0]); n--)
        word++;
    while (n > 0 && is_blank(word[n - 1]))
        n--;
    if ((types & PGL_TYPE_BOOLEAN) != 0 && is_word(word, n, "True"))
        return pgl_buf_puts(out, "true");
    if ((types & PGL_TYPE_BOOLEAN) != 0 && is_word(word, n, "False"))
        return pgl_buf_puts(out, "false");
    if ((types & PGL_TYPE_NULL) != 0 && is_word(word, n, "None"))
        return pgl_buf_puts(out, "null");
    /* The same rule as while it came, when it may have been given out as one. Quotes are part of a string. */
    if (pgl_tool_is_string(text, size, types))
        return pgl_json_put_string(out, text, size);
    json_t *value = NULL;
    pgl_json_options options = {.last_wins = true, .allow_nul = true};
    bool fits = pgl_json_parse(word, n, &options, &value, NULL) == PGL_OK && (type_of(value) & types) != 0;
    json_decref(value);
    return fits ? pgl_buf_append(out, word, n) : pgl_json_put_string(out, text, size);
}

bool pgl_tool_is_string(const char *text, size_t size, unsigned types) {
    static const struct {
        const char *word;
        unsigned type;
    } WORDS[] = {{"true", PGL_TYPE_BOOLEAN},  {"false", PGL_TYPE_BOOLEAN}, {"True", PGL_TYPE_BOOLEAN},
                 {"False", PGL_TYPE_BOOLEAN}, {"null", PGL_TYPE_NULL},     {"None", PGL_TYPE_NULL}};
    if ((types & PGL_TYPE_STRING) == 0)
        return false;
    size_t blanks = 0;
    while (blanks < size && blanks <= MOST_BLANKS && is_blank(text[blanks]))
        blanks++;
    if (blanks > MOST_BLANKS)
        return true;
    text += blanks;
    size -= blanks;
    if (size > MOST_OTHER_BYTES)
        return !((types & PGL_TYPE_OBJECT) != 0 && *text == '{') &&
               !((types & PGL_TYPE_ARRAY) != 0 && *text == '[');
    while (size > 0 && is_blank(text[size - 1]))
        size--;
    if (size == 0)
        return false;
    if (((types & PGL_TYPE_OBJECT) != 0 && *text == '{') || ((types & PGL_TYPE_ARRAY) != 0 && *text == '['))
        return false;
    if ((types & (PGL_TYPE_NUMBER | PGL_TYPE_INTEGER)) != 0 && strchr("-0123456789", *text) != NULL)
        return size > 64 || strspn(text, "-+.0123456789eE") < size;
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++)
        if ((types & WORDS[i].type) != 0 && size <= strlen(WORDS[i].word) &&
            memcmp(text, WORDS[i].word, size) == 0)
            return false;
    return true;
}
