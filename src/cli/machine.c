/* Owns nothing: reads what the system says of itself. */
#include "cli/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LEAST_FILES = 64 };

void pgl_cli_cpu_name(char *out, size_t size) {
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    (void)snprintf(out, size, "unknown");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        line[strcspn(line, "\n")] = 0;
        (void)snprintf(out, size, "%.*s", (int)size - 1, colon[1] == ' ' ? colon + 2 : colon + 1);
        break;
    }
    if (f != NULL)
        (void)fclose(f);
}

unsigned pgl_cli_n_cpus(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

pgl_status pgl_cli_raise_file_limit(pgl_error *err) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return PGL_OK;
    if (files.rlim_cur < files.rlim_max) {
        rlim_t before = files.rlim_cur;
        files.rlim_cur = files.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &files) != 0)
            files.rlim_cur = before;
    }
    if (files.rlim_cur >= LEAST_FILES)
        return PGL_OK;
    return pgl_fail(err, PGL_E_IO, "the process may open %llu files, and needs %d at least (see `ulimit -n`)",
                    (unsigned long long)files.rlim_cur, LEAST_FILES);
}

bool pgl_cli_put_command(pgl_buf *out, const char *prefix, int argc, char **argv, const char *secret) {
    size_t n = secret != NULL ? strlen(secret) : 0;
    bool hide = false, ok = pgl_buf_puts(out, "pergola") && pgl_buf_puts(out, prefix);
    for (int i = 0; i < argc && ok; i++) {
        bool named = n > 0 && strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, secret, n) == 0;
        if (hide)
            ok = pgl_buf_puts(out, " ...");
        else if (named && argv[i][2 + n] == '=')
            ok = pgl_buf_printf(out, " --%s=...", secret);
        else
            ok = pgl_buf_printf(out, " %s", argv[i]);
        hide = !hide && named && argv[i][2 + n] == '\0';
    }
    return ok;
}
