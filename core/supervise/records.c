/*
 * Records of the state directory; see records.h. Called by bridled alone, which trusts what only
 * its own user can write. Parses nothing but lines.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/records.h"

void record_put(struct br_buf *b, const char *name, const char *value)
{
    br_buf_printf(b, "%s ", name);
    for (const char *c = value; *c; c++) {
        if (*c == '\n' || *c == '\\')
            br_buf_put_u8(b, '\\');
        br_buf_put_u8(b, (uint8_t)(*c == '\n' ? 'n' : *c));
    }
    br_buf_put_u8(b, '\n');
}

void record_put_u64(struct br_buf *b, const char *name, uint64_t value)
{
    br_buf_printf(b, "%s %" PRIu64 "\n", name, value);
}

/* Where the value of the name starts; NULL. */
static const char *find(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *l = text; *l; l += strcspn(l, "\n") + (l[strcspn(l, "\n")] == '\n'))
        if (strncmp(l, name, n) == 0 && l[n] == ' ')
            return l + n + 1;
    return NULL;
}

bool record_get(const char *text, const char *name, char *dst, size_t cap)
{
    const char *p = find(text, name);
    size_t n = 0;
    for (; p && *p && *p != '\n'; p++) {
        char c = *p;
        if (c == '\\' && p[1]) {
            p++;
            c = *p == 'n' ? '\n' : *p;
        }
        if (n + 1 >= cap) {
            p = NULL;
            break;
        }
        dst[n++] = c;
    }
    dst[p ? n : 0] = 0;
    return p != NULL;
}

uint64_t record_get_u64(const char *text, const char *name, uint64_t none)
{
    const char *p = find(text, name);
    char *end;
    if (!p || !isdigit((unsigned char)*p))
        return none;
    errno = 0;
    unsigned long long v = strtoull(p, &end, 10);
    return errno || *end != '\n' ? none : v;
}

int record_dir(int state_fd, const char *name, bool make)
{
    struct stat st;
    if (state_fd < 0) {
        errno = ENOENT;
        return -1;
    }
    if (make && mkdirat(state_fd, name, 0700) < 0 && errno != EEXIST)
        return -1;
    BR_CLEANUP_FD int fd = br_open_beneath(state_fd, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (st.st_uid != geteuid() || (st.st_mode & 022)) {
        errno = EPERM;
        return -1;
    }
    return br_steal_fd(&fd);
}

bool record_name_ok(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '-' && name[i] != '_')
            return false;
    return n > 0 && n < 64;
}

/* A file without a name: who dies while it is written leaves nothing. -1 where there is no such. */
static int write_nameless(int dir, const struct br_buf *b)
{
    BR_CLEANUP_FD int fd = openat(dir, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd < 0 || br_write_all(fd, b->data, b->len) < 0 || fsync(fd) < 0)
        return -1;
    return br_steal_fd(&fd);
}

static int write_named(int dir, const char *temp, const struct br_buf *b)
{
    BR_CLEANUP_FD int fd =
        openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    if (br_write_all(fd, b->data, b->len) == 0 && fsync(fd) == 0)
        return 0;
    (void)unlinkat(dir, temp, 0);
    return -1;
}

int record_write(int dir, const char *name, const struct br_buf *b, struct br_err *err)
{
    char temp[96], self[40];
    snprintf(temp, sizeof(temp), ".%.63s.new", name);
    if (b->failed || !record_name_ok(name))
        return br_err_set(err, BR_E_STORE_FAILED, "the record '%s' does not fit", name);
    (void)unlinkat(dir, temp, 0);
    BR_CLEANUP_FD int fd = write_nameless(dir, b);
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    bool fresh = fd >= 0 && linkat(AT_FDCWD, self, dir, name, AT_SYMLINK_FOLLOW) == 0;
    if (!fresh && write_named(dir, temp, b) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "the record '%s' could not be written to the state directory", name);
    if ((fresh || renameat(dir, temp, dir, name) == 0) && fsync(dir) == 0)
        return 0;
    (void)br_err_errno(err, BR_E_STORE_FAILED,
                       "the record '%s' could not be written to the state directory", name);
    if (!fresh)
        (void)unlinkat(dir, temp, 0);
    return -BR_E_STORE_FAILED;
}

int record_read(int dir, const char *name, struct br_buf *b, struct br_err *err)
{
    struct stat st;
    br_buf_init(b, RECORD_MAX);
    BR_CLEANUP_FD int fd =
        record_name_ok(name) ? br_open_beneath(dir, name, O_RDONLY | O_NONBLOCK, 0) : -1;
    if (fd < 0 && (!record_name_ok(name) || errno == ENOENT))
        return br_err_set(err, BR_E_NOT_FOUND, "there is no record '%.64s'", name);
    if (fd < 0 || fstat(fd, &st) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED, "the record '%s' could not be opened", name);
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
        return br_err_set(err, BR_E_STORE_FAILED,
                          "the record '%s' is not trusted: it belongs to uid %u, with mode %04o; "
                          "look who changed it, and move it away",
                          name, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777);
    int r = br_read_all(fd, b, name, err);
    if (r < 0)
        return r;
    if (!br_buf_cstr(b) || memchr(b->data, 0, b->len))
        return br_err_set(err, BR_E_STORE_FAILED, "the record '%s' is no text", name);
    return 0;
}
