/* Private to the C API: what is behind the handles of pergola.h. */
#ifndef PGL_API_API_IMPL_H
#define PGL_API_API_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/runtime.h"
#include "base/buf.h"
#include "pergola.h"

struct pergola_model {
    pgl_runtime *runtime;
};

typedef struct pgl_message {
    const char *role;          /* static: "user", "assistant" */
    char *content, *reasoning; /* reasoning NULL: none */
} pgl_message;

struct pergola_session {
    pergola_model *model;
    bool raw;
    int thinking;
    char *system; /* NULL: none */

    pgl_message *messages; /* chat */
    size_t n_messages, messages_capacity;
    pgl_ids ids; /* raw: the text so far */

    pthread_mutex_t lock;
    pgl_request *running; /* guarded by lock */
    bool cancelled;       /* guarded by lock */
};

/* Fills the caller's error from ours; returns its status. */
pergola_status pgl_api_fail(pergola_error *out, const pgl_error *err);
pergola_status pgl_api_error(pergola_error *out, pergola_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Takes text over: content must be from malloc; reasoning too, or NULL. False, with nothing taken, when memory is out. */
bool pgl_session_push(pergola_session *session, const char *role, char *content, char *reasoning);

/* The conversation with one more user message (NULL: none) as a list of messages in JSON. */
bool pgl_session_messages(const pergola_session *session, const char *user, pgl_buf *out);

#endif
