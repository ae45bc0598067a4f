/* Owns nothing: lists of tasks for the pool, and linears as such lists. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "codec/codec.h"

typedef struct run_context {
    const cpu_work *works;
    uint32_t n_works;
} run_context;

static void run_task(void *arg, uint32_t task, uint32_t thread) {
    const run_context *c = arg;
    const cpu_work *work = c->works;
    while (task >= work->n_tasks)
        task -= (work++)->n_tasks;
    work->fn(work->context, task, thread);
}

void cpu_run(cpu_backend *b, const cpu_work *works, uint32_t n_works) {
    run_context c = {works, n_works};
    uint32_t n_tasks = 0;
    for (uint32_t i = 0; i < n_works; i++)
        n_tasks += works[i].n_tasks;
    if (n_tasks == 1)
        run_task(&c, 0, 0);
    else if (n_tasks > 1)
        pgl_pool_run_dynamic(b->pool, run_task, &c, n_tasks);
}

/* ---- rows */

/* Rows that are worth a task: below that, handing them over costs more than the work. */
#define ROWS_PER_TASK 8u

typedef struct rows_context {
    const cpu_backend *b;
    const float *w, *x;
    float *y;
    uint32_t n, width;
    size_t y_stride;
    enum { ROWS_NORM, ROWS_ROUND, ROWS_ADD } what;
} rows_context;

static void rows_task(void *context, uint32_t task, uint32_t thread) {
    const rows_context *c = context;
    const pgl_kernels *k = c->b->k;
    uint32_t end = (task + 1) * ROWS_PER_TASK < c->n ? (task + 1) * ROWS_PER_TASK : c->n;
    (void)thread;
    for (uint32_t r = task * ROWS_PER_TASK; r < end; r++) {
        const float *x = c->x + (size_t)r * c->width;
        float *y = c->y + r * c->y_stride;
        switch (c->what) {
        case ROWS_NORM:
            k->norm(x, c->w, c->b->model->config->rms_norm_eps, c->width, y);
            break;
        case ROWS_ROUND:
            k->round16(x, c->width, y);
            break;
        case ROWS_ADD:
            k->add(x, c->width, y);
            break;
        }
    }
}

static void run_rows(cpu_backend *b, rows_context *c) {
    cpu_work work = {rows_task, c, (c->n + ROWS_PER_TASK - 1) / ROWS_PER_TASK};
    cpu_run(b, &work, 1);
}

void cpu_norm_rows(cpu_backend *b, const float *w, const float *x, float *h, uint32_t n) {
    uint32_t hidden = b->model->config->hidden_size;
    rows_context c = {b, w, x, h, n, hidden, hidden, ROWS_NORM};
    run_rows(b, &c);
}

void cpu_round_rows(cpu_backend *b, const float *x, float *rounded, uint32_t n, uint32_t width) {
    rows_context c = {b, NULL, x, rounded, n, width, cpu_padded(width), ROWS_ROUND};
    run_rows(b, &c);
}

void cpu_add_rows(cpu_backend *b, const float *y, float *x, uint32_t n) {
    uint32_t hidden = b->model->config->hidden_size;
    rows_context c = {b, NULL, y, x, n, hidden, hidden, ROWS_ADD};
    run_rows(b, &c);
}

/* ---- linears */

uint64_t cpu_linear_bytes(const pgl_linear *linear) {
    uint64_t n = (uint64_t)linear->in * linear->out;
    switch (linear->kind) {
    case PGL_LINEAR_INT8:
        return n + (uint64_t)linear->out * pgl_dtype_size(linear->scale_dtype);
    case PGL_LINEAR_PLAIN:
        return n * pgl_dtype_size(linear->dtype);
    case PGL_LINEAR_CODED:
        return n * linear->coded.k / 8 + 2 * ((uint64_t)linear->in + linear->out);
    case PGL_LINEAR_NONE:
        break;
    }
    return 0;
}

static void dense_task(void *context, uint32_t task, uint32_t thread) {
    const cpu_dense_context *c = context;
    pgl_dense_job job = c->job;
    (void)thread;
    job.first = task * CPU_DENSE_ROWS;
    job.count = job.linear->out - job.first < CPU_DENSE_ROWS ? job.linear->out - job.first : CPU_DENSE_ROWS;
    c->b->k->dense(&job);
}

cpu_work cpu_dense_work(cpu_backend *b, cpu_dense_context *context, const cpu_product *product,
                        const float *rounded, uint32_t n) {
    const pgl_linear *linear = product->linear;
    b->bytes_read += cpu_linear_bytes(linear);
    *context = (cpu_dense_context){b,
                                   {.linear = linear,
                                    .x = rounded,
                                    .x_stride = cpu_padded(linear->in),
                                    .y = product->y,
                                    .y_stride = linear->out,
                                    .n = n}};
    return (cpu_work){dense_task, context, (linear->out + CPU_DENSE_ROWS - 1) / CPU_DENSE_ROWS};
}

typedef struct coded_context {
    cpu_backend *b;
    const float *x;
    pgl_coded_job job;
} coded_context;

static void coded_input_task(void *context, uint32_t task, uint32_t thread) {
    const coded_context *c = context;
    const pgl_coded *coded = c->job.coded;
    (void)thread;
    c->b->k->coded_input(coded, 0, 0, coded->in, c->x + (size_t)task * coded->in,
                         c->b->w.coded + task * cpu_padded(coded->in));
}

static void coded_task(void *context, uint32_t task, uint32_t thread) {
    const coded_context *c = context;
    pgl_coded_job job = c->job;
    (void)thread;
    job.first = task * PGL_HADAMARD;
    job.count = PGL_HADAMARD;
    c->b->k->coded(&job);
}

/* A coded linear of a dense model. */
static void coded_product(cpu_backend *b, const float *x, uint32_t n, const cpu_product *product) {
    const pgl_coded *coded = &product->linear->coded;
    coded_context c = {
        .b = b,
        .x = x,
        .job = {.coded = coded,
                .xh = b->w.coded,
                .xh_stride = cpu_padded(coded->in),
                .y = product->y,
                .y_stride = coded->out,
                .n = n},
    };
    b->bytes_read += cpu_linear_bytes(product->linear);
    cpu_work input = {coded_input_task, &c, n};
    cpu_run(b, &input, 1);
    cpu_work output = {coded_task, &c, coded->out / PGL_HADAMARD};
    cpu_run(b, &output, 1);
}

void cpu_products(cpu_backend *b, const float *x, uint32_t n, const cpu_product *products,
                  uint32_t n_products) {
    cpu_dense_context contexts[CPU_MOST_PRODUCTS];
    cpu_work works[CPU_MOST_PRODUCTS];
    uint32_t n_dense = 0;
    for (uint32_t i = 0; i < n_products; i++) {
        const pgl_linear *linear = products[i].linear;
        if (linear->kind == PGL_LINEAR_CODED) {
            coded_product(b, x, n, &products[i]);
        } else if (linear->kind == PGL_LINEAR_NONE) {
            memset(products[i].y, 0, (size_t)n * linear->out * sizeof(float));
        } else {
            if (n_dense == 0)
                cpu_round_rows(b, x, b->w.rounded, n, linear->in);
            works[n_dense] = cpu_dense_work(b, &contexts[n_dense], &products[i], b->w.rounded, n);
            n_dense++;
        }
    }
    if (n_dense > 0)
        cpu_run(b, works, n_dense);
}
