/* The index: whatever is accepted names plain files only. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "checkpoint/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pgl_index index;
    pgl_error err;
    if (pgl_index_parse((const char *)data, size, "index.json", &index, &err) == PGL_OK) {
        for (size_t i = 0; i < index.n_names; i++)
            if (strchr(index.names[i], '/') != NULL || index.names[i][0] == '.' ||
                strlen(index.names[i]) > 255)
                abort();
        size_t cursor = 0;
        for (const pgl_map_entry *e; (e = pgl_map_next(&index.files, &cursor)) != NULL;)
            if (strlen(e->value) == 0 || pgl_map_get(&index.files, e->key, e->key_size) != e->value)
                abort();
        pgl_index_fini(&index);
    } else if (index.arena != NULL || !pgl_utf8_valid(err.text, strlen(err.text))) {
        abort();
    }
    return 0;
}
