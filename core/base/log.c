/*
 * Diagnostics on stderr, one line each, control characters made visible. Programs only.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

static const char *log_program = "bridle";
static enum br_log_level log_max = BR_LOG_ERROR;

void br_log_init(const char *program, enum br_log_level max)
{
    log_program = program;
    log_max = max;
}

void br_log(enum br_log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    if (level > log_max)
        return;
    int saved = errno;
    char text[2 * BR_ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    BR_CLEANUP_BUF struct br_buf line = BR_BUF_INIT(8 * sizeof(text));
    br_buf_printf(&line, "%s[%d]: %s: ", log_program, (int)getpid(), names[level]);
    br_buf_put_visible(&line, text, strlen(text), true);
    br_buf_put_u8(&line, '\n');
    if (!line.failed)
        (void)br_write_all(STDERR_FILENO, line.data, line.len);
    errno = saved;
}
