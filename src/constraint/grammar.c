/* Owns nothing: writes a spec as a grammar in llguidance's Lark dialect.
 *
 * The forms, NL being the newlines that may come first:
 *   schema   start: NL? value            value: %json {schema, "x-guidance": {blanks}}
 *   regex    start: /expression/
 *   choice   start: "a" | "b"
 *   tools    start: NL? call ("\n" call)*
 *            call: <tool_call> "\n<function=NAME>\n" PARAMETERS "</function>\n" </tool_call>
 *            a parameter is "<parameter=KEY>\n" VALUE "\n</parameter>\n"; VALUE is any text up to the first closer where
 *            the schema allows a string and nothing narrower, else JSON of the property's schema */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "constraint/constraint.h"

#define NEWLINES "NL: /\\n{1,2}/\n"

static pgl_status no_memory(pgl_error *err) {
    return pgl_fail(err, PGL_E_MEMORY, "no memory for a grammar");
}

/* A string or character class in double quotes, as Lark has them: JSON's escapes will do. */
static bool put_literal(pgl_buf *out, const char *text, size_t size) {
    return pgl_json_put_string(out, text, size);
}

/* %json with our own options in place of what the schema may say of them. */
static bool put_schema(pgl_buf *out, const json_t *schema) {
    json_t *copy = json_is_object(schema) ? json_copy((json_t *)(uintptr_t)schema) : json_object();
    if (copy == NULL)
        return false;
    char pattern[64];
    snprintf(pattern, sizeof pattern, "[ \\t\\n\\r]{1,%d}", PGL_CONSTRAINT_BLANKS);
    bool ok = json_object_set_new(copy, "x-guidance",
                                  json_pack("{s:b, s:s, s:b}", "whitespace_flexible", 0, "whitespace_pattern",
                                            pattern, "json_allow_general_unicode_escapes", 1)) == 0;
    char *text = ok ? json_dumps(copy, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(copy);
    ok = text != NULL && pgl_buf_puts(out, "%json ") && pgl_buf_puts(out, text) && pgl_buf_putc(out, '\n');
    free(text);
    return ok;
}

static pgl_status parse(const pgl_constraint_spec *spec, const char *what, json_t **out, pgl_error *err) {
    pgl_json_options options = {
        .name = what, .max_bytes = PGL_CONSTRAINT_MOST_BYTES, .max_depth = PGL_CONSTRAINT_MOST_DEPTH};
    return pgl_json_parse(spec->text, spec->size, &options, out, err);
}

/* Where "#/a/b~1c" leads; NULL: nowhere, or out of the document. */
static const json_t *resolve(const json_t *root, const char *reference) {
    if (reference[0] != '#' || (reference[1] != 0 && reference[1] != '/'))
        return NULL;
    const json_t *at = root;
    for (const char *p = reference + 1; *p == '/' && at != NULL;) {
        char key[256];
        size_t n = 0;
        for (p++; *p != 0 && *p != '/'; p++) {
            char c = *p;
            if (c == '~' && (p[1] == '0' || p[1] == '1'))
                c = *++p == '0' ? '~' : '/';
            if (n + 1 >= sizeof key)
                return NULL;
            key[n++] = c;
        }
        key[n] = 0;
        at =
            json_is_array(at) ? json_array_get(at, (size_t)strtoul(key, NULL, 10)) : json_object_get(at, key);
    }
    return at;
}

/* A schema that is only a reference to itself, through others or not, means nothing; the library would look for its
 * meaning while the answer is written. */
static pgl_status check_references(const json_t *root, const json_t *schema, pgl_error *err) {
    const char *key;
    json_t *value;
    size_t i;
    const json_t *at = schema;
    for (unsigned n = 0; json_is_string(json_object_get(at, "$ref")); n++) {
        const char *reference = json_string_value(json_object_get(at, "$ref"));
        at = resolve(root, reference);
        if (at == NULL)
            return pgl_fail(err, PGL_E_INVALID, "schema: $ref '%s' leads nowhere within the schema",
                            reference);
        if (n == 64)
            return pgl_fail(err, PGL_E_INVALID, "schema: $ref '%s' leads only to itself", reference);
    }
    pgl_status status = PGL_OK;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        if (status == PGL_OK && strcmp(key, "enum") != 0 && strcmp(key, "const") != 0 &&
            strcmp(key, "default") != 0 && strcmp(key, "examples") != 0)
            status = check_references(root, value, err);
    }
    json_array_foreach((json_t *)(uintptr_t)schema, i, value) {
        if (status == PGL_OK)
            status = check_references(root, value, err);
    }
    return status;
}

static pgl_status schema_grammar(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err) {
    json_t *schema = NULL;
    pgl_status status = PGL_OK;
    if (spec->kind == PGL_CONSTRAINT_JSON_OBJECT)
        schema = json_pack("{s:s}", "type", "object");
    else
        status = parse(spec, "schema", &schema, err);
    if (status == PGL_OK && schema == NULL)
        status = no_memory(err);
    if (status == PGL_OK && !json_is_object(schema) && !json_is_boolean(schema))
        status =
            pgl_fail(err, PGL_E_INVALID, "schema: expected an object, true or false, found another type");
    if (status == PGL_OK && json_is_false(schema))
        status = pgl_fail(err, PGL_E_INVALID, "schema: false allows no answer at all");
    if (status == PGL_OK)
        status = check_references(schema, schema, err);
    if (status == PGL_OK &&
        !(pgl_buf_puts(out, "start: NL? value\n" NEWLINES "value: ") && put_schema(out, schema)))
        status = no_memory(err);
    json_decref(schema);
    return status;
}

/* /expression/ with the slashes inside escaped; the expression is otherwise llguidance's business. */
static pgl_status regex_grammar(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err) {
    bool ok = pgl_buf_puts(out, "start: /(?s:");
    bool escaped = false;
    for (size_t i = 0; i < spec->size && ok; i++) {
        char c = spec->text[i];
        if (c == '/' && !escaped)
            ok = pgl_buf_puts(out, "\\/");
        else if (c == '\n')
            ok = pgl_buf_puts(out, escaped ? "n" : "\\n");
        else if (c == '\r')
            ok = pgl_buf_puts(out, escaped ? "r" : "\\r");
        else
            ok = pgl_buf_putc(out, c);
        escaped = c == '\\' && !escaped;
    }
    if (escaped)
        return pgl_fail(err, PGL_E_INVALID, "regular expression: ends in a backslash");
    return ok && pgl_buf_puts(out, ")/\n") ? PGL_OK : no_memory(err);
}

static pgl_status choice_grammar(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err) {
    json_t *list = NULL;
    pgl_status status = parse(spec, "choices", &list, err);
    if (status == PGL_OK && (!json_is_array(list) || json_array_size(list) == 0))
        status = pgl_fail(err, PGL_E_INVALID, "choices: expected a list of at least one string");
    if (status == PGL_OK && !pgl_buf_puts(out, "start: "))
        status = no_memory(err);
    for (size_t i = 0; status == PGL_OK && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item) || json_string_length(item) == 0)
            status = pgl_fail(err, PGL_E_INVALID, "choices[%zu]: expected a string that is not empty", i);
        else if (!((i == 0 || pgl_buf_puts(out, " | ")) &&
                   put_literal(out, json_string_value(item), json_string_length(item))))
            status = no_memory(err);
    }
    if (status == PGL_OK && !pgl_buf_putc(out, '\n'))
        status = no_memory(err);
    json_decref(list);
    return status;
}

/* ---- tools */

/* True when a value of the schema is written as bare text: a string is allowed and nothing says which strings. */
static bool is_free_text(const json_t *schema) {
    static const char *const NARROW[] = {"enum",  "const", "pattern", "format", "minLength", "maxLength",
                                         "anyOf", "oneOf", "allOf",   "$ref",   "not",       "if"};
    const json_t *type = json_object_get(schema, "type");
    if (!json_is_object(schema) || json_object_size(schema) == 0)
        return true;
    for (size_t i = 0; i < sizeof NARROW / sizeof NARROW[0]; i++)
        if (json_object_get(schema, NARROW[i]) != NULL)
            return false;
    if (type == NULL)
        return json_object_get(schema, "properties") == NULL && json_object_get(schema, "items") == NULL;
    if (json_is_string(type))
        return strcmp(json_string_value(type), "string") == 0;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *one = json_string_value(json_array_get(type, i));
        if (one != NULL && strcmp(one, "string") == 0)
            return true;
    }
    return false;
}

/* "type": "string" with a list of values: they are written bare. */
static bool is_text_choice(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
    if (type != NULL && (!json_is_string(type) || strcmp(json_string_value(type), "string") != 0))
        return false;
    if (!json_is_array(values) || json_array_size(values) == 0)
        return false;
    for (size_t i = 0; i < json_array_size(values); i++)
        if (!json_is_string(json_array_get(values, i)))
            return false;
    return true;
}

/* Any other string: length, pattern and format are checked on JSON text only, so its value is bare text of any kind. */
static bool is_string(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type");
    return json_is_string(type) && strcmp(json_string_value(type), "string") == 0;
}

typedef struct tools {
    pgl_buf *out;
    const json_t *definitions; /* "$defs" of the function at hand */
    unsigned n_rules;
} tools;

static bool put_choice(tools *t, const json_t *values) {
    bool ok = true;
    for (size_t i = 0; i < json_array_size(values) && ok; i++) {
        const json_t *value = json_array_get(values, i);
        pgl_buf text = PGL_BUF_INIT;
        ok = pgl_buf_append(&text, json_string_value(value), json_string_length(value)) &&
             pgl_buf_puts(&text, "\n</parameter>\n") && (i == 0 || pgl_buf_puts(t->out, " | ")) &&
             put_literal(t->out, pgl_buf_text(&text), text.size);
        pgl_buf_fini(&text);
    }
    return ok;
}

/* Rules pN (a whole parameter) for one property; the number is returned through *rule. */
static bool put_parameter(tools *t, const char *key, const json_t *schema, unsigned *rule) {
    pgl_buf opening = PGL_BUF_INIT;
    unsigned n = *rule = t->n_rules++;
    bool ok = pgl_buf_printf(&opening, "<parameter=%s>\n", key) && pgl_buf_printf(t->out, "p%u: ", n) &&
              put_literal(t->out, opening.data, opening.size) && pgl_buf_printf(t->out, " v%u\n", n);
    pgl_buf_fini(&opening);
    if (!ok)
        return false;
    if (is_text_choice(schema))
        return pgl_buf_printf(t->out, "v%u: ", n) && put_choice(t, json_object_get(schema, "enum")) &&
               pgl_buf_putc(t->out, '\n');
    if (is_free_text(schema) || is_string(schema))
        return pgl_buf_printf(t->out, "v%u[suffix=\"\\n</parameter>\\n\"]: /(?s:.*)/\n", n);
    json_t *whole = json_copy((json_t *)(uintptr_t)schema);
    if (whole != NULL && t->definitions != NULL && json_object_get(whole, "$defs") == NULL)
        json_object_set(whole, "$defs", (json_t *)(uintptr_t)t->definitions);
    ok = whole != NULL && pgl_buf_printf(t->out, "v%u: j%u \"\\n</parameter>\\n\"\nj%u: ", n, n, n) &&
         put_schema(t->out, whole);
    json_decref(whole);
    return ok;
}

static bool is_required(const json_t *parameters, const char *key) {
    const json_t *list = json_object_get(parameters, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name != NULL && strcmp(name, key) == 0)
            return true;
    }
    return false;
}

/* Rule fN: one call of the function. */
static bool put_function(tools *t, size_t index, const char *name, const json_t *parameters) {
    const json_t *properties = json_object_get(parameters, "properties");
    const char *key;
    json_t *schema;
    pgl_buf opening = PGL_BUF_INIT, body = PGL_BUF_INIT;
    t->definitions = json_object_get(parameters, "$defs");
    bool ok = pgl_buf_printf(&opening, "\n<function=%s>\n", name);
    json_object_foreach((json_t *)(uintptr_t)properties, key, schema) {
        unsigned rule = 0;
        ok = ok && put_parameter(t, key, schema, &rule) &&
             pgl_buf_printf(&body, " p%u%s", rule, is_required(parameters, key) ? "" : "?");
    }
    ok = ok && pgl_buf_printf(t->out, "f%zu: <tool_call> ", index) &&
         put_literal(t->out, opening.data, opening.size) && pgl_buf_puts(t->out, pgl_buf_text(&body)) &&
         pgl_buf_puts(t->out, " \"</function>\\n\" </tool_call>\n");
    pgl_buf_fini(&opening);
    pgl_buf_fini(&body);
    return ok;
}

static pgl_status tools_grammar(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err) {
    json_t *list = NULL;
    pgl_status status = parse(spec, "tools", &list, err);
    pgl_buf calls = PGL_BUF_INIT;
    tools t = {.out = out};
    size_t n = 0;
    if (status == PGL_OK && !(pgl_buf_puts(out, spec->parallel_tools ? "start: NL? call (\"\\n\" call)*\n"
                                                                     : "start: NL? call\n") &&
                              pgl_buf_puts(out, NEWLINES)))
        status = no_memory(err);
    for (size_t i = 0; status == PGL_OK && i < json_array_size(list); i++) {
        const json_t *tool = json_array_get(list, i), *function = json_object_get(tool, "function");
        function = function != NULL ? function : tool;
        const char *name = json_string_value(json_object_get(function, "name"));
        if (name == NULL || name[0] == 0 || strpbrk(name, ">\n") != NULL)
            status = pgl_fail(err, PGL_E_INVALID,
                              "tools[%zu]: expected a function with a name without '>' and newlines", i);
        else if (spec->tool != NULL && strcmp(name, spec->tool) != 0)
            continue;
        else if ((status = check_references(json_object_get(function, "parameters"),
                                            json_object_get(function, "parameters"), err)) != PGL_OK)
            pgl_error_prefix(err, "tools[%zu]", i);
        else if (!put_function(&t, i, name, json_object_get(function, "parameters")) ||
                 !pgl_buf_printf(&calls, "%sf%zu", n++ == 0 ? "call: " : " | ", i))
            status = no_memory(err);
    }
    if (status == PGL_OK && n == 0)
        status = spec->tool == NULL
                     ? pgl_fail(err, PGL_E_INVALID, "tools: expected at least one function, found none")
                     : pgl_fail(err, PGL_E_NOT_FOUND, "tools: no function is called '%s'", spec->tool);
    if (status == PGL_OK && !(pgl_buf_puts(out, pgl_buf_text(&calls)) && pgl_buf_putc(out, '\n')))
        status = no_memory(err);
    pgl_buf_fini(&calls);
    json_decref(list);
    return status;
}

pgl_status pgl_constraint_grammar(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err) {
    if (spec->kind != PGL_CONSTRAINT_JSON_OBJECT && spec->size > PGL_CONSTRAINT_MOST_BYTES)
        return pgl_fail(err, PGL_E_INVALID, "structured output: expected at most %zu bytes, found %zu",
                        PGL_CONSTRAINT_MOST_BYTES, spec->size);
    switch (spec->kind) {
    case PGL_CONSTRAINT_JSON_SCHEMA:
    case PGL_CONSTRAINT_JSON_OBJECT:
        return schema_grammar(spec, out, err);
    case PGL_CONSTRAINT_REGEX:
        return regex_grammar(spec, out, err);
    case PGL_CONSTRAINT_LARK:
        return pgl_buf_append(out, spec->text, spec->size) ? PGL_OK : no_memory(err);
    case PGL_CONSTRAINT_TOOLS:
        return tools_grammar(spec, out, err);
    case PGL_CONSTRAINT_CHOICE:
        return choice_grammar(spec, out, err);
    }
    return pgl_fail(err, PGL_E_INVALID, "structured output: unknown kind %d", (int)spec->kind);
}
