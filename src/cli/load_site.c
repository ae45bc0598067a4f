/* Owns the questions to the server under load, and the spelling of requests. */
#include "cli/load_site.h"

#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/version.h"
#include "cli/load_stream.h"

enum { MOST_ANSWER_BYTES = 16 << 20, JSON_DEPTH = 32 };

/* ---- a question ---- */

typedef struct question {
    int status;
    pgl_buf body;
    bool over;
    pgl_load_end end;
} question;

static pgl_load_wish on_head(void *user, const pgl_load_head *head) {
    question *q = user;
    q->status = head->status;
    return PGL_LOAD_GO_ON;
}

static pgl_load_wish on_body(void *user, const char *data, size_t size, uint64_t now_ns) {
    question *q = user;
    (void)now_ns;
    return pgl_buf_append(&q->body, data, size) ? PGL_LOAD_GO_ON : PGL_LOAD_STOP;
}

static void on_done(void *user, pgl_load_end end, uint64_t now_ns) {
    question *q = user;
    (void)now_ns;
    q->over = true;
    q->end = end;
}

static bool put_request(const pgl_load_site *site, const char *method, const char *base, const char *path,
                        const pgl_buf *body, pgl_buf *out) {
    bool ok = pgl_buf_printf(out, "%s %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: pergola-bench/%s\r\n", method,
                             base, path, site->target.authority, pgl_version());
    if (site->options.key != NULL)
        ok = ok && pgl_buf_printf(out, "Authorization: Bearer %s\r\n", site->options.key);
    if (body != NULL)
        ok = ok &&
             pgl_buf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body->size);
    ok = ok && pgl_buf_puts(out, "\r\n");
    return ok && (body == NULL || pgl_buf_append(out, body->data, body->size));
}

static const char *end_text(pgl_load_end end) {
    static const char *const texts[] = {
        [PGL_LOAD_DONE] = "it answered",
        [PGL_LOAD_CONNECT] = "no connection",
        [PGL_LOAD_TIMEOUT] = "no answer within the time",
        [PGL_LOAD_CUT] = "the connection ended before the answer",
        [PGL_LOAD_MALFORMED] = "what came is not HTTP/1.1",
        [PGL_LOAD_TOO_LARGE] = "the answer is too large",
        [PGL_LOAD_STOPPED] = "no memory for the answer",
    };
    return texts[end];
}

/* body: of a POST; NULL: a GET. q->status and q->body say what came; release q->body in any case. */
static pgl_status ask(pgl_load_site *site, const char *base, const char *path, const pgl_buf *body,
                      question *q, pgl_error *err) {
    pgl_buf request = PGL_BUF_INIT;
    pgl_load_sink sink = {.user = q, .head = on_head, .body = on_body, .done = on_done};
    pgl_status status = PGL_OK;
    *q = (question){0};
    if (!put_request(site, body != NULL ? "POST" : "GET", base, path, body, &request) ||
        !pgl_load_http_send(site->http, request.data, request.size, &sink))
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for a request");
    while (status == PGL_OK && !q->over) {
        int left = event_base_loop(site->base, EVLOOP_ONCE);
        if (event_base_got_break(site->base) || left != 0) {
            /* What runs must not find the question again. */
            pgl_load_http_close(site->http);
            site->http = NULL;
            status = pgl_fail(err, PGL_E_CANCELLED, "interrupted");
        }
    }
    pgl_buf_fini(&request);
    if (status == PGL_OK && q->end != PGL_LOAD_DONE)
        status = pgl_fail(err, PGL_E_IO, "%s%s: %s", base, path, end_text(q->end));
    return status;
}

static json_t *parse(const pgl_buf *body) {
    const pgl_json_options reading = {
        .max_bytes = MOST_ANSWER_BYTES, .max_depth = JSON_DEPTH, .last_wins = true, .allow_nul = true};
    json_t *value = NULL;
    return pgl_json_parse(pgl_buf_text(body), body->size, &reading, &value, NULL) == PGL_OK ? value : NULL;
}

/* ---- what is there ---- */

static pgl_status find_model(pgl_load_site *site, pgl_error *err) {
    question q;
    char message[PGL_LOAD_TEXT_BYTES];
    pgl_status status = ask(site, site->target.base, "/models", NULL, &q, err);
    json_t *value = status == PGL_OK ? parse(&q.body) : NULL;
    const char *id =
        json_string_value(json_object_get(json_array_get(json_object_get(value, "data"), 0), "id"));
    if (status == PGL_OK && q.status != 200) {
        pgl_load_error_message(pgl_buf_text(&q.body), q.body.size, message);
        status = pgl_fail(err, PGL_E_IO, "%s/models: status %d: %s (name a model with --model)",
                          site->target.base, q.status, message);
    } else if (status == PGL_OK && (id == NULL || id[0] == '\0' || strlen(id) >= sizeof site->model)) {
        status =
            pgl_fail(err, PGL_E_IO, "%s/models names no model: give one with --model", site->target.base);
    } else if (status == PGL_OK) {
        (void)snprintf(site->model, sizeof site->model, "%s", id);
    }
    json_decref(value);
    pgl_buf_fini(&q.body);
    return status;
}

/* Nothing depends on it: what cannot be had is left empty. */
static pgl_status find_version(pgl_load_site *site, pgl_error *err) {
    question q;
    pgl_status status = ask(site, site->target.root, "/version", NULL, &q, err);
    json_t *value = status == PGL_OK && q.status == 200 ? parse(&q.body) : NULL;
    const char *version = json_string_value(json_object_get(value, "version"));
    if (version != NULL && strlen(version) < sizeof site->version)
        (void)snprintf(site->version, sizeof site->version, "%s", version);
    json_decref(value);
    pgl_buf_fini(&q.body);
    return status == PGL_E_IO ? PGL_OK : status;
}

/* ---- counting ---- */

/* What chats share is what they share in life: the system's message. */
static bool put_messages(const pgl_load_site *site, const char *text, size_t size, pgl_buf *out) {
    const pgl_buf *prefix = &site->prefix;
    bool ok = pgl_buf_puts(out, "\"messages\":[");
    if (prefix->size > 0)
        ok = ok && pgl_buf_puts(out, "{\"role\":\"system\",\"content\":") &&
             pgl_json_put_string(out, prefix->data, prefix->size) && pgl_buf_puts(out, "},");
    return ok && pgl_buf_puts(out, "{\"role\":\"user\",\"content\":") &&
           pgl_json_put_string(out, text, size) && pgl_buf_puts(out, "}]");
}

static bool put_question(const pgl_load_site *site, const char *text, size_t size, pgl_buf *out) {
    bool ok = pgl_buf_puts(out, "{\"model\":") &&
              pgl_json_put_string(out, site->model, strlen(site->model)) && pgl_buf_putc(out, ',');
    if (site->tokenizer == PGL_LOAD_COUNTS_WHOLE && site->options.chat)
        return ok && put_messages(site, text, size, out) &&
               pgl_buf_append(out, site->extra.data, site->extra.size) && pgl_buf_putc(out, '}');
    /* vLLM and SGLang call it prompt, llama.cpp's server content. */
    return ok && pgl_buf_puts(out, "\"prompt\":") && pgl_json_put_string(out, text, size) &&
           pgl_buf_puts(out, ",\"content\":") && pgl_json_put_string(out, text, size) &&
           pgl_buf_putc(out, '}');
}

/* False: the answer has no number that could be right. */
static bool read_count(const json_t *value, uint32_t *n) {
    const json_t *count = json_object_get(value, "count"), *tokens = json_object_get(value, "tokens");
    json_int_t number = -1;
    if (json_is_integer(count))
        number = json_integer_value(count);
    else if (json_is_array(tokens))
        number = (json_int_t)json_array_size(tokens);
    *n = number >= 0 && number <= INT32_MAX ? (uint32_t)number : 0;
    return number >= 0 && number <= INT32_MAX;
}

static pgl_status count_tokens(void *user, const char *text, size_t size, uint32_t *n, pgl_error *err) {
    pgl_load_site *site = user;
    question q = {0};
    pgl_buf body = PGL_BUF_INIT;
    pgl_status status = PGL_OK;
    if (put_question(site, text, size, &body))
        status = ask(site, site->target.root, "/tokenize", &body, &q, err);
    else
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for a question of %zu bytes", size);
    json_t *value = status == PGL_OK && q.status == 200 ? parse(&q.body) : NULL;
    if (status == PGL_OK && !read_count(value, n))
        status = pgl_fail(err, PGL_E_IO, "%s/tokenize: status %d, and no count of tokens", site->target.root,
                          q.status);
    json_decref(value);
    pgl_buf_fini(&q.body);
    pgl_buf_fini(&body);
    return status;
}

/* The best way that the server offers. */
static pgl_status find_tokenizer(pgl_load_site *site, pgl_error *err) {
    static const char probe[] = "one two three";
    uint32_t n = 0;
    pgl_status status = PGL_E_IO;
    site->counter = (pgl_load_counter){.user = site, .count = count_tokens};
    site->prompts = (pgl_load_prompts){.tokens_per_word = 1};
    for (int way = PGL_LOAD_COUNTS_WHOLE;
         site->options.tokenize && way > PGL_LOAD_WORDS && status == PGL_E_IO; way--) {
        site->tokenizer = (pgl_load_tokenizer)way;
        status = count_tokens(site, probe, sizeof probe - 1, &n, err);
        if (status == PGL_OK && n > 0)
            site->prompts.counter = &site->counter;
    }
    if (site->prompts.counter == NULL)
        site->tokenizer = PGL_LOAD_WORDS;
    return status == PGL_E_IO ? PGL_OK : status;
}

/* ---- opening ---- */

static pgl_status read_extra(pgl_load_site *site, pgl_error *err) {
    static const char *const taken[] = {"model",          "messages",   "prompt",     "stream",
                                        "stream_options", "max_tokens", "ignore_eos", "n"};
    const char *text = site->options.extra;
    json_t *value = NULL;
    if (text == NULL)
        return PGL_OK;
    const pgl_json_options reading = {.name = "--extra"};
    pgl_status status = pgl_json_parse(text, strlen(text), &reading, &value, err);
    if (status == PGL_OK && !json_is_object(value))
        status = pgl_fail(err, PGL_E_INVALID, "--extra: expected an object, found %.100s", text);
    for (size_t i = 0; i < sizeof taken / sizeof *taken && status == PGL_OK; i++)
        if (json_object_get(value, taken[i]) != NULL)
            status = pgl_fail(err, PGL_E_INVALID, "--extra: %s is not for it to set", taken[i]);
    pgl_json_iter it = pgl_json_iter_begin((pgl_json_span){text, strlen(text)});
    pgl_json_span key, item;
    while (status == PGL_OK && pgl_json_iter_next(&it, &key, &item))
        if (!pgl_buf_putc(&site->extra, ',') || !pgl_buf_append(&site->extra, key.text, key.size) ||
            !pgl_buf_putc(&site->extra, ':') || !pgl_buf_append(&site->extra, item.text, item.size))
            status = pgl_fail(err, PGL_E_MEMORY, "no memory for --extra");
    json_decref(value);
    return status;
}

static pgl_status check_key(const char *key, pgl_error *err) {
    for (const char *at = key; at != NULL && *at != '\0'; at++)
        if (*at <= ' ' || *at > '~')
            return pgl_fail(err, PGL_E_INVALID, "--api-key: it has a character that no key has");
    return PGL_OK;
}

pgl_status pgl_load_site_init(const pgl_load_site_options *options, pgl_load_site *site, pgl_error *err) {
    *site = (pgl_load_site){.options = *options};
    pgl_status status = pgl_load_target_parse(options->url, &site->target, err);
    if (status == PGL_OK)
        status = check_key(options->key, err);
    if (status == PGL_OK)
        status = read_extra(site, err);
    if (status == PGL_OK && options->model != NULL && strlen(options->model) >= sizeof site->model)
        status =
            pgl_fail(err, PGL_E_INVALID, "--model: a name of more than %zu bytes", sizeof site->model - 1);
    return status;
}

pgl_status pgl_load_site_open(struct event_base *base, pgl_load_site *site, pgl_error *err) {
    const pgl_load_site_options *options = &site->options;
    pgl_load_http_options http = {.target = &site->target,
                                  .max_connections = 1,
                                  .timeout_s = options->timeout_s < 60 ? options->timeout_s : 60,
                                  .connect_timeout_s = options->connect_timeout_s,
                                  .max_answer_bytes = MOST_ANSWER_BYTES};
    site->base = base;
    pgl_status status = pgl_load_target_connect(&site->target, options->connect_timeout_s, err);
    if (status == PGL_OK)
        status = pgl_load_http_open(base, &http, &site->http, err);
    if (status == PGL_OK && options->model != NULL)
        (void)snprintf(site->model, sizeof site->model, "%s", options->model);
    else if (status == PGL_OK)
        status = find_model(site, err);
    if (status == PGL_OK)
        status = find_version(site, err);
    if (status == PGL_OK)
        status = find_tokenizer(site, err);
    return status;
}

void pgl_load_site_close(pgl_load_site *site) {
    pgl_load_http_close(site->http);
    pgl_buf_fini(&site->extra);
    pgl_buf_fini(&site->prefix);
    site->http = NULL;
}

/* ---- requests ---- */

pgl_status pgl_load_site_prefix(pgl_load_site *site, uint64_t seed, uint32_t n_tokens, pgl_error *err) {
    pgl_load_tokenizer way = site->tokenizer;
    if (way == PGL_LOAD_COUNTS_WHOLE)
        site->tokenizer = PGL_LOAD_COUNTS_TEXT; /* the template is not part of it */
    pgl_buf_clear(&site->prefix);
    pgl_status status =
        pgl_load_prompt_make(&site->prompts, seed, n_tokens, &site->prefix, &site->prefix_tokens, err);
    site->tokenizer = way;
    return status;
}

static bool put_body(const pgl_load_site *site, const pgl_buf *text, uint32_t max_tokens, pgl_buf *body) {
    bool ok = pgl_buf_puts(body, "{\"model\":") &&
              pgl_json_put_string(body, site->model, strlen(site->model)) && pgl_buf_putc(body, ',');
    if (site->options.chat)
        ok = ok && put_messages(site, pgl_buf_text(text), text->size, body);
    else
        ok = ok && pgl_buf_puts(body, "\"prompt\":") &&
             pgl_json_put_string(body, pgl_buf_text(text), text->size);
    return ok &&
           pgl_buf_printf(body,
                          ",\"max_tokens\":%u,\"stream\":true,\"stream_options\":{\"include_usage\":true}%s",
                          max_tokens, site->options.ignore_eos ? ",\"ignore_eos\":true" : "") &&
           pgl_buf_append(body, site->extra.data, site->extra.size) && pgl_buf_putc(body, '}');
}

pgl_status pgl_load_site_request(pgl_load_site *site, uint64_t seed, uint32_t n_prompt, uint32_t max_tokens,
                                 pgl_buf *request, uint32_t *found, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT, body = PGL_BUF_INIT;
    bool chat = site->options.chat;
    /* Tokens of the prefix that the count of the text has not in it. */
    uint32_t beside = chat && site->tokenizer != PGL_LOAD_COUNTS_WHOLE ? site->prefix_tokens : 0;
    pgl_status status = PGL_OK;
    if (!chat && !pgl_buf_append(&text, site->prefix.data, site->prefix.size))
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for a prompt");
    if (status == PGL_OK && beside >= n_prompt)
        status = pgl_fail(err, PGL_E_INVALID, "a prefix of %u tokens leaves nothing of a prompt of %u",
                          beside, n_prompt);
    if (status == PGL_OK)
        status = pgl_load_prompt_make(&site->prompts, seed, n_prompt - beside, &text, found, err);
    if (status == PGL_OK)
        *found += beside;
    if (status == PGL_OK &&
        (!put_body(site, &text, max_tokens, &body) ||
         !put_request(site, "POST", site->target.base,
                      site->options.chat ? "/chat/completions" : "/completions", &body, request)))
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for a request of %u tokens", n_prompt);
    pgl_buf_fini(&text);
    pgl_buf_fini(&body);
    return status;
}
