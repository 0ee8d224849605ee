/*
 * The world of the tests of imports: made, run in, and removed. Tests only.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "image/test_world.h"

static void become(uid_t uid)
{
    if (uid && (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0))
        _exit(70);
}

pid_t spawn(const struct world *w, uid_t uid, const char *const *argv, int out)
{
    char state[128], tools[256], path[128];
    const char *env[5] = {path, state};
    unsigned n = 2;
    snprintf(path, sizeof(path), "PATH=/usr/sbin:/usr/bin:/sbin:/bin");
    snprintf(state, sizeof(state), "BRIDLE_STATE_DIR=%s/state", w->dir);
    snprintf(tools, sizeof(tools), "BRIDLE_TEST_TOOLS=%s", w->tools ? w->tools : "");
    if (w->tools)
        env[n++] = tools;
    /* the build may lie where only root gets to */
    BR_CLEANUP_FD int own = strcmp(argv[0], program()) ? -1 : open(argv[0], O_PATH | O_CLOEXEC);
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(out, 1);
        (void)dup2(out, 2);
        become(uid);
        if (own >= 0)
            execveat(own, "", (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env,
                     AT_EMPTY_PATH);
        execvpe(argv[0], (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
        _exit(71);
    }
    assert_true(pid > 0);
    return pid;
}

void finish(struct world *w, pid_t pid, int in)
{
    size_t at = 0;
    int status = -1;
    for (ssize_t n; (n = read(in, w->said + at, sizeof(w->said) - 1 - at)) > 0;)
        at += (size_t)n;
    w->said[at] = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    w->exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void run(struct world *w, uid_t uid, const char *const *argv)
{
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = spawn(w, uid, argv, p[1]);
    close(p[1]);
    finish(w, pid, p[0]);
    close(p[0]);
}

void shell(struct world *w, uid_t uid, const char *fmt, ...)
{
    char script[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(script, sizeof(script), fmt, ap);
    va_end(ap);
    run(w, uid, (const char *[]){"/bin/sh", "-ec", script, NULL});
    if (w->exit)
        fail_msg("failed: %s: %s", script, w->said);
}

const char *program(void)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/../tests/image/bridle-image", getenv("BRIDLE_BIN"));
    return path;
}

/* bridle-image with words that hold no space. */
void image(struct world *w, const char *fmt, ...)
{
    char words[2048];
    const char *argv[32] = {program()};
    unsigned n = 1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(words, sizeof(words), fmt, ap);
    va_end(ap);
    for (char *at = strtok(words, " "); at && n < 31; at = strtok(NULL, " "))
        argv[n++] = at;
    run(w, w->uid, argv);
}

void make_world(struct world *w, uid_t uid)
{
    memset(w, 0, sizeof(*w));
    w->uid = uid;
    snprintf(w->dir, sizeof(w->dir), "/var/tmp/bridle-image-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->victim, sizeof(w->victim), "%s/victim", w->dir);
    snprintf(w->archive, sizeof(w->archive), "%s/archive.tar", w->dir);
    shell(w, 0, "chown %u:%u %s; chmod 755 %s", uid, uid, w->dir, w->dir);
    shell(w, uid, "mkdir %s %s/work; echo untouched >%s/file", w->victim, w->dir, w->victim);
}

void end_world(struct world *w)
{
    char cmd[128];
    snprintf(cmd, sizeof(cmd), "rm -rf %s", w->dir);
    assert_int_equal(system(cmd), 0); /* NOLINT(cert-env33-c) */
}

const char *archives_script(const struct world *w, char path[128])
{
    char from[512];
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(1u << 20);
    snprintf(from, sizeof(from), "%s/core/image/test_archives.py", getenv("BRIDLE_SOURCE"));
    snprintf(path, 128, "%s/archives.py", w->dir);
    BR_CLEANUP_FD int in = open(from, O_RDONLY | O_CLOEXEC);
    BR_CLEANUP_FD int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(in >= 0 && out >= 0);
    assert_int_equal(br_read_all(in, &text, from, NULL), 0);
    assert_int_equal(br_write_all(out, text.data, text.len), 0);
    assert_int_equal(fchmod(out, 0644), 0);
    return path;
}

void craft(struct world *w, const char *kind)
{
    char path[128];
    shell(w, w->uid, "python3 %s %s %s %s", archives_script(w, path), kind, w->archive, w->victim);
}

bool victim_untouched(const struct world *w)
{
    char text[64] = "", path[128];
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/file", w->victim);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    DIR *d = opendir(w->victim);
    if (!d)
        return false;
    while (readdir(d))
        n++;
    closedir(d);
    return n == 3 && fd >= 0 && read(fd, text, sizeof(text) - 1) == 10 && fstat(fd, &st) == 0 &&
           st.st_nlink == 1 && strcmp(text, "untouched\n") == 0;
}

/* Entries of the store that begin with `prefix`. */
unsigned entries(const struct world *w, const char *prefix)
{
    char path[128];
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/state/images", w->dir);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.' && strcmp(e->d_name, "names") != 0 &&
             strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    if (d)
        closedir(d);
    return n;
}

void refused(struct world *w, int code, const char *text)
{
    if (w->exit != code || !strstr(w->said, text))
        fail_msg("want %d '%s', got %d: %s", code, text, w->exit, w->said);
    assert_int_equal(entries(w, ""), 0);
    assert_true(victim_untouched(w));
}

void accepted(struct world *w, char id[BR_IMAGE_ID_MAX])
{
    if (w->exit != 0 || strncmp(w->said, "sha256:", 7) != 0)
        fail_msg("it was refused: %d: %s", w->exit, w->said);
    assert_int_equal(entries(w, "tmp."), 0);
    assert_true(victim_untouched(w));
    snprintf(id, BR_IMAGE_ID_MAX, "%.71s", w->said);
}

/* The files of an image, unpacked to work/out. */
void extract(struct world *w, const char *id)
{
    shell(w, 0, "cd %s; rm -rf work/out; fsck.erofs --extract=work/out state/images/%s.erofs",
          w->dir, id + 7);
}
