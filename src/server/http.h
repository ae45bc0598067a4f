/* The HTTP server: sockets, connections, requests in and answers out. Knows no route and no model.
 *
 * One I/O thread moves bytes. It calls the application twice per request: when the head is there, which is the place to
 * refuse before the body comes (nobody waits for a body that is not wanted), and when the body is there. Both calls
 * must return at once; the answer may come later and from any thread, through the exchange.
 *
 * What is kept up for every connection: requests are answered in order, one at a time; heads, bodies and silence have
 * time limits; a client that stops reading is dropped; a client that closes its sending side is probed and, if it is
 * gone, the exchange learns it within a fraction of a second, whether or not an answer has begun; streams get a comment
 * when they have been silent for a while. When all connections are taken the one that has been idle longest makes room.
 */
#ifndef PGL_SERVER_HTTP_H
#define PGL_SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "server/http_parse.h"

typedef struct pgl_http_server pgl_http_server;

/* One request and its answer. Counted: the application owns the reference that on_request gives it. */
typedef struct pgl_exchange pgl_exchange;

/* ---- binding ---- */

#define PGL_HTTP_MOST_SOCKETS 8

typedef struct pgl_http_sockets {
    int fds[PGL_HTTP_MOST_SOCKETS]; /* bound, not listening yet */
    uint32_t n;
    uint16_t port;
    bool loopback_only; /* every address is a loopback one */
} pgl_http_sockets;

/* Binds every address that host (a name or a numeric address, one of IPv6 also in brackets) stands for; "::" is all of
 * both kinds. Port 0 picks a free one, the same for all.
 * PGL_E_INVALID for a host that does not resolve, PGL_E_BUSY for a port in use, PGL_E_IO. */
pgl_status pgl_http_bind(const char *host, uint16_t port, pgl_http_sockets *out, pgl_error *err);
void pgl_http_unbind(pgl_http_sockets *sockets);

/* ---- the server ---- */

typedef struct pgl_http_options {
    pgl_http_limits limits;
    uint32_t max_connections;   /* held to what the process may open */
    size_t max_held_body_bytes; /* all requests' bodies together */
    uint64_t head_timeout_ns;   /* from a request's first byte to the end of its head */
    uint64_t body_timeout_ns;   /* between two pieces of a body */
    uint64_t body_bytes_per_s;  /* a body has body_timeout_ns and a second for each so many bytes */
    uint64_t idle_timeout_ns;   /* between two requests */
    uint64_t write_timeout_ns;  /* for a client to read anything */
    uint64_t comment_ns;        /* silence of a stream after which a comment is sent */
    size_t stream_high_bytes;   /* what may wait for a client before pgl_exchange_write says PGL_WRITE_FULL */
} pgl_http_options;

pgl_http_options pgl_http_default_options(void);

typedef struct pgl_http_app {
    void *user;
    /* The head is there. True: read the body, of at most *max_body_bytes, then call on_request. False: the call has
     * answered, the body is not wanted. Headers for every answer are added here (pgl_exchange_add_header). I/O thread.
     */
    bool (*on_head)(void *user, pgl_exchange *exchange, size_t *max_body_bytes);
    /* The request is complete. I/O thread. */
    void (*on_request)(void *user, pgl_exchange *exchange);
    /* The request was refused by the HTTP layer: answer it in the application's form. The head may be empty (method
     * NULL). The connection is closed behind the answer. I/O thread. */
    void (*on_fault)(void *user, pgl_exchange *exchange, const pgl_http_fault *fault);
    /* The answer has been handed to the system, or its client is gone; status 0 when none was begun. I/O thread. */
    void (*on_done)(void *user, pgl_exchange *exchange, int status, uint64_t bytes, uint64_t duration_ns);
    /* Nobody holds the exchange any more; on_done was before. Called when it has a record, which is the application's
     * again. Any thread; must be quick. NULL is allowed. */
    void (*on_end)(void *user, void *record);
} pgl_http_app;

/* Listens on the sockets, which become the server's, and starts the I/O thread. app is copied. */
pgl_status pgl_http_open(const pgl_http_sockets *sockets, const pgl_http_options *options,
                         const pgl_http_app *app, pgl_http_server **out, pgl_error *err);

/* Idle connections are closed, the others after the answer under way. New ones are taken still, for one request each, so
 * that the application can say what is going on. Any thread. */
void pgl_http_drain(pgl_http_server *server);

/* Behind a drain: true when nothing is left of what had begun before it, at the latest after wait_ns. What came since
 * is not waited for: otherwise those who look again and again could keep the server up. */
bool pgl_http_wait_drained(pgl_http_server *server, uint64_t wait_ns);

/* No new connections from here on. Any thread. */
void pgl_http_stop_listening(pgl_http_server *server);

/* True when no exchange is left, at the latest after wait_ns. */
bool pgl_http_wait_idle(pgl_http_server *server, uint64_t wait_ns);

/* Drops every connection (watchers hear it), waits for the thread, and for the references that are still held. NULL is
 * allowed. */
void pgl_http_close(pgl_http_server *server);

typedef struct pgl_http_figures {
    uint32_t connections;
    uint32_t exchanges;         /* requests that have a head and no finished answer */
    uint64_t accepted, refused; /* connections since the start */
    size_t held_body_bytes;
} pgl_http_figures;

pgl_http_figures pgl_http_get_figures(pgl_http_server *server);

/* ---- an exchange: any thread, unless said otherwise ---- */

/* Valid until the answer is ended. */
const pgl_http_head *pgl_exchange_head(const pgl_exchange *exchange);
const char *pgl_exchange_request_id(const pgl_exchange *exchange);
const char *pgl_exchange_peer(const pgl_exchange *exchange); /* "127.0.0.1:1234" */

/* From on_request on; valid as long as the exchange. */
const pgl_buf *pgl_exchange_body(const pgl_exchange *exchange);

/* Gives the body's memory back early; by the thread that works on the exchange. */
void pgl_exchange_drop_body(pgl_exchange *exchange);

/* In on_head and on_fault only. text is "Name: value". False when memory is out. */
bool pgl_exchange_add_header(pgl_exchange *exchange, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For the application's own use, carried along; set in on_head. */
void pgl_exchange_set_tag(pgl_exchange *exchange, const void *tag);
const void *pgl_exchange_tag(const pgl_exchange *exchange);

/* The same for something that on_end takes back; set once, in on_head or on_fault. NULL: none was set. */
void pgl_exchange_set_record(pgl_exchange *exchange, void *record);
void *pgl_exchange_record(const pgl_exchange *exchange);

typedef struct pgl_answer {
    int status;
    const char *content_type; /* static; NULL: no body */
    const char *headers;      /* more "Name: value\r\n" lines; NULL: none */
    const char *body;
    size_t size;
} pgl_answer;

/* The whole answer. Only the first answer to an exchange counts. Memory that runs out while answering ends the
 * connection. */
void pgl_exchange_answer(pgl_exchange *exchange, const pgl_answer *answer);

/* The head of a stream of events; content_type is static. */
void pgl_exchange_stream(pgl_exchange *exchange, int status, const char *content_type);

typedef enum pgl_write_state {
    PGL_WRITE_OK,
    PGL_WRITE_FULL, /* taken, but the client is slow: the watcher's on_room says when to go on */
    PGL_WRITE_GONE, /* nobody is there any more */
} pgl_write_state;

/* Whole events: a comment may be sent between two calls. */
pgl_write_state pgl_exchange_write(pgl_exchange *exchange, const char *data, size_t size);
void pgl_exchange_end(pgl_exchange *exchange);

/* The answer cannot be finished: the connection is closed without a proper end, so that nobody takes it for complete. */
void pgl_exchange_abort(pgl_exchange *exchange);

/* Who wants to know. Called on the I/O thread under the exchange's lock: must be quick and call nothing of the
 * exchange. */
typedef struct pgl_watcher {
    void *user;
    void (*on_gone)(void *user);
    void (*on_room)(void *user);
} pgl_watcher;

/* False: already gone, the watcher will not be called. */
bool pgl_exchange_watch(pgl_exchange *exchange, const pgl_watcher *watcher);
/* After this returns no call is running or comes. */
void pgl_exchange_unwatch(pgl_exchange *exchange);
bool pgl_exchange_is_gone(pgl_exchange *exchange);

pgl_exchange *pgl_exchange_hold(pgl_exchange *exchange);
void pgl_exchange_release(pgl_exchange *exchange); /* NULL is allowed */

#endif
