/* Owns the stack of what is open. */
#include "constraint/json_follow.h"

static bool in_object(const pgl_json_follow *f) {
    return f->open.size > 0 && f->open.data[f->open.size - 1] == '{';
}

static void in_string(pgl_json_follow *f, char c) {
    if (f->escaped) {
        f->escaped = false;
    } else if (c == '\\') {
        f->escaped = true;
    } else if (c == '"') {
        f->in_string = f->name = false;
    }
}

static bool outside(pgl_json_follow *f, char c) {
    bool digit = c >= '0' && c <= '9', sign = c == '+' || c == '-';
    f->n_digits = digit ? f->n_digits + 1 : 0;
    f->exponent = c == 'e' || c == 'E' || (f->exponent && (sign || digit));
    switch (c) {
    case '"':
        f->in_string = true;
        break;
    case '{':
    case '[':
        f->name = c == '{';
        return pgl_buf_putc(&f->open, c);
    case '}':
    case ']':
        f->name = false;
        f->open.size -= f->open.size > 0;
        break;
    case ',':
        f->name = in_object(f);
        break;
    default:
        break;
    }
    return true;
}

bool pgl_json_follow_text(pgl_json_follow *follow, const char *text, size_t size) {
    bool ok = true;
    for (size_t i = 0; i < size; i++) {
        if (follow->in_string)
            in_string(follow, text[i]);
        else
            ok = outside(follow, text[i]) && ok;
    }
    return ok;
}
