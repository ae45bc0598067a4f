/* The variables of a template as JSON: strings of the request are broken on their way, numbers of tool-call arguments
 * keep their text. Owns its buffers. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/chat_impl.h"
#include "text/json_text.h"

void pgl_chat_writer_fini(pgl_chat_writer *w) {
    pgl_buf_fini(&w->out);
    pgl_buf_fini(&w->raw);
    pgl_buf_fini(&w->broken);
}

bool pgl_chat_put_own(pgl_chat_writer *w, const char *json) {
    return pgl_buf_puts(&w->out, json);
}

bool pgl_chat_put_string(pgl_chat_writer *w, const char *text, size_t size) {
    pgl_buf_clear(&w->broken);
    return pgl_tokenizer_break(w->tokenizer, text, size, w->breaker, w->message_text, &w->broken) &&
           pgl_json_put_string(&w->out, pgl_buf_text(&w->broken), w->broken.size);
}

/* The end of the string that starts at p. */
static const char *string_end(const char *p, const char *end) {
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\')
            p++;
    return p < end ? p + 1 : end;
}

static bool is_number_byte(char c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

bool pgl_chat_put_json(pgl_chat_writer *w, pgl_json_span json, bool keep_numbers) {
    const char *p = json.text, *end = json.text + json.size;
    while (p < end) {
        const char *from = p;
        if (*p == '"') {
            p = string_end(p, end);
            pgl_buf_clear(&w->raw);
            if (!pgl_json_raw_string((pgl_json_span){from, (size_t)(p - from)}, &w->raw) ||
                !pgl_chat_put_string(w, pgl_buf_text(&w->raw), w->raw.size))
                return false;
        } else if (*p == '-' || (*p >= '0' && *p <= '9')) {
            while (p < end && is_number_byte(*p))
                p++;
            if ((keep_numbers && !pgl_buf_putc(&w->out, '#')) ||
                !pgl_buf_append(&w->out, from, (size_t)(p - from)))
                return false;
        } else if (*p >= 'a' && *p <= 'z') { /* true, false, null: their letters start no number */
            while (p < end && *p >= 'a' && *p <= 'z')
                p++;
            if (!pgl_buf_append(&w->out, from, (size_t)(p - from)))
                return false;
        } else {
            if (!pgl_buf_putc(&w->out, *p))
                return false;
            p++;
        }
    }
    return true;
}

/* ---- tool-call arguments ---- */

static const pgl_json_options ARGUMENTS = {.name = "arguments",
                                           .max_depth = PGL_CHAT_MAX_DEPTH,
                                           .max_bytes = PGL_CHAT_MAX_BYTES,
                                           .last_wins = true,
                                           .allow_nul = true,
                                           .replace_surrogates = true};

static bool is_json(const pgl_buf *text) {
    return pgl_json_check(pgl_buf_text(text), text->size, &ARGUMENTS, NULL) == PGL_OK;
}

/* Where a text that ends too early stands. */
typedef struct cut_state {
    char open[PGL_CHAT_MAX_DEPTH];
    size_t depth;
    bool in_string;
    size_t complete;   /* the text up to the last escape that is whole */
    size_t last_comma; /* between members of the outermost object; 0: none */
} cut_state;

static bool follow(const char *text, size_t size, cut_state *s) {
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        s->complete = i + 1;
        if (s->in_string) {
            if (c == '\\') {
                size_t n = i + 1 < size && text[i + 1] == 'u' ? 6 : 2;
                if (i + n > size) {
                    s->complete = i;
                    return true;
                }
                i += n - 1;
                s->complete = i + 1;
            } else if (c == '"') {
                s->in_string = false;
            }
        } else if (c == '"') {
            s->in_string = true;
        } else if (c == '{' || c == '[') {
            if (s->depth == sizeof s->open)
                return false;
            s->open[s->depth++] = c == '{' ? '}' : ']';
        } else if (c == '}' || c == ']') {
            if (s->depth == 0 || s->open[--s->depth] != c)
                return false;
        } else if (c == ',' && s->depth == 1) {
            s->last_comma = i;
        }
    }
    return s->depth > 0;
}

/* An object that was cut short, as a turn that ran into its token limit leaves it: closes what is open; failing that,
 * leaves out the last member. False when text is nothing of the kind. */
static bool close_cut(pgl_buf *text) {
    cut_state s = {0};
    if (!follow(pgl_buf_text(text), text->size, &s) || s.open[0] != '}')
        return false;
    pgl_buf closed = PGL_BUF_INIT;
    bool ok = pgl_buf_append(&closed, text->data, s.complete) && (!s.in_string || pgl_buf_putc(&closed, '"'));
    for (size_t i = s.depth; ok && i-- > 0;)
        ok = pgl_buf_putc(&closed, s.open[i]);
    if (ok && !is_json(&closed)) {
        size_t keep = s.last_comma > 0 ? s.last_comma : (size_t)(strchr(text->data, '{') - text->data) + 1;
        pgl_buf_clear(&closed);
        ok = pgl_buf_append(&closed, text->data, keep) && pgl_buf_putc(&closed, '}') && is_json(&closed);
    }
    if (!ok) {
        pgl_buf_fini(&closed);
        return false;
    }
    pgl_buf_fini(text);
    *text = closed;
    return true;
}

static bool is_blank(const pgl_buf *text) {
    return strspn(pgl_buf_text(text), " \t\r\n") == text->size;
}

bool pgl_chat_put_arguments(pgl_chat_writer *w, pgl_json_span arguments, bool *bad) {
    *bad = false;
    if (pgl_json_absent(arguments))
        return pgl_chat_put_own(w, "{}");
    if (pgl_json_kind(arguments) == '{')
        return pgl_chat_put_json(w, arguments, true);
    pgl_buf text = PGL_BUF_INIT;
    bool ok = pgl_json_raw_string(arguments, &text);
    *bad = !ok;
    for (int round = 0; ok && round < 2; round++) {
        if (is_blank(&text)) {
            ok = pgl_chat_put_own(w, "{}");
            break;
        }
        if (!is_json(&text) && !close_cut(&text)) {
            *bad = true;
            break;
        }
        pgl_json_span value = pgl_json_raw((pgl_json_span){text.data, text.size}, NULL, 0);
        if (pgl_json_absent(value)) {
            ok = pgl_chat_put_own(w, "{}");
            break;
        }
        if (pgl_json_kind(value) == '{') {
            ok = pgl_chat_put_json(w, value, true);
            break;
        }
        /* an object in a string in a string, as some clients send it */
        pgl_buf inner = PGL_BUF_INIT;
        if (round == 1 || !pgl_json_raw_string(value, &inner)) {
            pgl_buf_fini(&inner);
            *bad = true;
            break;
        }
        pgl_buf_fini(&text);
        text = inner;
    }
    pgl_buf_fini(&text);
    return ok && !*bad;
}

/* ---- noncharacters ---- */

static int hex(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

void pgl_chat_mark_used(const char *text, size_t size, uint32_t *used) {
    for (size_t i = 0; i + 2 < size; i++) {
        uint32_t c = 0;
        if ((unsigned char)text[i] == 0xEF && pgl_utf8_decode(text + i, size - i, &c) != 3)
            c = 0;
        if (text[i] == 'u' && size - i >= 5)
            for (size_t k = 1; k <= 4; k++)
                c = c << 4 | (uint32_t)(hex(text[i + k]) & 15);
        if (c >= 0xFDD0 && c <= 0xFDEF)
            *used |= 1u << (c - 0xFDD0);
    }
}
