/*
 * Attacks on /proc, descriptors, the terminal and by signals. Data, and what has to be looked at
 * from outside.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/attack.h"
#include "cli/cli.h"

#define INIT BR_WEAK_INIT
#define FDS (BR_WEAK_FDS | BR_WEAK_INIT)

/* pid 1 must serve after everything was sent to it. */
static enum outcome kill_init(struct stage *s)
{
    struct exec_result r;
    const char *const again[] = {"/bin/true", NULL};
    if (stage_launch(s, -1) != 0)
        return OUT_UNDONE;
    (void)stage_attack(s, s->attack->inside, 5000, &r);
    struct pollfd p = {.fd = s->pidfd, .events = POLLIN};
    if (poll(&p, 1, 0) == 1 || s->init.fd < 0 || stage_exec(s, again, 5000, &r) < 0 ||
        r.exit != 0) {
        (void)syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0);
        stage_note(s, "pid 1 was killed or stopped from inside");
        return OUT_THROUGH;
    }
    stage_note(s, "pid 1 serves as before");
    return stage_end(s) < 0 ? OUT_UNDONE : OUT_BLOCKED;
}

/* The launcher is killed; the sandbox must not live on. */
static enum outcome launcher_dies(struct stage *s)
{
    if (stage_launch(s, -1) != 0)
        return OUT_UNDONE;
    (void)kill(s->launcher, SIGKILL);
    (void)waitpid(s->launcher, NULL, 0);
    s->launcher = 0;
    struct pollfd p = {.fd = s->pidfd, .events = POLLIN};
    bool gone = poll(&p, 1, s->control ? 20 : 5000) == 1;
    stage_note(s, gone ? "the sandbox ended with it" : "the sandbox lives on without its launcher");
    (void)syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0);
    (void)poll(&p, 1, 5000);
    return gone ? OUT_BLOCKED : OUT_THROUGH;
}

/* A core of the launcher would hold what it knows, in a place that others choose. */
static enum outcome launcher_core(struct stage *s)
{
    int status = 0;
    pid_t pid = s->launcher;
    if (s->control) {
        pid = fork();
        if (pid == 0) {
            struct rlimit l;
            if (getrlimit(RLIMIT_CORE, &l) == 0 && chdir(s->outside) == 0) {
                l.rlim_cur = l.rlim_max < (1u << 20) ? l.rlim_max : (1u << 20);
                (void)setrlimit(RLIMIT_CORE, &l);
            }
            abort();
        }
    } else {
        struct rlimit l;
        /* for a moment, while it makes a sandbox, its effective uid is that of the sandbox */
        for (int ms = 0; prlimit(pid, RLIMIT_CORE, NULL, &l) < 0; ms++) {
            if (errno != EPERM || ms >= 1000)
                return OUT_UNDONE;
            usleep(1000);
        }
        if (l.rlim_cur != 0) {
            stage_note(s, "the launcher's RLIMIT_CORE is %llu", (unsigned long long)l.rlim_cur);
            return OUT_THROUGH;
        }
        (void)kill(pid, SIGABRT);
        s->launcher = 0;
    }
    if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
        return OUT_UNDONE;
    stage_note(s, WCOREDUMP(status) ? "a core was dumped" : "no core");
    return WCOREDUMP(status) ? OUT_THROUGH : OUT_BLOCKED;
}

/* The operator's terminal shows what a command printed: nothing in it may act. */
static enum outcome escape_output(struct stage *s)
{
    struct exec_result r;
    struct br_cli_view view;
    BR_CLEANUP_BUF struct br_buf event = BR_BUF_INIT(65536);
    if (stage_launch(s, -1) != 0 || stage_attack(s, s->attack->inside, 5000, &r) < 0)
        return OUT_UNDONE;
    if (!strchr(r.line, '\x1b'))
        return OUT_UNDONE; /* it did not come through to be shown */
    if (s->control) {
        stage_note(s, "the bytes as they came would act on a terminal");
        return stage_end(s) < 0 ? OUT_UNDONE : OUT_THROUGH;
    }
    br_buf_printf(&event, "{\"type\":\"bridle.text\",\"data\":{\"kind\":\"agent\",\"text\":");
    br_buf_put_json_str(&event, r.line, strlen(r.line));
    br_buf_printf(&event, "}}");
    br_cli_view_init(&view, true, 80);
    (void)br_cli_view_event(&view, (const char *)event.data, event.len, NULL);
    br_cli_put_json_safe(&view.out, (const char *)event.data, event.len);
    (void)br_buf_put_visible(&view.out, r.line, strlen(r.line), false);
    bool acts = view.out.failed || view.out.len == 0;
    for (size_t i = 0; i < view.out.len; i++) {
        unsigned char c = view.out.data[i];
        /* colours are the view's own: ESC [ digits m */
        if (c == 0x1b && i + 1 < view.out.len && view.out.data[i + 1] == '[') {
            size_t k = i + 2;
            while (k < view.out.len && (view.out.data[k] == ';' ||
                                        (view.out.data[k] >= '0' && view.out.data[k] <= '9')))
                k++;
            acts = acts || k >= view.out.len || view.out.data[k] != 'm';
        } else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
            acts = true;
        }
    }
    br_cli_view_free(&view);
    stage_note(s, acts ? "the view passed on control characters" : "shown as visible escapes");
    return stage_end(s) < 0 ? OUT_UNDONE : acts ? OUT_THROUGH : OUT_BLOCKED;
}

const struct attack attack_rows_proc[] = {
    {"proc.inherited-fds", CLASS_PROC, "descriptors that a command is started with",
     "CVE-2024-21626, CVE-2016-9962", "anything but /dev/null and pipes on 0 to 2", "inherited",
     FDS},
    {"proc.fd-directory", CLASS_PROC, "/proc/self/fd/N as a directory to start from",
     "runc CVE-2024-21626", "a file of the host is read through a descriptor of the runtime",
     "fd-as-directory", FDS | BR_WEAK_LANDLOCK},
    {"proc.init-memory", CLASS_PROC, "the memory, environment and files of pid 1", "CVE-2016-9962",
     "/proc/1/{mem,environ,maps,root,cwd,fd} can be opened", "look-into-init", INIT},
    {"proc.init-write", CLASS_PROC, "write to the memory of pid 1", "CVE-2016-9962",
     "/proc/1/mem is open for writing", "write-init-memory",
     INIT | BR_WEAK_PROC | BR_WEAK_LANDLOCK},
    {"proc.host-process", CLASS_PROC, "see a process of the host", "design",
     "/proc/PID of it exists", "see-victim", BR_WEAK_PIDNS, A_VICTIM},
    {"proc.host-process-files", CLASS_PROC, "/proc/PID/{mem,maps,environ,root,cwd} of the host",
     "design", "one of them can be opened", "victim-files", BR_WEAK_PIDNS, A_OPERATION | A_VICTIM,
     .control = "the same, on the host, by the same user"},
    {"proc.writable", CLASS_PROC, "write to /proc",
     "runc CVE-2019-16884, CVE-2025-52881; core_pattern, sysrq, binfmt_misc, uid_map",
     "a file of /proc is opened for writing", "proc-writable", BR_WEAK_PROC | BR_WEAK_LANDLOCK},
    {"proc.masked", CLASS_PROC, "files of /proc that are not namespaced",
     "runc CVE-2025-31133 (mask source replaced)", "one is there, or its mask is not empty",
     "proc-masked", BR_WEAK_PROC},
    {"proc.kernel-memory", CLASS_PROC, "memory, messages and controls of the kernel",
     "CVE-2022-0492 and others", "/proc/kcore, /dev/mem, /dev/kmsg, /sys/... can be read",
     "kernel-memory", 0, A_OPERATION, .control = "the same look at the host"},
    {"proc.kallsyms", CLASS_PROC, "addresses of the kernel", "KASLR", "/proc/kallsyms shows them",
     "kernel-addresses", 0, A_OPERATION, .control = "the same look at a file that holds one"},
    {"proc.environment", CLASS_PROC, "the environment of the launcher", "design",
     "a variable of it is seen inside", "environment-marker", BR_WEAK_ENV | INIT},
    {"proc.core", CLASS_PROC, "a core dump of a process inside", "CVE-2015-1862, CVE-2022-28655",
     "a core is written, or handed to a program of the host", "core-dump", BR_WEAK_RLIMITS},
    {"proc.launcher-core", CLASS_PROC, "a core dump of the launcher", "CVE-2011-1485 and others",
     "a core is written", NULL, 0, 0, .run = launcher_core,
     .control = "a process of the host with cores allowed is aborted"},
    /* ---- terminal ---- */
    {"tty.open", CLASS_TERMINAL, "the operator's terminal",
     "CVE-2016-7543, bubblewrap CVE-2017-5226", "/dev/tty is opened and written to",
     "open-terminal", BR_WEAK_TTY | INIT},
    {"tty.descriptor", CLASS_TERMINAL, "a descriptor that is a terminal", "su, sudo CVE-2005-4890",
     "isatty() of one is true", "no-terminal-fds", BR_WEAK_TTY | FDS},
    {"tty.session", CLASS_TERMINAL, "the session of the launcher", "bubblewrap CVE-2017-5226",
     "the command is in it", "session", BR_WEAK_TTY | INIT},
    {"tty.tiocsti", CLASS_TERMINAL, "type into a terminal", "bubblewrap CVE-2017-5226",
     "TIOCSTI reaches the kernel", "call call=tiocsti", BR_WEAK_FILTER},
    {"tty.tiocsti-high", CLASS_TERMINAL, "the same with bits above the 32 that count",
     "snapd CVE-2019-7303, flatpak CVE-2019-10063", "TIOCSTI reaches the kernel",
     "call call=tiocsti-high", BR_WEAK_FILTER},
    {"tty.tiocsti-sign", CLASS_TERMINAL, "the same with every one of those bits",
     "flatpak CVE-2019-10063", "TIOCSTI reaches the kernel", "call call=tiocsti-sign",
     BR_WEAK_FILTER},
    {"tty.tioclinux", CLASS_TERMINAL, "paste into a console", "flatpak CVE-2023-28100",
     "TIOCLINUX reaches the kernel", "call call=tioclinux", BR_WEAK_FILTER},
    {"tty.tioclinux-high", CLASS_TERMINAL, "the same with bits above the 32 that count",
     "flatpak CVE-2023-28100", "TIOCLINUX reaches the kernel", "call call=tioclinux-high",
     BR_WEAK_FILTER},
    {"tty.escapes", CLASS_TERMINAL, "escape sequences in what a command prints",
     "flatpak CVE-2023-28101", "one of them reaches the operator's terminal", "escape-output", 0, 0,
     .run = escape_output, .control = "the bytes as they come out of the sandbox"},
    /* ---- signals ---- */
    {"signal.init", CLASS_SIGNALS, "kill or stop pid 1", "design", "pid 1 does not serve any more",
     "kill-init", BR_WEAK_PIDNS, 0, .run = kill_init},
    {"signal.host-pid", CLASS_SIGNALS, "a signal to a process of the same user outside", "design",
     "it arrives", "kill-victim", BR_WEAK_PIDNS | BR_WEAK_LANDLOCK, A_VICTIM},
    {"signal.host-group", CLASS_SIGNALS, "a signal to its process group", "design", "it arrives",
     "kill-group", BR_WEAK_PIDNS | BR_WEAK_LANDLOCK, A_VICTIM},
    {"signal.pidfd", CLASS_SIGNALS, "the same through a pidfd", "design", "it arrives",
     "pidfd-victim", BR_WEAK_PIDNS | BR_WEAK_LANDLOCK, A_VICTIM},
    {"signal.everybody", CLASS_SIGNALS, "kill(-1)", "design",
     "it would reach anybody (tried with signal 0)", "kill-everybody",
     BR_WEAK_PIDNS | BR_WEAK_LANDLOCK, A_VICTIM},
    {"signal.ptrace-init", CLASS_SIGNALS, "trace pid 1", "CVE-2016-9962", "it is attached to",
     "ptrace-init", INIT | BR_WEAK_FILTER | BR_WEAK_CAPS},
    {"signal.getfd-init", CLASS_SIGNALS, "take a descriptor of pid 1", "pidfd_getfd(2)",
     "one is taken", "getfd-init", INIT | BR_WEAK_FILTER | BR_WEAK_CAPS},
    {"signal.read-host", CLASS_SIGNALS, "read the memory of a process outside",
     "process_vm_readv(2)", "a byte is read", "vm-readv-victim", 0, A_OPERATION | A_VICTIM,
     .control = "the same, on the host, by the same user"},
    {"signal.launcher-dies", CLASS_SIGNALS, "outlive the launcher", "design",
     "the sandbox lives on after the launcher was killed", NULL, BR_WEAK_PDEATH, 0,
     .run = launcher_dies},
    {NULL},
};
