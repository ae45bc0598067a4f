/* The driver's loader and what it says when something is missing, and the fake driver itself, on which the other tests
 * of the CUDA backend stand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/driver.h"
#include "backend/cuda/images.h"
#include "fake_cuda.h"

static void expect_text(const pgl_error *err, const char *part) {
    if (strstr(err->text, part) == NULL)
        fail_msg("expected \"%s\" in: %s", part, err->text);
}

static pgl_status open_with(const char *faults, pgl_cuda_driver *d, pgl_error *err) {
    setenv("PGL_FAKE_CUDA", faults, 1);
    return pgl_cuda_driver_open(PGL_FAKE_CUDA_LIBRARY, d, err);
}

/* ---- what is missing */

static void a_missing_driver_is_said(void **state) {
    (void)state;
    pgl_cuda_driver d;
    pgl_error err = {PGL_OK, ""};
    assert_int_equal(pgl_cuda_driver_open("/nowhere/libcuda.so.1", &d, &err), PGL_E_NOT_FOUND);
    expect_text(&err, "no CUDA driver on this machine");
    expect_text(&err, "/nowhere/libcuda.so.1");
    setenv(PGL_CUDA_DRIVER_VARIABLE, "/elsewhere/libcuda.so", 1);
    assert_int_equal(pgl_cuda_driver_open(NULL, &d, &err), PGL_E_NOT_FOUND);
    expect_text(&err, "/elsewhere/libcuda.so");
    unsetenv(PGL_CUDA_DRIVER_VARIABLE);
    /* a library that is no driver */
    assert_int_equal(pgl_cuda_driver_open("libm.so.6", &d, &err), PGL_E_UNSUPPORTED);
    expect_text(&err, "lacks cuInit");
    pgl_cuda_driver_close(&d);
}

static void each_lack_has_its_message(void **state) {
    (void)state;
    static const struct {
        const char *faults;
        pgl_status status;
        const char *text;
    } cases[] = {
        {"old", PGL_E_UNSUPPORTED, "speaks CUDA 12.4, needed is 13.0 (driver 580"},
        {"nodevice", PGL_E_NOT_FOUND, "no CUDA device"},
        {"init", PGL_E_DEVICE, "unknown CUDA error 999"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pgl_cuda_driver d;
        pgl_error err = {PGL_OK, ""};
        assert_int_equal(open_with(cases[i].faults, &d, &err), cases[i].status);
        expect_text(&err, cases[i].text);
        assert_null(d.library);
    }
    pgl_cuda_driver d;
    pgl_cuda_device device;
    pgl_error err = {PGL_OK, ""};
    assert_int_equal(open_with("devices:2,cc:120", &d, &err), PGL_OK);
    assert_int_equal(pgl_cuda_device_find(&d, 2, &device, &err), PGL_E_NOT_FOUND);
    expect_text(&err, "CUDA device 2: this machine has 2");
    assert_int_equal(pgl_cuda_device_find(&d, -1, &device, &err), PGL_E_NOT_FOUND);
    assert_int_equal(pgl_cuda_device_find(&d, 1, &device, &err), PGL_OK);
    assert_int_equal(device.capability, 120);
    assert_string_equal(device.name, "Fake card 1");
    assert_true(device.total_bytes == 2ull << 30);
    pgl_cuda_driver_close(&d);
    assert_int_equal(open_with("devices:0", &d, &err), PGL_OK);
    assert_int_equal(pgl_cuda_device_find(&d, 0, &device, &err), PGL_E_NOT_FOUND);
    expect_text(&err, "it sees no card");
    pgl_cuda_driver_close(&d);
}

static void errors_have_the_drivers_name_and_words(void **state) {
    (void)state;
    pgl_cuda_driver d;
    pgl_error err = {PGL_OK, ""};
    assert_int_equal(open_with("", &d, &err), PGL_OK);
    assert_int_equal(pgl_cuda_check(&d, 0, &err, "nothing"), PGL_OK);
    assert_int_equal(pgl_cuda_check(&d, 2, &err, "%d pages", 7), PGL_E_MEMORY);
    assert_string_equal(err.text, "7 pages: CUDA_ERROR_OUT_OF_MEMORY 2 (out of memory)");
    assert_int_equal(pgl_cuda_check(&d, 12345, &err, "a step"), PGL_E_DEVICE);
    assert_string_equal(err.text, "a step: unknown CUDA error 12345 (the driver has no words for it)");
    pgl_cuda_driver_close(&d);
}

/* ---- images */

static void a_card_gets_the_code_that_it_runs(void **state) {
    (void)state;
    static const char byte[1] = {0};
    static const pgl_cuda_image images[] = {
        {"a", byte, byte, 80, false, false},  {"a", byte, byte, 86, false, false},
        {"a", byte, byte, 89, false, false},  {"a", byte, byte, 90, true, false},
        {"a", byte, byte, 100, false, false}, {"a", byte, byte, 120, false, false},
        {"a", byte, byte, 80, false, true},   {"b", byte, byte, 80, false, false},
    };
    static const struct {
        int capability;
        const char *name;
    } cases[] = {
        {80, "sm_80"},   {86, "sm_86"},   {87, "sm_86"},
        {89, "sm_89"},   {90, "sm_90a"},  {100, "sm_100"},
        {103, "sm_100"}, {121, "sm_120"}, {110, "compute_80 (PTX)"},
    };
    const pgl_cuda_image *image;
    pgl_error err = {PGL_OK, ""};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[32];
        assert_int_equal(pgl_cuda_images_choose(images, 8, cases[i].capability, &image, &err), PGL_OK);
        pgl_cuda_image_name(image, name, sizeof name);
        assert_string_equal(name, cases[i].name);
    }
    assert_int_equal(pgl_cuda_images_choose(images, 8, 75, &image, &err), PGL_E_UNSUPPORTED);
    expect_text(&err, "compute capability 7.5; this program has those for sm_80 sm_86 sm_89 sm_90a sm_100");
    assert_int_equal(pgl_cuda_images_choose(images, 0, 90, &image, &err), PGL_E_UNSUPPORTED);
    expect_text(&err, "without CUDA kernels");
    /* 90a alone: nothing for its neighbours */
    assert_int_equal(pgl_cuda_images_choose(images + 3, 1, 90, &image, &err), PGL_OK);
    assert_int_equal(pgl_cuda_images_choose(images + 3, 1, 89, &image, &err), PGL_E_UNSUPPORTED);
}

/* ---- the fake driver is as strict as it says */

typedef struct world {
    pgl_cuda_driver d;
    pgl_cu_context context;
    pgl_cu_stream stream;
    pgl_fake_cuda_stats_fn *stats;
} world;

static void open_world(world *w, const char *faults) {
    pgl_error err = {PGL_OK, ""};
    if (open_with(faults, &w->d, &err) != PGL_OK)
        fail_msg("%s", err.text);
    void *found = dlsym(w->d.library, PGL_FAKE_CUDA_STATS);
    assert_non_null(found);
    memcpy(&w->stats, &found, sizeof found);
    assert_int_equal(w->d.context_retain(&w->context, 0), 0);
    assert_int_equal(w->d.context_set(w->context), 0);
    assert_int_equal(w->d.stream_new(&w->stream, PGL_CU_STREAM_NON_BLOCKING), 0);
}

static void close_world(world *w) {
    assert_int_equal(w->d.stream_free(w->stream), 0);
    assert_int_equal(w->d.context_set(NULL), 0);
    pgl_cuda_driver_close(&w->d);
}

static void copies_run_when_they_are_waited_for(void **state) {
    (void)state;
    world w;
    open_world(&w, "");
    pgl_cu_address device;
    void *pinned;
    assert_int_equal(w.d.memory_new(&device, 64), 0);
    assert_int_equal(w.d.pinned_new(&pinned, 128, 0), 0);
    unsigned char *in = pinned, *out = in + 64;
    memset(in, 1, 64);
    assert_int_equal(w.d.copy_up(device, in, 32, w.stream), 0);
    in[0] = 9; /* too early: the copy has not run */
    assert_int_equal(w.d.copy_down(out, device, 64, w.stream), 0);
    assert_int_equal(out[0], 0xFF);
    assert_int_equal(w.d.stream_wait(w.stream), 0);
    assert_int_equal(out[0], 9);
    assert_int_equal(out[1], 1);
    assert_int_equal(out[32], 0xFF); /* never written */
    unsigned char pageable[8];
    assert_int_equal(w.d.fill(device, 7, 8, w.stream), 0);
    assert_int_equal(w.d.copy_down(pageable, device, 8, w.stream), 0);
    assert_int_equal(pageable[7], 7);
    pgl_fake_cuda_stats stats = w.stats();
    assert_int_equal(stats.pageable, 1);
    assert_int_equal(stats.bytes_up, 32);
    assert_int_equal(stats.bytes_down, 72);
    assert_int_equal(w.d.memory_free(device), 0);
    assert_int_equal(w.d.pinned_free(pinned), 0);
    assert_int_equal(w.stats().bytes_now, 0);
    close_world(&w);
}

static void faults_of_the_host_are_refused(void **state) {
    (void)state;
    world w;
    open_world(&w, "memory:1000,oom:2");
    pgl_cu_address device, more;
    pgl_cu_function f;
    pgl_cu_module module;
    assert_int_equal(w.d.memory_new(&device, 64), 0);
    assert_int_equal(w.d.memory_new(&more, 2000), PGL_CU_OUT_OF_MEMORY); /* more than the card has */
    assert_int_equal(w.d.memory_new(&more, 8), PGL_CU_OUT_OF_MEMORY);    /* the third */
    unsigned char host[64] = {0};
    assert_int_equal(w.d.copy_up(device, host, 65, w.stream), PGL_CU_INVALID_VALUE);
    assert_int_equal(w.d.copy_up(device + 60, host, 5, w.stream), PGL_CU_INVALID_VALUE);
    assert_int_equal(w.d.fill(device - 1, 0, 1, w.stream), PGL_CU_INVALID_VALUE);
    assert_int_equal(w.d.module_load(&module, "image", 0, NULL, NULL), 0);
    assert_int_equal(w.d.module_function(&f, module, "pgl_k_nothing"), PGL_CU_NOT_FOUND);
    assert_int_equal(w.d.context_set(NULL), 0);
    assert_int_equal(w.d.stream_wait(w.stream), 201); /* no context on this thread */
    assert_int_equal(w.d.context_set(w.context), 0);
    ((unsigned char *)(uintptr_t)device)[64] = 1; /* as a kernel might */
    assert_int_equal(w.d.stream_wait(w.stream), 700);
    assert_int_equal(w.d.stream_wait(w.stream), 700); /* for good */
    (void)w.d.memory_free(device);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_driver_is_said),
        cmocka_unit_test(each_lack_has_its_message),
        cmocka_unit_test(errors_have_the_drivers_name_and_words),
        cmocka_unit_test(a_card_gets_the_code_that_it_runs),
        cmocka_unit_test(copies_run_when_they_are_waited_for),
        cmocka_unit_test(faults_of_the_host_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
