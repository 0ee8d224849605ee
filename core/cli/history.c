/*
 * The history of a prompt: lines of one file, the last ones of a long file, which is then written
 * anew. It holds what was typed and nothing else. Used by repl and connect; without a usable file
 * lines are remembered until the program ends.
 */
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/history.h"

#define HISTORY_LINES 1000
#define HISTORY_BYTES (1024u * 1024)

static void add_history(struct br_cli_history *h, const char *line)
{
    HistEvent ev;
    (void)history(h->lines, &ev, H_ENTER, line);
}

/* The file's lines, the last ones of a long file, which is then written anew. */
static void load(struct br_cli_history *h)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(HISTORY_BYTES);
    size_t lines = 0, at = 0;
    if (br_read_all(h->fd, &b, "history", NULL) < 0 || !br_buf_cstr(&b)) {
        br_buf_reset(&b); /* longer than it ever should be */
        lines = HISTORY_LINES + 1;
    }
    for (size_t i = 0; i < b.len; i++)
        lines += b.data[i] == '\n';
    for (size_t skip = lines; skip > HISTORY_LINES && at < b.len; skip--)
        at += strcspn((char *)b.data + at, "\n") + 1;
    if (lines > HISTORY_LINES && ftruncate(h->fd, 0) == 0 && at < b.len)
        (void)br_write_all(h->fd, b.data + at, b.len - at);
    while (at < b.len) {
        char *line = (char *)b.data + at;
        size_t n = strcspn(line, "\n");
        line[n] = '\0';
        if (n && strlen(line) == n && br_utf8_valid(line, n))
            add_history(h, line);
        at += n + 1;
    }
}

void br_cli_history_open(struct br_cli_history *h, const char *name)
{
    HistEvent ev;
    *h = (struct br_cli_history){.lines = history_init(), .fd = -1};
    if (!h->lines)
        return;
    (void)history(h->lines, &ev, H_SETSIZE, HISTORY_LINES);
    (void)history(h->lines, &ev, H_SETUNIQUE, 1);
    char dir[BR_PATH_MAX];
    struct stat st;
    BR_CLEANUP_FD int d = br_state_path(dir, getenv, NULL) < 0 ? -1 : br_state_open(dir, NULL);
    if (d < 0)
        return;
    BR_CLEANUP_FD int fd =
        openat(d, name, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        st.st_nlink != 1 || fchmod(fd, 0600) < 0)
        return;
    h->fd = br_steal_fd(&fd);
    load(h);
}

void br_cli_history_add(struct br_cli_history *h, const char *line)
{
    size_t n = strlen(line);
    if (!h->lines || n == 0 || line[0] == ' ' || line[0] == '\t' || n > 4096 ||
        !br_utf8_valid(line, n))
        return;
    add_history(h, line);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8192);
    br_buf_put(&b, line, n);
    br_buf_put_u8(&b, '\n');
    if (h->fd >= 0)
        (void)br_write_all(h->fd, b.data, b.len);
}

void br_cli_history_close(struct br_cli_history *h)
{
    if (h->lines)
        history_end(h->lines);
    h->lines = NULL;
    br_close(&h->fd);
}

void br_cli_utf8_locale(void)
{
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        (void)setlocale(LC_CTYPE, "C.UTF-8");
}
