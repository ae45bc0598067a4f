/* The exchange: what other threads see of a request, and how an answer gets to the I/O thread. Every call puts its
 * bytes under the exchange's lock and posts the exchange to the server's list, which the I/O thread empties. The two
 * locks are never held together, but for the watcher's calls none is held while other code runs. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "server/http_impl.h"

const char *pgl_http_reason(int status) {
    switch (status) {
    case 200:
        return "OK";
    case 204:
        return "No Content";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 413:
        return "Content Too Large";
    case 414:
        return "URI Too Long";
    case 417:
        return "Expectation Failed";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    case 500:
        return "Internal Server Error";
    case 503:
        return "Service Unavailable";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Unknown";
    }
}

/* ---- life ---- */

static bool good_id(const char *id) {
    size_t n = strlen(id);
    if (n == 0 || n >= PGL_REQUEST_ID_SIZE)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = id[i];
        bool fine = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                    c == '_' || c == '.' || c == ':';
        if (!fine)
            return false;
    }
    return true;
}

pgl_exchange *pgl_exchange_open(pgl_connection *connection, const pgl_http_head *head) {
    pgl_http_server *server = connection->server;
    pgl_exchange *exchange = pgl_new(1, sizeof *exchange);
    if (!exchange)
        return NULL;
    const char *id = head->method ? pgl_http_header_find(head, "X-Request-Id") : NULL;
    if (id && good_id(id))
        snprintf(exchange->request_id, sizeof exchange->request_id, "%s", id);
    else
        snprintf(exchange->request_id, sizeof exchange->request_id, "req_%s%010" PRIx64, server->id_prefix,
                 ++server->next_id);
    pthread_mutex_init(&exchange->lock, NULL);
    atomic_init(&exchange->references, 1);
    exchange->start_ns = pgl_now_ns();
    exchange->connection = connection;
    atomic_fetch_add(&connection->references, 1);
    exchange->early = !server->draining;
    pthread_mutex_lock(&server->lock);
    server->n_exchanges++;
    server->n_early_exchanges += exchange->early;
    pthread_mutex_unlock(&server->lock);
    return exchange;
}

pgl_exchange *pgl_exchange_hold(pgl_exchange *exchange) {
    atomic_fetch_add(&exchange->references, 1);
    return exchange;
}

void pgl_exchange_release(pgl_exchange *exchange) {
    if (!exchange || atomic_fetch_sub(&exchange->references, 1) != 1)
        return;
    pgl_connection *connection = exchange->connection;
    pgl_http_server *server = connection->server;
    bool early = exchange->early;
    if (exchange->record && server->app.on_end)
        server->app.on_end(server->app.user, exchange->record);
    atomic_fetch_sub(&server->held_body_bytes, exchange->body.size);
    pgl_buf_fini(&exchange->headers);
    pgl_buf_fini(&exchange->more_headers);
    pgl_buf_fini(&exchange->body);
    pgl_buf_fini(&exchange->out);
    pthread_mutex_destroy(&exchange->lock);
    free(exchange);
    pgl_connection_release(connection);
    pthread_mutex_lock(&server->lock); /* last: the server may end when the count is 0 */
    server->n_exchanges--;
    server->n_early_exchanges -= early;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

/* ---- looking ---- */

const pgl_http_head *pgl_exchange_head(const pgl_exchange *exchange) {
    return pgl_http_reader_head(exchange->connection->reader);
}

const char *pgl_exchange_request_id(const pgl_exchange *exchange) {
    return exchange->request_id;
}
const char *pgl_exchange_peer(const pgl_exchange *exchange) {
    return exchange->connection->peer;
}
const pgl_buf *pgl_exchange_body(const pgl_exchange *exchange) {
    return &exchange->body;
}
void pgl_exchange_drop_body(pgl_exchange *exchange) {
    atomic_fetch_sub(&exchange->connection->server->held_body_bytes, exchange->body.size);
    pgl_buf_fini(&exchange->body);
}

void pgl_exchange_set_tag(pgl_exchange *exchange, const void *tag) {
    exchange->tag = tag;
}
const void *pgl_exchange_tag(const pgl_exchange *exchange) {
    return exchange->tag;
}

void pgl_exchange_set_record(pgl_exchange *exchange, void *record) {
    exchange->record = record;
}
void *pgl_exchange_record(const pgl_exchange *exchange) {
    return exchange->record;
}

bool pgl_exchange_is_gone(pgl_exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    bool gone = exchange->gone;
    pthread_mutex_unlock(&exchange->lock);
    return gone;
}

/* ---- answering ---- */

/* Hands the exchange to the I/O thread, once until it has been there. The newest goes first: of the burst that a step
 * makes it is mostly one that waits for its first token, and measured in turn first tokens come more than a millisecond
 * later at 64 streams. */
static void post(pgl_exchange *exchange) {
    pgl_http_server *server = exchange->connection->server;
    bool wake = false;
    pthread_mutex_lock(&server->lock);
    if (!exchange->posted) {
        wake = server->posted == NULL;
        exchange->posted = true;
        exchange->next_posted = server->posted;
        server->posted = pgl_exchange_hold(exchange);
    }
    pthread_mutex_unlock(&server->lock);
    uint64_t one = 1;
    if (wake && write(server->wake_fd, &one, sizeof one) < 0) {
        /* The counter cannot be full: one write for each emptied list. */
    }
}

bool pgl_exchange_add_header(pgl_exchange *exchange, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return n > 0 && (size_t)n < sizeof line && pgl_buf_reserve(&exchange->headers, (size_t)n + 2) &&
           pgl_buf_append(&exchange->headers, line, (size_t)n) && pgl_buf_puts(&exchange->headers, "\r\n");
}

void pgl_exchange_answer(pgl_exchange *exchange, const pgl_answer *answer) {
    pthread_mutex_lock(&exchange->lock);
    if (exchange->status == 0) {
        exchange->status = answer->status;
        exchange->content_type = answer->content_type;
        exchange->ended = true;
        if (!exchange->gone &&
            (!pgl_buf_puts(&exchange->more_headers, answer->headers ? answer->headers : "") ||
             !pgl_buf_append(&exchange->out, answer->body, answer->size)))
            exchange->aborted = true;
    }
    pthread_mutex_unlock(&exchange->lock);
    post(exchange);
}

void pgl_exchange_stream(pgl_exchange *exchange, int status, const char *content_type) {
    pthread_mutex_lock(&exchange->lock);
    if (exchange->status == 0) {
        exchange->status = status;
        exchange->content_type = content_type;
        exchange->streaming = true;
        exchange->last_write_ns = pgl_now_ns();
    }
    pthread_mutex_unlock(&exchange->lock);
    post(exchange);
}

pgl_write_state pgl_exchange_write(pgl_exchange *exchange, const char *data, size_t size) {
    pgl_write_state state = PGL_WRITE_OK;
    pthread_mutex_lock(&exchange->lock);
    if (exchange->gone || exchange->aborted || exchange->ended) {
        state = PGL_WRITE_GONE;
    } else if (!pgl_buf_append(&exchange->out, data, size)) {
        exchange->aborted = true;
        state = PGL_WRITE_GONE;
    } else {
        exchange->last_write_ns = pgl_now_ns();
        size_t high = exchange->connection->server->options.stream_high_bytes;
        if (exchange->out.size + exchange->backlog_bytes > high) {
            exchange->full = true;
            state = PGL_WRITE_FULL;
        }
    }
    pthread_mutex_unlock(&exchange->lock);
    post(exchange);
    return state;
}

void pgl_exchange_end(pgl_exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    exchange->ended = true;
    pthread_mutex_unlock(&exchange->lock);
    post(exchange);
}

void pgl_exchange_abort(pgl_exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    exchange->aborted = true;
    pthread_mutex_unlock(&exchange->lock);
    post(exchange);
}

bool pgl_exchange_watch(pgl_exchange *exchange, const pgl_watcher *watcher) {
    pthread_mutex_lock(&exchange->lock);
    bool there = !exchange->gone;
    if (there) {
        exchange->watcher = *watcher;
        exchange->watched = true;
    }
    pthread_mutex_unlock(&exchange->lock);
    return there;
}

void pgl_exchange_unwatch(pgl_exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    exchange->watched = false;
    pthread_mutex_unlock(&exchange->lock);
}

/* ---- the I/O thread's part ---- */

void pgl_exchange_lose(pgl_exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    if (!exchange->gone) {
        exchange->gone = true;
        pgl_buf_fini(&exchange->out);
        if (exchange->watched && exchange->watcher.on_gone)
            exchange->watcher.on_gone(exchange->watcher.user);
        exchange->watched = false;
    }
    pthread_mutex_unlock(&exchange->lock);
}

bool pgl_exchange_write_head(pgl_exchange *exchange, bool chunked, bool keep_alive, struct evbuffer *out) {
    char date[64];
    time_t now = time(NULL);
    struct tm parts;
    if (!gmtime_r(&now, &parts) || strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts) == 0)
        return false;
    bool fine =
        evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nX-Request-Id: %s\r\n", exchange->status,
                            pgl_http_reason(exchange->status), date, exchange->request_id) > 0;
    if (exchange->content_type)
        fine = fine && evbuffer_add_printf(out, "Content-Type: %s\r\n", exchange->content_type) > 0;
    if (chunked)
        fine = fine && evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n") > 0;
    else if (!exchange->streaming && exchange->status != 204)
        fine = fine && evbuffer_add_printf(out, "Content-Length: %zu\r\n", exchange->out.size) > 0;
    if (exchange->streaming)
        fine = fine && evbuffer_add_printf(out, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n") > 0;
    fine = fine && evbuffer_add(out, exchange->headers.data, exchange->headers.size) == 0 &&
           evbuffer_add(out, exchange->more_headers.data, exchange->more_headers.size) == 0;
    return fine &&
           evbuffer_add_printf(out, "Connection: %s\r\n\r\n", keep_alive ? "keep-alive" : "close") > 0;
}
