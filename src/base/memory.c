/* Owns nothing: reads small files of the kernel. */
#include "base/memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fs.h"

#define MOST_BYTES ((size_t)1 << 20)

/* The whole file, terminated; false when it cannot be read. */
static bool read_text(const char *root, const char *path, pgl_buf *out) {
    char full[PATH_MAX];
    pgl_buf_clear(out);
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof full && pgl_fs_read(full, MOST_BYTES, out, NULL) == PGL_OK;
}

/* The number behind a key that starts a line: "MemTotal:   123 kB", "inactive_file 123". */
static bool field(const char *text, const char *key, uint64_t *value) {
    size_t n = strlen(key);
    for (const char *line = text; line != NULL && *line != 0;) {
        if (strncmp(line, key, n) == 0 && (line[n] == ' ' || line[n] == '\t')) {
            *value = strtoull(line + n, NULL, 10);
            return true;
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return false;
}

/* The files of one version's memory controller. */
typedef struct controller {
    const char *mount, *limit, *usage, *file_key[2];
} controller;

static const controller V1 = {"/sys/fs/cgroup/memory",
                              "memory.limit_in_bytes",
                              "memory.usage_in_bytes",
                              {"total_inactive_file", "total_active_file"}};
static const controller V2 = {
    "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}};

static bool read_number(const char *root, const char *group, const char *name, uint64_t *value) {
    char path[PATH_MAX];
    pgl_buf text = PGL_BUF_INIT;
    int n = snprintf(path, sizeof path, "%s/%s", group, name);
    bool ok = n > 0 && (size_t)n < sizeof path && read_text(root, path, &text);
    const char *p = pgl_buf_text(&text);
    ok = ok && *p >= '0' && *p <= '9'; /* "max" is no bound */
    if (ok)
        *value = strtoull(p, NULL, 10);
    pgl_buf_fini(&text);
    return ok;
}

/* Takes the bound of one group into account. */
static void apply_group(const char *root, const controller *c, const char *group, pgl_memory_info *info) {
    uint64_t limit, usage, files = 0;
    if (!read_number(root, group, c->limit, &limit) || limit >= info->total_bytes)
        return;
    if (!read_number(root, group, c->usage, &usage))
        usage = 0;
    char path[PATH_MAX];
    pgl_buf stat = PGL_BUF_INIT;
    int n = snprintf(path, sizeof path, "%s/memory.stat", group);
    if (n > 0 && (size_t)n < sizeof path && read_text(root, path, &stat)) {
        for (int i = 0; i < 2; i++) {
            uint64_t part;
            if (field(pgl_buf_text(&stat), c->file_key[i], &part))
                files += part < usage ? part : usage;
        }
    }
    pgl_buf_fini(&stat);
    uint64_t used = files < usage ? usage - files : 0; /* cached files give way */
    uint64_t available = used < limit ? limit - used : 0;
    info->total_bytes = limit;
    if (available < info->available_bytes) {
        info->available_bytes = available;
        info->limited = true;
    }
}

/* The group and everything above it, up to the mount. */
static void apply_path(const char *root, const controller *c, const char *path, size_t size,
                       pgl_memory_info *info) {
    char group[PATH_MAX];
    size_t mount = strlen(c->mount);
    int n = snprintf(group, sizeof group, "%s%.*s", c->mount, (int)size, path);
    if (n <= 0 || (size_t)n >= sizeof group)
        return;
    size_t end = (size_t)n;
    while (end > mount) {
        while (end > mount && group[end - 1] == '/')
            end--;
        group[end] = 0;
        if (end == mount)
            break;
        apply_group(root, c, group, info);
        while (end > mount && group[end - 1] != '/')
            end--;
    }
    group[mount] = 0;
    apply_group(root, c, group, info); /* a container sees its own group as the root */
}

/* Lines are "number:controllers:path"; version 2 has number 0 and no controllers. */
static void apply_groups(const char *root, const char *text, pgl_memory_info *info) {
    for (const char *line = text; *line != 0;) {
        const char *end = strchr(line, '\n');
        end = end != NULL ? end : line + strlen(line);
        const char *list = memchr(line, ':', (size_t)(end - line));
        const char *path = list != NULL ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        if (path != NULL) {
            size_t n = (size_t)(path - list - 1), left = (size_t)(end - path - 1);
            bool v1 = false;
            for (const char *p = list + 1; p < path;) {
                const char *comma = memchr(p, ',', (size_t)(path - p));
                comma = comma != NULL ? comma : path;
                v1 = v1 || ((size_t)(comma - p) == 6 && memcmp(p, "memory", 6) == 0);
                p = comma + 1;
            }
            if (v1)
                apply_path(root, &V1, path + 1, left, info);
            else if (n == 0)
                apply_path(root, &V2, path + 1, left, info);
        }
        line = *end != 0 ? end + 1 : end;
    }
}

pgl_status pgl_memory_read(const char *root, pgl_memory_info *info, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT;
    uint64_t total, available;
    *info = (pgl_memory_info){0};
    bool ok = read_text(root, "/proc/meminfo", &text) && field(pgl_buf_text(&text), "MemTotal:", &total) &&
              field(pgl_buf_text(&text), "MemAvailable:", &available);
    if (!ok) {
        pgl_buf_fini(&text);
        return pgl_fail(err, PGL_E_IO,
                        "%s/proc/meminfo: expected MemTotal and MemAvailable, found neither or no file",
                        root);
    }
    info->total_bytes = total * 1024;
    info->available_bytes = available * 1024;
    if (read_text(root, "/proc/self/cgroup", &text))
        apply_groups(root, pgl_buf_text(&text), info);
    pgl_buf_fini(&text);
    return PGL_OK;
}
