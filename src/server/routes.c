/* The one table of routes: dispatch, access scope, body and the answer to a wrong method follow from it. */
#include <stdio.h>
#include <string.h>

#include "server/server_impl.h"

#define INLINE PGL_ROUTE_INLINE
#define ALWAYS (PGL_ROUTE_INLINE | PGL_ROUTE_WHEN_DRAINING)
#define OPEN PGL_SCOPE_OPEN
#define KEY PGL_SCOPE_KEY

static const pgl_route routes[] = {
    {"GET", "/", OPEN, ALWAYS, false, pgl_handle_root, "says that the server is there"},
    {"GET", "/health", OPEN, ALWAYS, false, pgl_handle_health, "200 as long as the process answers"},
    {"GET", "/health/ready", OPEN, ALWAYS, false, pgl_handle_ready, "200 when requests are taken, else 503"},
    {"GET", "/version", KEY, ALWAYS, false, pgl_handle_version, "the program's version"},
    {"GET", "/v1/models", KEY, INLINE, false, pgl_handle_models, "the served model and its context"},
    {"GET", "/v1/models/*", KEY, INLINE, false, pgl_handle_model, "one model"},
    {"GET", "/props", KEY, 0, false, pgl_handle_props, "slots, context, default parameters, template"},
    {"GET", "/slots", KEY, 0, false, pgl_handle_slots, "what runs where, without prompts"},
    {"GET", "/metrics", KEY, PGL_ROUTE_WHEN_DRAINING, false, pgl_handle_metrics, "figures for Prometheus"},
    {"POST", "/tokenize", KEY, 0, true, pgl_handle_tokenize, "text or messages to token ids"},
    {"POST", "/detokenize", KEY, 0, true, pgl_handle_detokenize, "token ids to text"},
    {"POST", "/apply-template", KEY, 0, true, pgl_handle_apply_template, "messages to the prompt's text"},
    {"POST", "/v1/chat/completions", KEY, 0, true, pgl_handle_chat, "a chat answer"},
    {"POST", "/v1/completions", KEY, 0, true, pgl_handle_completions, "a text's continuation"},
};

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
    static const char *const methods[] = {"GET", "HEAD", "POST"};
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (pgl_route_find(methods[i], path) && at < capacity)
            at += (size_t)snprintf(out + at, capacity - at, "%s, ", methods[i]);
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
