/* One connection: bytes to requests, answers to bytes, time limits, and whether anybody is still there. Everything
 * here runs on the I/O thread. A connection is on its way through the states of pgl_connection_state; what ends it,
 * at any point, is pgl_connection_close. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "server/http_impl.h"

#define MS ((uint64_t)1000000)
#define NEVER UINT64_MAX
#define INPUT_FULL_BYTES ((size_t)64 << 10)
#define KEPT_REFUSED_BODY                                                                                    \
    ((uint64_t)256 << 10) /* a refused request's body up to this is read, to keep in step */
#define LINGER_NS (10000 * MS)
#define LINGER_SILENCE_NS (2000 * MS)

static void read_input(pgl_connection *connection);

/* ---- lists and counts ---- */

static void list_add(pgl_list *list, pgl_connection *item, pgl_link *(*link)(pgl_connection *)) {
    link(item)->previous = list->last;
    link(item)->next = NULL;
    if (list->last)
        link(list->last)->next = item;
    else
        list->first = item;
    list->last = item;
}

static void list_remove(pgl_list *list, pgl_connection *item, pgl_link *(*link)(pgl_connection *)) {
    pgl_link *own = link(item);
    if (own->previous)
        link(own->previous)->next = own->next;
    else
        list->first = own->next;
    if (own->next)
        link(own->next)->previous = own->previous;
    else
        list->last = own->previous;
}

static pgl_link *all_link(pgl_connection *connection) {
    return &connection->all;
}
static pgl_link *idle_link(pgl_connection *connection) {
    return &connection->idle;
}

static void set_idle(pgl_connection *connection, bool idle) {
    if (idle == connection->in_idle_list)
        return;
    connection->in_idle_list = idle;
    (idle ? list_add : list_remove)(&connection->server->idle, connection, idle_link);
}

/* Counted until the answer has left the buffers, so that a server that is told to stop does not cut it off. */
static void set_busy(pgl_connection *connection, bool busy) {
    if (busy == connection->busy)
        return;
    connection->busy = busy;
    pgl_http_server *server = connection->server;
    pthread_mutex_lock(&server->lock);
    server->n_busy += busy ? 1u : UINT32_MAX;
    if (busy)
        connection->busy_early = !server->draining;
    if (connection->busy_early)
        server->n_early_busy += busy ? 1u : UINT32_MAX;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

static void hold_body(pgl_connection *connection, size_t bytes) {
    if (bytes >= connection->held_bytes)
        atomic_fetch_add(&connection->server->held_body_bytes, bytes - connection->held_bytes);
    else
        atomic_fetch_sub(&connection->server->held_body_bytes, connection->held_bytes - bytes);
    connection->held_bytes = bytes;
}

/* ---- states ---- */

static void enter(pgl_connection *connection, pgl_connection_state state) {
    const pgl_http_options *options = &connection->server->options;
    uint64_t now = pgl_now_ns();
    connection->state = state;
    set_idle(connection, state == PGL_CONN_WAITING || state == PGL_CONN_HEAD);
    switch (state) {
    case PGL_CONN_WAITING:
        connection->deadline_ns = now + options->idle_timeout_ns;
        break;
    case PGL_CONN_HEAD:
        connection->deadline_ns = now + options->head_timeout_ns;
        break;
    case PGL_CONN_BODY:
        connection->body_start_ns = now;
        connection->deadline_ns = now + options->body_timeout_ns;
        break;
    case PGL_CONN_ANSWERING:
    case PGL_CONN_CLOSING: /* the write time limit rules */
        connection->deadline_ns = NEVER;
        break;
    case PGL_CONN_LINGERING:
        connection->linger_end_ns = now + LINGER_NS;
        connection->deadline_ns = now + LINGER_SILENCE_NS;
        break;
    }
}

static void tell_done(pgl_connection *connection) {
    pgl_exchange *exchange = connection->current;
    const pgl_http_app *app = &connection->server->app;
    if (exchange->done_told)
        return;
    exchange->done_told = true;
    pthread_mutex_lock(&exchange->lock);
    int status = exchange->status;
    pthread_mutex_unlock(&exchange->lock);
    if (app->on_done)
        app->on_done(app->user, exchange, status, exchange->bytes_out, pgl_now_ns() - exchange->start_ns);
}

static void drop_current(pgl_connection *connection) {
    if (!connection->current)
        return;
    tell_done(connection);
    pgl_exchange *exchange = connection->current;
    connection->current = NULL;
    pgl_exchange_release(exchange);
}

void pgl_connection_close(pgl_connection *connection) {
    if (!connection->stream)
        return;
    pgl_http_server *server = connection->server;
    bufferevent_free(connection->stream);
    connection->stream = NULL;
    event_free(connection->timer);
    connection->timer = NULL;
    hold_body(connection, 0);
    set_idle(connection, false);
    list_remove(&server->connections, connection, all_link);
    atomic_fetch_sub(&server->n_connections, 1);
    if (connection->current) {
        pgl_exchange_lose(connection->current);
        drop_current(connection);
    }
    set_busy(connection, false);
    pgl_connection_release(connection);
}

void pgl_connection_release(pgl_connection *connection) {
    if (atomic_fetch_sub(&connection->references, 1) != 1)
        return;
    pgl_http_reader_close(connection->reader);
#ifndef __clang_analyzer__ /* it takes every release for the last one: every callback of libevent holds a reference */
    free(connection);
#endif
}

/* Shuts our side and waits a little for the client to have read the answer: closing at once, with bytes unread, would
 * reset the connection and take the answer with it. */
static void linger(pgl_connection *connection) {
    set_busy(connection, false);
    if (connection->input_eof) {
        pgl_connection_close(connection);
        return;
    }
    shutdown(bufferevent_getfd(connection->stream), SHUT_WR);
    enter(connection, PGL_CONN_LINGERING);
    read_input(connection);
}

/* After an answer has gone to the output buffer as a whole. */
static void advance(pgl_connection *connection) {
    if (!connection->answer_done || (!connection->request_done && !connection->close_after))
        return;
    struct evbuffer *output = bufferevent_get_output(connection->stream);
    drop_current(connection);
    if (connection->close_after) {
        enter(connection, PGL_CONN_CLOSING);
        if (evbuffer_get_length(output) == 0)
            linger(connection);
        return;
    }
    pgl_http_reader_next(connection->reader);
    connection->request_done = connection->answer_done = connection->wanted = false;
    enter(connection, PGL_CONN_WAITING);
    if (evbuffer_get_length(output) == 0)
        set_busy(connection, false);
}

/* ---- answers out ---- */

static void free_bytes(const void *data, size_t size, void *arg) {
    (void)data;
    (void)size;
    free(arg);
}

/* Moves bytes, whose memory is given away, behind the output. */
static bool move_out(struct evbuffer *output, pgl_buf *bytes) {
    if (bytes->size == 0) {
        pgl_buf_fini(bytes);
        return true;
    }
    bool fine = evbuffer_add_reference(output, bytes->data, bytes->size, free_bytes, bytes->data) == 0;
    if (!fine)
        free(bytes->data);
    return fine;
}

/* A piece of a stream mostly finds an empty buffer and a socket that takes it: then it goes at once, without a turn of the
 * event loop and the calls that arm it, which together cost more than the sending. What does not go, all of it after an
 * error, is left to the loop, which meets the error again. */
static bool send_piece(pgl_connection *connection, pgl_buf *bytes, bool chunked) {
    struct evbuffer *output = bufferevent_get_output(connection->stream);
    char size_line[24];
    int n = chunked ? snprintf(size_line, sizeof size_line, "%zx\r\n", bytes->size) : 0;
    struct iovec parts[3] = {{size_line, (size_t)n}, {bytes->data, bytes->size}, {"\r\n", chunked ? 2 : 0}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    ssize_t sent = sendmsg(bufferevent_getfd(connection->stream), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    size_t done = sent > 0 ? (size_t)sent : 0;
    bool fine = true;
    for (size_t i = 0; i < 3; i++) {
        size_t skip = done < parts[i].iov_len ? done : parts[i].iov_len;
        if (skip < parts[i].iov_len)
            fine = fine &&
                   evbuffer_add(output, (const char *)parts[i].iov_base + skip, parts[i].iov_len - skip) == 0;
        done -= skip;
    }
    pgl_buf_fini(bytes);
    return fine;
}

static bool write_body(pgl_connection *connection, pgl_buf *bytes, bool chunked, bool last) {
    struct evbuffer *output = bufferevent_get_output(connection->stream);
    const char *method = pgl_exchange_head(connection->current)->method;
    connection->current->bytes_out += bytes->size;
    if (method && strcmp(method, "HEAD") == 0) {
        pgl_buf_fini(bytes);
        return true;
    }
    if (!last && bytes->size > 0 && evbuffer_get_length(output) == 0)
        return send_piece(connection, bytes, chunked);
    if (!chunked)
        return move_out(output, bytes);
    bool fine = true;
    if (bytes->size > 0) {
        fine = evbuffer_add_printf(output, "%zx\r\n", bytes->size) > 0;
        fine = move_out(output, bytes) && fine;
        fine = fine && evbuffer_add(output, "\r\n", 2) == 0;
    }
    return fine && (!last || evbuffer_add(output, "0\r\n\r\n", 5) == 0);
}

/* So many bytes wait for the client: whoever writes the answer goes on when there is room. */
static void note_backlog(pgl_connection *connection, size_t left) {
    pgl_exchange *exchange = connection->current;
    pthread_mutex_lock(&exchange->lock);
    exchange->backlog_bytes = left;
    if (exchange->full && exchange->out.size + left <= connection->server->options.stream_high_bytes / 2) {
        exchange->full = false;
        if (exchange->watched && exchange->watcher.on_room)
            exchange->watcher.on_room(exchange->watcher.user);
    }
    pthread_mutex_unlock(&exchange->lock);
}

/* What the exchange has for us, taken out under its lock. */
static void flush(pgl_connection *connection) {
    pgl_exchange *exchange = connection->current;
    if (!connection->stream || !exchange || connection->answer_done)
        return;
    struct evbuffer *output = bufferevent_get_output(connection->stream);
    const pgl_http_head *head = pgl_exchange_head(exchange);
    pthread_mutex_lock(&exchange->lock);
    bool begun = exchange->status != 0, streaming = exchange->streaming, ended = exchange->ended;
    bool broken = exchange->aborted;
    bool chunked = streaming && head->minor >= 1;
    if (streaming && !chunked)
        connection->close_after = true;
    if (!connection->request_done &&
        (head->expect_continue || head->chunked || head->content_length > KEPT_REFUSED_BODY))
        connection->close_after = true; /* what is left of the request is not worth reading */
    if (connection->server->draining || !head->keep_alive)
        connection->close_after = true;
    if (begun && !broken && !exchange->head_written) {
        exchange->head_written = true;
        broken = !pgl_exchange_write_head(exchange, chunked, !connection->close_after, output);
    }
    pgl_buf bytes = PGL_BUF_INIT;
    if (begun) {
        bytes = exchange->out;
        exchange->out = (pgl_buf)PGL_BUF_INIT;
    }
    pthread_mutex_unlock(&exchange->lock);
    if (!begun && !broken)
        return;
    bool fine = write_body(connection, &bytes, chunked, ended && !broken);
    if (broken || !fine) {
        pgl_connection_close(connection);
        return;
    }
    note_backlog(connection, evbuffer_get_length(output));
    if (ended) {
        connection->answer_done = true;
        tell_done(connection);
        advance(connection);
        if (connection->stream && connection->state == PGL_CONN_WAITING)
            read_input(connection);
    }
}

/* ---- requests in ---- */

static void begin_exchange(pgl_connection *connection) {
    connection->current = pgl_exchange_open(connection, pgl_http_reader_head(connection->reader));
    connection->n_probes = 0;
    connection->next_probe_ns = 0;
    set_busy(connection, true);
}

/* The request cannot be read to its end: answer if nothing has been answered yet, then close. */
static void fault(pgl_connection *connection, const pgl_http_fault *why) {
    const pgl_http_app *app = &connection->server->app;
    connection->close_after = true;
    bool answered = connection->current && !connection->wanted;
    if (!connection->current)
        begin_exchange(connection);
    if (!connection->current) {
        pgl_connection_close(connection);
        return;
    }
    connection->wanted = false;
    hold_body(connection, 0);
    enter(connection, PGL_CONN_ANSWERING);
    if (!answered)
        app->on_fault(app->user, connection->current, why);
    else
        advance(connection);
}

static void fault_of(pgl_connection *connection, int status, const char *code, const char *text) {
    pgl_http_fault why = {.status = status, .code = code};
    snprintf(why.text, sizeof why.text, "%s", text);
    fault(connection, &why);
}

static void on_head(pgl_connection *connection) {
    const pgl_http_app *app = &connection->server->app;
    const pgl_http_head *head = pgl_http_reader_head(connection->reader);
    begin_exchange(connection);
    if (!connection->current) {
        pgl_connection_close(connection);
        return;
    }
    size_t max_body_bytes = connection->server->options.limits.max_body_bytes;
    connection->wanted = app->on_head(app->user, connection->current, &max_body_bytes);
    if (!connection->wanted) {
        pgl_http_reader_expect(connection->reader, SIZE_MAX, false);
        enter(connection, PGL_CONN_BODY);
        return;
    }
    pgl_http_reader_expect(connection->reader, max_body_bytes, true);
    enter(connection, PGL_CONN_BODY);
    bool refused = head->content_length > max_body_bytes;
    if (head->expect_continue && head->has_body && !refused &&
        bufferevent_write(connection->stream, "HTTP/1.1 100 Continue\r\n\r\n", 25) != 0)
        pgl_connection_close(connection);
}

static void on_end(pgl_connection *connection) {
    const pgl_http_app *app = &connection->server->app;
    connection->request_done = true;
    enter(connection, PGL_CONN_ANSWERING);
    if (!connection->wanted) {
        advance(connection);
        return;
    }
    pgl_exchange *exchange = connection->current;
    hold_body(connection, pgl_http_reader_body(connection->reader)->size);
    exchange->body = pgl_http_reader_take_body(connection->reader);
    connection->held_bytes = 0; /* the exchange gives it back */
    app->on_request(app->user, pgl_exchange_hold(exchange));
}

/* How long the body may take: the silence limit for each piece, and in all the same and a second for so many bytes. */
static void body_progress(pgl_connection *connection) {
    const pgl_http_options *options = &connection->server->options;
    size_t size = pgl_http_reader_body(connection->reader)->size;
    hold_body(connection, size);
    if (atomic_load(&connection->server->held_body_bytes) > options->max_held_body_bytes) {
        fault_of(connection, 503, "overloaded", "too many large requests at once; try again");
        return;
    }
    uint64_t now = pgl_now_ns();
    uint64_t last =
        connection->body_start_ns + options->body_timeout_ns + size / options->body_bytes_per_s * 1000 * MS;
    connection->deadline_ns = now + options->body_timeout_ns;
    if (connection->deadline_ns > last)
        connection->deadline_ns = last;
}

/* Answers wait for a client that does not read them: its next request waits, too. */
static bool output_is_full(const pgl_connection *connection) {
    return evbuffer_get_length(bufferevent_get_output(connection->stream)) >
           connection->server->options.stream_high_bytes;
}

/* False: nothing more can be read now. */
static bool read_some(pgl_connection *connection) {
    struct evbuffer *input = bufferevent_get_input(connection->stream);
    size_t size = evbuffer_get_contiguous_space(input);
    if (connection->state == PGL_CONN_LINGERING || connection->state == PGL_CONN_CLOSING) {
        evbuffer_drain(input, evbuffer_get_length(input));
        return false;
    }
    if (connection->state == PGL_CONN_ANSWERING)
        return false; /* pipelined: its turn comes */
    if (connection->state == PGL_CONN_WAITING) {
        if (size == 0 || output_is_full(connection))
            return false;
        enter(connection, PGL_CONN_HEAD);
    }
    bool in_head = connection->state == PGL_CONN_HEAD;
    size_t used = 0;
    const char *data = size ? (const char *)evbuffer_pullup(input, (ev_ssize_t)size) : "";
    pgl_http_event event = pgl_http_reader_feed(connection->reader, data, size, &used);
    evbuffer_drain(input, used);
    switch (event) {
    case PGL_HTTP_HEAD:
        on_head(connection);
        return connection->stream != NULL;
    case PGL_HTTP_END:
        on_end(connection);
        return connection->stream != NULL;
    case PGL_HTTP_BAD:
        fault(connection, pgl_http_reader_fault(connection->reader));
        return false;
    case PGL_HTTP_MORE:
        if (!in_head && used > 0)
            body_progress(connection);
        return size > 0 && connection->stream != NULL;
    }
    return false;
}

static void read_input(pgl_connection *connection) {
    while (connection->stream && read_some(connection)) {
    }
}

/* ---- is anybody there? ---- */

/* The client may be gone. Bytes it has to acknowledge tell whether it still reads: a closed socket answers with
 * a reset, which the next write meets. */
static void probe(pgl_connection *connection) {
    static const uint64_t pauses_ms[] = {50, 200, 1000, 3000};
    uint32_t n = connection->n_probes++;
    connection->next_probe_ns = pgl_now_ns() + (n < 4 ? pauses_ms[n] : 10000) * MS;
    pgl_exchange *exchange = connection->current;
    if (!exchange || connection->answer_done)
        return;
    struct evbuffer *output = bufferevent_get_output(connection->stream);
    uint32_t minor = pgl_exchange_head(exchange)->minor;
    if (exchange->head_written) {
        flush(connection);
        if (connection->stream && connection->current == exchange && !connection->answer_done)
            evbuffer_add_printf(output, minor ? "3\r\n:\n\n\r\n" : ":\n\n");
    } else if (minor) {
        evbuffer_add_printf(output, "HTTP/1.1 100 Continue\r\n\r\n");
    }
}

static void on_input_eof(pgl_connection *connection) {
    connection->input_eof = true;
    switch (connection->state) {
    case PGL_CONN_WAITING:
    case PGL_CONN_HEAD:
        connection->close_after = true;
        enter(connection, PGL_CONN_CLOSING);
        if (evbuffer_get_length(bufferevent_get_output(connection->stream)) == 0)
            pgl_connection_close(connection);
        return;
    case PGL_CONN_LINGERING:
        pgl_connection_close(connection);
        return;
    case PGL_CONN_BODY:
        if (connection->wanted) {
            fault_of(connection, 400, "bad_request", "the body ended before its announced length");
            return;
        }
        connection->close_after = true;
        enter(connection, PGL_CONN_ANSWERING);
        advance(connection);
        return;
    case PGL_CONN_ANSWERING:
        connection->close_after = true;
        probe(connection);
        return;
    case PGL_CONN_CLOSING:
        return;
    }
}

static uint64_t comment_due(pgl_connection *connection) {
    pgl_exchange *exchange = connection->current;
    if (!exchange || connection->answer_done)
        return NEVER;
    pthread_mutex_lock(&exchange->lock);
    uint64_t due = exchange->streaming && !exchange->ended
                       ? exchange->last_write_ns + connection->server->options.comment_ns
                       : NEVER;
    pthread_mutex_unlock(&exchange->lock);
    return due;
}

/* Full of requests that wait for their turn. */
static bool input_is_full(pgl_connection *connection) {
    bool held = connection->state == PGL_CONN_ANSWERING ||
                (connection->state == PGL_CONN_WAITING && output_is_full(connection));
    return held && evbuffer_get_length(bufferevent_get_input(connection->stream)) >= INPUT_FULL_BYTES;
}

/* Once the client has closed its side; also with the input buffer full, when nothing is read and an end would not be
 * noticed. */
static uint64_t probe_due(pgl_connection *connection) {
    if (connection->state != PGL_CONN_ANSWERING || !connection->current)
        return NEVER;
    return connection->input_eof || input_is_full(connection) ? connection->next_probe_ns : NEVER;
}

/* (libevent's own watermark calls back without pause as long as the buffer stays full.) */
static void choose_reading(pgl_connection *connection) {
    bool read = !connection->input_eof && !input_is_full(connection);
    bool reads = (bufferevent_get_enabled(connection->stream) & EV_READ) != 0;
    if (read && !reads)
        bufferevent_enable(connection->stream, EV_READ);
    else if (!read && reads)
        bufferevent_disable(connection->stream, EV_READ);
}

static void schedule(pgl_connection *connection) {
    if (!connection->stream)
        return;
    choose_reading(connection);
    uint64_t due = connection->deadline_ns;
    uint64_t comment = comment_due(connection);
    if (comment < due)
        due = comment;
    uint64_t probe_at = probe_due(connection);
    if (probe_at < due)
        due = probe_at;
    if (due == NEVER) {
        evtimer_del(connection->timer);
        return;
    }
    uint64_t now = pgl_now_ns();
    uint64_t wait = due > now ? due - now : 0;
    struct timeval tv = {.tv_sec = (time_t)(wait / (1000 * MS)),
                         .tv_usec = (suseconds_t)(wait % (1000 * MS) / 1000 + 1)};
    if (evtimer_add(connection->timer, &tv) != 0)
        pgl_connection_close(connection);
}

static void on_deadline(pgl_connection *connection) {
    switch (connection->state) {
    case PGL_CONN_HEAD:
        fault_of(connection, 408, "timeout", "the head did not come in time");
        return;
    case PGL_CONN_BODY:
        if (connection->wanted) {
            fault_of(connection, 408, "timeout", "the body did not come in time");
            return;
        }
        break;
    default:
        break;
    }
    pgl_connection_close(connection);
}

static void send_comment(pgl_connection *connection) {
    pgl_exchange *exchange = connection->current;
    pthread_mutex_lock(&exchange->lock);
    bool fine = pgl_buf_puts(&exchange->out, ": keep-alive\n\n");
    exchange->last_write_ns = pgl_now_ns();
    pthread_mutex_unlock(&exchange->lock);
    if (fine)
        flush(connection);
}

/* ---- what libevent calls; each holds the connection while it works on it ---- */

static pgl_connection *hold(void *arg) {
    pgl_connection *connection = arg;
    atomic_fetch_add(&connection->references, 1);
    return connection;
}

static void done_with(pgl_connection *connection) {
    schedule(connection);
    pgl_connection_release(connection);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    pgl_connection *connection = hold(arg);
    uint64_t now = pgl_now_ns();
    if (now >= connection->deadline_ns)
        on_deadline(connection);
    if (connection->stream && comment_due(connection) <= now)
        send_comment(connection);
    if (connection->stream && probe_due(connection) <= now)
        probe(connection);
    done_with(connection);
}

static void on_readable(struct bufferevent *stream, void *arg) {
    (void)stream;
    pgl_connection *connection = hold(arg);
    if (connection->state == PGL_CONN_LINGERING) {
        uint64_t silence_end = pgl_now_ns() + LINGER_SILENCE_NS;
        connection->deadline_ns =
            silence_end < connection->linger_end_ns ? silence_end : connection->linger_end_ns;
    }
    read_input(connection);
    done_with(connection);
}

static void on_written(struct bufferevent *stream, void *arg) {
    pgl_connection *connection = hold(arg);
    size_t left = evbuffer_get_length(bufferevent_get_output(stream));
    if (left == 0 && connection->state == PGL_CONN_CLOSING)
        linger(connection);
    else if (left == 0 && (connection->state == PGL_CONN_WAITING || connection->state == PGL_CONN_HEAD))
        set_busy(connection, false);
    if (connection->current)
        note_backlog(connection, left);
    if (connection->stream && connection->state == PGL_CONN_WAITING)
        read_input(connection); /* what was held back */
    done_with(connection);
}

static void on_event(struct bufferevent *stream, short what, void *arg) {
    (void)stream;
    pgl_connection *connection = hold(arg);
    if ((what & BEV_EVENT_EOF) && (what & BEV_EVENT_READING))
        on_input_eof(connection);
    else
        pgl_connection_close(connection); /* an error, or nothing was read for too long */
    done_with(connection);
}

void pgl_connection_flush(pgl_connection *connection) {
    atomic_fetch_add(&connection->references, 1);
    flush(connection);
    done_with(connection);
}

void pgl_connection_drain(pgl_connection *connection) {
    if (connection->state == PGL_CONN_WAITING &&
        evbuffer_get_length(bufferevent_get_output(connection->stream)) == 0)
        pgl_connection_close(connection);
}

void pgl_connection_accept(pgl_http_server *server, int fd, const char *peer) {
    pgl_connection *connection = pgl_new(1, sizeof *connection);
    struct bufferevent *stream =
        connection ? bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE) : NULL;
    struct event *timer = stream ? evtimer_new(server->base, on_timer, connection) : NULL;
    pgl_http_reader *reader = timer ? pgl_http_reader_open(&server->options.limits) : NULL;
    if (!reader) {
        if (timer)
            event_free(timer);
        if (stream)
            bufferevent_free(stream);
        else
            close(fd);
        free(connection);
        return;
    }
    connection->server = server;
    connection->stream = stream;
    connection->timer = timer;
    connection->reader = reader;
    atomic_init(&connection->references, 1);
    snprintf(connection->peer, sizeof connection->peer, "%s", peer);
    list_add(&server->connections, connection, all_link);
    atomic_fetch_add(&server->n_connections, 1);
    enter(connection, PGL_CONN_WAITING);
    bufferevent_setcb(stream, on_readable, on_written, on_event, connection);
    bufferevent_setwatermark(stream, EV_WRITE, server->options.stream_high_bytes / 4, 0);
    uint64_t limit = server->options.write_timeout_ns;
    struct timeval tv = {.tv_sec = (time_t)(limit / (1000 * MS)),
                         .tv_usec = (suseconds_t)(limit % (1000 * MS) / 1000)};
    bufferevent_set_timeouts(stream, NULL, &tv);
    if (bufferevent_enable(stream, EV_READ | EV_WRITE) != 0)
        pgl_connection_close(connection);
    else
        schedule(connection);
}
