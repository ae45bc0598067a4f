#include "server/params.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/params_form.h"

#define AT(field) offsetof(pgl_gen_params, field)
#define LARGE 9007199254740992.0 /* 2^53: integers of JSON clients end here */

const char *pgl_json_type_text(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "something else";
}

static bool no_memory(pgl_refusal *err) {
    return pgl_refuse(err, 500, pgl_status_name(PGL_E_MEMORY), NULL,
                      "out of memory while reading the request");
}

/* 7 and 7.0 are the same number. */
static bool whole_number(const json_t *value, int64_t *out) {
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    double real = json_real_value(value);
    if (!json_is_real(value) || real != floor(real) || fabs(real) > LARGE)
        return false;
    *out = (int64_t)real;
    return true;
}

/* ---- readers of single parameters ---- */

static bool read_seed(const pgl_param_reading *r) {
    int64_t seed;
    if (!whole_number(r->value, &seed))
        return pgl_refuse_field(r->err, "seed", "seed must be an integer of 64 bits, not %s",
                                json_is_number(r->value) ? "this number" : pgl_json_type_text(r->value));
    r->params->has_seed = seed != -1; /* -1 is how some clients say "any" */
    r->params->seed = seed;
    return true;
}

static bool read_stream_options(const pgl_param_reading *r) {
    if (!json_is_object(r->value))
        return pgl_refuse_field(r->err, "stream_options", "stream_options must be an object, not %s",
                                pgl_json_type_text(r->value));
    const json_t *usage = json_object_get(r->value, "include_usage");
    if (usage && !json_is_boolean(usage) && !json_is_null(usage))
        return pgl_refuse_field(r->err, "stream_options.include_usage",
                                "stream_options.include_usage must be a boolean, not %s",
                                pgl_json_type_text(usage));
    if (!r->params->stream)
        return pgl_refuse_field(r->err, "stream_options", "stream_options is only allowed with stream: true");
    r->params->include_usage = json_is_true(usage);
    return true;
}

static bool read_one_stop(const pgl_param_reading *r, const json_t *value, const char *field,
                          pgl_stop_text *out) {
    if (!json_is_string(value))
        return pgl_refuse_field(r->err, field, "%s must be a string, not %s", field,
                                pgl_json_type_text(value));
    out->size = json_string_length(value);
    if (out->size == 0)
        return pgl_refuse_field(r->err, field, "%s is empty: it would stop every answer at once", field);
    if (out->size > PGL_MOST_STOP_BYTES)
        return pgl_refuse_field(r->err, field, "%s is longer than %u bytes", field, PGL_MOST_STOP_BYTES);
    out->text = pgl_arena_strndup(r->arena, json_string_value(value), out->size);
    return out->text || no_memory(r->err);
}

static bool read_stop(const pgl_param_reading *r) {
    bool list = json_is_array(r->value);
    size_t n = list ? json_array_size(r->value) : 1;
    if (!list && !json_is_string(r->value))
        return pgl_refuse_field(r->err, "stop", "stop must be a string or a list of strings, not %s",
                                pgl_json_type_text(r->value));
    if (n > PGL_MOST_STOPS)
        return pgl_refuse_field(r->err, "stop", "stop has %zu strings, at most %u are allowed", n,
                                PGL_MOST_STOPS);
    pgl_stop_text *stops = pgl_arena_new(r->arena, n, sizeof *stops);
    if (!stops)
        return no_memory(r->err);
    for (size_t i = 0; i < n; i++) {
        char field[32] = "stop";
        if (list)
            snprintf(field, sizeof field, "stop[%zu]", i);
        if (!read_one_stop(r, list ? json_array_get(r->value, i) : r->value, field, &stops[i]))
            return false;
    }
    r->params->stops = stops;
    r->params->n_stops = (uint32_t)n;
    return true;
}

static bool read_stop_ids(const pgl_param_reading *r) {
    size_t n = json_array_size(r->value);
    if (!json_is_array(r->value) || n > PGL_MOST_STOPS / 2)
        return pgl_refuse_field(r->err, "stop_token_ids",
                                "stop_token_ids must be a list of at most %u token ids", PGL_MOST_STOPS / 2);
    int32_t *ids = pgl_arena_new(r->arena, n, sizeof *ids);
    if (!ids)
        return no_memory(r->err);
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (!whole_number(json_array_get(r->value, i), &id) || id < 0 || id >= r->n_vocab)
            return pgl_refuse_field(r->err, "stop_token_ids",
                                    "stop_token_ids[%zu] must be a token id from 0 to %u", i, r->n_vocab - 1);
        ids[i] = (int32_t)id;
    }
    r->params->stop_ids = ids;
    r->params->n_stop_ids = (uint32_t)n;
    return true;
}

static bool token_id(const char *text, uint32_t n_vocab, int32_t *out) {
    size_t n = strlen(text);
    if (n == 0 || n > 9 || strspn(text, "0123456789") != n || (n > 1 && text[0] == '0'))
        return false;
    long id = strtol(text, NULL, 10);
    *out = (int32_t)id;
    return id < (long)n_vocab;
}

static int by_id(const void *a, const void *b) {
    int32_t x = ((const pgl_logit_bias *)a)->id, y = ((const pgl_logit_bias *)b)->id;
    return (x > y) - (x < y);
}

static bool read_logit_bias(const pgl_param_reading *r) {
    if (!json_is_object(r->value))
        return pgl_refuse_field(r->err, "logit_bias",
                                "logit_bias must be an object of token ids and numbers, not %s",
                                pgl_json_type_text(r->value));
    size_t n = json_object_size(r->value), i = 0;
    if (n > PGL_MOST_BIASES)
        return pgl_refuse_field(r->err, "logit_bias", "logit_bias has %zu entries, at most %u are allowed", n,
                                PGL_MOST_BIASES);
    pgl_logit_bias *bias = pgl_arena_new(r->arena, n, sizeof *bias);
    if (!bias)
        return no_memory(r->err);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)r->value, key, value) {
        double amount = json_number_value(value);
        if (!token_id(key, r->n_vocab, &bias[i].id))
            return pgl_refuse_field(r->err, "logit_bias",
                                    "logit_bias: \"%.40s\" is not a token id from 0 to %u", key,
                                    r->n_vocab - 1);
        if (!json_is_number(value) || !(amount >= -100 && amount <= 100))
            return pgl_refuse_field(r->err, "logit_bias",
                                    "logit_bias[\"%s\"] must be a number from -100 to 100", key);
        bias[i++].bias = (float)amount;
    }
    qsort(bias, n, sizeof *bias, by_id);
    r->params->bias = bias;
    r->params->n_bias = (uint32_t)n;
    return true;
}

static bool read_effort(const pgl_param_reading *r) {
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    const char *word = json_string_value(r->value);
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i]) != 0)
            continue;
        if (r->params->thinking < 0)
            r->params->thinking = i > 0;
        return true;
    }
    return pgl_refuse_field(r->err, "reasoning_effort",
                            "reasoning_effort must be none, minimal, low, medium, high, xhigh or max");
}

static bool read_budget(const pgl_param_reading *r) {
    int64_t budget;
    if (!whole_number(r->value, &budget) || budget < -1 || budget > INT32_MAX)
        return pgl_refuse_field(
            r->err, "thinking_budget", "thinking_budget must be an integer from -1 (no limit) to %d, not %s",
            INT32_MAX, json_is_number(r->value) ? "this number" : pgl_json_type_text(r->value));
    r->params->thinking_budget = budget;
    return true;
}

static bool read_template_kwargs(const pgl_param_reading *r) {
    if (!json_is_object(r->value))
        return pgl_refuse_field(r->err, "chat_template_kwargs",
                                "chat_template_kwargs must be an object, not %s",
                                pgl_json_type_text(r->value));
    const json_t *thinking = json_object_get(r->value, "enable_thinking");
    if (thinking && !json_is_boolean(thinking) && !json_is_null(thinking))
        return pgl_refuse_field(r->err, "chat_template_kwargs.enable_thinking",
                                "chat_template_kwargs.enable_thinking must be a boolean, not %s",
                                pgl_json_type_text(thinking));
    if (json_is_boolean(thinking) && r->params->thinking < 0)
        r->params->thinking = json_is_true(thinking);
    const json_t *budget = json_object_get(r->value, "thinking_budget");
    if (!budget || json_is_null(budget) || r->params->thinking_budget >= 0)
        return true;
    pgl_param_reading inner = *r;
    inner.value = budget;
    return read_budget(&inner);
}

/* Three-way: not said, or said. */
static bool read_flag(const pgl_param_reading *r, const char *name, int64_t *target) {
    if (!json_is_boolean(r->value))
        return pgl_refuse_field(r->err, name, "%s must be a boolean, not %s", name,
                                pgl_json_type_text(r->value));
    *target = json_is_true(r->value);
    return true;
}

static bool read_thinking(const pgl_param_reading *r) {
    int64_t own = -1;
    if (!read_flag(r, "enable_thinking", &own))
        return false;
    if (r->params->thinking < 0)
        r->params->thinking = own;
    return true;
}

static bool read_continue(const pgl_param_reading *r) {
    return read_flag(r, "continue_final_message", &r->params->continue_final);
}

static bool read_generation_prompt(const pgl_param_reading *r) {
    return read_flag(r, "add_generation_prompt", &r->params->add_generation_prompt);
}

static bool read_model(const pgl_param_reading *r) {
    if (!json_is_string(r->value))
        return pgl_refuse_field(r->err, "model", "model must be a string, not %s",
                                pgl_json_type_text(r->value));
    r->params->model = json_string_value(r->value);
    return true;
}

/* ---- the table. Rows are read in this order: what is said in its own field comes before what means the same in
 * another. ---- */

#define BOTH PGL_PARAM_BOTH
#define CHAT PGL_PARAM_CHAT
#define COMPLETIONS PGL_PARAM_COMPLETIONS

static const pgl_param_row rows[] = {
    {"model", PGL_PARAM_READER, BOTH, 0, 0, 0, "absent or empty: the served one", read_model},
    {"stream", PGL_PARAM_BOOL, BOTH, AT(stream), 0, 0, NULL, NULL},
    {"stream_options", PGL_PARAM_READER, BOTH, 0, 0, 0, "include_usage", read_stream_options},
    {"n", PGL_PARAM_INTEGER, BOTH, AT(n), 1, PGL_MOST_CHOICES, NULL, NULL},
    {"best_of", PGL_PARAM_INTEGER, BOTH, AT(best_of), 1, PGL_MOST_CHOICES, "1 is all there is", NULL},
    {"echo", PGL_PARAM_BOOL, COMPLETIONS, AT(echo), 0, 0, NULL, NULL},
    {"logprobs", PGL_PARAM_BOOL, CHAT, AT(logprobs), 0, 0, NULL, NULL},
    {"top_logprobs", PGL_PARAM_INTEGER, CHAT, AT(top_logprobs), 0, PGL_MOST_TOP_LOGPROBS, "with logprobs",
     NULL},
    {"logprobs", PGL_PARAM_INTEGER, COMPLETIONS, AT(completion_logprobs), 0, PGL_MOST_TOP_LOGPROBS, NULL,
     NULL},
    {"max_tokens", PGL_PARAM_INTEGER, CHAT, AT(max_tokens), 1, INT32_MAX, NULL, NULL},
    {"max_completion_tokens", PGL_PARAM_INTEGER, CHAT, AT(max_completion_tokens), 1, INT32_MAX, NULL, NULL},
    {"max_tokens", PGL_PARAM_INTEGER, COMPLETIONS, AT(max_tokens), 0, INT32_MAX, "0 with echo", NULL},
    {"temperature", PGL_PARAM_NUMBER, BOTH, AT(temperature), 0, 2, "0: greedy", NULL},
    {"top_p", PGL_PARAM_NUMBER, BOTH, AT(top_p), 0, 1, "0: the most likely token", NULL},
    {"top_k", PGL_PARAM_INTEGER, BOTH, AT(top_k), -1, INT32_MAX, "0 and -1: off", NULL},
    {"min_p", PGL_PARAM_NUMBER, BOTH, AT(min_p), 0, 1, NULL, NULL},
    {"presence_penalty", PGL_PARAM_NUMBER, BOTH, AT(presence_penalty), -2, 2, NULL, NULL},
    {"frequency_penalty", PGL_PARAM_NUMBER, BOTH, AT(frequency_penalty), -2, 2, NULL, NULL},
    {"repetition_penalty", PGL_PARAM_NUMBER, BOTH, AT(repetition_penalty), 0.01, 10, "1: off", NULL},
    {"seed", PGL_PARAM_READER, BOTH, 0, 0, 0, "-1: any", read_seed},
    {"stop", PGL_PARAM_READER, BOTH, 0, 0, 0, NULL, read_stop},
    {"stop_token_ids", PGL_PARAM_READER, BOTH, 0, 0, 0, NULL, read_stop_ids},
    {"logit_bias", PGL_PARAM_READER, BOTH, 0, 0, 0, NULL, read_logit_bias},
    {"ignore_eos", PGL_PARAM_BOOL, BOTH, AT(ignore_eos), 0, 0, NULL, NULL},
    {"priority", PGL_PARAM_INTEGER, BOTH, AT(priority), INT32_MIN, INT32_MAX, "lower is earlier", NULL},
    {"chat_template_kwargs", PGL_PARAM_READER, CHAT, 0, 0, 0, NULL, read_template_kwargs},
    {"enable_thinking", PGL_PARAM_READER, CHAT, 0, 0, 0, NULL, read_thinking},
    {"thinking_budget", PGL_PARAM_READER, CHAT, 0, 0, 0, "0: off, -1: no limit", read_budget},
    {"reasoning_effort", PGL_PARAM_READER, CHAT, 0, 0, 0, "none: thinking off, else on", read_effort},
    {"continue_final_message", PGL_PARAM_READER, CHAT, 0, 0, 0, NULL, read_continue},
    {"add_generation_prompt", PGL_PARAM_READER, CHAT, 0, 0, 0, NULL, read_generation_prompt},
    {"parallel_tool_calls", PGL_PARAM_BOOL, CHAT, AT(parallel_tool_calls), 0, 0, NULL, NULL},
    {"tool_choice", PGL_PARAM_READER, CHAT, 0, 0, 0, "auto, none, required, a function",
     pgl_read_tool_choice},
    {"response_format", PGL_PARAM_READER, BOTH, 0, 0, 0, "text, json_object, json_schema",
     pgl_read_response_format},
    {"user", PGL_PARAM_STRING, BOTH, 0, 0, 0, "no effect", NULL},
    {"metadata", PGL_PARAM_OBJECT, BOTH, 0, 0, 0, "no effect", NULL},
    {"store", PGL_PARAM_ACCEPTED, BOTH, 0, 0, 0, "no effect", NULL},
    {"suffix", PGL_PARAM_REFUSED, COMPLETIONS, 0, 0, 0, "the model does not fill in", NULL},
    {"functions", PGL_PARAM_REFUSED, CHAT, 0, 0, 0, "use tools", NULL},
    {"function_call", PGL_PARAM_REFUSED, CHAT, 0, 0, 0, "use tool_choice", NULL},
    {"audio", PGL_PARAM_REFUSED, CHAT, 0, 0, 0, "the model writes text", NULL},
    {"web_search_options", PGL_PARAM_REFUSED, CHAT, 0, 0, 0, "nothing here searches", NULL},
    {"guided_json", PGL_PARAM_READER, BOTH, 0, 0, 0, NULL, pgl_read_guided_json},
    {"guided_regex", PGL_PARAM_READER, BOTH, 0, 0, 0, NULL, pgl_read_guided_regex},
    {"guided_choice", PGL_PARAM_READER, BOTH, 0, 0, 0, NULL, pgl_read_guided_choice},
    {"guided_grammar", PGL_PARAM_READER, BOTH, 0, 0, 0, NULL, pgl_read_guided_grammar},
    {"structured_outputs", PGL_PARAM_READER, BOTH, 0, 0, 0, NULL, pgl_read_structured_outputs},
    {"json_schema", PGL_PARAM_REFUSED, BOTH, 0, 0, 0, "use response_format", NULL},
    {"grammar", PGL_PARAM_REFUSED, BOTH, 0, 0, 0, "use guided_grammar", NULL},
};

const pgl_param_row *pgl_param_rows(size_t *n) {
    *n = sizeof rows / sizeof *rows;
    return rows;
}

/* ---- reading ---- */

static bool wrong_type(const pgl_param_row *row, const json_t *value, const char *wanted, pgl_refusal *err) {
    return pgl_refuse_field(err, row->name, "%s must be %s, not %s", row->name, wanted,
                            pgl_json_type_text(value));
}

static bool read_number(const pgl_param_row *row, const json_t *value, double *target, pgl_refusal *err) {
    double number = json_number_value(value);
    if (!json_is_number(value) || !isfinite(number))
        return wrong_type(row, value, "a number", err);
    if (number < row->min || number > row->max)
        return pgl_refuse_field(err, row->name, "%s must be from %g to %g, not %g", row->name, row->min,
                                row->max, number);
    *target = number;
    return true;
}

static bool read_integer(const pgl_param_row *row, const json_t *value, int64_t *target, pgl_refusal *err) {
    int64_t number;
    if (!json_is_number(value))
        return wrong_type(row, value, "an integer", err);
    if (!whole_number(value, &number) || (double)number < row->min || (double)number > row->max)
        return pgl_refuse_field(err, row->name, "%s must be an integer from %.0f to %.0f, not %g", row->name,
                                row->min, row->max, json_number_value(value));
    *target = number;
    return true;
}

static bool is_empty(const json_t *value) {
    return json_is_false(value) || (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

static bool read_row(const pgl_param_row *row, const pgl_param_reading *r) {
    void *target = (char *)r->params + row->offset;
    switch (row->kind) {
    case PGL_PARAM_BOOL:
        if (!json_is_boolean(r->value))
            return wrong_type(row, r->value, "a boolean", r->err);
        *(bool *)target = json_is_true(r->value);
        return true;
    case PGL_PARAM_INTEGER:
        return read_integer(row, r->value, target, r->err);
    case PGL_PARAM_NUMBER:
        return read_number(row, r->value, target, r->err);
    case PGL_PARAM_STRING:
        return json_is_string(r->value) || wrong_type(row, r->value, "a string", r->err);
    case PGL_PARAM_OBJECT:
        return json_is_object(r->value) || wrong_type(row, r->value, "an object", r->err);
    case PGL_PARAM_READER:
        return row->read(r);
    case PGL_PARAM_ACCEPTED:
        return true;
    case PGL_PARAM_REFUSED:
        return is_empty(r->value) || pgl_refuse(r->err, 400, "unsupported", row->name,
                                                "%s is not supported: %s", row->name, row->note);
    }
    return true;
}

/* What the rows cannot say: how parameters go together. */
static bool check_together(pgl_gen_params *params, pgl_param_routes route, pgl_refusal *err) {
    if (params->best_of > 1)
        return pgl_refuse(err, 400, "unsupported", "best_of", "best_of above 1 is not supported");
    if (params->top_logprobs >= 0 && !params->logprobs)
        return pgl_refuse_field(err, "top_logprobs", "top_logprobs needs logprobs: true");
    if (params->max_completion_tokens >= 0 &&
        (params->max_tokens < 0 || params->max_completion_tokens < params->max_tokens))
        params->max_tokens = params->max_completion_tokens;
    if (route == PGL_PARAM_COMPLETIONS && params->max_tokens == 0 && !params->echo)
        return pgl_refuse_field(err, "max_tokens", "max_tokens may be 0 only with echo: true");
    if (params->thinking_budget == 0)
        params->thinking = 0;
    if (params->continue_final == 1 && params->add_generation_prompt == 1)
        return pgl_refuse_field(err, "continue_final_message",
                                "continue_final_message and add_generation_prompt cannot both be true");
    return true;
}

pgl_gen_params pgl_params_defaults(const pgl_sample_params *sampling) {
    return (pgl_gen_params){.n = 1,
                            .best_of = 1,
                            .top_logprobs = -1,
                            .completion_logprobs = -1,
                            .max_tokens = -1,
                            .max_completion_tokens = -1,
                            .temperature = (double)sampling->temperature,
                            .top_p = (double)sampling->top_p,
                            .min_p = (double)sampling->min_p,
                            .top_k = sampling->top_k,
                            .presence_penalty = (double)sampling->presence_penalty,
                            .frequency_penalty = (double)sampling->frequency_penalty,
                            .repetition_penalty = (double)sampling->repetition_penalty,
                            .thinking = -1,
                            .thinking_budget = -1,
                            .parallel_tool_calls = true,
                            .continue_final = -1,
                            .add_generation_prompt = -1};
}

bool pgl_params_read(const json_t *body, pgl_param_routes route, uint32_t n_vocab, pgl_arena *arena,
                     pgl_gen_params *params, pgl_refusal *err) {
    pgl_param_reading reading = {.n_vocab = n_vocab, .arena = arena, .params = params, .err = err};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reading.value = json_object_get(body, rows[i].name);
        if (!reading.value || json_is_null(reading.value) || !(rows[i].routes & route))
            continue;
        if (!read_row(&rows[i], &reading))
            return false;
    }
    return check_together(params, route, err);
}

pgl_sample_params pgl_params_sampling(const pgl_gen_params *params, uint64_t seed, uint32_t choice) {
    /* Seeds of choices lie far apart, so that choice 1 of seed 1 is not choice 0 of seed 2. */
    uint64_t base = params->has_seed ? (uint64_t)params->seed : seed;
    float top_p = (float)params->top_p;
    return (pgl_sample_params){.temperature = (float)params->temperature,
                               .top_p = top_p > 0 ? top_p : FLT_MIN,
                               .min_p = (float)params->min_p,
                               .top_k = (int32_t)params->top_k,
                               .presence_penalty = (float)params->presence_penalty,
                               .frequency_penalty = (float)params->frequency_penalty,
                               .repetition_penalty = (float)params->repetition_penalty,
                               .seed = base + choice * 0x9E3779B97F4A7C15u,
                               .bias = params->bias,
                               .n_bias = params->n_bias};
}

/* ---- NaN ---- */

static bool starts(const char *at, const char *end, const char *word) {
    size_t n = strlen(word);
    return (size_t)(end - at) >= n && memcmp(at, word, n) == 0;
}

bool pgl_params_find_nan(const char *text, size_t size, char *field, size_t capacity) {
    const char *end = text + size, *key = NULL;
    size_t key_size = 0;
    for (const char *at = text; at < end; at++) {
        if (*at == '"') {
            const char *from = ++at;
            for (; at < end && *at != '"'; at++)
                if (*at == '\\' && ++at == end)
                    return false;
            if (at == end)
                return false;
            const char *behind = at + 1;
            while (behind < end && strchr(" \t\r\n", *behind))
                behind++;
            if (behind < end && *behind == ':') {
                key = from;
                key_size = (size_t)(at - from);
            }
        } else if (key &&
                   (starts(at, end, "NaN") || starts(at, end, "Infinity") || starts(at, end, "-Infinity"))) {
            snprintf(field, capacity, "%.*s", (int)(key_size < 90 ? key_size : 90), key);
            return true;
        }
    }
    return false;
}
