/* The API server over one runtime: routes, access, workers, metrics, on top of the HTTP server. The command line opens
 * it; nothing else has to know what is inside. */
#ifndef PGL_SERVER_SERVER_H
#define PGL_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "api/runtime.h"
#include "base/status.h"
#include "server/access.h"
#include "server/http.h"

typedef struct pgl_server pgl_server;

typedef struct pgl_server_options {
    pgl_runtime *runtime; /* borrowed; must outlive the server */
    pgl_http_sockets sockets;
    pgl_http_options http;
    pgl_access_options access;
    const char *const *names; /* the model's names in the API; the first is the one that answers carry */
    uint32_t n_names;         /* 0: the runtime's name */
    int thinking; /* what requests that do not say get: 1 on, 0 off, -1: the template's own default */
    uint64_t request_timeout_ns; /* 0: none */
    uint32_t n_workers;          /* 0: chosen */
    const char *trace;           /* directory that gets a file for each request of the model; NULL: none */
    uint64_t trace_bytes;        /* most of all files together */
    const char *request_log; /* file that gets a line for each request; "-": standard output; NULL: none */
    bool log_prompts;        /* with prompts and answers */
} pgl_server_options;

/* Listens when it returns. The sockets are the server's then; after a failure they are closed. */
pgl_status pgl_server_open(const pgl_server_options *options, pgl_server **out, pgl_error *err);

/* Opens the request log's path again: the file has been moved away. Any thread. */
void pgl_server_reopen_log(pgl_server *server);

/* No new requests from here on, but for the routes that say how the server is; others are told to come again. Those that
 * run go on. */
void pgl_server_start_drain(pgl_server *server);

/* True when nothing runs any more of what did when draining began, at the latest after wait_ns. */
bool pgl_server_wait_drained(pgl_server *server, uint64_t wait_ns);

/* Cuts what still runs. */
void pgl_server_close(pgl_server *server); /* NULL is allowed */

#endif
