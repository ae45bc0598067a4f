/* http-parser for the grammar, and on top of it what a server that faces strangers has to refuse. Lines of the head
 * are checked by a scanner of our own before http-parser sees them: it finds the end of the head, so that what is
 * body never counts as head however the bytes were cut. */
#include "server/http_parse.h"

#include <http_parser.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

/* http-parser counts a head itself and gives up at 80 KiB. */
#define LARGEST_HEAD_BYTES ((size_t)72 << 10)
#define FRAMING_BYTES                                                                                        \
    ((size_t)64 << 10) /* chunk headers, extensions and trailers, besides 15 for each body byte */

typedef enum stage { IN_HEAD, AT_HEAD, IN_BODY, AT_END, BAD } stage;

typedef struct span {
    size_t name, value; /* offsets into text */
} span;

struct pgl_http_reader {
    /* fixed after open */
    pgl_http_limits limits;

    /* of the current request */
    http_parser parser;
    stage stage;
    pgl_http_fault fault;
    pgl_buf text; /* target, then name, value, name, value, ..., each with a zero behind it */
    span *spans;
    pgl_http_header *headers;
    uint32_t n_headers;
    bool in_name; /* a header's name is being read */
    size_t head_bytes;
    size_t line_bytes;
    bool after_cr, after_request_line;
    pgl_http_head head;
    pgl_buf body;
    size_t max_body_bytes;
    bool keep_body;
    uint64_t body_bytes, raw_body_bytes;
};

pgl_http_limits pgl_http_default_limits(void) {
    return (pgl_http_limits){.max_target_bytes = 8 << 10,
                             .max_head_bytes = 64 << 10,
                             .max_headers = 128,
                             .max_body_bytes = (size_t)32 << 20};
}

static int refuse(pgl_http_reader *reader, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Returns non-zero, which stops http-parser. The first fault stays. */
static int refuse(pgl_http_reader *reader, int status, const char *code, const char *format, ...) {
    if (reader->stage != BAD) {
        reader->stage = BAD;
        reader->fault.status = status;
        reader->fault.code = code;
        va_list args;
        va_start(args, format);
        vsnprintf(reader->fault.text, sizeof reader->fault.text, format, args);
        va_end(args);
    }
    return 1;
}

static int out_of_memory(pgl_http_reader *reader) {
    return refuse(reader, 500, "out_of_memory", "no memory for this request");
}

static bool is_token_char(unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* ---- what http-parser calls ---- */

static pgl_http_reader *reader_of(http_parser *parser) {
    return parser->data;
}

static int on_url(http_parser *parser, const char *at, size_t size) {
    pgl_http_reader *reader = reader_of(parser);
    if (size > reader->limits.max_target_bytes - reader->text.size)
        return refuse(reader, 414, "uri_too_long", "the request target is longer than %zu bytes",
                      reader->limits.max_target_bytes);
    return pgl_buf_append(&reader->text, at, size) ? 0 : out_of_memory(reader);
}

static bool finish_string(pgl_http_reader *reader) {
    return pgl_buf_putc(&reader->text, '\0');
}

static int on_header_field(http_parser *parser, const char *at, size_t size) {
    pgl_http_reader *reader = reader_of(parser);
    if (reader->stage != IN_HEAD)
        return 0; /* trailers: counted as framing, not kept */
    for (size_t i = 0; i < size; i++)
        if (!is_token_char((unsigned char)at[i]))
            return refuse(reader, 400, "bad_request",
                          "a header name has a character that may not stand there");
    if (!reader->in_name) {
        if (reader->n_headers == reader->limits.max_headers)
            return refuse(reader, 431, "headers_too_large", "more than %u headers",
                          reader->limits.max_headers);
        if (!finish_string(reader)) /* the target's or the last value's end */
            return out_of_memory(reader);
        reader->spans[reader->n_headers] = (span){reader->text.size, 0};
        reader->in_name = true;
    }
    return pgl_buf_append(&reader->text, at, size) ? 0 : out_of_memory(reader);
}

static int on_header_value(http_parser *parser, const char *at, size_t size) {
    pgl_http_reader *reader = reader_of(parser);
    if (reader->stage != IN_HEAD)
        return 0;
    if (reader->in_name) {
        reader->in_name = false;
        if (!finish_string(reader))
            return out_of_memory(reader);
        reader->spans[reader->n_headers++].value = reader->text.size;
    }
    return pgl_buf_append(&reader->text, at, size) ? 0 : out_of_memory(reader);
}

static void trim_end(char *text) {
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        text[--n] = '\0';
}

/* Target to path and query: origin form, absolute form, or "*" for OPTIONS. */
static int split_target(pgl_http_reader *reader, char *target) {
    pgl_http_head *head = &reader->head;
    char *path = target;
    for (const char *c = target; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f || *c == '#')
            return refuse(reader, 400, "bad_request",
                          "the request target has a character that may not stand there");
    if (strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0) {
        path = strstr(path, "//") + 2;
        path += strcspn(path, "/?");
    } else if (strcmp(path, "*") == 0 && strcmp(head->method, "OPTIONS") == 0) {
        head->path = path;
        head->query = "";
        return 0;
    } else if (path[0] != '/') {
        return refuse(reader, 400, "bad_request", "the request target must start with /");
    }
    /* The path stands in its own copy: behind it, where the query begins, a zero is needed. */
    size_t at = reader->text.size;
    size_t target_at = (size_t)(path - reader->text.data);
    size_t path_size = strcspn(path, "?");
    bool has_query = path[path_size] == '?';
    if (!pgl_buf_reserve(&reader->text, path_size + 2))
        return out_of_memory(reader);
    path = reader->text.data + target_at;
    if (path_size == 0)
        pgl_buf_putc(&reader->text, '/');
    else
        pgl_buf_append(&reader->text, path, path_size);
    pgl_buf_putc(&reader->text, '\0');
    head->target = reader->text.data;
    head->path = reader->text.data + at;
    head->query = has_query ? reader->text.data + target_at + path_size + 1 : "";
    return 0;
}

static uint32_t count_headers(const pgl_http_head *head, const char *name) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < head->n_headers; i++)
        n += strcasecmp(head->headers[i].name, name) == 0;
    return n;
}

static void resolve_headers(pgl_http_reader *reader) {
    for (uint32_t i = 0; i < reader->n_headers; i++) {
        reader->headers[i].name = reader->text.data + reader->spans[i].name;
        reader->headers[i].value = reader->text.data + reader->spans[i].value;
        trim_end(reader->text.data + reader->spans[i].value);
    }
}

/* What http-parser lets through and a strict server does not. */
static int check_head(pgl_http_reader *reader) {
    http_parser *parser = &reader->parser;
    pgl_http_head *head = &reader->head;
    if (parser->http_major != 1 || parser->http_minor > 1)
        return refuse(reader, 505, "http_version_not_supported",
                      "HTTP/%u.%u: this server speaks HTTP/1.1 and 1.0", parser->http_major,
                      parser->http_minor);
    if (parser->method == HTTP_CONNECT)
        return refuse(reader, 400, "bad_request", "CONNECT: this server is no proxy");
    uint32_t hosts = count_headers(head, "Host");
    if (hosts > 1 || (hosts == 0 && parser->http_minor == 1))
        return refuse(reader, 400, "bad_request", "%u Host headers, one was expected", hosts);
    if (count_headers(head, "Content-Length") > 1)
        return refuse(reader, 400, "bad_request", "more than one Content-Length");
    const char *coding = pgl_http_header_find(head, "Transfer-Encoding");
    if (coding) {
        if (count_headers(head, "Content-Length") > 0)
            return refuse(reader, 400, "bad_request", "Content-Length and Transfer-Encoding together");
        if (count_headers(head, "Transfer-Encoding") > 1 || strcasecmp(coding, "chunked") != 0 ||
            parser->http_minor == 0)
            return refuse(reader, 400, "bad_request", "a Transfer-Encoding other than chunked");
    }
    const char *length = pgl_http_header_find(head, "Content-Length");
    if (length && (length[0] == '\0' || strspn(length, "0123456789") != strlen(length)))
        return refuse(reader, 400, "bad_request", "a Content-Length that is no number");
    const char *expect = pgl_http_header_find(head, "Expect");
    if (expect && strcasecmp(expect, "100-continue") != 0)
        return refuse(reader, 417, "expectation_failed", "an Expect other than 100-continue");
    return 0;
}

static int on_headers_complete(http_parser *parser) {
    pgl_http_reader *reader = reader_of(parser);
    pgl_http_head *head = &reader->head;
    if (!finish_string(reader))
        return -out_of_memory(reader);
    memset(head, 0, sizeof *head);
    head->method = http_method_str((enum http_method)parser->method);
    head->minor = parser->http_minor;
    if (split_target(reader, reader->text.data))
        return -1;
    resolve_headers(reader); /* after the last growth of text */
    head->target = reader->text.data;
    head->headers = reader->headers;
    head->n_headers = reader->n_headers;
    if (check_head(reader))
        return -1;
    const char *expect = pgl_http_header_find(head, "Expect");
    head->expect_continue = expect != NULL && head->minor == 1;
    head->keep_alive = http_should_keep_alive(parser) != 0;
    head->chunked = pgl_http_header_find(head, "Transfer-Encoding") != NULL;
    bool has_length = pgl_http_header_find(head, "Content-Length") != NULL;
    head->content_length = has_length && !head->chunked ? parser->content_length : 0;
    head->has_body = head->chunked || head->content_length > 0;
    parser->upgrade = 0; /* a wish to switch protocols is not granted */
    reader->max_body_bytes = reader->limits.max_body_bytes;
    reader->keep_body = true;
    reader->stage = AT_HEAD;
    http_parser_pause(parser, 1);
    return 0;
}

static int too_large(pgl_http_reader *reader) {
    return refuse(reader, 413, "request_too_large", "the body is larger than %zu bytes",
                  reader->max_body_bytes);
}

static int on_body(http_parser *parser, const char *at, size_t size) {
    pgl_http_reader *reader = reader_of(parser);
    if (size > reader->max_body_bytes - reader->body_bytes)
        return too_large(reader);
    reader->body_bytes += size;
    if (reader->keep_body && !pgl_buf_append(&reader->body, at, size))
        return out_of_memory(reader);
    return 0;
}

static int on_message_complete(http_parser *parser) {
    pgl_http_reader *reader = reader_of(parser);
    reader->stage = AT_END;
    http_parser_pause(parser, 1);
    return 0;
}

static const http_parser_settings parser_calls = {.on_url = on_url,
                                                  .on_header_field = on_header_field,
                                                  .on_header_value = on_header_value,
                                                  .on_headers_complete = on_headers_complete,
                                                  .on_body = on_body,
                                                  .on_message_complete = on_message_complete};

/* ---- feeding ---- */

/* Looks at head bytes before http-parser does. Returns how many may be handed on: up to the end of the head, or to
 * where the fault *why stands. */
static size_t scan_head(pgl_http_reader *reader, const char *data, size_t size, const char **why) {
    for (size_t i = 0; i < size; i++) {
        char c = data[i];
        if (c == '\n') {
            if (!reader->after_cr) {
                *why = "a line of the head ends without CR";
                return i;
            }
            reader->after_cr = false;
            if (reader->line_bytes > 0)
                reader->after_request_line = true;
            else if (reader->after_request_line)
                return i + 1;
            reader->line_bytes = 0;
            continue;
        }
        if (reader->after_cr) {
            *why = "CR without LF in the head";
            return i;
        }
        if (c == '\r') {
            reader->after_cr = true;
            continue;
        }
        if (c == '\0' || (reader->line_bytes == 0 && reader->after_request_line && (c == ' ' || c == '\t'))) {
            *why = c ? "a header line that goes on in the next one" : "NUL in the head";
            return i;
        }
        reader->line_bytes++;
    }
    return size;
}

static void parser_fault(pgl_http_reader *reader) {
    enum http_errno code = HTTP_PARSER_ERRNO(&reader->parser);
    if (code == HPE_HEADER_OVERFLOW)
        refuse(reader, 431, "headers_too_large", "the head or the framing of the body is too large");
    else if (code == HPE_INVALID_METHOD)
        refuse(reader, 400, "bad_request", "this is no HTTP request (plain HTTP is spoken here, not TLS)");
    else
        refuse(reader, 400, "bad_request", "malformed HTTP: %s", http_errno_description(code));
}

static size_t execute(pgl_http_reader *reader, const char *data, size_t size) {
    if (size == 0)
        return 0;
    http_parser_pause(&reader->parser, 0);
    size_t used = http_parser_execute(&reader->parser, &parser_calls, data, size);
    enum http_errno code = HTTP_PARSER_ERRNO(&reader->parser);
    if (code != HPE_OK && code != HPE_PAUSED)
        parser_fault(reader);
    return used;
}

static size_t feed_head(pgl_http_reader *reader, const char *data, size_t size) {
    size_t limit = reader->limits.max_head_bytes;
    size_t room = limit - reader->head_bytes;
    const char *why = NULL;
    size_t n = scan_head(reader, data, size < room ? size : room, &why);
    size_t used = execute(reader, data, n);
    reader->head_bytes += used;
    if (reader->stage == IN_HEAD && why)
        refuse(reader, 400, "bad_request", "malformed HTTP: %s", why);
    if (reader->stage == IN_HEAD && reader->head_bytes >= limit)
        refuse(reader, 431, "headers_too_large", "the head is larger than %zu bytes", limit);
    return used;
}

static size_t feed_body(pgl_http_reader *reader, const char *data, size_t size) {
    reader->stage = IN_BODY;
    size_t used = execute(reader, data, size);
    reader->raw_body_bytes += used;
    if (reader->stage != BAD && reader->head.chunked &&
        reader->raw_body_bytes > FRAMING_BYTES + 16 * reader->body_bytes)
        refuse(reader, 400, "bad_request", "the body is mostly chunk headers, extensions or trailers");
    return used;
}

pgl_http_event pgl_http_reader_feed(pgl_http_reader *reader, const char *data, size_t size, size_t *used) {
    *used = 0;
    if (reader->stage == BAD)
        return PGL_HTTP_BAD;
    if (reader->stage == AT_END)
        return PGL_HTTP_END;
    bool in_head = reader->stage == IN_HEAD;
    *used = in_head ? feed_head(reader, data, size) : feed_body(reader, data, size);
    switch (reader->stage) {
    case BAD:
        return PGL_HTTP_BAD;
    case AT_HEAD:
        return PGL_HTTP_HEAD;
    case AT_END:
        return PGL_HTTP_END;
    default:
        return PGL_HTTP_MORE;
    }
}

void pgl_http_reader_expect(pgl_http_reader *reader, size_t max_body_bytes, bool keep) {
    reader->max_body_bytes = max_body_bytes;
    reader->keep_body = keep;
    if (reader->head.content_length > max_body_bytes)
        too_large(reader);
}

/* ---- life ---- */

void pgl_http_reader_next(pgl_http_reader *reader) {
    http_parser_init(&reader->parser, HTTP_REQUEST);
    reader->parser.data = reader;
    reader->stage = IN_HEAD;
    pgl_buf_clear(&reader->text);
    pgl_buf_fini(&reader->body);
    reader->n_headers = 0;
    reader->in_name = false;
    reader->head_bytes = 0;
    reader->line_bytes = 0;
    reader->after_cr = false;
    reader->after_request_line = false;
    memset(&reader->head, 0, sizeof reader->head);
    reader->body_bytes = 0;
    reader->raw_body_bytes = 0;
}

pgl_http_reader *pgl_http_reader_open(const pgl_http_limits *limits) {
    pgl_http_reader *reader = pgl_new(1, sizeof *reader);
    if (!reader)
        return NULL;
    reader->limits = *limits;
    if (reader->limits.max_head_bytes > LARGEST_HEAD_BYTES)
        reader->limits.max_head_bytes = LARGEST_HEAD_BYTES;
    reader->spans = pgl_new(limits->max_headers, sizeof *reader->spans);
    reader->headers = pgl_new(limits->max_headers, sizeof *reader->headers);
    if (!reader->spans || !reader->headers) {
        pgl_http_reader_close(reader);
        return NULL;
    }
    pgl_http_reader_next(reader);
    return reader;
}

void pgl_http_reader_close(pgl_http_reader *reader) {
    if (!reader)
        return;
    pgl_buf_fini(&reader->text);
    pgl_buf_fini(&reader->body);
    free(reader->spans);
    free(reader->headers);
    free(reader);
}

/* ---- looking ---- */

const pgl_http_head *pgl_http_reader_head(const pgl_http_reader *reader) {
    return &reader->head;
}

const pgl_http_fault *pgl_http_reader_fault(const pgl_http_reader *reader) {
    return &reader->fault;
}

const pgl_buf *pgl_http_reader_body(const pgl_http_reader *reader) {
    return &reader->body;
}

bool pgl_http_reader_started(const pgl_http_reader *reader) {
    return reader->head_bytes > 0;
}

pgl_buf pgl_http_reader_take_body(pgl_http_reader *reader) {
    pgl_buf body = reader->body;
    reader->body = (pgl_buf)PGL_BUF_INIT;
    return body;
}

const char *pgl_http_header_find(const pgl_http_head *head, const char *name) {
    for (uint32_t i = 0; i < head->n_headers; i++)
        if (strcasecmp(head->headers[i].name, name) == 0)
            return head->headers[i].value;
    return NULL;
}

bool pgl_http_header_has(const pgl_http_head *head, const char *name, const char *word) {
    size_t word_size = strlen(word);
    for (uint32_t i = 0; i < head->n_headers; i++) {
        if (strcasecmp(head->headers[i].name, name) != 0)
            continue;
        const char *at = head->headers[i].value;
        while (*at) {
            at += strspn(at, " \t,");
            size_t n = strcspn(at, ",");
            size_t end = n;
            while (end > 0 && (at[end - 1] == ' ' || at[end - 1] == '\t'))
                end--;
            if (end == word_size && strncasecmp(at, word, end) == 0)
                return true;
            at += n;
        }
    }
    return false;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool pgl_http_percent_decode(char *text) {
    char *out = text;
    for (const char *in = text; *in; in++) {
        if (*in != '%') {
            *out++ = *in;
            continue;
        }
        int high = hex_digit(in[1]);
        int low = high < 0 ? -1 : hex_digit(in[2]);
        if (low < 0 || high * 16 + low == 0)
            return false;
        *out++ = (char)(high * 16 + low);
        in += 2;
    }
    *out = '\0';
    return true;
}
