/*
 * core/sandbox, private: what a deliberately weakened sandbox leaves out. Only the library
 * bridle_sandbox_weak is compiled with BR_SANDBOX_WEAK, and only bridle-launch-weak and the tests
 * link it. Everywhere else br_weak() is the constant 0 and none of this exists.
 *
 * X(NAME, "name", what is left out)
 */
#ifndef BR_SANDBOX_WEAK_H
#define BR_SANDBOX_WEAK_H

#define BR_WEAKNESSES(X)                                                                           \
    X(FILTER, "filter", "the system call filter")                                                  \
    X(CAPS, "caps", "dropping capabilities (of the user namespace)")                               \
    X(LANDLOCK, "landlock", "Landlock")                                                            \
    X(RW, "rw", "read-only mounts")                                                                \
    X(SUID, "suid", "nosuid mounts and no_new_privs (and, with them, the filter)")                 \
    X(PIDNS, "pidns", "the pid namespace")                                                         \
    X(NETNS, "netns", "the network namespace")                                                     \
    X(IPCNS, "ipcns", "the ipc namespace")                                                         \
    X(PROC, "proc", "the masks of /proc and its being read-only")                                  \
    X(FDS, "fds", "closing inherited descriptors")                                                 \
    X(TTY, "tty", "the session of its own")                                                        \
    X(LIMITS, "limits", "the limits of the cgroup")                                                \
    X(RLIMITS, "rlimits", "the resource limits of a process")                                      \
    X(TMP, "tmp", "the sizes of /tmp and the home directory")                                      \
    X(PDEATH, "pdeath", "dying with the launcher")                                                 \
    X(PATHS, "paths", "opening allowed paths without links and comparing what was opened")         \
    X(HOSTROOT, "hostroot", "leaving the host's root behind (it stays visible in /run)")           \
    X(SHARED, "shared", "private mounts")                                                          \
    X(ENV, "env", "an environment of its own")                                                     \
    X(UID, "uid", "a uid that no other launcher's sandboxes have")                                 \
    X(OWNER, "owner", "user namespaces that belong to the sandbox, not to root")                   \
    X(INIT, "init", "what bridle-init does against the commands that it runs")

enum br_weak_bit {
#define BR_WEAK_BIT_(name, text, what) BR_WEAK_BIT_##name,
    BR_WEAKNESSES(BR_WEAK_BIT_)
#undef BR_WEAK_BIT_
        BR_WEAK_BITS_
};
enum br_weak_mask {
#define BR_WEAK_MASK_(name, text, what) BR_WEAK_##name = 1u << BR_WEAK_BIT_##name,
    BR_WEAKNESSES(BR_WEAK_MASK_)
#undef BR_WEAK_MASK_
        BR_WEAK_ANY = (1u << BR_WEAK_BITS_) - 1
};

#ifdef BR_SANDBOX_WEAK
struct br_allowed;
extern unsigned br_weak_left_out; /* a mask; set once, before anything else */
#define br_weak(what) ((br_weak_left_out & BR_WEAK_##what) != 0)
/* Parse "filter,caps" into the mask; -1 for a name that is not known. */
int br_weak_parse(const char *names);
/* Instead of dropping them: every capability, so that an exec keeps it. */
int br_weak_keep_caps(void);
/* Open an allowed path by its string, through links. */
int br_weak_open_allowed(int ws, const char *pattern, struct br_allowed *out);
#else
#define br_weak(what) 0
#define br_weak_keep_caps() 0
#define br_weak_open_allowed(ws, pattern, out) (-1)
#endif

#endif
