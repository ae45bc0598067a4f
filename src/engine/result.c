/* Owns nothing: hands the results of a step to its requests and to the cache. */
#include "base/clock.h"
#include "engine/engine_impl.h"

/* A snapshot behind a row is of use when the request still lives the life in which it was planned: its pages are
 * those of the row. */
static void take_snapshot(pgl_engine *engine, const pgl_flight_row *info, const pgl_row_result *result) {
    pgl_request *r = info->request;
    if (info->snapshot == PGL_NO_SNAPSHOT)
        return;
    /* An inert row's slot ended earlier than the row was to: its length says where. */
    bool good = !result->non_finite && r->finish != PGL_FINISH_ERROR && r->life == info->life &&
                r->n_pages > 0 && result->length <= r->n_value && result->length > 0;
    if (good)
        pgl_cache_keep(engine->cache, info->snapshot, r->tokens, result->length, r->pages);
    else
        pgl_cache_drop_snapshot(engine->cache, info->snapshot);
}

static void take_prompt(pgl_request *r, const pgl_flight_row *info) {
    uint32_t end = info->first + info->n_tokens;
    if (info->first >= r->params.n_prompt)
        return;
    if (r->life == info->life)
        pgl_request_publish_state(r, PGL_REQUEST_PROMPT, end);
    if (!r->prompt_complete && end >= r->params.n_prompt) {
        r->prompt_complete = true;
        pgl_request_publish_prompt(r);
    }
}

/* What the row sampled is the request's next token, also when the request was parked meanwhile. */
static void take_token(pgl_engine *engine, const pgl_flight_row *info, const pgl_row_result *result) {
    pgl_request *r = info->request;
    int32_t token = r->tokens[r->n_value];
    if (r->first_ns == 0)
        r->first_ns = pgl_now_ns();
    if (result->end == PGL_ROW_STOP) {
        r->end_length = result->length;
        pgl_engine_end(engine, r, PGL_FINISH_STOP, token, NULL);
        return;
    }
    if (r->prompt_logprobs != NULL && r->n_top > 0 && info->first < r->params.n_prompt) {
        const pgl_token_logprob *last = r->prompt_top + (size_t)r->params.n_prompt * r->n_top;
        for (uint32_t i = 0; i < r->n_top; i++)
            r->top[0][i] = last[i];
    }
    r->n_value++;
    r->mask_token = token;
    engine->stats.generated_tokens++;
    pgl_request_publish_token(r);
    if (result->end == PGL_ROW_LIMIT) {
        r->end_length = result->length;
        pgl_engine_end(engine, r, PGL_FINISH_LENGTH, -1, NULL);
        return;
    }
    pgl_mask_ask(engine, r);
}

static void take_row(pgl_engine *engine, const pgl_flight_row *info, const pgl_row_result *result,
                     pgl_step_note note) {
    pgl_request *r = info->request;
    note.first = info->first;
    note.n_tokens = info->n_tokens;
    if (result->end != PGL_ROW_INERT) /* before the token: who has seen it may ask for its step */
        pgl_request_publish_step(r, &note);
    r->in_flight--;
    engine->slots[info->slot].in_flight--;
    if (r->life == info->life)
        r->n_landed = info->first + info->n_tokens;
    bool running = r->phase != PGL_PHASE_ENDED;
    if (running && result->non_finite) {
        pgl_error err;
        (void)pgl_fail(&err, PGL_E_NUMERIC, "the model's logits are not finite at token %u", info->first);
        pgl_cache_purge(engine->cache, r->number);
        pgl_engine_end(engine, r, PGL_FINISH_ERROR, -1, &err);
    } else if (running && result->end != PGL_ROW_INERT) {
        take_prompt(r, info);
        if (result->n_sampled > 0)
            take_token(engine, info, result);
        else if (r->max_tokens == 0 && info->first + info->n_tokens == r->params.n_prompt) {
            r->end_length = result->length;
            pgl_engine_end(engine, r, PGL_FINISH_LENGTH, -1, NULL);
        }
    }
    take_snapshot(engine, info, result);
    pgl_engine_make_ready(engine, r);
}

void pgl_engine_take_results(pgl_engine *engine, pgl_flight *flight, const pgl_step_timing *timing) {
    const pgl_step_note step = {.n_rows = (uint32_t)flight->n_rows,
                                .n_step_tokens = (uint32_t)timing->n_tokens,
                                .step_ns = timing->total_ns};
    for (size_t i = 0; i < flight->n_rows; i++)
        take_row(engine, &flight->info[i], &flight->results[i], step);
}
