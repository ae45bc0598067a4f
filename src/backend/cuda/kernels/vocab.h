/* The few words that kernels are written in: threads and blocks, exchange within a warp, 16-bit arithmetic, tensor-core
 * products. nvcc reads them as CUDA; tests build the same kernels for the host with the words of tests/emulator, one
 * thread after the other, to hold them to the scalar contract on machines without a card.
 *
 * Kernels are written in the part of C that both understand. PGL_KERNEL(name, threads) opens a kernel with its arguments
 * `a`; PGL_SHARED(type, name, count) is an array of the block; every thread of a block comes to every pgl_block_sync,
 * and every lane of a warp to every exchange and product. */
#ifndef PGL_BACKEND_CUDA_KERNELS_VOCAB_H
#define PGL_BACKEND_CUDA_KERNELS_VOCAB_H

#include "backend/cuda/kernels/kernels.h"

#ifdef __CUDACC__

#include <cuda_fp16.h>

#define PGL_DEVICE static __device__ __forceinline__
#define PGL_KERNEL(name, threads)                                                                            \
    extern "C" __global__ void __launch_bounds__(threads)                                                    \
        pgl_k_##name(const __grid_constant__ pgl_##name##_args a)
#define PGL_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define PGL_UNROLL _Pragma("unroll")

#define pgl_thread ((uint32_t)threadIdx.x)
#define pgl_block_x ((uint32_t)blockIdx.x)
#define pgl_block_y ((uint32_t)blockIdx.y)
#define pgl_block_z ((uint32_t)blockIdx.z)
#define pgl_grid_y ((uint32_t)gridDim.y)

PGL_DEVICE void pgl_block_sync(void) {
    __syncthreads();
}
PGL_DEVICE void pgl_warp_sync(void) {
    __syncwarp();
}
PGL_DEVICE float pgl_exchange(float v, uint32_t mask) {
    return __shfl_xor_sync(0xFFFFFFFFu, v, (int)mask);
}
PGL_DEVICE uint32_t pgl_exchange_u32(uint32_t v, uint32_t mask) {
    return __shfl_xor_sync(0xFFFFFFFFu, v, (int)mask);
}
/* v of lane `from`. */
PGL_DEVICE uint32_t pgl_shuffle(uint32_t v, uint32_t from) {
    return __shfl_sync(0xFFFFFFFFu, v, (int)from);
}
PGL_DEVICE uint32_t pgl_bits(float v) {
    return __float_as_uint(v);
}
PGL_DEVICE float pgl_from_bits(uint32_t v) {
    return __uint_as_float(v);
}
PGL_DEVICE float pgl_h2f(uint32_t h) {
    return __half2float(__ushort_as_half((unsigned short)h));
}
PGL_DEVICE uint16_t pgl_f2h(float v) {
    return __half_as_ushort(__float2half_rn(v));
}
/* Two fp16 products of a word. */
PGL_DEVICE uint32_t pgl_hmul2(uint32_t x, uint32_t y) {
    __half2 p = __hmul2(*(__half2 *)&x, *(__half2 *)&y);
    return *(uint32_t *)&p;
}
PGL_DEVICE uint32_t pgl_hsub2(uint32_t x, uint32_t y) {
    __half2 p = __hsub2(*(__half2 *)&x, *(__half2 *)&y);
    return *(uint32_t *)&p;
}
/* Four bytes of hi:lo, chosen by the nibbles of s. */
PGL_DEVICE uint32_t pgl_permute(uint32_t lo, uint32_t hi, uint32_t s) {
    return __byte_perm(lo, hi, s);
}
/* The low word of hi:lo >> n, n < 32. */
PGL_DEVICE uint32_t pgl_funnel(uint32_t lo, uint32_t hi, uint32_t n) {
    return __funnelshift_r(lo, hi, n);
}
/* Sixteen bytes of memory that is read once. p is a multiple of 16. */
typedef uint4 pgl_word4;
PGL_DEVICE pgl_word4 pgl_stream4(const void *p) {
    return __ldcs((const uint4 *)p);
}
PGL_DEVICE pgl_word4 pgl_load4(const void *p) {
    return *(const uint4 *)p;
}
/* Eight bytes likewise; p is a multiple of 8. */
typedef uint2 pgl_word2;
PGL_DEVICE pgl_word2 pgl_stream2(const void *p) {
    return __ldcs((const uint2 *)p);
}

/* Launches that overlap (programmatic dependent launch). Before pgl_wait a kernel may read weights, and what kernels
 * before the one before it wrote; after it, everything. pgl_release, after the wait, lets the next kernel begin, up to
 * its own wait. Both are nothing where the launch or the card does not overlap. */
PGL_DEVICE void pgl_wait(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
PGL_DEVICE void pgl_release(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* c += A B, 16 x 8 += 16 x 16 times 16 x 8, fp16 factors, f32 sums. Of lane 4 g + j: a[0] = A[g][2j, 2j + 1],
 * a[1] = A[g + 8][..], a[2] = A[g][2j + 8, 2j + 9], a[3] = A[g + 8][..]; b[0] = B[2j, 2j + 1][g], b[1] = B[2j + 8,
 * 2j + 9][g]; c[0, 1] = C[g][2j, 2j + 1], c[2, 3] = C[g + 8][..]. */
PGL_DEVICE void pgl_mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* d = A B with sums in fp16: d[0] = D[g][2j, 2j + 1], d[1] = D[g + 8][..]. Where each sum has two terms that are not 0,
 * it is rounded once, as an fp16 addition. */
PGL_DEVICE void pgl_mma_add(uint32_t d[2], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                            uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1},{%2,%3,%4,%5},{%6,%7},{%8,%8};"
        : "=r"(d[0]), "=r"(d[1])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(0));
}

#else
#include <emulate_device.h> /* on the path of the tests that build kernels for the host */
#endif

#endif
