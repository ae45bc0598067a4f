/* Reads tokenizer.json into a pgl_tokenizer and refuses, by name, whatever this program does not do. Owns nothing that
 * outlives the call but what it puts into the tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/json_text.h"
#include "text/nfc.h"
#include "text/tokenizer_impl.h"

static pgl_status unsupported(pgl_error *err, const char *where, pgl_json_span found, const char *expected) {
    int n = found.size > 120 ? 120 : (int)found.size;
    return pgl_fail(err, PGL_E_UNSUPPORTED, "tokenizer.json: %s is %.*s, expected %s", where,
                    found.text == NULL ? 7 : n, found.text == NULL ? "missing" : found.text, expected);
}

static pgl_json_span member(pgl_json_span object, const char *key) {
    return pgl_json_raw_member(object, key);
}

/* ---- normalizer, pre-tokenizer, post-processor, decoder ---- */

static pgl_status load_normalizer(pgl_tokenizer *t, pgl_json_span n, pgl_error *err) {
    if (pgl_json_absent(n))
        return PGL_OK;
    pgl_json_span type = member(n, "type");
    if (pgl_json_string_is(type, "NFC")) {
        t->nfc = true;
        return PGL_OK;
    }
    if (pgl_json_string_is(type, "Sequence")) {
        pgl_json_iter it = pgl_json_iter_begin(member(n, "normalizers"));
        pgl_json_span key, one;
        pgl_status status = PGL_OK;
        while (status == PGL_OK && pgl_json_iter_next(&it, &key, &one)) {
            if (pgl_json_string_is(member(one, "type"), "NFC"))
                t->nfc = true;
            else
                status = unsupported(err, "normalizer.normalizers[].type", member(one, "type"), "\"NFC\"");
        }
        return status;
    }
    return unsupported(err, "normalizer.type", type, "\"NFC\"");
}

static pgl_status load_split(pgl_tokenizer *t, pgl_json_span split, pgl_error *err) {
    if (t->pattern != NULL)
        return pgl_fail(err, PGL_E_UNSUPPORTED,
                        "tokenizer.json: pre_tokenizer has two Split steps, expected one");
    if (!pgl_json_string_is(member(split, "behavior"), "Isolated"))
        return unsupported(err, "pre_tokenizer: Split.behavior", member(split, "behavior"), "\"Isolated\"");
    if (pgl_json_true(member(split, "invert")))
        return pgl_fail(err, PGL_E_UNSUPPORTED,
                        "tokenizer.json: pre_tokenizer: Split.invert is true, expected false");
    pgl_json_span regex = member(member(split, "pattern"), "Regex");
    if (pgl_json_kind(regex) != '"')
        return unsupported(err, "pre_tokenizer: Split.pattern", member(split, "pattern"),
                           "{\"Regex\": \"..\"}");
    pgl_buf source = PGL_BUF_INIT;
    pgl_status status = pgl_json_raw_string(regex, &source)
                            ? pgl_pattern_open(pgl_buf_text(&source), source.size, &t->pattern, err)
                            : pgl_fail(err, PGL_E_MEMORY, "tokenizer: no memory for the expression");
    pgl_buf_fini(&source);
    return status;
}

static pgl_status check_byte_level(pgl_json_span step, pgl_error *err) {
    if (!pgl_json_string_is(member(step, "type"), "ByteLevel"))
        return unsupported(err, "pre_tokenizer: the last step", member(step, "type"), "\"ByteLevel\"");
    if (pgl_json_kind(member(step, "add_prefix_space")) != 'f')
        return unsupported(err, "pre_tokenizer: ByteLevel.add_prefix_space", member(step, "add_prefix_space"),
                           "false");
    if (pgl_json_kind(member(step, "use_regex")) != 'f')
        return unsupported(err, "pre_tokenizer: ByteLevel.use_regex", member(step, "use_regex"), "false");
    return PGL_OK;
}

static pgl_status load_pre_tokenizer(pgl_tokenizer *t, pgl_json_span p, pgl_error *err) {
    if (!pgl_json_string_is(member(p, "type"), "Sequence"))
        return unsupported(err, "pre_tokenizer.type", member(p, "type"),
                           "\"Sequence\" of Split and ByteLevel");
    pgl_json_iter it = pgl_json_iter_begin(member(p, "pretokenizers"));
    pgl_json_span key, step, last = {NULL, 0};
    pgl_status status = PGL_OK;
    while (status == PGL_OK && pgl_json_iter_next(&it, &key, &step)) {
        if (last.text != NULL)
            return unsupported(err, "pre_tokenizer: the step behind ByteLevel", member(step, "type"), "none");
        if (pgl_json_string_is(member(step, "type"), "Split"))
            status = load_split(t, step, err);
        else
            status = check_byte_level(last = step, err);
    }
    if (status == PGL_OK && (last.text == NULL || t->pattern == NULL))
        return pgl_fail(err, PGL_E_UNSUPPORTED, "tokenizer.json: pre_tokenizer lacks a %s step",
                        t->pattern == NULL ? "Split" : "ByteLevel");
    return status;
}

/* A template that adds nothing to the one sequence there is. */
static bool is_trivial_template(pgl_json_span p) {
    pgl_json_span key, piece;
    pgl_json_iter it = pgl_json_iter_begin(member(p, "single"));
    size_t n = 0;
    while (pgl_json_iter_next(&it, &key, &piece)) {
        if (pgl_json_kind(member(piece, "Sequence")) != '{')
            return false;
        n++;
    }
    return n == 1;
}

static pgl_status check_post_processor(pgl_json_span p, pgl_error *err) {
    pgl_json_span type = member(p, "type");
    if (pgl_json_absent(p) || pgl_json_string_is(type, "ByteLevel"))
        return PGL_OK;
    if (pgl_json_string_is(type, "TemplateProcessing") && is_trivial_template(p))
        return PGL_OK;
    if (pgl_json_string_is(type, "Sequence")) {
        pgl_json_iter it = pgl_json_iter_begin(member(p, "processors"));
        pgl_json_span key, one;
        while (pgl_json_iter_next(&it, &key, &one))
            if (!pgl_json_string_is(member(one, "type"), "ByteLevel") &&
                !(pgl_json_string_is(member(one, "type"), "TemplateProcessing") && is_trivial_template(one)))
                return unsupported(err, "post_processor: a step", member(one, "type"), "\"ByteLevel\"");
        return PGL_OK;
    }
    return unsupported(err, "post_processor.type", type,
                       "null, \"ByteLevel\" or a template that adds no token");
}

/* ---- the model ---- */

enum { TYPE, DROPOUT, PREFIX, SUFFIX, IGNORE_MERGES, VOCAB, MERGES, N_MODEL };
static const char *const MODEL_KEYS[N_MODEL] = {
    "type", "dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges", "vocab", "merges"};

static pgl_status check_model(const pgl_json_span *part, pgl_error *err) {
    if (!pgl_json_absent(part[TYPE]) && !pgl_json_string_is(part[TYPE], "BPE"))
        return unsupported(err, "model.type", part[TYPE], "\"BPE\"");
    for (int i = PREFIX; i <= SUFFIX; i++)
        if (!pgl_json_absent(part[i]) && !pgl_json_string_is(part[i], ""))
            return pgl_fail(err, PGL_E_UNSUPPORTED, "tokenizer.json: model.%s is not empty", MODEL_KEYS[i]);
    if (!pgl_json_absent(part[DROPOUT]) && strspn(part[DROPOUT].text, "0.") < part[DROPOUT].size)
        return unsupported(err, "model.dropout", part[DROPOUT], "null or 0");
    if (pgl_json_kind(part[VOCAB]) != '{')
        return pgl_fail(err, PGL_E_FORMAT, "tokenizer.json: model.vocab is %s, expected an object",
                        pgl_json_kind_name(part[VOCAB]));
    if (pgl_json_kind(part[MERGES]) != '[')
        return pgl_fail(err, PGL_E_FORMAT, "tokenizer.json: model.merges is %s, expected an array",
                        pgl_json_kind_name(part[MERGES]));
    return PGL_OK;
}

/* The highest id. */
static pgl_status measure_vocabulary(pgl_json_span vocab, int64_t *highest, pgl_error *err) {
    pgl_json_iter it = pgl_json_iter_begin(vocab);
    pgl_json_span key, value;
    *highest = -1;
    while (pgl_json_iter_next(&it, &key, &value)) {
        int64_t id;
        if (!pgl_json_integer(value, PGL_BPE_MAX_ID - 1, &id)) {
            int n = key.size > 60 ? 60 : (int)key.size, v = value.size > 30 ? 30 : (int)value.size;
            return pgl_fail(err, PGL_E_FORMAT,
                            "tokenizer.json: model.vocab: id of %.*s is %.*s, expected 0 to %d", n, key.text,
                            v, value.text, (int)PGL_BPE_MAX_ID - 1);
        }
        if (id > *highest)
            *highest = id;
    }
    return PGL_OK;
}

static size_t count_elements(pgl_json_span array) {
    pgl_json_iter it = pgl_json_iter_begin(array);
    pgl_json_span key, value;
    size_t n = 0;
    while (pgl_json_iter_next(&it, &key, &value))
        n++;
    return n;
}

static pgl_status load_vocabulary(pgl_tokenizer *t, pgl_json_span vocab, pgl_error *err) {
    pgl_json_iter it = pgl_json_iter_begin(vocab);
    pgl_json_span key, value;
    pgl_buf text = PGL_BUF_INIT;
    pgl_status status = PGL_OK;
    while (status == PGL_OK && pgl_json_iter_next(&it, &key, &value)) {
        int64_t id;
        pgl_buf_clear(&text);
        if (!pgl_json_raw_string(key, &text) || !pgl_json_integer(value, PGL_BPE_MAX_ID - 1, &id))
            status = pgl_fail(err, PGL_E_MEMORY, "tokenizer: no memory for the vocabulary");
        else
            status = pgl_bpe_add_token(&t->bpe, pgl_buf_text(&text), text.size, (int32_t)id, err);
    }
    pgl_buf_fini(&text);
    return status;
}

/* The token spelled by text, found by its bytes. */
static int32_t find_spelled(const pgl_bpe *bpe, const char *text, size_t size, pgl_buf *bytes) {
    pgl_buf_clear(bytes);
    if (pgl_bpe_bytes(text, size, bytes))
        return pgl_bpe_find(bpe, pgl_buf_text(bytes), bytes->size);
    return pgl_bpe_find(bpe, text, size);
}

typedef struct merge_text {
    pgl_buf text;     /* both halves, one after the other, or "left right" */
    pgl_buf bytes;    /* work space */
    size_t left_size; /* of text */
    size_t right_at;
} merge_text;

/* "left right" or ["left", "right"]; *skip for a version line. */
static bool read_merge(pgl_json_span merge, merge_text *m, bool *skip) {
    *skip = false;
    pgl_buf_clear(&m->text);
    if (pgl_json_kind(merge) == '"') {
        if (!pgl_json_raw_string(merge, &m->text))
            return false;
        const char *text = pgl_buf_text(&m->text);
        *skip = strncmp(text, "#version", 8) == 0;
        const char *space = memchr(text, ' ', m->text.size);
        if (*skip)
            return true;
        if (space == NULL || memchr(space + 1, ' ', m->text.size - (size_t)(space + 1 - text)) != NULL)
            return false;
        m->left_size = (size_t)(space - text);
        m->right_at = m->left_size + 1;
        return true;
    }
    pgl_json_iter it = pgl_json_iter_begin(merge);
    pgl_json_span key, left, right, more;
    if (pgl_json_kind(merge) != '[' || !pgl_json_iter_next(&it, &key, &left) ||
        !pgl_json_iter_next(&it, &key, &right) || pgl_json_iter_next(&it, &key, &more) ||
        !pgl_json_raw_string(left, &m->text))
        return false;
    m->left_size = m->right_at = m->text.size;
    return pgl_json_raw_string(right, &m->text);
}

static pgl_status load_merges(pgl_tokenizer *t, pgl_json_span merges, pgl_error *err) {
    pgl_json_iter it = pgl_json_iter_begin(merges);
    pgl_json_span key, value;
    merge_text m = {0};
    pgl_status status = PGL_OK;
    uint32_t rank = 0;
    while (status == PGL_OK && pgl_json_iter_next(&it, &key, &value)) {
        bool skip;
        int n = value.size > 100 ? 100 : (int)value.size;
        if (!read_merge(value, &m, &skip)) {
            status =
                pgl_fail(err, PGL_E_FORMAT, "tokenizer.json: model.merges[%u] is %.*s, expected two tokens",
                         rank, n, value.text);
            break;
        }
        if (skip)
            continue;
        const char *text = pgl_buf_text(&m.text);
        int32_t left = find_spelled(&t->bpe, text, m.left_size, &m.bytes);
        int32_t right = find_spelled(&t->bpe, text + m.right_at, m.text.size - m.right_at, &m.bytes);
        if (left < 0 || right < 0)
            status =
                pgl_fail(err, PGL_E_FORMAT,
                         "tokenizer.json: model.merges[%u]: %.*s names a token that the vocabulary lacks",
                         rank, n, value.text);
        else
            status = pgl_bpe_add_merge(&t->bpe, left, right, rank, err);
        rank++;
    }
    pgl_buf_fini(&m.text);
    pgl_buf_fini(&m.bytes);
    return status;
}

/* ---- added tokens ---- */

static char *own(const pgl_buf *from, size_t *size) {
    *size = from->size;
    return pgl_strndup(pgl_buf_text(from), from->size);
}

static bool fill(pgl_added_token *token, const pgl_buf *content, bool nfc) {
    pgl_buf other = PGL_BUF_INIT;
    token->text = own(content, &token->size);
    bool ok = token->normalized && nfc ? pgl_nfc(pgl_buf_text(content), content->size, &other)
                                       : pgl_buf_append(&other, pgl_buf_text(content), content->size);
    token->match = ok ? own(&other, &token->match_size) : NULL;
    pgl_buf_clear(&other);
    token->bytes = pgl_bpe_bytes(pgl_buf_text(content), content->size, &other)
                       ? own(&other, &token->bytes_size)
                       : own(content, &token->bytes_size);
    pgl_buf_fini(&other);
    return token->text != NULL && token->match != NULL && token->bytes != NULL;
}

static pgl_status load_added(pgl_tokenizer *t, pgl_json_span one, int64_t id, pgl_error *err) {
    pgl_buf content = PGL_BUF_INIT;
    pgl_added_token token = {.id = (int32_t)id,
                             .special = pgl_json_true(member(one, "special")),
                             .normalized = pgl_json_true(member(one, "normalized")),
                             .lstrip = pgl_json_true(member(one, "lstrip")),
                             .rstrip = pgl_json_true(member(one, "rstrip"))};
    pgl_status status = PGL_OK;
    if (!pgl_json_raw_string(member(one, "content"), &content) || content.size == 0)
        status =
            pgl_fail(err, PGL_E_FORMAT, "tokenizer.json: added token %d: content is %s, expected a string",
                     (int)id, content.size == 0 ? "empty" : pgl_json_kind_name(member(one, "content")));
    else if (pgl_json_true(member(one, "single_word")))
        status =
            pgl_fail(err, PGL_E_UNSUPPORTED, "tokenizer.json: added token %s: single_word is not supported",
                     pgl_buf_text(&content));
    else
        status = fill(&token, &content, t->nfc) ? pgl_added_put(&t->added, token, err)
                                                : pgl_added_drop(token, err);
    pgl_buf_fini(&content);
    return status;
}

static pgl_status load_added_tokens(pgl_tokenizer *t, pgl_json_span list, pgl_error *err) {
    pgl_json_iter it = pgl_json_iter_begin(list);
    pgl_json_span key, one;
    pgl_status status = PGL_OK;
    while (status == PGL_OK && pgl_json_iter_next(&it, &key, &one)) {
        int64_t id;
        if (!pgl_json_integer(member(one, "id"), PGL_BPE_MAX_ID - 1, &id))
            return unsupported(err, "added_tokens[].id", member(one, "id"), "0 to 4194303");
        status = load_added(t, one, id, err);
    }
    return status;
}

/* An added token that the vocabulary has as well must have its id there; one that it lacks must not take another's. */
static pgl_status reconcile(pgl_tokenizer *t, pgl_error *err) {
    pgl_buf bytes = PGL_BUF_INIT;
    pgl_status status = PGL_OK;
    for (size_t i = 0; i < t->added.count && status == PGL_OK; i++) {
        const pgl_added_token *token = &t->added.tokens[i];
        int32_t known = find_spelled(&t->bpe, token->text, token->size, &bytes);
        bool taken = token->id < t->bpe.n_ids && t->bpe.length[token->id] > 0;
        if (known >= 0 ? known != token->id : taken)
            status = pgl_fail(err, PGL_E_FORMAT,
                              "tokenizer.json: added token %s has id %d, but in the vocabulary %s %d",
                              token->text, (int)token->id, known >= 0 ? "it has" : "another token has",
                              known >= 0 ? (int)known : (int)token->id);
        if (status == PGL_OK && known >= 0)
            t->bpe.is_added[known] = true;
    }
    pgl_buf_fini(&bytes);
    return status;
}

static pgl_status load_model(pgl_tokenizer *t, pgl_json_span model, pgl_error *err) {
    pgl_json_span part[N_MODEL];
    pgl_json_members(model, MODEL_KEYS, part, N_MODEL);
    pgl_status status = check_model(part, err);
    int64_t highest = -1;
    if (status == PGL_OK)
        status = measure_vocabulary(part[VOCAB], &highest, err);
    if (status == PGL_OK)
        status = pgl_bpe_init(&t->bpe, (int32_t)highest + 1, count_elements(part[MERGES]), err);
    if (status == PGL_OK)
        status = load_vocabulary(t, part[VOCAB], err);
    if (status == PGL_OK)
        status = reconcile(t, err);
    if (status == PGL_OK)
        status = load_merges(t, part[MERGES], err);
    if (status == PGL_OK)
        status = pgl_bpe_finish(&t->bpe, err);
    t->bpe.ignore_merges = pgl_json_true(part[IGNORE_MERGES]);
    return status;
}

pgl_status pgl_tokenizer_load(pgl_tokenizer *t, const char *json, size_t size, pgl_error *err) {
    pgl_json_options options = {
        .name = "tokenizer.json", .last_wins = true, .allow_nul = true, .replace_surrogates = true};
    pgl_status status = pgl_json_check(json, size, &options, err);
    if (status != PGL_OK)
        return status == PGL_E_INVALID ? err == NULL ? PGL_E_FORMAT : (err->status = PGL_E_FORMAT) : status;
    pgl_json_span root = pgl_json_raw((pgl_json_span){json, size}, NULL, 0);
    if (pgl_json_kind(root) != '{')
        return pgl_fail(err, PGL_E_FORMAT, "tokenizer.json: %s, expected an object",
                        pgl_json_kind_name(root));
    enum { TRUNCATION, PADDING, NORMALIZER, PRE, POST, DECODER, ADDED, MODEL, N };
    static const char *const KEYS[N] = {"truncation",     "padding", "normalizer",   "pre_tokenizer",
                                        "post_processor", "decoder", "added_tokens", "model"};
    pgl_json_span part[N];
    pgl_json_members(root, KEYS, part, N);
    for (size_t i = TRUNCATION; i <= PADDING; i++)
        if (!pgl_json_absent(part[i]))
            return unsupported(err, KEYS[i], part[i], "null");
    status = load_normalizer(t, part[NORMALIZER], err);
    if (status == PGL_OK)
        status = load_pre_tokenizer(t, part[PRE], err);
    if (status == PGL_OK)
        status = check_post_processor(part[POST], err);
    if (status == PGL_OK && !pgl_json_string_is(member(part[DECODER], "type"), "ByteLevel"))
        status = unsupported(err, "decoder.type", member(part[DECODER], "type"), "\"ByteLevel\"");
    if (status == PGL_OK)
        status = load_added_tokens(t, part[ADDED], err);
    if (status == PGL_OK)
        status = load_model(t, part[MODEL], err);
    return status;
}

/* ---- tokenizer_config.json ---- */

pgl_status pgl_tokenizer_load_config(pgl_tokenizer *t, const char *json, size_t size, pgl_error *err) {
    pgl_json_options options = {
        .name = "tokenizer_config.json", .last_wins = true, .allow_nul = true, .replace_surrogates = true};
    pgl_status status = pgl_json_check(json, size, &options, err);
    if (status != PGL_OK)
        return status == PGL_E_INVALID ? err == NULL ? PGL_E_FORMAT : (err->status = PGL_E_FORMAT) : status;
    static const char *const MUST_NOT[] = {"add_bos_token", "add_eos_token", "add_prefix_space"};
    pgl_json_span root = {json, size};
    for (size_t i = 0; i < sizeof MUST_NOT / sizeof MUST_NOT[0]; i++)
        if (pgl_json_true(member(root, MUST_NOT[i])))
            return pgl_fail(err, PGL_E_UNSUPPORTED,
                            "tokenizer_config.json: %s is true, which is not supported", MUST_NOT[i]);
    pgl_json_iter it = pgl_json_iter_begin(member(root, "added_tokens_decoder"));
    pgl_json_span key, one;
    size_t n_before = t->added.count;
    pgl_buf content = PGL_BUF_INIT;
    while (status == PGL_OK && pgl_json_iter_next(&it, &key, &one)) {
        pgl_json_span number = {key.text + 1, key.size - 2};
        int64_t id;
        pgl_buf_clear(&content);
        if (key.text == NULL || !pgl_json_integer(number, PGL_BPE_MAX_ID - 1, &id) ||
            !pgl_json_raw_string(member(one, "content"), &content)) {
            status = pgl_fail(
                err, PGL_E_FORMAT,
                "tokenizer_config.json: added_tokens_decoder: %.*s: expected an id and a token with content",
                (int)(key.size > 40 ? 40 : key.size), key.text == NULL ? "" : key.text);
            break;
        }
        const pgl_added_token *known = NULL;
        for (size_t i = 0; i < n_before && known == NULL; i++)
            if (t->added.tokens[i].id == id)
                known = &t->added.tokens[i];
        if (known == NULL)
            status = load_added(t, one, id, err);
        else if (known->size != content.size || memcmp(known->text, content.data, content.size) != 0)
            status = pgl_fail(err, PGL_E_FORMAT,
                              "tokenizer_config.json: added token %d is %s, but %s in tokenizer.json",
                              (int)id, pgl_buf_text(&content), known->text);
    }
    pgl_buf_fini(&content);
    return status;
}
