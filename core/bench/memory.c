/*
 * Memory of one session: a real `bridle run` whose scripted provider keeps it waiting, and the
 * proportional set size of every program of it, the client included.
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"

#define WORKSPACE_UID 1000u
#define SETTLE_US 1500000u

static const char scenario[] =
    "{\"v\":1,\"name\":\"idle\",\"turns\":[{\"text\":\"Waiting.\",\"tool_"
    "calls\":[{\"name\":\"process_exec\","
    "\"arguments\":{\"argv\":[\"sleep\",\"30\"]}}]}]}";
static const char policy[] =
    "local policy = require \"bridle.policy\"\n"
    "return policy.bundle { api = 1, name = \"bench\", rules = {\n"
    "  policy.allow { id = \"sleep\", action = \"process.exec\", command = \"sleep *\" },\n} }\n";

static bool is_descendant(pid_t pid, pid_t root)
{
    for (int depth = 0; depth < 12 && pid > 1; depth++) {
        char path[64], line[512];
        int ppid = 0;
        if (pid == root)
            return true;
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        BR_CLEANUP_FILE FILE *f = fopen(path, "re");
        char *close = f && fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
        if (!close || sscanf(close + 1, " %*c %d", &ppid) != 1)
            return false;
        pid = ppid;
    }
    return false;
}

static double pss_bytes(pid_t pid)
{
    char path[64], line[256];
    double kib;
    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Pss: %lf kB", &kib) == 1)
            return kib * 1024;
    return 0;
}

void bench_memory_of(pid_t pid, double *bytes, unsigned *programs)
{
    *bytes += pss_bytes(pid);
    ++*programs;
}

void bench_memory(pid_t root, double *bytes, unsigned *programs)
{
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        pid_t pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0;
        char link[64], exe[BR_PATH_MAX];
        snprintf(link, sizeof(link), "/proc/%s/exe", e->d_name);
        ssize_t n = pid > 0 && is_descendant(pid, root) ? readlink(link, exe, sizeof(exe) - 1) : -1;
        if (n <= 0)
            continue;
        exe[n] = 0;
        char *name = strrchr(exe, '/');
        if (!name || strncmp(name + 1, "bridle", 6) != 0)
            continue; /* the workload */
        *bytes += pss_bytes(pid);
        (*programs)++;
    }
    if (d)
        closedir(d);
}

static int put_file(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    BR_CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    return fd >= 0 ? br_write_all(fd, text, strlen(text)) : -1;
}

int bench_session_memory(double *bytes, unsigned *programs, struct br_err *err)
{
    char dir[128], path[BR_PATH_MAX], command[BR_PATH_MAX];
    *bytes = 0;
    *programs = 0;
    snprintf(dir, sizeof(dir), "%s/memory", bench_scratch());
    if (mkdir(dir, 0755) < 0)
        return br_err_errno(err, BR_E_IO, "no temporary directory");
    snprintf(path, sizeof(path), "%s/workspace", dir);
    if (mkdir(path, 0755) < 0 ||
        (geteuid() == 0 && chown(path, WORKSPACE_UID, WORKSPACE_UID) < 0) ||
        put_file(dir, "scenario.json", scenario) < 0 || put_file(dir, "policy.lua", policy) < 0)
        return br_err_errno(err, BR_E_IO, "'%s' could not be prepared", dir);
    snprintf(command, sizeof(command),
             "BRIDLE_STATE_DIR='%s/state' '%s/bridle' activate run-v1 >/dev/null", dir,
             bench_bin_path());
    if (system(command) != 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING, "the profile 'run-v1' does not work here");
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* it does not outlive an interrupted bench */
        const char *const argv[] = {"bridle", "run",        "-C",         "workspace",
                                    "-p",     "policy.lua", "--scenario", "scenario.json",
                                    "wait",   NULL};
        int null = open("/dev/null", O_RDWR);
        snprintf(path, sizeof(path), "%s/state", dir);
        setenv("BRIDLE_STATE_DIR", path, 1);
        snprintf(path, sizeof(path), "%s/bridle", bench_bin_path());
        if (chdir(dir) == 0 && dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(null, 2) == 2)
            execv(path, (char *const *)argv);
        _exit(127);
    }
    usleep(SETTLE_US);
    bench_memory(pid, bytes, programs);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    return *programs >= 10
               ? 0
               : br_err_set(err, BR_E_FAILED, "only %u programs of a session were seen", *programs);
}
