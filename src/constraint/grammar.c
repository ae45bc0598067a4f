/* Owns nothing: writes a spec as a grammar in llguidance's Lark dialect.
 *
 * The forms, NL being the newlines that may come first:
 *   schema   start: NL? value            value: %json {schema, "x-guidance": {blanks}}
 *   regex    start: /(?s)expression/
 *   choice   start: CHOICE               CHOICE: "a" | "b": one token of the lexer, however many there are
 *   tools    in grammar_tools.c */
#include <stdlib.h>
#include <string.h>

#include "constraint/grammar_impl.h"
#include "constraint/schema.h"

static pgl_status no_memory(pgl_error *err) {
    return pgl_fail(err, PGL_E_MEMORY, "no memory for a grammar");
}

/* JSON's escapes will do, but for the one control character that JSON leaves as it is. */
bool pgl_grammar_put_literal(pgl_buf *out, const char *text, size_t size) {
    size_t from = out->size;
    if (!pgl_json_put_string(out, text, size))
        return false;
    pgl_buf escaped = PGL_BUF_INIT;
    bool ok = true, any = memchr(out->data + from, 0x7F, out->size - from) != NULL;
    for (size_t i = from; any && ok && i < out->size; i++)
        ok = out->data[i] == 0x7F ? pgl_buf_puts(&escaped, "\\u007f") : pgl_buf_putc(&escaped, out->data[i]);
    if (any && ok) {
        out->size = from;
        ok = pgl_buf_append(out, escaped.data, escaped.size);
    }
    pgl_buf_fini(&escaped);
    return ok;
}

pgl_status pgl_grammar_parse(const pgl_constraint_spec *spec, const char *what, json_t **out,
                             pgl_error *err) {
    pgl_json_options options = {
        .name = what, .max_bytes = PGL_CONSTRAINT_MOST_BYTES, .max_depth = PGL_CONSTRAINT_MOST_DEPTH};
    return pgl_json_parse(spec->text, spec->size, &options, out, err);
}

static pgl_status schema_grammar(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err) {
    json_t *schema = NULL;
    pgl_status status = PGL_OK;
    if (spec->kind == PGL_CONSTRAINT_JSON_OBJECT)
        schema = json_pack("{s:s}", "type", "object");
    else
        status = pgl_grammar_parse(spec, "schema", &schema, err);
    if (status == PGL_OK && schema == NULL)
        status = no_memory(err);
    if (status == PGL_OK && !json_is_object(schema) && !json_is_boolean(schema))
        status =
            pgl_fail(err, PGL_E_INVALID, "schema: expected an object, true or false, found another type");
    if (status == PGL_OK && json_is_false(schema))
        status = pgl_fail(err, PGL_E_INVALID, "schema: false allows no answer at all");
    if (status == PGL_OK)
        status = pgl_constraint_check_schema(schema, "schema", err);
    json_t *prepared = NULL;
    if (status == PGL_OK)
        status = pgl_constraint_prepare_schema(schema, "schema", &prepared, err);
    if (status == PGL_OK && !(pgl_buf_puts(out, "start: NL? value\n" PGL_GRAMMAR_NEWLINES "value: ") &&
                              pgl_constraint_put_schema(out, prepared)))
        status = no_memory(err);
    json_decref(prepared);
    json_decref(schema);
    return status;
}

/* /expression/ with the slashes inside escaped; the expression is otherwise llguidance's business. The flag stands before
 * it rather than in a group around it, which an unbalanced parenthesis would end. */
static pgl_status regex_grammar(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err) {
    if (spec->size > PGL_CONSTRAINT_MOST_EXPRESSION_BYTES)
        return pgl_fail(err, PGL_E_INVALID, "regular expression: expected at most %zu bytes, found %zu",
                        PGL_CONSTRAINT_MOST_EXPRESSION_BYTES, spec->size);
    bool ok = pgl_buf_puts(out, "start: /(?s)");
    bool escaped = false;
    for (size_t i = 0; i < spec->size && ok; i++) {
        char c = spec->text[i];
        if (c == '/' && !escaped)
            ok = pgl_buf_puts(out, "\\/");
        else if (c == '\n')
            ok = pgl_buf_puts(out, escaped ? "n" : "\\n");
        else if (c == '\r')
            ok = pgl_buf_puts(out, escaped ? "r" : "\\r");
        else
            ok = pgl_buf_putc(out, c);
        escaped = c == '\\' && !escaped;
    }
    if (escaped)
        return pgl_fail(err, PGL_E_INVALID, "regular expression: ends in a backslash");
    return ok && pgl_buf_puts(out, "/\n") ? PGL_OK : no_memory(err);
}

static pgl_status choice_grammar(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err) {
    json_t *list = NULL;
    pgl_status status = pgl_grammar_parse(spec, "choices", &list, err);
    if (status == PGL_OK && (!json_is_array(list) || json_array_size(list) == 0))
        status = pgl_fail(err, PGL_E_INVALID, "choices: expected a list of at least one string");
    if (status == PGL_OK && !pgl_buf_puts(out, "start: CHOICE\nCHOICE: "))
        status = no_memory(err);
    for (size_t i = 0; status == PGL_OK && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item) || json_string_length(item) == 0)
            status = pgl_fail(err, PGL_E_INVALID, "choices[%zu]: expected a string that is not empty", i);
        else if (!((i == 0 || pgl_buf_puts(out, " | ")) &&
                   pgl_grammar_put_literal(out, json_string_value(item), json_string_length(item))))
            status = no_memory(err);
    }
    if (status == PGL_OK && !pgl_buf_putc(out, '\n'))
        status = no_memory(err);
    json_decref(list);
    return status;
}

/* Where the grammar names a token of the vocabulary, <..> outside of strings, expressions and comments; size when nowhere.
 * This is for the message: whatever it finds, masks hold such tokens back. */
static size_t find_token(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (c == '/' && i + 1 < size && text[i + 1] == '/') {
            while (i < size && text[i] != '\n')
                i++;
        } else if (c == '"' || c == '/') {
            for (i++; i < size && text[i] != c && text[i] != '\n'; i++)
                i += text[i] == '\\';
        } else if (c == '<') {
            return i;
        }
    }
    return size;
}

static pgl_status lark_grammar(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err) {
    if (spec->size > PGL_CONSTRAINT_MOST_GRAMMAR_BYTES)
        return pgl_fail(err, PGL_E_INVALID, "grammar: expected at most %zu bytes, found %zu",
                        PGL_CONSTRAINT_MOST_GRAMMAR_BYTES, spec->size);
    size_t at = find_token(spec->text, spec->size);
    if (at < spec->size)
        return pgl_fail(err, PGL_E_INVALID, "grammar: %.*s names a token; a grammar is of text alone",
                        (int)(spec->size - at < 40 ? spec->size - at : 40), spec->text + at);
    return pgl_buf_append(out, spec->text, spec->size) ? PGL_OK : no_memory(err);
}

pgl_status pgl_constraint_grammar(const pgl_constraint_spec *spec, pgl_buf *out, pgl_error *err) {
    if (spec->kind != PGL_CONSTRAINT_JSON_OBJECT && spec->size > PGL_CONSTRAINT_MOST_BYTES)
        return pgl_fail(err, PGL_E_INVALID, "structured output: expected at most %zu bytes, found %zu",
                        PGL_CONSTRAINT_MOST_BYTES, spec->size);
    switch (spec->kind) {
    case PGL_CONSTRAINT_JSON_SCHEMA:
    case PGL_CONSTRAINT_JSON_OBJECT:
        return schema_grammar(spec, out, err);
    case PGL_CONSTRAINT_REGEX:
        return regex_grammar(spec, out, err);
    case PGL_CONSTRAINT_LARK:
        return lark_grammar(spec, out, err);
    case PGL_CONSTRAINT_TOOLS:
        return pgl_grammar_tools(spec, out, err);
    case PGL_CONSTRAINT_CHOICE:
        return choice_grammar(spec, out, err);
    }
    return pgl_fail(err, PGL_E_INVALID, "structured output: unknown kind %d", (int)spec->kind);
}
