/* Owns the interrupt flag; everything else belongs to the caller. */
#include "cli/talk.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/commands.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

void pgl_talk_catch_interrupt(void) {
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: reading a line is to end */
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
}

bool pgl_talk_interrupted(void) {
    return interrupted != 0;
}

void pgl_talk_forget_interrupt(void) {
    interrupted = 0;
}

pgl_talk_options pgl_talk_defaults(void) {
    return (pgl_talk_options){
        .temperature = NAN,
        .top_p = NAN,
        .min_p = NAN,
        .repetition_penalty = NAN,
        .presence_penalty = NAN,
        .frequency_penalty = NAN,
        .top_k = INT32_MIN,
        .think = -1,
    };
}

void pgl_talk_rows(pgl_talk_options *o, pgl_option rows[PGL_TALK_ROWS]) {
    const pgl_option all[] = {
        PGL_OPTION_ROW_MODEL(&o->model),
        {.name = "system",
         .letter = 's',
         .kind = PGL_OPTION_STRING,
         .target = &o->system,
         .value = "TEXT",
         .help = "system prompt"},
        {.name = "think",
         .kind = PGL_OPTION_SWITCH,
         .target = &o->think,
         .help = "let the model think before it answers; the template's own default when neither is said"},
        {.name = "max-tokens",
         .letter = 'n',
         .kind = PGL_OPTION_U32,
         .target = &o->max_tokens,
         .value = "N",
         .help = "most tokens of the answer, thinking included; 0: as many as the context holds"},
        {.name = "temperature",
         .kind = PGL_OPTION_REAL,
         .target = &o->temperature,
         .value = "T",
         .max = 100,
         .help = "0: always the most likely token; the model's recommendation when left out"},
        {.name = "top-p",
         .kind = PGL_OPTION_REAL,
         .target = &o->top_p,
         .min = 1e-6,
         .value = "P",
         .max = 1,
         .help = "keep the most likely tokens up to this probability together; 1: off"},
        {.name = "top-k",
         .kind = PGL_OPTION_I32,
         .target = &o->top_k,
         .value = "K",
         .min = 0,
         .max = 1 << 24,
         .help = "keep the K most likely tokens; 0: off"},
        {.name = "min-p",
         .kind = PGL_OPTION_REAL,
         .target = &o->min_p,
         .value = "P",
         .max = 1,
         .help = "keep tokens of at least this share of the largest probability; 0: off"},
        {.name = "repetition-penalty",
         .kind = PGL_OPTION_REAL,
         .target = &o->repetition_penalty,
         .value = "R",
         .min = 0.01,
         .max = 10,
         .help = "above 1: less of what was said or asked before"},
        {.name = "presence-penalty",
         .kind = PGL_OPTION_REAL,
         .target = &o->presence_penalty,
         .value = "X",
         .min = -2,
         .max = 2,
         .help = "above 0: less of what the answer has said before"},
        {.name = "frequency-penalty",
         .kind = PGL_OPTION_REAL,
         .target = &o->frequency_penalty,
         .value = "X",
         .min = -2,
         .max = 2,
         .help = "the same for each time it was said"},
        {.name = "seed",
         .kind = PGL_OPTION_U64,
         .target = &o->seed,
         .value = "N",
         .help = "the same seed gives the same answer; a random one when left out"},
        {.name = "stop",
         .kind = PGL_OPTION_STRING,
         .target = &o->stop,
         .value = "TEXT",
         .help = "the answer ends before this text"},
        {.name = "ignore-end",
         .kind = PGL_OPTION_FLAG,
         .target = &o->ignore_end,
         .help = "the model's own end of an answer does not end it: for measuring"},
        PGL_OPTION_ROW_CONTEXT(&o->context),
        PGL_OPTION_ROW_THREADS(&o->threads),
        PGL_OPTION_ROW_MEMORY(&o->memory),
        PGL_OPTION_ROW_BACKEND(&o->backend),
    };
    _Static_assert(sizeof all / sizeof all[0] == PGL_TALK_ROWS, "PGL_TALK_ROWS counts the rows");
    memcpy(rows, all, sizeof all);
}

/* ---- loading ---- */

static void on_loading(void *user, const char *what, uint64_t done, uint64_t total) {
    pgl_progress *progress = user;
    progress->what = what;
    pgl_progress_bytes(progress, done, total);
}

bool pgl_talk_check(const pgl_command *command, const pgl_talk_options *o, int *exit_code) {
    pgl_error err;
    if (o->stop == NULL || (o->stop[0] != '\0' && pgl_utf8_valid(o->stop, strlen(o->stop))))
        return true;
    (void)pgl_fail(&err, PGL_E_INVALID, "stop: expected %s, found %s",
                   o->stop[0] == '\0' ? "a text" : "UTF-8", o->stop[0] == '\0' ? "none" : "other bytes");
    *exit_code = pgl_options_fail(command, &err);
    return false;
}

pergola_model *pgl_talk_open(const pgl_command *command, const pgl_talk_options *o, int *exit_code) {
    char path[4096];
    pgl_error inner;
    if (pgl_find_model(o->model, path, sizeof path, &inner) != PGL_OK) {
        *exit_code = pgl_options_fail(command, &inner);
        return NULL;
    }
    pgl_progress progress;
    pgl_progress_init(&progress, "loading");
    pergola_model_options options;
    pergola_model_options_init(&options);
    options.path = path;
    options.backend = o->backend;
    options.context = o->context;
    options.threads = o->threads;
    options.memory_bytes = o->memory;
    options.progress = on_loading;
    options.user = &progress;
    pergola_model *model = NULL;
    pergola_error err;
    pergola_status status = pergola_model_open(&options, &model, &err);
    pgl_progress_fini(&progress);
    if (status != PERGOLA_OK) {
        (void)pgl_fail(&inner, status == PERGOLA_INVALID ? PGL_E_INVALID : PGL_E_IO, "%s", err.text);
        *exit_code = pgl_options_fail(command, &inner);
    }
    return model;
}

static float chosen(double given, float otherwise) {
    return isnan(given) ? otherwise : (float)given;
}

pergola_generate_options pgl_talk_generate_options(const pergola_model *model, const pgl_talk_options *o,
                                                   bool seed_given) {
    pergola_generate_options g;
    pergola_generate_options_init(model, &g);
    g.max_tokens = o->max_tokens;
    g.temperature = chosen(o->temperature, g.temperature);
    g.top_p = chosen(o->top_p, g.top_p);
    g.min_p = chosen(o->min_p, g.min_p);
    g.repetition_penalty = chosen(o->repetition_penalty, g.repetition_penalty);
    g.presence_penalty = chosen(o->presence_penalty, g.presence_penalty);
    g.frequency_penalty = chosen(o->frequency_penalty, g.frequency_penalty);
    g.top_k = o->top_k == INT32_MIN ? g.top_k : o->top_k;
    g.has_seed = seed_given;
    g.seed = o->seed;
    g.stop = o->stop != NULL ? &o->stop : NULL;
    g.n_stop = o->stop != NULL ? 1 : 0;
    g.ignore_end = o->ignore_end;
    return g;
}

/* ---- showing ---- */

bool pgl_talk_wants_color(void) {
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return (none == NULL || none[0] == '\0') && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

/* A terminal obeys control characters; a model's must not reach it. */
static void put_visible(FILE *to, const char *text, size_t size) {
    for (size_t i = 0; i < size;) {
        uint32_t c = 0;
        int n = pgl_utf8_decode(text + i, size - i, &c);
        if (n <= 0)
            return;
        bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F || (c >= 0x80 && c < 0xA0);
        if (control)
            (void)fprintf(to, "<%02X>", (unsigned)c);
        else
            (void)fwrite(text + i, 1, (size_t)n, to);
        i += (size_t)n;
    }
}

static void stop_thinking(pgl_talk_view *view) {
    if (!view->thinks)
        return;
    view->thinks = false;
    (void)fputs(view->color ? "\033[0m\n\n" : "\n(end of thinking)\n\n", view->to);
    view->last = '\n';
}

static void start_thinking(pgl_talk_view *view) {
    if (view->thinks)
        return;
    view->thinks = true;
    (void)fputs(view->color ? "\033[2m" : "(thinking)\n", view->to);
}

static bool on_text(void *user, pergola_text_kind kind, const char *text, size_t size) {
    pgl_talk_view *view = user;
    if (!view->begun)
        pgl_progress_fini(&view->progress);
    view->begun = true;
    if (pgl_talk_interrupted())
        pergola_session_cancel(view->session);
    bool thought = kind == PERGOLA_TEXT_REASONING;
    if (size == 0 || (thought && !view->reasoning))
        return true;
    if (thought)
        start_thinking(view);
    else
        stop_thinking(view);
    if (view->terminal)
        put_visible(view->to, text, size);
    else
        (void)fwrite(text, 1, size, view->to);
    view->last = text[size - 1];
    (void)fflush(view->to);
    return ferror(view->to) == 0; /* nobody reads any more: enough */
}

static void on_progress(void *user, uint32_t done, uint32_t total) {
    pgl_talk_view *view = user;
    if (pgl_talk_interrupted())
        pergola_session_cancel(view->session);
    if (!view->begun && done < total)
        pgl_progress_count(&view->progress, done, total, "tokens");
}

pergola_status pgl_talk_generate(pgl_talk_view *view, const char *text, pergola_generate_options *options,
                                 pergola_result *result, pergola_error *err) {
    view->begun = view->thinks = false;
    view->last = '\n';
    pgl_progress_init(&view->progress, "reading");
    options->progress = on_progress;
    options->progress_user = view;
    pergola_status status = pergola_generate(view->session, text, options, on_text, view, result, err);
    if (!view->begun)
        pgl_progress_fini(&view->progress);
    stop_thinking(view);
    return status;
}

void pgl_talk_statistics(const pergola_result *r, char *out, size_t size) {
    double rate = r->answer_s > 0 && r->answer_tokens > 1 ? (r->answer_tokens - 1) / r->answer_s : 0;
    (void)snprintf(out, size,
                   "prompt %u tokens (%u cached) in %.2f s, answer %u tokens in %.2f s, %.1f tokens/s",
                   r->prompt_tokens, r->cached_tokens, r->prompt_s, r->answer_tokens, r->answer_s, rate);
}

const char *pgl_talk_finish_name(pergola_finish finish) {
    static const char *const names[] = {"end", "length", "stop", "stopped", "cancelled"};
    return (size_t)finish < sizeof names / sizeof names[0] ? names[finish] : "unknown";
}
