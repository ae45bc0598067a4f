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

typedef struct contents {
    pgl_buf json, config, chat;
    bool have_json, have_config, have_chat;
} contents;

static pgl_status open_contents(const contents *c, const char *directory, pgl_text_files *out,
                                pgl_error *err) {
    const char *config = c->have_config ? pgl_buf_text(&c->config) : NULL;
    if (!c->have_json)
        return pgl_fail(err, PGL_E_NOT_FOUND, "%s: no tokenizer.json there", directory);
    pgl_status status = pgl_tokenizer_open(pgl_buf_text(&c->json), c->json.size, config, c->config.size,
                                           &out->tokenizer, err);
    if (status == PGL_OK)
        status = pgl_chat_open(out->tokenizer, c->have_chat ? pgl_buf_text(&c->chat) : NULL, c->chat.size,
                               config, c->config.size, &out->chat, err);
    if (status == PGL_E_NOT_FOUND) /* no template */
        status = PGL_OK;
    if (status != PGL_OK)
        pgl_error_prefix(err, "%s", directory);
    return status;
}

pgl_status pgl_text_files_open(const char *directory, pgl_text_files *out, pgl_error *err) {
    *out = (pgl_text_files){0};
    contents c = {0};
    pgl_status status = read_file(directory, "tokenizer.json", &c.json, &c.have_json, err);
    if (status == PGL_OK)
        status = read_file(directory, "tokenizer_config.json", &c.config, &c.have_config, err);
    if (status == PGL_OK)
        status = read_file(directory, "chat_template.jinja", &c.chat, &c.have_chat, err);
    if (status == PGL_OK)
        status = open_contents(&c, directory, out, err);
    pgl_buf_fini(&c.json);
    pgl_buf_fini(&c.config);
    pgl_buf_fini(&c.chat);
    if (status != PGL_OK)
        pgl_text_files_close(out);
    return status;
}

void pgl_text_files_close(pgl_text_files *files) {
    pgl_chat_close(files->chat);
    pgl_tokenizer_close(files->tokenizer);
    *files = (pgl_text_files){0};
}
