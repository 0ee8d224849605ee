/*
 * Child programs that take hostile archives apart (skopeo, umoci, tar, mkfs.erofs, decompressors).
 * Called by bridle-image. Each runs with a fixed argument vector and environment, confined
 * (core/confine): in namespaces of its own, as a user of its own when this is root, with the
 * import's private directory and nothing else to change. So whatever an archive makes it do,
 * nothing outside is changed or reached, and when it has ended nothing of it is left. What it
 * writes is measured while it runs, and so is the time.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confine/confine.h"
#include "image/make_priv.h"

#define LOOK_MS 100             /* how often what it wrote is measured */
#define SLACK_BYTES (64u << 20) /* beyond the image's files: headers, checksums, metadata */
#define SLACK_ENTRIES 4096u
#define STAY_MS 10000 /* for a trusted one to clean up after itself */

#define MEMORY_MAX (8ull << 30) /* address space of one; it has one process */

const char *br_tool_dirs = "/usr/bin:/bin:/usr/sbin:/sbin";

static const char *passed(const char *name, char *dst, size_t cap)
{
    const char *v = getenv(name);
    int n = v ? snprintf(dst, cap, "%s=%s", name, v) : -1;
    return n > 0 && (size_t)n < cap ? dst : NULL;
}

/* Where mmdebstrap makes its tree: in the private directory, which is swept. An ordinary user's ids
 * of /etc/subuid cannot reach that. */
static const char *own_tmpdir(const struct br_work *w)
{
    static char text[BR_PATH_MAX + 8] = "TMPDIR=";
    char link[32];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", w->fd);
    ssize_t n = geteuid() == 0 ? readlink(link, text + 7, BR_PATH_MAX) : -1;
    if (n <= 0 || n == BR_PATH_MAX)
        return "TMPDIR=/tmp";
    text[7 + n] = 0;
    return text;
}

static int start(const struct br_work *w, const struct br_tool *t, const char *path, int null,
                 int talk, struct br_confined *p, struct br_err *err)
{
    /* the first three for whoever is trusted */
    static const char *const names[] = {"http_proxy",
                                        "https_proxy",
                                        "no_proxy",
                                        "HOME",
                                        "XDG_CACHE_HOME",
                                        "NPM_CONFIG_USERCONFIG",
                                        "NPM_CONFIG_REGISTRY",
                                        "npm_config_userconfig",
                                        "npm_config_registry",
                                        "NODE_EXTRA_CA_CERTS"};
    char values[BR_ARRAY_LEN(names)][1024];
    const char *env[16] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
                           t->trusted ? own_tmpdir(w) : "TMPDIR=."};
    unsigned n = 3;
    for (unsigned i = 0; t->trusted && i < (t->operators ? BR_ARRAY_LEN(names) : 3); i++)
        if (passed(names[i], values[i], sizeof(values[i])))
            env[n++] = values[i];
    if (!t->operators)
        env[n++] = "HOME=/nonexistent";
    struct br_confine c = {
        .path = path,
        .argv = t->argv,
        .env = env,
        .fds = {t->in < 0 ? null : t->in, t->out < 0 ? null : t->out, talk, t->read_dir},
        .work = w->fd,
        .read_dir = t->read_dir,
        .file = -1,
        .uid = BR_UID_IMPORT,
        .read_all = t->read_dir >= 0, /* to pack what others own */
        .max_file = w->max_bytes + SLACK_BYTES,
        .max_memory = t->trusted ? 0 : MEMORY_MAX,
        .trusted = t->trusted};
    return br_confine_start(&c, p, err);
}

int br_tool_find(const char *program, const char *package, char path[BR_PATH_MAX],
                 struct br_err *err)
{
    for (const char *at = br_tool_dirs; *at;) {
        size_t n = strcspn(at, ":");
        snprintf(path, BR_PATH_MAX, "%.*s/%s", (int)n, at, program);
        if (access(path, X_OK) == 0)
            return 0;
        at += n + (at[n] == ':');
    }
    return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                      "'%s' is not installed; no image was made. As root: apt-get install %s",
                      program, package);
}

struct usage {
    uint64_t bytes, entries;
};

static int count(void *ctx, struct br_walk_entry *e, struct br_err *err)
{
    struct usage *u = ctx;
    (void)err;
    u->bytes += (uint64_t)e->st.st_blocks * 512;
    u->entries++;
    return br_image_stop ? -BR_E_CANCELED : 0;
}

static int check_usage(const struct br_work *w, const struct br_tool *t, const struct usage *before,
                       struct br_err *err)
{
    struct usage now = {0, 0};
    unsigned copies = t->trusted ? 4 : 1; /* it has the packages, the tree and the archive */
    int r = br_walk(w->fd, true, count, &now, err);
    if (r == -BR_E_LIMIT_EXCEEDED)
        return br_err_wrap(err, "no image was made");
    if (now.bytes <= before->bytes + copies * w->max_bytes + SLACK_BYTES &&
        now.entries <= before->entries + copies * w->max_entries + SLACK_ENTRIES)
        return 0;
    return br_work_too_large(w, err);
}

/* What a program says on stderr: its end is kept. */
struct talk {
    int fd;
    char text[2048];
    size_t n;
};

static void listen_to(struct talk *t)
{
    char chunk[1024];
    ssize_t n = read(t->fd, chunk, sizeof(chunk));
    if (n <= 0) {
        if (n == 0 || (errno != EINTR && errno != EAGAIN))
            br_close(&t->fd);
        return;
    }
    size_t k = (size_t)n, room = sizeof(t->text) - 1 - t->n;
    if (k > room) {
        size_t cut = k - room;
        memmove(t->text, t->text + cut, t->n - cut);
        t->n -= cut;
    }
    memcpy(t->text + t->n, chunk, k);
    t->n += k;
    t->text[t->n] = 0;
}

/* What ends the talk of a program that has said why before. */
static bool is_epilogue(const char *line)
{
    static const char *const begins[] = {"I: ",
                                         "W: ",
                                         "E: mmdebstrap failed",
                                         "E: apt-get ",
                                         "tar: Error is not recoverable",
                                         "tar: Exiting with failure"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(begins); i++)
        if (strncmp(line, begins[i], strlen(begins[i])) == 0)
            return true;
    return strstr(line, " failed: E: ") || line[strspn(line, " \r")] == 0;
}

/* The last line that says something, and if there is one, that says why. */
static void last_line(struct talk *t, struct br_buf *out)
{
    const char *best = NULL;
    for (size_t end = t->n; end > 0;) {
        size_t from = end;
        while (from > 0 && t->text[from - 1] != '\n')
            from--;
        t->text[end] = 0;
        if (t->text[from] && !is_epilogue(t->text + from)) {
            best = t->text + from;
            break;
        }
        if (!best && t->text[from])
            best = t->text + from;
        end = from ? from - 1 : 0;
    }
    if (!best)
        return;
    best += strspn(best, " \xe2\xa8\xaf\x1b[0123456789;m"); /* what decorates it */
    (void)br_buf_put_visible(out, best, strnlen(best, 400), true);
}

static bool disk_is_full(const struct talk *t)
{
    return t->n && (strcasestr(t->text, "no space left on device") ||
                    strstr(t->text, ": Wrote only ")); /* tar's words for it */
}

static int judge(const struct br_tool *t, int status, struct talk *talk, struct br_err *err)
{
    if (t->any_status || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return 0;
    if (disk_is_full(talk))
        return br_err_set(err, BR_E_STORE_FAILED,
                          "the file system of the store of images is full; no image was made. Make "
                          "room where the state directory is, and start again");
    BR_CLEANUP_BUF struct br_buf said = BR_BUF_INIT(4096);
    last_line(talk, &said);
    const char *text = br_buf_cstr(&said);
    if (strcasestr(text ? text : "", "cannot allocate memory"))
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "'%s' needs more than %llu bytes of memory for it; no image was made",
                          t->argv[0], MEMORY_MAX);
    if ((WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) ||
        strcasestr(text ? text : "", "file too large"))
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the image has a file that is larger than an image may be; no image was "
                          "made");
    return br_err_set(err, t->trusted ? BR_E_FAILED : BR_E_INVALID_IMAGE,
                      "'%s' refused it; no image was made. It said: %s", t->argv[0],
                      text && *text ? text : "(nothing)");
}

/* End all of it; a trusted program gets time to remove what it made elsewhere. */
static void stop_child(const struct br_tool *t, const struct br_confined *c)
{
    struct pollfd p = {.fd = c->pidfd, .events = POLLIN};
    if (t->trusted) {
        br_confine_ask(c);
        (void)poll(&p, 1, STAY_MS);
    }
    br_confine_kill(c);
}

/* Wait for its end. 0 or why it was killed. */
static int watch(const struct br_work *w, const struct br_tool *t, int pidfd, struct talk *talk,
                 const struct usage *before, struct br_err *err)
{
    uint64_t next = br_now_us() + LOOK_MS * 1000u;
    for (;;) {
        struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = talk->fd, .events = POLLIN}};
        (void)poll(p, 2, LOOK_MS);
        if (br_image_stop)
            return br_err_set(err, BR_E_CANCELED, "canceled; no image was made");
        if (talk->fd >= 0 && p[1].revents)
            listen_to(talk);
        if (p[0].revents)
            return 0;
        if (br_now_us() >= w->deadline_us)
            return br_err_set(err, BR_E_TIMEOUT,
                              "'%s' was not done with it in time, %u seconds for the whole image; "
                              "no image was made. Allow more with --max-seconds",
                              t->argv[0], w->max_seconds);
        if (br_now_us() < next)
            continue;
        uint64_t began = br_now_us();
        int r = check_usage(w, t, before, err);
        if (r < 0)
            return r;
        /* a large tree takes long to measure: not more than a fifth of the time */
        next = br_now_us() + LOOK_MS * 1000u + 4 * (br_now_us() - began);
    }
}

int br_tool_run(const struct br_work *w, const struct br_tool *t, struct br_err *err)
{
    char path[BR_PATH_MAX];
    int pipe_fds[2], status = 0;
    struct usage before = {0, 0};
    int r = br_tool_find(t->argv[0], t->package, path, err);
    if (r < 0)
        return r;
    if (br_image_stop)
        return br_err_set(err, BR_E_CANCELED, "canceled; no image was made");
    (void)br_walk(w->fd, true, count, &before, NULL);
    BR_CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || pipe2(pipe_fds, O_CLOEXEC) < 0)
        return br_err_errno(err, BR_E_FAILED, "'%s' could not be started", t->argv[0]);
    struct talk talk = {.fd = pipe_fds[0]};
    struct br_confined c;
    r = start(w, t, path, null, pipe_fds[1], &c, err);
    br_close(&pipe_fds[1]);
    if (r < 0) {
        br_close(&talk.fd);
        return br_err_wrap(err, "no image was made");
    }
    r = watch(w, t, c.pidfd, &talk, &before, err);
    if (r < 0)
        stop_child(t, &c);
    int k = br_confine_wait(&c, &status, r < 0 ? NULL : err);
    while (talk.fd >= 0 && fcntl(talk.fd, F_SETFL, O_NONBLOCK) == 0) {
        size_t had = talk.n;
        listen_to(&talk);
        if (talk.n == had)
            br_close(&talk.fd);
    }
    if (r < 0)
        return r;
    return k < 0 ? br_err_wrap(err, "no image was made") : judge(t, status, &talk, err);
}
