/*
 * The verb that lists the files of the lease root, for people who ask what lies there: names and
 * figures only. It opens none of the files and takes no lock, since either could be in the way of a
 * launch; who holds a lock is read from the kernel's list.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "supervise/kept.h"

#define DIR_NAME "leases"
#define LOCKS_MAX 512u
#define ROWS_MAX (BR_MSG_MAX - 1024u)

struct lock {
    unsigned major, minor;
    unsigned long long inode;
};

/* Who locks what: /proc/locks, as far as it fits. */
static unsigned read_locks(struct lock *locks)
{
    char line[256];
    unsigned n = 0;
    BR_CLEANUP_FILE FILE *f = fopen("/proc/locks", "re");
    while (f && n < LOCKS_MAX && fgets(line, sizeof(line), f)) {
        struct lock *l = &locks[n];
        /* "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF" */
        if (sscanf(line, "%*u: FLOCK %*s %*s %*d %x:%x:%llu", &l->major, &l->minor, &l->inode) == 3)
            n++;
    }
    return n;
}

static bool is_locked(const struct stat *st, const struct lock *locks, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (locks[i].inode == st->st_ino && locks[i].major == major(st->st_dev) &&
            locks[i].minor == minor(st->st_dev))
            return true;
    return false;
}

bool leases_locked(const struct stat *st)
{
    static struct lock locks[LOCKS_MAX];
    return is_locked(st, locks, read_locks(locks));
}

static int send_list(struct supervisor *s, int dir, struct br_err *err)
{
    static struct lock locks[LOCKS_MAX];
    unsigned nlocks = read_locks(locks);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    BR_CLEANUP_BUF struct br_buf rows = BR_BUF_INIT(BR_MSG_MAX);
    uint32_t n = 0;
    bool more = false;
    int copy = dir >= 0 ? openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    if (copy >= 0 && !d)
        br_close(&copy);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        size_t len = strlen(e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || len >= BR_NAME_MAX ||
            !br_utf8_valid(e->d_name, len) ||
            fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        if ((more = rows.len + len + 32 > ROWS_MAX))
            break;
        br_buf_put_str(&rows, e->d_name);
        br_buf_put_u8(&rows, is_locked(&st, locks, nlocks));
        br_buf_put_u64(&rows, (uint64_t)st.st_size);
        br_buf_put_u64(&rows, (uint64_t)st.st_blocks * 512u);
        br_buf_put_u64(&rows, (uint64_t)st.st_mtime);
        n++;
    }
    if (d)
        closedir(d);
    br_buf_put_u8(&o.buf, more);
    br_buf_put_u32(&o.buf, n);
    if (rows.len)
        br_buf_put(&o.buf, rows.data, rows.len);
    return br_chan_send(&s->control, BR_MSG_CTL_LEASED, 0, &o, err);
}

void leases_verb(struct supervisor *s)
{
    struct br_err err = {.code = BR_OK};
    int r = state_open(s, false, &err);
    BR_CLEANUP_FD int dir = -1;
    if (r == 0 && s->state_fd >= 0) {
        dir = br_open_beneath(s->state_fd, DIR_NAME, O_RDONLY | O_DIRECTORY, 0);
        if (dir < 0 && errno != ENOENT)
            r = br_err_errno(&err, BR_E_STORE_FAILED, "'%s/" DIR_NAME "' could not be opened",
                             s->state_dir);
    }
    if (r == 0)
        r = send_list(s, dir, &err);
    sup_end(s, -r, br_code_exit(r), r < 0 ? err.text : "");
}
