/*
 * A program gone bad, for test_rogue: it takes the place of a real one, waits for its first
 * message as that would, and then says something that its peer's table does not permit. Which one
 * it replaces is told by its name.
 */
#include <string.h>
#include <unistd.h>

#include "wire/wire.h"

struct rogue {
    bool started;
    int peer; /* the first descriptor that came with the start message */
};

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rogue *r = ctx;
    (void)c, (void)err;
    r->peer = br_msg_take_fd(m);
    r->started = true;
    return 0;
}

static int on_config(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err;
    return 0;
}

int main(int argc, char **argv)
{
    struct rogue r = {.peer = -1};
    const struct br_msg_rule rules[] = {
        {BR_MSG_SESSION_START, BR_PERMIT, 0, BR_MSG_MAX, 0, 8, on_start},
        {BR_MSG_SCRIPT_START, BR_PERMIT, 0, BR_MSG_MAX, 0, 8, on_start},
        {BR_MSG_LAUNCH_CONFIG, BR_PERMIT, 0, BR_MSG_MAX, 0, 8, on_config},
        {BR_MSG_LAUNCH_RESOLVE, BR_PERMIT, 0, BR_MSG_MAX, 0, 8, on_start},
    };
    struct br_chan sup, peer;
    br_chan_init(&sup, 3, "bridled", rules, BR_ARRAY_LEN(rules), &r);
    while (!r.started)
        if (argc < 1 || br_chan_dispatch(&sup, NULL) < 0)
            return 1;
    if (strcmp(argv[0], "bridle-script") == 0) {
        /* a policy script that would answer for the audit */
        br_chan_init(&peer, r.peer, "session", NULL, 0, NULL);
        (void)br_chan_send(&peer, BR_MSG_APPENDED, 1, NULL, NULL);
    } else if (strcmp(argv[0], "bridle-session") == 0) {
#ifdef ROGUE_LISTENER
        /* a session that would have the broker serve somebody, where there is no guest */
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        br_buf_put_u64(&o.buf, 0);
        br_out_fd(&o, 3, false);
        (void)br_chan_send(&sup, BR_MSG_SUP_LISTENER, 0, &o, NULL);
#else
        /* a session that would call a sandbox started */
        (void)br_chan_send(&sup, BR_MSG_LAUNCH_STARTED, 0, NULL, NULL);
#endif
    } else {
        /* a launcher that would end the run with success */
        (void)br_chan_send(&sup, BR_MSG_SESSION_DONE, 0, NULL, NULL);
    }
    (void)pause(); /* whoever notices must end it */
    return 0;
}
