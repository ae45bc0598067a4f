/* The C side of bridge/, a small Rust library that lends us crates which have no C form: chat templates are MiniJinja's.
 *
 * Strings are (pointer, bytes), UTF-8. Every call catches what goes wrong inside, panics included, and returns a code
 * and a message; nothing is thrown, nothing ends the process. Objects are immutable once made: any number of threads may
 * use one at the same time. No global state. */
#ifndef PGL_BRIDGE_H
#define PGL_BRIDGE_H

#include <stddef.h>
#include <stdint.h>

typedef enum pgl_bridge_code {
    PGL_BRIDGE_OK = 0,
    PGL_BRIDGE_SYNTAX,  /* the template cannot be compiled */
    PGL_BRIDGE_RAISED,  /* the template called raise_exception: the message is its argument */
    PGL_BRIDGE_FAILED,  /* an error while rendering: wrong type, attribute of an undefined value */
    PGL_BRIDGE_LIMIT,   /* it ran out of fuel, or wrote too much */
    PGL_BRIDGE_CONTEXT, /* the context is not the JSON described below */
    PGL_BRIDGE_PANIC,   /* a fault of the library */
} pgl_bridge_code;

/* Owned by the library: give it back to pgl_bridge_text_free. */
typedef struct pgl_bridge_text {
    char *data;
    size_t size, capacity;
} pgl_bridge_text;

void pgl_bridge_text_free(pgl_bridge_text *text); /* leaves it empty; again: nothing happens */

typedef struct pgl_bridge_template pgl_bridge_template;

/* Compiles source as transformers does: blocks trimmed, break and continue, {% generation %} taken for a block without
 * effect. error receives a terminated message. */
pgl_bridge_code pgl_bridge_template_open(const char *source, size_t size, pgl_bridge_template **out,
                                         char *error, size_t error_size);
void pgl_bridge_template_close(pgl_bridge_template *t); /* NULL is allowed */

typedef struct pgl_bridge_render {
    const char
        *context; /* the variables: a JSON object. Beyond JSON, a number may have # before it: then it prints
                          * as it is written here (#1.50), else as Python prints it (1.5) */
    size_t context_size;
    uint64_t fuel; /* most steps; a step also pays for 64 bytes of text made or read */
    size_t max_output_bytes;

    /* strftime_now(format): writes the current time to out, at most `room` bytes, and returns how many; called on the
     * calling thread only. */
    size_t (*strftime_now)(void *user, const char *format, size_t format_size, char *out, size_t room);
    void *user;
} pgl_bridge_render;

pgl_bridge_code pgl_bridge_template_render(const pgl_bridge_template *t, const pgl_bridge_render *render,
                                           pgl_bridge_text *out, char *error, size_t error_size);

#endif
