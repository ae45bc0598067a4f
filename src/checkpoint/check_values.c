/* Looks at the numbers themselves: everything that is stored as a float must be finite. Trellis codes and int8 have no
 * other values, so that of the published 12.3 GB only the half gigabyte of floats is read. */
#include <inttypes.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

#define CHUNK 2048

/* Whether one of n (at most CHUNK) numbers is infinite or NaN: all exponent bits set. */
static bool bad_chunk16(const uint16_t *x, size_t n, uint16_t exponent) {
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (x[i] & exponent) == exponent;
    return bad != 0;
}

static bool bad_chunk32(const uint32_t *x, size_t n) {
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (x[i] & 0x7F800000u) == 0x7F800000u;
    return bad != 0;
}

/* The first element that is not finite; n when there is none. Data may be unaligned. */
static uint64_t first_bad(const void *data, pgl_dtype dtype, uint64_t n) {
    union {
        uint16_t half[CHUNK];
        uint32_t word[CHUNK];
    } chunk;
    const char *p = data;
    uint32_t size = pgl_dtype_size(dtype);
    for (uint64_t at = 0; at < n; at += CHUNK) {
        size_t count = n - at < CHUNK ? (size_t)(n - at) : CHUNK;
        memcpy(&chunk, p + at * size, count * size);
        bool bad = dtype == PGL_F32 ? bad_chunk32(chunk.word, count)
                                    : bad_chunk16(chunk.half, count, dtype == PGL_F16 ? 0x7C00 : 0x7F80);
        for (size_t i = 0; bad && i < count; i++) {
            float value = pgl_read_f32(p, dtype, at + i);
            if (value - value != 0)
                return at + i;
        }
    }
    return n;
}

#define READ_AHEAD ((uint64_t)32 << 20)

static bool is_float(const pgl_tensor_info *t) {
    return t->used && (t->dtype == PGL_F16 || t->dtype == PGL_BF16 || t->dtype == PGL_F32);
}

/* Starts reading tensors from *next on, until the disk has READ_AHEAD bytes more to do than were checked. */
static void read_ahead(const pgl_checkpoint *checkpoint, size_t *next, uint64_t *asked, uint64_t done) {
    while (*next < pgl_checkpoint_n_tensors(checkpoint) && *asked < done + READ_AHEAD) {
        pgl_tensor_info t = pgl_checkpoint_tensor(checkpoint, (*next)++);
        if (!is_float(&t) || t.bytes == 0)
            continue;
        (void)pgl_checkpoint_advise(checkpoint, t.data, t.bytes, PGL_MAPPED_SOON, NULL); /* a hint */
        *asked += t.bytes;
    }
}

pgl_status pgl_checkpoint_check_values(const pgl_checkpoint *checkpoint, pgl_checkpoint_progress progress,
                                       void *context, pgl_error *err) {
    size_t n_tensors = pgl_checkpoint_n_tensors(checkpoint);
    uint64_t total = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        pgl_tensor_info t = pgl_checkpoint_tensor(checkpoint, i);
        total += is_float(&t) ? t.bytes : 0;
    }
    uint64_t done = 0;
    uint64_t asked = 0;
    size_t next = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        pgl_tensor_info t = pgl_checkpoint_tensor(checkpoint, i);
        if (!is_float(&t))
            continue;
        read_ahead(checkpoint, &next, &asked, done);
        uint64_t n = t.bytes / pgl_dtype_size(t.dtype);
        uint64_t bad = first_bad(t.data, t.dtype, n);
        if (bad < n)
            return pgl_fail(err, PGL_E_FORMAT,
                            "%s: %.200s: expected finite numbers, found %g at element %" PRIu64
                            " of %" PRIu64,
                            t.file, t.name, (double)pgl_read_f32(t.data, t.dtype, bad), bad, n);
        done += t.bytes;
        if (progress != NULL && !progress(context, done, total))
            return pgl_fail(err, PGL_E_CANCELLED, "stopped while checking the checkpoint's numbers");
    }
    return PGL_OK;
}
