/* What the routes share. */
#ifndef PGL_SERVER_SERVER_IMPL_H
#define PGL_SERVER_SERVER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "checkpoint/fingerprint.h"
#include "constraint/constraint.h"
#include "server/body.h"
#include "server/json_out.h"
#include "server/metrics.h"
#include "server/params.h"
#include "server/refusal.h"
#include "server/request_log.h"
#include "server/server.h"
#include "server/trace_log.h"
#include "server/worker.h"
#include "text/chat.h"
#include "text/tokenizer.h"

typedef struct pgl_generation pgl_generation;

struct pgl_server {
    /* fixed after open */
    pgl_runtime *runtime;
    pgl_engine *engine;
    const pgl_tokenizer *tokenizer;
    const pgl_chat *chat;                  /* NULL: the checkpoint has no template */
    pgl_constraint_vocabulary *vocabulary; /* of structured output */
    pgl_job prepare_forms;                 /* makes it, once, behind the start */
    pgl_access *access;
    pgl_workers *workers;
    pgl_metrics *metrics;
    pgl_http_server *http;
    char **names;
    uint32_t n_names;
    uint32_t context, n_vocab;
    int thinking;
    bool echo; /* nothing is computed: answers are forced */
    uint64_t request_timeout_ns;
    int64_t created; /* seconds since 1970: of the models list */
    pgl_sample_params sampling;
    pgl_buf openapi;                        /* GET /openapi.json */
    pgl_request_log *request_log;           /* NULL: none */
    pgl_trace_log *traces;                  /* NULL: none */
    char fingerprint[PGL_FINGERPRINT_TEXT]; /* of the model, with traces */
    bool log_prompts;

    atomic_bool draining;

    /* running answers, and the thread that ends those whose time is up */
    pthread_t watch;
    pthread_mutex_t watch_lock;
    pthread_cond_t watch_changed;
    pgl_generation *first_watched; /* guarded by watch_lock */
    bool watch_stop, watch_runs;
};

/* ---- routes ---- */

typedef enum pgl_scope {
    PGL_SCOPE_OPEN, /* needs no key */
    PGL_SCOPE_KEY,
} pgl_scope;

typedef enum pgl_route_flags {
    PGL_ROUTE_INLINE = 1,        /* so little work that the I/O thread does it */
    PGL_ROUTE_WHEN_DRAINING = 2, /* answered although the server is about to end */
    PGL_ROUTE_STREAMS = 4,       /* answers with events when asked to */
    PGL_ROUTE_READINESS = 8,     /* a 503 has the form of its answer */
} pgl_route_flags;

/* The handler gets the exchange's reference and sees to it that an answer comes and the reference is released. */
typedef void (*pgl_handler)(pgl_server *server, pgl_exchange *exchange);

typedef struct pgl_route {
    const char *method; /* GET stands for HEAD too */
    const char *path;   /* a path that ends in slash and star: and anything behind it */
    pgl_scope scope;
    unsigned flags;
    pgl_param_routes
        fields; /* the bodies that it takes (params.h), of at most what the options say; 0: none */
    pgl_handler handler;
    const char *answer; /* its schema, by its name in openapi.json; NULL: plain text */
    const char *summary;
} pgl_route;

const pgl_route *pgl_routes(size_t *n);

/* The route for a path (without its last slash), of any method when method is NULL. */
const pgl_route *pgl_route_find(const char *method, const char *path);

/* "GET, HEAD, OPTIONS" of a path. */
void pgl_route_allow(const char *path, char *out, size_t capacity);

/* What stands behind the prefix of a route that ends in a star, decoded. */
bool pgl_route_rest(const pgl_route *route, const char *path, char *out, size_t capacity);

/* ---- answers ---- */

void pgl_answer_error(pgl_exchange *exchange, const pgl_refusal *err);

/* One rule for every route: absent or empty is the served model, another name is 404. */
bool pgl_check_model(const pgl_server *server, const char *name, pgl_refusal *err);

/* The OpenAPI document of this server: routes and fields from their tables, the rest from openapi.json. */
pgl_status pgl_openapi_write(const pgl_server *server, pgl_buf *out, pgl_error *err);

/* ---- handlers ---- */

void pgl_handle_root(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_health(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_ready(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_openapi(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_version(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_models(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_model(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_props(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_slots(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_metrics(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_tokenize(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_detokenize(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_apply_template(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_chat(pgl_server *server, pgl_exchange *exchange);
void pgl_handle_completions(pgl_server *server, pgl_exchange *exchange);

#endif
