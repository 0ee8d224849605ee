/*
 * See test_connect_rig.h.
 */
#include <fcntl.h>
#include <pty.h>
#include <string.h>
#include <sys/wait.h>

#include "cli/test_connect_rig.h"

static const char *script;
pid_t server;

static void play_script(struct peer *p)
{
    peer_script(p, script);
}

int connect_setup(void **state)
{
    int r = rig_setup(state);
    char path[80];
    snprintf(path, sizeof(path), "%s/state", dir);
    setenv("BRIDLE_STATE_DIR", path, 1);
    unsetenv("BRIDLE_TOKEN");
    return r;
}

void serve(const char *text)
{
    script = text;
    server = peer_start("s", NULL, 1, play_script);
}

void start_plain(char *const argv[])
{
    int p[2];
    out_len = 0;
    child.err = -1;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        int null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        dup2(p[1], 1);
        dup2(p[1], 2);
        execv("./bridle", argv);
        _exit(99);
    }
    close(p[1]);
    child.fd = p[0];
}

int ended(void)
{
    int code = finish(), status = -1;
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_int_equal(status, 0);
    return code;
}

void start_terminal(char *const argv[], unsigned short columns)
{
    out_len = 0;
    child.err = -1;
    child.pid = forkpty(&child.fd, NULL, NULL, &(struct winsize){.ws_row = 24, .ws_col = columns});
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        execv("./bridle", argv);
        _exit(99);
    }
}
