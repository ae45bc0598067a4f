/* The OpenAPI document: paths out of the table of routes, request fields out of the table of parameters, and what
 * answers look like out of openapi.json. Made once, when the server opens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embed.h"
#include "base/json.h"
#include "server/server_impl.h"

PGL_EMBEDDED(openapi)

/* What a body may be, and its schema, which openapi.json begins. */
static const struct {
    pgl_param_routes fields;
    const char *schema;
} bodies[] = {
    {PGL_PARAM_CHAT, "ChatCompletionRequest"},
    {PGL_PARAM_COMPLETIONS, "CompletionRequest"},
    {PGL_PARAM_TOKENIZE, "TokenizeRequest"},
    {PGL_PARAM_DETOKENIZE, "DetokenizeRequest"},
};
#define N_BODIES (sizeof bodies / sizeof *bodies)

/* ---- request fields ---- */

static json_t *typed(const char *type) {
    return json_pack("{s:[s,s]}", "type", type, "null");
}

/* With both ends, and the default where that is a value in the range. */
static json_t *number_schema(const pgl_param_row *row, const pgl_gen_params *defaults) {
    const char *at = (const char *)defaults + row->offset;
    if (row->kind == PGL_PARAM_NUMBER) {
        double value;
        memcpy(&value, at, sizeof value);
        return json_pack("{s:[s,s],s:f,s:f,s:f}", "type", "number", "null", "minimum", row->min, "maximum",
                         row->max, "default", value);
    }
    int64_t value;
    memcpy(&value, at, sizeof value);
    json_t *schema = json_pack("{s:[s,s],s:I,s:I}", "type", "integer", "null", "minimum",
                               (json_int_t)row->min, "maximum", (json_int_t)row->max);
    if (schema && (double)value >= row->min && (double)value <= row->max)
        json_object_set_new(schema, "default", json_integer(value));
    return schema;
}

static json_t *value_schema(const pgl_param_row *row, const pgl_gen_params *defaults) {
    char component[96];
    bool on;
    switch (row->kind) {
    case PGL_PARAM_BOOL:
        memcpy(&on, (const char *)defaults + row->offset, sizeof on);
        return json_pack("{s:[s,s],s:b}", "type", "boolean", "null", "default", on);
    case PGL_PARAM_FLAG:
        return typed("boolean");
    case PGL_PARAM_INTEGER:
    case PGL_PARAM_NUMBER:
        return number_schema(row, defaults);
    case PGL_PARAM_STRING:
        return typed("string");
    case PGL_PARAM_OBJECT:
        return typed("object");
    case PGL_PARAM_READER:
    case PGL_PARAM_TEXT:
        snprintf(component, sizeof component, "#/components/schemas/%s", row->schema);
        return json_pack("{s:s}", "$ref", component);
    case PGL_PARAM_ACCEPTED:
        return json_object();
    case PGL_PARAM_REFUSED:
        return json_pack("{s:[n,b,s,[]],s:b}", "enum", 0, "", "deprecated", 1);
    }
    return NULL;
}

static bool add_field(json_t *schema, const pgl_param_row *row, pgl_param_routes body,
                      const pgl_gen_params *defaults) {
    char note[256];
    snprintf(note, sizeof note, "%s%s.", row->kind == PGL_PARAM_REFUSED ? "Not supported: " : "", row->note);
    if (note[0] >= 'a' && note[0] <= 'z')
        note[0] = (char)(note[0] - 'a' + 'A');
    json_t *field = value_schema(row, defaults);
    if (!field || json_object_set_new(field, "description", json_string(note)) != 0 ||
        json_object_set(json_object_get(schema, "properties"), row->name, field) != 0) {
        json_decref(field);
        return false;
    }
    json_decref(field);
    return !(row->required & body) ||
           json_array_append_new(json_object_get(schema, "required"), json_string(row->name)) == 0;
}

static bool add_bodies(const pgl_server *server, json_t *schemas) {
    size_t n;
    const pgl_param_row *rows = pgl_param_rows(&n);
    pgl_gen_params defaults = pgl_params_defaults(&server->sampling);
    for (size_t k = 0; k < N_BODIES; k++) {
        json_t *schema = json_object_get(schemas, bodies[k].schema);
        if (json_object_set_new(schema, "required", json_array()) != 0 ||
            json_object_set_new(schema, "properties", json_object()) != 0)
            return false;
        for (size_t i = 0; i < n; i++)
            if ((rows[i].routes & bodies[k].fields) &&
                !add_field(schema, &rows[i], bodies[k].fields, &defaults))
                return false;
    }
    return true;
}

/* ---- paths ---- */

static json_t *schema_ref(const char *name, const char *more) {
    char text[96];
    snprintf(text, sizeof text, "#/components/schemas/%s%s", name, more);
    return json_pack("{s:{s:s}}", "schema", "$ref", text);
}

static json_t *response_ref(const char *name) {
    char text[96];
    snprintf(text, sizeof text, "#/components/responses/%s", name);
    return json_pack("{s:s}", "$ref", text);
}

static json_t *answer_of(const pgl_route *route) {
    if (!route->answer)
        return json_pack("{s:s,s:{s:{s:{s:s}}}}", "description", route->summary, "content", "text/plain",
                         "schema", "type", "string");
    json_t *answer = json_pack("{s:s,s:{s:o}}", "description", route->summary, "content", "application/json",
                               schema_ref(route->answer, ""));
    if (answer && (route->flags & PGL_ROUTE_STREAMS) &&
        json_object_set_new(json_object_get(answer, "content"), "text/event-stream",
                            schema_ref(route->answer, "Chunk")) != 0) {
        json_decref(answer);
        return NULL;
    }
    return answer;
}

static json_t *responses_of(const pgl_route *route) {
    json_t *all = json_object();
    bool fine = json_object_set_new(all, "200", answer_of(route)) == 0;
    if (route->flags & PGL_ROUTE_READINESS)
        fine = fine && json_object_set_new(all, "503", answer_of(route)) == 0;
    if (route->fields)
        fine = fine && json_object_set_new(all, "400", response_ref("BadRequest")) == 0 &&
               json_object_set_new(all, "408", response_ref("Timeout")) == 0 &&
               json_object_set_new(all, "413", response_ref("TooLarge")) == 0;
    if (route->scope == PGL_SCOPE_KEY)
        fine = fine && json_object_set_new(all, "401", response_ref("NoKey")) == 0;
    if (route->flags & PGL_ROUTE_STREAMS)
        fine = fine && json_object_set_new(all, "404", response_ref("UnknownModel")) == 0 &&
               json_object_set_new(all, "503", response_ref("Overloaded")) == 0;
    fine = fine && json_object_set_new(all, "default", response_ref("Error")) == 0;
    if (fine)
        return all;
    json_decref(all);
    return NULL;
}

static json_t *body_of(const pgl_route *route) {
    json_t *any = json_array();
    for (size_t k = 0; any && k < N_BODIES; k++) {
        if (!(route->fields & bodies[k].fields))
            continue;
        json_t *ref = schema_ref(bodies[k].schema, "");
        json_array_append(any, json_object_get(ref, "schema"));
        json_decref(ref);
    }
    if (json_array_size(any) != 1)
        return json_pack("{s:b,s:{s:{s:{s:o}}}}", "required", 1, "content", "application/json", "schema",
                         "anyOf", any);
    json_t *body = json_pack("{s:b,s:{s:{s:O}}}", "required", 1, "content", "application/json", "schema",
                             json_array_get(any, 0));
    json_decref(any);
    return body;
}

/* No requirement is one of the alternatives where no key is set. */
static json_t *security_of(const pgl_server *server, const pgl_route *route) {
    if (route->scope == PGL_SCOPE_OPEN)
        return json_array();
    json_t *all = json_pack("[{s:[]},{s:[]}]", "bearer", "header");
    if (all && !pgl_access_has_keys(server->access))
        json_array_insert_new(all, 0, json_object());
    return all;
}

static json_t *operation_of(const pgl_server *server, const pgl_route *route, const char *id, bool rest) {
    json_t *operation = json_pack("{s:s,s:s,s:o,s:[{s:s}],s:o}", "operationId", id, "summary", route->summary,
                                  "security", security_of(server, route), "parameters", "$ref",
                                  "#/components/parameters/RequestId", "responses", responses_of(route));
    bool fine = operation != NULL;
    if (fine && rest)
        fine = json_array_append_new(json_object_get(operation, "parameters"),
                                     json_pack("{s:s}", "$ref", "#/components/parameters/Id")) == 0;
    if (fine && route->fields)
        fine = json_object_set_new(operation, "requestBody", body_of(route)) == 0;
    if (fine)
        return operation;
    json_decref(operation);
    return NULL;
}

static bool add_path(const pgl_server *server, const pgl_route *route, json_t *paths) {
    char path[96], id[112], method[8];
    size_t n = strlen(route->path);
    bool rest = n > 1 && route->path[n - 1] == '*';
    snprintf(path, sizeof path, "%.*s%s", (int)(n - rest), route->path, rest ? "{id}" : "");
    snprintf(method, sizeof method, "%s", route->method);
    for (char *c = method; *c; c++)
        *c = (char)(*c | 0x20);
    snprintf(id, sizeof id, "%s%s", method, path);
    for (char *c = id; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9')))
            *c = '_';
    json_t *item = json_object_get(paths, path);
    if (!item && json_object_set_new(paths, path, json_object()) != 0)
        return false;
    return json_object_set_new(json_object_get(paths, path), method, operation_of(server, route, id, rest)) ==
           0;
}

pgl_status pgl_openapi_write(const pgl_server *server, pgl_buf *out, pgl_error *err) {
    const pgl_json_options options = {.name = "openapi.json"};
    size_t n;
    const pgl_route *routes = pgl_routes(&n);
    json_t *document = NULL;
    pgl_status status =
        pgl_json_parse(pgl_embedded_openapi, PGL_EMBEDDED_SIZE(openapi), &options, &document, err);
    if (status != PGL_OK)
        return status;
    bool fine =
        json_object_set_new(json_object_get(document, "info"), "version", json_string(PGL_VERSION)) == 0 &&
        add_bodies(server, json_object_get(json_object_get(document, "components"), "schemas"));
    for (size_t i = 0; fine && i < n; i++)
        fine = add_path(server, &routes[i], json_object_get(document, "paths"));
    char *text = fine ? json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(7)) : NULL;
    json_decref(document);
    fine = text && pgl_buf_puts(out, text);
    free(text);
    return fine ? PGL_OK : pgl_fail(err, PGL_E_MEMORY, "no memory for the OpenAPI document");
}

void pgl_handle_openapi(pgl_server *server, pgl_exchange *exchange) {
    pgl_exchange_answer(exchange, &(pgl_answer){.status = 200,
                                                .content_type = "application/json",
                                                .body = server->openapi.data,
                                                .size = server->openapi.size});
    pgl_exchange_release(exchange);
}
