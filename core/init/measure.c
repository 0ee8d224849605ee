/*
 * What this process really is in, read back from the kernel after everything was set up: the
 * measured half of the isolation receipt. bridle-session compares it with the plan and with what
 * the launcher has read; a member that could not be read is left out, which is not equal to
 * anything. Trusts the kernel only.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium/crypto_hash_sha256.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "init/init_priv.h"

static bool read_file(const char *path, struct br_buf *b)
{
    br_buf_reset(b);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && br_read_all(fd, b, path, NULL) == 0 && br_buf_cstr(b);
}

/* ,"name":"text" with runs of blanks as one and none at the ends */
static void put_text(struct br_buf *out, const char *name, const char *p, size_t n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    for (size_t i = 0; i < n; i++) {
        bool blank = p[i] == ' ' || p[i] == '\t' || p[i] == '\n';
        if (!blank)
            br_buf_put_u8(&b, (uint8_t)p[i]);
        else if (b.len && b.data[b.len - 1] != ' ')
            br_buf_put_u8(&b, ' ');
    }
    if (b.len && b.data[b.len - 1] == ' ')
        b.len--;
    br_buf_printf(out, ",\"%s\":", name);
    br_buf_put_json_str(out, (const char *)b.data, b.len);
}

/* The members of /proc/self/status that say what this process may do. */
static void put_status(struct br_buf *out, struct br_buf *scratch)
{
    static const struct {
        const char *line, *name;
        bool number;
    } members[] = {
        {"Uid:", "uids", false},
        {"Gid:", "gids", false},
        {"Groups:", "groups", false},
        {"CapInh:", "capInh", false},
        {"CapPrm:", "capPrm", false},
        {"CapEff:", "capEff", false},
        {"CapBnd:", "capBnd", false},
        {"CapAmb:", "capAmb", false},
        {"NoNewPrivs:", "noNewPrivs", true},
        {"Seccomp:", "seccomp", true},
        {"Seccomp_filters:", "seccompFilters", true},
        {"NSpid:", "nsPid", false},
    };
    if (!read_file("/proc/self/status", scratch))
        return;
    for (const char *line = (const char *)scratch->data; *line;) {
        size_t n = strcspn(line, "\n");
        for (unsigned i = 0; i < BR_ARRAY_LEN(members); i++) {
            size_t k = strlen(members[i].line);
            if (n < k || strncmp(line, members[i].line, k) != 0)
                continue;
            if (members[i].number)
                br_buf_printf(out, ",\"%s\":%u", members[i].name,
                              (unsigned)strtoul(line + k, NULL, 10));
            else
                put_text(out, members[i].name, line + k, n - k);
        }
        line += n + (line[n] == '\n');
    }
}

static void put_namespaces(struct br_buf *out)
{
    static const char *const names[] = {"user", "mnt", "pid",    "net",
                                        "ipc",  "uts", "cgroup", "time"};
    const char *comma = "";
    br_buf_printf(out, ",\"namespaces\":{");
    for (unsigned i = 0; i < BR_ARRAY_LEN(names); i++) {
        char path[64], text[64];
        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        ssize_t n = readlink(path, text, sizeof(text));
        if (n <= 0)
            continue;
        br_buf_printf(out, "%s\"%s\":", comma, names[i]);
        br_buf_put_json_str(out, text, (size_t)n);
        comma = ",";
    }
    br_buf_put_u8(out, '}');
}

static void put_limits(struct br_buf *out)
{
    static const struct {
        int what;
        const char *name;
    } limits[] = {{RLIMIT_NOFILE, "nofile"},
                  {RLIMIT_FSIZE, "fsize"},
                  {RLIMIT_CORE, "core"},
                  {RLIMIT_NPROC, "nproc"},
                  {RLIMIT_AS, "as"}};
    br_buf_printf(out, ",\"rlimits\":{");
    for (unsigned i = 0; i < BR_ARRAY_LEN(limits); i++) {
        struct rlimit lim;
        if (getrlimit(limits[i].what, &lim) < 0)
            continue;
        br_buf_printf(out, "%s\"%s\":", i ? "," : "", limits[i].name);
        if (lim.rlim_max == RLIM_INFINITY)
            br_buf_printf(out, "null");
        else
            br_buf_printf(out, "%llu", (unsigned long long)lim.rlim_max);
    }
    br_buf_put_u8(out, '}');
}

/* The mount table: how many, and a digest of all of it. */
static void put_mounts(struct br_buf *out, struct br_buf *scratch)
{
    if (!read_file("/proc/self/mountinfo", scratch))
        return;
    unsigned n = 0;
    for (size_t i = 0; i < scratch->len; i++)
        n += scratch->data[i] == '\n';
    unsigned char hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(hash, scratch->data, scratch->len);
    char hex[2 * sizeof(hash) + 1];
    br_hex(hex, hash, sizeof(hash));
    br_buf_printf(out, ",\"mounts\":%u,\"mountsSha256\":\"%s\"", n, hex);
}

/* Quotas, as the kernel tells them to whoever may be writing there. */
static void put_quotas(struct br_buf *out)
{
    static const char *const places[] = {"/tmp", "/home/agent", "/workspace", "/state", "/scratch"};
    const char *comma = "";
    br_buf_printf(out, ",\"quotas\":{");
    for (unsigned i = 0; i < BR_ARRAY_LEN(places); i++) {
        struct statvfs v;
        if (statvfs(places[i], &v) < 0 || (v.f_flag & ST_RDONLY))
            continue;
        br_buf_printf(out, "%s\"%s\":{\"bytes\":%llu,\"inodes\":%llu}", comma, places[i],
                      (unsigned long long)v.f_blocks * v.f_frsize, (unsigned long long)v.f_files);
        comma = ",";
    }
    br_buf_put_u8(out, '}');
}

/*
 * What the kernel does not tell, tried: a system call that the filter answers otherwise than the
 * kernel would, and a FIFO in the root that everybody may write, but for Landlock. An image has it
 * as well; where there is none, this proves nothing, and says so.
 */
static void put_proofs(struct br_buf *out)
{
    int dumpable = prctl(PR_GET_DUMPABLE);
    long r = syscall(SYS_setns, -1, 0);
    br_buf_printf(out, ",\"dumpable\":%d,\"filterRefuses\":%s", dumpable,
                  r < 0 && errno == EPERM ? "true" : "false");
    BR_CLEANUP_FD int fd = open("/.bridle-locked", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    br_buf_printf(out, ",\"landlockRefuses\":%s",
                  fd < 0 && errno == EACCES                      ? "true"
                  : fd >= 0 || errno == ENXIO || errno == ENOENT ? "false"
                                                                 : "null");
}

int br_init_measure(struct br_buf *out, unsigned inherited)
{
    BR_CLEANUP_BUF struct br_buf scratch = BR_BUF_INIT(1024 * 1024);
    struct utsname uts;
    char cwd[BR_PATH_MAX];
    br_buf_printf(out, "{\"pid\":%d,\"uid\":%u,\"gid\":%u", (int)getpid(), (unsigned)getuid(),
                  (unsigned)getgid());
    if (uname(&uts) == 0)
        put_text(out, "hostname", uts.nodename, strlen(uts.nodename));
    if (getcwd(cwd, sizeof(cwd)))
        put_text(out, "cwd", cwd, strlen(cwd));
    put_status(out, &scratch);
    if (read_file("/proc/self/uid_map", &scratch))
        put_text(out, "uidMap", (const char *)scratch.data, scratch.len);
    if (read_file("/proc/self/gid_map", &scratch))
        put_text(out, "gidMap", (const char *)scratch.data, scratch.len);
    if (read_file("/proc/self/cgroup", &scratch))
        put_text(out, "cgroup", (const char *)scratch.data, scratch.len);
    put_namespaces(out);
    put_limits(out);
    put_quotas(out);
    put_proofs(out);
    br_buf_printf(out, ",\"inheritedFds\":%u", inherited);
    put_mounts(out, &scratch);
    br_buf_put_u8(out, '}');
    return out->failed ? -BR_E_LIMIT_EXCEEDED : 0;
}
