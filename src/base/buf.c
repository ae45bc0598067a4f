#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void pgl_buf_fini(pgl_buf *buf) {
    free(buf->data);
    *buf = (pgl_buf)PGL_BUF_INIT;
}

void pgl_buf_clear(pgl_buf *buf) {
    buf->size = 0;
    if (buf->data != NULL)
        buf->data[0] = 0;
}

bool pgl_buf_reserve(pgl_buf *buf, size_t more) {
    size_t need;
    if (!pgl_add_size(buf->size, more, &need) || !pgl_add_size(need, 1, &need))
        return false;
    return pgl_grow(&buf->data, 1, &buf->capacity, need);
}

bool pgl_buf_append(pgl_buf *buf, const void *data, size_t size) {
    if (!pgl_buf_reserve(buf, size))
        return false;
    if (size > 0)
        memcpy(buf->data + buf->size, data, size);
    buf->size += size;
    buf->data[buf->size] = 0;
    return true;
}

bool pgl_buf_puts(pgl_buf *buf, const char *text) {
    return pgl_buf_append(buf, text, strlen(text));
}

bool pgl_buf_putc(pgl_buf *buf, char c) {
    return pgl_buf_append(buf, &c, 1);
}

bool pgl_buf_printf(pgl_buf *buf, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    bool ok = n >= 0 && pgl_buf_reserve(buf, (size_t)n);
    if (ok) {
        vsnprintf(buf->data + buf->size, (size_t)n + 1, format, again);
        buf->size += (size_t)n;
    }
    va_end(again);
    return ok;
}

const char *pgl_buf_text(const pgl_buf *buf) {
    return buf->data == NULL ? "" : buf->data;
}
