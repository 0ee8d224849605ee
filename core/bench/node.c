/*
 * Node, ws and better-sqlite3, pinned in vendor/npm/packages.txt and built once by vendor/npm/bench
 * into the directory of the programs' build. Only the measurement needs them.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/node.h"

static void node_dir(char dst[BR_PATH_MAX + 32])
{
    snprintf(dst, BR_PATH_MAX + 32, "%s/../bench/node", bench_bin_path());
}

bool bench_node_there(void)
{
    static int there = -1;
    char dir[BR_PATH_MAX + 32], ready[BR_PATH_MAX + 64];
    if (there >= 0)
        return there;
    node_dir(dir);
    snprintf(ready, sizeof(ready), "%s/better_sqlite3.node", dir);
    if (access(ready, R_OK) < 0) {
        bench_note("  Node and better-sqlite3 are fetched and built once, which takes a minute");
        pid_t pid = fork();
        if (pid == 0) {
            execl("/bin/sh", "sh", BENCH_NODE_MAKE, dir, (char *)NULL);
            _exit(127);
        }
        if (pid > 0)
            (void)waitpid(pid, NULL, 0);
    }
    there = access(ready, R_OK) == 0;
    if (!there)
        bench_note("  Node could not be had: measured without it");
    return there;
}

int bench_node_start(struct bench_node *n, const char *mode, struct br_err *err)
{
    char dir[BR_PATH_MAX + 32], program[BR_PATH_MAX + 64], addon[BR_PATH_MAX + 64], db[160];
    int in[2], out[2];
    node_dir(dir);
    snprintf(program, sizeof(program), "%s/node", dir);
    snprintf(addon, sizeof(addon), "%s/better_sqlite3.node", dir);
    snprintf(db, sizeof(db), "%s/node-%s.db", bench_scratch(), mode);
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        return br_err_errno(err, BR_E_IO, "no pipes for Node");
    *n = (struct bench_node){.pid = fork(), .in = in[1]};
    if (n->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0)
            _exit(126);
        execl(program, "node", BENCH_NODE_SERVER, mode, db, addon, dir, (char *)NULL);
        _exit(127);
    }
    br_close(&in[0]);
    br_close(&out[1]);
    char port[16] = "";
    ssize_t got = read(out[0], port, sizeof(port) - 1);
    br_close(&out[0]);
    n->port = (uint16_t)atoi(port);
    return got > 0 && n->port ? 0
                              : br_err_set(err, BR_E_FAILED, "the server in Node did not start");
}

void bench_node_end(struct bench_node *n)
{
    if (n->pid <= 0)
        return;
    br_close(&n->in);
    (void)kill(n->pid, SIGTERM);
    (void)waitpid(n->pid, NULL, 0);
    n->pid = 0;
}
