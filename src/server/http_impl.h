/* What the files of the HTTP server share. Connections belong to the I/O thread; an exchange is the piece that other
 * threads touch. */
#ifndef PGL_SERVER_HTTP_IMPL_H
#define PGL_SERVER_HTTP_IMPL_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <pthread.h>
#include <stdatomic.h>

#include "server/http.h"

#define PGL_REQUEST_ID_SIZE 132
#define PGL_PEER_SIZE 64

typedef struct pgl_connection pgl_connection;

struct pgl_exchange {
    /* fixed after on_head */
    pgl_connection *connection; /* a reference: the head lives in its reader */
    uint64_t start_ns;
    bool early; /* begun before the server drained */
    char request_id[PGL_REQUEST_ID_SIZE];
    pgl_buf headers; /* "Name: value\r\n" lines for the answer */
    const void *tag;
    void *record;
    /* fixed after on_request */
    pgl_buf body;

    atomic_uint references;

    /* guarded by lock */
    pthread_mutex_t lock;
    int status; /* 0: no answer yet */
    const char *content_type;
    pgl_buf more_headers;
    pgl_buf out; /* what waits for the I/O thread */
    bool streaming, ended, aborted, gone, full;
    bool watched;
    pgl_watcher watcher;
    size_t backlog_bytes;   /* waiting in the connection */
    uint64_t last_write_ns; /* of a stream */

    /* I/O thread */
    bool head_written, done_told;
    uint64_t bytes_out;

    /* guarded by the server's lock */
    bool posted;
    pgl_exchange *next_posted;
};

typedef enum pgl_connection_state {
    PGL_CONN_WAITING, /* for the first byte of a request */
    PGL_CONN_HEAD,
    PGL_CONN_BODY,
    PGL_CONN_ANSWERING, /* the request is complete, or what is left of it is of no interest */
    PGL_CONN_CLOSING,   /* the last answer is being written */
    PGL_CONN_LINGERING, /* our side is shut; the client may read what it got */
} pgl_connection_state;

/* Links of the list of all connections, and of the list of those that may be closed to make room. */
typedef struct pgl_link {
    pgl_connection *previous, *next;
} pgl_link;

typedef struct pgl_list {
    pgl_connection *first, *last;
} pgl_list;

struct pgl_connection {
    /* fixed after open */
    pgl_http_server *server;
    char peer[PGL_PEER_SIZE];
    atomic_uint references;

    /* I/O thread; the reader's head may be read by others while its exchange is not ended */
    pgl_http_reader *reader;
    struct bufferevent *stream; /* NULL: closed */
    struct event *timer;
    pgl_exchange *current;
    pgl_connection_state state;
    bool wanted;       /* on_head said yes */
    bool request_done; /* nothing of this request is left to read */
    bool answer_done;  /* the answer is in the output buffer as a whole */
    bool close_after, input_eof, in_idle_list, busy;
    bool busy_early; /* since before the server drained */
    uint32_t n_probes;
    uint64_t next_probe_ns, deadline_ns, linger_end_ns, body_start_ns;
    size_t held_bytes; /* of the body being read */
    pgl_link all, idle;
};

struct pgl_http_server {
    /* fixed after open */
    pgl_http_options options;
    pgl_http_app app;
    pthread_t thread;
    int wake_fd;
    char id_prefix[16];

    /* I/O thread */
    struct event_base *base;
    struct evconnlistener *listeners[PGL_HTTP_MOST_SOCKETS];
    uint32_t n_listeners;
    struct event *wake, *resume_accept;
    pgl_list connections, idle;
    uint64_t next_id;
    bool draining;

    atomic_size_t held_body_bytes;
    atomic_uint n_connections;
    atomic_uint_fast64_t n_accepted, n_refused;

    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pgl_exchange *posted;
    uint32_t n_exchanges; /* living ones */
    uint32_t n_busy;      /* connections between a head and the end of its answer's writing */
    uint32_t n_early_exchanges, n_early_busy; /* of these, those that began before the drain */
    bool want_drain, want_deaf, want_stop;
};

/* http_connection.c, I/O thread */
void pgl_connection_accept(pgl_http_server *server, int fd, const char *peer);
void pgl_connection_flush(pgl_connection *connection);
void pgl_connection_close(pgl_connection *connection);
void pgl_connection_drain(pgl_connection *connection);
void pgl_connection_release(pgl_connection *connection); /* any thread */

/* http_exchange.c */
pgl_exchange *pgl_exchange_open(pgl_connection *connection, const pgl_http_head *head);
void pgl_exchange_lose(pgl_exchange *exchange); /* I/O thread: the client is gone */
/* I/O thread: appends the head of the answer. */
bool pgl_exchange_write_head(pgl_exchange *exchange, bool chunked, bool keep_alive, struct evbuffer *out);
const char *pgl_http_reason(int status);

#endif
