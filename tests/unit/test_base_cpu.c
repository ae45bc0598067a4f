/* How many CPUs a control group leaves, from made-up kernel files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/fs.h"

static char root[64];

static int make_root(void **state) {
    (void)state;
    strcpy(root, "/tmp/pgl-cpu-XXXXXX");
    return mkdtemp(root) == NULL ? -1 : 0;
}

static int remove_root(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void put(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = 0;
        (void)mkdir(full, 0700);
        *p = '/';
    }
    if (pgl_fs_write(full, text, strlen(text), NULL) != PGL_OK)
        fail_msg("cannot write %s", full);
}

static void without_a_bound_there_is_none(void **state) {
    (void)state;
    assert_int_equal(pgl_cpu_quota(root), UINT32_MAX);
    put("proc/self/cgroup", "0::/user.slice/job\n");
    assert_int_equal(pgl_cpu_quota(root), UINT32_MAX);
    put("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
    assert_int_equal(pgl_cpu_quota(root), UINT32_MAX);
}

static void the_tightest_group_on_the_way_up_counts(void **state) {
    (void)state;
    put("proc/self/cgroup", "0::/user.slice/job\n");
    put("sys/fs/cgroup/user.slice/job/cpu.max", "800000 100000\n");
    assert_int_equal(pgl_cpu_quota(root), 8);
    put("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
    assert_int_equal(pgl_cpu_quota(root), 3); /* two and a half */
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/cpu.max", "50000 100000\n"); /* as a container sees itself */
    assert_int_equal(pgl_cpu_quota(root), 1);
    put("sys/fs/cgroup/cpu.max", "nonsense\n");
    assert_int_equal(pgl_cpu_quota(root), UINT32_MAX);
}

static void version_1_is_read_too(void **state) {
    (void)state;
    put("proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/x\n");
    put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
    assert_int_equal(pgl_cpu_quota(root), UINT32_MAX);
    put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "400000\n");
    assert_int_equal(pgl_cpu_quota(root), 4);
}

static void this_process_has_a_cpu_and_can_stay_on_it(void **state) {
    (void)state;
    assert_true(pgl_cpu_count() >= 1);
    assert_true(pgl_cpu_pin(1000003));
    assert_int_equal(pgl_cpu_count(), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_bound_there_is_none),
        cmocka_unit_test(the_tightest_group_on_the_way_up_counts),
        cmocka_unit_test(version_1_is_read_too),
        cmocka_unit_test(this_process_has_a_cpu_and_can_stay_on_it),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
