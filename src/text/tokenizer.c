/* Owns the tokenizer object. Work memory is made anew for each call: nothing here is shared but what never changes. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/nfc.h"
#include "text/tokenizer_impl.h"

void pgl_ids_fini(pgl_ids *ids) {
    free(ids->data);
    *ids = (pgl_ids){0};
}

bool pgl_ids_append(pgl_ids *ids, int32_t id) {
    if (!pgl_grow(&ids->data, sizeof *ids->data, &ids->capacity, ids->count + 1))
        return false;
    ids->data[ids->count++] = id;
    return true;
}

/* ---- open and close ---- */

static pgl_status finish(pgl_tokenizer *t, pgl_error *err) {
    pgl_status status = pgl_added_finish(&t->added, err);
    if (status != PGL_OK)
        return status;
    t->n_ids = t->bpe.n_ids;
    t->longest = t->bpe.longest;
    for (size_t i = 0; i < t->added.count; i++) {
        if (t->added.tokens[i].id >= t->n_ids)
            t->n_ids = t->added.tokens[i].id + 1;
        if (t->added.tokens[i].bytes_size > t->longest)
            t->longest = t->added.tokens[i].bytes_size;
    }
    return PGL_OK;
}

pgl_status pgl_tokenizer_open(const char *json, size_t size, const char *config, size_t config_size,
                              pgl_tokenizer **out, pgl_error *err) {
    *out = NULL;
    pgl_tokenizer *t = pgl_new(1, sizeof *t);
    if (t == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "tokenizer: out of memory");
    pgl_status status = pgl_tokenizer_load(t, json, size, err);
    if (status == PGL_OK && config != NULL)
        status = pgl_tokenizer_load_config(t, config, config_size, err);
    if (status == PGL_OK)
        status = finish(t, err);
    if (status != PGL_OK) {
        pgl_tokenizer_close(t);
        return status;
    }
    *out = t;
    return PGL_OK;
}

void pgl_tokenizer_close(pgl_tokenizer *t) {
    if (t == NULL)
        return;
    pgl_bpe_fini(&t->bpe);
    pgl_added_fini(&t->added);
    pgl_pattern_close(t->pattern);
    free(t);
}

/* ---- encoding ---- */

typedef struct encoder {
    const pgl_tokenizer *t;
    pgl_ids *ids;
    pgl_error *err;
    pgl_pattern_state *pattern;
    pgl_bpe_work work;
    pgl_buf whole, clean, normal; /* a segment in normal form; without breakers; both */
    char mark[4];                 /* the breaker */
    size_t mark_size;             /* 0: none */
} encoder;

static pgl_status out_of_memory(encoder *e) {
    return pgl_fail(e->err, PGL_E_MEMORY, "tokenizer: out of memory");
}

/* Text in normal form, without added tokens and breakers. */
static pgl_status encode_plain(encoder *e, const char *text, size_t size) {
    for (size_t at = 0; at < size;) {
        size_t end;
        pgl_status status = pgl_pattern_next(e->pattern, text, size, at, &end, e->err);
        if (status != PGL_OK)
            return status;
        if (!pgl_bpe_encode(&e->t->bpe, text + at, end - at, &e->work, e->ids))
            return out_of_memory(e);
        at = end;
    }
    return PGL_OK;
}

/* Removes the breakers; leaves *text and *size alone when there are none. */
static bool remove_breakers(encoder *e, const char **text, size_t *size) {
    if (e->mark_size == 0)
        return true;
    const char *at = *text, *end = *text + *size;
    const char *found = memmem(at, *size, e->mark, e->mark_size);
    if (found == NULL)
        return true;
    pgl_buf_clear(&e->clean);
    for (; found != NULL; found = memmem(at, (size_t)(end - at), e->mark, e->mark_size)) {
        if (!pgl_buf_append(&e->clean, at, (size_t)(found - at)))
            return false;
        at = found + e->mark_size;
    }
    if (!pgl_buf_append(&e->clean, at, (size_t)(end - at)))
        return false;
    *text = pgl_buf_text(&e->clean);
    *size = e->clean.size;
    return true;
}

/* A segment that is to become text. */
static pgl_status encode_segment(encoder *e, const char *text, size_t size) {
    if (!remove_breakers(e, &text, &size))
        return out_of_memory(e);
    if (!e->t->nfc || pgl_nfc_is_plain(text, size))
        return encode_plain(e, text, size);
    pgl_buf_clear(&e->normal);
    if (!pgl_nfc(text, size, &e->normal))
        return out_of_memory(e);
    return encode_plain(e, pgl_buf_text(&e->normal), e->normal.size);
}

/* A segment between added tokens that are matched in the raw text: those matched in normal form come next. */
static pgl_status encode_normalized(encoder *e, const char *text, size_t size) {
    const pgl_added_index *index = &e->t->added.normalized;
    if (index->count == 0 || size == 0)
        return encode_segment(e, text, size);
    if (e->t->nfc && !pgl_nfc_is_plain(text, size)) {
        pgl_buf_clear(&e->whole);
        if (!pgl_nfc(text, size, &e->whole))
            return out_of_memory(e);
        text = pgl_buf_text(&e->whole);
        size = e->whole.size;
    }
    size_t at = 0, start, end;
    const pgl_added_token *token;
    while ((token = pgl_added_match(index, text, size, at, at, &start, &end)) != NULL) {
        pgl_status status = encode_segment(e, text + at, start - at);
        if (status != PGL_OK)
            return status;
        if (!pgl_ids_append(e->ids, token->id))
            return out_of_memory(e);
        at = end;
    }
    return encode_segment(e, text + at, size - at);
}

static pgl_status encode_raw(encoder *e, const char *text, size_t size) {
    size_t at = 0, start, end;
    const pgl_added_token *token;
    while ((token = pgl_added_match(&e->t->added.raw, text, size, at, at, &start, &end)) != NULL) {
        pgl_status status = encode_normalized(e, text + at, start - at);
        if (status != PGL_OK)
            return status;
        if (!pgl_ids_append(e->ids, token->id))
            return out_of_memory(e);
        at = end;
    }
    return encode_normalized(e, text + at, size - at);
}

static pgl_status encode(const pgl_tokenizer *t, const char *text, size_t size, bool raw, uint32_t breaker,
                         pgl_ids *ids, pgl_error *err) {
    if (size > PGL_TOKENIZER_MAX_BYTES)
        return pgl_fail(err, PGL_E_TOO_LARGE, "text of %zu bytes: at most %zu are tokenized at once", size,
                        PGL_TOKENIZER_MAX_BYTES);
    size_t valid = pgl_utf8_valid_prefix(text, size);
    if (valid != size)
        return pgl_fail(err, PGL_E_INVALID, "text is not UTF-8 at byte %zu", valid);
    encoder e = {.t = t, .ids = ids, .err = err};
    e.mark_size = breaker == 0 ? 0 : pgl_utf8_encode(breaker, e.mark);
    size_t count_before = ids->count;
    pgl_status status = pgl_pattern_state_open(t->pattern, &e.pattern, err);
    if (status == PGL_OK)
        status = raw ? encode_raw(&e, text, size) : encode_segment(&e, text, size);
    pgl_pattern_state_close(e.pattern);
    pgl_bpe_work_fini(&e.work);
    pgl_buf_fini(&e.whole);
    pgl_buf_fini(&e.clean);
    pgl_buf_fini(&e.normal);
    if (status != PGL_OK)
        ids->count = count_before;
    return status;
}

pgl_status pgl_tokenizer_encode(const pgl_tokenizer *t, const char *text, size_t size, pgl_encode_mode mode,
                                pgl_ids *ids, pgl_error *err) {
    return encode(t, text, size, mode == PGL_ENCODE_RAW, 0, ids, err);
}

pgl_status pgl_tokenizer_encode_broken(const pgl_tokenizer *t, const char *text, size_t size,
                                       uint32_t breaker, pgl_ids *ids, pgl_error *err) {
    return encode(t, text, size, true, breaker, ids, err);
}

/* ---- the vocabulary ---- */

int32_t pgl_tokenizer_n_ids(const pgl_tokenizer *t) {
    return t->n_ids;
}

pgl_token_kind pgl_tokenizer_kind(const pgl_tokenizer *t, int32_t id) {
    const pgl_added_token *added = pgl_added_by_id(&t->added, id);
    if (added != NULL)
        return added->special ? PGL_TOKEN_SPECIAL : PGL_TOKEN_ADDED;
    return id >= 0 && id < t->bpe.n_ids && t->bpe.length[id] > 0 ? PGL_TOKEN_TEXT : PGL_TOKEN_NONE;
}

const char *pgl_tokenizer_bytes(const pgl_tokenizer *t, int32_t id, size_t *size) {
    const pgl_added_token *added = pgl_added_by_id(&t->added, id);
    if (added != NULL) {
        *size = added->bytes_size;
        return added->bytes;
    }
    if (id < 0 || id >= t->bpe.n_ids || t->bpe.length[id] == 0) {
        *size = 0;
        return NULL;
    }
    *size = t->bpe.length[id];
    return t->bpe.bytes.data + t->bpe.start[id];
}

int32_t pgl_tokenizer_find_added(const pgl_tokenizer *t, const char *text, size_t size) {
    const pgl_added_token *added = pgl_added_find(&t->added, text, size);
    return added == NULL ? -1 : added->id;
}

int32_t pgl_tokenizer_find_text(const pgl_tokenizer *t, const char *bytes, size_t size) {
    int32_t id = pgl_bpe_find(&t->bpe, bytes, size);
    return id >= 0 && t->bpe.is_added[id] ? -1 : id;
}

size_t pgl_tokenizer_n_added(const pgl_tokenizer *t) {
    return t->added.count;
}

int32_t pgl_tokenizer_added(const pgl_tokenizer *t, size_t i) {
    return t->added.tokens[i].id;
}

size_t pgl_tokenizer_longest(const pgl_tokenizer *t) {
    return t->longest;
}

bool pgl_tokenizer_break(const pgl_tokenizer *t, const char *text, size_t size, uint32_t breaker, bool inside,
                         pgl_buf *out) {
    return pgl_added_break(&t->added, text, size, breaker, inside, out);
}
