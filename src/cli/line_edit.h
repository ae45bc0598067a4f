/* Lines from a terminal, with editing, history and pasting of several lines at once; from anything else, plain lines.
 * One editor at a time; one thread. */
#ifndef PGL_CLI_LINE_EDIT_H
#define PGL_CLI_LINE_EDIT_H

#include <stdbool.h>

#include "base/buf.h"

typedef struct pgl_line_editor pgl_line_editor;

/* history: a file that is read now and written at close, for its owner only; its directory is made. NULL: none. NULL
 * when memory is out. Without a terminal on standard input and output there is no editing and no prompt. */
pgl_line_editor *pgl_line_editor_open(const char *history);
void pgl_line_editor_close(pgl_line_editor *editor); /* NULL is allowed */

bool pgl_line_editor_is_terminal(const pgl_line_editor *editor);

typedef enum pgl_line_end {
    PGL_LINE_OK,
    PGL_LINE_EOF,         /* Ctrl-D, or the end of input */
    PGL_LINE_INTERRUPTED, /* a signal came: Ctrl-C */
    PGL_LINE_FAILED,      /* memory is out */
} pgl_line_end;

/* One line, without its end; what was pasted in one go is one line that holds several. prompt is shown on a terminal. */
pgl_line_end pgl_line_editor_read(pgl_line_editor *editor, const char *prompt, pgl_buf *line);

/* A line for the history. */
void pgl_line_editor_remember(pgl_line_editor *editor, const char *line);

#endif
