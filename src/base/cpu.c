#include "base/cpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/cgroup.h"

/* Machines with more than 1,024 CPUs: those past the set's size are left out. */
static bool allowed_cpus(cpu_set_t *set) {
    CPU_ZERO(set);
    return sched_getaffinity(0, sizeof *set, set) == 0 && CPU_COUNT(set) > 0;
}

static void apply_quota(uint32_t *least, uint64_t quota, uint64_t period) {
    if (quota == 0 || period == 0)
        return;
    uint64_t cpus = quota / period + (quota % period != 0);
    if (cpus < *least)
        *least = (uint32_t)cpus;
}

typedef struct quota_walk {
    const char *root;
    uint32_t least;
} quota_walk;

/* Version 2: "200000 100000" or "max 100000" in one file. Version 1: two files, -1 for no bound. */
static void visit_group(void *arg, const char *group, bool version2) {
    quota_walk *w = arg;
    uint64_t quota = 0;
    uint64_t period = 0;
    if (version2) {
        pgl_buf text = PGL_BUF_INIT;
        if (pgl_cgroup_text(w->root, group, "cpu.max", &text)) {
            char *end;
            quota = strtoull(pgl_buf_text(&text), &end, 10); /* 0 for "max" */
            period = strtoull(end, NULL, 10);
        }
        pgl_buf_fini(&text);
    } else if (!pgl_cgroup_number(w->root, group, "cpu.cfs_quota_us", &quota) ||
               !pgl_cgroup_number(w->root, group, "cpu.cfs_period_us", &period)) {
        return;
    }
    apply_quota(&w->least, quota, period);
}

uint32_t pgl_cpu_quota(const char *root) {
    quota_walk w = {.root = root, .least = UINT32_MAX};
    pgl_cgroup_walk(root, "cpu", visit_group, &w);
    return w.least;
}

uint32_t pgl_cpu_count(void) {
    cpu_set_t set;
    uint32_t n = allowed_cpus(&set) ? (uint32_t)CPU_COUNT(&set) : 1;
    uint32_t quota = pgl_cpu_quota("");
    return quota < n ? quota : n;
}

bool pgl_cpu_pin(uint32_t index) {
    cpu_set_t set;
    if (!allowed_cpus(&set))
        return false;
    uint32_t left = index % (uint32_t)CPU_COUNT(&set);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set) || left-- != 0)
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
    }
    return false;
}
