/*
 * A bridle-script gone bad, for test_repl: it takes the place of the one that 'bridle repl' starts,
 * and what it is to do is in the code that it is asked to evaluate.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "wire/wire.h"

static void say(struct br_chan *c, enum br_msg_type type, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, text, strlen(text));
    if (br_chan_send(c, type, 0, &o, NULL) < 0)
        _exit(1);
}

static void done(struct br_chan *c, uint8_t status, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, status);
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_str(&o.buf, "");
    br_buf_put_u32(&o.buf, 0);
    br_out_blob(&o, text, strlen(text));
    if (br_chan_send(c, BR_MSG_INSPECT_DONE, 0, &o, NULL) < 0)
        _exit(1);
}

static void want(struct br_chan *c, const char *what, const char *id)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, what);
    br_buf_put_str(&o.buf, id);
    br_buf_put_str(&o.buf, "");
    br_buf_put_u64(&o.buf, 0);
    br_buf_put_u64(&o.buf, 0);
    if (br_chan_send(c, BR_MSG_INSPECT_WANT, 0, &o, NULL) < 0 || br_chan_dispatch(c, NULL) < 0)
        _exit(1);
}

static int on_data(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)err;
    (void)br_rd_u32(&m->rd);
    br_rd_str(&m->rd, ctx, BR_ERR_TEXT_MAX);
    return 0;
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    (void)m, (void)ctx;
    br_buf_put_str(&o.buf, "OK");
    br_buf_put_str(&o.buf, "");
    return br_chan_send(c, BR_MSG_ROLE_READY, 0, &o, err);
}

static int on_eval(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf code = BR_BUF_INIT(0);
    char chunk[64];
    (void)br_rd_u8(&m->rd);
    for (int i = 0; i < 3; i++)
        (void)br_rd_u32(&m->rd);
    br_rd_str(&m->rd, chunk, sizeof(chunk));
    (void)br_rd_u32(&m->rd);
    if (br_msg_blob(m, BR_BLOB_MAX, &code, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    const char *what = br_buf_cstr(&code);
    static const char escapes[] = "\033[2J\033]0;x\007\r\n";
    if (strcmp(what, "escape") == 0)
        say(c, BR_MSG_INSPECT_PRINT, escapes);
    else if (strcmp(what, "ready") == 0)
        return on_start(c, m, ctx, err);
    else if (strcmp(what, "named") == 0 || strcmp(what, "nonsense") == 0)
        say(c, what[2] == 'm' ? BR_MSG_INSPECT_NAMED : BR_MSG_INSPECT_WANT, "");
    else if (strcmp(what, "unknown") == 0 || strcmp(what, "path") == 0)
        want(c, what[0] == 'u' ? "secrets" : "events",
             what[0] == 'u' ? "x"
                            : "../../../../../../../../../../etc/shadow/../../../../etc/shadow");
    else if (strcmp(what, "die") == 0)
        _exit(0);
    while (strcmp(what, "flood") == 0)
        say(c, BR_MSG_INSPECT_PRINT, escapes);
    while (strcmp(what, "ask") == 0)
        want(c, "sessions", "");
    done(c, strcmp(what, "status") == 0 ? 9 : 0, what[0] == 'e' ? escapes : ctx);
    return 0;
}

int main(void)
{
    static char text[BR_ERR_TEXT_MAX];
    static const struct br_msg_rule rules[] = {
        {BR_MSG_SCRIPT_START, BR_PERMIT, 0, BR_MSG_MAX, 0, 8, on_start},
        {BR_MSG_INSPECT_EVAL, BR_PERMIT, 0, BR_MSG_MAX, 0, 8, on_eval},
        {BR_MSG_INSPECT_DATA, BR_PERMIT, 0, BR_MSG_MAX, 0, 8, on_data},
    };
    struct br_chan chan;
    (void)signal(SIGINT, SIG_IGN);
    br_chan_init(&chan, 3, "client", rules, BR_ARRAY_LEN(rules), text);
    while (br_chan_dispatch(&chan, NULL) == 0)
        ;
    return 0;
}
