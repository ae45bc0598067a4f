#include "checkpoint/tensor_set.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "checkpoint/index.h"

#define INDEX_NAME "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"

/* Longest first. lm_head.* and mtp.* carry none. */
static const char *const PREFIXES[] = {"model.language_model.", "language_model.model.", "model.", ""};
#define N_PREFIXES (sizeof PREFIXES / sizeof PREFIXES[0])

static pgl_status out_of_memory(pgl_error *err) {
    return pgl_fail(err, PGL_E_MEMORY, "out of memory while opening a checkpoint");
}

static pgl_status add_note(pgl_tensor_set *set, pgl_error *err, const char *text) {
    return pgl_buf_puts(set->notes, text) && pgl_buf_putc(set->notes, '\n') ? PGL_OK : out_of_memory(err);
}

pgl_status pgl_tensor_set_note(pgl_tensor_set *set, pgl_error *err, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return add_note(set, err, text);
}

pgl_status pgl_tensor_set_odd(pgl_tensor_set *set, pgl_error *err, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return set->strict ? pgl_fail(err, PGL_E_FORMAT, "%s", text) : add_note(set, err, text);
}

/* "mtp/" + name, or the name itself. */
static const char *relative_name(pgl_tensor_set *set, const char *folder, const char *name) {
    char *p = pgl_arena_new(set->arena, strlen(folder) + strlen(name) + 1, 1);
    if (p != NULL) {
        memcpy(p, folder, strlen(folder));
        memcpy(p + strlen(folder), name, strlen(name));
    }
    return p;
}

static pgl_status open_shard(pgl_tensor_set *set, const char *directory, const char *folder, const char *name,
                             pgl_error *err) {
    if (!pgl_grow(&set->shards, sizeof *set->shards, &set->shards_capacity, set->n_shards + 1))
        return out_of_memory(err);
    pgl_shard *shard = &set->shards[set->n_shards];
    *shard = (pgl_shard){.map = PGL_MAPPED_INIT};
    shard->file = relative_name(set, folder, name);
    char *path = shard->file == NULL ? NULL : pgl_fs_join(directory, shard->file);
    if (path == NULL)
        return out_of_memory(err);
    pgl_status status = pgl_mapped_open(path, &shard->map, err);
    free(path);
    if (status != PGL_OK)
        return status;
    set->n_shards++;
    status = pgl_safetensors_read_header(shard->map.data, shard->map.size, shard->file, &shard->header, err);
    if (status == PGL_OK && shard->header.trailing_bytes != 0)
        status = pgl_tensor_set_odd(set, err,
                                    "%s: expected nothing after its last tensor, found %" PRIu64 " bytes",
                                    shard->file, shard->header.trailing_bytes);
    return status;
}

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static const pgl_safetensors_tensor *shard_tensor(const pgl_map *names, const char *name) {
    return pgl_map_find(names, name);
}

static bool is_wanted(const pgl_tensor_set *set, const char *name) {
    return !set->draft_alone || starts_with(name, "mtp.");
}

/* Both ways: the index's tensors are in the shards it says, and the shards have no others. */
static pgl_status check_index(pgl_tensor_set *set, size_t first, const pgl_index *index,
                              const char *index_file, pgl_error *err) {
    pgl_status status = PGL_OK;
    pgl_map names = PGL_MAP_INIT; /* of every shard that this index names */
    pgl_map owners = PGL_MAP_INIT;
    uint64_t total = 0;
    for (size_t i = first; i < set->n_shards && status == PGL_OK; i++) {
        pgl_shard *shard = &set->shards[i];
        total += shard->header.data_bytes;
        for (size_t k = 0; k < shard->header.n_tensors && status == PGL_OK; k++) {
            pgl_safetensors_tensor *t = &shard->header.tensors[k];
            const pgl_shard *other = pgl_map_find(&owners, t->name);
            const char *listed = pgl_map_find(&index->files, t->name);
            const char *base = strrchr(shard->file, '/');
            base = base == NULL ? shard->file : base + 1;
            if (other != NULL)
                status = pgl_fail(err, PGL_E_FORMAT, "%s: %.200s: expected in one file, found in %s too",
                                  shard->file, t->name, other->file);
            else if (listed == NULL)
                status = pgl_fail(err, PGL_E_FORMAT, "%s: %.200s: expected an entry for it in %s, found none",
                                  shard->file, t->name, index_file);
            else if (strcmp(listed, base) != 0)
                status = pgl_fail(err, PGL_E_FORMAT, "%s: %.200s: expected in %s, found in %s", index_file,
                                  t->name, listed, shard->file);
            else if (!pgl_map_set(&names, t->name, strlen(t->name), t, NULL) ||
                     !pgl_map_set(&owners, t->name, strlen(t->name), shard, NULL))
                status = out_of_memory(err);
        }
    }
    size_t cursor = 0;
    for (const pgl_map_entry *e; status == PGL_OK && (e = pgl_map_next(&index->files, &cursor)) != NULL;)
        if (is_wanted(set, e->key) && shard_tensor(&names, e->key) == NULL)
            status = pgl_fail(err, PGL_E_FORMAT, "%s: %.200s: expected in %s, found no such tensor there",
                              index_file, e->key, (const char *)e->value);
    if (status == PGL_OK && !set->draft_alone && index->has_total_size && index->total_size != total)
        status = pgl_tensor_set_odd(
            set, err, "%s: metadata.total_size: expected %" PRIu64 " bytes of tensors, found %" PRIu64,
            index_file, total, index->total_size);
    pgl_map_fini(&names);
    pgl_map_fini(&owners);
    return status;
}

static pgl_status open_indexed(pgl_tensor_set *set, const char *directory, const char *folder,
                               const char *index_file, const pgl_buf *text, pgl_error *err) {
    pgl_index index;
    pgl_status status = pgl_index_parse(pgl_buf_text(text), text->size, index_file, &index, err);
    if (status != PGL_OK)
        return status;
    size_t first = set->n_shards, cursor = 0;
    pgl_map wanted = PGL_MAP_INIT; /* names of files */
    for (const pgl_map_entry *e; status == PGL_OK && (e = pgl_map_next(&index.files, &cursor)) != NULL;)
        if (is_wanted(set, e->key) && !pgl_map_set(&wanted, e->value, strlen(e->value), e->value, NULL))
            status = out_of_memory(err);
    for (size_t i = 0; i < index.n_names && status == PGL_OK; i++) {
        if (pgl_map_find(&wanted, index.names[i]) == NULL)
            continue;
        status = open_shard(set, directory, folder, index.names[i], err);
        if (status == PGL_E_NOT_FOUND)
            status = pgl_fail(err, PGL_E_FORMAT, "%s: expected the file %s%s beside it, found none",
                              index_file, folder, index.names[i]);
    }
    if (status == PGL_OK)
        status = check_index(set, first, &index, index_file, err);
    pgl_map_fini(&wanted);
    pgl_index_fini(&index);
    return status;
}

/* A single file beside an index that does not name it: left over from something else, and not read. */
static pgl_status note_left_over(pgl_tensor_set *set, const char *single_path, const char *single_file,
                                 const char *index_file, pgl_error *err) {
    if (!pgl_fs_is_file(single_path))
        return PGL_OK;
    for (size_t i = 0; i < set->n_shards; i++)
        if (strcmp(set->shards[i].file, single_file) == 0)
            return PGL_OK;
    return pgl_tensor_set_odd(set, err, "%s: expected to be named in %s, found no entry; not read",
                              single_file, index_file);
}

/* The weights of one folder ("" or "mtp/"). *found is false, with PGL_OK, when it has none. */
static pgl_status open_folder(pgl_tensor_set *set, const char *directory, const char *folder, bool *found,
                              pgl_error *err) {
    const char *index_file = relative_name(set, folder, INDEX_NAME);
    const char *single_file = relative_name(set, folder, SINGLE_NAME);
    if (index_file == NULL || single_file == NULL)
        return out_of_memory(err);
    char *index_path = pgl_fs_join(directory, index_file);
    char *single_path = pgl_fs_join(directory, single_file);
    pgl_buf text = PGL_BUF_INIT;
    pgl_status status = index_path == NULL || single_path == NULL
                            ? out_of_memory(err)
                            : pgl_fs_read(index_path, (size_t)256 << 20, &text, err);
    *found = true;
    if (status == PGL_OK) {
        if (folder[0] == 0)
            set->listing = index_file;
        status = open_indexed(set, directory, folder, index_file, &text, err);
        if (status == PGL_OK)
            status = note_left_over(set, single_path, single_file, index_file, err);
    } else if (status == PGL_E_NOT_FOUND) {
        if (folder[0] == 0)
            set->listing = single_file;
        status = open_shard(set, directory, folder, SINGLE_NAME, err);
        if (status == PGL_E_NOT_FOUND) {
            *found = false;
            status = PGL_OK;
        }
    }
    pgl_buf_fini(&text);
    free(index_path);
    free(single_path);
    return status;
}

/* The key of a tensor, and which prefix it carries. */
static const char *key_of(pgl_tensor_set *set, const char *folder, const char *name, size_t *prefix) {
    *prefix = N_PREFIXES - 1;
    if (folder[0] != 0) /* the draft head's own folder: its names may or may not repeat "mtp." */
        return starts_with(name, "mtp.") ? name : relative_name(set, "mtp.", name);
    for (size_t i = 0; i < N_PREFIXES; i++) {
        if (starts_with(name, PREFIXES[i])) {
            *prefix = i;
            return name + strlen(PREFIXES[i]);
        }
    }
    return name;
}

static int by_name(const void *a, const void *b) {
    const pgl_tensor *x = a;
    const pgl_tensor *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : strcmp(x->shard->file, y->shard->file);
}

/* Tensors that are left out: the vision tower, and a draft head that the folder mtp/ replaces. */
static bool is_skipped(const char *folder, const pgl_tensor *t, bool draft_folder) {
    if (folder[0] != 0)
        return false;
    return starts_with(t->name, "visual.") || starts_with(t->name, "model.visual.") ||
           (draft_folder && starts_with(t->key, "mtp."));
}

static pgl_status collect(pgl_tensor_set *set, bool draft_folder, pgl_error *err) {
    size_t counts[N_PREFIXES] = {0};
    for (size_t i = 0; i < set->n_shards; i++) {
        const pgl_shard *shard = &set->shards[i];
        const char *folder = strchr(shard->file, '/') == NULL ? "" : "mtp/";
        if (!pgl_grow(&set->tensors, sizeof *set->tensors, &set->tensors_capacity,
                      set->n_tensors + shard->header.n_tensors))
            return out_of_memory(err);
        for (size_t k = 0; k < shard->header.n_tensors; k++) {
            const pgl_safetensors_tensor *entry = &shard->header.tensors[k];
            pgl_tensor *t = &set->tensors[set->n_tensors++];
            size_t prefix;
            *t = (pgl_tensor){.name = entry->name,
                              .entry = entry,
                              .shard = shard,
                              .data = shard->map.data + entry->offset,
                              .role = PGL_TENSOR_NEW};
            t->key = key_of(set, folder, entry->name, &prefix);
            if (t->key == NULL)
                return out_of_memory(err);
            if (set->draft_alone && !starts_with(t->key, "mtp."))
                set->n_tensors--;
            else if (is_skipped(folder, t, draft_folder))
                t->role = PGL_TENSOR_SKIPPED;
            else
                counts[prefix]++;
        }
    }
    if (set->n_tensors > 0)
        qsort(set->tensors, set->n_tensors, sizeof *set->tensors, by_name);
    size_t most = N_PREFIXES - 1; /* the empty prefix only when there is no other */
    for (size_t i = N_PREFIXES - 1; i-- > 0;)
        if (counts[i] > 0 && (most == N_PREFIXES - 1 || counts[i] > counts[most]))
            most = i;
    set->prefix = PREFIXES[most];
    return PGL_OK;
}

static pgl_status name_all(pgl_tensor_set *set, pgl_error *err) {
    size_t n_visual = 0, n_replaced = 0;
    for (size_t i = 0; i < set->n_tensors; i++) {
        pgl_tensor *t = &set->tensors[i];
        if (t->role == PGL_TENSOR_SKIPPED) {
            if (starts_with(t->key, "mtp."))
                n_replaced++;
            else
                n_visual++;
            continue;
        }
        const pgl_tensor *other = pgl_map_find(&set->by_key, t->key);
        if (other != NULL)
            return pgl_fail(err, PGL_E_FORMAT,
                            "%s: %.200s: expected one tensor %.200s, found %.200s in %s too", t->shard->file,
                            t->name, t->key, other->name, other->shard->file);
        if (!pgl_map_set(&set->by_key, t->key, strlen(t->key), t, NULL))
            return out_of_memory(err);
    }
    pgl_status status = PGL_OK;
    if (n_visual > 0)
        status = pgl_tensor_set_note(set, err, "%s: skipped %zu tensors of the vision tower", set->listing,
                                     n_visual);
    if (status == PGL_OK && n_replaced > 0)
        status = pgl_tensor_set_note(set, err, "%s: skipped %zu tensors of the draft head: mtp/ has another",
                                     set->listing, n_replaced);
    return status;
}

pgl_status pgl_tensor_set_open(const char *directory, bool want_draft, pgl_tensor_set *set, pgl_error *err) {
    set->arena = pgl_arena_open(0);
    if (set->arena == NULL)
        return out_of_memory(err);
    bool found = false, draft_found = false;
    pgl_status status = open_folder(set, directory, "", &found, err);
    if (status == PGL_OK && !found)
        status = pgl_fail(err, PGL_E_NOT_FOUND, "%s: expected %s or %s, found neither", directory,
                          SINGLE_NAME, INDEX_NAME);
    if (status == PGL_OK && want_draft)
        status = open_folder(set, directory, "mtp/", &draft_found, err);
    if (status == PGL_OK)
        status = collect(set, draft_found, err);
    if (status == PGL_OK)
        status = name_all(set, err);
    return status;
}

void pgl_tensor_set_close(pgl_tensor_set *set) {
    for (size_t i = 0; i < set->n_shards; i++) {
        pgl_safetensors_header_fini(&set->shards[i].header);
        pgl_mapped_close(&set->shards[i].map);
    }
    free(set->shards);
    free(set->tensors);
    pgl_map_fini(&set->by_key);
    pgl_arena_close(set->arena);
    *set = (pgl_tensor_set){.by_key = PGL_MAP_INIT};
}
