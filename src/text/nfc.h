/* Unicode normalisation form C of UTF-8, in time linear in the text whatever it holds (long runs of combining marks
 * included). Private to text. Any thread. */
#ifndef PGL_TEXT_NFC_H
#define PGL_TEXT_NFC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Appends the normal form of valid UTF-8. False when memory is out. */
bool pgl_nfc(const char *text, size_t size, pgl_buf *out);

/* True when text is sure to be its own normal form: everything in it is below U+0300. */
bool pgl_nfc_is_plain(const char *text, size_t size);

#endif
