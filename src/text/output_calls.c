/* Tool calls: the states from CALL to LOST_VALUE of a parser that output.c owns. */
#include <string.h>

#include "text/output_impl.h"

#define CLOSE_PARAMETER "</parameter>"
#define OPEN_PARAMETER "<parameter="
#define CLOSE_FUNCTION "</function>"
#define CLOSE_CALL "</tool_call>"

static const pgl_json_options OBJECT = {.last_wins = true, .allow_nul = true, .replace_surrogates = true};

static void give_arguments(pgl_output *o, const char *text) {
    pgl_output_give(o, PGL_OUTPUT_ARGUMENTS, text, strlen(text));
}

void pgl_output_end_call(pgl_output *o, bool complete) {
    if (complete && o->state == PGL_STATE_TEXT_VALUE)
        give_arguments(o, o->value_begun ? "\"" : "\"\"");
    if (complete)
        give_arguments(o, "}");
    pgl_output_give(o, PGL_OUTPUT_CALL_END, "", 0);
    o->in_call = false;
    o->state = PGL_STATE_BETWEEN;
    o->line_start = true;
}

static void begin_call(pgl_output *o, const char *name, size_t size) {
    o->n_calls++;
    o->in_call = true;
    o->n_parameters = 0;
    o->tool = pgl_tool_find(o->tools, name, size);
    pgl_tool_seen_clear(&o->seen);
    pgl_output_give(o, PGL_OUTPUT_CALL, name, size);
}

/* A call as JSON: its object is whole and was looked at. */
static void give_object(pgl_output *o) {
    pgl_buf name = PGL_BUF_INIT, arguments = PGL_BUF_INIT;
    size_t size = o->probe.at - o->probe.start;
    if (pgl_output_read_object(o->in.data, size, &name, &arguments)) {
        begin_call(o, name.data, name.size);
        pgl_output_give(o, PGL_OUTPUT_ARGUMENTS, arguments.data, arguments.size);
        pgl_output_end_call(o, false);
    } else {
        o->failed = true; /* memory ran out */
        o->state = PGL_STATE_BETWEEN;
    }
    pgl_buf_fini(&name);
    pgl_buf_fini(&arguments);
    pgl_output_consume(o, size);
}

static bool step_call(pgl_output *o) {
    pgl_output_consume(o, pgl_output_blanks(o->in.data, o->in.size));
    if (o->in.data[0] == '{') {
        give_object(o);
    } else {
        size_t from = strlen(PGL_TAG_FUNCTION), end = pgl_output_name_end(o->in.data, o->in.size, from);
        const char *name = o->in.data + from;
        size_t size = end - from;
        pgl_output_trim_name(&name, &size);
        begin_call(o, name, size);
        give_arguments(o, "{");
        o->state = PGL_STATE_PARAMETERS;
        pgl_output_consume(o, end < o->in.size ? end + 1 : end);
    }
    o->probe = (pgl_output_probe){0};
    return true;
}

/* ---- parameters */

static bool begin_value(pgl_output *o, const char *key, size_t size) {
    o->value_begun = o->value_given = false;
    o->nested = 0;
    if (size == 0 || !pgl_tool_seen_add(&o->seen, key, size)) {
        o->state = PGL_STATE_LOST_VALUE;
        return true;
    }
    o->types = pgl_tool_types(o->tool, key, size);
    pgl_buf piece = PGL_BUF_INIT;
    bool ok = (o->n_parameters++ == 0 || pgl_buf_puts(&piece, ", ")) &&
              pgl_json_put_string(&piece, key, size) && pgl_buf_puts(&piece, ": ");
    pgl_output_give(o, PGL_OUTPUT_ARGUMENTS, pgl_buf_text(&piece), piece.size);
    pgl_buf_fini(&piece);
    o->failed = o->failed || !ok;
    o->state = o->types == 0 || o->types == PGL_TYPE_STRING ? PGL_STATE_TEXT_VALUE : PGL_STATE_JSON_VALUE;
    return true;
}

static bool open_parameter(pgl_output *o) {
    size_t from = strlen(OPEN_PARAMETER), end = pgl_output_name_end(o->in.data, o->in.size, from);
    if (end == o->in.size && end - from <= PGL_OUTPUT_MOST_NAME_BYTES && !o->final)
        return false;
    const char *key = o->in.data + from;
    size_t size = end - from;
    bool whole = end < o->in.size && o->in.data[end] == '>';
    bool named = pgl_output_trim_name(&key, &size);
    begin_value(o, key, whole && named ? size : 0);
    pgl_output_consume(o, whole ? end + 1 : end);
    return true;
}

static bool step_parameters(pgl_output *o) {
    static const char *const TAGS[] = {OPEN_PARAMETER, CLOSE_PARAMETER, CLOSE_FUNCTION, CLOSE_CALL,
                                       PGL_TAG_CALL};
    pgl_output_consume(o, pgl_output_blanks(o->in.data, o->in.size));
    if (o->in.size == 0)
        return false;
    for (size_t i = 0; i < sizeof TAGS / sizeof TAGS[0]; i++) {
        int tag = pgl_output_begins(o->in.data, o->in.size, TAGS[i]);
        if (tag < 0 && !o->final)
            return false;
        if (tag != 1)
            continue;
        if (i == 0)
            return open_parameter(o);
        if (i >= 2)
            pgl_output_end_call(o, true);
        pgl_output_consume(o, i == 4 ? 0 : strlen(TAGS[i]));
        return true;
    }
    /* What has no place here is left out, up to what may be a tag. */
    const char *next = memchr(o->in.data + 1, '<', o->in.size - 1);
    pgl_output_consume(o, next == NULL ? o->in.size : (size_t)(next - o->in.data));
    return true;
}

/* ---- values */

/* Whether text begins with the opening tag of a parameter that the tool has and the call has not had. -1: not known yet. */
static int opens_known(const pgl_output *o, const char *text, size_t size) {
    size_t from = strlen(OPEN_PARAMETER), end = pgl_output_name_end(text, size, from);
    if (end - from > PGL_OUTPUT_MOST_NAME_BYTES)
        return 0;
    if (end == size)
        return o->final ? 0 : -1;
    return text[end] == '>' && pgl_tool_has_key(o->tool, text + from, end - from) &&
           !pgl_tool_seen_has(&o->seen, text + from, end - from);
}

/* What stands behind the blanks at text: 1 the word, 0 something else, -1 not known yet. The end of the text counts as
 * the word when it may. */
static int follows(const pgl_output *o, const char *text, size_t size, const char *word, bool or_end) {
    size_t blanks = pgl_output_blanks(text, size);
    if (blanks == size || blanks > PGL_OUTPUT_MOST_BLANKS)
        return o->final || blanks > PGL_OUTPUT_MOST_BLANKS ? or_end : -1;
    int begins = pgl_output_begins(text + blanks, size - blanks, word);
    return begins < 0 && o->final ? 0 : begins;
}

/* </tool_call> at text, the end of the turn or another call behind it: the call's own, not one that a value quotes. */
static int ends_call(const pgl_output *o, const char *text, size_t size) {
    int tag = pgl_output_begins(text, size, CLOSE_CALL);
    if (tag != 1)
        return tag < 0 && o->final ? 0 : tag;
    return follows(o, text + strlen(CLOSE_CALL), size - strlen(CLOSE_CALL), PGL_TAG_CALL, true);
}

/* </function> at text, and the end of the call or of the turn behind it. */
static int ends_function(const pgl_output *o, const char *text, size_t size) {
    int tag = pgl_output_begins(text, size, CLOSE_FUNCTION);
    if (tag != 1)
        return tag < 0 && o->final ? 0 : tag;
    text += strlen(CLOSE_FUNCTION);
    size -= strlen(CLOSE_FUNCTION);
    size_t blanks = pgl_output_blanks(text, size);
    if (blanks == size || blanks > PGL_OUTPUT_MOST_BLANKS)
        return o->final || blanks > PGL_OUTPUT_MOST_BLANKS ? 1 : -1;
    return ends_call(o, text + blanks, size - blanks);
}

/* Whether the value ends with the closing tag at i: the structure has to go on behind it, and when the tag does not stand
 * on a line of its own, with a parameter that there is. Inside a parameter that the value itself quotes, only what cannot
 * belong to the quotation ends it. */
static int closes_parameter(const pgl_output *o, size_t i) {
    static const char *const NEXT[] = {OPEN_PARAMETER, CLOSE_PARAMETER, CLOSE_FUNCTION, CLOSE_CALL};
    const char *text = o->in.data + i + strlen(CLOSE_PARAMETER);
    size_t size = o->in.size - i - strlen(CLOSE_PARAMETER), blanks = pgl_output_blanks(text, size);
    if (blanks == size || blanks > PGL_OUTPUT_MOST_BLANKS)
        return o->final || blanks > PGL_OUTPUT_MOST_BLANKS ? 1 : -1;
    text += blanks;
    size -= blanks;
    if (o->nested > 0) {
        int function = ends_function(o, text, size),
            parameter = pgl_output_begins(text, size, OPEN_PARAMETER);
        if (parameter == 1)
            return opens_known(o, text, size);
        return function == 0 && parameter < 0 && !o->final ? -1 : function;
    }
    bool own_line = i > 0 ? o->in.data[i - 1] == '\n' : !o->value_given || o->before == '\n';
    int answer = 0;
    for (size_t k = 0; k < sizeof NEXT / sizeof NEXT[0]; k++) {
        int tag = pgl_output_begins(text, size, NEXT[k]);
        if (tag == 1 && k == 0 && !own_line)
            return opens_known(o, text, size);
        if (tag == 1)
            return 1;
        answer = tag < 0 && !o->final ? -1 : answer;
    }
    return answer;
}

/* Whether a value without a closing tag ends before the tag at text, which begins a line: another parameter of the tool, or
 * the end of the function or the call. */
static int ends_value(const pgl_output *o, const char *text, size_t size) {
    int answer = 0;
    if (pgl_output_begins(text, size, OPEN_PARAMETER) == 1)
        return opens_known(o, text, size);
    if (!o->final && pgl_output_begins(text, size, OPEN_PARAMETER) < 0)
        answer = -1;
    const int ends[] = {ends_function(o, text, size), ends_call(o, text, size)};
    for (int k = 0; k < 2; k++)
        if (ends[k] != 0)
            answer = ends[k] == 1 || answer == 1 ? 1 : -1;
    return answer;
}

typedef struct value_end {
    size_t text;  /* the value's bytes */
    size_t after; /* where the structure goes on */
    bool found;
} value_end;

/* Follows parameters that the value quotes: the tag at i is part of it. */
static void note_quoted(pgl_output *o, size_t i, bool own_line) {
    const char *text = o->in.data + i;
    size_t size = o->in.size - i;
    if (pgl_output_begins(text, size, CLOSE_PARAMETER) == 1)
        o->nested -= o->nested > 0;
    else if (own_line && pgl_output_begins(text, size, OPEN_PARAMETER) == 1)
        o->nested++;
}

/* The end of the value at the front of o->in, looked for from o->scanned on; when it is not found, text is how much of it
 * is certain, and o->scanned stands there. */
static value_end find_end(pgl_output *o) {
    size_t size = o->in.size;
    for (const char *at; o->scanned < size; o->scanned++) {
        at = memchr(o->in.data + o->scanned, '<', size - o->scanned);
        if (at == NULL)
            break;
        size_t i = (size_t)(at - o->in.data);
        o->scanned = i;
        bool line = i > 0 ? at[-1] == '\n' : o->before == '\n';
        int close = pgl_output_begins(at, size - i, CLOSE_PARAMETER);
        int ends = close == 1 ? closes_parameter(o, i) : close < 0 && !o->final ? -1 : 0;
        if (ends == 1)
            return (value_end){.text = i, .after = i + strlen(CLOSE_PARAMETER), .found = true};
        int missing = line && close != 1 ? ends_value(o, at, size - i) : 0;
        if (missing == 1)
            return (value_end){.text = i, .after = i, .found = true};
        if (ends < 0 || missing < 0)
            return (value_end){.text = i};
        note_quoted(o, i, line);
    }
    o->scanned = size;
    return (value_end){.text = size};
}

/* Drops the newline that the format puts before a closing tag. */
static size_t without_newline(const char *text, size_t size) {
    if (size > 0 && text[size - 1] == '\n')
        size--;
    if (size > 0 && text[size - 1] == '\r')
        size--;
    return size;
}

/* The newline that the format puts behind an opening tag. */
static size_t opening_newline(const char *text, size_t size) {
    if (size > 0 && text[0] == '\n')
        return 1;
    return size > 1 && text[0] == '\r' && text[1] == '\n' ? 2 : 0;
}

static void give_text(pgl_output *o, const char *text, size_t size) {
    pgl_buf quoted = PGL_BUF_INIT;
    o->failed = !pgl_json_put_string(&quoted, text, size) || o->failed;
    if (quoted.size > 2)
        pgl_output_give(o, PGL_OUTPUT_ARGUMENTS, quoted.data + 1, quoted.size - 2);
    pgl_buf_fini(&quoted);
}

/* A tag that the turn's end cut is no part of the value. */
static size_t without_cut_tag(const char *text, size_t size) {
    size_t partial;
    pgl_output_seek(text, size, size < 16 ? 0 : size - 16, CLOSE_PARAMETER, &partial);
    return partial;
}

static bool step_text_value(pgl_output *o) {
    if (!o->value_begun) {
        if (o->in.size == 0 || (o->in.data[0] == '\r' && o->in.size == 1 && !o->final))
            return false;
        size_t skip = opening_newline(o->in.data, o->in.size);
        o->value_begun = true;
        give_arguments(o, "\"");
        pgl_output_consume(o, skip); /* an empty value may have one newline for both sides */
        return true;
    }
    value_end end = find_end(o);
    const char *text = o->in.data;
    if (end.found) {
        give_text(o, text, without_newline(text, end.text));
        give_arguments(o, "\"");
        pgl_output_consume(o, end.after);
        o->state = PGL_STATE_PARAMETERS;
        return true;
    }
    size_t certain = end.text;
    if (o->final && !o->cut)
        certain = without_newline(text, without_cut_tag(text, certain));
    else
        certain = without_newline(text, certain);
    give_text(o, text, certain);
    o->value_given = o->value_given || certain > 0;
    pgl_output_consume(o, o->final ? o->in.size : certain);
    return false;
}

/* A value that may be something else than a string: once it is certain to be one, it is streamed like any. */
static bool step_gathered_value(pgl_output *o) {
    value_end end = find_end(o);
    const char *text = o->in.data;
    size_t certain = without_newline(text, end.text), lead = opening_newline(text, certain);
    if (!end.found && o->state == PGL_STATE_JSON_VALUE &&
        pgl_tool_is_string(text + lead, certain - lead, o->types)) {
        o->state = PGL_STATE_TEXT_VALUE; /* which looks at all of it again */
        o->scanned = o->nested = 0;
        return true;
    }
    if (!end.found && !o->final)
        return false;
    size_t size =
        end.found ? without_newline(text, end.text) : without_newline(text, without_cut_tag(text, end.text));
    if (o->state == PGL_STATE_JSON_VALUE && (end.found || !o->cut)) {
        pgl_buf piece = PGL_BUF_INIT;
        size_t skip = opening_newline(text, size);
        o->failed = !pgl_tool_put_value(&piece, text + skip, size - skip, o->types) || o->failed;
        pgl_output_give(o, PGL_OUTPUT_ARGUMENTS, pgl_buf_text(&piece), piece.size);
        pgl_buf_fini(&piece);
    }
    pgl_output_consume(o, end.found ? end.after : o->in.size);
    o->state = PGL_STATE_PARAMETERS;
    return true;
}

/* ---- {"name": .., "arguments": ..} */

static bool put_arguments(pgl_json_span arguments, const json_t *value, pgl_buf *out) {
    const char *text = json_string_value(value);
    if (json_is_object(value))
        return pgl_json_put_raw(out, arguments);
    if (value == NULL || json_is_null(value) || (text != NULL && text[0] == 0))
        return pgl_buf_puts(out, "{}");
    json_t *inner = NULL;
    bool ok = text != NULL &&
              pgl_json_parse(text, json_string_length(value), &OBJECT, &inner, NULL) == PGL_OK &&
              json_is_object(inner);
    json_decref(inner);
    return ok && pgl_json_put_raw(out, (pgl_json_span){text, json_string_length(value)});
}

bool pgl_output_read_object(const char *text, size_t size, pgl_buf *name, pgl_buf *arguments) {
    json_t *root = NULL;
    bool ok = pgl_json_parse(text, size, &OBJECT, &root, NULL) == PGL_OK;
    const json_t *title = json_object_get(root, "name"), *value = json_object_get(root, "arguments");
    const char *word = json_string_value(title);
    size_t n = word == NULL ? 0 : json_string_length(title);
    ok = ok && n > 0 && n <= PGL_OUTPUT_MOST_NAME_BYTES && memchr(word, 0, n) == NULL;
    pgl_buf piece = PGL_BUF_INIT;
    ok = ok && put_arguments(pgl_json_raw_member((pgl_json_span){text, size}, "arguments"), value, &piece);
    if (name != NULL)
        ok = ok && pgl_buf_append(name, word, n);
    if (arguments != NULL)
        ok = ok && pgl_buf_append(arguments, piece.data, piece.size);
    pgl_buf_fini(&piece);
    json_decref(root);
    return ok;
}

bool pgl_output_calls_step(pgl_output *o) {
    switch (o->state) {
    case PGL_STATE_CALL:
        return step_call(o);
    case PGL_STATE_PARAMETERS:
        return step_parameters(o);
    case PGL_STATE_TEXT_VALUE:
        return step_text_value(o);
    case PGL_STATE_JSON_VALUE:
    case PGL_STATE_LOST_VALUE:
        return step_gathered_value(o);
    default:
        return false;
    }
}
