/* Owns vocabularies and matchers of bridge/constraint.h. Grammars are written in grammar.c. */
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

static pgl_status open_matcher(pgl_constraint *c, pgl_error *err) {
    char message[768];
    pgl_bridge_code code = pgl_bridge_matcher_open(c->vocabulary, pgl_buf_text(&c->grammar), c->grammar.size,
                                                   &c->matcher, message, sizeof message);
    return code == PGL_BRIDGE_OK ? PGL_OK : failed(code, message, err);
}

pgl_status pgl_constraint_open(pgl_constraint_vocabulary *vocabulary, const pgl_constraint_spec *spec,
                               pgl_constraint **out, pgl_error *err) {
    *out = NULL;
    pgl_constraint *c = pgl_new(1, sizeof *c);
    if (c == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a constraint");
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
