/*
 * bridle-attack, its entry and what all attacks share. Started by `bridle selftest --attack`,
 * inside of a sandbox or (operations) beside it; trusts its arguments.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attack/inside.h"

bool in_operation;
static char **args;

const char *in_arg(const char *key)
{
    size_t n = strlen(key);
    for (char **a = args; *a; a++)
        if (strncmp(*a, key, n) == 0 && (*a)[n] == '=')
            return *a + n + 1;
    return NULL;
}

const char *in_need(const char *key)
{
    const char *v = in_arg(key);
    if (!v)
        exit(in_failed("'%s' was not given", key));
    return v;
}

long in_number(const char *key)
{
    return strtol(in_need(key), NULL, 10);
}

static void say(const char *fmt, va_list ap)
{
    vprintf(fmt, ap);
    putchar('\n');
    fflush(stdout);
}

int in_through(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    return IN_THROUGH;
}

int in_blocked(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    return IN_BLOCKED;
}

int in_failed(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    return IN_FAILED;
}

const char *in_read(const char *path)
{
    static char text[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t at = 0;
    ssize_t n = -1;
    if (fd < 0)
        return NULL;
    while (at < sizeof(text) - 1 && (n = read(fd, text + at, sizeof(text) - 1 - at)) > 0)
        at += (size_t)n;
    int e = errno;
    close(fd);
    errno = e;
    text[at] = 0;
    return n < 0 && at == 0 ? NULL : text;
}

bool in_append(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    int e = errno;
    close(fd);
    errno = e;
    return ok;
}

bool in_filtered(void)
{
    const char *text = in_read("/proc/self/status");
    const char *p = text ? strstr(text, "\nSeccomp:") : NULL;
    if (!p)
        exit(in_failed("/proc/self/status does not say whether there is a filter"));
    return strtol(p + strlen("\nSeccomp:"), NULL, 10) == 2;
}

int main(int argc, char **argv)
{
    static const struct in_attack *const tables[] = {in_fs,  in_proc, in_ns,
                                                     in_net, in_res,  in_count};
    int at = 1;
    if (argc > 1 && strcmp(argv[1], "--operation") == 0) {
        in_operation = true;
        at++;
    }
    if (at >= argc)
        return in_failed("which attack?");
    args = argv + at + 1;
    for (unsigned t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
        for (const struct in_attack *a = tables[t]; a->name; a++)
            if (strcmp(a->name, argv[at]) == 0)
                return a->fn();
    return in_failed("there is no attack '%s'", argv[at]);
}
