/* Binding, accepting, the I/O thread's loop, and the end of it. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/http_impl.h"

#define S ((uint64_t)1000000000)
#define BACKLOG 512
#define SPARE_FILES 64 /* for everything in the process that is no connection */

pgl_http_options pgl_http_default_options(void) {
    return (pgl_http_options){.limits = pgl_http_default_limits(),
                              .max_connections = 1024,
                              .max_held_body_bytes = (size_t)256 << 20,
                              .head_timeout_ns = 10 * S,
                              .body_timeout_ns = 30 * S,
                              .body_bytes_per_s = 4096,
                              .idle_timeout_ns = 75 * S,
                              .write_timeout_ns = 30 * S,
                              .comment_ns = 10 * S,
                              .stream_high_bytes = (size_t)256 << 10};
}

/* ---- binding ---- */

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

static void set_port(struct sockaddr *address, uint16_t port) {
    if (address->sa_family == AF_INET)
        ((struct sockaddr_in *)(void *)address)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons(port);
}

static pgl_status bind_one(const struct addrinfo *info, const char *host, pgl_http_sockets *out,
                           pgl_error *err) {
    int on = 1;
    struct sockaddr_storage address;
    memcpy(&address, info->ai_addr, info->ai_addrlen);
    set_port((struct sockaddr *)&address, out->port);
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return pgl_fail(err, PGL_E_IO, "no socket for %s: %s", host, strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (info->ai_family == AF_INET6) {
        /* "::" is every address, those of IPv4 as well. */
        int only =
            !IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)info->ai_addr)->sin6_addr);
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    }
    socklen_t size = info->ai_addrlen;
    if (bind(fd, (struct sockaddr *)&address, size) != 0) {
        int code = errno;
        close(fd);
        if (code == EADDRINUSE)
            return pgl_fail(err, PGL_E_BUSY, "port %u of %s is in use by another program", out->port, host);
        return pgl_fail(err, PGL_E_IO, "cannot bind to port %u of %s: %s", out->port, host, strerror(code));
    }
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } bound;
    memset(&bound, 0, sizeof bound);
    size = sizeof bound;
    if (out->port == 0 && getsockname(fd, &bound.any, &size) == 0)
        out->port = ntohs(bound.any.sa_family == AF_INET ? bound.four.sin_port : bound.six.sin6_port);
    out->loopback_only = out->loopback_only && is_loopback(info->ai_addr);
    out->fds[out->n++] = fd;
    return PGL_OK;
}

pgl_status pgl_http_bind(const char *host, uint16_t port, pgl_http_sockets *out, pgl_error *err) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    *out = (pgl_http_sockets){.port = port, .loopback_only = true};
    char bare[INET6_ADDRSTRLEN + 1];
    size_t size = strlen(host);
    if (size > 2 && size < sizeof bare && host[0] == '[' && host[size - 1] == ']') { /* as in a URL */
        snprintf(bare, sizeof bare, "%.*s", (int)(size - 2), host + 1);
        host = bare;
    }
    int code = getaddrinfo(host, NULL, &hints, &list);
    if (code != 0)
        return pgl_fail(err, PGL_E_INVALID, "host: %s does not resolve: %s", host, gai_strerror(code));
    pgl_status status = PGL_OK;
    for (struct addrinfo *info = list; info && out->n < PGL_HTTP_MOST_SOCKETS; info = info->ai_next) {
        if (info->ai_family != AF_INET && info->ai_family != AF_INET6)
            continue;
        status = bind_one(info, host, out, err);
        /* A name may stand for an address family that this machine has switched off. */
        if (status == PGL_E_IO && (info->ai_next || out->n > 0))
            status = PGL_OK;
        if (status != PGL_OK)
            break;
    }
    freeaddrinfo(list);
    if (status == PGL_OK && out->n == 0)
        status = pgl_fail(err, PGL_E_IO, "no address of %s can be bound", host);
    if (status != PGL_OK)
        pgl_http_unbind(out);
    return status;
}

void pgl_http_unbind(pgl_http_sockets *sockets) {
    for (uint32_t i = 0; i < sockets->n; i++)
        close(sockets->fds[i]);
    sockets->n = 0;
}

/* ---- accepting ---- */

static void peer_name(const struct sockaddr *address, char out[PGL_PEER_SIZE]) {
    char text[INET6_ADDRSTRLEN] = "?";
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
        snprintf(out, PGL_PEER_SIZE, "%s:%u", text, ntohs(v4->sin_port));
    } else {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
        inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
        snprintf(out, PGL_PEER_SIZE, "[%s]:%u", text, ntohs(v6->sin6_port));
    }
}

static void refuse_connection(pgl_http_server *server, int fd) {
    static const char body[] =
        "{\"error\":{\"message\":\"too many connections\",\"type\":\"overloaded_error\","
        "\"param\":null,\"code\":\"overloaded\"}}";
    char answer[512];
    int size =
        snprintf(answer, sizeof answer,
                 "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
                 "Connection: close\r\nContent-Length: %zu\r\n\r\n%s",
                 sizeof body - 1, body);
    atomic_fetch_add(&server->n_refused, 1);
    if (send(fd, answer, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        /* It does not matter: the connection ends here either way. */
    }
    close(fd);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int size,
                      void *arg) {
    (void)listener;
    (void)size;
    pgl_http_server *server = arg;
    if (atomic_load(&server->n_connections) >= server->options.max_connections) {
        if (!server->idle.first) {
            refuse_connection(server, fd);
            return;
        }
        pgl_connection_close(server->idle.first);
    }
    int on = 1, idle_s = 30, pause_s = 10, count = 3;
    unsigned limit_ms = (unsigned)(server->options.write_timeout_ns / 1000000);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause_s, sizeof pause_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
    atomic_fetch_add(&server->n_accepted, 1);
    char peer[PGL_PEER_SIZE];
    peer_name(address, peer);
    pgl_connection_accept(server, fd, peer);
}

/* Out of descriptors: the listener would report the same at once, over and over. */
static void on_accept_error(struct evconnlistener *listener, void *arg) {
    (void)listener;
    pgl_http_server *server = arg;
    struct timeval pause = {.tv_usec = 100000};
    pgl_log(PGL_LOG_WARN, "http", "cannot accept a connection: %s", strerror(errno));
    for (uint32_t i = 0; i < server->n_listeners; i++)
        evconnlistener_disable(server->listeners[i]);
    evtimer_add(server->resume_accept, &pause);
}

static void on_resume_accept(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    pgl_http_server *server = arg;
    for (uint32_t i = 0; i < server->n_listeners; i++)
        evconnlistener_enable(server->listeners[i]);
}

/* ---- the loop ---- */

static void stop_listening(pgl_http_server *server) {
    for (uint32_t i = 0; i < server->n_listeners; i++)
        evconnlistener_free(server->listeners[i]);
    server->n_listeners = 0;
}

static void start_drain(pgl_http_server *server) {
    if (server->draining)
        return;
    server->draining = true;
    for (pgl_connection *at = server->connections.first, *next; at; at = next) {
        next = at->all.next;
        pgl_connection_drain(at);
    }
}

/* The reference goes with it. Its link is free from then on: another thread may post it again at once. */
static pgl_exchange *take_posted(pgl_http_server *server) {
    pthread_mutex_lock(&server->lock);
    pgl_exchange *exchange = server->posted;
    if (exchange) {
        server->posted = exchange->next_posted;
        exchange->posted = false;
    }
    pthread_mutex_unlock(&server->lock);
    return exchange;
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
    (void)what;
    pgl_http_server *server = arg;
    uint64_t count;
    if (read(fd, &count, sizeof count) < 0) {
        /* Nothing to read: woken for no reason. */
    }
    pthread_mutex_lock(&server->lock);
    bool drain = server->want_drain, deaf = server->want_deaf, stop = server->want_stop;
    pthread_mutex_unlock(&server->lock);
    if (drain)
        start_drain(server);
    if (deaf)
        stop_listening(server);
    for (pgl_exchange *exchange = take_posted(server); exchange; exchange = take_posted(server)) {
        if (exchange->connection->current == exchange)
            pgl_connection_flush(exchange->connection);
        pgl_exchange_release(exchange);
    }
    if (stop)
        event_base_loopbreak(server->base);
}

static void *run(void *arg) {
    pgl_http_server *server = arg;
    event_base_dispatch(server->base);
    start_drain(server);
    while (server->connections.first)
        pgl_connection_close(server->connections.first);
    return NULL;
}

/* ---- life ---- */

static void wake(pgl_http_server *server) {
    uint64_t one = 1;
    if (write(server->wake_fd, &one, sizeof one) < 0) {
        /* The counter is full: it wakes all the same. */
    }
}

static void free_server(pgl_http_server *server) {
    stop_listening(server);
    if (server->wake)
        event_free(server->wake);
    if (server->resume_accept)
        event_free(server->resume_accept);
    if (server->base)
        event_base_free(server->base);
    if (server->wake_fd >= 0)
        close(server->wake_fd);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

static pgl_status start_events(pgl_http_server *server, pgl_error *err) {
    struct event_config *config = event_config_new();
    if (config) {
        event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
        server->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    server->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!server->base || server->wake_fd < 0)
        return pgl_fail(err, PGL_E_IO, "the event loop could not be made: %s", strerror(errno));
    server->wake = event_new(server->base, server->wake_fd, EV_READ | EV_PERSIST, on_wake, server);
    server->resume_accept = evtimer_new(server->base, on_resume_accept, server);
    if (!server->wake || !server->resume_accept || event_add(server->wake, NULL) != 0)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the event loop");
    return PGL_OK;
}

static pgl_status start_listening(pgl_http_server *server, const pgl_http_sockets *sockets, pgl_error *err) {
    for (uint32_t i = 0; i < sockets->n; i++) {
        if (listen(sockets->fds[i], BACKLOG) != 0)
            return pgl_fail(err, errno == EADDRINUSE ? PGL_E_BUSY : PGL_E_IO, "cannot listen on port %u: %s",
                            sockets->port, strerror(errno));
        struct evconnlistener *listener =
            evconnlistener_new(server->base, on_accept, server, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC,
                               0, sockets->fds[i]);
        if (!listener)
            return pgl_fail(err, PGL_E_MEMORY, "no memory for a listener");
        evconnlistener_set_error_cb(listener, on_accept_error);
        server->listeners[server->n_listeners++] = listener;
    }
    return PGL_OK;
}

static pgl_status start_thread(pgl_http_server *server, pgl_error *err) {
    /* Writing to a closed socket must fail, not kill: the signal is held back on the thread that writes. */
    sigset_t block, before;
    sigfillset(&block);
    pthread_sigmask(SIG_BLOCK, &block, &before);
    int code = pthread_create(&server->thread, NULL, run, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return pgl_fail(err, PGL_E_MEMORY, "the I/O thread cannot be started: %s", strerror(code));
    return PGL_OK;
}

static void hold_to_file_limit(pgl_http_server *server) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY)
        return;
    rlim_t most = files.rlim_cur > 2 * SPARE_FILES ? files.rlim_cur - SPARE_FILES : SPARE_FILES;
    if (server->options.max_connections <= most)
        return;
    pgl_log(PGL_LOG_WARN, "http", "%u connections are allowed, not %u: the process may open %llu files",
            (uint32_t)most, server->options.max_connections, (unsigned long long)files.rlim_cur);
    server->options.max_connections = (uint32_t)most;
}

pgl_status pgl_http_open(const pgl_http_sockets *sockets, const pgl_http_options *options,
                         const pgl_http_app *app, pgl_http_server **out, pgl_error *err) {
    pgl_http_server *server = pgl_new(1, sizeof *server);
    if (!server)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the HTTP server");
    server->options = *options;
    server->app = *app;
    server->wake_fd = -1;
    pthread_mutex_init(&server->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&server->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    hold_to_file_limit(server);
    uint32_t random = 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint32_t)pgl_wall_ns();
    snprintf(server->id_prefix, sizeof server->id_prefix, "%08x", random);
    pgl_status status = start_events(server, err);
    if (status == PGL_OK)
        status = start_listening(server, sockets, err);
    *out = server; /* before the thread starts: its calls into the application may look for it */
    if (status == PGL_OK)
        status = start_thread(server, err);
    if (status != PGL_OK) {
        *out = NULL;
        free_server(server);
    }
    return status;
}

static void want(pgl_http_server *server, bool *what) {
    pthread_mutex_lock(&server->lock);
    *what = true;
    pthread_mutex_unlock(&server->lock);
    wake(server);
}

void pgl_http_drain(pgl_http_server *server) {
    want(server, &server->want_drain);
}

void pgl_http_stop_listening(pgl_http_server *server) {
    want(server, &server->want_deaf);
}

static void deadline_in(uint64_t wait_ns, struct timespec *out) {
    clock_gettime(CLOCK_MONOTONIC, out);
    uint64_t ns = (uint64_t)out->tv_nsec + wait_ns % S;
    out->tv_sec += (time_t)(wait_ns / S + ns / S);
    out->tv_nsec = (long)(ns % S);
}

/* Until both counters, which the lock guards, are 0. */
static bool wait_for(pgl_http_server *server, const uint32_t *one, const uint32_t *other, uint64_t wait_ns) {
    struct timespec until;
    deadline_in(wait_ns, &until);
    int code = 0;
    pthread_mutex_lock(&server->lock);
    while ((*one > 0 || *other > 0) && code == 0)
        code = pthread_cond_timedwait(&server->changed, &server->lock, &until);
    bool none = *one == 0 && *other == 0;
    pthread_mutex_unlock(&server->lock);
    return none;
}

bool pgl_http_wait_idle(pgl_http_server *server, uint64_t wait_ns) {
    return wait_for(server, &server->n_exchanges, &server->n_busy, wait_ns);
}

bool pgl_http_wait_drained(pgl_http_server *server, uint64_t wait_ns) {
    return wait_for(server, &server->n_early_exchanges, &server->n_early_busy, wait_ns);
}

void pgl_http_close(pgl_http_server *server) {
    if (!server)
        return;
    want(server, &server->want_stop);
    pthread_join(server->thread, NULL);
    /* Those posted after the loop's last turn hold a reference that nobody else drops. */
    bool left = true;
    while (left) {
        for (pgl_exchange *exchange = take_posted(server); exchange; exchange = take_posted(server))
            pgl_exchange_release(exchange);
        struct timespec until;
        deadline_in(S / 10, &until);
        pthread_mutex_lock(&server->lock);
        if (server->n_exchanges > 0 && !server->posted)
            pthread_cond_timedwait(&server->changed, &server->lock, &until);
        left = server->n_exchanges > 0;
        pthread_mutex_unlock(&server->lock);
    }
    free_server(server);
}

pgl_http_figures pgl_http_get_figures(pgl_http_server *server) {
    pthread_mutex_lock(&server->lock);
    uint32_t exchanges = server->n_exchanges;
    pthread_mutex_unlock(&server->lock);
    return (pgl_http_figures){.connections = atomic_load(&server->n_connections),
                              .exchanges = exchanges,
                              .accepted = atomic_load(&server->n_accepted),
                              .refused = atomic_load(&server->n_refused),
                              .held_body_bytes = atomic_load(&server->held_body_bytes)};
}
