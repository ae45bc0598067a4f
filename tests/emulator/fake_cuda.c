/* See fake_cuda.h. One lock guards everything; kernels run under it. */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulate.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719,
    UNKNOWN = 999,
};

static const struct {
    int code;
    const char *name, *text;
} ERRORS[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

/* ---- state */

#define MOST_BLOCKS 4096u
#define MOST_STREAMS 8u
#define MOST_EVENTS 256u
#define MOST_MODULES 64u
#define MOST_FUNCTIONS 256u
#define MOST_WORK 1024u
#define MOST_ARGUMENTS 4096u
#define GUARD 256u
#define GUARD_BYTE 0xA5
#define POISON 0xFF

typedef struct block {
    unsigned char *memory; /* with both guards; NULL: free */
    size_t bytes;          /* without */
    bool pinned;
} block;

typedef struct function {
    char name[64];
    size_t argument_bytes;
} function;

typedef struct event {
    bool used, done;
    uint32_t stream; /* where it was recorded last, UINT32_MAX: nowhere */
    uint64_t time;   /* launches before it */
} event;

typedef struct work {
    enum { COPY, FILL, LAUNCH, RECORD } kind;
    void *to;
    const void *from;
    size_t bytes;
    int value;
    uint64_t number; /* of a launch */
    const function *f;
    event *e;
    uint32_t grid[3], threads[3];
    _Alignas(16) unsigned char arguments[MOST_ARGUMENTS];
} work;

typedef struct stream {
    bool used;
    work *queue; /* [MOST_WORK] */
    uint32_t n, done;
} stream;

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static bool g_ready;
static int g_sticky; /* a fault of the card stays */
static block g_blocks[MOST_BLOCKS];
static stream g_streams[MOST_STREAMS];
static event g_events[MOST_EVENTS];
static unsigned char g_modules[MOST_MODULES];
static uint32_t g_n_modules, g_n_functions;
static function g_functions[MOST_FUNCTIONS];
static pgl_fake_cuda_stats g_stats;
static uint64_t g_ran;
static unsigned char g_context;
static _Thread_local bool t_current;

static struct {
    bool nodevice, old, init, pinned, image;
    long long cc, devices, memory, oom, launch, late;
} g_fault;

static bool flag(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name)) {
        if ((at == text || at[-1] == ',') && (at[n] == '\0' || at[n] == ','))
            return true;
    }
    return false;
}

static long long number(const char *text, const char *name, long long without) {
    size_t n = strlen(name);
    for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name)) {
        if ((at == text || at[-1] == ',') && at[n] == ':')
            return atoll(at + n + 1);
    }
    return without;
}

static void read_faults(void) {
    const char *text = getenv("PGL_FAKE_CUDA");
    if (text == NULL)
        text = "";
    g_fault.nodevice = flag(text, "nodevice");
    g_fault.old = flag(text, "old");
    g_fault.init = flag(text, "init");
    g_fault.pinned = flag(text, "pinned");
    g_fault.image = flag(text, "image");
    g_fault.cc = number(text, "cc", 90);
    g_fault.devices = number(text, "devices", 1);
    g_fault.memory = number(text, "memory", (long long)2 << 30);
    g_fault.oom = number(text, "oom", -1);
    g_fault.launch = number(text, "launch", -1);
    g_fault.late = number(text, "late", -1);
    if (g_fault.launch >= 0)
        g_fault.launch += (long long)g_stats.launches;
    if (g_fault.late >= 0)
        g_fault.late += (long long)g_stats.launches;
}

/* ---- memory */

static bool guards_hold(const block *b) {
    for (size_t i = 0; i < GUARD; i++) {
        if (b->memory[i] != GUARD_BYTE || b->memory[GUARD + b->bytes + i] != GUARD_BYTE)
            return false;
    }
    return true;
}

static block *block_of(const void *p, size_t bytes) {
    const unsigned char *at = p;
    for (uint32_t i = 0; i < MOST_BLOCKS; i++) {
        block *b = &g_blocks[i];
        if (b->memory != NULL && at >= b->memory + GUARD && at <= b->memory + GUARD + b->bytes)
            return bytes <= (size_t)(b->memory + GUARD + b->bytes - at) ? b : NULL;
    }
    return NULL;
}

static bool is_device(const void *p, size_t bytes) {
    const block *b = block_of(p, bytes);
    return b != NULL && !b->pinned;
}

static bool is_pinned(const void *p, size_t bytes) {
    const block *b = block_of(p, bytes);
    return b != NULL && b->pinned;
}

static int new_block(void **out, size_t bytes, bool pinned) {
    uint32_t i = 0;
    if (bytes == 0)
        return INVALID_VALUE;
    if (g_fault.oom >= 0 && !pinned && g_fault.oom-- == 0)
        return OUT_OF_MEMORY;
    if ((pinned && g_fault.pinned) ||
        (!pinned && (long long)bytes > g_fault.memory - (long long)g_stats.bytes_now))
        return OUT_OF_MEMORY;
    while (i < MOST_BLOCKS && g_blocks[i].memory != NULL)
        i++;
    if (i == MOST_BLOCKS)
        return OUT_OF_MEMORY;
    void *memory = NULL;
    if (posix_memalign(&memory, GUARD, bytes + 2 * (size_t)GUARD) != 0)
        return OUT_OF_MEMORY;
    memset(memory, GUARD_BYTE, bytes + 2 * (size_t)GUARD);
    memset((unsigned char *)memory + GUARD, POISON, bytes);
    g_blocks[i] = (block){memory, bytes, pinned};
    g_stats.allocations++;
    if (!pinned)
        g_stats.bytes_now += bytes;
    *out = g_blocks[i].memory + GUARD;
    return OK;
}

static int drop_block(const void *p, bool pinned) {
    block *b = block_of(p, 0);
    if (b == NULL || b->pinned != pinned || b->memory + GUARD != p)
        return INVALID_VALUE;
    int result = guards_hold(b) ? OK : ILLEGAL_ADDRESS;
    if (!pinned)
        g_stats.bytes_now -= b->bytes;
    g_stats.frees++;
    free(b->memory);
    *b = (block){0};
    return result;
}

/* ---- streams */

static void fault(int code, const char *what, const char *name) {
    fprintf(stderr, "fake CUDA: %s %s\n", what, name);
    if (g_sticky == OK)
        g_sticky = code;
}

static void check_guards(const char *after) {
    for (uint32_t i = 0; i < MOST_BLOCKS; i++) {
        if (g_blocks[i].memory != NULL && !guards_hold(&g_blocks[i]))
            fault(ILLEGAL_ADDRESS, "the guards of an allocation were written over before the wait after",
                  after);
    }
}

static void carry_out(work *w) {
    switch (w->kind) {
    case COPY:
        memmove(w->to, w->from, w->bytes);
        break;
    case FILL:
        memset(w->to, w->value, w->bytes);
        break;
    case LAUNCH:
        g_ran++;
        if (g_fault.late >= 0 && (long long)w->number >= g_fault.late)
            fault(ILLEGAL_ADDRESS, "as it was asked to, fails in", w->f->name);
        else if (pgl_emulate(w->f->name, w->grid, w->threads, w->arguments) != 0)
            fault(LAUNCH_FAILED, "the emulator does not run", w->f->name);
        break;
    case RECORD:
        w->e->done = true;
        w->e->time = g_ran;
        break;
    }
}

/* What is in the stream, up to and with an event. */
static int run_stream(stream *s, const event *until) {
    const char *last = "a copy";
    while (s->done < s->n && g_sticky == OK) {
        work *w = &s->queue[s->done++];
        carry_out(w);
        if (w->kind == LAUNCH)
            last = w->f->name;
        if (w->kind == RECORD && w->e == until)
            break;
    }
    if (s->done == s->n)
        s->done = s->n = 0;
    check_guards(last);
    return g_sticky;
}

static void run_all(void) {
    for (uint32_t i = 0; i < MOST_STREAMS; i++) {
        if (g_streams[i].used)
            (void)run_stream(&g_streams[i], NULL);
    }
}

static stream *stream_of(void *handle) {
    stream *s = handle;
    return s >= g_streams && s < g_streams + MOST_STREAMS && s->used ? s : NULL;
}

static event *event_of(void *handle) {
    event *e = handle;
    return e >= g_events && e < g_events + MOST_EVENTS && e->used ? e : NULL;
}

static work *put(stream *s) {
    if (s->n == MOST_WORK)
        (void)run_stream(s, NULL);
    if (s->n == MOST_WORK) /* after a fault nothing runs any more */
        s->n = s->done = 0;
    return &s->queue[s->n++];
}

static int enter(void) {
    pthread_mutex_lock(&g_lock);
    return !g_ready ? NOT_INITIALIZED : !t_current ? INVALID_CONTEXT : g_sticky;
}

static int leave(int result) {
    pthread_mutex_unlock(&g_lock);
    return result;
}

/* ---- the entry points; their declarations are in the driver's own headers only */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EXPORT pgl_fake_cuda_stats pgl_fake_cuda_get_stats(void) {
    pthread_mutex_lock(&g_lock);
    pgl_fake_cuda_stats stats = g_stats;
    pthread_mutex_unlock(&g_lock);
    return stats;
}

EXPORT int cuInit(unsigned flags) {
    pthread_mutex_lock(&g_lock);
    read_faults();
    g_sticky = OK;
    g_ready = !g_fault.nodevice && !g_fault.init && flags == 0;
    return leave(g_fault.nodevice ? NO_DEVICE : g_fault.init ? UNKNOWN : flags != 0 ? INVALID_VALUE : OK);
}

EXPORT int cuDriverGetVersion(int *version) {
    pthread_mutex_lock(&g_lock);
    read_faults();
    *version = g_fault.old ? 12040 : 13000;
    return leave(OK);
}

static int look_up(int code, const char **out, bool text) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof ERRORS[0]; i++) {
        if (ERRORS[i].code == code) {
            *out = text ? ERRORS[i].text : ERRORS[i].name;
            return OK;
        }
    }
    *out = NULL;
    return INVALID_VALUE;
}

EXPORT int cuGetErrorName(int code, const char **name) {
    return look_up(code, name, false);
}

EXPORT int cuGetErrorString(int code, const char **text) {
    return look_up(code, text, true);
}

EXPORT int cuDeviceGetCount(int *count) {
    *count = (int)g_fault.devices;
    return g_ready ? OK : NOT_INITIALIZED;
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return !g_ready ? NOT_INITIALIZED : ordinal >= 0 && ordinal < g_fault.devices ? OK : INVALID_DEVICE;
}

EXPORT int cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, (size_t)length, "Fake card %d", device);
    return OK;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 16:
        *value = 4;
        return OK;
    case 75:
        *value = (int)(g_fault.cc / 10);
        return OK;
    case 76:
        *value = (int)(g_fault.cc % 10);
        return OK;
    default:
        return INVALID_VALUE;
    }
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)g_fault.memory;
    return OK;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    *context = &g_context;
    return g_ready ? OK : NOT_INITIALIZED;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    return OK;
}

EXPORT int cuCtxSetCurrent(void *context) {
    t_current = context == &g_context;
    return t_current || context == NULL ? OK : INVALID_CONTEXT;
}

EXPORT int cuMemGetInfo_v2(size_t *available, size_t *total) {
    int result = enter();
    *total = (size_t)g_fault.memory;
    *available = *total > g_stats.bytes_now ? *total - g_stats.bytes_now : 0;
    return leave(result);
}

EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    int result = enter();
    void *p = NULL;
    if (result == OK)
        result = new_block(&p, bytes, false);
    *address = (uint64_t)(uintptr_t)p;
    return leave(result);
}

EXPORT int cuMemFree_v2(uint64_t address) {
    (void)enter();
    run_all();
    return leave(drop_block((const void *)(uintptr_t)address, false));
}

EXPORT int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    int result = enter();
    (void)flags;
    *memory = NULL;
    if (result == OK)
        result = new_block(memory, bytes, true);
    return leave(result);
}

EXPORT int cuMemFreeHost(void *memory) {
    (void)enter();
    run_all();
    return leave(drop_block(memory, true));
}

/* A copy that runs later if its host side is page-locked, or there is none; else now. */
static int put_copy(void *handle, void *to, const void *from, size_t bytes, const void *host) {
    stream *s = stream_of(handle);
    if (s == NULL)
        return INVALID_HANDLE;
    if (bytes == 0)
        return OK;
    bool later = host == NULL || is_pinned(host, bytes);
    *put(s) = (work){.kind = COPY, .to = to, .from = from, .bytes = bytes};
    g_stats.pageable += later ? 0 : 1;
    return later ? OK : run_stream(s, NULL);
}

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *handle) {
    int result = enter();
    void *device = (void *)(uintptr_t)to;
    if (result == OK)
        result = is_device(device, bytes) ? put_copy(handle, device, from, bytes, from) : INVALID_VALUE;
    g_stats.bytes_up += bytes;
    g_stats.copies_up++;
    return leave(result);
}

EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *handle) {
    int result = enter();
    const void *device = (const void *)(uintptr_t)from;
    if (result == OK)
        result = is_device(device, bytes) ? put_copy(handle, to, device, bytes, to) : INVALID_VALUE;
    g_stats.bytes_down += bytes;
    g_stats.copies_down++;
    return leave(result);
}

EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *handle) {
    int result = enter();
    void *a = (void *)(uintptr_t)to;
    const void *b = (const void *)(uintptr_t)from;
    if (result == OK)
        result =
            is_device(a, bytes) && is_device(b, bytes) ? put_copy(handle, a, b, bytes, NULL) : INVALID_VALUE;
    g_stats.bytes_within += bytes;
    return leave(result);
}

EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *handle) {
    int result = enter();
    stream *s = stream_of(handle);
    void *device = (void *)(uintptr_t)to;
    if (result == OK && (s == NULL || !is_device(device, bytes)))
        result = INVALID_VALUE;
    if (result == OK)
        *put(s) = (work){.kind = FILL, .to = device, .value = value, .bytes = bytes};
    return leave(result);
}

EXPORT int cuStreamCreate(void **out, unsigned flags) {
    int result = enter();
    (void)flags;
    *out = NULL;
    for (uint32_t i = 0; result == OK && i < MOST_STREAMS; i++) {
        stream *s = &g_streams[i];
        if (s->used)
            continue;
        *s = (stream){.used = true, .queue = malloc(MOST_WORK * sizeof(work))};
        if (s->queue == NULL)
            abort();
        *out = s;
        return leave(OK);
    }
    return leave(result != OK ? result : OUT_OF_MEMORY);
}

EXPORT int cuStreamDestroy_v2(void *handle) {
    (void)enter();
    stream *s = stream_of(handle);
    if (s == NULL)
        return leave(INVALID_HANDLE);
    (void)run_stream(s, NULL);
    free(s->queue);
    *s = (stream){0};
    return leave(OK);
}

EXPORT int cuStreamSynchronize(void *handle) {
    int result = enter();
    stream *s = stream_of(handle);
    g_stats.waits++;
    if (result == OK)
        result = s != NULL ? run_stream(s, NULL) : INVALID_HANDLE;
    return leave(result);
}

EXPORT int cuEventCreate(void **out, unsigned flags) {
    int result = enter();
    (void)flags;
    *out = NULL;
    for (uint32_t i = 0; result == OK && i < MOST_EVENTS; i++) {
        if (g_events[i].used)
            continue;
        g_events[i] = (event){.used = true, .stream = UINT32_MAX};
        *out = &g_events[i];
        return leave(OK);
    }
    return leave(result != OK ? result : OUT_OF_MEMORY);
}

EXPORT int cuEventDestroy_v2(void *handle) {
    (void)enter();
    event *e = event_of(handle);
    if (e == NULL)
        return leave(INVALID_HANDLE);
    run_all();
    *e = (event){0};
    return leave(OK);
}

EXPORT int cuEventRecord(void *handle, void *stream_handle) {
    int result = enter();
    event *e = event_of(handle);
    stream *s = stream_of(stream_handle);
    if (result == OK && (e == NULL || s == NULL))
        result = INVALID_HANDLE;
    if (result != OK)
        return leave(result);
    e->done = false;
    e->stream = (uint32_t)(s - g_streams);
    *put(s) = (work){.kind = RECORD, .e = e};
    return leave(OK);
}

EXPORT int cuEventSynchronize(void *handle) {
    int result = enter();
    event *e = event_of(handle);
    g_stats.waits++;
    if (result == OK && e == NULL)
        result = INVALID_HANDLE;
    if (result == OK && e->stream != UINT32_MAX && !e->done)
        result = run_stream(&g_streams[e->stream], e);
    return leave(result);
}

EXPORT int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    int result = enter();
    const event *a = event_of(start), *b = event_of(end);
    *milliseconds = 0;
    if (result == OK && (a == NULL || b == NULL || !a->done || !b->done))
        result = INVALID_HANDLE;
    if (result == OK)
        *milliseconds = (float)(b->time - a->time + 1) * 0.001F; /* a microsecond each launch */
    return leave(result);
}

EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned n_options, int *options,
                              void **values) {
    int result = enter();
    (void)n_options;
    (void)options;
    (void)values;
    *module = NULL;
    if (result == OK && (image == NULL || g_n_modules == MOST_MODULES))
        result = INVALID_IMAGE;
    if (result == OK && g_fault.image)
        result = NO_BINARY;
    if (result == OK)
        *module = &g_modules[g_n_modules++];
    return leave(result);
}

EXPORT int cuModuleUnload(void *module) {
    (void)module;
    return OK;
}

EXPORT int cuModuleGetFunction(void **out, void *module, const char *name) {
    int result = enter();
    static const char prefix[] = "pgl_k_";
    (void)module;
    *out = NULL;
    size_t bytes =
        strncmp(name, prefix, sizeof prefix - 1) == 0 ? pgl_emulate_args(name + sizeof prefix - 1) : 0;
    if (result == OK && (bytes == 0 || bytes > MOST_ARGUMENTS))
        result = NOT_FOUND;
    for (uint32_t i = 0; result == OK && i <= g_n_functions && i < MOST_FUNCTIONS; i++) {
        function *f = &g_functions[i];
        if (i == g_n_functions) {
            snprintf(f->name, sizeof f->name, "%s", name + sizeof prefix - 1);
            f->argument_bytes = bytes;
            g_n_functions++;
        } else if (strcmp(f->name, name + sizeof prefix - 1) != 0) {
            continue;
        }
        *out = f;
        break;
    }
    return leave(result);
}

static bool launch_is_sound(const uint32_t *grid, const uint32_t *threads) {
    uint64_t n = (uint64_t)threads[0] * threads[1] * threads[2];
    return n > 0 && n <= 1024 && grid[0] > 0 && grid[1] > 0 && grid[2] > 0 && grid[0] <= 0x7FFFFFFF &&
           grid[1] <= 65535 && grid[2] <= 65535;
}

EXPORT int cuLaunchKernel(void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream_handle,
                          void **arguments, void **extra) {
    int result = enter();
    const function *f = handle;
    stream *s = stream_of(stream_handle);
    uint32_t grid[3] = {grid_x, grid_y, grid_z}, threads[3] = {block_x, block_y, block_z};
    if (result == OK && (s == NULL || f < g_functions || f >= g_functions + g_n_functions))
        result = INVALID_HANDLE;
    if (result == OK && (!launch_is_sound(grid, threads) || shared_bytes > 48 * 1024 || extra != NULL ||
                         arguments == NULL || arguments[0] == NULL))
        result = INVALID_VALUE;
    uint64_t index = g_stats.launches;
    if (result == OK && g_fault.launch >= 0 && (long long)index >= g_fault.launch)
        result = LAUNCH_OUT_OF_RESOURCES;
    if (result != OK)
        return leave(result);
    g_stats.launches++;
    work *w = put(s);
    w->kind = LAUNCH;
    w->f = f;
    w->number = index;
    memcpy(w->grid, grid, sizeof grid);
    memcpy(w->threads, threads, sizeof threads);
    memcpy(w->arguments, arguments[0], f->argument_bytes);
    return leave(OK);
}
