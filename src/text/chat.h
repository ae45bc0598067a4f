/* Chat: a list of messages to the prompt that the model was trained on, by the template that the checkpoint ships.
 *
 * Message text is text. What users, tools, files and earlier answers write never becomes a control token, whatever it
 * spells: spellings of added tokens (and beginnings and ends that could become one beside the template's own text) are
 * broken with a noncharacter that occurs nowhere in the request, the template is rendered, added tokens are matched, and
 * the noncharacters are removed before the rest is encoded.
 *
 * Forgiving in: system and developer messages anywhere are merged into the first, in order, with a blank line between;
 * content may be a string, a list of text parts, null or absent; `reasoning` is `reasoning_content`; thinking inside an
 * assistant's content (up to the first </think> that is not in quotes or backticks) is recognised when neither is given;
 * tool-call arguments may be an object, or that as a string, empty, null or absent, or cut short (what is complete of
 * them is kept); keys keep their order, numbers their text. A list without a user turn is tried as it is, then with an
 * empty user turn. A trailing assistant message is dropped when it is empty, and continued when it is not, unless it
 * ends in tool calls: then a new turn begins. Images and other parts: refused, but in a tool's result, where a line that
 * says so takes their place.
 *
 * A pgl_chat is immutable once opened; any number of threads may render at the same time. */
#ifndef PGL_TEXT_CHAT_H
#define PGL_TEXT_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer.h"

#define PGL_CHAT_MAX_BYTES PGL_TOKENIZER_MAX_BYTES /* of messages, tools and variables together */
#define PGL_CHAT_MOST_TURNS 4                      /* as many as the engine takes */
#define PGL_CHAT_MAX_DEPTH 128                     /* of each */

typedef struct pgl_chat pgl_chat;

/* source: chat_template.jinja; NULL when the checkpoint has none: then config's chat_template is taken, a string or a
 * list of {name, template} (of which "tool_use", where it is there, serves requests with tools, and "default" the rest).
 * config: tokenizer_config.json, also for the variables bos_token, eos_token, ..; NULL when there is none. The tokenizer
 * is borrowed and must outlive the chat. PGL_E_NOT_FOUND when there is no template, PGL_E_FORMAT when
 * it does not compile. */
pgl_status pgl_chat_open(const pgl_tokenizer *tokenizer, const char *source, size_t size, const char *config,
                         size_t config_size, pgl_chat **out, pgl_error *err);
void pgl_chat_close(pgl_chat *chat); /* NULL is allowed */

typedef enum pgl_chat_end {
    PGL_CHAT_ANSWER, /* the prompt of an answer: a trailing assistant message is continued, else a turn opened */
    PGL_CHAT_CONTINUE, /* the list must end with an assistant message, which is continued */
    PGL_CHAT_AS_IS,    /* the messages alone, nothing opened, nothing continued */
} pgl_chat_end;

/* Spans hold JSON text, each one value; {NULL, 0} or null stands for none. They are checked here. */
typedef struct pgl_chat_request {
    pgl_json_span messages; /* a list; needed */
    pgl_json_span tools;    /* a list of {"type":"function","function":{..}} */
    pgl_json_span kwargs;   /* an object: further variables of the template */
    int thinking;           /* -1: say nothing; 0, 1: enable_thinking, unless kwargs has it */
    pgl_chat_end end;
    int64_t now; /* for strftime_now: seconds since 1970, local time; 0: the clock */
} pgl_chat_request;

typedef struct pgl_chat_prompt {
    pgl_buf text; /* as the model sees it */
    pgl_ids ids;
    bool in_thought; /* the prompt ends inside an open think block: what follows is reasoning */
    bool continued;  /* it ends inside the last assistant message, whose text counts as part of the prompt */

    /* Places where a snapshot is useful: offsets into ids at which a turn begins, rising, the first turn left out. The
     * first of them is the end of the system prompt with its tools where there is one (then has_system), the last the
     * end of the history, before the answer's own turn. Of more than PGL_CHAT_MOST_TURNS the first, the one behind what
     * the user said last (where the templates of this family change a prompt later), and the last ones. */
    uint32_t *turns;
    size_t n_turns;
    bool has_system;

    char
        param[96]; /* after PGL_E_INVALID: the field at fault, "messages[2].content[0]"; "" when it is none in
                     * particular */
} pgl_chat_prompt;

/* Renders; *out is overwritten and belongs to the caller also after a failure (pgl_chat_prompt_fini). PGL_E_INVALID:
 * the messages are wrong, or the template refuses them; the message names the field or quotes the template.
 * PGL_E_TOO_LARGE, PGL_E_MEMORY, PGL_E_INTERNAL (a fault of the template itself). */
pgl_status pgl_chat_render(const pgl_chat *chat, const pgl_chat_request *request, pgl_chat_prompt *out,
                           pgl_error *err);
void pgl_chat_prompt_fini(pgl_chat_prompt *prompt); /* also of zeroed memory */

/* What stands for an image or another part in a tool's result. */
#define PGL_CHAT_OMITTED_PART "[part omitted: the model reads text only]"

#endif
