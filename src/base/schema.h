/* What a JSON schema says of a value's type, for those who read or write such values without a whole validator. Owns
 * nothing; any thread. */
#ifndef PGL_BASE_SCHEMA_H
#define PGL_BASE_SCHEMA_H

#include <jansson.h>

/* Types that a schema allows, or-ed. */
enum {
    PGL_TYPE_STRING = 1,
    PGL_TYPE_INTEGER = 2,
    PGL_TYPE_NUMBER = 4, /* integers too: a schema of numbers has both bits */
    PGL_TYPE_BOOLEAN = 8,
    PGL_TYPE_NULL = 16,
    PGL_TYPE_OBJECT = 32,
    PGL_TYPE_ARRAY = 64,
};

/* Where "#/a/b~1c%20d" leads within root: borrowed; NULL: nowhere, or out of the document. */
const json_t *pgl_schema_resolve(const json_t *root, const char *reference);

/* The type of a value; an integer has both number bits. */
unsigned pgl_schema_type_of(const json_t *value);

/* The types that values of the schema may have; root is where its references lead. 0: it says nothing of them. References
 * and combinations are followed over a bounded number of schemas, and what lies behind counts as saying nothing. */
unsigned pgl_schema_types(const json_t *root, const json_t *schema);

#endif
