/* Requests out of bytes: HTTP/1.0 and 1.1, strict, bounded, from memory.
 *
 * Owns the grammar and the limits of one connection's incoming side; knows no socket, route or thread. Feed bytes in
 * pieces of any size; the sequence of results does not depend on how they were cut. What is refused, beyond what is
 * malformed: header lines that go on in the next one, line ends without CR, names that are no tokens, more than one
 * Host or Content-Length, Content-Length beside Transfer-Encoding, any coding but chunked, and everything above the
 * limits. A request to switch protocols is read as an ordinary one. One thread at a time. */
#ifndef PGL_SERVER_HTTP_PARSE_H
#define PGL_SERVER_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct pgl_http_limits {
    size_t max_target_bytes;
    size_t max_head_bytes; /* request line and headers; trailers are held to the same number */
    uint32_t max_headers;
    size_t max_body_bytes; /* the default; a route may set another once the head is known */
} pgl_http_limits;

/* 8 KiB, 64 KiB, 128, 32 MiB. */
pgl_http_limits pgl_http_default_limits(void);

typedef struct pgl_http_header {
    const char *name;  /* as it was written; terminated */
    const char *value; /* without white space around it; terminated */
} pgl_http_header;

typedef struct pgl_http_head {
    const char *method; /* "GET", ... static */
    const char *target; /* as it came */
    const char *path;   /* from '/' to before '?', percent signs as they came */
    const char *query;  /* behind '?'; "" when there is none */
    uint32_t minor;     /* HTTP/1.minor: 0 or 1 */
    bool keep_alive;    /* what version and Connection ask for */
    bool expect_continue;
    bool has_body; /* chunked, or a length above 0 */
    bool chunked;
    uint64_t content_length; /* 0 when chunked */
    const pgl_http_header *headers;
    uint32_t n_headers;
} pgl_http_head;

/* The value of the first header of that name (letters of either case); NULL when there is none. */
const char *pgl_http_header_find(const pgl_http_head *head, const char *name);

/* Whether a list-valued header ("Connection: keep-alive, upgrade"), over all its lines, has the word. */
bool pgl_http_header_has(const pgl_http_head *head, const char *name, const char *word);

/* Why a request was refused: what the answer says. */
typedef struct pgl_http_fault {
    int status;
    const char *code; /* static */
    char text[192];
} pgl_http_fault;

typedef enum pgl_http_event {
    PGL_HTTP_MORE, /* all bytes are taken and more are needed */
    PGL_HTTP_HEAD, /* the head is complete; comes once per request, before any of the body is taken */
    PGL_HTTP_END,  /* the body is complete; bytes behind it belong to the next request */
    PGL_HTTP_BAD,  /* fault says why; nothing more can be read from this connection */
} pgl_http_event;

typedef struct pgl_http_reader pgl_http_reader;

/* NULL when memory is out. */
pgl_http_reader *pgl_http_reader_open(const pgl_http_limits *limits);
void pgl_http_reader_close(pgl_http_reader *reader); /* NULL is allowed */

/* Reads on; *used says how many of the bytes were taken. With size 0 it only reports what is due. */
pgl_http_event pgl_http_reader_feed(pgl_http_reader *reader, const char *data, size_t size, size_t *used);

/* From HEAD until next. */
const pgl_http_head *pgl_http_reader_head(const pgl_http_reader *reader);

/* After HEAD: how much body may come, and whether it is kept or thrown away as it comes. A length that is known to be
 * too much is a fault at once (PGL_HTTP_BAD from the next feed). */
void pgl_http_reader_expect(pgl_http_reader *reader, size_t max_body_bytes, bool keep);

/* The body so far; belongs to the reader. take moves it out: the caller owns it. */
const pgl_buf *pgl_http_reader_body(const pgl_http_reader *reader);
pgl_buf pgl_http_reader_take_body(pgl_http_reader *reader);

/* After END: forget this request and read the next. */
void pgl_http_reader_next(pgl_http_reader *reader);

/* Whether any byte of the current request has come. */
bool pgl_http_reader_started(const pgl_http_reader *reader);

const pgl_http_fault *pgl_http_reader_fault(const pgl_http_reader *reader); /* after BAD */

/* Decodes %XX in place; false for a broken escape or one of NUL. */
bool pgl_http_percent_decode(char *text);

#endif
