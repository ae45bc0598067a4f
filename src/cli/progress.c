/* The progress bar: drawn at most ten times a second, and never for work that is over within the first second. */
#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define SECOND_NS 1000000000U
#define WIDTH 30

void pgl_progress_init(pgl_progress *progress, const char *what) {
    const uint64_t now = pgl_now_ns();
    *progress = (pgl_progress){
        .what = what, .terminal = isatty(STDERR_FILENO) == 1, .begin_ns = now, .next_ns = now + SECOND_NS};
}

/* Whether it is time to draw; says so at most once for each line. */
static bool due(pgl_progress *progress, uint64_t now, uint64_t done, uint64_t total) {
    /* Lines stay where they are: the last one says that it is done. */
    const bool last = !progress->terminal && progress->shown && done >= total;
    if ((now < progress->next_ns && !last) || total == 0 || progress->ended) {
        return false;
    }
    progress->ended = !progress->terminal && done >= total;
    progress->next_ns = now + (progress->terminal ? SECOND_NS / 10 : (uint64_t)10 * SECOND_NS);
    progress->shown = true;
    return true;
}

/* amounts is the text behind the bar. */
static void draw(const pgl_progress *progress, double part, double left, const char *amounts) {
    char bar[WIDTH + 1];
    for (int i = 0; i < WIDTH; i++) {
        bar[i] = i < (int)(part * WIDTH) ? '#' : '.';
    }
    bar[WIDTH] = '\0';
    (void)fprintf(stderr, "%s%s [%s] %3.0f%%  %s, %.0f s left%s", progress->terminal ? "\r" : "",
                  progress->what, bar, part * 100, amounts, left, progress->terminal ? "\033[K" : "\n");
}

void pgl_progress_bytes(pgl_progress *progress, uint64_t done, uint64_t total) {
    const uint64_t now = pgl_now_ns();
    if (!due(progress, now, done, total)) {
        return;
    }
    const double rate = (double)done * 1e9 / (double)(now - progress->begin_ns);
    char amounts[80];
    (void)snprintf(amounts, sizeof amounts, "%.2f of %.2f GB, %.2f GB/s", (double)done / 1e9,
                   (double)total / 1e9, rate / 1e9);
    draw(progress, (double)done / (double)total, rate > 0 ? (double)(total - done) / rate : 0, amounts);
}

void pgl_progress_count(pgl_progress *progress, uint64_t done, uint64_t total, const char *unit) {
    const uint64_t now = pgl_now_ns();
    if (!due(progress, now, done, total)) {
        return;
    }
    const double rate = (double)done * 1e9 / (double)(now - progress->begin_ns);
    char amounts[80];
    (void)snprintf(amounts, sizeof amounts, "%" PRIu64 " of %" PRIu64 " %s, %.3g a second", done, total, unit,
                   rate);
    draw(progress, (double)done / (double)total, rate > 0 ? (double)(total - done) / rate : 0, amounts);
}

void pgl_progress_fini(pgl_progress *progress) {
    if (progress->terminal && progress->shown) {
        (void)fputs("\r\033[K", stderr);
    }
}
