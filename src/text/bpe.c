/* Owns the vocabulary's bytes, its two hash tables and nothing else. Encoding keeps the piece as a linked list of
 * symbols and the mergeable pairs in lists by rank: work memory is linear, time O(n log n). Short pieces, nearly all
 * there are, take a plain scan. */
#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

#define NONE UINT32_MAX
#define SHORT_PIECE 48 /* bytes; above, the lists are faster than going over all pairs for each merge */

/* ---- the byte-level alphabet ---- */

static bool stands_for_itself(uint32_t c) {
    return (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255);
}

int pgl_bpe_byte(uint32_t character) {
    if (character < 256)
        return stands_for_itself(character) ? (int)character : -1;
    /* the others follow from U+0100 on, in order: 0 to 32, 127 to 160, 173 */
    uint32_t n = character - 256;
    return n < 33 ? (int)n : n < 67 ? (int)n - 33 + 127 : n == 67 ? 173 : -1;
}

bool pgl_bpe_bytes(const char *text, size_t size, pgl_buf *out) {
    size_t before = out->size;
    if (!pgl_buf_reserve(out, size))
        return false;
    for (size_t i = 0; i < size;) {
        uint32_t c;
        int n = pgl_utf8_decode(text + i, size - i, &c);
        int byte = n > 0 ? pgl_bpe_byte(c) : -1;
        if (byte < 0) {
            out->size = before;
            return false;
        }
        out->data[out->size++] = (char)byte;
        i += (size_t)n;
    }
    out->data[out->size] = 0;
    return true;
}

/* ---- tables ---- */

static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return x ^ (x >> 32);
}

static uint64_t hash_bytes(const char *bytes, size_t size) {
    uint64_t h = size;
    for (size_t i = 0; i < size; i++)
        h = (h ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    return mix(h);
}

static size_t table_size(size_t n) {
    size_t size = 16;
    while (size < 2 * n)
        size *= 2;
    return size;
}

pgl_status pgl_bpe_init(pgl_bpe *bpe, int32_t n_ids, size_t n_merges, pgl_error *err) {
    *bpe = (pgl_bpe){.n_ids = n_ids};
    size_t n = (size_t)n_ids;
    size_t n_slots = table_size(n), n_merge_slots = table_size(n_merges);
    bpe->start = pgl_new(n, sizeof *bpe->start);
    bpe->length = pgl_new(n, sizeof *bpe->length);
    bpe->is_added = pgl_new(n, sizeof *bpe->is_added);
    bpe->by_bytes = pgl_new(n_slots, sizeof *bpe->by_bytes);
    bpe->merges = pgl_new(n_merge_slots, sizeof *bpe->merges);
    if (bpe->start == NULL || bpe->length == NULL || bpe->is_added == NULL || bpe->by_bytes == NULL ||
        bpe->merges == NULL) {
        pgl_bpe_fini(bpe);
        return pgl_fail(err, PGL_E_MEMORY, "tokenizer: no memory for %zu tokens and %zu merges", n, n_merges);
    }
    bpe->by_bytes_mask = n_slots - 1;
    bpe->merges_mask = n_merge_slots - 1;
    for (size_t i = 0; i < n_slots; i++)
        bpe->by_bytes[i].id = -1;
    for (size_t i = 0; i < n_merge_slots; i++)
        bpe->merges[i].rank = PGL_BPE_NO_RANK;
    return PGL_OK;
}

void pgl_bpe_fini(pgl_bpe *bpe) {
    free(bpe->start);
    free(bpe->length);
    free(bpe->is_added);
    free(bpe->by_bytes);
    free(bpe->merges);
    pgl_buf_fini(&bpe->bytes);
    *bpe = (pgl_bpe){0};
}

/* The slot that holds these bytes, or the empty one where they belong. */
static struct pgl_bpe_slot *slot_of(const pgl_bpe *bpe, const char *bytes, size_t size, uint32_t *tag) {
    uint64_t hash = hash_bytes(bytes, size);
    *tag = (uint32_t)(hash >> 32);
    for (size_t at = (size_t)hash & bpe->by_bytes_mask;; at = (at + 1) & bpe->by_bytes_mask) {
        struct pgl_bpe_slot *slot = &bpe->by_bytes[at];
        if (slot->id < 0 || (slot->tag == *tag && bpe->length[slot->id] == size &&
                             memcmp(bpe->bytes.data + bpe->start[slot->id], bytes, size) == 0))
            return slot;
    }
}

int32_t pgl_bpe_find(const pgl_bpe *bpe, const char *bytes, size_t size) {
    uint32_t tag;
    return size == 0 ? -1 : slot_of(bpe, bytes, size, &tag)->id;
}

pgl_status pgl_bpe_add_token(pgl_bpe *bpe, const char *text, size_t size, int32_t id, pgl_error *err) {
    int show = size > 100 ? 100 : (int)size;
    if (id < 0 || id >= bpe->n_ids)
        return pgl_fail(err, PGL_E_FORMAT, "tokenizer.json: token \"%.*s\" has id %d, expected 0 to %d", show,
                        text, (int)id, (int)bpe->n_ids - 1);
    if (size == 0)
        return pgl_fail(err, PGL_E_UNSUPPORTED, "tokenizer.json: token %d of the vocabulary is empty",
                        (int)id);
    if (bpe->length[id] != 0)
        return pgl_fail(err, PGL_E_FORMAT, "tokenizer.json: two tokens of the vocabulary have id %d",
                        (int)id);
    size_t start = bpe->bytes.size;
    if (start + size > UINT32_MAX)
        return pgl_fail(err, PGL_E_TOO_LARGE, "tokenizer.json: the vocabulary's text is over 4 GiB");
    /* A token with characters outside the alphabet decodes to its own text, and no merge can reach it. */
    if (!pgl_bpe_bytes(text, size, &bpe->bytes) && !pgl_buf_append(&bpe->bytes, text, size))
        return pgl_fail(err, PGL_E_MEMORY, "tokenizer: no memory for the vocabulary");
    size_t length = bpe->bytes.size - start;
    uint32_t tag;
    struct pgl_bpe_slot *slot = slot_of(bpe, bpe->bytes.data + start, length, &tag);
    if (slot->id >= 0)
        return pgl_fail(err, PGL_E_FORMAT, "tokenizer.json: tokens %d and %d have the same bytes (\"%.*s\")",
                        (int)slot->id, (int)id, show, text);
    *slot = (struct pgl_bpe_slot){id, tag};
    bpe->start[id] = (uint32_t)start;
    bpe->length[id] = (uint32_t)length;
    if (length > bpe->longest)
        bpe->longest = length;
    return PGL_OK;
}

static size_t merge_slot(const pgl_bpe *bpe, uint64_t pair) {
    size_t slot = (size_t)mix(pair) & bpe->merges_mask;
    while (bpe->merges[slot].rank != PGL_BPE_NO_RANK && bpe->merges[slot].pair != pair)
        slot = (slot + 1) & bpe->merges_mask;
    return slot;
}

static uint64_t pair_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

pgl_status pgl_bpe_add_merge(pgl_bpe *bpe, int32_t left, int32_t right, uint32_t rank, pgl_error *err) {
    char *both = NULL;
    size_t a = bpe->length[left], b = bpe->length[right];
    if ((both = pgl_new(a + b, 1)) == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "tokenizer: no memory for the merges");
    memcpy(both, bpe->bytes.data + bpe->start[left], a);
    memcpy(both + a, bpe->bytes.data + bpe->start[right], b);
    int32_t id = pgl_bpe_find(bpe, both, a + b);
    free(both);
    if (id < 0)
        return pgl_fail(err, PGL_E_FORMAT,
                        "tokenizer.json: merge %u joins tokens %d and %d to one that the vocabulary lacks",
                        rank, (int)left, (int)right);
    if (bpe->is_added[id])
        return pgl_fail(err, PGL_E_UNSUPPORTED, "tokenizer.json: merge %u makes the added token %d", rank,
                        (int)id);
    pgl_merge *merge = &bpe->merges[merge_slot(bpe, pair_of(left, right))];
    if (rank >= bpe->n_ranks)
        bpe->n_ranks = rank + 1;
    *merge = (pgl_merge){pair_of(left, right), rank, id}; /* of a pair given twice the last counts */
    return PGL_OK;
}

pgl_status pgl_bpe_finish(pgl_bpe *bpe, pgl_error *err) {
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        bpe->byte_id[b] = pgl_bpe_find(bpe, &byte, 1);
        if (bpe->byte_id[b] < 0)
            return pgl_fail(err, PGL_E_UNSUPPORTED,
                            "tokenizer.json: the vocabulary has no token for the single byte 0x%02X",
                            (unsigned)b);
    }
    return PGL_OK;
}

/* ---- encoding ---- */

void pgl_bpe_work_fini(pgl_bpe_work *work) {
    free(work->ids);
    free(work->rank);
    free(work->next);
    free(work->prev);
    free(work->first);
    free(work->heap);
    free(work->entries);
    free(work->batch);
    memset(work, 0, sizeof *work);
}

static bool work_reserve(pgl_bpe_work *w, size_t n) {
    if (n <= w->capacity)
        return true;
    pgl_bpe_work_fini(w);
    size_t grown = n < 1024 ? 1024 : n;
    w->ids = pgl_new(grown, sizeof *w->ids);
    w->rank = pgl_new(SHORT_PIECE, sizeof *w->rank);
    w->next = pgl_new(grown, sizeof *w->next);
    w->prev = pgl_new(grown, sizeof *w->prev);
    if (w->ids == NULL || w->rank == NULL || w->next == NULL || w->prev == NULL) {
        pgl_bpe_work_fini(w);
        return false;
    }
    w->capacity = grown;
    return true;
}

static uint32_t rank_of(const pgl_bpe *bpe, int32_t left, int32_t right, int32_t *id) {
    const pgl_merge *merge = &bpe->merges[merge_slot(bpe, pair_of(left, right))];
    *id = merge->id;
    return merge->rank;
}

static bool append_all(const int32_t *from, size_t n, pgl_ids *ids) {
    if (!pgl_grow(&ids->data, sizeof *ids->data, &ids->capacity, ids->count + n))
        return false;
    memcpy(ids->data + ids->count, from, n * sizeof *from);
    ids->count += n;
    return true;
}

/* rank[i] is of the pair (i, i + 1). */
static bool encode_short(const pgl_bpe *bpe, size_t n, pgl_bpe_work *w, pgl_ids *ids) {
    int32_t *id = w->ids;
    uint32_t *rank = w->rank;
    int32_t merged;
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of(bpe, id[i], id[i + 1], &merged);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == PGL_BPE_NO_RANK)
            break;
        rank_of(bpe, id[best], id[best + 1], &merged);
        id[best] = merged;
        memmove(id + best + 1, id + best + 2, (n - best - 2) * sizeof *id);
        memmove(rank + best, rank + best + 1, (n - best - 2) * sizeof *rank);
        n--;
        if (best + 1 < n)
            rank[best] = rank_of(bpe, id[best], id[best + 1], &merged);
        if (best > 0)
            rank[best - 1] = rank_of(bpe, id[best - 1], id[best], &merged);
    }
    return append_all(id, n, ids);
}

/* Long pieces: pairs wait in one list for each rank, and the ranks that have a list in a heap. All pairs of the lowest
 * rank are merged from left to right in one go, which keeps the order of one merge at a time, since a merge by itself
 * makes only pairs of other ranks. Entries whose pair is gone by their turn are dropped then. */

static bool push_rank(pgl_bpe_work *w, uint32_t rank) {
    if (!pgl_grow(&w->heap, sizeof *w->heap, &w->heap_capacity, w->n_heap + 1))
        return false;
    size_t at = w->n_heap++;
    while (at > 0 && w->heap[(at - 1) / 2] > rank) {
        w->heap[at] = w->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    w->heap[at] = rank;
    return true;
}

static uint32_t pop_rank(pgl_bpe_work *w) {
    uint32_t least = w->heap[0], last = w->heap[--w->n_heap];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= w->n_heap)
            break;
        if (child + 1 < w->n_heap && w->heap[child + 1] < w->heap[child])
            child++;
        if (w->heap[child] >= last)
            break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    w->heap[at] = last;
    return least;
}

/* Puts the pair whose left symbol is `left` into the list of its rank, if it can be merged at all. */
static bool push_pair(const pgl_bpe *bpe, pgl_bpe_work *w, uint32_t left) {
    int32_t merged;
    if (w->next[left] == NONE)
        return true;
    uint32_t rank = rank_of(bpe, w->ids[left], w->ids[w->next[left]], &merged);
    if (rank == PGL_BPE_NO_RANK)
        return true;
    uint32_t entry = w->free_entry;
    if (entry != NONE) {
        w->free_entry = w->entries[entry].next;
    } else {
        if (!pgl_grow(&w->entries, sizeof *w->entries, &w->entries_capacity, w->n_entries + 1))
            return false;
        entry = (uint32_t)w->n_entries++;
    }
    if (w->first[rank] == NONE && !push_rank(w, rank))
        return false;
    w->entries[entry] = (pgl_bpe_entry){left, w->first[rank]};
    w->first[rank] = entry;
    return true;
}

static int rising(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Moves the list of rank into batch[0 .. result), in rising order. NONE when memory is out. */
static uint32_t take_batch(pgl_bpe_work *w, uint32_t rank) {
    size_t n = 0;
    bool falling = true; /* lists are built from the front: what was pushed from left to right falls */
    for (uint32_t e = w->first[rank]; e != NONE;) {
        if (!pgl_grow(&w->batch, sizeof *w->batch, &w->batch_capacity, n + 1))
            return NONE;
        falling = falling && (n == 0 || w->entries[e].left < w->batch[n - 1]);
        w->batch[n++] = w->entries[e].left;
        uint32_t next = w->entries[e].next;
        w->entries[e].next = w->free_entry;
        w->free_entry = e;
        e = next;
    }
    w->first[rank] = NONE;
    if (!falling)
        qsort(w->batch, n, sizeof *w->batch, rising);
    for (size_t i = 0; falling && i < n / 2; i++) {
        uint32_t left = w->batch[i];
        w->batch[i] = w->batch[n - 1 - i];
        w->batch[n - 1 - i] = left;
    }
    return (uint32_t)n;
}

/* Merges the pair at left if it still has this rank. */
static bool merge_pair(const pgl_bpe *bpe, pgl_bpe_work *w, uint32_t left, uint32_t rank) {
    int32_t merged;
    uint32_t right = w->next[left];
    if (w->ids[left] < 0 || right == NONE || rank_of(bpe, w->ids[left], w->ids[right], &merged) != rank)
        return true;
    w->ids[left] = merged;
    w->ids[right] = -1;
    w->next[left] = w->next[right];
    if (w->next[left] != NONE)
        w->prev[w->next[left]] = left;
    return (w->prev[left] == NONE || push_pair(bpe, w, w->prev[left])) && push_pair(bpe, w, left);
}

static bool merge_all(const pgl_bpe *bpe, pgl_bpe_work *w) {
    while (w->n_heap > 0) {
        uint32_t rank = pop_rank(w);
        uint32_t n = take_batch(w, rank);
        if (n == NONE)
            return false;
        for (uint32_t i = 0; i < n; i++) {
            if (!merge_pair(bpe, w, w->batch[i], rank))
                return false;
            if (w->n_heap == 0 || w->heap[0] > rank)
                continue;
            /* A merge made a pair of lower rank, which goes first: the rest of the batch waits in its list again. */
            for (uint32_t rest = i + 1; rest < n; rest++)
                if (w->ids[w->batch[rest]] >= 0 && !push_pair(bpe, w, w->batch[rest]))
                    return false;
            break;
        }
    }
    return true;
}

static bool encode_long(const pgl_bpe *bpe, size_t n, pgl_bpe_work *w, pgl_ids *ids) {
    if (w->first == NULL) {
        w->first = pgl_new(bpe->n_ranks, sizeof *w->first);
        if (w->first == NULL)
            return false;
        memset(w->first, 0xFF, bpe->n_ranks * sizeof *w->first);
    }
    w->n_heap = w->n_entries = 0;
    w->free_entry = NONE;
    for (uint32_t i = 0; i < n; i++) {
        w->prev[i] = i == 0 ? NONE : i - 1;
        w->next[i] = i + 1 == n ? NONE : i + 1;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!push_pair(bpe, w, i))
            return false;
    if (!merge_all(bpe, w))
        return false;
    size_t count = 0;
    for (uint32_t i = 0; i != NONE; i = w->next[i])
        w->ids[count++] = w->ids[i]; /* count never passes i */
    return append_all(w->ids, count, ids);
}

bool pgl_bpe_encode(const pgl_bpe *bpe, const char *bytes, size_t size, pgl_bpe_work *w, pgl_ids *ids) {
    if (size == 0)
        return true;
    if (size == 1)
        return pgl_ids_append(ids, bpe->byte_id[(unsigned char)bytes[0]]);
    if (bpe->ignore_merges) {
        int32_t id = pgl_bpe_find(bpe, bytes, size);
        if (id >= 0 && !bpe->is_added[id])
            return pgl_ids_append(ids, id);
    }
    if (!work_reserve(w, size))
        return false;
    for (size_t i = 0; i < size; i++)
        w->ids[i] = bpe->byte_id[(unsigned char)bytes[i]];
    return size <= SHORT_PIECE ? encode_short(bpe, size, w, ids) : encode_long(bpe, size, w, ids);
}
