/* A short part of the common suite for runs under ThreadSanitizer: plans in flight, masks from another thread, and
 * neighbours on three threads of the CPU backend. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/null/null.h"
#include "checkpoint/checkpoint.h"
#include "conformance_suite.h"
#include "model/model.h"

static pgl_model g_model;

int main(void) {
    static const conf_subject null = {
        .name = "null", .open = conf_open_null, .n_tokens = 40, .has_draft = true};
    static const conf_subject cpu = {.name = "cpu",
                                     .open = conf_open_cpu,
                                     .context = &g_model,
                                     .n_threads = 3,
                                     .n_tokens = 12,
                                     .has_draft = true};
    pgl_checkpoint *checkpoint = NULL;
    const pgl_checkpoint_options options = {.want_draft = true};
    pgl_error err = {PGL_OK, ""};
    if (pgl_checkpoint_open(PGL_GOLDENS "/tiny-a", &options, &checkpoint, &err) != PGL_OK ||
        pgl_model_init(&g_model, pgl_checkpoint_config(checkpoint), pgl_checkpoint_weights(checkpoint),
                       &err) != PGL_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const struct CMUnitTest null_tests[] = {CONF_SUITE(&null)};
    const struct CMUnitTest cpu_tests[] = {
        cmocka_unit_test_prestate(conf_neighbours_do_not_matter, (void *)&cpu),
        cmocka_unit_test_prestate(conf_late_masks_are_waited_for, (void *)&cpu),
        cmocka_unit_test_prestate(conf_ended_slots_are_inert_until_a_new_life, (void *)&cpu),
        cmocka_unit_test_prestate(conf_plans_in_flight_change_nothing, (void *)&cpu),
        cmocka_unit_test_prestate(conf_drafts_are_lossless, (void *)&cpu),
    };
    int failed = cmocka_run_group_tests_name("null", null_tests, NULL, NULL) +
                 cmocka_run_group_tests_name("cpu", cpu_tests, NULL, NULL);
    pgl_checkpoint_close(checkpoint);
    return failed != 0;
}
