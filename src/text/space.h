/* White space as the reference libraries see it. Private to text. Any thread. */
#ifndef PGL_TEXT_SPACE_H
#define PGL_TEXT_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The property White_Space of Unicode: \s in regular expressions of Rust and Oniguruma. */
bool pgl_is_white_space(uint32_t code_point);

/* Whether UTF-8 text holds nothing but what Python's str.strip() takes off: White_Space and U+001C to U+001F. */
bool pgl_is_blank(const char *text, size_t size);

#endif
