/* Runs the kernels of the CUDA backend on the host, one thread of a block after the other: to hold them to the scalar
 * contract, and whole steps to the reference, on machines without a card. What a card does with instructions (tensor-core
 * sums, speed, races that lock-step hides) it cannot show.
 *
 * The threads of a block are fibres that change places where they wait for each other; shared memory is filled with NaN
 * before each block. Waits that some threads never come to end the program with the kernel's name. */
#ifndef PGL_TESTS_EMULATE_H
#define PGL_TESTS_EMULATE_H

#include <stddef.h>
#include <stdint.h>

/* Size of the argument struct of kernel pgl_k_NAME; 0: there is none of that name. */
size_t pgl_emulate_args(const char *name);

/* Runs all blocks of the grid, in rising order, x fastest. args: the struct. 0, or -1: no such kernel, or sizes that a
 * card would refuse (a block of more than 1,024 threads, an empty grid). One caller at a time: others wait. */
int pgl_emulate(const char *name, const uint32_t grid[3], const uint32_t block[3], const void *args);

#endif
