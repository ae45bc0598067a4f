/* The body of a chat request: rendering answers or refuses, and no text of the request becomes a control token beyond those
 * that the template writes for the structure. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "text/chat.h"
#include "text/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition) {
    if (!condition)
        abort();
}

static pgl_tokenizer *tokenizer;
static pgl_chat *chat;

static void open_tiny(void) {
    pgl_buf json = PGL_BUF_INIT, source = PGL_BUF_INIT;
    pgl_error err;
    require(pgl_fs_read(PGL_GOLDENS "/tiny-a/tokenizer.json", 1 << 24, &json, &err) == PGL_OK);
    require(pgl_fs_read(PGL_GOLDENS "/tiny-a/chat_template.jinja", 1 << 24, &source, &err) == PGL_OK);
    require(pgl_tokenizer_open(json.data, json.size, NULL, 0, &tokenizer, &err) == PGL_OK);
    require(pgl_chat_open(tokenizer, source.data, source.size, NULL, 0, &chat, &err) == PGL_OK);
    pgl_buf_fini(&json);
    pgl_buf_fini(&source);
}

static size_t count(const pgl_ids *ids, const char *token) {
    int32_t id = pgl_tokenizer_find_added(tokenizer, token, strlen(token));
    size_t n = 0;
    for (size_t i = 0; i < ids->count; i++)
        n += ids->data[i] == id;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (chat == NULL)
        open_tiny();
    pgl_json_span body = {(const char *)data, size};
    pgl_chat_request request = {.messages = body, .thinking = -1};
    if (size > 0 && data[0] == '{') {
        request.messages = pgl_json_raw_member(body, "messages");
        request.tools = pgl_json_raw_member(body, "tools");
        request.kwargs = pgl_json_raw_member(body, "chat_template_kwargs");
    }
    pgl_chat_prompt prompt;
    pgl_error err;
    if (pgl_chat_render(chat, &request, &prompt, &err) == PGL_OK) {
        size_t opened = count(&prompt.ids, "<|im_start|>"), closed = count(&prompt.ids, "<|im_end|>");
        require(opened == closed || opened == closed + 1);
        require(opened > PGL_CHAT_MOST_TURNS ? prompt.n_turns == PGL_CHAT_MOST_TURNS
                                             : prompt.n_turns + 1 == opened);
        size_t think = count(&prompt.ids, "<think>"), thought = count(&prompt.ids, "</think>");
        require(think == thought + (prompt.in_thought ? 1 : 0));
        pgl_buf text = PGL_BUF_INIT;
        require(pgl_decode(tokenizer, prompt.ids.data, prompt.ids.count, false, &text));
        pgl_buf_fini(&text);
    }
    pgl_chat_prompt_fini(&prompt);
    return 0;
}
