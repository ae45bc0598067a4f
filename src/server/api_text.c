/* Text and tokens without the model: /tokenize, /detokenize, /apply-template. */
#include <stdlib.h>
#include <string.h>

#include "server/chat_prompt.h"
#include "server/server_impl.h"
#include "text/decode.h"

typedef struct call {
    pgl_server *server;
    pgl_exchange *exchange;
    json_t *body;
    pgl_refusal err;
    pgl_out out;
} call;

/* Every handler here: read the body, do the work, answer, give back. */
static void serve(pgl_server *server, pgl_exchange *exchange, bool (*work)(call *self)) {
    call self = {.server = server, .exchange = exchange};
    self.body = pgl_read_body(exchange, &self.err);
    bool fine = self.body && work(&self);
    if (fine)
        pgl_answer_json(exchange, 200, &self.out);
    else
        pgl_answer_error(exchange, &self.err);
    pgl_out_fini(&self.out);
    json_decref(self.body);
    pgl_exchange_release(exchange);
}

static bool read_flag(call *self, const char *name, bool *target) {
    const json_t *value = json_object_get(self->body, name);
    if (!value || json_is_null(value))
        return true;
    if (!json_is_boolean(value))
        return pgl_refuse_field(&self->err, name, "%s must be a boolean, not %s", name,
                                pgl_json_type_text(value));
    *target = json_is_true(value);
    return true;
}

/* ---- tokenize ---- */

static bool encode(call *self, pgl_ids *ids) {
    static const char *const names[] = {"content", "prompt", "text"};
    pgl_error why;
    const char *name = NULL;
    pgl_json_span value = {NULL, 0};
    pgl_buf text = PGL_BUF_INIT;
    bool parse_special = true, add_special = false;
    for (size_t i = 3; i-- > 0;) {
        pgl_json_span one = pgl_body_field(self->exchange, names[i]);
        if (one.text && one.text[0] != '"')
            return pgl_refuse_field(&self->err, names[i], "%s must be a string, not %s", names[i],
                                    pgl_span_type(one));
        if (one.text) {
            name = names[i];
            value = one;
        }
    }
    if (!value.text)
        return pgl_refuse_field(&self->err, "content", "content (or prompt, or messages) is missing");
    if (!read_flag(self, "parse_special", &parse_special) || !read_flag(self, "add_special", &add_special) ||
        !read_flag(self, "add_special_tokens", &add_special))
        return false;
    pgl_status status =
        pgl_json_raw_string(value, &text)
            ? pgl_tokenizer_encode(self->server->tokenizer, pgl_buf_text(&text), text.size,
                                   parse_special ? PGL_ENCODE_RAW : PGL_ENCODE_TEXT, ids, &why)
            : pgl_fail(&why, PGL_E_MEMORY, "no memory for this text");
    pgl_buf_fini(&text);
    return status == PGL_OK || pgl_refuse_status(&self->err, &why, name);
}

static void put_pieces(const call *self, const pgl_ids *ids, pgl_out *out) {
    pgl_out_raw(out, ",\"pieces\":[");
    for (size_t i = 0; i < ids->count; i++) {
        size_t size;
        const char *bytes = pgl_tokenizer_bytes(self->server->tokenizer, ids->data[i], &size);
        if (i > 0)
            pgl_out_raw(out, ",");
        pgl_out_string(out, bytes ? bytes : "", size);
    }
    pgl_out_raw(out, "]");
}

static bool tokenize(call *self) {
    pgl_ids ids = {0};
    pgl_chat_prompt prompt = {0};
    bool with_pieces = false;
    bool fine =
        read_flag(self, "with_pieces", &with_pieces) && read_flag(self, "return_token_strs", &with_pieces);
    if (fine && pgl_body_field(self->exchange, "messages").text) {
        fine = pgl_render_chat(self->server, self->exchange, self->body, NULL, &prompt, &self->err);
        ids = prompt.ids;
        prompt.ids = (pgl_ids){0};
    } else if (fine) {
        fine = encode(self, &ids);
    }
    if (fine) {
        pgl_out_printf(&self->out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", ids.count,
                       self->server->context);
        for (size_t i = 0; i < ids.count; i++)
            pgl_out_printf(&self->out, "%s%d", i ? "," : "", ids.data[i]);
        pgl_out_raw(&self->out, "]");
        if (with_pieces)
            put_pieces(self, &ids, &self->out);
        pgl_out_raw(&self->out, "}");
    }
    pgl_chat_prompt_fini(&prompt);
    pgl_ids_fini(&ids);
    return fine;
}

void pgl_handle_tokenize(pgl_server *server, pgl_exchange *exchange) {
    serve(server, exchange, tokenize);
}

/* ---- detokenize ---- */

static bool detokenize(call *self) {
    pgl_ids ids = {0};
    pgl_buf text = PGL_BUF_INIT;
    bool fine = pgl_read_ids(pgl_body_field(self->exchange, "tokens"), "tokens",
                             (uint32_t)pgl_tokenizer_n_ids(self->server->tokenizer), &ids, &self->err);
    if (fine) {
        self->out.failed = !pgl_decode(self->server->tokenizer, ids.data, ids.count, false, &text);
        pgl_out_raw(&self->out, "{\"content\":");
        pgl_out_string(&self->out, pgl_buf_text(&text), text.size);
        pgl_out_raw(&self->out, ",\"prompt\":");
        pgl_out_string(&self->out, pgl_buf_text(&text), text.size);
        pgl_out_raw(&self->out, "}");
    }
    pgl_ids_fini(&ids);
    pgl_buf_fini(&text);
    return fine;
}

void pgl_handle_detokenize(pgl_server *server, pgl_exchange *exchange) {
    serve(server, exchange, detokenize);
}

/* ---- apply-template ---- */

static bool apply_template(call *self) {
    pgl_chat_prompt prompt = {0};
    bool fine = pgl_render_chat(self->server, self->exchange, self->body, NULL, &prompt, &self->err);
    if (fine) {
        pgl_out_raw(&self->out, "{\"prompt\":");
        pgl_out_string(&self->out, pgl_buf_text(&prompt.text), prompt.text.size);
        pgl_out_raw(&self->out, "}");
    }
    pgl_chat_prompt_fini(&prompt);
    return fine;
}

void pgl_handle_apply_template(pgl_server *server, pgl_exchange *exchange) {
    serve(server, exchange, apply_template);
}
