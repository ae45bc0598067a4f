/* The tools of a request, as far as the output parser has to know them: names, keys, types. Private to output*.c. */
#ifndef PGL_TEXT_OUTPUT_TOOLS_H
#define PGL_TEXT_OUTPUT_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/map.h"
#include "base/schema.h"
#include "base/status.h"

typedef struct pgl_tool {
    const json_t *properties; /* NULL: the tool says nothing of its parameters */
    const json_t *parameters; /* for references */
} pgl_tool;

typedef struct pgl_tool_table pgl_tool_table;

pgl_status pgl_tool_table_open(pgl_json_span tools, pgl_tool_table **out, pgl_error *err);
void pgl_tool_table_close(pgl_tool_table *table); /* NULL is allowed */

const pgl_tool *pgl_tool_find(const pgl_tool_table *table, const char *name, size_t size);
bool pgl_tool_has_key(const pgl_tool *tool, const char *key, size_t size); /* of NULL: false */
/* base/schema.h; 0, where nothing is said, is taken for a string. */
unsigned pgl_tool_types(const pgl_tool *tool, const char *key, size_t size);

/* Keys of one call. */
typedef struct pgl_tool_seen {
    pgl_map keys;
} pgl_tool_seen;

bool pgl_tool_seen_add(pgl_tool_seen *seen, const char *key,
                       size_t size); /* false: it was there, or memory is out */
bool pgl_tool_seen_has(const pgl_tool_seen *seen, const char *key, size_t size);
void pgl_tool_seen_clear(pgl_tool_seen *seen);

/* Appends text as JSON of one of the types: as it is written where it is such JSON, else what the model meant by True,
 * False and None, else as a string. False when memory is out. */
bool pgl_tool_put_value(pgl_buf *out, const char *text, size_t size, unsigned types);

/* Whether a value that begins with text can be nothing but a string. */
bool pgl_tool_is_string(const char *text, size_t size, unsigned types);

#endif
