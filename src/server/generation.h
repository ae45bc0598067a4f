/* One request's answer in the making: the sequences of the engine that it needs, their text, their events, and the way
 * to the client.
 *
 * A handler makes a generation, adds its sequences and starts it; from then on it belongs to itself. The engine's
 * notify, a client that has room again or goes, and the watch thread schedule it; a worker then takes what the
 * sequences have sampled, turns it into deltas and hands those to the dialect, which writes them down (streaming) or
 * gathers them. A generation runs on one worker at a time. It ends when all its sequences have, when its client is
 * gone, when its time is up or when one of them fails, and frees itself.
 *
 * What an answer looks like is the dialect's alone: a table of functions, one table for each API. */
#ifndef PGL_SERVER_GENERATION_H
#define PGL_SERVER_GENERATION_H

#include "base/arena.h"
#include "server/choice_text.h"
#include "server/server_impl.h"

#define PGL_LOGPROB_LISTS 4

/* One piece of an answer. */
typedef struct pgl_choice {
    uint32_t index, prompt; /* of the answer; of the prompt it answers */
    pgl_request *request;   /* NULL: ended */
    pgl_choice_text *text;
    uint32_t n_tokens, n_reasoning;
    bool begun;            /* chat: its role has been sent */
    bool prompt_given;     /* echo */
    const char *finish;    /* static; NULL: not yet */
    const char *stop_text; /* which stop string it was; NULL: none */
    int32_t stop_id;       /* which end token; -1: none */

    /* Entries of log-probabilities that have not been sent; what each list holds is the dialect's. */
    pgl_out logprobs[PGL_LOGPROB_LISTS];
    uint32_t n_logprobs;
    uint32_t offset_chars; /* completions: code points before the next token */

    /* gathered when not streaming, and for the log */
    pgl_buf content, reasoning, arguments;
    pgl_out calls; /* tool calls as JSON objects, comma-separated; the last may still be open */
    bool in_call;
    uint32_t n_calls;
} pgl_choice;

typedef struct pgl_gen_prompt {
    pgl_ids ids;
    pgl_ids forced;  /* echo: what is answered */
    uint32_t *turns; /* places for snapshots; in the arena */
    uint32_t n_turns;
    bool in_thought, continued;
    pgl_cache_decision cache; /* of its first choice, once that has ended */
} pgl_gen_prompt;

/* Every function appends JSON (or events) to out. */
typedef struct pgl_dialect {
    /* A token's log-probabilities, to choice->logprobs. NULL: the dialect has none. */
    void (*logprob)(pgl_generation *gen, pgl_choice *choice, const pgl_event *event);
    /* With echo: the prompt's part, before the first delta; event is NULL without log-probabilities. NULL: the dialect
     * has no echo. */
    void (*prompt)(pgl_generation *gen, pgl_choice *choice, const pgl_event *event, pgl_out *out);
    /* Streaming: a delta, a choice's end, the end of all. */
    void (*delta)(pgl_generation *gen, pgl_choice *choice, const pgl_delta *delta, pgl_out *out);
    void (*finish)(pgl_generation *gen, pgl_choice *choice, pgl_out *out);
    void (*tail)(pgl_generation *gen, pgl_out *out);
    void (*failure)(pgl_generation *gen, const pgl_refusal *err, pgl_out *out);
    /* Not streaming: the whole body. */
    void (*whole)(pgl_generation *gen, pgl_out *out);
} pgl_dialect;

struct pgl_generation_trace;

struct pgl_generation {
    pgl_job job; /* first: a job's address is its generation's */
    _Atomic(int) state;

    /* fixed after start */
    pgl_server *server;
    pgl_exchange *exchange;
    const pgl_dialect *dialect;
    pgl_arena *arena;
    json_t *body; /* NULL once the answer has begun */
    pgl_gen_params params;
    char id[160];
    int64_t created;
    uint64_t start_ns;
    uint64_t seed;        /* when the request has none */
    pgl_constraint *form; /* compiled once; choices run copies of it */
    pgl_json_span tools;  /* of the body's text; none: no call is taken */
    pgl_choice_text_options text;
    pgl_gen_prompt *prompts;
    uint32_t n_prompts, n_choices;

    /* the worker that runs it */
    pgl_choice *choices;
    pgl_out out;
    uint64_t first_token_ns; /* 0: none yet */
    bool failed;
    pgl_refusal error;
    struct pgl_generation_trace *trace; /* trace_record.c's; NULL: none */
    bool noted, admitted;               /* first is filled; its choice had left the queue */
    pgl_usage first;                    /* of the first choice, for the log */

    atomic_bool gone, timed_out, cut;

    /* guarded by the server's watch_lock */
    uint64_t deadline_ns;
    bool watched;
    pgl_generation *previous_watched, *next_watched;
};

/* Takes over exchange and body: after a failure too, when both are released and the error has been answered. */
pgl_generation *pgl_generation_open(pgl_server *server, pgl_exchange *exchange, json_t *body,
                                    const pgl_dialect *dialect, const char *id_prefix);

/* Before start: answers with the error and frees. */
void pgl_generation_refuse(pgl_generation *gen, const pgl_refusal *err);

/* prompts and params are set. Checks lengths against the context, submits n sequences for each prompt, starts the stream
 * and lets go. The generation must not be touched afterwards. */
void pgl_generation_start(pgl_generation *gen, const pgl_choice_text_options *text);

/* For dialects. */
typedef struct pgl_gen_usage {
    uint32_t prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens;
    pgl_cache_decision cache; /* of the first prompt */
} pgl_gen_usage;

pgl_gen_usage pgl_generation_usage(const pgl_generation *gen);
/* The error event that ends an OpenAI stream: the hook of both dialects. */
void pgl_put_failure(pgl_generation *gen, const pgl_refusal *err, pgl_out *out);
void pgl_put_usage(const pgl_gen_usage *usage, pgl_out *out); /* the OpenAI object */

/* For the request log (generation_record.c): what the engine says of the first choice, at its end or where it is when
 * nobody wants more; and all of it into the exchange's record, before the generation is freed. */
pgl_usage pgl_generation_progress(const pgl_generation *gen, const pgl_choice *choice, bool *admitted);
void pgl_generation_note(pgl_generation *gen, const pgl_choice *choice, const pgl_usage *usage,
                         bool admitted);
void pgl_generation_record(pgl_generation *gen);

/* The thread that ends generations whose time is up. */
pgl_status pgl_generation_watch_open(pgl_server *server, pgl_error *err);
void pgl_generation_watch_close(pgl_server *server);

/* Ends every running answer, and those that begin later, with an error that says so. */
void pgl_generation_cut_all(pgl_server *server);

#endif
