/* Owns the connections of the load generator. A connection is idle, or carries one request; its timer bounds first the
 * connecting, then the request, and at last the wait for the end of an answer that nobody needs any more. */
#include "cli/load_http.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <http_parser.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { MOST_INTERIM = 16, MOST_HEADERS = 256, VALUE_BYTES = 256 };
#define LINGER_S 0.25

typedef struct connection connection;
struct connection {
    pgl_load_http *http;
    struct bufferevent *wire;
    struct event *timer;
    http_parser parser;

    /* the request */
    const char *text;
    size_t size;
    pgl_load_sink sink;
    bool busy, connected, reused, answered, enough;
    uint64_t deadline_ns, received_bytes, now_ns;

    /* its answer */
    uint32_t n_interim, n_headers;
    char name[32], content_type[VALUE_BYTES], encoding[VALUE_BYTES];
    char *value;       /* where the value of the present header goes; NULL: nowhere */
    bool in_value;     /* a value was read: the next name is a new one */
    bool complete;     /* to the last byte */
    pgl_load_end ends; /* what a callback of the parser decided; PGL_LOAD_DONE: nothing */

    connection *next, *previous; /* of all */
    connection *next_idle;
};

struct pgl_load_http {
    struct event_base *base;
    pgl_load_http_options options;
    connection *all, *idle;
    uint32_t n;
};

/* ---- the parser's callbacks ---- */

static connection *of(http_parser *parser) {
    return parser->data;
}

static int on_begin(http_parser *parser) {
    connection *c = of(parser);
    c->content_type[0] = c->encoding[0] = c->name[0] = '\0';
    c->value = NULL;
    c->in_value = false;
    c->n_headers = 0;
    return 0;
}

static void append(char *to, size_t capacity, const char *text, size_t size) {
    size_t used = strlen(to), room = capacity - 1 - used;
    size = size < room ? size : room;
    for (size_t i = 0; i < size; i++)
        to[used + i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]);
    to[used + size] = '\0';
}

static int on_field(http_parser *parser, const char *text, size_t size) {
    connection *c = of(parser);
    if (c->in_value) {
        c->in_value = false;
        c->name[0] = '\0';
    }
    append(c->name, sizeof c->name, text, size);
    return 0;
}

static int on_value(http_parser *parser, const char *text, size_t size) {
    connection *c = of(parser);
    if (!c->in_value) {
        c->in_value = true;
        c->value = strcmp(c->name, "content-type") == 0       ? c->content_type
                   : strcmp(c->name, "content-encoding") == 0 ? c->encoding
                                                              : NULL;
        if (c->value != NULL)
            c->value[0] = '\0';
        if (++c->n_headers > MOST_HEADERS) {
            c->ends = PGL_LOAD_TOO_LARGE;
            return -1;
        }
    }
    if (c->value != NULL)
        append(c->value, VALUE_BYTES, text, size);
    return 0;
}

static bool interim(const http_parser *parser) {
    return parser->status_code >= 100 && parser->status_code < 200 && parser->status_code != 101;
}

static int follow(connection *c, pgl_load_wish wish) {
    if (wish == PGL_LOAD_STOP)
        c->ends = PGL_LOAD_STOPPED;
    if (wish == PGL_LOAD_ENOUGH)
        c->enough = true;
    return wish == PGL_LOAD_STOP ? -1 : 0;
}

static int on_headers(http_parser *parser) {
    connection *c = of(parser);
    if (interim(parser))
        return 0;
    pgl_load_head head = {
        .status = (int)parser->status_code, .content_type = c->content_type, .encoding = c->encoding};
    /* 1 would mean that no body follows. */
    return follow(c, c->sink.head(c->sink.user, &head));
}

static int on_body(http_parser *parser, const char *data, size_t size) {
    connection *c = of(parser);
    return c->enough ? 0 : follow(c, c->sink.body(c->sink.user, data, size, c->now_ns));
}

static int on_complete(http_parser *parser) {
    connection *c = of(parser);
    if (interim(parser))
        return ++c->n_interim > MOST_INTERIM ? -1 : 0;
    c->complete = true;
    http_parser_pause(parser, 1);
    return 0;
}

/* ---- connections ---- */

static void release(connection *c) {
    if (c->wire != NULL)
        bufferevent_free(c->wire);
    if (c->timer != NULL)
        event_free(c->timer);
    free(c);
}

static void destroy(connection *c) {
    if (c->next != NULL)
        c->next->previous = c->previous;
    if (c->previous != NULL)
        c->previous->next = c->next;
    else
        c->http->all = c->next;
    for (connection **at = &c->http->idle; *at != NULL; at = &(*at)->next_idle) {
        if (*at == c) {
            *at = c->next_idle;
            break;
        }
    }
    c->http->n--;
    release(c);
}

static void arm(connection *c, uint64_t wait_ns) {
    struct timeval wait = {.tv_sec = (time_t)(wait_ns / 1000000000),
                           .tv_usec = (suseconds_t)(wait_ns / 1000 % 1000000)};
    (void)evtimer_add(c->timer, &wait);
}

static void arm_deadline(connection *c) {
    uint64_t now = pgl_now_ns();
    arm(c, c->deadline_ns > now ? c->deadline_ns - now : 0);
}

/* The connection may be gone afterwards. */
static void finish(connection *c, pgl_load_end end) {
    pgl_load_sink sink = c->sink;
    uint64_t now_ns = pgl_now_ns();
    c->busy = false;
    if (c->enough && end != PGL_LOAD_STOPPED)
        end = PGL_LOAD_DONE; /* what went wrong behind that does not matter */
    if (end == PGL_LOAD_DONE && c->complete && http_should_keep_alive(&c->parser) &&
        evbuffer_get_length(bufferevent_get_input(c->wire)) == 0) {
        (void)evtimer_del(c->timer);
        c->next_idle = c->http->idle;
        c->http->idle = c;
    } else {
        destroy(c);
    }
    sink.done(sink.user, end, now_ns);
}

static void begin_answer(connection *c) {
    http_parser_init(&c->parser, HTTP_RESPONSE);
    c->parser.data = c;
    c->answered = c->enough = c->complete = false;
    c->received_bytes = 0;
    c->n_interim = 0;
    c->ends = PGL_LOAD_DONE;
}

static const http_parser_settings settings = {
    .on_message_begin = on_begin,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_headers,
    .on_body = on_body,
    .on_message_complete = on_complete,
};

/* True when the request is over. */
static bool read_on(connection *c) {
    struct evbuffer *in = bufferevent_get_input(c->wire);
    size_t size;
    while ((size = evbuffer_get_contiguous_space(in)) > 0) {
        const char *data = (const char *)evbuffer_pullup(in, (ev_ssize_t)size);
        c->received_bytes += size;
        if (data == NULL || c->received_bytes > c->http->options.max_answer_bytes) {
            finish(c, PGL_LOAD_TOO_LARGE);
            return true;
        }
        size_t used = http_parser_execute(&c->parser, &settings, data, size);
        (void)evbuffer_drain(in, used);
        if (c->complete) {
            finish(c, PGL_LOAD_DONE);
            return true;
        }
        if (HTTP_PARSER_ERRNO(&c->parser) != HPE_OK || c->parser.upgrade || used != size) {
            finish(c, c->ends != PGL_LOAD_DONE ? c->ends : PGL_LOAD_MALFORMED);
            return true;
        }
    }
    return false;
}

static void on_read(struct bufferevent *wire, void *user) {
    connection *c = user;
    (void)wire;
    if (!c->busy) { /* what nobody asked for */
        destroy(c);
        return;
    }
    bool had_enough = c->enough;
    c->now_ns = pgl_now_ns();
    c->answered = true;
    if (!read_on(c) && c->enough && !had_enough)
        arm(c, (uint64_t)(LINGER_S * 1e9));
}

static bool open_wire(connection *c);

/* A kept connection may have been closed by the server in the same moment: that is no fault of the request. */
static bool send_again(connection *c) {
    if (!c->reused || c->answered)
        return false;
    bufferevent_free(c->wire);
    c->wire = NULL;
    c->reused = false;
    begin_answer(c);
    return open_wire(c);
}

static void on_closed(connection *c) {
    if (send_again(c))
        return;
    if (c->wire == NULL) {
        finish(c, PGL_LOAD_CONNECT);
        return;
    }
    c->now_ns = pgl_now_ns();
    if (c->answered) /* an answer without a length ends here */
        (void)http_parser_execute(&c->parser, &settings, NULL, 0);
    finish(c, c->ends != PGL_LOAD_DONE ? c->ends
              : c->complete            ? PGL_LOAD_DONE
              : c->connected           ? PGL_LOAD_CUT
                                       : PGL_LOAD_CONNECT);
}

static void on_event(struct bufferevent *wire, short what, void *user) {
    connection *c = user;
    if (what & BEV_EVENT_CONNECTED) {
        int one = 1;
        (void)setsockopt(bufferevent_getfd(wire), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        c->connected = true;
        arm_deadline(c);
        return;
    }
    if (!c->busy)
        destroy(c);
    else if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
        on_closed(c);
}

static void on_timer(evutil_socket_t fd, short what, void *user) {
    connection *c = user;
    (void)fd;
    (void)what;
    if (!c->busy)
        return;
    finish(c, c->connected && c->ends == PGL_LOAD_DONE ? PGL_LOAD_TIMEOUT : PGL_LOAD_CONNECT);
}

/* Starts to connect, with the request behind it. */
static bool open_wire(connection *c) {
    const pgl_load_target *target = c->http->options.target;
    c->connected = false;
    c->wire = bufferevent_socket_new(c->http->base, -1, BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    if (c->wire == NULL)
        return false;
    bufferevent_setcb(c->wire, on_read, NULL, on_event, c);
    if (bufferevent_write(c->wire, c->text, c->size) != 0 ||
        bufferevent_enable(c->wire, EV_READ | EV_WRITE) != 0 ||
        bufferevent_socket_connect(c->wire, (const struct sockaddr *)&target->address,
                                   (int)target->address_size) != 0) {
        bufferevent_free(c->wire);
        c->wire = NULL;
        return false;
    }
    arm(c, (uint64_t)(c->http->options.connect_timeout_s * 1e9));
    return true;
}

static connection *new_connection(pgl_load_http *http) {
    connection *c = pgl_new(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->http = http;
    c->timer = evtimer_new(http->base, on_timer, c);
    if (c->timer == NULL) {
        free(c);
        return NULL;
    }
    c->next = http->all;
    if (c->next != NULL)
        c->next->previous = c;
    http->all = c;
    http->n++;
    return c;
}

bool pgl_load_http_send(pgl_load_http *http, const char *text, size_t size, const pgl_load_sink *sink) {
    connection *c = http->idle;
    if (c != NULL)
        http->idle = c->next_idle;
    else if (http->n < http->options.max_connections)
        c = new_connection(http);
    if (c == NULL)
        return false;
    c->next_idle = NULL;
    c->text = text;
    c->size = size;
    c->sink = *sink;
    c->busy = true;
    c->reused = c->wire != NULL;
    c->deadline_ns = pgl_now_ns() + (uint64_t)(http->options.timeout_s * 1e9);
    begin_answer(c);
    if (c->reused && bufferevent_write(c->wire, text, size) == 0) {
        arm_deadline(c);
    } else if (c->reused || !open_wire(c)) {
        c->ends = PGL_LOAD_CONNECT;
        arm(c, 0);
    }
    return true;
}

pgl_status pgl_load_http_open(struct event_base *base, const pgl_load_http_options *options,
                              pgl_load_http **out, pgl_error *err) {
    *out = pgl_new(1, sizeof **out);
    if (*out == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for connections");
    (*out)->base = base;
    (*out)->options = *options;
    return PGL_OK;
}

void pgl_load_http_close(pgl_load_http *http) {
    if (http == NULL)
        return;
    for (connection *c = http->all, *next; c != NULL; c = next) {
        next = c->next;
        release(c);
    }
    free(http);
}
