#include "base/utf8.h"

#include <string.h>

int pgl_utf8_decode(const char *text, size_t size, uint32_t *code_point) {
    const unsigned char *p = (const unsigned char *)text;
    if (size == 0)
        return 0;
    if (p[0] < 0x80) {
        *code_point = p[0];
        return 1;
    }
    unsigned low = 0x80, high = 0xBF; /* allowed range of the second byte */
    size_t n;
    uint32_t c;
    if (p[0] >= 0xC2 && p[0] <= 0xDF) {
        n = 2;
        c = p[0] & 0x1Fu;
    } else if (p[0] >= 0xE0 && p[0] <= 0xEF) {
        n = 3;
        c = p[0] & 0x0Fu;
        if (p[0] == 0xE0)
            low = 0xA0;
        if (p[0] == 0xED)
            high = 0x9F;
    } else if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        n = 4;
        c = p[0] & 0x07u;
        if (p[0] == 0xF0)
            low = 0x90;
        if (p[0] == 0xF4)
            high = 0x8F;
    } else {
        return -1;
    }
    for (size_t i = 1; i < n; i++) {
        if (i == size)
            return 0;
        if (p[i] < low || p[i] > high)
            return -1;
        c = (c << 6) | (p[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *code_point = c;
    return (int)n;
}

size_t pgl_utf8_encode(uint32_t code_point, char out[4]) {
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        out[0] = (char)(0xC0 | (code_point >> 6));
        out[1] = (char)(0x80 | (code_point & 0x3F));
        return 2;
    }
    if (code_point < 0x10000) {
        if (code_point >= 0xD800 && code_point <= 0xDFFF)
            return 0;
        out[0] = (char)(0xE0 | (code_point >> 12));
        out[1] = (char)(0x80 | ((code_point >> 6) & 0x3F));
        out[2] = (char)(0x80 | (code_point & 0x3F));
        return 3;
    }
    if (code_point > 0x10FFFF)
        return 0;
    out[0] = (char)(0xF0 | (code_point >> 18));
    out[1] = (char)(0x80 | ((code_point >> 12) & 0x3F));
    out[2] = (char)(0x80 | ((code_point >> 6) & 0x3F));
    out[3] = (char)(0x80 | (code_point & 0x3F));
    return 4;
}

size_t pgl_utf8_valid_prefix(const char *text, size_t size) {
    size_t i = 0;
    while (i < size) {
        uint64_t word;
        while (size - i >= sizeof word) { /* eight ASCII bytes at a time */
            memcpy(&word, text + i, sizeof word);
            if ((word & UINT64_C(0x8080808080808080)) != 0)
                break;
            i += sizeof word;
        }
        if (i == size)
            break;
        uint32_t c;
        int n = pgl_utf8_decode(text + i, size - i, &c);
        if (n <= 0)
            break;
        i += (size_t)n;
    }
    return i;
}

bool pgl_utf8_valid(const char *text, size_t size) {
    return pgl_utf8_valid_prefix(text, size) == size;
}

size_t pgl_utf8_count(const char *text, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)text[i] & 0xC0u) != 0x80u;
    return n;
}
