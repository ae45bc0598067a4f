#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t read_clock(clockid_t id) {
    struct timespec t = {0, 0};
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t pgl_now_ns(void) {
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t pgl_thread_ns(void) {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t pgl_wall_ns(void) {
    return read_clock(CLOCK_REALTIME);
}

void pgl_wall_text(uint64_t wall_ns, char out[PGL_TIME_TEXT]) {
    time_t seconds = (time_t)(wall_ns / 1000000000u);
    struct tm tm;
    char date[24];
    if (gmtime_r(&seconds, &tm) == NULL || strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm) == 0)
        date[0] = 0;
    snprintf(out, PGL_TIME_TEXT, "%s.%03uZ", date, (unsigned)(wall_ns / 1000000u % 1000u));
}
