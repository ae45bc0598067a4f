/* Owns vocabularies and matchers of bridge/constraint.h. Grammars are written in grammar*.c. */
#include "constraint/constraint.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bridge/constraint.h"

struct pgl_constraint_vocabulary {
    pgl_constraint_tokens tokens;
    int32_t *ends;
    pthread_mutex_t lock; /* guards what follows */
    pgl_bridge_vocabulary *made;
};

struct pgl_constraint {
    const pgl_bridge_vocabulary *vocabulary;
    pgl_bridge_matcher *matcher;
    pgl_constraint_kind kind;
    pgl_buf grammar;
};

static pgl_status failed(pgl_bridge_code code, const char *message, pgl_error *err) {
    pgl_status status =
        code == PGL_BRIDGE_SYNTAX || code == PGL_BRIDGE_LIMIT ? PGL_E_INVALID : PGL_E_INTERNAL;
    return pgl_fail(err, status, "%s", message);
}

pgl_status pgl_constraint_vocabulary_open(const pgl_constraint_tokens *tokens,
                                          pgl_constraint_vocabulary **out, pgl_error *err) {
    *out = NULL;
    if (tokens->n_ids == 0 || tokens->n_ends == 0)
        return pgl_fail(err, PGL_E_INVALID,
                        "structured output: expected a vocabulary with an end token, found %u ids and %u",
                        tokens->n_ids, tokens->n_ends);
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
    pthread_mutex_destroy(&vocabulary->lock);
    free(vocabulary->ends);
    free(vocabulary);
}

/* The trie of all tokens; the lock is held. */
static pgl_status make(pgl_constraint_vocabulary *v, pgl_error *err) {
    const pgl_constraint_tokens *t = &v->tokens;
    const char **bytes = pgl_new(t->n_ids, sizeof *bytes);
    size_t *sizes = pgl_new(t->n_ids, sizeof *sizes);
    uint8_t *control = pgl_new(t->n_ids, 1);
    pgl_status status = PGL_OK;
    if (bytes == NULL || sizes == NULL || control == NULL) {
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for the vocabulary of structured output");
    } else {
        for (uint32_t id = 0; id < t->n_ids; id++) {
            bool added = false;
            bytes[id] = t->bytes(t->user, (int32_t)id, &sizes[id], &added);
            sizes[id] = bytes[id] == NULL ? 0 : sizes[id];
            control[id] = added ? 1 : 0;
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

/* ---- compiling */

/* The library goes down into a grammar's rules, a schema's references and its own expressions with a call for each. The
 * limits of constraint.h leave it at most some ten thousand of them, of up to 10 KiB; only what is used of a stack takes
 * memory. Measured with 10,000 schemas that refer to each other: 8 MiB hold fewer than 1,000. */
#define STACK_BYTES ((size_t)256 << 20)

typedef struct job {
    pgl_constraint *constraint;
    char *message;
    size_t message_size;
    pgl_bridge_code code;
} job;

static void *compile(void *user) {
    job *j = user;
    pgl_constraint *c = j->constraint;
    j->code = pgl_bridge_matcher_open(c->vocabulary, pgl_buf_text(&c->grammar), c->grammar.size, &c->matcher,
                                      j->message, j->message_size);
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

static pgl_status open_matcher(pgl_constraint *c, pgl_error *err) {
    static const char *const NAMES[] = {"schema",  "json_object", "regular expression",
                                        "grammar", "tools",       "choices"};
    job j = {.constraint = c,
             .message_size = 4096 + 2 * c->grammar.size}; /* errors quote the text at fault */
    j.message = pgl_new(j.message_size, 1);
    if (j.message == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a grammar");
    pgl_status status = run_with_stack(&j, err);
    if (status == PGL_OK && j.code != PGL_BRIDGE_OK) {
        if (strncmp(j.message, "NoExtensionBias", 15) == 0)
            memcpy(j.message, "it allows no answer", sizeof "it allows no answer");
        else if (c->kind != PGL_CONSTRAINT_LARK)
            explain(j.message);
        status = failed(j.code, j.message, err);
        pgl_error_prefix(err, "%s", NAMES[c->kind]);
    }
    free(j.message);
    return status;
}

pgl_status pgl_constraint_open(pgl_constraint_vocabulary *vocabulary, const pgl_constraint_spec *spec,
                               pgl_constraint **out, pgl_error *err) {
    *out = NULL;
    pgl_constraint *c = pgl_new(1, sizeof *c);
    if (c == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a constraint");
    c->kind = spec->kind;
    pgl_status status = pgl_constraint_grammar(spec, &c->grammar, err);
    if (status == PGL_OK) {
        pthread_mutex_lock(&vocabulary->lock);
        if (vocabulary->made == NULL)
            status = make(vocabulary, err);
        c->vocabulary = vocabulary->made;
        pthread_mutex_unlock(&vocabulary->lock);
    }
    if (status == PGL_OK)
        status = open_matcher(c, err);
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
    pgl_buf_fini(&constraint->grammar);
    free(constraint);
}

pgl_status pgl_constraint_again(const pgl_constraint *constraint, pgl_constraint **out, pgl_error *err) {
    *out = NULL;
    pgl_constraint *c = pgl_new(1, sizeof *c);
    if (c == NULL || !pgl_buf_append(&c->grammar, constraint->grammar.data, constraint->grammar.size)) {
        pgl_constraint_close(c);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a constraint");
    }
    c->vocabulary = constraint->vocabulary;
    c->kind = constraint->kind;
    pgl_status status = open_matcher(c, err);
    if (status != PGL_OK) {
        pgl_constraint_close(c);
        return status;
    }
    *out = c;
    return PGL_OK;
}

pgl_status pgl_constraint_mask(pgl_constraint *constraint, uint32_t *mask, size_t n_words, pgl_error *err) {
    char message[512];
    pgl_bridge_code code =
        pgl_bridge_matcher_mask(constraint->matcher, mask, n_words, message, sizeof message);
    return code == PGL_BRIDGE_OK ? PGL_OK : failed(PGL_BRIDGE_FAILED, message, err);
}

pgl_status pgl_constraint_accept(pgl_constraint *constraint, int32_t token, pgl_error *err) {
    char message[512];
    pgl_bridge_code code = pgl_bridge_matcher_accept(constraint->matcher, token, message, sizeof message);
    return code == PGL_BRIDGE_OK ? PGL_OK : failed(PGL_BRIDGE_FAILED, message, err);
}

bool pgl_constraint_complete(pgl_constraint *constraint) {
    return pgl_bridge_matcher_accepting(constraint->matcher) != 0;
}
