/* pergola serve: opens the runtime, prints what is served and where, waits for a signal, ends in order. */
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/runtime.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/serve_options.h"
#include "server/server.h"

#define S 1000000000.0
#define MOST_WORDS 64u
#define KEY_FILE_BYTES ((size_t)1 << 20)

/* What lives until the end of the command. */
typedef struct serving {
    pgl_serve_options options;
    char model[4096];
    pgl_http_sockets sockets;
    bool bound;
    pgl_runtime *runtime;
    pgl_server *server;
    pgl_buf key_file;
    char *word_text[4]; /* copies that the words below point into */
    const char *keys[MOST_WORDS + 1], *names[MOST_WORDS], *origins[MOST_WORDS], *hosts[MOST_WORDS];
    size_t n_keys, n_names, n_origins, n_hosts;
    int n_ends_seen; /* signals to end that were acted on */
    pgl_error err;
} serving;

/* ---- signals: the handler counts, the main thread reads ---- */

static int signal_fd = -1;
static atomic_int n_end_signals, want_reopen;

static void on_signal(int number) {
    int saved = errno;
    if (number == SIGHUP)
        atomic_store(&want_reopen, 1);
    else
        atomic_fetch_add(&n_end_signals, 1);
    uint64_t one = 1;
    if (write(signal_fd, &one, sizeof one) < 0) {
        /* It is full of signals then: that is enough. */
    }
    errno = saved;
}

/* Without a request log SIGHUP keeps its meaning: the terminal is gone. */
static bool catch_signals(bool has_log) {
    signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    return signal_fd >= 0 && sigaction(SIGTERM, &action, NULL) == 0 &&
           sigaction(SIGINT, &action, NULL) == 0 && (!has_log || sigaction(SIGHUP, &action, NULL) == 0) &&
           signal(SIGPIPE, SIG_IGN) != SIG_ERR &&
           signal(SIGXFSZ, SIG_IGN) != SIG_ERR; /* a log that may not grow */
}

/* Waits for a signal, at most wait_ms (-1: for ever). True: it was one to end. */
static bool signalled(serving *s, int wait_ms) {
    struct pollfd look = {.fd = signal_fd, .events = POLLIN};
    uint64_t count;
    int ready;
    do
        ready = poll(&look, 1, wait_ms);
    while (ready < 0 && errno == EINTR); /* by the very signal: it is counted, and seen the next time round */
    if (ready > 0 && read(signal_fd, &count, sizeof count) < 0) {
        /* It was counted before: the flags below say what came. */
    }
    if (atomic_exchange(&want_reopen, 0))
        pgl_server_reopen_log(s->server);
    if (atomic_load(&n_end_signals) <= s->n_ends_seen)
        return false;
    s->n_ends_seen++;
    return true;
}

/* ---- the command line ---- */

/* "a,b" to words; false when there are too many. */
static bool split(const char *text, char **copy, const char **words, size_t *n) {
    if (!text)
        return true;
    *copy = pgl_strndup(text, strlen(text));
    char *rest = *copy;
    for (char *word = strsep(&rest, ","); word; word = strsep(&rest, ",")) {
        if (*word == '\0')
            continue;
        if (*n == MOST_WORDS)
            return false;
        words[(*n)++] = word;
    }
    return *copy != NULL;
}

static pgl_status read_words(serving *s) {
    const pgl_serve_options *o = &s->options;
    if (!split(o->keys, &s->word_text[0], s->keys, &s->n_keys) ||
        !split(o->names, &s->word_text[1], s->names, &s->n_names) ||
        !split(o->origins, &s->word_text[2], s->origins, &s->n_origins) ||
        !split(o->hosts, &s->word_text[3], s->hosts, &s->n_hosts))
        return pgl_fail(&s->err, PGL_E_INVALID, "a list on the command line has more than %u entries",
                        MOST_WORDS);
    /* Whoever may list processes sees their command lines: the key is not left there. */
    if (o->keys)
        explicit_bzero((char *)(uintptr_t)o->keys, strlen(o->keys));
    if (o->keys && s->n_keys == 0) /* it is no way to say that there is none */
        return pgl_fail(&s->err, PGL_E_INVALID, "api-key: expected a key, found none");
    if (!o->key_file)
        return PGL_OK;
    pgl_status status = pgl_fs_read(o->key_file, KEY_FILE_BYTES, &s->key_file, &s->err);
    if (status != PGL_OK) {
        pgl_error_prefix(&s->err, "api-key-file");
        return status;
    }
    size_t before = s->n_keys;
    s->n_keys += pgl_access_split_keys(s->key_file.data, s->keys + before, MOST_WORDS + 1 - before);
    if (s->n_keys > MOST_WORDS)
        return pgl_fail(&s->err, PGL_E_INVALID, "api-key-file: more than %u keys in all", MOST_WORDS);
    if (s->n_keys == before)
        return pgl_fail(&s->err, PGL_E_INVALID, "api-key-file: %s holds no key", o->key_file);
    return PGL_OK;
}

static pgl_status check_access(serving *s) {
    if (s->n_keys > 0 || s->sockets.loopback_only || s->options.allow_no_key)
        return PGL_OK;
    return pgl_fail(
        &s->err, PGL_E_INVALID,
        "host: %s would let other machines use this server, and it has no API key: give one with --api-key, "
        "--api-key-file or PERGOLA_API_KEY, or say --allow-no-key",
        s->options.host);
}

/* ---- opening ---- */

static pgl_status open_runtime(serving *s) {
    const pgl_serve_options *o = &s->options;
    pgl_runtime_options options = {.model = s->model,
                                   .backend = o->backend,
                                   .context = o->context,
                                   .n_slots = o->slots,
                                   .n_threads = o->threads,
                                   .memory_bytes = o->memory,
                                   .cache_bytes = o->cache,
                                   .host_cache_bytes = o->cache_host,
                                   .no_prefix_cache = o->prefix_cache == 0,
                                   .lock_memory = o->lock_memory,
                                   .max_queue = o->max_queue,
                                   .echo_step_ns = (uint64_t)(o->echo_step_ms * 1e6)};
    return pgl_runtime_open(&options, &s->runtime, &s->err);
}

static pgl_status open_server(serving *s) {
    const pgl_serve_options *o = &s->options;
    pgl_server_options options = {.runtime = s->runtime,
                                  .sockets = s->sockets,
                                  .http = pgl_http_default_options(),
                                  .access = {.keys = s->keys,
                                             .n_keys = s->n_keys,
                                             .origins = s->origins,
                                             .n_origins = s->n_origins,
                                             .hosts = s->hosts,
                                             .n_hosts = s->n_hosts,
                                             .loopback_only = s->sockets.loopback_only},
                                  .names = s->names,
                                  .n_names = (uint32_t)s->n_names,
                                  .thinking = !o->thinking ? -1 : strcmp(o->thinking, "on") == 0,
                                  .request_timeout_ns = (uint64_t)(o->request_timeout_s * S),
                                  .trace = o->trace,
                                  .trace_bytes = o->trace_max,
                                  .request_log = o->request_log,
                                  .log_prompts = o->log_prompts};
    options.http.limits.max_body_bytes = (size_t)o->max_body;
    options.http.max_connections = o->max_connections;
    options.http.head_timeout_ns = (uint64_t)(o->head_timeout_s * S);
    options.http.body_timeout_ns = (uint64_t)(o->body_timeout_s * S);
    options.http.idle_timeout_ns = (uint64_t)(o->idle_timeout_s * S);
    options.http.write_timeout_ns = (uint64_t)(o->write_timeout_s * S);
    options.http.comment_ns = (uint64_t)(o->keepalive_s * S);
    s->bound = false; /* the server closes the sockets from here on */
    return pgl_server_open(&options, &s->server, &s->err);
}

static void print_lines(FILE *to, const char *name, const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        (void)fprintf(to, "  %-10s %.*s\n", name, (int)n, text);
        text += n + (text[n] == '\n');
        name = "";
    }
}

static void print_block(const serving *s) {
    const pgl_serve_options *o = &s->options;
    /* Where the request log is data, it is alone on standard output. */
    FILE *to = o->request_log && strcmp(o->request_log, "-") == 0 ? stderr : stdout;
    const pgl_backend_caps *caps = pgl_runtime_caps(s->runtime);
    const char *host =
        strcmp(o->host, "0.0.0.0") == 0 || strcmp(o->host, "::") == 0 || strcmp(o->host, "[::]") == 0
            ? "127.0.0.1"
            : o->host;
    bool six = strchr(host, ':') != NULL && host[0] != '[';
    (void)fprintf(to, "pergola " PGL_VERSION " serves %s\n",
                  s->n_names ? s->names[0] : pgl_runtime_name(s->runtime));
    (void)fprintf(to, "  %-10s %s\n", "model", s->model);
    if (o->config)
        (void)fprintf(to, "  %-10s %s\n", "settings", o->config);
    (void)fprintf(to, "  %-10s %s: %s\n", "compute", caps->name, caps->detail);
    (void)fprintf(to, "  %-10s %u tokens a conversation, %u at the same time, prefix cache %s\n", "context",
                  pgl_runtime_context(s->runtime), caps->n_slots, o->prefix_cache == 0 ? "off" : "on");
    print_lines(to, "memory", pgl_runtime_plan(s->runtime));
    print_lines(to, "notes", pgl_runtime_notes(s->runtime));
    if (s->n_keys > 0)
        (void)fprintf(to, "  %-10s with an API key (%zu in use)\n", "access", s->n_keys);
    else
        (void)fprintf(to, "  %-10s no API key: %s\n", "access",
                      s->sockets.loopback_only ? "programs on this machine only"
                                               : "EVERYONE who reaches this port");
    (void)fprintf(to, "  %-10s http://%s%s%s:%u/v1\n", "address", six ? "[" : "", host, six ? "]" : "",
                  s->sockets.port);
    (void)fprintf(to, "ready; Ctrl-C ends it\n");
    /* A server whose output nobody reads serves all the same. */
    if (fflush(to) != 0) {
        pgl_log(PGL_LOG_WARN, "serve", "standard output could not be written: %s", strerror(errno));
        __fpurge(to);
        clearerr(to);
    }
}

/* ---- the end ---- */

/* The first signal drains, the second cuts what is left. */
static void wait_for_end(serving *s) {
    while (!signalled(s, -1)) {
    }
    pgl_log(PGL_LOG_INFO, "serve", "ending: no new requests, those that run may finish");
    pgl_server_start_drain(s->server);
    uint64_t end = pgl_now_ns() + (uint64_t)(s->options.drain_timeout_s * S);
    while (!pgl_server_wait_drained(s->server, 50000000)) {
        if (signalled(s, 0) || pgl_now_ns() >= end) {
            pgl_log(PGL_LOG_WARN, "serve", "cutting what still runs");
            return;
        }
    }
}

static void close_all(serving *s) {
    pgl_server_close(s->server);
    pgl_runtime_close(s->runtime);
    if (s->bound)
        pgl_http_unbind(&s->sockets);
    for (size_t i = 0; i < PGL_COUNT(s->word_text); i++) {
        if (s->word_text[i])
            explicit_bzero(s->word_text[i], strlen(s->word_text[i]));
        free(s->word_text[i]);
    }
    if (s->key_file.data)
        explicit_bzero(s->key_file.data, s->key_file.size);
    pgl_buf_fini(&s->key_file);
}

static pgl_status serve(serving *s) {
    pgl_status status = pgl_cli_raise_file_limit(&s->err);
    if (status == PGL_OK)
        status = read_words(s);
    if (status == PGL_OK)
        status = pgl_find_model(s->options.model, s->model, sizeof s->model, &s->err);
    /* The port before the model: one that is taken is said at once. */
    if (status == PGL_OK)
        status = pgl_http_bind(s->options.host, (uint16_t)s->options.port, &s->sockets, &s->err);
    if (status != PGL_OK)
        return status;
    s->bound = true;
    status = check_access(s);
    if (status == PGL_OK)
        status = open_runtime(s);
    if (status == PGL_OK && !catch_signals(s->options.request_log != NULL))
        status = pgl_fail(&s->err, PGL_E_IO, "signals cannot be caught: %s", strerror(errno));
    if (status == PGL_OK)
        status = open_server(s);
    if (status != PGL_OK)
        return status;
    print_block(s);
    wait_for_end(s);
    return PGL_OK;
}

/* Large blocks go back to the system when they are freed. (Left alone, the C library raises both limits to the largest
 * block that was ever freed, and one request of 30 MB leaves a server with hundreds of megabytes.) */
static void return_memory(void) {
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 4 << 20);
}

int pgl_cmd_serve(int argc, char **argv) {
    static serving s;
    int code;
    const pgl_serve_options *options = pgl_serve_options_parse(argc, argv, &code);
    if (!options)
        return code;
    s.options = *options;
    pgl_log_level level = PGL_LOG_INFO;
    if (pgl_log_level_of(options->log_level, &level))
        pgl_log_setup(level, false, STDERR_FILENO);
    return_memory();
    pgl_status status = serve(&s);
    if (status != PGL_OK)
        code = pgl_serve_options_fail(&s.err);
    else
        code = PGL_EXIT_OK;
    close_all(&s);
    pgl_serve_options_fini();
    return code;
}
