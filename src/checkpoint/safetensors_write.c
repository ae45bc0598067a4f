/* Writes one safetensors file or a set with its index. Owns the files until they have their names: each is written as
 * NAME.part, and renamed when all of them are complete and on disk. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/map.h"
#include "checkpoint/safetensors.h"

#define BUFFER_BYTES ((size_t)1 << 20)

typedef struct part {
    char *path;
    char *temporary;
    size_t first, n; /* of the specs */
    uint64_t data_bytes;
    pgl_buf header; /* freed when it is written */
    bool begun;
} part;

struct pgl_safetensors_writer {
    part *parts;
    size_t n_parts;
    size_t current; /* n_parts when all are complete */
    int fd;         /* of the current part; -1: not open */
    uint64_t left;  /* bytes of the current part's data still to come */
    char *buffer;
    size_t buffered;
    char *index_path; /* NULL for a single file */
    pgl_buf index;
};

static pgl_status out_of_memory(pgl_error *err) {
    return pgl_fail(err, PGL_E_MEMORY, "out of memory while writing tensors");
}

static pgl_status fail_errno(pgl_error *err, const char *path, int number) {
    return pgl_fail(err, PGL_E_IO, "%s: cannot write it: %s", path, strerror(number));
}

bool pgl_safetensors_spec_bytes(const pgl_safetensors_spec *spec, uint64_t *bytes) {
    uint64_t n = pgl_dtype_size(spec->dtype);
    for (uint32_t i = 0; i < spec->n_dims; i++)
        if (!pgl_mul_u64(n, spec->dims[i], &n))
            return false;
    if (n > INT64_MAX)
        return false;
    *bytes = n;
    return true;
}

static bool put_entry(pgl_buf *out, const pgl_safetensors_spec *spec, uint64_t begin, uint64_t end) {
    char shape[PGL_SHAPE_TEXT];
    pgl_shape_text(spec->n_dims, spec->dims, shape);
    return pgl_json_put_string(out, spec->name, strlen(spec->name)) &&
           pgl_buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                          pgl_dtype_name(spec->dtype), shape, begin, end);
}

/* Length, JSON, and blanks up to a multiple of 64, where the data starts. */
static pgl_status build_header(part *p, const pgl_safetensors_spec *specs, pgl_error *err) {
    pgl_buf *h = &p->header;
    uint64_t at = 0;
    bool ok =
        pgl_buf_append(h, "\0\0\0\0\0\0\0\0", 8) && pgl_buf_puts(h, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = p->first; ok && i < p->first + p->n; i++) {
        uint64_t bytes = 0;
        ok = pgl_safetensors_spec_bytes(&specs[i], &bytes) && pgl_buf_putc(h, ',') &&
             put_entry(h, &specs[i], at, at + bytes);
        at += bytes;
    }
    ok = ok && pgl_buf_putc(h, '}');
    while (ok && h->size % 64 != 0)
        ok = pgl_buf_putc(h, ' ');
    if (!ok)
        return out_of_memory(err);
    uint64_t length = h->size - 8;
    if (length > PGL_SAFETENSORS_MOST_HEADER_BYTES)
        return pgl_fail(err, PGL_E_TOO_LARGE,
                        "%s: the names of %zu tensors make a header of %" PRIu64 " bytes, at most %" PRIu64
                        " are read",
                        p->path, p->n, length, PGL_SAFETENSORS_MOST_HEADER_BYTES);
    memcpy(h->data, &length, sizeof length);
    return PGL_OK;
}

static pgl_status check_specs(const pgl_safetensors_spec *specs, size_t n_specs, pgl_error *err) {
    pgl_map names = PGL_MAP_INIT;
    pgl_status status = PGL_OK;
    uint64_t total = 0;
    for (size_t i = 0; i < n_specs && status == PGL_OK; i++) {
        const pgl_safetensors_spec *s = &specs[i];
        uint64_t bytes = 0;
        if (pgl_dtype_size(s->dtype) == 0 || s->n_dims > PGL_SAFETENSORS_MOST_DIMS ||
            !pgl_safetensors_spec_bytes(s, &bytes) || !pgl_add_u64(total, bytes, &total) || total > INT64_MAX)
            status = pgl_fail(err, PGL_E_INVALID, "%.200s: not a tensor that can be written", s->name);
        else if (pgl_map_find(&names, s->name) != NULL || strcmp(s->name, "__metadata__") == 0)
            status = pgl_fail(err, PGL_E_INVALID, "%.200s: a name that is taken", s->name);
        else if (!pgl_map_set(&names, s->name, strlen(s->name), (void *)(uintptr_t)s, NULL))
            status = out_of_memory(err);
    }
    pgl_map_fini(&names);
    return status;
}

/* Adds a part for specs [first, first + n); its path comes later. */
static bool add_part(pgl_safetensors_writer *w, size_t *capacity, size_t first) {
    if (!pgl_grow(&w->parts, sizeof *w->parts, capacity, w->n_parts + 1))
        return false;
    w->parts[w->n_parts++] = (part){.first = first, .header = PGL_BUF_INIT};
    return true;
}

static pgl_status divide(pgl_safetensors_writer *w, const pgl_safetensors_spec *specs, size_t n_specs,
                         uint64_t shard_bytes, pgl_error *err) {
    size_t capacity = 0;
    if (!add_part(w, &capacity, 0))
        return out_of_memory(err);
    for (size_t i = 0; i < n_specs; i++) {
        part *p = &w->parts[w->n_parts - 1];
        uint64_t bytes = 0;
        (void)pgl_safetensors_spec_bytes(&specs[i], &bytes); /* checked before */
        if (shard_bytes != 0 && p->n > 0 && p->data_bytes + bytes > shard_bytes) {
            if (!add_part(w, &capacity, i))
                return out_of_memory(err);
            p = &w->parts[w->n_parts - 1];
        }
        p->n++;
        p->data_bytes += bytes;
    }
    return PGL_OK;
}

static pgl_status build_index(pgl_safetensors_writer *w, const pgl_safetensors_spec *specs, pgl_error *err) {
    uint64_t total = 0;
    for (size_t i = 0; i < w->n_parts; i++)
        total += w->parts[i].data_bytes;
    pgl_buf *out = &w->index;
    bool ok = pgl_buf_printf(out, "{\n\"metadata\": {\n\"total_size\": %" PRIu64 "\n},\n\"weight_map\": {\n",
                             total);
    bool first = true;
    for (size_t i = 0; i < w->n_parts; i++) {
        const char *file = strrchr(w->parts[i].path, '/');
        file = file == NULL ? w->parts[i].path : file + 1;
        for (size_t k = w->parts[i].first; ok && k < w->parts[i].first + w->parts[i].n; k++) {
            ok = (first || pgl_buf_puts(out, ",\n")) &&
                 pgl_json_put_string(out, specs[k].name, strlen(specs[k].name)) &&
                 pgl_buf_printf(out, ": \"%s\"", file);
            first = false;
        }
    }
    return ok && pgl_buf_puts(out, "\n}\n}\n") ? PGL_OK : out_of_memory(err);
}

static pgl_status begin_part(pgl_safetensors_writer *w, pgl_error *err) {
    part *p = &w->parts[w->current];
    w->fd = open(p->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0)
        return fail_errno(err, p->temporary, errno);
    p->begun = true;
    w->left = p->data_bytes;
    /* a full disk is found out before hours of work; file systems that cannot reserve say so and are left alone */
    if (fallocate(w->fd, 0, 0, (off_t)(p->header.size + p->data_bytes)) != 0 && errno == ENOSPC)
        return pgl_fail(err, PGL_E_IO, "%s: no space for its %" PRIu64 " bytes", p->temporary,
                        (uint64_t)p->header.size + p->data_bytes);
    return PGL_OK;
}

static pgl_status write_all(pgl_safetensors_writer *w, const char *data, size_t size, pgl_error *err) {
    while (size > 0) {
        ssize_t n = write(w->fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_errno(err, w->parts[w->current].temporary, errno);
        data += n;
        size -= (size_t)n;
    }
    return PGL_OK;
}

static pgl_status flush(pgl_safetensors_writer *w, pgl_error *err) {
    size_t n = w->buffered;
    w->buffered = 0;
    return write_all(w, w->buffer, n, err);
}

static pgl_status end_part(pgl_safetensors_writer *w, pgl_error *err) {
    part *p = &w->parts[w->current];
    pgl_status status = flush(w, err);
    if (status == PGL_OK && fsync(w->fd) != 0)
        status = fail_errno(err, p->temporary, errno);
    if (close(w->fd) != 0 && status == PGL_OK)
        status = fail_errno(err, p->temporary, errno);
    w->fd = -1;
    w->current++;
    return status;
}

/* Writes headers until a part waits for data, or all parts are complete. */
static pgl_status advance(pgl_safetensors_writer *w, pgl_error *err) {
    pgl_status status = PGL_OK;
    while (status == PGL_OK && w->current < w->n_parts && (w->fd < 0 || w->left == 0)) {
        if (w->fd >= 0) {
            status = end_part(w, err);
            continue;
        }
        status = begin_part(w, err);
        if (status == PGL_OK)
            status = write_all(w, w->parts[w->current].header.data, w->parts[w->current].header.size, err);
        pgl_buf_fini(&w->parts[w->current].header);
    }
    return status;
}

/* Only a file may be replaced: a rename would put one in the place of a device, and fail on a directory after all work. */
static pgl_status check_target(const char *path, pgl_error *err) {
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return pgl_fail(err, PGL_E_IO, "%s: cannot write it: expected a file or nothing there, found %s",
                        path, S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
    return PGL_OK;
}

static pgl_status start(pgl_safetensors_writer *w, const pgl_safetensors_spec *specs, pgl_error *err) {
    pgl_status status = PGL_OK;
    w->buffer = malloc(BUFFER_BYTES);
    if (w->buffer == NULL)
        return out_of_memory(err);
    for (size_t i = 0; i < w->n_parts && status == PGL_OK; i++) {
        part *p = &w->parts[i];
        pgl_buf temporary = PGL_BUF_INIT;
        if (p->path == NULL || !pgl_buf_printf(&temporary, "%s.part", p->path))
            return out_of_memory(err);
        p->temporary = temporary.data;
        status = check_target(p->path, err);
        if (status == PGL_OK)
            status = build_header(p, specs, err);
    }
    return status == PGL_OK ? advance(w, err) : status;
}

static pgl_safetensors_writer *new_writer(void) {
    pgl_safetensors_writer *w = pgl_new(1, sizeof *w);
    if (w != NULL)
        w->fd = -1;
    return w;
}

static pgl_status hand_out(pgl_safetensors_writer *w, pgl_status status, pgl_safetensors_writer **out) {
    if (status == PGL_OK)
        *out = w;
    else
        pgl_safetensors_abandon(w);
    return status;
}

pgl_status pgl_safetensors_create(const char *path, const pgl_safetensors_spec *specs, size_t n_specs,
                                  pgl_safetensors_writer **out, pgl_error *err) {
    *out = NULL;
    pgl_safetensors_writer *w = new_writer();
    if (w == NULL)
        return out_of_memory(err);
    pgl_status status = check_specs(specs, n_specs, err);
    if (status == PGL_OK)
        status = divide(w, specs, n_specs, 0, err);
    if (status == PGL_OK) {
        w->parts[0].path = pgl_strndup(path, strlen(path));
        status = start(w, specs, err);
    }
    return hand_out(w, status, out);
}

static pgl_status name_parts(pgl_safetensors_writer *w, const char *directory, pgl_error *err) {
    for (size_t i = 0; i < w->n_parts; i++) {
        char name[64] = "model.safetensors";
        if (w->n_parts > 1)
            snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, w->n_parts);
        w->parts[i].path = pgl_fs_join(directory, name);
        if (w->parts[i].path == NULL)
            return out_of_memory(err);
    }
    if (w->n_parts > 1) {
        w->index_path = pgl_fs_join(directory, "model.safetensors.index.json");
        if (w->index_path == NULL)
            return out_of_memory(err);
    }
    return PGL_OK;
}

pgl_status pgl_safetensors_create_set(const char *directory, uint64_t shard_bytes,
                                      const pgl_safetensors_spec *specs, size_t n_specs,
                                      pgl_safetensors_writer **out, pgl_error *err) {
    *out = NULL;
    pgl_safetensors_writer *w = new_writer();
    if (w == NULL)
        return out_of_memory(err);
    pgl_status status = check_specs(specs, n_specs, err);
    if (status == PGL_OK)
        status = divide(w, specs, n_specs, shard_bytes, err);
    if (status == PGL_OK)
        status = name_parts(w, directory, err);
    if (status == PGL_OK && w->n_parts > 1)
        status = build_index(w, specs, err);
    if (status == PGL_OK)
        status = start(w, specs, err);
    return hand_out(w, status, out);
}

pgl_status pgl_safetensors_write(pgl_safetensors_writer *writer, const void *data, size_t size,
                                 pgl_error *err) {
    pgl_safetensors_writer *w = writer;
    const char *p = data;
    pgl_status status = PGL_OK;
    while (size > 0 && status == PGL_OK) {
        if (w->current == w->n_parts)
            return pgl_fail(err, PGL_E_INVALID, "%zu bytes more than the tensors have", size);
        size_t n = size < w->left ? size : (size_t)w->left;
        if (n >= BUFFER_BYTES) {
            status = flush(w, err);
            if (status == PGL_OK)
                status = write_all(w, p, n, err);
        } else {
            if (n > BUFFER_BYTES - w->buffered)
                status = flush(w, err);
            if (status == PGL_OK) {
                memcpy(w->buffer + w->buffered, p, n);
                w->buffered += n;
            }
        }
        p += n;
        size -= n;
        w->left -= n;
        if (w->left == 0 && status == PGL_OK)
            status = advance(w, err);
    }
    return status;
}

pgl_status pgl_safetensors_finish(pgl_safetensors_writer *writer, pgl_error *err) {
    pgl_safetensors_writer *w = writer;
    pgl_status status = PGL_OK;
    if (w->current < w->n_parts)
        status = pgl_fail(err, PGL_E_INVALID, "%s: %" PRIu64 " bytes of its tensors are missing",
                          w->parts[w->current].path, w->left);
    for (size_t i = 0; i < w->n_parts && status == PGL_OK; i++) {
        part *p = &w->parts[i];
        if (rename(p->temporary, p->path) != 0)
            status = fail_errno(err, p->path, errno);
        else
            p->begun = false;
    }
    if (status == PGL_OK && w->index_path != NULL)
        status = pgl_fs_write(w->index_path, w->index.data, w->index.size, err);
    pgl_safetensors_abandon(w);
    return status;
}

void pgl_safetensors_abandon(pgl_safetensors_writer *writer) {
    if (writer == NULL)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    for (size_t i = 0; i < writer->n_parts; i++) {
        part *p = &writer->parts[i];
        if (p->begun)
            (void)unlink(p->temporary);
        pgl_buf_fini(&p->header);
        free(p->path);
        free(p->temporary);
    }
    free(writer->parts);
    free(writer->buffer);
    free(writer->index_path);
    pgl_buf_fini(&writer->index);
    free(writer);
}
