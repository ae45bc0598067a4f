#include "server/access.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

typedef struct strings {
    char **items;
    size_t n;
} strings;

struct pgl_access {
    strings keys, origins, hosts;
    bool loopback_only, every_origin;
};

/* ---- life ---- */

static void free_strings(strings *list) {
    for (size_t i = 0; i < list->n; i++) {
        explicit_bzero(list->items[i], strlen(list->items[i]));
        free(list->items[i]);
    }
    free(list->items);
}

static bool copy_strings(const char *const *items, size_t n, strings *out) {
    out->items = pgl_new(n, sizeof *out->items);
    if (!out->items)
        return false;
    for (; out->n < n; out->n++) {
        out->items[out->n] = pgl_strndup(items[out->n], strlen(items[out->n]));
        if (!out->items[out->n])
            return false;
    }
    return true;
}

static bool right_key(const char *key) {
    for (const char *c = key; *c; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    return key[0] != '\0';
}

pgl_status pgl_access_open(const pgl_access_options *options, pgl_access **out, pgl_error *err) {
    for (size_t i = 0; i < options->n_keys; i++)
        if (!right_key(options->keys[i]))
            return pgl_fail(err, PGL_E_INVALID,
                            "API key number %zu is empty or has blanks, control or non-ASCII characters",
                            i + 1);
    pgl_access *access = pgl_new(1, sizeof *access);
    if (!access)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the API keys");
    access->loopback_only = options->loopback_only;
    for (size_t i = 0; i < options->n_origins; i++)
        access->every_origin = access->every_origin || strcmp(options->origins[i], "*") == 0;
    if (!copy_strings(options->keys, options->n_keys, &access->keys) ||
        !copy_strings(options->origins, options->n_origins, &access->origins) ||
        !copy_strings(options->hosts, options->n_hosts, &access->hosts)) {
        pgl_access_close(access);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the API keys");
    }
    *out = access;
    return PGL_OK;
}

void pgl_access_close(pgl_access *access) {
    if (!access)
        return;
    free_strings(&access->keys);
    free_strings(&access->origins);
    free_strings(&access->hosts);
    free(access);
}

size_t pgl_access_split_keys(char *text, const char **keys, size_t capacity) {
    size_t n = 0;
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line && n < capacity; line = strsep(&rest, "\n")) {
        line += strspn(line, " \t");
        size_t size = strlen(line);
        while (size > 0 && (line[size - 1] == ' ' || line[size - 1] == '\t' || line[size - 1] == '\r'))
            line[--size] = '\0';
        if (size > 0 && line[0] != '#')
            keys[n++] = line;
    }
    return n;
}

/* ---- keys ---- */

bool pgl_access_has_keys(const pgl_access *access) {
    return access->keys.n > 0;
}

/* Looks at every byte of the key, whatever was given. */
static bool same_key(const char *key, const char *given, size_t given_size) {
    size_t size = strlen(key);
    volatile unsigned char difference = size != given_size;
    for (size_t i = 0; i < size; i++)
        difference |= (unsigned char)(key[i] ^ (i < given_size ? given[i] : 0));
    return difference == 0;
}

bool pgl_access_key_fits(const pgl_access *access, const pgl_http_head *head) {
    if (access->keys.n == 0)
        return true;
    const char *given = pgl_http_header_find(head, "Authorization");
    if (given && strncasecmp(given, "Bearer ", 7) == 0)
        given += 7 + strspn(given + 7, " ");
    else
        given = pgl_http_header_find(head, "x-api-key");
    if (!given)
        return false;
    bool fits = false;
    size_t size = strlen(given);
    for (size_t i = 0; i < access->keys.n; i++)
        fits |= same_key(access->keys.items[i], given, size);
    return fits;
}

/* ---- Host and Origin ---- */

/* The name in "name", "name:80", "1.2.3.4:80", "[::1]:80"; false when it is none of these. */
static bool host_name(const char *text, char *name, size_t capacity) {
    const char *from = text, *end;
    if (text[0] == '[') {
        from = text + 1;
        end = strchr(from, ']');
        if (!end)
            return false;
    } else {
        end = text + strcspn(text, ":");
    }
    const char *port = end + (*end == ']');
    size_t n = (size_t)(end - from);
    if (n == 0 || n >= capacity || (*port != '\0' && *port != ':'))
        return false;
    if (*port == ':' && strspn(port + 1, "0123456789") != strlen(port + 1))
        return false;
    memcpy(name, from, n);
    name[n] = '\0';
    return true;
}

static bool is_address(const char *name) {
    unsigned char bytes[16];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

static bool is_loopback_name(const char *name) {
    size_t n = strlen(name);
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, name, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, name, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return strcasecmp(name, "localhost") == 0 || (n > 10 && strcasecmp(name + n - 10, ".localhost") == 0);
}

static bool in_list(const strings *list, const char *text) {
    for (size_t i = 0; i < list->n; i++)
        if (strcasecmp(list->items[i], text) == 0)
            return true;
    return false;
}

static bool host_allowed(const pgl_access *access, const char *host) {
    char name[256];
    if (!host_name(host, name, sizeof name))
        return false;
    return is_loopback_name(name) || (!access->loopback_only && is_address(name)) ||
           in_list(&access->hosts, name);
}

/* Of a server without keys. */
static bool origin_allowed(const pgl_access *access, const char *origin, const char *host) {
    if (access->every_origin || in_list(&access->origins, origin))
        return true;
    const char *at = strstr(origin, "://");
    char name[256];
    if (!at)
        return false;
    return (host && strcasecmp(at + 3, host) == 0) ||
           (host_name(at + 3, name, sizeof name) && is_loopback_name(name));
}

bool pgl_access_check_origin(const pgl_access *access, const pgl_http_head *head, pgl_http_fault *why) {
    if (access->keys.n > 0)
        return true;
    why->status = 403;
    why->code = "forbidden";
    const char *host = pgl_http_header_find(head, "Host");
    if (host && !host_allowed(access, host)) {
        snprintf(why->text, sizeof why->text,
                 "the Host header names a host that this server does not answer for; it has no API key and "
                 "answers to "
                 "%s (see --allow-host)",
                 access->loopback_only ? "localhost" : "addresses and localhost");
        return false;
    }
    const char *origin = pgl_http_header_find(head, "Origin");
    if (origin && !origin_allowed(access, origin, host)) {
        snprintf(why->text, sizeof why->text,
                 "pages of this Origin may not use this server, which has no API key (see --cors-origin)");
        return false;
    }
    return true;
}

const char *pgl_access_allow_origin(const pgl_access *access, const pgl_http_head *head) {
    const char *origin = pgl_http_header_find(head, "Origin");
    if (!origin)
        return NULL;
    if (access->every_origin || (access->keys.n > 0 && access->origins.n == 0))
        return "*";
    if (access->keys.n > 0)
        return in_list(&access->origins, origin) ? origin : NULL;
    return origin_allowed(access, origin, pgl_http_header_find(head, "Host")) ? origin : NULL;
}
