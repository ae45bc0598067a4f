/* UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF. Owns nothing; any
 * thread. */
#ifndef PGL_BASE_UTF8_H
#define PGL_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the code point at the start of text. Returns the bytes it takes (1..4) and sets *code_point; 0 when
 * text ends inside a sequence that is right so far (also when size is 0); -1 when the first byte cannot start
 * a valid sequence or is followed by a wrong one. *code_point is untouched for 0 and -1. */
int pgl_utf8_decode(const char *text, size_t size, uint32_t *code_point);

/* Writes code_point; returns the bytes written (1..4), 0 for a surrogate or a value above U+10FFFF. */
size_t pgl_utf8_encode(uint32_t code_point, char out[4]);

bool pgl_utf8_valid(const char *text, size_t size);

/* The length in bytes of the longest prefix that is valid and complete. */
size_t pgl_utf8_valid_prefix(const char *text, size_t size);

/* Code points of valid text. Of other text: bytes that are not continuation bytes. */
size_t pgl_utf8_count(const char *text, size_t size);

#endif
