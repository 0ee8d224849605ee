/*
 * Secret bytes: in pages of their own, locked where the kernel allows it, in no dump, wiped before
 * they are given back, never formatted.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"

int br_secret_set(struct br_secret *s, const void *p, size_t n)
{
    br_secret_wipe(s);
    size_t room = n ? n : 1; /* the kernel makes whole pages of it */
    void *at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return -BR_E_NOMEM;
    (void)mlock(at, room); /* best effort: RLIMIT_MEMLOCK may be 0 */
    (void)madvise(at, room, MADV_DONTDUMP);
    s->bytes_ = at;
    memcpy(s->bytes_, p, n);
    s->len_ = n;
    return 0;
}

const unsigned char *br_secret_bytes(const struct br_secret *s, size_t *n)
{
    *n = s->len_;
    return s->bytes_;
}

void br_secret_wipe(struct br_secret *s)
{
    size_t room = s->len_ ? s->len_ : 1;
    if (s->bytes_) {
        explicit_bzero(s->bytes_, s->len_);
        (void)munmap(s->bytes_, room); /* which also unlocks it */
    }
    s->bytes_ = NULL;
    s->len_ = 0;
}
