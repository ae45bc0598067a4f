/* A choice's text: sampled tokens in, deltas out.
 *
 * For completions that is plain text, for chat what the output parser of text/ makes of it: thinking, content, tool
 * calls. Either way nothing of a stop string is given out, no piece cuts a character, and the pieces do not depend on
 * when tokens come. One thread at a time. */
#ifndef PGL_SERVER_CHOICE_TEXT_H
#define PGL_SERVER_CHOICE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "server/params.h"
#include "text/tokenizer.h"

typedef enum pgl_delta_kind {
    PGL_DELTA_CONTENT,
    PGL_DELTA_REASONING,
    PGL_DELTA_CALL,      /* a tool call begins: id and name */
    PGL_DELTA_ARGUMENTS, /* a piece of its arguments' JSON */
} pgl_delta_kind;

typedef struct pgl_delta {
    pgl_delta_kind kind;
    const char *text; /* CALL: the function's name */
    size_t size;
    const char *id; /* CALL */
    uint32_t call;  /* CALL, ARGUMENTS: number of the call in this choice */
} pgl_delta;

typedef struct pgl_choice_text pgl_choice_text;

typedef struct pgl_choice_text_options {
    const pgl_tokenizer *tokenizer;
    const pgl_gen_params *params; /* stops, tool_choice, parallel_tool_calls; outlives the text */
    bool chat;
    pgl_json_span tools; /* outlives the text; none: nothing is taken for a call */
    bool in_thought;     /* the prompt ends inside a think block */
    bool no_thinking;    /* tags of thinking are text */
    bool
        told_thought; /* with in_thought: the token </think> alone ends it, as the mask sees it (answer_mask.h) */
} pgl_choice_text_options;

/* Called for every delta, in order; text is valid during the call. */
typedef void (*pgl_delta_sink)(void *user, const pgl_delta *delta);

pgl_status pgl_choice_text_open(const pgl_choice_text_options *options, pgl_choice_text **out,
                                pgl_error *err);
void pgl_choice_text_close(pgl_choice_text *text); /* NULL is allowed */

/* A sampled token. False: the text is complete (a stop string, or the one call that was allowed), what comes behind
 * does not belong to it. */
bool pgl_choice_text_push(pgl_choice_text *text, int32_t id, pgl_delta_sink sink, void *user);

typedef struct pgl_choice_end {
    const char *finish;    /* "stop", "length", "tool_calls" */
    const char *stop_text; /* the stop string that ended it; NULL: none */
} pgl_choice_end;

/* The end: gives out what was held back. length: it was cut by its limit. */
pgl_choice_end pgl_choice_text_finish(pgl_choice_text *text, bool length, pgl_delta_sink sink, void *user);

/* Memory ran out on the way: the deltas are not whole. */
bool pgl_choice_text_failed(const pgl_choice_text *text);

/* Tokens so far that were thinking, the closing tag not counted. */
uint32_t pgl_choice_text_n_reasoning(const pgl_choice_text *text);

#endif
