#include "server/vocabulary.h"

static const char *token_bytes(const void *user, int32_t id, size_t *size, bool *control) {
    const pgl_tokenizer *tokenizer = user;
    pgl_token_kind kind = pgl_tokenizer_kind(tokenizer, id);
    *control = kind == PGL_TOKEN_ADDED || kind == PGL_TOKEN_SPECIAL;
    return pgl_tokenizer_bytes(tokenizer, id, size);
}

pgl_status pgl_vocabulary_open(const pgl_runtime *runtime, pgl_constraint_vocabulary **out, pgl_error *err) {
    pgl_constraint_tokens tokens = {
        .n_ids = pgl_runtime_n_vocab(runtime), .bytes = token_bytes, .user = pgl_runtime_tokenizer(runtime)};
    *out = NULL;
    tokens.ends = pgl_runtime_stop_ids(runtime, &tokens.n_ends);
    return tokens.n_ends == 0 ? PGL_OK : pgl_constraint_vocabulary_open(&tokens, out, err);
}
