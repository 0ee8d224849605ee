/*
 * A pid 1 that says that it is in something else than was planned, for test_rogue: it takes the
 * place of bridle-init and waits for a call, which must not come.
 */
#include <unistd.h>

#include "wire/wire.h"

/* Not a program that may be traced, as leak detection wants. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

int main(void)
{
    static const char said[] = "{\"pid\":1,\"uids\":\"1000 1000 1000 1000\",\"gids\":\"1000 1000 "
                               "1000 1000\",\"groups\":\"\",\"capBnd\":\"000001ffffffffff\"}";
    struct br_chan chan;
    char byte;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_chan_init(&chan, 3, "session", NULL, 0, NULL);
    br_out_blob(&o, said, sizeof(said) - 1);
    if (br_chan_send(&chan, BR_MSG_INIT_READY, 0, &o, NULL) < 0)
        return 1;
    (void)!read(3, &byte, 1); /* until its end */
    return 0;
}
