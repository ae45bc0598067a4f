/* The one table of routes: dispatch, access scope, body, the answer to a wrong method and the paths of the OpenAPI
 * document follow from it. */
#include <stdio.h>
#include <string.h>

#include "server/server_impl.h"

#define INLINE PGL_ROUTE_INLINE
#define DRAIN PGL_ROUTE_WHEN_DRAINING
#define ALWAYS (INLINE | DRAIN)
#define STREAMS PGL_ROUTE_STREAMS
#define OPEN PGL_SCOPE_OPEN
#define KEY PGL_SCOPE_KEY
#define CHAT PGL_PARAM_CHAT
#define COMPLETIONS PGL_PARAM_COMPLETIONS

/* clang-format off */
static const pgl_route routes[] = {
    {"GET", "/", OPEN, ALWAYS, 0, pgl_handle_root, NULL, "says that the server is there"},
    {"GET", "/health", OPEN, ALWAYS, 0, pgl_handle_health, "Health", "200 as long as the process answers"},
    {"GET", "/health/ready", OPEN, ALWAYS | PGL_ROUTE_READINESS, 0, pgl_handle_ready, "Health",
     "200 when requests are taken, else 503"},
    {"GET", "/version", KEY, ALWAYS, 0, pgl_handle_version, "Version", "the program's version"},
    {"GET", "/openapi.json", KEY, INLINE, 0, pgl_handle_openapi, "Document", "this document"},
    {"GET", "/v1/models", KEY, INLINE, 0, pgl_handle_models, "ModelList", "the served model and its context"},
    {"GET", "/v1/models/*", KEY, INLINE, 0, pgl_handle_model, "Model", "one model"},
    {"GET", "/props", KEY, 0, 0, pgl_handle_props, "Props", "slots, context, default parameters, template"},
    {"GET", "/slots", KEY, 0, 0, pgl_handle_slots, "Slots", "what runs where, without prompts"},
    {"GET", "/metrics", KEY, DRAIN, 0, pgl_handle_metrics, NULL, "figures for Prometheus"},
    {"POST", "/tokenize", KEY, 0, PGL_PARAM_TOKENIZE | CHAT, pgl_handle_tokenize, "Tokens",
     "a text, or the prompt of messages, as token ids"},
    {"POST", "/detokenize", KEY, 0, PGL_PARAM_DETOKENIZE, pgl_handle_detokenize, "Detokenized",
     "token ids to text"},
    {"POST", "/apply-template", KEY, 0, CHAT, pgl_handle_apply_template, "Prompted",
     "messages to the prompt's text"},
    {"POST", "/v1/chat/completions", KEY, STREAMS, CHAT, pgl_handle_chat, "ChatCompletion", "a chat answer"},
    {"POST", "/v1/completions", KEY, STREAMS, COMPLETIONS, pgl_handle_completions, "Completion",
     "a text's continuation"},
};
/* clang-format on */

const pgl_route *pgl_routes(size_t *n) {
    *n = sizeof routes / sizeof *routes;
    return routes;
}

static bool path_fits(const pgl_route *route, const char *path, size_t size) {
    size_t n = strlen(route->path);
    if (n > 1 && route->path[n - 1] == '*')
        return size > n - 1 && strncmp(path, route->path, n - 1) == 0;
    return size == n && strncmp(path, route->path, n) == 0;
}

/* The length without a slash at the end. */
static size_t path_size(const char *path) {
    size_t size = strlen(path);
    return size > 1 && path[size - 1] == '/' ? size - 1 : size;
}

static bool method_fits(const pgl_route *route, const char *method) {
    return strcmp(route->method, method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

const pgl_route *pgl_route_find(const char *method, const char *path) {
    size_t size = path_size(path);
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (path_fits(&routes[i], path, size) && (!method || method_fits(&routes[i], method)))
            return &routes[i];
    return NULL;
}

void pgl_route_allow(const char *path, char *out, size_t capacity) {
    size_t at = 0, size = path_size(path);
    out[0] = '\0';
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const char *method = routes[i].method;
        if (path_fits(&routes[i], path, size) && at < capacity)
            at += (size_t)snprintf(out + at, capacity - at, "%s%s, ", method,
                                   strcmp(method, "GET") == 0 ? ", HEAD" : "");
    }
    if (at < capacity)
        snprintf(out + at, capacity - at, "OPTIONS");
}

bool pgl_route_rest(const pgl_route *route, const char *path, char *out, size_t capacity) {
    size_t from = strlen(route->path) - 1, size = path_size(path);
    if (size < from || size - from >= capacity)
        return false;
    memcpy(out, path + from, size - from);
    out[size - from] = '\0';
    return pgl_http_percent_decode(out);
}
