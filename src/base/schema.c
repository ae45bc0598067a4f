/* Owns nothing: reads schemas of jansson. */
#include "base/schema.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define MOST_DEPTH 32
#define MOST_SCHEMAS 1000
#define EVERY_TYPE 127u /* an alternative that says nothing allows anything */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One key of a pointer: %XX first, as in any fragment of a URI, then ~0 and ~1. The bytes read; 0: it is malformed. */
static size_t read_key(const char *text, char *key, size_t room, size_t *size) {
    size_t i = 0;
    bool tilde = false;
    for (*size = 0; text[i] != 0 && text[i] != '/'; i++) {
        char c = text[i];
        if (c == '%') {
            int high = hex_digit(text[i + 1]), low = high < 0 ? -1 : hex_digit(text[i + 2]);
            if (low < 0)
                return 0;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (tilde && c != '0' && c != '1')
            return 0;
        if (tilde)
            key[*size - 1] = c == '0' ? '~' : '/';
        else if (*size < room)
            key[(*size)++] = c;
        else
            return 0;
        tilde = c == '~' && !tilde;
    }
    return tilde ? 0 : i + 1;
}

static const json_t *element(const json_t *list, const char *key, size_t size) {
    size_t index = 0;
    if (size == 0 || size > 9 || (size > 1 && key[0] == '0'))
        return NULL;
    for (size_t i = 0; i < size; i++) {
        if (key[i] < '0' || key[i] > '9')
            return NULL;
        index = index * 10 + (size_t)(key[i] - '0');
    }
    return json_array_get(list, index);
}

const json_t *pgl_schema_resolve(const json_t *root, const char *reference) {
    if (reference[0] != '#' || (reference[1] != 0 && reference[1] != '/'))
        return NULL;
    const json_t *at = root;
    for (const char *p = reference + 1; *p == '/' && at != NULL;) {
        char key[512];
        size_t size, read = read_key(p + 1, key, sizeof key, &size);
        if (read == 0)
            return NULL;
        p += read;
        at = json_is_array(at) ? element(at, key, size) : json_object_getn(at, key, size);
    }
    return at;
}

static unsigned type_named(const char *name) {
    static const struct {
        const char *name;
        unsigned types;
    } TYPES[] = {{"string", PGL_TYPE_STRING},
                 {"integer", PGL_TYPE_INTEGER},
                 {"number", PGL_TYPE_NUMBER | PGL_TYPE_INTEGER},
                 {"boolean", PGL_TYPE_BOOLEAN},
                 {"null", PGL_TYPE_NULL},
                 {"object", PGL_TYPE_OBJECT},
                 {"array", PGL_TYPE_ARRAY}};
    for (size_t i = 0; name != NULL && i < sizeof TYPES / sizeof TYPES[0]; i++)
        if (strcmp(name, TYPES[i].name) == 0)
            return TYPES[i].types;
    return 0;
}

unsigned pgl_schema_type_of(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_STRING:
        return PGL_TYPE_STRING;
    case JSON_INTEGER:
        return PGL_TYPE_INTEGER | PGL_TYPE_NUMBER;
    case JSON_REAL:
        return PGL_TYPE_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return PGL_TYPE_BOOLEAN;
    case JSON_NULL:
        return PGL_TYPE_NULL;
    case JSON_OBJECT:
        return PGL_TYPE_OBJECT;
    case JSON_ARRAY:
        return PGL_TYPE_ARRAY;
    }
    return 0;
}

static unsigned declared(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum"),
                 *constant = json_object_get(schema, "const");
    unsigned types = type_named(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_named(json_string_value(json_array_get(type, i)));
    if (types != 0)
        return types;
    for (size_t i = 0; i < json_array_size(values); i++)
        types |= pgl_schema_type_of(json_array_get(values, i));
    return constant == NULL ? types : types | pgl_schema_type_of(constant);
}

typedef struct walk {
    const json_t *root;
    unsigned
        budget; /* schemas that may still be looked at: a few that refer to each other can stand for billions */
} walk;

static unsigned types_of(walk *w, const json_t *schema, unsigned depth);

/* What several schemas say together: each alternative's types, or (all) those that none of them forbids. */
static unsigned combined(walk *w, const json_t *list, bool all, unsigned depth) {
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        unsigned one = types_of(w, json_array_get(list, i), depth + 1);
        if (!all && one == 0)
            return EVERY_TYPE;
        if (one != 0)
            types = all && types != 0 ? types & one : types | one;
    }
    return types;
}

static unsigned types_of(walk *w, const json_t *schema, unsigned depth) {
    if (depth > MOST_DEPTH || w->budget == 0 || !json_is_object(schema))
        return 0;
    w->budget--;
    unsigned types = declared(schema);
    if (types != 0)
        return types;
    const char *reference = json_string_value(json_object_get(schema, "$ref"));
    if (reference != NULL)
        types = types_of(w, pgl_schema_resolve(w->root, reference), depth + 1);
    if (types == 0)
        types = combined(w, json_object_get(schema, "anyOf"), false, depth);
    if (types == 0)
        types = combined(w, json_object_get(schema, "oneOf"), false, depth);
    if (types == 0)
        types = combined(w, json_object_get(schema, "allOf"), true, depth);
    if (types == 0 && json_object_get(schema, "properties") != NULL)
        return PGL_TYPE_OBJECT;
    if (types == 0 && json_object_get(schema, "items") != NULL)
        return PGL_TYPE_ARRAY;
    return types;
}

unsigned pgl_schema_types(const json_t *root, const json_t *schema) {
    walk w = {.root = root, .budget = MOST_SCHEMAS};
    return types_of(&w, schema, 0);
}
