/* Lists of token ids, read from a JSON file: one list of ids, or a list of lists. Private to the commands. */
#ifndef PGL_CLI_LOGITS_IDS_H
#define PGL_CLI_LOGITS_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct pgl_id_list {
    int32_t *ids;
    size_t n;
} pgl_id_list;

typedef struct pgl_id_lists {
    pgl_id_list *lists;
    size_t n;
} pgl_id_lists;

/* Every list has at least one id and at most most_tokens; every id is below vocab_size. The message names the file,
 * the list and the element. pgl_id_lists_fini releases, also after a failure. */
pgl_status pgl_id_lists_read(const char *path, uint32_t vocab_size, size_t most_tokens, pgl_id_lists *out,
                             pgl_error *err);
void pgl_id_lists_fini(pgl_id_lists *lists);

#endif
