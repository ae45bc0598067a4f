#include "server/trace_read.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/trace_record.h"

static const char *const form_names[] = {
    [PGL_CONSTRAINT_JSON_SCHEMA] = "json_schema",
    [PGL_CONSTRAINT_JSON_OBJECT] = "json_object",
    [PGL_CONSTRAINT_REGEX] = "regex",
    [PGL_CONSTRAINT_LARK] = "lark",
    [PGL_CONSTRAINT_TOOLS] = "tools",
    [PGL_CONSTRAINT_CHOICE] = "choice",
};

const char *pgl_trace_form_name(pgl_constraint_kind kind) {
    return form_names[kind];
}

/* ---- members, with the place in the message ---- */

typedef struct reader {
    pgl_arena *arena;
    pgl_error *err;
    char place[64]; /* "sequences[3]."; "" at the top */
} reader;

static pgl_status wrong(const reader *r, const char *name, const char *expected) {
    return pgl_fail(r->err, PGL_E_INVALID, "trace: %s%s: expected %s", r->place, name, expected);
}

static pgl_status no_memory(const reader *r) {
    return pgl_fail(r->err, PGL_E_MEMORY, "no memory for a trace");
}

static pgl_status get_integer(const reader *r, const json_t *object, const char *name, int64_t least,
                              int64_t most, int64_t *out) {
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value) || json_integer_value(value) < least || json_integer_value(value) > most) {
        char expected[80];
        (void)snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)least,
                       (long long)most);
        return wrong(r, name, expected);
    }
    *out = json_integer_value(value);
    return PGL_OK;
}

static pgl_status get_float(const reader *r, const json_t *object, const char *name, float *out) {
    const json_t *value = json_object_get(object, name);
    if (!json_is_number(value) || !(fabs(json_number_value(value)) <= 1e30))
        return wrong(r, name, "a number");
    *out = (float)json_number_value(value);
    return PGL_OK;
}

static pgl_status get_bool(const reader *r, const json_t *object, const char *name, bool *out) {
    const json_t *value = json_object_get(object, name);
    if (!json_is_boolean(value))
        return wrong(r, name, "true or false");
    *out = json_is_true(value);
    return PGL_OK;
}

/* size NULL: a text without zero bytes. */
static pgl_status get_text(const reader *r, const json_t *object, const char *name, const char **out,
                           size_t *size) {
    const json_t *value = json_object_get(object, name);
    if (!json_is_string(value) ||
        (size == NULL && strlen(json_string_value(value)) != json_string_length(value)))
        return wrong(r, name, "a string");
    *out = pgl_arena_strndup(r->arena, json_string_value(value), json_string_length(value));
    if (size != NULL)
        *size = json_string_length(value);
    return *out != NULL ? PGL_OK : no_memory(r);
}

static pgl_status get_list(const reader *r, const json_t *object, const char *name, size_t most,
                           const json_t **out) {
    const json_t *value = json_object_get(object, name);
    if (!json_is_array(value) || json_array_size(value) > most) {
        char expected[64];
        (void)snprintf(expected, sizeof expected, "a list of at most %zu", most);
        return wrong(r, name, expected);
    }
    *out = value;
    return PGL_OK;
}

static pgl_status get_ids(const reader *r, const json_t *object, const char *name, size_t most,
                          const int32_t **out, uint32_t *n) {
    const json_t *list;
    pgl_status status = get_list(r, object, name, most, &list);
    if (status != PGL_OK)
        return status;
    int32_t *ids = pgl_arena_new(r->arena, json_array_size(list), sizeof *ids);
    if (ids == NULL)
        return no_memory(r);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return wrong(r, name, "token ids");
        ids[i] = (int32_t)json_integer_value(id);
    }
    *out = ids;
    *n = (uint32_t)json_array_size(list);
    return PGL_OK;
}

/* ---- parts ---- */

enum { MOST_TOKENS = 1 << 24, MOST_BIASES = 1 << 20 };

static pgl_status read_bias(const reader *r, const json_t *params, pgl_sample_params *s) {
    const json_t *list;
    pgl_status status = get_list(r, params, "bias", MOST_BIASES, &list);
    if (status != PGL_OK)
        return status;
    pgl_logit_bias *bias = pgl_arena_new(r->arena, json_array_size(list), sizeof *bias);
    if (bias == NULL)
        return no_memory(r);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *pair = json_array_get(list, i), *id = json_array_get(pair, 0);
        const json_t *value = json_array_get(pair, 1);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX ||
            !json_is_number(value) || !(fabs(json_number_value(value)) <= 1e30))
            return wrong(r, "bias", "pairs of an id and a number");
        bias[i] = (pgl_logit_bias){(int32_t)json_integer_value(id), (float)json_number_value(value)};
    }
    s->bias = bias;
    s->n_bias = (uint32_t)json_array_size(list);
    return PGL_OK;
}

static pgl_status read_seed(const reader *r, const json_t *params, uint64_t *out) {
    const char *text;
    char *end;
    pgl_status status = get_text(r, params, "seed", &text, NULL);
    if (status != PGL_OK)
        return status;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        return wrong(r, "seed", "the digits of an integer of 64 bits, as a string");
    return PGL_OK;
}

static pgl_status read_params(const reader *r, const json_t *object, pgl_trace_sequence *out) {
    const json_t *params = json_object_get(object, "params");
    pgl_sample_params *s = &out->sampling;
    *s = pgl_sample_defaults();
    if (!json_is_object(params))
        return wrong(r, "params", "an object");
    const struct {
        const char *name;
        float *target;
    } floats[] = {{"temperature", &s->temperature},
                  {"top_p", &s->top_p},
                  {"min_p", &s->min_p},
                  {"presence_penalty", &s->presence_penalty},
                  {"frequency_penalty", &s->frequency_penalty},
                  {"repetition_penalty", &s->repetition_penalty}};
    pgl_status status = PGL_OK;
    for (size_t i = 0; i < sizeof floats / sizeof *floats && status == PGL_OK; i++)
        status = get_float(r, params, floats[i].name, floats[i].target);
    int64_t top_k = 0;
    if (status == PGL_OK)
        status = get_integer(r, params, "top_k", INT32_MIN, INT32_MAX, &top_k);
    s->top_k = (int32_t)top_k;
    if (status == PGL_OK)
        status = read_seed(r, params, &s->seed);
    if (status == PGL_OK)
        status = read_bias(r, params, s);
    if (status == PGL_OK)
        status = get_ids(r, params, "stop_ids", PGL_MAX_STOP_IDS, &out->stop_ids, &out->n_stop_ids);
    return status;
}

static pgl_status read_logprobs(const reader *r, const json_t *object, pgl_trace_sequence *out) {
    const json_t *list;
    pgl_status status = get_list(r, object, "logprobs", MOST_TOKENS, &list);
    if (status != PGL_OK)
        return status;
    if (json_array_size(list) != out->n_tokens)
        return wrong(r, "logprobs", "as many as tokens");
    float *values = pgl_arena_new(r->arena, out->n_tokens, sizeof *values);
    if (values == NULL)
        return no_memory(r);
    for (size_t i = 0; i < out->n_tokens; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_null(value) && !(json_is_number(value) && json_number_value(value) <= 1e-3))
            return wrong(r, "logprobs", "log-probabilities or null");
        values[i] = json_is_null(value) ? NAN : (float)json_number_value(value);
    }
    out->logprobs = values;
    return PGL_OK;
}

static pgl_status read_end(const reader *r, const json_t *object, pgl_trace_sequence *out) {
    const char *name;
    int64_t stop_id = -1;
    pgl_status status = get_text(r, object, "finish", &name, NULL);
    if (status == PGL_OK)
        status = get_integer(r, object, "stop_id", -1, INT32_MAX, &stop_id);
    if (status != PGL_OK)
        return status;
    out->stop_id = (int32_t)stop_id;
    if (strcmp(name, "cut") == 0)
        return PGL_OK;
    for (int f = PGL_FINISH_STOP; f <= PGL_FINISH_ERROR; f++)
        if (strcmp(name, pgl_finish_name((pgl_finish)f)) == 0) {
            out->finish = (pgl_finish)f;
            return PGL_OK;
        }
    return wrong(r, "finish", "stop, length, cancelled, error or cut");
}

static pgl_status read_sequence(const reader *r, const json_t *object, const pgl_trace_sequence *prompts,
                                size_t n_prompts, pgl_trace_sequence *out) {
    int64_t prompt = 0;
    if (!json_is_object(object))
        return wrong(r, "", "an object");
    pgl_status status = get_integer(r, object, "prompt", 0, (int64_t)n_prompts - 1, &prompt);
    if (status != PGL_OK)
        return status;
    *out = prompts[prompt];
    status = read_params(r, object, out);
    if (status == PGL_OK)
        status = get_ids(r, object, "tokens", MOST_TOKENS, &out->tokens, &out->n_tokens);
    if (status == PGL_OK)
        status = read_logprobs(r, object, out);
    return status == PGL_OK ? read_end(r, object, out) : status;
}

static pgl_status read_prompts(reader *r, const json_t *root, pgl_trace_sequence **out, size_t *n) {
    const json_t *list;
    pgl_status status = get_list(r, root, "prompts", PGL_TRACE_MOST_SEQUENCES, &list);
    if (status != PGL_OK)
        return status;
    *n = json_array_size(list);
    *out = pgl_arena_new(r->arena, *n, sizeof **out);
    if (*out == NULL)
        return no_memory(r);
    for (size_t i = 0; i < *n && status == PGL_OK; i++) {
        const json_t *object = json_array_get(list, i);
        (void)snprintf(r->place, sizeof r->place, "prompts[%zu].", i);
        status = get_ids(r, object, "ids", MOST_TOKENS, &(*out)[i].prompt, &(*out)[i].n_prompt);
        if (status == PGL_OK && (*out)[i].n_prompt == 0)
            status = wrong(r, "ids", "at least one token id");
        if (status == PGL_OK)
            status = get_bool(r, object, "in_thought", &(*out)[i].in_thought);
    }
    r->place[0] = '\0';
    return status;
}

static pgl_status read_sequences(reader *r, const json_t *root, pgl_trace *out) {
    pgl_trace_sequence *prompts;
    size_t n_prompts;
    const json_t *list;
    pgl_status status = read_prompts(r, root, &prompts, &n_prompts);
    if (status == PGL_OK)
        status = get_list(r, root, "sequences", PGL_TRACE_MOST_SEQUENCES, &list);
    if (status != PGL_OK)
        return status;
    out->n_sequences = (uint32_t)json_array_size(list);
    out->sequences = pgl_arena_new(r->arena, out->n_sequences, sizeof *out->sequences);
    if (out->sequences == NULL)
        return no_memory(r);
    for (size_t i = 0; i < out->n_sequences && status == PGL_OK; i++) {
        (void)snprintf(r->place, sizeof r->place, "sequences[%zu].", i);
        status = read_sequence(r, json_array_get(list, i), prompts, n_prompts, &out->sequences[i]);
    }
    r->place[0] = '\0';
    return status;
}

static pgl_status read_model(reader *r, const json_t *root, pgl_trace *out) {
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model))
        return wrong(r, "model", "an object");
    pgl_status status = get_text(r, root, "version", &out->version, NULL);
    (void)snprintf(r->place, sizeof r->place, "model.");
    if (status == PGL_OK)
        status = get_text(r, model, "name", &out->model, NULL);
    if (status == PGL_OK)
        status = get_text(r, model, "fingerprint", &out->fingerprint, NULL);
    if (status == PGL_OK)
        status = get_text(r, model, "backend", &out->backend, NULL);
    r->place[0] = '\0';
    return status;
}

static pgl_status read_form(reader *r, const json_t *root, pgl_trace *out) {
    const json_t *form = json_object_get(root, "form");
    const char *kind;
    if (json_is_null(form))
        return PGL_OK;
    if (!json_is_object(form))
        return wrong(r, "form", "an object or null");
    (void)snprintf(r->place, sizeof r->place, "form.");
    pgl_constraint_spec *spec = &out->form;
    pgl_status status = get_text(r, form, "kind", &kind, NULL);
    if (status == PGL_OK)
        status = get_text(r, form, "text", &spec->text, &spec->size);
    if (status == PGL_OK)
        status = get_bool(r, form, "parallel_tools", &spec->parallel_tools);
    const json_t *tool = json_object_get(form, "tool");
    if (status == PGL_OK && tool != NULL && !json_is_null(tool))
        status = get_text(r, form, "tool", &spec->tool, NULL);
    for (size_t i = 0; i < sizeof form_names / sizeof *form_names && status == PGL_OK && !out->has_form;
         i++) {
        spec->kind = (pgl_constraint_kind)i;
        out->has_form = strcmp(kind, form_names[i]) == 0;
    }
    if (status == PGL_OK && !out->has_form)
        status = wrong(r, "kind", "json_schema, json_object, regex, lark, tools or choice");
    r->place[0] = '\0';
    return status;
}

static pgl_status read_root(reader *r, const json_t *root, pgl_trace *out) {
    const json_t *version = json_object_get(root, "pergola_trace");
    if (!json_is_integer(version))
        return pgl_fail(r->err, PGL_E_INVALID, "this is no trace: it has no member pergola_trace");
    if (json_integer_value(version) != PGL_TRACE_VERSION)
        return pgl_fail(r->err, PGL_E_UNSUPPORTED, "a trace of version %lld: this program reads version %d",
                        (long long)json_integer_value(version), PGL_TRACE_VERSION);
    pgl_status status = read_model(r, root, out);
    if (status == PGL_OK)
        status = get_integer(r, root, "thinking_budget", -1, INT64_MAX, &out->thinking_budget);
    if (status == PGL_OK)
        status = read_form(r, root, out);
    return status == PGL_OK ? read_sequences(r, root, out) : status;
}

pgl_status pgl_trace_parse(const char *text, size_t size, pgl_trace *out, pgl_error *err) {
    static const pgl_json_options options = {
        .name = "the trace", .max_bytes = PGL_TRACE_MOST_BYTES, .max_depth = 16, .allow_nul = true};
    *out = (pgl_trace){.arena = pgl_arena_open(0)};
    reader r = {.arena = out->arena, .err = err};
    if (out->arena == NULL)
        return no_memory(&r);
    json_t *root = NULL;
    pgl_status status = pgl_json_parse(text, size, &options, &root, err);
    if (status == PGL_OK)
        status = read_root(&r, root, out);
    json_decref(root);
    if (status != PGL_OK)
        pgl_trace_fini(out);
    return status;
}

void pgl_trace_fini(pgl_trace *trace) {
    pgl_arena_close(trace->arena);
    *trace = (pgl_trace){.arena = NULL};
}
