#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/answer_mask.h"
#include "text/files.h"

#define VOCAB 1024
#define START 1022
#define END 1023
#define STOP 3

typedef struct machine {
    pgl_text_files files;
    pgl_mask_provider provider;
    uint32_t mask[VOCAB / 32];
} machine;

static void begin(machine *m, uint32_t budget) {
    static const int32_t stops[] = {STOP, 1};
    pgl_error err;
    memset(m, 0, sizeof *m);
    assert_int_equal(pgl_text_files_open(PGL_GOLDENS "/tiny-a", &m->files, &err), PGL_OK);
    pgl_answer_mask_options options = {.tokenizer = m->files.tokenizer,
                                       .n_vocab = VOCAB,
                                       .in_thought = true,
                                       .budget_tokens = budget,
                                       .stop_ids = stops,
                                       .n_stop_ids = 2};
    assert_int_equal(pgl_answer_mask_open(&options, &m->provider, &err), PGL_OK);
}

static void end(machine *m) {
    m->provider.close(m->provider.user);
    pgl_text_files_close(&m->files);
}

/* What may come behind token: 'a' anything, 'e' only </think>, 'n' anything but an end of the answer. */
static char behind(machine *m, int32_t token) {
    pgl_error err;
    memset(m->mask, 0x55, sizeof m->mask);
    if (m->provider.next(m->provider.user, token, m->mask, &err) == PGL_MASK_ALL)
        return 'a';
    uint32_t n = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        n += m->mask[i / 32] >> (i % 32) & 1;
    if (n == 1 && (m->mask[END / 32] >> (END % 32) & 1))
        return 'e';
    if (n == VOCAB - 2 && !(m->mask[0] >> STOP & 1) && !(m->mask[0] >> 1 & 1))
        return 'n';
    return '?';
}

static void the_thought_is_closed_after_exactly_its_budget(void **state) {
    (void)state;
    for (uint32_t budget = 0; budget < 5; budget++) {
        machine m;
        begin(&m, budget);
        char first = behind(&m, -1);
        assert_int_equal(first, budget == 0 ? 'e' : 'a');
        for (uint32_t i = 1; i <= budget; i++)
            assert_int_equal(behind(&m, 100), i == budget ? 'e' : 'a');
        assert_int_equal(behind(&m, END), 'n'); /* an answer has to follow */
        for (int i = 0; i < 10; i++)
            assert_int_equal(behind(&m, 100), 'a');
        end(&m);
    }
}

static void a_thought_that_ends_by_itself_is_left_alone(void **state) {
    (void)state;
    machine m;
    begin(&m, 3);
    assert_int_equal(behind(&m, -1), 'a');
    assert_int_equal(behind(&m, 100), 'a');
    assert_int_equal(behind(&m, END), 'a');
    for (int i = 0; i < 10; i++)
        assert_int_equal(behind(&m, 100), 'a');
    end(&m);
}

static void a_thought_that_is_opened_again_has_what_is_left(void **state) {
    (void)state;
    machine m;
    begin(&m, 3);
    assert_int_equal(behind(&m, -1), 'a');
    assert_int_equal(behind(&m, 100), 'a');
    assert_int_equal(behind(&m, END), 'a');
    assert_int_equal(behind(&m, 100), 'a');
    assert_int_equal(behind(&m, START), 'a');
    assert_int_equal(behind(&m, 100), 'a');
    assert_int_equal(behind(&m, 100), 'e');
    assert_int_equal(behind(&m, END), 'n');
    assert_int_equal(behind(&m, START), 'e');
    end(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_thought_is_closed_after_exactly_its_budget),
        cmocka_unit_test(a_thought_that_ends_by_itself_is_left_alone),
        cmocka_unit_test(a_thought_that_is_opened_again_has_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
