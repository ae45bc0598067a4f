/* The message that a parser's deltas add up to, with stop strings on its content.
 *
 * Give pgl_message_delta as the sink of a pgl_output and the message as its user. What is left after the stop strings is
 * collected, and passed on to `forward` as it comes. Stop strings see the content alone, not the thought and not calls;
 * once one matched, everything is ignored: `stopped` says that generating can end. One thread at a time. */
#ifndef PGL_TEXT_MESSAGE_H
#define PGL_TEXT_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "text/output.h"
#include "text/stop.h"

typedef struct pgl_message_call {
    pgl_buf name, arguments;
    bool complete; /* arguments is a whole JSON object, unless the turn was cut */
} pgl_message_call;

typedef struct pgl_message {
    /* set by the caller; zero for none */
    pgl_stop *stop; /* borrowed */
    pgl_output_sink forward;
    void *user;

    /* results */
    pgl_buf reasoning, content;
    pgl_message_call *calls;
    size_t n_calls, calls_capacity;
    bool stopped; /* a stop string matched */
    bool failed;  /* memory ran out: the message is not whole */
    pgl_buf work;
} pgl_message;

void pgl_message_delta(void *message, const pgl_output_delta *delta);

/* After pgl_output_finish: gives out what the stop strings held back. */
void pgl_message_finish(pgl_message *message);
void pgl_message_fini(pgl_message *message);

/* Appends {"role":"assistant","content":..,"reasoning_content":..,"tool_calls":[..]} as a chat completion has it, the calls'
 * ids being call_id and their number. content is null when there are only calls; the other two are left out when empty.
 * False when memory is out. */
bool pgl_message_put_json(const pgl_message *message, const char *call_id, pgl_buf *out);

#endif
