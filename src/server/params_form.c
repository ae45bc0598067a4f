/* Owns nothing: texts go to the request's arena. What a form means is checked where it is compiled (constraint/). */
#include "server/params_form.h"

#include <stdlib.h>
#include <string.h>

/* A request has one form. */
static bool set_form(const pgl_param_reading *r, const char *param, pgl_constraint_kind kind,
                     const char *text, size_t size) {
    pgl_answer_form *form = &r->params->form;
    if (form->given)
        return pgl_refuse_field(r->err, param,
                                "%s and %s both give the answer's form; one of them is allowed", param,
                                form->param);
    if (size > PGL_CONSTRAINT_MOST_BYTES)
        return pgl_refuse_field(r->err, param, "%s has %zu bytes, at most %zu are allowed", param, size,
                                PGL_CONSTRAINT_MOST_BYTES);
    char *copy = pgl_arena_new(r->arena, size + 1, 1);
    if (!copy)
        return pgl_refuse_memory(r->err);
    memcpy(copy, text, size);
    *form =
        (pgl_answer_form){.given = true, .param = param, .spec = {.kind = kind, .text = copy, .size = size}};
    return true;
}

static bool set_json(const pgl_param_reading *r, const char *param, pgl_constraint_kind kind,
                     const json_t *value) {
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (!text)
        return pgl_refuse_memory(r->err);
    bool fine = set_form(r, param, kind, text, strlen(text));
    free(text);
    return fine;
}

static bool is_schema(const json_t *value) {
    return json_is_object(value) || json_is_boolean(value);
}

bool pgl_read_response_format(const pgl_param_reading *r) {
    const char *type = json_string_value(json_object_get(r->value, "type"));
    const json_t *wrapped = json_object_get(r->value, "json_schema");
    if (!type)
        return pgl_refuse_field(r->err, "response_format", "response_format must be an object with a type");
    if (strcmp(type, "text") == 0)
        return true;
    if (strcmp(type, "json_object") == 0)
        return set_form(r, "response_format", PGL_CONSTRAINT_JSON_OBJECT, "", 0);
    if (strcmp(type, "json_schema") != 0)
        return pgl_refuse_field(
            r->err, "response_format",
            "response_format.type must be \"text\", \"json_object\" or \"json_schema\", not \"%.40s\"", type);
    const json_t *schema = json_object_get(wrapped, "schema");
    if (!is_schema(schema))
        return pgl_refuse_field(r->err, "response_format.json_schema",
                                "response_format.json_schema must be an object with a schema");
    return set_json(r, "response_format", PGL_CONSTRAINT_JSON_SCHEMA, schema);
}

/* A schema, or its text. */
static bool schema_of(const pgl_param_reading *r, const char *param, const json_t *value) {
    if (json_is_string(value))
        return set_form(r, param, PGL_CONSTRAINT_JSON_SCHEMA, json_string_value(value),
                        json_string_length(value));
    if (is_schema(value))
        return set_json(r, param, PGL_CONSTRAINT_JSON_SCHEMA, value);
    return pgl_refuse_field(r->err, param, "%s must be a JSON schema", param);
}

static bool text_of(const pgl_param_reading *r, const char *param, pgl_constraint_kind kind,
                    const json_t *value) {
    if (!json_is_string(value) || json_string_length(value) == 0)
        return pgl_refuse_field(r->err, param, "%s must be a string that is not empty", param);
    return set_form(r, param, kind, json_string_value(value), json_string_length(value));
}

static bool choice_of(const pgl_param_reading *r, const char *param, const json_t *value) {
    size_t i;
    json_t *one;
    if (json_array_size(value) == 0)
        return pgl_refuse_field(r->err, param, "%s must be a list of strings that is not empty", param);
    json_array_foreach((json_t *)(uintptr_t)value, i, one) {
        if (!json_is_string(one))
            return pgl_refuse_field(r->err, param, "%s[%zu] must be a string, not %s", param, i,
                                    pgl_json_type_text(one));
    }
    return set_json(r, param, PGL_CONSTRAINT_CHOICE, value);
}

bool pgl_read_guided_json(const pgl_param_reading *r) {
    return schema_of(r, "guided_json", r->value);
}

bool pgl_read_guided_regex(const pgl_param_reading *r) {
    return text_of(r, "guided_regex", PGL_CONSTRAINT_REGEX, r->value);
}

bool pgl_read_guided_grammar(const pgl_param_reading *r) {
    return text_of(r, "guided_grammar", PGL_CONSTRAINT_LARK, r->value);
}

bool pgl_read_guided_choice(const pgl_param_reading *r) {
    return choice_of(r, "guided_choice", r->value);
}

bool pgl_read_structured_outputs(const pgl_param_reading *r) {
    const char *key;
    json_t *value;
    if (!json_is_object(r->value))
        return pgl_refuse_field(r->err, "structured_outputs", "structured_outputs must be an object");
    json_object_foreach((json_t *)(uintptr_t)r->value, key, value) {
        bool fine = true;
        if (json_is_null(value))
            continue;
        if (strcmp(key, "json") == 0)
            fine = schema_of(r, "structured_outputs.json", value);
        else if (strcmp(key, "regex") == 0)
            fine = text_of(r, "structured_outputs.regex", PGL_CONSTRAINT_REGEX, value);
        else if (strcmp(key, "grammar") == 0)
            fine = text_of(r, "structured_outputs.grammar", PGL_CONSTRAINT_LARK, value);
        else if (strcmp(key, "choice") == 0)
            fine = choice_of(r, "structured_outputs.choice", value);
        else if (strcmp(key, "json_object") == 0 && json_is_true(value))
            fine = set_form(r, "structured_outputs.json_object", PGL_CONSTRAINT_JSON_OBJECT, "", 0);
        else if (strcmp(key, "structural_tag") == 0)
            fine = pgl_refuse(r->err, 400, "unsupported", "structured_outputs.structural_tag",
                              "structured_outputs.structural_tag is not supported");
        if (!fine)
            return false;
    }
    return true;
}

bool pgl_read_tool_choice(const pgl_param_reading *r) {
    const char *word = json_string_value(r->value);
    const json_t *function = json_object_get(r->value, "function");
    const char *name = json_string_value(json_object_get(function ? function : r->value, "name"));
    if (word && (strcmp(word, "auto") == 0 || strcmp(word, "none") == 0)) {
        r->params->tool_choice = word[0] == 'n' ? PGL_TOOL_CHOICE_NONE : PGL_TOOL_CHOICE_AUTO;
        return true;
    }
    if ((!word || strcmp(word, "required") != 0) && !name)
        return pgl_refuse_field(
            r->err, "tool_choice",
            "tool_choice must be \"auto\", \"none\", \"required\" or an object that names a function");
    r->params->tool_choice = PGL_TOOL_CHOICE_REQUIRED;
    r->params->tool_name = name ? pgl_arena_strndup(r->arena, name, strlen(name)) : NULL;
    return !name || r->params->tool_name || pgl_refuse_memory(r->err);
}
