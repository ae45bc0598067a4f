/* Small files and directories. Messages name the path and the system's reason. Any thread. */
#ifndef PGL_BASE_FS_H
#define PGL_BASE_FS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

/* Appends the whole regular file to out. PGL_E_NOT_FOUND when it does not exist, PGL_E_TOO_LARGE above
 * max_bytes (nothing is read then), PGL_E_IO otherwise; out is as before after a failure. */
pgl_status pgl_fs_read(const char *path, size_t max_bytes, pgl_buf *out, pgl_error *err);

/* Writes path so that it holds either the old or the new contents at any moment: a file beside it, synced,
 * renamed. */
pgl_status pgl_fs_write(const char *path, const void *data, size_t size, pgl_error *err);

/* The names in a directory without "." and "..", sorted by bytes. *names is one block: release with free().
 */
pgl_status pgl_fs_list(const char *directory, char ***names, size_t *n_names, pgl_error *err);

/* "directory/name" with one slash between. free() releases; NULL when memory is out. */
char *pgl_fs_join(const char *directory, const char *name);

bool pgl_fs_is_file(const char *path);
bool pgl_fs_is_directory(const char *path);

#endif
