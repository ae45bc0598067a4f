/* Owns what was collected. */
#include "text/message.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/json.h"

static void pass(pgl_message *m, const pgl_output_delta *d) {
    if (m->forward != NULL)
        m->forward(m->user, d);
}

static void keep(pgl_message *m, pgl_buf *to, const char *text, size_t size) {
    m->failed = !pgl_buf_append(to, text, size) || m->failed;
}

/* What came through the stop strings. */
static void give_content(pgl_message *m) {
    pgl_output_delta d = {.kind = PGL_OUTPUT_CONTENT, .text = pgl_buf_text(&m->work), .size = m->work.size};
    if (d.size == 0)
        return;
    keep(m, &m->content, d.text, d.size);
    pass(m, &d);
    pgl_buf_clear(&m->work);
}

static void content(pgl_message *m, const pgl_output_delta *d) {
    if (m->stop == NULL) {
        keep(m, &m->work, d->text, d->size);
    } else {
        pgl_stop_answer answer = pgl_stop_push(m->stop, d->text, d->size, &m->work);
        m->stopped = answer == PGL_STOP_MATCHED;
        m->failed = m->failed || answer == PGL_STOP_FAILED;
    }
    give_content(m);
}

/* No content comes behind a call. */
static void release(pgl_message *m) {
    if (m->stop != NULL)
        m->failed = !pgl_stop_finish(m->stop, &m->work) || m->failed;
    give_content(m);
}

void pgl_message_delta(void *message, const pgl_output_delta *d) {
    pgl_message *m = message;
    if (m->stopped)
        return;
    switch (d->kind) {
    case PGL_OUTPUT_REASONING:
        keep(m, &m->reasoning, d->text, d->size);
        break;
    case PGL_OUTPUT_CONTENT:
        content(m, d);
        return;
    case PGL_OUTPUT_CALL:
        release(m);
        if (!pgl_grow(&m->calls, sizeof *m->calls, &m->calls_capacity, m->n_calls + 1)) {
            m->failed = true;
            return;
        }
        m->calls[m->n_calls] = (pgl_message_call){0};
        keep(m, &m->calls[m->n_calls++].name, d->text, d->size);
        break;
    case PGL_OUTPUT_ARGUMENTS:
        if (d->call < m->n_calls)
            keep(m, &m->calls[d->call].arguments, d->text, d->size);
        break;
    case PGL_OUTPUT_CALL_END:
        if (d->call < m->n_calls)
            m->calls[d->call].complete = true;
        break;
    }
    pass(m, d);
}

void pgl_message_finish(pgl_message *m) {
    if (!m->stopped)
        release(m);
}

void pgl_message_fini(pgl_message *m) {
    pgl_buf_fini(&m->reasoning);
    pgl_buf_fini(&m->content);
    pgl_buf_fini(&m->work);
    for (size_t i = 0; i < m->n_calls; i++) {
        pgl_buf_fini(&m->calls[i].name);
        pgl_buf_fini(&m->calls[i].arguments);
    }
    free(m->calls);
    *m = (pgl_message){0};
}

static bool put_string(pgl_buf *out, const pgl_buf *text) {
    return pgl_json_put_string(out, pgl_buf_text(text), text->size);
}

bool pgl_message_put_json(const pgl_message *m, const char *call_id, pgl_buf *out) {
    bool ok = pgl_buf_puts(out, "{\"role\":\"assistant\",\"content\":");
    ok = ok &&
         (m->content.size == 0 && m->n_calls > 0 ? pgl_buf_puts(out, "null") : put_string(out, &m->content));
    if (ok && m->reasoning.size > 0)
        ok = pgl_buf_puts(out, ",\"reasoning_content\":") && put_string(out, &m->reasoning);
    for (size_t i = 0; ok && i < m->n_calls; i++) {
        const pgl_message_call *c = &m->calls[i];
        ok = pgl_buf_printf(out, "%s{\"id\":\"%s%zu\",\"type\":\"function\",\"function\":{\"name\":",
                            i == 0 ? ",\"tool_calls\":[" : ",", call_id, i) &&
             put_string(out, &c->name) && pgl_buf_puts(out, ",\"arguments\":") &&
             put_string(out, &c->arguments) && pgl_buf_puts(out, "}}");
    }
    if (ok && m->n_calls > 0)
        ok = pgl_buf_putc(out, ']');
    return ok && pgl_buf_putc(out, '}');
}
