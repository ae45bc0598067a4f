/* A head is collected whole, its lines checked by a scanner that is stricter than http-parser, and then handed to
 * http-parser in one piece; bodies are counted and chunks decoded here. (Distributions build http-parser without
 * its strict mode: it takes any byte for the T of HTTP and for the line feed behind a chunk's size.) */
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
    ((size_t)64 << 10) /* chunk sizes, extensions and trailers, besides 16 for each body byte */

typedef enum stage { IN_HEAD, IN_BODY, AT_END, BAD } stage;

typedef enum chunk_stage {
    SIZE_FIRST, /* the first digit */
    SIZE,
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_FIRST, /* the first byte of a trailer line, or the CR of the empty one */
    TRAILER,
    TRAILER_LF,
    LAST_LF,
} chunk_stage;

typedef struct span {
    size_t name, value; /* offsets into text */
} span;

struct pgl_http_reader {
    /* fixed after open */
    pgl_http_limits limits;

    /* of the current request */
    stage stage;
    pgl_http_fault fault;
    pgl_buf raw; /* the head as it comes */
    size_t line_bytes;
    bool after_cr, after_request_line;
    http_parser parser;
    pgl_buf text; /* target, then name, value, name, value, ..., each with a zero behind it */
    span *spans;
    pgl_http_header *headers;
    uint32_t n_headers;
    bool in_name; /* a header's name is being read */
    pgl_http_head head;

    pgl_buf body;
    size_t max_body_bytes;
    bool keep_body;
    uint64_t body_bytes;
    chunk_stage chunk_stage;
    uint64_t left;          /* of the body, or of the chunk */
    uint64_t framing_bytes; /* of a chunked body */
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

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
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

/* Non-zero stops http-parser, which has done its part then. */
static int on_headers_complete(http_parser *parser) {
    pgl_http_reader *reader = reader_of(parser);
    pgl_http_head *head = &reader->head;
    if (!finish_string(reader))
        return -out_of_memory(reader);
    head->method = http_method_str((enum http_method)parser->method);
    head->minor = parser->http_minor;
    if (split_target(reader, reader->text.data))
        return -1;
    resolve_headers(reader); /* after the last growth of text */
    head->headers = reader->headers;
    head->n_headers = reader->n_headers;
    if (check_head(reader))
        return -1;
    const char *expect = pgl_http_header_find(head, "Expect");
    head->expect_continue = expect != NULL && head->minor == 1;
    head->keep_alive =
        http_should_keep_alive(parser) != 0 && !pgl_http_header_has(head, "Connection", "close");
    head->chunked = pgl_http_header_find(head, "Transfer-Encoding") != NULL;
    if (pgl_http_header_find(head, "Content-Length"))
        head->content_length = parser->content_length;
    head->has_body = head->chunked || head->content_length > 0;
    reader->left = head->content_length;
    reader->stage = IN_BODY;
    return -1;
}

static const http_parser_settings parser_calls = {.on_url = on_url,
                                                  .on_header_field = on_header_field,
                                                  .on_header_value = on_header_value,
                                                  .on_headers_complete = on_headers_complete};

/* ---- the head ---- */

/* Looks for the end of the head. Returns how many bytes belong to it; *why is set where they break a rule. */
static size_t scan_head(pgl_http_reader *reader, const char *data, size_t size, bool *complete,
                        const char **why) {
    for (size_t i = 0; i < size; i++) {
        char c = data[i];
        if (c == '\n') {
            if (!reader->after_cr)
                *why = "a line of the head ends without CR";
            *complete = reader->line_bytes == 0 && reader->after_request_line;
            if (*why || *complete)
                return i + 1;
            reader->after_request_line = reader->after_request_line || reader->line_bytes > 0;
            reader->after_cr = false;
            reader->line_bytes = 0;
            continue;
        }
        bool first = reader->line_bytes == 0;
        if (reader->after_cr)
            *why = "CR without LF in the head";
        else if (c == '\0')
            *why = "NUL in the head";
        else if (first && !reader->after_request_line && c != '\r' && !is_token_char((unsigned char)c))
            *why = "this does not start like an HTTP request (plain HTTP is spoken here, not TLS)";
        else if (first && reader->after_request_line && (c == ' ' || c == '\t'))
            *why = "a header line that goes on in the next one";
        if (*why)
            return i + 1;
        if (c == '\r')
            reader->after_cr = true;
        else
            reader->line_bytes++;
    }
    return size;
}

/* METHOD SP TARGET SP HTTP/digit.digit, with one space each. */
static bool right_request_line(const char *line) {
    const char *at = line;
    while (is_token_char((unsigned char)*at))
        at++;
    if (at == line || *at++ != ' ')
        return false;
    size_t target = strcspn(at, " \r");
    if (target == 0 || at[target] != ' ')
        return false;
    at += target + 1;
    return strncmp(at, "HTTP/", 5) == 0 && at[5] >= '0' && at[5] <= '9' && at[6] == '.' && at[7] >= '0' &&
           at[7] <= '9' && at[8] == '\r';
}

static void parse_head(pgl_http_reader *reader) {
    const char *line = reader->raw.data + strspn(reader->raw.data, "\r\n");
    if (!right_request_line(line)) {
        refuse(reader, 400, "bad_request", "malformed HTTP: the request line is not METHOD TARGET HTTP/1.1");
        return;
    }
    http_parser_init(&reader->parser, HTTP_REQUEST);
    reader->parser.data = reader;
    http_parser_execute(&reader->parser, &parser_calls, reader->raw.data, reader->raw.size);
    if (reader->stage != IN_HEAD)
        return;
    enum http_errno code = HTTP_PARSER_ERRNO(&reader->parser);
    if (code == HPE_INVALID_METHOD)
        refuse(reader, 400, "bad_request", "malformed HTTP: no known method");
    else
        refuse(reader, 400, "bad_request", "malformed HTTP: %s",
               code == HPE_OK ? "the head has no end" : http_errno_description(code));
}

static pgl_http_event feed_head(pgl_http_reader *reader, const char *data, size_t size, size_t *used) {
    size_t room = reader->limits.max_head_bytes - reader->raw.size;
    bool complete = false;
    const char *why = NULL;
    *used = scan_head(reader, data, size < room ? size : room, &complete, &why);
    if (!pgl_buf_append(&reader->raw, data, *used))
        out_of_memory(reader);
    else if (why)
        refuse(reader, 400, "bad_request", "malformed HTTP: %s", why);
    else if (complete)
        parse_head(reader);
    else if (reader->raw.size == reader->limits.max_head_bytes)
        refuse(reader, 431, "headers_too_large", "the head is larger than %zu bytes",
               reader->limits.max_head_bytes);
    if (reader->stage == IN_HEAD)
        return PGL_HTTP_MORE;
    return reader->stage == BAD ? PGL_HTTP_BAD : PGL_HTTP_HEAD;
}

/* ---- the body ---- */

static int too_large(pgl_http_reader *reader) {
    return refuse(reader, 413, "request_too_large", "the body is larger than %zu bytes",
                  reader->max_body_bytes);
}

static size_t take_body(pgl_http_reader *reader, const char *data, size_t size) {
    size_t n = size < reader->left ? size : (size_t)reader->left;
    if (n > reader->max_body_bytes - reader->body_bytes) {
        too_large(reader);
        return 0;
    }
    if (reader->keep_body && !pgl_buf_append(&reader->body, data, n)) {
        out_of_memory(reader);
        return 0;
    }
    reader->body_bytes += n;
    reader->left -= n;
    return n;
}

/* One byte outside of a chunk's data. False: it may not stand there. */
static bool chunk_byte(pgl_http_reader *reader, char c) {
    int digit;
    switch (reader->chunk_stage) {
    case SIZE_FIRST:
    case SIZE:
        digit = hex_digit(c);
        if (digit >= 0) {
            if (reader->left >> 56)
                return false;
            reader->left = reader->left * 16 + (unsigned)digit;
            reader->chunk_stage = SIZE;
            return true;
        }
        if (reader->chunk_stage == SIZE_FIRST)
            return false;
        if (c == '\r')
            reader->chunk_stage = SIZE_LF;
        else if (c == ';' || c == ' ' || c == '\t')
            reader->chunk_stage = EXTENSION;
        else
            return false;
        return true;
    case EXTENSION:
    case TRAILER:
        if (c == '\r')
            reader->chunk_stage = reader->chunk_stage == TRAILER ? TRAILER_LF : SIZE_LF;
        return c == '\r' || c == '\t' || ((unsigned char)c >= ' ' && c != 0x7f);
    case SIZE_LF:
        reader->chunk_stage = reader->left ? DATA : TRAILER_FIRST;
        return c == '\n';
    case DATA_CR:
        reader->chunk_stage = DATA_LF;
        return c == '\r';
    case DATA_LF:
        reader->chunk_stage = SIZE_FIRST;
        return c == '\n';
    case TRAILER_FIRST:
        reader->chunk_stage = c == '\r' ? LAST_LF : TRAILER;
        return c == '\r' || is_token_char((unsigned char)c);
    case TRAILER_LF:
        reader->chunk_stage = TRAILER_FIRST;
        return c == '\n';
    case LAST_LF:
        reader->stage = AT_END;
        return c == '\n';
    case DATA:
        break;
    }
    return false;
}

static size_t feed_chunks(pgl_http_reader *reader, const char *data, size_t size) {
    size_t used = 0;
    while (used < size && reader->stage == IN_BODY) {
        if (reader->chunk_stage == DATA) {
            used += take_body(reader, data + used, size - used);
            if (reader->left == 0)
                reader->chunk_stage = DATA_CR;
            continue;
        }
        if (!chunk_byte(reader, data[used++]))
            refuse(reader, 400, "bad_request", "malformed HTTP: the body's chunks are broken");
        else if (reader->chunk_stage == DATA && reader->left > reader->max_body_bytes - reader->body_bytes)
            too_large(reader);
        else if (++reader->framing_bytes > FRAMING_BYTES + 16 * reader->body_bytes)
            refuse(reader, 400, "bad_request", "the body is mostly chunk sizes, extensions or trailers");
    }
    return used;
}

static pgl_http_event feed_body(pgl_http_reader *reader, const char *data, size_t size, size_t *used) {
    if (reader->head.chunked)
        *used = feed_chunks(reader, data, size);
    else
        *used = take_body(reader, data, size);
    if (reader->stage == IN_BODY && !reader->head.chunked && reader->left == 0)
        reader->stage = AT_END;
    if (reader->stage == IN_BODY)
        return PGL_HTTP_MORE;
    return reader->stage == BAD ? PGL_HTTP_BAD : PGL_HTTP_END;
}

pgl_http_event pgl_http_reader_feed(pgl_http_reader *reader, const char *data, size_t size, size_t *used) {
    *used = 0;
    switch (reader->stage) {
    case IN_HEAD:
        return feed_head(reader, data, size, used);
    case IN_BODY:
        return feed_body(reader, data, size, used);
    case AT_END:
        return PGL_HTTP_END;
    case BAD:
        break;
    }
    return PGL_HTTP_BAD;
}

void pgl_http_reader_expect(pgl_http_reader *reader, size_t max_body_bytes, bool keep) {
    reader->max_body_bytes = max_body_bytes;
    reader->keep_body = keep;
    if (reader->head.content_length > max_body_bytes)
        too_large(reader);
}

/* ---- life ---- */

void pgl_http_reader_next(pgl_http_reader *reader) {
    reader->stage = IN_HEAD;
    pgl_buf_clear(&reader->raw);
    pgl_buf_clear(&reader->text);
    pgl_buf_fini(&reader->body);
    reader->line_bytes = 0;
    reader->after_cr = reader->after_request_line = false;
    reader->n_headers = 0;
    reader->in_name = false;
    memset(&reader->head, 0, sizeof reader->head);
    reader->max_body_bytes = reader->limits.max_body_bytes;
    reader->keep_body = true;
    reader->body_bytes = reader->left = reader->framing_bytes = 0;
    reader->chunk_stage = SIZE_FIRST;
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
    pgl_buf_fini(&reader->raw);
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
    return reader->raw.size > 0;
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
        while (at && *at) { /* none yet: the header is being read */
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
