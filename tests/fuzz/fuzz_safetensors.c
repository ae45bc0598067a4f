/* Safetensors headers: whatever is accepted lies inside the file and does not overlap. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "checkpoint/safetensors.h"

static void check(const pgl_safetensors_header *h, size_t size) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < h->n_tensors; i++) {
        const pgl_safetensors_tensor *t = &h->tensors[i];
        if (t->offset > size || t->bytes > size - t->offset || t->n_dims > PGL_SAFETENSORS_MOST_DIMS)
            abort();
        bytes += t->bytes;
        for (size_t k = 0; k < i; k++) {
            const pgl_safetensors_tensor *o = &h->tensors[k];
            if (strcmp(t->name, o->name) == 0)
                abort();
            if (t->bytes != 0 && o->bytes != 0 && t->offset < o->offset + o->bytes &&
                o->offset < t->offset + t->bytes)
                abort();
        }
    }
    if (bytes != h->data_bytes || bytes + h->trailing_bytes > size)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pgl_safetensors_header header;
    pgl_error err;
    if (pgl_safetensors_read_header(data, size, "fuzz.safetensors", &header, &err) == PGL_OK) {
        check(&header, size);
        pgl_safetensors_header_fini(&header);
    } else if (header.arena != NULL || !pgl_utf8_valid(err.text, strlen(err.text))) {
        abort();
    }
    return 0;
}
