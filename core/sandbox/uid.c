/*
 * The uid of a launcher's sandboxes: picked once, so that launchers that live at the same time do
 * not share one (what the kernel counts per uid is counted for one sandbox then), and the owner of
 * the user namespaces of its sandboxes, so that what the kernel counts per namespace is counted for
 * that uid, and not for root of this host.
 *
 * Called by host.c and box.c. Trusts the kernel. See docs/decisions/0014.
 */
#include <errno.h>
#include <linux/capability.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
#include "sandbox/sys.h"

/* Whoever has bound this abstract name has the uid. It goes with the process. */
static bool take(int fd, unsigned uid)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "bridle-sandbox-uid-%u", uid);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    return bind(fd, (const struct sockaddr *)&a, len) == 0;
}

void br_uid_pick(struct br_host *h)
{
    const unsigned count = BR_UID_SANDBOX_LAST - BR_UID_SANDBOX + 1;
    uint32_t first;
    h->box_uid = BR_UID_SANDBOX;
    if (h->uid != 0 || br_weak(UID))
        return;
    br_random(&first, sizeof(first));
    h->box_uid += first % count;
    h->uid_taken = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); /* nobody listens */
    for (unsigned i = 0; i < count && h->uid_taken >= 0; i++) {
        unsigned uid = BR_UID_SANDBOX + (first % count + i) % count;
        if (take(h->uid_taken, uid)) {
            h->box_uid = uid;
            return;
        }
    }
    /* somebody has taken all: this one is shared with one of 464 at most */
    br_close(&h->uid_taken);
}

/* ---- the owner of a user namespace ---- */

static long set_caps(struct __user_cap_data_struct caps[2])
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    return syscall(SYS_capset, &head, caps);
}

int br_uid_enter(const struct br_host *h, struct br_uid_before *b)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    b->entered = false;
    if (h->uid != 0 || br_weak(OWNER))
        return 0;
    b->parent = getppid();
    b->dumpable = prctl(PR_GET_DUMPABLE);
    if (prctl(PR_GET_PDEATHSIG, &b->on_death) < 0 || syscall(SYS_capget, &head, b->caps) < 0)
        return -1;
    b->entered = true;
    int r = br_sys_seteuid((uid_t)h->box_uid);
    (void)syscall(SYS_setfsuid, 0); /* files are opened by root as before */
    if (r == 0 && geteuid() != (uid_t)h->box_uid) {
        errno = ECANCELED;
        r = -1;
    }
    /* without its capabilities it would be nobody in particular for the kernel's other checks */
    return r < 0 ? r : (int)set_caps(b->caps);
}

void br_uid_leave(const struct br_uid_before *b)
{
    struct __user_cap_data_struct caps[2];
    int saved = errno;
    if (!b->entered)
        return;
    /* real and saved uid were root all the time; a launcher that stays half of it must not go on */
    memcpy(caps, b->caps, sizeof(caps));
    br_require(syscall(SYS_setresuid, -1, 0, -1) == 0 && set_caps(caps) == 0 && geteuid() == 0);
    /* a change of the effective uid resets both */
    br_require(prctl(PR_SET_DUMPABLE, b->dumpable == 1 ? 1 : 0) == 0);
    br_require(prctl(PR_SET_PDEATHSIG, b->on_death) == 0);
    if (b->on_death && getppid() != b->parent)
        _exit(70); /* which has died meanwhile */
    errno = saved;
}
