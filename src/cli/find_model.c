/* Owns nothing: where the model is when the command line does not say. */
#include "cli/options.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The directory of the running binary; false when the system does not tell. */
static bool binary_directory(char *path, size_t size) {
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n <= 0)
        return false;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    return true;
}

pgl_status pgl_find_model(const char *given, char *path, size_t size, pgl_error *err) {
    if (given != NULL && given[0] == '\0')
        return pgl_fail(err, PGL_E_INVALID, "--model: the name of the directory is empty");
    if (given != NULL) {
        int n = snprintf(path, size, "%s", given);
        if (n < 0 || (size_t)n >= size)
            return pgl_fail(err, PGL_E_INVALID, "--model: the path is longer than %zu bytes", size - 1);
        return PGL_OK;
    }
    static const char *const places[] = {"models/demo", "../models/demo", "../share/pergola/models/demo"};
    char base[2048];
    bool have_base = binary_directory(base, sizeof base);
    for (size_t i = 0; have_base && i < PGL_COUNT(places); i++) {
        char config[4096];
        int n = snprintf(path, size, "%s/%s", base, places[i]);
        int m = snprintf(config, sizeof config, "%s/%s/config.json", base, places[i]);
        struct stat info;
        if (n > 0 && (size_t)n < size && m > 0 && (size_t)m < sizeof config && stat(config, &info) == 0)
            return PGL_OK;
    }
    return pgl_fail(err, PGL_E_NOT_FOUND,
                    "no model: name the directory of a checkpoint with --model DIR or the environment "
                    "variable PERGOLA_MODEL (this build comes without a model of its own)");
}
