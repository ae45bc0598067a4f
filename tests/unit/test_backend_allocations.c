/* After open, a backend allocates nothing: malloc and its kin are counted while steps run. The sanitizers bring their
 * own malloc; there this program has nothing to count and says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>

#include "backend/null/null.h"
#include "checkpoint/checkpoint.h"
#include "conformance.h"
#include "model/model.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTED 1

static atomic_uint g_allocations;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

void *malloc(size_t n) {
    atomic_fetch_add(&g_allocations, 1);
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    atomic_fetch_add(&g_allocations, 1);
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    atomic_fetch_add(&g_allocations, 1);
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t alignment, size_t n) {
    atomic_fetch_add(&g_allocations, 1);
    return __libc_memalign(alignment, n);
}

static unsigned allocations(void) {
    return atomic_load(&g_allocations);
}
#else
#define COUNTED 0

static unsigned allocations(void) {
    return 0;
}
#endif

static pgl_model g_model;

/* Every kind of row and most operations. */
static void run_steps(pgl_backend *backend, conf_row *r, conf_row *other) {
    int32_t tokens[40];
    conf_tokens(backend, 7, tokens, 40);
    conf_reset(backend, 0);
    conf_reset(backend, 1);
    conf_step step = {0};
    conf_row_set(r, 0, tokens, 20,
                 PGL_WANT_SAMPLE | PGL_WANT_TARGETS | PGL_WANT_LOGITS | PGL_WANT_DRAFT |
                     PGL_WANT_DRAFT_LOGITS);
    r->row.n_draft = 2;
    r->row.n_top = 3;
    r->params.temperature = 1;
    r->params.top_p = 0.9F;
    r->params.repetition_penalty = 1.1F;
    conf_row_verify(other, 1, tokens, 3, 0);
    conf_add_row(&step, r);
    conf_add_row(&step, other);
    conf_op_after(&step, (pgl_op){.kind = PGL_OP_SAVE, .slot = 0, .snapshot = 0});
    conf_run(backend, &step);
    step = (conf_step){0};
    conf_op(&step, (pgl_op){.kind = PGL_OP_COMMIT, .slot = 1, .n = 2});
    conf_op(&step, (pgl_op){.kind = PGL_OP_RESTORE, .slot = 0, .snapshot = 0});
    conf_op(&step, (pgl_op){.kind = PGL_OP_FORK, .slot = 0, .slot2 = 2});
    conf_op(&step, (pgl_op){.kind = PGL_OP_COPY_PAGE, .page = 0, .page2 = CONF_SPARE});
    conf_row_set(r, 0, tokens, 1, PGL_WANT_SAMPLE | PGL_WANT_TOP);
    r->row.n_top = 5;
    conf_add_row(&step, r);
    conf_run(backend, &step);
}

static void steps_allocate_nothing(void **state) {
    const conf_subject *subject = *state;
    if (!COUNTED)
        skip();
    pgl_backend *backend = conf_open(subject);
    conf_row *r = conf_row_new(backend), *other = conf_row_new(backend);
    unsigned before = allocations();
    run_steps(backend, r, other);
    assert_int_equal(allocations(), before);
    void *volatile counted = malloc(1); /* or the compiler leaves both calls out */
    free(counted);
    assert_int_equal(allocations(), before + 1); /* it does count */
    conf_row_free(r);
    conf_row_free(other);
    pgl_backend_close(backend);
}

int main(void) {
    static const conf_subject null = {.name = "null", .open = conf_open_null, .has_draft = true};
    static const conf_subject cpu = {
        .name = "cpu", .open = conf_open_cpu, .context = &g_model, .n_threads = 2, .has_draft = true};
    pgl_checkpoint *checkpoint = NULL;
    const pgl_checkpoint_options options = {.want_draft = true};
    pgl_error err = {PGL_OK, ""};
    if (pgl_checkpoint_open(PGL_GOLDENS "/tiny-a", &options, &checkpoint, &err) != PGL_OK ||
        pgl_model_init(&g_model, pgl_checkpoint_config(checkpoint), pgl_checkpoint_weights(checkpoint),
                       &err) != PGL_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(steps_allocate_nothing, (void *)&null),
        cmocka_unit_test_prestate(steps_allocate_nothing, (void *)&cpu),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pgl_checkpoint_close(checkpoint);
    return failed != 0;
}
