/*
 * What an activation pins: the kernel, its configuration as far as sandboxes depend on it, the
 * programs that make them; and of the plan everything but what belongs to one run. Gathered by
 * bridle-launch, the host's once, as it starts; compared, as text, by bridled before every launch.
 * Nothing in here may change from one launch to the next on a host that nobody changed.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
#include "sandbox/bwrap.h"
#include "sandbox/facts.h"
#include "sandbox/filter.h"
#include "sandbox/lease_priv.h"

#define NOTES_MAX 4096u

static void put(struct br_buf *out, const char *name, const char *value)
{
    br_buf_printf(out, "%s ", name);
    size_t n = strcspn(value, "\n");
    for (size_t i = 0; i < n; i++) /* one line, whatever the kernel says */
        br_buf_put_u8(out, (uint8_t)(value[i] >= 0x20 && value[i] != 0x7f ? value[i] : '?'));
    br_buf_printf(out, n ? "\n" : "-\n");
}

static void put_hex(struct br_buf *out, const char *name, const uint8_t *p, size_t n)
{
    br_buf_printf(out, "%s ", name);
    for (size_t i = 0; i < n; i++)
        br_buf_printf(out, "%02x", p[i]);
    br_buf_printf(out, "\n");
}

static void read_line(const char *path, char *dst, size_t cap)
{
    (void)br_read_text(AT_FDCWD, path, dst, cap);
    dst[strcspn(dst, "\n")] = 0;
}

/* A switch: its value. A number that the kernel computes from the size of the machine: some or
 * none. */
static const struct {
    const char *name;
    bool number;
} sysctls[] = {
    {"user/max_user_namespaces", true},
    {"user/max_mnt_namespaces", true},
    {"user/max_pid_namespaces", true},
    {"user/max_net_namespaces", true},
    {"user/max_cgroup_namespaces", true},
    {"kernel/unprivileged_userns_clone", false},
    {"kernel/apparmor_restrict_unprivileged_userns", false},
    {"kernel/yama/ptrace_scope", false},
    {"kernel/seccomp/actions_avail", false},
    {"kernel/io_uring_disabled", false},
    {"kernel/unprivileged_bpf_disabled", false},
    {"fs/protected_symlinks", false},
    {"fs/protected_hardlinks", false},
    {"fs/suid_dumpable", false},
};

static void put_sysctls(struct br_buf *out)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(sysctls); i++) {
        char path[128], name[128], value[256];
        snprintf(path, sizeof(path), "/proc/sys/%s", sysctls[i].name);
        snprintf(name, sizeof(name), "sysctl.%s", sysctls[i].name);
        for (char *p = name; *p; p++)
            if (*p == '/')
                *p = '.';
        read_line(path, value, sizeof(value));
        put(out, name, !sysctls[i].number || !value[0] ? value : value[0] == '0' ? "none" : "some");
    }
}

static void put_cgroups(struct br_buf *out, const struct br_cg_place *place)
{
    char text[256] = "";
    for (int c = 0; c < BR_CG_CTLS; c++) {
        const struct br_cg_dir *d = br_cg_dir_of(place, (enum br_cg_ctl)c);
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s=%s", c ? " " : "",
                 br_cg_ctl_names[c],
                 !d      ? "none"
                 : d->v2 ? "v2"
                         : "v1");
    }
    put(out, "cgroup", text);
}

/* The build id that the linker left in a program: enough to tell one build from another. */
static bool build_id(int fd, uint8_t *id, size_t *n)
{
    Elf64_Ehdr e;
    union {
        Elf64_Nhdr align;
        char bytes[NOTES_MAX];
    } notes;
    if (pread(fd, &e, sizeof(e), 0) != (ssize_t)sizeof(e) || memcmp(e.e_ident, ELFMAG, SELFMAG) ||
        e.e_phentsize != sizeof(Elf64_Phdr))
        return false;
    for (unsigned i = 0; i < e.e_phnum; i++) {
        Elf64_Phdr p;
        if (pread(fd, &p, sizeof(p), (off_t)(e.e_phoff + i * sizeof(p))) != (ssize_t)sizeof(p))
            return false;
        if (p.p_type != PT_NOTE)
            continue;
        size_t size = p.p_filesz < NOTES_MAX ? p.p_filesz : NOTES_MAX;
        if (pread(fd, notes.bytes, size, (off_t)p.p_offset) != (ssize_t)size)
            return false;
        for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
            Elf64_Nhdr h;
            memcpy(&h, notes.bytes + at, sizeof(h));
            size_t name = at + sizeof(h), desc = name + ((size_t)h.n_namesz + 3) / 4 * 4;
            if (desc > size || h.n_descsz > size - desc)
                break;
            if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && h.n_descsz <= *n &&
                memcmp(notes.bytes + name, "GNU", 4) == 0) {
                memcpy(id, notes.bytes + desc, h.n_descsz);
                *n = h.n_descsz;
                return true;
            }
            at = desc + ((size_t)h.n_descsz + 3) / 4 * 4;
        }
    }
    return false;
}

/* From here to the end; -1 if it cannot be read. */
static int hash_rest(int fd, uint8_t hash[32])
{
    struct br_sha256 s;
    char block[16384];
    ssize_t k;
    br_sha256_init(&s);
    while ((k = read(fd, block, sizeof(block))) > 0)
        br_sha256_put(&s, block, (size_t)k);
    br_sha256_end(&s, hash);
    return k < 0 ? -1 : 0;
}

/* One without a build id is told by its content. */
static void put_program(struct br_buf *out, const char *name, const char *path)
{
    uint8_t id[64];
    size_t n = sizeof(id);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && !build_id(fd, id, &n)) {
        (void)hash_rest(fd, id);
        n = 32;
    }
    if (fd < 0)
        put(out, name, "unreadable");
    else
        put_hex(out, name, id, n);
}

void br_facts_gather(struct br_buf *out, const struct br_host *h)
{
    struct utsname u;
    char text[256], path[64];
    memset(&u, 0, sizeof(u));
    (void)uname(&u);
    put(out, "kernel", u.release);
    put(out, "kernel-version", u.version);
    put(out, "architecture", u.machine);
    put_cgroups(out, &h->place);
    read_line("/sys/kernel/security/lsm", text, sizeof(text));
    put(out, "lsm", text);
    snprintf(text, sizeof(text), "%d", h->landlock_abi);
    put(out, "landlock-abi", text);
    put_sysctls(out);
    put(out, "seccomp-filter", h->filter_sha256);
    put_program(out, "launcher", "/proc/self/exe");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", h->cfg.init_fd);
    put_program(out, "init", path);
    snprintf(text, sizeof(text), "%u", (unsigned)h->uid);
    put(out, "uid", text);
}

static void put_number(struct br_buf *out, const char *name, uint64_t value)
{
    br_buf_printf(out, "%s %" PRIu64 "\n", name, value);
}

/* The whole file: other people's programs, which may be changed without a new build. */
static void put_file(struct br_buf *out, const char *name, const char *path)
{
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t hash[32];
    if (fd < 0 || hash_rest(fd, hash) < 0)
        put(out, name, "unreadable");
    else
        put_hex(out, name, hash, sizeof(hash));
}

/* What else makes the sandbox, where the plan needs it. */
static void put_helpers(struct br_buf *out, const struct br_plan *plan)
{
    static const char *const tools[] = {"mkfs.ext4", "e2fsck"};
    char path[64], name[64];
    bool ext4 = false;
    for (unsigned i = 0; i < BR_DISKS; i++)
        ext4 = ext4 || plan->disks[i].kind == BR_QUOTA_EXT4;
    if (plan->backend == BR_BACKEND_BWRAP)
        put_file(out, "program.bwrap", BR_BWRAP_PROGRAM);
    for (unsigned i = 0; ext4 && i < BR_ARRAY_LEN(tools); i++) {
        snprintf(name, sizeof(name), "program.%s", tools[i]);
        if (br_lease_find_tool(tools[i], path))
            put_file(out, name, path);
        else
            put(out, name, "missing");
    }
}

static void put_limits(struct br_buf *out, const struct br_limits *l)
{
    put_number(out, "limit.memory-bytes", l->memory_bytes);
    put_number(out, "limit.pids", l->pids);
    put_number(out, "limit.cpu-percent", l->cpu_percent);
    put_number(out, "limit.nofile", l->nofile);
    put_number(out, "limit.fsize-bytes", l->fsize_bytes);
    put_number(out, "limit.tmp-bytes", l->tmp_bytes);
    put_number(out, "limit.tmp-inodes", l->tmp_inodes);
    put_number(out, "limit.output-bytes", l->output_bytes);
    put_number(out, "limit.exec-seconds", l->exec_seconds);
    put_number(out, BR_FACT_WALL, l->wall_seconds);
}

static void put_disks(struct br_buf *out, const struct br_plan *plan)
{
    for (unsigned i = 0; i < BR_DISKS; i++) {
        const struct br_quota *q = &plan->disks[i];
        char name[32], text[96];
        snprintf(name, sizeof(name), "disk.%s", br_disk_names[i]);
        snprintf(text, sizeof(text), "%s %" PRIu64 " %" PRIu64, br_quota_names[q->kind], q->bytes,
                 q->inodes);
        put(out, name, text);
    }
    put(out, "state", plan->state);
}

void br_facts_put(struct br_buf *out, const struct br_buf *common, const struct br_plan *plan)
{
    char text[96];
    br_buf_put(out, common->data, common->len);
    snprintf(text, sizeof(text), "%s %u", plan->profile, plan->profile_version);
    put(out, "profile", text);
    put_hex(out, "profile-sha256", plan->profile_sha256, sizeof(plan->profile_sha256));
    put(out, "image", plan->image);
    put(out, "backend", br_backend_names[plan->backend]);
    put(out, "identity", br_identity_names[plan->identity]);
    put(out, "workspace", br_workspace_names[plan->workspace]);
    put(out, "landlock", plan->flags & BR_PLAN_NO_LANDLOCK ? "none" : "required");
    snprintf(text, sizeof(text), "%#x", plan->flags);
    put(out, "flags", text);
    put_limits(out, &plan->limits);
    put_disks(out, plan);
    put_helpers(out, plan);
}
