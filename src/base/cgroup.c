#include "base/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"

#define MOST_BYTES ((size_t)1 << 20)
#define MOUNT "/sys/fs/cgroup"

bool pgl_cgroup_text(const char *root, const char *group, const char *name, pgl_buf *out) {
    char path[PATH_MAX];
    pgl_buf_clear(out);
    int n = snprintf(path, sizeof path, "%s%s/%s", root, group, name);
    return n > 0 && (size_t)n < sizeof path && pgl_fs_read(path, MOST_BYTES, out, NULL) == PGL_OK;
}

bool pgl_cgroup_number(const char *root, const char *group, const char *name, uint64_t *value) {
    pgl_buf text = PGL_BUF_INIT;
    bool ok = pgl_cgroup_text(root, group, name, &text);
    const char *p = pgl_buf_text(&text);
    ok = ok && *p >= '0' && *p <= '9';
    if (ok)
        *value = strtoull(p, NULL, 10);
    pgl_buf_fini(&text);
    return ok;
}

typedef struct walk {
    const char *controller;
    pgl_cgroup_visit visit;
    void *arg;
} walk;

/* The group at path below mount, and everything above it up to the mount. */
static void visit_path(const walk *w, const char *mount, const char *path, size_t size, bool version2) {
    char group[PATH_MAX];
    size_t top = strlen(mount);
    int n = snprintf(group, sizeof group, "%s%.*s", mount, (int)size, path);
    if (n <= 0 || (size_t)n >= sizeof group)
        return;
    size_t end = (size_t)n;
    while (end > top) {
        while (end > top && group[end - 1] == '/')
            end--;
        group[end] = 0;
        if (end == top)
            break;
        w->visit(w->arg, group, version2);
        while (end > top && group[end - 1] != '/')
            end--;
    }
    group[top] = 0;
    w->visit(w->arg, group, version2);
}

/* Whether the comma-separated list names the controller. */
static bool names(const char *list, const char *end, const char *controller) {
    size_t n = strlen(controller);
    while (list < end) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        comma = comma != NULL ? comma : end;
        if ((size_t)(comma - list) == n && memcmp(list, controller, n) == 0)
            return true;
        list = comma + 1;
    }
    return false;
}

/* Lines are "number:controllers:path"; version 2 has no controllers. */
static void visit_line(const walk *w, const char *line, const char *end) {
    char mount[64];
    const char *list = memchr(line, ':', (size_t)(end - line));
    const char *path = list != NULL ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
    if (path == NULL)
        return;
    size_t size = (size_t)(end - path - 1);
    snprintf(mount, sizeof mount, MOUNT "/%s", w->controller);
    if (path == list + 1)
        visit_path(w, MOUNT, path + 1, size, true);
    else if (names(list + 1, path, w->controller))
        visit_path(w, mount, path + 1, size, false);
}

void pgl_cgroup_walk(const char *root, const char *controller, pgl_cgroup_visit visit, void *arg) {
    const walk w = {.controller = controller, .visit = visit, .arg = arg};
    pgl_buf text = PGL_BUF_INIT;
    if (pgl_cgroup_text(root, "/proc/self", "cgroup", &text)) {
        for (const char *line = pgl_buf_text(&text); *line != 0;) {
            const char *end = line + strcspn(line, "\n");
            visit_line(&w, line, end);
            line = *end != 0 ? end + 1 : end;
        }
    }
    pgl_buf_fini(&text);
}
