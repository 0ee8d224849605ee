/*
 * Activations: STATE/activations/PROFILE holds the evidence that a profile was tried on this host,
 * lines of "name value" as bridle-launch gathered them, and notes behind '#'. Before a launch the
 * launcher's present facts, those of the plan included, must be exactly those. What the session
 * says of the profile is not believed: its text is hashed here. Only compares and stores text.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "session/profile_texts.h"
#include "supervise/supervise_priv.h"

#define DIR_NAME "activations"
#define PROBE_DIR ".workspace"
#define EVIDENCE_MAX (128u * 1024)
#define CHANGES_SHOWN 4u

/* The directory; made if `make`. -1 with ENOENT if there is none. */
static int open_dir(const struct supervisor *s, bool make)
{
    if (s->state_fd < 0) {
        errno = ENOENT;
        return -1;
    }
    if (make && mkdirat(s->state_fd, DIR_NAME, 0700) < 0 && errno != EEXIST)
        return -1;
    return br_open_beneath(s->state_fd, DIR_NAME, O_RDONLY | O_DIRECTORY, 0);
}

/* The line of `text` that starts with `name` (n bytes) and a blank; NULL. */
static const char *find_line(const char *text, const char *name, size_t n)
{
    for (const char *l = text; *l; l += strcspn(l, "\n") + (l[strcspn(l, "\n")] == '\n'))
        if (strncmp(l, name, n) == 0 && l[n] == ' ')
            return l;
    return NULL;
}

/* Is it the time limit, and lower than it was? The operator may ask for less with --timeout. */
static bool is_lower(const char *was, const char *is)
{
    static const char name[] = BR_FACT_WALL " ";
    size_t n = sizeof(name) - 1;
    return strncmp(is, name, n) == 0 && is[n] > '0' && is[n] <= '9' &&
           strtoul(is + n, NULL, 10) < strtoul(was + n, NULL, 10);
}

static void put_change(struct br_buf *b, const char *name, size_t n, const char *was,
                       const char *is, unsigned *count)
{
    if ((*count)++ >= CHANGES_SHOWN)
        return;
    size_t nwas = was ? strcspn(was, "\n") : 0, nis = is ? strcspn(is, "\n") : 0;
    br_buf_printf(b, "%s'%.*s' was '%.*s%s' and is '%.*s%s'", b->len ? ", " : "", (int)n, name,
                  (int)(nwas > 100 ? 100 : nwas), was ? was : "", nwas > 100 ? "..." : "",
                  (int)(nis > 100 ? 100 : nis), is ? is : "", nis > 100 ? "..." : "");
}

/* Append what differs; the number of differences. */
static unsigned compare(const char *evidence, const char *facts, struct br_buf *out)
{
    unsigned count = 0;
    for (const char *l = facts; *l; l += strcspn(l, "\n") + (l[strcspn(l, "\n")] == '\n')) {
        size_t n = strcspn(l, " \n"), len = strcspn(l, "\n");
        const char *was = find_line(evidence, l, n);
        if (!was || ((strcspn(was, "\n") != len || strncmp(was, l, len) != 0) && !is_lower(was, l)))
            put_change(out, l, n, was ? was + n + 1 : NULL, l + n + (l[n] == ' '), &count);
    }
    for (const char *l = evidence; *l; l += strcspn(l, "\n") + (l[strcspn(l, "\n")] == '\n')) {
        size_t n = strcspn(l, " \n");
        if (*l != '#' && *l != '\n' && !find_line(facts, l, n))
            put_change(out, l, n, l + n + (l[n] == ' '), NULL, &count);
    }
    if (count > CHANGES_SHOWN)
        br_buf_printf(out, ", and %u more", count - CHANGES_SHOWN);
    return count;
}

int activation_text(const struct supervisor *s, const struct br_plan *plan, struct br_err *err)
{
    const struct br_profile_choice *c = &s->req.choice;
    bool own = c->source && c->source[0];
    const char *name = own ? plan->profile : c->name[0] ? c->name : "run-v1", *text = c->source;
    size_t n = own ? strlen(text) : 0;
    for (const struct br_profile_text *t = br_profile_texts; !own && t->name; t++)
        if (strcmp(t->name, name) == 0) {
            text = t->text;
            n = *t->len;
        }
    struct br_sha256 s256;
    uint8_t hash[32];
    br_sha256_init(&s256);
    br_sha256_put(&s256, text, n);
    br_sha256_end(&s256, hash);
    if (n == 0 || strcmp(name, plan->profile) != 0 ||
        memcmp(hash, plan->profile_sha256, sizeof(hash)) != 0)
        return br_err_set(
            err, BR_E_PEER_PROTOCOL,
            "'bridle-session' asked for a sandbox of the profile '%s', which is not the "
            "one that was chosen; nothing was started",
            plan->profile);
    return 0;
}

/* -1 with errno; EPERM and `why` if somebody else could have written it. */
static int read_evidence(int dir, const char *name, struct br_buf *text, char why[96],
                         struct br_err *err)
{
    struct stat st;
    why[0] = 0;
    br_buf_init(text, EVIDENCE_MAX);
    BR_CLEANUP_FD int fd = br_open_beneath(dir, name, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (!S_ISREG(st.st_mode))
        snprintf(why, 96, "it is no file");
    else if (st.st_uid != geteuid())
        snprintf(why, 96, "it belongs to uid %u", st.st_uid);
    else if ((st.st_mode & 022) != 0)
        snprintf(why, 96, "its mode is %04o, so that others may write it", st.st_mode & 07777);
    errno = EPERM;
    return why[0] || br_read_all(fd, text, name, err) < 0 || !br_buf_cstr(text) ? -1 : 0;
}

int activation_check(const struct supervisor *s, const struct br_plan *plan,
                     const struct br_buf *facts, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(EVIDENCE_MAX);
    BR_CLEANUP_BUF struct br_buf now = BR_BUF_INIT(EVIDENCE_MAX);
    BR_CLEANUP_BUF struct br_buf changes = BR_BUF_INIT(2 * BR_ERR_TEXT_MAX);
    const char *name = plan->profile;
    BR_CLEANUP_FD int dir = open_dir(s, false);
    char why[96] = "";
    int r = dir < 0 ? -1 : read_evidence(dir, name, &text, why, err);
    if (r < 0 && errno == ENOENT)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the profile '%s' is not activated on this host; nothing was started. "
                          "Try it first: bridle activate %s",
                          name, s->req.choice.path[0] ? s->req.choice.path : name);
    if (r < 0 && why[0])
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the activation '%s/" DIR_NAME "/%s' is not trusted: %s; nothing was "
                          "started. Look who changed it, and activate it again: bridle activate %s",
                          s->state_dir, name, why,
                          s->req.choice.path[0] ? s->req.choice.path : name);
    if (r < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "the activation of the profile '%s' in '%s' cannot be read; nothing "
                            "was started. Activate it again: bridle activate %s",
                            name, s->state_dir, name);
    br_buf_put(&now, facts->data, facts->len);
    if (!br_buf_cstr(&now))
        return br_err_set(err, BR_E_NOMEM, "no memory to compare an activation");
    if (compare((char *)text.data, (char *)now.data, &changes) == 0)
        return 0;
    return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                      "something has changed since the profile '%s' was activated; nothing was "
                      "started: %.700s. If that is as it should be: bridle activate %s",
                      name, br_buf_cstr(&changes) ? (char *)changes.data : "",
                      s->req.choice.path[0] ? s->req.choice.path : name);
}

static void put_notes(const struct supervisor *s, struct br_buf *b)
{
    static const char *const results[] = {"ok", "missing", "degraded"};
    time_t now = time(NULL);
    struct tm tm;
    char when[64] = "";
    if (gmtime_r(&now, &tm))
        (void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    br_buf_printf(b, "# activated %s\n", when);
    for (uint32_t i = 0; i < s->nprobes; i++) {
        const struct br_probe *p = &s->probes[i];
        br_buf_printf(b, "# probe %s: %s", p->requirement, results[p->result % 3]);
        br_buf_printf(b, p->detail[0] ? " (" : "");
        for (const char *c = p->detail; *c; c++)
            br_buf_put_u8(b, (uint8_t)(*c == '\n' ? ' ' : *c));
        br_buf_printf(b, p->detail[0] ? ")\n" : "\n");
    }
}

int activation_store(const struct supervisor *s, struct br_err *err)
{
    const char *name = s->activated;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(EVIDENCE_MAX);
    char temp[96];
    br_buf_put(&b, s->facts.data, s->facts.len);
    put_notes(s, &b);
    BR_CLEANUP_FD int dir = open_dir(s, true);
    snprintf(temp, sizeof(temp), ".%s.new", name);
    if (dir >= 0)
        (void)unlinkat(dir, temp, 0);
    BR_CLEANUP_FD int fd =
        dir < 0 || b.failed
            ? -1
            : openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || br_write_all(fd, b.data, b.len) < 0 || fsync(fd) < 0 ||
        renameat(dir, temp, dir, name) < 0 || fsync(dir) < 0) {
        (void)br_err_errno(err, BR_E_STORE_FAILED,
                           "the activation of '%s' could not be written to '%s/" DIR_NAME "'", name,
                           s->state_dir);
        if (fd >= 0) /* it is ours, half written */
            (void)unlinkat(dir, temp, 0);
        return -BR_E_STORE_FAILED;
    }
    return 0;
}

/* The workspace of a trial: an empty directory of somebody who is not root. */
int activation_workspace(struct supervisor *s, struct br_err *err)
{
    BR_CLEANUP_FD int dir = open_dir(s, true);
    if (dir < 0 || (mkdirat(dir, PROBE_DIR, 0700) < 0 && errno != EEXIST))
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "'%s/" DIR_NAME "' could not be made; nothing was started",
                            s->state_dir);
    s->workspace_fd = br_open_beneath(dir, PROBE_DIR, O_RDONLY | O_DIRECTORY, 0);
    if (s->workspace_fd < 0 ||
        (geteuid() == 0 && fchown(s->workspace_fd, BR_UID_SESSION, BR_UID_SESSION) < 0))
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "'%s/" DIR_NAME "/" PROBE_DIR "' could not be used; nothing was "
                            "started",
                            s->state_dir);
    return 0;
}

void activation_workspace_end(struct supervisor *s)
{
    BR_CLEANUP_FD int dir = open_dir(s, false);
    if (dir >= 0)
        (void)unlinkat(dir, PROBE_DIR, AT_REMOVEDIR);
    br_close(&s->workspace_fd);
}

/* ---- the verb: list and remove ---- */

static int send_list(struct supervisor *s, int dir, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    BR_CLEANUP_BUF struct br_buf rows = BR_BUF_INIT(BR_MSG_MAX);
    uint32_t n = 0;
    int copy = dir >= 0 ? openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(EVIDENCE_MAX);
        struct stat st;
        char why[96];
        if (e->d_name[0] == '.' || strlen(e->d_name) > 63 ||
            fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            read_evidence(dir, e->d_name, &text, why, NULL) < 0)
            continue;
        size_t keep = text.len > 8192 ? 8192 : text.len;
        if (rows.len + keep > BR_MSG_MAX - 4096)
            break;
        br_buf_put_str(&rows, e->d_name);
        br_buf_put_u64(&rows, (uint64_t)st.st_mtime);
        br_buf_put_lstr(&rows, text.data, br_utf8_floor(text.data, keep));
        n++;
    }
    if (d)
        closedir(d);
    br_buf_put_u32(&o.buf, n);
    br_buf_put(&o.buf, rows.data, rows.len);
    return br_chan_send(&s->control, BR_MSG_CTL_ACTIVATED, 0, &o, err);
}

void activations_verb(struct supervisor *s)
{
    struct br_err err = {.code = BR_OK};
    const char *name = s->named;
    int r = state_open(s, false, &err);
    BR_CLEANUP_FD int dir = r == 0 ? open_dir(s, false) : -1;
    if (r == 0 && name[0] == 0) {
        r = send_list(s, dir, &err);
    } else if (r == 0) {
        bool ok = br_is_kebab(name, 63) && dir >= 0 && unlinkat(dir, name, 0) == 0;
        if (!ok)
            r = br_err_set(&err, BR_E_NOT_FOUND,
                           "the profile '%s' is not activated; nothing was changed", name);
    }
    sup_end(s, -r, br_code_exit(r), r < 0 ? err.text : "");
}
