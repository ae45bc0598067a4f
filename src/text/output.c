/* Owns the parser's state and buffers: thinking and answer. Calls are in output_calls.c. */
#include "text/output.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/output_impl.h"

#define OPEN_THINK "<think>"
#define CLOSE_THINK "</think>"
#define OPEN_CALL "<tool_call>"
#define OPEN_FUNCTION "<function="

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

size_t pgl_output_blanks(const char *text, size_t size) {
    size_t n = 0;
    while (n < size && is_blank(text[n]))
        n++;
    return n;
}

int pgl_output_begins(const char *text, size_t size, const char *tag) {
    size_t n = strlen(tag), common = size < n ? size : n;
    if (memcmp(text, tag, common) != 0)
        return 0;
    return size >= n ? 1 : -1;
}

size_t pgl_output_find(const char *text, size_t size, size_t from, const char *tag, size_t *partial) {
    size_t n = strlen(tag);
    const char *found = from < size ? memmem(text + from, size - from, tag, n) : NULL;
    *partial = size;
    for (size_t k = n - 1; k > 0; k--) {
        if (k <= size - from && memcmp(text + size - k, tag, k) == 0) {
            *partial = size - k;
            break;
        }
    }
    return found == NULL ? size : (size_t)(found - text);
}

void pgl_output_consume(pgl_output *o, size_t n) {
    if (n == 0)
        return;
    o->before = o->in.data[n - 1];
    memmove(o->in.data, o->in.data + n, o->in.size - n);
    o->in.size -= n;
    o->in.data[o->in.size] = 0;
}

void pgl_output_give(pgl_output *o, pgl_output_kind kind, const char *text, size_t size) {
    if (size == 0 && kind != PGL_OUTPUT_CALL && kind != PGL_OUTPUT_CALL_END)
        return;
    pgl_output_delta delta = {kind, text, size, o->n_calls == 0 ? 0 : o->n_calls - 1};
    if (kind == PGL_OUTPUT_REASONING)
        o->failed = !pgl_buf_append(&o->thought, text, size) || o->failed;
    o->options.sink(o->options.user, &delta);
}

/* Gives out text, its last blanks held back until something follows them. */
static void give_trimmed(pgl_output *o, pgl_output_kind kind, const char *text, size_t size) {
    size_t end = size;
    while (end > 0 && is_blank(text[end - 1]))
        end--;
    if (end > 0) {
        pgl_output_give(o, kind, pgl_buf_text(&o->blanks), o->blanks.size);
        pgl_buf_clear(&o->blanks);
        pgl_output_give(o, kind, text, end);
    }
    o->failed = !pgl_buf_append(&o->blanks, text + end, size - end) || o->failed;
}

/* Whether the tag of n bytes at i is only mentioned: the same quotation mark right before and behind it. -1: what is
 * behind it has not come yet. */
static int is_quoted(const pgl_output *o, size_t i, size_t n) {
    char mark = i > 0 ? o->in.data[i - 1] : o->before;
    if (mark == 0 || strchr("`'\"", mark) == NULL)
        return 0;
    if (i + n < o->in.size)
        return o->in.data[i + n] == mark;
    return o->final ? 0 : -1;
}

/* The first tag that is not quoted, or where to stop and wait: *hold is how much of the text is certain to be before it. */
static size_t find_tag(const pgl_output *o, const char *tag, size_t *hold) {
    size_t size = o->in.size, n = strlen(tag), from = 0, partial;
    for (;;) {
        size_t i = pgl_output_find(pgl_buf_text(&o->in), size, from, tag, &partial);
        if (i == size) {
            *hold = o->final ? size : partial;
            return size;
        }
        int quoted = is_quoted(o, i, n);
        *hold = i;
        if (quoted == 0)
            return i;
        if (quoted < 0)
            return size;
        from = i + n;
    }
}

/* ---- thinking */

static bool step_begin(pgl_output *o) {
    size_t blanks = pgl_output_blanks(pgl_buf_text(&o->in), o->in.size);
    int tag =
        o->in.size == blanks ? -1 : pgl_output_begins(o->in.data + blanks, o->in.size - blanks, OPEN_THINK);
    if (tag < 0 && !o->final)
        return false;
    if (tag == 1)
        pgl_output_consume(o, blanks + strlen(OPEN_THINK));
    o->had_thought = tag == 1 || o->options.in_thought;
    o->state = o->had_thought ? PGL_STATE_THOUGHT : PGL_STATE_ANSWER;
    return true;
}

/* A call that begins at i inside the thought: 1 it counts, 0 it is part of the thought, -1 not known yet. */
static int call_counts(const pgl_output *o, size_t i) {
    const char *text = o->in.data;
    size_t size = o->in.size, partial;
    size_t close = pgl_output_find(text, size, i, CLOSE_THINK, &partial);
    if (close == size)
        return !o->final ? -1 : !o->cut;
    size_t behind = close + strlen(CLOSE_THINK);
    if (behind + pgl_output_blanks(text + behind, size - behind) < size)
        return 0;
    return o->final ? 1 : -1;
}

static bool step_thought(pgl_output *o) {
    if (!o->thought_begun) {
        pgl_output_consume(o, pgl_output_blanks(pgl_buf_text(&o->in), o->in.size));
        o->thought_begun = o->in.size > 0;
    }
    size_t hold, call_hold = o->in.size, size = o->in.size;
    size_t close = find_tag(o, CLOSE_THINK, &hold);
    size_t call = o->tools == NULL ? size : find_tag(o, OPEN_CALL, &call_hold);
    if (call < size && call < close) {
        int counts = call_counts(o, call);
        if (counts == 0)
            call = size; /* the thought goes on up to its end, which is there */
        else
            hold = call;
        if (counts == 1) {
            give_trimmed(o, PGL_OUTPUT_REASONING, o->in.data, call);
            pgl_buf_clear(&o->blanks);
            pgl_output_consume(o, call);
            o->thought_closed = true;
            o->state = PGL_STATE_ANSWER;
            return true;
        }
        close = counts == 0 ? close : size;
    } else if (close == size && call_hold < hold) {
        hold = call_hold;
    }
    if (hold > 0) {
        give_trimmed(o, PGL_OUTPUT_REASONING, o->in.data, hold);
        pgl_output_consume(o, hold);
    }
    if (close == size)
        return false;
    pgl_output_consume(o, strlen(CLOSE_THINK));
    pgl_buf_clear(&o->blanks);
    o->thought_closed = true;
    o->state = PGL_STATE_AFTER;
    return true;
}

static bool step_after(pgl_output *o) {
    size_t n = 0;
    while (n < o->in.size && (o->in.data[n] == '\n' || o->in.data[n] == '\r'))
        n++;
    pgl_output_consume(o, n);
    if (o->in.size == 0)
        return false;
    o->line_start = true;
    o->state = PGL_STATE_ANSWER;
    return true;
}

/* ---- the answer */

/* <tool_call> at i begins a call: 1; is text: 0; -1: not known yet. */
static int opens_call(const pgl_output *o, size_t i) {
    const char *text = o->in.data + i + strlen(OPEN_CALL);
    size_t size = o->in.size - i - strlen(OPEN_CALL), blanks = pgl_output_blanks(text, size);
    if (blanks == size)
        return o->final ? 0 : -1;
    if (text[blanks] == '{')
        return 1;
    int function = pgl_output_begins(text + blanks, size - blanks, OPEN_FUNCTION);
    return function < 0 && o->final ? 0 : function;
}

/* <function=NAME> at i, NAME known and nothing but blanks before it on its line. */
static int opens_function(const pgl_output *o, size_t i) {
    size_t line = i;
    while (line > 0 && (o->in.data[line - 1] == ' ' || o->in.data[line - 1] == '\t'))
        line--;
    if (line > 0 ? o->in.data[line - 1] != '\n' : !o->line_start)
        return 0;
    const char *name = o->in.data + i + strlen(OPEN_FUNCTION);
    size_t size = o->in.size - i - strlen(OPEN_FUNCTION), n = 0;
    while (n < size && n < 256 && name[n] != '>' && name[n] != '\n')
        n++;
    if (n == size && n < 256)
        return o->final ? 0 : -1;
    return name[n] == '>' && pgl_tool_find(o->tools, name, n) != NULL;
}

/* The first place where a call begins; size when there is none. *hold: how much is certain to be text before it. */
static size_t find_call(const pgl_output *o, bool *function, size_t *hold) {
    size_t size = o->in.size, from = 0, partial_call, partial_function;
    const char *text = pgl_buf_text(&o->in);
    for (;;) {
        size_t call = pgl_output_find(text, size, from, OPEN_CALL, &partial_call);
        size_t bare = pgl_output_find(text, size, from, OPEN_FUNCTION, &partial_function);
        size_t i = call < bare ? call : bare;
        if (i == size) {
            *hold = partial_call < partial_function ? partial_call : partial_function;
            *hold = o->final ? size : *hold;
            return size;
        }
        *function = bare < call;
        int quoted = is_quoted(o, i, *function ? 0 : strlen(OPEN_CALL));
        int opens = *function ? opens_function(o, i) : opens_call(o, i);
        *hold = i;
        if (opens == 1 && quoted == 0)
            return i;
        if (quoted < 0 || (opens < 0 && quoted == 0))
            return size;
        from = i + 1;
    }
}

static void note_line(pgl_output *o, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c = o->in.data[i];
        o->line_start = c == '\n' || (o->line_start && (c == ' ' || c == '\t'));
    }
}

static bool step_answer(pgl_output *o) {
    if (o->tools == NULL) {
        pgl_output_give(o, PGL_OUTPUT_CONTENT, pgl_buf_text(&o->in), o->in.size);
        pgl_output_consume(o, o->in.size);
        return false;
    }
    bool function = false;
    size_t hold, size = o->in.size, call = find_call(o, &function, &hold);
    if (hold > 0) {
        if (o->state == PGL_STATE_ANSWER)
            give_trimmed(o, PGL_OUTPUT_CONTENT, o->in.data, hold);
        note_line(o, hold);
        pgl_output_consume(o, hold);
    }
    if (call == size)
        return false;
    pgl_buf_clear(&o->blanks);
    if (!function)
        pgl_output_consume(o, strlen(OPEN_CALL));
    o->state = PGL_STATE_CALL;
    return true;
}

/* ---- pieces */

static bool step(pgl_output *o) {
    switch (o->state) {
    case PGL_STATE_BEGIN:
        return step_begin(o);
    case PGL_STATE_THOUGHT:
        return step_thought(o);
    case PGL_STATE_AFTER:
        return step_after(o);
    case PGL_STATE_ANSWER:
    case PGL_STATE_BETWEEN:
        return step_answer(o);
    default:
        return pgl_output_calls_step(o);
    }
}

/* Bytes at the end of text that begin a character and do not end it. */
static size_t unfinished(const char *text, size_t size) {
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        unsigned char c = (unsigned char)text[size - back];
        if ((c & 0xC0) == 0x80)
            continue;
        size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
        return length > back ? back : 0;
    }
    return 0;
}

static void run(pgl_output *o) {
    /* A character that is cut stays out of the states' sight. */
    size_t tail = o->final ? 0 : unfinished(pgl_buf_text(&o->in), o->in.size);
    char kept[4];
    memcpy(kept, pgl_buf_text(&o->in) + o->in.size - tail, tail);
    o->in.size -= tail;
    while (step(o)) {
    }
    o->failed = !pgl_buf_append(&o->in, kept, tail) || o->failed;
}

pgl_status pgl_output_open(const pgl_output_options *options, pgl_output **out, pgl_error *err) {
    *out = NULL;
    pgl_output *o = pgl_new(1, sizeof *o);
    if (o == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for an answer's text");
    o->options = *options;
    o->seen.keys = (pgl_map)PGL_MAP_INIT;
    o->line_start = true;
    o->state = options->no_thinking && !options->in_thought ? PGL_STATE_ANSWER : PGL_STATE_BEGIN;
    if (options->tools.text != NULL) {
        pgl_status status = pgl_tool_table_open(options->tools, &o->tools, err);
        if (status != PGL_OK) {
            pgl_output_close(o);
            return status;
        }
    }
    *out = o;
    return PGL_OK;
}

void pgl_output_close(pgl_output *output) {
    if (output == NULL)
        return;
    pgl_tool_table_close(output->tools);
    pgl_tool_seen_clear(&output->seen);
    pgl_buf_fini(&output->in);
    pgl_buf_fini(&output->thought);
    pgl_buf_fini(&output->blanks);
    pgl_buf_fini(&output->key);
    pgl_buf_fini(&output->value);
    free(output);
}

void pgl_output_push(pgl_output *output, const char *text, size_t size) {
    if (output->final || size == 0)
        return;
    if (!pgl_buf_append(&output->in, text, size))
        output->failed = true;
    else
        run(output);
}

void pgl_output_finish(pgl_output *output, bool cut) {
    pgl_output *o = output;
    if (o->final)
        return;
    o->final = true;
    o->cut = cut;
    run(o);
    if (o->in_call)
        pgl_output_end_call(o, !cut);
    if (o->state == PGL_STATE_THOUGHT && !cut) {
        pgl_output_give(o, PGL_OUTPUT_CONTENT, pgl_buf_text(&o->thought), o->thought.size);
    } else if (o->state == PGL_STATE_ANSWER) {
        pgl_output_give(o, PGL_OUTPUT_CONTENT, pgl_buf_text(&o->blanks), o->blanks.size);
    }
    pgl_buf_clear(&o->blanks);
}

bool pgl_output_in_thought(const pgl_output *output) {
    return output->state == PGL_STATE_THOUGHT ||
           (output->state == PGL_STATE_BEGIN && output->options.in_thought);
}

uint32_t pgl_output_n_calls(const pgl_output *output) {
    return output->n_calls;
}

bool pgl_output_failed(const pgl_output *output) {
    return output->failed;
}
