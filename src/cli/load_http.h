/* HTTP/1.1 requests to one server, many at a time, for the load generator.
 *
 * Owns connections, which are kept and used again where the server allows it. Everything runs on the thread of the
 * event base; no call waits but pgl_load_target_connect. The server is not trusted: heads, interim answers, bytes and
 * time are bounded, and whatever it sends ends in exactly one call of done. No TLS, no redirects, no compression. */
#ifndef PGL_CLI_LOAD_HTTP_H
#define PGL_CLI_LOAD_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

struct event_base;

typedef struct pgl_load_target {
    char host[256];      /* as in the URL, without brackets */
    char port[8];        /* "8000" */
    char authority[272]; /* what the Host header says */
    char base[512];      /* path without a slash at its end: "/v1"; may be empty */
    char root[512];      /* the same without "/v1" at its end */
    struct sockaddr_storage address;
    socklen_t address_size;
} pgl_load_target;

/* Takes http://HOST[:PORT][/PATH] apart; no network. PGL_E_INVALID for anything else, https:// included. */
pgl_status pgl_load_target_parse(const char *url, pgl_load_target *target, pgl_error *err);

/* Looks the host up and tries its addresses; the first that takes a connection within timeout_s is kept. */
pgl_status pgl_load_target_connect(pgl_load_target *target, double timeout_s, pgl_error *err);

typedef enum pgl_load_end {
    PGL_LOAD_DONE,      /* the whole answer came, or the sink had all it wants */
    PGL_LOAD_CONNECT,   /* no connection */
    PGL_LOAD_TIMEOUT,   /* the time was up */
    PGL_LOAD_CUT,       /* the connection ended before the answer */
    PGL_LOAD_MALFORMED, /* not HTTP */
    PGL_LOAD_TOO_LARGE,
    PGL_LOAD_STOPPED, /* by the sink */
} pgl_load_end;

typedef enum pgl_load_wish {
    PGL_LOAD_GO_ON,
    PGL_LOAD_ENOUGH, /* all there is to know came; what is left is read only to keep the connection */
    PGL_LOAD_STOP,   /* close it: PGL_LOAD_STOPPED */
} pgl_load_wish;

typedef struct pgl_load_head {
    int status;
    const char *content_type; /* lower case, at most 255 bytes; "" when there is none */
    const char *encoding;     /* Content-Encoding; "" when there is none */
} pgl_load_head;

/* head and body come in this order, any number of body calls; then done, once, after which nothing of the call is
 * used. now_ns is when the bytes were seen. done may send again. */
typedef struct pgl_load_sink {
    void *user;
    pgl_load_wish (*head)(void *user, const pgl_load_head *head);
    pgl_load_wish (*body)(void *user, const char *data, size_t size, uint64_t now_ns);
    void (*done)(void *user, pgl_load_end end, uint64_t now_ns);
} pgl_load_sink;

typedef struct pgl_load_http_options {
    const pgl_load_target *target; /* borrowed */
    uint32_t max_connections;
    double timeout_s, connect_timeout_s; /* of a request, of a connection */
    uint64_t max_answer_bytes;           /* body and framing */
} pgl_load_http_options;

typedef struct pgl_load_http pgl_load_http;

pgl_status pgl_load_http_open(struct event_base *base, const pgl_load_http_options *options,
                              pgl_load_http **out, pgl_error *err);

/* Drops what runs without a word to its sink. NULL is allowed. */
void pgl_load_http_close(pgl_load_http *http);

/* Sends text, a whole request, borrowed until done. False when all connections are busy or memory is out; then the
 * sink hears nothing. Never calls the sink before it returns. */
bool pgl_load_http_send(pgl_load_http *http, const char *text, size_t size, const pgl_load_sink *sink);

#endif
