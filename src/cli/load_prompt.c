/* Owns the words, and the search for a text of a length that only the server can count. */
#include "cli/load_prompt.h"

#include <string.h>

static const char *const words[] = {
    "the",    "of",    "and",   "to",     "in",    "is",      "that",    "for",     "it",      "as",
    "was",    "with",  "be",    "by",     "on",    "not",     "he",      "are",     "this",    "at",
    "from",   "have",  "an",    "which",  "one",   "you",     "had",     "were",    "all",     "their",
    "there",  "been",  "many",  "if",     "more",  "when",    "would",   "who",     "so",      "no",
    "out",    "said",  "what",  "up",     "its",   "about",   "than",    "into",    "them",    "can",
    "only",   "other", "new",   "some",   "could", "time",    "these",   "two",     "may",     "then",
    "do",     "first", "any",   "now",    "such",  "like",    "our",     "over",    "man",     "me",
    "even",   "most",  "made",  "after",  "also",  "did",     "before",  "must",    "through", "years",
    "where",  "much",  "way",   "well",   "down",  "should",  "because", "each",    "just",    "those",
    "people", "how",   "too",   "little", "state", "good",    "very",    "make",    "world",   "still",
    "own",    "see",   "men",   "work",   "long",  "get",     "here",    "between", "both",    "life",
    "being",  "under", "never", "day",    "same",  "another", "know",    "while",   "last",    "might",
    "us",     "great", "old",   "year",   "off",   "come",    "since",   "against", "go",      "came",
    "right",  "used",  "take",  "three",  "house", "water",   "light",   "small",   "found",   "place",
    "number", "part",  "line",
};
#define N_WORDS (sizeof words / sizeof *words)

/* What a text is made exact with: pieces that are one token nearly everywhere. */
static const char *const fillers[] = {" a", " the", ".", " 1", "\n", "x"};
#define N_FILLERS (sizeof fillers / sizeof *fillers)

enum { MOST_ROUNDS = 16, MOST_FILL_ROUNDS = 6 };

uint64_t pgl_load_random_next(pgl_load_random *random) {
    uint64_t x = random->state += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

double pgl_load_random_real(pgl_load_random *random) {
    return (double)(pgl_load_random_next(random) >> 11) * 0x1p-53;
}

/* One text that grows and shrinks: its beginning, n words, n_fill times filler. */
typedef struct search {
    pgl_load_prompts *prompts;
    pgl_buf *text;
    size_t beginning;
    uint64_t seed;
    uint32_t wanted, found, best; /* best: nearest to wanted so far */
    pgl_buf best_text;
    pgl_error *err;
} search;

static void cut(pgl_buf *text, size_t size) {
    text->size = size;
    if (text->data != NULL)
        text->data[size] = '\0';
}

static bool put_words(search *s, uint32_t n) {
    pgl_load_random random = {s->seed};
    cut(s->text, s->beginning);
    for (uint32_t i = 0; i < n; i++)
        if ((s->text->size > 0 && !pgl_buf_putc(s->text, ' ')) ||
            !pgl_buf_puts(s->text, words[pgl_load_random_next(&random) % N_WORDS]))
            return false;
    return true;
}

static uint32_t distance(uint32_t a, uint32_t b) {
    return a > b ? a - b : b - a;
}

static pgl_status out_of_memory(search *s) {
    return pgl_fail(s->err, PGL_E_MEMORY, "no memory for a prompt of %u tokens", s->wanted);
}

static pgl_status count(search *s) {
    const pgl_load_counter *counter = s->prompts->counter;
    pgl_status status =
        counter->count(counter->user, pgl_buf_text(s->text), s->text->size, &s->found, s->err);
    if (status != PGL_OK || distance(s->found, s->wanted) >= distance(s->best, s->wanted))
        return status;
    s->best = s->found;
    pgl_buf_clear(&s->best_text);
    return pgl_buf_append(&s->best_text, s->text->data, s->text->size) ? PGL_OK : out_of_memory(s);
}

/* Words, until a few tokens are missing or none. */
static pgl_status search_words(search *s, uint32_t base) {
    double rate = s->prompts->tokens_per_word;
    uint32_t n = 0, low = 0, high = UINT32_MAX; /* low words were too few, high too many */
    pgl_status status = PGL_OK;
    for (int round = 0; round < MOST_ROUNDS && status == PGL_OK; round++) {
        double more = ((double)s->wanted - (double)s->found) / rate;
        double next = (double)n + (more < 0 ? more - 0.5 : more), most = 4.0 * s->wanted + 1024;
        next = next < most ? next : most; /* whatever the server counts */
        n = next > low ? (uint32_t)next : low;
        n = n >= high ? high - 1 : n;
        if (!put_words(s, n))
            return out_of_memory(s);
        status = count(s);
        if (n > 0 && s->found > base)
            rate = (double)(s->found - base) / n;
        s->prompts->tokens_per_word = rate;
        if (status != PGL_OK || (s->found <= s->wanted && (double)(s->wanted - s->found) < 4 * rate + 4))
            break;
        if (s->found > s->wanted)
            high = n > 0 ? n : 1;
        else
            low = n + 1;
        if (low >= high)
            break;
    }
    return status;
}

static pgl_status search_fill(search *s, const char *filler) {
    size_t before = s->text->size, step = strlen(filler);
    uint32_t found = s->found;
    uint32_t n = s->wanted - s->found;
    pgl_status status = PGL_OK;
    for (int round = 0; round < MOST_FILL_ROUNDS && status == PGL_OK && s->found != s->wanted; round++) {
        cut(s->text, before);
        for (uint32_t i = 0; i < n; i++)
            if (!pgl_buf_append(s->text, filler, step))
                return out_of_memory(s);
        status = count(s);
        if (s->found < s->wanted)
            n += s->wanted - s->found;
        else
            n -= s->found - s->wanted < n ? s->found - s->wanted : n;
    }
    if (s->found != s->wanted) {
        cut(s->text, before);
        s->found = found;
    }
    return status;
}

static pgl_status run(search *s) {
    pgl_status status = count(s);
    uint32_t base = s->found;
    if (status == PGL_OK && base > s->wanted)
        return pgl_fail(s->err, PGL_E_INVALID,
                        "a prompt of %u tokens cannot be made: what every prompt begins with is %u already",
                        s->wanted, base);
    if (status == PGL_OK && base < s->wanted)
        status = search_words(s, base);
    for (size_t i = 0; i < N_FILLERS && status == PGL_OK && s->found < s->wanted; i++)
        status = search_fill(s, fillers[i]);
    if (status == PGL_OK && s->found != s->wanted) {
        cut(s->text, 0);
        s->found = s->best;
        if (!pgl_buf_append(s->text, s->best_text.data, s->best_text.size))
            return out_of_memory(s);
    }
    return status;
}

static uint32_t count_words(const pgl_buf *text) {
    uint32_t n = 0;
    for (size_t i = 0; i < text->size; i++)
        n += text->data[i] != ' ' && (i == 0 || text->data[i - 1] == ' ');
    return n;
}

pgl_status pgl_load_prompt_make(pgl_load_prompts *prompts, uint64_t seed, uint32_t n_tokens, pgl_buf *text,
                                uint32_t *found, pgl_error *err) {
    search s = {.prompts = prompts,
                .text = text,
                .beginning = text->size,
                .seed = seed,
                .wanted = n_tokens,
                .best = UINT32_MAX,
                .err = err};
    if (prompts->counter == NULL) {
        uint32_t there = count_words(text);
        *found = there > n_tokens ? there : n_tokens;
        return there >= n_tokens || put_words(&s, n_tokens - there) ? PGL_OK : out_of_memory(&s);
    }
    pgl_status status = run(&s);
    pgl_buf_fini(&s.best_text);
    *found = s.found;
    return status;
}
