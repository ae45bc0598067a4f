/* Any configuration file: what is taken is within its option's range and set from the line that is named, what is refused
 * names file and line, and a value in quotes is the text that was put into them. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth) {
    if (!truth)
        abort();
}

static const char *const MODES[] = {"fast", "slow", NULL};

static struct {
    const char *model, *mode, *config, *name;
    uint32_t slots;
    int32_t level;
    uint64_t memory, body;
    double seconds;
    bool quiet;
    int think;
} v;

static pgl_option options[] = {
    PGL_OPTION_ROW_MODEL(&v.model),
    PGL_OPTION_ROW_SLOTS(&v.slots),
    PGL_OPTION_ROW_MEMORY(&v.memory),
    {.name = "name", .kind = PGL_OPTION_STRING, .target = &v.name},
    {.name = "mode", .kind = PGL_OPTION_CHOICE, .target = &v.mode, .choices = MODES},
    {.name = "level", .kind = PGL_OPTION_I32, .target = &v.level, .min = -5, .max = 5},
    {.name = "body", .kind = PGL_OPTION_SIZE, .target = &v.body, .min = 1024, .max = 1 << 30},
    {.name = "seconds", .kind = PGL_OPTION_REAL, .target = &v.seconds, .min = 0.1, .max = 86400},
    {.name = "quiet", .kind = PGL_OPTION_FLAG, .target = &v.quiet},
    {.name = "think", .kind = PGL_OPTION_SWITCH, .target = &v.think},
    {.name = "config", .kind = PGL_OPTION_STRING, .target = &v.config},
};

static pgl_status read_text(pgl_command *command, const char *text, size_t size, pgl_error *err) {
    memset(&v, 0, sizeof v);
    v.slots = 1;
    v.body = 1024;
    v.seconds = 1;
    v.think = -1;
    for (size_t i = 0; i < PGL_COUNT(options); i++) {
        options[i].source = PGL_OPTION_DEFAULT;
        options[i].line = 0;
    }
    *command = (pgl_command){
        .name = "test", .options = options, .n_options = PGL_COUNT(options), .config = &v.config};
    require(pgl_buf_append(&command->file_text, text, size));
    return pgl_options_read_text(command, "F", err);
}

static void check_taken(const pgl_command *command, const char *text, size_t size) {
    size_t n_lines = 1;
    for (size_t i = 0; i < size; i++)
        n_lines += text[i] == '\n';
    for (size_t i = 0; i < command->n_options; i++) {
        const pgl_option *option = &command->options[i];
        require((option->source == PGL_OPTION_FROM_CONFIG) == (option->line > 0) && option->line <= n_lines);
    }
    require(v.slots >= 1 && v.slots <= 4096 && v.level >= -5 && v.level <= 5);
    require(v.body >= 1024 && v.body <= 1 << 30 && isfinite(v.seconds) && v.seconds >= 0.1 &&
            v.seconds <= 86400);
    require(v.think >= -1 && v.think <= 1 && v.config == NULL);
    require(v.mode == NULL || strcmp(v.mode, "fast") == 0 || strcmp(v.mode, "slow") == 0);
}

static void check_refused(const pgl_error *err) {
    unsigned line = 0;
    require(err->status != PGL_OK && strncmp(err->text, "F:", 2) == 0);
    require(strstr(err->text, "NUL byte") != NULL || (sscanf(err->text, "F:%u: ", &line) == 1 && line > 0));
}

static void check_quoted(const char *text, size_t size) {
    pgl_buf file = PGL_BUF_INIT;
    pgl_command command;
    pgl_error err;
    if (memchr(text, 0, size) != NULL || memchr(text, '\n', size) != NULL)
        return;
    require(pgl_buf_puts(&file, "\n  name\t= \""));
    for (size_t i = 0; i < size; i++)
        require((text[i] != '"' && text[i] != '\\' ? true : pgl_buf_putc(&file, '\\')) &&
                pgl_buf_putc(&file, text[i]));
    require(pgl_buf_puts(&file, "\" # the end\r\nslots=7"));
    require(read_text(&command, file.data, file.size, &err) == PGL_OK);
    require(v.name != NULL && strlen(v.name) == size && memcmp(v.name, text, size) == 0 && v.slots == 7);
    pgl_options_fini(&command);
    pgl_buf_fini(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = size > 0 ? (const char *)data : "";
    pgl_command command;
    pgl_error err = {.status = PGL_OK};
    if (read_text(&command, text, size, &err) == PGL_OK)
        check_taken(&command, text, size);
    else
        check_refused(&err);
    pgl_options_fini(&command);
    check_quoted(text, size);
    return 0;
}
