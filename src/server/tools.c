#include "server/tools.h"

#include <stdio.h>
#include <string.h>

#include "server/body.h"

#define MOST_NAME_BYTES 256

static bool is_object(pgl_json_span value) {
    return value.size > 0 && value.text[0] == '{';
}

static bool is_null(pgl_json_span value) {
    return value.size == 0 || value.text[0] == 'n';
}

/* Whether a call can spell it in <function=NAME>. */
static bool is_name(const char *name, size_t size) {
    return size > 0 && size <= MOST_NAME_BYTES && strlen(name) == size && strpbrk(name, ">\r\n") == NULL &&
           strchr(" \t", name[0]) == NULL && strchr(" \t=", name[size - 1]) == NULL;
}

static bool check_name(pgl_json_span value, const char *field, pgl_refusal *err) {
    pgl_buf name = PGL_BUF_INIT;
    if (value.size == 0 || value.text[0] != '"')
        return pgl_refuse_field(err, field, "%s must be a string, not %s", field, pgl_span_type(value));
    bool fine =
        pgl_json_raw_string(value, &name)
            ? is_name(pgl_buf_text(&name), name.size) ||
                  pgl_refuse_field(
                      err, field, "%s must have 1 to %d bytes, no '>' or line end, and no blanks at its ends",
                      field, MOST_NAME_BYTES)
            : pgl_refuse_memory(err);
    pgl_buf_fini(&name);
    return fine;
}

static bool check_tool(pgl_json_span tool, size_t i, pgl_refusal *err) {
    char field[64];
    snprintf(field, sizeof field, "tools[%zu]", i);
    if (!is_object(tool))
        return pgl_refuse_field(err, field, "%s must be an object, not %s", field, pgl_span_type(tool));
    pgl_json_span type = pgl_json_raw_member(tool, "type");
    if (!is_null(type) && (type.size != 10 || memcmp(type.text, "\"function\"", 10) != 0)) {
        snprintf(field, sizeof field, "tools[%zu].type", i);
        return pgl_refuse_field(err, field, "%s must be \"function\": there are no other tools", field);
    }
    pgl_json_span function = pgl_json_raw_member(tool, "function");
    const char *inner = function.text ? ".function" : "";
    if (!function.text)
        function = tool;
    if (!is_object(function)) {
        snprintf(field, sizeof field, "tools[%zu].function", i);
        return pgl_refuse_field(err, field, "%s must be an object, not %s", field, pgl_span_type(function));
    }
    snprintf(field, sizeof field, "tools[%zu]%s.name", i, inner);
    if (!check_name(pgl_json_raw_member(function, "name"), field, err))
        return false;
    pgl_json_span parameters = pgl_json_raw_member(function, "parameters");
    snprintf(field, sizeof field, "tools[%zu]%s.parameters", i, inner);
    return is_null(parameters) || is_object(parameters) ||
           pgl_refuse_field(err, field, "%s must be a JSON schema, an object, not %s", field,
                            pgl_span_type(parameters));
}

bool pgl_check_tools(pgl_json_span tools, pgl_refusal *err) {
    if (is_null(tools))
        return true;
    if (tools.text[0] != '[')
        return pgl_refuse_field(err, "tools", "tools must be a list, not %s", pgl_span_type(tools));
    pgl_json_iter it = pgl_json_iter_begin(tools);
    pgl_json_span key, tool;
    for (size_t i = 0; pgl_json_iter_next(&it, &key, &tool); i++)
        if (!check_tool(tool, i, err))
            return false;
    return true;
}
