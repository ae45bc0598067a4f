/* The fields of all requests, as one table: name, type, range, which routes know it, where its value goes. Reading,
 * messages and the OpenAPI document follow from the table; what needs more than a range has a reader of its own. Null
 * counts as absent, an unknown field is ignored, one that is known and not supported is refused. */
#ifndef PGL_SERVER_PARAMS_H
#define PGL_SERVER_PARAMS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "constraint/constraint.h"
#include "sampling/sampling.h"
#include "server/refusal.h"

#define PGL_MOST_STOPS 64u
#define PGL_MOST_STOP_BYTES 4096u
#define PGL_MOST_CHOICES 128
#define PGL_MOST_TOP_LOGPROBS 20
#define PGL_MOST_BIASES 4096u

/* What a body may be. */
typedef enum pgl_param_routes {
    PGL_PARAM_CHAT = 1,
    PGL_PARAM_COMPLETIONS = 2,
    PGL_PARAM_BOTH = 3,
    PGL_PARAM_TOKENIZE = 4,
    PGL_PARAM_DETOKENIZE = 8,
} pgl_param_routes;

typedef struct pgl_stop_text {
    const char *text;
    size_t size;
} pgl_stop_text;

typedef enum pgl_tool_choice {
    PGL_TOOL_CHOICE_AUTO,
    PGL_TOOL_CHOICE_NONE,
    PGL_TOOL_CHOICE_REQUIRED, /* of tool_name, or of any when that is NULL */
} pgl_tool_choice;

/* The form an answer has to keep. */
typedef struct pgl_answer_form {
    bool given;
    const char *param; /* that gave it; static */
    pgl_constraint_spec spec;
} pgl_answer_form;

typedef struct pgl_gen_params {
    const char *model; /* NULL: none was given */

    /* shape of the answer */
    bool stream, include_usage, echo;
    int64_t n, best_of;
    bool logprobs;               /* chat */
    int64_t top_logprobs;        /* chat; -1: not given */
    int64_t completion_logprobs; /* completions; -1: none */
    int64_t max_tokens;          /* -1: the context is the limit. Of two names that are given, the smaller. */
    int64_t max_completion_tokens;

    /* sampling */
    double temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
    int64_t top_k;
    int64_t seed;
    bool has_seed;
    const pgl_logit_bias *bias; /* rising ids */
    uint32_t n_bias;
    const pgl_stop_text *stops;
    uint32_t n_stops;
    const int32_t *stop_ids;
    uint32_t n_stop_ids;
    bool ignore_eos;
    int64_t priority;
    pgl_answer_form form;

    /* chat */
    int64_t thinking;        /* 1 on, 0 off, -1: not said */
    int64_t thinking_budget; /* -1: no limit */
    bool parallel_tool_calls;
    pgl_tool_choice tool_choice;
    const char *tool_name;                         /* with REQUIRED */
    int64_t continue_final, add_generation_prompt; /* 1, 0, -1: not said */
} pgl_gen_params;

/* What is used where a request says nothing: sampling from the model, thinking from the server (-1: the template's own
 * default). */
pgl_gen_params pgl_params_defaults(const pgl_sample_params *sampling);

/* Reads what the routes know from the body, an object. Arrays and texts live in the arena: the body may go before params
 * does. params holds the defaults before. n_vocab: ids that can be named. */
bool pgl_params_read(const json_t *body, pgl_param_routes route, uint32_t n_vocab, pgl_arena *arena,
                     pgl_gen_params *params, pgl_refusal *err);

/* The sampling part for choice number i: other seeds for other choices. seed is what to use when none was given. */
pgl_sample_params pgl_params_sampling(const pgl_gen_params *params, uint64_t seed, uint32_t choice);

/* For texts of errors: "a string", "an object", "null", ... */
const char *pgl_json_type_text(const json_t *value);

/* The name of the field that holds the first NaN, Infinity or -Infinity of a text that is no JSON because of it; false
 * when there is none. */
bool pgl_params_find_nan(const char *text, size_t size, char *field, size_t capacity);

/* ---- the table, for documentation and tests ---- */

typedef enum pgl_param_kind {
    PGL_PARAM_BOOL,
    PGL_PARAM_INTEGER,
    PGL_PARAM_NUMBER,
    PGL_PARAM_STRING,
    PGL_PARAM_OBJECT,
    PGL_PARAM_READER,   /* has a function of its own */
    PGL_PARAM_TEXT,     /* may be large: not made into a value, its route reads the text of the body */
    PGL_PARAM_FLAG,     /* a boolean that its route reads */
    PGL_PARAM_ACCEPTED, /* any value, without effect */
    PGL_PARAM_REFUSED,  /* not supported: 400 when it is given and neither false nor empty */
} pgl_param_kind;

typedef struct pgl_param_reading {
    const json_t *value;
    uint32_t n_vocab;
    pgl_arena *arena;
    pgl_gen_params *params;
    pgl_refusal *err;
} pgl_param_reading;

typedef struct pgl_param_row {
    const char *name;
    pgl_param_kind kind;
    pgl_param_routes routes;
    size_t offset;    /* of the bool, int64_t or double in pgl_gen_params */
    double min, max;  /* both ends allowed */
    const char *note; /* a sentence for the documentation, without a full stop; REFUSED: what to do instead */
    bool (*read)(const pgl_param_reading *reading);
    const char *schema;        /* of READER and TEXT: the value's schema, by its name in openapi.json */
    pgl_param_routes required; /* where it must not be missing */
} pgl_param_row;

#define PGL_MOST_PARAM_ROWS 96

/* At most PGL_MOST_PARAM_ROWS; a name that means different things on different routes has several. */
const pgl_param_row *pgl_param_rows(size_t *n);

/* The first row of that name; NULL: unknown. */
const pgl_param_row *pgl_param_find(const char *name);

#endif
