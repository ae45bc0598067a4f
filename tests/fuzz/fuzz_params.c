/* Any body: what is accepted is within the sampler's ranges, what is refused names a fault in valid JSON. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/params.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth) {
    if (!truth)
        abort();
}

static void read_as(const json_t *body, pgl_param_routes route) {
    pgl_sample_params sampling = pgl_sample_defaults();
    pgl_gen_params params = pgl_params_defaults(&sampling);
    pgl_refusal err;
    pgl_arena *arena = pgl_arena_open(0);
    require(arena != NULL);
    if (pgl_params_read(body, route, 1000, arena, &params, &err)) {
        sampling = pgl_params_sampling(&params, 1, 2);
        require(pgl_sample_check(&sampling, 1000, NULL) == PGL_OK);
        require(params.n >= 1 && params.n <= PGL_MOST_CHOICES && params.n_stops <= PGL_MOST_STOPS);
        for (uint32_t i = 0; i < params.n_stops; i++)
            require(params.stops[i].size > 0);
    } else {
        pgl_buf text = PGL_BUF_INIT;
        json_t *parsed = NULL;
        require(err.status >= 400 && err.status < 500);
        require(pgl_refusal_write(&err, &text));
        require(pgl_json_parse(text.data, text.size, NULL, &parsed, NULL) == PGL_OK);
        json_decref(parsed);
        pgl_buf_fini(&text);
    }
    pgl_arena_close(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const pgl_json_options options = {.replace_surrogates = true};
    const char *text = size ? (const char *)data : "";
    json_t *body = NULL;
    char field[96];
    if (pgl_json_parse(text, size, &options, &body, NULL) != PGL_OK)
        (void)pgl_params_find_nan(text, size, field, sizeof field);
    else if (json_is_object(body)) {
        read_as(body, PGL_PARAM_CHAT);
        read_as(body, PGL_PARAM_COMPLETIONS);
    }
    json_decref(body);
    return 0;
}
