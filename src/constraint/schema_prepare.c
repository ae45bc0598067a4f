/* Owns nothing of its callers'. What the grammar library holds to only nearly is written here in a way that it holds to, or
 * refused. A number reaches it through two readers of decimals, of which the second is exact up to 15 digits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/schema.h"
#include "constraint/constraint.h"
#include "constraint/schema.h"

#define LARGEST 1e15   /* magnitude of a bound: all of its digits reach the library */
#define SMALLEST 1e-12 /* the same, of one that is not 0 */
#define STEP 1e-4      /* a number just inside a bound that is excluded */
#define EXACT_INTEGER ((json_int_t)1 << 53)
#define MOST_REFERENCES 8   /* from an alternative to what it says */
#define MOST_MULTIPLE 60000 /* of multipleOf, where two are combined into their common one in 32 bits */

typedef struct prepare {
    const json_t *root; /* where references lead */
    const char *what;
    bool combines;        /* schemas are laid over each other */
    unsigned n_multiples; /* multipleOf */
    pgl_error *err;
} prepare;

static pgl_status refuse(const prepare *p, const char *key, const char *expected) {
    return pgl_fail(p->err, PGL_E_INVALID, "%s: %s: expected %s", p->what, key, expected);
}

static pgl_status no_memory(const prepare *p) {
    return pgl_fail(p->err, PGL_E_MEMORY, "no memory for a schema");
}

/* ---- formats whose members the library knows only by their shape */

#define YEAR "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
#define LEAP_YEAR "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                                 \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"    \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME                                                                                                 \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"

static pgl_status replace_format(const prepare *p, json_t *schema) {
    static const struct {
        const char *name, *pattern;
    } FORMATS[] = {{"date", "^" DATE "$"}, {"time", "^" TIME "$"}, {"date-time", "^" DATE "T" TIME "$"}};
    const char *format = json_string_value(json_object_get(schema, "format")), *pattern = NULL;
    for (size_t i = 0; format != NULL && i < sizeof FORMATS / sizeof FORMATS[0]; i++)
        if (strcmp(format, FORMATS[i].name) == 0)
            pattern = FORMATS[i].pattern;
    if (pattern == NULL)
        return PGL_OK;
    (void)json_object_del(schema, "format");
    if (json_object_get(schema, "pattern") == NULL)
        return json_object_set_new(schema, "pattern", json_string(pattern)) == 0 ? PGL_OK : no_memory(p);
    json_t *all = json_object_get(schema, "allOf");
    if (!json_is_array(all)) {
        all = json_array();
        if (json_object_set_new(schema, "allOf", all) != 0)
            return no_memory(p);
    }
    return json_array_append_new(all, json_pack("{s:s}", "pattern", pattern)) == 0 ? PGL_OK : no_memory(p);
}

/* ---- numbers */

static bool is_exact(const json_t *number) {
    if (json_is_integer(number))
        return json_integer_value(number) <= EXACT_INTEGER && json_integer_value(number) >= -EXACT_INTEGER;
    double x = json_real_value(number);
    char text[40];
    snprintf(text, sizeof text, "%.15g", x);
    return fabs(x) <= (double)EXACT_INTEGER && strtod(text, NULL) == x &&
           (x == 0 || fabs(x) >= SMALLEST); /* NOLINT: equality is what is asked */
}

/* Values that an answer has to repeat. */
static pgl_status check_constant(const prepare *p, const char *key, const json_t *value) {
    const char *name;
    json_t *member;
    size_t i;
    pgl_status status = PGL_OK;
    if (json_is_number(value) && !is_exact(value))
        return refuse(p, key, "numbers of at most 15 digits and integers within 2^53");
    json_object_foreach((json_t *)(uintptr_t)value, name, member) {
        if (status == PGL_OK)
            status = check_constant(p, key, member);
    }
    json_array_foreach((json_t *)(uintptr_t)value, i, member) {
        if (status == PGL_OK)
            status = check_constant(p, key, member);
    }
    return status;
}

static pgl_status check_bound(const prepare *p, json_t *schema, const char *key, bool upper) {
    const json_t *bound = json_object_get(schema, key);
    if (!json_is_number(bound))
        return PGL_OK;
    double x = json_number_value(bound);
    /* Beyond what anybody means, such as the limits of 64 bits: held to a narrower one. */
    if (upper ? x > LARGEST : x < -LARGEST)
        return json_object_set_new(schema, key, json_integer((json_int_t)(upper ? LARGEST : -LARGEST))) == 0
                   ? PGL_OK
                   : no_memory(p);
    return is_exact(bound) && fabs(x) <= LARGEST
               ? PGL_OK
               : refuse(p, key, "a number within 1e15, of at most 15 digits, and 0 or at least 1e-12");
}

/* An excluded bound that is whole is let in by the library when the other one has the same whole part. */
static pgl_status narrow(const prepare *p, json_t *schema, bool upper) {
    const char *open = upper ? "exclusiveMaximum" : "exclusiveMinimum",
               *closed = upper ? "maximum" : "minimum";
    static const char *const OTHERS[2][2] = {{"maximum", "exclusiveMaximum"},
                                             {"minimum", "exclusiveMinimum"}};
    const json_t *bound = json_object_get(schema, open), *stated = json_object_get(schema, closed);
    double x = json_number_value(bound), inside = upper ? x - STEP : x + STEP;
    if (!json_is_number(bound) || x != trunc(x))
        return PGL_OK;
    bool met = p->combines;
    for (size_t i = 0; i < 2; i++) {
        const json_t *other = json_object_get(schema, OTHERS[upper][i]);
        double y = json_number_value(other);
        if (!json_is_number(other) || trunc(y) != x || y == x)
            continue;
        met = true;
        if (upper ? y > inside : y < inside)
            return refuse(p, open, "a bound further than 0.0001 from the other one");
    }
    if (!met)
        return PGL_OK;
    if (json_is_number(stated) &&
        (upper ? json_number_value(stated) < inside : json_number_value(stated) > inside))
        inside = json_number_value(stated);
    (void)json_object_del(schema, open);
    return json_object_set_new(schema, closed, json_real(inside)) == 0 ? PGL_OK : no_memory(p);
}

static bool is_integer_only(const json_t *schema) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type != NULL && strcmp(type, "integer") == 0;
}

static pgl_status check_multiple(prepare *p, const json_t *schema) {
    const json_t *multiple = json_object_get(schema, "multipleOf");
    if (!json_is_number(multiple))
        return PGL_OK;
    double x = json_number_value(multiple);
    p->n_multiples++;
    if (!is_exact(multiple))
        return refuse(p, "multipleOf", "a number of at most 15 digits");
    if (p->combines && (p->n_multiples > 2 || x > MOST_MULTIPLE || x * 100 != trunc(x * 100)))
        return refuse(p, "multipleOf", "at most two of them, up to 60000 and of hundredths, beside allOf");
    return PGL_OK;
}

static pgl_status prepare_numbers(prepare *p, json_t *schema) {
    static const char *const BOUNDS[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
    pgl_status status = check_multiple(p, schema);
    for (size_t i = 0; i < 4 && status == PGL_OK; i++)
        status = check_bound(p, schema, BOUNDS[i], i >= 2);
    for (int upper = 0; upper < 2 && status == PGL_OK && !is_integer_only(schema); upper++)
        status = narrow(p, schema, upper);
    if (status == PGL_OK)
        status = check_constant(p, "const", json_object_get(schema, "const"));
    if (status == PGL_OK)
        status = check_constant(p, "enum", json_object_get(schema, "enum"));
    return status;
}

/* ---- objects and arrays */

/* A name may come twice where names are free, and counts once. */
static pgl_status check_count(const prepare *p, const json_t *schema) {
    json_int_t least = json_integer_value(json_object_get(schema, "minProperties"));
    size_t n_required = json_array_size(json_object_get(schema, "required"));
    bool fixed = json_is_false(json_object_get(schema, "additionalProperties")) &&
                 json_object_size(json_object_get(schema, "patternProperties")) == 0;
    if (fixed || least <= (json_int_t)n_required + 1)
        return PGL_OK;
    return refuse(p, "minProperties", "at most one more than there are required ones, where names are free");
}

/* ---- one of several objects that one member tells apart */

static const json_t *resolved(const prepare *p, const json_t *schema) {
    for (int i = 0; i < MOST_REFERENCES; i++) {
        const char *reference = json_string_value(json_object_get(schema, "$ref"));
        if (reference == NULL)
            break;
        schema = pgl_schema_resolve(p->root, reference);
    }
    return schema;
}

static bool is_required(const json_t *schema, const char *key) {
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name != NULL && strcmp(name, key) == 0)
            return true;
    }
    return false;
}

static bool is_new(pgl_map *seen, const json_t *value) {
    const char *text = json_string_value(value);
    size_t size = text == NULL ? 0 : json_string_length(value);
    return text != NULL && pgl_map_get(seen, text, size) == NULL && pgl_map_set(seen, text, size, seen, NULL);
}

/* Whether each of the schemas is an object that has to have the member, of strings that no other one allows. */
static bool tells_apart(const prepare *p, const json_t *list, const char *key) {
    pgl_map seen = PGL_MAP_INIT;
    bool apart = true;
    for (size_t i = 0; apart && i < json_array_size(list); i++) {
        const json_t *schema = resolved(p, json_array_get(list, i)), *type = json_object_get(schema, "type");
        const json_t *property = json_object_get(json_object_get(schema, "properties"), key);
        const json_t *constant = json_object_get(property, "const"),
                     *values = json_object_get(property, "enum");
        apart = json_is_string(type) && strcmp(json_string_value(type), "object") == 0 &&
                is_required(schema, key) &&
                (constant != NULL ? is_new(&seen, constant) : json_array_size(values) > 0);
        for (size_t k = 0; apart && constant == NULL && k < json_array_size(values); k++)
            apart = is_new(&seen, json_array_get(values, k));
    }
    pgl_map_fini(&seen);
    return apart;
}

/* The library takes a oneOf only when it sees for itself that no two of it meet; it does not look behind references. */
static pgl_status settle_choice(const prepare *p, json_t *schema) {
    json_t *list = json_object_get(schema, "oneOf"), *member;
    const char *key;
    bool apart = false;
    if (json_array_size(list) < 2 || json_object_get(schema, "anyOf") != NULL)
        return PGL_OK;
    json_object_foreach(json_object_get(resolved(p, json_array_get(list, 0)), "properties"), key, member) {
        apart = apart || tells_apart(p, list, key);
    }
    if (!apart)
        return PGL_OK;
    if (json_object_set(schema, "anyOf", list) != 0)
        return no_memory(p);
    (void)json_object_del(schema, "oneOf");
    return PGL_OK;
}

static pgl_status prepare_one(prepare *p, json_t *schema) {
    if (json_is_false(json_object_get(schema, "uniqueItems")))
        (void)json_object_del(schema, "uniqueItems");
    pgl_status status = check_count(p, schema);
    if (status == PGL_OK)
        status = prepare_numbers(p, schema);
    if (status == PGL_OK)
        status = settle_choice(p, schema);
    return status == PGL_OK ? replace_format(p, schema) : status;
}

/* ---- the walk */

static bool lays_over(const json_t *schema) {
    static const char *const CHOICES[] = {"anyOf", "oneOf", "$ref"};
    static const char *const LAID[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                       "multipleOf"};
    const json_t *all = json_object_get(schema, "allOf");
    bool any = json_array_size(all) > 0;
    for (size_t i = 0; i < sizeof CHOICES / sizeof CHOICES[0]; i++)
        any = any || json_object_get(schema, CHOICES[i]) != NULL;
    for (size_t i = 0; any && i < sizeof LAID / sizeof LAID[0]; i++)
        if (json_object_get(schema, LAID[i]) != NULL)
            return true;
    return json_array_size(all) > 1;
}

static pgl_status walk(prepare *p, json_t *value, bool names, bool looking) {
    const char *key;
    json_t *member;
    size_t i;
    pgl_status status = PGL_OK;
    if (looking && !names && lays_over(value))
        p->combines = true;
    json_object_foreach(value, key, member) {
        if (status == PGL_OK && (names || !pgl_constraint_is_data(key)))
            status = walk(p, member, !names && pgl_constraint_has_names(key), looking);
    }
    json_array_foreach(value, i, member) {
        if (status == PGL_OK)
            status = walk(p, member, false, looking);
    }
    return status == PGL_OK && !looking && !names && json_is_object(value) ? prepare_one(p, value) : status;
}

pgl_status pgl_constraint_prepare_schema(const json_t *schema, const char *what, json_t **out,
                                         pgl_error *err) {
    prepare p = {.what = what, .err = err};
    *out = json_deep_copy((json_t *)(uintptr_t)schema);
    if (*out == NULL)
        return no_memory(&p);
    p.root = *out;
    pgl_status status = walk(&p, *out, false, true);
    if (status == PGL_OK)
        status = walk(&p, *out, false, false);
    if (status != PGL_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}
