/* A model made ready to answer: the layer between the engine and whoever talks to users (server, command line,
 * the C API of pergola.h).
 *
 * pgl_runtime_open reads and checks the checkpoint, plans memory (and refuses, with the table, when it does not
 * fit), opens tokenizer, chat template and backend, computes a fixed prompt to see that logits are finite, and
 * starts the engine. What it gives out is read-only and may be used by any thread until pgl_runtime_close. */
#ifndef PGL_API_RUNTIME_H
#define PGL_API_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/status.h"
#include "checkpoint/config.h"
#include "checkpoint/fingerprint.h"
#include "engine/engine.h"
#include "model/plan.h"
#include "sampling/sampling.h"
#include "text/chat.h"
#include "text/tokenizer.h"

typedef struct pgl_runtime pgl_runtime;

/* Zeros take the value said beside them. */
typedef struct pgl_runtime_options {
    const char *model; /* directory of the checkpoint */
    const char
        *backend; /* "cpu"; "echo": nothing is computed, answers are the requests' forced tokens; NULL: the
                            best there is */
    uint32_t
        context; /* most tokens of one sequence; 0: PGL_RUNTIME_CONTEXT, or less when the model's limit or
                            the memory is less */
    uint32_t n_slots;   /* sequences that run at the same time; 0: 1 */
    uint32_t n_threads; /* CPU; 0: one for each CPU */
    bool pin_threads;
    uint64_t memory_bytes; /* most memory to use, mapped weights included; 0: what the system has available */
    uint64_t cache_bytes;  /* of it for the prefix cache; 0: chosen */
    uint64_t
        host_cache_bytes; /* of it, host memory for what the prefix cache has no room for; 0: none. Useful where the
                                  cache lives in other memory than the host's. */
    bool no_prefix_cache;
    bool lock_memory; /* mlock the weights */
    bool strict;      /* contradictions in the checkpoint are errors */
    uint32_t max_queue;
    uint32_t prefill_chunk; /* 0: the engine's */
    uint64_t echo_step_ns;  /* echo: time of a step */
    const char *force_isa;  /* CPU: "scalar", "avx2", "avx512", "neon"; NULL: the best there is */

    /* Called from the opening thread as work advances: "checking weights", done of total bytes. May be NULL. */
    void (*progress)(void *user, const char *what, uint64_t done, uint64_t total);
    void *user;
} pgl_runtime_options;

#define PGL_RUNTIME_CONTEXT 32768u

/* PGL_E_NOT_FOUND, PGL_E_FORMAT, PGL_E_UNSUPPORTED: the checkpoint; PGL_E_INVALID: an option; PGL_E_MEMORY: it does not
 * fit (the message holds the table); PGL_E_NUMERIC: the model computes nonsense. */
pgl_status pgl_runtime_open(const pgl_runtime_options *options, pgl_runtime **out, pgl_error *err);

/* The plan that pgl_runtime_open would open the CPU backend with, from the headers of the checkpoint's files alone.
 * plan->fits is false, with PGL_OK, where opening would be refused for lack of memory. */
pgl_status pgl_runtime_plan_of(const pgl_runtime_options *options, pgl_memory_plan *plan, pgl_error *err);

/* Cancels what runs. NULL is allowed. */
void pgl_runtime_close(pgl_runtime *runtime);

const pgl_config *pgl_runtime_config(const pgl_runtime *runtime);
const pgl_tokenizer *pgl_runtime_tokenizer(const pgl_runtime *runtime);
const pgl_chat *pgl_runtime_chat(const pgl_runtime *runtime); /* NULL: the checkpoint has no chat template */
pgl_engine *pgl_runtime_engine(const pgl_runtime *runtime);
const pgl_backend_caps *pgl_runtime_caps(const pgl_runtime *runtime);

/* Nothing is computed: requests carry the tokens of their answers. */
bool pgl_runtime_is_echo(const pgl_runtime *runtime);

/* Whether answers begin with a thought, from what was asked: -1 (nothing: the template decides), 0 or 1. Where nothing is
 * computed nobody closes a thought, so that one is opened only when it is asked for. */
int pgl_runtime_thinking(const pgl_runtime *runtime, int asked);

/* The last part of the directory's path. */
const char *pgl_runtime_name(const pgl_runtime *runtime);

uint32_t pgl_runtime_context(const pgl_runtime *runtime); /* tokens of prompt and answer */
uint32_t pgl_runtime_n_vocab(const pgl_runtime *runtime); /* ids that can be sampled */

/* generation_config.json's sampling; where it says nothing, temperature 1 and everything else off. seed is 0. */
pgl_sample_params pgl_runtime_sampling(const pgl_runtime *runtime);

/* End-of-sequence ids. */
const int32_t *pgl_runtime_stop_ids(const pgl_runtime *runtime, uint32_t *n);

/* The memory table (empty for echo), and what the checkpoint's reader noted; lines of text. */
const char *pgl_runtime_plan(const pgl_runtime *runtime);
const char *pgl_runtime_notes(const pgl_runtime *runtime);

/* What tells the model from others: checkpoint/fingerprint.h. */
pgl_status pgl_runtime_fingerprint(const pgl_runtime *runtime, char out[PGL_FINGERPRINT_TEXT],
                                   pgl_error *err);

/* A random number from the system, for requests without a seed. */
uint64_t pgl_random_seed(void);

#endif
