/* Owns the fibres, the shared memory of the block at hand, and what lanes of a warp show each other. */
#include "emulate.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "backend/cuda/kernels/kernels.h"
#include "emulate_device.h"

#define MOST_THREADS 1024u
#define WARP 32u
#define STACK_BYTES ((size_t)64 << 10)
#define SHARED_BYTES ((size_t)48 << 10) /* what a block may have without asking for more */

/* A place where threads wait for each other. Generations make it fit for use again and again. */
typedef struct barrier {
    uint32_t arrived, generation;
} barrier;

typedef struct fibre {
    jmp_buf where;
    ucontext_t first; /* how the stack was entered, once in the fibre's life */
    bool alive, done;
    size_t shared_bytes; /* of the arrays it has named so far */
} fibre;

/* What the lanes of a warp show each other. Two in turn: a lane is at most one exchange ahead of another. */
typedef struct shown {
    uint32_t word[2][WARP][6];
    float product[2][16][8];
    barrier all;
} shown;

static fibre fibres[MOST_THREADS];
static shown warps[MOST_THREADS / WARP];
static barrier block_barrier;
static unsigned char shared_memory[SHARED_BYTES] __attribute__((aligned(16)));
static jmp_buf scheduler;
static uint32_t n_threads, n_done, idle; /* idle: changes of place since something moved on */
static const char *running;
static void (*body)(const void *args);
static const void *body_args;
emu_place emu_now;

static float half_values[1 << 16];

static void give_up(const char *what) {
    fprintf(stderr, "emulated kernel %s, block %u %u %u, thread %u: %s\n", running, emu_now.block[0],
            emu_now.block[1], emu_now.block[2], emu_now.thread, what);
    abort();
}

/* ---- fibres */

static uint32_t next_of(uint32_t thread) {
    do
        thread = (thread + 1) % n_threads;
    while (fibres[thread].done);
    return thread;
}

static void enter(uint32_t thread) {
    emu_now.thread = thread;
    _longjmp(fibres[thread].where, 1);
}

/* A fibre's whole life: it waits for a block, is one of its threads, and waits again. */
static void fibre_main(void) {
    const uint32_t me = emu_now.thread;
    for (;;) {
        if (_setjmp(fibres[me].where) == 0) {
            if (n_done == n_threads)
                _longjmp(scheduler, 1);
            enter(next_of(me));
        }
        body(body_args);
        fibres[me].done = true;
        n_done++;
        idle = 0;
    }
}

/* Lets the others run until it is this thread's turn again. */
static void change_places(void) {
    const uint32_t me = emu_now.thread, next = next_of(me);
    if (++idle > 2 * n_threads)
        give_up("waits for threads that never come");
    if (next == me)
        return;
    if (_setjmp(fibres[me].where) == 0)
        enter(next);
}

static void wait_for(barrier *b, uint32_t n) {
    uint32_t generation = b->generation;
    idle = 0;
    if (++b->arrived == n) {
        b->arrived = 0;
        b->generation++;
        return;
    }
    while (b->generation == generation)
        change_places();
    idle = 0;
}

/* Stacks are made once and kept. Called with n_done == n_threads, so that a new fibre comes straight back. */
static bool make_fibre(uint32_t thread) {
    fibre *f = &fibres[thread];
    if (f->alive)
        return true;
    void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || getcontext(&f->first) != 0)
        return false;
    f->first.uc_stack.ss_sp = stack;
    f->first.uc_stack.ss_size = STACK_BYTES;
    f->first.uc_link = NULL;
    makecontext(&f->first, fibre_main, 0);
    f->alive = true;
    if (_setjmp(scheduler) == 0) {
        emu_now.thread = thread;
        setcontext(&f->first);
    }
    return true;
}

static void run_block(void) {
    memset(shared_memory, 0xFF, sizeof shared_memory);
    memset(warps, 0, sizeof warps);
    block_barrier = (barrier){0, 0};
    for (uint32_t t = 0; t < n_threads; t++) {
        fibres[t].done = false;
        fibres[t].shared_bytes = 0;
    }
    n_done = 0;
    idle = 0;
    if (_setjmp(scheduler) == 0)
        enter(0);
}

/* ---- the words */

void *emu_shared(size_t bytes) {
    fibre *f = &fibres[emu_now.thread];
    void *p = shared_memory + f->shared_bytes;
    f->shared_bytes += (bytes + 15) / 16 * 16;
    if (f->shared_bytes > SHARED_BYTES)
        give_up("more shared memory than a block has");
    return p;
}

void pgl_block_sync(void) {
    wait_for(&block_barrier, n_threads);
}

/* Shows n words of this lane to its warp, and gives what all lanes show. */
static uint32_t (*show(const uint32_t *words, uint32_t n))[6] {
    shown *w = &warps[emu_now.thread / WARP];
    uint32_t(*all)[6] = w->word[w->all.generation % 2];
    memcpy(all[emu_now.thread % WARP], words, n * sizeof *words);
    wait_for(&w->all, WARP);
    return all;
}

void pgl_warp_sync(void) {
    const uint32_t nothing = 0;
    show(&nothing, 1);
}

uint32_t pgl_shuffle(uint32_t v, uint32_t from) {
    return show(&v, 1)[from % WARP][0];
}

uint32_t pgl_exchange_u32(uint32_t v, uint32_t mask) {
    return show(&v, 1)[(emu_now.thread ^ mask) % WARP][0];
}

float pgl_exchange(float v, uint32_t mask) {
    return pgl_from_bits(pgl_exchange_u32(pgl_bits(v), mask));
}

pgl_word2 pgl_stream2(const void *p) {
    pgl_word2 w;
    if ((uintptr_t)p % 8 != 0)
        give_up("reads eight bytes at an address that is not a multiple of eight");
    memcpy(&w, p, sizeof w);
    return w;
}

pgl_word4 pgl_load4(const void *p) {
    pgl_word4 w;
    if ((uintptr_t)p % 16 != 0)
        give_up("reads sixteen bytes at an address that is not a multiple of sixteen");
    memcpy(&w, p, sizeof w);
    return w;
}

float pgl_h2f(uint32_t h) {
    return half_values[h & 0xFFFF];
}

uint16_t pgl_f2h(float v) {
    return pgl_f32_to_f16(v);
}

/* The exact value of a sum or product of two fp16 numbers fits f32 or is rounded the same way from it. */
uint32_t pgl_hmul2(uint32_t x, uint32_t y) {
    return (uint32_t)pgl_f2h(pgl_h2f(x) * pgl_h2f(y)) | (uint32_t)pgl_f2h(pgl_h2f(x >> 16) * pgl_h2f(y >> 16))
                                                            << 16;
}

uint32_t pgl_hsub2(uint32_t x, uint32_t y) {
    return (uint32_t)pgl_f2h(pgl_h2f(x) - pgl_h2f(y)) | (uint32_t)pgl_f2h(pgl_h2f(x >> 16) - pgl_h2f(y >> 16))
                                                            << 16;
}

uint32_t pgl_permute(uint32_t lo, uint32_t hi, uint32_t s) {
    uint64_t bytes = (uint64_t)hi << 32 | lo;
    uint32_t out = 0;
    for (uint32_t i = 0; i < 4; i++)
        out |= (uint32_t)(bytes >> (8 * (s >> (4 * i) & 7)) & 0xFF) << (8 * i);
    return out;
}

/* The product of what the lanes show, by whoever comes last: each lane alone would widen the same numbers again. */
static void multiply(uint32_t (*all)[6], float d[16][8]) {
    float x[16][16], y[16][8];
    for (uint32_t lane = 0; lane < WARP; lane++) {
        uint32_t g = lane / 4, j = lane % 4;
        for (uint32_t i = 0; i < 4; i++) {
            x[g + 8 * (i % 2)][2 * j + 8 * (i / 2)] = pgl_h2f(all[lane][i]);
            x[g + 8 * (i % 2)][2 * j + 8 * (i / 2) + 1] = pgl_h2f(all[lane][i] >> 16);
        }
        for (uint32_t i = 0; i < 2; i++) {
            y[2 * j + 8 * i][g] = pgl_h2f(all[lane][4 + i]);
            y[2 * j + 8 * i + 1][g] = pgl_h2f(all[lane][4 + i] >> 16);
        }
    }
    for (uint32_t r = 0; r < 16; r++) {
        float sum[8] = {0};
        for (uint32_t k = 0; k < 16; k++) {
            for (uint32_t n = 0; n < 8; n++)
                sum[n] += x[r][k] * y[k][n];
        }
        memcpy(d[r], sum, sizeof sum);
    }
}

/* A row of the product by lane 4 g + j: [2 j], [2 j + 1] of rows g and g + 8. */
static float (*show_product(const uint32_t words[6]))[8] {
    shown *w = &warps[emu_now.thread / WARP];
    uint32_t turn = w->all.generation % 2;
    memcpy(w->word[turn][emu_now.thread % WARP], words, 6 * sizeof *words);
    if (w->all.arrived + 1 == WARP)
        multiply(w->word[turn], w->product[turn]);
    wait_for(&w->all, WARP);
    return w->product[turn];
}

void pgl_mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    float(*d)[8] = show_product(words);
    uint32_t g = emu_now.thread % WARP / 4, j = emu_now.thread % 4;
    for (uint32_t i = 0; i < 4; i++)
        c[i] += d[g + 8 * (i / 2)][2 * j + i % 2];
}

void pgl_mma_add(uint32_t d[2], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                 uint32_t b1) {
    const uint32_t words[6] = {a0, a1, a2, a3, b0, b1};
    float(*sums)[8] = show_product(words);
    uint32_t g = emu_now.thread % WARP / 4, j = emu_now.thread % 4;
    for (uint32_t i = 0; i < 2;
         i++) /* two terms that are not 0: f32 holds their sum exactly, or fp16 rounds it alike */
        d[i] = (uint32_t)pgl_f2h(sums[g + 8 * i][2 * j]) | (uint32_t)pgl_f2h(sums[g + 8 * i][2 * j + 1])
                                                               << 16;
}

/* ---- kernels by name */

#define DECLARE(name)                                                                                        \
    void pgl_k_##name(const pgl_##name##_args a);                                                            \
    static void run_##name(const void *args) {                                                               \
        pgl_k_##name(*(const pgl_##name##_args *)args);                                                      \
    }
PGL_CUDA_KERNELS(DECLARE)

static const struct {
    const char *name;
    void (*run)(const void *args);
    size_t bytes;
} kernels[] = {
#define ROW(name) {#name, run_##name, sizeof(pgl_##name##_args)},
    PGL_CUDA_KERNELS(ROW)};

static int find(const char *name) {
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (strcmp(kernels[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

size_t pgl_emulate_args(const char *name) {
    int i = find(name);
    return i < 0 ? 0 : kernels[i].bytes;
}

static int run_grid(const uint32_t grid[3], const uint32_t block[3]) {
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (threads == 0 || threads > MOST_THREADS || threads % WARP != 0 || grid[0] == 0 || grid[1] == 0 ||
        grid[2] == 0 || grid[1] > 65535 || grid[2] > 65535)
        return -1;
    n_threads = n_done = (uint32_t)threads;
    for (uint32_t t = 0; t < n_threads; t++) {
        if (!make_fibre(t))
            return -1;
    }
    memcpy(emu_now.grid, grid, sizeof emu_now.grid);
    for (uint32_t z = 0; z < grid[2]; z++) {
        for (uint32_t y = 0; y < grid[1]; y++) {
            for (uint32_t x = 0; x < grid[0]; x++) {
                emu_now.block[0] = x;
                emu_now.block[1] = y;
                emu_now.block[2] = z;
                run_block();
            }
        }
    }
    return 0;
}

int pgl_emulate(const char *name, const uint32_t grid[3], const uint32_t block[3], const void *args) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    int i = find(name);
    if (i < 0)
        return -1;
    pthread_mutex_lock(&one);
    if (half_values[1] == 0) {
        for (uint32_t h = 0; h < 1 << 16; h++)
            half_values[h] = pgl_f16_to_f32((pgl_f16)h);
    }
    running = name;
    body = kernels[i].run;
    body_args = args;
    int code = run_grid(grid, block);
    pthread_mutex_unlock(&one);
    return code;
}
