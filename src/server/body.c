#include "server/body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/params.h"

#define MOST_FIELD_BYTES (PGL_CONSTRAINT_MOST_BYTES + 65536) /* of one that becomes a value */

const char *pgl_span_type(pgl_json_span value) {
    switch (value.size ? value.text[0] : 0) {
    case '{':
        return "an object";
    case '[':
        return "a list";
    case '"':
        return "a string";
    case 't':
    case 'f':
        return "a boolean";
    case 'n':
        return "null";
    case 0:
        return "absent";
    default:
        return "a number";
    }
}

/* ---- the small fields ---- */

typedef struct reading {
    json_t *fields;
    bool seen[PGL_MOST_PARAM_ROWS]; /* of those that stay text, by the number of their row */
    pgl_refusal *err;
} reading;

static bool twice(const reading *r, const char *name) {
    return pgl_refuse_field(r->err, name, "the request body has \"%s\" twice", name);
}

static bool add_value(const reading *r, const char *name, pgl_json_span value) {
    const pgl_json_options options = {.name = name, .replace_surrogates = true};
    json_t *parsed;
    pgl_error why;
    if (json_object_get(r->fields, name))
        return twice(r, name);
    if (value.size > MOST_FIELD_BYTES)
        return pgl_refuse_field(r->err, name, "%s has %zu bytes, at most %zu are read", name, value.size,
                                (size_t)MOST_FIELD_BYTES);
    if (pgl_json_parse(value.text, value.size, &options, &parsed, &why) != PGL_OK)
        return pgl_refuse_status(r->err, &why, name);
    if (json_object_set_new(r->fields, name, parsed) != 0)
        return pgl_refuse_memory(r->err);
    return true;
}

static bool add_field(reading *r, const char *name, pgl_json_span value) {
    size_t n;
    const pgl_param_row *row = pgl_param_find(name);
    if (!row)
        return true;
    if (row->kind != PGL_PARAM_TEXT)
        return add_value(r, name, value);
    bool *seen = &r->seen[row - pgl_param_rows(&n)];
    if (*seen)
        return twice(r, name);
    *seen = true;
    return true;
}

static bool add_fields(reading *r, pgl_json_span body) {
    pgl_json_iter it = pgl_json_iter_begin(body);
    pgl_json_span key, value;
    pgl_buf name = PGL_BUF_INIT;
    bool fine = true;
    while (fine && pgl_json_iter_next(&it, &key, &value)) {
        pgl_buf_clear(&name);
        fine = pgl_json_raw_string(key, &name) || pgl_refuse_memory(r->err);
        fine = fine && add_field(r, pgl_buf_text(&name), value);
    }
    pgl_buf_fini(&name);
    return fine;
}

/* ---- the body ---- */

static pgl_json_span whole_body(const pgl_exchange *exchange) {
    const pgl_buf *body = pgl_exchange_body(exchange);
    return pgl_json_raw((pgl_json_span){pgl_buf_text(body), body->size}, NULL, 0);
}

static bool is_json_type(const char *type) {
    return !type || (strncasecmp(type, "text/", 5) != 0 && strncasecmp(type, "multipart/", 10) != 0);
}

static bool check_body(const pgl_exchange *exchange, pgl_refusal *err) {
    const pgl_buf *body = pgl_exchange_body(exchange);
    const char *type = pgl_http_header_find(pgl_exchange_head(exchange), "Content-Type");
    const pgl_json_options options = {
        .name = "the request body", .max_bytes = SIZE_MAX, .replace_surrogates = true};
    char field[96];
    pgl_error why;
    if (!is_json_type(type))
        return pgl_refuse_field(err, NULL, "the Content-Type must be application/json, not %.80s", type);
    if (pgl_json_check(pgl_buf_text(body), body->size, &options, &why) == PGL_OK)
        return true;
    if (pgl_params_find_nan(pgl_buf_text(body), body->size, field, sizeof field))
        return pgl_refuse_field(err, field, "%s: NaN and Infinity are no JSON numbers", field);
    return pgl_refuse_status(err, &why, NULL);
}

json_t *pgl_read_body(const pgl_exchange *exchange, pgl_refusal *err) {
    if (!check_body(exchange, err))
        return NULL;
    pgl_json_span body = whole_body(exchange);
    if (body.text[0] != '{') {
        pgl_refuse_field(err, NULL, "the request body must be a JSON object, not %s", pgl_span_type(body));
        return NULL;
    }
    reading r = {.fields = json_object(), .err = err};
    if (!r.fields) {
        pgl_refuse_memory(err);
        return NULL;
    }
    if (!add_fields(&r, body)) {
        json_decref(r.fields);
        return NULL;
    }
    return r.fields;
}

pgl_json_span pgl_body_field(const pgl_exchange *exchange, const char *name) {
    pgl_json_span value = pgl_json_raw_member(whole_body(exchange), name);
    if (value.size == 4 && memcmp(value.text, "null", 4) == 0)
        return (pgl_json_span){NULL, 0};
    return value;
}

/* ---- token ids ---- */

static bool token_id(pgl_json_span item, uint32_t n_ids, int32_t *id) {
    char digits[12];
    if (item.size == 0 || item.size >= sizeof digits)
        return false;
    memcpy(digits, item.text, item.size);
    digits[item.size] = '\0';
    if (strspn(digits, "0123456789") != item.size)
        return false;
    unsigned long value = strtoul(digits, NULL, 10);
    *id = (int32_t)value;
    return value < n_ids;
}

bool pgl_read_ids(pgl_json_span list, const char *field, uint32_t n_ids, pgl_ids *ids, pgl_refusal *err) {
    if (list.size == 0 || list.text[0] != '[')
        return pgl_refuse_field(err, field, "%s must be a list of token ids, not %s", field,
                                pgl_span_type(list));
    pgl_json_iter it = pgl_json_iter_begin(list);
    pgl_json_span key, item;
    for (size_t i = 0; pgl_json_iter_next(&it, &key, &item); i++) {
        int32_t id;
        if (!token_id(item, n_ids, &id))
            return pgl_refuse_field(err, field, "%s[%zu] must be a token id from 0 to %u", field, i,
                                    n_ids - 1);
        if (!pgl_ids_append(ids, id))
            return pgl_refuse(err, 500, "out_of_memory", NULL, "no memory for these tokens");
    }
    return true;
}
