/* Private to output*.c: the parser's state. */
#ifndef PGL_TEXT_OUTPUT_IMPL_H
#define PGL_TEXT_OUTPUT_IMPL_H

#include "base/buf.h"
#include "text/output.h"
#include "text/output_tools.h"

typedef enum pgl_output_state {
    PGL_STATE_BEGIN, /* before anything: white space, perhaps an opening tag */
    PGL_STATE_THOUGHT,
    PGL_STATE_CONSIDERED, /* a call inside the thought: held until it is clear whether it counts */
    PGL_STATE_AFTER,      /* right behind </think>: newlines are dropped */
    PGL_STATE_ANSWER,
    PGL_STATE_CALL,       /* behind <tool_call>: white space, then a function's name or a whole object */
    PGL_STATE_PARAMETERS, /* between parameters */
    PGL_STATE_TEXT_VALUE, /* a string, streamed */
    PGL_STATE_JSON_VALUE, /* anything else, gathered */
    PGL_STATE_LOST_VALUE, /* of a parameter without a name: skipped */
    PGL_STATE_BETWEEN,    /* behind a call: only calls count */
} pgl_output_state;

#define PGL_TAG_CALL "<tool_call>"
#define PGL_TAG_FUNCTION "<function="

#define PGL_OUTPUT_MOST_BLANKS 1024    /* more between two tags are no layout */
#define PGL_OUTPUT_MOST_NAME_BYTES 256 /* of a function or parameter; what is longer is none */

/* How far the text behind a <tool_call> has been looked at while it is not clear whether a call begins there. */
typedef struct pgl_output_probe {
    size_t at;    /* offset from the tag's end */
    size_t start; /* of the JSON object; with depth > 0, or when it is whole */
    size_t depth; /* of it; 0: outside */
    bool in_string, escaped;
} pgl_output_probe;

struct pgl_output {
    pgl_output_options options;
    pgl_tool_table *tools; /* NULL: none */
    pgl_output_state state;
    pgl_buf store; /* what came in, the consumed part included until the next piece */
    struct {
        const char *data; /* never NULL */
        size_t size;
    } in;           /* text that is not consumed yet: the end of store */
    char before;    /* the byte before in; 0 at the beginning */
    size_t scanned; /* of in, by the states that hold it: nothing that they look for begins before here */
    pgl_output_probe probe; /* of the one <tool_call> that is undecided, or opened a call of JSON */
    size_t close_at;        /* CONSIDERED: where the thought's end stands in in; SIZE_MAX: not there yet */
    bool final, cut, failed;

    bool line_start; /* of the answer: only white space stands on this line so far */
    bool had_thought, thought_begun, thought_closed;
    size_t backticks; /* on the thought's line so far */
    pgl_buf thought;  /* what was given out as reasoning, for a turn that ends inside it */
    pgl_buf blanks;   /* white space that is given out when something follows */

    uint32_t n_calls;
    bool in_call;          /* its CALL was given out, its CALL_END not */
    const pgl_tool *tool;  /* NULL: the request has no such tool */
    uint32_t n_parameters; /* given out in this call */
    pgl_tool_seen seen;    /* keys that this call has had */
    bool value_begun;      /* TEXT_VALUE: its opening newline is behind us */
    bool value_given;      /* TEXT_VALUE: some of it was given out */
    unsigned types;        /* of the value */
    size_t nested;         /* parameters that the value itself quotes, opened and not closed */
};

/* Handing out. Empty pieces are not. */
void pgl_output_give(pgl_output *o, pgl_output_kind kind, const char *text, size_t size);

/* Each consumes what is certain of o->in; true: something changed, look again. */
bool pgl_output_calls_step(pgl_output *o); /* the states from CALL to LOST_VALUE */

/* Drops n bytes from the front of o->in; nothing of what is left counts as scanned. */
void pgl_output_consume(pgl_output *o, size_t n);

/* The first of the tags at or after from: its place, *which. size when there is none; *hold is how much of the text is
 * certain to be before any. Tags that are NULL are not looked for. */
size_t pgl_output_next_tag(const pgl_output *o, size_t from, const char *const tags[2], int *which,
                           size_t *hold);

/* Whether the tag of n bytes at i is only mentioned: the same quotation mark right before and behind it. -1: what is
 * behind it has not come yet. */
int pgl_output_is_quoted(const pgl_output *o, size_t i, size_t n);

/* Whether the <tool_call> at i begins a call: with a function's name or a whole object of JSON that names one. -1: not
 * known yet; then nothing else is asked until this one is decided. */
int pgl_output_opens_call(pgl_output *o, size_t i);

/* The first place where a call begins; size when there is none. *hold: how much is certain to be text before it.
 * *function: there is no <tool_call> before its function. */
size_t pgl_output_find_call(pgl_output *o, bool *function, size_t *hold);

/* The end of a tag's name that begins at from: '>', or the newline that stands where it is missing; size, or one more
 * than a name's most bytes, when neither has come. */
size_t pgl_output_name_end(const char *text, size_t size, size_t from);

/* Takes layout off both ends of a name. False: nothing usable is left: none, too long, or with NUL in it, which JSON's
 * readers do not take in a key. */
bool pgl_output_trim_name(const char **name, size_t *size);

/* A call as JSON. False when text is none: no object with a name, or with arguments that are no object, nor the text of
 * one, nor empty. name and arguments (an object's text) may be NULL. */
bool pgl_output_read_object(const char *text, size_t size, pgl_buf *name, pgl_buf *arguments);

/* Closes what is open of a call. complete: with its arguments' object. */
void pgl_output_end_call(pgl_output *o, bool complete);

/* Blanks at the front of a text: spaces, tabs, newlines. */
size_t pgl_output_blanks(const char *text, size_t size);

/* Tags at the front of a text: 1 it begins with tag, 0 it does not, -1 it is a beginning of it. */
int pgl_output_begins(const char *text, size_t size, const char *tag);

/* Where tag first stands in text at or after from; size when nowhere. *partial: where a beginning of it stands at the end
 * of the text, else size. */
size_t pgl_output_seek(const char *text, size_t size, size_t from, const char *tag, size_t *partial);

#endif
