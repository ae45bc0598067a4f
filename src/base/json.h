/* Reading JSON: jansson for values, and the original text for what is only passed on.
 *
 * Every document is first scanned by our own strict reader (RFC 8259: grammar, UTF-8, paired surrogates,
 * depth, size), which is what gives errors with line and column; jansson then builds the tree. Numbers keep
 * no surprises: an integer beyond 64 bits becomes a real, and a real beyond the range of double becomes the
 * largest finite one, so that a document with a number nobody computes with (a bound in a tool's schema) is
 * not refused. Where the text of a number matters, take it from the source with the pgl_json_raw_* functions:
 * jansson prints 0.1 as 0.10000000000000001. LC_NUMERIC must be "C". Any thread; no shared state. */
#ifndef PGL_BASE_JSON_H
#define PGL_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/status.h"

#define PGL_JSON_DEFAULT_DEPTH 128
#define PGL_JSON_LARGEST_DEPTH 1024 /* recursion stays within a small thread's stack */
#define PGL_JSON_DEFAULT_BYTES ((size_t)64 << 20)

typedef struct pgl_json_options {
    const char *name; /* what the text is, for messages; NULL: "JSON" */
    size_t max_bytes; /* 0: PGL_JSON_DEFAULT_BYTES */
    uint32_t
        max_depth;  /* nested objects and arrays; 0: PGL_JSON_DEFAULT_DEPTH; at most PGL_JSON_LARGEST_DEPTH */
    bool last_wins; /* of a key that occurs twice in one object; else refused */
    bool allow_nul; /* \u0000 in strings; else refused */
    bool replace_surrogates; /* an unpaired surrogate escape becomes U+FFFD; else refused */
} pgl_json_options;

/* Parses a whole document (any value at the top). options may be NULL. On success *out is a new reference
 * (json_decref). PGL_E_TOO_LARGE for size, PGL_E_INVALID for everything else that is wrong with the text,
 * PGL_E_MEMORY. */
pgl_status pgl_json_parse(const char *text, size_t size, const pgl_json_options *options, json_t **out,
                          pgl_error *err);

/* The scan alone, for documents that are then walked as text; duplicate keys are not looked for (a member is then the
 * last of its name). */
pgl_status pgl_json_check(const char *text, size_t size, const pgl_json_options *options, pgl_error *err);

/* A piece of a document's own text: one value without surrounding white space. Borrowed from the document. */
typedef struct pgl_json_span {
    const char *text; /* NULL: none */
    size_t size;
} pgl_json_span;

/* Walks the members of an object or the elements of an array in text order, in linear time altogether.
 *
 *     pgl_json_iter it = pgl_json_iter_begin(span);
 *     pgl_json_span key, value;                       key: with its quotes; empty for arrays
 *     while (pgl_json_iter_next(&it, &key, &value)) ...
 *
 * span should be text that pgl_json_parse accepted. Any other text is safe: the walk just ends at the fault;
 * so does a walk over a scalar. */
typedef struct pgl_json_iter {
    const char *at, *end;
    char close; /* '}' or ']'; 0: nothing to walk */
} pgl_json_iter;

pgl_json_iter pgl_json_iter_begin(pgl_json_span span);
bool pgl_json_iter_next(pgl_json_iter *iter, pgl_json_span *key, pgl_json_span *value);

/* One step of a path: the member called key (of several, the last, as jansson has it), or, with key NULL,
 * element index. */
typedef struct pgl_json_step {
    const char *key;
    size_t index;
} pgl_json_step;

/* The exact text of the value at the path; {NULL, 0} when it is not there. Zero steps give the trimmed value
 * itself. */
pgl_json_span pgl_json_raw(pgl_json_span span, const pgl_json_step *steps, size_t n_steps);
pgl_json_span pgl_json_raw_member(pgl_json_span object, const char *key);
pgl_json_span pgl_json_raw_element(pgl_json_span array, size_t index);

/* Appends the bytes that a string's text (with its quotes) stands for; unpaired surrogates give U+FFFD. False
 * when it is no string or memory is out. */
bool pgl_json_raw_string(pgl_json_span string, pgl_buf *out);

/* Appends a value's text as it is written, but for unpaired surrogate escapes, which become \\ufffd. */
bool pgl_json_put_raw(pgl_buf *out, pgl_json_span value);

/* Appends text as a JSON string with its quotes: control characters, quote and backslash escaped, the rest as
 * it is; bytes that are not UTF-8 become U+FFFD, so that what is written is always valid. */
bool pgl_json_put_string(pgl_buf *out, const char *text, size_t size);

/* Appends the shortest decimal that reads back as the same double; null for what JSON cannot say. */
bool pgl_json_put_number(pgl_buf *out, double value);

#endif
