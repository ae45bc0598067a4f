/* What a tokenizer is made of: shared by loading (tokenizer_load.c) and use (tokenizer.c). Private to text. */
#ifndef PGL_TEXT_TOKENIZER_IMPL_H
#define PGL_TEXT_TOKENIZER_IMPL_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/pattern.h"
#include "text/tokenizer.h"

struct pgl_tokenizer {
    pgl_bpe bpe;
    pgl_added added;
    pgl_pattern *pattern;
    bool nfc;
    int32_t n_ids;
    size_t longest;
};

/* Fills a zeroed tokenizer; the caller closes it whatever comes back. */
pgl_status pgl_tokenizer_load(pgl_tokenizer *t, const char *json, size_t size, pgl_error *err);
pgl_status pgl_tokenizer_load_config(pgl_tokenizer *t, const char *json, size_t size, pgl_error *err);

#endif
