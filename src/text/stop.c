/* Owns copies of the strings, a Knuth-Morris-Pratt table for each, and the text that is held back. */
#include "text/stop.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

typedef struct pattern {
    char *text;
    size_t size;
    size_t *border; /* [size]: of text[0 .. i], the longest proper beginning that is also its end */
    size_t state;   /* bytes of text that the end of the input matches */
} pattern;

struct pgl_stop {
    pattern *patterns;
    size_t n, which;
    pgl_buf held;
};

static bool open_pattern(pattern *p, const pgl_stop_string *string) {
    p->size = string->size;
    p->text = pgl_strndup(string->text, string->size);
    p->border = pgl_new(string->size, sizeof *p->border);
    if (p->text == NULL || p->border == NULL)
        return false;
    for (size_t i = 1, k = 0; i < p->size; i++) {
        while (k > 0 && p->text[i] != p->text[k])
            k = p->border[k - 1];
        k += p->text[i] == p->text[k];
        p->border[i] = k;
    }
    return true;
}

pgl_status pgl_stop_open(const pgl_stop_string *strings, size_t n, pgl_stop **out, pgl_error *err) {
    *out = NULL;
    pgl_stop *s = pgl_new(1, sizeof *s);
    bool ok = s != NULL;
    if (ok) {
        s->which = (size_t)-1;
        s->n = 0;
        s->patterns = pgl_new(n, sizeof *s->patterns);
        ok = s->patterns != NULL;
    }
    for (size_t i = 0; ok && i < n; i++) {
        if (strings[i].size == 0) {
            pgl_stop_close(s);
            return pgl_fail(err, PGL_E_INVALID, "stop[%zu]: expected a string that is not empty", i);
        }
        s->n = i + 1;
        ok = open_pattern(&s->patterns[i], &strings[i]);
    }
    if (!ok) {
        pgl_stop_close(s);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for %zu stop strings", n);
    }
    *out = s;
    return PGL_OK;
}

void pgl_stop_close(pgl_stop *stop) {
    if (stop == NULL)
        return;
    for (size_t i = 0; stop->patterns != NULL && i < stop->n; i++) {
        free(stop->patterns[i].text);
        free(stop->patterns[i].border);
    }
    free(stop->patterns);
    pgl_buf_fini(&stop->held);
    free(stop);
}

/* Moves every pattern on by one byte. The number of the longest one that is complete, or n. */
static size_t step(pgl_stop *s, char c) {
    size_t found = s->n;
    for (size_t i = 0; i < s->n; i++) {
        pattern *p = &s->patterns[i];
        while (p->state > 0 && (p->state == p->size || p->text[p->state] != c))
            p->state = p->border[p->state - 1];
        p->state += p->text[p->state] == c;
        if (p->state == p->size && (found == s->n || p->size > s->patterns[found].size))
            found = i;
    }
    return found;
}

/* Gives out all but the last `keep` bytes of what is held. */
static bool release(pgl_stop *s, size_t keep, pgl_buf *out) {
    size_t n = s->held.size - keep;
    if (n == 0)
        return true;
    if (!pgl_buf_append(out, s->held.data, n))
        return false;
    memmove(s->held.data, s->held.data + n, keep);
    s->held.size = keep;
    s->held.data[keep] = 0;
    return true;
}

pgl_stop_answer pgl_stop_push(pgl_stop *stop, const char *text, size_t size, pgl_buf *out) {
    if (stop->which != (size_t)-1)
        return PGL_STOP_MATCHED;
    if (stop->n == 0)
        return pgl_buf_append(out, text, size) ? PGL_STOP_GOES_ON : PGL_STOP_FAILED;
    if (!pgl_buf_append(&stop->held, text, size))
        return PGL_STOP_FAILED;
    for (size_t i = 0; i < size; i++) {
        size_t found = step(stop, text[i]);
        if (found == stop->n)
            continue;
        size_t behind = size - 1 - i; /* bytes after the match */
        stop->which = found;
        stop->held.size -= behind + stop->patterns[found].size;
        return release(stop, 0, out) ? PGL_STOP_MATCHED : PGL_STOP_FAILED;
    }
    size_t keep = 0;
    for (size_t i = 0; i < stop->n; i++)
        keep = stop->patterns[i].state > keep ? stop->patterns[i].state : keep;
    return release(stop, keep, out) ? PGL_STOP_GOES_ON : PGL_STOP_FAILED;
}

bool pgl_stop_finish(pgl_stop *stop, pgl_buf *out) {
    return stop->which != (size_t)-1 || release(stop, 0, out);
}

size_t pgl_stop_which(const pgl_stop *stop) {
    return stop->which;
}
