/* The directory of a checkpoint that is being written: what may be replaced, temporary names, clean-up. */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "model/synth_write.h"

static const char *const known_files[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "model*.part",
    "tokenizer_config.json",
    "chat_template.jinja",
    "*.json.part",
    "model.safetensors",
    "model.safetensors.index.json",
    "*.jinja.part",
    "model-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].safetensors",
};

/* Only files that a checkpoint consists of are ever replaced or removed. */
static bool is_known(const char *name) {
    for (size_t i = 0; i < sizeof known_files / sizeof known_files[0]; i++) {
        if (fnmatch(known_files[i], name, 0) == 0) {
            return true;
        }
    }
    return false;
}

pgl_status pgl_synth_files_open(pgl_synth_files *files, const char *path, bool force, bool *made,
                                pgl_error *err) {
    memset(files, 0, sizeof *files);
    files->path = path;
    *made = mkdir(path, 0777) == 0;
    files->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (files->directory < 0) {
        return pgl_fail(err, PGL_E_IO, "%s: cannot make or open the directory: %s", path, strerror(errno));
    }
    char **names = NULL;
    size_t n_names = 0;
    pgl_status status = pgl_fs_list(path, &names, &n_names, err);
    if (status == PGL_OK && n_names > 0 && !force) {
        status = pgl_fail(err, PGL_E_INVALID,
                          "%s exists and is not empty; --force replaces a checkpoint there", path);
    }
    for (size_t i = 0; status == PGL_OK && i < n_names; i++) {
        if (!is_known(names[i])) {
            status =
                pgl_fail(err, PGL_E_INVALID,
                         "%s holds %s, which is no file of a checkpoint: not replacing it", path, names[i]);
        }
    }
    free(names);
    if (status != PGL_OK) {
        pgl_synth_files_close(files);
    }
    return status;
}

static void part_name(const char *name, char out[80]) {
    snprintf(out, 80, "%s.part", name);
}

static bool is_part(const char *name) {
    return fnmatch("*.part", name, 0) == 0;
}

/* Removes what belongs to a checkpoint there: its files, or what a run left that was killed. */
static pgl_status remove_known(const pgl_synth_files *files, bool parts, pgl_error *err) {
    char **names = NULL;
    size_t n_names = 0;
    const pgl_status status = pgl_fs_list(files->path, &names, &n_names, err);
    for (size_t i = 0; status == PGL_OK && i < n_names; i++) {
        if (is_known(names[i]) && is_part(names[i]) == parts) {
            unlinkat(files->directory, names[i], 0);
        }
    }
    free(names);
    return status;
}

pgl_status pgl_synth_files_commit(pgl_synth_files *files, pgl_error *err) {
    pgl_status status = remove_known(files, false, err);
    for (size_t i = 0; status == PGL_OK && i < files->n_names; i++) {
        char part[80];
        part_name(files->names[i], part);
        if (renameat(files->directory, part, files->directory, files->names[i]) != 0) {
            status = pgl_fail(err, PGL_E_IO, "%s/%s: cannot rename: %s", files->path, part, strerror(errno));
        }
    }
    if (status == PGL_OK) {
        files->n_names = 0;
        status = remove_known(files, true, err);
    }
    return status;
}

void pgl_synth_files_abandon(pgl_synth_files *files, bool remove_directory) {
    for (size_t i = 0; i < files->n_names; i++) {
        char part[80];
        part_name(files->names[i], part);
        if (unlinkat(files->directory, part, 0) != 0) {
            unlinkat(files->directory, files->names[i], 0);
        }
    }
    files->n_names = 0;
    if (remove_directory) {
        rmdir(files->path);
    }
}

void pgl_synth_files_close(pgl_synth_files *files) {
    if (files->directory >= 0) {
        close(files->directory);
    }
    free(files->names);
    memset(files, 0, sizeof *files);
    files->directory = -1;
}

pgl_status pgl_synth_files_create(pgl_synth_files *files, const char *name, int *fd, pgl_error *err) {
    char part[80];
    part_name(name, part);
    if (!pgl_grow(&files->names, sizeof *files->names, &files->capacity, files->n_names + 1)) {
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the list of files");
    }
    *fd = openat(files->directory, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (*fd < 0) {
        return pgl_fail(err, PGL_E_IO, "%s/%s: cannot create: %s", files->path, part, strerror(errno));
    }
    snprintf(files->names[files->n_names++], sizeof *files->names, "%s", name);
    return PGL_OK;
}

pgl_status pgl_synth_pwrite(int fd, const void *data, size_t size, uint64_t offset) {
    const char *at = data;
    while (size > 0) {
        const ssize_t written = pwrite(fd, at, size, (off_t)offset);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return PGL_E_IO;
        }
        at += written;
        offset += (uint64_t)written;
        size -= (size_t)written;
    }
    return PGL_OK;
}

pgl_status pgl_synth_files_put(pgl_synth_files *files, const char *name, const char *data, size_t size,
                               pgl_error *err) {
    int fd = -1;
    pgl_status status = pgl_synth_files_create(files, name, &fd, err);
    if (status != PGL_OK) {
        return status;
    }
    if (pgl_synth_pwrite(fd, data, size, 0) != PGL_OK) {
        status = pgl_fail(err, PGL_E_IO, "%s/%s: cannot write: %s", files->path, name, strerror(errno));
    }
    if (close(fd) != 0 && status == PGL_OK) {
        status = pgl_fail(err, PGL_E_IO, "%s/%s: cannot write: %s", files->path, name, strerror(errno));
    }
    return status;
}
