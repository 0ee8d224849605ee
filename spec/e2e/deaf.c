/*
 * A program gone bad, for test_rogue: it takes the place of a real one, hears its first message,
 * closes the channel to its supervisor and stays.
 */
#include <unistd.h>

#include "wire/wire.h"

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)err;
    while (br_msg_take_fd(m) >= 0) /* its peers are not to notice anything */
        ;
    *(bool *)ctx = true;
    return 0;
}

static int on_config(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err;
    return 0;
}

int main(void)
{
    static const struct br_msg_rule rules[] = {
        {BR_MSG_SESSION_START, BR_PERMIT, 0, BR_MSG_MAX, 0, 8, on_start},
        {BR_MSG_SCRIPT_START, BR_PERMIT, 0, BR_MSG_MAX, 0, 8, on_start},
        {BR_MSG_LAUNCH_CONFIG, BR_PERMIT, 0, BR_MSG_MAX, 0, 8, on_config},
        {BR_MSG_LAUNCH_RESOLVE, BR_PERMIT, 0, BR_MSG_MAX, 0, 8, on_start},
    };
    struct br_chan sup;
    bool heard = false;
    br_chan_init(&sup, 3, "bridled", rules, BR_ARRAY_LEN(rules), &heard);
    while (!heard)
        if (br_chan_dispatch(&sup, NULL) < 0)
            return 1;
    br_chan_close(&sup);
    (void)pause(); /* whoever notices must end it */
    return 0;
}
