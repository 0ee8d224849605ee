/*
 * ptydrive: runs a program on a terminal of its own and plays a dialogue, for end-to-end tests.
 *
 *   ptydrive [-t SECONDS] [-e EXPECT ACTION]... -- PROGRAM [ARGUMENT]...
 *
 * Each -e waits until EXPECT has appeared in the output that came after the previous step, then
 * does ACTION: "send:TEXT" types TEXT and Enter, "raw:TEXT" types TEXT without Enter, "eof" types
 * Ctrl-D, "int" types Ctrl-C, "tab" a tab, "resize:COLUMNS" makes the terminal so wide and tells
 * the program, "run:COMMAND" runs a shell command. Everything that the program wrote goes to
 * stdout. Exit status: the program's (128 + n for a signal), 124 if the time ran out, 125 if a step
 * was never reached.
 */
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEPS_MAX 64
#define OUTPUT_MAX (8u * 1024 * 1024)

struct step {
    const char *expect, *action;
};

static char *output;
static size_t length, seen;

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int type(int fd, const char *text)
{
    size_t n = strlen(text);
    return write(fd, text, n) == (ssize_t)n ? 0 : -1;
}

static int act(int fd, const char *action)
{
    if (strncmp(action, "send:", 5) == 0)
        return type(fd, action + 5) < 0 ? -1 : type(fd, "\n");
    if (strncmp(action, "raw:", 4) == 0)
        return type(fd, action + 4);
    if (strcmp(action, "eof") == 0)
        return type(fd, "\x04");
    if (strcmp(action, "int") == 0)
        return type(fd, "\x03");
    if (strcmp(action, "tab") == 0)
        return type(fd, "\t");
    if (strncmp(action, "resize:", 7) == 0) {
        struct winsize ws = {.ws_row = 24, .ws_col = (unsigned short)atoi(action + 7)};
        return ioctl(fd, TIOCSWINSZ, &ws);
    }
    if (strncmp(action, "run:", 4) == 0)
        return system(action + 4) == 0 ? 0 : -1;
    fprintf(stderr, "ptydrive: unknown action '%s'\n", action);
    return -1;
}

/* Steps whose text has appeared; returns how many are done, or -1. */
static int advance(int fd, const struct step *steps, int n, int done)
{
    while (done < n) {
        char *at =
            memmem(output + seen, length - seen, steps[done].expect, strlen(steps[done].expect));
        if (!at)
            return done;
        seen = (size_t)(at - output) + strlen(steps[done].expect);
        usleep(20000); /* a person does not answer before the question is finished */
        if (act(fd, steps[done].action) < 0)
            return -1;
        done++;
    }
    return done;
}

int main(int argc, char **argv)
{
    struct step steps[STEPS_MAX];
    int nsteps = 0, i = 1, done = 0, status = 0;
    double deadline = now_s() + 60;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "-t") == 0 && i + 1 < argc)
            deadline = now_s() + atof(argv[++i]);
        else if (strcmp(argv[i], "-e") == 0 && i + 2 < argc && nsteps < STEPS_MAX) {
            steps[nsteps].expect = argv[++i];
            steps[nsteps++].action = argv[++i];
        } else {
            fprintf(stderr, "usage: ptydrive [-t SECONDS] [-e EXPECT ACTION]... -- PROGRAM...\n");
            return 2;
        }
    }
    output = malloc(OUTPUT_MAX);
    if (i + 1 >= argc || !output)
        return 2;
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    int fd;
    pid_t pid = forkpty(&fd, NULL, NULL, &size);
    if (pid == 0) {
        execvp(argv[i + 1], argv + i + 1);
        _exit(127);
    }
    if (pid < 0)
        return 2;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        double left = deadline - now_s();
        if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) == 0) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            fwrite(output, 1, length, stdout);
            fprintf(stderr, "ptydrive: time ran out at step %d of %d\n", done, nsteps);
            return 124;
        }
        ssize_t r = length < OUTPUT_MAX ? read(fd, output + length, OUTPUT_MAX - length) : 0;
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0) /* EIO: the other side has closed */
            break;
        length += (size_t)r;
        done = advance(fd, steps, nsteps, done);
        if (done < 0)
            return 2;
    }
    waitpid(pid, &status, 0);
    fwrite(output, 1, length, stdout);
    if (done < nsteps) {
        fprintf(stderr, "ptydrive: step %d ('%s') was never reached\n", done + 1,
                steps[done].expect);
        return 125;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
