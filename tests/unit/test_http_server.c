/* The HTTP server on real sockets, with short time limits and an application of a few paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "server/http.h"

#define MS ((uint64_t)1000000)

/* Sanitizer builds are slower; what has to happen "soon" gets more time there. */
static uint64_t patience_ms(void) {
    const char *text = getenv("PGL_TEST_SLOWDOWN");
    long n = text ? strtol(text, NULL, 10) : 1;
    return 3000 * (uint64_t)(n > 0 ? n : 1);
}

/* ---- the application ---- */

typedef struct app {
    pgl_http_server *server;
    uint16_t port;
    atomic_uint requests, done, gone, room, last_status;
    pthread_t threads[64];
    uint32_t n_threads;
} app;

typedef struct job {
    app *app;
    pgl_exchange *exchange;
    atomic_bool gone, room;
} job;

static void answer_text(pgl_exchange *exchange, int status, const char *text) {
    pgl_exchange_answer(
        exchange,
        &(pgl_answer){.status = status, .content_type = "text/plain", .body = text, .size = strlen(text)});
}

static bool on_head(void *user, pgl_exchange *exchange, size_t *max_body_bytes) {
    (void)user;
    const pgl_http_head *head = pgl_exchange_head(exchange);
    pgl_exchange_add_header(exchange, "X-Test: %s", head->path);
    if (strcmp(head->path, "/refuse") == 0) {
        answer_text(exchange, 401, "no");
        return false;
    }
    if (strcmp(head->path, "/small") == 0)
        *max_body_bytes = 10;
    return true;
}

static void when_gone(void *user) {
    job *work = user;
    atomic_store(&work->gone, true);
    atomic_fetch_add(&work->app->gone, 1);
}

static void when_room(void *user) {
    job *work = user;
    atomic_store(&work->room, true);
    atomic_fetch_add(&work->app->room, 1);
}

/* /wait: answers after ?N ms unless the client goes. /stream: N events, 20 ms apart. /silence: a stream, N ms, an
 * event. /flood: events of 64 KiB until the client is slow, then as room comes, N in all. */
static void *work_on(void *arg) {
    job *work = arg;
    pgl_exchange *exchange = work->exchange;
    const pgl_http_head *head = pgl_exchange_head(exchange);
    unsigned n = (unsigned)strtoul(head->query, NULL, 10);
    pgl_watcher watcher = {.user = work, .on_gone = when_gone, .on_room = when_room};
    bool there = pgl_exchange_watch(exchange, &watcher);
    if (!there)
        when_gone(work);
    uint64_t end = pgl_now_ns() + (uint64_t)n * MS;
    if (strcmp(head->path, "/wait") == 0) {
        while (there && !atomic_load(&work->gone) && pgl_now_ns() < end)
            usleep(1000);
        answer_text(exchange, 200, "waited");
    } else if (strcmp(head->path, "/stream") == 0) {
        pgl_exchange_stream(exchange, 200, "text/event-stream");
        for (unsigned i = 0; i < n && !atomic_load(&work->gone); i++) {
            char event[32];
            int size = snprintf(event, sizeof event, "data: %u\n\n", i);
            pgl_exchange_write(exchange, event, (size_t)size);
            usleep(20000);
        }
        pgl_exchange_end(exchange);
    } else if (strcmp(head->path, "/silence") == 0) {
        pgl_exchange_stream(exchange, 200, "text/event-stream");
        while (!atomic_load(&work->gone) && pgl_now_ns() < end)
            usleep(1000);
        pgl_exchange_write(exchange, "data: x\n\n", 9);
        pgl_exchange_end(exchange);
    } else {
        char block[65536];
        pgl_exchange_stream(exchange, 200, "text/event-stream");
        for (unsigned i = 0; i < n; i++) {
            atomic_store(&work->room, false);
            memset(block, 'a' + (int)(i % 26), sizeof block);
            pgl_write_state state = pgl_exchange_write(exchange, block, sizeof block);
            while (state == PGL_WRITE_FULL && !atomic_load(&work->room) && !atomic_load(&work->gone))
                usleep(1000);
            if (state == PGL_WRITE_GONE)
                break;
        }
        pgl_exchange_end(exchange);
    }
    pgl_exchange_unwatch(exchange);
    pgl_exchange_release(exchange);
    free(work);
    return NULL;
}

static void on_request(void *user, pgl_exchange *exchange) {
    app *self = user;
    const pgl_http_head *head = pgl_exchange_head(exchange);
    atomic_fetch_add(&self->requests, 1);
    bool slow = strcmp(head->path, "/wait") == 0 || strcmp(head->path, "/stream") == 0 ||
                strcmp(head->path, "/silence") == 0 || strcmp(head->path, "/flood") == 0;
    if (slow) {
        job *work = calloc(1, sizeof *work);
        assert_non_null(work);
        work->app = self;
        work->exchange = exchange;
        assert_true(self->n_threads < sizeof self->threads / sizeof *self->threads);
        pthread_create(&self->threads[self->n_threads++], NULL, work_on, work);
        return;
    }
    const pgl_buf *body = pgl_exchange_body(exchange);
    pgl_exchange_answer(exchange, &(pgl_answer){.status = 200,
                                                .content_type = "text/plain",
                                                .headers = "X-More: 1\r\n",
                                                .body = pgl_buf_text(body),
                                                .size = body->size});
    pgl_exchange_release(exchange);
}

static void on_fault(void *user, pgl_exchange *exchange, const pgl_http_fault *fault) {
    (void)user;
    answer_text(exchange, fault->status, fault->text);
}

static void on_done(void *user, pgl_exchange *exchange, int status, uint64_t bytes, uint64_t duration_ns) {
    (void)exchange;
    (void)bytes;
    (void)duration_ns;
    app *self = user;
    atomic_store(&self->last_status, (unsigned)status);
    atomic_fetch_add(&self->done, 1);
}

static void start(app *self, const pgl_http_options *options) {
    pgl_http_sockets sockets;
    pgl_error err;
    memset(self, 0, sizeof *self);
    assert_int_equal(pgl_http_bind("127.0.0.1", 0, &sockets, &err), PGL_OK);
    assert_true(sockets.port != 0);
    assert_true(sockets.loopback_only);
    self->port = sockets.port;
    pgl_http_app calls = {
        .user = self, .on_head = on_head, .on_request = on_request, .on_fault = on_fault, .on_done = on_done};
    assert_int_equal(pgl_http_open(&sockets, options, &calls, &self->server, &err), PGL_OK);
}

static void stop(app *self) {
    pgl_http_close(self->server);
    for (uint32_t i = 0; i < self->n_threads; i++)
        pthread_join(self->threads[i], NULL);
}

/* ---- the client ---- */

static int dial(const app *self) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(self->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void say(int fd, const char *text) {
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Reads until the text holds `until` (NULL: until the end of the stream), within patience. */
static void hear(int fd, const char *until, pgl_buf *out) {
    uint64_t end = pgl_now_ns() + patience_ms() * MS;
    size_t looked_at = 0;
    while (!until || !strstr(pgl_buf_text(out) + looked_at, until)) {
        looked_at = out->size > 64 ? out->size - 64 : 0;
        struct pollfd look = {.fd = fd, .events = POLLIN};
        uint64_t now = pgl_now_ns();
        if (now >= end || poll(&look, 1, (int)((end - now) / MS + 1)) <= 0)
            fail_msg("waited for \"%s\", got \"%s\"", until ? until : "the end", pgl_buf_text(out));
        char bytes[65536];
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0) {
            if (until)
                fail_msg("closed before \"%s\", got \"%s\"", until, pgl_buf_text(out));
            return;
        }
        pgl_buf_append(out, bytes, (size_t)n);
    }
}

static void expect_answer(int fd, const char *until) {
    pgl_buf text = PGL_BUF_INIT;
    hear(fd, until, &text);
    pgl_buf_fini(&text);
}

/* Waits until the counter has reached n. */
static void reaches(atomic_uint *counter, unsigned n, const char *what) {
    uint64_t end = pgl_now_ns() + patience_ms() * MS;
    while (atomic_load(counter) < n) {
        if (pgl_now_ns() > end)
            fail_msg("%s: %u, expected %u", what, atomic_load(counter), n);
        usleep(1000);
    }
}

static unsigned count_of(const char *text, const char *part) {
    unsigned n = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"

static void pipelined_requests_are_answered_in_order(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    start(&self, &options);
    int fd = dial(&self);
    say(fd, GET("/wait?100") "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nfirst" GET("/refuse")
                GET("/stream?2") "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nConnection: "
                                 "close\r\n\r\nlast");
    pgl_buf text = PGL_BUF_INIT;
    hear(fd, NULL, &text);
    const char *at = text.data;
    static const char *const parts[] = {"waited",    "first", "401 Unauthorized", "data: 0", "data: 1",
                                        "0\r\n\r\n", "last"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        at = strstr(at, parts[i]);
        if (!at)
            fail_msg("%s is missing in %s", parts[i], text.data);
    }
    assert_int_equal(count_of(text.data, "HTTP/1.1 "), 5);
    assert_int_equal(count_of(text.data, "Connection: close"), 1);
    assert_int_equal(count_of(text.data, "X-Test: /echo"), 2);
    close(fd);
    pgl_buf_fini(&text);
    stop(&self);
    assert_int_equal(atomic_load(&self.done), 5);
}

static void expect_100_is_answered_or_refused_without_the_body(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    start(&self, &options);
    int fd = dial(&self);
    say(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    expect_answer(fd, "HTTP/1.1 100 Continue\r\n\r\n");
    say(fd, "abc");
    expect_answer(fd, "\r\n\r\nabc");
    say(fd, "POST /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    pgl_buf text = PGL_BUF_INIT;
    hear(fd, NULL, &text);
    assert_non_null(strstr(text.data, "HTTP/1.1 401"));
    assert_non_null(strstr(text.data, "Connection: close"));
    assert_null(strstr(text.data, "100 Continue"));
    close(fd);
    fd = dial(&self);
    pgl_buf_clear(&text);
    say(fd, "POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n");
    hear(fd, NULL, &text);
    assert_non_null(strstr(text.data, "HTTP/1.1 413"));
    assert_null(strstr(text.data, "100 Continue"));
    close(fd);
    pgl_buf_fini(&text);
    stop(&self);
}

static void a_refused_body_leaves_the_connection_in_step(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    start(&self, &options);
    int fd = dial(&self);
    say(fd, "POST /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
    expect_answer(fd, "401");
    char body[1000];
    memset(body, 'b', sizeof body);
    send(fd, body, sizeof body, MSG_NOSIGNAL);
    say(fd, GET("/echo"));
    expect_answer(fd, "X-Test: /echo");
    close(fd);
    stop(&self);
}

static void a_large_refused_body_gets_its_answer_and_the_end(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    options.limits.max_body_bytes = 1 << 20;
    start(&self, &options);
    static char block[1 << 20];
    memset(block, 'b', sizeof block);
    for (int chunked = 0; chunked < 2; chunked++) {
        int fd = dial(&self);
        say(fd, chunked ? "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4000000\r\n"
                        : "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 67108864\r\n\r\n");
        size_t sent = 0;
        for (int i = 0; i < 64; i++) {
            ssize_t n = send(fd, block, sizeof block, MSG_NOSIGNAL);
            if (n < 0)
                break;
            sent += (size_t)n;
        }
        assert_true(sent >= sizeof block);
        pgl_buf text = PGL_BUF_INIT;
        hear(fd, NULL, &text);
        assert_non_null(strstr(pgl_buf_text(&text), "HTTP/1.1 413"));
        pgl_buf_fini(&text);
        close(fd);
    }
    assert_int_equal(pgl_http_get_figures(self.server).held_body_bytes, 0);
    stop(&self);
    assert_int_equal(atomic_load(&self.requests), 0);
}

static void a_client_that_goes_is_noticed_before_any_answer(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    start(&self, &options);
    int fd = dial(&self);
    say(fd, GET("/wait?60000"));
    reaches(&self.requests, 1, "requests");
    uint64_t before = pgl_now_ns();
    close(fd);
    reaches(&self.gone, 1, "gone");
    assert_true(pgl_now_ns() - before < 1000 * MS);
    /* With a reset instead of an orderly end. */
    fd = dial(&self);
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    say(fd, GET("/wait?60000"));
    reaches(&self.requests, 2, "requests");
    close(fd);
    reaches(&self.gone, 2, "gone");
    /* While it has requests waiting behind the one that is answered. */
    fd = dial(&self);
    say(fd, GET("/wait?60000"));
    reaches(&self.requests, 3, "requests");
    for (int i = 0; i < 4096; i++)
        say(fd, GET("/echo"));
    close(fd);
    reaches(&self.gone, 3, "gone");
    stop(&self);
}

static void a_client_that_goes_is_noticed_during_a_stream(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    start(&self, &options);
    int fd = dial(&self);
    say(fd, GET("/silence?60000"));
    expect_answer(fd, "\r\n\r\n");
    close(fd);
    reaches(&self.gone, 1, "gone");
    stop(&self);
}

static void a_client_that_only_closed_its_sending_side_is_served(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    start(&self, &options);
    static const char *const requests[] = {GET("/wait?400"),
                                           GET("/silence?400"),
                                           "GET /wait?400 HTTP/1.0\r\n\r\n",
                                           "GET /silence?400 HTTP/1.0\r\n\r\n",
                                           GET("/echo"),
                                           GET("/refuse")};
    static const char *const ends[] = {"waited", "data: x\n\n", "waited", "data: x\n\n", "200 OK", "401"};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        int fd = dial(&self);
        say(fd, requests[i]);
        shutdown(fd, SHUT_WR);
        pgl_buf text = PGL_BUF_INIT;
        hear(fd, NULL, &text);
        assert_non_null(strstr(pgl_buf_text(&text), ends[i]));
        if (strstr(requests[i], "HTTP/1.0")) {
            assert_null(strstr(text.data, "100 Continue"));
            assert_null(strstr(text.data, "chunked"));
        }
        pgl_buf_fini(&text);
        close(fd);
    }
    stop(&self);
    assert_int_equal(atomic_load(&self.gone), 0);
}

static void silent_streams_get_comments_between_events(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    options.comment_ns = 50 * MS;
    start(&self, &options);
    int fd = dial(&self);
    say(fd, GET("/silence?400"));
    pgl_buf text = PGL_BUF_INIT;
    hear(fd, "0\r\n\r\n", &text);
    assert_in_range(count_of(text.data, "\r\n: keep-alive\n\n\r\n"), 2, 8);
    close(fd);
    pgl_buf_fini(&text);
    stop(&self);
}

/* The chunks of a flood of n blocks, put together: nothing lost, doubled or out of place, however it was cut in sending. */
static void expect_flood(const pgl_buf *text, unsigned n) {
    const char *at = strstr(pgl_buf_text(text), "\r\n\r\n");
    size_t seen = 0;
    assert_non_null(at);
    at += 4;
    for (;;) {
        char *end;
        unsigned long size = strtoul(at, &end, 16);
        assert_true(end > at && strncmp(end, "\r\n", 2) == 0);
        at = end + 2;
        assert_true(size <= (size_t)(text->data + text->size - at));
        if (size == 0)
            break;
        for (unsigned long i = 0; i < size; i++, seen++)
            if (at[i] != (char)('a' + (int)(seen / 65536 % 26)))
                fail_msg("byte %zu is '%c'", seen, at[i]);
        at += size;
        assert_true(strncmp(at, "\r\n", 2) == 0);
        at += 2;
    }
    assert_int_equal(seen, (size_t)n * 65536);
}

static void a_slow_reader_is_paused_and_one_that_stopped_is_dropped(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    options.write_timeout_ns = 400 * MS;
    start(&self, &options);
    int fd = dial(&self);
    say(fd, GET("/flood?320"));
    usleep(100000);
    pgl_buf text = PGL_BUF_INIT;
    hear(fd, "0\r\n\r\n", &text);
    expect_flood(&text, 320);
    assert_true(atomic_load(&self.room) > 0);
    close(fd);
    pgl_buf_fini(&text);
    fd = dial(&self);
    say(fd, GET("/flood?100000"));
    reaches(&self.gone, 1, "gone");
    int other = dial(&self);
    say(other, GET("/echo"));
    expect_answer(other, "200 OK");
    close(other);
    close(fd);
    stop(&self);
}

static void slow_heads_bodies_and_idle_connections_end(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    options.head_timeout_ns = options.body_timeout_ns = options.idle_timeout_ns = 150 * MS;
    start(&self, &options);
    static const char *const texts[] = {"GET / HT",
                                        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab", ""};
    static const char *const answers[] = {"408", "408", ""};
    for (size_t i = 0; i < 3; i++) {
        int fd = dial(&self);
        say(fd, texts[i]);
        pgl_buf text = PGL_BUF_INIT;
        hear(fd, NULL, &text);
        if (answers[i][0])
            assert_non_null(strstr(pgl_buf_text(&text), answers[i]));
        else
            assert_int_equal(text.size, 0);
        pgl_buf_fini(&text);
        close(fd);
    }
    /* A byte now and then does not help a head; a body may take its time as long as it moves. */
    int fd = dial(&self);
    const char *head = "GET / HTTP/1.1\r\nHost: h\r\n";
    uint64_t before = pgl_now_ns();
    for (size_t i = 0; head[i] && send(fd, head + i, 1, MSG_NOSIGNAL) == 1; i++)
        usleep(20000);
    pgl_buf text = PGL_BUF_INIT;
    hear(fd, NULL, &text);
    assert_true(pgl_now_ns() - before < patience_ms() * MS);
    close(fd);
    pgl_buf_fini(&text);
    stop(&self);
}

static void idle_connections_make_room_at_the_limit(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    options.max_connections = 8;
    start(&self, &options);
    int idle[40];
    for (int i = 0; i < 40; i++)
        idle[i] = dial(&self);
    int fd = dial(&self);
    say(fd, GET("/echo"));
    expect_answer(fd, "200 OK");
    assert_true(pgl_http_get_figures(self.server).connections <= 8);
    /* All taken by requests at work: the next is told so. */
    int busy[8];
    for (unsigned i = 0; i < 8; i++) {
        busy[i] = dial(&self);
        say(busy[i], GET("/wait?60000"));
        reaches(&self.requests, 2 + i, "requests");
    }
    int last = dial(&self);
    say(last, GET("/echo"));
    pgl_buf text = PGL_BUF_INIT;
    hear(last, "overloaded", &text);
    assert_non_null(strstr(text.data, "Retry-After: 1"));
    pgl_buf_fini(&text);
    close(last);
    for (int i = 0; i < 8; i++)
        close(busy[i]);
    for (int i = 0; i < 40; i++)
        close(idle[i]);
    close(fd);
    reaches(&self.gone, 8, "gone");
    stop(&self);
}

static void bodies_together_are_bounded(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    options.max_held_body_bytes = 1 << 20;
    start(&self, &options);
    static char block[700 << 10];
    int one = dial(&self), two = dial(&self);
    const char *head = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 800000\r\n\r\n";
    say(one, head);
    assert_int_equal(send(one, block, sizeof block, MSG_NOSIGNAL), (ssize_t)sizeof block);
    uint64_t end = pgl_now_ns() + patience_ms() * MS;
    while (pgl_http_get_figures(self.server).held_body_bytes < sizeof block && pgl_now_ns() < end)
        usleep(1000);
    say(two, head);
    assert_int_equal(send(two, block, sizeof block, MSG_NOSIGNAL), (ssize_t)sizeof block);
    expect_answer(two, "503 Service Unavailable");
    close(one);
    close(two);
    while (pgl_http_get_figures(self.server).held_body_bytes > 0 && pgl_now_ns() < end)
        usleep(1000);
    assert_int_equal(pgl_http_get_figures(self.server).held_body_bytes, 0);
    stop(&self);
}

static void bodies_that_were_answered_are_not_counted_any_more(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    start(&self, &options);
    int fd = dial(&self);
    for (int i = 0; i < 4; i++) {
        say(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
        usleep(20000);
        say(fd, "def");
        usleep(20000);
        say(fd, "ghi");
        expect_answer(fd, "\r\n\r\nabcdefghi");
        say(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
        expect_answer(fd, "\r\n\r\nabc");
    }
    close(fd);
    uint64_t end = pgl_now_ns() + patience_ms() * MS;
    while (pgl_http_get_figures(self.server).exchanges > 0 && pgl_now_ns() < end)
        usleep(1000);
    assert_int_equal(pgl_http_get_figures(self.server).held_body_bytes, 0);
    stop(&self);
}

static void draining_finishes_what_runs_and_answers_once_a_connection(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    start(&self, &options);
    int idle = dial(&self), fd = dial(&self);
    say(fd, GET("/stream?10"));
    expect_answer(fd, "data: 0");
    pgl_http_drain(self.server);
    pgl_buf text = PGL_BUF_INIT;
    hear(idle, NULL, &text);
    assert_int_equal(text.size, 0);
    int looks = dial(&self), silent = dial(&self), waits = dial(&self);
    say(looks, GET("/echo"));
    hear(looks, NULL, &text);
    assert_non_null(strstr(text.data, "HTTP/1.1 200"));
    assert_non_null(strstr(text.data, "Connection: close\r\n"));
    say(waits, GET("/wait?60000"));
    reaches(&self.requests, 3, "requests");
    assert_false(pgl_http_wait_drained(self.server, 0));
    hear(fd, "0\r\n\r\n", &text);
    assert_non_null(strstr(text.data, "data: 9\n\n"));
    assert_true(pgl_http_wait_drained(self.server, patience_ms() * MS)); /* not for what came since */
    assert_false(pgl_http_wait_idle(self.server, 0));
    close(looks);
    close(silent);
    close(waits);
    pgl_http_stop_listening(self.server);
    usleep(100000);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(self.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int late = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_not_equal(connect(late, (struct sockaddr *)&address, sizeof address), 0);
    close(late);
    close(fd);
    close(idle);
    pgl_buf_fini(&text);
    stop(&self);
}

static void closing_drops_what_runs_and_tells_it(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    start(&self, &options);
    int fd = dial(&self), two = dial(&self);
    say(fd, GET("/wait?60000"));
    say(two, GET("/silence?60000"));
    reaches(&self.requests, 2, "requests");
    stop(&self);
    assert_int_equal(atomic_load(&self.gone), 2);
    assert_int_equal(atomic_load(&self.done), 2);
    close(fd);
    close(two);
}

static void request_ids_come_back_when_they_are_harmless(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    start(&self, &options);
    int fd = dial(&self);
    say(fd, "GET /echo HTTP/1.1\r\nHost: h\r\nX-Request-Id: abc-1.2:3_4\r\n\r\n");
    expect_answer(fd, "X-Request-Id: abc-1.2:3_4\r\n");
    static const char *const bad[] = {"a b", "a\"b", "", "<x>", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        snprintf(text, sizeof text, "GET /echo HTTP/1.1\r\nHost: h\r\nX-Request-Id: %s\r\n\r\n", bad[i]);
        say(fd, text);
        expect_answer(fd, "X-Request-Id: req_");
        int flush = dial(&self); /* one exchange in between, so that ids differ */
        say(flush, GET("/echo"));
        expect_answer(flush, "X-Request-Id: req_");
        close(flush);
    }
    close(fd);
    stop(&self);
}

static void a_port_in_use_is_said_when_binding(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    start(&self, &options);
    pgl_http_sockets sockets;
    pgl_error err;
    assert_int_equal(pgl_http_bind("127.0.0.1", self.port, &sockets, &err), PGL_E_BUSY);
    assert_non_null(strstr(err.text, "in use"));
    assert_int_equal(pgl_http_bind("no.such.host.invalid", 0, &sockets, &err), PGL_E_INVALID);
    assert_int_equal(pgl_http_bind("0.0.0.0", 0, &sockets, &err), PGL_OK);
    assert_false(sockets.loopback_only);
    pgl_http_unbind(&sockets);
    stop(&self);
}

static void head_has_the_length_and_no_body(void **state) {
    (void)state;
    app self;
    pgl_http_options options = pgl_http_default_options();
    start(&self, &options);
    int fd = dial(&self);
    say(fd, "HEAD /refuse HTTP/1.1\r\nHost: h\r\n\r\n" GET("/echo"));
    pgl_buf text = PGL_BUF_INIT;
    hear(fd, "X-Test: /echo", &text);
    assert_non_null(strstr(text.data, "Content-Length: 2\r\n"));
    assert_non_null(strstr(text.data, "\r\n\r\nHTTP/1.1 200"));
    close(fd);
    pgl_buf_fini(&text);
    stop(&self);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelined_requests_are_answered_in_order),
        cmocka_unit_test(expect_100_is_answered_or_refused_without_the_body),
        cmocka_unit_test(a_refused_body_leaves_the_connection_in_step),
        cmocka_unit_test(a_large_refused_body_gets_its_answer_and_the_end),
        cmocka_unit_test(a_client_that_goes_is_noticed_before_any_answer),
        cmocka_unit_test(a_client_that_goes_is_noticed_during_a_stream),
        cmocka_unit_test(a_client_that_only_closed_its_sending_side_is_served),
        cmocka_unit_test(silent_streams_get_comments_between_events),
        cmocka_unit_test(a_slow_reader_is_paused_and_one_that_stopped_is_dropped),
        cmocka_unit_test(slow_heads_bodies_and_idle_connections_end),
        cmocka_unit_test(idle_connections_make_room_at_the_limit),
        cmocka_unit_test(bodies_together_are_bounded),
        cmocka_unit_test(bodies_that_were_answered_are_not_counted_any_more),
        cmocka_unit_test(draining_finishes_what_runs_and_answers_once_a_connection),
        cmocka_unit_test(closing_drops_what_runs_and_tells_it),
        cmocka_unit_test(request_ids_come_back_when_they_are_harmless),
        cmocka_unit_test(a_port_in_use_is_said_when_binding),
        cmocka_unit_test(head_has_the_length_and_no_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
