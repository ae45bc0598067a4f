/* Owns nothing: linears, norms and rows that move. */
#include "backend/cuda/cuda.h"

static void coded_product(cuda_backend *b, const cuda_input *input, const cuda_product *product) {
    const pgl_cuda_coded *coded = &product->linear->coded;
    pgl_coded_input_args in = {.coded = *coded, .x32 = input->x32, .xh = b->w.xh};
    CUDA_LAUNCH(b, coded_input, input->n, coded->in / 128, 1, 32, &in);
    pgl_coded_args out = {
        .coded = *coded, .xh = b->w.xh, .y32 = product->y, .n = input->n, .add = input->add ? 1 : 0};
    CUDA_LAUNCH(b, coded, coded->out / 128, 1, 1, PGL_CUDA_THREADS, &out);
}

void cuda_products(cuda_backend *b, const cuda_input *input, const cuda_product *products,
                   uint32_t n_products) {
    pgl_dense_args dense = {
        .x = input->x16, .x_stride = input->x_stride, .n = input->n, .add = input->add ? 1 : 0};
    for (uint32_t i = 0; i < n_products; i++) {
        const cuda_linear *linear = products[i].linear;
        b->bytes_read += linear->bytes;
        if (linear->coded.code != NULL) {
            coded_product(b, input, &products[i]);
            continue;
        }
        dense.part[dense.n_parts].m = linear->dense;
        dense.part[dense.n_parts].y = products[i].y;
        dense.n_parts++;
    }
    if (dense.n_parts > 0)
        CUDA_LAUNCH(b, dense, pgl_dense_blocks(&dense),
                    (input->n + PGL_CUDA_DENSE_TOKENS - 1) / PGL_CUDA_DENSE_TOKENS, 1, PGL_CUDA_DENSE_THREADS,
                    &dense);
}

void cuda_norm(cuda_backend *b, const float *w, const float *x, float *h, uint16_t *h16, uint32_t *bad,
               uint32_t n) {
    const pgl_config *c = b->model->config;
    pgl_norm_args args = {
        .x = x,
        .w = w,
        .h = h,
        .h16 = h16,
        .bad = bad,
        .x_stride = c->hidden_size,
        .h16_stride = c->hidden_size,
        .width = c->hidden_size,
        .eps = c->rms_norm_eps,
    };
    CUDA_LAUNCH(b, norm, n, 1, 1, PGL_CUDA_THREADS, &args);
}

void cuda_gather(cuda_backend *b, const float *x, const uint32_t *from, float *out, const uint32_t *to,
                 uint32_t n, uint32_t width) {
    pgl_gather_args args = {.x = x, .out = out, .row = from, .to = to, .width = width};
    CUDA_LAUNCH(b, gather, n, 1, 1, PGL_CUDA_THREADS, &args);
}
