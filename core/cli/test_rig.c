/*
 * See test_rig.h.
 */
#include <fcntl.h>
#include <pty.h>
#include <string.h>
#include <sys/wait.h>

#include "cli/test_rig.h"

char dir[64], out_text[1 << 16];
size_t out_len;
struct child child;

static void copy_program(const char *from, const char *to)
{
    char cmd[2 * BR_PATH_MAX];
    snprintf(cmd, sizeof(cmd), "cp '%s' '%s/%s'", from, dir, to);
    assert_int_equal(system(cmd), 0);
}

int rig_setup(void **state)
{
    (void)state;
    const char *bin = getenv("BRIDLE_BIN");
    assert_non_null(bin);
    char path[BR_PATH_MAX];
    snprintf(dir, sizeof(dir), "/tmp/bridle-test-cli.XXXXXX");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chdir(dir), 0);
    snprintf(path, sizeof(path), "%s/bridle", bin);
    copy_program(path, "bridle");
    snprintf(path, sizeof(path), "%s/../tests/fake_bridled", bin);
    copy_program(path, "bridled");
    snprintf(path, sizeof(path), "%s/log", dir);
    setenv("BRIDLE_FAKE_LOG", path, 1);
    setenv("XDG_CONFIG_HOME", dir, 1);
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    return 0;
}

int rig_teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
    return chdir("/") == 0 ? system(cmd) : -1;
}

void write_play(const char *play)
{
    FILE *f = fopen("play", "we");
    assert_non_null(f);
    fputs(play, f);
    fclose(f);
    (void)unlink("log");
}

const char *log_text(void)
{
    static char text[16384];
    text[0] = '\0';
    FILE *f = fopen("log", "re");
    if (f) {
        text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
        fclose(f);
    }
    return text;
}

void start_pty(char *const argv[])
{
    out_len = 0;
    child.err = -1;
    child.pid = forkpty(&child.fd, NULL, NULL, &(struct winsize){.ws_row = 24, .ws_col = 80});
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        execv("./bridle", argv);
        _exit(99);
    }
}

void start_pipe(char *const argv[])
{
    int p[2], e[2];
    out_len = 0;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(pipe2(e, O_CLOEXEC), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        int null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        dup2(p[1], 1);
        dup2(e[1], 2);
        execv("./bridle", argv);
        _exit(99);
    }
    close(p[1]);
    close(e[1]);
    child.fd = p[0];
    child.err = e[0];
}

void expect(const char *text)
{
    uint64_t until = br_now_us() + 20000000;
    for (;;) {
        out_text[out_len] = '\0';
        if (text && strstr(out_text, text))
            return;
        if (br_now_us() > until)
            fail_msg("waited for '%s'; there is: %s", text ? text : "the end", out_text);
        struct pollfd p = {.fd = child.fd, .events = POLLIN};
        if (poll(&p, 1, 100) <= 0)
            continue;
        ssize_t n = read(child.fd, out_text + out_len, sizeof(out_text) - 1 - out_len);
        if (n <= 0 && !text)
            return;
        if (n <= 0)
            fail_msg("the end came before '%s': %s", text, out_text);
        out_len += (size_t)n;
    }
}

void type(const char *s)
{
    assert_int_equal(write(child.fd, s, strlen(s)), (ssize_t)strlen(s));
}

int finish(void)
{
    int status;
    expect(NULL);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    close(child.fd);
    if (child.err >= 0) {
        close(child.err);
        child.err = -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

char *const run_argv[] = {(char *)"bridle", (char *)"run",  (char *)"-t",
                          (char *)"play",   (char *)"goal", NULL};
