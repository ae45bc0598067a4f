/* Owns nothing: looks at the file system. */
#include "cli/output_file.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"

static bool is_same(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

pgl_status pgl_cli_check_output(const char *option, const char *path, const char *model_directory,
                                const char *input, pgl_error *err) {
    if (!exists(path))
        return PGL_OK;
    const char *slash = strrchr(path, '/');
    char *directory = slash == NULL ? pgl_strndup(".", 1) : pgl_strndup(path, (size_t)(slash - path) + 1);
    if (directory == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "out of memory");
    bool of_model = is_same(directory, model_directory);
    free(directory);
    if (of_model)
        return pgl_fail(err, PGL_E_INVALID, "%s: %s is a file of the model, which would be replaced", option,
                        path);
    if (input != NULL && is_same(path, input))
        return pgl_fail(err, PGL_E_INVALID, "%s: %s is what is read, which would be replaced", option, path);
    return PGL_OK;
}
