/*
 * The same attacks against a sandbox that bubblewrap makes: a row for each of what it makes itself
 * (namespaces, /proc, descriptors, environment, capabilities, filter, read-only mounts). Data only.
 * Controls are native: a lock that is left out there shows that the attack would have been seen.
 * There is no Landlock in these sandboxes, so that nothing of ours lies behind them.
 */
#include "attack/attack.h"

#define BWRAP A_BWRAP
#define RW_ALL (BR_WEAK_RW | BR_WEAK_LANDLOCK)
#define FDS (BR_WEAK_FDS | BR_WEAK_INIT)

const struct attack attack_rows_bwrap[] = {
    {"bwrap.descriptors", CLASS_BROKER, "a socket among the descriptors", "bubblewrap closes none",
     "one of them is a socket", "socket-descriptor", FDS, BWRAP},
    {"bwrap.environment", CLASS_PROC, "the environment of the launcher", "bubblewrap --clearenv",
     "a variable of it is seen inside", "environment-marker", BR_WEAK_ENV | BR_WEAK_INIT, BWRAP},
    {"bwrap.mounts-readonly", CLASS_FILESYSTEM, "a mount that was forgotten",
     "bubblewrap --dev-bind", "a mount other than the allowed paths, /tmp and the home is writable",
     "mounts-readonly", RW_ALL, BWRAP},
    {"bwrap.write-workspace", CLASS_FILESYSTEM, "write what is not an allowed path", "design",
     "a file of the workspace is written, made, renamed, removed or its metadata changed",
     "write-workspace", RW_ALL, BWRAP},
    {"bwrap.host-file", CLASS_FILESYSTEM, "a file of the host by its name", "pivot_root(2)",
     "it is read, through the old root, /proc/1/root or ..", "host-file", BR_WEAK_HOSTROOT, BWRAP},
    {"bwrap.setuid-counts", CLASS_FILESYSTEM, "setuid programs", "bubblewrap CVE-2016-8659",
     "a setuid bit counts on some mount, or no_new_privs is not set", "setuid-counts", BR_WEAK_SUID,
     BWRAP},
    {"bwrap.git-moved", CLASS_FILESYSTEM, "move a repository away and put another in its place",
     "git core.fsmonitor and hooks", "a .git below an allowed path is written or replaced",
     "move-git", BR_WEAK_PATHS, BWRAP, .setup = attack_setup_git},
    {"bwrap.capabilities", CLASS_NAMESPACES, "capabilities", "bubblewrap CVE-2020-5291",
     "one of the five sets is not empty", "capabilities", BR_WEAK_CAPS, BWRAP},
    {"bwrap.nested-namespace", CLASS_NAMESPACES, "a user namespace inside, and a mount in it",
     "CVE-2022-0185", "the mount is made", "nested-namespace", BR_WEAK_FILTER | BR_WEAK_LANDLOCK,
     BWRAP},
    {"bwrap.tiocsti", CLASS_TERMINAL, "type into a terminal", "bubblewrap CVE-2017-5226",
     "TIOCSTI reaches the kernel", "call call=tiocsti", BR_WEAK_FILTER, BWRAP},
    {"bwrap.session", CLASS_TERMINAL, "the session of the launcher", "bubblewrap CVE-2017-5226",
     "the command is in it", "session", BR_WEAK_TTY | BR_WEAK_INIT, BWRAP},
    {"bwrap.masked", CLASS_PROC, "files of /proc that are not namespaced",
     "bubblewrap masks none itself", "one is there, or its mask is not empty", "proc-masked",
     BR_WEAK_PROC, BWRAP},
    {"bwrap.proc-writable", CLASS_PROC, "write to /proc", "runc CVE-2019-16884",
     "a file of /proc is opened for writing", "proc-writable", BR_WEAK_PROC | BR_WEAK_LANDLOCK,
     BWRAP},
    {"bwrap.loopback", CLASS_NETWORK, "a port of the host on 127.0.0.1", "design", "connected",
     "host-loopback", BR_WEAK_NETNS, BWRAP},
    {"bwrap.outside", CLASS_NETWORK, "an interface or a route beyond loopback", "design",
     "there is one", "outside", BR_WEAK_NETNS, BWRAP},
    {"bwrap.abstract", CLASS_SOCKETS, "an abstract socket of the host", "containerd CVE-2020-15257",
     "connected", "host-abstract", BR_WEAK_NETNS | BR_WEAK_LANDLOCK, BWRAP},
    {NULL},
};
