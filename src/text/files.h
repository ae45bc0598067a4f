/* The text side of a checkpoint's directory: tokenizer.json, tokenizer_config.json, chat_template.jinja. */
#ifndef PGL_TEXT_FILES_H
#define PGL_TEXT_FILES_H

#include "base/status.h"
#include "text/chat.h"
#include "text/tokenizer.h"

typedef struct pgl_text_files {
    pgl_tokenizer *tokenizer;
    pgl_chat *chat; /* NULL when the checkpoint has no chat template */
} pgl_text_files;

/* Reads and opens what the directory has. tokenizer.json must be there. On failure nothing is left open. */
pgl_status pgl_text_files_open(const char *directory, pgl_text_files *out, pgl_error *err);
void pgl_text_files_close(pgl_text_files *files); /* also of zeroed memory */

#endif
