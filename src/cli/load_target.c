/* Where the load goes: a URL taken apart, and the address that answers. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/load_http.h"

static bool plain(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return true;
}

/* HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT */
static bool parse_authority(const char *text, size_t size, pgl_load_target *target) {
    const char *host = text, *end = text + size, *host_end = memchr(text, ':', size);
    if (size > 0 && text[0] == '[') {
        host = text + 1;
        host_end = memchr(text, ']', size);
        if (host_end == NULL || (host_end + 1 < end && host_end[1] != ':'))
            return false;
    } else if (host_end == NULL) {
        host_end = end;
    }
    const char *port = host_end + (host_end < end && *host_end == ']');
    bool has_port = port < end;
    port += has_port;
    size_t host_size = (size_t)(host_end - host), port_size = (size_t)(end - port);
    if (host_size == 0 || host_size >= sizeof target->host || port_size >= 6 || (has_port && port_size == 0))
        return false;
    (void)snprintf(target->host, sizeof target->host, "%.*s", (int)host_size, host);
    (void)snprintf(target->port, sizeof target->port, "%.*s", has_port ? (int)port_size : 2,
                   has_port ? port : "80");
    (void)snprintf(target->authority, sizeof target->authority, "%.*s", (int)size, text);
    char *rest;
    long number = strtol(target->port, &rest, 10);
    return *rest == '\0' && number > 0 && number < 65536 && target->port[0] >= '0' && target->port[0] <= '9';
}

pgl_status pgl_load_target_parse(const char *url, pgl_load_target *target, pgl_error *err) {
    static const char scheme[] = "http://";
    size_t skip = sizeof scheme - 1, size = strlen(url);
    *target = (pgl_load_target){0};
    if (strncasecmp(url, "https://", 8) == 0)
        return pgl_fail(err, PGL_E_INVALID,
                        "--url: there is no TLS here, only http://; found %.200s (put a proxy in between)",
                        url);
    if (strncasecmp(url, scheme, skip) != 0)
        return pgl_fail(err, PGL_E_INVALID, "--url: expected http://HOST:PORT/v1, found \"%.200s\"", url);
    const char *authority = url + skip, *path = authority + strcspn(authority, "/?#");
    size_t authority_size = (size_t)(path - authority), path_size = strlen(path);
    if (!plain(url, size) || memchr(authority, '@', authority_size) != NULL || strpbrk(path, "?#") != NULL ||
        authority_size >= sizeof target->authority || path_size >= sizeof target->base ||
        !parse_authority(authority, authority_size, target))
        return pgl_fail(
            err, PGL_E_INVALID,
            "--url: expected http://HOST:PORT/v1 without user, query or fragment, found \"%.200s\"", url);
    while (path_size > 0 && path[path_size - 1] == '/')
        path_size--;
    (void)snprintf(target->base, sizeof target->base, "%.*s", (int)path_size, path);
    if (path_size >= 3 && strncmp(path + path_size - 3, "/v1", 3) == 0)
        path_size -= 3;
    (void)snprintf(target->root, sizeof target->root, "%.*s", (int)path_size, path);
    return PGL_OK;
}

/* 0, or why not. */
static int try_address(const struct addrinfo *a, double timeout_s) {
    int fault = 0, fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0)
        fault = errno;
    if (fault == EINPROGRESS) {
        struct pollfd look = {.fd = fd, .events = POLLOUT};
        socklen_t size = sizeof fault;
        int ready = poll(&look, 1, (int)(timeout_s * 1e3));
        if (ready == 0)
            fault = ETIMEDOUT;
        else if (ready < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &size) != 0)
            fault = errno;
    }
    (void)close(fd);
    return fault;
}

pgl_status pgl_load_target_connect(pgl_load_target *target, double timeout_s, pgl_error *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC}, *found = NULL;
    int code = getaddrinfo(target->host, target->port, &hints, &found), fault = ECONNREFUSED;
    if (code != 0)
        return pgl_fail(err, PGL_E_IO, "--url: %s is not known: %s", target->host, gai_strerror(code));
    for (const struct addrinfo *a = found; a != NULL && target->address_size == 0; a = a->ai_next) {
        if (a->ai_addrlen > sizeof target->address)
            continue;
        fault = try_address(a, timeout_s);
        if (fault != 0)
            continue;
        memcpy(&target->address, a->ai_addr, a->ai_addrlen);
        target->address_size = a->ai_addrlen;
    }
    freeaddrinfo(found);
    if (target->address_size == 0)
        return pgl_fail(err, PGL_E_IO, "cannot connect to %s port %s: %s", target->host, target->port,
                        strerror(fault));
    return PGL_OK;
}
