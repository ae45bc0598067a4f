/* The CUDA backend over the fake driver: what the host side puts together, with the kernels' own sources run on the host.
 * The common suite and the reference on small random models, the reference on the golden model, and what is said when
 * something is missing or fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend_models.h"
#include "checkpoint/checkpoint.h"
#include "conformance_suite.h"
#include "cuda_world.h"

static pgl_model g_golden, g_small;

static void random_models_are_close_to_the_reference(void **state) {
    const models_case *c = *state;
    models_check(&(conf_subject){.open = conf_open_cuda}, c->name, &c->options);
}

/* A short prompt on the golden model: logits, hidden states and experts, in one row. */
static void the_golden_model_is_close_to_the_reference(void **state) {
    enum { N = 9 };
    conf_subject subject = {.name = "golden", .open = conf_open_cuda, .context = &g_golden};
    pgl_backend *backend = conf_open(&subject);
    const pgl_backend_caps *caps = pgl_backend_get_caps(backend);
    conf_row *r = conf_row_new(backend);
    size_t vocab = caps->vocab_size, hidden = caps->hidden_size, places = caps->n_layers + 1;
    int32_t tokens[N];
    (void)state;
    conf_tokens(backend, 5, tokens, N);
    pgl_reference *seq = NULL;
    assert_int_equal(pgl_reference_open(&g_golden, false, &seq, NULL), PGL_OK);
    pgl_reference_outputs want = {.logits = malloc(N * vocab * sizeof(float)),
                                  .hidden = malloc(places * N * hidden * sizeof(float))};
    assert_int_equal(pgl_reference_forward(seq, tokens, N, &want, NULL), PGL_OK);
    conf_reset(backend, 1);
    conf_row_set(r, 1, tokens, N, PGL_WANT_LOGITS | PGL_WANT_HIDDEN | PGL_WANT_EXPERTS);
    conf_run_row(backend, r);
    for (size_t i = 0; i < N; i++)
        conf_close_to("logits", r->logits + i * vocab, want.logits + i * vocab, vocab);
    for (size_t i = 0; i < places * N; i++)
        conf_close_to("hidden states", r->hidden + i * hidden, want.hidden + i * hidden, hidden);
    pgl_reference_close(seq);
    free(want.logits);
    free(want.hidden);
    conf_row_free(r);
    conf_close(backend);
}

/* ---- what a step costs the host */

static void steps_allocate_nothing_and_go_up_in_one_copy(void **state) {
    conf_subject subject = {.name = "small", .open = conf_open_cuda, .context = &g_small};
    pgl_backend *backend = conf_open(&subject);
    conf_row *r = conf_row_new(backend);
    int32_t tokens[3] = {1, 2, 3};
    (void)state;
    conf_reset(backend, 0);
    pgl_fake_cuda_stats before = cuda_world_stats();
    conf_row_set(r, 0, tokens, 3, PGL_WANT_SAMPLE);
    r->result.logprobs = NULL; /* the card's own choice will do */
    pgl_step_plan plan = {.rows = &r->row, .n_rows = 1};
    pgl_step_timing timing = {0};
    uint64_t ticket;
    assert_int_equal(pgl_backend_submit(backend, &plan, &ticket, NULL), PGL_OK);
    assert_int_equal(pgl_backend_wait(backend, ticket, &timing, NULL), PGL_OK);
    pgl_fake_cuda_stats after = cuda_world_stats();
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.frees, before.frees);
    assert_int_equal(after.pageable, before.pageable);
    assert_int_equal(after.copies_up - before.copies_up, 2);     /* tables, and the head's row */
    assert_int_equal(after.copies_down - before.copies_down, 3); /* flags, experts, tokens: no logits */
    assert_true(after.bytes_down - before.bytes_down < 1024);
    assert_int_equal(after.launches - before.launches, timing.n_launches);
    assert_true(timing.n_launches > 0 && timing.bytes_read > 0);
    assert_true(timing.bytes_read < pgl_backend_get_memory(backend).weights_bytes);
    conf_row_free(r);
    conf_close(backend);
    pgl_fake_cuda_stats end = cuda_world_stats();
    assert_int_equal(end.allocations, end.frees); /* and close gives all of it back */
    assert_int_equal(end.bytes_now, 0);
}

/* ---- what is said */

static const pgl_backend_options SMALL = {
    .n_slots = 1, .n_pages = 4, .n_snapshots = 1, .max_context = 64, .max_rows = 1, .max_step_tokens = 8};

static void refused(const char *faults, const pgl_backend_options *options, pgl_status status,
                    const char *text) {
    pgl_backend *backend = NULL;
    pgl_error err = {PGL_OK, ""};
    setenv("PGL_FAKE_CUDA", faults, 1);
    pgl_status got = pgl_backend_open_cuda(&g_small, options, cuda_world_options(), &backend, &err);
    setenv("PGL_FAKE_CUDA", "", 1);
    if (got != status || strstr(err.text, text) == NULL)
        fail_msg("%s: expected %s, \"%s\"; found %s, \"%s\"", faults, pgl_status_name(status), text,
                 pgl_status_name(got), err.text);
    assert_null(backend);
    pgl_fake_cuda_stats stats = cuda_world_stats();
    assert_int_equal(stats.allocations, stats.frees);
}

static void what_cannot_be_opened_is_said(void **state) {
    pgl_backend_options options = SMALL;
    int devices[2] = {3, 0};
    (void)state;
    refused("nodevice", &SMALL, PGL_E_NOT_FOUND, "no CUDA device");
    refused("old", &SMALL, PGL_E_UNSUPPORTED, "needed is 13.0");
    refused("cc:75", &SMALL, PGL_E_UNSUPPORTED, "Fake card 0: no kernels for compute capability 7.5");
    refused("image", &SMALL, PGL_E_DEVICE, "CUDA_ERROR_NO_BINARY_FOR_GPU");
    refused("memory:100000", &SMALL, PGL_E_MEMORY, "MiB are needed (weights");
    refused("memory:100000", &SMALL, PGL_E_MEMORY, "too many");
    refused("oom:0", &SMALL, PGL_E_MEMORY, "MiB for the weights: CUDA_ERROR_OUT_OF_MEMORY");
    refused("oom:3", &SMALL, PGL_E_MEMORY, "pending tokens: CUDA_ERROR_OUT_OF_MEMORY");
    refused("pinned", &SMALL, PGL_E_MEMORY, "page-locked memory");
    options.devices = devices;
    options.n_devices = 1;
    refused("", &options, PGL_E_NOT_FOUND, "CUDA device 3: this machine has 1");
    options.n_devices = 2;
    refused("", &options, PGL_E_UNSUPPORTED, "uses one card");
    options = SMALL;
    options.device_bytes = 1000;
    refused("", &options, PGL_E_MEMORY, "0.0 are allowed");
    options = SMALL;
    options.max_draft = 1;
    refused("", &options, PGL_E_UNSUPPORTED, "no draft head");
    pgl_config config = *g_small.config;
    pgl_model model = g_small;
    pgl_backend *backend = NULL;
    pgl_error err = {PGL_OK, ""};
    model.config = &config;
    config.head_dim = 288;
    assert_int_equal(pgl_backend_open_cuda(&model, &SMALL, cuda_world_options(), &backend, &err),
                     PGL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "head_dim is at most 256, found 288"));
    const pgl_cuda_options none = {
        .library = PGL_FAKE_CUDA_LIBRARY, .images = cuda_world_options()->images, .n_images = 0};
    assert_int_equal(pgl_backend_open_cuda(&g_small, &SMALL, &none, &backend, &err), PGL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "built without CUDA kernels"));
}

/* A fault of the card ends the step with its words; after that nothing runs, and close works. */
static void a_fault_ends_the_backend(void **state) {
    const struct {
        const char *faults, *text;
    } cases[] = {{"launch:7", "launching "}, {"late:7", "CUDA_ERROR_ILLEGAL_ADDRESS"}};
    (void)state;
    for (size_t c = 0; c < 2; c++) {
        pgl_backend *backend = NULL;
        pgl_error err = {PGL_OK, ""};
        setenv("PGL_FAKE_CUDA", cases[c].faults, 1);
        assert_int_equal(pgl_backend_open_cuda(&g_small, &SMALL, cuda_world_options(), &backend, &err),
                         PGL_OK);
        setenv("PGL_FAKE_CUDA", "", 1);
        conf_row *r = conf_row_new(backend);
        int32_t token = 1;
        conf_row_set(r, 0, &token, 1, PGL_WANT_SAMPLE);
        const pgl_op bind = {.kind = PGL_OP_BIND};
        pgl_step_plan plan = {.before = &bind, .n_before = 1, .rows = &r->row, .n_rows = 1};
        uint64_t ticket;
        assert_int_equal(pgl_backend_submit(backend, &plan, &ticket, &err), PGL_OK);
        assert_int_equal(pgl_backend_wait(backend, ticket, NULL, &err), PGL_E_DEVICE);
        assert_non_null(strstr(err.text, cases[c].text));
        assert_int_equal(pgl_backend_submit(backend, &plan, &ticket, &err), PGL_E_DEVICE);
        conf_row_free(r);
        pgl_backend_close(backend);
    }
}

/* ---- loading */

typedef struct seen_progress {
    uint64_t done, total;
    uint32_t calls, stop_after;
} seen_progress;

static bool see_progress(void *context, uint64_t done, uint64_t total) {
    seen_progress *seen = context;
    assert_true(done >= seen->done && done <= total);
    seen->done = done;
    seen->total = total;
    return ++seen->calls != seen->stop_after;
}

static void loading_reports_progress_and_can_be_cancelled(void **state) {
    pgl_cuda_options cuda = *cuda_world_options();
    seen_progress seen = {0};
    pgl_backend *backend = NULL;
    pgl_error err = {PGL_OK, ""};
    (void)state;
    cuda.progress = see_progress;
    cuda.context = &seen;
    assert_int_equal(pgl_backend_open_cuda(&g_small, &SMALL, &cuda, &backend, &err), PGL_OK);
    assert_true(seen.calls > 10 && seen.done == seen.total);
    pgl_cuda_needs needs;
    assert_int_equal(pgl_cuda_plan(&g_small, &SMALL, &needs, &err), PGL_OK); /* what is planned is taken */
    pgl_backend_memory memory = pgl_backend_get_memory(backend);
    assert_true(needs.weights_bytes >= seen.total);
    assert_int_equal(needs.weights_bytes + needs.pages_bytes + needs.slots_bytes + needs.snapshots_bytes +
                         needs.work_bytes,
                     cuda_world_stats().bytes_now);
    assert_int_equal(needs.work_bytes, memory.work_bytes);
    pgl_backend_close(backend);
    seen = (seen_progress){.stop_after = 3};
    assert_int_equal(pgl_backend_open_cuda(&g_small, &SMALL, &cuda, &backend, &err), PGL_E_CANCELLED);
    assert_int_equal(seen.calls, 3);
    assert_null(backend);
}

static int run_models(void) {
    struct CMUnitTest tests[N_MODELS];
    for (size_t i = 0; i < N_MODELS; i++)
        tests[i] = (struct CMUnitTest){MODELS[i].name, random_models_are_close_to_the_reference, NULL, NULL,
                                       (void *)(uintptr_t)&MODELS[i]};
    return cmocka_run_group_tests_name("cuda, random models", tests, NULL, NULL);
}

int main(void) {
    pgl_checkpoint *checkpoint = NULL;
    pgl_error err = {PGL_OK, ""};
    const synthetic_options options = {.seed = 77, .draft = true, .real_scales = true}, plain = {.seed = 78};
    synthetic_model *drafting = synthetic_new(&options), *small = synthetic_new(&plain);
    pgl_model model;
    if (pgl_checkpoint_open(PGL_GOLDENS "/tiny-a", NULL, &checkpoint, &err) != PGL_OK ||
        pgl_model_init(&g_golden, pgl_checkpoint_config(checkpoint), pgl_checkpoint_weights(checkpoint),
                       &err) != PGL_OK ||
        pgl_model_init(&model, &drafting->config, &drafting->weights, &err) != PGL_OK ||
        pgl_model_init(&g_small, &small->config, &small->weights, &err) != PGL_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    conf_subject subject = {
        .name = "cuda", .open = conf_open_cuda, .context = &model, .n_tokens = 24, .has_draft = true};
    const struct CMUnitTest suite[] = {CONF_SUITE(&subject)},
                            tests[] = {
                                cmocka_unit_test(the_golden_model_is_close_to_the_reference),
                                cmocka_unit_test(steps_allocate_nothing_and_go_up_in_one_copy),
                                cmocka_unit_test(what_cannot_be_opened_is_said),
                                cmocka_unit_test(a_fault_ends_the_backend),
                                cmocka_unit_test(loading_reports_progress_and_can_be_cancelled),
                            };
    int failed = cmocka_run_group_tests_name("cuda, what it is alone in", tests, NULL, NULL);
    failed += run_models();
    failed += cmocka_run_group_tests_name("cuda, common suite", suite, NULL, NULL);
    pgl_checkpoint_close(checkpoint);
    synthetic_free(drafting);
    synthetic_free(small);
    return failed != 0;
}
