/*
 * Deliberately weakened sandboxes, for the positive controls of `bridle selftest --attack` and of
 * the tests: what is done in place of what is left out. Linked into bridle-launch-weak and the
 * tests' launcher only. Trusts whoever starts those.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "sandbox/allowed.h"
#include "sandbox/weak.h"

unsigned br_weak_left_out;

static const char *const weak_names[] = {
#define BR_WEAK_NAME_(name, text, what) text,
    BR_WEAKNESSES(BR_WEAK_NAME_)
#undef BR_WEAK_NAME_
};

int br_weak_parse(const char *names)
{
    unsigned mask = 0;
    while (*names) {
        size_t n = strcspn(names, ",");
        unsigned i = 0;
        while (i < BR_WEAK_BITS_ &&
               (strlen(weak_names[i]) != n || memcmp(weak_names[i], names, n) != 0))
            i++;
        if (i == BR_WEAK_BITS_)
            return -1;
        mask |= 1u << i;
        names += n + (names[n] == ',');
    }
    br_weak_left_out = mask;
    return 0;
}

int br_weak_keep_caps(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) < 0)
        return -1;
    data[0].inheritable = data[0].permitted;
    data[1].inheritable = data[1].permitted;
    if (syscall(SYS_capset, &head, data) < 0)
        return -1;
    for (unsigned long cap = 0; cap < 64; cap++)
        (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0);
    return 0;
}

int br_weak_open_allowed(int ws, const char *pattern, struct br_allowed *out)
{
    struct stat st;
    snprintf(out->rel, sizeof(out->rel), "%s", pattern);
    char *end = strstr(out->rel, "/**");
    if (end)
        *end = 0;
    size_t n = strlen(out->rel);
    if (n && out->rel[n - 1] == '/')
        out->rel[n - 1] = 0;
    out->fd = openat(ws, out->rel, O_PATH | O_CLOEXEC);
    if (out->fd < 0 || fstat(out->fd, &st) < 0)
        return -1;
    out->dir = S_ISDIR(st.st_mode);
    out->ino = st.st_ino;
    out->dev_major = major(st.st_dev);
    out->dev_minor = minor(st.st_dev);
    return 0;
}
