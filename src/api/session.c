/* Owns the history of a session: messages of a chat, token ids of a raw text. */
#include <stdlib.h>
#include <string.h>

#include "api/api_impl.h"
#include "base/alloc.h"
#include "base/json.h"

void pergola_session_options_init(pergola_session_options *options) {
    *options = (pergola_session_options){.size = sizeof *options, .thinking = -1};
}

pergola_status pergola_session_open(pergola_model *model, const pergola_session_options *options,
                                    pergola_session **out, pergola_error *err) {
    *out = NULL;
    pergola_session_options o;
    pergola_session_options_init(&o);
    if (options != NULL)
        memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (!o.raw && pgl_runtime_chat(model->runtime) == NULL)
        return pgl_api_error(err, PERGOLA_UNSUPPORTED,
                             "the model comes without a chat template: only raw sessions are possible");
    pergola_session *session = pgl_new(1, sizeof *session);
    if (session == NULL || pthread_mutex_init(&session->lock, NULL) != 0) {
        free(session);
        return pgl_api_error(err, PERGOLA_NO_MEMORY, "no memory for a session");
    }
    session->model = model;
    session->raw = o.raw;
    session->thinking = o.thinking;
    pergola_status status = pergola_session_set_system(session, o.system, err);
    if (status != PERGOLA_OK) {
        pergola_session_close(session);
        return status;
    }
    *out = session;
    return PERGOLA_OK;
}

static void drop_messages(pergola_session *session, size_t from) {
    for (size_t i = from; i < session->n_messages; i++) {
        free(session->messages[i].content);
        free(session->messages[i].reasoning);
    }
    session->n_messages = from < session->n_messages ? from : session->n_messages;
}

void pergola_session_close(pergola_session *session) {
    if (session == NULL)
        return;
    drop_messages(session, 0);
    free(session->messages);
    free(session->system);
    pgl_ids_fini(&session->ids);
    (void)pthread_mutex_destroy(&session->lock);
    free(session);
}

bool pgl_session_push(pergola_session *session, const char *role, char *content, char *reasoning) {
    if (!pgl_grow(&session->messages, sizeof *session->messages, &session->messages_capacity,
                  session->n_messages + 1))
        return false;
    session->messages[session->n_messages++] = (pgl_message){role, content, reasoning};
    return true;
}

static pergola_status add_raw(pergola_session *session, const char *role, const char *text,
                              pergola_error *err) {
    if (role != NULL)
        return pgl_api_error(err, PERGOLA_INVALID, "role: a raw session has none, found \"%s\"", role);
    pgl_error inner;
    pgl_status status = pgl_tokenizer_encode(pgl_runtime_tokenizer(session->model->runtime), text,
                                             strlen(text), PGL_ENCODE_RAW, &session->ids, &inner);
    return status == PGL_OK ? PERGOLA_OK : pgl_api_fail(err, &inner);
}

pergola_status pergola_session_add(pergola_session *session, const char *role, const char *text,
                                   pergola_error *err) {
    if (text == NULL)
        return pgl_api_error(err, PERGOLA_INVALID, "text: expected a string, found NULL");
    if (session->raw)
        return add_raw(session, role, text, err);
    static const char *const roles[] = {"system", "user", "assistant"};
    for (size_t i = 0; role != NULL && i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(role, roles[i]) != 0)
            continue;
        char *copy = pgl_strndup(text, strlen(text));
        if (copy != NULL && pgl_session_push(session, roles[i], copy, NULL))
            return PERGOLA_OK;
        free(copy);
        return pgl_api_error(err, PERGOLA_NO_MEMORY, "no memory for a message of %zu bytes", strlen(text));
    }
    return pgl_api_error(err, PERGOLA_INVALID, "role: expected system, user or assistant, found %s%s%s",
                         role != NULL ? "\"" : "", role != NULL ? role : "none", role != NULL ? "\"" : "");
}

void pergola_session_set_thinking(pergola_session *session, int thinking) {
    session->thinking = thinking;
}

pergola_status pergola_session_set_system(pergola_session *session, const char *system, pergola_error *err) {
    char *copy = system != NULL ? pgl_strndup(system, strlen(system)) : NULL;
    if (system != NULL && copy == NULL)
        return pgl_api_error(err, PERGOLA_NO_MEMORY, "no memory for a system prompt of %zu bytes",
                             strlen(system));
    free(session->system);
    session->system = copy;
    return PERGOLA_OK;
}

void pergola_session_clear(pergola_session *session) {
    drop_messages(session, 0);
    session->ids.count = 0;
}

bool pergola_session_undo(pergola_session *session) {
    size_t at = session->n_messages;
    while (at > 0 && strcmp(session->messages[at - 1].role, "user") != 0)
        at--;
    if (at == 0)
        return false;
    drop_messages(session, at - 1);
    return true;
}

void pergola_session_cancel(pergola_session *session) {
    (void)pthread_mutex_lock(&session->lock);
    session->cancelled = true;
    if (session->running != NULL)
        pgl_request_cancel(session->running);
    (void)pthread_mutex_unlock(&session->lock);
}

static bool put_message(pgl_buf *out, const char *role, const char *content, const char *reasoning) {
    bool ok = pgl_buf_puts(out, out->size > 1 ? ",{\"role\":\"" : "{\"role\":\"") &&
              pgl_buf_puts(out, role) && pgl_buf_puts(out, "\",\"content\":") &&
              pgl_json_put_string(out, content, strlen(content));
    if (ok && reasoning != NULL)
        ok = pgl_buf_puts(out, ",\"reasoning_content\":") &&
             pgl_json_put_string(out, reasoning, strlen(reasoning));
    return ok && pgl_buf_putc(out, '}');
}

bool pgl_session_messages(const pergola_session *session, const char *user, pgl_buf *out) {
    bool ok = pgl_buf_putc(out, '[');
    if (ok && session->system != NULL)
        ok = put_message(out, "system", session->system, NULL);
    for (size_t i = 0; i < session->n_messages && ok; i++) {
        const pgl_message *m = &session->messages[i];
        ok = put_message(out, m->role, m->content, m->reasoning);
    }
    if (ok && user != NULL)
        ok = put_message(out, "user", user, NULL);
    return ok && pgl_buf_putc(out, ']');
}
