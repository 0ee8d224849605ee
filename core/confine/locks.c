/*
 * Landlock, capabilities and the system call filter of a confined program. Called by inside.c in
 * the process that becomes the program. The filter names what is refused: these programs are other
 * people's and differ from host to host, so a list of what they need would be wrong somewhere.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine/priv.h"

/* ---- Landlock ---- */

/* Within its reach, for programs and libraries: nothing personal. */
static const char *const readable[] = {
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/containers",
    "/etc/mke2fs.conf",
    "/dev/urandom",
};

/* Newer than the headers that this is built with; the numbers are the kernel's for ever. */
#define FS_REFER (1ULL << 13)        /* version 2 */
#define FS_TRUNCATE (1ULL << 14)     /* 3 */
#define NET_TCP 3ULL                 /* 4: bind and connect */
#define FS_IOCTL_DEV (1ULL << 15)    /* 5 */
#define SCOPES 3ULL                  /* 6: abstract sockets and signals */
#define FS_RESOLVE_UNIX (1ULL << 16) /* 9 */
#define READ_RIGHTS                                                                                \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define OWN_RIGHTS                                                                                 \
    (READ_RIGHTS | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |                 \
     LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |  \
     LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_MAKE_SOCK |   \
     FS_REFER | FS_TRUNCATE)
#define DEVICE_RIGHTS (LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK)
#define FILE_RIGHTS                                                                                \
    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_EXECUTE |   \
     FS_TRUNCATE)

static int allow(int rules, int fd, uint64_t rights)
{
    struct stat st;
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
    if (fstat(fd, &st) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode))
        rule.allowed_access &= FILE_RIGHTS;
    return (int)syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

static int allow_path(int rules, const char *path, uint64_t rights)
{
    BR_CLEANUP_FD int fd = open(path, O_PATH | O_CLOEXEC);
    return fd < 0 ? 0 : allow(rules, fd, rights); /* what is not there needs no rule */
}

const char *br_confine_landlock(const struct br_confine *c)
{
    struct {
        uint64_t fs, net, scoped;
    } attr = {.net = NET_TCP, .scoped = SCOPES};
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 2) { /* the first version forbids hard links between directories */
        errno = EOPNOTSUPP;
        return "it needs Linux 5.19 or newer with Landlock (lsm=landlock,... at boot)";
    }
    uint64_t own = abi < 3 ? OWN_RIGHTS & ~FS_TRUNCATE : OWN_RIGHTS;
    attr.fs = own | DEVICE_RIGHTS | (abi < 5 ? 0 : FS_IOCTL_DEV) | (abi < 9 ? 0 : FS_RESOLVE_UNIX);
    size_t size = abi < 4 ? 8 : abi < 6 ? 16 : sizeof(attr);
    BR_CLEANUP_FD int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    int r = rules < 0 ? -1 : 0;
    if (r == 0 && c->work >= 0)
        r = allow(rules, c->work, own);
    if (r == 0 && c->read_dir >= 0)
        r = allow(rules, c->read_dir, LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR);
    if (r == 0 && c->file >= 0)
        r = allow(rules, c->file, own & ~(uint64_t)LANDLOCK_ACCESS_FS_EXECUTE);
    if (r < 0 && c->file >= 0 && errno == EBADFD)
        r = 0; /* a file in memory alone (the doctor's), which Landlock has no say about */
    for (unsigned i = 0; r == 0 && i < BR_ARRAY_LEN(readable); i++)
        r = allow_path(rules, readable[i], READ_RIGHTS);
    if (r == 0)
        r = allow_path(rules, "/dev/null",
                       LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
    if (r == 0)
        r = (int)syscall(SYS_landlock_restrict_self, rules, 0);
    return r < 0 ? "Landlock could not be applied" : NULL;
}

/* ---- capabilities ---- */

void br_confine_bound(bool read_all)
{
    for (int cap = 0; cap < 64; cap++)
        if (!(read_all && cap == CAP_DAC_READ_SEARCH) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            break; /* EINVAL: the kernel knows no more; EPERM: there is none to drop */
}

const char *br_confine_capabilities(bool read_all)
{
    uint32_t keep = read_all ? 1u << CAP_DAC_READ_SEARCH : 0;
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2] = {
        {.effective = keep, .permitted = keep, .inheritable = keep}};
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capset, &head, caps) < 0 ||
        (keep && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0) < 0))
        return "its capabilities cannot be dropped";
    return NULL;
}

/* ---- the filter ---- */

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no seccomp architecture known for this machine"
#endif

/* EPERM. None of these is needed to take an archive apart or to check a file system in a file. */
static const uint32_t refused[] = {
    /* other processes */
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_getfd,
    /* mounts and namespaces */
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_unshare,
    SYS_setns,
    SYS_open_by_handle_at,
    SYS_quotactl,
    SYS_swapon,
    SYS_swapoff,
    /* large parts of the kernel */
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_fanotify_init,
    /* the machine */
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
#endif
    SYS_reboot,
    SYS_acct,
    SYS_syslog,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_setdomainname,
    /* memory that no limit counts */
    SYS_memfd_create,
    SYS_shmget,
    SYS_msgget,
    SYS_semget,
    SYS_mq_open,
    /* whoever listens somewhere */
    SYS_socket,
};

static const uint32_t forks[] = {
#ifdef SYS_fork
    SYS_fork,
    SYS_vfork,
#endif
};

static struct sock_filter op(uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
    return (struct sock_filter){.code = code, .jt = jt, .jf = jf, .k = k};
}

/* Refuse a call with this error. */
static size_t refuse(struct sock_filter *f, size_t n, uint32_t nr, uint32_t error)
{
    f[n++] = op(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, nr);
    f[n++] = op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | error);
    return n;
}

const char *br_confine_filter(bool may_fork)
{
    enum { LOAD = BPF_LD | BPF_W | BPF_ABS, ALL_NEW = 0x7e020000 /* CLONE_NEW* */ };
    struct sock_filter f[2 * (BR_ARRAY_LEN(refused) + BR_ARRAY_LEN(forks)) + 24];
    size_t n = 0;
    f[n++] = op(LOAD, 0, 0, offsetof(struct seccomp_data, arch));
    f[n++] = op(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCH);
    f[n++] = op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
    f[n++] = op(LOAD, 0, 0, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
    f[n++] = op(BPF_JMP | BPF_JGE | BPF_K, 0, 1, 0x40000000); /* x32 */
    f[n++] = op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS);
#endif
    for (size_t i = 0; i < BR_ARRAY_LEN(refused); i++)
        n = refuse(f, n, refused[i], EPERM);
    for (size_t i = 0; !may_fork && i < BR_ARRAY_LEN(forks); i++)
        n = refuse(f, n, forks[i], EPERM);
    n = refuse(f, n, SYS_clone3, ENOSYS); /* its flags cannot be seen; libraries use clone then */
    f[n++] = op(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SYS_clone);
    f[n++] = op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    f[n++] = op(LOAD, 0, 0, offsetof(struct seccomp_data, args));
    f[n++] = op(BPF_JMP | BPF_JSET | BPF_K, 0, 1, ALL_NEW);
    f[n++] = op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM);
    f[n++] = op(BPF_JMP | BPF_JSET | BPF_K, 1, 0, may_fork ? ~0u : CLONE_THREAD);
    f[n++] = op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM);
    f[n++] = op(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    struct sock_fprog prog = {.len = (unsigned short)n, .filter = f};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) < 0)
        return "its system call filter cannot be installed";
    return NULL;
}
