/* Structured output: which tokens may come next so that an answer keeps to a JSON schema, a regular expression, a grammar,
 * or the model's own form of tool calls.
 *
 * A vocabulary is made once for a tokenizer and shared by any number of threads; its expensive part is made by
 * pgl_constraint_vocabulary_prepare, or else when the first grammar needs it. A constraint is one running answer and belongs to one thread at a time. Nothing here fails
 * open: what cannot be enforced is refused when the constraint is opened, and a fault later is an error.
 *
 * Stated rules. References into the network are never followed. Between JSON tokens at most PGL_CONSTRAINT_BLANKS blanks
 * may stand, and of a number that nothing bounds at most 20 digits in a row, 2 of its exponent. Lengths of strings count
 * code points; every escape of JSON stays reachable in strings, and in the names of members only where the schema's own
 * names have it, so that no name is spelled past its rule. A schema may be held to a little more than it says
 * (pgl_constraint_prepare_schema). A grammar of the caller is of text: control tokens but for the end are never allowed, in
 * a grammar, an expression or a choice; they occur in the form of tool calls alone. Before a structured answer up to
 * two newlines may come, as the model writes them after a thought. */
#ifndef PGL_CONSTRAINT_CONSTRAINT_H
#define PGL_CONSTRAINT_CONSTRAINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

#define PGL_CONSTRAINT_BLANKS 16
#define PGL_CONSTRAINT_MOST_BYTES ((size_t)4 << 20) /* of a schema, a list of tools or of choices */
#define PGL_CONSTRAINT_MOST_EXPRESSION_BYTES ((size_t)256 << 10)
#define PGL_CONSTRAINT_MOST_GRAMMAR_BYTES ((size_t)64 << 10)
#define PGL_CONSTRAINT_MOST_DEPTH 64         /* of a schema as it is written */
#define PGL_CONSTRAINT_MOST_SCHEMAS 10000    /* objects and lists in a schema: about a second of compiling */
#define PGL_CONSTRAINT_MOST_OPTIONAL 1500    /* properties of one object that are not required */
#define PGL_CONSTRAINT_MOST_ALTERNATIVES 700 /* schemas of one anyOf or oneOf; tools */

typedef struct pgl_constraint_vocabulary pgl_constraint_vocabulary;
typedef struct pgl_constraint pgl_constraint;

/* How the tokenizer is asked: the bytes of id (borrowed; NULL: no such id), and whether it is an added token. */
typedef struct pgl_constraint_tokens {
    uint32_t n_ids;
    const char *(*bytes)(const void *user, int32_t id, size_t *size, bool *control);
    const void *user; /* outlives the vocabulary */
    const int32_t *ends;
    uint32_t n_ends; /* end-of-answer ids, >= 1; copied */
} pgl_constraint_tokens;

pgl_status pgl_constraint_vocabulary_open(const pgl_constraint_tokens *tokens,
                                          pgl_constraint_vocabulary **out, pgl_error *err);
/* Makes the part that takes seconds for large vocabularies on a busy machine. Any thread, any number of times, also beside
 * pgl_constraint_open: it is made once, and who needs it meanwhile waits. */
pgl_status pgl_constraint_vocabulary_prepare(pgl_constraint_vocabulary *vocabulary, pgl_error *err);

void pgl_constraint_vocabulary_close(
    pgl_constraint_vocabulary *vocabulary); /* NULL is allowed; after its constraints */

typedef enum pgl_constraint_kind {
    PGL_CONSTRAINT_JSON_SCHEMA, /* text: a schema, JSON */
    PGL_CONSTRAINT_JSON_OBJECT, /* text is not looked at */
    PGL_CONSTRAINT_REGEX,       /* text: the whole answer matches it */
    PGL_CONSTRAINT_LARK,        /* text: a grammar in llguidance's Lark dialect with the rule `start` */
    PGL_CONSTRAINT_TOOLS,       /* text: the request's list of tools, JSON */
    PGL_CONSTRAINT_CHOICE,      /* text: a JSON list of strings, one of which is the answer */
} pgl_constraint_kind;

typedef struct pgl_constraint_spec {
    pgl_constraint_kind kind;
    const char *text;
    size_t size;
    const char *tool;    /* TOOLS: the one function that is called; NULL: any */
    bool parallel_tools; /* TOOLS: more than one call may follow each other */
} pgl_constraint_spec;

/* PGL_E_INVALID: the text is malformed or asks for what cannot be enforced (a reference that leads nowhere, a schema that no
 * answer of finite length fits, an expression that is not regular) or is larger than the limits above: the message says
 * what. PGL_E_UNSUPPORTED: a keyword or format of a schema that the grammar library does not have, with its place. PGL_E_NOT_FOUND: no such tool. */
pgl_status pgl_constraint_open(pgl_constraint_vocabulary *vocabulary, const pgl_constraint_spec *spec,
                               pgl_constraint **out, pgl_error *err);
void pgl_constraint_close(pgl_constraint *constraint); /* NULL is allowed */

/* Another answer under the same grammar, which is not compiled again: for several choices of one request. From where the
 * constraint stands in it, so use one that has not moved. The two share nothing that changes. */
pgl_status pgl_constraint_again(const pgl_constraint *constraint, pgl_constraint **out, pgl_error *err);

/* Writes the ids that may come next: bit id % 32 of word id / 32, n_words >= (n_ids + 31) / 32, the rest cleared. */
pgl_status pgl_constraint_mask(pgl_constraint *constraint, uint32_t *mask, size_t n_words, pgl_error *err);

/* Moves on by a token that the mask allowed. */
pgl_status pgl_constraint_accept(pgl_constraint *constraint, int32_t token, pgl_error *err);

/* The answer may end here. */
bool pgl_constraint_complete(pgl_constraint *constraint);

/* The grammar of a spec, in llguidance's Lark dialect: what pgl_constraint_open compiles. For tests and logs. */
pgl_status pgl_constraint_grammar(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err);

#endif
