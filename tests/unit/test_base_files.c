/* Small files, directories, mapped files that shrink, and the log. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mapped.h"

static char directory[64];

static int make_directory(void **state) {
    (void)state;
    strcpy(directory, "/tmp/pgl-files-XXXXXX");
    return mkdtemp(directory) == NULL ? -1 : 0;
}

static int remove_directory(void **state) {
    (void)state;
    char **names;
    size_t n;
    if (pgl_fs_list(directory, &names, &n, NULL) != PGL_OK)
        return -1;
    for (size_t i = 0; i < n; i++) {
        char *path = pgl_fs_join(directory, names[i]);
        unlink(path);
        free(path);
    }
    free(names);
    return rmdir(directory);
}

static void a_written_file_reads_back_and_leaves_nothing_beside_it(void **state) {
    (void)state;
    char *path = pgl_fs_join(directory, "a.txt");
    pgl_error err;
    assert_int_equal(pgl_fs_write(path, "old", 3, &err), PGL_OK);
    assert_int_equal(pgl_fs_write(path, "new\0text", 8, &err), PGL_OK);
    pgl_buf buf = PGL_BUF_INIT;
    assert_true(pgl_buf_puts(&buf, "before "));
    assert_int_equal(pgl_fs_read(path, 8, &buf, &err), PGL_OK);
    assert_int_equal(buf.size, 15);
    assert_memory_equal(buf.data, "before new\0text", 16);
    assert_int_equal(pgl_fs_read(path, 7, &buf, &err), PGL_E_TOO_LARGE);
    assert_int_equal(buf.size, 15);
    char **names;
    size_t n;
    assert_int_equal(pgl_fs_list(directory, &names, &n, &err), PGL_OK);
    assert_int_equal(n, 1);
    assert_string_equal(names[0], "a.txt");
    free(names);
    assert_true(pgl_fs_is_file(path));
    assert_true(pgl_fs_is_directory(directory));
    pgl_buf_fini(&buf);
    free(path);
}

static void what_is_no_file_is_refused_without_waiting(void **state) {
    (void)state;
    pgl_buf buf = PGL_BUF_INIT;
    pgl_error err;
    pgl_mapped mapped;
    char *missing = pgl_fs_join(directory, "missing");
    assert_int_equal(pgl_fs_read(missing, 10, &buf, &err), PGL_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "missing: cannot open it: No such file"));
    assert_int_equal(pgl_mapped_open(missing, &mapped, &err), PGL_E_NOT_FOUND);
    assert_int_equal(pgl_fs_read(directory, 10, &buf, &err), PGL_E_IO);
    assert_int_equal(pgl_mapped_open(directory, &mapped, &err), PGL_E_IO);
    char *pipe = pgl_fs_join(directory, "pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(pgl_fs_read(pipe, 10, &buf, &err), PGL_E_IO);
    assert_int_equal(pgl_mapped_open(pipe, &mapped, &err), PGL_E_IO);
    assert_non_null(strstr(err.text, "not a regular file"));
    assert_int_equal(mapped.place, -1);
    unlink(pipe);
    char **names;
    size_t n;
    assert_int_equal(pgl_fs_list(missing, &names, &n, &err), PGL_E_NOT_FOUND);
    assert_int_equal(pgl_fs_write("/nowhere/at/all", "x", 1, &err), PGL_E_NOT_FOUND);
    free(pipe);
    free(missing);
    pgl_buf_fini(&buf);
}

static void a_mapped_file_shows_its_bytes(void **state) {
    (void)state;
    char *path = pgl_fs_join(directory, "mapped");
    char data[10000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 7);
    assert_int_equal(pgl_fs_write(path, data, sizeof data, NULL), PGL_OK);
    pgl_mapped m;
    assert_int_equal(pgl_mapped_open(path, &m, NULL), PGL_OK);
    assert_int_equal(m.size, sizeof data);
    static const pgl_mapped_use USES[] = {PGL_MAPPED_RANDOM, PGL_MAPPED_SEQUENTIAL, PGL_MAPPED_SOON,
                                          PGL_MAPPED_NOW, PGL_MAPPED_DONE};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(pgl_mapped_advise(&m, 4097, SIZE_MAX, USES[i], NULL), PGL_OK);
        assert_memory_equal(m.data, data, sizeof data);
    }
    assert_int_equal(pgl_mapped_advise(&m, sizeof data, 1, PGL_MAPPED_NOW, NULL), PGL_OK);
    pgl_mapped_close(&m);
    pgl_mapped_close(&m);
    assert_int_equal(pgl_fs_write(path, "", 0, NULL), PGL_OK);
    assert_int_equal(pgl_mapped_open(path, &m, NULL), PGL_OK);
    assert_int_equal(m.size, 0);
    assert_non_null(m.data);
    assert_int_equal(pgl_mapped_advise(&m, 0, 1, PGL_MAPPED_NOW, NULL), PGL_OK);
    assert_int_equal(pgl_mapped_lock(&m, NULL), PGL_OK);
    pgl_mapped_close(&m);
    free(path);
}

/* Runs this program again to do `what` with path, in a process where no file was mapped and nobody changed the handlers,
 * with stderr in text. Returns the wait status. */
static int run_child(const char *what, const char *path, char *text, size_t size) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        execl("/proc/self/exe", "test_base_files", what, path, (char *)NULL);
        _exit(99);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t k; n + 1 < size && (k = read(ends[0], text + n, size - 1 - n)) > 0;)
        n += (size_t)k;
    text[n] = 0;
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void touch_lost_page(const char *path) {
    pgl_mapped m;
    if (pgl_mapped_open(path, &m, NULL) != PGL_OK || truncate(path, 4096) != 0)
        _exit(98);
    volatile uint8_t byte = m.data[3 * 4096 + 5];
    (void)byte;
}

static void a_file_that_shrinks_ends_the_process_with_its_name(void **state) {
    (void)state;
    char *path = pgl_fs_join(directory, "shrinks");
    static const char data[5 * 4096];
    assert_int_equal(pgl_fs_write(path, data, sizeof data, NULL), PGL_OK);
    char text[4096];
    int status = run_child("shrink", path, text, sizeof text);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), PGL_MAPPED_LOST_EXIT);
    char expected[256];
    snprintf(expected, sizeof expected,
             "pergola: fatal: %s: cannot be read any more at byte 12293: it had 20480 bytes when it was "
             "opened and has 4096 "
             "now;",
             path);
    assert_int_equal(strncmp(text, expected, strlen(expected)), 0);
    free(path);
}

static void own_handler(int number) {
    (void)number;
    static const char TEXT[] = "own handler\n";
    ssize_t n = write(STDERR_FILENO, TEXT, sizeof TEXT - 1);
    _exit(n == (ssize_t)sizeof TEXT - 1 ? 42 : 43);
}

/* A mapping that is not ours loses its page. */
static void lose_foreign_page(const char *path) {
    char other[256];
    snprintf(other, sizeof other, "%s.other", path);
    int fd = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
    pgl_mapped m;
    if (fd < 0 || unlink(other) != 0 || ftruncate(fd, 4096) != 0 || pgl_mapped_open(path, &m, NULL) != PGL_OK)
        _exit(98);
    const volatile char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED || ftruncate(fd, 0) != 0)
        _exit(97);
    char byte = p[0];
    (void)byte;
}

static void other_faults_go_to_the_handler_before_ours(void **state) {
    (void)state;
    char *path = pgl_fs_join(directory, "first");
    assert_int_equal(pgl_fs_write(path, "x", 1, NULL), PGL_OK);
    char text[4096];
    int status = run_child("foreign-handled", path, text, sizeof text);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
    assert_string_equal(text, "own handler\n");
    status = run_child("foreign", path, text, sizeof text);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
    unlink(path);
    free(path);
}

static size_t logged(char *text, size_t size, bool json, pgl_log_level least) {
    char *path = pgl_fs_join(directory, "log");
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    pgl_log_setup(least, json, fd);
    pgl_log(PGL_LOG_WARN, "part", "two\nlines \"%s\"", "caf\xC3\xA9");
    pgl_log(PGL_LOG_DEBUG, "part", "hidden");
    char long_text[6000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    pgl_log(PGL_LOG_ERROR, "part", "%s", long_text);
    pgl_log_setup(PGL_LOG_INFO, false, STDERR_FILENO);
    ssize_t n = pread(fd, text, size - 1, 0);
    assert_true(n > 0);
    text[n] = 0;
    close(fd);
    unlink(path);
    free(path);
    return (size_t)n;
}

static void a_log_event_is_one_line_whatever_it_holds(void **state) {
    (void)state;
    char text[16384];
    logged(text, sizeof text, false, PGL_LOG_INFO);
    assert_non_null(strstr(text, "Z warn  part: two lines \"caf\xC3\xA9\"\n"));
    assert_null(strstr(text, "hidden"));
    char *second = strchr(text, '\n') + 1;
    assert_true(strlen(second) < 4200);
    assert_ptr_equal(strchr(second, '\n'), second + strlen(second) - 1);

    logged(text, sizeof text, true, PGL_LOG_DEBUG);
    int lines = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++) {
        json_t *v = NULL;
        assert_int_equal(pgl_json_parse(line, strlen(line), NULL, &v, NULL), PGL_OK);
        assert_int_equal(json_object_size(v), 4);
        if (lines == 0) {
            assert_string_equal(json_string_value(json_object_get(v, "message")),
                                "two lines \"caf\xC3\xA9\"");
            assert_string_equal(json_string_value(json_object_get(v, "level")), "warn");
        }
        json_decref(v);
    }
    assert_int_equal(lines, 3);
    pgl_log_level level;
    assert_true(pgl_log_level_of("debug", &level) && level == PGL_LOG_DEBUG);
    assert_false(pgl_log_level_of("loud", &level));
}

static int child(const char *what, const char *path) {
    signal(SIGBUS, strcmp(what, "foreign-handled") == 0 ? own_handler : SIG_DFL);
    if (strcmp(what, "shrink") == 0)
        touch_lost_page(path);
    else
        lose_foreign_page(path);
    return 96;
}

int main(int argc, char **argv) {
    if (argc == 3)
        return child(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_faults_go_to_the_handler_before_ours),
        cmocka_unit_test(a_written_file_reads_back_and_leaves_nothing_beside_it),
        cmocka_unit_test(what_is_no_file_is_refused_without_waiting),
        cmocka_unit_test(a_mapped_file_shows_its_bytes),
        cmocka_unit_test(a_file_that_shrinks_ends_the_process_with_its_name),
        cmocka_unit_test(a_log_event_is_one_line_whatever_it_holds),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
