/* Private to the C API: sampled tokens to pieces of thinking and answer, by the parsers of text/. Stop strings apply to
 * the answer. No piece cuts a character. One thread. */
#ifndef PGL_API_ANSWER_H
#define PGL_API_ANSWER_H

#include "base/buf.h"
#include "pergola.h"
#include "text/decode.h"
#include "text/output.h"
#include "text/stop.h"

typedef struct pgl_answer_options {
    const pgl_tokenizer *tokenizer;
    bool chat;        /* false: all text is answer */
    bool in_thought;  /* chat: the prompt ends inside a think block */
    bool no_thinking; /* chat: tags of thinking are text */
    const char *const *stop;
    uint32_t n_stop;
    pergola_text_callback callback; /* NULL: none */
    void *user;
} pgl_answer_options;

typedef struct pgl_answer {
    pgl_answer_options options;
    pgl_decoder decoder;
    pgl_output *output; /* chat */
    pgl_stop *stop;
    pgl_buf piece; /* between the parsers */

    /* What has been given out, for the session. */
    pgl_buf answer, reasoning;
    uint32_t n_reasoning; /* tokens */
    bool stopped;         /* by the callback */
    bool matched;         /* a stop string */
    bool failed;          /* memory ran out */
} pgl_answer;

pgl_status pgl_answer_open(pgl_answer *answer, const pgl_answer_options *options, pgl_error *err);
void pgl_answer_close(pgl_answer *answer); /* also of zeroed memory */

/* False: the answer is over (stopped, matched or failed says why). */
bool pgl_answer_push(pgl_answer *answer, int32_t token);

/* Gives out what was held; cut: the model did not end its turn. */
void pgl_answer_finish(pgl_answer *answer, bool cut);

#endif
