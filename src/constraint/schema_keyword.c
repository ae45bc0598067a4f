/* Owns nothing: finds the keyword at fault in a schema that does not compile, for a message that names none, and where one
 * stands. */
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "constraint/schema.h"

#define MOST_QUESTIONS 256 /* each compiles a schema of a few words */

static const char *const SCALARS[] = {"pattern",  "format",           "multipleOf",       "const",
                                      "enum",     "minLength",        "maxLength",        "minimum",
                                      "maximum",  "exclusiveMinimum", "exclusiveMaximum", "minItems",
                                      "maxItems", "minProperties",    "maxProperties"};
#define N_SCALARS (sizeof SCALARS / sizeof SCALARS[0])

typedef struct search {
    bool (*compiles)(void *user, const json_t *schema);
    void *user;
    unsigned n_questions;
    char *found;
} search;

static bool asks(search *s, const json_t *schema) {
    return s->n_questions++ >= MOST_QUESTIONS || s->compiles(s->user, schema);
}

static bool copy_member(json_t *to, const json_t *from, const char *key) {
    json_t *member = json_object_get(from, key);
    return member != NULL && json_object_set(to, key, member) == 0;
}

/* The object's own limits, without what is nested in it. */
static void ask_about(search *s, const json_t *schema) {
    json_t *own = json_object();
    pgl_buf names = PGL_BUF_INIT;
    for (size_t i = 0; own != NULL && i < N_SCALARS; i++)
        if (copy_member(own, schema, SCALARS[i]))
            (void)(pgl_buf_puts(&names, names.size > 0 ? ", " : "") && pgl_buf_puts(&names, SCALARS[i]));
    bool any = names.size > 0;
    (void)copy_member(own, schema, "type");
    if (any && !asks(s, own)) {
        for (size_t i = 0; i < N_SCALARS && s->found == NULL; i++) {
            json_t *one = json_object();
            (void)copy_member(one, schema, "type");
            if (copy_member(one, schema, SCALARS[i]) && !asks(s, one))
                s->found = pgl_strndup(SCALARS[i], strlen(SCALARS[i]));
            json_decref(one);
        }
        if (s->found == NULL)
            s->found = pgl_strndup(names.data, names.size);
    }
    json_decref(own);
    pgl_buf_fini(&names);
}

static void go_through(search *s, const json_t *value, bool names) {
    const char *key;
    json_t *member;
    size_t i;
    if (s->found == NULL && !names && json_is_object(value))
        ask_about(s, value);
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        if (s->found == NULL && s->n_questions < MOST_QUESTIONS && (names || !pgl_constraint_is_data(key)))
            go_through(s, member, !names && pgl_constraint_has_names(key));
    }
    json_array_foreach((json_t *)(uintptr_t)value, i, member) {
        if (s->found == NULL && s->n_questions < MOST_QUESTIONS)
            go_through(s, member, false);
    }
}

char *pgl_constraint_find_keyword(const json_t *schema, bool (*compiles)(void *user, const json_t *schema),
                                  void *user) {
    search s = {.compiles = compiles, .user = user};
    go_through(&s, schema, false);
    return s.found;
}

/* path is that of value. */
static bool go_to(const json_t *value, const char *keyword, bool names, pgl_buf *path) {
    const char *key;
    json_t *member;
    size_t i, before = path->size;
    const char *dot = before > 0 ? "." : "";
    if (!names && json_is_object(value) && json_object_get(value, keyword) != NULL)
        return true;
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        if (!names && pgl_constraint_is_data(key))
            continue;
        if (pgl_buf_printf(path, "%s%.80s", dot, key) &&
            go_to(member, keyword, !names && pgl_constraint_has_names(key), path))
            return true;
        path->size = before;
    }
    json_array_foreach((json_t *)(uintptr_t)value, i, member) {
        if (pgl_buf_printf(path, "[%zu]", i) && go_to(member, keyword, false, path))
            return true;
        path->size = before;
    }
    return false;
}

char *pgl_constraint_find_place(const json_t *schema, const char *keyword) {
    pgl_buf path = PGL_BUF_INIT;
    char *found = go_to(schema, keyword, false, &path) ? pgl_strndup(pgl_buf_text(&path), path.size) : NULL;
    pgl_buf_fini(&path);
    return found;
}
