/* The CPU backend against the scalar reference, bit for bit, on random models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "backend_models.h"

/* On every instruction set but the scalar one, whose kernels are the contract's own functions. */
static void random_models_have_the_bits_of_the_reference(void **state) {
    const models_case *c = *state;
    const pgl_kernels *all[PGL_MOST_KERNELS];
    size_t n = pgl_kernels_all(all), vectors = n > 1 ? n - 1 : n;
    for (size_t i = 0; i < vectors; i++)
        models_check(&(conf_subject){.open = conf_open_cpu, .isa = all[i]->name, .n_threads = 2}, c->name,
                     &c->options);
}

int main(void) {
    struct CMUnitTest tests[N_MODELS];
    for (size_t i = 0; i < N_MODELS; i++)
        tests[i] = (struct CMUnitTest){MODELS[i].name, random_models_have_the_bits_of_the_reference, NULL,
                                       NULL, (void *)(uintptr_t)&MODELS[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
