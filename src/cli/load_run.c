/* Owns the requests of one cell while they run. */
#include "cli/load_run.h"

#include <event2/event.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/load_prompt.h"

enum { ERROR_BODY_BYTES = 8192 };
#define MOST_GAPS ((size_t)1 << 24)

typedef struct runner runner;

typedef struct flight {
    runner *run;
    pgl_load_record record;
    pgl_load_stream stream;
    pgl_load_failure failure; /* found while reading */
    bool streaming;
    uint64_t now_ns, text_ns; /* of the bytes at hand, of the last text */
    pgl_buf body;             /* of what is no stream */
    uint64_t *gaps_ns;
    size_t n_gaps, gap_capacity;
} flight;

struct runner {
    const pgl_load_plan *plan;
    pgl_load_result *result;
    flight *flights; /* [n_warmup + n_requests] */
    struct event *timer;
    pgl_load_random random;
    bool measuring, over;
    uint32_t next, end; /* of this phase: the one to send, the last plus one */
    uint32_t n_done, n_flying;
    uint64_t due_ns;
};

static const char *const failure_names[] = {
#define NAME(code, name) name,
    PGL_LOAD_FAILURES(NAME)
#undef NAME
};

const char *pgl_load_failure_name(pgl_load_failure failure) {
    return failure_names[failure];
}

/* ---- what came ---- */

static void note_gap(flight *f, uint64_t gap_ns) {
    pgl_load_result *result = f->run->result;
    if (!f->run->measuring)
        return;
    if (result->n_gaps + f->n_gaps >= MOST_GAPS ||
        !pgl_grow(&f->gaps_ns, sizeof *f->gaps_ns, &f->gap_capacity, f->n_gaps + 1))
        result->gaps_dropped++;
    else
        f->gaps_ns[f->n_gaps++] = gap_ns;
}

static void on_event(void *user, unsigned what) {
    flight *f = user;
    if (what & PGL_LOAD_HAS_TEXT) {
        if (f->record.n_pieces++ == 0)
            f->record.first_ns = f->now_ns;
        else
            note_gap(f, f->now_ns - f->text_ns);
        f->text_ns = f->now_ns;
    }
    if (what != 0)
        f->record.last_ns = f->now_ns;
}

static bool is_event_stream(const pgl_load_head *head) {
    static const char type[] = "text/event-stream";
    return strncmp(head->content_type, type, sizeof type - 1) == 0 &&
           (head->encoding[0] == '\0' || strcmp(head->encoding, "identity") == 0);
}

static pgl_load_wish on_head(void *user, const pgl_load_head *head) {
    flight *f = user;
    f->record.status = head->status;
    f->streaming = head->status == 200 && is_event_stream(head);
    return PGL_LOAD_GO_ON;
}

static pgl_load_wish read_stream(flight *f, const char *data, size_t size) {
    static const pgl_load_failure failures[] = {
        [PGL_LOAD_STREAM_FINE] = PGL_LOAD_OK,
        [PGL_LOAD_STREAM_ERROR] = PGL_LOAD_ERROR_EVENT,
        [PGL_LOAD_STREAM_BAD_EVENT] = PGL_LOAD_BAD_EVENT,
        [PGL_LOAD_STREAM_TOO_LARGE] = PGL_LOAD_OVER_LIMIT,
        [PGL_LOAD_STREAM_TOO_MANY] = PGL_LOAD_OVER_LIMIT,
        [PGL_LOAD_STREAM_MEMORY] = PGL_LOAD_NO_MEMORY,
    };
    f->failure = failures[pgl_load_stream_feed(&f->stream, data, size)];
    if (f->failure != PGL_LOAD_OK)
        return PGL_LOAD_STOP;
    if (!f->stream.done)
        return PGL_LOAD_GO_ON;
    f->record.end_ns = f->now_ns;
    return PGL_LOAD_ENOUGH;
}

static pgl_load_wish on_body(void *user, const char *data, size_t size, uint64_t now_ns) {
    flight *f = user;
    f->now_ns = now_ns;
    if (f->streaming)
        return read_stream(f, data, size);
    size_t room = ERROR_BODY_BYTES - f->body.size;
    (void)pgl_buf_append(&f->body, data, size < room ? size : room); /* without it there is no message */
    return PGL_LOAD_GO_ON;
}

/* ---- how it ended ---- */

static pgl_load_failure classify(const flight *f, pgl_load_end end) {
    if (f->failure != PGL_LOAD_OK)
        return f->failure;
    switch (end) {
    case PGL_LOAD_CONNECT:
        return PGL_LOAD_NOT_CONNECTED;
    case PGL_LOAD_TIMEOUT:
        return PGL_LOAD_TIMED_OUT;
    case PGL_LOAD_CUT:
        return PGL_LOAD_CUT_OFF;
    case PGL_LOAD_MALFORMED:
        return PGL_LOAD_BAD_HTTP;
    case PGL_LOAD_TOO_LARGE:
    case PGL_LOAD_STOPPED:
        return PGL_LOAD_OVER_LIMIT;
    case PGL_LOAD_DONE:
        break;
    }
    if (f->record.status != 200)
        return PGL_LOAD_HTTP_STATUS;
    if (!f->streaming)
        return PGL_LOAD_NO_STREAM;
    if (!f->stream.finished && !f->stream.done)
        return PGL_LOAD_UNFINISHED;
    return f->record.n_pieces == 0 && f->stream.completion_tokens <= 0 ? PGL_LOAD_EMPTY : PGL_LOAD_OK;
}

static void note_failure(flight *f) {
    pgl_load_result *result = f->run->result;
    int status = f->record.failure == PGL_LOAD_HTTP_STATUS ? f->record.status : 0;
    pgl_load_error_kind *kind = result->kinds;
    uint32_t i = 0;
    while (i < result->n_kinds && (kind[i].failure != f->record.failure || kind[i].status != status))
        i++;
    if (i == PGL_LOAD_MOST_KINDS) /* the last row then has statuses of several kinds */
        i--;
    if (i == result->n_kinds) {
        kind[i] = (pgl_load_error_kind){.failure = f->record.failure, .status = status};
        result->n_kinds++;
        if (f->stream.message[0] != '\0')
            (void)snprintf(kind[i].message, sizeof kind[i].message, "%s", f->stream.message);
        else
            pgl_load_error_message(pgl_buf_text(&f->body), f->body.size, kind[i].message);
    }
    kind[i].count++;
}

static void keep_gaps(flight *f) {
    pgl_load_result *result = f->run->result;
    size_t n = f->record.failure == PGL_LOAD_OK ? f->n_gaps : 0;
    if (n > 0 &&
        pgl_grow(&result->gaps_ns, sizeof *result->gaps_ns, &result->gap_capacity, result->n_gaps + n)) {
        memcpy(result->gaps_ns + result->n_gaps, f->gaps_ns, n * sizeof *f->gaps_ns);
        result->n_gaps += n;
    } else {
        result->gaps_dropped += n;
    }
}

static void release(flight *f) {
    pgl_load_stream_fini(&f->stream);
    pgl_buf_fini(&f->body);
    free(f->gaps_ns);
    f->gaps_ns = NULL;
}

static void go_on(runner *run);

static void on_done(void *user, pgl_load_end end, uint64_t now_ns) {
    flight *f = user;
    runner *run = f->run;
    pgl_load_record *record = &f->record;
    record->failure = classify(f, end);
    if (record->end_ns == 0)
        record->end_ns = now_ns;
    record->prompt_tokens = f->stream.prompt_tokens;
    record->output_tokens = f->stream.completion_tokens;
    record->cached_tokens = f->stream.cached_tokens;
    if (run->measuring) {
        if (record->failure != PGL_LOAD_OK)
            note_failure(f);
        keep_gaps(f);
        run->result->records[run->result->n++] = *record;
        run->result->end_ns = record->end_ns > run->result->end_ns ? record->end_ns : run->result->end_ns;
    } else if (record->failure != PGL_LOAD_OK) {
        run->result->warmup_failed++;
    }
    release(f);
    run->n_flying--;
    run->n_done++;
    if (run->plan->on_progress)
        run->plan->on_progress(run->plan->user, run->n_done, run->plan->n_warmup + run->plan->n_requests);
    go_on(run);
}

/* ---- sending ---- */

/* False when every connection is taken: it goes when one is free. */
static bool send_next(runner *run, uint64_t due_ns) {
    const pgl_load_plan *plan = run->plan;
    flight *f = &run->flights[run->next];
    const pgl_buf *request = &plan->requests[run->next];
    pgl_load_sink sink = {.user = f, .head = on_head, .body = on_body, .done = on_done};
    *f = (flight){.run = run};
    /* A token may come in several events (a role, a thought, a call, the usage), and some servers send many empty. */
    pgl_load_stream_init(&f->stream, 4 * (uint64_t)plan->max_tokens + 1024, on_event, f);
    f->record.sent_ns = pgl_now_ns();
    f->record.due_ns = due_ns > 0 ? due_ns : f->record.sent_ns;
    if (!pgl_load_http_send(plan->http, request->data, request->size, &sink))
        return false;
    run->next++;
    run->n_flying++;
    return true;
}

static uint64_t draw_gap_ns(runner *run) {
    return (uint64_t)(-log(1.0 - pgl_load_random_real(&run->random)) / run->plan->rate * 1e9);
}

static void send_due(runner *run) {
    uint64_t now = pgl_now_ns();
    while (run->next < run->end && run->due_ns <= now && run->n_flying < run->plan->concurrency) {
        if (!send_next(run, run->due_ns))
            return;
        run->due_ns += draw_gap_ns(run);
    }
    if (run->next == run->end || run->due_ns <= now)
        return;
    struct timeval wait = {.tv_sec = (time_t)((run->due_ns - now) / 1000000000),
                           .tv_usec = (suseconds_t)((run->due_ns - now) / 1000 % 1000000)};
    (void)evtimer_add(run->timer, &wait);
}

static void on_timer(evutil_socket_t fd, short what, void *user) {
    (void)fd;
    (void)what;
    send_due(user);
}

static void start_phase(runner *run) {
    run->end = run->plan->n_warmup + (run->measuring ? run->plan->n_requests : 0);
    run->result->begin_ns = pgl_now_ns();
    run->due_ns = run->result->begin_ns;
}

/* After every end, and once at the start. */
static void go_on(runner *run) {
    if (run->next == run->end && run->n_flying == 0) {
        if (run->measuring) {
            run->over = true;
            return;
        }
        run->measuring = true;
        start_phase(run);
    }
    if (run->measuring && run->plan->rate > 0) {
        send_due(run);
        return;
    }
    while (run->next < run->end && run->n_flying < run->plan->concurrency)
        if (!send_next(run, 0))
            break;
}

static pgl_status turn(runner *run, pgl_error *err) {
    struct event_base *base = run->plan->base;
    while (!run->over) {
        int left = event_base_loop(base, EVLOOP_ONCE);
        if (left != 0 && !run->over)
            return pgl_fail(err, PGL_E_IO,
                            "the event loop has nothing to wait for, and %u requests are not sent",
                            run->end - run->next);
        if (event_base_got_break(base)) {
            run->result->interrupted = !run->over;
            break;
        }
    }
    return PGL_OK;
}

pgl_status pgl_load_run(const pgl_load_plan *plan, pgl_load_result *result, pgl_error *err) {
    runner run = {.plan = plan, .result = result, .random = {plan->seed}};
    uint32_t n = plan->n_warmup + plan->n_requests;
    *result = (pgl_load_result){0};
    result->records = pgl_new(plan->n_requests, sizeof *result->records);
    run.flights = pgl_new(n, sizeof *run.flights);
    run.timer = evtimer_new(plan->base, on_timer, &run);
    pgl_status status = PGL_OK;
    if (result->records == NULL || run.flights == NULL || run.timer == NULL)
        status = pgl_fail(err, PGL_E_MEMORY, "no memory for %u requests", n);
    if (status == PGL_OK) {
        start_phase(&run);
        go_on(&run);
        status = turn(&run, err);
    }
    for (uint32_t i = 0; i < n && run.flights != NULL; i++)
        release(&run.flights[i]);
    if (run.timer != NULL)
        event_free(run.timer);
    free(run.flights);
    return status;
}

void pgl_load_result_fini(pgl_load_result *result) {
    free(result->records);
    free(result->gaps_ns);
    *result = (pgl_load_result){0};
}
