/* The memory plan: what a model, a context and a number of slots take, known before anything is allocated. `pergola
 * plan` prints it, and opening a model refuses by it, with the same table.
 *
 * The plan covers the mapped weights, the pages of keys and values, the recurrent state of the slots, snapshots, and
 * the work space of the CPU backend. Nothing here allocates (but for text in the caller's buffer); any thread. */
#ifndef PGL_MODEL_PLAN_H
#define PGL_MODEL_PLAN_H

#include "base/buf.h"
#include "model/model.h"

#define PGL_PLAN_PAGE_TOKENS 64u
#define PGL_PLAN_STEP_TOKENS 512u
#define PGL_PLAN_MAX_LINES 8

/* What is wanted. Zeros take the value said beside them. */
typedef struct pgl_plan_request {
    uint32_t context_tokens; /* most tokens of one sequence, prompt and answer; 0: the model's limit */
    uint32_t n_slots;        /* sequences that run at the same time; 0: 1 */
    uint32_t n_snapshots;    /* recurrent states kept for the prefix cache */
    uint64_t cache_tokens;   /* tokens whose pages are kept beyond those of the slots, for the prefix cache */
    uint32_t page_tokens;    /* 0: PGL_PLAN_PAGE_TOKENS; a power of two */
    uint32_t step_tokens;    /* tokens computed together; 0: PGL_PLAN_STEP_TOKENS, or the context when less */
    uint32_t n_threads;      /* 0: 1 */
    uint32_t
        draft_tokens; /* most tokens drafted at once; 0: pages without the draft layer's keys and values */
    uint64_t weights_bytes;    /* of the mapped files, or the part of them that is used */
    uint64_t host_cache_bytes; /* host memory for what gives way in the prefix cache */
    uint64_t other_bytes;      /* tokenizer, queues: whatever the caller adds */
    uint64_t budget_bytes;     /* 0: no limit */
} pgl_plan_request;

typedef struct pgl_plan_line {
    const char *
        name; /* "weights", "keys and values", "recurrent state", "snapshots", "work space", "host cache", "other" */
    char detail[80];
    uint64_t bytes;
} pgl_plan_line;

typedef struct pgl_memory_plan {
    pgl_plan_line lines[PGL_PLAN_MAX_LINES];
    uint32_t n_lines;
    uint64_t total_bytes, budget_bytes;
    bool fits;        /* total within budget, or no budget */
    char advice[400]; /* what to lower, when it does not fit; "" otherwise */

    /* The request with its zeros filled in, and what a backend is opened with. */
    pgl_plan_request settled;
    uint32_t n_pages;
    uint64_t token_bytes; /* keys and values of one token */
} pgl_memory_plan;

/* Makes the plan. A plan that does not fit is PGL_OK with fits false. PGL_E_INVALID: a page size that is no power of
 * two from 16 to 1,024, a context above the model's limit, or sizes that overflow; PGL_E_TOO_LARGE: more pages than a
 * page table can number. */
pgl_status pgl_plan_memory(const pgl_model *model, const pgl_plan_request *request, pgl_memory_plan *plan,
                           pgl_error *err);

/* The largest context, at most that of the request, whose plan fits the request's budget; 0 when not even one page a
 * slot does. A multiple of the page size, unless it is the request's own context. */
pgl_status pgl_plan_largest_context(const pgl_model *model, const pgl_plan_request *request,
                                    uint32_t *context_tokens, pgl_error *err);

/* Appends the table, a line each, and the verdict. False when memory is out. */
bool pgl_plan_text(const pgl_memory_plan *plan, pgl_buf *out);

/* "20.0 KiB", "12.3 GiB"; at most 15 characters. */
void pgl_size_text(uint64_t bytes, char out[16]);

/* The check before opening: PGL_E_MEMORY with the numbers and the advice when the plan does not fit. */
pgl_status pgl_plan_check_fits(const pgl_memory_plan *plan, pgl_error *err);

#endif
