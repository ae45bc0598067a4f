/* Owns the memory of one measurement. */
#include "backend/cpu/probe.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/pool.h"

enum { RUNS = 5, PROBE_IN = 512, PROBE_OUT = 256, PROBE_REPEATS = 100, FMA_STEPS = 2000000 };
#define STREAM_BYTES ((size_t)256 << 20)

typedef struct probe {
    const pgl_kernels *k;
    unsigned char *memory; /* [STREAM_BYTES] */
    float *y;              /* [n_threads][PROBE_OUT] */
    float x[PROBE_IN];
    enum { PROBE_STREAM, PROBE_FMA, PROBE_CODED, PROBE_INT8 } what;
    pgl_coded coded;
    pgl_linear linear;
} probe;

static void probe_thread(void *arg, uint32_t thread, uint32_t n_threads) {
    const probe *p = arg;
    float *y = p->y + (size_t)thread * PROBE_OUT;
    pgl_coded_job coded = {.coded = &p->coded,
                           .count = PROBE_OUT,
                           .xh = p->x,
                           .xh_stride = PROBE_IN,
                           .y = y,
                           .y_stride = PROBE_OUT,
                           .n = 1};
    pgl_dense_job dense = {.linear = &p->linear,
                           .count = PROBE_OUT,
                           .x = p->x,
                           .x_stride = PROBE_IN,
                           .y = y,
                           .y_stride = PROBE_OUT,
                           .n = 1};
    size_t part = STREAM_BYTES / n_threads;
    switch (p->what) {
    case PROBE_STREAM:
        y[0] = (float)p->k->stream(p->memory + thread * part, part);
        break;
    case PROBE_FMA:
        y[0] = p->k->spin(FMA_STEPS);
        break;
    case PROBE_CODED:
        for (uint32_t i = 0; i < PROBE_REPEATS; i++)
            p->k->coded(&coded);
        break;
    case PROBE_INT8:
        for (uint32_t i = 0; i < PROBE_REPEATS; i++)
            p->k->dense(&dense);
        break;
    }
}

/* Things a second, when one run on all threads does `amount` of them. */
static double rate(probe *p, pgl_pool *pool, double amount) {
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < RUNS; i++) {
        uint64_t start = pgl_now_ns();
        pgl_pool_each(pool, probe_thread, p);
        uint64_t took = pgl_now_ns() - start;
        best = took < best ? took : best;
    }
    return amount * 1e9 / (double)(best > 0 ? best : 1);
}

static void measure(probe *p, pgl_pool *pool, pgl_cpu_rates *rates) {
    double threads = rates->n_threads, weights = (double)PROBE_IN * PROBE_OUT * PROBE_REPEATS * threads;
    size_t part = STREAM_BYTES / rates->n_threads;
    p->what = PROBE_STREAM;
    rates->read_bytes_per_s = rate(p, pool, (double)part * threads);
    p->what = PROBE_FMA;
    rates->fma_flops_per_s = rate(p, pool, (double)FMA_STEPS * PGL_SPIN_FLOPS * threads);
    p->coded = (pgl_coded){.code = p->memory, .n_experts = 1, .in = PROBE_IN, .out = PROBE_OUT, .k = 2};
    p->coded.rin = p->coded.rout = p->memory + PROBE_IN * PROBE_OUT;
    p->what = PROBE_CODED;
    rates->coded2_weights_per_s = rate(p, pool, weights);
    p->coded.k = 3;
    rates->coded3_weights_per_s = rate(p, pool, weights);
    p->linear = (pgl_linear){
        .kind = PGL_LINEAR_INT8, .in = PROBE_IN, .out = PROBE_OUT, .data = p->memory, .dtype = PGL_I8};
    p->linear.scale = p->memory + PROBE_IN * PROBE_OUT;
    p->linear.scale_dtype = PGL_F16;
    p->what = PROBE_INT8;
    rates->int8_bytes_per_s = rate(p, pool, weights);
}

/* Codes and int8 weights of any kind, and, behind them, fp16 ones. */
static void fill(probe *p) {
    memset(p->memory, 0x5A, STREAM_BYTES);
    uint32_t x = 1;
    for (size_t i = 0; i < (size_t)PROBE_IN * PROBE_OUT; i++) {
        x = x * 1664525u + 1013904223u;
        p->memory[i] = (unsigned char)(x >> 24);
    }
    for (size_t i = 0; i < 4096; i++) {
        p->memory[(size_t)PROBE_IN * PROBE_OUT + 2 * i] = 0;
        p->memory[(size_t)PROBE_IN * PROBE_OUT + 2 * i + 1] = 0x3C;
    }
    for (size_t i = 0; i < PROBE_IN; i++)
        p->x[i] = 1.0F / 64 * (float)(i % 64);
}

pgl_status pgl_cpu_measure(const char *isa, uint32_t n_threads, pgl_cpu_rates *rates, pgl_error *err) {
    const pgl_kernels *k = NULL;
    pgl_pool *pool = NULL;
    pgl_pool_options options = {.n_threads = n_threads};
    pgl_status status = pgl_kernels_choose(isa, &k, err);
    if (status == PGL_OK)
        status = pgl_pool_open(&options, &pool, err);
    if (status != PGL_OK)
        return status;
    *rates = (pgl_cpu_rates){.isa = k->name, .n_threads = pgl_pool_n_threads(pool)};
    probe *p = pgl_new_aligned(1, sizeof *p);
    unsigned char *memory = pgl_new_aligned(1, STREAM_BYTES);
    float *y = pgl_new_aligned((size_t)rates->n_threads * PROBE_OUT, sizeof *y);
    if (p != NULL && memory != NULL && y != NULL) {
        p->k = k;
        p->memory = memory;
        p->y = y;
        fill(p);
        measure(p, pool, rates);
    } else {
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for a measurement: %zu bytes", STREAM_BYTES);
    }
    free(p);
    free(memory);
    free(y);
    pgl_pool_close(pool);
    return status;
}
