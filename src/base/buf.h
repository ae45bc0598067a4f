/* A growing array of bytes with a zero behind the last. Owned by one thread at a time. Start with
 * PGL_BUF_INIT or zeroed memory; pgl_buf_fini releases and leaves it empty. Growing calls return false when
 * memory is out and leave the contents as they were. */
#ifndef PGL_BASE_BUF_H
#define PGL_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct pgl_buf {
    char *data; /* NULL while capacity is 0 */
    size_t size;
    size_t capacity;
} pgl_buf;

#define PGL_BUF_INIT                                                                                         \
    { NULL, 0, 0 }

void pgl_buf_fini(pgl_buf *buf);
void pgl_buf_clear(pgl_buf *buf);
bool pgl_buf_reserve(pgl_buf *buf, size_t more);
bool pgl_buf_append(pgl_buf *buf, const void *data, size_t size);
bool pgl_buf_puts(pgl_buf *buf, const char *text);
bool pgl_buf_putc(pgl_buf *buf, char c);
bool pgl_buf_printf(pgl_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text so far, never NULL. Valid until the next growing call. */
const char *pgl_buf_text(const pgl_buf *buf);

#endif
