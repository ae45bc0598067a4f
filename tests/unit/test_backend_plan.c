/* Every refusal of the plan check, each made from a plan that is right by changing one thing: it names the place, it
 * says what it found, and it leaves the state as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend_impl.h"

#define N_SLOTS 4u
#define N_SNAPSHOTS 3u
#define VOCAB 100u
#define N_VOCAB 90u
#define MAX_DRAFT 3u

/* A plan that is right, with everything that it points to. Slot 0 holds 20 tokens in two pages and has a last token
 * and two drafts; slot 1 is empty with one page; slot 2 has 2 pending tokens; snapshot 1 holds 16 tokens. */
typedef struct fixture {
    pgl_backend_caps caps;
    pgl_plan_state state, scratch;
    pgl_op before[4], after[2];
    pgl_row rows[3];
    pgl_row_result results[3];
    pgl_step_plan plan;
    int32_t tokens[8], targets[8], stop_ids[2], sampled[3][4], drafts[3];
    pgl_token_logprob top[64];
    float floats[64];
    int32_t experts[64];
    uint64_t counts[64];
    uint32_t mask[4 * ((N_VOCAB + 31) / 32)];
    pgl_sample_params params;
    pgl_token_count history[3];
    char host[8];
} fixture;

static void fill_rows(fixture *f) {
    /* a prompt chunk with targets on slot 1 */
    f->rows[0] = (pgl_row){.slot = 1,
                           .n_tokens = 5,
                           .tokens = f->tokens,
                           .wants = PGL_WANT_TARGETS | PGL_WANT_EXPERTS | PGL_WANT_COUNTS | PGL_WANT_HIDDEN |
                                    PGL_WANT_LOGITS | PGL_WANT_DRAFT_LOGITS,
                           .n_top = 2,
                           .targets = f->targets};
    /* a decode row on slot 0 */
    f->rows[1] = (pgl_row){.slot = 0,
                           .from_last = true,
                           .n_tokens = 1,
                           .wants = PGL_WANT_SAMPLE | PGL_WANT_TOP | PGL_WANT_DRAFT,
                           .n_top = 2,
                           .n_draft = 2,
                           .params = &f->params,
                           .stop_ids = f->stop_ids,
                           .n_stop_ids = 2,
                           .token_limit = 10,
                           .mask_kind = PGL_MASK_GIVEN,
                           .mask = f->mask};
    /* a verify row on slot 2, whose pending tokens an operation commits before */
    f->rows[2] = (pgl_row){.slot = 2,
                           .kind = PGL_ROW_VERIFY,
                           .n_tokens = 4,
                           .tokens = f->tokens,
                           .wants = PGL_WANT_SAMPLE,
                           .params = &f->params,
                           .token_limit = 4};
    for (size_t i = 0; i < 3; i++) {
        f->results[i] = (pgl_row_result){.tokens = f->sampled[i],
                                         .top = f->top,
                                         .target_logprobs = f->floats,
                                         .logits = f->floats,
                                         .hidden = f->floats,
                                         .experts = f->experts,
                                         .draft_logits = f->floats,
                                         .drafts = f->drafts};
        f->rows[i].result = &f->results[i];
    }
}

static fixture *make(void) {
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->caps = (pgl_backend_caps){.n_slots = N_SLOTS,
                                 .n_pages = 8,
                                 .n_snapshots = N_SNAPSHOTS,
                                 .page_tokens = 16,
                                 .max_context = 40,
                                 .max_rows = 3,
                                 .max_step_tokens = 12,
                                 .max_draft = MAX_DRAFT,
                                 .n_vocab = N_VOCAB,
                                 .vocab_size = VOCAB,
                                 .n_layers = 2,
                                 .n_experts = 4,
                                 .n_experts_used = 2,
                                 .hidden_size = 4};
    assert_int_equal(pgl_plan_state_open(&f->caps, &f->state, NULL), PGL_OK);
    assert_int_equal(pgl_plan_state_open(&f->caps, &f->scratch, NULL), PGL_OK);
    f->state.slots[0] = (pgl_slot_shadow){.length = 20, .n_bound = 2, .has_last = true, .n_drafts = 2};
    f->state.slots[1] = (pgl_slot_shadow){.n_bound = 1};
    f->state.slots[2] = (pgl_slot_shadow){.length = 4, .n_bound = 1, .n_pending = 2, .has_last = true};
    f->state.snapshot_length[1] = 16;
    for (int32_t i = 0; i < 8; i++) {
        f->tokens[i] = 10 + i;
        f->targets[i] = i % 2 == 0 ? -1 : 20 + i;
    }
    f->stop_ids[1] = 7;
    f->mask[0] = 2;
    f->params = pgl_sample_defaults();
    for (int32_t i = 0; i < 3; i++)
        f->history[i] = (pgl_token_count){.id = 5 * i, .in_prompt = true};
    f->before[0] = (pgl_op){.kind = PGL_OP_COMMIT, .slot = 2, .n = 2};
    f->before[1] = (pgl_op){.kind = PGL_OP_BIND, .slot = 3, .index = 0, .page = 5};
    f->before[2] = (pgl_op){.kind = PGL_OP_RESTORE, .slot = 3, .snapshot = 1};
    f->before[3] = (pgl_op){.kind = PGL_OP_HISTORY, .slot = 0, .history = {f->history, 3}};
    f->after[0] = (pgl_op){.kind = PGL_OP_SAVE, .slot = 1, .snapshot = 2};
    f->after[1] = (pgl_op){.kind = PGL_OP_EXPORT_SNAPSHOT, .snapshot = 2, .host = f->host};
    fill_rows(f);
    f->plan = (pgl_step_plan){f->before, 4, f->rows, 3, f->after, 2, f->counts};
    return f;
}

static void drop(fixture *f) {
    pgl_plan_state_close(&f->state);
    pgl_plan_state_close(&f->scratch);
    free(f);
}

static bool same_state(const fixture *f, const pgl_slot_shadow *slots, const uint32_t *snapshots) {
    for (size_t i = 0; i < N_SLOTS; i++) {
        const pgl_slot_shadow *a = &f->state.slots[i], *b = &slots[i];
        if (a->length != b->length || a->n_bound != b->n_bound || a->n_pending != b->n_pending ||
            a->n_drafts != b->n_drafts || a->n_history != b->n_history || a->has_last != b->has_last)
            return false;
    }
    return memcmp(f->state.snapshot_length, snapshots, N_SNAPSHOTS * sizeof *snapshots) == 0;
}

/* The plan must be refused with a message that holds all of the words. Frees f. */
static void refused(fixture *f, const char *const *words) {
    pgl_slot_shadow slots[N_SLOTS];
    uint32_t snapshots[N_SNAPSHOTS];
    memcpy(slots, f->state.slots, sizeof slots);
    memcpy(snapshots, f->state.snapshot_length, sizeof snapshots);
    pgl_error err = {PGL_OK, ""};
    pgl_status status = pgl_plan_check(&f->caps, &f->plan, &f->state, &f->scratch, &err);
    if (status != PGL_E_INVALID)
        fail_msg("expected a refusal with \"%s\", found status %s", words[0], pgl_status_name(status));
    assert_int_equal(err.status, PGL_E_INVALID);
    for (; *words != NULL; words++) {
        if (strstr(err.text, *words) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", err.text, *words);
    }
    assert_true(same_state(f, slots, snapshots));
    drop(f);
}

#define REFUSED(change, ...)                                                                                 \
    do {                                                                                                     \
        fixture *f = make();                                                                                 \
        change;                                                                                              \
        refused(f, (const char *const[]){__VA_ARGS__, NULL});                                                \
    } while (0)

static void a_right_plan_passes_and_moves_the_shadows(void **state) {
    (void)state;
    fixture *f = make();
    pgl_error err = {PGL_OK, ""};
    if (pgl_plan_check(&f->caps, &f->plan, &f->state, &f->scratch, &err) != PGL_OK)
        fail_msg("%s", err.text);
    const pgl_slot_shadow *s = f->state.slots;
    assert_int_equal(s[0].length, 21);
    assert_int_equal(s[0].n_drafts, 2);
    assert_int_equal(s[0].n_history, 4);
    assert_int_equal(s[1].length, 5);
    assert_int_equal(s[2].length, 6);
    assert_int_equal(s[2].n_pending, 4);
    assert_int_equal(s[3].length, 16);
    assert_int_equal(s[3].n_bound, 1);
    assert_int_equal(f->state.snapshot_length[2], 5);
    drop(f);
}

static void what_fits_exactly_passes(void **state) {
    (void)state;
    fixture *f = make();
    f->rows[0].n_tokens = 7; /* 7 + 1 + 4 = max_step_tokens */
    f->state.slots[1].length = 9;
    assert_int_equal(pgl_plan_check(&f->caps, &f->plan, &f->state, &f->scratch, NULL), PGL_OK);
    drop(f);
    f = make(); /* the last page of a table that ends inside it: positions 32 .. 39 */
    f->state.slots[0] = (pgl_slot_shadow){.length = 39, .n_bound = 3, .has_last = true, .n_drafts = 2};
    assert_int_equal(pgl_plan_check(&f->caps, &f->plan, &f->state, &f->scratch, NULL), PGL_OK);
    drop(f);
    f = make(); /* verify rows from the device alone need no tokens */
    f->rows[1].kind = PGL_ROW_VERIFY;
    f->rows[1].from_drafts = true;
    f->rows[1].auto_commit = true;
    f->rows[1].n_tokens = 2;
    assert_int_equal(pgl_plan_check(&f->caps, &f->plan, &f->state, &f->scratch, NULL), PGL_OK);
    assert_int_equal(f->state.slots[0].length, 22);
    drop(f);
    f = make(); /* an empty plan */
    f->plan = (pgl_step_plan){0};
    assert_int_equal(pgl_plan_check(&f->caps, &f->plan, &f->state, &f->scratch, NULL), PGL_OK);
    drop(f);
}

static void operations_are_refused_by_index(void **state) {
    (void)state;
    REFUSED(f->before[0].slot = N_SLOTS, "before operation 0 (COMMIT)", "slot: expected below 4, found 4");
    REFUSED(f->before[1].slot = 99, "before operation 1 (BIND)", "found 99");
    REFUSED(f->before[1].page = 8, "page: expected below 8, found 8");
    REFUSED(f->before[1].index = 3, "BIND", "bound up to 0", "found 3");
    REFUSED((f->state.slots[3].n_bound = 3, f->before[1].index = 3), "index: expected below 3, found 3");
    REFUSED(f->before[2].snapshot = 3, "RESTORE", "snapshot: expected below 3, found 3");
    REFUSED(f->before[2].snapshot = 0, "RESTORE", "snapshot 0 holds nothing");
    REFUSED(f->after[0].slot = 4, "after operation 0 (SAVE)", "slot");
    REFUSED(f->after[1].snapshot = 0, "after operation 1 (EXPORT_SNAPSHOT)", "snapshot 0 holds nothing");
    REFUSED(f->after[1].host = NULL, "EXPORT_SNAPSHOT", "host", "NULL");
    REFUSED(f->before[0].kind = (pgl_op_kind)77, "before operation 0 (unknown)", "77");
    REFUSED(f->plan.before = NULL, "before", "4 operations, found NULL");
    REFUSED(f->plan.after = NULL, "after", "2 operations, found NULL");
}

static void single_operations_are_refused(void **state) {
    (void)state;
#define ALONE(...)                                                                                           \
    (f->plan = (pgl_step_plan){.before = f->before, .n_before = 1}, f->before[0] = (pgl_op){__VA_ARGS__})
    REFUSED(ALONE(.kind = PGL_OP_FORK, .slot = 1, .slot2 = 1), "FORK", "another slot than 1");
    REFUSED(ALONE(.kind = PGL_OP_FORK, .slot = 1, .slot2 = 4), "FORK", "slot2: expected below 4");
    REFUSED(ALONE(.kind = PGL_OP_COPY_PAGE, .page = 8), "COPY_PAGE", "page: expected below 8");
    REFUSED(ALONE(.kind = PGL_OP_COPY_PAGE, .page2 = 9), "COPY_PAGE", "page2: expected below 8, found 9");
    REFUSED(ALONE(.kind = PGL_OP_EXPORT_PAGE, .page = 1), "EXPORT_PAGE", "host");
    REFUSED(ALONE(.kind = PGL_OP_IMPORT_PAGE, .page = 1), "IMPORT_PAGE", "host");
    REFUSED(ALONE(.kind = PGL_OP_IMPORT_PAGE, .page = 8, .host = f->host), "IMPORT_PAGE", "page");
    REFUSED(ALONE(.kind = PGL_OP_IMPORT_SNAPSHOT, .n = 1), "IMPORT_SNAPSHOT", "host");
    REFUSED(ALONE(.kind = PGL_OP_IMPORT_SNAPSHOT, .n = 41, .host = f->host), "at most 40, found 41");
    REFUSED(ALONE(.kind = PGL_OP_COMMIT, .slot = 1), "slot 1 has no pending tokens");
    REFUSED(ALONE(.kind = PGL_OP_COMMIT, .slot = 2, .n = 3), "slot 2 has 2 pending tokens, found 3");
    REFUSED(ALONE(.kind = PGL_OP_LAST_TOKEN, .token = -1), "LAST_TOKEN", "found -1");
    REFUSED(ALONE(.kind = PGL_OP_LAST_TOKEN, .token = 100), "LAST_TOKEN", "below 100, found 100");
    REFUSED(ALONE(.kind = PGL_OP_HISTORY, .history = {NULL, 2}), "HISTORY", "NULL");
    REFUSED(ALONE(.kind = PGL_OP_HISTORY, .history = {f->history, 81}), "at most 80 ids, found 81");
    REFUSED((f->history[2].id = 5, ALONE(.kind = PGL_OP_HISTORY, .history = {f->history, 3})),
            "rising ids, found 5 after 5");
    REFUSED((f->history[2].id = 100, ALONE(.kind = PGL_OP_HISTORY, .history = {f->history, 3})),
            "found 100 at 2");
    REFUSED((f->history[0].id = -1, ALONE(.kind = PGL_OP_HISTORY, .history = {f->history, 3})),
            "found -1 at 0");
#undef ALONE
}

static void rows_are_refused_by_span(void **state) {
    (void)state;
    REFUSED(f->rows[0].slot = 4, "row 0", "slot: expected below 4, found 4");
    REFUSED(f->rows[1].slot = 1, "row 1", "slot 1 has a row in this plan already");
    REFUSED(f->rows[1].result = NULL, "row 1", "result", "NULL");
    REFUSED(f->rows[0].n_tokens = 0, "row 0", "n_tokens");
    REFUSED(f->rows[0].n_tokens = 17, "row 0", "pages for 17 tokens", "bound for 16");
    REFUSED(f->rows[0].n_tokens = UINT32_MAX, "row 0", "exceed the context of 40");
    REFUSED((f->rows[0].n_tokens = 8), "rows", "at most 12 tokens in all rows, found 13");
    REFUSED(f->state.slots[1].length = 36, "row 0",
            "slot 1 holds 36 tokens; 5 more exceed the context of 40");
    REFUSED(f->rows[0].tokens = NULL, "row 0", "tokens: expected 5 ids, found NULL");
    REFUSED(f->tokens[3] = -1, "row 0", "tokens", "found -1 at 3");
    REFUSED(f->tokens[4] = 100, "row 0", "tokens", "found 100 at 4");
    REFUSED(f->rows[0].from_last = true, "row 0", "slot 1 has no last sampled token");
    REFUSED(f->plan.n_before = 0, "row 2", "slot 2 has 2 pending tokens: COMMIT must come first");
    REFUSED(f->rows[2].n_tokens = 5, "row 2", "at most 4, found 5");
    REFUSED(f->rows[2].from_drafts = true, "row 2", "slot 2 holds 0 drafts, expected 3");
    REFUSED(f->rows[1].from_drafts = true, "row 1", "for verify rows");
    REFUSED(f->rows[1].auto_commit = true, "row 1", "for verify rows");
    REFUSED(f->rows[1].kind = (pgl_row_kind)5, "row 1", "unknown kind of row 5");
    REFUSED(f->plan.rows = NULL, "rows", "3 rows, found NULL");
    REFUSED(f->plan.n_rows = 4, "rows", "at most 3 rows, found 4");
}

static void rows_are_refused_by_sampling(void **state) {
    (void)state;
    REFUSED(f->rows[1].params = NULL, "row 1", "params", "NULL");
    REFUSED(f->params.top_p = 0, "row 1", "params", "top_p");
    REFUSED(f->rows[1].token_limit = 0, "row 1", "token_limit");
    REFUSED(f->rows[1].n_stop_ids = 65, "row 1", "at most 64, found 65");
    REFUSED(f->rows[1].stop_ids = NULL, "row 1", "stop_ids: expected 2 ids, found NULL");
    REFUSED(f->stop_ids[0] = -1, "row 1", "stop_ids", "found -1 at 0");
    REFUSED(f->stop_ids[1] = 100, "row 1", "stop_ids", "found 100 at 1");
    REFUSED(f->rows[1].mask_kind = (pgl_mask_kind)3, "row 1", "mask_kind", "found 3");
    REFUSED(f->rows[1].mask = NULL, "row 1", "mask", "NULL");
    REFUSED((f->rows[1].mask_kind = PGL_MASK_LATE, f->rows[1].mask = NULL), "row 1", "mask", "NULL");
    REFUSED(f->mask[0] = 0, "row 1", "mask: expected at least one allowed id");
    REFUSED((f->mask[0] = 0, f->mask[2] = 1u << (N_VOCAB % 32)), "row 1",
            "mask: expected at least one allowed id");
    REFUSED(f->results[1].tokens = NULL, "row 1", "result tokens", "NULL");
    REFUSED(f->rows[1].n_top = 0, "row 1", "n_top: expected at least 1");
    REFUSED(f->rows[1].n_top = N_VOCAB + 1, "row 1", "at most 90, found 91");
    REFUSED(f->results[1].top = NULL, "row 1", "result top", "NULL");
    REFUSED(f->rows[0].mask_kind = PGL_MASK_GIVEN, "row 0", "a mask needs SAMPLE");
}

static void rows_are_refused_by_wants(void **state) {
    (void)state;
    REFUSED(f->rows[0].wants |= 512, "row 0", "unknown bits 0x200");
    REFUSED(f->rows[0].wants |= PGL_WANT_TOP, "row 0", "TOP and DRAFT need SAMPLE");
    REFUSED(f->rows[0].wants |= PGL_WANT_DRAFT, "row 0", "TOP and DRAFT need SAMPLE");
    REFUSED(f->rows[2].wants = 0, "row 2", "SAMPLE is missing");
    REFUSED(f->rows[0].targets = NULL, "row 0", "targets: expected 5 ids, found NULL");
    REFUSED(f->targets[1] = N_VOCAB, "row 0", "targets", "found 90 at 1");
    REFUSED(f->targets[1] = -2, "row 0", "targets", "found -2 at 1");
    REFUSED(f->rows[0].n_top = 91, "row 0", "n_top");
    REFUSED(f->results[0].top = NULL, "row 0", "result top");
    REFUSED(f->results[0].target_logprobs = NULL, "row 0", "result target_logprobs");
    REFUSED(f->results[0].logits = NULL, "row 0", "result logits");
    REFUSED(f->results[0].hidden = NULL, "row 0", "result hidden");
    REFUSED(f->results[0].experts = NULL, "row 0", "result experts");
    REFUSED(f->results[0].draft_logits = NULL, "row 0", "result draft_logits");
    REFUSED(f->plan.expert_counts = NULL, "row 0", "expert_counts");
    REFUSED(f->caps.n_experts = 0, "row 0", "a model with experts");
    REFUSED(f->rows[1].n_draft = 0, "row 1", "n_draft: expected 1 to 3, found 0");
    REFUSED(f->rows[1].n_draft = 4, "row 1", "n_draft: expected 1 to 3, found 4");
    REFUSED(f->results[1].drafts = NULL, "row 1", "result drafts");
    REFUSED((f->caps.max_draft = 0, f->plan.n_rows = 2, f->rows[0].wants = PGL_WANT_DRAFT_LOGITS), "row 0",
            "max_draft is 0");
}

static void a_full_penalty_history_is_refused_before_it_overflows(void **state) {
    (void)state;
    REFUSED((f->caps.max_context = 39, f->plan.n_before = 3, f->state.slots[0].n_history = 78), "row 1",
            "holds at most 78 ids and 78 are counted");
}

static void a_replayed_plan_takes_what_turned_out_smaller(void **state) {
    (void)state;
    fixture *f = make();
    f->state.slots[2].n_pending = 0; /* the verify row found its slot inert */
    pgl_plan_apply(&f->caps, &f->plan, &f->state);
    assert_int_equal(f->state.slots[2].length, 4);
    assert_int_equal(f->state.slots[2].n_pending, 4);
    assert_int_equal(f->state.slots[1].length, 5);
    drop(f);
}

static void options_out_of_range_are_refused_by_name(void **state) {
    (void)state;
    const pgl_backend_options right = {
        .n_slots = 2, .n_pages = 4, .max_context = 64, .max_rows = 2, .max_step_tokens = 8};
    pgl_backend_caps caps = {.vocab_size = 50};
    assert_int_equal(pgl_backend_caps_init(&caps, &right, NULL), PGL_OK);
    assert_int_equal(caps.n_vocab, 50);
    assert_int_equal(caps.page_tokens, 64);
#define BAD(field, v)                                                                                        \
    do {                                                                                                     \
        pgl_backend_options options = right;                                                                 \
        options.field = (v);                                                                                 \
        pgl_error err = {PGL_OK, ""};                                                                        \
        assert_int_equal(pgl_backend_caps_init(&caps, &options, &err), PGL_E_INVALID);                       \
        assert_non_null(strstr(err.text, #field));                                                           \
    } while (0)
    BAD(n_slots, 0);
    BAD(n_slots, 1u << 20);
    BAD(n_pages, 0);
    BAD(n_snapshots, UINT32_MAX);
    BAD(max_context, 0);
    BAD(max_context, UINT32_MAX);
    BAD(max_rows, 0);
    BAD(max_step_tokens, 0);
    BAD(max_draft, 1000);
    BAD(n_vocab, 51);
    BAD(page_tokens, 8);
    BAD(page_tokens, 48);
    BAD(page_tokens, 2048);
#undef BAD
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_plan_passes_and_moves_the_shadows),
        cmocka_unit_test(what_fits_exactly_passes),
        cmocka_unit_test(operations_are_refused_by_index),
        cmocka_unit_test(single_operations_are_refused),
        cmocka_unit_test(rows_are_refused_by_span),
        cmocka_unit_test(rows_are_refused_by_sampling),
        cmocka_unit_test(rows_are_refused_by_wants),
        cmocka_unit_test(a_full_penalty_history_is_refused_before_it_overflows),
        cmocka_unit_test(a_replayed_plan_takes_what_turned_out_smaller),
        cmocka_unit_test(options_out_of_range_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
