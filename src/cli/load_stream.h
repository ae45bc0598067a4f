/* Reads a streamed answer of /v1/chat/completions or /v1/completions: server-sent events out of bytes, and out of each
 * event what a load generator wants to know. Knows no socket and no clock. The server is not trusted: the size of an
 * event and their number are bounded. One thread. */
#ifndef PGL_CLI_LOAD_STREAM_H
#define PGL_CLI_LOAD_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define PGL_LOAD_EVENT_BYTES ((size_t)4 << 20)
#define PGL_LOAD_TEXT_BYTES 200

/* What an event has, or-ed; 0: a role, the usage, nothing. */
enum {
    PGL_LOAD_HAS_TEXT = 1,   /* of the answer: content, reasoning, a call of a tool */
    PGL_LOAD_HAS_FINISH = 2, /* a finish_reason */
};

typedef enum pgl_load_stream_fault {
    PGL_LOAD_STREAM_FINE,
    PGL_LOAD_STREAM_ERROR,     /* the server sent an error event; its message is in message */
    PGL_LOAD_STREAM_BAD_EVENT, /* an event that is no JSON object */
    PGL_LOAD_STREAM_TOO_LARGE,
    PGL_LOAD_STREAM_TOO_MANY,
    PGL_LOAD_STREAM_MEMORY,
} pgl_load_stream_fault;

typedef struct pgl_load_stream {
    /* fixed after init */
    void *user;
    void (*on_event)(void *user, unsigned what);
    uint64_t max_events;

    /* how far it came; done: [DONE] was there, and nothing behind it is read */
    bool finished, done;
    uint64_t n_events;
    /* from usage; -1: not said, or no number between 0 and 2^31 - 1 */
    int64_t prompt_tokens, completion_tokens, cached_tokens;
    char message[PGL_LOAD_TEXT_BYTES]; /* of an error event; printable, "" when it had none */

    /* its own */
    pgl_buf line, data;
    bool has_data, after_cr;
} pgl_load_stream;

/* on_event is called for each event in order. */
void pgl_load_stream_init(pgl_load_stream *stream, uint64_t max_events,
                          void (*on_event)(void *user, unsigned what), void *user);
void pgl_load_stream_fini(pgl_load_stream *stream);

/* The result does not depend on how the bytes are cut. After a fault the stream must not be fed again. */
pgl_load_stream_fault pgl_load_stream_feed(pgl_load_stream *stream, const char *data, size_t size);

/* The message of an error's JSON body ({"error":{"message":..}}, {"message":..}, {"detail":..}), else the body itself;
 * what is not printable becomes a space. out has PGL_LOAD_TEXT_BYTES bytes. */
void pgl_load_error_message(const char *body, size_t size, char *out);

#endif
