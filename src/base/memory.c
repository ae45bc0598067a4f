/* Owns nothing: reads small files of the kernel. */
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cgroup.h"

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
    const char *limit, *usage, *file_key[2];
} controller;

static const controller V1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
static const controller V2 = {"memory.max", "memory.current", {"inactive_file", "active_file"}};

typedef struct memory_walk {
    const char *root;
    pgl_memory_info *info;
} memory_walk;

/* Takes the bound of one group into account. */
static void apply_group(void *arg, const char *group, bool version2) {
    const memory_walk *walk = arg;
    const char *root = walk->root;
    pgl_memory_info *info = walk->info;
    const controller *c = version2 ? &V2 : &V1;
    uint64_t limit, usage, files = 0;
    if (!pgl_cgroup_number(root, group, c->limit, &limit) || limit >= info->total_bytes)
        return;
    if (!pgl_cgroup_number(root, group, c->usage, &usage))
        usage = 0;
    pgl_buf stat = PGL_BUF_INIT;
    if (pgl_cgroup_text(root, group, "memory.stat", &stat)) {
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

pgl_status pgl_memory_read(const char *root, pgl_memory_info *info, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT;
    uint64_t total, available;
    *info = (pgl_memory_info){0};
    bool ok = pgl_cgroup_text(root, "/proc", "meminfo", &text) &&
              field(pgl_buf_text(&text), "MemTotal:", &total) &&
              field(pgl_buf_text(&text), "MemAvailable:", &available);
    if (!ok) {
        pgl_buf_fini(&text);
        return pgl_fail(err, PGL_E_IO,
                        "%s/proc/meminfo: expected MemTotal and MemAvailable, found neither or no file",
                        root);
    }
    info->total_bytes = total * 1024;
    info->available_bytes = available * 1024;
    pgl_buf_fini(&text);
    memory_walk walk = {.root = root, .info = info};
    pgl_cgroup_walk(root, "memory", apply_group, &walk);
    return PGL_OK;
}
