/* Byte-pair encoding over byte-level tokens: the vocabulary, the merges, and the encoding of one piece of text.
 * Private to text. Owned by a tokenizer; immutable once the last merge is added. */
#ifndef PGL_TEXT_BPE_H
#define PGL_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "text/tokenizer.h"

#define PGL_BPE_MAX_ID ((int32_t)1 << 22)

typedef struct pgl_merge {
    uint64_t pair; /* left << 32 | right */
    uint32_t rank; /* PGL_BPE_NO_RANK: an empty slot */
    int32_t id;
} pgl_merge;

#define PGL_BPE_NO_RANK UINT32_MAX

typedef struct pgl_bpe {
    /* tokens by id */
    int32_t n_ids;
    uint32_t *start, *length; /* [n_ids] into bytes; length 0: no such token */
    bool *is_added;           /* [n_ids] set by the caller before the merges: text never becomes these */
    pgl_buf bytes;            /* what the tokens decode to */
    size_t longest;

    /* ids by bytes: open addressing, id -1 empty; tag: more of the hash */
    struct pgl_bpe_slot {
        int32_t id;
        uint32_t tag;
    } * by_bytes;
    size_t by_bytes_mask;

    /* merges by pair: open addressing */
    pgl_merge *merges;
    size_t merges_mask;
    uint32_t n_ranks;

    int32_t byte_id[256]; /* the token of each single byte */
    bool ignore_merges;   /* a piece that is a token as a whole is that token */
} pgl_bpe;

/* The byte that a character of the byte-level alphabet stands for, or -1. */
int pgl_bpe_byte(uint32_t character);

/* Turns a token's text in that alphabet into bytes; false when it has other characters (out is then untouched). */
bool pgl_bpe_bytes(const char *text, size_t size, pgl_buf *out);

/* Room for ids 0 .. n_ids - 1. */
pgl_status pgl_bpe_init(pgl_bpe *bpe, int32_t n_ids, size_t n_merges, pgl_error *err);
void pgl_bpe_fini(pgl_bpe *bpe);

/* text: the token as the file spells it, in the byte-level alphabet. */
pgl_status pgl_bpe_add_token(pgl_bpe *bpe, const char *text, size_t size, int32_t id, pgl_error *err);
pgl_status pgl_bpe_add_merge(pgl_bpe *bpe, int32_t left, int32_t right, uint32_t rank, pgl_error *err);
pgl_status pgl_bpe_finish(pgl_bpe *bpe, pgl_error *err); /* every single byte must be a token */

int32_t pgl_bpe_find(const pgl_bpe *bpe, const char *bytes, size_t size); /* -1: none */

/* A mergeable pair that waits in the list of its rank. */
typedef struct pgl_bpe_entry {
    uint32_t left, next;
} pgl_bpe_entry;

/* Work memory of one thread; zeroed to begin with, grown as needed. */
typedef struct pgl_bpe_work {
    /* symbols of the piece, [capacity] */
    int32_t *ids; /* -1: merged into the one before */
    uint32_t *next, *prev;
    size_t capacity;
    uint32_t *rank; /* of the pairs of a short piece */

    /* pairs of a long one */
    uint32_t *first; /* [n_ranks] the list of each rank */
    uint32_t *heap;  /* ranks that have a list */
    size_t n_heap, heap_capacity;
    pgl_bpe_entry *entries;
    size_t n_entries, entries_capacity;
    uint32_t free_entry;
    uint32_t *batch;
    size_t batch_capacity;
} pgl_bpe_work;

void pgl_bpe_work_fini(pgl_bpe_work *work);

/* Appends the ids of one piece: the merge of lowest rank first, the leftmost of equals. False when memory is out. */
bool pgl_bpe_encode(const pgl_bpe *bpe, const char *bytes, size_t size, pgl_bpe_work *work, pgl_ids *ids);

#endif
