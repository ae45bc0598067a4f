/* Prompts of a wanted number of tokens for the load generator: common English words drawn from a seed, so that two
 * prompts share next to nothing. Owns no connection: who counts tokens is a function. One thread. */
#ifndef PGL_CLI_LOAD_PROMPT_H
#define PGL_CLI_LOAD_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

/* A generator of numbers (splitmix64): the same seed gives the same row everywhere. */
typedef struct pgl_load_random {
    uint64_t state;
} pgl_load_random;

uint64_t pgl_load_random_next(pgl_load_random *random);
double pgl_load_random_real(pgl_load_random *random); /* 0 <= x < 1 */

typedef struct pgl_load_counter {
    void *user;
    /* The tokens that a request with this text has as its prompt. */
    pgl_status (*count)(void *user, const char *text, size_t size, uint32_t *n_tokens, pgl_error *err);
} pgl_load_counter;

typedef struct pgl_load_prompts {
    const pgl_load_counter *counter; /* NULL: a word counts as a token */
    double tokens_per_word;          /* what was seen so far; start with 1 */
} pgl_load_prompts;

/* Appends words to text, which may have a beginning already, until the whole counts n_tokens. *found is what it counts
 * in the end: with a counter n_tokens, or the nearest that words and letters gave; without one, the words of the
 * whole. PGL_E_INVALID when the beginning alone counts more. seed decides the words. */
pgl_status pgl_load_prompt_make(pgl_load_prompts *prompts, uint64_t seed, uint32_t n_tokens, pgl_buf *text,
                                uint32_t *found, pgl_error *err);

#endif
