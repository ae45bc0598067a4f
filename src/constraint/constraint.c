/* Owns vocabularies and matchers of bridge/constraint.h. Grammars are written in grammar*.c. */
#include "constraint/constraint.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bridge/constraint.h"
#include "constraint/json_follow.h"
#include "constraint/schema.h"

/* Of a number that nothing else bounds, in a row: more than any double has, and an exponent that keeps it finite. */
#define MOST_DIGITS 20
#define MOST_EXPONENT_DIGITS 2

/* Of an answer's state. Over it an answer fails on its way, so the first is far above what the widest schemas come to that
 * are let in (PGL_CONSTRAINT_MOST_OPTIONAL, _ALTERNATIVES). A grammar of the caller may be ambiguous, and the time of a
 * step is the square of this. */
#define MOST_ITEMS 40000
#define MOST_ITEMS_OF_CALLER 2000

/* Tokens that a mask may have to hold back: bit id % 32 of word id / 32. */
enum { CONTROL, DIGIT_FIRST, BACKSLASH, BACKSLASH_BEHIND_QUOTE, N_SETS };

struct pgl_constraint_vocabulary {
    pgl_constraint_tokens tokens;
    int32_t *ends;
    pthread_mutex_t lock; /* guards what follows */
    pgl_bridge_vocabulary *made;
    uint32_t *sets[N_SETS]; /* each of n_words */
    size_t n_words;
};

struct pgl_constraint {
    const pgl_constraint_vocabulary *vocabulary;
    pgl_bridge_matcher *matcher;
    pgl_constraint_kind kind;
    bool names; /* names of members matter: spelled in one way only */
    pgl_json_follow json;
    uint32_t *rest; /* [n_words] of the vocabulary: a mask in the making */
};

static pgl_status failed(pgl_bridge_code code, const char *message, pgl_error *err) {
    pgl_status status =
        code == PGL_BRIDGE_SYNTAX || code == PGL_BRIDGE_LIMIT ? PGL_E_INVALID : PGL_E_INTERNAL;
    size_t line = strcspn(message, "\n"); /* what stands behind it is of no use to a client */
    return pgl_fail(err, status, "%.*s", (int)line, message);
}

pgl_status pgl_constraint_vocabulary_open(const pgl_constraint_tokens *tokens,
                                          pgl_constraint_vocabulary **out, pgl_error *err) {
    *out = NULL;
    if (tokens->n_ids == 0 || tokens->n_ends == 0)
        return pgl_fail(err, PGL_E_INVALID,
                        "structured output: expected a vocabulary with an end token, found %u ids and %u",
                        tokens->n_ids, tokens->n_ends);
    if (pgl_bridge_watch() == 0)
        return pgl_fail(err, PGL_E_MEMORY, "structured output: no thread to bound the time of grammars");
    pgl_constraint_vocabulary *v = pgl_new(1, sizeof *v);
    int32_t *ends = pgl_new(tokens->n_ends, sizeof *ends);
    if (v == NULL || ends == NULL || pthread_mutex_init(&v->lock, NULL) != 0) {
        free(v);
        free(ends);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the vocabulary of structured output");
    }
    memcpy(ends, tokens->ends, tokens->n_ends * sizeof *ends);
    v->tokens = *tokens;
    v->tokens.ends = v->ends = ends;
    *out = v;
    return PGL_OK;
}

void pgl_constraint_vocabulary_close(pgl_constraint_vocabulary *vocabulary) {
    if (vocabulary == NULL)
        return;
    pgl_bridge_vocabulary_close(vocabulary->made);
    for (int i = 0; i < N_SETS; i++)
        free(vocabulary->sets[i]);
    pthread_mutex_destroy(&vocabulary->lock);
    free(vocabulary->ends);
    free(vocabulary);
}

static bool is_end(const pgl_constraint_tokens *tokens, uint32_t id) {
    for (uint32_t i = 0; i < tokens->n_ends; i++)
        if (tokens->ends[i] == (int32_t)id)
            return true;
    return false;
}

static void sort_token(pgl_constraint_vocabulary *v, uint32_t id, const char *bytes, size_t size,
                       bool control) {
    uint32_t bit = 1u << (id % 32);
    const char *quote = size > 0 ? memchr(bytes, '"', size) : NULL;
    if (control)
        v->sets[CONTROL][id / 32] |= bit;
    if (size > 0 && bytes[0] >= '0' && bytes[0] <= '9')
        v->sets[DIGIT_FIRST][id / 32] |= bit;
    if (size > 0 && memchr(bytes, '\\', size) != NULL)
        v->sets[BACKSLASH][id / 32] |= bit;
    if (quote != NULL && memchr(quote, '\\', size - (size_t)(quote - bytes)) != NULL)
        v->sets[BACKSLASH_BEHIND_QUOTE][id / 32] |= bit;
}

/* The trie of all tokens; the lock is held. */
static pgl_status make(pgl_constraint_vocabulary *v, pgl_error *err) {
    const pgl_constraint_tokens *t = &v->tokens;
    const char **bytes = pgl_new(t->n_ids, sizeof *bytes);
    size_t *sizes = pgl_new(t->n_ids, sizeof *sizes);
    uint8_t *control = pgl_new(t->n_ids, 1);
    pgl_status status = PGL_OK;
    bool ok = bytes != NULL && sizes != NULL && control != NULL;
    v->n_words = ((size_t)t->n_ids + 31) / 32;
    for (int i = 0; i < N_SETS; i++) {
        free(v->sets[i]); /* of an attempt that failed */
        v->sets[i] = pgl_new(v->n_words, sizeof *v->sets[i]);
        ok = ok && v->sets[i] != NULL;
    }
    if (!ok) {
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for the vocabulary of structured output");
    } else {
        for (uint32_t id = 0; id < t->n_ids; id++) {
            bool added = false;
            bytes[id] = t->bytes(t->user, (int32_t)id, &sizes[id], &added);
            sizes[id] = bytes[id] == NULL ? 0 : sizes[id];
            control[id] = added ? 1 : 0;
            sort_token(v, id, bytes[id], sizes[id], added && !is_end(t, id));
        }
        pgl_bridge_vocabulary_spec spec = {t->n_ids, bytes, sizes, control, t->ends, t->n_ends};
        char message[512];
        pgl_bridge_code code = pgl_bridge_vocabulary_open(&spec, &v->made, message, sizeof message);
        if (code != PGL_BRIDGE_OK)
            status = failed(code, message, err);
    }
    free(bytes);
    free(sizes);
    free(control);
    return status;
}

pgl_status pgl_constraint_vocabulary_prepare(pgl_constraint_vocabulary *vocabulary, pgl_error *err) {
    pthread_mutex_lock(&vocabulary->lock);
    pgl_status status = vocabulary->made == NULL ? make(vocabulary, err) : PGL_OK;
    pthread_mutex_unlock(&vocabulary->lock);
    return status;
}

/* ---- compiling */

/* The library goes down into a grammar's rules, a schema's references and its own expressions with a call for each. The
 * limits of constraint.h leave it at most some ten thousand of them, of up to 10 KiB; only what is used of a stack takes
 * memory. Measured with 10,000 schemas that refer to each other: 8 MiB hold fewer than 1,000. */
#define STACK_BYTES ((size_t)256 << 20)

typedef struct job {
    const pgl_constraint_vocabulary *vocabulary;
    const pgl_buf *grammar;
    size_t most_items;
    pgl_bridge_matcher *matcher; /* result */
    char *message;
    size_t message_size;
    pgl_bridge_code code;
} job;

static void *compile(void *user) {
    job *j = user;
    j->code = pgl_bridge_matcher_compile(j->vocabulary->made, pgl_buf_text(j->grammar), j->grammar->size,
                                         j->most_items, &j->matcher, j->message, j->message_size);
    return NULL;
}

static pgl_status run_with_stack(job *j, pgl_error *err) {
    pthread_attr_t attributes;
    pthread_t thread = 0;
    if (pthread_attr_init(&attributes) != 0)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a thread");
    int failure = pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (failure == 0)
        failure = pthread_create(&thread, &attributes, compile, j);
    pthread_attr_destroy(&attributes);
    if (failure != 0)
        return pgl_fail(err, PGL_E_MEMORY, "structured output: no thread to compile a grammar: %s",
                        strerror(failure));
    pthread_join(thread, NULL);
    return PGL_OK;
}

/* What the library says of a grammar, for one who did not write that grammar but a schema or an expression: on one line,
 * without our own rules. */
static void explain(char *message) {
    static const char *const LEADS[] = {"failed to compile JSON schema: ", "\nerror: "};
    const char *from = message;
    for (size_t i = 0; i < sizeof LEADS / sizeof LEADS[0]; i++) {
        const char *lead = strstr(from, LEADS[i]);
        from = lead == NULL ? from : lead + strlen(LEADS[i]);
    }
    size_t n = 0;
    bool blank = false;
    for (const char *p = from; *p != 0 && strncmp(p, "\n   1 | ", 8) != 0; p++) {
        if (*p == '\n' || *p == ' ') {
            blank = n > 0;
            continue;
        }
        if (blank)
            message[n++] = ' ';
        message[n++] = *p;
        blank = false;
    }
    message[n] = 0;
}

/* ---- saying what is at fault */

/* The library's words for keywords that it does not have, in ours. False: it says something else. */
static bool reword(const json_t *schema, const char *message, pgl_error *err) {
    static const char KEYS[] = "Unimplemented keys: [",
                      FORMAT[] = "Unknown format: ", ONE_OF[] = "oneOf constraints are not supported";
    const char *keys = strstr(message, KEYS), *format = strstr(message, FORMAT);
    char first[80] = "";
    if (keys != NULL) {
        keys += strlen(KEYS);
        (void)sscanf(keys, "\"%79[^\"]", first);
        pgl_fail(err, PGL_E_UNSUPPORTED, "%.*s: not supported", (int)strcspn(keys, "]"), keys);
    } else if (strstr(message, ONE_OF) != NULL) {
        snprintf(first, sizeof first, "oneOf");
        pgl_fail(err, PGL_E_UNSUPPORTED,
                 "\"oneOf\": not supported where its members are not clearly disjoint; \"anyOf\" is");
    } else if (format != NULL) {
        snprintf(first, sizeof first, "format");
        pgl_fail(err, PGL_E_UNSUPPORTED, "\"format\": \"%.80s\" is not supported", format + strlen(FORMAT));
    } else {
        return false;
    }
    char *place = pgl_constraint_find_place(schema, first);
    if (place != NULL && place[0] != 0)
        pgl_error_prefix(err, "%s", place);
    free(place);
    return true;
}

static bool compiles(void *user, const json_t *schema) {
    pgl_constraint *c = user;
    pgl_buf grammar = PGL_BUF_INIT;
    char message[16];
    job j = {
        .vocabulary = c->vocabulary, .grammar = &grammar, .message = message, .message_size = sizeof message};
    bool ok = pgl_buf_puts(&grammar, "start: ") && pgl_constraint_put_schema(&grammar, schema);
    if (ok)
        ok = run_with_stack(&j, NULL) != PGL_OK || j.code == PGL_BRIDGE_OK;
    pgl_bridge_matcher_close(j.matcher);
    pgl_buf_fini(&grammar);
    return ok;
}

/* Puts the keyword at fault before a message of the library, unless it names one. */
static void name_keyword(pgl_constraint *c, const pgl_constraint_spec *spec, const char *message,
                         pgl_error *err) {
    static const char *const NAMED[] = {"minimum",    "Minimum",   "maximum",    "minItems",
                                        "Properties", "minLength", "property '", "$ref"};
    json_t *schema = NULL;
    bool known = pgl_json_parse(spec->text, spec->size, NULL, &schema, NULL) == PGL_OK;
    bool named = known && reword(schema, message, err);
    for (size_t i = 0; i < sizeof NAMED / sizeof NAMED[0]; i++)
        named = named || strstr(message, NAMED[i]) != NULL;
    if (known && !named) {
        char *keyword = pgl_constraint_find_keyword(schema, compiles, c);
        if (keyword != NULL)
            pgl_error_prefix(err, "%s", keyword);
        if (strstr(message, "look-around") != NULL)
            err->status = PGL_E_UNSUPPORTED;
        free(keyword);
    }
    json_decref(schema);
}

static pgl_status open_matcher(pgl_constraint *c, const pgl_constraint_spec *spec, const pgl_buf *grammar,
                               pgl_error *err) {
    static const char *const NAMES[] = {"schema",  "json_object", "regular expression",
                                        "grammar", "tools",       "choices"};
    job j = {.vocabulary = c->vocabulary,
             .grammar = grammar,
             .most_items = c->kind == PGL_CONSTRAINT_LARK ? MOST_ITEMS_OF_CALLER : MOST_ITEMS,
             .message_size = 4096 + 2 * grammar->size}; /* errors quote the text at fault */
    j.message = pgl_new(j.message_size, 1);
    if (j.message == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a grammar");
    pgl_status status = run_with_stack(&j, err);
    c->matcher = j.matcher;
    if (status == PGL_OK && j.code != PGL_BRIDGE_OK) {
        if (strncmp(j.message, "NoExtensionBias", 15) == 0)
            memcpy(j.message, "it allows no answer", sizeof "it allows no answer");
        else if (c->kind != PGL_CONSTRAINT_LARK)
            explain(j.message);
        status = failed(j.code, j.message, err);
        if (c->kind == PGL_CONSTRAINT_JSON_SCHEMA)
            name_keyword(c, spec, j.message, err);
        pgl_error_prefix(err, "%s", NAMES[c->kind]);
    }
    free(j.message);
    return status;
}

/* ---- life */

static pgl_status open_empty(const pgl_constraint_vocabulary *vocabulary, pgl_constraint_kind kind,
                             bool names, pgl_constraint **out, pgl_error *err) {
    pgl_constraint *c = pgl_new(1, sizeof *c);
    uint32_t *rest = pgl_new(vocabulary->n_words, sizeof *rest);
    if (c == NULL || rest == NULL) {
        free(c);
        free(rest);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a constraint");
    }
    *c = (pgl_constraint){.vocabulary = vocabulary, .kind = kind, .names = names, .rest = rest};
    *out = c;
    return PGL_OK;
}

static bool names_matter(const pgl_constraint_spec *spec) {
    json_t *schema = NULL;
    if (spec->kind == PGL_CONSTRAINT_JSON_SCHEMA)
        (void)pgl_json_parse(spec->text, spec->size, NULL, &schema, NULL);
    bool names = pgl_constraint_names_members(schema);
    json_decref(schema);
    return names;
}

pgl_status pgl_constraint_open(pgl_constraint_vocabulary *vocabulary, const pgl_constraint_spec *spec,
                               pgl_constraint **out, pgl_error *err) {
    *out = NULL;
    pgl_buf grammar = PGL_BUF_INIT;
    pgl_constraint *c = NULL;
    pgl_status status = pgl_constraint_grammar(spec, &grammar, err);
    if (status == PGL_OK)
        status = pgl_constraint_vocabulary_prepare(vocabulary, err);
    if (status == PGL_OK)
        status = open_empty(vocabulary, spec->kind, names_matter(spec), &c, err);
    if (status == PGL_OK)
        status = open_matcher(c, spec, &grammar, err);
    pgl_buf_fini(&grammar);
    if (status != PGL_OK) {
        pgl_constraint_close(c);
        return status;
    }
    *out = c;
    return PGL_OK;
}

void pgl_constraint_close(pgl_constraint *constraint) {
    if (constraint == NULL)
        return;
    pgl_bridge_matcher_close(constraint->matcher);
    pgl_buf_fini(&constraint->json.open);
    free(constraint->rest);
    free(constraint);
}

pgl_status pgl_constraint_again(const pgl_constraint *constraint, pgl_constraint **out, pgl_error *err) {
    *out = NULL;
    pgl_constraint *c = NULL;
    pgl_status status = open_empty(constraint->vocabulary, constraint->kind, constraint->names, &c, err);
    if (status != PGL_OK)
        return status;
    char message[512];
    pgl_bridge_code code =
        pgl_bridge_matcher_again(constraint->matcher, &c->matcher, message, sizeof message);
    if (code != PGL_BRIDGE_OK) {
        pgl_constraint_close(c);
        return failed(PGL_BRIDGE_FAILED, message, err);
    }
    *out = c;
    return PGL_OK;
}

/* ---- running */

static bool is_json(const pgl_constraint *c) {
    return c->kind == PGL_CONSTRAINT_JSON_SCHEMA || c->kind == PGL_CONSTRAINT_JSON_OBJECT;
}

/* Takes a set out of the mask. False, and the mask as it was: nothing would be left. */
static bool hold_back(pgl_constraint *c, uint32_t *mask, size_t n_words, int set) {
    size_t n = n_words < c->vocabulary->n_words ? n_words : c->vocabulary->n_words;
    const uint32_t *held = c->vocabulary->sets[set];
    uint32_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= c->rest[i] = mask[i] & ~held[i];
    if (any != 0)
        memcpy(mask, c->rest, n * sizeof *mask);
    return any != 0;
}

pgl_status pgl_constraint_mask(pgl_constraint *constraint, uint32_t *mask, size_t n_words, pgl_error *err) {
    char message[512];
    pgl_bridge_code code =
        pgl_bridge_matcher_mask(constraint->matcher, mask, n_words, message, sizeof message);
    if (code != PGL_BRIDGE_OK)
        return failed(PGL_BRIDGE_FAILED, message, err);
    const pgl_json_follow *json = &constraint->json;
    if (constraint->kind == PGL_CONSTRAINT_LARK && !hold_back(constraint, mask, n_words, CONTROL))
        return pgl_fail(err, PGL_E_INVALID,
                        "grammar: it demands a control token, and a grammar is of text alone");
    /* What the grammar demands is left alone: the digits of a bound, the escapes of a name. */
    if (is_json(constraint) && json->n_digits >= (json->exponent ? MOST_EXPONENT_DIGITS : MOST_DIGITS))
        (void)hold_back(constraint, mask, n_words, DIGIT_FIRST);
    if (is_json(constraint) && constraint->names)
        (void)hold_back(constraint, mask, n_words,
                        json->in_string && !json->name ? BACKSLASH_BEHIND_QUOTE : BACKSLASH);
    return PGL_OK;
}

pgl_status pgl_constraint_accept(pgl_constraint *constraint, int32_t token, pgl_error *err) {
    char message[512];
    const pgl_constraint_tokens *tokens = &constraint->vocabulary->tokens;
    size_t size = 0;
    bool control = false;
    pgl_bridge_code code = pgl_bridge_matcher_accept(constraint->matcher, token, message, sizeof message);
    if (code != PGL_BRIDGE_OK)
        return failed(PGL_BRIDGE_FAILED, message, err);
    const char *bytes = is_json(constraint) ? tokens->bytes(tokens->user, token, &size, &control) : NULL;
    if (bytes != NULL && !control && !pgl_json_follow_text(&constraint->json, bytes, size))
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a constraint");
    return PGL_OK;
}

bool pgl_constraint_complete(pgl_constraint *constraint) {
    return pgl_bridge_matcher_accepting(constraint->matcher) != 0;
}
