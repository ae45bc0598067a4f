/* Owns nothing of its callers'. A check owns the list of what the schema refers to while it runs. */
#include "constraint/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/schema.h"
#include "constraint/constraint.h"

/* How often what is known to have an answer is gone through. Once finds nearly all; a schema that is not through after so
 * many, whose parts refer to each other in the worst order, is let go on. */
#define MOST_ROUNDS 32

typedef struct target {
    const json_t *schema;
    bool has_answer; /* known to have one of finite length */
} target;

typedef struct check {
    const json_t *root;
    const char *what;
    target *targets; /* of references, in the order in which they were met */
    size_t n_targets, capacity;
    pgl_map by_reference; /* to 1 + index into targets */
    size_t n_values;      /* objects and lists that were visited */
    pgl_error *err;
} check;

/* ---- references and sizes */

bool pgl_constraint_is_data(const char *key) {
    static const char *const DATA[] = {"enum", "const", "default", "examples", "required", "x-guidance"};
    for (size_t i = 0; i < sizeof DATA / sizeof DATA[0]; i++)
        if (strcmp(key, DATA[i]) == 0)
            return true;
    return false;
}

/* Whether the members of key are named by the schema's author and not by the language. */
bool pgl_constraint_has_names(const char *key) {
    static const char *const NAMED[] = {"properties", "patternProperties", "$defs", "definitions",
                                        "dependentSchemas"};
    for (size_t i = 0; i < sizeof NAMED / sizeof NAMED[0]; i++)
        if (strcmp(key, NAMED[i]) == 0)
            return true;
    return false;
}

static pgl_status note_reference(check *c, const char *reference) {
    if (pgl_map_find(&c->by_reference, reference) != NULL)
        return PGL_OK;
    const json_t *schema = pgl_schema_resolve(c->root, reference);
    if (schema == NULL)
        return pgl_fail(c->err, PGL_E_INVALID, "%s: $ref '%.200s' leads nowhere within the schema", c->what,
                        reference);
    if (!pgl_grow(&c->targets, sizeof *c->targets, &c->capacity, c->n_targets + 1))
        return pgl_fail(c->err, PGL_E_MEMORY, "no memory for the references of a schema");
    c->targets[c->n_targets++] = (target){.schema = schema};
    /* The map holds pointers that are not NULL; the number itself is one. */
    if (!pgl_map_set(&c->by_reference, reference, strlen(reference), (void *)(uintptr_t)c->n_targets, NULL))
        return pgl_fail(c->err, PGL_E_MEMORY, "no memory for the references of a schema");
    return PGL_OK;
}

static pgl_status check_members(check *c, const json_t *schema) {
    const json_t *properties = json_object_get(schema, "properties"),
                 *required = json_object_get(schema, "required");
    size_t n = json_object_size(properties), n_required = json_array_size(required);
    size_t optional = n > n_required ? n - n_required : 0;
    if (optional > PGL_CONSTRAINT_MOST_OPTIONAL)
        return pgl_fail(c->err, PGL_E_INVALID,
                        "%s: expected at most %d properties of an object that are not required, found %zu",
                        c->what, PGL_CONSTRAINT_MOST_OPTIONAL, optional);
    static const char *const CHOICES[] = {"anyOf", "oneOf"};
    for (size_t i = 0; i < sizeof CHOICES / sizeof CHOICES[0]; i++) {
        n = json_array_size(json_object_get(schema, CHOICES[i]));
        if (n > PGL_CONSTRAINT_MOST_ALTERNATIVES)
            return pgl_fail(c->err, PGL_E_INVALID, "%s: expected at most %d schemas in %s, found %zu",
                            c->what, PGL_CONSTRAINT_MOST_ALTERNATIVES, CHOICES[i], n);
    }
    return PGL_OK;
}

static pgl_status visit(check *c, const json_t *value, bool names) {
    pgl_status status = PGL_OK;
    const char *key;
    json_t *member;
    size_t i;
    if (!json_is_object(value) && !json_is_array(value))
        return PGL_OK;
    if (++c->n_values > PGL_CONSTRAINT_MOST_SCHEMAS)
        return pgl_fail(c->err, PGL_E_INVALID, "%s: expected at most %d schemas in it, found more", c->what,
                        PGL_CONSTRAINT_MOST_SCHEMAS);
    const char *reference = names ? NULL : json_string_value(json_object_get(value, "$ref"));
    if (reference != NULL)
        status = note_reference(c, reference);
    if (status == PGL_OK && !names)
        status = check_members(c, value);
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        if (status == PGL_OK && (names || !pgl_constraint_is_data(key)))
            status = visit(c, member, !names && pgl_constraint_has_names(key));
    }
    json_array_foreach((json_t *)(uintptr_t)value, i, member) {
        if (status == PGL_OK)
            status = visit(c, member, false);
    }
    return status;
}

/* ---- whether any answer ends */

static bool has_answer(const check *c, const json_t *schema);

static bool all_have(const check *c, const json_t *list, size_t most) {
    for (size_t i = 0; i < json_array_size(list) && i < most; i++)
        if (!has_answer(c, json_array_get(list, i)))
            return false;
    return true;
}

static bool any_has(const check *c, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (has_answer(c, json_array_get(list, i)))
            return true;
    return json_array_size(list) == 0; /* which is for the library to judge */
}

static bool is_only(const json_t *schema, const char *type) {
    const char *name = json_string_value(json_object_get(schema, "type"));
    return name != NULL && strcmp(name, type) == 0;
}

static bool object_ends(const check *c, const json_t *schema) {
    const json_t *required = json_object_get(schema, "required"),
                 *properties = json_object_get(schema, "properties");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        const json_t *property = name == NULL ? NULL : json_object_get(properties, name);
        if (property != NULL && !has_answer(c, property))
            return false;
    }
    return true;
}

static bool array_ends(const check *c, const json_t *schema) {
    const json_t *first = json_object_get(schema, "prefixItems"), *rest = json_object_get(schema, "items");
    double least = json_number_value(json_object_get(schema, "minItems"));
    size_t n = json_array_size(first), n_needed = least < 1 ? 0 : least < 1e6 ? (size_t)least : 1000000;
    return all_have(c, first, n_needed) && (n_needed <= n || !json_is_object(rest) || has_answer(c, rest));
}

/* Taking what a reference leads to for having one only once that is known. */
static bool has_answer(const check *c, const json_t *schema) {
    if (!json_is_object(schema))
        return !json_is_false(schema);
    const char *reference = json_string_value(json_object_get(schema, "$ref"));
    if (reference != NULL) {
        uintptr_t number = (uintptr_t)pgl_map_find(&c->by_reference, reference);
        if (number != 0 && !c->targets[number - 1].has_answer)
            return false;
    }
    return any_has(c, json_object_get(schema, "anyOf")) && any_has(c, json_object_get(schema, "oneOf")) &&
           all_have(c, json_object_get(schema, "allOf"), SIZE_MAX) &&
           (!is_only(schema, "object") || object_ends(c, schema)) &&
           (!is_only(schema, "array") || array_ends(c, schema));
}

static pgl_status check_ends(check *c) {
    bool changed = c->n_targets > 0;
    for (unsigned round = 0; round < MOST_ROUNDS && changed; round++) {
        changed = false;
        for (size_t i = c->n_targets; i-- > 0;) {
            target *t = &c->targets[i];
            if (!t->has_answer && has_answer(c, t->schema))
                t->has_answer = changed = true;
        }
    }
    if (changed || has_answer(c, c->root))
        return PGL_OK;
    return pgl_fail(c->err, PGL_E_INVALID, "%s: no answer of finite length fits it: its references lead %s",
                    c->what, "only to themselves");
}

pgl_status pgl_constraint_check_schema(const json_t *root, const char *what, pgl_error *err) {
    check c = {.root = root, .what = what, .by_reference = (pgl_map)PGL_MAP_INIT, .err = err};
    pgl_status status = visit(&c, root, false);
    if (status == PGL_OK && c.n_targets > 0)
        status = check_ends(&c);
    pgl_map_fini(&c.by_reference);
    free(c.targets);
    return status;
}

static bool refers(const json_t *value, bool names) {
    const char *key;
    json_t *member;
    size_t i;
    if (!names && json_is_string(json_object_get(value, "$ref")))
        return true;
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        if ((names || !pgl_constraint_is_data(key)) &&
            refers(member, !names && pgl_constraint_has_names(key)))
            return true;
    }
    json_array_foreach((json_t *)(uintptr_t)value, i, member) {
        if (refers(member, false))
            return true;
    }
    return false;
}

bool pgl_constraint_has_reference(const json_t *schema) {
    return refers(schema, false);
}

bool pgl_constraint_names_members(const json_t *schema) {
    const char *key;
    json_t *member;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)schema, key, member) {
        bool names = strcmp(key, "properties") == 0 || strcmp(key, "patternProperties") == 0 ||
                     strcmp(key, "required") == 0;
        if (names || pgl_constraint_names_members(member))
            return true;
    }
    json_array_foreach((json_t *)(uintptr_t)schema, i, member) {
        if (pgl_constraint_names_members(member))
            return true;
    }
    return false;
}

bool pgl_constraint_put_schema(pgl_buf *out, const json_t *schema) {
    json_t *copy = json_is_object(schema) ? json_copy((json_t *)(uintptr_t)schema) : json_object();
    if (copy == NULL)
        return false;
    char pattern[64];
    snprintf(pattern, sizeof pattern, "[ \\t\\n\\r]{1,%d}", PGL_CONSTRAINT_BLANKS);
    bool ok = json_object_set_new(copy, "x-guidance",
                                  json_pack("{s:b, s:s, s:b}", "whitespace_flexible", 0, "whitespace_pattern",
                                            pattern, "json_allow_general_unicode_escapes", 1)) == 0;
    char *text = ok ? json_dumps(copy, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(copy);
    ok = text != NULL && pgl_buf_puts(out, "%json ") && pgl_buf_puts(out, text) && pgl_buf_putc(out, '\n');
    free(text);
    return ok;
}
