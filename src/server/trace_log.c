#include "server/trace_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/queue.h"

#define MOST_WAITING 1024
#define MOST_WAITING_BYTES ((size_t)64 << 20)
#define CLOSE_NS 2000000000u
#define COMPLAIN_NS 60000000000u

struct pgl_trace_log {
    /* fixed after open */
    int directory;
    uint64_t most_bytes;
    pgl_queue *queue;
    pthread_t thread;

    /* the writer's */
    uint64_t number, complained_ns;

    atomic_uint_fast64_t give_up_ns; /* when to stop writing; UINT64_MAX: never */
    atomic_size_t waiting_bytes;
    atomic_uint_fast64_t written, lost, bytes;
};

/* ---- the writer ---- */

/* Not more than once a minute: a full disk meets every trace. */
static void complain(pgl_trace_log *log, const char *what, const char *why) {
    uint64_t now = pgl_now_ns();
    if (log->complained_ns != 0 && now - log->complained_ns < COMPLAIN_NS)
        return;
    log->complained_ns = now;
    pgl_log(PGL_LOG_WARN, "trace", "%s: %s", what, why);
}

/* "20260131T235959-PID-000012.json" */
static void make_name(pgl_trace_log *log, char *out, size_t capacity) {
    time_t now = time(NULL);
    struct tm utc;
    char day[32] = "";
    if (gmtime_r(&now, &utc) != NULL)
        (void)strftime(day, sizeof day, "%Y%m%dT%H%M%S", &utc);
    (void)snprintf(out, capacity, "%s-%ld-%06" PRIu64 ".json", day, (long)getpid(), ++log->number);
}

static bool write_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

static bool write_file(pgl_trace_log *log, const pgl_buf *text) {
    char name[96], part[112];
    make_name(log, name, sizeof name);
    (void)snprintf(part, sizeof part, "%s.part", name);
    int fd = openat(log->directory, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        complain(log, "a trace cannot be made", strerror(errno));
        return false;
    }
    bool fine = write_all(fd, text->data, text->size);
    int error = errno;
    if (close(fd) != 0 && fine) {
        fine = false;
        error = errno;
    }
    if (fine && renameat(log->directory, part, log->directory, name) != 0) {
        fine = false;
        error = errno;
    }
    if (!fine) {
        (void)unlinkat(log->directory, part, 0);
        complain(log, "a trace cannot be written", strerror(error));
    }
    return fine;
}

static bool take(pgl_trace_log *log, const pgl_buf *text) {
    if (pgl_now_ns() >= atomic_load(&log->give_up_ns))
        return false;
    if (atomic_load(&log->bytes) + text->size > log->most_bytes) {
        complain(log, "no more traces", "the directory's budget is used up (--trace-max)");
        return false;
    }
    if (!write_file(log, text))
        return false;
    (void)atomic_fetch_add(&log->bytes, text->size);
    return true;
}

static void *run(void *arg) {
    pgl_trace_log *log = arg;
    for (pgl_buf *text; (text = pgl_queue_take(log->queue, UINT64_MAX)) != NULL;) {
        (void)atomic_fetch_sub(&log->waiting_bytes, text->size);
        (void)atomic_fetch_add(take(log, text) ? &log->written : &log->lost, 1);
        pgl_buf_fini(text);
        free(text);
    }
    return NULL;
}

/* ---- any thread ---- */

void pgl_trace_log_lost(pgl_trace_log *log) {
    (void)atomic_fetch_add(&log->lost, 1);
}

void pgl_trace_log_put(pgl_trace_log *log, pgl_buf *text) {
    size_t size = text->size;
    pgl_buf *own = pgl_new(1, sizeof *own);
    bool room = atomic_fetch_add(&log->waiting_bytes, size) + size <= MOST_WAITING_BYTES;
    if (own != NULL)
        *own = *text;
    if (own != NULL && room && pgl_queue_put(log->queue, own) == PGL_OK) {
        *text = (pgl_buf)PGL_BUF_INIT;
        return;
    }
    (void)atomic_fetch_sub(&log->waiting_bytes, size);
    pgl_trace_log_lost(log);
    free(own);
    pgl_buf_fini(text);
}

pgl_trace_figures pgl_trace_log_get_figures(const pgl_trace_log *log) {
    return (pgl_trace_figures){.written = atomic_load(&log->written),
                               .lost = atomic_load(&log->lost),
                               .bytes = atomic_load(&log->bytes)};
}

/* ---- life ---- */

static pgl_status open_directory(const char *path, int *out, pgl_error *err) {
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return pgl_fail(err, PGL_E_IO, "the directory for traces, %s, cannot be made: %s", path,
                        strerror(errno));
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        int error = errno;
        if (fd >= 0)
            (void)close(fd);
        return pgl_fail(err, PGL_E_IO, "the directory for traces, %s, cannot be opened: %s", path,
                        strerror(error));
    }
    *out = fd;
    if (info.st_uid != geteuid())
        return pgl_fail(err, PGL_E_IO, "the directory for traces, %s, belongs to another user", path);
    if ((info.st_mode & 077) != 0)
        return pgl_fail(err, PGL_E_IO,
                        "the directory for traces, %s, has mode %03o: traces hold what users wrote, expected "
                        "700 (chmod 700 %s)",
                        path, (unsigned)(info.st_mode & 0777), path);
    return PGL_OK;
}

static void free_log(pgl_trace_log *log) {
    if (log->directory >= 0)
        (void)close(log->directory);
    pgl_queue_close(log->queue);
    free(log);
}

static pgl_status start(pgl_trace_log *log, pgl_error *err) {
    sigset_t block, before;
    (void)sigfillset(&block);
    (void)pthread_sigmask(SIG_BLOCK, &block, &before);
    int code = pthread_create(&log->thread, NULL, run, log);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return pgl_fail(err, PGL_E_MEMORY, "the thread of the traces cannot be started: %s", strerror(code));
    return PGL_OK;
}

pgl_status pgl_trace_log_open(const char *directory, uint64_t most_bytes, pgl_trace_log **out,
                              pgl_error *err) {
    *out = NULL;
    pgl_trace_log *log = pgl_new(1, sizeof *log);
    if (log == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the traces");
    log->directory = -1;
    log->most_bytes = most_bytes;
    atomic_init(&log->give_up_ns, UINT64_MAX);
    pgl_status status = pgl_queue_open(MOST_WAITING, &log->queue, err);
    if (status == PGL_OK)
        status = open_directory(directory, &log->directory, err);
    if (status == PGL_OK)
        status = start(log, err);
    if (status != PGL_OK) {
        free_log(log);
        return status;
    }
    *out = log;
    return PGL_OK;
}

void pgl_trace_log_close(pgl_trace_log *log) {
    if (log == NULL)
        return;
    atomic_store(&log->give_up_ns, pgl_now_ns() + CLOSE_NS);
    pgl_queue_shut(log->queue);
    (void)pthread_join(log->thread, NULL);
    free_log(log);
}
