/*
 * Secret bytes: locked where the kernel allows it, wiped before they are freed, never formatted.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"

int br_secret_set(struct br_secret *s, const void *p, size_t n)
{
    br_secret_wipe(s);
    s->bytes_ = malloc(n ? n : 1);
    if (!s->bytes_)
        return -BR_E_NOMEM;
    (void)mlock(s->bytes_, n ? n : 1); /* best effort: RLIMIT_MEMLOCK may be 0 */
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
    if (s->bytes_) {
        explicit_bzero(s->bytes_, s->len_);
        (void)munlock(s->bytes_, s->len_ ? s->len_ : 1);
        free(s->bytes_);
    }
    s->bytes_ = NULL;
    s->len_ = 0;
}
