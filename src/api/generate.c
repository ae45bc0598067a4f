/* Owns one generation of a session: prompt, request, text, and what becomes of the history. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/api_impl.h"
#include "base/alloc.h"
#include "base/utf8.h"

static const uint64_t look_ns = 100000000; /* between two looks at progress */

void pergola_generate_options_init(const pergola_model *model, pergola_generate_options *options) {
    pgl_sample_params p = pgl_runtime_sampling(model->runtime);
    *options = (pergola_generate_options){
        .size = sizeof *options,
        .temperature = p.temperature,
        .top_p = p.top_p,
        .min_p = p.min_p,
        .top_k = p.top_k,
        .presence_penalty = p.presence_penalty,
        .frequency_penalty = p.frequency_penalty,
        .repetition_penalty = p.repetition_penalty,
    };
}

/* What a generation works on. */
typedef struct work {
    pergola_session *session;
    pergola_generate_options options;
    const char *text;
    pgl_chat_prompt chat; /* of a chat */
    size_t n_ids_before;  /* of a raw session, for the way back */
    const pgl_ids *prompt;
    pgl_answer answer;
    pgl_request *request;
    pgl_ids forced;    /* echo */
    pgl_ids generated; /* raw: to be part of the text */
    pergola_text_callback callback;
    void *user;
    pergola_result result;
} work;

/* ---- the prompt ---- */

/* Nothing is computed: the answer is what was asked, as if the model had said it. */
static bool is_echo(const pergola_session *s) {
    return pgl_runtime_is_echo(s->model->runtime);
}

static int thinking_of(const pergola_session *s) {
    return pgl_runtime_thinking(s->model->runtime, s->thinking);
}

static pgl_status make_forced(work *w, pgl_error *err) {
    const pgl_runtime *runtime = w->session->model->runtime;
    uint32_t n_stop_ids;
    const int32_t *stop_ids = pgl_runtime_stop_ids(runtime, &n_stop_ids);
    pgl_status status = PGL_OK;
    if (!is_echo(w->session))
        return PGL_OK;
    if (w->text != NULL)
        status = pgl_tokenizer_encode(pgl_runtime_tokenizer(runtime), w->text, strlen(w->text),
                                      PGL_ENCODE_RAW, &w->forced, err);
    if (status == PGL_OK && n_stop_ids > 0 && !pgl_ids_append(&w->forced, stop_ids[0]))
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for the answer");
    return status;
}

static pergola_status make_chat_prompt(work *w, pergola_error *err) {
    const pergola_session *s = w->session;
    pgl_buf messages = PGL_BUF_INIT;
    if (!pgl_session_messages(s, w->text, &messages)) {
        pgl_buf_fini(&messages);
        return pgl_api_error(err, PERGOLA_NO_MEMORY, "no memory for the conversation");
    }
    const pgl_chat_request request = {
        .messages = {pgl_buf_text(&messages), messages.size},
        .thinking = thinking_of(s),
        .end = PGL_CHAT_ANSWER,
    };
    pgl_error inner;
    pgl_status status = pgl_chat_render(pgl_runtime_chat(s->model->runtime), &request, &w->chat, &inner);
    pgl_buf_fini(&messages);
    w->prompt = &w->chat.ids;
    return status == PGL_OK ? PERGOLA_OK : pgl_api_fail(err, &inner);
}

static pergola_status make_prompt(work *w, pergola_error *err) {
    pergola_session *s = w->session;
    if (!s->raw)
        return make_chat_prompt(w, err);
    w->n_ids_before = s->ids.count;
    w->prompt = &s->ids;
    return w->text != NULL ? pergola_session_add(s, NULL, w->text, err) : PERGOLA_OK;
}

/* ---- the request ---- */

static pergola_status check_options(const pergola_generate_options *o, pergola_error *err) {
    for (uint32_t i = 0; i < o->n_stop; i++) {
        const char *stop = o->stop != NULL ? o->stop[i] : NULL;
        if (stop == NULL || stop[0] == '\0')
            return pgl_api_error(err, PERGOLA_INVALID, "stop: string %u is empty", i);
        if (!pgl_utf8_valid(stop, strlen(stop)))
            return pgl_api_error(err, PERGOLA_INVALID, "stop: string %u is not UTF-8", i);
    }
    return PERGOLA_OK;
}

/* Places for snapshots, for the engine: inside the prompt, rising. */
static uint32_t *make_hints(const pgl_chat_prompt *chat, uint32_t *n) {
    uint32_t *hints = pgl_new(chat->n_turns, sizeof *hints);
    *n = 0;
    for (size_t i = 0; hints != NULL && i < chat->n_turns; i++) {
        uint32_t at = chat->turns[i];
        if (at > 0 && at < chat->ids.count && (*n == 0 || at > hints[*n - 1]))
            hints[(*n)++] = at;
    }
    return hints;
}

static pergola_status submit(work *w, pergola_error *err) {
    const pergola_generate_options *o = &w->options;
    const pgl_runtime *runtime = w->session->model->runtime;
    if (w->prompt->count == 0)
        return pgl_api_error(err, PERGOLA_INVALID, "there is no text to go on from");
    if (w->prompt->count > UINT32_MAX)
        return pgl_api_error(err, PERGOLA_CONTEXT_FULL, "the prompt has %zu tokens", w->prompt->count);
    pgl_error inner;
    if (make_forced(w, &inner) != PGL_OK)
        return pgl_api_fail(err, &inner);
    uint32_t n_stop_ids, n_hints;
    const int32_t *stop_ids = pgl_runtime_stop_ids(runtime, &n_stop_ids);
    uint32_t *hints = make_hints(&w->chat, &n_hints);
    w->result.seed = o->has_seed ? o->seed : pgl_random_seed();
    const pgl_request_params params = {
        .prompt = w->prompt->data,
        .n_prompt = (uint32_t)w->prompt->count,
        .sampling = {.temperature = o->temperature,
                     .top_p = o->top_p,
                     .min_p = o->min_p,
                     .top_k = o->top_k,
                     .presence_penalty = o->presence_penalty,
                     .frequency_penalty = o->frequency_penalty,
                     .repetition_penalty = o->repetition_penalty,
                     .seed = w->result.seed},
        .stop_ids = stop_ids,
        .n_stop_ids = n_stop_ids,
        .ignore_eos = o->ignore_end,
        .max_tokens = o->max_tokens > 0 ? o->max_tokens : UINT32_MAX,
        .snapshot_at = hints,
        .n_snapshot_at = n_hints,
        .forced = is_echo(w->session) ? w->forced.data : NULL,
        .n_forced = (uint32_t)w->forced.count,
    };
    pgl_status status = pgl_engine_submit(pgl_runtime_engine(runtime), &params, &w->request, &inner);
    free(hints);
    if (status != PGL_OK)
        return pgl_api_fail(err, &inner);
    (void)pthread_mutex_lock(&w->session->lock);
    w->session->running = w->request;
    if (w->session->cancelled)
        pgl_request_cancel(w->request);
    (void)pthread_mutex_unlock(&w->session->lock);
    return PERGOLA_OK;
}

/* ---- the answer ---- */

static void look(const work *w) {
    if (w->options.progress == NULL)
        return;
    pgl_request_view seen = pgl_request_progress(w->request);
    w->options.progress(w->options.progress_user, seen.n_read, seen.n_prompt);
}

static void take_usage(work *w, const pgl_usage *usage) {
    pergola_result *r = &w->result;
    r->prompt_tokens = usage->n_prompt;
    r->cached_tokens = usage->n_cached;
    r->answer_tokens = usage->n_generated;
    r->reasoning_tokens = w->answer.n_reasoning;
    r->queued_s = (double)usage->queued_ns * 1e-9;
    r->prompt_s = (double)usage->prompt_ns * 1e-9;
    r->answer_s = (double)usage->generation_ns * 1e-9;
}

/* Reads the request to its end. The text may be over before the tokens are. */
static pergola_status read_answer(work *w, pergola_error *err) {
    bool over = false, memory = true;
    pgl_event event = {.kind = PGL_EVENT_TOKEN};
    while (event.kind != PGL_EVENT_FINISH) {
        if (!pgl_request_wait(w->request, look_ns))
            look(w);
        if (!pgl_request_next(w->request, &event)) {
            event.kind = PGL_EVENT_TOKEN;
            continue;
        }
        if (event.kind != PGL_EVENT_TOKEN || over)
            continue;
        memory = memory && (!w->session->raw || pgl_ids_append(&w->generated, event.token));
        over = !pgl_answer_push(&w->answer, event.token) || !memory;
        if (over)
            pgl_request_cancel(w->request);
    }
    take_usage(w, &event.usage);
    if (!over)
        pgl_answer_finish(&w->answer, event.finish != PGL_FINISH_STOP);
    const pgl_answer *a = &w->answer;
    if (a->failed || !memory)
        return pgl_api_error(err, PERGOLA_NO_MEMORY, "no memory for the answer");
    pgl_error inner;
    if (event.finish == PGL_FINISH_ERROR && pgl_request_error(w->request, &inner) != PGL_OK)
        return pgl_api_fail(err, &inner);
    w->result.finish = a->stopped                             ? PERGOLA_FINISH_STOPPED
                       : a->matched                           ? PERGOLA_FINISH_STOP
                       : event.finish == PGL_FINISH_CANCELLED ? PERGOLA_FINISH_CANCELLED
                       : event.finish == PGL_FINISH_LENGTH    ? PERGOLA_FINISH_LENGTH
                                                              : PERGOLA_FINISH_END;
    return PERGOLA_OK;
}

/* ---- the history ---- */

static bool keep_chat(work *w) {
    pergola_session *s = w->session;
    char *user = w->text != NULL ? pgl_strndup(w->text, strlen(w->text)) : NULL;
    char *content = pgl_strndup(pgl_buf_text(&w->answer.answer), w->answer.answer.size);
    bool thought = w->answer.reasoning.size > 0;
    char *reasoning =
        thought ? pgl_strndup(pgl_buf_text(&w->answer.reasoning), w->answer.reasoning.size) : NULL;
    size_t before = s->n_messages;
    bool ok = content != NULL && (!thought || reasoning != NULL) && (w->text == NULL || user != NULL) &&
              (user == NULL || pgl_session_push(s, "user", user, NULL)) &&
              pgl_session_push(s, "assistant", content, reasoning);
    if (!ok) {
        s->n_messages = before; /* what was pushed is freed here */
        free(user);
        free(content);
        free(reasoning);
    }
    return ok;
}

/* The tokens themselves; where the text ended inside them, the text. */
static bool keep_raw(const work *w) {
    pgl_ids *ids = &w->session->ids;
    const pgl_buf *text = &w->answer.answer;
    if (w->answer.matched || w->answer.stopped)
        return pgl_tokenizer_encode(pgl_runtime_tokenizer(w->session->model->runtime), pgl_buf_text(text),
                                    text->size, PGL_ENCODE_TEXT, ids, NULL) == PGL_OK;
    bool ok = true;
    for (size_t i = 0; i < w->generated.count && ok; i++)
        ok = pgl_ids_append(ids, w->generated.data[i]);
    return ok;
}

static pergola_status open_answer(work *w, pergola_error *err) {
    const pergola_session *s = w->session;
    const pgl_answer_options options = {
        .tokenizer = pgl_runtime_tokenizer(s->model->runtime),
        .chat = !s->raw,
        .in_thought = w->chat.in_thought,
        .no_thinking = thinking_of(s) == 0,
        .stop = w->options.stop,
        .n_stop = w->options.n_stop,
        .callback = w->callback,
        .user = w->user,
    };
    pgl_error inner;
    return pgl_answer_open(&w->answer, &options, &inner) == PGL_OK ? PERGOLA_OK : pgl_api_fail(err, &inner);
}

static pergola_status run(work *w, pergola_error *err) {
    pergola_status status = check_options(&w->options, err);
    if (status == PERGOLA_OK)
        status = make_prompt(w, err);
    if (status != PERGOLA_OK)
        return status;
    status = open_answer(w, err);
    if (status == PERGOLA_OK)
        status = submit(w, err);
    if (status == PERGOLA_OK)
        status = read_answer(w, err);
    if (status == PERGOLA_OK && !(w->session->raw ? keep_raw(w) : keep_chat(w)))
        status = pgl_api_error(err, PERGOLA_NO_MEMORY, "no memory for the conversation");
    return status;
}

pergola_status pergola_generate(pergola_session *session, const char *text,
                                const pergola_generate_options *options, pergola_text_callback callback,
                                void *user, pergola_result *result, pergola_error *err) {
    work w = {.session = session, .text = text, .callback = callback, .user = user};
    pergola_generate_options_init(session->model, &w.options);
    if (options != NULL)
        memcpy(&w.options, options, options->size < sizeof w.options ? options->size : sizeof w.options);
    (void)pthread_mutex_lock(&session->lock);
    session->cancelled = false;
    (void)pthread_mutex_unlock(&session->lock);
    pergola_status status = run(&w, err);
    (void)pthread_mutex_lock(&session->lock);
    session->running = NULL;
    (void)pthread_mutex_unlock(&session->lock);
    pgl_request_release(w.request);
    if (status != PERGOLA_OK && session->raw && w.prompt != NULL)
        session->ids.count = w.n_ids_before;
    pgl_chat_prompt_fini(&w.chat);
    pgl_answer_close(&w.answer);
    pgl_ids_fini(&w.generated);
    pgl_ids_fini(&w.forced);
    if (result != NULL) {
        w.result.size = result->size;
        memcpy(result, &w.result, result->size < sizeof w.result ? result->size : sizeof w.result);
    }
    return status;
}
