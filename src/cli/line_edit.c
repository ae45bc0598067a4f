/* Owns the libedit editor and its history, and what was pasted into the line being edited.
 *
 * Terminals announce a paste when they are asked to (bracketed paste). Its text goes into the line with its newlines,
 * so that it is sent as a whole when the user presses Enter. A long one would be slow to edit: a mark stands for it. */
#include "cli/line_edit.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define LEAKS_IGNORED_BEGIN() __lsan_disable()
#define LEAKS_IGNORED_END() __lsan_enable()
#else
#define LEAKS_IGNORED_BEGIN() ((void)0)
#define LEAKS_IGNORED_END() ((void)0)
#endif

enum {
    HISTORY_LINES = 1000,
    PASTE_INLINE_BYTES = 2048, /* longer ones are marked */
    PASTE_MOST_BYTES = 16 << 20,
    MOST_MARKS = 64,
};

static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l";
static const char paste_begin[] = "\033[200~", paste_end[] = "\033[201~";

typedef struct paste_mark {
    char text[48]; /* "[pasted 12 lines, no. 3]" */
    char *content;
} paste_mark;

struct pgl_line_editor {
    EditLine *edit; /* NULL: no terminal */
    History *history;
    char *history_path;
    const char *prompt;
    paste_mark marks[MOST_MARKS];
    unsigned n_marks;
    char *plain; /* getline's */
    size_t plain_capacity;
};

static char *give_prompt(EditLine *edit) {
    void *data = NULL;
    (void)el_get(edit, EL_CLIENTDATA, &data);
    const pgl_line_editor *editor = data;
    return (char *)editor->prompt;
}

static size_t count_lines(const char *text) {
    size_t n = 1;
    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

/* Reads what is pasted up to its end mark. */
static bool read_paste(EditLine *edit, pgl_buf *text) {
    size_t end = sizeof paste_end - 1;
    char c;
    while (text->size < PASTE_MOST_BYTES && el_getc(edit, &c) == 1) {
        if (c == '\0')
            continue;
        if (!pgl_buf_putc(text, c == '\r' ? '\n' : c))
            return false;
        if (text->size >= end && memcmp(text->data + text->size - end, paste_end, end) == 0) {
            text->size -= end;
            text->data[text->size] = '\0';
            return true;
        }
    }
    return text->size > 0;
}

static unsigned char on_paste(EditLine *edit, int c) {
    (void)c;
    void *data = NULL;
    (void)el_get(edit, EL_CLIENTDATA, &data);
    pgl_line_editor *editor = data;
    pgl_buf text = PGL_BUF_INIT;
    if (!read_paste(edit, &text)) {
        pgl_buf_fini(&text);
        return CC_REFRESH;
    }
    while (text.size > 0 && text.data[text.size - 1] == '\n')
        text.data[--text.size] = '\0';
    if (text.size > PASTE_INLINE_BYTES && editor->n_marks < MOST_MARKS) {
        paste_mark *mark = &editor->marks[editor->n_marks++];
        (void)snprintf(mark->text, sizeof mark->text, "[pasted %zu lines, no. %u]",
                       count_lines(pgl_buf_text(&text)), editor->n_marks);
        mark->content = text.data; /* taken over */
        (void)el_insertstr(edit, mark->text);
    } else {
        (void)el_insertstr(edit, pgl_buf_text(&text));
        pgl_buf_fini(&text);
    }
    return CC_REFRESH;
}

/* Ctrl-D that comes while no line is read, during an answer, is the terminal's own end of input, of which a NUL is left. */
static unsigned char on_nul(EditLine *edit, int c) {
    (void)c;
    const LineInfo *line = el_line(edit);
    return line->lastchar == line->buffer ? CC_EOF : CC_ERROR;
}

static void make_directories(const char *path) {
    char part[4096];
    (void)snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(part, 0700); /* there already, or the history is not kept */
        *slash = '/';
    }
}

static void add_functions(EditLine *edit) {
    /* libedit copies the name and the help of an added function and never frees them: a few bytes once, not ours. */
    LEAKS_IGNORED_BEGIN();
    (void)el_set(edit, EL_ADDFN, "pergola-end", "End the input where the line is empty", on_nul);
    (void)el_set(edit, EL_ADDFN, "pergola-paste", "Insert what is pasted", on_paste);
    LEAKS_IGNORED_END();
}

static void open_history(pgl_line_editor *editor, const char *path) {
    HistEvent event;
    editor->history = history_init();
    if (editor->history == NULL)
        return;
    (void)history(editor->history, &event, H_SETSIZE, HISTORY_LINES);
    (void)history(editor->history, &event, H_SETUNIQUE, 1);
    (void)el_set(editor->edit, EL_HIST, history, editor->history);
    if (path == NULL)
        return;
    editor->history_path = pgl_strndup(path, strlen(path));
    if (editor->history_path != NULL)
        (void)history(editor->history, &event, H_LOAD, path);
}

pgl_line_editor *pgl_line_editor_open(const char *history_path) {
    pgl_line_editor *editor = pgl_new(1, sizeof *editor);
    if (editor == NULL || isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1)
        return editor;
    editor->edit = el_init("pergola", stdin, stdout, stderr);
    if (editor->edit == NULL)
        return editor; /* a terminal that libedit cannot use: plain lines */
    editor->prompt = "";
    (void)el_set(editor->edit, EL_CLIENTDATA, editor);
    (void)el_set(editor->edit, EL_PROMPT, give_prompt);
    (void)el_set(editor->edit, EL_EDITOR, "emacs");
    add_functions(editor->edit);
    (void)el_set(editor->edit, EL_BIND, paste_begin, "pergola-paste", NULL);
    (void)el_set(editor->edit, EL_BIND, "^@", "pergola-end", NULL);
    (void)el_set(editor->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    open_history(editor, history_path);
    return editor;
}

static void save_history(const pgl_line_editor *editor) {
    if (editor->history == NULL || editor->history_path == NULL)
        return;
    make_directories(editor->history_path);
    mode_t mask = umask(0077);
    HistEvent event;
    (void)history(editor->history, &event, H_SAVE, editor->history_path);
    (void)umask(mask);
    (void)chmod(editor->history_path, 0600);
}

static void drop_marks(pgl_line_editor *editor) {
    for (unsigned i = 0; i < editor->n_marks; i++)
        free(editor->marks[i].content);
    editor->n_marks = 0;
}

void pgl_line_editor_close(pgl_line_editor *editor) {
    if (editor == NULL)
        return;
    save_history(editor);
    if (editor->history != NULL)
        history_end(editor->history);
    if (editor->edit != NULL)
        el_end(editor->edit);
    drop_marks(editor);
    free(editor->history_path);
    free(editor->plain);
    free(editor);
}

bool pgl_line_editor_is_terminal(const pgl_line_editor *editor) {
    return editor->edit != NULL;
}

static pgl_line_end read_plain(pgl_line_editor *editor, pgl_buf *line) {
    errno = 0;
    ssize_t n = getline(&editor->plain, &editor->plain_capacity, stdin);
    if (n < 0) {
        bool interrupted = ferror(stdin) && errno == EINTR;
        clearerr(stdin);
        return interrupted ? PGL_LINE_INTERRUPTED : PGL_LINE_EOF;
    }
    while (n > 0 && (editor->plain[n - 1] == '\n' || editor->plain[n - 1] == '\r'))
        n--;
    return pgl_buf_append(line, editor->plain, (size_t)n) ? PGL_LINE_OK : PGL_LINE_FAILED;
}

/* The line with every mark replaced by what it stands for. */
static bool unfold(const pgl_line_editor *editor, const char *text, size_t size, pgl_buf *line) {
    for (size_t i = 0; i < size;) {
        const paste_mark *found = NULL;
        for (unsigned m = 0; m < editor->n_marks && found == NULL; m++) {
            size_t length = strlen(editor->marks[m].text);
            if (length <= size - i && memcmp(text + i, editor->marks[m].text, length) == 0)
                found = &editor->marks[m];
        }
        if (!(found != NULL ? pgl_buf_puts(line, found->content) : pgl_buf_putc(line, text[i])))
            return false;
        i += found != NULL ? strlen(found->text) : 1;
    }
    return true;
}

/* Input is there already: a terminal without bracketed paste has more lines of one. */
static bool more_waits(void) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, 0) == 1 && (in.revents & POLLIN) != 0;
}

static pgl_line_end read_edited(pgl_line_editor *editor, pgl_buf *line) {
    (void)el_set(editor->edit, EL_PREP_TERM,
                 1); /* keys that come now are edited, not taken by the terminal */
    (void)fputs(paste_on, stdout);
    (void)fflush(stdout);
    pgl_line_end end = PGL_LINE_OK;
    bool more = true;
    while (more && end == PGL_LINE_OK) {
        int n = 0;
        errno = 0;
        const char *text = el_gets(editor->edit, &n);
        if (text == NULL || n <= 0) {
            end = n < 0 && errno == EINTR ? PGL_LINE_INTERRUPTED : PGL_LINE_EOF;
            break;
        }
        size_t size = (size_t)n;
        while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r'))
            size--;
        bool ok = (line->size == 0 || pgl_buf_putc(line, '\n')) && unfold(editor, text, size, line);
        end = ok ? PGL_LINE_OK : PGL_LINE_FAILED;
        more = more_waits();
        editor->prompt = "";
    }
    (void)fputs(paste_off, stdout);
    (void)fflush(stdout);
    drop_marks(editor);
    return end == PGL_LINE_EOF && line->size > 0 ? PGL_LINE_OK : end;
}

pgl_line_end pgl_line_editor_read(pgl_line_editor *editor, const char *prompt, pgl_buf *line) {
    pgl_buf_clear(line);
    if (editor->edit == NULL)
        return read_plain(editor, line);
    editor->prompt = prompt;
    el_resize(editor->edit);
    return read_edited(editor, line);
}

void pgl_line_editor_remember(pgl_line_editor *editor, const char *line) {
    HistEvent event;
    if (editor->history != NULL && line[0] != '\0')
        (void)history(editor->history, &event, H_ENTER, line);
}
