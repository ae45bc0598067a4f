#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"

#define MOST_BYTES 4096

static const char *const NAMES[] = {"error", "warn", "info", "debug"};

static atomic_int log_least = PGL_LOG_INFO;
static atomic_bool log_json = false;
static atomic_int log_fd = STDERR_FILENO;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER; /* one line at a time */

void pgl_log_setup(pgl_log_level least, bool json, int fd) {
    atomic_store(&log_least, (int)least);
    atomic_store(&log_json, json);
    atomic_store(&log_fd, fd);
}

bool pgl_log_level_of(const char *name, pgl_log_level *out) {
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strcmp(name, NAMES[i]) == 0) {
            *out = (pgl_log_level)i;
            return true;
        }
    }
    return false;
}

bool pgl_log_enabled(pgl_log_level level) {
    return (int)level <= atomic_load(&log_least);
}

static void write_all(const char *data, size_t size) {
    int fd = atomic_load(&log_fd);
    pthread_mutex_lock(&log_lock);
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break; /* there is nowhere left to report it */
        data += n;
        size -= (size_t)n;
    }
    pthread_mutex_unlock(&log_lock);
}

void pgl_log(pgl_log_level level, const char *part, const char *format, ...) {
    if (!pgl_log_enabled(level))
        return;
    int saved = errno;
    char message[MOST_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    size_t size = n < 0 ? 0 : (size_t)n < sizeof message ? (size_t)n : sizeof message - 1;
    if ((size_t)n != size)
        size = pgl_utf8_valid_prefix(message, size);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)message[i] < 0x20 || message[i] == 0x7F)
            message[i] = ' ';

    char time[PGL_TIME_TEXT];
    pgl_wall_text(pgl_wall_ns(), time);
    pgl_buf line = PGL_BUF_INIT;
    bool ok;
    if (atomic_load(&log_json))
        ok = pgl_buf_printf(&line, "{\"time\":\"%s\",\"level\":\"%s\",\"part\":", time, NAMES[level]) &&
             pgl_json_put_string(&line, part, strlen(part)) && pgl_buf_puts(&line, ",\"message\":") &&
             pgl_json_put_string(&line, message, size) && pgl_buf_puts(&line, "}\n");
    else
        ok = pgl_buf_printf(&line, "%s %-5s %s: %.*s\n", time, NAMES[level], part, (int)size, message);
    if (ok)
        write_all(line.data, line.size);
    pgl_buf_fini(&line);
    errno = saved;
}
