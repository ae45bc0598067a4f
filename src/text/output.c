/* Owns the parser's state and buffers: thinking and answer. Calls are in output_calls.c. */
#include "text/output.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/output_impl.h"

#define OPEN_THINK "<think>"
#define CLOSE_THINK "</think>"

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

size_t pgl_output_seek(const char *text, size_t size, size_t from, const char *tag, size_t *partial) {
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
    o->scanned = 0;
    if (n == 0)
        return;
    o->before = o->in.data[n - 1];
    o->in.data += n;
    o->in.size -= n;
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

/* The same for a tag of the thought, where a backtick before it has to be an opening one: `a`</think>`b` ends it. */
static int is_quoted_thought(const pgl_output *o, size_t i, size_t n) {
    char mark = i > 0 ? o->in.data[i - 1] : o->before;
    size_t ticks = o->backticks;
    for (size_t k = 0; mark == '`' && k < i; k++)
        ticks = o->in.data[k] == '\n' ? 0 : ticks + (o->in.data[k] == '`');
    return mark == '`' && ticks % 2 == 0 ? 0 : pgl_output_is_quoted(o, i, n);
}

/* Goes on over n bytes of the thought. */
static void consume_thought(pgl_output *o, size_t n) {
    for (size_t k = 0; k < n; k++)
        o->backticks = o->in.data[k] == '\n' ? 0 : o->backticks + (o->in.data[k] == '`');
    pgl_output_consume(o, n);
}

/* ---- thinking */

static bool step_begin(pgl_output *o) {
    size_t blanks = o->scanned;
    blanks += pgl_output_blanks(o->in.data + blanks, o->in.size - blanks);
    o->scanned = blanks;
    int tag =
        o->in.size == blanks ? -1 : pgl_output_begins(o->in.data + blanks, o->in.size - blanks, OPEN_THINK);
    if (tag < 0 && !o->final)
        return false;
    o->scanned = 0;
    if (tag == 1)
        pgl_output_consume(o, blanks + strlen(OPEN_THINK));
    o->had_thought = tag == 1 || o->options.in_thought;
    o->state = o->had_thought ? PGL_STATE_THOUGHT : PGL_STATE_ANSWER;
    return true;
}

static void end_thought(pgl_output *o, pgl_output_state next) {
    pgl_buf_clear(&o->blanks);
    o->thought_closed = true;
    o->state = next;
}

static void think(pgl_output *o, size_t n) {
    give_trimmed(o, PGL_OUTPUT_REASONING, o->in.data, n);
    consume_thought(o, n);
}

static bool step_thought(pgl_output *o) {
    if (!o->thought_begun) {
        pgl_output_consume(o, pgl_output_blanks(o->in.data, o->in.size));
        o->thought_begun = o->in.size > 0;
    }
    const char *const tags[2] = {o->options.told ? NULL : CLOSE_THINK,
                                 o->tools == NULL ? NULL : PGL_TAG_CALL};
    int which;
    size_t hold, tag = pgl_output_next_tag(o, 0, tags, &which, &hold);
    if (tag == o->in.size) {
        think(o, hold);
        return false;
    }
    int quoted = is_quoted_thought(o, tag, strlen(tags[which]));
    think(o, quoted > 0 ? tag + strlen(tags[which]) : tag);
    if (quoted != 0)
        return quoted > 0;
    if (which == 1) {
        int opens = pgl_output_opens_call(o, 0);
        if (opens == 0)
            think(o, strlen(PGL_TAG_CALL));
        if (opens <= 0)
            return opens == 0;
        o->probe = (pgl_output_probe){0};
        o->close_at = SIZE_MAX;
        o->state = PGL_STATE_CONSIDERED;
        return true;
    }
    pgl_output_consume(o, strlen(CLOSE_THINK));
    end_thought(o, PGL_STATE_AFTER);
    return true;
}

/* A call stands at the front of in: it counts when the turn ends behind it without an answer, or without the end of the
 * thought; with an answer it was only thought about. */
static bool step_considered(pgl_output *o) {
    static const char *const TAGS[2] = {CLOSE_THINK, NULL};
    if (o->options.told && o->close_at == SIZE_MAX && !o->final)
        return false;
    while (o->close_at == SIZE_MAX && !o->options.told) {
        int which;
        size_t close = pgl_output_next_tag(o, o->scanned, TAGS, &which, &o->scanned);
        int quoted = close < o->in.size ? pgl_output_is_quoted(o, close, strlen(CLOSE_THINK)) : -1;
        if (quoted == 0)
            o->close_at = close;
        else if (quoted > 0)
            o->scanned = close + strlen(CLOSE_THINK);
        else if (!o->final)
            return false;
        else
            break;
    }
    bool answered = false;
    if (o->close_at != SIZE_MAX) {
        size_t behind = o->close_at + strlen(CLOSE_THINK);
        size_t from = o->scanned > behind ? o->scanned : behind;
        from += pgl_output_blanks(o->in.data + from, o->in.size - from);
        o->scanned = from;
        answered = from < o->in.size;
        if (!answered && !o->final)
            return false;
    }
    if (!answered && !o->cut) {
        end_thought(o, PGL_STATE_ANSWER);
        o->scanned = 0;
        o->before = 0; /* what stands there was judged by the thought's rule of quoting */
        return true;
    }
    size_t thought = o->close_at == SIZE_MAX ? o->in.size : o->close_at;
    think(o, thought);
    if (o->close_at != SIZE_MAX) {
        pgl_output_consume(o, strlen(CLOSE_THINK));
        end_thought(o, PGL_STATE_AFTER);
    } else {
        o->state = PGL_STATE_THOUGHT;
    }
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

static void note_line(pgl_output *o, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c = o->in.data[i];
        o->line_start = c == '\n' || (o->line_start && (c == ' ' || c == '\t'));
    }
}

static bool step_answer(pgl_output *o) {
    if (o->tools == NULL) {
        pgl_output_give(o, PGL_OUTPUT_CONTENT, o->in.data, o->in.size);
        pgl_output_consume(o, o->in.size);
        return false;
    }
    bool function = false;
    size_t hold, size = o->in.size, call = pgl_output_find_call(o, &function, &hold);
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
        pgl_output_consume(o, strlen(PGL_TAG_CALL));
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
    case PGL_STATE_CONSIDERED:
        return step_considered(o);
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

/* Looks at what is not consumed and at the new piece. */
static void run(pgl_output *o, const char *text, size_t size) {
    size_t left = o->store.size - (size_t)(o->in.data - pgl_buf_text(&o->store));
    if (o->in.data != pgl_buf_text(&o->store)) /* a value that is held stays where it is */
        memmove(o->store.data, o->in.data, left);
    o->store.size = left;
    if (!pgl_buf_append(&o->store, text, size))
        o->failed = true;
    /* A character that is cut stays out of the states' sight. */
    size_t tail = o->final ? 0 : unfinished(pgl_buf_text(&o->store), o->store.size);
    o->in.data = pgl_buf_text(&o->store);
    o->in.size = o->store.size - tail;
    while (step(o)) {
    }
}

pgl_status pgl_output_open(const pgl_output_options *options, pgl_output **out, pgl_error *err) {
    *out = NULL;
    pgl_output *o = pgl_new(1, sizeof *o);
    if (o == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "no memory for an answer's text");
    o->options = *options;
    o->in.data = pgl_buf_text(&o->store);
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
    pgl_buf_fini(&output->store);
    pgl_buf_fini(&output->thought);
    pgl_buf_fini(&output->blanks);
    free(output);
}

void pgl_output_push(pgl_output *output, const char *text, size_t size) {
    if (output->final || size == 0)
        return;
    run(output, text, size);
}

void pgl_output_end_thought(pgl_output *output) {
    pgl_output *o = output;
    if (o->final || !pgl_output_in_thought(o))
        return;
    if (o->state == PGL_STATE_CONSIDERED) {
        if (o->close_at == SIZE_MAX) {
            o->close_at = o->in.size;
            run(o, CLOSE_THINK, strlen(CLOSE_THINK));
        }
        return;
    }
    o->had_thought = true;
    o->scanned = 0;
    o->state = PGL_STATE_THOUGHT;
    run(o, "", 0);
    if (o->state == PGL_STATE_CONSIDERED) {
        pgl_output_end_thought(o);
        return;
    }
    think(o, o->in.size); /* what was held as the beginning of a tag */
    end_thought(o, PGL_STATE_AFTER);
}

void pgl_output_finish(pgl_output *output, bool cut) {
    pgl_output *o = output;
    if (o->final)
        return;
    o->final = true;
    o->cut = cut;
    run(o, "", 0);
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
    return output->state == PGL_STATE_THOUGHT || output->state == PGL_STATE_CONSIDERED ||
           (output->state == PGL_STATE_BEGIN && output->options.in_thought);
}

uint32_t pgl_output_n_calls(const pgl_output *output) {
    return output->n_calls;
}

bool pgl_output_failed(const pgl_output *output) {
    return output->failed;
}
