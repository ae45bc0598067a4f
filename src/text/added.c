/* Owns the tokens' strings and the two indexes. */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/space.h"

static void token_fini(pgl_added_token *token) {
    free(token->text);
    free(token->match);
    free(token->bytes);
}

void pgl_added_fini(pgl_added *added) {
    for (size_t i = 0; i < added->count; i++)
        token_fini(&added->tokens[i]);
    free(added->tokens);
    free(added->raw.tokens);
    free(added->normalized.tokens);
    *added = (pgl_added){0};
}

pgl_status pgl_added_drop(pgl_added_token token, pgl_error *err) {
    token_fini(&token);
    return pgl_fail(err, PGL_E_MEMORY, "tokenizer: no memory for the added tokens");
}

pgl_status pgl_added_put(pgl_added *added, pgl_added_token token, pgl_error *err) {
    pgl_status status = PGL_OK;
    if (added->count == PGL_ADDED_MOST)
        status =
            pgl_fail(err, PGL_E_UNSUPPORTED, "tokenizer.json: more than %d added tokens", PGL_ADDED_MOST);
    else if (!pgl_grow(&added->tokens, sizeof *added->tokens, &added->capacity, added->count + 1))
        status = pgl_fail(err, PGL_E_MEMORY, "tokenizer: no memory for the added tokens");
    if (status != PGL_OK) {
        token_fini(&token);
        return status;
    }
    added->tokens[added->count++] = token;
    return PGL_OK;
}

static int by_id(const void *a, const void *b) {
    int32_t x = ((const pgl_added_token *)a)->id, y = ((const pgl_added_token *)b)->id;
    return (x > y) - (x < y);
}

static int by_match(const void *a, const void *b) {
    const pgl_added_token *x = *(const pgl_added_token *const *)a, *y = *(const pgl_added_token *const *)b;
    unsigned char p = (unsigned char)x->match[0], q = (unsigned char)y->match[0];
    if (p != q)
        return p < q ? -1 : 1;
    if (x->match_size != y->match_size)
        return x->match_size > y->match_size ? -1 : 1;
    return memcmp(x->match, y->match, x->match_size);
}

static pgl_status build(const pgl_added *added, bool normalized, pgl_added_index *index, pgl_error *err) {
    index->tokens = pgl_new(added->count, sizeof(const pgl_added_token *));
    if (index->tokens == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "tokenizer: no memory for the added tokens");
    for (size_t i = 0; i < added->count; i++)
        if (added->tokens[i].normalized == normalized)
            index->tokens[index->count++] = &added->tokens[i];
    if (index->count > 1)
        qsort(index->tokens, index->count, sizeof *index->tokens, by_match);
    for (size_t i = 1; i < index->count; i++)
        if (by_match(&index->tokens[i - 1], &index->tokens[i]) == 0)
            return pgl_fail(err, PGL_E_FORMAT, "tokenizer.json: the added tokens %d and %d are spelled alike",
                            (int)index->tokens[i - 1]->id, (int)index->tokens[i]->id);
    size_t i = 0;
    for (size_t b = 0; b < 256; b++) {
        index->from[b] = (uint16_t)i;
        while (i < index->count && (unsigned char)index->tokens[i]->match[0] == b)
            i++;
    }
    index->from[256] = (uint16_t)i;
    return PGL_OK;
}

pgl_status pgl_added_finish(pgl_added *added, pgl_error *err) {
    if (added->count > 1)
        qsort(added->tokens, added->count, sizeof *added->tokens, by_id);
    for (size_t i = 1; i < added->count; i++)
        if (added->tokens[i - 1].id == added->tokens[i].id)
            return pgl_fail(err, PGL_E_FORMAT, "tokenizer.json: two added tokens have id %d",
                            (int)added->tokens[i].id);
    bool strips = false, blank = false;
    for (size_t i = 0; i < added->count; i++) {
        uint32_t c = 0;
        strips = strips || added->tokens[i].rstrip;
        blank = blank || (pgl_utf8_decode(added->tokens[i].match, added->tokens[i].match_size, &c) > 0 &&
                          pgl_is_white_space(c));
    }
    if (strips && blank)
        return pgl_fail(err, PGL_E_UNSUPPORTED,
                        "tokenizer.json: an added token with rstrip beside one that begins with white space");
    pgl_status status = build(added, false, &added->raw, err);
    return status == PGL_OK ? build(added, true, &added->normalized, err) : status;
}

const pgl_added_token *pgl_added_find(const pgl_added *added, const char *text, size_t size) {
    for (size_t i = 0; i < added->count; i++)
        if (added->tokens[i].size == size && memcmp(added->tokens[i].text, text, size) == 0)
            return &added->tokens[i];
    return NULL;
}

const pgl_added_token *pgl_added_by_id(const pgl_added *added, int32_t id) {
    pgl_added_token key = {.id = id};
    return added->count == 0 ? NULL : bsearch(&key, added->tokens, added->count, sizeof key, by_id);
}

/* ---- matching ---- */

static size_t strip_left(const char *text, size_t start, size_t floor) {
    while (start > floor) {
        size_t p = start - 1;
        while (p > floor && ((unsigned char)text[p] & 0xC0) == 0x80)
            p--;
        uint32_t c;
        if (pgl_utf8_decode(text + p, start - p, &c) <= 0 || !pgl_is_white_space(c))
            break;
        start = p;
    }
    return start;
}

static size_t strip_right(const char *text, size_t size, size_t end) {
    uint32_t c;
    int n;
    while (end < size && (n = pgl_utf8_decode(text + end, size - end, &c)) > 0 && pgl_is_white_space(c))
        end += (size_t)n;
    return end;
}

/* The longest token that is spelled at text[at]. */
static const pgl_added_token *match_at(const pgl_added_index *index, const char *text, size_t size,
                                       size_t at) {
    unsigned char b = (unsigned char)text[at];
    for (size_t i = index->from[b]; i < index->from[b + 1]; i++) {
        const pgl_added_token *t = index->tokens[i];
        if (t->match_size <= size - at && memcmp(text + at, t->match, t->match_size) == 0)
            return t;
    }
    return NULL;
}

const pgl_added_token *pgl_added_match(const pgl_added_index *index, const char *text, size_t size, size_t at,
                                       size_t floor, size_t *start, size_t *end) {
    if (index->count == 0)
        return NULL;
    for (; at < size; at++) {
        const pgl_added_token *t = match_at(index, text, size, at);
        if (t == NULL)
            continue;
        *start = t->lstrip ? strip_left(text, at, floor) : at;
        *end = at + t->match_size;
        if (t->rstrip)
            *end = strip_right(text, size, *end);
        return t;
    }
    return NULL;
}

/* ---- breaking ---- */

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Whether text[at ..) up to blanks at its end is the beginning of a token that goes on behind it. */
static bool begins_token(const pgl_added_index *index, const char *text, size_t size, size_t at) {
    while (size > at && is_blank(text[size - 1]))
        size--;
    size_t n = size - at;
    if (n == 0)
        return false;
    unsigned char b = (unsigned char)text[at];
    for (size_t i = index->from[b]; i < index->from[b + 1]; i++)
        if (index->tokens[i]->match_size > n && memcmp(index->tokens[i]->match, text + at, n) == 0)
            return true;
    return false;
}

/* Whether text begins with a proper ending (two bytes or more) of a token; inside: or lies wholly within one. */
static bool continues_token(const pgl_added_index *index, const char *text, size_t size, bool inside) {
    for (size_t i = 0; i < index->count; i++) {
        const pgl_added_token *t = index->tokens[i];
        for (size_t skip = 1; skip + 1 < t->match_size; skip++) {
            size_t rest = t->match_size - skip;
            size_t n = rest < size ? rest : size;
            if (n >= 2 && (n == rest || inside) && memcmp(t->match + skip, text, n) == 0)
                return true;
        }
    }
    return false;
}

static size_t longest(const pgl_added_index *index) {
    size_t n = 0;
    for (size_t i = 0; i < index->count; i++)
        if (index->tokens[i]->match_size > n)
            n = index->tokens[i]->match_size;
    return n;
}

bool pgl_added_break(const pgl_added *added, const char *text, size_t size, uint32_t breaker, bool inside,
                     pgl_buf *out) {
    const pgl_added_index *const both[] = {&added->raw, &added->normalized};
    char mark[4];
    size_t mark_size = pgl_utf8_encode(breaker, mark);
    /* Blanks at the ends are seen through, since templates trim. */
    size_t head = 0, tail = size;
    while (head < size && is_blank(text[head]))
        head++;
    while (tail > head && is_blank(text[tail - 1]))
        tail--;
    size_t most = longest(both[0]) > longest(both[1]) ? longest(both[0]) : longest(both[1]);
    bool continued = continues_token(both[0], text + head, tail - head, inside) ||
                     continues_token(both[1], text + head, tail - head, inside);
    size_t plain = 0; /* start of what is not copied yet */
    for (size_t at = 0; at < size; at++) {
        bool cut = at == head && continued;
        for (int k = 0; k < 2 && !cut; k++) {
            unsigned char b = (unsigned char)text[at];
            if (both[k]->count > 0 && both[k]->from[b] != both[k]->from[b + 1])
                cut = match_at(both[k], text, size, at) != NULL ||
                      (tail > at && tail - at <= most && begins_token(both[k], text, tail, at));
        }
        if (!cut)
            continue;
        uint32_t c;
        int n = pgl_utf8_decode(text + at, size - at, &c);
        size_t next = at + (n > 0 ? (size_t)n : 1);
        if (!pgl_buf_append(out, text + plain, next - plain) || !pgl_buf_append(out, mark, mark_size))
            return false;
        plain = next;
        at = next - 1;
    }
    return pgl_buf_append(out, text + plain, size - plain);
}
