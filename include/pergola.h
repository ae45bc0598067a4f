/* Pergola as a library: load a model, open a session, generate with a callback.
 *
 *     pergola_error err;
 *     pergola_model *model;
 *     pergola_model_options options;
 *     pergola_model_options_init(&options);
 *     options.path = "models/Qwen3.6-35B-A3B-Escha-W2";
 *     if (pergola_model_open(&options, &model, &err) != PERGOLA_OK)
 *         ...                                               err.text says why
 *     pergola_session *session;
 *     pergola_session_open(model, NULL, &session, &err);
 *     pergola_generate(session, "Why is the sky blue?", NULL, on_text, NULL, NULL, &err);
 *     pergola_session_close(session);
 *     pergola_model_close(model);
 *
 * examples/hello.c is a whole program.
 *
 * Threads. A model may be used by any number of threads. A session belongs to one thread at a time, but for
 * pergola_session_cancel, which any thread (and a signal handler's thread, not the handler itself) may call. Sessions of
 * one model generate at the same time as far as its slots go, and wait for each other beyond that. Callbacks are called
 * on the thread that called pergola_generate, and may call nothing of the same session but pergola_session_cancel.
 *
 * Ownership. Handles belong to the caller and are closed by the function of that name, which accepts NULL; sessions
 * before their model. Strings passed in are copied. Strings given out belong to their handle unless said otherwise.
 * Nothing here writes to standard output or error, installs a signal handler (with one exception: when a checkpoint's
 * file shrinks while it is in use, the process ends with a line that names it), or ends the process.
 *
 * Texts are UTF-8, terminated by a zero, unless a size is given.
 *
 * Versions. PERGOLA_API_VERSION rises when something is added. Options carry their size, set by their _init function, so
 * that a program built against an older header works with a newer library: what it does not know keeps its default.
 * Functions and enumerators are not removed or renumbered within a major version of the program. */
#ifndef PERGOLA_H
#define PERGOLA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PERGOLA_API_VERSION 1

#if defined(__GNUC__)
#define PERGOLA_EXPORT __attribute__((visibility("default")))
#else
#define PERGOLA_EXPORT
#endif

/* ---- errors ---- */

typedef enum pergola_status {
    PERGOLA_OK = 0,
    PERGOLA_INVALID = 1,      /* an argument; the text names it */
    PERGOLA_CONTEXT_FULL = 2, /* prompt and answer do not fit the context; the text has both numbers */
    PERGOLA_NOT_FOUND = 3,    /* a file, or a part of the checkpoint */
    PERGOLA_BAD_MODEL = 4,    /* the checkpoint contradicts itself or is damaged */
    PERGOLA_UNSUPPORTED = 5,  /* the checkpoint or an option asks for what this version does not do */
    PERGOLA_NO_MEMORY = 6,
    PERGOLA_IO = 7,
    PERGOLA_DEVICE = 8,
    PERGOLA_NOT_FINITE = 9, /* the model computed infinity or NaN */
    PERGOLA_CANCELLED = 10,
    PERGOLA_BUSY = 11, /* too many generations wait already */
    PERGOLA_INTERNAL = 12,
} pergola_status;

typedef struct pergola_error {
    pergola_status status;
    char text[1024]; /* what is wrong, what was expected, what was found */
} pergola_error;

/* A short name that does not change: "ok", "invalid", "context_full", ... */
PERGOLA_EXPORT const char *pergola_status_name(pergola_status status);

/* "0.1.0" */
PERGOLA_EXPORT const char *pergola_version(void);
PERGOLA_EXPORT int pergola_api_version(void);

/* ---- models ---- */

typedef struct pergola_model pergola_model;

typedef struct pergola_model_options {
    size_t size;           /* of this struct; set by _init */
    const char *path;      /* directory of the checkpoint; needed */
    const char *backend;   /* "cpu"; NULL: the best there is */
    uint32_t context;      /* most tokens of a session, prompts and answers; 0: 32,768, or what fits */
    uint32_t slots;        /* generations at the same time; 0: 1 */
    uint32_t threads;      /* CPU threads; 0: one for each CPU */
    uint64_t memory_bytes; /* most memory to use; 0: what the system has available */
    bool lock_memory;      /* keep the weights in memory (mlock) */
    bool strict;           /* refuse contradictions in the checkpoint that are otherwise noted */

    /* Called while opening, on the opening thread: what is being done, and done of total units of it (total 0: not
     * known). NULL: not called. */
    void (*progress)(void *user, const char *what, uint64_t done, uint64_t total);
    void *user;
} pergola_model_options;

PERGOLA_EXPORT void pergola_model_options_init(pergola_model_options *options);

/* Opens and checks a checkpoint and makes it ready to answer. err may be NULL. */
PERGOLA_EXPORT pergola_status pergola_model_open(const pergola_model_options *options, pergola_model **out,
                                                 pergola_error *err);
PERGOLA_EXPORT void pergola_model_close(pergola_model *model);

typedef struct pergola_model_info {
    size_t size;
    const char *name;    /* of the directory */
    const char *backend; /* "cpu" */
    const char *device;  /* a line: instruction set, threads, card */
    const char *memory;  /* the memory table, lines of text */
    const char *notes;   /* what the checkpoint's reader noted; "" when nothing */
    uint32_t context;    /* tokens of prompt and answer together */
    uint32_t vocabulary; /* token ids that can be sampled */
    bool has_chat;       /* the checkpoint has a chat template */
} pergola_model_info;

/* info->size is to be set by the caller; that much is written. */
PERGOLA_EXPORT void pergola_model_get_info(const pergola_model *model, pergola_model_info *info);

/* ---- sessions ---- */

typedef struct pergola_session pergola_session;

typedef struct pergola_session_options {
    size_t size;
    bool raw;           /* no chat: text goes to the model as it is, spellings of control tokens included */
    const char *system; /* system prompt; NULL: none */
    int thinking;       /* 1 on, 0 off, -1: the template's own default */
} pergola_session_options;

PERGOLA_EXPORT void pergola_session_options_init(pergola_session_options *options);

/* A conversation without messages, or a text of no characters. options may be NULL: a chat. PERGOLA_UNSUPPORTED when
 * the model has no chat template and raw is false. */
PERGOLA_EXPORT pergola_status pergola_session_open(pergola_model *model,
                                                   const pergola_session_options *options,
                                                   pergola_session **out, pergola_error *err);
PERGOLA_EXPORT void pergola_session_close(pergola_session *session);

/* Chats: appends a message. role is "system", "user" or "assistant". Raw sessions: appends text; role is NULL. */
PERGOLA_EXPORT pergola_status pergola_session_add(pergola_session *session, const char *role,
                                                  const char *text, pergola_error *err);

/* From the next answer on. */
PERGOLA_EXPORT void pergola_session_set_thinking(pergola_session *session, int thinking);
PERGOLA_EXPORT pergola_status pergola_session_set_system(pergola_session *session, const char *system,
                                                         pergola_error *err); /* NULL: none */

/* Forgets all messages (the system prompt stays) or all text. */
PERGOLA_EXPORT void pergola_session_clear(pergola_session *session);

/* Takes the last user message and everything behind it out of a chat. False when there is none. */
PERGOLA_EXPORT bool pergola_session_undo(pergola_session *session);

/* The running pergola_generate of the session ends soon, with PERGOLA_FINISH_CANCELLED. Any thread. */
PERGOLA_EXPORT void pergola_session_cancel(pergola_session *session);

/* ---- generating ---- */

typedef struct pergola_generate_options {
    size_t size;
    uint32_t max_tokens; /* of the answer, thinking included; 0: as many as the context holds */
    /* As the model's authors recommend, after _init. */
    float temperature;        /* 0 .. 100; 0: always the most likely token */
    float top_p;              /* above 0, up to 1; 1: off */
    float min_p;              /* 0 .. 1; 0: off */
    int32_t top_k;            /* 0: off */
    float presence_penalty;   /* -2 .. 2 */
    float frequency_penalty;  /* -2 .. 2 */
    float repetition_penalty; /* above 0, up to 10; 1: off */
    bool has_seed;            /* false: a random one */
    uint64_t seed;            /* the same seed, session and options give the same answer */
    const char *const *stop;  /* strings at which the visible answer ends; they are not part of it */
    uint32_t n_stop;
    bool ignore_end; /* the model's own end tokens do not end the answer */

    /* Called now and then while the prompt is read, tokens done of total. NULL: not called. */
    void (*progress)(void *user, uint32_t done, uint32_t total);
    void *progress_user;
} pergola_generate_options;

PERGOLA_EXPORT void pergola_generate_options_init(const pergola_model *model,
                                                  pergola_generate_options *options);

typedef enum pergola_text_kind {
    PERGOLA_TEXT_ANSWER = 0,
    PERGOLA_TEXT_REASONING = 1, /* what a thinking model writes before its answer */
} pergola_text_kind;

/* A piece of text, valid UTF-8 without cut characters, terminated behind size bytes. Returning false ends the answer
 * there, with PERGOLA_FINISH_STOPPED. */
typedef bool (*pergola_text_callback)(void *user, pergola_text_kind kind, const char *text, size_t size);

typedef enum pergola_finish {
    PERGOLA_FINISH_END = 0,       /* the model ended its answer */
    PERGOLA_FINISH_LENGTH = 1,    /* max_tokens, or the context is full */
    PERGOLA_FINISH_STOP = 2,      /* a stop string */
    PERGOLA_FINISH_STOPPED = 3,   /* the callback returned false */
    PERGOLA_FINISH_CANCELLED = 4, /* pergola_session_cancel */
} pergola_finish;

typedef struct pergola_result {
    size_t size;
    pergola_finish finish;
    uint32_t prompt_tokens;    /* all of the conversation so far */
    uint32_t cached_tokens;    /* of them taken from the cache */
    uint32_t answer_tokens;    /* generated, thinking included */
    uint32_t reasoning_tokens; /* of them thinking */
    double queued_s, prompt_s, answer_s;
    uint64_t seed; /* that was used */
} pergola_result;

/* Appends text (NULL: nothing) as a user message, or as it is in a raw session, and generates. The answer is handed to
 * callback (NULL: none) and appended to the session, also when it was cut short; a session whose generation failed is as
 * it was before the call. options NULL: the defaults. result, when not NULL, has its size set by the caller.
 * PERGOLA_OK also for answers that were stopped or cancelled. */
PERGOLA_EXPORT pergola_status pergola_generate(pergola_session *session, const char *text,
                                               const pergola_generate_options *options,
                                               pergola_text_callback callback, void *user,
                                               pergola_result *result, pergola_error *err);

/* Tokens that text has for the model, as raw text. */
PERGOLA_EXPORT pergola_status pergola_count_tokens(const pergola_model *model, const char *text,
                                                   uint32_t *n_tokens, pergola_error *err);

#ifdef __cplusplus
}
#endif

#endif
