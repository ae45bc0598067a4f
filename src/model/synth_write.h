/* Files of a synthetic checkpoint on disk. Private to the synthesizer. */
#ifndef PGL_MODEL_SYNTH_WRITE_H
#define PGL_MODEL_SYNTH_WRITE_H

#include "model/synth_plan.h"

/* Files are written under NAME.part and get their names together at the end. */
typedef struct pgl_synth_files {
    int directory; /* descriptor */
    const char *path;
    char (*names)[64]; /* in the order in which they appear */
    size_t n_names, capacity;
} pgl_synth_files;

/* Opens the directory, made where it does not exist. *made says whether it was. */
pgl_status pgl_synth_files_open(pgl_synth_files *files, const char *path, bool force, bool *made,
                                pgl_error *err);
/* Renames everything that was written, after the replaced checkpoint's files are gone. */
pgl_status pgl_synth_files_commit(pgl_synth_files *files, pgl_error *err);
/* Removes everything that was written and not committed; then, if remove_directory, the empty directory. */
void pgl_synth_files_abandon(pgl_synth_files *files, bool remove_directory);
void pgl_synth_files_close(pgl_synth_files *files);

/* A new file for writing; the caller closes the descriptor. */
pgl_status pgl_synth_files_create(pgl_synth_files *files, const char *name, int *fd, pgl_error *err);
pgl_status pgl_synth_files_put(pgl_synth_files *files, const char *name, const char *data, size_t size,
                               pgl_error *err);
pgl_status pgl_synth_pwrite(int fd, const void *data, size_t size, uint64_t offset);

/* Fills and writes all shards with several threads. */
pgl_status pgl_synth_write_shards(const pgl_synth_options *options, const pgl_synth_plan *plan,
                                  pgl_synth_files *files, pgl_error *err);

#endif
