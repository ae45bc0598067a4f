/* Owns nothing: "did you mean" for commands and options. */
#include "cli/options.h"

#include <string.h>

enum { LENGTH_MAX = 63 };

/* Edits (insert, drop, replace, swap neighbours) that lead from a to b; large when either is too long. */
static size_t distance(const char *a, const char *b) {
    size_t na = strlen(a), nb = strlen(b);
    if (na > LENGTH_MAX || nb > LENGTH_MAX)
        return LENGTH_MAX;
    size_t rows[3][LENGTH_MAX + 1];
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && second[j - 2] + 1 < best)
                best = second[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[na % 3][nb];
}

const char *pgl_nearest(const char *word, const char *const *candidates, size_t n) {
    size_t best = n;
    size_t length = strlen(word);
    size_t limit = length <= 3 ? 1 : length / 3 + 1;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, candidates[i]);
        if (d <= limit) {
            best = i;
            limit = d > 0 ? d - 1 : 0;
            if (d == 0)
                break;
        }
    }
    for (size_t i = 0; best == n && length >= 3 && i < n; i++)
        if (strncmp(word, candidates[i], length) == 0)
            best = i;
    return best < n ? candidates[best] : NULL;
}
