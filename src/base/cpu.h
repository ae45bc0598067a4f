/* The CPUs that this process may use. Any thread. */
#ifndef PGL_BASE_CPU_H
#define PGL_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* At least 1: the CPUs of this thread's affinity, and no more than control groups allow (a quota of 2.5 CPUs counts as
 * 3): a container with two CPUs of a large machine runs two threads, not a hundred that wait for each other. */
uint32_t pgl_cpu_count(void);

/* What control groups allow, rounded up to whole CPUs; UINT32_MAX when nothing bounds it. root is put in front of every
 * path: "" except in tests. */
uint32_t pgl_cpu_quota(const char *root);

/* Keeps the calling thread on the index-th (modulo the count) CPU of its affinity. False when the system refuses. */
bool pgl_cpu_pin(uint32_t index);

#endif
