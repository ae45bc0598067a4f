/* Loaded before the program's own libraries: from one SIGUSR1 to the next no block of PGL_FAIL_FROM bytes or more can be had. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static atomic_int failing;
static size_t from = (size_t)-1;

static void on_signal(int number) {
    (void)number;
    atomic_fetch_xor(&failing, 1);
}

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("PGL_FAIL_FROM");
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    if (text != NULL)
        from = strtoull(text, NULL, 10);
    (void)sigaction(SIGUSR1, &action, NULL);
}

static int fails(size_t n) {
    if (n < from || !atomic_load(&failing))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n) {
    return fails(n) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    return size > 0 && fails(n * size) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
    return fails(n) ? NULL : __libc_realloc(p, n);
}
