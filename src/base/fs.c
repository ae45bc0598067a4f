#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

static pgl_status fail_errno(pgl_error *err, const char *what, const char *path, int number) {
    return pgl_fail(err, number == ENOENT ? PGL_E_NOT_FOUND : PGL_E_IO, "%s: cannot %s: %s", path, what,
                    strerror(number));
}

static pgl_status read_open_file(int fd, const char *path, size_t max_bytes, pgl_buf *out, pgl_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail_errno(err, "look at it", path, errno);
    if (!S_ISREG(st.st_mode))
        return pgl_fail(err, PGL_E_IO, "%s: not a regular file", path);
    if ((uint64_t)st.st_size > max_bytes)
        return pgl_fail(err, PGL_E_TOO_LARGE, "%s: %lld bytes, at most %zu are read", path,
                        (long long)st.st_size, max_bytes);
    size_t start = out->size;
    size_t room = (size_t)st.st_size;
    for (;;) {
        size_t want = room < 4096 ? 4096 : room + 1; /* files of the kernel have no size */
        if (!pgl_buf_reserve(out, want))
            return pgl_fail(err, PGL_E_MEMORY, "%s: out of memory while reading it", path);
        ssize_t n = read(fd, out->data + out->size, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_errno(err, "read it", path, errno);
        out->size += (size_t)n;
        out->data[out->size] = 0;
        if (n == 0)
            return PGL_OK;
        if (out->size - start > max_bytes) /* it grew while we read */
            return pgl_fail(err, PGL_E_TOO_LARGE, "%s: more than the %zu bytes that are read", path,
                            max_bytes);
        room -= (size_t)n < room ? (size_t)n : room;
    }
}

pgl_status pgl_fs_read(const char *path, size_t max_bytes, pgl_buf *out, pgl_error *err) {
    /* O_NONBLOCK: opening a named pipe must not wait for a writer */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_errno(err, "open it", path, errno);
    size_t start = out->size;
    pgl_status status = read_open_file(fd, path, max_bytes, out, err);
    close(fd);
    if (status != PGL_OK && out->data != NULL) {
        out->size = start;
        out->data[start] = 0;
    }
    return status;
}

static int write_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

/* So that the rename itself survives a power cut. Some file systems cannot sync a directory; the data is safe
 * then. */
static void sync_directory_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *directory = slash == NULL ? pgl_strndup(".", 1) : pgl_strndup(path, (size_t)(slash - path) + 1);
    if (directory == NULL)
        return;
    int fd = open(directory, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(directory);
}

/* Creates a file beside path that did not exist, with the permissions any new file gets. Returns the
 * descriptor, or -1 with errno. */
static int create_beside(const char *path, pgl_buf *temporary) {
    for (unsigned attempt = 0; attempt < 100; attempt++) {
        pgl_buf_clear(temporary);
        uint64_t unique = pgl_wall_ns() ^ ((uint64_t)getpid() << 40) ^ attempt;
        if (!pgl_buf_printf(temporary, "%s.tmp-%016llx", path, (unsigned long long)unique)) {
            errno = ENOMEM;
            return -1;
        }
        int fd = open(temporary->data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

pgl_status pgl_fs_write(const char *path, const void *data, size_t size, pgl_error *err) {
    pgl_buf temporary = PGL_BUF_INIT;
    int fd = create_beside(path, &temporary);
    int number = fd < 0 ? errno : write_all(fd, data, size);
    if (fd >= 0) {
        if (number == 0 && fsync(fd) != 0)
            number = errno;
        if (close(fd) != 0 && number == 0)
            number = errno;
        if (number == 0 && rename(temporary.data, path) != 0)
            number = errno;
        if (number == 0)
            sync_directory_of(path);
        else
            (void)unlink(temporary.data);
    }
    pgl_buf_fini(&temporary);
    return number == 0 ? PGL_OK : fail_errno(err, "write it", path, number);
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names one after the other, each with its zero. */
static pgl_status collect_names(DIR *dir, const char *directory, pgl_buf *text, size_t *n, pgl_error *err) {
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL)
            return errno == 0 ? PGL_OK : fail_errno(err, "list it", directory, errno);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (!pgl_buf_append(text, entry->d_name, strlen(entry->d_name) + 1))
            return pgl_fail(err, PGL_E_MEMORY, "%s: out of memory while listing it", directory);
        (*n)++;
    }
}

pgl_status pgl_fs_list(const char *directory, char ***names, size_t *n_names, pgl_error *err) {
    *names = NULL;
    *n_names = 0;
    DIR *dir = opendir(directory);
    if (dir == NULL)
        return fail_errno(err, "list it", directory, errno);
    pgl_buf text = PGL_BUF_INIT;
    size_t n = 0;
    pgl_status status = collect_names(dir, directory, &text, &n, err);
    closedir(dir);
    if (status == PGL_OK) {
        char **list = malloc((n + 1) * sizeof *list + text.size);
        if (list == NULL) {
            status = pgl_fail(err, PGL_E_MEMORY, "%s: out of memory while listing it", directory);
        } else {
            char *at = (char *)(list + n + 1);
            if (text.size > 0)
                memcpy(at, text.data, text.size);
            for (size_t i = 0; i < n; i++) {
                list[i] = at;
                at += strlen(at) + 1;
            }
            list[n] = NULL;
            qsort(list, n, sizeof *list, by_bytes);
            *names = list;
            *n_names = n;
        }
    }
    pgl_buf_fini(&text);
    return status;
}

char *pgl_fs_join(const char *directory, const char *name) {
    pgl_buf path = PGL_BUF_INIT;
    size_t n = strlen(directory);
    const char *slash = n > 0 && directory[n - 1] == '/' ? "" : "/";
    if (!pgl_buf_printf(&path, "%s%s%s", directory, slash, name)) {
        pgl_buf_fini(&path);
        return NULL;
    }
    return path.data;
}

bool pgl_fs_is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool pgl_fs_is_directory(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
