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
    return out->text || pgl_refuse_memory(r->err);
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
        return pgl_refuse_memory(r->err);
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
        return pgl_refuse_memory(r->err);
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
        return pgl_refuse_memory(r->err);
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
    r->params->model = pgl_arena_strndup(r->arena, json_string_value(r->value), json_string_length(r->value));
    return r->params->model || pgl_refuse_memory(r->err);
}

/* ---- the table. Rows are read in this order: what is said in its own field comes before what means the same in
 * another. ---- */

#define BOTH PGL_PARAM_BOTH
#define CHAT PGL_PARAM_CHAT
#define COMPLETIONS PGL_PARAM_COMPLETIONS
#define TOKENIZE PGL_PARAM_TOKENIZE
#define DETOKENIZE PGL_PARAM_DETOKENIZE

#define FIELD(n, k, on, field, low, high, text)                                                              \
    {                                                                                                        \
        .name = (n), .kind = PGL_PARAM_##k, .routes = (on), .offset = AT(field), .min = (low),               \
        .max = (high), .note = (text)                                                                        \
    }
#define PLAIN(n, k, on, text)                                                                                \
    { .name = (n), .kind = PGL_PARAM_##k, .routes = (on), .note = (text) }
#define READ(n, on, reader, text, json)                                                                      \
    {                                                                                                        \
        .name = (n), .kind = PGL_PARAM_READER, .routes = (on), .note = (text), .read = (reader),             \
        .schema = (json)                                                                                     \
    }
#define TEXT(n, on, must, text, json)                                                                        \
    {                                                                                                        \
        .name = (n), .kind = PGL_PARAM_TEXT, .routes = (on), .required = (must), .note = (text),             \
        .schema = (json)                                                                                     \
    }

static const pgl_param_row rows[] = {
    TEXT("messages", CHAT, CHAT, "the conversation so far", "Messages"),
    TEXT("prompt", COMPLETIONS, COMPLETIONS,
         "a text, where spellings of control tokens are those tokens; token ids; or a list of these",
         "Prompt"),
    TEXT("content", TOKENIZE, 0, "the text", "AnyString"),
    TEXT("prompt", TOKENIZE, 0, "the same, when there is no content", "AnyString"),
    TEXT("text", TOKENIZE, 0, "the same, when there is neither", "AnyString"),
    TEXT("tokens", DETOKENIZE, DETOKENIZE, "token ids", "TokenIds"),
    READ("model", BOTH, read_model,
         "absent or empty: the served one; another name than a served one is a 404", "AnyString"),
    FIELD("stream", BOOL, BOTH, stream, 0, 0, "answer with a stream of events"),
    READ("stream_options", BOTH, read_stream_options, "only with stream", "StreamOptions"),
    FIELD("n", INTEGER, BOTH, n, 1, PGL_MOST_CHOICES, "answers to each prompt"),
    FIELD("best_of", INTEGER, BOTH, best_of, 1, PGL_MOST_CHOICES, "1 is all there is; more is refused"),
    FIELD("echo", BOOL, COMPLETIONS, echo, 0, 0, "put the prompt in front of the answer"),
    FIELD("logprobs", BOOL, CHAT, logprobs, 0, 0, "log-probabilities of the answer's tokens"),
    FIELD("top_logprobs", INTEGER, CHAT, top_logprobs, 0, PGL_MOST_TOP_LOGPROBS,
          "so many alternatives for each token; only with logprobs"),
    FIELD("logprobs", INTEGER, COMPLETIONS, completion_logprobs, 0, PGL_MOST_TOP_LOGPROBS,
          "log-probabilities, with so many alternatives for each token"),
    FIELD("max_tokens", INTEGER, CHAT, max_tokens, 1, INT32_MAX,
          "most tokens of the answer, thinking included; without it the context is the limit"),
    FIELD("max_completion_tokens", INTEGER, CHAT, max_completion_tokens, 1, INT32_MAX,
          "the same; of two that are given the smaller counts"),
    FIELD("max_tokens", INTEGER, COMPLETIONS, max_tokens, 0, INT32_MAX,
          "most tokens of the answer; 0 only with echo; without it the context is the limit"),
    FIELD("temperature", NUMBER, BOTH, temperature, 0, 2, "0: always the most likely token"),
    FIELD("top_p", NUMBER, BOTH, top_p, 0, 1, "0: the most likely token"),
    FIELD("top_k", INTEGER, BOTH, top_k, -1, INT32_MAX, "0 and -1: off"),
    FIELD("min_p", NUMBER, BOTH, min_p, 0, 1, "tokens less likely than this share of the best are left out"),
    FIELD("presence_penalty", NUMBER, BOTH, presence_penalty, -2, 2, "of tokens that the answer has"),
    FIELD("frequency_penalty", NUMBER, BOTH, frequency_penalty, -2, 2,
          "for each time that the answer has it"),
    FIELD("repetition_penalty", NUMBER, BOTH, repetition_penalty, 0.01, 10,
          "of tokens that prompt or answer have; 1: off"),
    READ("seed", BOTH, read_seed, "the same seed gives the same answer; -1: any", "Seed"),
    READ("stop", BOTH, read_stop, "texts that end the answer; nothing of them is sent", "Stop"),
    READ("stop_token_ids", BOTH, read_stop_ids, "further tokens that end the answer", "StopTokenIds"),
    READ("logit_bias", BOTH, read_logit_bias, "token ids and what is added to their logits", "LogitBias"),
    FIELD("ignore_eos", BOOL, BOTH, ignore_eos, 0, 0, "the model's end tokens do not end the answer"),
    FIELD("priority", INTEGER, BOTH, priority, INT32_MIN, INT32_MAX, "lower is served earlier"),
    READ("chat_template_kwargs", CHAT, read_template_kwargs, "values for the model's chat template",
         "TemplateKwargs"),
    READ("enable_thinking", CHAT, read_thinking, "think before the answer", "YesOrNo"),
    READ("thinking_budget", CHAT, read_budget, "most tokens of thinking; 0: none, -1: no limit",
         "ThinkingBudget"),
    READ("reasoning_effort", CHAT, read_effort, "none is thinking off, everything else on",
         "ReasoningEffort"),
    READ("continue_final_message", CHAT, read_continue, "go on with the last message", "YesOrNo"),
    READ("add_generation_prompt", CHAT, read_generation_prompt, "begin a new answer", "YesOrNo"),
    TEXT("tools", CHAT, 0, "functions that the model may call", "Tools"),
    FIELD("parallel_tool_calls", BOOL, CHAT, parallel_tool_calls, 0, 0,
          "false: the answer ends behind its first call"),
    READ("tool_choice", CHAT, pgl_read_tool_choice, "whether there has to be a call, and of what",
         "ToolChoice"),
    READ("response_format", BOTH, pgl_read_response_format, "the form of the answer", "ResponseFormat"),
    PLAIN("user", STRING, BOTH, "no effect"),
    PLAIN("metadata", OBJECT, BOTH, "no effect"),
    PLAIN("store", ACCEPTED, BOTH, "no effect"),
    PLAIN("suffix", REFUSED, COMPLETIONS, "the model does not fill in"),
    PLAIN("functions", REFUSED, CHAT, "use tools"),
    PLAIN("function_call", REFUSED, CHAT, "use tool_choice"),
    PLAIN("audio", REFUSED, CHAT, "the model writes text"),
    PLAIN("web_search_options", REFUSED, CHAT, "nothing here searches"),
    READ("guided_json", BOTH, pgl_read_guided_json, "a JSON schema, or its text, that the answer keeps",
         "GuidedJson"),
    READ("guided_regex", BOTH, pgl_read_guided_regex, "a regular expression for the whole answer",
         "OneString"),
    READ("guided_choice", BOTH, pgl_read_guided_choice, "the answer is one of these", "StringList"),
    READ("guided_grammar", BOTH, pgl_read_guided_grammar, "a Lark grammar for the answer", "OneString"),
    READ("structured_outputs", BOTH, pgl_read_structured_outputs, "the same four under one name",
         "StructuredOutputs"),
    PLAIN("json_schema", REFUSED, BOTH, "use response_format"),
    PLAIN("grammar", REFUSED, BOTH, "use guided_grammar"),
    PLAIN("with_pieces", FLAG, TOKENIZE, "the tokens' texts as well"),
    PLAIN("return_token_strs", FLAG, TOKENIZE, "the same"),
    PLAIN("parse_special", FLAG, TOKENIZE, "spellings of control tokens are those tokens (true)"),
    PLAIN("add_special", FLAG, TOKENIZE, "no effect: these models put nothing in front"),
    PLAIN("add_special_tokens", FLAG, TOKENIZE, "the same"),
};

_Static_assert(sizeof rows / sizeof *rows <= PGL_MOST_PARAM_ROWS, "PGL_MOST_PARAM_ROWS is too small");

const pgl_param_row *pgl_param_rows(size_t *n) {
    *n = sizeof rows / sizeof *rows;
    return rows;
}

const pgl_param_row *pgl_param_find(const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
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
    case PGL_PARAM_FLAG:
        return json_is_boolean(r->value) || wrong_type(row, r->value, "a boolean", r->err);
    case PGL_PARAM_TEXT:
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
