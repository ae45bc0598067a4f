/* The strict JSON reader behind json.h: moves over one value, checks it, builds nothing. Private to base. */
#ifndef PGL_BASE_JSON_SCAN_H
#define PGL_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

typedef struct pgl_json_scan {
    /* set by the caller */
    const char *at, *end;
    uint32_t max_depth;
    bool allow_nul, replace_surrogates;
    pgl_buf *rewrite;   /* when not NULL, receives a copy that jansson can read; see changed */
    const char *copied; /* how far the copy is; start with at */

    /* results */
    uint32_t depth;
    bool changed; /* the copy differs from the text, and must be used instead */
    bool out_of_memory;
    const char *fault; /* what is wrong at `at`; NULL while all is well */
} pgl_json_scan;

void pgl_json_scan_space(pgl_json_scan *s);
bool pgl_json_scan_value(pgl_json_scan *s);
bool pgl_json_scan_string(pgl_json_scan *s);

/* The four hex digits at p, or -1. */
int32_t pgl_json_hex4(const char *p, const char *end);

#endif
