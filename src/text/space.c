/* Owns nothing. */
#include "text/space.h"

#include "base/utf8.h"

bool pgl_is_white_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

bool pgl_is_blank(const char *text, size_t size) {
    for (size_t i = 0; i < size;) {
        uint32_t c;
        int n = pgl_utf8_decode(text + i, size - i, &c);
        if (n <= 0 || !(pgl_is_white_space(c) || (c >= 0x1C && c <= 0x1F)))
            return false;
        i += (size_t)n;
    }
    return true;
}
