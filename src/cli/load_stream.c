/* Owns the reading of a streamed answer. */
#include "cli/load_stream.h"

#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

enum { JSON_DEPTH = 64 };

static const pgl_json_options reading = {.max_bytes = PGL_LOAD_EVENT_BYTES,
                                         .max_depth = JSON_DEPTH,
                                         .last_wins = true,
                                         .allow_nul = true,
                                         .replace_surrogates = true};

void pgl_load_stream_init(pgl_load_stream *stream, uint64_t max_events,
                          void (*on_event)(void *user, unsigned what), void *user) {
    *stream = (pgl_load_stream){.user = user,
                                .on_event = on_event,
                                .max_events = max_events,
                                .prompt_tokens = -1,
                                .completion_tokens = -1,
                                .cached_tokens = -1};
}

void pgl_load_stream_fini(pgl_load_stream *stream) {
    pgl_buf_fini(&stream->line);
    pgl_buf_fini(&stream->data);
}

/* ---- messages of errors ---- */

static void put_printable(const char *text, size_t size, char *out) {
    size_t at = 0, used = 0;
    while (at < size) {
        uint32_t point;
        int n = pgl_utf8_decode(text + at, size - at, &point);
        bool shown = n > 0 && point >= 0x20 && (point < 0x7f || point > 0x9f);
        size_t step = n > 0 ? (size_t)n : 1, need = shown ? step : 1;
        if (used + need >= PGL_LOAD_TEXT_BYTES)
            break;
        if (shown)
            memcpy(out + used, text + at, step);
        else
            out[used] = ' ';
        used += need;
        at += step;
    }
    out[used] = '\0';
}

static const json_t *find_message(const json_t *value) {
    static const char *const names[] = {"message", "detail", "error"};
    const json_t *error = json_object_get(value, "error");
    if (json_is_object(error))
        value = error;
    for (size_t i = 0; i < 3; i++) {
        const json_t *found = json_object_get(value, names[i]);
        if (json_is_string(found))
            return found;
    }
    return NULL;
}

void pgl_load_error_message(const char *body, size_t size, char *out) {
    json_t *value = NULL;
    const json_t *message = NULL;
    if (size > 0 && pgl_json_parse(body, size, &reading, &value, NULL) == PGL_OK)
        message = find_message(value);
    if (message != NULL)
        put_printable(json_string_value(message), json_string_length(message), out);
    else
        put_printable(body, size, out);
    json_decref(value);
}

/* ---- an event ---- */

static bool has_text(const json_t *value, const char *name) {
    const json_t *text = json_object_get(value, name);
    return json_is_string(text) && json_string_length(text) > 0;
}

static unsigned look_at_choice(const json_t *choice) {
    const json_t *delta = json_object_get(choice, "delta");
    bool text = has_text(choice, "text") || has_text(delta, "content") ||
                has_text(delta, "reasoning_content") || has_text(delta, "reasoning") ||
                json_array_size(json_object_get(delta, "tool_calls")) > 0;
    bool finish = json_is_string(json_object_get(choice, "finish_reason"));
    return (text ? PGL_LOAD_HAS_TEXT : 0U) | (finish ? PGL_LOAD_HAS_FINISH : 0U);
}

static void read_count(const json_t *object, const char *name, int64_t *target) {
    const json_t *value = json_object_get(object, name);
    if (json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) <= INT32_MAX)
        *target = json_integer_value(value);
}

static void read_usage(pgl_load_stream *stream, const json_t *usage) {
    read_count(usage, "prompt_tokens", &stream->prompt_tokens);
    read_count(usage, "completion_tokens", &stream->completion_tokens);
    read_count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens", &stream->cached_tokens);
}

static pgl_load_stream_fault read_event(pgl_load_stream *stream) {
    const char *text = pgl_buf_text(&stream->data);
    json_t *value = NULL;
    if (strcmp(text, "[DONE]") == 0) {
        stream->done = true;
        return PGL_LOAD_STREAM_FINE;
    }
    if (++stream->n_events > stream->max_events)
        return PGL_LOAD_STREAM_TOO_MANY;
    pgl_status status = pgl_json_parse(text, stream->data.size, &reading, &value, NULL);
    if (status != PGL_OK || !json_is_object(value)) {
        json_decref(value);
        return status == PGL_E_MEMORY ? PGL_LOAD_STREAM_MEMORY : PGL_LOAD_STREAM_BAD_EVENT;
    }
    const json_t *error = json_object_get(value, "error");
    if (error != NULL && !json_is_null(error)) {
        pgl_load_error_message(text, stream->data.size, stream->message);
        json_decref(value);
        return PGL_LOAD_STREAM_ERROR;
    }
    unsigned what = look_at_choice(json_array_get(json_object_get(value, "choices"), 0));
    stream->finished = stream->finished || (what & PGL_LOAD_HAS_FINISH) != 0;
    read_usage(stream, json_object_get(value, "usage"));
    json_decref(value);
    stream->on_event(stream->user, what);
    return PGL_LOAD_STREAM_FINE;
}

/* ---- lines ---- */

/* One line without its end. Only the field "data" matters; an empty line ends an event. */
static pgl_load_stream_fault read_line(pgl_load_stream *stream) {
    const char *line = pgl_buf_text(&stream->line);
    size_t size = stream->line.size;
    pgl_load_stream_fault fault = PGL_LOAD_STREAM_FINE;
    if (size == 0) {
        if (stream->has_data)
            fault = read_event(stream);
        pgl_buf_clear(&stream->data);
        stream->has_data = false;
        return fault;
    }
    if (strncmp(line, "data", 4) != 0 || (size > 4 && line[4] != ':'))
        return fault;
    size_t skip = size > 5 && line[5] == ' ' ? 6 : size > 4 ? 5 : 4;
    if (stream->data.size + size > PGL_LOAD_EVENT_BYTES)
        return PGL_LOAD_STREAM_TOO_LARGE;
    if ((stream->has_data && !pgl_buf_putc(&stream->data, '\n')) ||
        !pgl_buf_append(&stream->data, line + skip, size - skip))
        return PGL_LOAD_STREAM_MEMORY;
    stream->has_data = true;
    return fault;
}

pgl_load_stream_fault pgl_load_stream_feed(pgl_load_stream *stream, const char *data, size_t size) {
    const char *end = data + size;
    while (data < end && !stream->done) {
        if (stream->after_cr && *data == '\n') {
            stream->after_cr = false;
            data++;
            continue;
        }
        stream->after_cr = false;
        const char *stop = data;
        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        if (stream->line.size + (size_t)(stop - data) > PGL_LOAD_EVENT_BYTES)
            return PGL_LOAD_STREAM_TOO_LARGE;
        if (!pgl_buf_append(&stream->line, data, (size_t)(stop - data)))
            return PGL_LOAD_STREAM_MEMORY;
        if (stop == end)
            break;
        stream->after_cr = *stop == '\r';
        pgl_load_stream_fault fault = read_line(stream);
        if (fault != PGL_LOAD_STREAM_FINE)
            return fault;
        pgl_buf_clear(&stream->line);
        data = stop + 1;
    }
    return PGL_LOAD_STREAM_FINE;
}
