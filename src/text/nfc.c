/* Owns nothing. Decomposition and composition tables are utf8proc's; the sort between them is ours, because
 * utf8proc_decompose sorts by exchange, which takes hours on a megabyte of marks in falling order. */
#include "text/nfc.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/alloc.h"
#include "base/utf8.h"

/* Lead bytes below 0xCC begin code points below U+0300, none of which composes or moves by itself. */
static bool is_plain_byte(char c) {
    return (unsigned char)c < 0xCC;
}

bool pgl_nfc_is_plain(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!is_plain_byte(text[i]))
            return false;
    return true;
}

typedef struct work {
    utf8proc_int32_t *chars, *sorted;
    size_t count, capacity, sorted_capacity;
} work;

static int class_of(utf8proc_int32_t c) {
    return (int)utf8proc_get_property(c)->combining_class;
}

/* Sorts chars[from .. to), all of class > 0, stably by class. */
static bool sort_marks(work *w, size_t from, size_t to) {
    size_t n = to - from;
    bool sorted = true;
    for (size_t i = from + 1; i < to; i++)
        sorted = sorted && class_of(w->chars[i - 1]) <= class_of(w->chars[i]);
    if (sorted)
        return true;
    if (!pgl_grow(&w->sorted, sizeof *w->sorted, &w->sorted_capacity, n))
        return false;
    size_t start[257] = {0};
    for (size_t i = from; i < to; i++)
        start[class_of(w->chars[i]) + 1]++;
    for (int c = 0; c < 256; c++)
        start[c + 1] += start[c];
    for (size_t i = from; i < to; i++)
        w->sorted[start[class_of(w->chars[i])]++] = w->chars[i];
    memcpy(w->chars + from, w->sorted, n * sizeof *w->sorted);
    return true;
}

static bool decompose(work *w, const char *text, size_t size) {
    w->count = 0;
    for (size_t i = 0; i < size;) {
        uint32_t c = 0xFFFD;
        int n = pgl_utf8_decode(text + i, size - i, &c);
        i += n > 0 ? (size_t)n : 1;
        for (;;) {
            if (!pgl_grow(&w->chars, sizeof *w->chars, &w->capacity, w->count + 4))
                return false;
            int boundary = 0;
            size_t room = w->capacity - w->count;
            utf8proc_ssize_t got =
                utf8proc_decompose_char((utf8proc_int32_t)c, w->chars + w->count, (utf8proc_ssize_t)room,
                                        UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
            if (got < 0)
                return false;
            if ((size_t)got <= room) {
                w->count += (size_t)got;
                break;
            }
            if (!pgl_grow(&w->chars, sizeof *w->chars, &w->capacity, w->count + (size_t)got))
                return false;
        }
    }
    return true;
}

/* One stretch between places where nothing can join. */
static bool normalise_stretch(work *w, const char *text, size_t size, pgl_buf *out) {
    if (!decompose(w, text, size))
        return false;
    for (size_t i = 0; i < w->count;) {
        size_t to = i;
        while (to < w->count && class_of(w->chars[to]) > 0)
            to++;
        if (to - i > 1 && !sort_marks(w, i, to))
            return false;
        i = to > i ? to : i + 1;
    }
    utf8proc_ssize_t n =
        utf8proc_normalize_utf32(w->chars, (utf8proc_ssize_t)w->count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (n < 0)
        return false;
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        char bytes[4];
        if (!pgl_buf_append(out, bytes, pgl_utf8_encode((uint32_t)w->chars[i], bytes)))
            return false;
    }
    return true;
}

bool pgl_nfc(const char *text, size_t size, pgl_buf *out) {
    work w = {0};
    bool ok = true;
    size_t at = 0; /* everything before is written */
    while (ok && at < size) {
        /* ASCII starts a stretch: it never joins what is before it. So plain text can be copied up to the last ASCII
         * byte before the first character that is not plain, and from there to the next ASCII byte is one stretch. */
        size_t start = at;
        size_t i = at;
        while (i < size && is_plain_byte(text[i])) {
            if ((unsigned char)text[i] < 0x80)
                start = i;
            i++;
        }
        if (i == size) {
            ok = pgl_buf_append(out, text + at, size - at);
            break;
        }
        size_t stop = i;
        while (stop < size && (unsigned char)text[stop] >= 0x80)
            stop++;
        ok = pgl_buf_append(out, text + at, start - at) &&
             normalise_stretch(&w, text + start, stop - start, out);
        at = stop;
    }
    free(w.chars);
    free(w.sorted);
    return ok;
}
