/* Second moments of a linear's input, and their block decomposition for error feedback.
 *
 * H [n][n] double, symmetric: the sum over calibration rows of x x^T. The error that coding does to a linear's output
 * is, summed over those rows, tr(E^T H E) for an error E [n][out] of its weights. With H = L D L^T, L unit lower
 * triangular in blocks of 16, that is the D-weighted size of L^T E, so coding the blocks of input channels from the
 * last to the first with target  W_b + sum over i > b of L_ib^T E_i  leaves only each block's own coding error
 * (block LDLQ: Chee et al., QuIP, 2023; Tseng et al., QTIP, 2024). No allocation hides here; any thread. */
#ifndef PGL_QUANTIZE_HESSIAN_H
#define PGL_QUANTIZE_HESSIAN_H

#include <stdbool.h>
#include <stdint.h>

/* H += rows^T rows, lower triangle only; rows [n_rows][n] f32. */
void pgl_hessian_add(double *h, uint32_t n, const float *rows, uint32_t n_rows);

/* Copies the lower triangle to the upper. */
void pgl_hessian_mirror(double *h, uint32_t n);

/* H' = T^T H T with T = diag(rin) H128 / sqrt(128): the moments of the coded linear's transformed input. In place. */
void pgl_hessian_transform(double *h, uint32_t n, const float *rin);

/* Adds damping * mean(diagonal) to the diagonal, then overwrites the strict lower blocks of H with those of L (blocks
 * of 16; n a multiple of 16). false when H is not positive definite even so. */
bool pgl_hessian_decompose(double *h, uint32_t n, double damping);

#endif
