#include "base/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define N_PLACES 1024

/* What the signal handler reads. A place is filled under the lock: path and size first, then end, then begin;
 * a zero begin means free. It is emptied in the other order before the mapping goes. */
typedef struct place {
    atomic_uintptr_t begin, end;
    _Atomic(char *) path;
} place;

static place places[N_PLACES];
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static bool handler_installed;           /* guarded by places_lock */
static struct sigaction previous_action; /* fixed before the handler can run */
static const uint8_t empty_file[1];

static void put_text(char *line, size_t *n, size_t capacity, const char *text) {
    while (*text != 0 && *n < capacity)
        line[(*n)++] = *text++;
}

static void put_number(char *line, size_t *n, size_t capacity, uint64_t value) {
    char digits[20];
    size_t k = 0;
    do {
        digits[k++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (k > 0 && *n < capacity)
        line[(*n)++] = digits[--k];
}

static void report_and_exit(const char *path, uintptr_t offset, uintptr_t size) {
    char line[4608];
    size_t n = 0;
    size_t room = sizeof line;
    struct stat st;
    put_text(line, &n, room, "pergola: fatal: ");
    put_text(line, &n, room, path);
    put_text(line, &n, room, ": cannot be read any more at byte ");
    put_number(line, &n, room, offset);
    put_text(line, &n, room, ": it had ");
    put_number(line, &n, room, size);
    put_text(line, &n, room, " bytes when it was opened");
    if (stat(path, &st) == 0) {
        put_text(line, &n, room, " and has ");
        put_number(line, &n, room, (uint64_t)st.st_size);
        put_text(line, &n, room, " now");
    }
    put_text(line, &n, room, "; it was cut or replaced in place while in use, or its disk failed\n");
    ssize_t ignored = write(STDERR_FILENO, line, n);
    (void)ignored;
    _exit(PGL_MAPPED_LOST_EXIT);
}

static void on_sigbus(int number, siginfo_t *info, void *context) {
    uintptr_t address = (uintptr_t)info->si_addr;
    for (int i = 0; i < N_PLACES; i++) {
        uintptr_t begin = atomic_load(&places[i].begin);
        if (begin == 0 || address < begin)
            continue;
        uintptr_t end = atomic_load(&places[i].end);
        if (address < end)
            report_and_exit(atomic_load(&places[i].path), address - begin, end - begin);
    }
    if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
        previous_action.sa_sigaction(number, info, context);
    } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
        previous_action.sa_handler(number);
    } else {
        /* the access is tried again after the return, and the default action ends the process */
        struct sigaction standard;
        memset(&standard, 0, sizeof standard);
        standard.sa_handler = SIG_DFL;
        sigaction(SIGBUS, &standard, NULL);
        if (info->si_code <= 0) /* sent by a process: no access will be tried again */
            raise(SIGBUS);
    }
}

static int install_handler(void) {
    if (handler_installed)
        return 0;
    if (sigaction(SIGBUS, NULL, &previous_action) != 0)
        return errno;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, NULL) != 0)
        return errno;
    handler_installed = true;
    return 0;
}

/* Takes path. */
static pgl_status enter(char *path, pgl_mapped *mapped, pgl_error *err) {
    pgl_status status = PGL_OK;
    pthread_mutex_lock(&places_lock);
    int number = install_handler();
    int i = 0;
    while (i < N_PLACES && atomic_load(&places[i].path) != NULL)
        i++;
    if (number != 0) {
        status =
            pgl_fail(err, PGL_E_IO, "%s: cannot install a handler for SIGBUS: %s", path, strerror(number));
    } else if (i == N_PLACES) {
        status = pgl_fail(err, PGL_E_TOO_LARGE, "%s: %d files are mapped already", path, N_PLACES);
    } else {
        atomic_store(&places[i].path, path);
        atomic_store(&places[i].end, (uintptr_t)mapped->data + mapped->size);
        atomic_store(&places[i].begin, (uintptr_t)mapped->data);
        mapped->place = i;
    }
    pthread_mutex_unlock(&places_lock);
    if (status != PGL_OK)
        free(path);
    return status;
}

static pgl_status map_open_file(int fd, const char *path, pgl_mapped *out, pgl_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return pgl_fail(err, PGL_E_IO, "%s: cannot look at it: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return pgl_fail(err, PGL_E_IO, "%s: not a regular file", path);
    if ((uintmax_t)st.st_size > SIZE_MAX / 2)
        return pgl_fail(err, PGL_E_TOO_LARGE, "%s: too large to map", path);
    if (st.st_size == 0) {
        out->data = empty_file;
        return PGL_OK;
    }
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return pgl_fail(err, errno == ENOMEM ? PGL_E_MEMORY : PGL_E_IO, "%s: cannot map %lld bytes: %s", path,
                        (long long)st.st_size, strerror(errno));
    out->data = data;
    out->size = (size_t)st.st_size;
    char *copy = pgl_strndup(path, strlen(path));
    pgl_status status = copy == NULL ? pgl_fail(err, PGL_E_MEMORY, "%s: out of memory while mapping it", path)
                                     : enter(copy, out, err);
    if (status != PGL_OK) {
        munmap(data, out->size);
        *out = (pgl_mapped)PGL_MAPPED_INIT;
    }
    return status;
}

pgl_status pgl_mapped_open(const char *path, pgl_mapped *out, pgl_error *err) {
    *out = (pgl_mapped)PGL_MAPPED_INIT;
    /* O_NONBLOCK: opening a named pipe must not wait for a writer */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return pgl_fail(err, errno == ENOENT ? PGL_E_NOT_FOUND : PGL_E_IO, "%s: cannot open it: %s", path,
                        strerror(errno));
    pgl_status status = map_open_file(fd, path, out, err);
    close(fd); /* the mapping keeps the file */
    return status;
}

void pgl_mapped_close(pgl_mapped *mapped) {
    if (mapped->place >= 0) {
        place *p = &places[mapped->place];
        pthread_mutex_lock(&places_lock);
        atomic_store(&p->begin, 0);
        atomic_store(&p->end, 0);
        free(atomic_exchange(&p->path, NULL));
        pthread_mutex_unlock(&places_lock);
        munmap((void *)(uintptr_t)mapped->data, mapped->size);
    }
    *mapped = (pgl_mapped)PGL_MAPPED_INIT;
}

pgl_status pgl_mapped_advise(const pgl_mapped *mapped, size_t offset, size_t size, pgl_mapped_use use,
                             pgl_error *err) {
    static const int ADVICE[] = {[PGL_MAPPED_RANDOM] = MADV_RANDOM,
                                 [PGL_MAPPED_SEQUENTIAL] = MADV_SEQUENTIAL,
                                 [PGL_MAPPED_SOON] = MADV_WILLNEED,
                                 [PGL_MAPPED_NOW] = MADV_POPULATE_READ,
                                 [PGL_MAPPED_DONE] = MADV_DONTNEED};
    if (offset >= mapped->size || size == 0)
        return PGL_OK;
    if (size > mapped->size - offset)
        size = mapped->size - offset;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t lead = offset % page;
    uint8_t *start = (uint8_t *)(uintptr_t)mapped->data + (offset - lead);
    if (madvise(start, size + lead, ADVICE[use]) == 0 || use != PGL_MAPPED_NOW)
        return PGL_OK;
    if (errno == EINVAL) { /* a kernel before 5.14: touch every page instead */
        volatile uint8_t sink = 0;
        for (size_t i = 0; i < size; i += page)
            sink ^= mapped->data[offset + i];
        (void)sink;
        return PGL_OK;
    }
    return pgl_fail(err, errno == ENOMEM ? PGL_E_MEMORY : PGL_E_IO,
                    "cannot read %zu bytes of a mapped file at %zu: %s", size, offset, strerror(errno));
}

pgl_status pgl_mapped_lock(const pgl_mapped *mapped, pgl_error *err) {
    if (mapped->size == 0 || mlock(mapped->data, mapped->size) == 0)
        return PGL_OK;
    int number = errno;
    struct rlimit limit = {0, 0};
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    return pgl_fail(err, PGL_E_MEMORY,
                    "cannot lock %zu bytes in memory: %s (this process may lock %llu bytes)", mapped->size,
                    strerror(number), (unsigned long long)limit.rlim_cur);
}
