/* Available memory, read from made-up trees of the kernel's files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/memory.h"

static char root[64];

static void put(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = 0;
        (void)mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state) {
    (void)state;
    strcpy(root, "/tmp/pergola-memory-XXXXXX");
    if (mkdtemp(root) == NULL)
        return -1;
    put("/proc/meminfo", "MemTotal:       1000000 kB\nMemFree:  5 kB\nMemAvailable:    800000 kB\n");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

static pgl_memory_info read_info(void) {
    pgl_memory_info info;
    pgl_error err;
    if (pgl_memory_read(root, &info, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return info;
}

static void without_groups_the_machine_counts(void **state) {
    (void)state;
    pgl_memory_info info = read_info();
    assert_int_equal(info.total_bytes, 1000000ull * 1024);
    assert_int_equal(info.available_bytes, 800000ull * 1024);
    assert_false(info.limited);
}

static void a_group_of_version_2_or_above_it_bounds(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "100\n");
    put("/sys/fs/cgroup/a/memory.max", "1000000\n");
    put("/sys/fs/cgroup/a/memory.current", "700000\n");
    put("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 300000\nactive_file 100000\n");
    pgl_memory_info info = read_info();
    assert_true(info.limited);
    assert_int_equal(info.total_bytes, 1000000);
    assert_int_equal(info.available_bytes, 1000000 - 300000);
}

static void a_group_of_version_1_bounds(void **state) {
    (void)state;
    put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000000\n");
    put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "6000000\n");
    pgl_memory_info info = read_info();
    assert_int_equal(info.total_bytes, 5000000);
    assert_int_equal(info.available_bytes, 0);
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes",
        "9223372036854771712\n"); /* how version 1 says none */
    assert_false(read_info().limited);
}

static void a_container_sees_its_group_as_the_root(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "4000000\n");
    put("/sys/fs/cgroup/memory.current", "1000000\n");
    assert_int_equal(read_info().available_bytes, 3000000);
}

static void odd_files_set_no_bound(void **state) {
    (void)state;
    put("/proc/self/cgroup", "\n:\n::\nnonsense\n0::\n1:name=x:/y\n");
    assert_false(read_info().limited);
    put("/proc/meminfo", "MemTotal: 5 kB\n");
    pgl_memory_info info;
    pgl_error err;
    assert_int_equal(pgl_memory_read(root, &info, &err), PGL_E_IO);
    assert_non_null(strstr(err.text, "MemAvailable"));
}

static void this_machine_has_memory(void **state) {
    (void)state;
    pgl_memory_info info;
    pgl_error err;
    assert_int_equal(pgl_memory_read("", &info, &err), PGL_OK);
    assert_true(info.available_bytes > 1 << 20 && info.available_bytes <= info.total_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_groups_the_machine_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_group_of_version_2_or_above_it_bounds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_group_of_version_1_bounds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_container_sees_its_group_as_the_root, set_up, tear_down),
        cmocka_unit_test_setup_teardown(odd_files_set_no_bound, set_up, tear_down),
        cmocka_unit_test(this_machine_has_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
