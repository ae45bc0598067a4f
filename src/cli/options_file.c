/* Owns nothing: reads a configuration file, whose lines are options by name. Every error says file and line. */
#include <string.h>

#include "base/fs.h"
#include "cli/options.h"

enum { FILE_BYTES_MAX = 1 << 20 };

static const char blanks[] = " \t\r";

/* Cuts a quoted value out in place; *rest is what stands behind it. */
static pgl_status unquote(char *value, char **rest, pgl_error *err) {
    char *to = value, *from = value + 1;
    while (*from != '"') {
        if (*from == '\\' && from[1] != '"' && from[1] != '\\')
            return pgl_fail(err, PGL_E_INVALID,
                            "in a quoted value a backslash stands only in front of \" and \\");
        from += *from == '\\';
        if (*from == '\0')
            return pgl_fail(err, PGL_E_INVALID, "the quoted value has no closing \"");
        *to++ = *from++;
    }
    *rest = from + 1;
    *to = '\0';
    return PGL_OK;
}

static pgl_status read_value(char *value, pgl_error *err) {
    if (*value == '"') {
        char *rest = NULL;
        pgl_status status = unquote(value, &rest, err);
        if (status != PGL_OK)
            return status;
        rest += strspn(rest, blanks);
        if (*rest != '\0' && *rest != '#')
            return pgl_fail(err, PGL_E_INVALID, "behind the quoted value only a comment may stand");
        return PGL_OK;
    }
    size_t size = 0;
    while (value[size] != '\0' &&
           !(value[size] == '#' && (size == 0 || strchr(blanks, value[size - 1]) != NULL)))
        size++;
    while (size > 0 && strchr(blanks, value[size - 1]) != NULL)
        size--;
    value[size] = '\0';
    if (size == 0)
        return pgl_fail(err, PGL_E_INVALID, "a value is missing behind = (\"\" is an empty one)");
    return PGL_OK;
}

static pgl_status set(pgl_command *command, const char *name, const char *value, uint32_t line,
                      pgl_error *err) {
    bool no;
    pgl_option *option = pgl_options_find(command, name, &no);
    if (option != NULL && option->target == (void *)command->config)
        return pgl_fail(err, PGL_E_INVALID, "%s cannot be set in a file", name);
    if (option != NULL && option->line > 0)
        return pgl_fail(err, PGL_E_INVALID, "%s was set before, in line %u", option->name, option->line);
    pgl_status status = pgl_options_set(command, name, value, PGL_OPTION_FROM_CONFIG, err);
    if (status == PGL_OK && option != NULL)
        option->line = line;
    return status;
}

static pgl_status read_line(pgl_command *command, char *text, uint32_t line, pgl_error *err) {
    char *name = text + strspn(text, blanks);
    if (*name == '\0' || *name == '#')
        return PGL_OK;
    char *end = name + strcspn(name, " \t\r=\"#");
    char *equals = end + strspn(end, blanks);
    if (end == name || *equals != '=')
        return pgl_fail(err, PGL_E_INVALID, "expected NAME = VALUE");
    char *value = equals + 1;
    value += strspn(value, blanks);
    *end = '\0';
    pgl_status status = read_value(value, err);
    return status == PGL_OK ? set(command, name, value, line, err) : status;
}

pgl_status pgl_options_read_file(pgl_command *command, const char *path, pgl_error *err) {
    pgl_status status = pgl_fs_read(path, FILE_BYTES_MAX, &command->file_text, err);
    return status == PGL_OK ? pgl_options_read_text(command, path, err) : status;
}

pgl_status pgl_options_read_text(pgl_command *command, const char *path, pgl_error *err) {
    pgl_status status = PGL_OK;
    if (command->file_text.size == 0)
        return PGL_OK;
    if (strlen(pgl_buf_text(&command->file_text)) != command->file_text.size)
        return pgl_fail(err, PGL_E_INVALID, "%s: is no text: it has a NUL byte", path);
    uint32_t line = 0;
    char *rest = command->file_text.data;
    for (char *text = strsep(&rest, "\n"); text != NULL; text = strsep(&rest, "\n")) {
        status = read_line(command, text, ++line, err);
        if (status != PGL_OK) {
            pgl_error_prefix(err, "%s:%u", path, line);
            return status;
        }
    }
    return PGL_OK;
}

void pgl_options_fini(pgl_command *command) {
    if (command->file_text.data != NULL)
        explicit_bzero(command->file_text.data, command->file_text.size);
    pgl_buf_fini(&command->file_text);
}
