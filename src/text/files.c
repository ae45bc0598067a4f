/* Owns the opened objects until close. */
#include "text/files.h"

#include <stdlib.h>

#include "base/fs.h"

#define MAX_FILE_BYTES ((size_t)64 << 20)

/* *found false, with PGL_OK, when there is no such file. */
static pgl_status read_file(const char *directory, const char *name, pgl_buf *out, bool *found,
                            pgl_error *err) {
    char *path = pgl_fs_join(directory, name);
    if (path == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "%s/%s: no memory for the path", directory, name);
    pgl_status status = pgl_fs_read(path, MAX_FILE_BYTES, out, err);
    free(path);
    *found = status == PGL_OK;
    return status == PGL_E_NOT_FOUND ? PGL_OK : status;
}

pgl_status pgl_text_files_open(const char *directory, pgl_text_files *out, pgl_error *err) {
    *out = (pgl_text_files){0};
    pgl_buf json = PGL_BUF_INIT, config = PGL_BUF_INIT;
    bool have_json = false, have_config = false;
    pgl_status status = read_file(directory, "tokenizer.json", &json, &have_json, err);
    if (status == PGL_OK && !have_json)
        status = pgl_fail(err, PGL_E_NOT_FOUND, "%s: no tokenizer.json there", directory);
    if (status == PGL_OK)
        status = read_file(directory, "tokenizer_config.json", &config, &have_config, err);
    if (status == PGL_OK) {
        status = pgl_tokenizer_open(json.data, json.size, have_config ? config.data : NULL, config.size,
                                    &out->tokenizer, err);
        if (status != PGL_OK)
            pgl_error_prefix(err, "%s", directory);
    }
    pgl_buf_fini(&json);
    pgl_buf_fini(&config);
    if (status != PGL_OK)
        pgl_text_files_close(out);
    return status;
}

void pgl_text_files_close(pgl_text_files *files) {
    pgl_tokenizer_close(files->tokenizer);
    *files = (pgl_text_files){0};
}
