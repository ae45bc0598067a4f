/* The common suite on the CUDA backend, over the fake driver: what the host side puts together, with the kernels' own
 * sources run on the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint/checkpoint.h"
#include "conformance_suite.h"
#include "cuda_world.h"

static pgl_model g_model;

int main(void) {
    pgl_checkpoint *checkpoint = NULL;
    const pgl_checkpoint_options options = {.want_draft = true};
    pgl_error err = {PGL_OK, ""};
    if (pgl_checkpoint_open(PGL_GOLDENS "/tiny-a", &options, &checkpoint, &err) != PGL_OK ||
        pgl_model_init(&g_model, pgl_checkpoint_config(checkpoint), pgl_checkpoint_weights(checkpoint),
                       &err) != PGL_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    static const conf_subject subject = {
        .name = "cuda", .open = conf_open_cuda, .context = &g_model, .n_tokens = 24, .has_draft = true};
    const struct CMUnitTest tests[] = {CONF_SUITE(&subject)};
    int failed = cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
    pgl_checkpoint_close(checkpoint);
    return failed != 0;
}
