/* tokenizer.json: whatever opens must encode and decode without harm, and give back the text when nothing is normalised. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/decode.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition) {
    if (!condition)
        abort();
}

static void use(const pgl_tokenizer *t, const char *text, pgl_encode_mode mode) {
    pgl_ids ids = {0};
    pgl_buf back = PGL_BUF_INIT;
    pgl_error err;
    if (pgl_tokenizer_encode(t, text, strlen(text), mode, &ids, &err) == PGL_OK) {
        for (size_t i = 0; i < ids.count; i++)
            require(mode == PGL_ENCODE_RAW ? pgl_tokenizer_kind(t, ids.data[i]) != PGL_TOKEN_NONE
                                           : pgl_tokenizer_kind(t, ids.data[i]) == PGL_TOKEN_TEXT);
        require(pgl_decode(t, ids.data, ids.count, false, &back));
        if (mode == PGL_ENCODE_TEXT)
            require(strcmp(pgl_buf_text(&back), text) == 0);
    }
    pgl_ids_fini(&ids);
    pgl_buf_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pgl_tokenizer *t;
    pgl_error err;
    if (size > (1 << 17) || pgl_tokenizer_open((const char *)data, size, NULL, 0, &t, &err) != PGL_OK)
        return 0;
    static const char *const TEXTS[] = {"Hello, world! don't <|im_start|> <think>\n\n  \xC3\xA9 12",
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", ""};
    for (size_t i = 0; i < 3; i++) {
        use(t, TEXTS[i], PGL_ENCODE_RAW);
        use(t, TEXTS[i], PGL_ENCODE_TEXT);
    }
    pgl_tokenizer_close(t);
    return 0;
}
