/* What the model writes, taken apart while it is written: thinking, answer, tool calls in the Qwen XML form
 *
 *     <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n ... </function>\n</tool_call>
 *
 * Text goes in by pieces, deltas come out as early as they are certain; how the text is cut changes the cut of the
 * deltas and nothing else. Tags are recognised by their spelling, whichever tokens spelled them.
 *
 * Thinking. A thought stands at the beginning only: from the start when the prompt opened it, else after a leading
 * <think>; an opening tag repeated at its beginning is dropped. It ends at the first </think> that is not quoted (the
 * same quotation mark right before and behind it, or backticks that open and close there). Everything behind it is answer, tags included. White space
 * at both ends of the thought, and newlines between it and the answer, are layout and dropped. A turn that ends inside its
 * thought by itself gives the thought as content too, so that there is an answer; cut by its limit it stays a thought.
 *
 * Calls. Only with tools. Values are typed by the tool's schema: strings verbatim but for the one newline on each side,
 * streamed as they come, also where null or another type is allowed beside them, once it is clear that they are neither;
 * anything else becomes JSON of the type, as written, where it is that, and a string where it is not. A value ends at
 * </parameter> where the structure goes on behind it, so it may contain markup, whole calls included; failing that, at the
 * opening tag of another parameter that the tool has and the call has not had, or where the function or the call ends with
 * the turn, or before another call. Parameters without a usable name (none, with NUL, over 256 bytes), a parameter's second
 * value and doubled closing tags are left out; what is good around them stays. <function=NAME> of a known tool at the
 * beginning of a line needs no <tool_call>. A JSON object {"name", "arguments"} inside <tool_call> is taken as a call;
 * its arguments are an object, the text of one, or nothing at all, which is {}.
 *
 * A <tool_call> behind which neither a function's name nor a whole object of that kind stands begins no call: it is text
 * like any other, and so is what follows it. A call inside a thought counts when nothing but white space follows, or the
 * thought is never closed. White space around calls, and any text behind the first call, is dropped. Arguments are always
 * a JSON object that any reader takes: no NUL in its keys, no half surrogates; it is closed also when the turn ends inside
 * a call, unless it was cut by its limit.
 *
 * Time is linear in the text, however it is cut: nothing is looked at again but a bounded piece before what is new.
 *
 * One thread at a time. */
#ifndef PGL_TEXT_OUTPUT_H
#define PGL_TEXT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

typedef enum pgl_output_kind {
    PGL_OUTPUT_REASONING,
    PGL_OUTPUT_CONTENT,
    PGL_OUTPUT_CALL,      /* a call begins: text is the function's name */
    PGL_OUTPUT_ARGUMENTS, /* a piece of its arguments' JSON */
    PGL_OUTPUT_CALL_END,
} pgl_output_kind;

typedef struct pgl_output_delta {
    pgl_output_kind kind;
    const char *text; /* valid during the call of the sink */
    size_t size;
    uint32_t call; /* number of the call, from 0 */
} pgl_output_delta;

typedef void (*pgl_output_sink)(void *user, const pgl_output_delta *delta);

typedef struct pgl_output_options {
    bool in_thought;  /* the prompt ends inside an open think block */
    bool no_thinking; /* tags of thinking are text: the prompt closed it */
    bool told;        /* with in_thought: the thought ends with pgl_output_end_thought and by nothing else */
    pgl_json_span
        tools; /* the request's list; {NULL, 0}: nothing is taken for a call. Outlives the output. */
    pgl_output_sink sink;
    void *user;
} pgl_output_options;

typedef struct pgl_output pgl_output;

/* PGL_E_INVALID when tools is not a JSON list. */
pgl_status pgl_output_open(const pgl_output_options *options, pgl_output **out, pgl_error *err);
void pgl_output_close(pgl_output *output); /* NULL is allowed */

/* The next piece, any number of bytes. */
void pgl_output_push(pgl_output *output, const char *text, size_t size);

/* With told: the thought ends here. For whoever decides by the token and not by its spelling, because something else hangs
 * on it: a budget, or the form of what follows. Again, or with no thought open: nothing happens. */
void pgl_output_end_thought(pgl_output *output);

/* The end of the turn; cut: by its limit. Gives out all that was held back. */
void pgl_output_finish(pgl_output *output, bool cut);

bool pgl_output_in_thought(
    const pgl_output *output); /* what comes next belongs to the thought, as far as is known */
uint32_t pgl_output_n_calls(const pgl_output *output);
bool pgl_output_failed(const pgl_output *output); /* memory ran out: the deltas are not whole */

#endif
