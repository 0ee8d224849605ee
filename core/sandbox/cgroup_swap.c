/*
 * Swap where the memory controller does not count it (version 1 booted without swapaccount=1, a
 * kernel built without): a limit of memory alone would be none, since what is over it goes to the
 * disk. Such a host will do as long as it has no swap area. Called when a limit is set and again
 * when it is read back. Trusts the kernel's list.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/cgroup.h"

/* The list without its heading; NULL if it is not there or not understood. */
static const char *areas(const char *path, char *text, size_t cap)
{
    /* a kernel without swap has no such list; but is there a /proc at all? */
    if (br_read_text(AT_FDCWD, path, text, cap) < 0)
        return errno == ENOENT && access("/proc/self/status", F_OK) == 0 ? "" : NULL;
    char *end = strchr(text, '\n');
    return end && strncmp(text, "Filename", 8) == 0 ? end + 1 : NULL;
}

int br_cg_require_no_swap(const struct br_cg_place *p, struct br_err *err)
{
    char text[4096];
    const char *path = p->swaps[0] ? p->swaps : "/proc/swaps";
    const char *list = areas(path, text, sizeof(text));
    if (list && !*list)
        return 0;
    return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                      "swap cannot be limited: the memory controller of this kernel does not count "
                      "it, and %s%.*s; nothing was started. Boot with swapaccount=1, or turn swap "
                      "off: swapoff -a",
                      list ? "swapped out could be to " : "whether there is any could not be read",
                      list ? (int)strcspn(list, " \t\n") : 0, list ? list : "");
}
