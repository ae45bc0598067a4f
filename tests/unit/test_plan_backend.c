/* The memory plan against what the CPU backend says it took. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "checkpoint/checkpoint.h"
#include "model/plan.h"

static uint64_t line_bytes(const pgl_memory_plan *plan, const char *name) {
    for (uint32_t i = 0; i < plan->n_lines; i++) {
        if (strcmp(plan->lines[i].name, name) == 0)
            return plan->lines[i].bytes;
    }
    return 0;
}

static void assert_near(const char *what, uint64_t planned, uint64_t taken, double part) {
    double difference = (double)planned - (double)taken;
    print_message("  %s: planned %llu, taken %llu\n", what, (unsigned long long)planned,
                  (unsigned long long)taken);
    if (difference > part * (double)taken + 65536 || -difference > part * (double)taken + 65536)
        fail_msg("%s: planned %llu, taken %llu", what, (unsigned long long)planned,
                 (unsigned long long)taken);
}

static void plan_is_near_what_the_backend_takes(void **state) {
    (void)state;
    static const pgl_plan_request requests[] = {
        {.context_tokens = 4096, .n_slots = 1, .n_threads = 1},
        {.context_tokens = 8192, .n_slots = 3, .n_snapshots = 5, .n_threads = 2, .draft_tokens = 3},
        {.context_tokens = 300, .n_slots = 8, .n_snapshots = 1, .n_threads = 2, .step_tokens = 64},
    };
    pgl_checkpoint *checkpoint;
    pgl_model model;
    pgl_error err;
    assert_int_equal(pgl_checkpoint_open(PGL_GOLDENS "/tiny-a", NULL, &checkpoint, &err), PGL_OK);
    assert_int_equal(
        pgl_model_init(&model, pgl_checkpoint_config(checkpoint), pgl_checkpoint_weights(checkpoint), &err),
        PGL_OK);
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        pgl_memory_plan plan;
        pgl_backend *backend;
        assert_int_equal(pgl_plan_memory(&model, &requests[i], &plan, &err), PGL_OK);
        const pgl_plan_request *r = &plan.settled;
        pgl_backend_options options = {.n_threads = r->n_threads,
                                       .n_slots = r->n_slots,
                                       .n_pages = plan.n_pages,
                                       .n_snapshots = r->n_snapshots,
                                       .page_tokens = r->page_tokens,
                                       .max_context = r->context_tokens,
                                       .max_rows = r->n_slots,
                                       .max_step_tokens = r->step_tokens,
                                       .max_draft = r->draft_tokens,
                                       .n_vocab = model.config->vocab_size};
        if (pgl_backend_open_cpu(&model, &options, &backend, &err) != PGL_OK)
            fail_msg("%s", err.text);
        pgl_backend_memory memory = pgl_backend_get_memory(backend);
        print_message("request %zu\n", i);
        assert_near("pages", line_bytes(&plan, "keys and values"), memory.pages_bytes, 0);
        assert_near("slots", line_bytes(&plan, "recurrent state"), memory.slots_bytes, 0.05);
        assert_near("snapshots", line_bytes(&plan, "snapshots"), memory.snapshots_bytes, 0.01);
        uint64_t stacks = (uint64_t)r->n_threads << 18; /* the plan counts them, the backend does not */
        assert_near("work", line_bytes(&plan, "work space") - stacks, memory.work_bytes, 0.15);
        pgl_backend_close(backend);
    }
    pgl_checkpoint_close(checkpoint);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plan_is_near_what_the_backend_takes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
