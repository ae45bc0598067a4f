/* The memory plan: its sums, its verdict, its advice, and arithmetic that must not wrap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/plan.h"

/* The sizes of the published 35B-A3B, without weights: a plan needs none. */
static pgl_config big_config(void) {
    pgl_config c = {.vocab_size = 248320,
                    .hidden_size = 2048,
                    .n_layers = 40,
                    .n_heads = 16,
                    .n_kv_heads = 2,
                    .head_dim = 256,
                    .rotary_dim = 64,
                    .n_key_heads = 16,
                    .n_value_heads = 32,
                    .key_dim = 128,
                    .value_dim = 128,
                    .conv_kernel = 4,
                    .n_experts = 256,
                    .n_experts_used = 8,
                    .moe_intermediate_size = 512,
                    .shared_intermediate_size = 512,
                    .max_position_embeddings = 262144,
                    .n_mtp_layers = 1};
    for (uint32_t l = 0; l < c.n_layers; l++)
        c.full_attention[l] = (l + 1) % 4 == 0;
    return c;
}

static const pgl_weights WEIGHTS = {.draft = {.present = true}};

static pgl_model big_model(const pgl_config *config) {
    pgl_model model;
    pgl_error err;
    if (pgl_model_sizes(&model, config, &WEIGHTS, &err) != PGL_OK)
        fail_msg("%s", err.text);
    return model;
}

static uint64_t line_bytes(const pgl_memory_plan *plan, const char *name) {
    for (uint32_t i = 0; i < plan->n_lines; i++) {
        if (strcmp(plan->lines[i].name, name) == 0)
            return plan->lines[i].bytes;
    }
    fail_msg("no line %s", name);
    return 0;
}

static void published_sizes_come_out(void **state) {
    (void)state;
    pgl_config config = big_config();
    pgl_model model = big_model(&config);
    assert_int_equal(model.kv_token_bytes, 20 * 1024);
    assert_int_equal(model.draft_kv_token_bytes, 2 * 1024);
    assert_int_equal(model.state_bytes, 30u * 32 * 128 * 128 * 4);
    assert_int_equal(model.conv_bytes, 30u * 3 * 8192 * 4);
    assert_int_equal(model.slot_bytes, 62914560 + 2949120 + 8192);
    assert_int_equal(model.n_attention_layers, 10);
    assert_int_equal(model.layer_slot[39], 9);
    assert_int_equal(model.layer_slot[38], 29);
}

static void lines_are_what_the_request_asks_for(void **state) {
    (void)state;
    pgl_config config = big_config();
    pgl_model model = big_model(&config);
    pgl_memory_plan plan;
    pgl_error err;
    pgl_plan_request request = {.context_tokens = 4097,
                                .n_slots = 3,
                                .n_snapshots = 5,
                                .cache_tokens = 65,
                                .page_tokens = 64,
                                .weights_bytes = 12300000000,
                                .other_bytes = 7};
    assert_int_equal(pgl_plan_memory(&model, &request, &plan, &err), PGL_OK);
    assert_int_equal(plan.n_pages, 3 * 65 + 2);
    assert_int_equal(line_bytes(&plan, "weights"), 12300000000);
    assert_int_equal(line_bytes(&plan, "keys and values"), 197ull * 64 * 20 * 1024);
    uint64_t slots =
        line_bytes(&plan, "recurrent state"); /* with what a step leaves pending, and page tables */
    assert_true(slots >= 3 * model.slot_bytes && slots < 3 * model.slot_bytes + 3 * (3u << 20));
    assert_int_equal(line_bytes(&plan, "snapshots"), 5 * model.slot_bytes);
    assert_int_equal(line_bytes(&plan, "other"), 7);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < plan.n_lines; i++)
        sum += plan.lines[i].bytes;
    assert_int_equal(plan.total_bytes, sum);
    assert_true(plan.fits && plan.advice[0] == 0);
    request.draft_tokens = 3;
    assert_int_equal(pgl_plan_memory(&model, &request, &plan, &err), PGL_OK);
    assert_int_equal(line_bytes(&plan, "keys and values"), 197ull * 64 * 22 * 1024);
    request = (pgl_plan_request){0};
    assert_int_equal(pgl_plan_memory(&model, &request, &plan, &err), PGL_OK);
    assert_int_equal(plan.settled.context_tokens, 262144);
    assert_int_equal(plan.settled.n_slots, 1);
}

/* What the advice and largest_context promise is true, and one page more is not. */
static void promised_context_fits_and_one_page_more_does_not(void **state) {
    (void)state;
    pgl_config config = big_config();
    pgl_model model = big_model(&config);
    pgl_memory_plan plan;
    pgl_error err;
    for (uint64_t budget = 13000000000; budget < 60000000000; budget += 3100000007) {
        for (uint32_t slots = 1; slots <= 8; slots *= 2) {
            pgl_plan_request request = {
                .n_slots = slots, .weights_bytes = 12300000000, .budget_bytes = budget};
            uint32_t context;
            assert_int_equal(pgl_plan_largest_context(&model, &request, &context, &err), PGL_OK);
            if (context > 0) {
                request.context_tokens = context;
                assert_int_equal(pgl_plan_memory(&model, &request, &plan, &err), PGL_OK);
                assert_true(plan.fits);
            }
            if (context < 262144) {
                request.context_tokens = context + PGL_PLAN_PAGE_TOKENS;
                assert_int_equal(pgl_plan_memory(&model, &request, &plan, &err), PGL_OK);
                assert_false(plan.fits);
                assert_true(plan.advice[0] != 0);
            }
        }
    }
}

static void a_plan_that_does_not_fit_says_what_to_lower(void **state) {
    (void)state;
    pgl_config config = big_config();
    pgl_model model = big_model(&config);
    pgl_memory_plan plan;
    pgl_error err;
    const struct {
        pgl_plan_request request;
        const char *says;
    } rows[] = {
        {{.context_tokens = 262144, .n_slots = 4, .weights_bytes = 12300000000, .budget_bytes = 24000000000},
         "or with 2 slots of 262144 tokens"},
        {{.context_tokens = 262144, .n_slots = 1, .weights_bytes = 12300000000, .budget_bytes = 16000000000},
         "It fits with a context of "},
        {{.context_tokens = 64, .n_slots = 64, .weights_bytes = 12300000000, .budget_bytes = 14000000000},
         "It fits with "},
        {{.context_tokens = 64,
          .n_slots = 1,
          .n_snapshots = 100,
          .weights_bytes = 12300000000,
          .budget_bytes = 13000000000},
         "Lower the prefix cache: 100 snapshots"},
        {{.context_tokens = 64, .n_slots = 1, .weights_bytes = 12300000000, .budget_bytes = 8000000000},
         "The weights alone take more"},
        {{.context_tokens = 64, .n_slots = 1, .weights_bytes = 12300000000, .budget_bytes = 12300000001},
         "Not even the smallest context"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(pgl_plan_memory(&model, &rows[i].request, &plan, &err), PGL_OK);
        assert_false(plan.fits);
        if (strstr(plan.advice, rows[i].says) == NULL)
            fail_msg("row %zu: expected '%s', found '%s'", i, rows[i].says, plan.advice);
        assert_int_equal(pgl_plan_check_fits(&plan, &err), PGL_E_MEMORY);
        assert_non_null(strstr(err.text, plan.advice));
    }
}

static void sizes_that_overflow_are_refused(void **state) {
    (void)state;
    pgl_config config = big_config();
    pgl_model model = big_model(&config);
    pgl_memory_plan plan;
    pgl_error err;
    const struct {
        pgl_plan_request request;
        pgl_status status;
    } rows[] = {
        {{.context_tokens = 262145}, PGL_E_INVALID},
        {{.page_tokens = 48}, PGL_E_INVALID},
        {{.page_tokens = 8}, PGL_E_INVALID},
        {{.page_tokens = 2048}, PGL_E_INVALID},
        {{.n_slots = UINT32_MAX}, PGL_E_TOO_LARGE},
        {{.cache_tokens = UINT64_MAX}, PGL_E_TOO_LARGE},
        {{.weights_bytes = UINT64_MAX}, PGL_E_INVALID},
        {{.other_bytes = UINT64_MAX - 5}, PGL_E_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (pgl_plan_memory(&model, &rows[i].request, &plan, &err) != rows[i].status)
            fail_msg("row %zu: expected %s", i, pgl_status_name(rows[i].status));
    }
    model.snapshot_bytes = UINT64_MAX / 2;
    pgl_plan_request request = {.n_snapshots = 3};
    assert_int_equal(pgl_plan_memory(&model, &request, &plan, &err), PGL_E_INVALID);
}

static void sizes_are_readable(void **state) {
    (void)state;
    const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {{0, "0 B"},
                {1023, "1023 B"},
                {1024, "1.0 KiB"},
                {22528, "22.0 KiB"},
                {1048575, "1024 KiB"},
                {12300000000, "11.5 GiB"},
                {UINT64_MAX, "16.0 EiB"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[16];
        pgl_size_text(rows[i].bytes, text);
        assert_string_equal(text, rows[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_sizes_come_out),
        cmocka_unit_test(lines_are_what_the_request_asks_for),
        cmocka_unit_test(promised_context_fits_and_one_page_more_does_not),
        cmocka_unit_test(a_plan_that_does_not_fit_says_what_to_lower),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(sizes_are_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
