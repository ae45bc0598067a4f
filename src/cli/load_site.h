/* The server under load, seen with one question at a time: what it serves, how it counts tokens, and how a request to it
 * is written. Calls wait for the answer, on the event base's thread; a break of the event loop ends them with
 * PGL_E_CANCELLED. */
#ifndef PGL_CLI_LOAD_SITE_H
#define PGL_CLI_LOAD_SITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "cli/load_http.h"
#include "cli/load_prompt.h"

typedef enum pgl_load_tokenizer {
    PGL_LOAD_WORDS,        /* the server does not count: a word is taken for a token */
    PGL_LOAD_COUNTS_TEXT,  /* /tokenize counts texts; of a chat prompt the template is not counted */
    PGL_LOAD_COUNTS_WHOLE, /* /tokenize counts what the request has as its prompt */
} pgl_load_tokenizer;

typedef struct pgl_load_site_options {
    const char *url, *key, *model; /* key, model: may be NULL */
    bool chat;                     /* else /v1/completions */
    bool ignore_eos, tokenize;     /* tokenize: ask /tokenize, if there is one */
    const char *extra;             /* members of every request's body, "{..}"; NULL: none */
    double timeout_s, connect_timeout_s;
} pgl_load_site_options;

typedef struct pgl_load_site {
    pgl_load_site_options options;
    struct event_base *base;
    pgl_load_target target;
    char model[256], version[64]; /* version: what GET /version says; "" when it says nothing */
    pgl_load_tokenizer tokenizer;
    /* its own */
    pgl_load_http *http;
    pgl_buf extra; /* ,"name":value,.. */
    pgl_load_counter counter;
    pgl_load_prompts prompts;
    pgl_buf prefix;
    uint32_t prefix_tokens;
} pgl_load_site;

/* Checks the options and takes the URL apart; no network. Strings of options are borrowed. PGL_E_INVALID names the option
 * that is wrong. Close it also after a failure, of this or of the next. */
pgl_status pgl_load_site_init(const pgl_load_site_options *options, pgl_load_site *site, pgl_error *err);

/* Connects, asks for the models when none was named, for the version, and tries /tokenize. */
pgl_status pgl_load_site_open(struct event_base *base, pgl_load_site *site, pgl_error *err);
void pgl_load_site_close(pgl_load_site *site);

/* All prompts made afterwards begin with the same text of so many tokens: in chat as a system message. */
pgl_status pgl_load_site_prefix(pgl_load_site *site, uint64_t seed, uint32_t n_tokens, pgl_error *err);

/* Appends a whole request whose prompt has n_prompt tokens (*found: how many by the server's count, see
 * pgl_load_prompt_make) and that asks for max_tokens. */
pgl_status pgl_load_site_request(pgl_load_site *site, uint64_t seed, uint32_t n_prompt, uint32_t max_tokens,
                                 pgl_buf *request, uint32_t *found, pgl_error *err);

#endif
