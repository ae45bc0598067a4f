/* Owns nothing: writes a list of tools as a grammar of calls in the model's own form.
 *
 *   start: NL? call ("\n" call)*         call: f0 | f1 ..
 *   fN: <tool_call> "\n<function=NAME>\n" PARAMETERS "</function>\n" </tool_call>
 *   pN: "<parameter=KEY>\n" vN           parameters in the order of the schema, those that are not required optional
 *   vN: VALUE "\n</parameter>\n"
 *
 * The form writes strings bare and everything else as JSON, and what reads the call (text/output.h) goes by the same types
 * of base/schema.h. So VALUE is any text up to the first closer where the schema has room for any string; where it has
 * only strings that it lists, those; and JSON of the schema where it has none.
 *
 * Of strings alone a pattern (anchored at both ends, of what both languages of expressions have), the formats of dates and
 * times, or bounds of the length hold; what else a schema says of its strings does not, and is refused for a tool that says
 * strict. */
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "constraint/grammar_impl.h"
#include "constraint/schema.h"

#define MOST_NAME_BYTES 256 /* as text/output.h reads them */
#define MOST_DEPTH 32       /* of references and alternatives in each other */
#define CLOSER "\n</parameter>\n"

typedef struct tools {
    pgl_buf *out;
    const json_t *parameters; /* of the function at hand: where references lead */
    json_t *nested;           /* them as a definition, their references moved; NULL: not needed yet */
    unsigned n_rules;
    bool strict;
} tools;

static pgl_status no_memory(pgl_error *err) {
    return pgl_fail(err, PGL_E_MEMORY, "no memory for a grammar");
}

/* Whether a name comes back from its tag as it is. */
static bool is_writable(const char *name) {
    size_t n = name == NULL ? 0 : strlen(name);
    return n > 0 && n <= MOST_NAME_BYTES && strpbrk(name, ">\r\n") == NULL &&
           strchr(" \t", name[0]) == NULL && strchr(" \t=", name[n - 1]) == NULL;
}

/* ---- schemas with references, each of which becomes a document of its own */

static bool move_references(json_t *value) {
    const char *key;
    json_t *member;
    size_t i;
    bool ok = true;
    json_object_foreach(value, key, member) {
        const char *reference = strcmp(key, "$ref") == 0 ? json_string_value(member) : NULL;
        if (reference != NULL && reference[0] == '#') {
            json_t *moved = json_sprintf("#/$defs/parameters%s", reference + 1);
            ok = moved != NULL && json_object_set_new(value, key, moved) == 0 && ok;
        } else {
            ok = move_references(member) && ok;
        }
    }
    json_array_foreach(value, i, member) ok = move_references(member) && ok;
    return ok;
}

static bool put_json(tools *t, const json_t *schema) {
    if (!pgl_constraint_has_reference(schema))
        return pgl_constraint_put_schema(t->out, schema);
    if (t->nested == NULL) {
        t->nested = json_deep_copy(t->parameters);
        if (t->nested == NULL || !move_references(t->nested))
            return false;
    }
    json_t *whole = json_deep_copy(schema), *definitions = json_object();
    bool ok = whole != NULL && definitions != NULL && move_references(whole) &&
              json_object_set(definitions, "parameters", t->nested) == 0 &&
              json_object_set(whole, "$defs", definitions) == 0 && pgl_constraint_put_schema(t->out, whole);
    json_decref(whole);
    json_decref(definitions);
    return ok;
}

/* ---- values */

typedef struct value {
    tools *tools;
    bool any_text;      /* there is room for any string: nothing else matters */
    bool loose;         /* which is more than the schema says */
    const json_t *text; /* the schema of strings alone that it is; NULL: one beside others */
    pgl_buf listed;     /* literals, with " | " between them */
    json_t *schemas;    /* alternatives without strings: a list of borrowed ones */
    bool ok;
} value;

static void list_value(value *v, const json_t *constant) {
    char *text = json_is_string(constant) ? NULL : json_dumps(constant, JSON_ENCODE_ANY);
    pgl_buf literal = PGL_BUF_INIT;
    if (json_is_string(constant))
        v->ok = v->ok && pgl_buf_append(&literal, json_string_value(constant), json_string_length(constant));
    else
        v->ok = v->ok && text != NULL && pgl_buf_puts(&literal, text);
    v->ok = v->ok && pgl_buf_puts(&literal, CLOSER) &&
            (v->listed.size == 0 || pgl_buf_puts(&v->listed, " | ")) &&
            pgl_grammar_put_literal(&v->listed, pgl_buf_text(&literal), literal.size);
    pgl_buf_fini(&literal);
    free(text);
}

static bool limits_strings(const json_t *schema) {
    static const char *const KEYS[] = {"pattern", "format", "minLength", "maxLength"};
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++)
        if (json_object_get(schema, KEYS[i]) != NULL)
            return true;
    return false;
}

static void take_text(value *v, const json_t *schema, unsigned types, bool alone) {
    v->any_text = true;
    v->loose = v->loose || limits_strings(schema);
    v->text = alone && types == PGL_TYPE_STRING ? schema : NULL;
}

/* Takes a schema apart into what can be written bare and what is JSON. */
static void gather(value *v, const json_t *schema, unsigned depth, bool alone) {
    unsigned types = pgl_schema_types(v->tools->parameters, schema);
    if (depth > MOST_DEPTH || types == 0) {
        take_text(v, schema, types, false);
        return;
    }
    if ((types & PGL_TYPE_STRING) == 0) {
        v->ok = json_array_append(v->schemas, (json_t *)(uintptr_t)schema) == 0 && v->ok;
        return;
    }
    const json_t *values = json_object_get(schema, "enum"), *constant = json_object_get(schema, "const");
    const char *reference = json_string_value(json_object_get(schema, "$ref"));
    const json_t *choices = json_object_get(schema, "anyOf"), *both = json_object_get(schema, "allOf");
    choices = choices != NULL ? choices : json_object_get(schema, "oneOf");
    for (size_t i = 0; i < json_array_size(values); i++)
        if ((pgl_schema_type_of(json_array_get(values, i)) & types) != 0)
            list_value(v, json_array_get(values, i));
    if (json_array_size(values) > 0)
        return;
    if (constant != NULL)
        list_value(v, constant);
    else if (reference != NULL)
        gather(v, pgl_schema_resolve(v->tools->parameters, reference), depth + 1,
               alone && !limits_strings(schema));
    else if (json_array_size(both) == 1 && !limits_strings(schema))
        gather(v, json_array_get(both, 0), depth + 1, alone);
    else if (json_array_size(choices) == 0)
        take_text(v, schema, types, alone);
    if (reference != NULL || json_array_size(choices) > 0)
        v->loose = v->loose || limits_strings(schema);
    for (size_t i = 0; constant == NULL && reference == NULL && i < json_array_size(choices); i++)
        gather(v, json_array_get(choices, i), depth + 1, false);
}

static bool put_alternatives(value *v, unsigned rule) {
    tools *t = v->tools;
    size_t n = json_array_size(v->schemas);
    bool ok = pgl_buf_printf(t->out, "v%u: %s", rule, pgl_buf_text(&v->listed));
    for (size_t i = 0; i < n && ok; i++)
        ok = pgl_buf_printf(t->out,
                            "%sj%u_%zu "
                            "\"\\n</parameter>\\n\"",
                            i > 0 || v->listed.size > 0 ? " | " : "", rule, i);
    ok = ok && pgl_buf_putc(t->out, '\n');
    for (size_t i = 0; i < n && ok; i++)
        ok = pgl_buf_printf(t->out, "j%u_%zu: ", rule, i) && put_json(t, json_array_get(v->schemas, i));
    return ok;
}

static bool put_any_text(value *v, unsigned rule, bool *exact) {
    pgl_buf *out = v->tools->out;
    bool ok = pgl_buf_printf(out, "v%u[suffix=\"\\n</parameter>\\n\"]: /", rule);
    *exact = !v->loose;
    if (v->text != NULL)
        ok = ok && pgl_grammar_put_text(out, v->text, exact);
    else
        ok = ok && pgl_buf_puts(out, "(?s:.*)");
    return ok && pgl_buf_puts(out, "/\n");
}

/* Rules pN and vN of one property. *exact: what it says of its strings holds. */
static bool put_parameter(tools *t, const char *key, json_t *schema, unsigned rule, bool *exact) {
    pgl_buf opening = PGL_BUF_INIT;
    bool ok = pgl_buf_printf(&opening, "<parameter=%s>\n", key) && pgl_buf_printf(t->out, "p%u: ", rule) &&
              pgl_grammar_put_literal(t->out, pgl_buf_text(&opening), opening.size) &&
              pgl_buf_printf(t->out, " v%u\n", rule);
    pgl_buf_fini(&opening);
    *exact = true;
    value v = {.tools = t, .schemas = json_array(), .ok = true};
    ok = ok && v.schemas != NULL;
    if (ok)
        gather(&v, schema, 0, true);
    ok = ok && v.ok;
    if (ok && !v.any_text && v.listed.size == 0 && json_array_size(v.schemas) == 0)
        ok = json_array_append(v.schemas, schema) ==
             0; /* of a type that none of its values has: to be refused */
    if (ok && v.any_text)
        ok = put_any_text(&v, rule, exact);
    else if (ok)
        ok = put_alternatives(&v, rule);
    pgl_buf_fini(&v.listed);
    json_decref(v.schemas);
    return ok;
}

/* ---- functions */

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
static pgl_status put_function(tools *t, size_t index, const char *name, pgl_error *err) {
    const json_t *properties = json_object_get(t->parameters, "properties");
    const char *key;
    json_t *schema;
    pgl_buf opening = PGL_BUF_INIT, body = PGL_BUF_INIT;
    pgl_status status = PGL_OK;
    bool ok = pgl_buf_printf(&opening, "\n<function=%s>\n", name);
    json_object_foreach((json_t *)(uintptr_t)properties, key, schema) {
        bool required = is_required(t->parameters, key);
        if (status != PGL_OK || t->out->size > PGL_CONSTRAINT_MOST_BYTES)
            continue;
        if (is_writable(key) && !json_is_false(schema)) {
            bool exact = true;
            ok = ok && put_parameter(t, key, schema, t->n_rules, &exact) &&
                 pgl_buf_printf(&body, " p%u%s", t->n_rules, required ? "" : "?");
            t->n_rules++;
            if (t->strict && !exact)
                status = pgl_fail(
                    err, PGL_E_INVALID,
                    "property '%.100s': strict: what it says of its strings (pattern, format, minLength, "
                    "maxLength) cannot be held to in the form of tool calls",
                    key);
        } else if (required) {
            status = pgl_fail(err, PGL_E_INVALID,
                              "property '%.100s': expected a name of at most %d bytes that a tag can hold "
                              "and a schema that allows something",
                              key, MOST_NAME_BYTES);
        }
    }
    ok = ok && pgl_buf_printf(t->out, "f%zu: <tool_call> ", index) &&
         pgl_grammar_put_literal(t->out, pgl_buf_text(&opening), opening.size) &&
         pgl_buf_puts(t->out, pgl_buf_text(&body)) &&
         pgl_buf_puts(t->out, " \"</function>\\n\" </tool_call>\n");
    pgl_buf_fini(&opening);
    pgl_buf_fini(&body);
    return status == PGL_OK && !ok ? no_memory(err) : status;
}

static pgl_status put_tool(tools *t, size_t index, const char *name, const json_t *parameters,
                           pgl_error *err) {
    json_t *prepared = NULL;
    pgl_status status = pgl_constraint_check_schema(parameters, "parameters", err);
    if (status == PGL_OK && json_is_object(parameters))
        status = pgl_constraint_prepare_schema(parameters, "parameters", &prepared, err);
    t->parameters = prepared;
    if (status == PGL_OK)
        status = put_function(t, index, name, err);
    json_decref(prepared);
    t->parameters = NULL;
    json_decref(t->nested);
    t->nested = NULL;
    if (status == PGL_OK && t->out->size > PGL_CONSTRAINT_MOST_BYTES)
        status = pgl_fail(err, PGL_E_INVALID, "with those before it, its grammar is larger than %zu bytes",
                          PGL_CONSTRAINT_MOST_BYTES);
    if (status != PGL_OK)
        pgl_error_prefix(err, "tools[%zu]", index);
    return status;
}

pgl_status pgl_grammar_tools(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err) {
    json_t *list = NULL;
    pgl_status status = pgl_grammar_parse(spec, "tools", &list, err);
    pgl_buf calls = PGL_BUF_INIT;
    tools t = {.out = out};
    size_t n = 0;
    if (status == PGL_OK && !(pgl_buf_puts(out, spec->parallel_tools ? "start: NL? call (\"\\n\" call)*\n"
                                                                     : "start: NL? call\n") &&
                              pgl_buf_puts(out, PGL_GRAMMAR_NEWLINES)))
        status = no_memory(err);
    for (size_t i = 0; status == PGL_OK && i < json_array_size(list); i++) {
        const json_t *tool = json_array_get(list, i), *function = json_object_get(tool, "function");
        function = function != NULL ? function : tool;
        const char *name = json_string_value(json_object_get(function, "name"));
        t.strict = json_is_true(json_object_get(function, "strict"));
        if (!is_writable(name))
            status = pgl_fail(err, PGL_E_INVALID,
                              "tools[%zu]: expected a function with a name of at most %d bytes without '>', "
                              "newlines and blanks at its ends",
                              i, MOST_NAME_BYTES);
        else if (spec->tool != NULL && strcmp(name, spec->tool) != 0)
            continue;
        else if (n == PGL_CONSTRAINT_MOST_ALTERNATIVES)
            status = pgl_fail(err, PGL_E_INVALID, "tools: expected at most %d functions, found more",
                              PGL_CONSTRAINT_MOST_ALTERNATIVES);
        else if ((status = put_tool(&t, i, name, json_object_get(function, "parameters"), err)) == PGL_OK &&
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
