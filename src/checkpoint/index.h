/* model.safetensors.index.json: which file holds which tensor. Takes bytes, not paths. */
#ifndef PGL_CHECKPOINT_INDEX_H
#define PGL_CHECKPOINT_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/status.h"

typedef struct pgl_index {
    pgl_map files;      /* tensor name -> const char * file name, in the order of the index */
    const char **names; /* the different files, sorted */
    size_t n_names;
    bool has_total_size; /* metadata.total_size */
    uint64_t total_size;
    pgl_arena *arena; /* owns the file names */
} pgl_index;

/* PGL_E_FORMAT: broken JSON, a name twice, no weight_map or an empty one, a file name that is not a plain name ending in
 * ".safetensors" (a path would lead out of the checkpoint), more than 1,000 files. */
pgl_status pgl_index_parse(const char *json, size_t size, const char *name, pgl_index *out, pgl_error *err);
void pgl_index_fini(pgl_index *index);

#endif
