/* What the parts of chat rendering share. Private to text. */
#ifndef PGL_TEXT_CHAT_IMPL_H
#define PGL_TEXT_CHAT_IMPL_H

#include "text/chat.h"

typedef enum pgl_role { PGL_ROLE_SYSTEM, PGL_ROLE_USER, PGL_ROLE_ASSISTANT, PGL_ROLE_TOOL } pgl_role;

/* One message in the form that templates are written for. */
typedef struct pgl_chat_message {
    pgl_role role;
    size_t index;         /* in the request */
    pgl_json_span source; /* the whole message; empty for one of our own */
    pgl_buf content, reasoning;
    bool has_reasoning;
    bool cut;       /* the reasoning has no end */
    bool keep_head; /* content was taken out of a longer text, where no template trims its beginning */
    pgl_json_span tool_calls; /* a list that is not empty, or none */
} pgl_chat_message;

typedef struct pgl_chat_list {
    pgl_chat_message *messages;
    size_t count, capacity;
    bool has_user;
} pgl_chat_list;

/* Reads and normalises; param receives the field at fault. */
pgl_status pgl_chat_list_read(pgl_json_span messages, pgl_chat_list *list, char param[96], pgl_error *err);
void pgl_chat_list_fini(pgl_chat_list *list);

/* Puts an empty user message behind the system message. */
pgl_status pgl_chat_list_add_user(pgl_chat_list *list, pgl_error *err);

/* Fails with param set and "param: " in front of the message. */
pgl_status pgl_chat_refuse(char param[96], pgl_error *err, const char *path, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- writing the template's variables ---- */

/* JSON as bridge.h takes it, with message text broken. */
typedef struct pgl_chat_writer {
    const pgl_tokenizer *tokenizer;
    uint32_t breaker;
    bool message_text; /* what is put now is such, not names that a template looks for */
    pgl_buf out;
    pgl_buf raw, broken; /* work space */
} pgl_chat_writer;

void pgl_chat_writer_fini(pgl_chat_writer *w);

/* All return false when memory is out. */
bool pgl_chat_put_own(pgl_chat_writer *w, const char *json);                 /* copied as it is */
bool pgl_chat_put_string(pgl_chat_writer *w, const char *text, size_t size); /* a string of theirs */
bool pgl_chat_put_json(pgl_chat_writer *w, pgl_json_span json,
                       bool keep_numbers); /* checked JSON of theirs */

/* The arguments of a tool call, in any of the accepted forms, as an object. false: out of memory or *bad. */
bool pgl_chat_put_arguments(pgl_chat_writer *w, pgl_json_span arguments, bool *bad);

/* Marks the noncharacters U+FDD0 + i that text may hold, as they are or as escapes. */
void pgl_chat_mark_used(const char *text, size_t size, uint32_t *used);

#endif
