#include "server/request_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/queue.h"

#define MOST_LINES 8192
#define MOST_WAITING_BYTES ((size_t)64 << 20)
#define PIECE_BYTES 4096 /* a pipe that is ready takes so many without blocking */
#define CLOSE_NS 1000000000u
#define COMPLAIN_NS 60000000000u

struct pgl_request_log {
    /* fixed after open */
    char *path; /* NULL: standard output */
    pgl_queue *queue;
    pthread_t thread;

    /* the writer's */
    int fd;
    bool torn; /* the last line was written in part */
    uint64_t complained_ns;

    atomic_bool reopen;
    atomic_uint_fast64_t give_up_ns; /* when to stop trying; UINT64_MAX: never */
    atomic_size_t waiting_bytes;
    atomic_uint_fast64_t written, dropped, failed;
};

static pgl_status open_file(const char *path, int *fd, pgl_error *err) {
    /* Without blocking: a pipe without a reader is an error, not a wait. */
    int opened = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    if (opened < 0)
        return pgl_fail(err, PGL_E_IO, "the request log %s cannot be opened for writing: %s", path,
                        strerror(errno));
    *fd = opened;
    return PGL_OK;
}

/* ---- the writer ---- */

/* Not more than once a minute: a full disk meets every line. */
static void complain(pgl_request_log *log, const char *text) {
    uint64_t now = pgl_now_ns();
    if (log->complained_ns != 0 && now - log->complained_ns < COMPLAIN_NS)
        return;
    log->complained_ns = now;
    pgl_log(PGL_LOG_WARN, "requests", "%s", text);
}

static void reopen_file(pgl_request_log *log) {
    int fd = -1;
    pgl_error err;
    if (!log->path || !atomic_exchange(&log->reopen, false))
        return;
    if (open_file(log->path, &fd, &err) != PGL_OK) {
        pgl_log(PGL_LOG_WARN, "requests", "%s; the old file goes on", err.text);
        return;
    }
    close(log->fd);
    log->fd = fd;
    log->torn = false;
}

/* Waits until the file takes bytes; false when it is time to give up. */
static bool ready(pgl_request_log *log) {
    for (;;) {
        struct pollfd look = {.fd = log->fd, .events = POLLOUT};
        bool late = pgl_now_ns() >= atomic_load(&log->give_up_ns);
        if (poll(&look, 1, late ? 0 : 100) > 0)
            return true;
        if (late)
            return false;
    }
}

static bool write_bytes(pgl_request_log *log, const char *data, size_t size) {
    size_t done = 0;
    while (done < size && ready(log)) {
        size_t piece = size - done < PIECE_BYTES ? size - done : PIECE_BYTES;
        ssize_t n = write(log->fd, data + done, piece);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0) {
            pgl_error err;
            (void)pgl_fail(&err, PGL_E_IO, "the request log cannot be written: %s", strerror(errno));
            complain(log, err.text);
            break;
        }
        done += (size_t)n;
    }
    log->torn = (log->torn || done > 0) && done < size;
    return done == size;
}

/* A line that was cut by an error is ended, so that it does not take the next one with it. */
static bool write_line(pgl_request_log *log, const pgl_buf *line) {
    return (!log->torn || write_bytes(log, "\n", 1)) && write_bytes(log, line->data, line->size);
}

static void *run(void *arg) {
    pgl_request_log *log = arg;
    for (;;) {
        pgl_buf *line = pgl_queue_take(log->queue, UINT64_MAX);
        reopen_file(log);
        if (!line && atomic_load(&log->give_up_ns) != UINT64_MAX)
            return NULL;
        if (!line)
            continue;
        atomic_fetch_sub(&log->waiting_bytes, line->size);
        atomic_fetch_add(write_line(log, line) ? &log->written : &log->failed, 1);
        pgl_buf_fini(line);
        free(line);
    }
}

/* ---- any thread ---- */

void pgl_request_log_lost(pgl_request_log *log) {
    atomic_fetch_add(&log->dropped, 1);
}

void pgl_request_log_put(pgl_request_log *log, pgl_buf *line) {
    pgl_buf *own = pgl_new(1, sizeof *own);
    size_t size = line->size;
    bool room = own && atomic_fetch_add(&log->waiting_bytes, size) + size <= MOST_WAITING_BYTES;
    if (own) {
        *own = *line;
        *line = (pgl_buf)PGL_BUF_INIT;
    }
    if (room && pgl_queue_put(log->queue, own) == PGL_OK)
        return;
    pgl_request_log_lost(log);
    if (own) {
        atomic_fetch_sub(&log->waiting_bytes, size);
        pgl_buf_fini(own);
        free(own);
    }
    pgl_buf_fini(line);
}

void pgl_request_log_reopen(pgl_request_log *log) {
    atomic_store(&log->reopen, true);
    pgl_queue_wake(log->queue);
}

pgl_request_log_figures pgl_request_log_get_figures(const pgl_request_log *log) {
    return (pgl_request_log_figures){.written = atomic_load(&log->written),
                                     .dropped = atomic_load(&log->dropped),
                                     .failed = atomic_load(&log->failed)};
}

/* ---- life ---- */

static void free_log(pgl_request_log *log) {
    if (log->path && log->fd >= 0)
        close(log->fd);
    pgl_queue_close(log->queue);
    free(log->path);
    free(log);
}

static pgl_status start(pgl_request_log *log, pgl_error *err) {
    sigset_t block, before;
    sigfillset(&block);
    pthread_sigmask(SIG_BLOCK, &block, &before);
    int code = pthread_create(&log->thread, NULL, run, log);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return pgl_fail(err, PGL_E_MEMORY, "the thread of the request log cannot be started: %s",
                        strerror(code));
    return PGL_OK;
}

pgl_status pgl_request_log_open(const char *path, pgl_request_log **out, pgl_error *err) {
    pgl_request_log *log = pgl_new(1, sizeof *log);
    if (!log)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the request log");
    log->fd = STDOUT_FILENO;
    atomic_init(&log->give_up_ns, UINT64_MAX);
    pgl_status status = pgl_queue_open(MOST_LINES, &log->queue, err);
    if (status == PGL_OK && strcmp(path, "-") != 0) {
        log->fd = -1;
        log->path = pgl_strndup(path, strlen(path));
        status = log->path ? open_file(path, &log->fd, err)
                           : pgl_fail(err, PGL_E_MEMORY, "no memory for the request log");
    }
    if (status == PGL_OK)
        status = start(log, err);
    if (status != PGL_OK) {
        free_log(log);
        return status;
    }
    *out = log;
    return PGL_OK;
}

void pgl_request_log_close(pgl_request_log *log) {
    if (!log)
        return;
    atomic_store(&log->give_up_ns, pgl_now_ns() + CLOSE_NS);
    pgl_queue_shut(log->queue);
    pthread_join(log->thread, NULL);
    free_log(log);
}
