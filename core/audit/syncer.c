/*
 * A thread that waits for the disk. It is asked, and says that it is done, on an eventfd each. It
 * has no part in anything else: it takes no signals, and what it knows is one descriptor.
 */
#include "audit/syncer.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#define STACK_BYTES (128u * 1024)

struct br_syncer {
    pthread_t thread;
    int ask, done;
    bool busy;
    atomic_int fd;     /* of the request; -1: end */
    atomic_int result; /* 0 or an errno */
};

/* False: there is nothing (of one that does not block). */
static bool take(int fd)
{
    uint64_t n;
    ssize_t r;
    do {
        r = read(fd, &n, sizeof(n));
    } while (r < 0 && errno == EINTR);
    return r == (ssize_t)sizeof(n);
}

static void wait_for(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (!take(fd))
        (void)poll(&p, 1, -1);
}

static void post(int fd)
{
    const uint64_t one = 1;
    while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

static void *run(void *ctx)
{
    struct br_syncer *s = ctx;
    (void)prctl(PR_SET_NAME, "bridle-sync", 0, 0, 0);
    post(s->done); /* what a thread does at its beginning is done */
    for (;;) {
        wait_for(s->ask);
        int fd = atomic_load(&s->fd);
        if (fd < 0)
            return NULL;
        atomic_store(&s->result, fdatasync(fd) < 0 ? errno : 0);
        post(s->done);
    }
}

static int start(struct br_syncer *s)
{
    sigset_t all, before;
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0)
        return -1;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&s->thread, &attr, run, s);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return r;
}

struct br_syncer *br_syncer_new(void)
{
    struct br_syncer *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->ask = eventfd(0, EFD_CLOEXEC);
    s->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->ask >= 0 && s->done >= 0 && start(s) == 0) {
        wait_for(s->done);
        return s;
    }
    br_close(&s->ask);
    br_close(&s->done);
    free(s);
    return NULL;
}

void br_syncer_begin(struct br_syncer *s, int fd)
{
    br_require(!s->busy && fd >= 0);
    s->busy = true;
    atomic_store(&s->fd, fd);
    post(s->ask);
}

int br_syncer_fd(const struct br_syncer *s)
{
    return s->done;
}

int br_syncer_wait(const struct br_syncer *s)
{
    struct pollfd p = {.fd = s->done, .events = POLLIN};
    br_require(s->busy);
    while (poll(&p, 1, -1) != 1)
        ;
    return atomic_load(&s->result);
}

bool br_syncer_end(struct br_syncer *s, bool wait, int *result)
{
    br_require(s->busy);
    if (wait)
        wait_for(s->done);
    else if (!take(s->done))
        return false;
    s->busy = false;
    *result = atomic_load(&s->result);
    return true;
}

void br_syncer_free(struct br_syncer **syncer)
{
    struct br_syncer *s = *syncer;
    int ignored;
    if (!s)
        return;
    *syncer = NULL;
    if (s->busy)
        (void)br_syncer_end(s, true, &ignored);
    atomic_store(&s->fd, -1);
    post(s->ask);
    (void)pthread_join(s->thread, NULL);
    br_close(&s->ask);
    br_close(&s->done);
    free(s);
}
