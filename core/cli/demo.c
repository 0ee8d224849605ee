/*
 * bridle demo: the whole thing on a sample project. The project is embedded; a copy is made in a
 * fresh directory, a scripted agent works on it under the operator's policy and the project's
 * manifest (which lies outside the copy), the difference is shown, and the copy is removed.
 *
 * A workspace that belongs to root is refused by design. As root the copy is therefore made, read
 * and removed with the effective uid of an unprivileged user: whoever called sudo, else 1000. So a
 * link that somebody plants in it leads nowhere that this user could not go.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/demo.h"
#include "cli/view_priv.h"

#define DEMO_UID 1000u
#define PREFIX "bridle-demo."
#define KEPT_PREFIX "bridle-demo.kept-" /* never swept */
#define DIFF_MAX (256u * 1024)

struct demo {
    char dir[BR_PATH_MAX - 64]; /* of everything below */
    char project[BR_PATH_MAX], original[BR_PATH_MAX], manifest[BR_PATH_MAX];
    uid_t uid; /* whose the copy is */
    gid_t gid;
};

static void become(const struct demo *d)
{
    if (getuid() == 0)
        br_require(setegid(d->gid) == 0 && seteuid(d->uid) == 0);
}

static void return_from(void)
{
    if (getuid() == 0)
        br_require(seteuid(0) == 0 && setegid(0) == 0);
}

/* A number from the environment that sudo set; 0 if there is none. */
static uint32_t env_id(const char *name)
{
    const char *s = getenv(name);
    uint32_t v = 0;
    return s && br_cli_number(name, s, 1, UINT32_MAX - 1, &v, NULL) == 0 ? v : 0;
}

static void choose_owner(struct demo *d)
{
    d->uid = geteuid();
    d->gid = getegid();
    if (d->uid != 0)
        return;
    uint32_t uid = env_id("SUDO_UID"), gid = env_id("SUDO_GID");
    d->uid = uid ? uid : DEMO_UID;
    d->gid = uid && gid ? gid : d->uid;
}

static int write_file(int dir, const char *path, const char *text, size_t n)
{
    char part[BR_PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        if (mkdirat(dir, part, 0755) < 0 && errno != EEXIST)
            return -1;
    }
    BR_CLEANUP_FD int fd =
        openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    return fd >= 0 && br_write_all(fd, text, n) == 0 ? 0 : -1;
}

static int write_project(const char *path, struct br_err *err)
{
    BR_CLEANUP_FD int dir = -1;
    if (mkdir(path, 0755) < 0 ||
        (dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)) < 0)
        return br_err_errno(err, BR_E_FAILED, "'%s' could not be made", path);
    for (const struct br_demo_file *f = br_demo_files; f->path; f++)
        if (strcmp(f->path, BR_DEMO_MANIFEST) != 0 &&
            write_file(dir, f->path, f->text, *f->len) < 0)
            return br_err_errno(err, BR_E_FAILED, "'%s/%s' could not be written", path, f->path);
    return 0;
}

static int write_manifest(const struct demo *d, struct br_err *err)
{
    BR_CLEANUP_FD int dir = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    for (const struct br_demo_file *f = br_demo_files; f->path; f++)
        if (strcmp(f->path, BR_DEMO_MANIFEST) == 0 &&
            write_file(dir, BR_DEMO_MANIFEST, f->text, *f->len) == 0)
            return 0;
    return br_err_errno(err, BR_E_FAILED, "'%s' could not be written", d->manifest);
}

static int make_copy(struct demo *d, bool keep, struct br_err *err)
{
    const char *tmp = getenv("TMPDIR");
    if (!tmp || tmp[0] != '/')
        tmp = "/tmp";
    br_scratch_sweep(tmp, PREFIX); /* of demos that were killed */
    if (br_scratch_make(d->dir, sizeof(d->dir), tmp, keep ? KEPT_PREFIX : PREFIX) < 0)
        return br_err_errno(err, BR_E_FAILED, "no directory could be made in '%s'", tmp);
    snprintf(d->project, sizeof(d->project), "%s/project", d->dir);
    snprintf(d->original, sizeof(d->original), "%s/original", d->dir);
    snprintf(d->manifest, sizeof(d->manifest), "%s/" BR_DEMO_MANIFEST, d->dir);
    int r = write_project(d->project, err);
    if (r == 0)
        r = write_project(d->original, err);
    return r == 0 ? write_manifest(d, err) : r;
}

/* What `diff -ru` says, made safe; the agent wrote half of it. */
static void show_difference(const struct demo *d)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        if (getuid() == 0)
            br_require(setgroups(0, NULL) == 0 && setgid(d->gid) == 0 && setuid(d->uid) == 0);
        if (chdir(d->dir) == 0 && dup2(p[1], STDOUT_FILENO) >= 0)
            execlp("diff", "diff", "-ruN", "original", "project", (char *)NULL);
        _exit(127);
    }
    br_close(&p[1]);
    BR_CLEANUP_BUF struct br_buf raw = BR_BUF_INIT(DIFF_MAX), out = BR_BUF_INIT(8 * DIFF_MAX);
    if (pid > 0) {
        (void)br_read_all(p[0], &raw, "diff", NULL);
        br_close(&p[0]);
        (void)waitpid(pid, NULL, 0);
    }
    br_close(&p[0]);
    if (raw.len) {
        br_buf_printf(&out, "\nWhat the agent changed in the project:\n\n");
        br_buf_put_visible(&out, (char *)raw.data, raw.len, false);
    } else {
        br_buf_printf(&out, "\nThe project is as it was.\n");
    }
    if (!out.failed)
        (void)br_write_all(STDOUT_FILENO, out.data, out.len);
}

static void finish(const struct demo *d, bool ran, bool keep, bool json)
{
    FILE *talk = json ? stderr : stdout;
    if (keep) {
        fprintf(talk, "\nThe copy is kept in %s\n", d->dir);
    } else {
        become(d);
        int r = br_scratch_remove(d->dir);
        return_from();
        if (r < 0)
            fprintf(stderr, "bridle: the copy in '%s' could not be removed: %s\n", d->dir,
                    strerror(errno));
        else
            fprintf(talk, "\nThe copy was removed; 'bridle demo --keep' keeps it.\n");
    }
    if (ran)
        fprintf(talk, "Look at the record with 'bridle show'. Run it on your own project:\n"
                      "  bridle run -C DIR \"what should be done\"\n");
    (void)fflush(talk);
}

static void put_safe(FILE *f, const char *text)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * BR_ERR_TEXT_MAX);
    br_buf_put_visible(&b, text, strlen(text), false);
    if (!b.failed)
        (void)fwrite(b.data, 1, b.len, f);
}

/*
 * The profile that the demo runs with: the default one, or else the first that is offered and
 * works; activated in any case, since whoever tries the demo has activated nothing yet. `name` gets
 * it.
 */
static int choose_profile(const struct br_cli_args *a, char name[64], FILE *talk,
                          struct br_err *err)
{
    struct br_cli_report rep;
    snprintf(name, 64, "run-v1");
    int r = br_cli_activation(a, name, &rep, err);
    json_t *offers = json_incref(json_object_get(rep.report, "offers")), *offer;
    br_cli_report_free(&rep);
    size_t i;
    json_array_foreach(offers, i, offer)
    {
        struct br_err why = {.code = BR_OK};
        if (r == 0 || !json_is_string(offer))
            break;
        fprintf(talk, "The profile '%s' cannot be used on this host: ", name);
        put_safe(talk, err->text);
        snprintf(name, 64, "%s", json_string_value(offer));
        fprintf(talk, "\nThe demo takes the profile '%s', which works.\n", name);
        r = br_cli_activation(a, name, &rep, &why);
        br_cli_report_free(&rep);
        if (r < 0)
            *err = why;
    }
    json_decref(offers);
    if (r == 0)
        fprintf(talk, "The profile '%s' was tried on this host and is activated.\n\n", name);
    return r;
}

int br_cli_demo(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct demo d = {.dir = ""};
    bool json = br_cli_opt(a, "json") != NULL, keep = br_cli_opt(a, "keep") != NULL;
    choose_owner(&d);
    become(&d);
    int r = make_copy(&d, keep, &err);
    return_from();
    int code;
    char profile[64];
    if (r == 0)
        r = choose_profile(a, profile, json ? stderr : stdout, &err);
    if (r == 0) {
        /* the verb's table has no --model: the demo is always played by the scripted provider */
        struct br_cli_foreground f = {.mode = BR_RUN_AGENT,
                                      .args = a,
                                      .dir = d.project,
                                      .manifest = d.manifest,
                                      .model = "scripted/demo",
                                      .profile = profile,
                                      .json = json};
        if (!json)
            printf("A scripted agent works on a copy of the sample project in\n%s\n"
                   "It will ask before it acts: y allows once, r for this run, anything else "
                   "denies.\n\n",
                   d.project);
        (void)fflush(stdout);
        code = br_cli_foreground(&f);
        if (!json)
            show_difference(&d);
    } else {
        code = br_cli_fail(&err);
    }
    if (d.dir[0])
        finish(&d, r == 0, keep, json);
    return code;
}
