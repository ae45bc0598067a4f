/* Owns nothing; works in the caller's matrices. */
#include "quantize/hessian.h"

#include <math.h>
#include <stddef.h>

#define BLOCK 16u

void pgl_hessian_add(double *h, uint32_t n, const float *rows, uint32_t n_rows) {
    for (uint32_t r = 0; r < n_rows; r++) {
        const float *x = rows + (size_t)r * n;
        for (uint32_t i = 0; i < n; i++) {
            double xi = (double)x[i];
            double *row = h + (size_t)i * n;
            for (uint32_t j = 0; j <= i; j++)
                row[j] += xi * (double)x[j];
        }
    }
}

void pgl_hessian_mirror(double *h, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n; j++)
            h[(size_t)i * n + j] = h[(size_t)j * n + i];
}

static void butterflies(double *x, size_t stride) {
    for (uint32_t half = 1; half < 128; half *= 2) {
        for (uint32_t i = 0; i < 128; i += 2 * half) {
            for (uint32_t j = i; j < i + half; j++) {
                double u = x[j * stride], v = x[(j + half) * stride];
                x[j * stride] = u + v;
                x[(j + half) * stride] = u - v;
            }
        }
    }
}

void pgl_hessian_transform(double *h, uint32_t n, const float *rin) {
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++)
            h[(size_t)i * n + j] *= (double)rin[i] * (double)rin[j] / 128.0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t b = 0; b < n; b += 128)
            butterflies(h + (size_t)i * n + b, 1);
    for (uint32_t j = 0; j < n; j++)
        for (uint32_t b = 0; b < n; b += 128)
            butterflies(h + (size_t)b * n + j, n);
}

/* H = C C^T in place, C lower triangular: row by row, so that both factors of every product run along rows. */
static bool cholesky(double *h, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        double *row = h + (size_t)i * n;
        for (uint32_t j = 0; j <= i; j++) {
            const double *other = h + (size_t)j * n;
            double sum = row[j];
            for (uint32_t k = 0; k < j; k++)
                sum -= row[k] * other[k];
            if (j < i) {
                row[j] = sum / other[j];
            } else {
                if (!(sum > 0) || !isfinite(sum))
                    return false;
                row[i] = sqrt(sum);
            }
        }
    }
    return true;
}

bool pgl_hessian_decompose(double *h, uint32_t n, double damping) {
    double mean = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += h[(size_t)i * n + i];
    mean /= n;
    if (!(mean > 0))
        return false;
    for (uint32_t i = 0; i < n; i++)
        h[(size_t)i * n + i] += damping * mean;
    if (!cholesky(h, n))
        return false;
    /* L_ib = C_ib C_bb^-1: solve for each row of the block column, from the right. */
    for (uint32_t b = 0; b < n; b += BLOCK) {
        for (uint32_t i = b + BLOCK; i < n; i++) {
            double *row = h + (size_t)i * n + b;
            for (uint32_t j = BLOCK; j-- > 0;) {
                double sum = row[j];
                for (uint32_t k = j + 1; k < BLOCK; k++)
                    sum -= row[k] * h[(size_t)(b + k) * n + b + j];
                row[j] = sum / h[(size_t)(b + j) * n + b + j];
            }
        }
    }
    return true;
}
