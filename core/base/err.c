/*
 * Error values and codes. Called by everything; trusts nothing but its format strings.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const struct {
    const char *name;
    int exit_code;
} code_table[] = {[BR_OK] = {"OK", 0},
#define BR_CODE_ROW_(name, str, ex) [BR_E_##name] = {str, ex},
                  BR_CODES(BR_CODE_ROW_)
#undef BR_CODE_ROW_
};

/* The row of a code of either sign; the number may come from a peer. 0: no code. */
static unsigned code_row(int code)
{
    unsigned c = code < 0 ? 0u - (unsigned)code : (unsigned)code;
    return c < BR_CODE_COUNT_ ? c : 0;
}

const char *br_code_name(int code)
{
    unsigned c = code_row(code);
    return c || code == 0 ? code_table[c].name : "INTERNAL_ERROR";
}

int br_code_exit(int code)
{
    unsigned c = code_row(code);
    return c || code == 0 ? code_table[c].exit_code : 1;
}

int br_err_set(struct br_err *err, enum br_code code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->code = code;
        err->os_errno = 0;
        vsnprintf(err->text, sizeof(err->text), fmt, ap);
        va_end(ap);
    }
    return -(int)code;
}

int br_err_errno(struct br_err *err, enum br_code code, const char *fmt, ...)
{
    int saved = errno;
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->code = code;
        err->os_errno = saved;
        int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < sizeof(err->text))
            snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %s", strerror(saved));
    }
    errno = saved;
    return -(int)code;
}

int br_err_wrap(struct br_err *err, const char *fmt, ...)
{
    if (!err)
        return -BR_E_FAILED;
    char old[BR_ERR_TEXT_MAX];
    memcpy(old, err->text, sizeof(old));
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(err->text))
        snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %s", old);
    return -(int)err->code;
}

_Noreturn void br_require_failed(const char *expr, const char *file, int line)
{
    fprintf(stderr, "bridle: %s:%d: this must never happen: %s\n", file, line, expr);
    abort();
}

bool br_check_failed(const char *expr, const char *file, int line)
{
    br_log(BR_LOG_ERROR, "%s:%d: unexpected: not %s", file, line, expr);
    return false;
}
