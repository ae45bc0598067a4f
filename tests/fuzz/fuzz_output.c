/* The output parser: the message does not depend on how the text was cut; what is emitted is well-formed.
 * The first byte chooses the mode and the size of the pieces. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "text/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char TOOLS[] = "[{\"function\":{\"name\":\"w\",\"parameters\":{\"properties\":{\"p\":{\"type\":"
                            "\"string\"},\"n\":{\"type\":\"integer\"},"
                            "\"o\":{\"type\":\"object\"},\"s\":{\"type\":[\"string\",\"null\"]}}}}},{"
                            "\"function\":{\"name\":\"now\"}}]";

static void require(int condition) {
    if (!condition)
        abort();
}

static void check_delta(void *user, const pgl_output_delta *d) {
    (void)user;
    require(d->kind == PGL_OUTPUT_CALL_END || pgl_utf8_valid(d->text, d->size));
}

static void run(const char *text, size_t size, unsigned mode, size_t piece, pgl_buf *out) {
    static const pgl_stop_string STOP = {"END", 3};
    pgl_message message = {.forward = check_delta};
    if ((mode & 8) != 0)
        require(pgl_stop_open(&STOP, 1, &message.stop, NULL) == PGL_OK);
    pgl_output_options options = {.in_thought = (mode & 3) == 1,
                                  .no_thinking = (mode & 3) == 2,
                                  .sink = pgl_message_delta,
                                  .user = &message};
    if ((mode & 4) != 0)
        options.tools = (pgl_json_span){TOOLS, sizeof TOOLS - 1};
    pgl_output *o;
    require(pgl_output_open(&options, &o, NULL) == PGL_OK);
    for (size_t at = 0; at < size; at += piece)
        pgl_output_push(o, text + at, piece < size - at ? piece : size - at);
    bool cut = (mode & 16) != 0;
    pgl_output_finish(o, cut);
    pgl_message_finish(&message);
    require(!pgl_output_failed(o) && !message.failed);
    for (size_t i = 0; i < message.n_calls && !cut; i++) {
        const pgl_buf *arguments = &message.calls[i].arguments;
        pgl_json_options any = {
            .max_depth = 1024, .max_bytes = SIZE_MAX, .last_wins = true, .allow_nul = true};
        json_t *object = NULL;
        require(message.stopped ||
                (pgl_json_parse(pgl_buf_text(arguments), arguments->size, &any, &object, NULL) == PGL_OK &&
                 json_is_object(object)));
        json_decref(object);
    }
    /* Text that is no call is not lost. */
    if ((mode & 3) == 2 && message.n_calls == 0 && !message.stopped)
        require(message.content.size == size && memcmp(pgl_buf_text(&message.content), text, size) == 0);
    require(pgl_message_put_json(&message, "c", out));
    pgl_output_close(o);
    pgl_stop_close(message.stop);
    pgl_message_fini(&message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > 4096 || !pgl_utf8_valid((const char *)data + 2, size - 2))
        return 0;
    const char *text = (const char *)data + 2;
    pgl_buf whole = PGL_BUF_INIT, pieces = PGL_BUF_INIT;
    run(text, size - 2, data[0], size, &whole);
    run(text, size - 2, data[0], 1u + data[1] % 16, &pieces);
    require(whole.size == pieces.size && memcmp(whole.data, pieces.data, whole.size) == 0);
    pgl_buf_fini(&whole);
    pgl_buf_fini(&pieces);
    return 0;
}
