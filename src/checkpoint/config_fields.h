/* Typed access to one object of a config file, with messages that name file, setting, expected and found. Private to
 * checkpoint. Every reader leaves the first error and is silent after it, so that a list of reads needs one check. */
#ifndef PGL_CHECKPOINT_CONFIG_FIELDS_H
#define PGL_CHECKPOINT_CONFIG_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct pgl_fields {
    const char *file;   /* "config.json" */
    const char *prefix; /* "text_config." or "" */
    const json_t *object;
    pgl_buf *notes; /* may be NULL */
    pgl_status status;
    pgl_error *err;
} pgl_fields;

/* One line of notes. */
void pgl_fields_note(pgl_fields *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fails with "file: prefix+key: expected WHAT, found VALUE"; value NULL: "found none". */
void pgl_fields_fail(pgl_fields *f, pgl_status status, const char *key, const char *expected,
                     const json_t *value);

/* A member that is there and not null; NULL otherwise. */
const json_t *pgl_fields_get(const pgl_fields *f, const char *key);

/* A whole number in [low, high]. The _or forms give `otherwise` when the setting is absent or null. */
uint32_t pgl_fields_u32(pgl_fields *f, const char *key, uint32_t low, uint32_t high);
uint32_t pgl_fields_u32_or(pgl_fields *f, const char *key, uint32_t low, uint32_t high, uint32_t otherwise);
double pgl_fields_number(pgl_fields *f, const char *key, double low, double high);
bool pgl_fields_bool_or(pgl_fields *f, const char *key, bool otherwise);

/* Sets *has and *out when the setting is there. */
void pgl_fields_optional_number(pgl_fields *f, const char *key, double low, double high, bool *has,
                                double *out);

#endif
