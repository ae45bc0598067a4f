/* What the null backend adds to the common suite: forced tokens, injected faults, and that an engine which mishandles
 * pages or state is found out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/null/null.h"

#define VOCAB 64u

static int32_t count_up(void *user, uint32_t slot, uint32_t length, int32_t last_token) {
    (void)user;
    (void)slot;
    (void)last_token;
    return (int32_t)(length % VOCAB);
}

static bool at_length_seven(void *user, uint32_t slot, uint32_t length) {
    (void)user;
    (void)slot;
    return length == 7;
}

static pgl_backend *open_null(pgl_null_options null_options) {
    null_options.vocab_size = VOCAB;
    null_options.hidden_size = 4;
    null_options.n_layers = 2;
    null_options.n_experts = 8;
    null_options.n_experts_used = 2;
    pgl_backend_options options = {.n_slots = 3,
                                   .n_pages = 8,
                                   .n_snapshots = 2,
                                   .page_tokens = 16,
                                   .max_context = 64,
                                   .max_rows = 3,
                                   .max_step_tokens = 64,
                                   .max_draft = 3,
                                   .n_vocab = VOCAB - 4};
    pgl_backend *backend = NULL;
    pgl_error err = {PGL_OK, ""};
    if (pgl_backend_open_null(&null_options, &options, &backend, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return backend;
}

static pgl_status run(pgl_backend *backend, const pgl_step_plan *plan, pgl_error *err) {
    uint64_t ticket;
    pgl_status status = pgl_backend_submit(backend, plan, &ticket, err);
    return status == PGL_OK ? pgl_backend_wait(backend, ticket, NULL, err) : status;
}

static void must(pgl_backend *backend, const pgl_step_plan *plan) {
    pgl_error err = {PGL_OK, ""};
    if (run(backend, plan, &err) != PGL_OK)
        fail_msg("%s", err.text);
}

static void bind(pgl_backend *backend, uint32_t slot, uint32_t page) {
    const pgl_op ops[] = {{.kind = PGL_OP_RESET, .slot = slot},
                          {.kind = PGL_OP_BIND, .slot = slot, .index = 0, .page = page},
                          {.kind = PGL_OP_BIND, .slot = slot, .index = 1, .page = page + 1}};
    must(backend, &(pgl_step_plan){.before = ops, .n_before = 3});
}

static const int32_t PROMPT[6] = {9, 8, 7, 6, 5, 4};

static pgl_row prompt_row(uint32_t slot, pgl_row_result *result, const pgl_sample_params *params) {
    return (pgl_row){.slot = slot,
                     .n_tokens = 6,
                     .tokens = PROMPT,
                     .wants = params != NULL ? PGL_WANT_SAMPLE : 0,
                     .params = params,
                     .token_limit = 100,
                     .result = result};
}

static void tokens_are_forced_and_masks_win_over_them(void **state) {
    (void)state;
    pgl_backend *backend = open_null((pgl_null_options){.next_token = count_up});
    bind(backend, 0, 0);
    pgl_sample_params params = pgl_sample_defaults();
    int32_t token = -1;
    float logprob = 1;
    pgl_row_result result = {.tokens = &token, .logprobs = &logprob};
    pgl_row row = prompt_row(0, &result, &params);
    must(backend, &(pgl_step_plan){.rows = &row, .n_rows = 1});
    assert_int_equal(token, 6);
    assert_int_equal(result.n_sampled, 1);
    assert_int_equal(result.length, 6);
    assert_true(logprob < 0);
    uint32_t mask[2] = {1u << 30, 0};
    row = (pgl_row){.slot = 0,
                    .from_last = true,
                    .n_tokens = 1,
                    .wants = PGL_WANT_SAMPLE,
                    .params = &params,
                    .token_limit = 1,
                    .mask_kind = PGL_MASK_GIVEN,
                    .mask = mask,
                    .result = &result};
    must(backend, &(pgl_step_plan){.rows = &row, .n_rows = 1});
    assert_int_equal(token, 30);
    assert_int_equal(result.end, PGL_ROW_LIMIT);
    must(backend, &(pgl_step_plan){.rows = &row, .n_rows = 1});
    assert_int_equal(result.end, PGL_ROW_INERT);
    assert_int_equal(result.n_sampled, 0);
    pgl_backend_close(backend);
}

static void an_injected_fault_ends_the_slot(void **state) {
    (void)state;
    pgl_backend *backend =
        open_null((pgl_null_options){.next_token = count_up, .inject_non_finite = at_length_seven});
    bind(backend, 0, 0);
    pgl_sample_params params = pgl_sample_defaults();
    int32_t token = -1;
    pgl_row_result result = {.tokens = &token};
    pgl_row row = prompt_row(0, &result, &params);
    must(backend, &(pgl_step_plan){.rows = &row, .n_rows = 1});
    assert_false(result.non_finite);
    row.from_last = true;
    row.n_tokens = 1;
    must(backend, &(pgl_step_plan){.rows = &row, .n_rows = 1});
    assert_true(result.non_finite);
    assert_int_equal(result.n_sampled, 0);
    must(backend, &(pgl_step_plan){.rows = &row, .n_rows = 1});
    assert_int_equal(result.end, PGL_ROW_INERT);
    pgl_backend_close(backend);
}

/* Each mistake must fail the next row of the slot that it harms. */
static void mishandled(void (*mistake)(pgl_backend *backend)) {
    pgl_backend *backend = open_null((pgl_null_options){.next_token = count_up});
    bind(backend, 0, 0);
    bind(backend, 1, 2);
    pgl_row_result results[2] = {{.end = PGL_ROW_RUNS}, {.end = PGL_ROW_RUNS}};
    pgl_row rows[2] = {prompt_row(0, &results[0], NULL), prompt_row(1, &results[1], NULL)};
    rows[1].tokens = PROMPT + 1;
    rows[1].n_tokens = 5;
    must(backend, &(pgl_step_plan){.rows = rows, .n_rows = 2});
    mistake(backend);
    pgl_error err = {PGL_OK, ""};
    assert_int_equal(run(backend, &(pgl_step_plan){.rows = rows, .n_rows = 1}, &err), PGL_E_DEVICE);
    assert_non_null(strstr(err.text, "slot 0"));
    assert_int_equal(run(backend, &(pgl_step_plan){0}, &err), PGL_E_DEVICE);
    pgl_backend_close(backend);
}

static void bind_the_wrong_page(pgl_backend *backend) {
    const pgl_op op = {.kind = PGL_OP_BIND, .slot = 0, .index = 0, .page = 2};
    must(backend, &(pgl_step_plan){.before = &op, .n_before = 1});
}

static void write_into_a_shared_page(pgl_backend *backend) {
    const pgl_op ops[] = {{.kind = PGL_OP_RESET, .slot = 1},
                          {.kind = PGL_OP_BIND, .slot = 1, .index = 0, .page = 0}};
    pgl_row_result result = {.end = PGL_ROW_RUNS};
    pgl_row row = prompt_row(1, &result, NULL);
    row.tokens = PROMPT + 1;
    row.n_tokens = 1;
    must(backend, &(pgl_step_plan){.before = ops, .n_before = 2, .rows = &row, .n_rows = 1});
}

static void restore_without_the_pages(pgl_backend *backend) {
    const pgl_op ops[] = {{.kind = PGL_OP_SAVE, .slot = 1, .snapshot = 0},
                          {.kind = PGL_OP_RESTORE, .slot = 0, .snapshot = 0}};
    must(backend, &(pgl_step_plan){.before = ops, .n_before = 2});
}

static void overwrite_by_copy(pgl_backend *backend) {
    const pgl_op op = {.kind = PGL_OP_COPY_PAGE, .page = 5, .page2 = 0};
    must(backend, &(pgl_step_plan){.before = &op, .n_before = 1});
}

static void mishandled_pages_fail_the_step(void **state) {
    (void)state;
    mishandled(bind_the_wrong_page);
    mishandled(write_into_a_shared_page);
    mishandled(restore_without_the_pages);
    mishandled(overwrite_by_copy);
}

static void options_that_make_no_sense_are_refused(void **state) {
    (void)state;
    pgl_backend_options options = {
        .n_slots = 1, .n_pages = 1, .max_context = 16, .max_rows = 1, .max_step_tokens = 1};
    pgl_null_options null_options = {.vocab_size = 0};
    pgl_backend *backend = NULL;
    pgl_error err = {PGL_OK, ""};
    assert_int_equal(pgl_backend_open_null(&null_options, &options, &backend, &err), PGL_E_INVALID);
    assert_non_null(strstr(err.text, "vocab_size"));
    null_options = (pgl_null_options){.vocab_size = 5, .n_experts = 1, .n_experts_used = 2};
    assert_int_equal(pgl_backend_open_null(&null_options, &options, &backend, &err), PGL_E_INVALID);
    options.n_slots = 0;
    null_options.n_experts_used = 0;
    assert_int_equal(pgl_backend_open_null(&null_options, &options, &backend, &err), PGL_E_INVALID);
    assert_null(backend);
}

static void tickets_and_late_masks_are_checked(void **state) {
    (void)state;
    pgl_backend *backend = open_null((pgl_null_options){.next_token = count_up});
    bind(backend, 0, 0);
    pgl_sample_params params = pgl_sample_defaults();
    int32_t token = -1;
    uint32_t mask[2] = {0, 0};
    pgl_row_result result = {.tokens = &token};
    pgl_row row = prompt_row(0, &result, &params);
    row.mask_kind = PGL_MASK_LATE;
    row.mask = mask;
    pgl_step_plan plan = {.rows = &row, .n_rows = 1}, nothing = {0};
    uint64_t first, second, third;
    pgl_error err = {PGL_OK, ""};
    assert_int_equal(pgl_backend_submit(backend, &plan, &first, &err), PGL_OK);
    assert_int_equal(pgl_backend_submit(backend, &nothing, &second, &err), PGL_OK);
    assert_int_equal(pgl_backend_submit(backend, &nothing, &third, &err), PGL_E_INVALID);
    assert_int_equal(pgl_backend_wait(backend, second, NULL, &err), PGL_E_INVALID);
    assert_int_equal(pgl_backend_mask_ready(backend, second + 1, 0, &err), PGL_E_INVALID);
    assert_int_equal(pgl_backend_mask_ready(backend, second, 0, &err), PGL_E_INVALID);
    assert_int_equal(pgl_backend_mask_ready(backend, first, 0, &err), PGL_E_INVALID); /* allows nothing */
    mask[1] = 1;
    assert_int_equal(pgl_backend_mask_ready(backend, first, 0, &err), PGL_OK);
    assert_int_equal(pgl_backend_wait(backend, first, NULL, &err), PGL_OK);
    assert_int_equal(token, 32);
    assert_int_equal(pgl_backend_wait(backend, second, NULL, &err), PGL_OK);
    assert_int_equal(pgl_backend_wait(backend, second, NULL, &err), PGL_E_INVALID);
    mask[1] = 0;
    row.from_last = true;
    row.n_tokens = 1;
    assert_int_equal(pgl_backend_submit(backend, &plan, &first, &err), PGL_OK);
    pgl_backend_close(backend); /* does not wait for a mask that never comes */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_forced_and_masks_win_over_them),
        cmocka_unit_test(an_injected_fault_ends_the_slot),
        cmocka_unit_test(mishandled_pages_fail_the_step),
        cmocka_unit_test(options_that_make_no_sense_are_refused),
        cmocka_unit_test(tickets_and_late_masks_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
