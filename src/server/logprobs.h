/* Log-probabilities as the APIs write them: finite numbers, texts that are always UTF-8, exact bytes beside them. */
#ifndef PGL_SERVER_LOGPROBS_H
#define PGL_SERVER_LOGPROBS_H

#include "engine/engine.h"
#include "server/json_out.h"
#include "text/tokenizer.h"

/* JSON has no -infinity: the smallest that is written is -9999. */
void pgl_put_logprob(pgl_out *out, float logprob);

/* Chat: {"token","logprob","bytes","top_logprobs":[..]}. n_top entries, falling; the sampled token takes the last
 * place where it is not among them. */
void pgl_put_chat_logprob(const pgl_tokenizer *tokenizer, const pgl_event *event, uint32_t n_top,
                          pgl_out *out);

/* Completions: a token's name, quoted: its text, or "bytes:\xe2\x98" where that is no whole text. */
void pgl_put_token_name(const pgl_tokenizer *tokenizer, int32_t id, pgl_out *out);

/* Completions: {"name":logprob,..} of the n_top best and the token itself; of names that occur twice, the first. */
void pgl_put_top_object(const pgl_tokenizer *tokenizer, const pgl_token_logprob *top, uint32_t n_top,
                        int32_t id, float logprob, pgl_out *out);

/* Code points that begin in a token's bytes. */
uint32_t pgl_token_chars(const pgl_tokenizer *tokenizer, int32_t id);

#endif
