#include "checkpoint/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Two 64-bit hashes of the FNV-1a form with different starts and multipliers. */
typedef struct hasher {
    uint64_t a, b;
} hasher;

static void add(hasher *h, const void *data, size_t size) {
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) {
        h->a = (h->a ^ bytes[i]) * 0x100000001B3u;
        h->b = (h->b ^ bytes[i]) * 0x9E3779B97F4A7C15u;
        h->b ^= h->b >> 29;
    }
}

static void add_number(hasher *h, uint64_t number) {
    uint8_t bytes[8];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(number >> 8 * i);
    add(h, bytes, sizeof bytes);
}

static pgl_status add_file(hasher *h, const pgl_checkpoint *checkpoint, const char *name, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT;
    bool found;
    pgl_status status = pgl_checkpoint_read_file(checkpoint, name, &text, &found, err);
    if (status == PGL_OK && !found)
        status = pgl_fail(err, PGL_E_NOT_FOUND, "the checkpoint has no %s", name);
    if (status == PGL_OK) {
        add_number(h, text.size);
        add(h, pgl_buf_text(&text), text.size);
    }
    pgl_buf_fini(&text);
    return status;
}

pgl_status pgl_checkpoint_fingerprint(const pgl_checkpoint *checkpoint, char out[PGL_FINGERPRINT_TEXT],
                                      pgl_error *err) {
    enum { SAMPLE_BYTES = 64 };
    hasher h = {0xCBF29CE484222325u, 0x84222325CBF29CE4u};
    pgl_status status = add_file(&h, checkpoint, "config.json", err);
    if (status == PGL_OK)
        status = add_file(&h, checkpoint, "tokenizer.json", err);
    if (status != PGL_OK)
        return status;
    size_t n = pgl_checkpoint_n_tensors(checkpoint);
    for (size_t i = 0; i < n; i++) {
        pgl_tensor_info t = pgl_checkpoint_tensor(checkpoint, i);
        if (!t.used)
            continue;
        add(&h, t.key, strlen(t.key) + 1);
        add_number(&h, (uint64_t)t.dtype);
        add_number(&h, t.n_dims);
        for (uint32_t d = 0; d < t.n_dims; d++)
            add_number(&h, t.dims[d]);
        add(&h, t.data, t.bytes < SAMPLE_BYTES ? (size_t)t.bytes : (size_t)SAMPLE_BYTES);
    }
    (void)snprintf(out, PGL_FINGERPRINT_TEXT, "%016" PRIx64 "%016" PRIx64, h.a, h.b);
    return PGL_OK;
}
