#include "checkpoint/config_fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void pgl_fields_note(pgl_fields *f, const char *format, ...) {
    if (f->notes == NULL || f->status != PGL_OK)
        return;
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (!pgl_buf_printf(f->notes, "%s: %s\n", f->file, line))
        f->status = pgl_fail(f->err, PGL_E_MEMORY, "%s: out of memory while reading it", f->file);
}

void pgl_fields_fail(pgl_fields *f, pgl_status status, const char *key, const char *expected,
                     const json_t *value) {
    if (f->status != PGL_OK)
        return;
    char *text = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    f->status =
        pgl_fail(f->err, status, "%s: %s%s: expected %s, found %.80s", f->file, f->prefix, key, expected,
                 value == NULL  ? "none"
                 : text == NULL ? "something else"
                                : text);
    free(text);
}

const json_t *pgl_fields_get(const pgl_fields *f, const char *key) {
    const json_t *value = json_object_get(f->object, key);
    return json_is_null(value) ? NULL : value;
}

static uint32_t read_u32(pgl_fields *f, const char *key, uint32_t low, uint32_t high, const json_t *value) {
    if (json_is_integer(value) && json_integer_value(value) >= (json_int_t)low &&
        json_integer_value(value) <= (json_int_t)high)
        return (uint32_t)json_integer_value(value);
    char expected[64];
    snprintf(expected, sizeof expected, "a whole number from %u to %u", low, high);
    pgl_fields_fail(f, PGL_E_FORMAT, key, expected, value);
    return low;
}

uint32_t pgl_fields_u32(pgl_fields *f, const char *key, uint32_t low, uint32_t high) {
    return read_u32(f, key, low, high, pgl_fields_get(f, key));
}

uint32_t pgl_fields_u32_or(pgl_fields *f, const char *key, uint32_t low, uint32_t high, uint32_t otherwise) {
    const json_t *value = pgl_fields_get(f, key);
    return value == NULL ? otherwise : read_u32(f, key, low, high, value);
}

static double read_number(pgl_fields *f, const char *key, double low, double high, const json_t *value) {
    if (json_is_number(value) && json_number_value(value) >= low && json_number_value(value) <= high)
        return json_number_value(value);
    char expected[96];
    snprintf(expected, sizeof expected, "a number from %g to %g", low, high);
    pgl_fields_fail(f, PGL_E_FORMAT, key, expected, value);
    return low;
}

double pgl_fields_number(pgl_fields *f, const char *key, double low, double high) {
    return read_number(f, key, low, high, pgl_fields_get(f, key));
}

bool pgl_fields_bool_or(pgl_fields *f, const char *key, bool otherwise) {
    const json_t *value = pgl_fields_get(f, key);
    if (value == NULL)
        return otherwise;
    if (!json_is_boolean(value))
        pgl_fields_fail(f, PGL_E_FORMAT, key, "true or false", value);
    return json_is_true(value);
}

void pgl_fields_optional_number(pgl_fields *f, const char *key, double low, double high, bool *has,
                                double *out) {
    const json_t *value = pgl_fields_get(f, key);
    *has = value != NULL;
    if (value != NULL)
        *out = read_number(f, key, low, high, value);
}
