/* The control groups that this process is in, versions 1 and 2. Reads small files of the kernel; owns nothing; any
 * thread. Every path has `root` put in front of it: "" except in tests. */
#ifndef PGL_BASE_CGROUP_H
#define PGL_BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* Calls visit for the process's group and every group above it, of the named version 1 controller ("memory", "cpu")
 * and of version 2. group is the folder without root, whether or not it is there. A container sees its own group as
 * the topmost one, which is always visited. */
typedef void (*pgl_cgroup_visit)(void *arg, const char *group, bool version2);
void pgl_cgroup_walk(const char *root, const char *controller, pgl_cgroup_visit visit, void *arg);

/* The contents of a group's file; false when it cannot be read. out is emptied first. */
bool pgl_cgroup_text(const char *root, const char *group, const char *name, pgl_buf *out);

/* The number that a group's file starts with; false when there is none ("max" is no bound). */
bool pgl_cgroup_number(const char *root, const char *group, const char *name, uint64_t *value);

#endif
